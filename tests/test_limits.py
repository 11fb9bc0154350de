"""Limits of parts: a part brings its own conflicts in one Python file and one YAML, and the configuration names no part."""

import ast
import importlib
import re
import sys
from pathlib import Path
from typing import Annotated

import pytest
import torch
import yaml
from builders import CONF, SIZES, batch, compose, forget_configurations
from commands import failed, run

import nmt
from nmt import components
from nmt.configuration import compose as composition
from nmt.configuration import yaml_files
from nmt.configuration.configure import configure
from nmt.foundation.part_limits import ConfigErrors, idle_keys
from nmt.foundation.ranges import Range
from nmt.model.layers.cells.lstm import LSTM

PARTS = {
    "objective": (
        "nmt.training.objective",
        "label_smoothing: 0.0\nstrength: 1.0\n",
        '''
        from nmt.foundation.ranges import Positive
        from nmt.training.objective.cross_entropy import CrossEntropy


        class Mine(CrossEntropy):
            def __init__(self, *, label_smoothing: float = 0.0, strength: Positive = 1.0) -> None:
                super().__init__(label_smoothing=label_smoothing)

            @classmethod
            def conflicts(cls, run):
                yield from super().conflicts(run)
                if run.value("model.copy"):
                    yield run.error("model.copy", "is not for my objective")

            @classmethod
            def idle(cls, run):
                return {"objective.strength": "nothing is strong"}
        ''',
        ["model.copy=true"],
        "model.copy=true: is not for my objective",
    ),
    "data": (
        "nmt.data",
        "size: 3\nsource: en\ntarget: de\n",
        '''
        from nmt.data import Pairs, Splits
        from nmt.foundation.part_limits import ConfigError
        from nmt.foundation.ranges import Size


        class Mine:
            def __init__(self, *, size: Size, source: str, target: str) -> None:
                self.size = size

            @classmethod
            def conflicts(cls, run):
                if run.value("filters.drop_identical"):
                    yield run.error("filters.drop_identical", "would leave nothing of my data")

            def load(self):
                pairs = Pairs(["a b"] * self.size, ["a b"] * self.size, "mine")
                return Splits(pairs, pairs, None, ("en", "de"))
        ''',
        ["filters.drop_identical=true"],
        "filters.drop_identical=true: would leave nothing of my data",
    ),
    "encoder": (
        "nmt.model.encoder",
        "hidden_size: 256\ncell: gru\n",
        '''
        from nmt.foundation.ranges import Width
        from nmt.model.encoder.bidirectional import Bidirectional
        from nmt.model.layers.cells import CellName


        class Mine(Bidirectional):
            def __init__(self, *, embedding_size: int, hidden_size: Width, cell: CellName) -> None:
                super().__init__(embedding_size=embedding_size, hidden_size=hidden_size, cell=cell)

            @classmethod
            def conflicts(cls, run):
                yield from super().conflicts(run)
                if run.sources > 1:
                    yield run.error("data.source", "are too many for my encoder")
        ''',
        ["data=text", "data.train=a", "data.validation=b", "data.source=[x,y]", "data.target=z"],
        "data.source=[x,y]: are too many for my encoder",
    ),
}  # fmt: skip
"""Package, settings and source of a part of each kind, a command line that it refuses, and the message."""


CHOICES = {
    "decoder/old": Path(CONF, "decoder/luong.yaml")
    .read_text()
    .replace("nmt.model.decoder", "nmt.decoder"),
    "trainer/with_class": "_target_: my.Class\n",
    "metric/with_class": "_target_: my.Class\n",
    "trainer/short": "max_epochs: 3\n",
    "tokenizer/short": "_target_: nmt.tokenizer.SentencePiece\n",
    "metric/short": "name: chrf\n",
}
"""YAML files of a user."""


