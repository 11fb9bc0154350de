"""Mutation testing: tries small changes of nmt/ (mutants), drawn with a fixed seed, against the tests.

python scripts/mutants.py [--seed 1] [--count 60] [--seconds 60] [--under nmt/search …] [--workers 2]
                          [--coverage FILE] [--again LOG]

A mutant is killed if a test fails, and late if the tests take longer than --seconds of processor time.
--coverage names the data of pytest-cov; a mutant is tried with the default tests that execute its line,
the tests that execute the fewest lines first:

    pip install pytest-cov
    pytest -n 1 --dist loadfile --cov=nmt --cov-context=test --cov-report=
    python scripts/mutants.py --coverage .coverage

Without coverage, and for JavaScript, the tests are those of the files that name the module or what it
defines. --again repeats the surviving and late mutants of a log with the exhaustive tests too. A mutant
that survives means the same, changes only speed or the text of a message, or is seen by no test.
"""

import argparse
import ast
import compileall
import contextlib
import copy
import importlib
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
Mutant = tuple[Path, tuple[int, str, str]]
"""File; line, change and whole text."""
FILES = 5
"""Largest number of test files for a mutant that is tried by names."""
WAITING = 8
"""Longest real time of a trial in multiples of its processor time."""
FIRST = 40
"""Number of tests that are tried before all others: most mutants end there."""
PRELOADED = (
    "torch", "torch._dynamo", "numpy", "hydra", "omegaconf", "sacrebleu.metrics", "sentencepiece",
    "rich.progress", "hypothesis", "jaxtyping", "beartype", "pytest", "matplotlib.figure",
)  # fmt: skip
"""Packages that are imported once; each trial is a fork of the process that has them."""
OPPOSITES = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Add,
}  # fmt: skip
JAVASCRIPT = {
    " < ": " <= ", " > ": " >= ", " <= ": " < ", " >= ": " > ", " === ": " !== ", " !== ": " === ", " && ": " || ",
    " || ": " && ", " + ": " - ", " - ": " + ", " * ": " + ", " / ": " * ",
}  # fmt: skip
"""Operators of JavaScript and what replaces them."""


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


def javascript_mutants(file: Path) -> list[tuple[int, str, str]]:
    """Line, change and the whole text of each mutant of a JavaScript file."""
    lines, result = file.read_text(encoding="utf-8").splitlines(keepends=True), []
    for number, line in enumerate(lines):
        for old, new in JAVASCRIPT.items():
            for place in re.finditer(re.escape(old), line.partition("//")[0]):
                changed = line[: place.start()] + new + line[place.end() :]
                whole = "".join([*lines[:number], changed, *lines[number + 1 :]])
                result.append(
                    (number + 1, f"{line.strip()[:60]}  →  {changed.strip()[:60]}", whole)
                )
    return result


def mutants(file: Path) -> list[tuple[int, str, str]]:
    """Line, change and the whole text of each mutant of a file."""
    if file.suffix == ".js":
        return javascript_mutants(file)
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


def tests_by_name(file: Path) -> list[str]:
    """The test files that name the module or what it defines, those with most mentions first."""
    texts = {path: path.read_text(encoding="utf-8") for path in ROOT.glob("tests/test_*.py")}
    module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    names = re.findall(
        r"^(?:class|def|function) ([A-Za-z]\w{4,})", file.read_text(encoding="utf-8"), re.M
    )
    words = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in (file.stem, *names)))
    counts = Counter(
        {path: 10 * text.count(module) + len(words.findall(text)) for path, text in texts.items()}
    )
    if file.suffix == ".js":
        counts.update({ROOT / "tests/test_html.py": 1000, ROOT / "tests/test_export.py": 100})
    return [
        str(path.relative_to(ROOT))
        for path, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:FILES]
        if count
    ]


class Coverage:
    """The tests that execute a line, from the data of pytest-cov.

    path: the data file; None: no test is known of any line
    """

    def __init__(self, path: str | None) -> None:
        self.lines: dict[str, dict[int, list[str]]] = {}
        self.sizes: Counter[str] = Counter()
        if path is None:
            return
        from coverage import CoverageData

        data = CoverageData(path)
        data.read()
        for measured in data.measured_files():
            place = "nmt/" + measured.rpartition("/nmt/")[2]
            contexts = data.contexts_by_lineno(measured)
            tests = {
                line: sorted({name.partition("|")[0] for name in names if name})
                for line, names in contexts.items()
            }
            self.lines[place] = tests
            for names in tests.values():
                self.sizes.update(names)

    def tests(self, file: Path, line: int) -> list[str]:
        """Names of the tests that execute the statement of a line, those that execute fewest lines first."""
        measured = self.lines.get(str(file.relative_to(ROOT)), {})
        before = [number for number in measured if number <= line]
        return sorted(measured[max(before)], key=lambda name: self.sizes[name]) if before else []


def run_tests(folder: Path, tests: list[str], seconds: float, marker: str, output: str) -> None:
    """Runs tests on the code of a folder, in a fork, and ends the process with pytest's status."""
    os.setsid()
    os.chdir(folder)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.update(
        PYTHONPATH=str(folder), OMP_NUM_THREADS="1", NMT_SHAPES="0", PYTHONDONTWRITEBYTECODE="1"
    )
    sys.dont_write_bytecode = True
    sys.path[:] = [
        str(folder),
        *(path for path in sys.path if Path(path).resolve() not in (ROOT, ROOT / "scripts")),
    ]
    import pytest
    import torch

    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
    options = [
        "-q",
        "-x",
        "-n",
        "0",
        "--assert=plain",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "-m",
        marker,
    ]
    status = pytest.main([*options, *tests])
    os._exit(int(status))


