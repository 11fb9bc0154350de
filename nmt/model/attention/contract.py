"""Contract of every attention, as functions that raise AssertionError. Tests and authors of new scores call them (see
nmt/tutorial.ipynb).

Each function takes the attention, `size` (features of the memory) and `query_size`.
"""

from dataclasses import replace

import torch

from nmt.foundation.interfaces import Encoded
from nmt.model.attention import Attention

LENGTHS = (6, 4, 1)
"""Source words of the sentences that are tried, padded to the longest."""


def tried(size: int, query_size: int) -> tuple[torch.Tensor, Encoded]:
    """Random queries [3 2 query_size], and a random memory of `size` features whose padding is not 0."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS).unsqueeze(1)  # [3, 6]
    values = torch.randn(*mask.shape, size, generator=generator, dtype=torch.float64)
    query = torch.randn(len(LENGTHS), 2, query_size, generator=generator, dtype=torch.float64)
    return query, Encoded(values, mask, final_state=values[:, 0])


def _weights(attention: Attention, query: torch.Tensor, memory: Encoded) -> torch.Tensor:
    with torch.no_grad():
        return attention.double().weights(attention.project(query), attention.prepare(memory))


def is_a_distribution(attention: Attention, size: int, query_size: int) -> None:
    """The weights of every query are not negative and sum to 1."""
    weights = _weights(attention, *tried(size, query_size))  # [3, 2, 6]
    assert (weights >= 0).all(), "there are negative weights"
    sums = weights.sum(-1)
    assert torch.allclose(sums, torch.ones_like(sums), atol=1e-9), (
        f"weights sum to {sums.min():.6f}, not to 1"
    )


def does_not_see_padding(attention: Attention, size: int, query_size: int) -> None:
    """Padding gets exactly 0, and its content changes nothing."""
    query, memory = tried(size, query_size)
    weights = _weights(attention, query, memory)
    padding = ~memory.mask.unsqueeze(1).expand_as(weights)
    assert (weights[padding] == 0).all(), (
        f"padding gets a weight of up to {weights[padding].max():.3f}"
    )
    dirty = replace(memory, values=memory.values.masked_fill(~memory.mask.unsqueeze(-1), 1e3))
    assert torch.equal(_weights(attention, query, dirty), weights), (
        "the content of the padding changes the weights"
    )


def can_look_at_one_word(attention: Attention, size: int, query_size: int) -> None:
    """A query that fits one position much better than all others gives it nearly all weight, however long the
    sentence. (Not for scores that are bounded on purpose.)"""
    query, memory = tried(size, query_size)
    largest = _weights(attention, 1e5 * query, memory).max(-1).values.min()
    assert largest > 0.99, f"the greatest weight is {largest:.3f}, however well a word fits"
