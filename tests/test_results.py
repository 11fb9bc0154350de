"""The register of results is valid and append-only, and the pages have its figures."""

import copy
import json
import re
import sys

import pytest
import results
from commands import ROOT

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
    """A folder for another register, with the templates and the schema of the repository."""
    monkeypatch.setattr(results, "REGISTER", tmp_path)
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
    assert (first, second, third) == ("| a † | 252 |", "| b | 5,202 |", "| c | 64.5 |")
    assert note == "† Measured before a later change of nmt: C++ extension (2026-11-26)."


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
