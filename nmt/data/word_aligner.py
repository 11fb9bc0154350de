"""Statistical word alignment: IBM model 1 and the hidden Markov model, trained by EM, no network.

Each target word y_t comes from a source word x_s, or from the empty word x_0 (NULL).

Model 1 (Brown et al. 1993): every source word is equally probable.

    p(a_t = s | x, y) = p(y_t | x_s) / Σ_s' p(y_t | x_s')

The hidden Markov model (Vogel et al. 1996; NULL by Och & Ney 2003): the probability depends on the
distance to the source word before.

    p(a_t = s | a_{t−1} = s') = (1 − p_0) j(s − s') / Σ_r j(r − s')      p(a_t = NULL) = p_0

Both count c(y, x), the sum of p(a_t = s | x, y) over all positions with y_t = y and x_s = x. Each
iteration of EM sets p(y | x) = c(y, x) / Σ_y' c(y', x), and j(d) = 1 + the expected number of moves
by d.

All positions of the pairs with equally many source words are one array.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

AlignerName = Literal["ibm1", "hmm"]
"""IBM model 1, or the hidden Markov model that starts from it."""
ITERATIONS = 5
"""Number of EM iterations of each model, as in GIZA++."""
NULL_SHARE = 0.2
"""p_0 of the hidden Markov model, as in Och & Ney 2003."""
CELLS = 2**20
"""Largest number of (target word, source word) pairs in an array; 8 MB in float64."""
PADDING = -1
"""Table entry of target positions after the end; its probability is 1 and its count is dropped."""


@dataclass(frozen=True)
class Group:
    """Pairs with equally many source words.

    rows: numbers of the pairs
    entries: table entry of each target word with NULL and with each source word
    """

    rows: Int[np.ndarray, " N"]
    entries: Int[np.ndarray, "N T S+1"]


class WordAligner:
    """Translation probabilities p(y | x) of a parallel text, and the alignments of its pairs.

    sources, targets: words of each sentence; tokens of any kind, such as strings or ids
    method: model that is trained
    iterations: EM iterations of each model
    """

    def __init__(
        self,
        sources: Sequence[Sequence[Hashable]],
        targets: Sequence[Sequence[Hashable]],
        *,
        method: AlignerName = "ibm1",
        iterations: int = ITERATIONS,
    ) -> None:
        self.source_words: dict[Hashable, int] = {None: 0}  # NULL is number 0
        self.target_words: dict[Hashable, int] = {}
        source_ids = [_numbered(words, self.source_words) for words in sources]
        target_ids = [_numbered(words, self.target_words) for words in targets]
        self._longest = max(map(len, source_ids), default=0)
        self._shapes = [(len(t), len(s)) for s, t in zip(source_ids, target_ids, strict=True)]
        self._groups, keys = _grouped(source_ids, target_ids, len(self.target_words))
        self.pairs: Int[np.ndarray, "2 K"] = np.array(
            np.divmod(keys, max(1, len(self.target_words)))
        )
        """Numbers of the source word and of the target word of each entry."""
        self.probabilities: Float[np.ndarray, " K"] = np.ones(len(keys))
        """p(y | x) of each entry."""
        self._jumps: Float[np.ndarray, " J"] | None = None  # None: model 1
        for _ in range(iterations):
            self._iterate()
        if method == "hmm":
            self._jumps = np.ones(2 * self._longest + 1)
            for _ in range(iterations):
                self._iterate()

    def weights(self) -> list[Float[np.ndarray, "T S"]]:
        """p(a_t = s) of each pair; a row of zeros where NULL is the most probable."""
        weights = [np.zeros(shape) for shape in self._shapes]
        for group in self._groups:
            for row, posterior in zip(group.rows, self._posterior(group)[0], strict=True):
                posterior = posterior[: len(weights[row])]  # without padding
                is_linked = posterior.argmax(1) > 0  # [T]
                weights[row] = posterior[:, 1:] * is_linked[:, None]
        return weights

    def _iterate(self) -> None:
        """One EM iteration."""
        counts = np.zeros(len(self.probabilities) + 1)
        jumps = np.ones(2 * self._longest + 1)
        for group in self._groups:
            posterior, group_jumps = self._posterior(group)
            counts += np.bincount(
                group.entries.ravel() % len(counts), posterior.ravel(), len(counts)
            )
            jumps += group_jumps
        counts = counts[:-1]
        totals = np.bincount(self.pairs[0], counts)  # [source words]
        self.probabilities = counts / totals[self.pairs[0]]
        if self._jumps is not None:
            self._jumps = jumps

    def _posterior(
        self, group: Group
    ) -> tuple[Float[np.ndarray, "N T S+1"], Float[np.ndarray, " J"]]:
        """p(a_t = s) with NULL first, and the expected number of jumps of each distance."""
        emissions = np.append(self.probabilities, 1.0)[group.entries]  # [N, T, S+1]
        if self._jumps is None:
            return emissions / emissions.sum(2, keepdims=True), np.zeros(1)
        return forward_backward(emissions, group.entries[:, :, 0] != PADDING, self._jumps)


def forward_backward(
    emissions: Float[np.ndarray, "N T S+1"],
    is_word: Float[np.ndarray, "N T"],
    jumps: Float[np.ndarray, " J"],
) -> tuple[Float[np.ndarray, "N T S+1"], Float[np.ndarray, " J"]]:
    """Posterior of the hidden Markov model and expected counts of the jumps.

    A target word without a source word keeps the position s' of the word before.

    emissions: p(y_t | x_s), NULL first; 1 at padding
    is_word: False at padding
    jumps: j(d), up to a factor, of the distances −D … D; D ≥ S
    """
    null = emissions[:, :, :1]  # [N, T, 1]
    words = emissions[:, :, 1:]  # [N, T, S]
    steps, size = words.shape[1:]
    distances = np.arange(size) - np.arange(-1, size)[:, None]  # [S+1, S], from −1 first
    distances += len(jumps) // 2  # index in `jumps`
    moves = jumps[distances]
    moves = (1 - NULL_SHARE) * moves / moves.sum(1, keepdims=True)
    start, moves = moves[0], moves[1:]
    linked = np.zeros(words.shape)  # p(a_t = s | y_1 … y_t)
    unlinked = np.zeros(words.shape)  # p(a_t = NULL, position s | y_1 … y_t)
    linked[:, 0] = start * words[:, 0]
    unlinked[:, 0] = NULL_SHARE / size * null[:, 0]
    scale = np.ones(null.shape)
    for t in range(steps):
        if t:
            before = linked[:, t - 1] + unlinked[:, t - 1]  # [N, S]
            linked[:, t] = before @ moves * words[:, t]
            unlinked[:, t] = NULL_SHARE * before * null[:, t]
        scale[:, t] = (linked[:, t] + unlinked[:, t]).sum(1, keepdims=True)
        linked[:, t] /= scale[:, t]
        unlinked[:, t] /= scale[:, t]
    after = np.ones(words.shape)  # p(y_{t+1} … | a_t = s) / p(y_{t+1} … | y_1 … y_t)
    for t in range(steps - 1, 0, -1):
        by_word = (words[:, t] * after[:, t]) @ moves.T
        by_null = NULL_SHARE * null[:, t] * after[:, t]
        after[:, t - 1] = (by_word + by_null) / scale[:, t]
    before = (linked + unlinked)[:, :-1].reshape(-1, size)  # [N (T−1), S]
    reached = (words * after / scale * is_word[:, :, None])[:, 1:].reshape(-1, size)
    expected = np.bincount(
        distances[1:].ravel(), (moves * (before.T @ reached)).ravel(), len(jumps)
    )
    of_null = (unlinked * after).sum(2, keepdims=True)  # [N, T, 1]
    return np.concatenate([of_null, linked * after], 2), expected


def _numbered(words: Sequence[Hashable], numbers: dict[Hashable, int]) -> Int[np.ndarray, " L"]:
    """Numbers of words; new words get the next number."""
    return np.array([numbers.setdefault(word, len(numbers)) for word in words], np.int64)


def _grouped(
    sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], target_vocabulary: int
) -> tuple[list[Group], Int[np.ndarray, " K"]]:
    """Groups of the pairs with words on both sides, and the key of each table entry.

    A key is x · target_vocabulary + y, with the numbers of source word and target word.
    """
    rows = [i for i, (s, t) in enumerate(zip(sources, targets, strict=True)) if len(s) and len(t)]
    rows.sort(key=lambda i: (len(sources[i]), len(targets[i])))
    keys: list[np.ndarray] = []
    groups: list[np.ndarray] = []
    start = 0
    while start < len(rows):
        size = len(sources[rows[start]])
        end = start + 1
        while (
            end < len(rows)
            and len(sources[rows[end]]) == size
            and (end + 1 - start) * len(targets[rows[end]]) * (size + 1) <= CELLS
        ):
            end += 1
        groups.append(np.array(rows[start:end]))
        steps = len(targets[rows[end - 1]])
        y = np.full((end - start, steps), PADDING)
        for i, row in enumerate(rows[start:end]):
            y[i, : len(targets[row])] = targets[row]
        x = np.pad(np.stack([sources[row] for row in rows[start:end]]), ((0, 0), (1, 0)))
        cells = x[:, None, :] * target_vocabulary + y[:, :, None]  # [N, T, S+1]
        keys.append(np.where(y[:, :, None] == PADDING, PADDING, cells))
        start = end
    return _entries(groups, keys)


def _entries(
    rows: Sequence[np.ndarray], keys: Sequence[np.ndarray]
) -> tuple[list[Group], Int[np.ndarray, " K"]]:
    """Groups with table entries in place of keys, and the sorted keys."""
    if not keys:
        return [], np.zeros(0, np.int64)
    sorted_keys = np.unique(np.concatenate([np.unique(group) for group in keys]))
    sorted_keys = sorted_keys[sorted_keys != PADDING]
    groups = []
    for numbers, group in zip(rows, keys, strict=True):
        entries = np.where(group == PADDING, PADDING, np.searchsorted(sorted_keys, group))
        groups.append(Group(numbers, entries.astype(np.int32)))
    return groups, sorted_keys
