"""Reports of runs: groups, tests of significance, and missing results."""

import csv
import gzip
import io
import json
import math
import os
import re
import shutil
import statistics
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from commands import failed, run

import nmt
from nmt.analysis import chart_lines, charts, result_entries, tables
from nmt.analysis.collected_results import collect, result_of_file, with_systems
from nmt.analysis.comparison import Comparison, score_table
from nmt.analysis.ranking import Ranking
from nmt.analysis.ranking_table import ranking_table
from nmt.analysis.result_entries import entries_text
from nmt.analysis.run_groups import Configuration, configurations, differing
from nmt.analysis.run_report import Report, csv_text, write
from nmt.analysis.run_results import RunResult, flat_settings, read_result
from nmt.analysis.significance import (
    SignificanceResult,
    agreement,
    as_largest,
    as_spread,
    holm,
    over_seeds,
    over_sentences,
)
from nmt.analysis.tables import ReportTable
from nmt.drawing import attention_map
from nmt.drawing.attention_map import AttentionMap
from nmt.drawing.pages import origin, page
from nmt.drawing.plots import row_of_axes, save
from nmt.foundation.configurations import class_label
from nmt.foundation.devices import processor_name
from nmt.foundation.errors import UserError
from nmt.metric import Metric

SENTENCES = 60


def make_run(
    folder, decoder, seed, quality, data="d", unfinished=False, part="test", attention="dot"
):
    """A folder as a run leaves it; `quality`: the share of words that are right."""
    rng = np.random.default_rng(seed)
    words = [
        "a",
        "man",
        "woman",
        "dog",
        "cat",
        "runs",
        "sits",
        "on",
        "under",
        "the",
        "red",
        "green",
        "blue",
        "street",
        "house",
    ]
    references = [" ".join(rng.choice(words, rng.integers(3, 25))) for _ in range(SENTENCES)]
    rng = np.random.default_rng(0)  # the same test part for all
    references = [" ".join(rng.choice(words, rng.integers(3, 25))) for _ in range(SENTENCES)]
    rng = np.random.default_rng([seed, len(decoder)])
    answers = [
        " ".join(w if rng.random() < quality else rng.choice(words) for w in line.split())
        for line in references
    ]
    folder.mkdir(parents=True)
    config = {
        "seed": seed, "run_dir": str(folder), "decoder": {"_target_": f"nmt.model.decoder.{decoder}.X", "hidden_size": 8},
        "attention": {"_target_": f"nmt.model.attention.{attention}.X"}, "metric": {"name": "bleu"}, "trainer": {"max_epochs": 2, "keep": seed},
    }  # fmt: skip
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    records = [
        {
            "kind": "train",
            "update": 10 * e,
            "total": 20,
            "epoch": e,
            "loss": 3.0 / e,
            "speed": 100.0 * e,
            "rate": 1,
            "gradient_norm": 1,
        }
        for e in (1, 2)
    ] + [
        {
            "kind": "validation",
            "update": 10 * e,
            "epoch": e,
            "loss": 3.0 / e,
            "bleu": 40 * quality * e / 2,
            "best": True,
        }
        for e in (1, 2)
    ]
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps(r) + "\n" for r in records) + '{"kind": "tra'
    )
    for name, lines in (
        (part, answers),
        (f"{part}.reference", references),
        (f"{part}.source", references),
    ):
        (folder / f"{name}.txt").write_text("".join(line + "\n" for line in lines))
    if unfinished:
        return folder
    scores = {k: vars(v) for k, v in Metric(tokenize="13a").score(answers, references).items()}
    results = {
        "part": part, "scores": scores, "validation": {"loss": 1.0, "bleu": 40 * quality}, "best_update": 20, "updates": 20,
        "training_seconds": 60.0 * seed, "seed": seed, "data": {"train": data}, "parameters": 1234, "peak_memory_mb": 99.0,
    }  # fmt: skip
    (folder / "results.json").write_text(json.dumps(results))
    return folder


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Three seeds of two decoders and a third that is as good as the first."""
    folder = tmp_path_factory.mktemp("report") / "sweep"
    for decoder, quality in (("luong", 0.9), ("fixed", 0.3), ("bahdanau", 0.9)):
        for seed in (1, 2, 3):
            make_run(folder / f"{decoder}-seed{seed}", decoder, seed, quality)
    return folder


def test_seeds_are_one_row_and_only_what_differs_is_a_column(sweep):
    collected = collect([str(sweep)])
    assert len(collected.finished) == 9
    result = configurations(collected.finished, "bleu")
    assert [each.values for each in result][-1] == {"decoder": "fixed"}
    assert {each.values["decoder"] for each in result} == {"luong", "bahdanau", "fixed"}
    assert all(len(each.runs) == 3 for each in result)
    means = [statistics.mean(each.scores("bleu")) for each in result]
    assert means == sorted(means, reverse=True)


def bold_rows(table):
    return {row for row, _ in table.bold}


def test_the_table_marks_scores_not_significantly_below_the_best(sweep):
    pytest.importorskip("scipy")
    runs = collect([str(sweep)]).finished
    [table] = Report.of(runs, [], None, samples=200, trials=200).tables()
    decoders = [row[0] for row in table.rows]
    assert decoders[2] == "fixed"
    assert bold_rows(table) == {0, 1}
    row = dict(zip(table.head, table.rows[2], strict=True))
    scores = [run.scores["bleu"] for run in runs if run.settings["decoder"] == "fixed"]
    assert row["BLEU"] == f"{statistics.mean(scores):.2f} ± {statistics.stdev(scores):.2f}"
    assert row["seeds"] == "3"
    assert row["parameters"] == "1,234"
    assert row["tokens per second"] == "150"
    assert row["training (minutes)"] == "2.0"
    assert row["peak memory (MB)"] == "99"
    assert row["p (sentences)"] == "0.010 · 0.010"


def test_a_report_begins_with_its_result(sweep, tmp_path):
    pytest.importorskip("scipy")
    report = Report.of(collect([str(sweep)]).finished, [], None, samples=100)
    best, similar, fixed = report.rankings[0].rows
    gap = statistics.mean(best.scores("bleu")) - statistics.mean(fixed.scores("bleu"))
    [sentence] = report.lead
    assert sentence == (
        f"{best.label} is best: {as_spread(best.scores('bleu'), 1)} BLEU on the test set, not "
        f"distinguishable from {similar.label}; fixed is {gap:.1f} lower (p < 0.001 over seeds, "
        "p = 0.020 over sentences with one seed of each)."
    )
    write(report, report.tables(), tmp_path / "x")
    assert (tmp_path / "x.md").read_text().startswith(sentence)
    page = (tmp_path / "x.html").read_text()
    assert f'<p class="lead">{sentence.replace("<", "&lt;")}</p>' in page
    folder = report.rankings[0].rows[0].best_by_validation().folder
    assert f'href="{os.path.relpath(folder, tmp_path)}"' in page
    assert 'data-value="luong, seed 2: ' in page and 'href="#learning-curves"' in page
    assert f"nmt {nmt.__version__}, PyTorch" in page
    assert f", {processor_name(torch.device('cpu'))}, 20" in page  # before the date
    mean = statistics.mean(similar.scores("bleu")) / statistics.mean(best.scores("bleu"))
    [one, two, _] = re.findall(r'<td class="[^"]*bar" style="--w:([^"]*)">', page)
    assert (float(one), float(two)) == (1.0, pytest.approx(mean, abs=0.002))


def test_no_configuration_is_best_if_all_have_the_same_score(tmp_path):
    for seed in (1, 2, 3):
        for decoder in ("luong", "fixed"):
            make_run(tmp_path / f"{decoder}-{seed}", decoder, seed, 1.0)
    report = Report.of(collect([str(tmp_path)]).finished, [], None, samples=20)
    sentence = "All 2 configurations have the same score: 100.0 ± 0.0 BLEU on the test set."
    assert report.lead == [sentence]


def test_the_best_cells_of_a_group_are_bold():
    table = ReportTable("T", ["a", "b", "c"], [["x", "1 ± 9", "10"], ["y", "3", "3"]])
    marked = tables.with_best(table, [[(0, 1), (0, 2)], [(1, 1), (1, 2)]])
    assert set(marked.bold) == {(0, 2)}
    assert marked.shares == {(0, 1): 0.1, (0, 2): 1.0}
    assert set(tables.with_best(table, [[(0, 1), (0, 2)]], lower=True).bold) == {(0, 1)}


def test_runs_of_other_text_are_no_seeds_of_one_configuration(tmp_path):
    for seed, data in ((1, "old"), (2, "old"), (3, "new")):
        make_run(tmp_path / f"seed{seed}", "luong", seed, 0.9, data=data)
    runs = collect([str(tmp_path)], different_data=True).finished
    result = configurations(runs, "bleu")
    assert sorted(len(each.runs) for each in result) == [1, 2]
    assert [*result[0].values] == ["data.content"]


def configure_run(folder, target, command=()):
    """Gives a run folder an own decoder, and the command line that started the run."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["decoder"]["_target_"] = target
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "run.json").write_text(json.dumps({"commands": [["train.py", *command]]}))


