"""From text to scored translations: scores that agree, ensembles, constraints in words, alignments of words."""

import itertools
import math
import pickle
import re
import unicodedata

import numpy as np
import pytest
import torch
from builders import batch, network, trained
from commands import failed, run
from hypothesis import given, settings
from hypothesis import strategies as st

import nmt
from nmt import loading
from nmt.data.links import GoldLinks, parse_links, write_links
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import EOS, UNK, Hypothesis, Request
from nmt.inference import output_formats
from nmt.inference.constraint import Constraint, ForbiddenPhrase, PrefixSpeller
from nmt.inference.model_step import EnsembleState, EnsembleStep, ModelStep, average_log_probs
from nmt.inference.parallel import length_batches
from nmt.inference.translation import Translation
from nmt.inference.translator import Translator
from nmt.inference.unknown_words import filled
from nmt.inference.word_alignment import (
    WordAlignment,
    alignment_scores,
    by_word,
    count_links,
    symmetrize,
)
from nmt.search.beam import Beam
from nmt.search.diverse import Diverse
from nmt.search.greedy import Greedy
from nmt.search.mbr import MBR
from nmt.search.sample import Sample
from nmt.tokenizer import SentencePiece
from nmt.tokenizer.columns import Pictured
from nmt.tokenizer.words import words

pytestmark = pytest.mark.usefixtures("unchecked")  # searches: test_search.py executes signatures

LINES = [" ".join("abcdefghij"[(i * k) % 10] for k in range(1, 2 + i % 7)) for i in range(64)]
SEARCHES = [
    Greedy(),
    Beam(width=4, n_best=2, coverage=0.2),
    Sample(n_best=3),
    Diverse(width=4, groups=2, n_best=3),
]
every_search = pytest.mark.parametrize("search", SEARCHES, ids=lambda s: type(s).__name__)


@pytest.fixture(scope="module")
def other_run(small_run, tmp_path_factory):
    """A model with the vocabulary of `small_run` and disturbed weights."""
    from nmt.storage import checkpoint as ckpt

    saved = ckpt.read(ckpt.find_checkpoint(str(small_run)))
    noise = torch.Generator().manual_seed(9)
    tensors = {
        name: t if name.startswith("tokenizer") else t + 0.1 * torch.randn(t.shape, generator=noise)
        for name, t in saved.tensors.items()
    }
    path = tmp_path_factory.mktemp("other") / "other.safetensors"
    ckpt.write(
        path, {k: v for k, v in saved.meta.items() if k not in ("format", "checksum")}, tensors
    )
    return path


def test_a_string_gives_one_answer(small_run):
    translator = nmt.load(str(small_run))
    assert translator.translate(LINES[0]) == translator.translate(LINES[:1])[0]
    assert translator.translations(LINES[0]).text == translator.translate(LINES[0])


@every_search
def test_a_hypothesis_scores_what_it_scores_when_it_is_given(small_run, other_run, search):
    for paths in (str(small_run), [str(small_run), str(other_run)]):
        translator = nmt.load(paths, search=search)
        result = [(t.source, h) for t in translator.translations(LINES[:20]) for h in t.hypotheses]
        given_ = translator.force([source for source, _ in result], [h.tokens for _, h in result])
        for (_, hypothesis), forced in zip(result, given_, strict=True):
            assert forced.log_prob == pytest.approx(
                hypothesis.log_prob, abs=1e-5 * (1 + len(hypothesis.tokens))
            )
            assert len(forced.log_probs) == len(hypothesis.tokens) + 1


def test_several_sentences_in_one_string_are_warned_about(small_run, caplog):
    """The server and the page split a text into sentences; Python and the command read a line as it is."""
    translator = nmt.load(str(small_run))
    translator.translate("a b. c d e")
    assert "several" not in caplog.text  # no sentence begins with a small letter
    with caplog.at_level("WARNING", "nmt"):
        for _ in range(2):
            translator.translate("a b! C d.")
    assert caplog.text.count("has several sentences, but is translated as one line") == 1


def test_a_used_translator_can_be_pickled(small_run):
    translator = nmt.load(str(small_run))
    texts = translator.translate(LINES[:8])
    assert pickle.loads(pickle.dumps(translator)).translate(LINES[:8]) == texts


@pytest.mark.parametrize(
    "search",
    [
        pytest.param(one, marks=[] if isinstance(one, Beam) else [pytest.mark.exhaustive])
        for one in SEARCHES
    ],
    ids=lambda s: type(s).__name__,
)
def test_a_batch_of_64_is_one_by_one_in_any_order(small_run, search):
    translator = nmt.load(small_run, search=search)
    together = translator.translations(LINES)
    backwards = translator.translations(LINES[::-1])[::-1]
    alone = [translator.translations([line])[0] for line in LINES[::5]]  # of every length
    for results, expected in ((backwards, together), (alone, together[::5])):
        assert [t.texts for t in results] == [t.texts for t in expected]
        for one, other in zip(results, expected, strict=True):
            scores = [[h.score for h in t.hypotheses] for t in (one, other)]
            assert scores[0] == pytest.approx(scores[1], abs=1e-5)


