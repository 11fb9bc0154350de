"""Copied pairs: training pairs whose source is their target."""

import json
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from builders import trained
from commands import run

from nmt.data import Mixture, Pairs, Splits, Stage
from nmt.data.copied_pairs import share_of_common_names, with_copied_pairs
from nmt.data.filters import Filters
from nmt.data.swapped_sides import SideCounts


def corpus(count, name="train"):
    return Pairs([f"s{i}" for i in range(count)], [f"t{i}" for i in range(count)], name)


def splits(train):
    return Splits(train, corpus(2), corpus(2), ("en", "de"))


def test_names_and_numbers_are_common_to_both_sides():
    pairs = Pairs(["on 17 may", "Anna is here", "a b"], ["am 17. mai", "hier ist Anna", "a b"], "x")
    assert share_of_common_names(pairs) == pytest.approx(2 / 3)


def test_names_are_found_in_every_script():
    source = ["In 2024 we saw Paris.", "He saw Ada."]
    pairs = Pairs(source, ["我们2024年看了Paris。", "उसने देखा Ada।"], "x")
    assert share_of_common_names(pairs) == 1


def test_the_number_of_copied_pairs_is_exact():
    for percent in range(1, 101):
        after = with_copied_pairs(splits(corpus(100)), percent / 100, Filters())
        assert len(after.train) == 100 + percent


@pytest.mark.parametrize("share", [0.1, 0.5, 0.7, 1.0])
def test_evenly_spaced_targets_are_copied(share):
    before = splits(corpus(20))
    after = with_copied_pairs(before, share, Filters())
    real, added = (list(zip(after.train.source, after.train.target, strict=True))[i] for i in (slice(20), slice(20, None)))  # fmt: skip
    assert real == list(zip(before.train.source, before.train.target, strict=True))
    assert len(added) == int(20 * share)
    assert all(source == target for source, target in added)
    places = [int(source[1:]) for source, _ in added]
    gaps = {b - a for a, b in pairwise(places)}
    assert max(gaps) - min(gaps) <= 1
    assert after.validation is before.validation


def test_each_corpus_of_a_mixture_gets_copies():
    corpora = {"a": corpus(4), "b": corpus(2)}
    stage = Stage("one", {"a": Fraction(1, 2), "b": Fraction(1, 2)}, "a", 1)
    before = replace(splits(corpus(6)), mixture=Mixture(corpora, [stage]))
    after = with_copied_pairs(before, 0.5, Filters()).mixture.corpora
    assert {name: len(pairs) for name, pairs in after.items()} == {"a": 6, "b": 3}
    assert after["b"].source[2] == after["b"].target[2] == "t0"


def test_held_out_and_dropped_pairs_are_not_copied():
    filters = Filters(drop_held_out=True, drop_duplicates=True)
    pairs = [("a", "A"), ("h", "HELD OUT"), ("a", "A"), ("", "EMPTY"), ("b", "B")]
    train = Pairs(*map(list, zip(*pairs, strict=True)), "train")
    held_out = Pairs(["h"], ["HELD OUT"], "test")
    expected = [("a", "A"), ("b", "B"), ("A", "A"), ("B", "B")]
    after = with_copied_pairs(Splits(train, corpus(2), held_out, ("en", "de")), 1.0, filters).train
    assert list(zip(after.source, after.target, strict=True)) == expected
    stage = Stage("one", {"a": Fraction(1)}, "a", 1)
    mixed = Splits(train, corpus(2), held_out, ("en", "de"), mixture=Mixture({"a": train}, [stage]))
    after = with_copied_pairs(mixed, 1.0, filters).mixture.corpora["a"]
    assert list(zip(after.source, after.target, strict=True)) == expected


def test_text_on_disk_is_copied_too(tmp_path):
    """The run with text on disk is that with text in memory, also if pairs are dropped."""
    for language in ("en", "de"):
        lines = "".join(f"{language}{i % 7} x{i % 5}\n" for i in range(24))
        lines += (
            f"{language}0 x0\n" * 2 + "\n" * (language == "en") + "empty\n" * (language == "de")
        )
        (tmp_path / f"train.{language}").write_text(lines)
    for language in ("en", "de"):
        (tmp_path / f"val.{language}").write_text("a b\n" * 3)
    typed = [
        "data=text", f"data.train={tmp_path}/train", f"data.validation={tmp_path}/val", "data.source=en",
        "data.target=de", "experiment=null", "sizes.encoder=8", "sizes.decoder=8", "sizes.readout=8",
        "model.embedding_size=8", "sizes.vocabulary=40", "batching.sentences=6", "trainer.max_epochs=1", "copied_pairs=0.5",
        "filters.drop_duplicates=true",
    ]  # fmt: skip
    disk = trained(tmp_path / "disk", *typed, "store=disk")
    memory = trained(tmp_path / "memory", *typed, "store=memory")
    results = [json.loads((run / "results.json").read_text()) for run in (disk, memory)]
    assert results[0]["updates"] == 36 / 6
    assert results[0]["weights"] == results[1]["weights"]


def test_typical_words_are_those_without_copies():
    before = Pairs([f"the dog {i}" for i in range(40)], [f"der Hund {i}" for i in range(40)], "x")
    after = with_copied_pairs(splits(before), 1.0, Filters()).train
    assert SideCounts(after).typical() == SideCounts(before).typical()


def test_settings_that_contradict_copied_pairs(tmp_path):
    for override, message in (
        ("filters.drop_identical=true", "would drop the copied pairs"),
        ("data.source=[a,b]", "only for one source text"),
        ("copied_pairs=1.5", "0 ≤ value ≤ 1"),
    ):
        data = ["data=text", "data.train=x", "data.validation=x", "data.source=a", "data.target=c"]
        settings = dict(text.split("=", 1) for text in [*data, "copied_pairs=0.5", override])
        result = run("train", *(f"{key}={value}" for key, value in settings.items()))
        assert result.returncode == 2
        assert message in result.stderr.decode()