def test_classes_of_one_module_are_different_configurations(tmp_path):
    targets = {"simple": "Simple", "tanh": "TanhReadout"}
    for seed, name in ((1, "simple"), (2, "tanh"), (3, "tanh")):
        make_run(tmp_path / f"{name}{seed}", name, seed, 0.9)
        command = [] if seed == 3 else [f"decoder={name}"]  # seed 3 as by --from
        configure_run(tmp_path / f"{name}{seed}", f"mine.decoder.{targets[name]}", command)
    rows = configurations(collect([str(tmp_path)]).finished, "bleu")
    assert {row.label: len(row.runs) for row in rows} == {"simple": 1, "tanh": 2}


def test_classes_without_a_recorded_choice_are_named_by_their_class(tmp_path):
    for seed, name in ((1, "score.Cosine"), (2, "score.TanhReadout"), (3, "other.Cosine")):
        make_run(tmp_path / name, "luong", seed, 0.9)
        configure_run(tmp_path / name, f"mine.{name}")
    rows = configurations(collect([str(tmp_path)]).finished, "bleu")
    assert sorted(row.label for row in rows) == [
        "cosine, mine.other.Cosine",
        "cosine, mine.score.Cosine",
        "tanh_readout, mine.score.TanhReadout",
    ]
    assert class_label("nmt.training.optimizer.NAdam", "optimizer") == "nadam"


