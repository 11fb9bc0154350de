"""Readability figures of nmt/ and their limits. The exit status is 1 if a limit is exceeded.

python scripts/readability.py FOLDER
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path

LIMITS = {
    "statements": 22_014,
    "assignments of three or more targets": 20,
    "% of assignments that are `a, b = x, y`": 0.4,
    "% of assigned names that are generic": 0.7,
    "% of lines over 100 columns": 0,
    "functions over 50 lines": 0,
}
"""Largest figures of nmt/, docstrings not counted as statements. They are as low as the code allows today.

The aims are 13,000 statements, 20 assignments of three or more targets, 1 %, 1 %, 0 and 0.
"""
LEAST_COMMENTS = 3.8
"""Smallest number of comments per 100 lines that are not blank. The aim is 4."""
MAX_COLUMNS = 100
MAX_FUNCTION_LINES = 50
GENERIC = frozenset((
    "found", "each", "one", "own", "held", "most", "chosen", "kept", "wanted", "shown", "its",
    "there", "given", "known", "beside", "said", "made", "like", "here", "told", "left", "fine",
    "whole", "part", "some", "other", "both",
))  # fmt: skip
"""Names that do not state what a variable holds."""
DIRECTIVE = re.compile(r"fmt:|type:|noqa|pragma")


def measure(folder: Path) -> dict[str, float]:
    """The figures of all Python files below a folder, by the names in LIMITS, and the comments per 100 lines."""
    count: Counter[str] = Counter()
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if line.strip()]
        count["lines"] += len(lines)
        count["wide"] += sum(len(line) > MAX_COLUMNS for line in lines)
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        count["comments"] += sum(
            token.type == tokenize.COMMENT and not DIRECTIVE.search(token.string)
            for token in tokens
        )
        for node in ast.walk(ast.parse(text)):
            _count_node(node, count)
    return {
        "statements": count["statements"],
        "assignments of three or more targets": count["triples"],
        "% of assignments that are `a, b = x, y`": _percent(count["pairs"], count["assignments"]),
        "% of assigned names that are generic": _percent(count["generic"], count["names"]),
        "% of lines over 100 columns": _percent(count["wide"], count["lines"]),
        "functions over 50 lines": count["long functions"],
        "comments per 100 lines": _percent(count["comments"], count["lines"]),
    }


def exceeded(figures: dict[str, float]) -> list[str]:
    """One line for each limit that the figures exceed."""
    problems = [
        f"{name}: {figures[name]:,g}, at most {limit:,g}"
        for name, limit in LIMITS.items()
        if figures[name] > limit
    ]
    comments = figures["comments per 100 lines"]
    if comments < LEAST_COMMENTS:
        problems.append(f"comments per 100 lines: {comments:g}, at least {LEAST_COMMENTS:g}")
    return problems


def _count_node(node: ast.AST, count: Counter[str]) -> None:
    if isinstance(node, ast.stmt) and not _is_docstring(node):
        count["statements"] += 1
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        is_tuple = isinstance(target, ast.Tuple)
        count["assignments"] += 1
        count["pairs"] += is_tuple and isinstance(node.value, ast.Tuple)
        count["triples"] += is_tuple and len(target.elts) >= 3
        names = [child.id for child in ast.walk(target) if isinstance(child, ast.Name)]
        count["names"] += len(names)
        count["generic"] += sum(name in GENERIC for name in names)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        count["long functions"] += length > MAX_FUNCTION_LINES


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _percent(part: int, total: int) -> float:
    return round(100 * part / max(1, total), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path(__file__).parent.parent / "nmt"
    )
    figures = measure(parser.parse_args().folder)
    for name, value in figures.items():
        print(f"{value:>10,g}  {name}")
    problems = exceeded(figures)
    if problems:
        sys.exit("Over the limits of scripts/readability.py:\n" + "\n".join(problems))


if __name__ == "__main__":
    main()
