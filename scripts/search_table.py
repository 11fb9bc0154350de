"""Table of BLEU, chrF and speed of one model under every search, and a plot of quality against beam width.

    python scripts/search_table.py SOURCE REFERENCE RUN_DIR [RUN_DIR …] [--precision bfloat16] [--out search.png]

The first model alone under every search; all of them as an ensemble with beam 5. Further runs must share its vocabulary.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import sacrebleu

from nmt import Translator
from nmt.data.lines import read_lines
from nmt.foundation.interfaces import Search
from nmt.foundation.processes import keep_freed_memory
from nmt.loading import translator
from nmt.search.beam import Beam
from nmt.search.diverse import Diverse
from nmt.search.greedy import Greedy
from nmt.search.mbr import MBR
from nmt.search.sample import Sample

WIDTHS = (2, 5, 10, 20)
PENALTIES: dict[str, dict[str, Any]] = {
    "none": {"length_penalty": "none"},
    "average": {"length_penalty": "average"},
    "wu, α = 0.6": {"length_penalty": "wu", "alpha": 0.6},
    "reward, 0.2 a word": {"length_penalty": "reward", "alpha": 0.2},
    "wu, coverage 0.05": {"length_penalty": "wu", "alpha": 0.6, "coverage": 0.05},
}


def searches() -> dict[tuple[str, int], Search]:
    """By (name, width)."""
    result: dict[tuple[str, int], Search] = {("greedy", 1): Greedy()}
    result |= {
        (name, width): Beam(width=width, **options)
        for name, options in PENALTIES.items()
        for width in WIDTHS
    }
    result["diverse, 3 groups", 6] = Diverse(width=6, groups=3)
    result["sample, ε = 0.02", 1] = Sample(epsilon=0.02)
    result["MBR, samples, chrF", 32] = MBR(candidates=32)
    result["MBR, beam, chrF", 10] = MBR(candidates=10, source="beam")
    return result


def measure(
    name: str, width: int, model: Translator, source: list[str], reference: list[str]
) -> dict[str, Any]:
    model.translate(source[:20])
    began = time.perf_counter()
    texts = model.translate(source)
    took = time.perf_counter() - began
    row = {
        "search": name, "width": width, "bleu": sacrebleu.corpus_bleu(texts, [reference]).score,
        "chrf": sacrebleu.corpus_chrf(texts, [reference]).score, "sentences_per_second": len(source) / took,
    }  # fmt: skip
    print(
        "| {search} | {width} | {bleu:.2f} | {chrf:.2f} | {sentences_per_second:.0f} |".format(
            **row
        ),
        flush=True,
    )
    return row


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
    [greedy] = [row["bleu"] for row in rows if row["search"] == "greedy"]
    for name, marker in zip(PENALTIES, "osv^d", strict=True):
        axes.plot(
            (1, *WIDTHS),
            [greedy, *(r["bleu"] for r in rows if r["search"] == name)],
            marker + "-",
            label=name,
        )
    axes.set_xscale("log")
    axes.set_xticks((1, *WIDTHS), ["greedy", *map(str, WIDTHS)])
    axes.minorticks_off()
    axes.set_xlabel("beam width")
    axes.set_ylabel("BLEU")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, title="penalty", title_fontsize=8)
    figure.savefig(path, dpi=140)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16", "int8"))
    parser.add_argument("--out", type=Path, default=Path("search.png"))
    options = parser.parse_args()
    keep_freed_memory()
    texts = read_lines(options.source), read_lines(options.reference)
    print("| search | width | BLEU | chrF | sentences/s |\n|---|---|---|---|---|")
    rows = []
    for (name, width), search in searches().items():
        one = translator(options.models[0], search=search, precision=options.precision)
        rows.append(measure(name, width, one, *texts))
    if len(options.models) > 1:
        for averaging in ("probability", "log_probability"):
            ensemble = translator(
                options.models,
                search=Beam(width=5),
                precision=options.precision,
                averaging=averaging,
            )
            rows.append(
                measure(
                    f"average, ensemble of {len(options.models)}, {averaging}", 5, ensemble, *texts
                )
            )
    options.out.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
    draw(rows, options.out)


if __name__ == "__main__":
    main()
