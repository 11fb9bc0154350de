"""Searches against hand-written transition tables and brute force; they see nothing but a `Step`."""

import itertools
import math
import re
from collections import Counter
from dataclasses import dataclass, replace

import pytest
import torch
from builders import banned
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.foundation.interfaces import BOS, EOS, Hypothesis, Prediction, Request
from nmt.search.beam import Beam
from nmt.search.beam_allocation import BankCandidate, _share_out
from nmt.search.constrained import Constrained, progress
from nmt.search.diverse import Diverse
from nmt.search.finished_hypotheses import FinishedHypotheses
from nmt.search.greedy import Greedy
from nmt.search.mbr import MBR
from nmt.search.penalty import Penalty
from nmt.search.sample import Sample
from nmt.search.shortcuts import top_k

A, B = 4, 5
WORDS = [EOS, A, B]
VOCABULARY = 6
PENALTIES = [
    Penalty("none"), Penalty("average"), Penalty("wu", 0.8), Penalty("reward", 0.7), Penalty("power", 0.7),
    Penalty("none", coverage=0.4), Penalty("wu", 0.8, coverage=0.4),
]  # fmt: skip
any_penalty = st.sampled_from(PENALTIES)


def beam(penalty, **options):
    return Beam(
        length_penalty=penalty.name, alpha=penalty.alpha, coverage=penalty.coverage, **options
    )


@dataclass
class Words:
    """Search state: the words so far, one row a hypothesis, padded on the left with BOS."""

    rows: torch.Tensor

    def select(self, rows):
        return Words(self.rows[rows])


def attention(words, source=3):
    """Some attention over three source positions that depends on the words so far."""
    generator = torch.Generator().manual_seed(hash(words) % 2**31)
    return torch.rand(source, generator=generator, dtype=torch.float64).softmax(-1)


class Table:
    """A Step from a function of the words so far; `tables[i]` belongs to sentence i."""

    device = torch.device("cpu")

    def __init__(self, tables, vocabulary=VOCABULARY):
        self.tables, self.vocabulary = tables, vocabulary
        self.mask = torch.tensor([[True, True, True, False]]).expand(len(tables), 4)

    def __call__(self, tokens, state, layout=None):
        rows = torch.cat([state.rows, tokens[:, None]], 1)
        per_sentence = len(rows) // len(self.tables)
        sentences = [i // per_sentence for i in range(len(rows))]
        if layout is not None:
            sentences = (layout.slots // layout.width).tolist()
        log_probs = torch.full((len(rows), self.vocabulary), -torch.inf, dtype=torch.float64)
        weights = torch.zeros(len(rows), 4, dtype=torch.float64)
        for i, row in enumerate(rows.tolist()):
            words = tuple(word for word in row if word != BOS)
            weights[i, :3] = attention(words)
            for word, p in self.tables[sentences[i]](words).items():
                log_probs[i, word] = math.log(p) if p else -math.inf
        return Prediction(log_probs, Words(rows), weights)

    def keep(self, sentences):
        return Table([self.tables[i] for i in sentences.tolist()], self.vocabulary)


def find(search, tables, requests, vocabulary=VOCABULARY):
    """`requests`: a Request or just the longest length for each table."""
    requests = [Request(r, seed=i) if isinstance(r, int) else r for i, r in enumerate(requests)]
    step, state = Table(tables, vocabulary), Words(torch.empty(len(tables), 0, dtype=torch.long))
    if any(request.constrained for request in requests):
        step = Constrained(step, requests)
        state = step.initial_state(state)
    return search(step, state, requests)


def random_table(seed, words_=WORDS):
    """Random probabilities for every history, the same every time they are asked for."""

    def table(words):
        generator = torch.Generator().manual_seed(hash((seed, words)) % 2**31)
        p = torch.rand(len(words_), generator=generator, dtype=torch.float64) + 0.01
        return dict(zip(words_, (p / p.sum()).tolist(), strict=True))

    return table


def brute_force(table, limit, penalty, words_=(A, B)):
    """All hypotheses of at most `limit` words, best score first: (score, words, log-probability)."""
    result = []
    for length in range(limit + 1):
        for words in itertools.product(words_, repeat=length):
            log_prob = sum(math.log(table(words[:i])[word]) for i, word in enumerate([*words, EOS]))
            n = length + 1
            score = {
                "none": log_prob,
                "average": log_prob / n,
                "wu": log_prob / ((5 + n) / 6) ** penalty.alpha,
                "reward": log_prob + penalty.alpha * n,
                "power": log_prob / n**penalty.alpha,
            }[penalty.name]
            seen = sum(attention(words[:i]) for i in range(n))
            score += penalty.coverage * sum(math.log(min(1.0, float(each))) for each in seen)
            result.append((score, list(words), log_prob))
    return sorted(result, key=lambda h: -h[0])


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


@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda p: f"{p.name}-{p.coverage:g}")
@pytest.mark.parametrize("seed", range(4))
def test_full_width_is_brute_force(penalty, seed):
    table, limit = random_table(seed), 4
    truth = brute_force(table, limit, penalty)
    for n in (1, 2, 3, 7):
        [result] = find(beam(penalty, width=40, n_best=n), [table], [limit])
        assert [h.tokens for h in result] == [words for _, words, _ in truth[:n]]
        for hypothesis, (score, _, log_prob) in zip(result, truth, strict=False):
            assert hypothesis.score == pytest.approx(score, abs=1e-6)
            assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), limit=st.integers(0, 6), penalty=any_penalty)
