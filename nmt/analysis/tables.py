"""Tables of text, and what they look like on a terminal, in Markdown, LaTeX and HTML."""

from __future__ import annotations

import html
import io
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ReportTable:
    """Columns' names and rows of text. The first `keys` columns say what a row is; `strong`: rows that stand out; `note`:
    what a reader has to know."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    keys: int = 1
    strong: Collection[int] = ()
    note: str = ""


def terminal(table: ReportTable, width: int | None = None) -> str:
    """Aligned columns, as wide as the terminal; rows that stand out begin with a star."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(
        title=table.title,
        title_justify="left",
        caption=table.note or None,
        caption_justify="left",
        box=None,
    )
    for i, name in enumerate(["", *table.head] if table.strong else table.head):
        shown.add_column(
            name,
            justify="left" if i < table.keys + bool(table.strong) else "right",
            overflow="fold",
        )
    for i, row in enumerate(table.rows):
        marked = ["*" if i in table.strong else ""] if table.strong else []
        shown.add_row(
            *marked,
            *(cell.replace("[", "\\[") for cell in row),
            style="bold" if i in table.strong else None,
        )
    wide = width or (None if sys.stdout.isatty() else 160)
    console = Console(file=io.StringIO(), width=wide, highlight=False)
    console.print(shown)
    return console.file.getvalue()  # type: ignore[attr-defined]


def markdown(table: ReportTable) -> str:
    """A heading and a pipe table; rows that stand out are bold."""
    aligned = ["---" if i < table.keys else "---:" for i in range(len(table.head))]
    lines = [f"### {table.title}", "", _row(map(_escaped, table.head)), _row(aligned)]
    for i, row in enumerate(table.rows):
        cells = [_escaped(cell) for cell in row]
        lines.append(_row(f"**{cell}**" if i in table.strong and cell else cell for cell in cells))
    return "\n".join([*lines, *(["", table.note] if table.note else []), ""])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(cell: str) -> str:
    return re.sub(r"([|\\*_<>`\[\]])", r"\\\1", cell).replace("\n", " ")


def latex(table: ReportTable) -> str:
    """A booktabs table; rows that stand out are bold."""
    columns = "".join("l" if i < table.keys else "r" for i in range(len(table.head)))
    lines = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    lines += [" & ".join(map(_tex, table.head)) + r" \\", r"\midrule"]
    for i, row in enumerate(table.rows):
        cells = [_tex(cell) for cell in row]
        lines.append(
            " & ".join(
                rf"\textbf{{{cell}}}" if i in table.strong and cell else cell for cell in cells
            )
            + r" \\"
        )
    caption = " ".join(_tex(part) for part in (table.title + ".", table.note) if part)
    return "\n".join(
        [*lines, r"\bottomrule", r"\end{tabular}", rf"\caption{{{caption}}}", r"\end{table}", ""]
    )


_TEX = {
    "\\": r"\textbackslash{}", "±": r"$\pm$", "→": r"$\to$", "–": "--", "−": "$-$", "≤": r"$\le$", "…": r"\ldots{}",
    "·": r"$\cdot$", "<": "$<$", ">": "$>$",
}  # fmt: skip


def _tex(text: str) -> str:
    return "".join(
        _TEX.get(c, "\\" + c if c in "&%$#_{}" else rf"\char`\{c}{{}}" if c in "~^" else c)
        for c in text
    )


def page_table(table: ReportTable) -> str:
    """HTML with headings of columns and rows; rows that stand out have the class `strong`."""
    keys = [" class=key"] * table.keys + [""] * len(table.head)
    named = zip(table.head, keys, strict=False)
    head = "".join(f'<th scope="col"{key}>{html.escape(name)}</th>' for name, key in named)
    rows = []
    for i, row in enumerate(table.rows):
        cells = [
            f'<th scope="row">{html.escape(cell)}</th>'
            if j < table.keys
            else f"<td>{html.escape(cell)}</td>"
            for j, cell in enumerate(row)
        ]
        rows.append(f"<tr{' class=strong' if i in table.strong else ''}>{''.join(cells)}</tr>")
    note = f'<p class="note">{html.escape(table.note)}</p>' if table.note else ""
    whole = (
        f"<table class=data><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )
    return f"<section><h2>{html.escape(table.title)}</h2><div class=wide tabindex=0>{whole}</div>{note}</section>"
