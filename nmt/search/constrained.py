"""Wrapper of a search step that enforces the prefix and the forbidden sequences of each request.
The wrapper works with every search.

Probabilities are not renormalised, so a hypothesis has the same score as without constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from nmt.foundation.interfaces import Layout, Prediction, Request, SearchState, Step, to_device


@dataclass(frozen=True)
class Written:
    """Decoder state of a constrained step.

    inner: state of the step without constraints
    words: tokens of each search row so far, BOS first, on the CPU
    """

    inner: SearchState
    words: Int[Tensor, "N L"]

    def select(self, rows: Int[Tensor, " n"]) -> Written:
        return Written(self.inner.select(rows), self.words[rows])


class Constrained:
    """Search step that sets the log-probability of tokens excluded by a request to -inf.

    step: step without constraints
    requests: one request per sentence
    """

    def __init__(self, step: Step, requests: Sequence[Request]) -> None:
        self.step, self.requests = step, requests
        self.device, self.mask = step.device, step.mask
        continuing = sorted(requests[0].continuing) if requests else []
        self._continuing = to_device(torch.tensor(continuing, dtype=torch.long), step.device)

    def initial_state(self, state: SearchState) -> Written:
        """Returns the decoder state before the first token.

        state: initial state of the step without constraints
        """
        return Written(state, torch.empty(len(self.requests), 0, dtype=torch.long))

    def __call__(
        self, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None = None
    ) -> Prediction:
        assert isinstance(state, Written)
        words = torch.cat([state.words, tokens.unsqueeze(1)], 1)  # [N, L + 1]
        prediction = self.step(tokens, state.inner, layout)
        per_sentence = max(1, len(tokens) // len(self.requests))
        places = range(len(tokens)) if layout is None else layout.slots.tolist()
        width = per_sentence if layout is None else layout.width
        for row, (place, written) in enumerate(zip(places, words[:, 1:].tolist(), strict=True)):
            request = self.requests[place // width]
            if request.constrained:
                self._rule_out(request, written, prediction.log_probs[row])
        return Prediction(
            prediction.log_probs, Written(prediction.state, words), prediction.weights
        )

    def keep(self, sentences: Int[Tensor, " b"]) -> Constrained:
        return Constrained(
            self.step.keep(sentences), [self.requests[i] for i in sentences.tolist()]
        )

    def _rule_out(self, request: Request, written: list[int], log_probs: Tensor) -> None:
        beginning = beginning_tokens(request, written)
        if beginning:
            _keep_only(beginning, log_probs, ...)
        for sequence in request.forbidden:
            begun = len(sequence) - 1
            if not begun or tuple(written[-begun:]) == sequence[:-1]:
                log_probs[sequence[-1]] = -torch.inf
        if beginning:
            return
        if any(len(s) <= len(written) and tuple(written[-len(s) :]) == s for s in request.required):
            # A longer sequence that begins with this one may continue.
            _keep_only(progress(request, written)[1], log_probs, self._continuing)


def _keep_only(tokens: list[int], log_probs: Tensor, among: Any) -> None:
    """Sets log-probabilities [V] to -inf in place, except the log-probabilities of a few tokens.

    tokens: tokens whose log-probabilities stay unchanged
    among: index of the log-probabilities that are changed
    """
    places = to_device(torch.tensor(tokens, dtype=torch.long), log_probs.device)
    kept = log_probs[places]
    log_probs[among] = -torch.inf
    log_probs[places] = kept


def beginning_tokens(request: Request, written: Sequence[int]) -> list[int]:
    """Returns the tokens that may come next in the prescribed prefix of an output. The result is
    empty once the prefix is complete.

    request: constraints of the sentence
    written: tokens of the output so far
    """
    if len(written) < len(request.prefix):
        return [request.prefix[len(written)]]
    position = 0
    for token in written:
        if position < len(request.spellings):
            # Unexpected tokens occur only in empty beam slots.
            position = request.spellings[position].get(token, len(request.spellings))
    return list(request.spellings[position]) if position < len(request.spellings) else []


def progress(request: Request, tokens: Sequence[int]) -> tuple[int, list[int]]:
    """Counts the required tokens in an output, including the tokens of an incomplete last match.

    Longer required sequences are matched first, and matches do not overlap. A match does not count
    if a continuation subword follows it.

    request: required sequences of the sentence
    tokens: tokens of the output so far

    Returns the count, and the next tokens that would increase the count.
    """
    unmet: dict[int, list[tuple[int, ...]]] = {}  # by first token
    for sequence in sorted(request.required, key=len, reverse=True):
        unmet.setdefault(sequence[0], []).append(sequence)
    met = start = 0
    while start < len(tokens):
        beginning = unmet.get(tokens[start], [])
        for sequence in beginning:
            end = start + len(sequence)
            whole = end >= len(tokens) or tokens[end] not in request.continuing
            if whole and tuple(tokens[start:end]) == sequence:
                beginning.remove(sequence)
                met, start = met + len(sequence), end
                break
        else:
            begun = len(tokens) - start
            rest = tuple(tokens[start:])
            nexts = [s[begun] for s in beginning if len(s) > begun and rest == s[:begun]]
            if nexts:
                return met + begun, nexts
            start += 1
    return met, [first for first, sequences in unmet.items() if sequences]


def refuse_required(requests: Sequence[Request], search: str) -> None:
    """Raises ValueError if a request has required words. Called by searches that do not support
    required words.

    requests: one request per sentence
    search: name of the search, quoted in the message
    """
    if any(request.required for request in requests):
        raise ValueError(f"search={search} does not support required words: choose search=beam")
