"""Metrics: several references in any order, and tokenizers that fit the language or the script."""

import itertools
import logging
import os
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

import nmt
from nmt.analysis.evaluation import evaluate_file
from nmt.data import Pairs, Splits
from nmt.data.swapped_sides import (
    SAMPLE,
    SideCounts,
    is_in_target_language,
    sampled,
    warn_of_swapped_sides,
)
from nmt.foundation.errors import UserError
from nmt.metric import Metric, script_tokenizer, similarity
from nmt.pipeline.assembly.translation_parts import warn_of_equal_sides

CHINESE = ["一只狗在草地上奔跑。", "两个孩子在海边玩耍。"]


def test_the_order_of_references_does_not_matter():
    hypotheses = ["a dog runs fast today", "two cats sleep on a mat", "the bird sings a song"]
    files = [
        ["a dog runs fast now", "", "the bird sings"],
        ["", "two cats sleep on the mat", "a bird sings a song"],
        ["a dog runs very fast", "", ""],
    ]
    results = [
        {
            name: result.score
            for name, result in Metric()
            .of("de")
            .score(hypotheses, first, ter=True, others=rest)
            .items()
        }
        for first, *rest in itertools.permutations(files)
    ]
    for result in results[1:]:
        assert result == pytest.approx(results[0])


def test_an_empty_line_is_no_reference():
    alone = Metric().of("de").score(["a dog runs fast now"], ["a dog runs fast now"], ter=True)
    both = (
        Metric()
        .of("de")
        .score(["a dog runs fast now"], [""], ter=True, others=[["a dog runs fast now"]])
    )
    assert {k: v.score for k, v in both.items()} == {k: v.score for k, v in alone.items()}


@pytest.mark.parametrize("blank", ["", " ", "\u3000", "\xa0 "])
def test_a_reference_of_spaces_is_missing(blank, caplog):
    metric, hypotheses = Metric(tokenize="13a"), ["a b", "the cat sat on the mat"]
    references = ["a b c d e f g h i", "the cat sat on the mat"]
    alone = metric.score(hypotheses, references, ter=True)
    assert metric.score(hypotheses, references, ter=True, others=[[blank] * 2]) == alone
    with caplog.at_level(logging.WARNING, "nmt"):
        metric.score(hypotheses, [references[0], blank])
    assert "1 of 2 lines have no reference translation" in caplog.text


def test_references_too_short_for_bleu_are_warned_about_once(caplog):
    metric = Metric().of("de")
    with caplog.at_level(logging.WARNING, "nmt"):
        for _ in range(2):
            result = metric.score(["Ein Mann.", "Ja"], ["Ein Mann.", "Ja"])
            assert (result["bleu"].score, result["exact"].score) == (0.0, 100.0)
    assert caplog.text.count("no reference has four words, so BLEU is 0") == 1


def test_ter_counts_characters_of_chinese():
    metric = Metric().of("zh")
    result = metric.score(["猫喜欢鱼。"], ["狗喜欢鱼。"], ter=True)["ter"]
    assert result.score == pytest.approx(100 / 5)
    assert "asian:yes" in result.signature
    assert "asian:no" in Metric().of("de").score(["a"], ["a"], ter=True)["ter"].signature


def test_lines_without_a_reference_are_warned_about_once(caplog):
    metric = Metric().of("de")
    with caplog.at_level(logging.WARNING, "nmt"):
        for _ in range(2):
            metric.score(["a dog runs fast", "a cat", ""], ["a dog runs fast", "", ""])
    assert [r.getMessage() for r in caplog.records] == [
        "reference: 1 of 3 lines have no reference translation: BLEU, TER and exact match count their "
        "translations as wrong, and chrF leaves them out; complete the reference file"
    ]


def test_only_references_of_few_tokens_are_short(caplog):
    """The warning is about the references of all sets, in the tokens of BLEU; the translations are short."""
    with caplog.at_level(logging.WARNING, "nmt"):
        Metric(tokenize="zh").score(["你好"] * 2, ["你好世界今天天气很好"] * 2)
        Metric(tokenize="13a").score(["a b"], ["a b"], others=[["a b c d e"]])
    assert not caplog.messages
    with caplog.at_level(logging.WARNING, "nmt"):
        Metric(tokenize="13a").score(["a"], ["a b"])
    assert "no reference has four words" in caplog.text


@pytest.mark.parametrize(
    ("language", "tokenize"),
    [
        ("zh", "zh"), ("zho", "zh"), ("cmn", "zh"), ("zho_Hans", "zh"), ("zh-Hant-TW", "zh"), ("yue", "zh"),
        ("tha", "char"), ("khm", "char"), ("lao", "char"), ("mya", "char"), ("de", "13a"), ("deu_Latn", "13a"),
    ],
)  # fmt: skip
def test_codes_and_scripts_choose_the_tokenizer(language, tokenize):
    assert Metric().of(language).tokenize == tokenize


