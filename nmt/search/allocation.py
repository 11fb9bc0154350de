"""Beam search with required words by dynamic beam allocation (Post & Vilar 2018).

The beam slots of a sentence are divided among banks. Bank c contains the hypotheses with c of the
required tokens. Each hypothesis is extended by the most probable tokens and by every token that
moves it to a higher bank. Only hypotheses with all required tokens may end. Slots that a bank
cannot fill go to the highest bank that can. The hypothesis with the most
required tokens therefore stays in the beam, and the output contains all required words, however
improbable.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nmt.foundation.interfaces import EOS, Request, to_host
from nmt.search.breadth_first import BeamState, Extension, most_probable
from nmt.search.constrained import progress
from nmt.search.top_k import top_k


class BankCandidate(NamedTuple):
    """Candidate extension of a hypothesis by one token. Candidates are ordered by log-probability,
    then slot, then token.

    total: log-probability of the extended hypothesis
    slot: beam slot, within the sentence, of the hypothesis that is extended
    token: token that is appended
    """

    total: float
    slot: int
    token: int


def allocate(requests: Sequence[Request], beam: BeamState, log_probs: Tensor) -> Extension:
    """Returns the next hypotheses of each sentence. Beam slots are reserved for hypotheses that
    contain required tokens.

    requests: one request per sentence
    beam: state with the unfinished hypotheses
    log_probs: log-probabilities of all next tokens for each search row [n, V]
    """
    extension_there = most_probable(beam, log_probs)
    best = top_k(log_probs, min(beam.width + 1, log_probs.size(1)))  # [n, k], [n, k]
    prefixes = beam.prefixes[:, 1:].tolist()  # without BOS
    required = sorted({t for request in requests for ids in request.required for t in ids})
    required_there = log_probs.index_select(1, beam.on_device(np.array(required)))  # [n, required]
    # One copy of everything that the host reads.
    fields = extension_there.totals, extension_there.parents, extension_there.tokens
    arrays = to_host(*fields, beam.totals, *best, required_there)
    extension = Extension(*map(torch.from_numpy, arrays[:3]))
    totals = arrays[3]  # [b, W]
    values = arrays[4]  # [n, k]
    tokens = arrays[5]  # [n, k]
    required_values = arrays[6]  # [n, required]
    banks: list[dict[int, list[BankCandidate]]] = [defaultdict(list) for _ in beam.sentences]
    for row, slot in enumerate(beam.slots.tolist()):
        i, slot_of_sentence = divmod(slot, beam.width)
        request = requests[beam.sentences[i]]
        if not request.required:
            continue
        total = float(totals[i, slot_of_sentence])
        likely = dict(zip(tokens[row].tolist(), values[row].tolist(), strict=True))
        needed = dict(zip(required, required_values[row].tolist(), strict=True))
        for token, (value, met) in _candidates(request, prefixes[row], likely, needed).items():
            if value > -torch.inf:
                banks[i][met].append(BankCandidate(total + value, slot_of_sentence, token))
    for i, sentence in enumerate(beam.sentences):
        request = requests[sentence]
        if not request.required:
            continue
        chosen = _share_out(banks[i], beam.width, sum(map(len, request.required)))
        chosen += [BankCandidate(-torch.inf, 0, EOS)] * (beam.width - len(chosen))
        extension.totals[i] = torch.tensor([c.total for c in chosen], dtype=torch.float64)
        extension.parents[i] = torch.tensor([c.slot for c in chosen])
        extension.tokens[i] = torch.tensor([c.token for c in chosen])
    return extension


def _candidates(
    request: Request, prefix: list[int], best: dict[int, float], needed: dict[int, float]
) -> dict[int, tuple[float, int]]:
    """Returns the candidate extensions of one hypothesis. The result maps each next token to its
    log-probability and the number of required tokens in the extended hypothesis.

    request: required tokens of the sentence
    prefix: tokens of the hypothesis
    best: most probable next tokens with their log-probabilities
    needed: log-probability of each token of the required sequences
    """
    met, advancing = progress(request, prefix)
    candidates = {token: (needed[token], met + 1) for token in advancing}
    for token, value in best.items():
        if token in candidates:
            continue
        if token != EOS:
            candidates[token] = (value, progress(request, [*prefix, token])[0])
        elif met == sum(map(len, request.required)):
            candidates[token] = (value, met)
    return candidates


def _share_out(
    banks: dict[int, list[BankCandidate]], width: int, required: int
) -> list[BankCandidate]:
    """Returns the best `width` candidates, with an equal share of beam slots for each bank. Slots
    that a bank cannot fill go to the highest banks with further candidates.

    banks: candidates, grouped by the number of required tokens in the extended hypothesis
    width: number of beam slots of the sentence
    required: total number of required tokens of the sentence
    """
    share, rest = divmod(width, required + 1)
    within_share = []
    surplus = []
    for met in sorted(banks, reverse=True):
        bank = sorted(banks[met], reverse=True)
        quota = share + (rest if met == required else 0)
        within_share += bank[:quota]
        surplus += bank[quota:]
    return (within_share + surplus)[:width]
