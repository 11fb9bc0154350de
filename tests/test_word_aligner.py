"""IBM model 1 and the hidden Markov model, against loops over words and an EM step by hand."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from nmt.data.word_aligner import NULL_SHARE, PSEUDO_COUNT, WordAligner, forward_backward
from nmt.foundation.errors import UserError
from nmt.inference.alignment_weights import (
    alignment_by_counts,
    attention_of_model,
    attention_of_vectors,
)
from nmt.inference.word_alignment import symmetrize

SOURCES = [["the", "house"], ["the", "book"], ["a", "book"], ["house"], [], ["a"]]
TARGETS = [["das", "Haus"], ["das", "Buch"], ["ein", "Buch"], ["Haus"], ["leer"], []]


def table(aligner):
    """p(y | x) by (x, y); None is NULL."""
    x, y = aligner.pairs
    sources = list(aligner.source_words)
    targets = list(aligner.target_words)
    return {
        (sources[i], targets[j]): p for i, j, p in zip(x, y, aligner.probabilities, strict=True)
    }


def test_an_em_step_of_model_1_by_hand():
    """Uniform at first: each target word counts 1/3 for each of two source words and NULL, or 1/2 for one word and NULL."""
    probabilities = table(WordAligner(SOURCES, TARGETS, iterations=1))

    def smoothed(count, total):
        """For the five target words, of which one is in an unaligned sentence."""
        return pytest.approx((count + PSEUDO_COUNT) / (total + 5 * PSEUDO_COUNT))

    assert probabilities["the", "das"] == smoothed(2 / 3, 4 / 3)  # c = 1/3 + 1/3
    assert probabilities["house", "Haus"] == smoothed(1 / 3 + 1 / 2, 2 / 3 + 1 / 2)
    assert probabilities[None, "Haus"] == smoothed(1 / 3 + 1 / 2, 6 / 3 + 1 / 2)
    assert ("the", "ein") not in probabilities


def test_model_1_is_its_equation():
    probabilities = table(WordAligner(SOURCES, TARGETS, iterations=4))
    pairs = [([None, *s], t) for s, t in zip(SOURCES, TARGETS, strict=True) if s and t]
    p = {(x, y): 1.0 for s, t in pairs for x in s for y in t}
    vocabulary = {y for t in TARGETS for y in t}
    for _ in range(4):
        counts = dict.fromkeys(p, 0.0)
        for source, target in pairs:
            for y in target:
                for x in source:
                    counts[x, y] += p[x, y] / sum(p[other, y] for other in source)
        totals = {x: sum(counts[k] for k in p if k[0] == x) for x, _ in p}
        p = {
            (x, y): (c + PSEUDO_COUNT) / (totals[x] + PSEUDO_COUNT * len(vocabulary))
            for (x, y), c in counts.items()
        }
    assert probabilities == pytest.approx(p)


def test_the_hidden_markov_model_is_a_sum_over_all_alignments():
    """Posteriors and expected jumps by enumeration; states 0 … S−1 are words, S … 2S−1 NULL after such a word."""
    size, steps = 3, 4
    rng = np.random.default_rng(1)
    emissions = rng.uniform(0.1, 1, (2, steps, size + 1))
    emissions[1, 2:] = 1.0  # padding
    is_word = np.array([[True] * 4, [True, True, False, False]])
    jumps = rng.uniform(0.1, 1, 2 * size + 1)
    posterior, expected = forward_backward(emissions, is_word, jumps)
    all_jumps = np.zeros_like(jumps)
    for row, length in ((0, 4), (1, 2)):
        total, sums, moved = 0.0, np.zeros((length, size + 1)), np.zeros_like(jumps)
        for states in itertools.product(range(2 * size), repeat=length):
            p, made, before = 1.0, np.zeros_like(jumps), -1
            for t, state in enumerate(states):
                s, is_null = state % size, state >= size
                if is_null:
                    stays = 1 / size if t == 0 else float(s == before)
                    p *= NULL_SHARE * stays * emissions[row, t, 0]
                else:
                    total_jump = sum(jumps[r - before + size] for r in range(size))
                    p *= (1 - NULL_SHARE) * jumps[s - before + size] / total_jump
                    p *= emissions[row, t, s + 1]
                    made[s - before + size] += t > 0
                before = s
            total += p
            moved += p * made
            for t, state in enumerate(states):
                sums[t, 0 if state >= size else state + 1] += p
        assert np.allclose(posterior[row, :length], sums / total)
        all_jumps += moved / total
    assert np.allclose(expected, all_jumps)


@pytest.mark.parametrize("method", ["ibm1", "hmm"])
def test_words_are_aligned(method):
    aligner = WordAligner(SOURCES, TARGETS, method=method, iterations=10)
    weights = aligner.weights()
    assert [w.shape for w in weights] == [(2, 2), (2, 2), (2, 2), (1, 1), (1, 0), (0, 1)]
    assert (weights[0].argmax(1) == [0, 1]).all() and (weights[2].argmax(1) == [0, 1]).all()
    # Every word, NULL included, is a word of a translation once.
    assert math.isclose(aligner.counts.sum(), sum(map(len, TARGETS[:4])))
    sums = np.bincount(aligner.pairs[0], aligner.probabilities)
    assert ((sums > 0.9) & (sums <= 1)).all()  # target words without an entry have the remainder
    assert WordAligner([], [], method=method).weights() == []


def test_one_direction_is_not_combined():
    forward, backward = frozenset({(0, 0)}), frozenset({(1, 1)})
    assert symmetrize(forward, backward, "forward") == forward
    assert symmetrize(forward, backward, "backward") == backward


def test_sentences_without_vectors_get_weights_of_zero(tmp_path):
    for name in ("s", "t"):
        (tmp_path / name).write_text("1 2\nknown 1 0\n")
    files = f"{tmp_path}/s", f"{tmp_path}/t"
    maps = list(attention_of_vectors(*files, "word", ["", "a b"], ["", "c"], lambda count: None))
    assert [each.total.shape for each in maps] == [(0, 0), (1, 2)]
    assert not maps[1].total.any()


def test_grow_diag_adds_each_neighbour_that_is_new_on_one_side():
    def grown(forward, backward):
        return symmetrize(frozenset(forward), frozenset(backward), "grow_diag")

    for row, column in itertools.product((-1, 0, 1), repeat=2):
        near = (1 + row, 1 + column)
        assert grown([(1, 1), near], [(1, 1)]) == {(1, 1), near}
    assert grown([(1, 1), (3, 1), (1, 3)], [(1, 1)]) == {(1, 1)}
    assert grown([(0, 0), (1, 1), (0, 1)], [(0, 0), (1, 1)]) == {(0, 0), (1, 1)}


def test_the_hidden_markov_model_learns_its_jumps():
    """Expectation maximisation in plain loops around `forward_backward`."""
    pairs = [([None, *s], t) for s, t in zip(SOURCES, TARGETS, strict=True) if s and t]
    p = table(WordAligner(SOURCES, TARGETS, iterations=3))
    vocabulary = {word for target in TARGETS for word in target}
    jumps = np.ones(5)  # by -2 to 2 positions
    for _ in range(3):
        counts, moved = dict.fromkeys(p, 0.0), np.ones(5)
        for source, target in pairs:
            emissions = np.array([[[p[x, y] for x in source] for y in target]])
            posterior, made = forward_backward(emissions, np.ones((1, len(target)), bool), jumps)
            moved += made
            for (t, y), (s, x) in itertools.product(enumerate(target), enumerate(source)):
                counts[x, y] += posterior[0, t, s]
        totals = {x: sum(counts[key] for key in p if key[0] == x) for x, _ in p}
        p = {
            (x, y): (count + PSEUDO_COUNT) / (totals[x] + PSEUDO_COUNT * len(vocabulary))
            for (x, y), count in counts.items()
        }
        jumps = moved
    assert table(WordAligner(SOURCES, TARGETS, method="hmm", iterations=3)) == pytest.approx(p)


def test_a_word_of_null_has_no_link():
    """One target word stands in every sentence, beside the translation of the only source word."""
    names = "abcdefgh"
    aligner = WordAligner([[n] for n in names], [["ja", n.upper()] for n in names], iterations=10)
    for weights in aligner.weights():
        assert not weights[0].any()
        assert weights[1, 0] > 0.5


def test_counts_ignore_case():
    sources = ["The dog", "the cat", "THE bird"]
    targets = ["Der Hund", "der Kater", "DER Vogel"]

    def totals(change):
        lines = [*map(change, sources)], [*map(change, targets)]
        maps = alignment_by_counts("ibm1", "word", [], *lines, lambda count: None)
        return [alignment.total for alignment in maps]

    for one, other in zip(totals(str), totals(str.lower), strict=True):
        assert np.array_equal(one, other)


def test_subwords_of_both_directions_need_equal_vocabularies():
    """Links by numbers of subwords would mean other subwords in each direction."""

    def model(languages, *vocabularies):
        tokenizer = SimpleNamespace(columns=SimpleNamespace(sources=1), models=vocabularies)
        maps = lambda *_: iter(["map"])  # noqa: E731
        return lambda: SimpleNamespace(
            attends=True, languages=languages, tokenizer=tokenizer, forced_maps=maps
        )

    forward = model(("en", "de"), b"english", b"german")
    texts = ["a"], ["b"], lambda _: None
    other = model(("de", "en"), b"german", b"more english")
    with pytest.raises(UserError, match="units=piece needs models with the same vocabularies"):
        next(attention_of_model(forward, "model=x", "piece", other, *texts))
    equal = model(("de", "en"), b"german", b"english")
    for units, reverse in (("word", other), ("piece", equal)):
        assert next(attention_of_model(forward, "model=x", units, reverse, *texts)) == "map"
