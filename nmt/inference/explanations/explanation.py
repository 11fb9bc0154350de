"""Why a model wrote what it wrote: its attention, what else it thought of at each word, and what its search tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import UNK, Hypothesis, Request
from nmt.inference.explanations.search_tree import DirectedAttentionStep, Node, RecordingStep
from nmt.inference.translator import Translator
from nmt.search.constrained import Constrained
from nmt.tokenizer.words import words

TOP = 12
"""Words shown that might stand at a place."""


@dataclass(frozen=True)
class Explanation:
    """A translation of one sentence, in ids. `tree`: what the search tried; `path`: the nodes of this translation in it, the
    beginning first, EOS last. `attention` [tokens and EOS, source and EOS], `heads` [heads, …] (None without).
    `others`: all complete translations of the search, best first."""

    source: list[int]
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
    """The translation of a line, as the translator's search finds it. It begins with the tokens `prefix`; with `whole` they
    are all of it. `attend_to`: at these steps, from 0, the attention is on these positions of the source only.

    Raises UserError if the line has no words, the prefix is no sequence of tokens of the model, or a step or position does
    not exist."""
    [source] = translator.encode([line])
    if not source:
        raise UserError("there are no words in the text")
    if not all(UNK <= token < translator.tokenizer.target_size for token in prefix):
        raise UserError(f"prefix: tokens are numbers below {translator.tokenizer.target_size}")
    attend_to = dict(attend_to or {})
    if attend_to and (len(translator.models) > 1 or not translator.attends):
        raise UserError("attention can be directed for a single model that has attention")
    if any(step < 0 or not 0 <= position <= len(source) for step, position in attend_to.items()):
        raise UserError(f"attention can be directed to positions 0 to {len(source)} of this text")
    limit = len(prefix) if whole else max(translator.request(source).max_length, len(prefix) + 10)
    request = Request(max_length=limit, prefix=tuple(prefix))
    memories = translator.networks.memories([source])
    with translator.networks.generating():
        step, state = translator.networks.first_step(memories)
        if attend_to:
            step = DirectedAttentionStep(step, attend_to)  # type: ignore[arg-type]
            state = step.initial_state(state)
        noting = RecordingStep(step, TOP)
        state = noting.initial_state(state)
        step = noting
        if request.constrained:
            step = Constrained(noting, [request])
            state = step.initial_state(state)
        [hypotheses] = translator.search(step, state, [request])
    if not hypotheses:
        raise UserError("the search finds no translation that begins so")
    path = noting.ended([h.tokens for h in hypotheses])
    heads = None
    decoder = translator.models[0].decoder
    if (
        not attend_to
        and len(translator.models) == 1
        and decoder.attends
        and decoder.attention.score.heads > 1
    ):
        heads = translator.force([source], [hypotheses[0].tokens])[0].heads
    return Explanation(source, noting.nodes, path, noting.attention(path), heads, hypotheses)


def influence(
    translator: Translator, line: str, first: Sequence[int], second: Sequence[int]
) -> list[float]:
    """How much each word of a line speaks for one translation rather than another: by how much log p(first) - log p(second)
    falls when the word is unknown to the model (occlusion; Li et al. 2016)."""
    [source] = translator.encode([line])
    places = translator.tokenizer.source_words(line, source)
    hidden = [
        [UNK if number in place else token for token, place in zip(source, places, strict=True)]
        for number in range(len(words(line)))
    ]
    sources = [source, *hidden]
    found = translator.force(
        [*sources, *sources],
        [[*first]] * len(sources) + [[*second]] * len(sources),
        attention=False,
    )
    values = np.array([one.log_prob for one in found]).reshape(2, -1)
    margin = values[0] - values[1]
    return [float(value) for value in margin[0] - margin[1:]]
