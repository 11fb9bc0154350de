"""The shape of the code: imports point down, no circles, nothing is heavy that need not be.

The layers are not written down here: they follow from the folders, and the picture in nmt/README.md is compared with them.
"""

import ast
import functools
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import nmt

PACKAGE = Path(nmt.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
COMMANDS = {
    "train",
    "translate",
    "evaluate",
    "score",
    "align",
    "classify",
    "label",
    "average",
    "check_attention",
    "cite",
    "report",
    "compare",
    "serve",
    "export",
    "index",
    "backtranslate",
}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )


MODULES = {module_of(path): path for path in FILES}


@functools.cache
def imported(path: Path, *, types: bool = True) -> set[str]:
    """Modules of nmt that a file imports anywhere in it, inside its functions too; `types`: those for annotations too."""
    tree, result = ast.parse(path.read_text(encoding="utf-8")), set[str]()
    nodes = list(ast.walk(tree))
    for_types = [
        inner
        for node in nodes
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    ]
    for node in nodes:
        if (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").split(".")[0] == "nmt"
            and (types or node not in for_types)
        ):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            result |= {name if name in MODULES else node.module for name in names}
        elif isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names if alias.name.split(".")[0] == "nmt"}
    return result - {module_of(path)}


@functools.cache
def graph() -> dict[str, set[str]]:
    """The modules that each module imports."""
    return {module: imported(path) for module, path in MODULES.items() if module != "nmt"}


def entry(module: str) -> str:
    """The entry of `ls nmt` that a module belongs to."""
    return ([*module.split("."), "nmt"])[1]


@functools.cache
def entries() -> dict[str, set[str]]:
    """The entries of `ls nmt` that each entry imports."""
    result: dict[str, set[str]] = {}
    for module, needs in graph().items():
        result.setdefault(entry(module), set()).update(
            entry(m) for m in needs if m != "nmt" and entry(m) != entry(module)
        )
    return result


def layers(graph: dict[str, set[str]]) -> list[set[str]]:
    """From the bottom up. Raises CycleError if there is no bottom."""
    sorter, result = TopologicalSorter(graph), []
    sorter.prepare()
    while sorter.is_active():
        ready = set(sorter.get_ready())
        result.append(ready)
        sorter.done(*ready)
    return result


@pytest.mark.parametrize("imports", [graph, entries], ids=["files", "folders"])
def test_there_is_no_circle(imports):
    """Function-level imports and those for annotations counted."""
    layers(imports())


def test_a_circle_would_be_found():
    with pytest.raises(CycleError):
        layers({**entries(), "foundation": {"configuration"}})


def test_there_are_at_most_fifteen_folders():
    folders = [
        path
        for path in PACKAGE.iterdir()
        if path.is_dir() and path.name not in ("__pycache__", "conf")
    ]
    assert len(folders) <= 15


def folders() -> list[Path]:
    return sorted({path.parent for path in FILES} - {PACKAGE})


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: folder.name)
def test_a_folder_has_a_docstring_and_a_reading_order(folder):
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
    assert text
    order = re.search(r"^Modules in reading order: (.+?)\.$", text, re.MULTILINE | re.DOTALL)
    assert order, f"{folder}: the docstring has no line 'Modules in reading order: FILE, FILE.'"
    named = {name.strip() for name in re.split(r",\s+", order[1].replace("\n", " "))}
    files = {path.stem for path in folder.glob("*.py")} | {
        path.name for path in folder.iterdir() if path.is_dir()
    }
    assert named - {"this file", "then the others in any order"} <= files, (
        f"{folder}: there are {sorted(files)}"
    )


def test_names_of_modules_and_classes_are_unique():
    modules = [
        module.rpartition(".")[2] for module in MODULES if MODULES[module].name != "__init__.py"
    ]
    classes = [
        node.name
        for path in FILES
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    ]
    repeated = [
        name for names in (modules, classes) for name, count in Counter(names).items() if count > 1
    ]
    assert not repeated


