"""Do the tests notice wrong code? Tries small changes of nmt/ (mutants), drawn with a fixed seed.

python scripts/mutants.py [--seed 1] [--count 60] [--seconds 120] [--under nmt/search] [--all]

Each is tried with the default tests of the test files that name its module or what it defines, most
mentions first; --all adds the exhaustive ones. It is killed if a test fails, late if they take longer
than --seconds. One that survives means the same, changes speed or a message, or is what no test sees.
"""

import argparse
import ast
import copy
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = 5
"""The most test files that a mutant is tried with."""
OPPOSITES = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Add,
}  # fmt: skip


def variants(node: ast.AST) -> Iterator[ast.AST]:
    """The node with one small change."""
    changed = copy.deepcopy(node)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        changed.ops = [OPPOSITES[type(node.ops[0])]()]
        yield changed
    elif isinstance(node, ast.BoolOp | ast.BinOp) and type(node.op) in OPPOSITES:
        changed.op = OPPOSITES[type(node.op)]()
        yield changed
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        value = node.value
        yield ast.Constant(not value if isinstance(value, bool) else value + 1)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        changed.test = ast.UnaryOp(ast.Not(), node.test)
        yield changed
    elif isinstance(node, ast.Expr | ast.AugAssign) and not isinstance(
        getattr(node, "value", None), ast.Constant
    ):
        yield ast.Pass()
    elif isinstance(node, ast.Return) and ast.unparse(node) != "return None":
        yield ast.Return(ast.Constant(None))


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but annotations, logged and formatted text."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            is_log = isinstance(child, ast.Expr) and "log" in ast.unparse(child.value)[:4]
            if isinstance(child, ast.AST) and not is_log and not isinstance(child, ast.JoinedStr):
                yield from executed(child)


def mutants(file: Path) -> list[tuple[int, str, str]]:
    """Line, change and the whole text of each mutant of a file."""
    text = file.read_text(encoding="utf-8")
    tree, result = ast.parse(text), []
    for node in executed(tree):
        for changed in variants(node):
            source = ast.get_source_segment(text, node) or ""
            new = ast.unparse(ast.fix_missing_locations(changed))
            lines = text.splitlines(keepends=True)
            before = lines[node.lineno - 1].encode()[: node.col_offset].decode()
            start = sum(map(len, lines[: node.lineno - 1])) + len(before)
            new = new.replace("\n", "\n" + " " * node.col_offset)
            whole = text[:start] + new + text[start + len(source) :]
            old = ast.unparse(node).splitlines()[0]
            result.append((node.lineno, f"{old[:60]}  →  {new.splitlines()[0][:60]}", whole))
    return result


def tests_of(file: Path, tests: dict[Path, str]) -> list[str]:
    """The test files that name the module or what it defines, those with most mentions first."""
    module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    names = re.findall(r"^(?:class|def) ([A-Za-z]\w{4,})", file.read_text(encoding="utf-8"), re.M)
    words = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in (file.stem, *names)))
    counts = Counter(
        {path: 10 * text.count(module) + len(words.findall(text)) for path, text in tests.items()}
    )
    return [str(path.relative_to(ROOT)) for path, count in counts.most_common(FILES) if count]


def tried(folder: Path, files: list[str], seconds: float, marker: str) -> str:
    """Result of the tests for the code in a folder: killed, late or survived."""
    options = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-m", marker]
    command = [sys.executable, "-m", "pytest", *options, *files]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder)}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        return "survived" if process.wait(seconds) in (0, 5) else "killed"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return "late"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--under", default="nmt")
    parser.add_argument("--all", action="store_true")
    settings = parser.parse_args()
    files = sorted(Path(ROOT, settings.under).rglob("*.py"))
    drawn = [(file, one) for file in files for one in mutants(file)]
    random.Random(settings.seed).shuffle(drawn)
    tests = {
        path: path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("tests/test_*.py"))
    }
    marker, counts = "not slow" if settings.all else "not slow and not exhaustive", Counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in ("nmt", "conf", "tests", "scripts", "pyproject.toml", "README.md"):
            made = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            made(ROOT / name, folder / name)
        for file, (line, change, text) in drawn[: settings.count]:
            place, began = file.relative_to(ROOT), time.monotonic()
            (folder / place).write_text(text, encoding="utf-8")
            result = tried(folder, tests_of(file, tests), settings.seconds, marker)
            shutil.copy(file, folder / place)
            counts[result] += 1
            seconds = time.monotonic() - began
            print(f"{result:9}{seconds:6.0f} s  {place}:{line}  {change}", flush=True)
    print(f"{len(drawn):,} mutants, drawn: {dict(counts)}")


if __name__ == "__main__":
    main()
