"""Searches against hand-written transition tables and brute force; they see nothing but a `Step`."""

import itertools
import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.interfaces import BOS, EOS
from nmt.search.beam import Beam
from nmt.search.greedy import Greedy
from nmt.search.penalty import penalty
from nmt.search.top_k import top_k

A, B = 4, 5
WORDS = [EOS, A, B]
VOCABULARY = 6


@dataclass
class Words:
    """Search state: the words so far, one row a hypothesis, padded on the left with BOS."""

    rows: torch.Tensor

    def select(self, rows):
        return Words(self.rows[rows])


class Table:
    """A Step from a function of the words so far; `tables[i]` belongs to sentence i."""

    def __init__(self, tables):
        self.tables = tables

    def __call__(self, tokens, state, layout=None):
        rows = torch.cat([state.rows, tokens[:, None]], 1)
        per_sentence = len(rows) // len(self.tables)
        sentences = [i // per_sentence for i in range(len(rows))]
        if layout is not None:
            sentences = (layout.places // layout.width).tolist()
        log_probs = torch.full((len(rows), VOCABULARY), -torch.inf, dtype=torch.float64)
        for i, row in enumerate(rows.tolist()):
            words = tuple(word for word in row if word != BOS)
            for word, p in self.tables[sentences[i]](words).items():
                log_probs[i, word] = math.log(p) if p else -math.inf
        return log_probs, Words(rows)

    def keep(self, sentences):
        return Table([self.tables[i] for i in sentences.tolist()])


def find(search, tables, limits):
    return search(Table(tables), Words(torch.empty(len(tables), 0, dtype=torch.long)), limits)


def random_table(seed):
    """Random probabilities for every history, the same every time they are asked for."""

    def table(words):
        generator = torch.Generator().manual_seed(hash((seed, words)) % 2**31)
        p = torch.rand(len(WORDS), generator=generator, dtype=torch.float64) + 0.01
        return dict(zip(WORDS, (p / p.sum()).tolist(), strict=True))

    return table


def brute_force(table, limit, name, alpha):
    """All hypotheses of at most `limit` words, best score first."""
    found = []
    for length in range(limit + 1):
        for words in itertools.product([A, B], repeat=length):
            log_prob = sum(math.log(table(words[:i])[word]) for i, word in enumerate([*words, EOS]))
            found.append((log_prob / penalty(name, alpha, length + 1), list(words), log_prob))
    return sorted(found, key=lambda h: -h[0])


def garden_path(words):
    """Greedy takes A (0.6) and is punished; the best sentence begins with B."""
    return {
        (): {A: 0.6, B: 0.4, EOS: 0.0},
        (A,): {A: 0.4, B: 0.35, EOS: 0.25},
        (B,): {A: 0.02, B: 0.03, EOS: 0.95},
    }.get(words, {A: 0.1, B: 0.1, EOS: 0.8})


def test_greedy_takes_the_best_word_and_beam_the_best_sentence():
    [[greedy]] = find(Greedy(), [garden_path], [5])
    assert greedy.tokens == [A, A]
    assert greedy.log_prob == pytest.approx(math.log(0.6 * 0.4 * 0.8))
    [[best]] = find(Beam(width=2, length_penalty="none"), [garden_path], [5])
    assert best.tokens == [B]
    assert best.log_prob == pytest.approx(math.log(0.4 * 0.95))


@pytest.mark.parametrize("name", ["none", "average", "wu"])
@pytest.mark.parametrize("seed", range(4))
def test_full_width_is_brute_force(name, seed):
    table, limit, n = random_table(seed), 4, 7
    truth = brute_force(table, limit, name, 0.8)
    [found] = find(Beam(width=40, n_best=n, length_penalty=name, alpha=0.8), [table], [limit])
    assert [h.tokens for h in found] == [words for _, words, _ in truth[:n]]
    for hypothesis, (score, _, log_prob) in zip(found, truth, strict=False):
        assert hypothesis.score == pytest.approx(score, abs=1e-6)
        assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), limit=st.integers(0, 6), name=st.sampled_from(["none", "average", "wu"]))
def test_width_one_is_greedy(seed, limit, name):
    [[greedy]] = find(Greedy(), [random_table(seed)], [limit])
    [[beam]] = find(Beam(width=1, length_penalty=name), [random_table(seed)], [limit])
    assert beam.tokens == greedy.tokens
    assert beam.log_prob == pytest.approx(greedy.log_prob, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    seeds=st.lists(st.integers(0, 10**6), min_size=1, max_size=7),
    width=st.integers(1, 6),
    name=st.sampled_from(["none", "average", "wu"]),
    data=st.data(),
)
def test_a_batch_is_one_by_one(seeds, width, name, data):
    limits = data.draw(st.lists(st.integers(0, 6), min_size=len(seeds), max_size=len(seeds)))
    tables = [random_table(seed) for seed in seeds]
    for search in (Greedy(), Beam(width=width, length_penalty=name)):
        together = find(search, tables, limits)
        alone = [find(search, [table], [limit])[0] for table, limit in zip(tables, limits, strict=True)]
        assert [[h.tokens for h in found] for found in together] == [[h.tokens for h in found] for found in alone]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), width=st.integers(1, 8), name=st.sampled_from(["none", "average", "wu"]))
def test_stopping_early_changes_nothing(seed, width, name):
    """The same beam that goes on until no hypothesis lives."""

    class Patient(Beam):
        def _settled(self, finished, best_live, max_length):
            return best_live == -math.inf

    table = random_table(seed)
    [eager] = find(Beam(width=width, length_penalty=name), [table], [6])
    [patient] = find(Patient(width=width, length_penalty=name), [table], [6])
    assert eager[0].tokens == patient[0].tokens


@pytest.mark.parametrize("size", [500, 2560, 2600, 8000])
@pytest.mark.parametrize("k", [1, 5, 7])
def test_top_k_by_blocks_is_topk(size, k):
    x = torch.randn(9, size)
    x[0, -1], x[1, :], x[1, 3] = 99.0, -torch.inf, 0.0
    values, indices = top_k(x, k)
    truth = x.topk(k, -1)
    assert torch.equal(values, truth.values)
    assert torch.equal(x.gather(1, indices), values)
    assert torch.equal(indices[2:], truth.indices[2:])


def test_an_empty_batch_gives_nothing():
    assert find(Beam(), [], []) == []
    assert find(Greedy(), [], []) == []


def test_more_results_than_places_is_refused():
    with pytest.raises(ValueError, match=r"n_best=3 .*width=2"):
        Beam(width=2, n_best=3)