def test_width_one_is_greedy(seed, limit, penalty):
    [[greedy]] = find(Greedy(), [random_table(seed)], [limit])
    [[result]] = find(beam(penalty, width=1), [random_table(seed)], [limit])
    assert result.tokens == greedy.tokens
    assert result.log_prob == pytest.approx(greedy.log_prob, abs=1e-6)


@settings(max_examples=15, deadline=None)
@given(
    seeds=st.lists(st.integers(0, 10**6), min_size=1, max_size=7),
    width=st.integers(1, 6),
    penalty=any_penalty,
    data=st.data(),
)
def test_a_batch_is_one_by_one_in_any_order(seeds, width, penalty, data):
    limits = data.draw(st.lists(st.integers(0, 6), min_size=len(seeds), max_size=len(seeds)))
    order = data.draw(st.permutations(range(len(seeds))))
    tables, requests = (
        [random_table(seed) for seed in seeds],
        [Request(n, seed=i) for i, n in enumerate(limits)],
    )
    diverse = Diverse(width=2 * width, groups=2, n_best=2)
    for search in (Greedy(), beam(penalty, width=width), Sample(n_best=3, seed=4), diverse):
        together = find(search, tables, requests)
        shuffled = find(search, [tables[i] for i in order], [requests[i] for i in order])
        alone = [
            find(search, [table], [request])[0]
            for table, request in zip(tables, requests, strict=True)
        ]
        assert together == alone
        assert shuffled == [alone[i] for i in order]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    width=st.integers(1, 8),
    penalty=any_penalty,
    n_best=st.integers(1, 3),
)
def test_stopping_early_changes_nothing(seed, width, penalty, n_best):
    """A beam search that continues until no hypothesis is unfinished."""
    search, table = beam(penalty, width=max(width, n_best), n_best=n_best), random_table(seed)
    eager = find(search, [table], [6])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FinishedHypotheses, "_is_settled", lambda *_: False)
        assert find(search, [table], [6]) == eager


@pytest.mark.parametrize("n_best", [1, 2])
def test_a_settled_sentence_costs_no_more_steps(n_best):
    """Everything probable ends at once, so what lives on is hopeless: two steps find two results, of a thousand."""
    lengths = []

    def table(words):
        lengths.append(len(words))
        return {EOS: 0.98, A: 0.01, B: 0.01}

    [result] = find(Beam(width=3, n_best=n_best, length_penalty="none"), [table], [1000])
    assert [h.tokens for h in result] == [[], [A]][:n_best]
    assert max(lengths) < n_best


