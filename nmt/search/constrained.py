"""Constraints of a request: prefix, forbidden and repeated sequences, and required words.

`Constrained` wraps a model interface (`Step`), enforces the prefix, and excludes forbidden
sequences and repetitions of sequences of `no_repeat_ngram_size` tokens (Paulus et al. 2018, section
2.5). The wrapper works with every search. Probabilities are not renormalised, so a hypothesis has
the same score as without constraints.

`allocate` chooses the extensions of beam search with required words, by dynamic beam allocation
(Post & Vilar 2018). The beam slots of a sentence are divided among banks. Bank c contains the
hypotheses with c of the required tokens. Each hypothesis is extended by the most probable tokens
and by every token that moves it to a higher bank. Only hypotheses with all required tokens may end.
Slots that a bank cannot fill go to the highest bank that can. The hypothesis with the most required
tokens therefore stays in the beam, and the output contains all required words, however improbable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from nmt.foundation.interfaces import (
    EOS,
    Layout,
    Prediction,
    Request,
    SearchState,
    Step,
    to_device,
    to_host,
)
from nmt.search.beam_state import BeamState, Extension
from nmt.search.breadth_first import most_probable
from nmt.search.shortcuts import top_k


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
            _keep_only(beginning, log_probs)
        for sequence in request.forbidden:
            begun = len(sequence) - 1
            if not begun or tuple(written[-begun:]) == sequence[:-1]:
                log_probs[sequence[-1]].fill_(-torch.inf)
        if beginning:
            return
        needed = {token for sequence in request.required for token in sequence}
        for token in repeating_tokens(written, request.no_repeat_ngram_size) - needed:
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
    position = 0
    for token in written:
        if position < len(request.spellings):
            # Unexpected tokens occur only in empty beam slots.
            position = request.spellings[position].get(token, len(request.spellings))
    return list(request.spellings[position]) if position < len(request.spellings) else []


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


class BankCandidate(NamedTuple):
    """Candidate extension of a hypothesis by one token. Candidates are ordered by bank, then
    log-probability, then slot, then token.

    bank: number of required tokens in the extended hypothesis
    total: log-probability of the extended hypothesis
    slot: beam slot, within the sentence, of the hypothesis that is extended
    token: token that is appended
    """

    bank: int
    total: float
    slot: int
    token: int


def allocate(requests: Sequence[Request], beam: BeamState, log_probs: Tensor) -> Extension:
    """Returns the next hypotheses of each sentence. Beam slots are reserved for hypotheses that
    contain required tokens.

    requests: one request per sentence
    beam: state with the unfinished hypotheses
    log_probs: log-probabilities of all next tokens for each unfinished hypothesis [n, V]
    """
    free = most_probable(beam, log_probs)
    likely = top_k(log_probs, min(beam.width + 1, log_probs.size(1)))[1]  # [n, k]
    required = sorted({t for request in requests for ids in request.required for t in ids})
    columns = beam.on_device(np.array(required)).expand(len(likely), -1)  # [n, required]
    read = torch.cat([likely, columns], 1)  # [n, k + required], tokens that the host reads
    # One copy of everything that the host reads.
    fields = free.totals, free.parents, free.tokens, beam.totals
    arrays = to_host(*fields, read, log_probs.gather(1, read))
    extension = Extension(*map(torch.from_numpy, arrays[:3]))
    totals = arrays[3]  # [b, W]
    tokens = arrays[4].tolist()
    values = arrays[5].tolist()
    for i, sentence in enumerate(beam.sentences):
        request = requests[sentence]
        if not request.required:
            continue
        candidates = []
        for row in np.flatnonzero(beam.slots // beam.width == i).tolist():
            slot = int(beam.slots[row]) % beam.width
            value_of = dict(zip(tokens[row], values[row], strict=True))
            prefix = beam.prefixes[row, 1:].tolist()  # without BOS
            for token, bank in _banks(request, prefix, tokens[row][: likely.size(1)]).items():
                total = float(totals[i, slot]) + value_of[token]
                candidates.append(BankCandidate(bank, total, slot, token))
        chosen = _share_out(candidates, beam.width, sum(map(len, request.required)))
        chosen += [BankCandidate(0, -torch.inf, 0, EOS)] * (beam.width - len(chosen))
        extension.totals[i] = torch.tensor([c.total for c in chosen], dtype=torch.float64)
        extension.parents[i] = torch.tensor([c.slot for c in chosen])
        extension.tokens[i] = torch.tensor([c.token for c in chosen])
    return extension


def _banks(request: Request, prefix: list[int], likely: Sequence[int]) -> dict[int, int]:
    """Returns the next tokens that may extend a hypothesis, each with the number of required tokens
    in the extended hypothesis.

    request: required tokens of the sentence
    prefix: tokens of the hypothesis
    likely: most probable next tokens
    """
    met, advancing = progress(request, prefix)
    banks = dict.fromkeys(advancing, met + 1)
    for token in likely:
        if token != EOS:
            banks.setdefault(token, progress(request, [*prefix, token])[0])
        elif met == sum(map(len, request.required)):
            banks[EOS] = met
    return banks


def _share_out(
    candidates: Sequence[BankCandidate], width: int, required: int
) -> list[BankCandidate]:
    """Returns the best `width` candidates of a sentence. Each bank (candidates with the same number
    of required tokens) gets an equal share of the beam slots. Slots that a bank cannot fill go to
    the highest banks with further candidates.

    candidates: candidates of one sentence; those with probability 0 are left out
    width: number of beam slots of the sentence
    required: total number of required tokens of the sentence
    """
    share, rest = divmod(width, required + 1)
    within_share: list[BankCandidate] = []
    surplus: list[BankCandidate] = []
    possible = (candidate for candidate in candidates if candidate.total > -torch.inf)
    for bank, group in groupby(sorted(possible, reverse=True), lambda c: c.bank):
        ranked = list(group)
        quota = share + (rest if bank == required else 0)
        within_share += ranked[:quota]
        surplus += ranked[quota:]
    return (within_share + surplus)[:width]
