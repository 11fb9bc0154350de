"""Normalisers: functions from a row of scores to non-negative weights that sum to 1.

Masked positions have the score −∞ and get weight 0. Each normaliser is one file in this folder and
one YAML file in conf/normalizer.

Modules in reading order: softmax, sparsemax, entmax15.
"""

from collections.abc import Callable

from torch import Tensor

Normalizer = Callable[[Tensor], Tensor]
"""Type of normalisers: functions from attention scores [… S] to attention weights [… S]."""
