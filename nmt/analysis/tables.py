"""Tables with text cells, printed on a terminal or written as Markdown, LaTeX or HTML."""

from __future__ import annotations

import io
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from nmt.drawing.pages import render
from nmt.foundation.errors import UserError

if TYPE_CHECKING:
    from markupsafe import Markup

Row = TypeVar("Row")
TERMINAL_WIDTH = 160
"""Width in characters of a printed table if stdout is not a terminal."""
BOLD = "Bold marks"
"""First words of the note that explains bold scores; on a terminal, the note explains stars."""


@dataclass(frozen=True)
class ReportTable:
    """Table with text cells.

    title: title above the table
    head: names of the columns
    rows: cells of each row
    keys: number of leftmost columns that identify a row
    strong: indices of the rows whose scores are bold
    scores: indices of the columns whose cells are bold in the rows `strong`
    note: explanation below the table
    paper: narrower form for LaTeX, whose note is the caption (None: the table itself)
    bold: further bold cells, as pairs (row, column)
    shares: length of the bar in a cell of an HTML table, 0 to 1, by (row, column)
    words: indices of further columns that contain words, which are aligned to the left
    links: address that a cell of an HTML table links to, by (row, column)
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    keys: int = 1
    strong: Collection[int] = ()
    scores: Collection[int] = ()
    note: str = ""
    paper: ReportTable | None = None
    bold: Collection[tuple[int, int]] = ()
    shares: Mapping[tuple[int, int], float] = field(default_factory=dict)
    words: Collection[int] = ()
    links: Mapping[tuple[int, int], str] = field(default_factory=dict)

    def is_strong(self, row: int, column: int) -> bool:
        """Returns whether the cell in a row and column of the table is bold."""
        return (row in self.strong and column in self.scores) or (row, column) in self.bold


@dataclass(frozen=True)
class ReportColumn(Generic[Row]):
    """Column of a table with text cells.

    name: name of the column
    cell: function that returns the text of the cell for a row
    is_shown: whether the table contains the column
    is_score: whether the best cells of the column are bold
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
    """Returns a table of the columns whose `is_shown` is true.

    title: title above the table
    columns: columns, which compute their cells from a row
    rows: values of the rows
    keys: number of leftmost columns that identify a row
    strong: indices of the rows whose scores are bold
    note: explanation below the table
    """
    visible = [column for column in columns if column.is_shown]
    cells = [[column.cell(row) for column in visible] for row in rows]
    head = [column.name for column in visible]
    scores = [number for number, column in enumerate(visible) if column.is_score]
    return ReportTable(title, head, cells, keys, strong, scores, note)


def with_columns(table: ReportTable, names: Sequence[str]) -> ReportTable:
    """Returns a table with only the named columns, in the given order.

    Raises UserError if the table lacks a column.
    """
    unknown = [name for name in names if name not in table.head]
    if unknown:
        columns = ", ".join(table.head)
        raise UserError(
            f"columns=[{','.join(names)}]: column {unknown[0]} not found; available: {columns}"
        )
    places = [list(table.head).index(name) for name in names]
    return replace(
        table,
        head=names,
        rows=[[row[place] for place in places] for row in table.rows],
        keys=sum(place < table.keys for place in places),
        scores=[number for number, place in enumerate(places) if place in table.scores],
    )


def number_in(cell: str) -> float | None:
    """Returns the first number in a cell, such as 31.5 for `31.50 ± 0.72`; None for other cells."""
    digits = re.search(r"-?\d+(\.\d+)?", cell.replace(",", "").replace("−", "-"))
    return float(digits[0]) if digits else None