def test_coverage_needs_attention():
    class Blind(Table):
        def __call__(self, *arguments):
            result = super().__call__(*arguments)
            return Prediction(result.log_probs, result.state)

    step = Blind([random_table(1)])
    step.mask = None
    with pytest.raises(ValueError, match=r"search\.coverage"):
        Beam(coverage=0.1)(step, Words(torch.empty(1, 0, dtype=torch.long)), [Request(3)])


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({}, None),
        pytest.param({"temperature": 0.5}, None, marks=pytest.mark.exhaustive),
        ({"top_k": 2}, 2),
        pytest.param({"top_p": 0.6}, None, marks=pytest.mark.exhaustive),
        pytest.param({"epsilon": 0.3}, None, marks=pytest.mark.exhaustive),
    ],
    ids=["plain", "temperature", "top_k", "top_p", "epsilon"],
)
def test_samples_are_distributed_as_they_should(options, allowed):
    """A chi-square test (at 0.1 %) of 4,000 samples against the distribution worked out by hand."""
    table = random_table(11)

    def adjusted(words):
        p = {w: q ** (1 / options.get("temperature", 1.0)) for w, q in table(words).items()}
        p = {w: q / sum(p.values()) for w, q in p.items()}
        ranked = sorted(p, key=lambda w: -p[w])
        before = [sum(p[w] for w in ranked[:i]) for i in range(len(ranked))]
        kept = [
            w for i, w in enumerate(ranked)
            if i == 0 or (i < (allowed or 9) and before[i] < options.get("top_p", 1) and p[w] >= options.get("epsilon", 0))
        ]  # fmt: skip
        return {w: p[w] / sum(p[v] for v in kept) if w in kept else 0.0 for w in p}

    expected = {}
    for length in range(3):
        for words in itertools.product([A, B], repeat=length):
            path = [*words, EOS] if length < 2 else list(words)  # at the limit only EOS is left
            expected[words] = math.prod(adjusted(words[:i])[word] for i, word in enumerate(path))
    draws = 1000
    result = find(
        Sample(n_best=4, seed=2, **options),
        [table] * draws,
        [Request(2, seed=i) for i in range(draws)],
    )
    counts = Counter(tuple(h.tokens) for hypotheses in result for h in hypotheses)
    possible = {words: p for words, p in expected.items() if p}
    assert set(counts) <= set(possible)
    statistic = sum((counts[w] - 4 * draws * p) ** 2 / (4 * draws * p) for w, p in possible.items())
    critical = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 5: 20.52, 6: 22.46}
    assert statistic < critical[max(1, len(possible) - 1)]
    for hypothesis in result[0]:  # the score is the model's own
        truth = sum(math.log(table(hypothesis.tokens[:i] and tuple(hypothesis.tokens[:i]))[w]) if i else math.log(table(())[w]) for i, w in enumerate([*hypothesis.tokens, EOS]))  # fmt: skip
        assert hypothesis.score == hypothesis.log_prob == pytest.approx(truth)


def test_one_diverse_group_is_a_beam():
    for seed in range(10):
        [one] = find(Diverse(width=3, groups=1, n_best=3), [random_table(seed)], [5])
        [same] = find(Beam(width=3, n_best=3), [random_table(seed)], [5])
        assert one == same


@pytest.mark.parametrize("seed", range(8))
def test_duplicates_of_groups_take_no_place_in_the_list(seed):
    """Several groups finish the same output; n_best others are finished too."""
    search = Diverse(width=6, groups=3, diversity=0.05, n_best=4)
    [outputs] = find(search, [random_table(seed)], [5])
    assert len({tuple(output.tokens) for output in outputs}) == len(outputs) == 4


@pytest.mark.parametrize(
    ("search", "settings", "message"),
    [
        (Beam, {"n_best": 0}, "search.n_best=0: out of range"),
        (Beam, {"width": 2.5}, "search.width=2.5: must be a whole number"),
        (Beam, {"length_penalty": "x"}, "search.length_penalty=x: must be one of none, average"),
        (Beam, {"coverage": -1.0}, "search.coverage=-1.0: out of range"),
        (Diverse, {"groups": 0}, "search.groups=0: out of range"),
        (Sample, {"n_best": 0}, "search.n_best=0: out of range"),
        (Sample, {"temperature": 0}, "search.temperature=0: out of range"),
        (MBR, {"candidates": 0}, "search.candidates=0: out of range"),
        (MBR, {"source": "beam", "seed": 2}, "search.seed need search.source=sample"),
    ],
)
def test_invalid_arguments_of_a_search_are_refused(search, settings, message, unchecked):
    with pytest.raises(ValueError, match=re.escape(message)):
        search(**settings)


@pytest.mark.parametrize("temperature", [1e-40, 1e-300])
def test_a_tiny_temperature_is_greedy_search(temperature):
    tables = [random_table(seed) for seed in range(5)]
    searches = Greedy(), Sample(temperature=temperature)
    greedy, sampled = (find(search, tables, [5] * 5) for search in searches)
    assert [[h.tokens for h in hs] for hs in sampled] == [[h.tokens for h in hs] for hs in greedy]


def test_top_k_keeps_k_of_equally_probable_tokens():
    p = Sample(top_k=1, epsilon=0.5).distribution(torch.full((1, 40), math.log(1 / 40)))
    assert int((p > 0).sum()) == 1