@pytest.mark.parametrize("averaging", ["probability", "log_probability"])
def test_an_ensemble_of_a_model_with_itself_is_the_model(small_run, averaging):
    alone = nmt.load(small_run, search=Beam(n_best=3))
    twice = nmt.load(
        [str(small_run)] * 3, search=Beam(n_best=3), averaging=averaging, shares=[1.0, 2.0, 0.5]
    )
    for one, other in zip(alone.translations(LINES), twice.translations(LINES), strict=True):
        assert one.texts == other.texts
        assert [h.score for h in one.hypotheses] == pytest.approx(
            [h.score for h in other.hypotheses], abs=1e-5
        )


def test_an_ensemble_averages(small_run, other_run):
    sources = nmt.load(small_run).encode(LINES[:5])
    singles = [nmt.load(path).force(sources, sources) for path in (small_run, other_run)]
    paths = [str(small_run), str(other_run)]
    probability = nmt.load(paths, shares=[3.0, 1.0]).force(sources, sources)
    log_probability = nmt.load(paths, shares=[3.0, 1.0], averaging="log_probability").force(
        sources, sources
    )
    for a, b, p, lp in zip(*singles, probability, log_probability, strict=True):
        np.testing.assert_allclose(
            np.exp(p.log_probs), 0.75 * np.exp(a.log_probs) + 0.25 * np.exp(b.log_probs), 1e-4
        )
        np.testing.assert_allclose(lp.log_probs, 0.75 * a.log_probs + 0.25 * b.log_probs, 1e-4)
        np.testing.assert_allclose(p.weights, 0.75 * a.weights + 0.25 * b.weights, atol=1e-5)


def test_decoders_and_scores_mix_in_an_ensemble():
    """The step of three different networks is the average of their steps."""
    models, data = (
        [network(d, a) for d, a in (("bahdanau", "concat"), ("luong", "dot"), ("fixed", "none"))],
        batch(),
    )
    with torch.inference_mode():
        memories = [model.encode(data.source, data.source_lengths) for model in models]
        steps = [ModelStep(model, memory) for model, memory in zip(models, memories, strict=True)]
        states = [
            model.decoder.initial(memory) for model, memory in zip(models, memories, strict=True)
        ]
        predictions = [
            step(torch.tensor([2, 2, 2]), state) for step, state in zip(steps, states, strict=True)
        ]
        each = [prediction.log_probs for prediction in predictions]
        shares = [0.5, 0.3, 0.2]
        ensemble = EnsembleStep(steps, shares, "probability")
        result = ensemble(torch.tensor([2, 2, 2]), EnsembleState(tuple(states)))
        torch.testing.assert_close(
            result.log_probs.exp(), sum(w * e.exp() for w, e in zip(shares, each, strict=True))
        )
        torch.testing.assert_close(result.weights.sum(1), torch.ones(3, dtype=torch.float64))
        first, second = predictions[0].weights, predictions[1].weights
        torch.testing.assert_close(result.weights, (0.5 * first + 0.3 * second) / 0.8)
        [a, b, c] = Beam(width=3)(ensemble, EnsembleState(tuple(states)), [Request(5)] * 3)
    assert all(h and math.isfinite(h[0].score) for h in (a, b, c))
    never = torch.tensor([[-torch.inf, 0.0]])
    assert not average_log_probs([never, never], [0.5, 0.5], "log_probability").isnan().any()


def test_models_of_different_vocabularies_are_refused(small_run, tmp_path):
    other = trained(
        tmp_path / "run", "experiment=reverse", "tokenizer=char", "data.train=50", "data.validation=5", "data.test=5",
        "trainer.max_updates=1", "data.seed=5", "tokenizer.lowercase=true", "sizes.encoder=8", "sizes.decoder=16",
        "sizes.readout=8", "model.embedding_size=8", "search=greedy",
    )  # fmt: skip
    with pytest.raises(UserError, match="different vocabularies"):
        loading.translator([str(small_run), str(other)])
    with pytest.raises(UserError, match="one positive ensemble weight for each of the 2 models"):
        loading.translator([str(small_run)] * 2, shares=[1.0])
    for share in (math.nan, math.inf):
        with pytest.raises(UserError, match="one positive ensemble weight for each"):
            loading.translator([str(small_run)] * 2, shares=[share, 1.0])


def test_progress_of_a_single_line(small_run):
    lines = []
    nmt.load(small_run).translate("a b", progress=lines.append)
    assert sum(lines) == 1


def test_decodings_are_compared_by_identity(small_run):
    first, second = nmt.load(small_run).translations(["a", "b"], details_of=1)
    assert first.details[0] in [second.details[0], first.details[0]]
    assert first.details != second.details
    assert len({*first.details, *second.details}) == 2


