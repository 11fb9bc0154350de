"""HTML pages of reports, comparisons, attention maps and labels, checked by axe-core in Chromium."""

import shutil

import numpy as np
import pytest
from accessibility import violations
from commands import run
from test_report import make_run

from nmt.drawing.word_importance import Classified, write_explanations

pytestmark = pytest.mark.exhaustive


@pytest.fixture(params=[("light", 1400), ("dark", 390)], ids=["wide light", "phone dark"])
def check(request, browser):
    """Returns a function that checks the HTML page in a file, with all details open."""
    scheme, width = request.param
    size = {"width": width, "height": 900}
    context = browser.new_context(viewport=size, color_scheme=scheme)

    def check_file(file):
        page = context.new_page()
        page.goto(f"file://{file}")
        page.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true })")
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width

    yield check_file
    context.close()


def test_reports_are_accessible(check, tmp_path):
    for decoder, quality in (("luong", 0.9), ("fixed", 0.3)):
        for seed in (1, 2):
            make_run(tmp_path / f"{decoder}-seed{seed}", decoder, seed, quality)
    done = run("report", tmp_path, "samples=20", "trials=20")
    assert done.returncode == 0, done.stderr.decode()
    check(tmp_path / "report.html")


def test_comparisons_are_accessible(check, small_run, tmp_path):
    lines = (small_run / "test.reference.txt").read_text().splitlines()
    (tmp_path / "other").write_text("".join(line[: len(line) // 2] + "\n" for line in lines))
    options = [
        f"reference={small_run}/test.reference.txt", f"source={small_run}/test.source.txt",
        f"output={tmp_path}/out", "samples=20", "trials=20", "examples=6",
    ]  # fmt: skip
    done = run("compare", *options, small_run, tmp_path / "other")
    assert done.returncode == 0, done.stderr.decode()
    check(tmp_path / "out.html")


def test_attention_maps_are_accessible(check, small_run, tmp_path):
    shutil.copytree(small_run, tmp_path / "same")
    options = [f"model={small_run}", f"compare=[{tmp_path}/same]"]
    text = "a b c d\n\na b c d e f g h a b c d e f g h a b c d e f\n"
    done = run("translate", *options, f"attention_map={tmp_path}/map.html", stdin=text)
    assert done.returncode == 0, done.stderr.decode()
    check(tmp_path / "map.html")


def test_labelled_texts_are_accessible(check, tmp_path):
    words = ["a", "very", "good", "film", "with", "a", "dull", "end"]
    probabilities = {"good": 0.7, "bad": 0.2, "neither": 0.1}
    answer = Classified(("good",), probabilities, words, np.linspace(0, 0.25, len(words)))
    effects = [np.linspace(-0.4, 0.2, len(words)).tolist()] * 2
    lead = ["A sentence with the result."]
    write_explanations([answer] * 2, tmp_path / "page.html", [["good"], ["bad"]], effects, lead)
    check(tmp_path / "page.html")
