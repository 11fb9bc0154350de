"""Comparisons of translations: every count against a count by hand, and the command as people type it."""

import json
import shutil
import unicodedata
from collections import Counter
from dataclasses import replace

import pytest
from commands import failed, run

from nmt.analysis.comparison import Comparison, score_table
from nmt.analysis.comparison_summary import summary
from nmt.analysis.comparison_tables import comparison_tables
from nmt.analysis.example_sentences import marked, most_different
from nmt.analysis.significance import agreement
from nmt.analysis.suspicious_outputs import copied, detached, repeats, suspicious_outputs
from nmt.analysis.tables import ReportTable
from nmt.analysis.word_statistics import (
    case_class,
    frequency_class,
    length_groups,
    tokens,
    word_accuracy,
)
from nmt.metric import Metric, Result
from nmt.tokenizer.words import bare

REFERENCE = [
    "Ein Mann schläft.",
    "Zwei Hunde laufen im Park.",
    "Die Frau singt ein Lied.",
    "Ein Kind spielt mit 3 Bällen.",
] * 5
SOURCE = [
    "A man sleeps.",
    "Two dogs run in the park.",
    "The woman sings a song.",
    "A child plays with 3 balls.",
] * 5


def compared(*, trials=50, **outputs):
    counts = Counter(token for line in REFERENCE for token in tokens(line))
    metric = Metric(tokenize="13a")
    return Comparison(
        SOURCE, REFERENCE, outputs, metric, counts, "the reference", samples=50, trials=trials
    )


def test_only_tests_that_were_made_are_named():
    for trials in (0, 10):
        table = score_table(compared(trials=trials, one=REFERENCE, two=SOURCE))
        for note in (table.note, table.paper.note):
            assert ("randomisation" in note) == bool(trials)


def test_a_group_of_short_sentences_is_no_short_text(caplog):
    """BLEU of short sentences alone is 0; that of the text is not."""
    long = "Der Mann sieht einen großen Hund und eine Katze im Garten ."
    reference = ["Ein Hund"] * 9 + [long] * 9
    outputs = {"one": reference, "two": [*reference[1:], long]}
    metric = Metric(tokenize="13a")
    [table] = [
        table
        for table in comparison_tables(
            Comparison([], reference, outputs, metric, {}, "", samples=20, trials=0)
        )
        if table.title == "Sentences by length"
    ]
    assert [row[2] for row in table.rows] == ["0.0", "100.0"]
    assert "four words" not in caplog.text


def test_words_and_marks_are_distinguished():
    assert tokens("Er sagt: 'Geht's, 3.5 km?'") == [
        "Er",
        "sagt",
        ":",
        "'",
        "Geht's",
        ",",
        "3.5",
        "km",
        "?",
        "'",
    ]
    assert len(tokens("می\u200cخواهم")) == len(tokens("ශ්\u200dරී")) == 1
    assert bare("(Hund),") == "Hund"
    assert bare("...") == ""


@pytest.mark.parametrize(
    ("word", "group"),
    [("haus", "lower case"), ("Haus", "Capitalised"), ("USA", "UPPER CASE"), ("iPhone", "miXed"), ("3.", "with digits"), ("!", "marks"), ("A", "Capitalised"), ("EU", "UPPER CASE")],
)  # fmt: skip
def test_case(word, group):
    assert case_class(word) == group


def test_frequencies_have_their_borders():
    counts = {str(n): n for n in (1, 2, 4, 5, 9, 10, 99, 100, 999, 1000)}
    of = frequency_class(counts)
    assert [of(w) for w in ("x", "1", "2", "4", "5", "9", "10", "99", "100", "999", "1000")] == [
        "0", "1", "2–4", "2–4", "5–9", "5–9", "10–99", "10–99", "100–999", "100–999", "1,000 or more",
    ]  # fmt: skip