def test_the_map_of_the_house_is_the_house():
    """nmt/README.md draws the layers from the top down; every import points to a row below."""
    text = (PACKAGE / "README.md").read_text(encoding="utf-8")
    drawn = re.search(r"```text\n(.*?)```", text, re.DOTALL)[1]
    rows = [
        re.findall(r"\b[a-z_]+\b", row.split("  ", 1)[0] if "  " in row.strip() else row)
        for row in drawn.splitlines()
    ]
    height = {name: -i for i, row in enumerate(rows) for name in row if name in entries()}
    assert set(height) == set(entries()) - {"__main__"}
    wrong = [
        (a, b)
        for a, needs in entries().items()
        if a in height
        for b in needs
        if height[b] >= height[a]
    ]
    assert not wrong


def reach(module: str) -> set[str]:
    """All modules that a module imports, except those for annotations only."""
    result, waiting = set[str](), [module]
    while waiting:
        path = MODULES.get(waiting.pop())
        for name in imported(path, types=False) if path else ():
            if name not in result:
                result.add(name)
                waiting.append(name)
    return result


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_commands_are_alike_and_short(command):
    """A docstring, `run`, `main`; the work is a function of the package that owns it."""
    text = (PACKAGE / f"{command}.py").read_text(encoding="utf-8")
    docstring, imported, run_and_main, ending = ast.parse(text).body
    code = text.splitlines()[docstring.end_lineno :]
    assert len([line for line in code if line.strip()]) <= 20
    assert text.startswith(f'"""python -m nmt.{command} ')
    assert imported.module == "nmt.configuration.command_line"
    assert ast.unparse(run_and_main).startswith(f"run, main = command('{command}', 'nmt.")
    assert ast.unparse(ending) == "if __name__ == '__main__':\n    main()"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_what_a_command_calls_is_there(command):
    text = (PACKAGE / f"{command}.py").read_text(encoding="utf-8")
    names = re.findall(r'"(nmt\.[\w.]+:\w+)"', text)
    assert names
    for name in names:
        assert callable(pkgutil.resolve_name(name))


def test_the_search_imports_no_model():
    for name in MODULES:
        if name.startswith("nmt.search"):
            assert {entry(m) for m in reach(name)} <= {"foundation", "search", "metric"}, name


def test_the_trainer_imports_no_model():
    known = reach("nmt.training.trainer")
    assert not {m for m in known if entry(m) in ("inference", "configuration", "pipeline")}
    parts = ("nmt.model.", "nmt.training.task.", "nmt.training.objective.")
    assert not {m for m in known if m.startswith(parts)}


def test_configuration_stays_above():
    """Only commands see configuration; what it configures takes plain arguments."""
    assert {name for name, needs in entries().items() if "configuration" in needs} == COMMANDS | {
        "pipeline",
        "loading",
    }
    heavy = {"hydra"}
    for path in FILES:
        if path.parent.name not in ("configuration", "pipeline"):
            names = {
                node.module or ""
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.ImportFrom)
            }
            assert not heavy & {name.split(".")[0] for name in names}, path


def loaded_by(code: str) -> set[str]:
    command = f"import sys\n{code}\nprint(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True
    )
    return set(result.stdout.split())


def test_nothing_heavy_is_loaded_before_it_is_needed():
    assert not {"torch", "hydra", "datasets", "sacrebleu"} & loaded_by("import nmt")
    assert not {"torch", "datasets"} & loaded_by(
        "import nmt.train, nmt.translate, nmt.evaluate, nmt.classify"
    )
    assert "datasets" not in loaded_by("import nmt.loading")
    # a process of a launcher only waits for the process that trains
    assert "torch" not in loaded_by("import nmt.pipeline.launchers")


def test_every_command_is_installed_under_a_name_of_its_own():
    text = (PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8")
    scripts = dict(re.findall(r'^(nmt-\w+) = "(nmt\.\w+:main)"$', text, re.MULTILINE))
    assert scripts == {f"nmt-{command}": f"nmt.{command}:main" for command in COMMANDS}
