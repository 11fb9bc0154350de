"""Random segmentations: SentencePiece's distribution, and a pure function of (seed, line)."""

import collections
import itertools
import math
import subprocess
import sys

import pytest
import sentencepiece

from nmt.data import Pairs, Splits
from nmt.data.batching import Batching
from nmt.data.epoch_batches import EpochBatches
from nmt.data.filters import Filters
from nmt.data.preparation import prepare
from nmt.foundation.interfaces import UNK
from nmt.tokenizer import SentencePiece

TEXT = [
    "the lower the newest widest low",
    "lowest newer wider low tower",
    "a new power shower flower",
    "widest wide the slow snow",
] * 30
DRAWS = 1500


def tokenizer(model, alpha, **options):
    return SentencePiece(model=model, vocabulary_size=60, sampling=alpha, **options).train(TEXT, [])


def frequencies(cuts):
    result = collections.Counter(tuple(ids) for ids in cuts)
    return {cut: count / sum(result.values()) for cut, count in result.items()}


def distance(ours, theirs):
    """Total variation."""
    return sum(abs(ours.get(cut, 0) - theirs.get(cut, 0)) for cut in {*ours, *theirs}) / 2


ALPHAS = [("unigram", 0.2), ("unigram", 1.0), ("bpe", 0.1), ("bpe", 0.5)]
WORDS = [
    "newer widest",
    *(pytest.param(word, marks=pytest.mark.exhaustive) for word in ("lowest", "slower")),
]


@pytest.mark.parametrize(("model", "alpha"), ALPHAS)
@pytest.mark.parametrize("word", WORDS)
def test_the_distribution_is_that_of_sentencepiece(model, alpha, word):
    """As near to many draws of SentencePiece as a few more of its own draws are."""
    sentencepiece.set_random_generator_seed(1)
    ours = tokenizer(model, alpha)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=ours.models[0])

    def drawn(count):
        return frequencies(
            theirs.encode(word, enable_sampling=True, alpha=alpha, nbest_size=-1)
            for _ in range(count)
        )

    truth = drawn(10 * DRAWS)
    cuts = frequencies(ours.encode_source([word], seed)[0] for seed in range(DRAWS))
    assert distance(cuts, truth) < distance(drawn(DRAWS), truth) + 0.03
    assert all(theirs.decode(list(cut)) == word for cut in cuts)


def test_unigram_sampling_is_the_list_of_all_ways():
    """A word's draws against the probabilities of all its segmentations, listed."""
    ours, draws, alpha, word = tokenizer("unigram", 0.3), 2000, 0.3, "▁lowest"
    model = sentencepiece.SentencePieceProcessor(model_proto=ours.models[0])
    scores = {model.id_to_piece(i): (i, model.get_score(i)) for i in range(3, len(model))}
    ways = {}
    for cuts in itertools.product([False, True], repeat=len(word) - 1):
        ends = [*itertools.compress(range(1, len(word)), cuts), len(word)]
        pieces = [word[a:b] for a, b in itertools.pairwise([0, *ends])]
        if all(piece in scores for piece in pieces):
            score = sum(scores[piece][1] for piece in pieces)
            ways[tuple(scores[piece][0] for piece in pieces)] = math.exp(alpha * score)
    listed = {cut: weight / sum(ways.values()) for cut, weight in ways.items()}
    summed = frequencies(ours.encode_source(["lowest"], seed)[0] for seed in range(draws))
    assert distance(listed, summed) < 0.08


@pytest.mark.parametrize(("model", "alpha"), [("unigram", 50.0), ("bpe", 1e-12)])
def test_no_randomness_is_the_usual_segmentation(model, alpha):
    """BPE that drops no merge, and unigram as sure as can be."""
    ours = tokenizer(model, alpha)
    lines = [*TEXT[:4], "", "x y zz", "  the   lower "]
    assert ours.encode_source(lines, 3) == ours.encode_source(lines)


@pytest.mark.parametrize("model", ["unigram", "bpe"])
@pytest.mark.parametrize("fallback", [False, True])
def test_any_text_can_be_cut(model, fallback):
    ours = tokenizer(model, 0.3, byte_fallback=fallback) if not fallback else SentencePiece(
        model=model, vocabulary_size=330, sampling=0.3, byte_fallback=True
    ).train(TEXT, [])  # fmt: skip
    lines = [
        "日本 语 lower",
        "",
        " ",
        "\u00e9\u0301",
        "ﷺ½",
        "a\u00a0b",
        "\U0001f600\U0001f600low",
        "▁",
        "x" * 3000,
    ]
    for line, ids in zip(lines, ours.encode_source(lines, 7), strict=True):
        assert all(0 <= i < ours.source_size for i in ids)
        if fallback:
            assert UNK not in ids
            assert ours.decode([ids]) == ours.decode(ours.encode_source([line]))
        assert not any(a == b == UNK for a, b in itertools.pairwise(ids))


def test_a_line_is_cut_by_seed_and_text_alone():
    ours = tokenizer("unigram", 0.2)
    together = ours.encode_source(TEXT[:4], 5)
    assert [ours.encode_source([line], 5)[0] for line in TEXT[:4]] == together
    assert tokenizer("unigram", 0.2).encode_source(TEXT[3::-1], 5)[::-1] == together
    assert ours.encode_source(TEXT[:4], 6) != together


def test_each_epoch_has_its_own_segmentations():
    pairs = Pairs(TEXT[:4], TEXT[:4], "text")
    data = prepare(Splits(pairs, pairs, None, ("a", "b")), Filters(), tokenizer("unigram", 0.2))
    epochs = [EpochBatches(data, Batching(), seed=1, epoch=epoch)[0] for epoch in (0, 0, 1)]
    segmentations = [sorted(batch.source.tolist()) for batch in epochs]
    assert segmentations[0] == segmentations[1] != segmentations[2]


@pytest.mark.exhaustive
def test_every_process_draws_the_same(capsysbinary):
    code = """
from nmt.tokenizer import SentencePiece
text = ["the lower the newest widest low", "lowest newer wider low tower"] * 30
for model in ("unigram", "bpe"):
    made = SentencePiece(model=model, vocabulary_size=40, sampling=0.3).train(text, [])
    print(made.encode_source(text, 7))
"""
    exec(code, {})
    here = capsysbinary.readouterr().out
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert other.stdout == here