@pytest.mark.parametrize(
    "texts",
    [{"prefix": "\ud83d"}, {"required": ("\ud800",)}, {"forbidden": (None,)}, {"required": b"a"}],
)
def test_constraints_are_texts(texts):
    with pytest.raises(
        (TypeError, UserError), match="surrogate|expected a list of strings|expected a string"
    ):
        Constraint(**texts)


def test_a_forbidden_word_is_not_written_after_an_unknown_word(small_run):
    """The mark of an unknown token separates its neighbours like a space."""
    tokenizer = SentencePiece(model="char", vocabulary_size=20).train([], ["b ab"] * 9)
    request = Constraint(forbidden=("ab",)).added_to(
        Request(max_length=5), PrefixSpeller(tokenizer), 0
    )
    letters = dict(
        zip(tokenizer.target_pieces(range(tokenizer.target_size)), range(99), strict=False)
    )
    [excluded] = request.forbidden
    a, b, space = letters["a"], letters["b"], letters["▁"]
    for before, is_excluded in (([], True), ([space], True), ([UNK], True), ([b], False)):
        assert (b in excluded([*before, a])) == is_excluded


def contained(text_ids, excluded):
    """Whether a search would exclude the tokens of a text."""
    return any(token in excluded(text_ids[:end]) for end, token in enumerate(text_ids))


def segmentations(tokenizer, text):
    """All segmentations of a text by a small vocabulary."""
    pieces = {tokenizer.target_pieces([i])[0]: i for i in range(EOS + 1, tokenizer.target_size)}
    spelled = tokenizer.target_spelling(text)

    def paths(start):
        if start == len(spelled):
            yield []
        for end in range(start + 1, len(spelled) + 1):
            if spelled[start:end] in pieces:
                yield from ([pieces[spelled[start:end]], *rest] for rest in paths(end))

    return list(paths(0))


@pytest.mark.parametrize("model", ["bpe", "unigram", "char", "word"])
def test_a_forbidden_word_is_excluded_beside_punctuation(model):
    """Every segmentation of a text contains the word, or none does; words that begin like it may do."""
    corpus = ['er ruft "Hund" (Hund) Ball-Hund Hund, Hund. ja der ein Seehund Hun d SeeHund'] * 9
    tokenizer = SentencePiece(model=model, vocabulary_size=46).train(corpus, corpus)
    [excluded] = (
        Constraint(forbidden=("Hund",))
        .added_to(Request(max_length=50), PrefixSpeller(tokenizer), 0)
        .forbidden
    )
    for text in ('er ruft "Hund"', "(Hund) ja", "ein Ball-Hund", "der Hund.", "Hund, ja", "Hund."):
        results = [contained(ids, excluded) for ids in segmentations(tokenizer, text)]
        assert results, text
        assert all(results), text
    for text in ("ein Seehund", "der Hun d", "SeeHund", "er ruft"):
        results = [contained(ids, excluded) for ids in segmentations(tokenizer, text)]
        assert results, text
        assert not any(results), text


def test_a_forbidden_word_is_excluded_in_every_unicode_form():
    """Marks and joiners are parts of words."""
    composed, decomposed = "yêu trẻ", unicodedata.normalize("NFD", "yêu trẻ")
    corpus = [composed, decomposed, "می\u200cرود می رود"] * 9
    tokenizer = SentencePiece(model="word", vocabulary_size=12, normalization="identity").train(
        corpus, corpus
    )

    def excluded(phrase, text):
        request = Constraint(forbidden=(phrase,)).added_to(
            Request(max_length=50), PrefixSpeller(tokenizer), 0
        )
        [ids] = tokenizer.encode_target([text])
        return any(contained(ids, forbidden) for forbidden in request.forbidden)

    for phrase in ("yêu", unicodedata.normalize("NFD", "yêu")):
        assert excluded(phrase, composed)
        assert excluded(phrase, decomposed)
    assert excluded("می", "می رود")
    assert not excluded("می", "می\u200cرود")


@pytest.mark.parametrize("model", ["bpe", "unigram", "char"])
def test_a_forbidden_word_of_a_script_without_spaces_is_excluded_anywhere(model):
    corpus = ["私は犬が好きです。", "犬は猫が好き。", "猫と犬。", "GPUは"] * 20
    tokenizer = SentencePiece(model=model, vocabulary_size=32).train(corpus, corpus)
    for phrase, texts, others in (
        ("犬が", ("私は犬が好き", "犬が好き"), ("犬は", "猫が好き")),
        ("GPU", ("GPUは", "私はGPU"), ("私はGP",)),
    ):
        constraint = Constraint(forbidden=(phrase,))
        request = constraint.added_to(Request(max_length=50), PrefixSpeller(tokenizer), 0)
        for text in (*texts, *others):
            results = [
                any(contained(ids, forbidden) for forbidden in request.forbidden)
                for ids in segmentations(tokenizer, text)
            ]
            assert results, text
            assert set(results) == {text in texts}, text