def tried(folder: Path, tests: list[str], seconds: float, marker: str) -> str:
    """Result of the tests for the code in a folder: killed (with the test's name), late, survived or untested."""
    if not tests:
        return "untested"
    output = str(folder / "output.txt")
    arguments = (folder, tests, seconds, marker, output)
    process = multiprocessing.get_context("fork").Process(target=run_tests, args=arguments)
    process.start()
    process.join(WAITING * seconds)
    is_late = process.is_alive() or process.exitcode in (-signal.SIGXCPU, -signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.join()
    if is_late:
        return "late"
    if process.exitcode in (0, 5):
        return "survived"
    text = Path(output).read_text(encoding="utf-8", errors="replace")
    if process.exitcode == 4:
        sys.exit(f"a test was not found; measure the coverage again:\n{text}")
    failures = re.findall(r"^  repeat: .* '?(tests/test_\w+\.py::.*?)'?$", text, re.M)
    return "killed " + (failures[-1] if failures else "at import")


class Trials:
    """Trials of mutants on a copy of the code.

    folder: folder of the copy, which is made
    settings: the command line
    """

    def __init__(self, folder: Path, settings: argparse.Namespace, coverage: Coverage) -> None:
        self.folder, self.settings, self.coverage = folder, settings, coverage
        self.trusted: set[str] = set()
        self.unusable: set[str] = set()
        folder.mkdir()
        for name in ("nmt", "conf", "tests", "scripts", "pyproject.toml", "README.md"):
            copied = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            copied(ROOT / name, folder / name)
        compileall.compile_dir(folder / "nmt", quiet=1)

    def judge(self, mutant: Mutant) -> str:
        """Result of the tests for a mutant; tests that fail without it do not count."""
        while True:
            result = self._tried(mutant)
            kind, _, test = result.partition(" ")
            if kind != "killed" or "::" not in test or test in self.trusted:
                return result
            if tried(self.folder, [test], self.settings.seconds, "") == "survived":
                self.trusted.add(test)
                return result
            self.unusable.add(test)

    def _tried(self, mutant: Mutant) -> str:
        file, (line, _, text) = mutant
        copied = self.folder / file.relative_to(ROOT)
        copied.write_text(text, encoding="utf-8")
        seconds = self.settings.seconds
        covering = self.coverage.tests(file, line)
        covering = [test for test in covering if test not in self.unusable]
        deselected = [f"--deselect={test}" for test in self.unusable]
        named = [*deselected, *tests_by_name(file)]
        result = "survived"
        for tests in (covering[:FIRST], covering[FIRST:]):
            if tests and result == "survived":
                result = tried(self.folder, tests, seconds, "")
        is_left = bool(self.settings.again) and result == "survived"
        if file.suffix == ".js" or is_left:
            result = tried(self.folder, named, seconds, "exhaustive and not slow")
        elif not covering:
            result = tried(self.folder, named, seconds, "not slow and not exhaustive")
        shutil.copy2(file, copied)
        return result


def work(
    folder: Path, drawn: list[Mutant], settings: argparse.Namespace, coverage: Coverage, results
) -> None:
    """Tries mutants, and puts kind and line of each into `results`."""
    trials = Trials(folder, settings, coverage)
    for mutant in drawn:
        file, (line, change, _) = mutant
        began = time.monotonic()
        kind, _, test = trials.judge(mutant).partition(" ")
        text = (
            f"{kind:9}{time.monotonic() - began:6.0f} s  {file.relative_to(ROOT)}:{line}  {change}"
        )
        results.put((kind, f"{text}\n          by {test}" if test else text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--under", nargs="+", default=["nmt"])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--coverage")
    parser.add_argument("--again")
    settings = parser.parse_args()
    paths = [ROOT / under for under in settings.under]
    if missing := [str(path) for path in paths if not path.exists()]:
        parser.error(f"{', '.join(missing)}: not found")
    files = sorted(
        {file for path in paths for file in ([path] if path.is_file() else path.rglob("*"))}
    )
    files = [file for file in files if file.suffix in (".py", ".js")]
    drawn = [(file, one) for file in files for one in mutants(file)]
    total = len(drawn)
    random.Random(settings.seed).shuffle(drawn)
    drawn = drawn[settings.skip : settings.count]
    if settings.again:
        log = Path(settings.again).read_text(encoding="utf-8")
        left = set(re.findall(r"^(?:survived|late|untested)\s+\d+ s  (.*)$", log, re.M))
        drawn = [
            (file, one)
            for file, one in drawn
            if f"{file.relative_to(ROOT)}:{one[0]}  {one[1]}" in left
        ]
    coverage = Coverage(settings.coverage)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in PRELOADED:
            importlib.import_module(name)
    counts: Counter[str] = Counter()
    results: multiprocessing.SimpleQueue = multiprocessing.SimpleQueue()
    with tempfile.TemporaryDirectory() as temporary:
        for number in range(settings.workers):
            share = drawn[number :: settings.workers]
            folder = Path(temporary, str(number))
            arguments = (folder, share, settings, coverage, results)
            multiprocessing.get_context("fork").Process(target=work, args=arguments).start()
        for _ in drawn:
            kind, line = results.get()
            counts[kind] += 1
            print(line, flush=True)
    print(f"{total:,} mutants, drawn: {dict(counts)}")


if __name__ == "__main__":
    main()
