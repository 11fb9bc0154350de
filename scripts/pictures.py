"""Draws the pictures of the READMEs that show pages and attention maps, and records the code that they show.

    python scripts/pictures.py page.png RUN_DIR                   the page of nmt.serve; a model from English
    python scripts/pictures.py attention.png RUN_DIR [RUN_DIR …]  attention of one to four models from English
    python scripts/pictures.py explanations.png RUN_DIR           the page of nmt.label; a classifier of English text
    python scripts/pictures.py --keep page.png                    records that the picture still shows today's code

The pictures are written to .assets/, and the hashes of their sources to .assets/pictures.json. A test compares the
hashes with today's sources. Pages are photographed in Chromium, which needs Playwright.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from load import started_address

import nmt
from nmt.foundation.errors import quoted
from nmt.inference.explanations.word_removal import write_effects

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[1]
ASSETS = ROOT / ".assets"
RECORD = ASSETS / "pictures.json"
SOURCES = {
    "page.png": ("nmt/serving/page*", "nmt/serving/page/*"),
    "attention.png": (
        "nmt/drawing/attention_figure.py",
        "nmt/drawing/attention_map.py",
        "nmt/drawing/plots.py",
    ),
    "explanations.png": (
        "nmt/drawing/word_importance.py",
        "nmt/drawing/templates/marked_words.html",
        "nmt/drawing/templates/page.html",
        "nmt/drawing/templates/style.css",
    ),
}
"""Patterns of the files that determine each picture, relative to the repository."""
SENTENCE = "A little girl in a red dress is playing in the grass."
"""Sentence of page.png."""
SENTENCES = (
    "Two young women are dancing on the street in the rain.",
    "A brown dog is running after a red ball on the beach.",
)
"""Sentences of attention.png."""
TEXTS = {
    "I can't believe they cancelled the show again, this is outrageous!": "anger",
    "So happy to see my whole family this weekend, what a wonderful day": "joy",
    "Feeling so lost and lonely since you left, everything is grey": "sadness",
    "She made me laugh all evening, what a hilarious and cheerful friend": "joy",
}
"""Texts of explanations.png, with their correct labels."""
WIDTH = 1100
"""Width of the pages, in CSS pixels."""


def sources_hash(picture: str) -> str:
    """Hash of the files that determine a picture. Comments and docstrings of Python files do not count."""
    digest = hashlib.sha256()
    files = sorted({file for pattern in SOURCES[picture] for file in ROOT.glob(pattern)})
    for file in files:
        if file.is_file():
            text = file.read_text(encoding="utf-8")
            digest.update(code(text).encode() if file.suffix == ".py" else text.encode())
    return digest.hexdigest()[:16]


def code(text: str) -> str:
    """Lines of a Python file without docstrings, comment lines and indentation."""
    lines = [line.strip() for line in text.splitlines()]
    for node in ast.walk(ast.parse(text)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text and isinstance(node.value.value, str):
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
    return "\n".join(line for line in lines if line and not line.startswith("#"))


def recorded() -> dict[str, str]:
    """Hashes of the sources of all pictures at the time of their drawing, by name of the picture."""
    return json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}


def run(command: str, *words: str) -> None:
    subprocess.run([sys.executable, "-m", f"nmt.{command}", *words], cwd=ROOT, check=True)


@contextmanager
def browser_page() -> Iterator[Page]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running:
        browser = running.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield browser.new_page(viewport={"width": WIDTH, "height": 800})
        browser.close()


@contextmanager
def served(model: str) -> Iterator[str]:
    """Address of a server of the model."""
    server = subprocess.Popen(
        [sys.executable, "-m", "nmt.serve", f"model={model}", "port=0"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        yield started_address(server.stderr)
    finally:
        server.terminate()
        server.wait()


def draw_page(model: str, file: Path) -> None:
    with served(model) as address, browser_page() as page:
        page.goto(address)
        page.fill("#text", SENTENCE)
        page.wait_for_selector("#tree *")
        page.wait_for_function(
            "() => document.querySelector('#plain')?.textContent && document.querySelector('#busy')?.hidden !== false"
        )
        page.wait_for_timeout(1500)  # the answer to the sentence replaces that of the example
        page.locator("#target button").nth(5).click()
        page.wait_for_selector("#choices:not([hidden])")
        page.wait_for_timeout(1500)
        page.mouse.move(0, 0)
        page.screenshot(path=file, full_page=True)


def draw_attention(models: list[str], file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text")
        text.write_text("".join(f"{sentence}\n" for sentence in SENTENCES), encoding="utf-8")
        first, *others = map(quoted, models)
        compared = [f"compare=[{','.join(others)}]"] if others else []
        words = [f"model={first}", *compared, f"input={text}", f"output={folder}/output"]
        run("translate", *words, f"attention_map={file}")


def draw_explanations(model: str, file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, browser_page() as page:
        drawn = Path(folder, "page.html")
        classifier = nmt.load(model)
        gold = [(label,) for label in TEXTS.values()]
        write_effects(classifier, classifier.classify(list(TEXTS)), drawn, gold)
        page.goto(f"file://{drawn}")
        page.screenshot(path=file, full_page=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("picture", choices=sorted(SOURCES))
    parser.add_argument("models", nargs="*", metavar="RUN_DIR")
    arguments = parser.parse_args()
    file = ASSETS / arguments.picture
    models = [str(Path(model).absolute()) for model in arguments.models]
    if not models and not arguments.keep:
        parser.error("RUN_DIR is missing")
    if arguments.keep:
        pass
    elif arguments.picture == "page.png":
        draw_page(models[0], file)
    elif arguments.picture == "attention.png":
        draw_attention(models, file)
    else:
        draw_explanations(models[0], file)
    record = {**recorded(), arguments.picture: sources_hash(arguments.picture)}
    RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
