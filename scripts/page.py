"""Compares the page that is the model (nmt.export format=html) with Python, in Chromium.

    python scripts/page.py RUN_DIR FILE

FILE has one sentence per line. Measures the size of the page, and the time for a sentence of 12 words. Counts the
translations, greedy and by a beam of 5, that equal Python's in float32 with the page's weights and with the model's
weights. Figures are in results/serving.md beside this file.
"""

from __future__ import annotations

import argparse
import copy
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import torch
from playwright.sync_api import Page, sync_playwright

import nmt
from nmt.exporting.html import is_matrix, quantized, write_html
from nmt.inference.translator import Translator
from nmt.model.seq2seq import Seq2Seq
from nmt.search.beam import Beam
from nmt.search.greedy import Greedy


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("file")
    arguments = parser.parse_args()
    lines = Path(arguments.file).read_text(encoding="utf-8").splitlines()
    translator = nmt.load(arguments.model, device="cpu")
    assert isinstance(translator, Translator)
    same = nmt.load(arguments.model, device="cpu")
    assert isinstance(same, Translator)
    same.networks.models = [rounded(translator.models[0]).eval()]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as running:
        file = Path(folder, "page.html")
        write_html(translator, "model", file)
        print(f"{file.stat().st_size / 1e6:.2f} MB")
        browser = running.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page()
        page.set_default_timeout(0)
        page.goto(f"file://{file}")
        page.wait_for_function("globalThis.answering !== undefined")
        for width, search in ((1, Greedy()), (5, Beam(width=5))):
            result = translations(page, lines, width)
            equal = [
                sum(map(str.__eq__, result, one.with_search(search).translate(lines)))
                for one in (same, translator)
            ]
            print(
                f"beam {width}: {equal[0]:,} of {len(lines):,} as Python with these weights, {equal[1]:,} as float32"
            )
            twelve = [line for line in lines if len(line.split()) == 12][:20] or lines[:20]
            seconds = []
            for line in twelve:
                began = time.monotonic()
                translations(page, [line], width)
                seconds.append(time.monotonic() - began)
            print(
                f"beam {width}: a sentence of 12 words {1000 * statistics.median(seconds):.0f} ms (median of {len(seconds)})"
            )
        browser.close()


def translations(page: Page, lines: list[str], width: int) -> list[str]:
    ask = "async ([q, width]) => (await answering('/translate', { q, width })).translatedText"
    return page.evaluate(ask, [lines, width])


def rounded(model: Seq2Seq) -> Seq2Seq:
    """Returns a copy of a network whose matrices are rounded to int8 and scaled back, as in the
    HTML file.
    """
    model = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_matrix(name):
                rounded_rows, scales = quantized(parameter)
                values = torch.from_numpy(rounded_rows * scales[:, None])
                parameter.copy_(values.view_as(parameter))
    return model


if __name__ == "__main__":
    main()