def with_best(
    table: ReportTable, groups: Sequence[Sequence[tuple[int, int]]], *, lower: bool = False
) -> ReportTable:
    """Returns a table in which the best cell of each group is bold, and cells have bars.

    Cells of a group whose numbers are all equal do not change.

    table: table with numbers
    groups: groups of comparable cells, each as (row, column)
    lower: whether lower numbers are better
    """
    bold = {*table.bold}
    shares = dict(table.shares)
    for group in groups:
        values = {place: number_in(table.rows[place[0]][place[1]]) for place in group}
        numbers = {place: value for place, value in values.items() if value is not None}
        if len({*numbers.values()}) > 1:
            best = (min if lower else max)(numbers.values())
            bold |= {place for place, value in numbers.items() if value == best}
            largest = max(numbers.values())
            shares |= {place: max(0.0, value / largest) for place, value in numbers.items()}
    return replace(table, bold=bold, shares=shares)


def terminal_lines(text: str) -> str:
    """Returns a sentence for stdout, broken into lines of the terminal's width if stdout is a
    terminal.
    """
    width = shutil.get_terminal_size().columns
    return textwrap.fill(text, width) if sys.stdout.isatty() else text


def terminal(table: ReportTable, width: int | None = None) -> str:
    """Returns a table as text with aligned columns. Rows with bold scores begin with a star.

    table: table to print
    width: width in characters; None for the width of the terminal
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(
        title=table.title,
        title_justify="left",
        caption=table.note.replace(BOLD, "* marks") or None,
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
    # Without a width, rich uses 80 columns for a pipe or a file.
    if width is None and not sys.stdout.isatty():
        width = TERMINAL_WIDTH
    output = io.StringIO()  # rich prints to a file only
    Console(file=output, width=width, highlight=False).print(drawn)
    return output.getvalue()


def _rows(table: ReportTable, escape: Callable[[str], str], bold: str) -> Iterator[list[str]]:
    """Yields the escaped cells of each row, with the best scores in bold.

    table: table to convert
    escape: function that escapes the text of a cell
    bold: format string of bold cells
    """
    for number, row in enumerate(table.rows):
        texts = [escape(cell) for cell in row]
        yield [
            bold.format(text) if text and table.is_strong(number, place) else text
            for place, text in enumerate(texts)
        ]


def markdown(table: ReportTable) -> str:
    """Returns a table in Markdown: a heading, the table with pipes, and the note."""
    head = [_escaped(name) for name in table.head]
    alignment = ["---" if i < table.keys else "---:" for i in range(len(head))]
    rows = [head, alignment, *_rows(table, _escaped, "**{}**")]
    lines = [f"### {table.title}", "", *(f"| {' | '.join(row)} |" for row in rows), ""]
    return "\n".join([*lines, table.note, ""] if table.note else lines)


def _escaped(cell: str) -> str:
    return re.sub(r"([|\\*_<>`\[\]])", r"\\\1", cell).replace("\n", " ")


TEX = str.maketrans({
    "\\": r"\textbackslash{}", "±": r"$\pm$", "→": r"$\to$", "–": "--", "−": "$-$",
    "≤": r"$\le$", "…": r"\ldots{}", "·": r"$\cdot$", "<": "$<$", ">": "$>$",
    "|": r"\textbar\allowbreak{}",  # long signatures break after a bar
    "~": r"\char`\~{}", "^": r"\char`\^{}",
    **{character: "\\" + character for character in "&%$#_{}"},
})  # fmt: skip
"""Maps special characters to LaTeX commands."""


def latex(table: ReportTable) -> str:
    """Returns a table in LaTeX, which needs the LaTeX package booktabs."""
    label = re.sub(r"\W+", "-", table.title.lower())  # LaTeX labels contain no spaces
    table = table.paper or table
    columns = "".join("l" if i < table.keys else "r" for i in range(len(table.head)))
    head = " & ".join(name.translate(TEX) for name in table.head)
    rows = _rows(table, lambda cell: cell.translate(TEX), r"\textbf{{{}}}")
    caption = f"{table.title}. {table.note}".strip().translate(TEX)
    lines = [
        r"\begin{table}",
        r"\centering\small\setlength{\tabcolsep}{4pt}",
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
    """Returns a table in HTML. Bold cells have the CSS class `strong`."""
    return render("report_table", table=table)
