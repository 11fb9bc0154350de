"""The decoder of Bahdanau et al. 2015 (section 3.1, appendix A.2.2): attend first, then update.

    c_t = attend(s_{t-1})        s_t = GRU([E y_{t-1}; c_t], s_{t-1})
    readout_t = maxout(U s_t + V E y_{t-1} + C c_t)

The readout uses s_t, as the paper's eq. 4 does (its appendix writes s_{t-1}). Unlike the paper's
GRU, this one resets after the product (see nmt/model/layers/cells/gru.py). With several layers the
first one attends; the others are plain recurrences on top.

Only s recurs, so the loop contains only one product of s_{t-1} with [W_hh | W_query], the scores,
and α_t times the memory already projected to the gates (W_c h_s, once per sentence, instead of W_c
c_t at every step).
"""

from jaxtyping import Float
from torch import Tensor

from nmt.foundation.interfaces import Prepared
from nmt.model.decoder.attending import AttendingDecoder, Update
from nmt.model.decoder.attention_step import AttentionStep
from nmt.model.decoder.readout import Maxout
from nmt.model.layers.packed import linear


class Bahdanau(AttendingDecoder):
    """Attends with s_{t-1}, then updates on [embedding; context]; maxout readout."""

    def make_layers(self) -> None:
        inputs = self.embedding_size + self.memory_size
        self.bottom = self.recurrent(inputs)
        self.upper = self.stack(inputs, first=1)
        self.readout = Maxout(self.hidden_size + inputs, self.readout_size)

    def project(self, memory: Prepared) -> Float[Tensor, "B S HG"]:
        weight, _ = self.bottom.weight_block("ih", slice(self.embedding_size, None))  # [G, M]
        return self.multiply_values(memory, weight)

    def embedded_gates(self, embedded: Float[Tensor, "N T E"]) -> Float[Tensor, "N T G"]:
        block = self.bottom.weight_block("ih", slice(self.embedding_size))  # [G, E]
        return linear(self, "gates", embedded, block)

    def update(self, attend: AttentionStep, mask: Tensor | None) -> Update:
        return self.attend_then_update(self.bottom, attend, mask)
