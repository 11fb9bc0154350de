"""Conditional GRU of Nematus (Sennrich et al. 2017, section 2): updates its state, attends with the
new state, then updates the state with the context.

    s'_t = GRU_1(E y_{t-1}, s_{t-1})        c_t = attend(s'_t)        s_t = GRU_2(c_t, s'_t)
    readout_t = tanh(U s_t + V E y_{t-1} + C c_t)

s_t is the decoder state of step t, c_t the context, and E y_{t-1} the embedding of the previous
token. U, V and C are parameters. With `transition_depth` above 1, cells without an input follow
GRU_2 (Miceli Barone et al. 2017). With several layers, only the first one attends.

The loop over time multiplies s_{t-1} by GRU_1's W_hh, and s'_t by [W_query | GRU_2's W_hh]. It
also contains the scores and the weighted sum of memory values. The values are multiplied by
GRU_2's input weights once per sentence, outside of the loop.
"""

from jaxtyping import Float
from torch import Tensor

from nmt.foundation.interfaces import Prepared
from nmt.model.attention.layer import AttentionState
from nmt.model.decoder.attending import AttendingDecoder, Update
from nmt.model.decoder.attention_step import Attended, AttentionStep
from nmt.model.layers.numeric import tanh, to_float, xavier
from nmt.model.layers.packed import PackableLinear, linear
from nmt.model.layers.recurrence import CellState


class Conditional(AttendingDecoder):
    """Decoder with two recurrent updates per decoder step. Attention is computed between the two
    updates."""

    def make_layers(self) -> None:
        self.before = self.recurrent(self.embedding_size, depth=1)
        self.after = self.recurrent(self.memory_size)
        self.upper = self.stack(self.embedding_size, first=1)
        features = self.hidden_size + self.embedding_size + self.memory_size
        self.combine = xavier(PackableLinear(features, self.readout_size))

    def project(self, memory: Prepared) -> Float[Tensor, "B HS G"]:
        weight, _ = self.after.weight_block("ih")  # [G, M]
        return self.multiply_values(memory, weight)

    def embedded_gates(self, embedded: Float[Tensor, "N T E"]) -> Float[Tensor, "N T G"]:
        gates = linear(self, "gates", embedded, self.before.weight_block("ih"))  # [N, T, G]
        return self.before.input_norm(gates)

    def update(self, attend: AttentionStep, mask: Tensor | None) -> Update:
        first = self.before.loop(mask=mask)
        second = self.attend_then_update(self.after, attend, mask)
        _, bias = self.after.weight_block("ih")  # [G]

        def update(
            a: Tensor, cell: CellState, attention_state: AttentionState
        ) -> tuple[CellState, Attended]:
            between = first.step(a, first.products(cell[0])[0], cell)  # s'_t
            return second(bias, between, attention_state)  # s_t

        return update

    def predict(self, features: Float[Tensor, "N T F"]) -> Float[Tensor, "N T D"]:
        return tanh(to_float(self.combine(features)))