def test_repeats_of_a_seed_are_not_counted(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_run(tmp_path / name, "luong", seed, 0.9)
    [table] = Report.of(collect([str(tmp_path)]).finished, [], None, samples=50).tables()
    assert dict(zip(table.head, table.rows[0], strict=True))["seeds"] == "2"
    assert f"same configuration and seed: {tmp_path}/b." in table.note


def test_equal_systems_do_not_differ_and_are_bold_together(tmp_path):
    for decoder in ("luong", "fixed", "bahdanau"):
        make_run(tmp_path / decoder, decoder, 1, 1.0)
    runs = collect([str(tmp_path)]).finished
    [table] = Report.of(runs, [], None, samples=100, trials=100).tables()
    assert bold_rows(table) == {0, 1, 2}
    column = table.head.index("p (sentences)")
    assert [row[column] for row in table.rows] == ["–", "1.000 · 1.000", "1.000 · 1.000"]
    assert "p seeds" not in table.head
    assert "p seeds" not in table.note
    [table] = Report.of(runs, [], "exact").tables()
    assert bold_rows(table) == {0, 1, 2}
    assert "p (sentences)" not in table.note
    assert "No significance test was made" in table.note


def test_two_systems_are_tested(tmp_path):
    for decoder, quality in (("luong", 1.0), ("fixed", 0.3)):
        make_run(tmp_path / decoder, decoder, 1, quality)
    runs = collect([str(tmp_path)]).finished
    [table] = Report.of(runs, [], None, samples=100, trials=100).tables()
    column = table.head.index("p (sentences)")
    assert [row[column] for row in table.rows] == ["–", "0.010 · 0.010"]
    assert bold_rows(table) == {0}


def test_many_configurations_can_differ(tmp_path):
    """Holm's correction multiplies the smallest p-value by the number of comparisons."""
    for number in range(6):
        make_run(tmp_path / str(number), "luong", 1, 0.3 if number else 1.0, attention=f"a{number}")
    runs = collect([str(tmp_path)]).finished
    for trials in (0, 20):
        [table] = Report.of(runs, [], None, samples=20, trials=trials).tables()
        assert len(table.rows) == 6
        assert bold_rows(table) == {0}


def test_a_run_that_was_continued_is_named(tmp_path, caplog):
    folder = make_run(tmp_path / "run", "luong", 1, 0.9)
    collect([str(tmp_path)])
    assert "continued" not in caplog.text
    with open(folder / "metrics.jsonl", "a") as file:
        file.write("\n" + json.dumps({"kind": "train", "update": 900, "loss": 1.0}) + "\n")
    collect([str(tmp_path)])
    assert f"{folder}: the training was continued after these results were written" in caplog.text


def test_equal_seeds_do_not_differ():
    pytest.importorskip("scipy")
    assert over_seeds([[100.0, 100.0], [100.0, 100.0]]) == [None, 1.0]
    assert over_seeds([[99.0, 99.0], [99.0, 99.0, 99.0]]) == [None, 1.0]
    assert over_seeds([[99.0, 99.0], [98.0, 98.0]]) == [None, None]


def test_runs_of_different_parts_are_not_in_one_ranking(tmp_path):
    """A run without a test part has scores of the validation part, and each table names the part."""
    make_run(tmp_path / "tested", "luong", 1, 0.5)
    make_run(tmp_path / "validated", "fixed", 1, 0.9, part="validation")
    done = run("report", tmp_path, "samples=50", "trials=0")
    assert done.returncode == 0, done.stderr.decode()
    text = (tmp_path / "report.md").read_text()
    tested, _, _ = text.partition("### Validation scores, sorted by BLEU")
    assert "### Test scores, sorted by BLEU" in tested
    assert "**" not in text
    page = (tmp_path / "report.html").read_text()
    assert "<h2>Validation scores, sorted by BLEU</h2>" in page
    rows = list(csv.DictReader(io.StringIO((tmp_path / "report.csv").read_text())))
    assert [(row["decoder"], row["part"]) for row in rows] == [
        ("luong", "test"),
        ("fixed", "validation"),
    ]
    assert all(row["final_bleu"] for row in rows)


def test_all_choices_that_differ_are_columns(tmp_path):
    for decoder, attention in (("bahdanau", "concat"), ("luong", "general")):
        make_run(tmp_path / decoder, decoder, 1, 0.9, attention=attention)
    [table] = Report.of(collect([str(tmp_path)]).finished, [], None, samples=50).tables()
    assert table.head[:2] == ["decoder", "attention"]


def test_a_test_part_with_missing_lines_is_reported(tmp_path):
    for decoder in ("luong", "fixed"):
        make_run(tmp_path / decoder, decoder, 1, 0.9)
    (tmp_path / "fixed/test.txt").write_text("a man\n")
    done = run("report", tmp_path, "samples=50", "trials=0")
    expected = f"{tmp_path}/fixed: test.txt has 1 lines, but the reference has {SENTENCES}"
    assert expected.encode() in done.stderr


def test_a_report_is_written_in_every_form(sweep, tmp_path):
    done = run("report", sweep, f"output={tmp_path}/out", "samples=100", "trials=0")
    assert done.returncode == 0, done.stderr.decode()
    assert b"Test scores, sorted by BLEU" in done.stdout
    page = (tmp_path / "out.html").read_text()
    assert page.count("<svg") == 5  # all runs have as many parameters
    assert '<th scope="col" class=key><span>decoder</span></th>' in page
    assert "aria-label" in page
    assert "http://" not in re.sub(r"http://www.w3.org/\S+", "", page)
    assert "| luong |" in (tmp_path / "out.md").read_text()
    tex = (tmp_path / "out.tex").read_text()
    assert r"\toprule" in tex
    assert tex.count("{") == tex.count("}")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text())))
    assert len(rows) == 9
    assert (
        float(rows[0]["test_bleu"])
        == json.loads((sweep / "luong-seed1/results.json").read_text())["scores"]["bleu"]["score"]
    )
    assert (tmp_path / "out.png").stat().st_size > 1000
    assert (tmp_path / "out.curves.png").stat().st_size > 1000


def test_learning_curves_are_a_figure_with_text(sweep, tmp_path):
    pytest.importorskip("matplotlib")
    report = Report.of(collect([str(sweep)]).finished, [], None, samples=10)
    *_, scores, curves = write(report, report.tables(), tmp_path / "x", "svg")
    assert (scores.name, curves.name) == ("x.svg", "x.curves.svg")
    assert re.search(r"<text.*>validation loss", curves.read_text())
    assert "bahdanau</text>" in curves.read_text()


def test_an_image_that_cannot_be_written_is_one_message(tmp_path):
    pytest.importorskip("matplotlib")
    figure, _ = row_of_axes(1, 2, 2)
    with pytest.raises(UserError, match=r"none/map.png: cannot be written"):
        save(figure, tmp_path / "none" / "map.png")


def outside(figure):
    """Texts that are not inside the image."""
    for _ in range(2):  # as `save` does
        figure.draw_without_rendering()
    texts = list(figure.findobj(lambda artist: hasattr(artist, "get_text")))
    width, height = figure.bbox.size
    boxes = {text.get_text(): text.get_window_extent() for text in texts if text.get_text()}
    return [
        name
        for name, box in boxes.items()
        if box.x0 < -2 or box.y0 < -2 or box.x1 > width + 2 or box.y1 > height + 2
    ]


def test_the_texts_of_narrow_figures_are_inside(sweep):
    pytest.importorskip("matplotlib")
    [ranking] = Report.of(collect([str(sweep)]).finished, [], None, samples=10).rankings
    figure = charts.learning_curves(ranking, 3.3)
    assert figure.get_figwidth() == 3.3
    assert not outside(figure)
    [legend] = figure.legends
    assert len(legend.get_texts()) == len(ranking.rows)
    assert not any(axes.texts for axes in figure.axes)
    words = ["the", "quick", "brown", "fox", "jumps"]
    names = ["bahdanau, concat, hidden units 512, seed 1", "luong, general"]
    for size, width, columns in ((1, None, 2), (1, 3.3, 1), (2, 3.3, 1), (2, 8.0, 2)):
        texts = words * size
        weights = np.eye(len(texts))
        drawn = AttentionMap(texts, texts, dict.fromkeys(names, weights), ends=False)
        figure = attention_map._figure([drawn], width)
        grid = figure.axes[0].get_subplotspec().get_gridspec()
        assert grid.ncols == columns
        if width is not None:
            ratio = figure.get_figheight() / figure.get_figwidth()
            figure.set_size_inches(width, width * ratio)
            assert not outside(figure)


def test_the_names_of_lines_are_at_their_ends(sweep):
    """Lines of other configurations are grey, without names, and counted at the axis."""
    pytest.importorskip("matplotlib")
    [ranking] = Report.of(collect([str(sweep)]).finished, [], None, samples=10).rankings
    many = [replace(ranking.rows[i % 3], values={"d": str(i)}) for i in range(11)]
    for rows, others in ((ranking.rows, ""), (many, "\n(grey: 3 other configurations)")):
        shown = replace(ranking, rows=rows)
        figures = [charts.learning_curves(shown), charts._chart(charts._by_length, shown)]
        assert not any(figure.legends or outside(figure) for figure in figures)
        for axes in (axes for figure in figures for axes in figure.axes):
            coloured = [line for line in axes.lines if line.get_color() != chart_lines.GREY]
            ends = {line.get_label(): tuple(line.get_xydata()[-1]) for line in coloured}
            assert {text.get_text(): text.xy for text in axes.texts} == ends
            assert re.fullmatch(
                f"(epoch|words of the source sentence){re.escape(others)}", axes.get_xlabel()
            )
            heights = sorted(text.xyann[1] for text in axes.texts)
            assert min(np.diff(heights)) > 0.99 * chart_lines.LABEL_SPACE and heights[-1] <= 1.0


