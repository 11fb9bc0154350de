"""Interface of searches: decoder steps of a model, requests and hypotheses."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nmt.foundation.interfaces.model_values import Layout


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation.

    tokens: target token ids without BOS and EOS
    log_prob: natural logarithm of the probability, including EOS
    score: log-probability after the search's penalties
    """

    tokens: list[int]
    log_prob: float
    score: float


@runtime_checkable
class Forbidden(Protocol):
    """Function that excludes tokens which would complete a forbidden part of an output.

    memory: number of last tokens of the output on which the result depends
    """

    memory: int

    def __call__(self, written: Sequence[int]) -> Collection[int]:
        """Returns the tokens that must not follow the tokens `written` of an output."""
        ...


@dataclass(frozen=True)
class Request:
    """Search constraints for one sentence, in target token ids.

    max_length: maximum number of tokens, excluding EOS
    seed: random seed for sampling, independent of the sentence's position in the batch
    required: token sequences that the output must contain, not followed by tokens in `continuing`
    forbidden: functions that exclude tokens
    continuing: ids of subwords that continue a word
    spellings: segmentations of a text that the output must begin with; maps, for each text
        position, the allowed tokens to the position after the token
    no_repeat_ngram_size: number of tokens of the sequences that the output may contain only once,
        apart from the text that it must begin with; 0: sequences may be repeated
    """

    max_length: int
    seed: int = 0
    required: tuple[tuple[int, ...], ...] = ()
    forbidden: tuple[Forbidden, ...] = ()
    continuing: frozenset[int] = frozenset()
    spellings: tuple[Mapping[int, int], ...] = ()
    no_repeat_ngram_size: int = 0

    @property
    def constrained(self) -> bool:
        """Whether some tokens are excluded during the search."""
        return bool(self.spellings or self.required or self.forbidden or self.no_repeat_ngram_size)


@runtime_checkable
class SearchState(Protocol):
    """Interface of the state that a search passes between decoder steps, one row per hypothesis."""

    def select(self, rows: Int[Tensor, " n"]) -> "SearchState":
        """Returns the state with the given rows only, in the given order.

        rows: row numbers [n], a tensor on the CPU; numbers may repeat
        """


@dataclass(frozen=True)
class Prediction:
    """Output of one decoder step for N rows.

    log_probs: natural log-probabilities of the next token; the caller may overwrite the tensor
    state: state after the step
    weights: attention weights of the step; None if the model has no attention
    """

    log_probs: Float[Tensor, "N V"]
    state: SearchState
    weights: Float[Tensor, "N S"] | None = None


@dataclass(frozen=True)
class RankedPrediction:
    """The k most probable next tokens of N rows.

    log_probs: natural log-probabilities, in descending order
    tokens: token ids in the order of `log_probs`
    ends: log-probability of EOS
    state: state after the step
    weights: attention weights of the step; None if the model has no attention
    """

    log_probs: Float[Tensor, "N k"]
    tokens: Int[Tensor, "N k"]
    ends: Float[Tensor, " N"]
    state: SearchState
    weights: Float[Tensor, "N S"] | None = None


@runtime_checkable
class Step(Protocol):
    """Interface through which a search calls a model. Each call computes one decoder step for N
    search rows, ordered by sentence.

    Searches keep tokens, beam slots and row numbers on the CPU. A step copies these tensors to its
    device, and returns predictions on its device.

    device: device of the tensors
    mask: True for real source positions of each sentence; None if the model has no attention

    The optional faster methods of a step are declared in nmt/search/shortcuts.py.
    """

    device: torch.device
    mask: Bool[Tensor, "B S"] | None

    def __call__(
        self, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None = None
    ) -> Prediction:
        """Returns the prediction after one given token per row.

        tokens: previous token of each row
        state: state before the step
        layout: beam slot of each row (hypothesis); None if no slot is empty, so row i is in slot i
        """

    def keep(self, sentences: Int[Tensor, " b"]) -> "Step":
        """Returns a search step for a subset of the sentences. The states that are passed to the
        returned step contain only rows of these sentences.
        """


@runtime_checkable
class Reranker(Protocol):
    """Interface of a search that selects hypotheses by their detokenised texts."""

    def rerank(
        self, hypotheses: Sequence[Hypothesis], texts: Sequence[str]
    ) -> list[tuple[Hypothesis, str]]:
        """Returns the best hypotheses of one sentence with their texts, best first."""


@runtime_checkable
class Search(Protocol):
    """Interface of a search algorithm over a `Step`, independent of the model."""

    def __call__(
        self, step: Step, state: SearchState, requests: Sequence[Request]
    ) -> list[list[Hypothesis]]:
        """Returns the best hypotheses of each sentence, best first.

        step: function of the model that computes one decoder step
        state: initial state, one row per sentence
        requests: constraints of each sentence

        Raises ValueError for constraints that the search does not support.
        """
