"""Explanation of one translation: attention weights, alternatives for each token, and search
tree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import UNK, Hypothesis, Request, Step
from nmt.inference.explanations.search_tree import Node, RecordingStep
from nmt.inference.translator import Translator
from nmt.search.constrained import Constrained

ALTERNATIVES = 12
"""Number of most probable next tokens shown at each node of the search tree."""
SPARE_TOKENS = 10
"""Minimum number of tokens by which a translation may exceed a given prefix, even for a short
source."""


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

    @property
    def tokens(self) -> list[int]:
        return self.others[0].tokens


@torch.inference_mode()
def explain(
    translator: Translator,
    line: str,
    prefix: Sequence[int] = (),
    *,
    whole: bool = False,
    attend_to: Mapping[int, int] | None = None,
) -> Explanation:
    """Translates a line and records the translator's search.

    translator: translator with a model or an ensemble
    line: source sentence
    prefix: token ids with which the translation must begin
    whole: whether the prefix is the complete translation
    attend_to: mapping from decoder steps (from 0) to the source position that gets all attention

    Raises UserError if the line has no words, the prefix is not a sequence of the model's tokens,
    a decoder step or source position does not exist, or the search draws several samples.
    """
    [source] = translator.encode([line])
    attend_to = dict(attend_to or {})
    _check(translator, source, prefix, attend_to)
    limit = len(prefix)
    if not whole:
        limit = max(translator.request(source).max_length, len(prefix) + SPARE_TOKENS)
    request = Request(max_length=limit, prefix=tuple(prefix))
    memories = translator.networks.memories([source])
    with translator.networks.generating():
        first_step, state = translator.networks.first_step(memories)
        recorder = RecordingStep(first_step, ALTERNATIVES, attend_to)
        state = recorder.initial_state(state)
        step: Step = recorder
        if request.constrained:
            step = Constrained(recorder, [request])
            state = step.initial_state(state)
        [hypotheses] = translator.search(step, state, [request])
    if not hypotheses:
        raise UserError("prefix: the search found no translation with this prefix; shorten it")
    if sum(node.parent < 0 for node in recorder.nodes) > 1:
        raise UserError("search: samples have no search tree; choose search=beam")
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


def _check(
    translator: Translator,
    source: Sequence[int],
    prefix: Sequence[int],
    attend_to: Mapping[int, int],
) -> None:
    if not source:
        raise UserError("text: contains no words; enter a sentence")
    if not all(UNK <= token < translator.tokenizer.target_size for token in prefix):
        raise UserError(
            f"prefix: token ids must be from {UNK} to {translator.tokenizer.target_size - 1}"
        )
    if attend_to and (len(translator.models) > 1 or not translator.attends):
        raise UserError("attend_to: needs attention, and a single model instead of an ensemble")
    if any(step < 0 or not 0 <= position <= len(source) for step, position in attend_to.items()):
        raise UserError(f"attend_to: source positions must be from 0 to {len(source)}")
