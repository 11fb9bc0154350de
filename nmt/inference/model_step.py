"""Search steps (interface `Step`) that predict the next token with one network or an ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nmt.foundation.interfaces import (
    BOS,
    EOS,
    PAD,
    DecoderOutput,
    Hypothesis,
    Layout,
    Prediction,
    Prepared,
    RankedPrediction,
    Request,
    SearchState,
    State,
    Step,
    to_device,
)
from nmt.inference.whole_search import CACHED, computes, whole_search
from nmt.model.layers.numeric import exclude
from nmt.model.layers.packed import native
from nmt.model.native import native_decoding
from nmt.model.seq2seq import Seq2Seq
from nmt.search.penalty import Penalty
from nmt.search.shortcuts import best_tokens

Averaging = Literal["probability", "log_probability"]


class ModelStep:
    """Search step of a single model: computes next-token log-probabilities. PAD and BOS have
    probability 0.

    model: translation network
    memory: encoder memory of the source sentences
    unfinished: indices into `memory` of the unfinished sentences, ascending; None for all sentences
    """

    def __init__(
        self, model: Seq2Seq, memory: Prepared, unfinished: Int[Tensor, " b"] | None = None
    ) -> None:
        self.model = model
        self.memory = memory
        self.device = memory.values.device
        self.unfinished = unfinished
        decoder = model.decoder
        self.reads_rows = decoder.attends and decoder.attention.reads_rows and native(memory.values)
        mask = memory.mask if unfinished is None else memory.mask[unfinished]  # [b, S]
        self.mask = mask if decoder.attends else None

    def __call__(
        self, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None = None
    ) -> Prediction:
        layout = self._in_memory(layout, len(tokens))
        return self._prediction(self._decode(tokens, state, layout), layout)

    def ranked(
        self, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None, count: int
    ) -> RankedPrediction:
        """Returns the `count` most probable next tokens of each row (unfinished hypothesis).

        tokens: last token of each row
        state: decoder state of each row
        layout: beam slot of each row (hypothesis); None if no slot is empty, so row i is in slot i
        count: number of tokens to return, at most the vocabulary size
        """
        layout = self._in_memory(layout, len(tokens))
        output = self._decode(tokens, state, layout)  # readout [N, 1, D]
        if self.model.output_layer.is_linear and native(output.readout):
            vocabulary = self.model.output.out_features
            # Blocks of rows whose logits fit in the processor's cache
            blocks = [
                native_decoding.best(
                    self.model.output_layer.logits(rows).squeeze(1), min(count, vocabulary), EOS
                )
                for rows in output.readout.split(max(32, CACHED // vocabulary))
            ]
            # [N, k], [N, k], [N]
            values, tokens, ends = (torch.cat(parts) for parts in zip(*blocks, strict=True))
            return RankedPrediction(values, tokens, ends, output.state, _weights(output))
        return best_tokens(self._prediction(output, layout), count)

    def search(
        self,
        state: SearchState,
        requests: Sequence[Request],
        width: int,
        n_best: int,
        penalty: Penalty,
    ) -> list[list[Hypothesis]] | None:
        """Runs a complete beam search in the C++ extension, with the same result as the search in
        Python.

        Returns None if the extension does not support the network; the caller then searches in
        Python.

        state: decoder state before the first token
        requests: search request of each sentence
        width: number of hypotheses per beam
        n_best: number of hypotheses to return for each sentence
        penalty: length penalty of the scores
        """
        if requests and isinstance(state, State) and computes(self.model, self.memory):
            return whole_search(self.model, self.memory, state, requests, width, n_best, penalty)
        return None

    def _prediction(self, output: DecoderOutput, layout: Layout | None) -> Prediction:
        log_probs = self.model.output_layer.log_probs(output, self.memory, layout)  # [N, 1, V]
        log_probs = log_probs.squeeze(1)  # [N, V]
        exclude(log_probs, PAD, BOS)
        return Prediction(log_probs, output.state, _weights(output))

    def _decode(self, tokens: Tensor, state: SearchState, layout: Layout | None) -> DecoderOutput:
        assert isinstance(state, State)
        inputs = to_device(tokens, self.device).unsqueeze(1)  # [N, 1]
        return self.model.decode(inputs, state, self.memory, layout)

    def _in_memory(self, layout: Layout | None, rows: int) -> Layout | None:
        """Renumbers beam slots: from slots of the unfinished sentences to slots of all sentences of
        the encoder memory.

        The result is on the device of the model.

        layout: beam slot of each row among the unfinished sentences; None if no slot is empty
        rows: number of rows (unfinished hypotheses)
        """
        if not self.reads_rows:
            return to_device(layout, self.device)
        if layout is None:
            sentences = len(self.memory.mask if self.unfinished is None else self.unfinished)
            layout = Layout(rows // sentences, torch.arange(rows))
        if self.unfinished is None:
            return layout
        if layout.width == 1:
            return Layout(1, self.unfinished.index_select(0, layout.slots))
        slots = self.unfinished[layout.sentences] * layout.width + layout.slots % layout.width
        return Layout(layout.width, slots)  # slots [N]

    def keep(self, sentences: Int[Tensor, " b"]) -> ModelStep:
        # Copying the memory of unfinished sentences would cost more than keeping the whole memory.
        if self.reads_rows:
            unfinished = sentences if self.unfinished is None else self.unfinished[sentences]
            return ModelStep(self.model, self.memory, unfinished)
        return ModelStep(self.model, self.memory.select(sentences))


def _weights(output: DecoderOutput) -> Float[Tensor, "N S"] | None:
    return None if output.weights is None else output.weights.squeeze(1)


@dataclass(frozen=True)
class EnsembleState:
    """Decoder states of the members of an ensemble.

    members: state of each member; a row belongs to the same hypothesis in all states
    """

    members: tuple[SearchState, ...]

    def select(self, rows: Int[Tensor, " n"]) -> EnsembleState:
        return EnsembleState(tuple(state.select(rows) for state in self.members))


class EnsembleStep:
    """Search step of an ensemble: averages the next-token predictions of several models.

    steps: one step per member, for the same sentences and vocabulary
    shares: weight of each member; the weights sum to 1
    averaging: quantity that is averaged: probability or log_probability
    """

    def __init__(
        self, steps: Sequence[Step], shares: Sequence[float], averaging: Averaging
    ) -> None:
        self.steps = steps
        self.shares = shares
        self.averaging = averaging
        self.device = steps[0].device
        self.mask = next((step.mask for step in steps if step.mask is not None), None)

    def __call__(
        self, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None = None
    ) -> Prediction:
        assert isinstance(state, EnsembleState)
        predictions = [
            step(tokens, member, layout)
            for step, member in zip(self.steps, state.members, strict=True)
        ]
        return Prediction(
            average_log_probs([p.log_probs for p in predictions], self.shares, self.averaging),
            EnsembleState(tuple(p.state for p in predictions)),
            mean_attention([p.weights for p in predictions], self.shares),
        )

    def keep(self, sentences: Int[Tensor, " b"]) -> EnsembleStep:
        return EnsembleStep(
            [step.keep(sentences) for step in self.steps], self.shares, self.averaging
        )


def mean_attention(weights: Sequence[Tensor | None], shares: Sequence[float]) -> Tensor | None:
    """Returns the weighted mean of the members' attention weights; None if no member has attention.

    Members whose attention weights differ in shape from those of the first member, e.g. because of
    another image grid, are left out.

    weights: attention weights of each member; None for a member without attention
    shares: weight of each member in the ensemble
    """
    pairs = zip(weights, shares, strict=True)
    present = [(member, share) for member, share in pairs if member is not None]
    alike = [(member, share) for member, share in present if member.shape == present[0][0].shape]
    if not alike:
        return None
    total = sum(share for _, share in alike)
    return torch.stack([member * (share / total) for member, share in alike]).sum(0)


def average_log_probs(
    log_probs: Sequence[Float[Tensor, "*rows"]], shares: Sequence[float], averaging: Averaging
) -> Float[Tensor, "*rows"]:
    """Returns the weighted mean of the members' predictions, as log-probabilities.

    The result is log Σ_m w_m p_m for `probability`, and Σ_m w_m log p_m, not renormalised, for
    `log_probability`.

    log_probs: log p_m of each member m
    shares: weight w_m of each member m, with Σ_m w_m = 1
    averaging: `probability` or `log_probability`
    """
    if len(log_probs) == 1:
        return log_probs[0]
    members = torch.stack(list(log_probs))  # [members, *rows]
    weights = to_device(torch.tensor(shares, dtype=members.dtype), members.device)
    weights = weights.view(-1, *[1] * (members.dim() - 1))
    # The mean of probabilities is computed in log space, which avoids underflow.
    if averaging == "probability":
        return torch.logsumexp(members + weights.log(), 0)
    return torch.where(members > -torch.inf, members * weights, -torch.inf).sum(0)
