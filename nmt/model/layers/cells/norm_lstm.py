"""Long short-term memory with layer normalisation (Ba et al. 2016, supplementary material, eq.
20-22; gate by gate as in Chen et al. 2018, RNMT+).

The products of the input (W x + b) and of the state (U h + b) are normalised separately for each
gate, and then added. The new state c' is normalised before its tanh:

    h' = o ∘ tanh(norm(c'))

o is the output gate. All other equations are those of the LSTM without normalisation. All cells of
a time step (deep transition) share the normalisation of c'.
"""

from typing import Any

from torch import Tensor, nn

from nmt.model.layers.cells.lstm import LSTM, lstm
from nmt.model.layers.gate_norm import GateNorm
from nmt.model.layers.recurrence import CellState


class NormLSTM(LSTM):
    """Recurrent layer of long short-term memory units (LSTM) with layer-normalised gates."""

    normalized = True

    def __init__(
        self, input_size: int, hidden_size: int, directions: int = 1, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, directions, **options)
        self.carried_norm = GateNorm(1, hidden_size, directions)
        # Normalisation removes the bias of the forget gate, so it is set here.
        nn.init.ones_(self.input_norm.bias.select(-2, 1))  # type: ignore[operator, union-attr]

    def cell(
        self, a: Tensor, u: Tensor, state: CellState, update_mask: Tensor | None = None
    ) -> CellState:
        return lstm(a, u, state, update_mask, norm=self.carried_norm)
