"""Normalisers: functions from a row of scores to non-negative weights that sum to 1.

Masked positions have the score −∞ and get exactly 0. A normaliser is one file here and one YAML in
conf/normalizer.

Read: softmax, sparsemax, entmax15.
"""

from collections.abc import Callable

from torch import Tensor

Normalizer = Callable[[Tensor], Tensor]
"""Scores [… S] → weights [… S]."""
