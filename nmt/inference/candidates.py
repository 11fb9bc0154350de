"""What a network in training would write, judged against its references: for objectives that look at translations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch

from nmt.foundation.interfaces import EOS, PAD, Batch, Candidate, Request
from nmt.inference.model_step import ModelStep
from nmt.inference.unknown_words import MARK
from nmt.metric import similarity
from nmt.model.layers.packed import PackedWeights, generating
from nmt.model.seq2seq import Seq2Seq
from nmt.search.beam import Beam
from nmt.search.sample import Sample
from nmt.tokenizer.columns import PICTURE

NOT_WRITTEN = "\ufffd"
"""Stands for unknown words in references, so that writing an unknown word is never right."""


class Candidates:
    """A `Critic`: translations without dropout, as long as `Translator` would let them be, turned into texts by `decode`.
    sacreBLEU compares them, `judged` as the run is (tokenize, lowercase, char_order). What is sampled depends on PyTorch's
    generator."""

    def __init__(
        self,
        decode: Callable[[list[list[int]]], list[str]],
        *,
        max_length_factor: float,
        max_length_offset: int,
        judged: Mapping[str, Any],
    ) -> None:
        self.decode, self.judged = decode, judged
        self.factor, self.offset = max_length_factor, max_length_offset

    def __call__(
        self,
        network: Seq2Seq,
        batch: Batch,
        count: int,
        source: Literal["sample", "beam"],
        metric: Literal["bleu", "chrf"],
    ) -> list[list[Candidate]]:
        seed = int(torch.randint(2**31, ()))
        search = (
            Sample(n_best=count, seed=seed)
            if source == "sample"
            else Beam(width=count, n_best=count)
        )
        lengths = batch.source_lengths - 1  # without EOS
        if batch.pictures is not None:
            lengths = lengths + PICTURE * batch.pictures.sizes.prod(1).bool()
        requests = [
            Request(int(self.factor * length) + self.offset, seed=place)
            for place, length in enumerate(lengths.tolist())
        ]
        # As precise as training; autocast itself would convert the packed weights again at every step.
        device = batch.source.device.type
        packs = PackedWeights("bfloat16" if torch.is_autocast_enabled(device) else "float32")
        network.eval()
        try:
            with torch.inference_mode(), generating(packs), torch.autocast(device, enabled=False):
                memory = network.encode(batch.source, batch.source_lengths, batch.pictures)
                found = search(ModelStep(network, memory), network.start(memory), requests)
        finally:
            network.train()
        distinct = [
            list({tuple(h.tokens): h.tokens for h in hypotheses}.values()) for hypotheses in found
        ]
        texts = iter(self.decode([tokens for each in distinct for tokens in each]))
        references = self.decode(
            [[token for token in row if token not in (PAD, EOS)] for row in batch.targets.tolist()]
        )
        references = [text.replace(MARK, NOT_WRITTEN) for text in references]
        like = similarity(metric, **self.judged)
        return [
            [Candidate(tokens, like(next(texts), reference) / 100) for tokens in each]
            for each, reference in zip(distinct, references, strict=True)
        ]
