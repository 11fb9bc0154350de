"""One network or an ensemble, applied to token ids: encoding, search steps, and forced decoding."""

import logging
import math
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from nmt.data.batching import pad
from nmt.foundation.capture import bucket
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import (
    BOS,
    Pictures,
    Prepared,
    SearchState,
    Step,
    padded_sources,
    to_device,
)
from nmt.inference.captured_step import CapturedStep, StepRecordings
from nmt.inference.model_step import (
    Averaging,
    EnsembleState,
    EnsembleStep,
    ModelStep,
    average_log_probs,
    mean_attention,
)
from nmt.inference.translation import ForcedDecoding
from nmt.model.layers.packed import GenerationPrecision, PackedWeights, generating
from nmt.model.native.kernel_library import library
from nmt.model.seq2seq import Seq2Seq
from nmt.tokenizer.columns import Columns, picture_of

log = logging.getLogger(__name__)


class Networks:
    """One model or an ensemble of models in evaluation mode.

    The weights must not change while the object is in use.

    models: single model, or the members of an ensemble
    columns: layout of the columns of a source line: texts, source factors, image
    precision: numerical precision of the weights: float32, bfloat16 or int8
    averaging: quantity of the members that is averaged: probability or log_probability
    shares: weight of each member, normalised to sum 1; None for equal weights
    capture: whether search steps are recorded and replayed where possible, as CUDA graphs on a GPU

    Raises UserError if `shares` does not contain one positive number per model.
    """

    def __init__(
        self,
        models: Sequence[Seq2Seq],
        columns: Columns,
        precision: GenerationPrecision = "float32",
        averaging: Averaging = "probability",
        shares: Sequence[float] | None = None,
        capture: bool = False,
    ) -> None:
        weights = shares or [1.0] * len(models)
        if len(weights) != len(models) or not all(0 < w < math.inf for w in weights):
            raise UserError(
                f"shares={list(weights)}: must contain one positive ensemble weight for each of "
                f"the {len(models)} models"
            )
        self.models = models
        self.columns = columns
        self.averaging = averaging
        weights = [weight / max(weights) for weight in weights]  # so that the sum is finite
        self.shares = [weight / sum(weights) for weight in weights]  # weights that sum to 1
        self.packed_weights = PackedWeights(precision)
        if self.device.type == "cpu":
            library()  # the C++ extension is compiled before the first translation
        obstacle = next(filter(None, (model.capture_obstacle for model in models)), "")
        if capture and obstacle:
            log.info(
                "translation.capture: decoder steps run without CUDA graphs, because %s", obstacle
            )
        self.captures = capture and not obstacle
        self._recordings: dict[int, list[StepRecordings]] = {}  # by thread

    def __getstate__(self) -> dict[str, Any]:
        # Weights in a CPU-specific layout and CUDA graphs cannot be pickled. They are made again
        # when needed.
        packed_weights = PackedWeights(self.packed_weights.precision)
        return {**vars(self), "packed_weights": packed_weights, "_recordings": {}}

    @property
    def device(self) -> torch.device:
        return next(self.models[0].parameters()).device

    def generating(self) -> AbstractContextManager[None]:
        """Returns a context manager inside which layers use packed weights.

        Packed weights are converted to the precision of this object; weight matrices that multiply
        the same input are concatenated.
        """
        return generating(self.packed_weights)

    def memories(self, sources: Sequence[Sequence[int]], captured: bool = False) -> list[Prepared]:
        """Encodes a batch of source token ids. Returns the encoder memory of each model.

        sources: token ids of each source
        captured: whether sources are padded to one of a few shapes, as recorded search steps need

        Raises ValueError if a model is in training mode.
        """
        if any(model.training for model in self.models):
            raise ValueError("the models are in training mode; call model.eval() first")
        padded = pad(sources, range(len(sources)))
        if captured:
            padded = padded_sources(*padded, bucket)
        ids, lengths = to_device(padded, self.device)
        # With bfloat16 or int8 weights, the encoder computes in bfloat16.
        is_low = self.packed_weights.precision != "float32"
        autocast = torch.autocast(self.device.type, torch.bfloat16, enabled=is_low)
        names = [picture_of(source) for source in sources] if self.columns.picture else None
        with self.generating(), autocast:
            return [
                model.encode(ids, lengths, self._pictures(model, names)) for model in self.models
            ]

    def _pictures(self, model: Seq2Seq, names: Sequence[str] | None) -> Pictures | None:
        reader = model.encoder.reader
        return None if names is None or reader is None else to_device(reader(names), self.device)

    def first_step(
        self, memories: Sequence[Prepared], unpadded: int | None = None
    ) -> tuple[Step, SearchState]:
        """Returns the search step of the models, and the state before the first token.

        The state has one row per sentence. The step must be called inside the context manager
        `generating()`.

        memories: encoder memory of each model
        unpadded: number of real sentences in each memory, without the dummy sentences that fill up
            the batch; None if the step does not replay recordings
        """
        states = [model.start(memory) for model, memory in zip(self.models, memories, strict=True)]
        steps: list[Step] = list(map(ModelStep, self.models, memories))
        if unpadded is not None:
            recordings = self._recordings.setdefault(
                threading.get_ident(), list(map(StepRecordings, self.models))
            )
            sentences = torch.arange(unpadded)
            steps = [
                CapturedStep(of_model, memory, sentences)
                for of_model, memory in zip(recordings, memories, strict=True)
            ]
            states = [state.select(sentences) for state in states]
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
        """Returns the token probabilities and attention weights of given translations, computed by
        one forward pass without gradients.

        memories: encoder memory of the sources in each model
        sources, targets: token ids of each sentence pair
        attention: whether to return attention weights
        """
        padded, lengths = pad(targets, range(len(targets)))
        golds = to_device(padded, self.device)
        # Decoder inputs are the targets, shifted by one position and preceded by BOS.
        inputs = torch.cat([torch.full_like(golds[:, :1], BOS), golds[:, :-1]], 1)  # [B, T]
        with self.generating():
            outputs = [  # readout [B, T, D]
                model.decode(inputs, model.start(memory), memory)
                for model, memory in zip(self.models, memories, strict=True)
            ]
            member_log_probs = [  # [B, T]
                model.output_layer.log_probs_of(output, memory, golds)
                for model, output, memory in zip(self.models, outputs, memories, strict=True)
            ]
        # [B, T]
        log_probs = average_log_probs(member_log_probs, self.shares, self.averaging).cpu().numpy()
        members = [output.weights if attention else None for output in outputs]
        mean = mean_attention(members, self.shares)
        weights = None if mean is None else mean.float().cpu().numpy()  # [B, T, S]
        if weights is not None and memories[0].encoded.grids is not None:
            memory = next(m for m in memories if m.mask.size(1) == weights.shape[2])
            return self._split_places(memory, sources, lengths.tolist(), log_probs, weights)
        heads = None
        if attention and len(outputs) == 1 and outputs[0].heads is not None:
            heads = outputs[0].heads.float().cpu().numpy()  # [B, H, T, S]
        return [
            ForcedDecoding(
                log_probs=log_probs[i, :length],
                weights=None if weights is None else weights[i, :length, : len(source) + 1],
                heads=None if heads is None else heads[i, :, :length, : len(source) + 1],
            )
            for i, (source, length) in enumerate(zip(sources, lengths.tolist(), strict=True))
        ]

    def _split_places(
        self,
        memory: Prepared,
        sources: Sequence[Sequence[int]],
        lengths: Sequence[int],
        log_probs: np.ndarray,
        weights: np.ndarray,
    ) -> list[ForcedDecoding]:
        """Returns forced decodings with separate attention weights for source tokens and image
        cells.

        memory: encoder memory of one model
        sources: token ids of each source
        lengths: number of target tokens of each sentence
        log_probs: log-probabilities of the target tokens, [B, T]
        weights: attention weights [B, T, S]; the source tokens of a sentence come first, followed
            by the image cells
        """
        assert memory.encoded.grids is not None
        is_real = memory.mask.cpu().numpy()  # [B, S]
        decodings = []
        for i, grid in enumerate(memory.encoded.grids.tolist()):
            words = len(sources[i]) + 1 if self.columns.sources else 0  # source tokens and </s>
            real_weights = weights[i, : lengths[i]][:, is_real[i]]  # [T, tokens + cells]
            decoding = ForcedDecoding(
                log_probs=log_probs[i, : lengths[i]],
                weights=real_weights[:, :words],
                places=real_weights[:, words:].reshape(lengths[i], *grid),
            )
            decodings.append(decoding)
        return decodings
