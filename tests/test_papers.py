"""Sweeps of both papers: every run has valid settings, and neighbouring models differ only as in the paper."""

import json
import re
import sys
from functools import cache

import numpy as np
import papers
import pytest
from commands import run
from sacrebleu.metrics import BLEU

from nmt.analysis.run_results import flat_settings
from nmt.configuration.compose import choices_of, compose
from nmt.configuration.configure import configure
from nmt.data.links import GoldLinks
from nmt.foundation.configurations import flat, learnt_settings
from nmt.inference.word_alignment import alignment_scores, count_links
from nmt.pipeline.training_job import TrainingJob

ATTENTION = {"attention", "decoder", "window"}


@cache
def planned(sweep):
    job = TrainingJob("train", [f"sweep={sweep}", "data=reverse"], [])
    return [tuple(overrides) for overrides in job.grid(job.sweeper.grids)]


@cache
def settings(overrides):
    return flat(learnt_settings(compose("train", overrides)))


def changed(before, after):
    """Keys that differ between two runs; an option of encoder, decoder, attention or window is named by its group."""
    values = settings(before), settings(after)
    keys = {
        key
        for key in values[0].keys() | values[1].keys()
        if values[0].get(key) != values[1].get(key)
    }
    return {
        key.partition(".")[0] if key.split(".")[0] in ATTENTION | {"encoder"} else key
        for key in keys
    }


@pytest.mark.parametrize(("sweep", "count"), [("bahdanau2015", 5), ("luong2015", 12)])
def test_first_seed_of_all_models_is_trained_first(sweep, count):
    runs = planned(sweep)
    seeds = [next(o for o in overrides if o.startswith("seed=")) for overrides in runs]
    assert seeds == [f"seed={seed}" for seed in (1, 2, 3) for _ in range(count)]
    without_seed = [[o for o in overrides if not o.startswith("seed=")] for overrides in runs]
    assert without_seed[:count] == without_seed[count : 2 * count] == without_seed[2 * count :]


def test_the_number_of_pairs_does_not_replace_the_recipe_of_a_sweep(tmp_path):
    for side in ("en", "de"):
        (tmp_path / f"train.{side}").write_text("a b\n" * 20)
    train = f"data.train={tmp_path}/train"
    typed = ["data=text", train, "data.split=0.1", "data.source=en", "data.target=de"]
    assert choices_of("train", typed)["experiment"] == "auto"
    assert choices_of("train", [*typed, "sweep=seeds"])["experiment"] == "auto"
    assert "auto" not in choices_of("train", [*typed, "sweep=luong2015"]).values()


@pytest.mark.parametrize(
    ("sweep", "count"),
    [("bahdanau2015", 5), pytest.param("luong2015", 12, marks=pytest.mark.exhaustive)],
)
def test_every_model_of_a_paper_has_valid_settings(sweep, count):
    for overrides in planned(sweep)[:count]:
        configure("train", overrides)  # without errors


def test_rungs_of_luong_differ_in_one_technique():
    base, reverse, dropout, location, feeding, local, *scores = planned("luong2015")[:12]
    assert changed(base, reverse) == {"encoder"}
    assert changed(reverse, dropout) == {"model.dropout", "model.readout_dropout"}
    assert changed(dropout, location) == {"attention", "decoder"}
    assert changed(location, feeding) == {"decoder"}
    assert changed(feeding, local) == {"attention", "window"}
    assert all(changed(feeding, of_table_4) <= {"attention", "window"} for of_table_4 in scores)


def test_models_of_bahdanau_differ_in_length_attention_and_updates():
    search, longer_search, plain, longer_plain, star = planned("bahdanau2015")[:5]
    assert changed(search, longer_search) == changed(plain, longer_plain) == {"filters.max_length"}
    assert changed(search, plain) == {"encoder", "attention", "decoder"}
    assert changed(longer_search, star) == {"trainer.max_updates"}


@pytest.mark.parametrize(
    ("sweep", "models"),
    [("bahdanau2015", papers.BAHDANAU_MODELS), ("luong2015", papers.LUONG_MODELS)],
)
def test_every_run_of_a_sweep_is_one_model_of_the_paper(sweep, models):
    chosen = [
        [
            model.name
            for model in models
            if model.settings.items() <= flat_settings(compose("train", overrides)).items()
        ]
        for overrides in planned(sweep)[: len(models)]
    ]
    assert sorted(chosen) == sorted([model.name] for model in models)


def test_scores_from_sums_of_statistics():
    lines, references = ["a b c d e f", "a c b d e"], ["a b c d f", "a b c d e e"]
    sums = papers.statistics_of(lines, references).sum(0)
    assert papers.bleu(sums) == pytest.approx(
        BLEU(tokenize="13a").corpus_score(lines, [references]).score
    )
    gold = GoldLinks(frozenset({(0, 0)}), frozenset({(0, 0), (2, 1), (3, 3)}))
    counts = count_links([frozenset({(0, 0), (1, 1), (2, 1)})], [gold])
    assert papers.error_rate(np.array(counts)) == pytest.approx(
        alignment_scores(*counts).error_rate
    )


@pytest.mark.exhaustive
def test_tables_of_a_tiny_sweep(tmp_path, monkeypatch, capsys):
    sizes = [f"sizes.{name}=8" for name in ("encoder", "decoder", "readout")]
    data = [
        "data=reverse",
        "data.train=80",
        "data.validation=9",
        "data.test=30",
        "sizes.vocabulary=30",
    ]
    tiny = [
        *data,
        *sizes,
        "model.embedding_size=8",
        "trainer.max_epochs=1",
        "final_test=true",
        "seed=1",
    ]
    run("train", "-m", "sweep=bahdanau2015", *tiny, f"run_dir={tmp_path}")
    monkeypatch.setattr(papers, "SAMPLES", 20)
    monkeypatch.setattr(sys, "argv", ["papers.py", "bahdanau2015", str(tmp_path)])
    papers.main()
    printed = capsys.readouterr().out
    assert (
        re.search("(Of the|All) 12 claims of Bahdanau et al. 2015", printed)
        and "not finished" not in printed
    )
    assert all(
        f"| {model.name} | {model.paper['name']} |" in printed for model in papers.BAHDANAU_MODELS
    )
    assert {"tables.md", "length.png", "curves.png"} <= {
        file.name for file in (tmp_path / "paper").iterdir()
    }
    assert len(list(tmp_path.glob("*/results.json"))) == 5
    assert json.loads(next(tmp_path.glob("*/results.json")).read_text())["part"] == "test"


@pytest.mark.parametrize(
    ("differences", "text"),
    [
        ([(1, 2), (1, 3)], "All 2 claims agree in direction with the results (all significantly)."),
        (
            [(-3, -2), (-4, 1)],
            "All 2 claims disagree in direction with the results (1 significantly).",
        ),
        (
            [(1, 2), (-1, 3), (-3, 1)],
            "Of the 3 claims, 2 agree in direction with the results (1 significantly), and 1 disagrees (not significantly).",
        ),
    ],
)
def test_confirmed_and_contradicted_claims_are_counted(differences, text):
    """Each claim is a positive difference in the paper; `differences` has the intervals of the measured differences."""
    verdicts = [papers.Verdict(1.0, (low + high) / 2, low, high) for low, high in differences]
    assert papers.counted(verdicts, "claims") == [text]


def test_no_claims_give_no_sentence():
    assert papers.counted([], "claims") == []