@pytest.fixture(scope="module")
def own_choices(tmp_path_factory):
    """A folder of --config-dir with CHOICES and PARTS; each part is one Python file in its package and one YAML."""
    folder, choices = tmp_path_factory.mktemp("conf"), dict(CHOICES)
    with pytest.MonkeyPatch.context() as patch:
        for group, (package, settings, source, *_) in PARTS.items():
            choices[f"{group}/mine"] = f"_target_: {package}.my_{group}.Mine\n{settings}"
            text = "\n".join(line.removeprefix(8 * " ") for line in source.splitlines())
            (folder / f"my_{group}.py").write_text(text)
            module = importlib.import_module(package)
            patch.setattr(module, "__path__", [*module.__path__, str(folder)])
        for name, text in choices.items():
            (folder / f"{name}.yaml").parent.mkdir(exist_ok=True)
            (folder / f"{name}.yaml").write_text(text)
        patch.setattr(yaml_files, "added_folders", [])
        yaml_files.search_beside(str(folder))
        yield folder
    forget_configurations()
    for group, (package, *_) in PARTS.items():
        sys.modules.pop(f"{package}.my_{group}", None)
    importlib.invalidate_caches()


@pytest.mark.usefixtures("own_choices")
@pytest.mark.parametrize("part", PARTS)
def test_a_part_and_its_conflict_are_one_file_and_one_yaml(part):
    *_, refused, message = PARTS[part]
    configure("train", [f"{part}=mine"])
    config = compose(f"{part}=mine", *(SIZES if part != "data" else []))
    if part == "data":
        assert len(components.make(config, "data").load().train) == 3
    else:
        objective = components.make(config, "objective")
        network = components.network(config, 11, 11).train()
        assert torch.isfinite(objective(network, batch(), 1).total)
    with pytest.raises(ConfigErrors) as caught:
        configure("train", [f"{part}=mine", *refused, "trainer.patience=-1"])
    assert "trainer.patience=-1: out of range" in str(caught.value)
    with pytest.raises(ConfigErrors) as caught:
        configure("train", [f"{part}=mine", *refused])
    assert message in str(caught.value)


def test_a_recurrent_cell_has_conflicts_of_its_own(monkeypatch):
    """Reported once, though encoder and decoder have the cell; as one file: test_recurrence.py."""
    refusing = classmethod(lambda cls, run: iter([run.error("model.copy", "is not for my cell")]))
    monkeypatch.setattr(LSTM, "conflicts", refusing, raising=False)
    configure("train", [])
    for typed in (["cell=lstm"], ["encoder.cell=lstm"], ["decoder.cell=lstm"]):
        with pytest.raises(ConfigErrors) as caught:
            configure("train", typed)
        assert str(caught.value).count("model.copy=false: is not for my cell") == 1


@pytest.mark.usefixtures("own_choices")
def test_a_part_names_its_keys_without_effect():
    with pytest.raises(ConfigErrors) as caught:
        configure("train", ["objective=mine", "objective.strength=2"])
    assert "objective.strength=2: has no effect in this configuration (nothing is strong)" in str(
        caught.value
    )


def test_the_first_rule_that_applies_gives_the_reason():
    rules = [(0, "first", "x"), ("b", "second", "x", "y"), (True, "third", "x", "z")]
    assert idle_keys(*rules) == {"x": "second", "y": "second", "z": "third"}


def targets() -> set[str]:
    """Class paths of all parts."""
    result = set()
    for file in Path(CONF).rglob("*.yaml"):
        result |= set(re.findall(r"^_target_: (nmt\.\S+)$", file.read_text(), re.MULTILINE))
    return result


FAMILIES = {path.name for path in Path(CONF).iterdir() if path.is_dir()}
"""Names of groups, some of which are modules too."""
ORDINARY = {"text", "reverse"}
"""Values and keys of commands that some module is named after."""


@pytest.mark.parametrize(
    "file", sorted((Path(nmt.__file__).parent / "configuration").glob("*.py")), ids=lambda f: f.stem
)
def test_the_configuration_names_no_part(file):
    classes = {target.rpartition(".")[2] for target in targets()}
    modules = {target.split(".")[-2] for target in targets()} - FAMILIES - ORDINARY
    tree = ast.parse(file.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    named = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.alias):
            words = {node.id if isinstance(node, ast.Name) else node.name}
        elif isinstance(node, ast.Attribute):
            words = {node.attr}
        elif isinstance(node, ast.ImportFrom):
            words = set((node.module or "").split("."))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in docstrings:
                continue
            named |= modules & {node.value, *re.findall(r"\.(\w+)", node.value)}
            words = set(re.findall(r"\w+", node.value))
        else:
            continue
        named |= words & classes
        if isinstance(node, ast.ImportFrom):
            named |= words & modules
    assert not named
    assert len(classes) > 50


