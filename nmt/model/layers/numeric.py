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
    """Returns the hyperbolic tangent.

    On CPUs, the function computes 2σ(2x) − 1, because PyTorch's sigmoid is four times as fast as
    its tanh. In bfloat16 and float16, this difference would round small values to 0.
    """
    if x.is_cuda or x.dtype in (torch.bfloat16, torch.float16):
        return torch.tanh(x)
    return native_decoding.tanh(x) if native(x) else torch.sigmoid(2 * x).mul(2).sub(1)


def sampled(probabilities: Tensor) -> Tensor:
    """Samples an index along the last dimension from each row of probabilities. The distribution of
    the samples is that of torch.multinomial. On a GPU, torch.multinomial would make the host wait,
    because it checks the probabilities.

    probabilities: non-negative weights [… V]
    """
    noise = torch.empty_like(probabilities).exponential_()  # [… V]
    return (probabilities / noise).argmax(-1)


def only(x: Tensor, mask: Tensor) -> Tensor:
    """Selects the vectors of a tensor x [N, T, X] at the n positions where a mask [N, T] is True.

    On a CPU, the result contains these vectors as rows [n, X]. On a GPU, where the host would have
    to wait for n, the result has the shape of x, with zeros at all other positions.
    """
    return x[mask] if x.is_cpu else x * mask.unsqueeze(-1)


def exclude(log_probs: Tensor, *tokens: int) -> None:
    """Sets the log-probabilities [… V] of a few tokens to -inf, in place."""
    for token in tokens:  # a list as an index would be copied to a GPU
        log_probs[..., token] = -torch.inf


def xavier(layer: Layer) -> Layer:
    """Initialises a linear layer in place with Xavier-uniform weights and zero biases.

    Returns the layer.
    """
    nn.init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
