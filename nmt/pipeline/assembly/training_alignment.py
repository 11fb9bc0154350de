"""Word alignments of the training pairs for guided alignment training, estimated from the pairs."""

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nmt.data.lexicon_estimation import PAIRS, sequences
from nmt.data.links import Links
from nmt.data.preparation import PreparedData
from nmt.data.ragged import Ragged
from nmt.data.word_aligner import WordAligner
from nmt.foundation.ranks import Ranks
from nmt.inference.word_alignment import strongest_links, symmetrize

log = logging.getLogger(__name__)


def with_links(data: PreparedData, ranks: Ranks) -> PreparedData:
    """Returns a copy of the data in which each training pair has links between its tokens.

    A hidden Markov model (HMM) aligns the tokens in each direction, and `grow_diag` combines both
    directions. A large text is aligned in blocks (nmt.data.lexicon_estimation.PAIRS), each with its
    own HMM.
    """
    links: list[Sequence[int]] = []
    if ranks.first:
        began = time.monotonic()
        links = [()] * len(data.train)
        vocabulary = data.tokenizer.source_size
        for start in range(0, len(data.kept), PAIRS):
            rows = data.kept[start : start + PAIRS]
            source = [ids % vocabulary for ids in sequences(data.train.source, rows)]
            target = sequences(data.train.target, rows)
            for row, pair_links in zip(rows, token_links(source, target), strict=True):
                # token positions s₁ t₁ s₂ t₂ …
                links[row] = [position for link in sorted(pair_links) for position in link]
        log.info(
            "objective.guided_alignment: aligned the words of %s training pairs, in %.1f s",
            f"{len(data.kept):,}",
            time.monotonic() - began,
        )
    return replace(data, train=replace(data.train, links=Ragged.of(ranks.of_first(links))))


def token_links(source: Sequence[np.ndarray], target: Sequence[np.ndarray]) -> list[Links]:
    """Returns the symmetrised links (source position, target position) of each sentence pair.

    source, target: token ids of each sentence
    """
    forward = WordAligner(source, target, method="hmm").weights()  # [T, S] each
    backward = WordAligner(target, source, method="hmm").weights()  # [S, T] each
    return [
        symmetrize(
            strongest_links(by_target),
            frozenset((s, t) for t, s in strongest_links(by_source)),
            "grow_diag",
        )
        for by_target, by_source in zip(forward, backward, strict=True)
    ]