def test_dots_of_equal_scores_are_apart(tmp_path):
    pytest.importorskip("matplotlib")
    for seed in (1, 2):
        make_run(tmp_path / f"run{seed}", "luong", seed, 1.0)
    report = Report.of(collect([str(tmp_path)]).finished, [], None, samples=10)
    dots, _mean = charts.bars(report.rankings[0]).axes[0].lines
    scores, heights = np.transpose(dots.get_xydata())
    assert scores[0] == scores[1]
    assert list(heights) == pytest.approx([-charts.JITTER / 2, charts.JITTER / 2])


def test_points_are_at_lengths_of_the_data(tmp_path):
    """A group of sentences of 6 and 7 words has its point between them, not in the middle of 6 to 10."""
    folder = make_run(tmp_path / "run", "luong", 1, 0.9)
    for file in ("test", "test.source", "test.reference"):
        lines = [" ".join("abcdefg"[: 6 + i % 2]) for i in range(SENTENCES)]
        (folder / f"{file}.txt").write_text("".join(f"{line}\n" for line in lines))
    report = Report.of(collect([str(tmp_path)]).finished, [], None, samples=10)
    _, [axes] = row_of_axes(1, 4, 3)
    charts._by_length(axes, report.rankings[0])
    assert [line.get_xdata() for line in axes.lines] == [[6.5]]


def test_bad_folders_are_reported(sweep, tmp_path):
    failed(run("report", tmp_path), "no finished run found")
    failed(run("report", tmp_path / "nothing"), "nothing: not a folder")
    (tmp_path / "file").touch()
    failed(run("report", tmp_path / "file"), "file: not a folder")
    failed(run("report"), "folders: missing")
    failed(
        run("report", sweep, "metric=blue"),
        "metric=blue: score not found in ",
        "; available: bleu, chrf, exact",
    )
    make_run(tmp_path / "a", "luong", 1, 0.9, data="x")
    make_run(tmp_path / "b", "luong", 2, 0.9, data="y")
    failed(run("report", tmp_path), "different data", "different_data=true")
    assert run("report", tmp_path, "different_data=true", "samples=50", "trials=0").returncode == 0


def test_a_lower_score_of_a_plugin_metric_can_be_better(tmp_path):
    runs = []
    for name, score in (("bahdanau", 40.0), ("luong", 20.0), ("fixed", 30.0)):
        make_run(tmp_path / name, name, 1, 0.9)
        file = tmp_path / name / "results.json"
        results = json.loads(file.read_text())
        results["scores"]["wer"] = {"score": score, "signature": ""}
        results["validation"]["wer"] = score
        file.write_text(json.dumps({**results, "lower_is_better": True}))
        runs.append(replace(read_result(tmp_path / name), metric="wer"))
    [ranking] = Report.of(runs, [], None, samples=10).rankings
    assert ranking.metric == "wer"
    assert [ranking.mean(row) for row in ranking.rows] == [20.0, 30.0, 40.0]
    assert "20.0 higher" in ranking.sentence
    [ranking] = Report.of(runs, [], "bleu", samples=10).rankings
    assert [row.label for row in ranking.rows][-1] != "bahdanau"


def test_systems_without_the_metric_of_a_plugin_are_ranked_by_a_common_score(tmp_path):
    make_run(tmp_path / "a", "luong", 1, 0.9)
    make_run(tmp_path / "b", "bahdanau", 1, 0.8)
    runs = [read_result(tmp_path / name) for name in "ab"]
    of_plugin = [replace(r, metric="wer", scores={"wer": 40.0, **r.scores}) for r in runs]
    other = replace(runs[0], settings={"system": "other"}, answers=tmp_path / "other.txt")
    results = [replace(r, settings={"system": "nmt", **r.settings}) for r in of_plugin]
    [ranking] = Report.of([*results, other], [], None, samples=10).rankings
    assert ranking.metric == "bleu"
    heads = list(ranking_table(ranking, ["system", "n", "bleu"]).head)
    assert heads[:2] == ["system", "decoder"], "the settings tell the rows of nmt apart"


def test_half_written_runs_are_left_out_and_named(sweep, tmp_path):
    make_run(tmp_path / "good", "luong", 1, 0.9)
    make_run(tmp_path / "half", "luong", 2, 0.9, unfinished=True)
    make_run(tmp_path / "torn", "luong", 3, 0.9)
    (tmp_path / "torn/results.json").write_text('{"scores": ')
    (tmp_path / "half/run.json").write_text("{}")
    results = json.loads(
        (make_run(tmp_path / "undefined", "luong", 4, 0.9) / "results.json").read_text()
    )
    results["scores"]["correlation"] = {"score": math.nan, "signature": ""}
    (tmp_path / "undefined/results.json").write_text(json.dumps(results))
    done = run("report", tmp_path, "samples=50", "trials=0")
    assert done.returncode == 0, done.stderr.decode()
    assert f"{tmp_path}/torn: the run is left out of the report".encode() in done.stderr
    assert f"{tmp_path}/undefined: the run is left out of the report".encode() in done.stderr
    unfinished = f"{tmp_path}/half: the run is left out of the report, because it is not finished"
    assert unfinished.encode() in done.stderr
    assert (tmp_path / "report.csv").read_text().count("\n") == 2


def test_an_unfinished_run_of_a_sweep_is_named_if_the_sweep_is_not(tmp_path, caplog):
    """`nmt.report sweep/*` gives the folders of the runs and not the folder of the sweep."""
    for seed in (1, 2):
        folder = make_run(tmp_path / f"seed{seed}", "luong", seed, 0.9, unfinished=seed == 2)
        record = {"key": str(seed), "command": "train", "overrides": [], "failure": None}
        (folder / "sweep.json").write_text(json.dumps(record))
        (folder / "run.json").write_text("{}")
    collect([str(tmp_path)])
    assert "not finished" not in caplog.text
    collect([str(tmp_path / "seed1"), str(tmp_path / "seed2")])
    assert f"{tmp_path}/seed2: the run is left out of the report" in caplog.text


def test_each_point_of_a_learning_curve_is_a_mean_of_all_seeds(tmp_path):
    first, second = (read_result(make_run(tmp_path / f"{s}", "luong", s, 0.9)) for s in (1, 2))
    longer = [*second.curve, {"kind": "validation", "epoch": 1.5, "bleu": 1.0}]
    by_epoch = charts._by_epoch([first, replace(second, curve=longer)], "bleu")
    assert {epoch: len(values) for epoch, values in by_epoch.items()} == {1: 2, 2: 2}