@pytest.mark.parametrize("language", ["jpn", "kor", "jpn_Jpan"])
def test_tokenizers_that_are_not_installed_are_replaced_by_characters(language, monkeypatch):
    monkeypatch.setattr("nmt.metric.find_spec", lambda _: None)
    assert Metric().of(language).tokenize == "char"


def test_the_script_of_the_references_decides_if_the_name_does_not(caplog):
    metric = Metric().of("target", CHINESE)
    assert metric.tokenize == "zh"
    assert metric.score(CHINESE, CHINESE)["bleu"].score == pytest.approx(100)
    with caplog.at_level(logging.WARNING, "nmt"):
        Metric(tokenize="13a").of("2", CHINESE).score(CHINESE, CHINESE)
    assert "metric.tokenize=13a: the references are written without spaces" in caplog.text
    assert "set metric.tokenize=zh" in caplog.text


@pytest.mark.parametrize(
    ("text", "tokenize"),
    [
        ("犬が走っています。", "ja-mecab"),
        ("สุนัขวิ่ง", "char"),
        ("བཀྲ་ཤིས་བདེ་ལེགས།", "char"),
        ("Ein Hund läuft.", None),
        ("", None),
    ],
)
def test_scripts_are_recognised(text, tokenize):
    assert script_tokenizer([text]) == tokenize


@pytest.mark.parametrize("forms", [*itertools.product(("NFC", "NFD"), repeat=2)])
def test_other_unicode_forms_of_the_references_are_reported(forms, caplog):
    texts, references = (
        [unicodedata.normalize(form, line) for line in ("Tôi yêu trẻ.", "dog", "")]
        for form in forms
    )
    metric = Metric()
    metric.score(texts, references)
    metric.score(["dog", "cat", ""], references)  # without letters that have two forms
    message = (
        f"the translations have the Unicode form {forms[0]} and the references the form {forms[1]}"
    )
    assert caplog.text.count("Unicode form") == (forms[0] != forms[1])
    assert (message in caplog.text) == (forms[0] != forms[1])


def test_files_in_the_wrong_language_are_reported(tmp_path, caplog):
    for language in ("de", "en"):
        (tmp_path / f"train.{language}").write_text("a dog runs fast\n")
    translator = SimpleNamespace(
        languages=("en", "de"),
        translate=list,
        tokenizer=SimpleNamespace(columns=SimpleNamespace(picture=False)),
    )
    german, english = map(str, (tmp_path / "train.de", tmp_path / "train.en"))
    with caplog.at_level("WARNING", "nmt"):
        for source, reference in ((english, german), (german, english)):
            evaluate_file(
                lambda: translator, Metric(), source=source, references=[reference], output=None
            )
    assert caplog.messages == [
        f"{file}: the file extension names the wrong language; the model translates from en to de"
        for file in (german, english)
    ]


def test_swapped_source_and_target_are_reported(caplog):
    numbers = range(300)
    english = [f"the number {n} is on the page {n % 7}" for n in numbers]
    german = [f"die Zahl {n} steht auf der Seite {n % 7}" for n in numbers]
    pairs = list(zip(english, german, strict=True))
    swapped = [pair[::-1] if n % 3 == 1 else pair for n, pair in enumerate(pairs)]
    clean = Pairs(english, german, "clean")
    for train, validation in (
        (clean, clean),
        (Pairs(english, english[1:] + english[:1], "one language"), clean),
        (Pairs([], [], "empty"), clean),
        (Pairs(*zip(*swapped, strict=True), "t.en, t.de"), clean),
        (clean, Pairs(german[:20], english[:20], "v.en, v.de")),
    ):
        warned_of_sides(train, validation)
    assert caplog.messages == [
        "t.en, t.de: source and target seem to be swapped in 100 of about 300 checked pairs (first: "
        'pair 2, "die Zahl 1 steht auf der Seite 1"); check the columns of the training data',
        "v.en, v.de: source and target seem to be swapped, compared with the training data "
        '(first source line: "die Zahl 0 steht auf der Seite 0"); check the columns of the data sets',
    ]


def test_swapped_pairs_at_the_end_of_a_large_corpus_are_found():
    """The checked pairs are spread over the whole corpus."""
    english = [f"the number {n} is on the page" for n in range(2 * SAMPLE)]
    german = [f"die Zahl {n} steht auf der Seite" for n in range(2 * SAMPLE)]
    first = 3 * SAMPLE // 2
    pairs = Pairs(english[:first] + german[first:], german[:first] + english[first:], "x")
    assert min(SideCounts(pairs).swapped(pairs, sampled(pairs, SAMPLE))) == first
    assert len(sampled(pairs, SAMPLE)) == SAMPLE


