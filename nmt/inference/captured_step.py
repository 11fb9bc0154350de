"""Search steps that are recorded once and then replayed, as CUDA graphs on a GPU.

A recorded step has fixed shapes: B sentences, N rows, S source positions. Every sentence has N / B
beam slots. Each slot has a row, even if the slot is empty or its sentence is finished; the search
reads only the rows of its unfinished hypotheses. Once half of the sentences are finished, the
search continues with a recording for fewer sentences.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from nmt.foundation.capture import Recording, Recordings, bucket, copy_into, shapes_of, tensors_of
from nmt.foundation.interfaces import (
    BOS,
    Layout,
    Prediction,
    Prepared,
    RankedPrediction,
    SearchState,
    State,
    map_tensors,
    to_device,
)
from nmt.inference.model_step import ModelStep
from nmt.model.seq2seq import Seq2Seq


@dataclass(frozen=True)
class StepInputs:
    """Inputs of a recorded search step.

    tokens: previous token of each row
    state: decoder state of each row
    memory: encoder memory of B sentences; each sentence has N / B rows
    """

    tokens: Int[Tensor, " N"]
    state: State
    memory: Prepared


AnyPrediction = Prediction | RankedPrediction
AnyRecording = Recording[StepInputs, AnyPrediction]


@dataclass(eq=False)
class StepRecordings:
    """Recordings of the search steps of one network, such as CUDA graphs. Only one search may use
    them at a time.

    model: translation network, whose weights must not change
    """

    model: Seq2Seq
    _by_count: dict[int, Recordings[StepInputs, AnyPrediction]] = field(
        default_factory=dict, init=False
    )

    def get(self, inputs: StepInputs, count: int) -> AnyRecording | None:
        """Returns the recording of a search step; None if the step cannot be recorded.

        inputs: inputs of the step, whose shapes select the recording
        count: number of tokens that the step ranks; 0 for the log-probabilities of all tokens
        """
        if count not in self._by_count:
            self._by_count[count] = Recordings(partial(self._compute, count), inputs.tokens.device)
        return self._by_count[count].get(inputs)

    def _compute(self, count: int, inputs: StepInputs) -> AnyPrediction:
        step = ModelStep(self.model, inputs.memory)
        prediction = _predict(step, inputs.tokens, inputs.state, None, count)
        if shapes_of(prediction.state) != shapes_of(inputs.state):
            raise RuntimeError(
                "a recording needs a decoder state of constant size, but the state of "
                "this decoder grows at every step"
            )
        return prediction


class CapturedStep:
    """Search step of a single model, which replays recordings.

    recordings: recordings of the model
    memory: encoder memory of B sentences, including dummy sentences that fill up the batch
    unfinished: indices into `memory` of the unfinished sentences, ascending, on the CPU
    current: recordings whose inputs already contain `memory`; the keys are pairs (beam slots per
        sentence, number of ranked tokens); None if no recordings contain `memory`
    """

    def __init__(
        self,
        recordings: StepRecordings,
        memory: Prepared,
        unfinished: Int[Tensor, " b"],
        current: dict[tuple[int, int], AnyRecording | None] | None = None,
    ) -> None:
        self.recordings = recordings
        self.memory = memory
        self.unfinished = unfinished
        self.current = {} if current is None else current
        self.device = memory.mask.device
        self.mask = (
            memory.mask.index_select(0, to_device(unfinished, self.device))  # [b, S]
            if recordings.model.decoder.attends
            else None
        )

    def __call__(
        self, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None = None
    ) -> Prediction:
        return self._compute(tokens, state, layout, 0)

    def ranked(
        self, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None, count: int
    ) -> RankedPrediction:
        """Returns the `count` most probable next tokens of each row (unfinished hypothesis).

        tokens: last token of each row
        state: decoder state of each row
        layout: beam slot of each row (hypothesis); None if no slot is empty, so row i is in slot i
        count: number of tokens to return, at most the vocabulary size
        """
        return self._compute(tokens, state, layout, count)

    def keep(self, sentences: Int[Tensor, " b"]) -> CapturedStep:
        unfinished = self.unfinished[sentences]
        rows = bucket(len(unfinished))
        if 2 * rows > len(self.memory.mask):
            return CapturedStep(self.recordings, self.memory, unfinished, self.current)
        padding = unfinished.new_zeros(rows - len(unfinished))
        memory = self.memory.select(torch.cat([unfinished, padding]))
        return CapturedStep(self.recordings, memory, torch.arange(len(unfinished)))

    def _compute(
        self, tokens: Tensor, state: SearchState, layout: Layout | None, count: int
    ) -> Any:
        assert isinstance(state, State)
        width = len(tokens) // len(self.unfinished) if layout is None else layout.width
        slots = torch.arange(len(tokens)) if layout is None else layout.slots  # of b·width
        rows = self.unfinished[slots // width] * width + slots % width  # [n], of B·width
        recording = self._recording(state, width, count)
        if recording is None:
            step = ModelStep(self.recordings.model, self.memory.select(self.unfinished))
            return _predict(step, tokens, state, layout, count)
        rows = to_device(rows, self.device)
        recording.inputs.tokens.index_copy_(0, rows, to_device(tokens, self.device))
        for target, value in zip(
            tensors_of(recording.inputs.state), tensors_of(state), strict=True
        ):
            target.index_copy_(0, rows, value)
        return map_tensors(recording.replay(), lambda tensor: tensor.index_select(0, rows))

    def _recording(self, state: State, width: int, count: int) -> AnyRecording | None:
        """Returns a recording of the step, with the encoder memory already copied into its inputs;
        None if the step cannot be recorded.

        All rows of the recorded state start as copies of the first row of `state`, so that unused
        rows contain finite values.
        """
        if (width, count) not in self.current:
            rows = len(self.memory.mask) * width
            tokens = torch.full((rows,), BOS, device=self.device)
            first = state.select(torch.zeros(rows, dtype=torch.long))
            inputs = StepInputs(tokens, first, self.memory)
            recording = self.recordings.get(inputs, count)
            if recording is not None:
                copy_into(recording.inputs, inputs)
            self.current[width, count] = recording
        return self.current[width, count]


def _predict(
    step: ModelStep, tokens: Tensor, state: State, layout: Layout | None, count: int
) -> AnyPrediction:
    """Returns the `count` most probable next tokens; for count = 0, all log-probabilities."""
    return step.ranked(tokens, state, layout, count) if count else step(tokens, state, layout)