@settings(deadline=None)
@given(text=st.text('ab ."', max_size=12), phrase=st.text("ab", min_size=1, max_size=3))
def test_a_search_excludes_what_a_regular_expression_finds(text, phrase):
    """With a vocabulary of characters, and words that may continue after the phrase."""
    tokenizer = SentencePiece(model="char", vocabulary_size=20).train([], ['a b . "'] * 9)
    ids = tokenizer.encode_target([text])[0]
    excluded = ForbiddenPhrase(phrase, PrefixSpeller(tokenizer))
    match = re.search(rf"(?<![ab]){phrase}", text)
    assert contained(ids, excluded) == bool(match)


def test_constraints_in_words(small_run):
    translator = nmt.load(small_run)
    wishes = [
        Constraint(
            prefix="j a" if i % 2 else "",
            required=("e e", "h") if i % 3 else (),
            forbidden=("b", "c"),
        )
        for i in range(len(LINES))
    ]
    for wish, text in zip(
        wishes, (t.text for t in translator.translations(LINES, wishes)), strict=True
    ):
        words = f" {text} "
        assert text.startswith(wish.prefix)
        assert all(f" {phrase} " in words for phrase in wish.required), (wish, text)
        assert not any(f" {phrase} " in words for phrase in wish.forbidden), (wish, text)
    assert translator.translations(LINES, [Constraint()] * 64) == translator.translations(LINES)
    with pytest.raises(UserError, match="not in the vocabulary of the model"):
        translator.translations(["a"], [Constraint(required=("日本",))])
    [full_stop] = translator.translations(["a b"], [Constraint(forbidden=("a", "b", "-"))])
    assert not {"a", "b"} & set(full_stop.text.split())
    with pytest.raises(UserError, match="which is forbidden"):
        translator.translations(["a"], [Constraint(required=("a b",), forbidden=("b",))])
    # A text without subwords forbids nothing.
    unlimited = translator.translations(["a b"], [Constraint(forbidden=("\u200b", "▁"))])
    assert unlimited[0].texts == translator.translations(["a b"], [Constraint()])[0].texts
    assert translator.translations("a", Constraint(prefix="j")).text.startswith("j")
    with pytest.raises(
        TypeError, match=r"required='ab': must be a tuple of words, such as \('ab',\)"
    ):
        Constraint(required="ab")
    with pytest.raises(TypeError, match="must be Constraint objects, got None"):
        translator.translations(["a"], [None])
    with pytest.raises(ValueError, match=r"give one per line \(got 1 for 2 lines\)"):
        translator.translations(["a", "b"], [Constraint()])
    with pytest.raises(UserError, match="required phrases have 101 subwords, at most 100"):
        translator.translations(["a"], [Constraint(required=("a " * 101,))])


STEMS = ("mann", "manns", "mannschaft", "hund", "hunde", "haus", "hausboot", "ein", "einen")


def test_equal_samples_are_kept_and_equal_hypotheses_are_not(small_run):
    lines = LINES[:8]
    samples = nmt.load(small_run, search=Sample(n_best=6, temperature=0.01)).translations(lines)
    assert all(len(translation.texts) == 6 for translation in samples)
    assert any(len(set(translation.texts)) < 6 for translation in samples)
    beams = nmt.load(small_run, search=Beam(width=6, n_best=6)).translations(lines)
    assert all(len(set(translation.texts)) == len(translation.texts) for translation in beams)


def test_penalties_of_attention_need_attention(small_run):
    tokenizer = nmt.load(small_run).tokenizer
    model = network("fixed", "none")
    for search in (Beam(width=2, coverage=0.2), Diverse(width=4, groups=2, coverage=0.2)):
        with pytest.raises(UserError, match=r"search\.coverage: needs attention"):
            Translator(model, tokenizer, search)


@pytest.fixture(
    scope="module",
    params=[
        "bpe",
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("unigram", "word")),
    ],
)
def subwords(request, tmp_path_factory):
    """A model of words that begin alike, which copies them."""
    folder = tmp_path_factory.mktemp("subwords")
    lines = [" ".join(STEMS[(i * k + k) % 9] for k in range(1, 3 + i % 4)) for i in range(400)]
    for name in ("train.en", "train.de", "validation.en", "validation.de"):
        (folder / name).write_text("\n".join(lines if "train" in name else lines[:20]) + "\n")
    vocabulary = [] if request.param == "word" else ["tokenizer.vocabulary_size=34"]
    return trained(
        folder / "run", "data=text", f"data.train={folder}/train", f"data.validation={folder}/validation",
        "data.source=en", "data.target=de", f"tokenizer={request.param}", *vocabulary, "sizes.encoder=24",
        "sizes.decoder=48", "sizes.readout=24", "model.embedding_size=24", "trainer.max_epochs=5", "optimizer.lr=0.015",
        "schedule.warmup=5", "batching.sentences=20", "metric=loss", "max_validation=2", "search=greedy",
    )  # fmt: skip