@pytest.mark.usefixtures("own_choices")
def test_an_old_class_path_in_a_yaml_of_ones_own_still_works():
    settings = configure("train", ["decoder=old"])
    assert yaml.safe_load(CHOICES["decoder/old"])["_target_"] == "nmt.decoder.luong.Luong"
    assert settings.decoder["_target_"] == "nmt.model.decoder.luong.Luong"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("lr=1", "lr: key not found; did you mean optimizer.lr?"),
        ("hidden_size=3", "did you mean encoder.hidden_size or decoder.hidden_size?"),
        ("trainer.lr=1", "trainer.lr: key not found; did you mean optimizer.lr?"),
        ("max_epoch=1", "did you mean trainer.max_epochs?"),
        ("trainer.max_epoch=1", "did you mean max_epochs?"),
        ("sed=1", "did you mean seed?"),
    ],
)
def test_a_key_at_the_wrong_place_finds_its_group(typed, meant):
    with pytest.raises(ConfigErrors) as caught:
        configure("train", [typed])
    assert meant in str(caught.value)


def test_a_command_composes_once_for_the_usual_recipe_and_twice_for_another_choice(monkeypatch):
    counted = []
    composed = composition.by_hydra
    monkeypatch.setattr(
        composition, "by_hydra", lambda *a: counted.append(a) or composed(*a)
    )  # fmt: skip
    for overrides, most in (
        ([], 1),
        (["seed=2"], 1),
        (["experiment=reverse"], 1),
        (["decoder=luong"], 2),
        (["decoder=luong", "attention=dot", "encoder=alternating"], 2),
    ):
        forget_configurations()
        counted.clear()
        composition.compose("train", overrides)
        assert len(counted) <= most, overrides
    forget_configurations()


@pytest.mark.usefixtures("own_choices")
@pytest.mark.parametrize(
    ("group", "message"),
    [
        ("trainer", "trainer._target_=my.Class: not a class of nmt.training.trainer"),
        ("metric", "metric._target_=my.Class: not a class of nmt.metric"),
    ],
)
def test_a_class_that_a_group_cannot_have_is_refused(group, message):
    with pytest.raises(ConfigErrors, match=re.escape(message)):
        configure("train", [f"{group}=with_class"])


@pytest.mark.usefixtures("own_choices")
@pytest.mark.parametrize(
    ("group", "key", "value"),
    [
        ("trainer", "precision", "float32"),
        ("tokenizer", "sampling", 0.0),
        ("metric", "lowercase", False),
    ],
)
def test_keys_that_a_choice_leaves_out_have_their_defaults(group, key, value):
    assert getattr(configure("train", [f"{group}=short"]), group)[key] == value


def test_a_file_that_is_not_yaml_is_named_without_a_traceback(tmp_path, monkeypatch):
    (tmp_path / "hydra/launcher").mkdir(parents=True)
    (tmp_path / "hydra/launcher/basic.yaml").write_text("a: [\n")
    monkeypatch.setattr(yaml_files, "added_folders", [])
    yaml_files.search_beside(str(tmp_path))
    try:
        for command in ("train", "translate"):
            with pytest.raises(ConfigErrors, match=r"basic\.yaml"):
                composition.compose(command, [])
    finally:
        monkeypatch.undo()
        forget_configurations()


def test_a_whole_number_is_a_float_where_a_float_is_expected():
    """attention.sharpness=3 of the README's score, and any other key with a fraction."""
    from nmt.foundation.signatures import as_float

    for hint in (
        float,
        float | None,
        Annotated[float, Range(0)],
        Annotated[float, Range(0)] | None,
    ):
        assert type(as_float(3, hint)) is float
    for hint in (int, int | float, bool, str, None, list[int]):
        assert as_float(3, hint) == 3
        assert type(as_float(3, hint)) is int
    assert as_float(True, float) is True
    made = components.make(compose("optimizer.lr=1", "trainer.clip_norm=5"), "trainer")
    assert type(made.clip_norm) is float


def test_a_misspelt_key_that_a_yaml_leaves_out_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(yaml_files, "added_folders", [])
    (tmp_path / "attention").mkdir()
    target = "_target_: nmt.model.attention.multi_head.MultiHead\n"
    (tmp_path / "attention/short.yaml").write_text(target)
    typed = ["attention=short", "attention.heds=2", f"--config-dir={tmp_path}"]
    failed(run("train", *typed), "attention.heds: key not found; did you mean heads?")
    monkeypatch.undo()
    forget_configurations()
