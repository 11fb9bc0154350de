"""Small functions of all networks: conversion to float32, hyperbolic tangent, initial weights."""

from typing import TypeVar

import torch
from torch import Tensor, nn

from nmt.model.layers.packed import native
from nmt.model.native import native_decoding

Layer = TypeVar("Layer", bound=nn.Linear)


def to_float(x: Tensor) -> Tensor:
    """x as float32 if autocast made it bfloat16 or float16; float32 and float64 stay."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def tanh(x: Tensor) -> Tensor:
    """Hyperbolic tangent.

    On CPUs it is 2σ(2x) − 1, because PyTorch's logistic is four times as fast as its tanh.
    """
    if native(x):
        return native_decoding.tanh(x)
    return torch.tanh(x) if x.is_cuda else torch.sigmoid(2 * x).mul(2).sub(1)


def xavier(layer: Layer) -> Layer:
    """Initialises a linear layer, and returns it: Xavier's uniform weights, biases 0."""
    nn.init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