def test_a_prefix_may_end_inside_a_word(subwords):
    """A translation that begins with any part of the best one is the best one; every answer begins with its prefix."""
    translator = nmt.load(str(subwords), search=Beam(width=12))
    lines = ["ein mannschaft hund", "hausboot einen manns", "hunde haus"]
    for line, best in zip(lines, translator.translate(lines), strict=True):
        prefixes = [best[:cut] for cut in range(1, len(best) + 1)]
        constraints = [Constraint(prefix=prefix) for prefix in prefixes]
        texts = [t.text for t in translator.translations([line] * len(prefixes), constraints)]
        for prefix, text in zip(prefixes, texts, strict=True):
            assert f"{text} ".startswith(prefix)
        assert texts.count(best) >= 0.9 * len(texts)
    forbidden = Constraint(prefix="hausbo", forbidden=("hausboot",))
    if "model: word" not in (subwords / "config.yaml").read_text():
        assert "hausboot" not in translator.translations("hausboot ein", [forbidden]).text.split()
    else:
        with pytest.raises(UserError, match="begins with the prefix avoids all forbidden words"):
            translator.translations("hausboot ein", [forbidden])
    begun = Constraint(prefix="h", forbidden=("h",))  # a longer word may begin with it
    text = translator.translations("hausboot ein", [begun]).text
    assert text.startswith("h")
    assert "h" not in text.split()
    with pytest.raises(UserError, match='"日" contains characters'):
        translator.translations(["ein"], [Constraint(prefix="日")])


def test_a_no_break_space_completes_a_prefix():
    lines = ["Mann\u00a0! Mann\u00a0? der Mann\u00a0: und so"] * 9
    tokenizer = SentencePiece(model="char", vocabulary_size=30).train(lines, lines)
    speller = PrefixSpeller(tokenizer)
    assert len(speller.spellings("Mann\u00a0")) == len(tokenizer.target_spelling("Mann\u00a0"))
    # After an ordinary space, the next token begins a word.
    assert len(speller.spellings("Mann ")) == len(tokenizer.target_spelling("Mann")) + 1


def test_other_models_explain_the_subwords_that_the_search_has_chosen(subwords):
    """A text has several segmentations; the rows of all models are those of the translation."""
    translator = nmt.load(str(subwords), search="greedy")
    tokenizer = translator.tokenizer
    [usual] = tokenizer.encode_target(["mann"])
    [spelled] = [PrefixSpeller(tokenizer).spellings("mann")]
    chosen, position = [], 0
    while position < len(spelled):
        piece, position = min(spelled[position].items(), key=lambda step: step[1])
        chosen.append(piece)
    hypothesis = Hypothesis(chosen, 0.0, 0.0)
    [source] = translator.encode(["mann"])
    details = translator.force([source], [chosen])
    translation = Translation(source, [hypothesis], ["mann"], details)
    maps = translator.attention_maps(["mann"], [translation], "one", {"two": translator}, "piece")
    weights = list(maps[0].weights.values())
    assert np.allclose(*weights)
    has_segmentations = any(end < len(spelled) for end in spelled[0].values())
    assert (len(chosen) > len(usual)) == has_segmentations


@pytest.mark.parametrize("utility", ["chrf", "bleu"])
def test_minimum_bayes_risk_in_text(small_run, utility):
    translator = nmt.load(small_run, search=MBR(candidates=5, utility=utility, n_best=2))
    for result in translator.translations([*LINES[:6], ""]):
        assert len(result.texts) == len(set(result.texts)) == len(result.hypotheses) <= 2


@pytest.fixture(scope="module")
def tokenizer(small_run):
    return nmt.load(small_run).tokenizer


@settings(max_examples=60, deadline=None)
@given(line=st.text(st.sampled_from("ab cd\u00a0\u3000\u200bﷺ½é😀\tx"), max_size=30))
def test_every_piece_belongs_to_a_word_of_the_line(tokenizer, line):
    [ids] = tokenizer.encode_source([line])
    text = tokenizer.decode([ids])[0]
    for places, of in (
        (tokenizer.source_words(line, ids), line),
        (tokenizer.target_words(text, ids), text),
    ):
        assert len(places) == len(ids)
        assert all(a.start <= b.start for a, b in itertools.pairwise(places))
        assert all(0 <= value.start < value.stop <= max(1, len(words(of))) for value in places)


def ranges(*numbers):
    return [range(n, n + 1) for n in numbers]


def test_pieces_are_merged_to_words():
    weights = np.array(
        [[0.5, 0.2, 0.2, 0.1], [0.1, 0.1, 0.7, 0.1], [0.0, 0.3, 0.3, 0.4], [0.1, 0.0, 0.1, 0.8]]
    )
    table = by_word(weights, ranges(0, 1, 1), ranges(0, 0, 1), (2, 2))
    np.testing.assert_allclose(table, [[0.3, 0.6, 0.1], [0.0, 0.6, 0.4], [0.1, 0.1, 0.8]])
    assert WordAlignment(table[:2, :2], table[:2, 2], table[2, :2]).pairs() == [(1, 0), (1, 1)]
    assert by_word(np.ones((1, 1)), [], [], (0, 0)).tolist() == [[1.0]]
    assert WordAlignment(np.zeros((0, 0)), np.zeros(0), np.zeros(0)).pairs() == []


