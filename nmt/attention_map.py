"""Attention of translations as a self-contained HTML page, a picture or JSON."""

from __future__ import annotations

import html
import json
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nmt.checkpoint import write_atomically
from nmt.translator import Alignment

PICTURES = 8
"""Sentences drawn in a .png; .html and .json hold all."""
LONGEST = 100
"""Pieces shown of either side of a sentence in .html and .png; .json holds all."""

log = logging.getLogger(__name__)

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Attention</title><style>
body {{ font: 15px/1.4 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #222; }}
h1 {{ font-size: 1.2rem; font-weight: 600; }}  p.note {{ color: #666; }}
section {{ margin: 2rem 0; overflow-x: auto; }}
table {{ border-collapse: collapse; }}
th {{ font-weight: 400; padding: .1rem .4rem; white-space: pre; }}
thead th {{ writing-mode: vertical-rl; transform: rotate(180deg); text-align: left; }}
tbody th {{ text-align: right; }}
td {{ width: 1.5rem; min-width: 1.5rem; height: 1.5rem; border: 1px solid #eee; }}
tr:hover th, td:hover {{ outline: 2px solid #c0504d; outline-offset: -2px; }}
</style></head><body><h1>Attention</h1>
<p class="note">Columns: source pieces. Rows: translation, in the order it was written. Darker: more attended;
hover for the weight. A space is part of the piece after it; &lt;/s&gt; ends the sentence.</p>
{sections}
</body></html>
"""


def write_map(alignments: Sequence[Alignment], path: Path) -> None:
    """Writes what the ending of `path` says; empty sentences are left out."""
    shown = [(a, a.weights) for a in alignments if a.weights is not None and len(a.source) > 1]
    if not shown:
        log.warning("%s is not written: there are only empty lines", path)
        return
    if path.suffix != ".json":
        shown = [_cut(a, w) for a, w in shown]
    if path.suffix == ".png":
        from nmt.plots import attention_maps

        attention_maps([alignment for alignment, _ in shown[:PICTURES]], path)
    elif path.suffix == ".json":
        rows = [{"source": a.source, "target": a.target, "weights": w.round(5).tolist()} for a, w in shown]
        write_atomically(path, (json.dumps(rows, ensure_ascii=False) + "\n").encode())
    else:
        page = PAGE.format(sections="\n".join(_section(a, w) for a, w in shown))
        write_atomically(path, page.encode())


def _cut(alignment: Alignment, weights: np.ndarray) -> tuple[Alignment, np.ndarray]:
    """The first LONGEST pieces of both sides."""
    weights = weights[:LONGEST, :LONGEST]
    source, target = (
        side if len(side) <= LONGEST else [*side[: LONGEST - 1], "…"] for side in (alignment.source, alignment.target)
    )
    return Alignment(source=source, target=target, weights=weights), weights


def _section(alignment: Alignment, rows_of_weights: np.ndarray) -> str:
    head = "".join(f"<th>{_piece(piece)}</th>" for piece in alignment.source)
    rows = []
    for word, weights in zip(alignment.target, rows_of_weights, strict=True):
        cells = "".join(
            f'<td style="background:rgba(31,97,161,{w:.3f})" title="{_piece(word)} ← {_piece(source)}: {w:.3f}"></td>'
            for source, w in zip(alignment.source, weights, strict=True)
        )
        rows.append(f"<tr><th>{_piece(word)}</th>{cells}</tr>")
    return f"<section><table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></section>"


def _piece(piece: str) -> str:
    return html.escape(piece.replace("▁", " ").strip() or "␣")