def test_a_running_sweep_shows_its_progress(tmp_path):
    for seed in (1, 2):
        folder = make_run(tmp_path / f"seed{seed}", "luong", seed, 0.9, unfinished=seed == 2)
        record = {
            "key": str(seed),
            "command": "train",
            "overrides": [],
            # A run that failed after its results is finished.
            "failure": "no memory" if seed == 2 else "no font",
        }
        (folder / "sweep.json").write_text(json.dumps(record))
    collected = collect([str(tmp_path)])
    report = Report.of(collected.finished, collected.swept, None, samples=50)
    assert report.state.startswith("1 of 2 runs finished, 1 failed")
    write(report, report.tables(), tmp_path / "report")
    page = (tmp_path / "report.html").read_text()
    assert "1 of 2 runs finished" in page
    assert "no memory" in page and "no font" not in page


def test_figures_that_only_some_runs_have_do_not_stop_a_report(sweep):
    runs = collect([str(sweep)]).finished
    bare = [replace(run, parameters=None, memory=None, curve=[]) for run in runs[:3]]
    [table] = Report.of([*bare, *runs[3:]], [], None, samples=50).tables()
    assert "–" in tables.markdown(table)
    assert "tokens_per_second" in csv_text(Report.of(bare, [], "chrf", samples=50))


def test_keys_of_a_choice_are_columns_only_where_it_is_chosen():
    one = flat_settings(
        {
            "decoder": {"_target_": "nmt.model.decoder.luong.L", "a": 1},
            "attention": {},
            "x": True,
            "seed": 3,
        }
    )
    assert one == {
        "decoder": "luong",
        "decoder._target_": "nmt.model.decoder.luong.L",
        "decoder.a": "1",
        "attention": "none",
        "x": "true",
    }
    rows = [{"d": "l", "d.a": "1"}, {"d": "l", "d.a": "2"}, {"d": "b", "d.h": "8"}]
    assert differing(rows) == ["d", "d.a"]
    assert differing([{"d": "l", "d.a": "1"}, {"d": "b", "d.h": "8"}]) == ["d"]
    assert differing([{"sizes.e": "1", "encoder.h": "1"}, {"sizes.e": "2", "encoder.h": "2"}]) == [
        "sizes.e"
    ]


@pytest.mark.parametrize(
    ("settings", "labels"),
    [
        (lambda value: {"freeze": value}, {"freeze=null": 1, "auto": 2}),
        (lambda value: {"model": {"lexicon": value}}, {"lexicon=null": 1, "lexicon=auto": 2}),
        (
            lambda value: {"copied_pairs": value and 0.5},
            {"copied_pairs=null": 1, "copied_pairs=0.5": 2},
        ),
    ],
)
def test_null_is_the_name_of_a_value(tmp_path, settings, labels):
    """`null` has a cell and a name, and is the value of runs that were trained before the key existed."""
    for seed, value in ((1, None), (2, None), (3, "auto"), (4, "auto")):
        folder = make_run(tmp_path / f"seed{seed}", "luong", seed, 0.9)
        config = yaml.safe_load((folder / "config.yaml").read_text())
        config |= {} if seed == 1 else settings(value)
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
    runs = collect([str(tmp_path)]).finished
    assert {row.label: len(row.runs) for row in configurations(runs[1:], "bleu")} == labels
    assert [len(row.runs) for row in configurations(runs, "bleu")] == [2, 2]


def test_leaked_pairs_are_in_the_notes(tmp_path):
    """The note has the largest number of the runs, and has the scored data set alone."""
    for seed, count in ((1, 3), (2, 0)):
        folder = make_run(tmp_path / f"seed{seed}", "luong", seed, 0.9)
        results = json.loads((folder / "results.json").read_text())
        results["pairs_in_training"] = {"validation": 50, "test": count}
        (folder / "results.json").write_text(json.dumps(results))
    runs = collect([str(tmp_path)]).finished
    several = make_run(tmp_path / "several/seed1", "luong", 1, 0.9)
    second = "\n".join(["a second reference", "", *["more"] * 58])
    (several / "test.reference2.txt").write_text(second + "\n")
    shutil.copy(tmp_path / "seed1/results.json", several)
    captions = collect([str(several)]).finished
    for leaking, sentence in (
        (runs, "Up to 3 of 60"), (runs[:1], "3 of 60"), (runs[1:], None), (captions, "3 of 119"),
    ):  # fmt: skip
        [table] = Report.of(leaking, [], None, samples=10).tables()
        for note in (table.note, table.paper.note):
            expected = f"{sentence} test pairs are also training pairs, which raises the scores."
            assert (expected in note) if sentence else ("training pairs" not in note)


def test_corrections_for_several_comparisons():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@pytest.mark.exhaustive
def test_the_test_over_seeds_finds_no_more_than_there_is():
    pytest.importorskip("scipy")
    rng = np.random.default_rng(1)
    false = 0
    for _ in range(60):  # no difference: the test may find one in at most about 5 % of the families
        result = over_seeds([list(rng.normal(20, 1, 3)) for _ in range(5)])
        false += min(p for p in result if p is not None) < 0.05
    assert false <= 8


def test_the_test_over_seeds_finds_what_is_there():
    pytest.importorskip("scipy")
    [_, near, far] = over_seeds([[30.0, 30.4, 29.8], [29.9, 30.1, 30.0], [20.0, 20.3, 20.1]])
    assert far < 0.001 < 0.5 < near
    assert over_seeds([[1.0], [2.0]]) == [None, None]
    [alone, best, far] = over_seeds([[40.0], [30.0, 30.4, 29.8], [20.0, 20.3, 20.1]])
    assert alone is None and best is None and far < 0.05
    assert over_seeds([[30.0, 30.4], [20.0], [20.3, 20.1]])[1] is None


def test_the_tests_over_sentences_are_sacrebleus():
    from sacrebleu.metrics import BLEU
    from sacrebleu.significance import PairedTest

    references = [f"the {a} cat sat on the {b} mat today" for a in "abcdefgh" for b in "klmnopq"]
    one = references
    two = [line.replace("cat", "dog") if i % 2 else line for i, line in enumerate(references)]
    result = over_sentences(
        {"one": one, "two": two},
        [references],
        Metric(tokenize="13a"),
        "bleu",
        samples=300,
        trials=300,
    )
    test = PairedTest(
        [("one", one), ("two", two)], {"BLEU": BLEU()}, [references], test_type="bs", n_samples=300
    )
    expected = test()[1]["BLEU"]
    bootstrap, randomization = result["two"].probabilities
    assert bootstrap == expected[1].p_value
    assert result["two"].confidence == expected[1].ci
    assert randomization < 0.05
    assert not result["one"].probabilities