def test_two_directions_become_one():
    """An example by hand: 0-0 and 2-2 are in both; 1-1 touches both and is new to both sides; 4-0 touches nothing."""
    forward, backward = parse_links("0-0 1-1 2-2 4-0")[0], parse_links("0-0 2-2 2-1 3-4")[0]
    assert write_links(symmetrize(forward, backward, "intersection")) == "0-0 2-2"
    assert write_links(symmetrize(forward, backward, "union")) == "0-0 1-1 2-1 2-2 3-4 4-0"
    assert write_links(symmetrize(forward, backward, "grow_diag")) == "0-0 1-1 2-2"
    for how in ("intersection", "union", "grow_diag"):
        assert symmetrize(forward, forward, how) == forward


def test_alignment_error_rate():
    """Och & Ney 2003 by hand: A has 3 links, 1 sure and 2 possible of them right; S has 2."""
    sure, possible = parse_links("0-0 1-1 2?2")
    result = parse_links("0-0 2-2 3-3")[0]
    gold = GoldLinks(sure, possible)
    scores = alignment_scores(*count_links([result], [gold]))
    assert scores == pytest.approx((2 / 3, 1 / 2, 1 - (1 + 2) / (3 + 2)))
    assert alignment_scores(*count_links([sure], [gold])) == (1, 1, 0)
    assert alignment_scores(*count_links([], [])) == (1, 1, 0)
    with pytest.raises(ValueError, match="not a link"):
        parse_links("0:1")


def test_a_prefix_without_a_permitted_end_is_refused(tmp_path):
    """Each word of the vocabulary that begins like the prefix is forbidden."""
    (tmp_path / "t.en").write_text("a b\nb a\n" * 9)
    (tmp_path / "t.de").write_text("sees saw\nsaw sees.\n" * 9)
    run_folder = trained(
        tmp_path / "run", "data=text", f"data.train={tmp_path}/t", f"data.validation={tmp_path}/t", "data.source=en",
        "data.target=de", "tokenizer=word", "sizes.encoder=4", "sizes.decoder=8", "sizes.readout=6",
        "model.embedding_size=6", "trainer.max_epochs=1", "search=greedy",
    )  # fmt: skip
    impossible = Constraint(prefix="see", forbidden=("sees", "sees."))
    for search in ("beam", "greedy", "sample"):
        translator = nmt.load(run_folder, search=search)
        with pytest.raises(UserError, match="begins with the prefix avoids all forbidden words"):
            translator.translations(["a", "b a"], [Constraint(), impossible])


# Unknown words


@pytest.fixture(scope="module")
def few_words(tmp_path_factory):
    """A model whose vocabulary has a few words only, so that others are unknown."""
    folder = tmp_path_factory.mktemp("few")
    for part in ("train", "validation"):
        (folder / f"{part}.en").write_text("a b c\nb a\nc c b\n" * 9)
        (folder / f"{part}.de").write_text("A B C\nB A\nC C B\n" * 9)
    return trained(folder / "run", "data=text", f"data.train={folder}/train", f"data.validation={folder}/validation",
                   "data.source=en", "data.target=de", "tokenizer=word", "sizes.encoder=4", "sizes.decoder=8", "sizes.readout=6",
                   "model.embedding_size=6", "trainer.max_epochs=1", "search=greedy")  # fmt: skip


def test_unknown_words_are_written_as_asked(few_words, tmp_path):
    """By hand: the model is made to write unknown words; each is the source word attended to most, or its translation."""
    (tmp_path / "lexicon").write_text("zebra\tZebra\nlion\tLöwe\n")
    lexicon = {"zebra": "Zebra", "lion": "Löwe"}
    line = "a zebra b lion"
    texts = {}
    for unknown in ("mark", "drop", "copy"):
        translator = nmt.load(
            few_words, device="cpu", unknown=unknown, lexicon=lexicon if unknown == "copy" else None
        )
        with torch.no_grad():
            translator.models[0].output.bias[:] = -50.0
            translator.models[0].output.bias[UNK] = 3.0
            translator.models[0].output.bias[EOS] = 0.0
        [result] = translator.translations([line])
        texts[unknown] = result.text
        tokens = result.hypotheses[0].tokens
        assert set(tokens) == {UNK}
        [forced] = translator.force([result.source], [tokens])
    lines = [line, "c b"]
    assert translator.translations(iter(lines)) == translator.translations(lines)
    places = translator.tokenizer.source_words(line, result.source)
    names = [words(line)[places[int(row[:-1].argmax())].start] for row in forced.weights[:-1]]
    distinct = [name for i, name in enumerate(names) if i == 0 or names[i - 1] != name]
    assert texts["copy"] == " ".join(lexicon.get(name, name) for name in distinct)
    assert set(texts["mark"].split()) == {"⁇"}
    assert texts["drop"] == ""
    translator.lexicon = dict.fromkeys(line.split(), "A")
    for constraint, expected in ((Constraint(), {"A"}), (Constraint(forbidden=("A",)), set())):
        [result] = translator.translations([line], [constraint])
        assert set(result.text.split()) == expected


