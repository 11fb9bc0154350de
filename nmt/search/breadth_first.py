"""Breadth-first search: extends several hypotheses per sentence by one token at every step.

Beam search and sampling differ only in the choice of extensions, and share the loop over decoder
steps. Each step computes only unfinished hypotheses. A sentence leaves the batch as soon as none of
its unfinished hypotheses can enter its n-best list. Because `Penalty.bound` is an upper bound of
their scores, early stopping does not change the result.

The names of dimensions are those of beam_state.py.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.foundation.interfaces import (
    Hypothesis,
    Prediction,
    RankedPrediction,
    Request,
    SearchState,
    Step,
)
from nmt.search.beam_state import BeamState, Extension, HostExtension
from nmt.search.finished_hypotheses import FinishedHypotheses
from nmt.search.penalty import Penalty
from nmt.search.shortcuts import ranked, top_k

Extend = Callable[[BeamState, Tensor], Extension]
"""Type of functions that choose extensions: (beam state, log-probabilities [n, V] of the next
token) → content of the beam slots at the next step."""


@torch.inference_mode()
def breadth_first_search(
    step: Step,
    state: SearchState,
    requests: Sequence[Request],
    extend: Extend,
    *,
    width: int,
    starts: Sequence[int] = (0,),
    n_best: int,
    penalty: Penalty,
    repeats: bool = False,
) -> list[list[Hypothesis]]:
    """Runs a breadth-first search. Returns up to `n_best` finished hypotheses of each sentence, the
    best score first.

    step: model interface, which returns the log-probabilities of the next token
    state: model state before the first token, one row per sentence
    requests: one request per sentence
    extend: function that chooses the next hypotheses
    width: number of beam slots per sentence
    starts: indices of the beam slots that contain an empty hypothesis at the start
    n_best: maximum number of hypotheses to return per sentence
    penalty: length and coverage penalties, which define the score of a finished hypothesis
    repeats: whether the returned hypotheses may contain the same tokens several times

    Raises ValueError for a coverage penalty if the model has no attention.
    """
    if not requests:
        return []
    if penalty.coverage and step.mask is None:
        raise ValueError("search.coverage needs a model with attention: set search.coverage=0")
    beam = BeamState.start(requests, width, starts, step.device)
    finished = FinishedHypotheses(len(requests), n_best, penalty, repeats)
    state = state.select(torch.from_numpy(beam.slots // width))
    for _ in range(max(request.max_length for request in requests) + 1):
        prediction, extension = _extend_all(step, state, beam, extend)
        if penalty.coverage:
            beam = beam.with_coverage(prediction.weights)
        # The host waits for a GPU only here.
        host = HostExtension(extension, beam.coverage_penalties(penalty, step.mask))
        parent_rows = beam.parent_rows(host)  # [b, W]
        finished.add(beam, host, parent_rows)
        unsettled = finished.unsettled(beam, host)
        if not unsettled:
            break
        if len(unsettled) < len(beam.sentences):
            step = step.keep(torch.tensor(unsettled))
        beam, rows = beam.advance(host, parent_rows, unsettled)  # rows: [m]
        state = prediction.state.select(rows)
    return finished.best()


def most_probable(beam: BeamState, log_probs: Float[Tensor, "n V"]) -> Extension:
    """Returns, for each sentence, the W most probable one-token extensions over all its hypotheses,
    where W is the number of beam slots per sentence.

    log_probs: log-probabilities of all next tokens for each unfinished hypothesis
    """
    # At most W extensions of one hypothesis can be kept.
    return beam.extended(*top_k(log_probs, min(beam.width, log_probs.size(-1))))


def _extend_all(
    step: Step, state: SearchState, beam: BeamState, extend: Extend
) -> tuple[Prediction | RankedPrediction, Extension]:
    """Extends all hypotheses of a beam by one token. Returns the model's prediction of the
    next tokens, and the extended hypotheses in the beam slots."""
    last = torch.from_numpy(beam.prefixes[:, -1])  # [n]
    if extend is most_probable:  # needs only the W most probable tokens of each row
        best = ranked(step, last, state, beam.layout, beam.width)
        beam.only_eos_at_limit(best)
        return best, beam.extended(best.log_probs, best.tokens)
    prediction = step(last, state, beam.layout)
    beam.allow_only_eos_at_limit(prediction.log_probs)
    return prediction, extend(beam, prediction.log_probs)