def test_word_accuracy_counts_each_match_once():
    [result] = word_accuracy([["a", "a", "b"]], [["a", "c", "b", "b"]], lambda _: "all").values()
    assert (result.right, result.written, result.expected) == (2, 3, 4)
    assert result.f1 == pytest.approx(100 * 2 * (2 / 3) * (2 / 4) / (2 / 3 + 2 / 4))


def test_groups_of_lengths_hold_every_sentence_once():
    lines = ["w " * n for n in (1, 2, 3, 7, 8, 12, 31)]
    for fewest in (1, 2, 3):
        result = length_groups(lines, fewest)
        assert sorted(i for group in result for i in group.sentences) == list(range(len(lines)))
        assert all(len(group.sentences) >= fewest for group in result)
    assert [group.name for group in length_groups(lines, 1)] == ["1–5", "6–10", "11–15", "31–35"]


def test_suspicious_outputs_are_counted():
    assert repeats(["der", "Hund", "der", "Hund", "der", "Hund"])
    assert repeats(["ja", "ja", "ja"])
    assert not repeats(["der", "Hund", "und", "der", "Hund"])
    assert not repeats(["Well", ".", ".", "."])
    assert copied(["A", "man", "sleeps", "now"], ["A", "man", "sleeps"])
    assert not copied(["A", "man"], ["A", "man"])
    letters = list("abcdefgh")
    assert not copied(letters, letters[::-1])  # the same words in another order
    assert copied(letters, ["x", *letters[1:]]) and not copied(letters, letters[:4])
    assert detached(["vier", "rote", "Autos"], ["Ein", "Mann", "schläft."])
    assert not detached(["Ein", "roter", "Ball"], ["Ein", "Mann", "schläft."])
    bad = [*SOURCE[:1], "", "Lied Lied Lied Lied Lied", *REFERENCE[3:]]
    rows = {row[0]: row[1:] for row in suspicious_outputs(compared(good=REFERENCE, bad=bad)).rows}
    assert rows["empty"] == ["0", "1"]
    assert rows["copied from the source"] == ["0", "1"]
    assert rows["repetitive"] == ["0", "1"]
    assert rows["without a reference word"] == ["0", "1"]


def test_ngrams_that_one_has_and_the_other_misses():
    other = [line.replace("Hunde", "Katzen") for line in REFERENCE]
    *_, table = comparison_tables(compared(one=REFERENCE, two=other))
    assert table.title == "N-grams: one and two"
    assert ["Hunde", "5"] in [list(row[:2]) for row in table.rows]
    assert all(row[2] == "" for row in table.rows)
    *_, turned = comparison_tables(compared(two=other, one=REFERENCE))
    assert ["Hunde", "5"] in [list(row[2:]) for row in turned.rows]


def test_every_table_counts_every_sentence():
    other = [line.upper() for line in REFERENCE[:7]] + REFERENCE[7:]
    result = compared(one=REFERENCE, two=other)
    tables = {table.title: table for table in comparison_tables(result)}
    for column in (1, 2):
        rows = tables["Sentences by score"].rows
        assert sum(int(row[column]) for row in rows) == len(REFERENCE)
    assert sum(int(row[1]) for row in tables["Sentences by length"].rows) == len(REFERENCE)
    words = sum(len(tokens(line)) for line in REFERENCE)
    for title in ("Words by frequency", "Words by case"):
        assert sum(int(row[1].replace(",", "")) for row in tables[title].rows) == words
    best = dict(zip(tables["Scores"].head, tables["Scores"].rows[0], strict=True))
    assert best["BLEU"].startswith("100.00")
    assert best["length ratio"] == "1.000"


