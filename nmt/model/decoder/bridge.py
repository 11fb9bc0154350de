"""Bridge from encoder to decoder: computes the decoder state before the first token.

    tanh      s_0 = tanh(W [→h_S; ←h_1] + b)      Bahdanau et al. 2015, A.2.2, with both directions
    linear    s_0 = W [→h_S; ←h_1] + b
    mean      s_0 = tanh(W (1/S) Σ_s h_s + b)     Sennrich et al. 2017 (Nematus)
    last      s_0 = [→h_S; ←h_1]                  Luong et al. 2015, for one layer; needs Q = M
    none      s_0 = 0

h_s is the annotation of source position s (1 to S), and [→h_S; ←h_1] the encoder's final state. W
and b are parameters, Q is the decoder state size, and M the memory size. Every layer has separate
parameters. An LSTM's c_0 is computed in the same way, except that `last` sets c_0 to 0.
"""

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.interfaces import Encoded
from nmt.model.layers.numeric import tanh, to_float
from nmt.model.layers.packed import linear
from nmt.model.layers.recurrence import CellState

BridgeName = Literal["tanh", "linear", "mean", "last", "none"]
"""Name of the equation for the initial decoder state: tanh, linear, mean, last or none."""


class Bridge(nn.Module):
    """Layer that computes the initial states of the decoder's layers from the encoder output.

    kind: equation for the initial state: tanh, linear, mean, last or none
    memory_size: M, number of features of an annotation
    hidden_size: Q, number of units of each decoder layer
    num_layers: number of decoder layers
    parts: number of state tensors per layer; 2 for an LSTM

    Raises ValueError for `last` if M and Q differ.
    """

    def __init__(
        self, kind: BridgeName, memory_size: int, hidden_size: int, num_layers: int, parts: int
    ) -> None:
        super().__init__()
        if kind == "last" and memory_size != hidden_size:
            raise ValueError(
                f"decoder.bridge=last: encoder states (size {memory_size}) and decoder states "
                f"(size {hidden_size}) must have the same size; set decoder.hidden_size="
                f"{memory_size} or decoder.bridge=tanh"
            )
        self.kind = kind
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.parts = parts
        if kind in ("tanh", "linear", "mean"):
            layer = nn.Linear(memory_size, num_layers * parts * hidden_size)
            self.weight = layer.weight
            self.bias = layer.bias

    def summary(self, encoded: Encoded) -> Float[Tensor, "B M"]:
        """Returns one summary vector per source, from which the initial states are computed.

        encoded: output of the encoder
        """
        if self.kind != "mean":
            return encoded.final_state
        real = encoded.mask.unsqueeze(-1)  # [B, S, 1]
        return (encoded.values * real).sum(1) / real.sum(1)  # mean annotation [B, M]

    def states(self, summary: Float[Tensor, "B M"]) -> tuple[CellState, ...]:
        """Returns the initial state of each decoder layer, as tensors [B, Q].

        summary: summary vectors of the sources, computed by the method `summary`
        """
        if self.kind in ("last", "none"):
            summary = to_float(summary)  # dtype of all later states
            zeros = summary.new_zeros(summary.size(0), self.hidden_size)  # [B, Q]
            h = summary if self.kind == "last" else zeros
            return tuple((h, zeros)[: self.parts] for _ in range(self.num_layers))
        # [B, layers · parts · Q]
        states = to_float(linear(self, "states", summary, (self.weight, self.bias)))
        if self.kind != "linear":
            states = tanh(states)  # [B, layers · parts · Q]
        parts = states.split(self.hidden_size, -1)  # layers · parts tensors [B, Q]
        return tuple(tuple(parts[i : i + self.parts]) for i in range(0, len(parts), self.parts))
