"""Decoder without attention: one fixed vector c represents the whole source (Cho et al. 2014,
appendix A; the baseline RNNencdec of Bahdanau et al. 2015).

    s_t = GRU([E y_{t-1}; c], s_{t-1})
    readout_t = maxout(U s_t + V E y_{t-1} + C c)        c = final state of the encoder

s_t is the decoder state of step t, and E y_{t-1} the embedding of the previous token. U, V and C
are parameters. In the paper, a further layer with tanh computes c from the final state.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.foundation.interfaces import DecoderOutput, Encoded, Layout, Prepared, State, gather_rows
from nmt.model.decoder import Decoder
from nmt.model.decoder.readout import Maxout


class Fixed(Decoder):
    """Decoder without attention, which reads the encoder's final state at every decoder step. All T
    steps are computed at once."""

    attends = False

    def make_layers(self) -> None:
        inputs = self.embedding_size + self.memory_size
        self.layers = self.stack(inputs)
        self.readout = Maxout(self.hidden_size + inputs, self.readout_size)

    def prepare(self, encoded: Encoded) -> Prepared:
        return Prepared(
            encoded=encoded,
            keys=encoded.values[..., :0],  # without attention, no keys are needed
            values=encoded.values,
            projected_values=encoded.values,
            decoder_init=self.bridge.summary(encoded),
        )

    def forward(
        self,
        embedded: Float[Tensor, "N T E"],
        state: State,
        memory: Prepared,
        layout: Layout | None = None,
    ) -> DecoderOutput:
        summary = memory.encoded.final_state  # [B, M]
        width = embedded.size(0) // summary.size(0) if layout is None else layout.width
        slots = summary.unsqueeze(1).expand(-1, width, -1)  # [B, W, M]
        context = gather_rows(slots, 1, layout).expand(-1, embedded.size(1), -1)  # [N, T, M]
        inputs = torch.cat([embedded, context], -1)  # [N, T, E + M]
        hidden, cells = self.layers(inputs, state.cells, state.masks)  # [N, T, Q]
        readout = self.readout(torch.cat([hidden, embedded, context], -1))  # [N, T, D]
        return self.output(readout, replace(state, cells=cells))
