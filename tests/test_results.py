"""The register of results is valid and append-only, and the pages have its figures."""

import copy
import json
import re
import statistics
import sys
from pathlib import Path

import pytest
import reproduce
import results
import torch
from commands import ROOT
from test_report import make_run

from nmt.analysis import collected_results, run_report
from nmt.analysis.result_entries import entries_text
from nmt.foundation.devices import processor_name

scipy_stats = pytest.importorskip("scipy.stats")

ENTRIES = results.register()
NEW = {
    **ENTRIES["multi30k_best"],
    "id": "new",
    "data": {"train": "a1"},
    "version": "0.1.0",
    "commit": "0123abc",
    "replaces": "multi30k_best",
}
NEW.pop("before_register")


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A folder for another register, with the schema of the repository and without templates."""
    monkeypatch.setattr(results, "REGISTER", tmp_path)
    monkeypatch.setattr(results, "templates", dict)
    monkeypatch.setattr(results, "committed", lambda: ())
    return tmp_path


def faults(folder, *entries):
    (folder / "a.json").write_text(results.dumps(list(entries)))
    return "\n".join(results.problems({entry["id"]: entry for entry in entries}))


def test_pages_have_the_figures_of_the_register(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["results.py", "--check"])
    results.main()


def test_every_template_is_used():
    used = {
        match[2]
        for page in results.pages()
        for match in results.MARKED.finditer(page.read_text("utf-8"))
    }
    assert used == set(results.templates())


def test_a_changed_page_is_reported(monkeypatch):
    texts = {"readme": "40.9"}
    assert results.written(ROOT / "README.md", {**results.templates(), **texts}).count("40.9") == 1
    text = "Training takes 7 minutes.\n<!-- results: readme -->\n8 s\n<!-- /results -->\n`9 s`\n"
    monkeypatch.setattr(results, "pages", lambda: [ROOT / "README.md"])
    monkeypatch.setattr(type(ROOT), "read_text", lambda *_: text)
    [fault] = results.unregistered()
    assert "README.md: 7 minutes: figure without an entry" in fault


@pytest.mark.parametrize(("change", "fault"), [
    ({}, ""),
    ({"seeds": None}, "seeds"),
    ({"commit": None}, "commit"),
    ({"data": None}, "data"),
    ({"seeds": None, "commit": None, "before_register": True}, ""),
    ({"kind": "quoted"}, "source"),
    ({"kind": "quoted", "source": "a paper", "commit": None}, ""),
    ({"kind": "reproduced"}, "reproduces"),
    ({"date": "yesterday"}, "date"),
    ({"colour": "red"}, "colour"),
    ({"replaces": "nothing"}, "replaces: nothing: entry not found"),
    ({"metrics": {"bleu": {"value": 3, "unit": "BLEU"}}}, "signature"),
    ({"metrics": {"seconds": {"value": 3, "unit": "s", "values": [2, 4]}}}, "one value per seed"),
])  # fmt: skip
def test_the_schema_refuses_wrong_entries(scratch, change, fault):
    text = faults(scratch, ENTRIES["multi30k_best"], {**NEW, **change})
    assert fault in text if fault else not text


def test_templates_name_no_replaced_entries(scratch, monkeypatch):
    monkeypatch.setattr(results, "templates", lambda: {"page": "{multi30k_best.bleu} BLEU"})
    text = faults(scratch, ENTRIES["multi30k_best"], NEW)
    assert text == "page: multi30k_best was replaced by another entry"


def test_ids_are_unique(scratch):
    assert "new: two entries have this id" in faults(scratch, ENTRIES["multi30k_best"], NEW, NEW)


def test_committed_entries_cannot_be_changed_or_removed(scratch, monkeypatch):
    changed = copy.deepcopy(ENTRIES["multi30k_best"])
    changed["metrics"]["bleu"]["value"] = 41.0
    monkeypatch.setattr(
        results, "committed", lambda: [("multi30k_best", ENTRIES["multi30k_best"]), ("demo", {})]
    )
    text = faults(scratch, changed)
    assert "multi30k_best: a committed entry was changed or removed" in text
    assert "demo: a committed entry was changed or removed" in text


def test_the_committed_history_is_read():
    if not results._git("log", "-1", "--format=%h", "--", "scripts/results/quality.json"):
        pytest.skip("no git history of the register")
    assert dict(results.committed())["multi30k_best"] == ENTRIES["multi30k_best"]


@pytest.mark.parametrize(("template", "text"), [
    ("{multi30k_best.bleu}", "40.75"),
    ("{multi30k_best.bleu:.1f} BLEU", "40.8 BLEU"),
    ("{multi30k_best.seconds} s", "9,507 s"),
    ("{multi30k_best.seconds:min}", "158"),
    ("{low_resource_1k.bleu:each .1f}", "13.9 · 14.4 · 14.0"),
    ("{low_resource_1k.bleu:± .2f}", "14.10 ± 0.26"),
    ("{monolingual_beam.bleu.values[1] - monolingual_sampling.bleu.values[1]:.1f}", "1.8"),
    ("{native_after.concat_bfloat16_tps / native_opennmt.concat_tps:.1f} ×", "2.6 ×"),
])  # fmt: skip
def test_formats_of_templates(template, text):
    assert results.filled(template, ENTRIES) == text


def test_rows_with_figures_older_than_a_change_are_marked():
    rows = "| a | {speed_nmt.beam_int8_per_s} |\n| b | {native_after.concat_bfloat16_tps} |\n| c | {speed_opennmt.beam_per_s} |"
    first, second, third, _, note = results.filled(rows, ENTRIES).split("\n")
    assert (first, second, third) == ("| a ‡ | 252 |", "| b | 5,202 |", "| c | 64.5 |")
    assert (
        note
        == "‡ marks times and speeds measured before the C++ extension was added to nmt (2026-11-26)."
    )


def test_an_unknown_figure_is_named():
    with pytest.raises(
        SystemExit, match=re.escape("multi30k_best.ter: metric not found; it has bleu")
    ):
        results.filled("{multi30k_best.ter}", ENTRIES)
    with pytest.raises(SystemExit, match=re.escape("nothing.bleu: entry not found")):
        results.filled("{nothing.bleu}", ENTRIES)


def test_entries_are_appended(scratch):
    (scratch / "quality.json").write_text(results.dumps([ENTRIES["multi30k_best"]]))
    (scratch / "report").write_text(json.dumps([NEW]))
    assert results.add(scratch / "report", "quality") == ["new"]
    assert [*results.register().values()] == [ENTRIES["multi30k_best"], NEW]
    with pytest.raises(
        SystemExit, match="nothing was added, because:\nnew: two entries have this id"
    ):
        results.add(scratch / "report", "quality")
    assert [*results.register().values()] == [ENTRIES["multi30k_best"], NEW]


def entries_of(*folders):
    collected = collected_results.collect([str(folder) for folder in folders])
    rankings = run_report.Report.of(collected.finished, [], None, samples=50).rankings
    return json.loads(entries_text(rankings))


RECORD = {
    "commands": [["/nmt/nmt/train.py", "decoder=luong", "seed=1", "run_dir=OUT"], ["train.py", "resume=OUT"]],
    "versions": {"nmt": "0.1.0", "torch": "2.13.0"},
    "commit": "0123abc",
    "threads": 1,
    "device": "cpu",
    "processor": "AMD EPYC",
}  # fmt: skip


def test_a_report_has_valid_entries_of_single_runs(scratch):
    run = make_run(scratch / "runs/luong", "luong", 1, 0.9)
    (run / "run.json").write_text(json.dumps(RECORD))
    [entry] = entries_of(run)
    assert not faults(scratch, entry)
    assert entry["id"] == "run_luong"
    assert entry["command"] == "python -m nmt.train decoder=luong seed=1"
    assert (entry["seeds"], entry["machine"], entry["data"]) == (
        [1],
        "AMD EPYC, 1 thread",
        {"train": "d"},
    )
    bleu, exact = entry["metrics"]["bleu"], entry["metrics"]["exact"]
    assert bleu["signature"].startswith("nrefs:1|")
    assert bleu["interval"]["over"] == "sentences"
    assert bleu["interval"]["low"] < bleu["value"] < bleu["interval"]["high"]
    # Wilson's interval of `count` of 60 sentences, in per cent
    count = round(exact["value"] * 60 / 100)
    expected = scipy_stats.binomtest(count, 60).proportion_ci(method="wilson")
    assert exact["interval"]["low"] == pytest.approx(100 * expected.low, abs=0.01)
    assert exact["interval"]["high"] == pytest.approx(100 * expected.high, abs=0.01)
    assert entry["weights"] == [None]  # a run of an older version
    assert entry["metrics"]["tokens_per_second"] == {"value": 150, "unit": "target tokens/s"}


def test_a_report_has_one_entry_for_several_seeds(scratch):
    runs = [make_run(scratch / f"runs/luong-seed{seed}", "luong", seed, 0.9) for seed in (1, 2, 3)]
    for run in runs:
        (run / "run.json").write_text(json.dumps(RECORD))
    [entry] = entries_of(*runs)
    assert not faults(scratch, entry)
    assert (entry["seeds"], entry["command"]) == ([1, 2, 3], "python -m nmt.train decoder=luong")
    bleu = entry["metrics"]["bleu"]
    mean, error = statistics.mean(bleu["values"]), scipy_stats.sem(bleu["values"])
    low, high = scipy_stats.t.interval(0.95, 2, mean, error)
    assert bleu["interval"] == {
        "low": pytest.approx(low, abs=0.01),
        "high": pytest.approx(high, abs=0.01),
        "over": "seeds",
    }
    assert entry["metrics"]["seconds"]["values"] == [60, 120, 180]


def test_unknown_facts_of_a_run_are_null(scratch):
    [entry] = entries_of(make_run(scratch / "old", "luong", 1, 0.9))
    assert (entry["command"], entry["machine"], entry["commit"]) == (None, None, None)
    assert "commit" in faults(scratch, entry)


def test_the_processor_has_a_name():
    assert processor_name(torch.device("cpu"))


@pytest.mark.parametrize(("name", "overrides", "reason"), [
    ("lium_cvc", [], "quoted from submission of LIUM-CVC"),
    ("speed_opennmt", [], "no command of nmt"),
    ("speed_nmt", [], "no command of nmt"),
    ("first_luong", [], "only single runs"),
    ("low_resource_1k", [], "data.train=DIR/train@:1000 data.validation=DIR/val"),
    ("low_resource_1k", ["data.train=a", "data.validation=b"], "in place of: data.test=DIR/"),
])  # fmt: skip
def test_entries_without_a_command_are_refused(name, overrides, reason):
    with pytest.raises(SystemExit, match=re.escape(reason)):
        reproduce.commands(ENTRIES[name], overrides, Path("new"))


def test_each_seed_is_run_again():
    words = "-m nmt.train experiment=multi30k_best metric.tokenize=none resume=auto seed=2 run_dir=new/seed2"
    assert reproduce.commands(ENTRIES["best_tok_s2"], [], Path("new")) == [words.split()]
    overrides = ["data.train=a", "data.validation=b", "data.test=c"]
    runs = reproduce.commands(ENTRIES["low_resource_1k"], overrides, Path("new"))
    assert [words[-2:] for words in runs] == [
        [f"seed={seed}", f"run_dir=new/seed{seed}"] for seed in (1, 2, 3)
    ]
    assert {*overrides} < {*runs[0]}


def test_a_reproduction_has_the_former_settings_of_its_recipe():
    overrides = ["data.train=a", "data.validation=b", "data.test=c"]
    [run, *_] = reproduce.commands(ENTRIES["little_3k_r_drop"], overrides, Path("new"))
    assert {"sizes.encoder=64", "model.lexicon=null", "trainer.max_epochs=24"} < {*run}
    assert "trainer.max_epochs=48" not in run
    words = ["experiment=low_resource_3k"]
    assert reproduce.former_settings("2026-11-28", words) == []
    # The settings of the recipes are those of the configuration when the entry was measured.
    assert "sizes.encoder=64" in reproduce.former_settings("2026-11-27", words)


@pytest.mark.parametrize(("old", "new", "verdict"), [
    ({"value": 30, "unit": "BLEU", "interval": {"low": 29, "high": 31}}, {"value": 30.5, "unit": "BLEU"}, [True]),
    ({"value": 30, "unit": "BLEU", "interval": {"low": 29, "high": 31}}, {"value": 31.5, "unit": "BLEU"}, [False]),
    ({"value": 30, "unit": "BLEU"}, {"value": 31, "unit": "BLEU", "interval": {"low": 29.5, "high": 32}}, [True]),
    ({"value": 30, "unit": "BLEU"}, {"value": 31, "unit": "BLEU", "interval": {"low": 30.5, "high": 32}}, [False]),
    ({"value": 30, "unit": "BLEU"}, {"value": 30, "unit": "BLEU"}, []),
    ({"value": 100, "unit": "s"}, {"value": 124, "unit": "s"}, [True]),
    ({"value": 100, "unit": "s"}, {"value": 79, "unit": "s"}, [False]),
])  # fmt: skip
def test_scores_are_compared_by_intervals_and_costs_by_a_tolerance(old, new, verdict):
    verdicts = reproduce.compare({"metrics": {"x": old}}, {"metrics": {"x": new, "y": new}}, 0.25)
    assert [agrees for _, agrees in verdicts.values()] == verdict


def test_a_dry_run_prints_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["reproduce", "multi30k_fast", "--dry-run"])
    reproduce.main()
    output = capsys.readouterr().out
    assert "The entry took 137 s of training per run" in output
    assert (
        "python -m nmt.train experiment=multi30k_fast resume=auto seed=1 run_dir=runs/reproduce/multi30k_fast-"
        in output
    )


def test_an_unknown_name_is_answered_by_similar_ones(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["reproduce", "multi30k_bst"])
    with pytest.raises(SystemExit, match="entry not found; similar entries: multi30k_best"):
        reproduce.main()
