"""Luong's decoder with a learnt scale of each feature of the readout."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.interfaces import DecoderOutput, Layout, Prepared, State
from nmt.model.decoder.luong import Luong


class Scaled(Luong):
    """The keys of its configuration are those of `Decoder`."""

    def make_layers(self) -> None:
        super().make_layers()
        self.scale = nn.Parameter(torch.ones(self.readout_size))

    def forward(
        self,
        embedded: Float[Tensor, "N T E"],
        state: State,
        memory: Prepared,
        layout: Layout | None = None,
    ) -> DecoderOutput:
        output = super().forward(embedded, state, memory, layout)
        return replace(output, readout=output.readout * self.scale)  # [N, T, D]
