"""Diverse beam search (Vijayakumar et al. 2018, eq. 7, with Hamming diversity).

Each sentence has several beams (groups). At each step, the groups are extended one after another.
The log-probability of a token is reduced by `diversity` for each hypothesis of the earlier groups
that has chosen the same token at this step. The penalty affects only the choice of tokens;
hypotheses keep the model's log-probability.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from nmt.foundation.interfaces import Hypothesis, Request, SearchState, Step
from nmt.foundation.parameter_types import check_arguments
from nmt.foundation.ranges import NonNegative, Width
from nmt.search.beam import Beam
from nmt.search.beam_state import BeamState, Extension
from nmt.search.breadth_first import breadth_first_search, most_probable
from nmt.search.constrained import refuse_required


class Diverse(Beam):
    """Diverse beam search. With one group, the result is equal to the result of beam search.

    width: total number of hypotheses per sentence, over all groups
    groups: number of groups (beams) of equal size
    diversity: penalty on the log-probability of a token for each hypothesis of the earlier groups
        that has chosen the token at the same step
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
        **settings: Any,
    ) -> None:
        check_arguments("search", Diverse, width=width, groups=groups, diversity=diversity)
        if width % groups:
            raise ValueError(f"search.width={width} must be a multiple of search.groups={groups}")
        super().__init__(width=width, **settings)
        self.groups = groups
        self.diversity = diversity

    def __call__(
        self, step: Step, state: SearchState, requests: Sequence[Request]
    ) -> list[list[Hypothesis]]:
        refuse_required(requests, "diverse")
        return breadth_first_search(
            step,
            state,
            requests,
            self._extend,
            width=self.width,
            starts=range(0, self.width, self.width // self.groups),
            n_best=self.n_best,
            penalty=self.penalty,
        )

    def _extend(self, beam: BeamState, log_probs: torch.Tensor) -> Extension:
        sentences, width = beam.totals.shape
        size = width // self.groups
        sentence, slot = np.divmod(beam.slots, width)  # [n], [n]
        # In float64, because penalties are subtracted and added again.
        shape = (sentences, log_probs.size(1))
        uses = log_probs.new_zeros(shape, dtype=torch.float64)  # [b, V], at this step
        groups = []
        for first in range(0, width, size):
            in_group = np.flatnonzero(slot // size == first // size)  # [m]
            group = replace(
                beam,
                totals=beam.totals[:, first : first + size],
                slots=sentence[in_group] * size + slot[in_group] - first,
                prefixes=beam.prefixes[in_group],
            )
            penalty = self.diversity * uses[beam.on_device(sentence[in_group])]  # [m, V]
            extension = most_probable(group, log_probs[beam.on_device(in_group)] - penalty)
            penalty = self.diversity * uses.gather(1, extension.tokens)  # [b, size]
            # Totals are log-probabilities of the model, without the penalty.
            totals = extension.totals + penalty
            groups.append(Extension(totals, extension.parents + first, extension.tokens))
            uses.scatter_add_(1, extension.tokens, (totals > -torch.inf).to(uses.dtype))
        return Extension(
            totals=torch.cat([group.totals for group in groups], 1),
            parents=torch.cat([group.parents for group in groups], 1),
            tokens=torch.cat([group.tokens for group in groups], 1),
        )
