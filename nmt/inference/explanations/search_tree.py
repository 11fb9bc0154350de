"""What a search tried on its way: a tree of the words it looked at, which of them it went on with, and what the model
thought of others at each place. The search itself is not changed: it is given a step that takes notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from nmt.foundation.interfaces import EOS, Layout, Prediction, Prepared, SearchState, Step
from nmt.inference.model_step import ModelStep

Fate = Literal["written", "finished", "left"]


@dataclass
class Node:
    """A word after other words. `parent`: the node before it (-1: none; this is the beginning of the sentence); `log_prob`
    of the word after them, `total` of all of them; `next`: the most probable words after it, with their log-probabilities.
    `fate`: written (in the best translation), finished (in another complete one) or left (given up)."""

    parent: int
    token: int
    log_prob: float
    total: float
    next: list[tuple[int, float]] = field(default_factory=list)
    fate: Fate = "left"


@dataclass(frozen=True)
class SearchTrace:
    """The state of another step, and at which node each row is."""

    inner: SearchState
    nodes: tuple[int, ...]

    def select(self, rows: Int[Tensor, " n"]) -> SearchTrace:
        return SearchTrace(self.inner.select(rows), tuple(self.nodes[row] for row in rows.tolist()))


class RecordingStep:
    """A step for one sentence that notes each word it is asked about, with the `most` best after it."""

    def __init__(self, step: Step, most: int) -> None:
        self.step, self.most, self.nodes = step, most, list[Node]()
        self.device, self.mask = step.device, step.mask
        self._after: list[Tensor] = []  # log-probabilities of all words after each node
        self._seen: list[Tensor] = []  # attention while they were predicted

    def initial_state(self, state: SearchState) -> SearchTrace:
        return SearchTrace(state, (-1,))

    def __call__(
        self, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None = None
    ) -> Prediction:
        assert isinstance(state, SearchTrace)
        prediction, rows = self.step(tokens, state.inner, layout), list[int]()
        for parent, token, log_probs in zip(
            state.nodes, tokens.tolist(), prediction.log_probs, strict=True
        ):
            own = float(self._after[parent][token]) if parent >= 0 else 0.0
            before = self.nodes[parent].total if parent >= 0 else 0.0
            best = log_probs.topk(min(self.most, len(log_probs)))
            following = list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
            self.nodes.append(Node(parent, token, own, before + own, following))
            self._after.append(log_probs.clone())  # searches write into it
            rows.append(len(self.nodes) - 1)
        self._seen += [] if prediction.weights is None else [*prediction.weights]
        return Prediction(
            prediction.log_probs, SearchTrace(prediction.state, tuple(rows)), prediction.weights
        )

    def keep(self, sentences: Int[Tensor, " b"]) -> RecordingStep:
        return self  # there is only one

    def attention(self, path: Sequence[int]) -> np.ndarray | None:
        """[words of a path but the first, source] where the model looked while it predicted them; None without attention."""
        return (
            torch.stack([self._seen[i] for i in path[:-1]]).float().cpu().numpy()
            if self._seen
            else None
        )

    def ended(self, hypotheses: Sequence[Sequence[int]]) -> list[int]:
        """Marks complete translations, the best first; the nodes of the best, its EOS last."""
        children: dict[tuple[int, int], int] = {
            (node.parent, node.token): i for i, node in enumerate(self.nodes) if node.parent >= 0
        }
        best: list[int] = []
        for k, tokens in enumerate(hypotheses):
            path = [0]
            for token in tokens:
                path.append(children[path[-1], token])
            end = self.nodes[path[-1]]
            own = float(self._after[path[-1]][EOS])
            self.nodes.append(Node(path[-1], EOS, own, end.total + own))
            self._after.append(self._after[path[-1]])
            path.append(len(self.nodes) - 1)
            for i in path:
                if self.nodes[i].fate == "left":
                    self.nodes[i].fate = "finished" if k else "written"
            best = best or path
        return best


class DirectedAttentionStep:
    """A model's step in which the attention of some steps is directed to one position of the source each: `attend_to` names the
    position by the number of the step, from 0. All other positions are hidden from it there."""

    def __init__(self, step: ModelStep, attend_to: Mapping[int, int]) -> None:
        self.step, self.attend_to = step, attend_to
        self.device, self.mask = step.device, step.mask

    def initial_state(self, state: SearchState) -> DirectedAttentionState:
        return DirectedAttentionState(state, 0)

    def __call__(
        self, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None = None
    ) -> Prediction:
        assert isinstance(state, DirectedAttentionState)
        step = self.step
        if state.steps in self.attend_to:
            step = ModelStep(step.model, _seen(step.memory, self.attend_to[state.steps]))
        prediction = step(tokens, state.inner, layout)
        return replace(prediction, state=DirectedAttentionState(prediction.state, state.steps + 1))

    def keep(self, sentences: Int[Tensor, " b"]) -> DirectedAttentionStep:
        return DirectedAttentionStep(self.step.keep(sentences), self.attend_to)


@dataclass(frozen=True)
class DirectedAttentionState:
    """The state of another step, and how many steps were made."""

    inner: SearchState
    steps: int

    def select(self, rows: Int[Tensor, " n"]) -> DirectedAttentionState:
        return DirectedAttentionState(self.inner.select(rows), self.steps)


def _seen(memory: Prepared, position: int) -> Prepared:
    """A memory of which only one position can be seen."""
    mask = torch.zeros_like(memory.mask)
    mask[:, position] = memory.mask[:, position]
    return replace(memory, encoded=replace(memory.encoded, mask=mask))
