"""Generation and scoring of candidate translations during training, for sequence-level
objectives."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch

from nmt.foundation.interfaces import EOS, PAD, Batch, Candidate, Hypothesis, Request
from nmt.inference.model_step import ModelStep
from nmt.inference.unknown_words import MARK
from nmt.metric import similarity
from nmt.model.layers.packed import PackedWeights, generating
from nmt.model.seq2seq import Seq2Seq
from nmt.search.beam import Beam
from nmt.search.finished_hypotheses import distinct
from nmt.search.sample import Sample
from nmt.tokenizer.columns import PICTURE

NOT_WRITTEN = "\ufffd"
"""Placeholder for unknown words in references; no word of a candidate is equal to the
placeholder."""


class Candidates:
    """Generator of candidate translations, which are computed without dropout and scored against
    the references.

    decode: function that returns the text of each sequence of target token ids
    max_length_factor, max_length_offset: limit of the candidate length,
        factor · source tokens + offset, in tokens
    metric_settings: settings of the sentence-level metric: tokenize, lowercase, char_order

    The state of PyTorch's random number generator determines the samples.
    """

    def __init__(
        self,
        decode: Callable[[list[list[int]]], list[str]],
        *,
        max_length_factor: float,
        max_length_offset: int,
        metric_settings: Mapping[str, Any],
    ) -> None:
        self.decode = decode
        self.factor = max_length_factor
        self.offset = max_length_offset
        self.metric_settings = metric_settings

    def __call__(
        self,
        network: Seq2Seq,
        batch: Batch,
        count: int,
        source: Literal["sample", "beam"],
        metric: Literal["bleu", "chrf"],
    ) -> list[list[Candidate]]:
        token_lists = [
            [hypothesis.tokens for hypothesis in distinct(hypotheses)]
            for hypotheses in self._hypotheses(network, batch, count, source)
        ]
        # One call decodes the candidates of all sentences.
        texts = iter(self.decode([tokens for candidates in token_lists for tokens in candidates]))
        rows = batch.targets.tolist()
        golds = self.decode([[id for id in row if id not in (PAD, EOS)] for row in rows])
        likeness = similarity(metric, **self.metric_settings)
        scored = []
        for candidates, gold in zip(token_lists, golds, strict=True):
            reference = gold.replace(MARK, NOT_WRITTEN)
            scored.append(
                [Candidate(tokens, likeness(next(texts), reference) / 100) for tokens in candidates]
            )
        return scored

    def _hypotheses(
        self, network: Seq2Seq, batch: Batch, count: int, source: Literal["sample", "beam"]
    ) -> list[list[Hypothesis]]:
        # Beam search also draws a seed, so that the generator has the same state after both
        # searches.
        seed = int(torch.randint(2**31, ()))
        sample = Sample(n_best=count, seed=seed)
        search = sample if source == "sample" else Beam(width=count, n_best=count)
        lengths = batch.source_lengths - 1  # source lengths without EOS
        if batch.pictures is not None:
            lengths = lengths + PICTURE * batch.pictures.sizes.prod(1).bool()
        requests = [
            Request(int(self.factor * length) + self.offset, seed=number)
            for number, length in enumerate(lengths.tolist())
        ]
        # Precision as in training, but without autocast, which would convert weights at every step
        device = batch.source.device.type
        weights = PackedWeights("bfloat16" if torch.is_autocast_enabled(device) else "float32")
        network.eval()
        try:
            with torch.inference_mode(), generating(weights), torch.autocast(device, enabled=False):
                memory = network.encode(batch.source, batch.source_lengths, batch.pictures)
                return search(ModelStep(network, memory), network.start(memory), requests)
        finally:
            network.train()