def test_agreement_is_that_of_the_papers_own_package():
    thresholds = pytest.importorskip("mt_thresholds")
    for metric in ("bleu", "chrf"):
        for difference in (0.5, 1.0, 3.0, 8.0):
            expected = thresholds.accuracy(difference, metric)
            assert agreement(metric, difference) == pytest.approx(max(50.0, expected), abs=0.01)
    assert agreement("bleu", -2.0) == agreement("bleu", 2.0)


def test_tables_keep_odd_characters(monkeypatch):
    table = ReportTable(
        "T & 100%",
        ["a_b", "c|d"],
        [["x|y", "1 ± 2 < 3"], ["[bold]", "~^\\"]],
        bold=[(0, 1)],
        note="n_1",
    )
    assert r"x\|y" in tables.markdown(table)
    assert r"x\textbar\allowbreak{}y & \textbf{1 $\pm$ 2 $<$ 3}" in tables.latex(table)
    assert r"\label{tab:t-100-}" in tables.latex(table)
    assert r"| x\|y | **1 ± 2 \< 3** |" in tables.markdown(table)
    assert r"a\_b" in tables.latex(table)
    assert "[bold]" in tables.terminal(table)
    assert "* 1 ± 2 < 3" in tables.terminal(table)
    assert "\033" not in tables.terminal(table)
    monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setenv("TERM", "xterm")
    assert "\033[1m* 1 ± 2 < 3\033[0m" in tables.terminal(table)
    assert "1 ± 2 &lt; 3" in tables.page_table(table)


def test_mean_and_deviation():
    values = [1.0, 2.0, 4.0]
    assert as_spread(values) == f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"
    assert as_spread([3.0]) == "3.00"
    assert as_spread([1.0, 1.0]) == "1.00 ± 0.00"
    assert as_spread([]) == "–"


def test_a_run_is_read_from_what_training_leaves(small_run):
    [result] = collect([str(small_run)]).finished
    assert isinstance(result, RunResult)
    assert result.parameters == json.loads((small_run / "results.json").read_text())["parameters"]
    assert result.memory > 50
    assert result.settings["decoder"] == "bahdanau"
    assert len(result.lines()) == 20


def test_other_tools_are_rows_and_columns_are_chosen(small_run, tmp_path):
    """The file of the run itself as another system has its scores, and no seconds."""
    answers = (small_run / "test.txt").read_text()
    (tmp_path / "other").write_text(answers)
    (tmp_path / "perfect").write_text((small_run / "test.reference.txt").read_text())
    systems = f"systems=[{tmp_path}/other,'the best={tmp_path}/perfect']"
    typed = [small_run, systems, f"output={tmp_path}/out"]
    assert run("report", *typed, "metric=chrf").returncode == 0
    lines = (tmp_path / "out.md").read_text().splitlines()
    table = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")
    ]
    head, _, *rows = table
    by_name = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert head[0] == "system"
    assert by_name["other"]["chrF"].strip("*") == by_name["nmt"]["chrF"].strip("*")
    assert by_name["other"]["training (minutes)"] == by_name["other"]["parameters"] == "–"
    assert by_name["the best"]["chrF"].strip("*") == "100.00"
    files = [line.partition(",")[0] for line in (tmp_path / "out.csv").read_text().splitlines()]
    assert {*files[1:]} == {str(small_run), f"{tmp_path}/other", f"{tmp_path}/perfect"}
    result = run("report", *typed, "columns=[bleu,system]")
    assert result.returncode == 0, result.stderr.decode()
    page = (tmp_path / "out.md").read_text()
    assert "| BLEU | system |" in page
    assert "Bold" not in page and "p (sentences)" not in page
    failed(
        run("report", *typed, "columns=[bleu,speed]"),
        "column speed not found; available: system, n,",
    )
    (tmp_path / "other").write_text("a\n")
    failed(run("report", *typed), "other")


def pdflatex(folder, text):
    """Compiles LaTeX tables on an article page, and returns the widths of overfull lines in points."""
    head = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}"
    (folder / "page.tex").write_text(f"{head}{text}\\end{{document}}")
    done = subprocess.run(
        ["pdflatex", "-halt-on-error", "page.tex"], cwd=folder, capture_output=True
    )
    assert done.returncode == 0, done.stdout.decode()
    return [float(width) for width in re.findall(r"hbox \(([\d.]+)pt too", done.stdout.decode())]


needs_pdflatex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex")


def usual_sweep(folder):
    for decoder, attention in (("bahdanau", "concat"), ("luong", "general"), ("luong", "dot")):
        for seed in (1, 2, 3):
            quality = 0.9 - len(attention) / 100
            make_run(folder / f"{attention}{seed}", decoder, seed, quality, attention=attention)
    return folder


def test_a_paper_has_the_scores_without_the_costs(tmp_path):
    pytest.importorskip("scipy")
    runs = collect([str(usual_sweep(tmp_path / "sweep"))]).finished
    report = Report.of(runs, [], None, samples=10, trials=10)
    [table] = report.tables()
    expected = ["decoder", "attention", "n", "BLEU", "chrF", "p seeds", "p sentences"]
    assert table.paper.head == expected
    assert all("·" not in cell for row in table.paper.rows for cell in row)
    for text in (table.note, table.paper.note):
        assert "BLEU nrefs:1|case:mixed|eff:no|tok:13a" in text
        assert "chrF nrefs:1|case:mixed|eff:yes|nc:6" in text
    assert "(or *)" not in table.note and "* marks" in tables.terminal(table)
    assert "Bold marks" in tables.markdown(table)
    [chosen] = report.tables(["attention", "chrf", "minutes"])
    assert "over 3 seeds" in chosen.note and "over 3 seeds" in chosen.paper.note
    assert "BLEU" not in chosen.note and "chrF nrefs" in chosen.note
    assert chosen.paper.head == ["attention", "chrF", "minutes"]


def test_rows_of_other_systems_have_a_name(tmp_path):
    runs = collect([str(usual_sweep(tmp_path / "sweep"))]).finished
    [file] = (tmp_path / "sweep").glob("dot1/test.txt")
    other = result_of_file(file, "joey", runs, Metric(tokenize="13a"))
    ours = [replace(run, settings={"system": "nmt", **run.settings}) for run in runs]
    report = Report.of([*ours, other], [], "exact", samples=0)
    for names, settings in (
        (["attention", "bleu"], ["attention"]),
        (["bleu"], ["decoder", "attention"]),  # several rows are called nmt
    ):
        [table] = report.tables(names)
        assert list(table.head) == ["system", *settings, "BLEU"]
        assert "joey" in [row[0] for row in table.rows]
    best = result_of_file(
        tmp_path / "sweep/dot1/test.reference.txt", "best", runs, Metric(tokenize="13a")
    )
    [table] = Report.of([*ours, best], [], None, samples=10).tables()
    assert list(table.head[:3]) == ["system", "decoder", "attention"]
    [table] = Report.of([*ours, best], [], None, samples=10).tables(["p seeds"])
    assert table.rows[0][0] == "best"
    # Without a deviation of the best row, the test over seeds compares with the best of ours.
    assert [row[-1] for row in table.rows][:2] == ["–", "–"]
    assert all(row[-1] != "–" for row in table.rows[2:])
    [table] = Report.of(runs, [], "exact").tables(["bleu"])
    assert list(table.head) == ["decoder", "attention", "BLEU"]


