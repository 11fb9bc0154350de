"""Words that must appear, by dynamic beam allocation (Post & Vilar 2018).

The beam of a sentence is divided among banks: bank c is for hypotheses that contain c of the required tokens. Each
hypothesis is extended by the most probable words and by every word that moves it to a higher bank. Only a hypothesis
that contains all required tokens may end. Places that a bank cannot fill go to the highest bank that can. So the most
advanced hypothesis always survives, and the constraints are met, however improbable they are under the model.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nmt.foundation.interfaces import EOS, Request
from nmt.search.breadth import Extended, Frontier, most_probable
from nmt.search.constrained import progress
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
            place, prefix, total = (
                places[row] % width,
                prefixes[row],
                float(frontier.totals[i, places[row] % width]),
            )
            for word, (value, count) in _candidates(
                requests[sentence], prefix, values[row], words[row], log_probs[row]
            ).items():
                if value > -torch.inf:
                    found.setdefault(count, []).append((total + value, place, word))
        chosen = _share_out(found, width, sum(map(len, requests[sentence].required)))
        chosen += [(-torch.inf, 0, EOS)] * (width - len(chosen))
        for target, column in zip(extended, zip(*chosen, strict=True), strict=True):
            target[i] = torch.tensor(column, dtype=target.dtype)
    return extended


def _candidates(
    request: Request, prefix: list[int], values: list[float], words: list[int], log_probs: Tensor
) -> dict[int, tuple[float, int]]:
    """The extensions of one hypothesis to consider, by word: log-probability, and number of required tokens held."""
    count, wanted = progress(request, prefix)
    found = {word: (float(log_probs[word]), count + 1) for word in wanted}
    for word, value in zip(words, values, strict=True):
        if word not in found and (word != EOS or count == sum(map(len, request.required))):
            found[word] = (value, count if word == EOS else progress(request, [*prefix, word])[0])
    return found


def _share_out(
    found: dict[int, list[tuple[float, int, int]]], width: int, required: int
) -> list[tuple[float, int, int]]:
    """The best of every bank, as many as its share; places left over go to the highest banks that can fill them."""
    share, rest = divmod(width, required + 1)
    chosen, left = [], []
    for count in sorted(found, reverse=True):
        bank = sorted(found[count], reverse=True)
        quota = share + (rest if count == required else 0)
        chosen += bank[:quota]
        left += bank[quota:]
    return (chosen + left)[:width]