def test_a_large_diversity_leaves_the_log_probabilities_of_the_model():
    search = Diverse(width=2, groups=2, diversity=1e8, n_best=2, length_penalty="none")
    [hypotheses] = find(search, [garden_path], [5])
    log_probs = {tuple(h.tokens): h.log_prob for h in hypotheses}
    assert log_probs[B,] == pytest.approx(math.log(0.4 * 0.95))
    assert log_probs[A, A] == pytest.approx(math.log(0.6 * 0.4 * 0.8))


def test_diverse_groups_avoid_each_other():
    """Groups of one by hand: the second takes B first, because A has been taken and costs 1 more."""
    [[first, second]] = find(
        Diverse(width=2, groups=2, diversity=1.0, n_best=2, length_penalty="none"),
        [garden_path],
        [5],
    )
    assert {tuple(first.tokens), tuple(second.tokens)} == {(B,), (A, A)}
    assert first.log_prob == pytest.approx(math.log(0.4 * 0.95))
    # without a penalty both groups do the same, and only one hypothesis is different from the others
    [alone] = find(Diverse(width=2, groups=2, diversity=0.0, n_best=2), [garden_path], [5])
    assert len(alone) == 1
    with pytest.raises(ValueError, match="must be a multiple of search.groups"):
        Diverse(width=5, groups=2)


LETTERS = (4, 5, 6, 7)


def holds(tokens, sequence):
    return any(tuple(tokens[i : i + len(sequence)]) == tuple(sequence) for i in range(len(tokens)))


def begins(*tokens):
    """The spellings of a request whose output begins with these tokens."""
    return tuple({token: end} for end, token in enumerate(tokens, 1))


def repeats(tokens, size):
    grams = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
    return size > 0 and len(set(grams)) < len(grams)


def satisfies(tokens, request):
    met, _ = progress(request, tokens)
    return (
        not repeats(tokens, request.no_repeat_ngram_size)
        and begins(*tokens[: len(request.spellings)]) == request.spellings
        and met == sum(map(len, request.required))
        and not any(holds(tokens, sequence.tokens) for sequence in request.forbidden)
    )


@pytest.mark.parametrize("seed", range(14))
def test_constrained_search_with_full_width_is_brute_force(seed):
    table, limit = random_table(seed, (EOS, *LETTERS)), 4
    request = [
        Request(limit, required=((4, 5),)), Request(limit, required=((6,), (5,))),
        Request(limit, spellings=begins(7), required=((4,),)), Request(limit, forbidden=banned((4,), (5, 6))),
        Request(limit, spellings=begins(5, 5)), Request(limit, required=((4,),), continuing=frozenset({5})),
        Request(limit, no_repeat_ngram_size=2),
    ][seed % 7]  # fmt: skip
    truth = [
        h for h in brute_force(table, limit, Penalty("average"), LETTERS)
        if satisfies(h[1], request) and not (request.continuing and holds(h[1], (4, 5)))
    ]  # fmt: skip
    [result] = find(Beam(width=1500, n_best=3), [table], [request], vocabulary=8)
    assert [h.tokens for h in result] == [words for _, words, _ in truth[:3]]
    assert result[0].log_prob == pytest.approx(truth[0][2])


@pytest.mark.parametrize("search", [Greedy(), Beam(width=2), Sample(n_best=2), Diverse(n_best=2)])
def test_no_search_repeats_a_sequence_except_in_the_prefix(search):
    """Requests in one batch whose lengths of sequences differ, and tables that favour repetition."""

    def table(words):
        return {A: 0.9, B: 0.09, EOS: 0.01} if words[-1:] != (A,) else {A: 0.09, B: 0.9, EOS: 0.01}

    sizes = [0, 1, 2, 3]
    requests = [Request(12, seed=size, no_repeat_ngram_size=size) for size in sizes]
    requests.append(replace(requests[2], spellings=begins(A, A, A)))
    results = find(search, [table] * len(requests), requests)
    for request, hypotheses in zip(requests[1:4], results[1:4], strict=True):
        assert not any(repeats(h.tokens, request.no_repeat_ngram_size) for h in hypotheses)
    assert results[0][0].tokens == [A, B] * 6 or isinstance(search, Sample)
    assert all(h.tokens[:3] == [A, A, A] and not repeats(h.tokens[2:], 2) for h in results[4])


