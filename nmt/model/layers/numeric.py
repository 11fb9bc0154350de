"""Numerical helper functions: conversion to float32, fast tanh, weight initialisation."""

from typing import TypeVar

import torch
from torch import Tensor, nn

from nmt.model.layers.packed import native
from nmt.model.native import native_decoding

Layer = TypeVar("Layer", bound=nn.Linear)


def to_float(x: Tensor) -> Tensor:
    """Converts bfloat16 and float16 tensors to float32; returns other tensors unchanged."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def tanh(x: Tensor) -> Tensor:
    """Returns the hyperbolic tangent. On CPUs, it is computed as 2σ(2x) − 1, because PyTorch's
    sigmoid is four times as fast as its tanh."""
    if native(x):
        return native_decoding.tanh(x)
    return torch.tanh(x) if x.is_cuda else torch.sigmoid(2 * x).mul(2).sub(1)


def xavier(layer: Layer) -> Layer:
    """Initialises a linear layer in place with Xavier-uniform weights and zero biases, and returns
    it."""
    nn.init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
