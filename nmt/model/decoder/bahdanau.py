"""Decoder of Bahdanau et al. 2015 (section 3.1, appendix A.2.2): attends, then updates its state.

    c_t = attend(s_{t-1})        s_t = GRU([E y_{t-1}; c_t], s_{t-1})
    readout_t = maxout(U s_t + V E y_{t-1} + C c_t)

s_t is the decoder state of step t, c_t the context, and E y_{t-1} the embedding of the previous
token. U, V and C are parameters. The readout uses s_t as in the paper's eq. 4; its appendix uses
s_{t-1}. Unlike the paper's GRU, this GRU applies the reset gate after the matrix multiplication,
and its update gate z is 1 − z in the paper (nmt/model/layers/cells/gru.py). With several layers,
only the first one attends.

Only s_t recurs. The loop over time contains one multiplication of s_{t-1} by [W_hh | W_query], the
scores, and the weighted sum of memory values. The values are multiplied by the context weights W_c
once per sentence, outside of the loop.
"""

from jaxtyping import Float
from torch import Tensor

from nmt.foundation.interfaces import Prepared
from nmt.model.decoder.attending import AttendingDecoder, Update
from nmt.model.decoder.attention_step import AttentionStep
from nmt.model.decoder.readout import Maxout
from nmt.model.layers.packed import linear


class Bahdanau(AttendingDecoder):
    """Decoder that attends with its previous state, then updates the state with the embedding and
    the context. The readout is a maxout layer."""

    def make_layers(self) -> None:
        inputs = self.embedding_size + self.memory_size
        self.bottom = self.recurrent(inputs)
        # Layer 0 is `bottom`, so the stack begins with layer 1, and `inputs` has no effect.
        self.upper = self.stack(inputs, first=1)
        self.readout = Maxout(self.hidden_size + inputs, self.readout_size)

    def project(self, memory: Prepared) -> Float[Tensor, "B HS G"]:
        weight, _ = self.bottom.weight_block("ih", slice(self.embedding_size, None))  # [G, M]
        return self.multiply_values(memory, weight)

    def embedded_gates(self, embedded: Float[Tensor, "N T E"]) -> Float[Tensor, "N T G"]:
        block = self.bottom.weight_block("ih", slice(self.embedding_size))  # [G, E]
        return linear(self, "gates", embedded, block)  # [N, T, G]

    def update(self, attend: AttentionStep, mask: Tensor | None) -> Update:
        return self.attend_then_update(self.bottom, attend, mask)