@pytest.mark.parametrize("required", [((A,),), ((A, B),), ((A,), (B, A))])
def test_required_words_are_not_repeated_without_need(required):
    """The table favours the repetition of a required word."""
    request = Request(8, required=required, no_repeat_ngram_size=2)
    [result] = find(Beam(width=4), [lambda _: {A: 0.9, B: 0.05, EOS: 0.05}], [request])
    assert satisfies(result[0].tokens, request)
    assert not repeats(result[0].tokens, 2)


def test_required_words_may_be_repeated():
    request = Request(6, required=((A, B), (A, B)), no_repeat_ngram_size=2)
    [result] = find(Beam(width=3), [random_table(1)], [request])
    assert progress(request, result[0].tokens)[0] == 4


@pytest.mark.exhaustive
def test_a_thousand_random_constraints_are_kept():
    """However small the beam and improbable the words: every hypothesis found satisfies its request."""
    generator = torch.Generator().manual_seed(5)
    draw = lambda low, high: int(torch.randint(low, high + 1, (), generator=generator))  # noqa: E731
    some = lambda low, high: tuple(draw(4, 5) for _ in range(draw(low, high)))  # noqa: E731
    requests = []
    for i in range(1000):
        required = tuple(some(1, 3) for _ in range(draw(0, 3)))
        prefix = some(0, 2)
        forbidden = banned((6,), (7, 4)) if i % 3 == 0 else ()
        room = len(prefix) + sum(map(len, required))
        limit = room + draw(1, 4)
        requests.append(Request(limit, i, required, forbidden, spellings=begins(*prefix)))
    for width in (1, 3, 5):
        tables = [random_table(i, (EOS, *LETTERS)) for i in range(len(requests))]
        result = find(Beam(width=width), tables, requests, vocabulary=8)
        assert all(
            hypotheses and satisfies(hypotheses[0].tokens, r)
            for hypotheses, r in zip(result, requests, strict=True)
        )


def test_the_other_searches_keep_prefixes_and_refuse_what_they_cannot_promise():
    table = random_table(3)
    for search in (Greedy(), Sample(n_best=2), Diverse(n_best=2), MBR(candidates=2)):
        [result] = find(
            search, [table], [Request(5, spellings=begins(B, A), forbidden=banned((B, B)))]
        )
        assert all(h.tokens[:2] == [B, A] and not holds(h.tokens, (B, B)) for h in result)
    requests = [Request(5, spellings=begins(word)) for word in (A, B, A)]
    for search in (Greedy(), Sample(), Diverse(), Beam(width=2)):
        results = find(search, [table] * 3, requests)
        assert [hypotheses[0].tokens[0] for hypotheses in results] == [A, B, A]
    for search in (Greedy(), Sample(), Diverse()):
        with pytest.raises(ValueError, match="search=beam"):
            find(search, [table], [Request(5, required=((A,),))])


def test_no_spelling_of_a_prefix_is_begun_that_must_end_in_a_forbidden_sequence():
    spellings = ({A: 1, B: 2}, {A: 2})  # either A A or B
    requests = [
        Request(4, seed=i, spellings=spellings, forbidden=banned((A, A))) for i in range(20)
    ]
    tables = [random_table(i) for i in range(20)]
    for search in (Greedy(), Sample(), Diverse(), Beam(width=1), Beam(width=4)):
        for hypotheses in find(search, tables, requests):
            assert hypotheses[0].tokens[0] == B
            assert hypotheses[0].log_prob > -math.inf


@pytest.mark.parametrize(
    "options", [{"top_p": 0.0}, {"top_k": 1}, {"temperature": 1e-300}, {"epsilon": 1.0}], ids=str
)
def test_limited_samples_are_the_greedy_output(options):
    tables = [random_table(i) for i in range(20)]
    limits = [4] * len(tables)
    greedy = [hypotheses[0].tokens for hypotheses in find(Greedy(), tables, limits)]
    drawn = find(Sample(**options), tables, limits)
    assert [hypotheses[0].tokens for hypotheses in drawn] == greedy


def test_a_huge_temperature_draws_uniformly_from_the_permitted_tokens():
    [hypotheses] = find(Sample(temperature=1e300, n_best=50), [random_table(1)], [1])
    assert {*map(len, (h.tokens for h in hypotheses))} <= {0, 1}
    assert len({tuple(h.tokens) for h in hypotheses}) > 1


