"""Attention of translations, of one model or several side by side, as a self-contained HTML page, a picture or JSON."""

from __future__ import annotations

import html
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nmt.foundation.errors import UserError
from nmt.inference.translator import Forced, Translation, Translator
from nmt.inference.word_alignment import AttentionMap, by_word
from nmt.storage.files import write_atomically
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.words import Units

PICTURES = 8
"""Sentences drawn in a .png; .html and .json hold all."""
LONGEST = 60
"""Words shown of either side of a sentence in .html and .png; .json holds all."""

log = logging.getLogger(__name__)

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Attention</title><style>
body {{ font: 15px/1.4 system-ui, sans-serif; margin: 2rem auto; max-width: 100rem; padding: 0 1rem; color: #222; }}
h1 {{ font-size: 1.2rem; font-weight: 600; }}  p.note {{ color: #666; }}
section {{ margin: 2rem 0; display: flex; gap: 1.5rem; overflow-x: auto; align-items: flex-end; }}
figure {{ margin: 0; }}  figcaption {{ color: #666; padding-top: .4rem; text-align: right; }}
table {{ border-collapse: collapse; margin-left: auto; }}
th {{ font-weight: 400; padding: .1rem .4rem; white-space: pre; }}
thead th {{ writing-mode: vertical-rl; transform: rotate(180deg); text-align: left; }}
tbody th {{ text-align: right; }}
td {{ width: 1.5rem; min-width: 1.5rem; height: 1.5rem; border: 1px solid #eee; }}
tr:hover th, td:hover {{ outline: 2px solid #c0504d; outline-offset: -2px; }}
</style></head><body><h1>Attention</h1>
<p class="note">Columns: the source. Rows: the translation, in the order it was written. Darker: more attended;
hover for the weight. &lt;/s&gt; ends the sentence.</p>
{sections}
</body></html>
"""


def attention_maps(
    translator: Translator,
    lines: Sequence[str],
    translations: Sequence[Translation],
    name: str = "",
    beside: Mapping[str, Translator] | None = None,
    units: Units = "word",
) -> list[AttentionMap]:
    """The attention of a model, called `name`, in its translations (made with details_of=1), and of each model in
    `beside` when it is forced to produce the same translations; each of several heads separately. Models without
    attention and lines without a translation are left out.

    Raises UserError if the units are pieces, and a model has others."""
    pairs = [(line, found) for line, found in zip(lines, translations, strict=True) if found.hypotheses]
    shown, texts = [line for line, _ in pairs], [found.text for _, found in pairs]
    own = [(found.source, found.hypotheses[0].tokens) for _, found in pairs]
    seen = _empty(translator.tokenizer, shown, texts, own, units)
    _add(seen, name, translator.tokenizer, shown, texts, own, [found.details[0] for _, found in pairs], units)
    for other_name, other in (beside or {}).items():
        if units == "piece" and other.tokenizer.models != translator.tokenizer.models:
            raise UserError(f"units=piece: {other_name} cuts texts into other pieces; use units=word")
        ids = _cut(other, shown, texts)
        _add(seen, other_name, other.tokenizer, shown, texts, ids, _forced(other, ids), units)
    return seen


def forced_maps(
    translator: Translator, lines: Sequence[str], texts: Sequence[str], units: Units = "word"
) -> list[AttentionMap]:
    """The attention of a model that is forced to write given texts."""
    ids = _cut(translator, lines, texts)
    seen = _empty(translator.tokenizer, lines, texts, ids, units)
    _add(seen, "", translator.tokenizer, lines, texts, ids, _forced(translator, ids), units)
    return seen


Ids = Sequence[tuple[list[int], list[int]]]


def _cut(translator: Translator, lines: Sequence[str], texts: Sequence[str]) -> Ids:
    return list(zip(translator.encode(lines), translator.tokenizer.encode_target(list(texts)), strict=True))


def _forced(translator: Translator, ids: Ids) -> list[Forced]:
    return translator.force([source for source, _ in ids], [target for _, target in ids])


def _empty(
    tokenizer: Tokenizer, lines: Sequence[str], texts: Sequence[str], ids: Ids, units: Units
) -> list[AttentionMap]:
    """Maps without weights."""
    return [
        AttentionMap(
            [*tokenizer.source_units(line, source, units)[0], "</s>"],
            [*tokenizer.target_units(text, target, units)[0], "</s>"],
        )
        for line, text, (source, target) in zip(lines, texts, ids, strict=True)
    ]


def _add(
    seen: Sequence[AttentionMap],
    name: str,
    tokenizer: Tokenizer,
    lines: Sequence[str],
    texts: Sequence[str],
    ids: Ids,
    details: Sequence[Forced],
    units: Units,
) -> None:
    """Adds to each map the weights between its units, computed from a model's weights between pieces, under `name`."""
    for each, line, text, (source, target), forced in zip(seen, lines, texts, ids, details, strict=True):
        if forced.weights is None:
            continue
        heads = {name: forced.weights}
        if forced.heads is not None:
            heads = {f"{name}, head {h}".removeprefix(", "): w for h, w in enumerate(forced.heads, 1)}
        of_source, of_target = (
            tokenizer.source_units(line, source, units)[1], tokenizer.target_units(text, target, units)[1]
        )  # fmt: skip
        sizes = len(each.source) - 1, len(each.target) - 1
        each.weights.update({head: by_word(weights, of_source, of_target, sizes) for head, weights in heads.items()})


def write_map(maps: Sequence[AttentionMap], path: Path) -> None:
    """Writes the maps in the format that the ending of `path` names; empty sentences are left out."""
    shown = [each for each in maps if each.weights and len(each.source) > each.ends]
    if not shown:
        log.warning("%s is not written: there are only empty lines", path)
        return
    if path.suffix != ".json":
        shown = [_shortened(each) for each in shown]
    if path.suffix == ".png":
        from nmt.report.plots import draw_maps

        draw_maps(shown[:PICTURES], path)
    elif path.suffix == ".json":
        rows = [
            {"source": m.source, "target": m.target, "weights": {n: w.round(5).tolist() for n, w in m.weights.items()}}
            for m in shown
        ]
        write_atomically(path, (json.dumps(rows, ensure_ascii=False) + "\n").encode())
    else:
        write_atomically(path, PAGE.format(sections="\n".join(map(_section, shown))).encode())


def _shortened(whole: AttentionMap) -> AttentionMap:
    """The first LONGEST words of both sides."""
    source, target = (
        side if len(side) <= LONGEST else [*side[: LONGEST - 1], "…"] for side in (whole.source, whole.target)
    )
    return replace(
        whole, source=source, target=target, weights={name: w[:LONGEST, :LONGEST] for name, w in whole.weights.items()}
    )


def _section(each: AttentionMap) -> str:
    head = "".join(f"<th>{html.escape(word)}</th>" for word in each.source)
    figures = []
    for name, all_weights in each.weights.items():
        rows = []
        for word, weights in zip(each.target, all_weights, strict=True):
            cells = "".join(
                f'<td style="background:rgba(31,97,161,{w:.3f})" '
                f'title="{html.escape(word)} ← {html.escape(source)}: {w:.3f}"></td>'
                for source, w in zip(each.source, weights, strict=True)
            )
            rows.append(f"<tr><th>{html.escape(word)}</th>{cells}</tr>")
        table = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        figures.append(f"<figure>{table}<figcaption>{html.escape(name)}</figcaption></figure>")
    return f"<section>{''.join(figures)}</section>"