def test_a_comparison_begins_with_its_result():
    other = [line if i % 3 else "etwas ganz anderes" for i, line in enumerate(REFERENCE)]
    result = compared(one=REFERENCE, two=other)
    gap = result.tests["bleu"]["one"].score - result.tests["bleu"]["two"].score
    difference, losses = summary(result, comparison_tables(result))
    assert difference.startswith(f"one is better than two by {gap:.1f} BLEU (100.0 against ")
    assert f"agree with such a difference in {agreement('bleu', gap):.0f} % of cases" in difference
    assert losses == "one is worse by 1 point or more in no group of words or sentences below."
    [_, losses] = summary(result, comparison_tables(compared(two=REFERENCE, one=other)))
    assert losses.startswith("one is worse in: ")
    # 1.4 - 0.4 is less than 1 in binary numbers.
    cases = ReportTable(
        "Words by case", ["class", "n", "one", "two"], [["lower case", "9", "0.4", "1.4"]]
    )
    assert "lower case” (0.4 against 1.4)" in summary(result, [cases])[1]
    same = compared(one=REFERENCE, two=REFERENCE)
    assert summary(same, []) == ["one and two have the same score: 100.0 BLEU."]
    alone = summary(compared(one=REFERENCE), [])
    assert alone == ["one: 100.0 ± 0.0 BLEU and 100.0 ± 0.0 chrF."]


def test_a_metric_that_contradicts_bleu_is_named():
    """The better system by BLEU is significantly worse by chrF."""
    other = [line if i % 3 else "etwas ganz anderes" for i, line in enumerate(REFERENCE)]
    result = compared(one=REFERENCE, two=other)
    assert "so no system is best" not in summary(result, [])[0]
    one, two = result.tests["chrf"].values()
    swapped = {"one": replace(one, score=two.score), "two": replace(two, score=one.score)}
    result.tests["chrf"].update(swapped)
    [first, *_] = summary(result, [])
    assert first.endswith(" In chrF, two is significantly better, so no system is best.")


def test_examples_are_those_that_differ_most():
    other = list(REFERENCE)
    other[6], other[11] = "etwas ganz anderes", "Ein Kind spielt mit 3 Ballen."
    result = compared(one=REFERENCE, two=other)
    assert most_different(result, 2) == [6, 11]
    assert most_different(compared(two=other, one=REFERENCE), 1) == [6]
    assert most_different(compared(one=REFERENCE, two=REFERENCE), 5) == []
    one, two = list(REFERENCE), list(REFERENCE)
    for i in range(3):
        one[i] = two[10 + i] = "etwas ganz anderes"
    chosen = most_different(compared(one=one, two=two), 4)
    assert sum(i >= 10 for i in chosen) == 2  # the first system is better in half of them


def test_the_share_of_people_that_agree_stands_beside_each_difference():
    other = [line if i % 3 else "etwas ganz anderes" for i, line in enumerate(REFERENCE)]
    result = compared(one=REFERENCE, two=other)
    table = next(
        table for table in comparison_tables(result) if "human agreement (BLEU)" in table.head
    )
    place = table.head.index("human agreement (BLEU)")
    difference = result.tests["bleu"]["two"].score - result.tests["bleu"]["one"].score
    expected = f"{agreement('bleu', difference):.0f} %"
    assert [row[place] for row in table.rows] == ["–", expected]


def test_marks_are_where_the_reference_differs():
    assert marked("Ein <b> Hund", "Ein Hund") == "Ein <mark class=other>&lt;b&gt;</mark> Hund"
    assert marked("Mit Hut .", "Mit Hut, alt.") == "Mit Hut <mark class=other>.</mark>"
    assert (
        marked("猫が好き。 はい", "犬が好き。 はい") == "<mark class=other>猫</mark>が好き。 はい"
    )


def test_identical_systems_do_not_differ(texts):
    (texts / "same").write_text((texts / "other").read_text())
    given = [f"reference={texts}/reference", f"output={texts}/out", "samples=50", "trials=50"]
    assert run("compare", *given, texts / "other", texts / "same").returncode == 0
    scores = json.loads((texts / "out.json").read_text())["tables"][0]
    chances = [row[scores["head"].index("p (BLEU)")] for row in scores["rows"]]
    assert chances == ["–", "1.000 · 1.000"]