def test_filling_by_hand():
    weights = np.array([[0.1, 0.8, 0.1, 0.0], [0.0, 0.2, 0.7, 0.1], [0.0, 0.6, 0.1, 0.3]])
    places, names = [range(0, 1), range(1, 2), range(2, 3)], ["the", "zebra", "ran"]

    def fill(text, tokens, lexicon=None):
        return filled(text, tokens, weights, places, names, lexicon or {})

    assert fill("das ⁇ lief ⁇ .", [7, UNK, UNK]) == "das ran lief zebra ."
    assert fill("⁇ ⁇", [UNK, UNK, 9], {"zebra": "Zebra"}) == "Zebra ran"
    assert filled("a ⁇ b", [5, UNK, 6], None, places, names, {}) == "a b"
    wide = [range(0, 3)]  # one piece of three words without spaces between them
    assert (
        filled("x ⁇", [5, UNK], np.array([[1.0, 0.0]] * 2), wide, list("我喜欢"), {}) == "x 我喜欢"
    )
    assert fill("das ⁇", [7, 8]) == "das ⁇"  # written by the text itself
    # the </s> between two source texts is no word
    between = [range(1), range(1, 2), range(3, 4), range(2, 3)]
    attention = np.array([[0.1, 0.2, 0.6, 0.1, 0.0]] * 2)
    assert filled("das ⁇", [7, UNK], attention, between, [*names], {}) == "das zebra"
    marked = ["“the", "zebra,", "ran."]  # the network writes the punctuation

    def fill_marked(lexicon, forbidden=()):
        return filled(
            "das ⁇ , lief", [7, UNK, 8], weights[[2, 0]], places, marked, lexicon, forbidden
        )

    assert fill_marked({}) == "das zebra , lief"
    assert fill_marked({"zebra": "Zebra"}) == "das Zebra , lief"
    assert fill_marked({"zebra": "Zebra", "zebra,": "Z"}) == "das Z , lief"
    for phrase in ("zebra", " zebra", "alte  zebra"):
        expected = "das , lief" if phrase.strip() == "zebra" else "das zebra , lief"
        assert fill_marked({}, (phrase,)) == expected
    assert fill_marked({"zebra": "ein altes Zebra"}, ("altes",)) == "das , lief"
    assert fill_marked({"zebra": "ein altes Zebra"}, ("alt",)) == "das ein altes Zebra , lief"
    same = np.array([[0.0, 1.0, 0.0, 0.0]] * 3)
    for phrase in ("das zebra", "zebra , lief"):  # with the words around the replacement
        assert fill_marked({}, (phrase,)) == "das , lief"
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    for word in (composed, decomposed):  # the keys of a lexicon are composed
        assert filled("⁇", [UNK], same[:1], places, ["", word, ""], {composed: "bar"}) == "bar"
    for phrase, word in (("दिन", "दिनेश"), ("दिने", "दिनेश"), ("می", "می\u200cخواهد")):
        assert filled("⁇", [UNK], same[:1], places, ["", word, ""], {}, (phrase,)) == word
    for phrase, expected in (("猫", ""), ("背", ""), ("犬", "猫背"), ("a 猫", "猫背")):
        assert filled("⁇", [UNK], same[:1], places, ["", "猫背", ""], {}, (phrase,)) == expected
    assert filled("⁇ ⁇ x ⁇", [UNK, UNK, UNK], same, places, names, {}) == "zebra x zebra"


@pytest.mark.parametrize("unknown", ["drop", "copy"])
def test_filled_lists_of_the_best_hold_each_text_once(few_words, unknown):
    translator = nmt.load(few_words, device="cpu", search=Beam(width=6, n_best=6), unknown=unknown)
    for result in translator.translations(["a zebra b", "lion lion"], details_of=3):
        assert all(
            len(d.log_probs) == len(h.tokens) + 1
            for d, h in zip(result.details, result.hypotheses, strict=False)
        )
        assert len(result.texts) == len(set(result.texts)) == len(result.hypotheses) > 0


def test_the_words_of_both_sides_are_known(few_words):
    tokenizer = nmt.load(few_words).tokenizer
    [source], [target] = tokenizer.encode_source(["a b c"]), tokenizer.encode_target(["A B C"])
    assert UNK not in [*source, *target]
    assert UNK in tokenizer.encode_source(["x"])[0]


