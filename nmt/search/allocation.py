"""Words that must appear, by dynamic beam allocation (Post & Vilar 2018).

The places of a sentence are divided among banks: bank c belongs to hypotheses that hold c tokens of what is required. Each
hypothesis is extended by the most probable words and by every word that would put it into a higher bank, and only one
that holds everything may end. Places that a bank cannot fill go to the highest bank that can, so the most advanced
hypothesis always survives and the constraints are kept, however improbable the model finds them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nmt.interfaces import EOS, Request
from nmt.search.breadth import Extended, Frontier, most_probable
from nmt.search.top_k import top_k


def allocate(requests: Sequence[Request], frontier: Frontier, log_probs: Tensor) -> Extended:
    """`most_probable`, with places reserved in the sentences in which something is required."""
    extended = most_probable(frontier, log_probs)
    width = frontier.totals.size(1)
    values, words = (t.tolist() for t in top_k(log_probs, min(width + 1, log_probs.size(1))))
    prefixes, places = frontier.prefixes[:, 1:].tolist(), frontier.live.tolist()
    rows: dict[int, list[int]] = {}
    for row, place in enumerate(places):
        rows.setdefault(place // width, []).append(row)
    for i, sentence in enumerate(frontier.alive):
        if not requests[sentence].required:
            continue
        found: dict[int, list[tuple[float, int, int]]] = {}
        for row in rows[i]:
            place, prefix = places[row] % width, prefixes[row]
            total = float(frontier.totals[i, place])
            for word, value in _candidates(requests[sentence], prefix, values[row], words[row], log_probs[row]).items():
                count, _ = progress(requests[sentence], [*prefix, word])
                if value > -torch.inf:
                    found.setdefault(count, []).append((total + value, place, word))
        chosen = _share_out(found, width, sum(map(len, requests[sentence].required)))
        chosen += [(-torch.inf, 0, EOS)] * (width - len(chosen))
        for target, column in zip(extended, zip(*chosen, strict=True), strict=True):
            target[i] = torch.tensor(column, dtype=target.dtype)
    return extended


def progress(request: Request, tokens: Sequence[int]) -> tuple[int, list[int]]:
    """How many required tokens the given ones hold, a sequence just begun included; which words would add one.

    Every required sequence is found at a place of its own, the longest first, and not where another word lengthens it.
    """
    unmet = sorted(request.required, key=len, reverse=True)
    met = start = 0
    while start < len(tokens):
        for sequence in unmet:
            end = start + len(sequence)
            whole = end >= len(tokens) or tokens[end] not in request.continuing
            if tuple(tokens[start:end]) == sequence and whole:
                unmet.remove(sequence)
                met, start = met + len(sequence), end
                break
        else:
            if any(tuple(tokens[start:]) == sequence[: len(tokens) - start] for sequence in unmet):
                begun = len(tokens) - start
                nexts = [s[begun] for s in unmet if tuple(tokens[start:]) == s[:begun]]
                return met + begun, nexts
            start += 1
    return met, [sequence[0] for sequence in unmet]


def _candidates(
    request: Request, prefix: list[int], values: list[float], words: list[int], log_probs: Tensor
) -> dict[int, float]:
    """The extensions of one hypothesis worth a look, with their log-probabilities."""
    count, wanted = progress(request, prefix)
    found = dict(zip(words, values, strict=True))
    if count < sum(map(len, request.required)):
        found.pop(EOS, None)
    for word in wanted:
        found[word] = float(log_probs[word])
    return found


def _share_out(
    found: dict[int, list[tuple[float, int, int]]], width: int, required: int
) -> list[tuple[float, int, int]]:
    """The best of every bank, as many as its share; what is left goes to the highest banks that can fill it."""
    share, rest = divmod(width, required + 1)
    chosen, left = [], []
    for count in sorted(found, reverse=True):
        bank = sorted(found[count], reverse=True)
        quota = share + (rest if count == required else 0)
        chosen += bank[:quota]
        left += bank[quota:]
    return (chosen + left)[:width]