def test_a_page_names_a_command_of_nmt_only(monkeypatch):
    for program, is_shown in (
        (f"{Path(nmt.__file__).parent}/report.py", True),
        ("/x/nmt/my.py", False),
    ):
        monkeypatch.setattr("sys.argv", [program, "x"])
        assert ("Command: python -m nmt.report x" in origin()) == is_shown
        assert any(line.startswith("Command") for line in origin()) == is_shown


def test_a_page_may_name_a_file_whose_name_is_not_utf8():
    assert b"run?" in page("run\udcff", "", [])


@pytest.mark.exhaustive
@needs_pdflatex
def test_a_usual_report_is_narrower_than_an_article_page(tmp_path):
    runs = collect([str(usual_sweep(tmp_path / "sweep"))]).finished
    report = Report.of(runs, [], None, samples=10, trials=10)
    lines = runs[0].lines(".reference")
    outputs = {f"{run.settings['attention']}-seed{run.seed}": run.lines() for run in runs[:5:2]}
    compared = Comparison(
        lines, lines, outputs, Metric(tokenize="13a"), {}, "it", samples=10, trials=10
    )
    texts = map(tables.latex, [*report.tables(), score_table(compared)])
    assert max(pdflatex(tmp_path, "".join(texts)), default=0) < 5


@pytest.mark.exhaustive
@needs_pdflatex
def test_tables_compile(small_run, tmp_path):
    """The tables of nmt.report and of nmt.compare, with all characters that TeX reserves."""
    translations = f"{small_run}/test.txt"
    odd = tmp_path / "odd_system.txt"
    lines = (small_run / "test.txt").read_text().splitlines()
    odd.write_text("".join(f"100 % & $5 #1 x_y a^b ~ {{}} \\ {line}\n" for line in lines))
    typed = [small_run, f"systems=[{translations}]", f"output={tmp_path}/out"]
    assert run("report", *typed).returncode == 0
    typed = [f"reference={small_run}/test.reference.txt", translations, odd]
    assert run("compare", *typed, f"output={tmp_path}/differences").returncode == 0
    tables = "".join((tmp_path / f"{name}.tex").read_text() for name in ("out", "differences"))
    assert max(pdflatex(tmp_path, tables), default=0) < 5


@pytest.mark.parametrize(("metric", "best"), [("bleu", 2.0), ("ter", 1.0)])
def test_the_best_run_has_the_best_validation(metric, best):
    scores = [{metric: 1.0}, {}, {metric: 2.0}]
    is_lower = metric == "ter"
    runs = [
        SimpleNamespace(metric=metric, validation=validation, lower_is_better=is_lower)
        for validation in scores
    ]
    chosen = Configuration({}, runs).best_by_validation()
    assert chosen.validation == {metric: best}


@pytest.mark.parametrize(
    ("tokenize", "signed"),
    [("ja-mecab", "ja-mecab-0.996-IPA"), ("char", "char"), ("none", "none"), ("13a", "")],
)
def test_a_run_is_scored_again_with_the_options_of_its_signatures(sweep, tokenize, signed):
    run = collect([str(sweep)]).finished[0]
    signatures = {
        "bleu": f"nrefs:1|case:lc|eff:no|tok:{signed}|smooth:exp|version:2.6.0" if signed else "",
        "chrf": "nrefs:1|case:lc|eff:yes|nc:4|nw:0|space:no|version:2.6.0",
    }
    expected = Metric(tokenize=tokenize, lowercase=True, char_order=4)
    assert replace(run, signatures=signatures).scorer == expected


def test_a_report_uses_all_references(tmp_path):
    """The second reference equals the translations, so every score and test must be perfect."""
    folder = make_run(tmp_path / "one", "luong", 1, 0.5)
    shutil.copy(folder / "test.txt", folder / "test.reference2.txt")
    runs = collect([str(tmp_path)]).finished
    both = with_systems(runs, [f"same={folder}/test.txt"])
    assert both[1].scores["bleu"] == pytest.approx(100) == both[1].scores["exact"]
    full = [replace(run, scores={**run.scores, "bleu": 100.0}) for run in both]
    ranking = Report.of(full, [], "bleu", samples=20, trials=20).rankings[0]
    tests = [row.over_sentences for row in ranking.rows]
    assert [test.score for test in tests] == pytest.approx([100, 100])
    assert all(score > 99.9 for score in charts._scores_by_length(runs[0]).values())


def test_other_systems_need_their_own_names_and_a_finished_run(tmp_path):
    folder = make_run(tmp_path / "one", "luong", 1, 0.5)
    runs = collect([str(tmp_path)]).finished
    file = folder / "test.txt"
    path = tmp_path / "lr=0.1" / "out.txt"
    path.parent.mkdir()
    shutil.copy(file, path)
    for system, name in ((str(path), "out.txt"), (f"x={path}", "x")):
        assert with_systems(runs, [system])[1].settings["system"] == name
    for systems in ([f"nmt={file}"], [f"a={file}", f"a={folder}/test.reference.txt"]):
        with pytest.raises(UserError, match="used more than once"):
            with_systems(runs, systems)
    with pytest.raises(UserError, match="no run is finished"):
        with_systems([], [str(file)])
    # Neither the costs nor the number of runs include the other tool.
    report = Report.of(with_systems(runs, [f"a={file}"]), [], None, samples=10)
    assert "1 run of 1 configuration;" in tables_page(report, tmp_path)


def tables_page(report, folder):
    from nmt.analysis.run_report import report_page

    return report_page(report, report.tables(), folder / "report").decode()


def test_compressed_translations_of_another_system(tmp_path):
    folder = make_run(tmp_path / "one", "luong", 1, 0.5)
    packed = tmp_path / "out.txt.gz"
    packed.write_bytes(gzip.compress((folder / "test.txt").read_bytes()))
    runs = with_systems(collect([str(tmp_path)]).finished, [f"a={tmp_path}/out.txt"])
    assert runs[1].lines() == runs[0].lines()


def test_scores_of_different_settings_are_not_tested(tmp_path, caplog):
    for name, tokenize in (("luong", "13a"), ("fixed", "char")):
        folder = make_run(tmp_path / name, name, 1, 0.5)
        results = json.loads((folder / "results.json").read_text())
        signature = results["scores"]["bleu"]["signature"]
        results["scores"]["bleu"]["signature"] = signature.replace("13a", tokenize)
        (folder / "results.json").write_text(json.dumps(results))
    report = Report.of(collect([str(tmp_path)]).finished, [], "bleu", samples=10)
    assert "different settings of the metric" in caplog.text
    [table] = report.tables()
    assert "tok:13a" in table.note and "tok:char" in table.note


