"""An encoder for each of several sources that mean the same (Zoph & Knight 2016). The decoder attends to all of them in one
distribution (Libovický & Helcl 2017, section 3.2, "flat").

    h = [h^1; h^2; …] along the positions        summary = tanh(W [summary^1; summary^2; …])
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor, nn

from nmt.foundation.interfaces import EOS, PAD, Encoded, Pictures
from nmt.model.encoder import Encoder
from nmt.model.layers.numeric import tanh, to_float


class MultiSource(Encoder):
    """Reads sources that stand one after another, each with its EOS. Their annotations stand in the same places, so the
    memory has a vector for each position, as with a single source. The encoders share nothing but the `input`."""

    def __init__(self, encoders: Sequence[Encoder]) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoders)
        self.memory_size, self.cell_name = encoders[0].memory_size, encoders[0].cell_name
        self.join = nn.Linear(len(encoders) * self.memory_size, self.memory_size)
        nn.init.xavier_uniform_(self.join.weight)
        nn.init.zeros_(self.join.bias)

    def forward(
        self,
        source: Int[Tensor, "B S"],
        lengths: Int[Tensor, " B"],
        pictures: Pictures | None = None,
    ) -> Encoded:
        mask = torch.arange(source.size(1), device=source.device) < lengths.unsqueeze(1)
        ends = (source == EOS) & mask
        number = (ends.cumsum(1) - ends.long()).masked_fill(
            ~mask, -1
        )  # which source each position belongs to
        values, summaries = None, []
        for k, encoder in enumerate(self.encoders):
            encoder.input = self.input  # type: ignore[assignment]
            own = number == k
            its = own.sum(1)
            order = (
                (~own).long().sort(stable=True, dim=1).indices[:, : max(1, int(its.max()))]
            )  # its positions first
            there = torch.arange(order.size(1), device=source.device) < its.unsqueeze(1)
            words = source.gather(1, order).masked_fill(~there, PAD)
            memory: Encoded = encoder(words, its.clamp(min=1))
            found = memory.values * there.unsqueeze(-1)
            if values is None:
                values = found.new_zeros(*source.shape, found.size(-1))
            values = values.scatter_add(1, order.unsqueeze(-1).expand_as(found), found)
            summaries.append(memory.final_state)
        assert values is not None
        return Encoded(
            values=values,
            mask=mask,
            final_state=tanh(to_float(self.join(torch.cat(summaries, -1)))),
        )
