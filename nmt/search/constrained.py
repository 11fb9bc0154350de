"""Constraints of a request: prefix, forbidden and repeated sequences, and required words.

`Constrained` wraps a model interface (`Step`), enforces the prefix, and excludes forbidden tokens
and repetitions of sequences of `no_repeat_ngram_size` tokens (Paulus et al. 2018, section
2.5). The wrapper works with every search. Probabilities are not renormalised, so a hypothesis has
the same score as without constraints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from nmt.foundation.interfaces import (
    Forbidden,
    Layout,
    Prediction,
    Request,
    SearchState,
    Step,
    to_device,
)


@dataclass(frozen=True)
class Written:
    """State of `Constrained` between decoder steps.

    inner: decoder state of the wrapped `Step`
    tokens: tokens of each unfinished hypothesis so far, BOS first, on the CPU
    """

    inner: SearchState
    tokens: Int[Tensor, "N L"]

    def select(self, rows: Int[Tensor, " n"]) -> Written:
        return Written(self.inner.select(rows), self.tokens[rows])


class Constrained:
    """`Step` (interface through which a search calls a model) that wraps another `Step`. Sets the
    log-probability of each token that a request excludes to -inf.

    step: wrapped `Step`, without constraints
    requests: one request per sentence
    """

    def __init__(self, step: Step, requests: Sequence[Request]) -> None:
        self.step = step
        self.requests = requests
        self.device = step.device
        self.mask = step.mask
        continuing = sorted(requests[0].continuing)
        self._continuing = to_device(torch.tensor(continuing, dtype=torch.long), step.device)

    def initial_state(self, state: SearchState) -> Written:
        """Returns the decoder state before the first token.

        state: initial decoder state of the wrapped `Step`
        """
        return Written(state, torch.empty(len(self.requests), 0, dtype=torch.long))

    def __call__(
        self, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None = None
    ) -> Prediction:
        assert isinstance(state, Written)
        written_tokens = torch.cat([state.tokens, tokens.unsqueeze(1)], 1)  # [N, L + 1]
        prediction = self.step(tokens, state.inner, layout)
        if layout is None:
            layout = Layout(len(tokens) // len(self.requests), torch.arange(len(tokens)))
        for sentence, written, log_probs in zip(
            layout.sentences.tolist(),
            written_tokens[:, 1:].tolist(),
            prediction.log_probs,
            strict=True,
        ):
            self._rule_out(self.requests[sentence], written, log_probs)
        return replace(prediction, state=Written(prediction.state, written_tokens))

    def keep(self, sentences: Int[Tensor, " b"]) -> Constrained:
        return Constrained(
            self.step.keep(sentences), [self.requests[i] for i in sentences.tolist()]
        )

    def _rule_out(self, request: Request, written: list[int], log_probs: Tensor) -> None:
        beginning = beginning_tokens(request, written)
        if beginning:
            # The other tokens would lead to a forbidden sequence within the prefix.
            possible = [
                token
                for token in beginning
                if can_avoid(request.spellings, request.forbidden, [*written, token])
            ]
            _keep_only(possible, log_probs)
        if request.forbidden:
            tokens = [*_forbidden_tokens(request.forbidden, written)]
            excluded = to_device(torch.tensor(tokens, dtype=torch.long), log_probs.device)
            log_probs.index_fill_(0, excluded, -torch.inf)
        if beginning:
            return
        needed = progress(request, written)[1] if request.required else ()
        for token in repeating_tokens(written, request.no_repeat_ngram_size).difference(needed):
            log_probs[token].fill_(-torch.inf)
        if any(len(s) <= len(written) and tuple(written[-len(s) :]) == s for s in request.required):
            # A longer sequence that begins with this one may continue.
            _keep_only(progress(request, written)[1], log_probs, self._continuing)


def _keep_only(tokens: list[int], log_probs: Tensor, among: Tensor | None = None) -> None:
    """Sets the log-probabilities of the tokens `among` to -inf in place, except those of `tokens`.

    tokens: ids of the tokens whose log-probabilities stay unchanged
    log_probs: log-probabilities of the vocabulary [V]
    among: ids of tokens; None for the whole vocabulary
    """
    places = to_device(torch.tensor(tokens, dtype=torch.long), log_probs.device)
    kept = log_probs[places]
    # Unlike assignments of a number, these methods do not make the host wait for a GPU.
    if among is None:
        log_probs.fill_(-torch.inf)
    else:
        log_probs.index_fill_(0, among, -torch.inf)
    log_probs[places] = kept


def beginning_tokens(request: Request, written: Sequence[int]) -> list[int]:
    """Returns the tokens that may come next in the required prefix of an output. The result is
    empty once the prefix is complete.

    request: constraints of the sentence
    written: tokens of the output so far
    """
    position = _position(request.spellings, written)
    return list(request.spellings[position]) if position < len(request.spellings) else []


def _position(spellings: Sequence[Mapping[int, int]], written: Sequence[int]) -> int:
    """Returns the position in a prefix after the tokens `written`; the length of the prefix once it
    is complete."""
    position = 0
    for token in written:
        if position < len(spellings):
            # Unexpected tokens occur only in empty beam slots.
            position = spellings[position].get(token, len(spellings))
    return position


def can_avoid(
    spellings: Sequence[Mapping[int, int]],
    forbidden: Sequence[Forbidden],
    written: Sequence[int],
) -> bool:
    """Returns whether the rest of a prefix can be spelled without a forbidden token.

    spellings: tokens that may begin at each character of the prefix, see `Request`
    forbidden: functions that exclude tokens
    written: tokens of the output so far; the result is False if the last token is forbidden
    """
    if not forbidden:
        return True
    # The last token, and the tokens before it that can exclude it
    memory = 1 + max(function.memory for function in forbidden)
    # Each state consists of a position in the prefix and the last tokens.
    open_states = [(_position(spellings, written), tuple(written[-memory:]))]
    seen = set(open_states)
    while open_states:
        position, tokens = open_states.pop()
        if tokens and tokens[-1] in _forbidden_tokens(forbidden, tokens[:-1]):
            continue
        if position == len(spellings):
            return True
        for token, end in spellings[position].items():
            state = (end, (*tokens, token)[-memory:])
            if state not in seen:
                seen.add(state)
                open_states.append(state)
    return False


def _forbidden_tokens(forbidden: Sequence[Forbidden], written: Sequence[int]) -> set[int]:
    """Returns all tokens that must not follow the tokens `written`."""
    return {token for function in forbidden for token in function(written)}


def repeating_tokens(written: Sequence[int], size: int) -> set[int]:
    """Returns the tokens with which an output would end in a sequence of `size` tokens that it
    already contains; no token with size 0.

    written: tokens of the output so far
    """
    begun = len(written) - size + 1  # position of the last `size` - 1 tokens
    if not size or begun <= 0:
        return set()
    end = list(written[begun:])
    return {written[i + size - 1] for i in range(begun) if written[i : i + size - 1] == end}


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