def test_words_are_counted_as_they_are_compared(tmp_path):
    """Punctuation marks of the training text are words of their own."""
    (tmp_path / "reference").write_text("Ein Hund.\nEine Katze.\n")
    (tmp_path / "train").write_text("Ein Hund, eine Katze.\n" * 1000)
    given = [f"reference={tmp_path}/reference", f"train={tmp_path}/train", f"output={tmp_path}/out"]
    assert run("compare", *given, tmp_path / "reference", "samples=20", "trials=0").returncode == 0
    tables = json.loads((tmp_path / "out.json").read_text())["tables"]
    [table] = [table for table in tables if table["title"] == "Words by frequency"]
    assert [row[:2] for row in table["rows"]] == [["0", "1"], ["1,000 or more", "5"]]


def test_tokenised_text_is_reported_once(tmp_path):
    (tmp_path / "reference").write_text("Ein Hund .\n" * 200)
    given = [f"reference={tmp_path}/reference", f"output={tmp_path}/out", "samples=20", "trials=20"]
    (tmp_path / "other").write_text("Eine Katze .\n" * 200)
    done = run("compare", *given, tmp_path / "reference", tmp_path / "other")
    assert done.returncode == 0, done.stderr.decode()
    output = done.stderr.decode()
    assert output.count("the text seems to be tokenised") == 1
    assert "metric.tokenize=none" in output
    assert "force" not in output