def test_maps_of_subwords_need_one_tokenizer(small_run, other_run, few_words):
    translator = nmt.load(small_run)
    [translation] = translator.translations(["a b"], details_of=1)
    arguments = (["a b"], [translation], "one")
    same = {"two": nmt.load(other_run)}
    for units in ("word", "piece"):
        [shown] = translator.attention_maps(*arguments, same, units)
        assert len(shown.weights) == 2
    other = {"two": nmt.load(few_words)}
    assert len(translator.attention_maps(*arguments, other, "word")) == 1
    with pytest.raises(UserError, match="units=piece: the tokenizer of two differs"):
        translator.attention_maps(*arguments, other, "piece")


def test_faults_of_unknown_words_are_reported(few_words, tmp_path):
    (tmp_path / "bad").write_text("a\tb\nc d\n")
    command = f"model={few_words}", "translation.unknown=copy"
    failed(
        run("translate", *command, f"lexicon={tmp_path}/bad", stdin="a"),
        "line 2",
        "expected a source word, a tab and its translation",
    )
    (tmp_path / "good").write_text("a\tb\n")
    failed(
        run("translate", command[0], f"lexicon={tmp_path}/good", stdin="a"),
        "set translation.unknown=copy",
    )
    with pytest.raises(UserError, match="needs attention"):
        Translator(
            network("fixed", "none"), nmt.load(few_words).tokenizer, Greedy(), unknown="copy"
        )


def test_lists_of_the_best_hold_each_text_once(small_run):
    """SentencePiece can spell a text with several pieces; a list of translations has it once, with its best score."""
    translator = nmt.load(small_run, search=Beam(width=12, n_best=12), device="cpu")
    original = translator.tokenizer.decode
    translator.tokenizer.decode = lambda ids: [text.replace("a", "b") for text in original(ids)]
    for result in translator.translations(LINES[:4]):
        assert len(result.texts) == len(set(result.texts)) == len(result.hypotheses) > 0
        scores = [h.score for h in result.hypotheses]
        assert scores == sorted(scores, reverse=True)


def test_batches_by_length_fill_their_budget():
    """From the longest line to the shortest; a line above the budget is alone."""
    lengths = [3, 9, 4, 3, 20, 1]
    assert length_batches([0, 1, 2, 3, 4], lengths, 8) == [[4], [1], [2, 0], [3]]
    assert length_batches([0, 1, 2, 3, 5], lengths, 12) == [[1], [2, 0, 3], [5]]
    assert length_batches([5, 0], lengths, 6) == [[0, 5]]
    assert length_batches([], lengths, 6) == []


def test_the_mask_of_an_ensemble_is_that_of_a_member_with_attention():
    mask = torch.tensor([[True, False]])
    members = [
        type("Member", (), {"mask": mask_of_member, "device": torch.device("cpu")})()
        for mask_of_member in (None, mask)
    ]
    for order in (members, members[::-1]):
        assert EnsembleStep(order, [0.5, 0.5], "probability").mask is mask


def test_line_breaks_of_a_translation_break_no_line_of_output():
    """Byte tokens can spell a line break."""
    answer = Translation([5], [Hypothesis([5], -1.5, -0.5)], ["a\nb"], [])
    assert output_formats.lines("text", None, 0, ["x"], [answer]) == ["a b"]
    [line] = output_formats.lines("moses", None, 4, ["x"], [answer])
    assert line == "4 ||| a b ||| logprob= -1.500000 ||| -0.500000"


def test_limits_and_seeds_of_requests_depend_on_the_source():
    tokenizer = SentencePiece(model="char", vocabulary_size=9).train(["ab ba"] * 9, [])
    model = network("luong", "general", vocabulary=tokenizer.target_size)
    translator = Translator(
        model, tokenizer, Beam(width=4), max_length_factor=1.5, max_length_offset=3
    )
    sources = [[4] * 7, [4] * 6 + [5], Pictured([4] * 7, "a.png"), Pictured([4] * 7, "b.png")]
    requests = [translator.request(source) for source in sources]
    assert [request.max_length for request in requests] == [13, 13, 61, 61]
    assert len({request.seed for request in requests}) == 4
    assert translator.request([4] * 7) == requests[0]
    assert translator.with_whole_beam().search.n_best == 4
    few = translator.with_search(Beam(width=4, n_best=2))
    assert few.with_whole_beam().search.n_best == 2
    assert translator.search.n_best == 1
    greedy = translator.with_search(Greedy()).with_whole_beam()
    assert isinstance(greedy.search, Greedy)


def test_constraints_lengthen_the_limit_of_a_translation():
    tokenizer = SentencePiece(model="char", vocabulary_size=9).train(["ab ba"] * 9, [])
    speller = PrefixSpeller(tokenizer)
    phrases = ("ab", "b a")
    subwords = sum(map(len, tokenizer.encode_target(list(phrases))))
    for prefix, required, needed in (("", (), 5), ("", phrases, 5 + subwords), ("aba", (), 9)):
        constraint = Constraint(prefix=prefix, required=required)
        for limit in (2, 7, 50):
            request = constraint.added_to(Request(limit), speller, spare_tokens=5)
            assert request.max_length == max(limit, needed)