def test_progress_finds_sequences_at_places_of_their_own():
    request = Request(9, required=((4, 5), (4,)), continuing=frozenset({7}))
    assert progress(request, []) == (0, [4])
    assert progress(request, [4]) == (1, [4])
    assert progress(request, [4, 4]) == (2, [5])
    assert progress(request, [4, 5]) == (2, [4])
    assert progress(request, [4, 5, 4]) == (3, [])
    assert progress(request, [4, 7]) == (0, [4])
    shortest_first = Request(9, required=((4,), (4, 5)))
    assert progress(shortest_first, [4, 5]) == (
        2,
        [4],
    )  # not the short one, and then a 5 that counts for nothing
    assert progress(request, [4, 5, 7, 6]) == (
        1,
        [4],
    )  # the longer one was lengthened; its first word counts alone


def test_required_words_that_begin_alike_are_all_written():
    """A word that is the beginning of another one, neither of which may be lengthened by chance."""
    continuing = frozenset({5, 6})
    required = ((4,), (4, 5), (4, 5, 6), (4, 6), (4,))
    for seed in range(20):
        request = Request(14, required=required, continuing=continuing)
        [result] = find(
            Beam(width=2), [random_table(seed, (EOS, *LETTERS))], [request], vocabulary=8
        )
        assert satisfies(result[0].tokens, request)


@pytest.mark.parametrize("utility", ["chrf", "bleu"])
@pytest.mark.parametrize("source", ["sample", "beam"])
def test_minimum_bayes_risk_takes_what_is_most_like_the_others(utility, source):
    import sacrebleu

    texts = ["the cat sat", "the cat sat", "a cat sat down", "dogs", "the cat sits"]
    hypotheses = [Hypothesis([i], -0.5 * i, -0.5 * i) for i in range(len(texts))]
    metric = sacrebleu.sentence_chrf if utility == "chrf" else sacrebleu.sentence_bleu
    p = [math.exp(h.log_prob) if source == "beam" else 1.0 for h in hypotheses]
    risks = {
        text: sum(q * metric(text, [other]).score for q, other in zip(p, texts, strict=True))
        / sum(p)
        for text in texts
    }
    result = MBR(utility=utility, source=source, n_best=3).rerank(hypotheses, texts)
    assert [text for _, text in result] == sorted(risks, key=lambda text: -risks[text])[:3]
    assert [h.score for h, _ in result] == pytest.approx([risks[text] for _, text in result])


@pytest.mark.parametrize("utility", ["chrf", "bleu"])
def test_an_empty_candidate_equals_itself(utility):
    candidates = [Hypothesis([], -0.1, -0.1)] * 15 + [Hypothesis([5], -9.0, -9.0)]
    result = MBR(utility=utility, candidates=16).rerank(candidates, [""] * 15 + ["Hund"])
    assert [(h.score, text) for h, text in result] == [(93.75, "")]


def test_a_short_candidate_may_be_far_more_probable_than_the_first():
    candidates = [Hypothesis([5] * 400, -720.0, -1.8), Hypothesis([5], -4.0, -2.0)]
    texts = ["a " * 400, "a"]
    assert MBR(source="beam").rerank(candidates, texts)[0][1] == "a"


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
    x[3, :-1] = -torch.inf  # fewer values than k
    assert int(top_k(x, k)[1].max()) < size


def test_an_empty_batch_gives_nothing():
    assert find(Beam(), [], []) == []
    assert find(Greedy(), [], []) == []


def test_settings_that_nothing_uses_are_refused():
    with pytest.raises(ValueError, match=r"alpha=0.9 has no effect"):
        Beam(alpha=0.9)
    with pytest.raises(ValueError, match="need search.source=sample"):
        MBR(source="beam", temperature=0.5)


def test_more_results_than_places_is_refused():
    with pytest.raises(ValueError, match=r"n_best=3 .*width=2"):
        Beam(width=2, n_best=3)
    with pytest.raises(ValueError, match=r"n_best=3 .*width=2"):
        Diverse(width=2, groups=2, n_best=3)
    with pytest.raises(ValueError, match=r"n_best=3 .*candidates=2"):
        MBR(candidates=2, n_best=3)


def test_banks_of_required_words_share_the_beam():
    candidates = [BankCandidate(bank, -bank - n, 0, n) for bank in (0, 1) for n in range(4)]
    chosen = _share_out(candidates, 5, 1)
    assert Counter(candidate.bank for candidate in chosen) == {0: 2, 1: 3}
    assert sorted(candidate.token for candidate in chosen) == [0, 0, 1, 1, 2]
    few = _share_out(candidates[:5], 4, 1)
    assert Counter(candidate.bank for candidate in few) == {0: 3, 1: 1}
