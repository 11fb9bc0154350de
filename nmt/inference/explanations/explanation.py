"""Explanation of one translation: attention weights, alternatives for each token, and search tree.

The search tree has a node for the last token of each hypothesis that the search extends. Each node
lists the most probable next tokens. A wrapper of the search step records the tree, without changing
the result of the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import (
    EOS,
    UNK,
    Hypothesis,
    Layout,
    Prediction,
    Prepared,
    Reranker,
    SearchState,
    Step,
)
from nmt.inference.model_step import ModelStep
from nmt.inference.translator import Translator
from nmt.search.constrained import Constrained

AttendTo = Sequence[tuple[int, int]]
"""Type of pairs (decoder step, source position): attention that a user directs by hand."""


@dataclass
class Node:
    """Node of the search tree: one token after a prefix.

    parent: number of the parent node, the last token of the prefix; -1 for BOS, the root
    token: token id
    log_prob: log-probability of the token
    total: log-probability of the prefix together with the token
    next: most probable next tokens with their log-probabilities, best first
    fate: status of the token at the end of the search: `written` for a token of the best
        translation, `finished` for a token of another complete translation, `left` for a pruned
        token
    """

    parent: int
    token: int
    log_prob: float
    total: float
    next: list[tuple[int, float]] = field(default_factory=list)
    fate: Literal["written", "finished", "left"] = "left"


@dataclass(frozen=True)
class SearchTrace:
    """Decoder state of a search whose search tree is recorded.

    inner: decoder state of the wrapped search step
    nodes: node number of each search row, on the CPU
    depth: depth of the nodes in the tree, 0 for BOS
    """

    inner: SearchState
    nodes: Int[Tensor, " N"]
    depth: int

    def select(self, rows: Int[Tensor, " n"]) -> SearchTrace:
        return SearchTrace(self.inner.select(rows), self.nodes[rows], self.depth)


class RecordingStep:
    """Wrapper of a search step that records the search tree of one sentence.

    step: wrapped search step
    alternatives: number of most probable next tokens recorded at each node
    attend_to: pairs (depth of a node, source position); at a depth with pairs, only their positions
        get attention; supported for a single model only
    """

    def __init__(self, step: Step, alternatives: int, attend_to: AttendTo) -> None:
        self.step = step
        self.alternatives = alternatives
        self.attend_to = attend_to
        self.nodes: list[Node] = []
        self.device = step.device
        self.mask = step.mask
        self._log_probs: list[Tensor] = []  # [V] log-probabilities of the next token, per node
        self._weights: list[Tensor] = []  # [S] attention for the next token, per node

    def __call__(
        self, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None = None
    ) -> Prediction:
        assert isinstance(state, SearchTrace)
        step = self.step
        positions = [position for depth, position in self.attend_to if depth == state.depth]
        if positions:
            assert isinstance(step, ModelStep)
            step = ModelStep(step.model, _only_positions(step.memory, positions))
        prediction = step(tokens, state.inner, layout)
        first = len(self.nodes)
        for parent, token, log_probs in zip(
            state.nodes.tolist(), tokens.tolist(), prediction.log_probs, strict=True
        ):
            best = log_probs.topk(min(self.alternatives, len(log_probs)))
            alternatives = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            self._add_node(parent, token, list(alternatives))
            self._log_probs.append(log_probs.clone())  # searches overwrite the log-probabilities
        if prediction.weights is not None:
            self._weights += [*prediction.weights]  # [S] for each row
        nodes = torch.arange(first, len(self.nodes))
        return replace(prediction, state=SearchTrace(prediction.state, nodes, state.depth + 1))

    def keep(self, sentences: Int[Tensor, " b"]) -> RecordingStep:
        return self  # a recorded step has a single sentence

    def _add_node(self, parent: int, token: int, alternatives: list[tuple[int, float]]) -> None:
        log_prob = float(self._log_probs[parent][token]) if parent >= 0 else 0.0
        total = self.nodes[parent].total + log_prob if parent >= 0 else 0.0
        self.nodes.append(Node(parent, token, log_prob, total, alternatives))

    def attention(self, path: Sequence[int]) -> np.ndarray | None:
        """Returns the attention weights of the tokens on a path of the search tree, without BOS, as
        an array [tokens, source positions]; None for a model without attention.

        path: node numbers from the root to EOS
        """
        if not self._weights:
            return None
        return torch.stack([self._weights[node] for node in path[:-1]]).float().cpu().numpy()

    def finish(self, translations: Sequence[Sequence[int]]) -> list[int]:
        """Adds an EOS node for each complete translation. Sets `fate` to `written` for the nodes of
        the best translation, and to `finished` for the nodes of the other translations.

        translations: token ids of each complete translation, best first

        Returns the path of the best translation, as node numbers from the root to EOS.
        """
        children = {(node.parent, node.token): number for number, node in enumerate(self.nodes)}
        paths = []
        for tokens in translations:
            path = list(accumulate(tokens, lambda node, token: children[node, token], initial=0))
            self._add_node(path[-1], EOS, [])
            paths.append([*path, len(self.nodes) - 1])
        for path in reversed(paths):
            for number in path:
                self.nodes[number].fate = "written" if path is paths[0] else "finished"
        return paths[0]


def _only_positions(memory: Prepared, positions: Sequence[int]) -> Prepared:
    """Returns a copy of the encoder memory in which all other source positions are masked."""
    mask = torch.zeros_like(memory.mask)
    mask[:, positions] = memory.mask[:, positions]
    return replace(memory, encoded=replace(memory.encoded, mask=mask))


ALTERNATIVES = 12
"""Number of most probable next tokens shown at each node of the search tree."""
SPARE_TOKENS = 10
"""Number of tokens that may always follow a given prefix, even if the length limit of the sentence
is lower."""


@dataclass(frozen=True)
class Explanation:
    """Translation of one sentence, as token ids, with a record of the search.

    source: source token ids
    tree: nodes of the search tree
    path: node numbers of the best translation, from the root to EOS
    attention: [tokens + EOS, source + EOS] attention weights; None for a model without attention
    heads: [heads, tokens + EOS, source + EOS] attention weights of each head; None unless a single
        model has several heads
    others: all complete translations of the search, best first, including the best one
    """

    source: Sequence[int]
    tree: list[Node]
    path: list[int]
    attention: np.ndarray | None
    heads: np.ndarray | None
    others: list[Hypothesis]


@torch.inference_mode()
def explain(
    translator: Translator,
    line: str,
    prefix: Sequence[int] = (),
    *,
    whole: bool = False,
    attend_to: AttendTo = (),
) -> Explanation:
    """Translates a line and records the translator's search.

    translator: translator with a model or an ensemble
    line: source sentence
    prefix: token ids with which the translation must begin
    whole: whether the prefix is the complete translation
    attend_to: pairs (decoder step, source position), each from 0; at a step with pairs, only their
        positions get attention

    Raises UserError if the line has no words, the prefix is not a sequence of the model's tokens, a
    source position does not exist, or the network has a window and `attend_to` is given. Also
    raises UserError if the search draws several samples or reranks its translations.
    """
    [source] = translator.encode([line])
    _check(translator, source, prefix, attend_to)
    request = translator.request(source)
    least = len(prefix) + SPARE_TOKENS if prefix else 0
    limit = len(prefix) if whole else max(request.max_length, least)
    # The prefix has a single spelling, its tokens.
    spellings = tuple({token: end} for end, token in enumerate(prefix, 1))
    request = replace(request, max_length=limit, spellings=spellings)
    memories = translator.networks.memories([source])
    with translator.networks.generating():
        first_step, state = translator.networks.first_step(memories)
        recorder = RecordingStep(first_step, ALTERNATIVES, attend_to)
        step = Constrained(recorder, [request])
        state = step.initial_state(SearchTrace(state, torch.tensor([-1]), depth=0))
        [hypotheses] = translator.search(step, state, [request])
    if not hypotheses:
        raise UserError("prefix: the search found no translation; shorten the prefix")
    if sum(node.parent < 0 for node in recorder.nodes) > 1:
        raise UserError("search: this search produces several trees; choose search=beam")
    path = recorder.finish([hypothesis.tokens for hypothesis in hypotheses])
    return Explanation(
        source=source,
        tree=recorder.nodes,
        path=path,
        attention=recorder.attention(path),
        # Forced decoding ignores `attend_to`.
        heads=None if attend_to else translator.force([source], [hypotheses[0].tokens])[0].heads,
        others=hypotheses,
    )


def can_attend_to(translator: Translator) -> bool:
    """Returns whether `attend_to` is supported: for one model with attention and without an
    attention window."""
    if len(translator.models) > 1 or not translator.attends:
        return False
    return not translator.models[0].decoder.attention.window.positional


def _check(
    translator: Translator,
    source: Sequence[int],
    prefix: Sequence[int],
    attend_to: AttendTo,
) -> None:
    if not source:
        raise UserError("text: contains no words; enter a sentence")
    last = translator.tokenizer.target_size - 1
    if not all(token == UNK or EOS < token <= last for token in prefix):
        raise UserError(f"prefix: token ids must be {UNK} or from {EOS + 1} to {last}")
    if isinstance(translator.search, Reranker):
        raise UserError("search: reranks its translations by their texts; choose search=beam")
    if attend_to and not can_attend_to(translator):
        raise UserError(
            "attend_to: supported only for one model with attention, not for ensembles and models "
            "with an attention window"
        )
    if any(step < 0 or not 0 <= position <= len(source) for step, position in attend_to):
        raise UserError(
            f"attend_to: source positions must be from 0 to {len(source)} (the end-of-sentence "
            "token), and decoder steps must be at least 0"
        )
