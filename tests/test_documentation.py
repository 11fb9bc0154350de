"""Commands of the documentation can be typed, and the files that it names exist."""

import argparse
import itertools
import re
import runpy
import shlex
import sys
from pathlib import Path

import pictures
import pytest
from commands import ROOT

import nmt
from nmt.configuration.command_words import POSITIONAL, with_key
from nmt.configuration.compose import compose
from nmt.configuration.configure import COMMANDS, configure
from nmt.foundation.errors import UserError
from nmt.pipeline.one_after_another import variants

PAGES = [
    ROOT / "README.md",
    *(
        ROOT / folder / "README.md"
        for folder in ("nmt", "nmt/serving", "nmt/exporting", "scripts", "tests")
    ),
    *sorted((ROOT / "scripts/results").glob("*.md")),
    *sorted((ROOT / "conf").glob("*.md")),
    *sorted((ROOT / "conf").rglob("*.yaml")),
    *sorted((ROOT / "nmt").glob("*.py")),
    ROOT / "scripts/demo",
]
PROGRAM = rf"(?:python|\.venv/bin/python) -m nmt\.({'|'.join(COMMANDS)})"


def commands(page: Path) -> list[tuple[str, list[str]]]:
    """(command, overrides and flags) of every command on a page; what it leaves open with … or [ ] is cut off."""
    text = re.sub(r" *\\\n\s*", " ", page.read_text(encoding="utf-8"))
    text = re.sub(r"\n#\s{3,}(?=data\.)", " ", text)  # a command in a comment that continues
    result = []
    for match in re.finditer(rf"{PROGRAM}([^`\n]*)", text):
        typed = re.split(r"\s{2,}|\s#|[|<>…]|\s\[|\"\$", match[2])[0]
        number = itertools.count(1)
        typed = re.sub(
            r"\bFILE\b", lambda _, n=number: f"FILE{next(n)}", typed
        )  # FILE is another file each time
        words = [
            word
            for word in shlex.split(typed)
            if "=" in word or word == "-m" or match[1] in POSITIONAL
        ]
        result.append((match[1], with_key(match[1], words)))
    return result


EVERY = [
    (page.relative_to(ROOT).as_posix(), *command) for page in PAGES for command in commands(page)
]


def test_there_are_commands_to_check():
    assert len(EVERY) > 70
    assert {command for _, command, _ in EVERY} == set(COMMANDS)


@pytest.mark.parametrize(("page", "command", "words"), [
    pytest.param(*e, marks=[] if e[0] in ("README.md", "nmt/README.md") else [pytest.mark.exhaustive])
    for e in {(command, *words): (page, command, words) for page, command, words in reversed(EVERY)}.values()
    if not any(w.startswith("resume=OUT") or w.startswith("resume=RUN") for w in e[2])
])  # fmt: skip
def test_a_documented_command_is_without_faults(page, command, words, small_run):
    meant = {
        "init=": f"init={small_run}",
        "data.config=": f"data.config={ROOT}/tests/mixture.yml",
        "attention_map=demo/": "attention_map=map.html",  # scripts/demo has created the folder
    }
    overrides = [
        next((value for key, value in meant.items() if word.startswith(key)), word)
        for word in words
        if word != "-m"
    ]
    if command == "classify" and any(word.startswith("model=") for word in overrides):
        command = "label"
    sweep = "-m" in words
    if sweep:  # intervals are for trials; the grids of a preset are swept with what is typed
        overrides = [
            re.sub(r"=.*interval\((.*?),.*", r"=\1", word)
            for word in overrides
            if not word.startswith("hydra")
        ]
        grids = compose(command, [variants([word])[0][0] for word in overrides])["sweep"].get(
            "grids"
        ) or [""]
        typed = [word for word in overrides if not word.startswith("sweep")]
        overrides = [*grids[0].split(), *typed, "sweep=grid"]
    if {"attention=cosine", "objective=entropy"} & {*overrides}:
        pytest.skip("these parts are made and tested in test_command_line.py and test_plugins.py")
    for one in variants(overrides) if sweep else [overrides]:
        configure(command, one)


