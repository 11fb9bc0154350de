"""Beam search with required words, by dynamic beam allocation (Post & Vilar 2018).

The beam slots of a sentence are divided among banks. Bank c contains the hypotheses with c of the
required tokens. Each hypothesis is extended by the most probable tokens and by every token that
moves it to a higher bank. Only hypotheses with all required tokens may end. Slots that a bank
cannot fill go to the highest bank that can. The hypothesis with the most required tokens therefore
stays in the beam, and the output contains all required words, however improbable.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch

from nmt.foundation.interfaces import EOS, Request, to_host
from nmt.search.beam_state import BeamState, Extension
from nmt.search.breadth_first import most_probable
from nmt.search.constrained import progress
from nmt.search.shortcuts import top_k


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


def allocate(requests: Sequence[Request], beam: BeamState, log_probs: torch.Tensor) -> Extension:
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
