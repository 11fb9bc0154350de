"""One network or several that vote, on ids: what they remember of sentences, the step of a search, and how they judge given
translations."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from nmt.data.batching import pad
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import BOS, PAD, Pictures, Prepared, SearchState, Step, to_device
from nmt.inference.model_step import (
    Averaging,
    EnsembleState,
    EnsembleStep,
    ModelStep,
    alike,
    average_log_probs,
)
from nmt.inference.translation import ForcedDecoding
from nmt.model.layers.packed import GenerationPrecision, PackedWeights, generating
from nmt.model.seq2seq import Seq2Seq
from nmt.tokenizer.columns import Columns, picture_of


class Networks:
    """One model or an ensemble, in evaluation mode; their weights must not change while this is in use. `columns`: what a
    line of the source holds. `shares`: weights of the members (default: equal).

    Raises UserError if `shares` are not one positive number for each model.
    """

    def __init__(
        self,
        models: Sequence[Seq2Seq],
        columns: Columns,
        precision: GenerationPrecision = "float32",
        averaging: Averaging = "probability",
        shares: Sequence[float] | None = None,
    ) -> None:
        weights = shares or [1.0] * len(models)
        if len(weights) != len(models) or min(weights) <= 0:
            raise UserError(
                f"shares={list(weights)}: give one positive number for each of {len(models)} models"
            )
        self.models, self.columns, self.averaging = models, columns, averaging
        self.shares = [weight / sum(weights) for weight in weights]
        self.packs = PackedWeights(precision)

    @property
    def device(self) -> torch.device:
        return next(self.models[0].parameters()).device

    @property
    def attends(self) -> bool:
        return any(model.decoder.attends for model in self.models)

    def generating(self) -> AbstractContextManager[None]:
        """Inside this context, products use the packed weights of these models."""
        return generating(self.packs)

    def memories(self, sources: Sequence[Sequence[int]]) -> list[Prepared]:
        """What each model remembers of encoded lines. Raises ValueError if a model is in training mode."""
        if any(model.training for model in self.models):
            raise ValueError("the models are in training mode; call model.eval() first")
        ids, lengths = (t.to(self.device) for t in pad(sources, range(len(sources))))
        low = torch.autocast(
            self.device.type, torch.bfloat16, enabled=self.packs.precision != "float32"
        )
        names = [picture_of(source) for source in sources] if self.columns.picture else None
        with self.generating(), low:
            return [
                model.encode(ids, lengths, self._pictures(model, names)) for model in self.models
            ]

    def _pictures(self, model: Seq2Seq, names: Sequence[str] | None) -> Pictures | None:
        reader = model.encoder.reader
        return None if names is None or reader is None else to_device(reader(names), self.device)

    def first_step(self, memories: Sequence[Prepared]) -> tuple[Step, SearchState]:
        """The step of one model or several, and the state before the first word, one row per sentence; to be used inside
        `generating()`."""
        steps: list[Step] = [
            ModelStep(model, memory) for model, memory in zip(self.models, memories, strict=True)
        ]
        states = [model.start(memory) for model, memory in zip(self.models, memories, strict=True)]
        if len(steps) == 1:
            return steps[0], states[0]
        return EnsembleStep(steps, self.shares, self.averaging), EnsembleState(tuple(states))

    def force(
        self,
        memories: Sequence[Prepared],
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        attention: bool,
    ) -> list[ForcedDecoding]:
        """Probabilities and, if asked for, attention of given translations, by one pass without gradients."""
        golds, lengths = (t.to(self.device) for t in pad(targets, range(len(targets))))
        inputs = torch.cat([torch.full_like(golds[:, :1], BOS), golds[:, :-1]], 1)
        with self.generating():
            each = [
                _forced(*pair, inputs, golds) for pair in zip(self.models, memories, strict=True)
            ]
        log_probs = (
            average_log_probs([one for one, _, _ in each], self.shares, self.averaging)
            .cpu()
            .numpy()
        )
        maps = alike([weights for _, weights, _ in each if weights is not None])
        mean = torch.stack(maps).mean(0).float().cpu().numpy() if attention and maps else None
        if mean is not None and memories[0].encoded.grids is not None:
            return self._with_places(memories, sources, lengths.tolist(), log_probs, mean)
        by_head = each[0][2] if attention and len(each) == 1 else None
        heads = None if by_head is None else by_head.float().cpu().numpy()
        return [
            ForcedDecoding(
                log_probs[i, :length],
                None if mean is None else mean[i, :length, : len(source) + 1],
                None if heads is None else heads[i, :, :length, : len(source) + 1],
            )
            for i, (source, length) in enumerate(zip(sources, lengths.tolist(), strict=True))
        ]

    def _with_places(
        self,
        memories: Sequence[Prepared],
        sources: Sequence[Sequence[int]],
        lengths: Sequence[int],
        log_probs: np.ndarray,
        mean: np.ndarray,
    ) -> list[ForcedDecoding]:
        """The attention to words apart from that to places of the picture, which stand after them."""
        memory, found = (
            next(m for m in memories if m.mask.size(1) == mean.shape[2]),
            list[ForcedDecoding](),
        )
        assert memory.encoded.grids is not None
        real = memory.mask.cpu().numpy()
        for i, (source, length, grid) in enumerate(
            zip(sources, lengths, memory.encoded.grids.tolist(), strict=True)
        ):
            seen, words = (
                mean[i, :length][:, real[i]],
                len(source) + 1 if self.columns.sources else 0,
            )
            places = seen[:, words:].reshape(length, *grid)
            found.append(ForcedDecoding(log_probs[i, :length], seen[:, :words], places=places))
        return found


def _forced(
    model: Seq2Seq, memory: Prepared, inputs: Int[Tensor, "B T"], targets: Int[Tensor, "B T"]
) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T S"] | None, Float[Tensor, "B H T S"] | None]:
    """Log-probability of each word of given translations (0 at padding); its attention (None without); the attention of
    each head, if there are several (else None)."""
    output = model.decode(inputs, model.start(memory), memory)
    log_probs = model.log_probs_of(output, memory, targets)
    return log_probs.masked_fill(targets == PAD, 0.0), output.weights, output.heads