@pytest.fixture
def texts(small_run, tmp_path):
    for name, file in (("source", "test.source.txt"), ("reference", "test.reference.txt")):
        (tmp_path / name).write_text((small_run / file).read_text())
    lines = (tmp_path / "reference").read_text().splitlines()
    (tmp_path / "other").write_text("".join(line[: len(line) // 2] + "\n" for line in lines))
    return tmp_path


def test_the_command_compares_models_and_files(small_run, texts):
    given = [
        f"reference={texts}/reference",
        f"source={texts}/source",
        f"output={texts}/out",
        "samples=50",
        "trials=50",
        "examples=4",
    ]
    done = run("compare", *given, small_run, texts / "other", f"train={texts}/reference")
    assert done.returncode == 0, done.stderr.decode()
    assert b"Words by frequency" in done.stdout
    assert b"Source words" in done.stdout
    result = json.loads((texts / "out.json").read_text())
    assert len(result["sentences"]) == 4
    assert set(result["sentences"][0]["log_probs_per_token"]["small"]) == {"small", "other"}
    page = (texts / "out.html").read_text()
    assert "<summary>Attention weights</summary>" in page
    assert page.count('scope="row"') > 30
    assert "### Sentences that differ most" in (texts / "out.md").read_text()


def test_a_missing_folder_is_noticed_before_the_work(small_run, texts):
    files = [f"reference={texts}/reference", f"source={texts}/source"]
    for command in (
        ["compare", *files, small_run, f"output={texts}/nowhere/out"],
        ["report", small_run, f"output={texts}/nowhere/out"],
        ["translate", f"model={small_run}", f"attention_map={texts}/nowhere/out.html", f"input={texts}/source"],
    ):  # fmt: skip
        done = run(*command)
        assert done.returncode in (1, 2)
        message = done.stderr.decode().splitlines()
        assert "nowhere" in message[-1] and "not found" in message[-1], message
    named = f"output={texts}/out.html"
    failed(run("report", small_run, named), f"get their own extensions; give output={texts}/out")


def test_test_translations_of_a_run_are_not_translated_again(small_run, texts):
    """The run translates a text with another source than its test set."""
    shutil.copytree(small_run, texts / "run")
    lines = (small_run / "test.txt").read_text().splitlines()
    (texts / "run/test.txt").write_text("ganz anders\n" * len(lines))
    (texts / "turned").write_text("".join(f"{line}\n" for line in reversed(lines)))
    given = [f"reference={texts}/reference", f"output={texts}/out", "samples=20", "trials=0"]
    for source, is_reused in (("source", True), ("turned", False)):
        done = run("compare", *given, f"source={texts}/{source}", texts / "run", texts / "other")
        assert done.returncode == 0, done.stderr.decode()
        sentences = json.loads((texts / "out.json").read_text())["sentences"]
        reused = [sentence["outputs"]["run"] == "ganz anders" for sentence in sentences]
        assert reused == [is_reused] * len(sentences) and sentences
    # The run was trained further after its test; the results are of the validation set, or older.
    results = texts / "run/results.json"
    tested = results.read_text()
    results.write_text(tested.replace('"part": "test"', '"part": "validation"'))
    assert run("compare", *given, f"source={texts}/source", texts / "run").returncode == 0
    sentences = json.loads((texts / "out.json").read_text())["sentences"]
    assert all(sentence["outputs"]["run"] != "ganz anders" for sentence in sentences)
    results.write_text(tested)
    with open(texts / "run/metrics.jsonl", "a") as file:
        file.write('{"kind": "train", "update": 100000}\n')
    done = run("compare", *given, f"source={texts}/source", texts / "run", texts / "other")
    assert done.returncode == 0, done.stderr.decode()
    sentences = json.loads((texts / "out.json").read_text())["sentences"]
    assert all(sentence["outputs"]["run"] != "ganz anders" for sentence in sentences)


def test_the_models_own_translation_is_the_most_probable_of_those_shown(small_run, texts):
    given = [
        f"reference={texts}/reference",
        f"source={texts}/source",
        f"output={texts}/out",
        "samples=20",
        "trials=0",
        "examples=9",
    ]
    assert run("compare", *given, small_run, texts / "reference").returncode == 0
    sentences = json.loads((texts / "out.json").read_text())["sentences"]
    better = [
        s["log_probs_per_token"]["small"]["small"] >= s["log_probs_per_token"]["small"]["reference"]
        for s in sentences
    ]
    assert sum(better) >= 0.7 * len(better)


def test_bad_input_is_reported(small_run, texts):
    both = [f"reference={texts}/reference", f"source={texts}/source"]
    (texts / "short").write_text("x\n")
    assert "translating" not in failed(
        run("compare", *both, small_run, texts / "short"), "short: not aligned (20 and 1 lines)"
    )
    failed(run("compare", *both, texts / "nothing"), "nothing", "file not found")
    failed(run("compare", *both), "systems: missing")
    failed(run("compare", both[0], small_run), "add source=FILE")
    failed(run("compare", *both, small_run, f"{small_run}/"), "given more than once")
    failed(run("compare", *both, texts / "other", "output=."), "output=.: not the name of a file")
    failed(run("compare", f"reference={texts}/short", f"source={texts}/source", small_run), "lines")


def test_combining_marks_are_part_of_words():
    """Devanagari vowel signs and accents in decomposed text."""
    assert tokens("हिन्दी भाषा।") == ["हिन्दी", "भाषा", "।"]
    assert tokens(unicodedata.normalize("NFD", "café, très")) == [
        unicodedata.normalize("NFD", word) for word in ("café", ",", "très")
    ]
    assert bare("(लड़की।") == "लड़की"


def test_scores_of_a_plugin_are_not_in_the_table():
    class WithCount(Metric):
        def score(self, hypotheses, *arguments, **options):
            count = Result(float(len(hypotheses)), "")
            return {**super().score(hypotheses, *arguments, **options), "count": count}

    outputs = {"a": ["x y z w", "v w"], "b": ["x z", "v"]}
    compared = Comparison(
        [], ["x y z w", "v w"], outputs, WithCount(tokenize="13a"), {}, "", samples=20, trials=20
    )
    table = score_table(compared)
    assert "chrF" in table.note and "count" not in table.note
