"""A network as the `Step` that searches see."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nmt.interfaces import BOS, PAD, Layout, Memory, State
from nmt.recurrence import full
from nmt.seq2seq import Seq2Seq


class ModelStep:
    """Next-word log-probabilities of a model over the memory of some sentences; PAD and BOS are never produced."""

    def __init__(self, model: Seq2Seq, memory: Memory) -> None:
        self.model, self.memory = model, memory
        self.device = memory.values.device

    def __call__(
        self, tokens: Int[Tensor, "N"], state: State, layout: Layout | None = None
    ) -> tuple[Float[Tensor, "N V"], State]:
        output = self.model.decode(tokens.unsqueeze(1), state, replace(self.memory, layout=layout))
        logits = full(self.model.logits(output.readout.squeeze(1)))
        log_probs = torch.log_softmax(logits, -1, out=logits)
        log_probs[:, [PAD, BOS]] = -torch.inf
        return log_probs, output.state

    def keep(self, sentences: Int[Tensor, "b"]) -> ModelStep:
        return ModelStep(self.model, self.memory.select(sentences))