def test_the_number_of_a_swapped_pair_is_given_for_text_in_memory_only(caplog, tmp_path):
    english = [f"the number {n} is on the page {n % 7}" for n in range(300)]
    german = [f"die Zahl {n} steht auf der Seite {n % 7}" for n in range(300)]
    mixed = (
        [german[0], *english[1:200], *german[200:]],
        [english[0], *german[1:200], *english[200:]],
    )
    for store, expected in ((None, '(first: pair 1, "die'), (tmp_path, '(first: "die')):
        train = Pairs(*mixed, "t", store=store)
        caplog.clear()
        warned_of_sides(train, Pairs(english, german, "v"))
        assert expected in caplog.messages[0]


def test_exact_matches_may_ignore_case():
    hypotheses, references = ["ein Mann", "zwei"], ["Ein Mann", "drei"]
    for lowercase, expected in ((True, 50), (False, 0)):
        metric = Metric(tokenize="13a", lowercase=lowercase)
        assert metric.score(hypotheses, references)["exact"].score == expected


def warned_of_sides(train, validation):
    splits = Splits(train=train, validation=validation, test=None, languages=("en", "de"))
    warn_of_swapped_sides(splits, SideCounts(train))


def test_input_in_the_target_language_is_reported(small_run, caplog):
    english = [f"the number {n} is on the page {n % 7}" for n in range(99)]
    german = [f"die Zahl {n} steht auf der Seite {n % 7}." for n in range(99)]
    typical = SideCounts(Pairs(english, german, "x")).typical()
    assert sorted(typical["source"]) == ["is", "number", "on", "page", "the"]
    assert sorted(typical["target"]) == ["auf", "der", "die", "seite", "steht", "zahl"]
    assert is_in_target_language(german[:1], typical)
    for lines in (english, english + german, ["die"], ["le numéro est sur la page die"] * 9, []):
        assert not is_in_target_language(lines, typical)
    assert not is_in_target_language(german, {})
    translator = nmt.load(small_run)
    assert set(translator.typical_words) == {"source", "target"}, "of the checkpoint"
    translator.typical_words = typical
    translator.translate(["Die Zahl 1 steht auf der Seite 2.", "Die Seite steht"])
    message = "the input seems to be in the target language of the model"
    assert message in caplog.text


def test_equal_source_and_target_are_reported(caplog):
    with caplog.at_level("WARNING", "nmt"):
        warn_of_equal_sides(Pairs(["a dog"], ["ein Hund"], "v.en, v.de"))
        warn_of_equal_sides(Pairs(["a dog"], ["a dog"], "v.en, v.en"))
    assert caplog.messages == [
        "v.en, v.en: source and target are identical; check data.source and data.target"
    ]


def test_translations_are_written_to_devices_and_not_to_missing_folders(tmp_path):
    """A pipe stays a pipe, and no time is spent on scores that would be lost."""
    for language in ("de", "en"):
        (tmp_path / f"train.{language}").write_text("a dog runs\n")
    translated = []
    translator = SimpleNamespace(
        languages=("en", "de"),
        translate=lambda lines: [translated.append(line) or line for line in lines],
        tokenizer=SimpleNamespace(columns=SimpleNamespace(picture=False)),
    )
    paths = {"source": f"{tmp_path}/train.en", "references": [f"{tmp_path}/train.de"]}
    with pytest.raises(UserError, match="folder .*no not found"):
        evaluate_file(lambda: translator, Metric(), **paths, output=f"{tmp_path}/no/out")
    assert not translated
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        text = pool.submit(pipe.read_text)
        evaluate_file(lambda: translator, Metric(), **paths, output=str(pipe))
        assert text.result() == "a dog runs\n"
    assert pipe.is_fifo()


def test_the_tokenizer_auto_has_a_default():
    lines = ["a man runs in the park"]
    assert Metric().score(lines, lines)["bleu"].score == pytest.approx(100)


@pytest.mark.parametrize(
    ("text", "tokenize"),
    [("Hello 世界, " + "a" * 13, "zh"), ("Hello 世界, " + "a" * 40, None), ("1 2 3 …", None)],
)
def test_a_few_foreign_letters_are_not_the_script_of_a_text(text, tokenize):
    assert script_tokenizer([text]) == tokenize


def test_ter_counts_characters_of_scripts_without_a_tokenizer():
    """As for languages such as Thai, whose BLEU also counts characters."""
    metric = Metric(tokenize="char")
    for text, shorter in (("猫が好き。", "猫好き。"), ("แมวชอบปลา", "แมวอบปลา")):
        result = metric.score([shorter], [text], ter=True)["ter"]
        assert result.score == pytest.approx(100 / len(text))
        assert result.signature.endswith("|characters")


def test_an_exact_match_equals_any_reference_of_its_line():
    metric = Metric(tokenize="13a")
    hypotheses, first = ["a", "b", "c", ""], ["x", "b", "", ""]
    others = [["a", "y", "", ""]]
    assert metric.score(hypotheses, first, others=others)["exact"].score == 75


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_equal_texts_are_most_similar(name):
    score = similarity(name)
    assert score("", "") == score("a", "a") == 100
    assert score("a", "b") < 50