@pytest.mark.parametrize(("page", "command", "words"), [e for e in EVERY if any(w.startswith("resume=") and w not in ("resume=true", "resume=auto") for w in e[2])])  # fmt: skip
def test_a_documented_resume_is_without_faults(page, command, words, small_run):
    resumed = f"resume={small_run}"
    overrides = [resumed if word.startswith("resume=") else word for word in words]
    if command == "train":
        configure(command, overrides)
    else:  # read to the end: it is a run of nmt.train
        with pytest.raises(UserError, match="a translation model, for nmt.translate"):
            configure(command, overrides)


@pytest.mark.parametrize("script", sorted(path.stem for path in (ROOT / "scripts").glob("*.py")))
def test_documented_scripts_take_their_arguments(script, monkeypatch):
    """A script accepts the arguments that its docstring and the pages name."""
    text = "\n".join(
        page.read_text(encoding="utf-8") for page in [*PAGES, ROOT / f"scripts/{script}.py"]
    )
    lines = re.findall(rf"python scripts/{script}\.py([^`\n]*(?:\\\n[^`\n]*)*)", text)
    assert lines
    parse = argparse.ArgumentParser.parse_args

    def parsed(parser, *_):
        for line in lines:
            words = re.sub(r"[\[\]…\\]|data=text data\.train=…", " ", line).split()
            parse(parser, words)
        raise SystemExit(0)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
    monkeypatch.setattr(sys, "argv", [script])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / f"scripts/{script}.py"), run_name="__main__")
    assert end.value.code == 0


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.suffix == ".md"], ids=lambda p: p.parent.name
)
def test_files_that_a_page_names_are_there(page):
    text = re.sub(
        r"```python.*?```|```yaml.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    links = re.findall(r"\]\((?!https?:)([^)#]+?)\)", text)
    paths = re.findall(r"`((?:nmt|conf|scripts|tests|training|task|search|decoder|network|layers|inference|configuration|foundation|corpus|objective|attention|encoder)/[\w/.]+\.(?:py|yaml|md|txt))`", text)  # fmt: skip
    assert [link for link in links if not (page.parent / link).exists()] == []
    missing = [
        p
        for p in paths
        if "NAME" not in p and not any((base / p).exists() for base in (ROOT, page.parent))
    ]
    assert missing == []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_features_name_tests_that_are_there():
    rows = re.findall(
        r"^\|.*\| (.*`test_\w+\.py`.*) \|$",
        (ROOT / "tests/README.md").read_text("utf-8"),
        re.MULTILINE,
    )
    named = 0
    for row in rows:
        for part in row.split(";"):
            files, functions = (
                re.findall(r"`(test_\w+\.py)`", part),
                re.findall(r"`(test_\w+)`", part),
            )
            for file in files:
                text = (ROOT / "tests" / file).read_text("utf-8")
                missing = [name for name in functions if f"def {name}(" not in text]
                assert not missing, (file, missing)
                named += len(functions)
    assert named > 40


def test_the_table_of_keys_is_current():
    import keys

    assert (ROOT / "conf/keys.md").read_text("utf-8") == keys.text(), "run: python scripts/keys.py"


@pytest.mark.parametrize("picture", sorted(pictures.SOURCES))
def test_pictures_show_the_pages_of_today(picture):
    """The code that a picture shows is that of its drawing."""
    command = f"python scripts/pictures.py {picture} RUN_DIR"
    assert pictures.recorded().get(picture) == pictures.sources_hash(picture), (
        f".assets/{picture} shows an older page or map: draw it again by `{command}`. If the "
        f"change is not visible in it: `python scripts/pictures.py --keep {picture}`"
    )


def test_the_hash_of_a_picture_ignores_comments():
    before = 'def f(x):\n    """Doc."""\n    # why\n    return x\n'
    assert pictures.code(before) == pictures.code("def f(x):\n    return x\n")
    assert pictures.code(before) != pictures.code("def f(x):\n    return -x\n")


def test_the_attention_example_of_the_guide_runs(small_run, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    page = (ROOT / "conf/python.md").read_text("utf-8")
    code = re.search(r"## Attention\n\n```python\n(.*?)```", page, re.DOTALL)[1]
    monkeypatch.chdir(tmp_path)
    names = {"translator": nmt.load(small_run)}
    exec(code, names)
    attention = names["attention"]
    assert attention.total.shape == (len(attention.target), len(attention.source))
    assert tuple(names["figure"].get_size_inches()) == (3.3, 3)
    assert (tmp_path / "map.pdf").stat().st_size > 1000
