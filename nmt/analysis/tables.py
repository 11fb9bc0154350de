"""Tables with text cells, printed on a terminal or written as Markdown, LaTeX or HTML."""

import io
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from markupsafe import Markup

from nmt.drawing.pages import render

BOLD = "Bold marks"
"""Beginning of the note that explains bold scores. A terminal shows a star instead of bold, so its
note begins with "* marks"."""


@dataclass(frozen=True)
class ReportTable:
    """Table with text cells.

    title: title above the table
    head: names of the columns
    rows: cells of each row
    keys: number of leftmost columns that identify a row
    bold: bold cells, as pairs (row, column)
    note: explanation below the table
    paper: narrower table for LaTeX, with its note as the caption; None uses this table
    words: indices of further columns that contain words, which are aligned to the left
    links: address that a cell of an HTML table links to, by (row, column)
    shares: length of the bar in a cell of an HTML table, as a fraction of the cell's width, by
        (row, column)
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    keys: int = 1
    bold: Collection[tuple[int, int]] = ()
    note: str = ""
    paper: "ReportTable | None" = None
    words: Collection[int] = ()
    links: Mapping[tuple[int, int], str] = field(default_factory=dict)
    shares: Mapping[tuple[int, int], float] = field(default_factory=dict)


def with_best(
    table: ReportTable, groups: Sequence[Sequence[tuple[int, int]]], *, lower: bool = False
) -> ReportTable:
    """Returns a copy of a table in which the best cell of each group is bold, and each cell of a
    group has a bar proportional to its number.

    If all numbers of a group are equal, its cells get neither. A group without positive numbers
    has no bars.

    table: table with numbers
    groups: groups of comparable cells, each as (row, column)
    lower: whether lower numbers are better
    """
    bold = {*table.bold}
    shares = dict(table.shares)
    for group in groups:
        # The first word of a cell such as `31.50 ± 0.72` is the score.
        numbers = {(i, j): float(table.rows[i][j].split()[0]) for i, j in group}
        if len({*numbers.values()}) > 1:
            best = (min if lower else max)(numbers.values())
            bold |= {place for place, value in numbers.items() if value == best}
            largest = max(numbers.values())
            if largest > 0:
                shares |= {place: max(0.0, value / largest) for place, value in numbers.items()}
    return replace(table, bold=bold, shares=shares)


def terminal(table: ReportTable) -> str:
    """Returns a table as text with aligned columns. Bold cells begin with a star."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    drawn = Table(
        title=table.title,
        title_justify="left",
        title_style="",
        caption=table.note.replace(BOLD, "* marks") or None,
        caption_justify="left",
        caption_style="",
        box=None,
    )
    for number, name in enumerate(table.head):
        justify: Any = "left" if number < table.keys else "right"
        drawn.add_column(name, justify=justify, overflow="fold")
    for row in _rows(table, escape, "[bold]* {}[/bold]"):
        drawn.add_row(*(Text.from_markup(cell, emoji=False) for cell in row))
    is_terminal = sys.stdout.isatty()
    # Without a width, rich uses 80 columns for a pipe or a file.
    width = None if is_terminal else 160
    output = io.StringIO()  # rich prints to a file only
    console = Console(
        file=output,
        force_terminal=is_terminal,
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
    )
    console.print(drawn)
    return output.getvalue()


def _rows(table: ReportTable, escape: Callable[[str], str], bold: str) -> Iterator[list[str]]:
    """Yields the escaped cells of each row; `bold` formats bold cells unless they are empty.

    table: table to convert
    escape: function that escapes the text of a cell
    bold: format string of bold cells
    """
    for number, row in enumerate(table.rows):
        yield [
            bold.format(text) if text and (number, place) in table.bold else text
            for place, text in enumerate(map(escape, row))
        ]


def markdown(table: ReportTable) -> str:
    """Returns a table in Markdown: a heading, the table with pipes, and the note."""
    head = [escaped(name) for name in table.head]
    alignment = ["---" if i < table.keys else "---:" for i in range(len(head))]
    rows = [head, alignment, *_rows(table, escaped, "**{}**")]
    lines = [f"### {escaped(table.title)}", "", *(f"| {' | '.join(row)} |" for row in rows), ""]
    return "\n".join([*lines, table.note, ""] if table.note else lines)


def escaped(cell: str) -> str:
    """Returns text as Markdown that shows all its characters."""
    return re.sub(r"[|\\*_<>`\[\]~]|&(?=#?\w+;)", r"\\\g<0>", cell).replace("\n", " ")


TEX = str.maketrans({
    "\\": r"\textbackslash{}", "±": r"$\pm$", "→": r"$\to$", "–": "--", "−": "$-$",
    "≤": r"$\le$", "…": r"\ldots{}", "·": r"$\cdot$", "<": "$<$", ">": "$>$",
    "[": "{[}", "*": "{*}",  # at the start of a row, LaTeX would read arguments of the last row
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
