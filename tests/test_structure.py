"""The shape of the code: imports point down, nothing is heavy that need not be."""

import ast
import subprocess
import sys
from pathlib import Path

import nmt

PACKAGE = Path(nmt.__file__).parent
LAYERS = [
    ["interfaces", "errors", "ranges", "allocator", "packed", "word_alignment", "labels"],
    [
        "recurrence",
        "dropout",
        "cross_entropy",
        "data",
        "tokenizer",
        "metrics",
        "schedule",
        "optimizer",
        "search",
        "normalizer",
    ],
    ["window", "corpus", "check", "word_vectors"],
    ["attention", "pooling"],
    ["decoder", "encoder", "batching"],
    ["seq2seq", "classifier"],
    ["objective", "generation", "training_state"],
    ["trainer", "translator", "text_classifier", "checkpoint"],
    ["progress", "run", "plots", "attention_map", "explanation", "formats", "streams"],
    ["device", "build"],
    ["loading"],
    ["preparation", "application", "config"],
    ["task"],
    ["training"],
    ["train", "translate", "evaluate", "score", "align", "classify"],
]
"""From the bottom up: a file imports only from its own package or from layers below it."""


def imports(path: Path) -> set[str]:
    """Modules of nmt that a file imports when it is imported (not inside its functions)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "nmt":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name.split(".")[1] for name in names}
    return found - {"__version__"}


def test_imports_point_down():
    height = {name: i for i, layer in enumerate(LAYERS) for name in layer}
    for path in sorted(PACKAGE.rglob("*.py")):
        own = path.relative_to(PACKAGE).with_suffix("").parts[0]
        if own == "__init__":
            continue
        assert own in height, f"{path.name}: give it a place in LAYERS"
        wrong = [name for name in imports(path) if name != own and height[name] >= height[own]]
        assert not wrong, f"{path.relative_to(PACKAGE)} imports {wrong}"


def test_the_search_and_the_trainer_know_no_model():
    models = {"seq2seq", "decoder", "encoder", "attention", "recurrence", "build"}
    files = [*sorted((PACKAGE / "search").glob("*.py")), PACKAGE / "trainer.py"]
    assert not [path.name for path in files if imports(path) & models]


def loaded_by(code: str) -> set[str]:
    command = f"import sys\n{code}\nprint(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_importing_nmt_loads_nothing_heavy():
    assert not {"torch", "hydra", "datasets", "sacrebleu"} & loaded_by("import nmt")
    assert not {"torch", "datasets"} & loaded_by("import nmt.train, nmt.translate, nmt.evaluate")


def test_translating_does_not_load_datasets():
    assert "datasets" not in loaded_by("import nmt.application")
