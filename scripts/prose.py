"""Checks docstrings, comments, messages and pages against the word lists of scripts/prose.toml.

python scripts/prose.py [PATH …]

Prints `file:line: rule: text` for each problem. The exit status is 1 if there is a problem. Rules:

- first word: a docstring, a YAML comment or a heading begins with a word such as "what" or "of".
- dependent: a docstring makes no sense without the line above it ("The others.", "The same …").
- reference: a sentence of a page begins with a word such as "It", and needs the sentence before it.
- forbidden: a word or phrase is not plain technical English.
- long: a sentence has too many words.
- name: a variable's name, such as `found`, does not state what it holds.

tests/README.md lists the limits of the linter.
"""

import argparse
import ast
import io
import itertools
import json
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PATHS = ["README.md", "conf", "nmt", "scripts", "tests", "pyproject.toml"]
RULES = tomllib.loads((ROOT / "scripts/prose.toml").read_text("utf-8"))
NOT_READ = re.compile(r"prose\.toml|conf/keys\.md|tests/before/|__pycache__|\.egg-info")
MESSAGE = re.compile(r"(?:\b[a-z]{2,}[,;:]? ){4}")
"""Four words in a row, which make a string a message."""
NOT_PROSE = re.compile(
    r"```.*?(?:```|\Z)|``.+?``|`[^`\n]*`|<[^<>\n]*>|\]\([^)\n]*\)|>>>[^\n]*", re.DOTALL
)
BREAK = re.compile(
    r"""(?<=[.?!])(?<!e\.g\.)(?<!et\ al\.)(?<!eq\.)["')]*\s+  # the end of a sentence
    | \n\s*\n | \n\s*(?=[-*>]\s | \d+\.\s | \w+(?:,\ \w+)*:\s)  # paragraph, list item, argument
    | \n[ ]*(?=[^\n]*\S[ ]{2,}\S) | \s\|\s | \Z  # row of a table, cell, end""",
    re.VERBOSE,
)


SPACE = r"\s+"
PATTERNS = {
    rule: re.compile(rf"\b(?:{'|'.join(phrases).replace(' ', SPACE)})\b(?!-)", re.IGNORECASE)
    for rule, phrases in RULES.items()
    if rule != "longest sentence"
}


class Passage(NamedTuple):
    line: int
    kind: str  # docstring, comment, message, page, heading, or name of a variable
    text: str


def passages(path: Path) -> Iterator[Passage]:
    """Texts and variables of a file. Files of unknown types have none."""
    text = path.read_text("utf-8")
    match path.suffix:
        case ".py":
            yield from _python(text, has_messages="tests" not in path.parts)
        case ".md":
            yield from _markdown(text)
        case ".ipynb":
            cells = [c["source"] for c in json.loads(text)["cells"] if c["cell_type"] == "markdown"]
            yield from _markdown("\n\n".join("".join(source) for source in cells))
        case ".js":
            comments = re.finditer(r"(?s)/\*.*?\*/|(?<![:\"'])//[^\n]*", text)
            yield from (Passage(_line(text, m), "comment", m[0].strip("/* ")) for m in comments)
            variables = re.finditer(r"\b(?:const|let|var) (\w+)", text)
            yield from (Passage(_line(text, m), "name", m[1]) for m in variables)
        case ".yaml" | ".yml" | ".toml" | ".sbatch" | "":
            blocks = re.finditer(r"(?:^[ \t]*#(?!!)[^\n]*\n?)+|[ \t]#[^\n]*", text, re.MULTILINE)
            kind = "docstring" if path.suffix == ".yaml" else "comment"
            yield from (Passage(_line(text, m), kind, m[0].replace("#", "")) for m in blocks)


def problems(passage: Passage) -> Iterator[tuple[int, str, str]]:
    """(line, rule, text) of each problem of a passage."""
    line, kind, text = passage
    if kind == "name":
        yield from [(line, kind, text)] if text in RULES["name"] else []
        return
    text = NOT_PROSE.sub(lambda code: "X" + "\n" * code[0].count("\n"), text)
    beginning = text.strip().split("\n")[0]
    rules = {"docstring": ("first word", "dependent"), "heading": ("first word",)}.get(kind, ())
    yield from ((line, rule, beginning) for rule in rules if PATTERNS[rule].match(beginning))
    for match in PATTERNS["forbidden"].finditer(text):
        yield line + _line(text, match) - 1, "forbidden", " ".join(match[0].split())
    for start, end in itertools.pairwise([0, *(m.end() for m in BREAK.finditer(text))]):
        beginning = text[start:end].lstrip("*_(- \n")
        if kind == "page" and beginning[:1].isupper() and PATTERNS["reference"].match(beginning):
            yield line + text.count("\n", 0, start), "reference", " ".join(beginning.split()[:8])
        words = re.findall(r"[^\W\d_]\S*", text[start:end])
        if len(words) > RULES["longest sentence"]:
            beginning = f"{len(words)} words: {' '.join(words[:8])} …"
            yield line + text.count("\n", 0, start), "long", beginning


def _python(text: str, *, has_messages: bool) -> Iterator[Passage]:
    read = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield Passage(node.lineno, "name", node.id)
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield Passage(node.lineno, "comment", node.name.replace("_", " "))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            read.add(node.value)
            yield Passage(node.lineno, "docstring", str(node.value.value))
        elif has_messages and isinstance(node, ast.JoinedStr | ast.Constant) and node not in read:
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            read.update(parts)
            message = "".join(str(p.value) if isinstance(p, ast.Constant) else "X" for p in parts)
            if MESSAGE.search(message) and not re.search(r"[<{]", message):
                yield Passage(node.lineno, "message", message)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield Passage(token.start[0], "comment", token.string.lstrip("#: "))


def _markdown(text: str) -> Iterator[Passage]:
    text = re.sub(r"(?ms)^ *```.*?^ *```", lambda code: "\n" * code[0].count("\n"), text)
    for block in re.finditer(r"^#+ .*|(?:^(?!#)[^\n]*\S[^\n]*\n?)+", text, re.MULTILINE):
        kind = "heading" if block[0].startswith("#") else "page"
        yield Passage(_line(text, block), kind, block[0].lstrip("# "))


def _line(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start()) + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / path for path in PATHS])
    count = 0
    paths = parser.parse_args().paths
    if missing := [str(path) for path in paths if not path.exists()]:
        parser.error(f"{', '.join(missing)}: not found")
    for root in paths:
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            is_read = path.is_file() and not NOT_READ.search(path.as_posix())
            for passage in passages(path) if is_read else ():
                for line, rule, text in problems(passage):
                    count += 1
                    print(f"{path}:{line}: {rule}: {text}")
    if count:
        sys.exit(f"{count} problems. scripts/prose.toml has the words to use instead.")


if __name__ == "__main__":
    main()
