"""Papers: whatever the documentation names has an entry, and the command prints those that matter."""

import re
from pathlib import Path

import pytest
from commands import ROOT, run

from nmt.analysis.citations import SETTINGS, references, uses
from nmt.storage import checkpoint as ckpt

ENTRIES = re.findall(
    r"^@\w+\{([^,]+),", (ROOT / "nmt/papers.bib").read_text(encoding="utf-8"), re.MULTILINE
)
PAGES = [
    p
    for ending in ("py", "yaml", "md")
    for folder in ("nmt", "conf")
    for p in Path(ROOT, folder).rglob(f"*.{ending}")
]


def test_references_become_keys():
    text = "Bahdanau et al. 2015, eq. 3; Zoph & Knight 2016 (Luong, Sutskever et al.\n2015) van Rijsbergen 1979, in 2016"
    assert references(text) == [
        "bahdanau-et-al-2015",
        "zoph-knight-2016",
        "luong-sutskever-et-al-2015",
        "rijsbergen-1979",
    ]


def test_every_paper_that_is_named_has_an_entry():
    missing = {
        str(page.relative_to(ROOT)): unknown
        for page in PAGES
        if (unknown := keys_in(page) - {*ENTRIES})
    }
    assert not missing


def keys_in(page):
    """Keys of the papers that a page names."""
    result = references(page.read_text(encoding="utf-8"))
    return {key for key in result if not key.startswith(("measured", "wmt"))}


def test_entries_are_bibtex_and_each_is_named_somewhere():
    named = {
        key
        for page in [*PAGES, ROOT / "README.md"]
        for key in references(page.read_text(encoding="utf-8"))
    }
    assert set(ENTRIES) - {"nmt"} <= named
    assert sorted(set(ENTRIES)) == ENTRIES
    for line in (ROOT / "nmt/papers.bib").read_text(encoding="utf-8").splitlines():
        if line.startswith("@"):
            assert line.count("{") == line.count("}")
            assert {"author", "title", "year"} <= set(re.findall(r"(?:^|[{, ])(\w+)=\{", line))


@pytest.mark.exhaustive
def test_all_papers_or_those_of_a_model(small_run):
    everything = run("cite").stdout.decode()
    assert everything.count("\n@") + 1 == len(ENTRIES)
    keys = re.findall(
        r"^@\w+\{([^,]+),", run("cite", f"model={small_run}").stdout.decode(), re.MULTILINE
    )
    assert {"bahdanau-et-al-2015", "cho-et-al-2014", "kudo-richardson-2018"} <= set(keys)
    assert not {"tu-et-al-2016", "nguyen-chiang-2018"} & set(keys)


def test_papers_of_single_settings(small_run, tmp_path):
    saved, model = ckpt.read(ckpt.find_checkpoint(str(small_run))), tmp_path / "model.safetensors"
    saved.meta["config"]["model"]["lexical"] = True
    meta = {key: value for key, value in saved.meta.items() if key not in ("format", "checksum")}
    ckpt.write(model, meta, saved.tensors)
    printed = run("cite", f"model={model}").stdout.decode()
    keys = set(re.findall(r"^@\w+\{([^,]+),", printed, re.MULTILINE))
    assert {
        "nguyen-chiang-2018",
        "cho-et-al-2014",
        "szegedy-et-al-2016",
    } <= keys and "when" not in printed
    switched_off = {
        "see-et-al-2017",
        "ba-et-al-2016",
        "gers-et-al-2000",
        "semeniuta-et-al-2016",
        "chen-et-al-2016",
        "williams-1992",
    }
    assert not switched_off & keys


@pytest.mark.parametrize(
    ("paper", "expected"),
    [
        ("gu-et-al-2016", False),
        ("nguyen-chiang-2018", True),
        ("srivastava-et-al-2014", True),
        ("gers-et-al-2000", True),
        ("cho-et-al-2014", False),
        ("ba-et-al-2016", True),
        ("barone-et-al-2017", True),
        ("provilkov-et-al-2020", False),
        ("jacob-et-al-2018", False),
        ("williams-1992", True),
    ],
)
def test_settings_that_use_a_paper(paper, expected):
    settings = {"model.copy": False, "model.lexical": True, "encoder.dropout": 0.3}
    settings |= {
        "window.estimator": "reinforce",
        "model.dropout": 0.0,
        "encoder.cell": "norm_lstm",
        "encoder.transition_depth": 2,
    }
    assert uses(paper, {**settings, "tokenizer.model": "bpe", "tokenizer.sampling": 0}) is expected


def test_settings_name_papers_that_have_an_entry():
    assert set(SETTINGS) <= set(ENTRIES)


@pytest.mark.parametrize(
    ("depth", "expected"), [(1, False), (2, True), (9, True), (10, True), (100, True)]
)
def test_deep_transitions_have_a_paper(depth, expected):
    assert uses("pascanu-et-al-2014", {"encoder.transition_depth": depth}) is expected
