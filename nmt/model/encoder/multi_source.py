"""Separate encoders for several sources with the same meaning (Zoph & Knight 2016). One attention
distribution covers the positions of all sources (Libovický & Helcl 2017, section 3.2, "flat").

    h = [h^1; h^2; …], concatenated along the positions
    final state = tanh(W [final state^1; final state^2; …])

h^k are the annotations of source k, and W is a parameter. Unlike in Libovický & Helcl 2017, the
attention projects the annotations of all sources with the same parameters.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from nmt.foundation.interfaces import EOS, PAD, Encoded, Pictures
from nmt.model.encoder import Encoder
from nmt.model.encoder.rnn_encoder import RNNEncoder
from nmt.model.layers.numeric import tanh, to_float, xavier


class MultiSource(Encoder):
    """Encoder of several concatenated sources. Each source ends with EOS and has a separate
    encoder.

    The memory has one annotation per token, in the order of the concatenated sources. The encoders
    share no weights except the `input` layer.

    encoders: one encoder per source
    """

    def __init__(self, encoders: Sequence[RNNEncoder]) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoders)
        self.memory_size = encoders[0].memory_size
        self.cell_name = encoders[0].cell_name
        self.join = xavier(nn.Linear(len(encoders) * self.memory_size, self.memory_size))

    def forward(
        self,
        source: Int[Tensor, "B S"],
        lengths: Int[Tensor, " B"],
        pictures: Pictures | None = None,
    ) -> Encoded:
        mask = torch.arange(source.size(1), device=source.device) < lengths.unsqueeze(1)  # [B, S]
        ends = ((source == EOS) & mask).long()  # [B, S]
        source_number = (ends.cumsum(1) - ends).masked_fill(~mask, -1)  # [B, S]
        values: Any = 0
        final_states = []
        encoder: Any  # an RNNEncoder
        for k, encoder in enumerate(self.encoders):
            is_of_source = source_number == k  # [B, S]
            source_lengths = is_of_source.sum(1)  # [B]
            # s, the length of source k; a GPU reads padding, because the host does not wait for s
            longest = max(1, int(source_lengths.max())) if source.is_cpu else source.size(1)
            order = (~is_of_source).long().sort(stable=True, dim=1).indices  # [B, S]
            positions = order[:, :longest]  # [B, s], positions of source k first
            # [B, s]
            is_word = torch.arange(longest, device=source.device) < source_lengths.unsqueeze(1)
            words = source.gather(1, positions).masked_fill(~is_word, PAD)  # [B, s]
            # An empty source is read as one padding token with the annotation 0.
            encoded = encoder.encode(self.input(words), source_lengths.clamp(min=1))
            annotations = encoded.values * is_word.unsqueeze(-1)  # [B, s, M]
            if k == 0:
                values = annotations.new_zeros(*source.shape, annotations.size(-1))  # [B, S, M]
            values = values.scatter_add(
                1, positions.unsqueeze(-1).expand_as(annotations), annotations
            )
            final_states.append(encoded.final_state)
        final_state = tanh(to_float(self.join(torch.cat(final_states, -1))))  # [B, M]
        return Encoded(values=values, mask=mask, final_state=final_state)
