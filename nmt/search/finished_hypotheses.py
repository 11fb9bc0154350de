"""Finished hypotheses of a breadth-first search, and the condition under which a sentence leaves the
batch."""

import math
from collections.abc import Sequence

import numpy as np

from nmt.foundation.interfaces import Hypothesis
from nmt.search.beam_state import BeamState, HostExtension
from nmt.search.penalty import Penalty


def distinct(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Returns the hypotheses without duplicates: one for each token sequence, in the order of the
    first occurrences."""
    return list({tuple(hypothesis.tokens): hypothesis for hypothesis in hypotheses}.values())


class FinishedHypotheses:
    """Collection of the finished hypotheses of each sentence during a search.

    sentences: number of sentences
    n_best: maximum number of hypotheses to return per sentence
    penalty: length and coverage penalties, which define the score of a finished hypothesis
    repeats: whether the returned hypotheses may contain the same tokens several times
    """

    def __init__(self, sentences: int, n_best: int, penalty: Penalty, repeats: bool) -> None:
        self.n_best = n_best
        self.repeats = repeats
        self.penalty = penalty
        self.hypotheses: list[list[Hypothesis]] = [[] for _ in range(sentences)]

    def add(self, beam: BeamState, extension: HostExtension, parent_rows: np.ndarray) -> None:
        """Adds the extended hypotheses that end with EOS to the finished hypotheses.

        beam: state before the extension
        extension: extended hypotheses in the beam slots
        parent_rows: row of the state that each beam slot extends [b, W]
        """
        ended = extension.ended
        if not ended.any():
            return
        rows = parent_rows[ended]  # [e] for e finished hypotheses
        indices = ended.nonzero()[0].tolist()  # [e], sentence of each, 0 to b - 1
        penalties = (
            [0.0] * len(indices)
            if extension.penalties is None
            else extension.penalties[rows].tolist()
        )
        log_probs = extension.totals[ended].tolist()
        prefixes = beam.prefixes[rows, 1:].tolist()
        length = beam.prefixes.shape[1]  # tokens with EOS and without BOS
        for i, log_prob, tokens, penalty in zip(
            indices, log_probs, prefixes, penalties, strict=True
        ):
            self.hypotheses[beam.sentences[i]].append(
                Hypothesis(tokens, log_prob, self.penalty.score(log_prob, length, penalty))
            )

    def unsettled(self, beam: BeamState, extension: HostExtension) -> list[int]:
        """Returns the indices of the sentences whose search must continue, because an unfinished
        hypothesis can still enter the n-best list."""
        shortest = beam.prefixes.shape[1] + 1  # tokens of a hypothesis that ends at the next step
        best_open = extension.open_totals.max(-1).tolist()  # b values
        unsettled = []
        for i, (sentence, log_prob) in enumerate(zip(beam.sentences, best_open, strict=True)):
            longest = max(shortest, int(beam.limits[i]) + 1)
            bound = self.penalty.bound(log_prob, shortest, longest)
            if log_prob > -math.inf and not self._is_settled(sentence, bound):
                unsettled.append(i)
        return unsettled

    def best(self) -> list[list[Hypothesis]]:
        """Returns the `n_best` finished hypotheses of each sentence, best first."""
        ranked = [sorted(hypotheses, key=lambda h: -h.score) for hypotheses in self.hypotheses]
        if not self.repeats:
            ranked = [distinct(hypotheses) for hypotheses in ranked]
        return [hypotheses[: self.n_best] for hypotheses in ranked]

    def _is_settled(self, sentence: int, bound: float) -> bool:
        """Returns whether a sentence has `n_best` finished hypotheses with scores of at least
        `bound`. Hypotheses with equal tokens count once."""
        hypotheses = distinct(self.hypotheses[sentence])
        scores = sorted((hypothesis.score for hypothesis in hypotheses), reverse=True)
        return len(scores) >= self.n_best and bound <= scores[self.n_best - 1]
