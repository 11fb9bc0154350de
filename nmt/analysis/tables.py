"""Tables of text as terminal output, Markdown, LaTeX and HTML."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from nmt.drawing.pages import render
from nmt.foundation.errors import UserError

if TYPE_CHECKING:
    from markupsafe import Markup

Row = TypeVar("Row")
TERMINAL_WIDTH = 160
"""Width in characters of a table that is not written to a terminal."""


@dataclass(frozen=True)
class ReportTable:
    """A table.

    title: heading
    head: names of the columns
    rows: cells
    keys: number of columns at the left that identify a row
    strong: indices of the rows whose scores are in bold type
    scores: indices of the columns with these scores
    note: explanation
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    keys: int = 1
    strong: Collection[int] = ()
    scores: Collection[int] = ()
    note: str = ""

    def is_strong(self, row: int, column: int) -> bool:
        """Whether a cell is in bold type."""
        return row in self.strong and column in self.scores


@dataclass(frozen=True)
class ReportColumn(Generic[Row]):
    """A column of a table.

    name: heading of the column
    cell: function that returns the text of a row
    is_shown: whether the table has this column
    is_score: whether its best cells are in bold type
    """

    name: str
    cell: Callable[[Row], str]
    is_shown: bool = True
    is_score: bool = False


def table_of(
    title: str,
    columns: Sequence[ReportColumn[Row]],
    rows: Sequence[Row],
    *,
    keys: int = 1,
    strong: Collection[int] = (),
    note: str = "",
) -> ReportTable:
    """A table of the shown columns. Other arguments are those of `ReportTable`."""
    visible = [column for column in columns if column.is_shown]
    cells = [[column.cell(row) for column in visible] for row in rows]
    head = [column.name for column in visible]
    scores = [number for number, column in enumerate(visible) if column.is_score]
    return ReportTable(title, head, cells, keys, strong, scores, note)


def with_columns(table: ReportTable, names: Sequence[str]) -> ReportTable:
    """Some columns of a table, in another order. Raises UserError for a column that is not
    there."""
    unknown = [name for name in names if name not in table.head]
    if unknown:
        columns = ", ".join(table.head)
        raise UserError(f"columns=[{','.join(names)}]: no column {unknown[0]}; there are {columns}")
    places = [list(table.head).index(name) for name in names]
    return replace(
        table,
        head=names,
        rows=[[row[place] for place in places] for row in table.rows],
        keys=sum(place < table.keys for place in places),
        scores=[number for number, place in enumerate(places) if place in table.scores],
    )


def terminal(table: ReportTable, width: int | None = None) -> str:
    """A table with aligned columns. Bold rows also begin with a star.

    table: the table
    width: number of characters; None: the width of the terminal
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(
        title=table.title,
        title_justify="left",
        caption=table.note or None,
        caption_justify="left",
        box=None,
    )
    if table.strong:
        drawn.add_column("")
    for number, name in enumerate(table.head):
        justify: Any = "left" if number < table.keys else "right"
        drawn.add_column(Text(name), justify=justify, overflow="fold")
    for number, row in enumerate(table.rows):
        star = ["*" if number in table.strong else ""] if table.strong else []
        cells = [
            Text(cell, "bold" if table.is_strong(number, place) else "")
            for place, cell in enumerate(row)
        ]
        drawn.add_row(*star, *cells)
    # rich would take 80 columns for a pipe or a file.
    if width is None and not sys.stdout.isatty():
        width = TERMINAL_WIDTH
    output = io.StringIO()
    Console(file=output, width=width, highlight=False).print(drawn)
    return output.getvalue()


def _rows(table: ReportTable, escape: Callable[[str], str], bold: str) -> Iterator[list[str]]:
    """Escaped cells of each row; the best scores in bold type.

    table: the table
    escape: function that escapes the text of a cell
    bold: format of cells in bold type
    """
    for number, row in enumerate(table.rows):
        texts = [escape(cell) for cell in row]
        yield [
            bold.format(text) if text and table.is_strong(number, place) else text
            for place, text in enumerate(texts)
        ]


def markdown(table: ReportTable) -> str:
    """A heading and a pipe table in Markdown."""
    head = [_escaped(name) for name in table.head]
    alignment = ["---" if i < table.keys else "---:" for i in range(len(head))]
    rows = [head, alignment, *_rows(table, _escaped, "**{}**")]
    lines = [f"### {table.title}", "", *(f"| {' | '.join(row)} |" for row in rows), ""]
    return "\n".join([*lines, table.note, ""] if table.note else lines)


def _escaped(cell: str) -> str:
    return re.sub(r"([|\\*_<>`\[\]])", r"\\\1", cell).replace("\n", " ")


TEX = str.maketrans({
    "\\": r"\textbackslash{}", "±": r"$\pm$", "→": r"$\to$", "–": "--", "−": "$-$",
    "≤": r"$\le$", "…": r"\ldots{}", "·": r"$\cdot$", "<": "$<$", ">": "$>$", "|": r"\textbar{}",
    "~": r"\char`\~{}", "^": r"\char`\^{}",
    **{character: "\\" + character for character in "&%$#_{}"},
})  # fmt: skip
"""LaTeX commands by character."""


def latex(table: ReportTable) -> str:
    """A table of LaTeX's package booktabs."""
    columns = "".join("l" if i < table.keys else "r" for i in range(len(table.head)))
    head = " & ".join(name.translate(TEX) for name in table.head)
    rows = _rows(table, lambda cell: cell.translate(TEX), r"\textbf{{{}}}")
    caption = f"{table.title}. {table.note}".strip().translate(TEX)
    label = re.sub(r"\W+", "-", table.title.lower())
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        rf"{head} \\",
        r"\midrule",
        *(rf"{' & '.join(row)} \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{caption}}}",
        rf"\label{{tab:{label}}}",
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def page_table(table: ReportTable) -> Markup:
    """A table in HTML. Bold cells have the class `strong`."""
    return render("report_table", table=table)