def test_runs_without_a_common_metric(sweep):
    run = collect([str(sweep)]).finished[0]
    with pytest.raises(UserError, match="no common metric"):
        Report.of([run, replace(run, scores={"f1": 1.0})], [], None)


def test_negative_and_undefined_values_are_drawn(sweep):
    """A metric of a plugin may be negative, and the loss of a diverged run is NaN."""
    table = ReportTable("t", ["name", "score"], [["a", "-1.0"], ["b", "0.0"]])
    assert not tables.with_best(table, [[(0, 1), (1, 1)]]).shares
    runs = [
        replace(
            run,
            scores={"mine": -1.0 - i},
            curve=[{"kind": "validation", "epoch": 1, "loss": math.nan, "bleu": 1.0}],
        )
        for i, run in enumerate(collect([str(sweep)]).finished)
    ]
    [ranking] = Report.of(runs, [], "mine").rankings
    [axes] = charts.bars(ranking).axes
    low, high = axes.get_xlim()
    assert low < -9 and high > -1
    charts.learning_curves(ranking)


def test_test_and_validation_runs_have_charts_of_their_own(tmp_path):
    pytest.importorskip("matplotlib", reason="pip install '.[plots]'")
    for part in ("test", "validation"):
        for decoder, quality in (("luong", 0.7), ("bahdanau", 0.9)):
            make_run(tmp_path / part / decoder, decoder, 1, quality, part=part)
    report = Report.of(collect([str(tmp_path)]).finished, [], None)
    text = tables_page(report, tmp_path)
    for title in ("Learning curves of test runs", "Learning curves of validation runs"):
        assert f"{title}</h2>" in text


def test_markdown_shows_every_character():
    assert tables.escaped("~~a~~ &amp; b & c") == r"\~\~a\~\~ \&amp; b & c"


def scored(folder, decoder, seed, **scores):
    """A run with the given final scores and without outputs."""
    run = make_run(folder / f"{decoder}{seed}", decoder, seed, 0.5)
    file = run / "results.json"
    results = json.loads(file.read_text())
    values = {name.replace("__", "/"): {"score": score} for name, score in scores.items()}
    file.write_text(json.dumps({**results, "scores": values}))
    return run


def test_losses_of_further_sets_are_better_if_lower(tmp_path):
    for decoder, loss in (("luong", 1.1), ("fixed", 3.1)):
        scored(tmp_path, decoder, 1, second__loss=loss)
    [ranking] = Report.of(collect([str(tmp_path)]).finished, [], "second/loss").rankings
    assert [row.label for row in ranking.rows] == ["luong", "fixed"]
    assert "luong is best: 1.1000 second/loss" in ranking.sentence
    assert "fixed is 2.0000 higher" in ranking.sentence
    [metrics, _] = [entry["metrics"] for entry in json.loads(entries_text([ranking]))]
    assert metrics["second/loss"]["unit"] == "nats"


def test_the_worst_configuration_is_significantly_worse(tmp_path):
    figures = {
        "luong": (81, 79, 82, 80, 79.5, 79.7),
        "fixed": (78.5, 79.2, 78.8, 79.0, 78.9, 79.0),
        "bahdanau": (73, 84.6),
    }
    for decoder, values in figures.items():
        for seed, value in enumerate(values, 1):
            scored(tmp_path, decoder, seed, macro_f1=value)
    [ranking] = Report.of(collect([str(tmp_path)]).finished, [], "macro_f1").rankings
    if any(not ranking.may_be_best(row) for row in ranking.rows[1:]):
        worst = [row for row in ranking.rows[1:] if not ranking.may_be_best(row)][-1]
        assert f"; {worst.label} is " in ranking.sentence


def test_settings_of_the_same_name_have_their_component():
    values = {"encoder.dropout": "0.1", "decoder.dropout": "0.2", "trainer.lr": "3"}
    label = Configuration(values, []).label
    assert label == "encoder.dropout=0.1, decoder.dropout=0.2, lr=3"


def test_a_linked_run_is_counted_once(tmp_path):
    run = make_run(tmp_path / "a", "luong", 1, 0.5)
    (tmp_path / "best").symlink_to(run)
    assert len(collect([str(tmp_path), f"{tmp_path}/a/../a"]).finished) == 1


def test_ids_of_entries_are_unique_and_ascii(tmp_path):
    runs = [replace(run, settings={"alpha": alpha}) for run, alpha in zip(
        collect([str(make_run(tmp_path / str(n), "luong", 1, 0.5)) for n in range(3)]).finished, ("1", "-1", "ä"), strict=True
    )]  # fmt: skip
    entries = json.loads(entries_text(Report.of(runs, [], None, samples=10).rankings))
    ids = [entry["id"] for entry in entries]
    assert len({*ids}) == 3
    assert all(re.fullmatch("[a-z][a-z0-9_]*", each) for each in ids)


@pytest.mark.parametrize("count", [2, 5, 10, 11, 20, 51])
def test_intervals_have_the_quantiles_of_student(count):
    stats = pytest.importorskip("scipy.stats")
    values = [float(i % 3) for i in range(count)]
    interval = result_entries._summary(values, "BLEU")["interval"]
    error = statistics.stdev(values) / math.sqrt(count)
    expected = stats.t.ppf(0.975, count - 1) * error
    assert (interval["high"] - interval["low"]) / 2 == pytest.approx(expected, rel=0.003)


def test_names_and_marks_at_the_beginning_of_a_row():
    table = ReportTable("Words: a:100:x.txt", ["word", "n"], [["*", "1"], ["[x]", "2"]])
    assert "a:100:x.txt" in "".join(tables.terminal(table).split())
    assert not re.search(r"^[*\[]", tables.latex(table), re.MULTILINE)


def test_the_largest_p_value_decides():
    def row(score, over_seeds, *chances):
        runs = [SimpleNamespace(scores={"bleu": score}, seed=seed) for seed in (1, 2)]
        result = SignificanceResult(score, 0.1, chances, "")
        return Configuration({}, runs, result, over_seeds)

    rows = [
        row(30.0, None), row(29.0, 0.2, 0.01, 0.3), row(28.0, 0.01, 0.2, 0.3),
        row(27.0, 0.2, 0.01, 0.02),
    ]  # fmt: skip
    ranking = Ranking("test", "bleu", rows)
    assert [*map(ranking.may_be_best, rows)] == [True, True, False, False]
    assert ranking.chances(rows[1]) == [0.3, 0.2]
    assert as_largest(0.01, 0.2) == "0.200"
