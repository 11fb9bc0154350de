"""Diverse beam search (Vijayakumar et al. 2018, eq. 7, with Hamming diversity).

Each sentence has several beams (groups). At each step, the groups are extended one after another. A
token loses `diversity` of log-probability for each earlier group that has chosen the same token at
this step. The penalty affects only the choice of tokens; hypotheses keep the model's
log-probability.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from nmt.foundation.interfaces import Hypothesis, Request, SearchState, Step
from nmt.foundation.part_limits import ConfigError, RunView
from nmt.foundation.ranges import NonNegative, Width
from nmt.search.breadth_first import BeamState, Extension, breadth_first_search, most_probable
from nmt.search.constrained import refuse_required
from nmt.search.penalty import ALPHA, Penalty, PenaltyName


class Diverse:
    """Diverse beam search. With one group, the result is equal to the result of beam search.

    width: total number of hypotheses per sentence, over all groups
    groups: number of groups (beams) of equal size
    diversity: penalty on the log-probability of a token for each earlier group that has chosen the
        token at the same step
    n_best: number of distinct hypotheses to return per sentence
    length_penalty: name of the length penalty: none, average, power, wu or reward
    alpha: exponent or reward of the length penalty
    coverage: weight of the coverage penalty; 0 disables the penalty

    Raises ValueError if `groups` does not divide `width`, or if `n_best` is larger than `width`.
    """

    def __init__(
        self,
        *,
        width: Width = 6,
        groups: Width = 3,
        diversity: NonNegative = 0.5,
        n_best: Width = 1,
        length_penalty: PenaltyName = "average",
        alpha: NonNegative = ALPHA,
        coverage: NonNegative = 0.0,
    ) -> None:
        if width % groups:
            raise ValueError(f"search.width={width} must be a multiple of search.groups={groups}")
        if n_best > width:
            raise ValueError(f"search.n_best={n_best} must be at most search.width={width}")
        self.width = width
        self.groups = groups
        self.diversity = diversity
        self.n_best = n_best
        self.penalty = Penalty(length_penalty, alpha, coverage)

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """Yields an error if a coverage penalty is set for a network without attention."""
        return run.needing_attention("search.coverage")

    @property
    def needs_attention(self) -> bool:
        """Whether the search needs attention weights, i.e. has a coverage penalty."""
        return self.penalty.coverage > 0

    def __call__(
        self, step: Step, state: SearchState, requests: Sequence[Request]
    ) -> list[list[Hypothesis]]:
        refuse_required(requests, "diverse")
        hypotheses = breadth_first_search(
            step,
            state,
            requests,
            self._extend,
            width=self.width,
            starts=range(0, self.width, self.width // self.groups),
            n_best=self.width,
            penalty=self.penalty,
        )
        return [_distinct(ranked)[: self.n_best] for ranked in hypotheses]

    def _extend(self, beam: BeamState, log_probs: Tensor) -> Extension:
        sentences, width = beam.totals.shape
        size = width // self.groups
        uses = log_probs.new_zeros(sentences, log_probs.size(1))  # [b, V], at this step
        groups = []
        for first in range(0, width, size):
            sentence, slot = beam.slots // width, beam.slots % width  # [n], [n]
            in_group = np.flatnonzero((slot >= first) & (slot < first + size))  # [m]
            sentence = sentence[in_group]
            rows = beam.on_device(in_group)
            penalty = self.diversity * uses[beam.on_device(sentence)]  # [m, V]
            group = replace(
                beam,
                totals=beam.totals[:, first : first + size],
                slots=sentence * size + slot[in_group] - first,
                prefixes=beam.prefixes[in_group],
            )
            extension = most_probable(group, log_probs[rows] - penalty)
            used = (extension.totals > -torch.inf).to(uses.dtype)  # [b, size]
            penalties = self.diversity * uses.gather(1, extension.tokens)  # [b, size]
            uses.scatter_add_(1, extension.tokens, used)
            groups.append(
                Extension(
                    totals=extension.totals
                    + penalties,  # log-probability of the model, without the penalty
                    parents=extension.parents + first,
                    tokens=extension.tokens,
                )
            )
        return Extension(
            totals=torch.cat([group.totals for group in groups], 1),
            parents=torch.cat([group.parents for group in groups], 1),
            tokens=torch.cat([group.tokens for group in groups], 1),
        )


def _distinct(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Returns the hypotheses in the same order, without later hypotheses that have equal tokens."""
    first: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in hypotheses:
        first.setdefault(tuple(hypothesis.tokens), hypothesis)
    return list(first.values())
