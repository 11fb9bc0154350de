"""Configuration: what is chosen is what runs, every YAML works, every fault is found, all at once."""

import dataclasses
import functools
import inspect
import math
import pkgutil
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from builders import (
    CONF,
    SIZES,
    batch,
    choices,
    compose,
    forget_configurations,
    of_words,
    with_pictures,
)

from nmt import components
from nmt.configuration import compose as composition
from nmt.configuration import yaml_files
from nmt.configuration.check import mismatches
from nmt.configuration.configure import COMMANDS, configure, settings_class
from nmt.configuration.overrides import parse
from nmt.configuration.recipe_by_size import (
    MOST_PAIRS,
    RUNGS,
    UNITS,
    TrainingText,
    interpolated,
    position_of,
)
from nmt.configuration.training_settings import TrainSettings
from nmt.drawing import unwritable
from nmt.foundation.configurations import flat
from nmt.foundation.devices import find_device
from nmt.foundation.errors import UserError, typed
from nmt.foundation.interfaces import Candidate
from nmt.foundation.part_limits import ConfigErrors
from nmt.foundation.synonyms import CHOICE_SYNONYMS, SYNONYMS
from nmt.foundation.terminal import early_messages
from nmt.model import precision
from nmt.model.attention.general import General
from nmt.model.precision import usable_precision
from nmt.pipeline.one_after_another import run_all, variants

TABLE = ["data.train=a.csv", "data.validation=b.csv"]
FILES = ["data.train=a", "data.validation=b", "data.source=en", "data.target=de"]
MIXTURE = [f"data.config={Path(__file__).with_name('mixture.yml')}", "data.validation=x"]
NEEDED = {
    "text": FILES,
    "mix": MIXTURE,
    "captions": TABLE,
    "hub": ["data.path=x", "data.source=en", "data.target=de"],
} | dict.fromkeys(("tsv", "csv", "jsonl", "parquet", "tmx", "archive"), FILES)
GROUPS = [
    "data", "tokenizer", "encoder", "decoder", "attention", "window", "normalizer", "optimizer", "schedule", "objective",
    "search", "metric", "trainer",
]  # fmt: skip
PARTNERS = {
    "file": ["tokenizer.model=x"], "distillation": ["objective.teacher=x"], "luong2015": ["decoder.bridge=tanh"],
    "fixed": ["attention=none"], "none": ["decoder=fixed"], "monotonic": ["attention=general"],
    "sparsemax": ["attention=general"], "entmax15": ["attention=general"],
    "grid": ["data=captions", *TABLE], "convolution": ["data=digits"], "captions": ["encoder=grid"], "digits": ["encoder=convolution"],
    "bidirectional+grid": ["data=captions", *TABLE, "data.source=en"],
    "bidirectional+convolution": ["data=captions", *TABLE, "data.source=en"],
}  # fmt: skip


def file_of(group: str, choice: str) -> dict:
    """The content of the choice's file, with unresolved references."""
    return yaml.safe_load(Path(CONF, group, f"{choice}.yaml").read_text()) or {}


def unresolved(*overrides: str, name: str = "train") -> dict:
    return composition.compose_partly(name, list(overrides))[0]


@pytest.mark.parametrize(
    ("group", "name"),
    [
        pytest.param(
            group, name, marks=[pytest.mark.exhaustive] if group in ("experiment", "data") else []
        )
        for group in [*GROUPS, "experiment"]
        for name in choices(group)
        if name != "auto"  # has the values of other recipes
    ],
)
def test_every_choice_composes_builds_and_takes_a_step(group, name):
    overrides = [
        f"{group}={name}",
        *PARTNERS.get(name, []),
        *(NEEDED.get(name, []) if group == "data" else []),
    ]
    TrainSettings.of(compose(*overrides))
    small = compose(*overrides, *of_words(SIZES, overrides))
    torch.manual_seed(0)
    model = components.network(small, 11, 11).train()
    optimizer = components.make(small, "optimizer", parameters=list(model.parameters()))
    before = [p.detach().clone() for p in model.parameters()]
    reader = model.encoder.reader
    data = batch() if reader is None else with_pictures(batch(), reader.channels)
    supplied = {
        "candidate_generator": lambda *_: (
            [[Candidate([4], 0.5), Candidate([5, 6], 0.1)]] * len(data.source)
        ),
        "teachers": [components.network(small, 11, 11)],
    }
    accepted = inspect.signature(components.class_of("objective", small["objective"])).parameters
    needed = {name: value for name, value in supplied.items() if name in accepted}
    objective = components.make(small, "objective", **needed)
    objective(model, data, 10**6).total.backward()
    components.make(small, "trainer")
    components.make(small, "schedule").factor(1, 10, 0.1)
    optimizer.step()
    assert any(not torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


# What you choose is what you get


def rounds(groups: list[str]) -> list[dict[str, str]]:
    """Choices of all groups at once, so that every choice occurs in some round."""
    options = {group: choices(group) for group in groups}
    return [
        {g: names[i % len(names)] for g, names in options.items()}
        for i in range(max(map(len, options.values())))
    ]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(name, marks=[] if name in ("text", "everyday") else [pytest.mark.exhaustive])
        for name in choices("data")
    ],
)
def test_every_choice_with_every_data_set_is_its_own_file(data):
    """Without a recipe, a group has the values of its file, and so has the data. Each data set takes a third of the rounds."""
    groups = [group for group in GROUPS if group != "data"]
    for chosen in rounds(groups)[choices("data").index(data) % 3 :: 3]:
        result = unresolved(
            f"data={data}", "experiment=null", *(f"{g}={c}" for g, c in chosen.items())
        )
        for group, choice in {**chosen, "data": data}.items():
            assert result[group] == file_of(group, choice), (group, choice)
        assert result["sizes"] == {
            "encoder": 256,
            "decoder": 512,
            "readout": 256,
            "vocabulary": 8000,
        }


@pytest.mark.parametrize(
    "experiment",
    [
        pytest.param(
            name, marks=[] if name in ("everyday", "multi30k_best") else [pytest.mark.exhaustive]
        )
        for name in choices("experiment")
    ],
)
def test_every_choice_with_every_experiment_is_its_own_file(experiment):
    """A choice that is not the recipe's own brings nothing of the recipe with it but sizes; one that is changes nothing.

    Each recipe takes a third of the rounds, so every choice is with a third of all recipes."""
    recipe = unresolved(f"experiment={experiment}")
    usual_choices = composition.choices_of("train", [f"experiment={experiment}"])
    for chosen in rounds(GROUPS)[choices("experiment").index(experiment) % 3 :: 3]:
        result = unresolved(f"experiment={experiment}", *(f"{g}={c}" for g, c in chosen.items()))
        for group, choice in chosen.items():
            expected = recipe[group] if usual_choices[group] == choice else file_of(group, choice)
            assert result[group] == expected, (group, choice)
        assert {k: v for k, v in result.items() if k not in GROUPS} == {
            k: v for k, v in recipe.items() if k not in GROUPS
        }


def test_every_choice_of_a_classifier_is_its_own_file():
    groups = ["tokenizer", "encoder", "pooling", "optimizer", "schedule", "trainer"]
    for chosen in rounds(groups):
        result = unresolved(*(f"{g}={c}" for g, c in chosen.items()), name="classify")
        for group, choice in chosen.items():
            assert result[group] == file_of(group, choice), (group, choice)


def test_keys_of_the_command_line_win_over_everything():
    result = compose(
        "experiment=multi30k_fast",
        "optimizer=sgd",
        "optimizer.lr=0.3",
        "trainer.max_epochs=7",
        "seed=9",
    )
    assert (result["optimizer"]["lr"], result["trainer"]["max_epochs"], result["seed"]) == (
        0.3,
        7,
        9,
    )
    assert result["decoder"]["_target_"] == "nmt.model.decoder.luong.Luong"
    assert result["decoder"]["hidden_size"] == 384
    wider = compose("experiment=multi30k_fast", "sizes.decoder=100", "decoder=bahdanau")
    assert wider["decoder"]["hidden_size"] == 100
    assert compose("decoder.hidden_size=64")["sizes"]["decoder"] == 256


TSV = ["data=tsv", "data.source=1", "data.target=2", "data.header=false", "data.split=0.1"]


@pytest.fixture
def table(tmp_path):
    """Returns a function that writes a table of a number of pairs, and returns the overrides for
    it."""

    def written(pairs):
        file = tmp_path / f"{pairs}.tsv"
        file.write_text("a\tb\n" * pairs)
        early_messages.clear()
        return [*TSV, f"data.train={file}"]

    return written


@pytest.mark.parametrize(("pairs", "recipe"), RUNGS.items())
def test_the_computed_recipe_is_the_measured_one_at_its_number_of_pairs(
    table, caplog, pairs, recipe
):
    caplog.set_level("INFO", "nmt")
    keys = table(pairs)
    assert compose(*keys) == compose(f"experiment={recipe}", *keys)
    assert (
        f"{pairs:,} training pairs: using the recipe experiment=auto (that of {recipe}, with sizes.enc"
        in caplog.text
    )
    assert "WARNING" not in caplog.text
    assert compose("experiment=auto", *keys) == compose(*keys)


def test_the_log_states_only_the_settings_of_the_recipe_that_are_used(table, caplog):
    caplog.set_level("INFO", "nmt")
    compose("experiment=auto", *table(3_000), "sizes.encoder=8", "optimizer=sgd")
    assert "(that of low_resource_3k, with sizes.decoder=512," in caplog.text
    assert "optimizer.lr" not in caplog.text


def test_the_computed_recipe_between_measured_ones(table):
    """By hand at the geometric mean of 1,000 and 3,000 pairs; choices are those of the nearer."""
    middle = round(math.sqrt(1_000 * 3_000))
    config = compose(*table(middle))
    assert config["sizes"]["vocabulary"] == round(math.sqrt(1000 * 2000), -2) == 1400
    assert config["decoder"]["hidden_size"] == round(math.sqrt(256 * 512) / 32) * 32 == 352
    assert config["trainer"]["max_epochs"] == round(math.sqrt(50 * 30)) == 39
    assert config["optimizer"]["lr"] == 0.002
    assert config["model"]["dropout"] == round(math.sqrt(0.35 * 0.4), 2) == 0.37
    assert config["trainer"]["ema"] == 0.99
    shared = compose(*table(1_700))["decoder"], compose("experiment=low_resource_1k")["decoder"]
    assert shared[0]["_target_"] == shared[1]["_target_"]
    other = compose(*table(1_800))["decoder"]
    assert other["_target_"] == "nmt.model.decoder.conditional.Conditional"


@pytest.mark.parametrize(
    ("names", "more", "copied"),
    [
        (0.2, [], 0.5), (0.05, [], 0), (0.2, ["data.factors=[tag]"], 0), (0.2, ["data.alignment=links"], 0),
        (0.2, ["data.source=[en,fr]"], 0), (0.2, ["filters.drop_identical=true"], 0),
    ],
)  # fmt: skip
def test_the_computed_recipe_fits_the_columns_and_names_of_the_text(tmp_path, names, more, copied):
    """Pairs share a name, or other words and a sign; copied pairs do not add updates. A lexicon has one source."""
    file = tmp_path / "train.csv"
    rows = [(f"Mr X{i}", f"Herr X{i},") if i % 100 < 100 * names else ("so -", "so -") for i in range(3000)]  # fmt: skip
    file.write_text("en,fr,tag,links,de\n" + "".join(f'{s},x,t t,0-0,"{t}"\n' for s, t in rows))
    data = ["data=csv", f"data.train={file}", f"data.validation={file}", "data.target=de"]
    config = compose(*data, *(more if "source" in str(more) else ["data.source=en", *more]))
    assert config["copied_pairs"] == copied
    assert config["trainer"]["max_epochs"] == (20 if copied else 30)
    assert config["model"]["lexicon"] == (None if "source" in str(more) else "auto")


@pytest.mark.parametrize(
    ("typed", "copied", "epochs"),
    [
        (["copied_pairs=0"], 0, 30), (["copied_pairs=0.2"], 0.2, 25), (["filters.drop_identical=false"], 0.5, 20),
        (["data.source=[en]"], 0.5, 20),
    ],
)  # fmt: skip
def test_the_computed_recipe_fits_typed_values_of_copied_pairs(tmp_path, typed, copied, epochs):
    file = tmp_path / "train.csv"
    file.write_text("en,de\n" + "".join(f"Mr X{i},Herr X{i}\n" for i in range(3000)))
    data = ["data=csv", f"data.train={file}", f"data.validation={file}", "data.target=de"]
    config = compose(*data, "data.source=en", *typed)
    assert (config["copied_pairs"], config["trainer"]["max_epochs"]) == (copied, epochs)
    assert config["model"]["lexicon"] == "auto"


def test_the_computed_recipe_of_a_list_of_files_with_alignments(tmp_path):
    for suffix, line in (("en", "a b"), ("de", "b a"), ("links", "0-1 1-0")):
        (tmp_path / f"train.{suffix}").write_text(f"{line}\n" * 600)
    data = [
        "data=text", f"data.validation={tmp_path}/train", "data.source=en", "data.target=de", "data.alignment=links",
        "objective.guided_alignment=0.5",
    ]  # fmt: skip
    listed = ",".join(f"{tmp_path}/train.{suffix}" for suffix in ("en", "de", "links"))
    one, several = (
        compose(*data, f"data.train={name}") for name in (f"{tmp_path}/train", f"[{listed}]")
    )
    assert one["sizes"] == several["sizes"]
    assert one["trainer"] == several["trainer"]


def test_copying_needs_weights_that_sum_to_1():
    typed = ["window=local_p", "window.normalized=false", "model.copy=true"]
    with pytest.raises(ConfigErrors, match="window.normalized=false: copying and .* that sum to 1"):
        configure("train", typed)


def test_the_computed_recipe_changes_smoothly():
    """Each value is between those of the neighbouring recipes, and near that for slightly fewer pairs."""
    flats = {name: flat(compose(f"experiment={name}")) for name in RUNGS.values()}
    counts = [round(1.05**n) for n in range(1, 300)]
    assert counts[-1] > MOST_PAIRS
    before = None
    for pairs in counts:
        place = position_of(pairs)
        lower, upper = flats[place.lower], flats[place.upper]
        values = interpolated(pairs, lower, upper)
        for key, value in values.items():
            ends = sorted([lower[key], upper[key]])
            if pairs <= max(RUNGS):
                assert ends[0] <= value <= ends[1], (pairs, key)
            if before is not None:
                leap = 0.12 * max(value, before[key]) + UNITS[key]
                assert abs(value - before[key]) <= leap, (pairs, key)
        before = values
    # with more pairs, fewer epochs but more updates
    largest = flats["low_resource_30k"]
    epochs = [interpolated(n, largest, largest)["trainer.max_epochs"] for n in (29_000, 290_000)]
    assert epochs == [16, 6]


@pytest.mark.parametrize("pairs", [50, 1_500, 5_500, 17_000, 60_000])
def test_computed_recipes_are_valid(table, pairs):
    configure("train", table(pairs))


def test_what_is_typed_wins_over_the_computed_recipe(table):
    keys = table(2_001)
    assert compose(*keys, "trainer.max_epochs=3")["trainer"]["max_epochs"] == 3
    assert compose(*keys, "decoder=luong")["decoder"]["_target_"].endswith("Luong")
    assert compose(*keys, "experiment=auto", "sizes.decoder=8")["sizes"]["decoder"] == 8
    shorter = [*keys[:-1], f"{keys[-1]}@:1000"]
    assert compose(*shorter)["sizes"]["vocabulary"] == 1000


def test_a_computed_recipe_fits_what_is_typed(table):
    """Guided attention needs cross-entropy; lexica need attention."""
    guided = compose(*table(29_000), "objective.guided_alignment=0.5")
    assert guided["objective"]["_target_"].endswith("CrossEntropy")
    assert guided["objective"]["guided_alignment"] == 0.5
    for words in (["attention=none"], ["decoder=fixed", "attention=none"]):
        model = compose(*table(2_000), *words)["model"]
        assert (model["lexicon"], model["lexical"]) == (None, False)
    assert compose(*table(2_000), "attention=none", "model.lexical=true")["model"]["lexical"]


def test_only_requested_drawings_need_a_writable_folder(monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    assert not list(unwritable("attention_map", None))
    assert "is read-only" in str(*unwritable("attention_map", "map.html"))


def test_a_null_init_is_no_initial_model(table):
    keys = table(2_000)
    assert compose(*keys, "init=null") == compose(*keys)
    assert compose(*keys, "init=OUT", "init=null") == compose(*keys)


def test_choices_of_further_folders_are_swept_and_hide_nothing(tmp_path, monkeypatch):
    for name, source in (("attention/mine", "attention/general"), ("decoder/luong",) * 2):
        file = tmp_path / f"{name}.yaml"
        file.parent.mkdir()
        file.write_text(Path(yaml_files.CONF, f"{source}.yaml").read_text())
    monkeypatch.setattr(yaml_files, "added_folders", [str(tmp_path)])
    assert variants(["attention=glob(m*)"]) == [["attention=mine"], ["attention=multi_head"]]
    with pytest.raises(ConfigErrors, match=r"decoder=luong: is a choice of nmt, so .*luong\.yaml"):
        composition.compose("train", ["decoder=luong"])
    with pytest.raises(ConfigErrors, match="window=null: must have a choice .available: "):
        configure("train", ["window=null"])
    with pytest.raises(ConfigErrors, match="unknown choice"):
        composition.compose("train", ["decoder=" + "a" * 300])
    (tmp_path / "decoder" / "luong.yaml").rename(tmp_path / "decoder" / "bahdanau.yaml")
    with pytest.raises(ConfigErrors, match=r"decoder=bahdanau: is a choice of nmt"):  # by default
        composition.compose("train", [])


def test_references_are_refused_where_they_are_not_resolved(small_run):
    for text in ("run_dir=${oc.env:HOME}/x", "decoder.readout_size=${encoder.hidden_size}"):
        with pytest.raises(ConfigErrors, match="is not supported here; give the value"):
            configure("train", [text], str(small_run))


def test_every_combination_has_its_threads(monkeypatch, tmp_path):
    (tmp_path / "x").write_text("a\n")
    begun = []
    monkeypatch.setattr("nmt.pipeline.one_after_another.prepare_process", begun.append)
    overrides = ["model=a,b", "threads=1", f"input={tmp_path}/x"]
    run_all("translate", lambda settings: None, overrides)
    assert begun == [1, 1]


def test_keys_of_an_unknown_choice_are_not_compared_with_the_default_choice():
    message = faults("data=txt", "data.train=corpus/train")
    assert "data=txt: unknown choice" in message
    assert "data.train" not in message


def test_settings_of_a_started_network_are_not_logged(table, caplog):
    caplog.set_level("INFO", "nmt")
    compose("experiment=auto", *table(2_000), "init=OUT")
    assert "optimizer.lr=" in caplog.text
    assert "sizes." not in caplog.text and "model." not in caplog.text


@pytest.mark.parametrize("data", [[], ["data=multi30k"], ["data=reverse"]])
def test_pairs_that_cannot_be_counted_are_an_error_of_the_computed_recipe(data):
    with pytest.raises(ConfigErrors, match="experiment: auto counts the training pairs"):
        compose("experiment=auto", *data)


def test_what_is_typed_prevents_a_recipe_by_size(tmp_path):
    """Own sizes, another experiment, or the weights of a model; a missing file selects none."""
    file = tmp_path / "train.tsv"
    file.write_text("a\tb\n" * 100)
    columns = ["data.source=1", "data.target=2", "data.header=false", "data.split=0.1"]
    keys = ["data=tsv", f"data.train={file}", *columns]
    trainer = compose("experiment=null", *keys)["trainer"]
    assert trainer["max_epochs"] == 10
    for more in ("sizes.encoder=8", "init=OUT", "data.train=nowhere"):
        assert compose(*keys, more)["trainer"] == trainer
    assert compose("experiment=everyday", *keys)["sizes"]["decoder"] == 256


def test_sizes_that_prevent_a_recipe_are_logged(tmp_path, caplog):
    caplog.set_level("INFO", "nmt")
    file = tmp_path / "train.tsv"
    file.write_text("a\tb\n" * 100)
    keys = ["data=tsv", f"data.train={file}", "data.source=1", "data.target=2", "data.header=false"]
    keys += ["data.split=0.1", "sizes.decoder=8"]
    early_messages.clear()
    compose(*keys)
    assert "100 training pairs: using no recipe, because sizes are set;" in caplog.text
    assert "add experiment=auto to use the recipe with your sizes" in caplog.text
    caplog.clear()
    early_messages.clear()
    both = compose(*keys, "experiment=auto")
    assert both["sizes"]["decoder"] == 8 and both["trainer"]["max_epochs"] == 50
    caplog.clear()
    compose(*keys, "experiment=null")
    assert not caplog.text


def test_folders_named_by_numbers_need_no_quotes():
    for name in ("2026_11_24", "1.10", "1e5", "007"):
        assert compose("experiment=reverse", f"run_dir={name}")["run_dir"] == name
    assert compose("experiment=reverse", "run_dir=null")["run_dir"] is None


def test_the_default_run_is_an_experiment():
    assert compose() == {**compose("experiment=everyday"), "run_dir": compose()["run_dir"]}
    assert compose("data=everyday")["trainer"]["max_epochs"] == 6  # it is the recipe's data already
    other = compose("data=text", *FILES)
    assert other["sizes"]["decoder"] == 512
    assert other["trainer"]["max_epochs"] == 10
    assert compose("data=text", "experiment=everyday", *FILES)["sizes"]["decoder"] == 256
    assert compose("experiment=null", "data=reverse") == {
        **compose("data=reverse"),
        "run_dir": compose()["run_dir"],
    }


def test_choices_of_ones_own_lie_beside_those_of_the_toolkit(tmp_path, monkeypatch):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment/mine.yaml").write_text(
        "# @package _global_\ndefaults:\n  - multi30k_fast\n  - override /optimizer: sgd\noptimizer:\n  lr: 0.7\n"
    )
    monkeypatch.setattr(yaml_files, "added_folders", [])
    yaml_files.search_beside(str(tmp_path))
    try:
        result = compose("experiment=mine")
        assert (result["optimizer"]["lr"], result["sizes"]["decoder"]) == (0.7, 384)
        assert compose("experiment=mine", "optimizer=adam")["optimizer"]["lr"] == 0.002
    finally:
        monkeypatch.undo()
        forget_configurations()
    with pytest.raises(ConfigErrors, match="experiment=mine: unknown choice"):
        compose("experiment=mine")


def test_mistakes_in_choices_of_ones_own_are_named(tmp_path, monkeypatch):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment/mine.yaml").write_text("seed: 3\n")
    (tmp_path / "decoder").mkdir()
    (tmp_path / "decoder/mine.yaml").write_text(
        "_target_: nmt.model.decoder.luong.Luong\nhidden_sze: 32\n"
    )
    (tmp_path / "decoder/latin.yaml").write_bytes("# größer\n".encode("latin-1"))
    monkeypatch.setattr(yaml_files, "added_folders", [])
    yaml_files.search_beside(str(tmp_path))
    try:
        with pytest.raises(ConfigErrors, match="must begin with the line # @package _global_"):
            compose("experiment=mine")
        with pytest.raises(ConfigErrors, match="the choice of its group lacks this key"):
            compose("decoder=mine", "attention=concat")
        with pytest.raises(ConfigErrors, match="decoder=latin: 'utf-8' codec can't"):
            compose("decoder=latin")
    finally:
        monkeypatch.undo()
        forget_configurations()


def test_a_group_without_a_default_may_be_null():
    assert configure("train", ["experiment=reverse", "callback=null"]).callback is None


RECOMMENDED = {
    "lr", "dropout", "label_smoothing", "warmup", "final", "num_layers", "grids", "source", "target", "name",
}  # fmt: skip
"""Keys for which a YAML file may recommend more than the class does alone."""


@pytest.mark.parametrize(
    "group", sorted({path.parent.name for path in Path(CONF).glob("*/*.yaml")})
)
def test_a_class_alone_has_the_defaults_of_its_yaml(group):
    for path in Path(CONF).glob(f"{group}/*.yaml"):
        settings = yaml.safe_load(path.read_text())
        target = str((settings or {}).get("_target_", ""))
        if not target.startswith("nmt.") or group in ("data", "tokenizer"):
            continue
        for key, parameter in inspect.signature(pkgutil.resolve_name(target)).parameters.items():
            value = settings.get(key)
            is_reference = isinstance(value, str) and "${" in value
            if key in settings and key not in RECOMMENDED and not is_reference:
                expected = tuple(value) if isinstance(value, list) else value
                assert parameter.default in (inspect.Parameter.empty, expected), f"{path}: {key}"


def test_the_groups_of_train_yaml_are_listed_in_it():
    text = Path(CONF, "train.yaml").read_text()
    for group in GROUPS:
        assert re.search(rf"^  - {group}: ", text, re.MULTILINE), group


@pytest.mark.parametrize("command", COMMANDS)
def test_the_settings_of_a_command_are_the_keys_of_its_yaml(command):
    given = {field.name for field in dataclasses.fields(settings_class(command))}
    assert set(compose(name=command)) == given - {"callback"}  # a group without a usual choice


# Faults


def faults(*overrides: str) -> str:
    with pytest.raises(ConfigErrors) as caught:
        configure("train", list(overrides))
    return str(caught.value)


def test_names_of_other_toolkits_get_the_key():
    with pytest.raises(ConfigErrors) as caught:
        configure("train", [f"{name}=1" for name in SYNONYMS])
    assert len(caught.value.faults) == len(SYNONYMS)
    for (name, synonyms), fault in zip(SYNONYMS.items(), caught.value.faults, strict=True):
        keys = [key for key in synonyms if key != "input"]  # a key of nmt.translate
        assert fault.nearest == tuple(keys), name
        assert set(keys) <= known_keys(), "what is advised exists"


@functools.cache
def known_keys():
    """All whole keys and groups of a training."""
    config = compose()
    inner = {f"{g}.{k}" for g, node in config.items() if isinstance(node, dict) for k in node}
    return {*config, *inner}


def test_choices_of_other_toolkits_get_the_choice():
    for name, choice in CHOICE_SYNONYMS.items():
        groups = [group for group in GROUPS if choice in choices(group)]
        for word in choice.split() if "=" in choice else ():
            group, value = word.split("=")
            assert group == "cell" or value in choices(group)
            groups += [g for g in ("attention", "encoder", "decoder") if name not in choices(g)]
        assert groups
        for group in groups:
            assert f"{group}={name}: unknown choice; did you mean {choice}?" in faults(
                f"{group}={name}"
            )


def test_a_page_has_the_table_of_synonyms():
    page = Path(CONF, "other_toolkits.md").read_text()
    for name, choice in CHOICE_SYNONYMS.items():
        assert re.search(rf"^\|.*`{name}`.*\| `{choice}` \|$", page, re.MULTILINE)
    for name, keys in SYNONYMS.items():
        row = re.search(rf"^\|.*`{name}`.*\| `{re.escape(keys[0])}`", page, re.MULTILINE)
        assert row, f"| … `{name}` … | {', '.join(f'`{key}`' for key in keys)} |"


def test_all_faults_are_listed_at_once():
    message = faults(
        "decoder=bahdana", "trainer.max_epoch=3", "optimizer.lr=-1", "seed=abc", "attention=dot",
        "decoder.hidden_size=100", "search.length_penalty=foo", "nonsense=1", "model.tying=1", "batching.tokens=100",
    )  # fmt: skip
    for expected in (
        "decoder=bahdana: unknown choice; did you mean bahdanau? (available: bahdanau, conditional,",
        "trainer.max_epoch: key not found; did you mean max_epochs?",
        "optimizer.lr=-1: out of range, must be a number with 0 < value",
        "seed=abc: must be a whole number",
        "search.length_penalty=foo: must be one of none, average, power, wu",
        "nonsense: key not found",
        "model.tying=1: must be one of none, output, all",
        "set exactly one of them",
    ):
        assert expected in message
    assert len(message.splitlines()) == 9


def test_faults_are_values():
    with pytest.raises(ConfigErrors) as caught:
        configure("train", ["trainer.max_epoch=3", "optimizer=addam", "seed=-1"])
    result = {fault.key: fault for fault in caught.value.faults}
    assert result["trainer.max_epoch"].nearest == ("max_epochs",)
    assert set(result["optimizer"].choices) == {*choices("optimizer")}
    assert result["optimizer"].nearest == ("adam",)
    assert result["seed"].value == "-1"


def test_a_fault_that_several_groups_repeat_is_reported_once():
    message = faults("cell=rnn")
    assert message.count("cell=rnn") == 1
    assert "must be one of gru, lstm" in message


@pytest.mark.parametrize(
    ("overrides", "remedy"),
    [
        (["decoder=fixed"], "add attention=none"),
        (["attention=none"], "choose attention=concat"),
        (
            ["attention=dot", "decoder.hidden_size=40", "decoder.readout_size=128"],
            "set decoder.hidden_size=256",
        ),
        (
            ["decoder.readout_size=40"],
            "set model.embedding_size=40, decoder.readout_size=128, or model.tying=none",
        ),
        (["tokenizer.joint=false"], "set tokenizer.joint=true or model.tying=output"),
        (["batching.tokens=100"], "set exactly one of them"),
        (["search.n_best=9"], "search.width=5"),
        (["tokenizer=word", "tokenizer.sampling=0.1"], "only unigram and bpe can sample"),
        (["objective=scheduled_sampling", "objective.start=0.1"], "objective.end"),
        (["objective=scheduled_sampling", "objective.end=1"], "set this key below 1"),
        (["objective=scheduled_sampling", "objective.decay=constant"], "objective.start=1.0: all"),
        (
            ["data=text"],
            "data.train: missing; set data.train=… (--help data.train explains this key)",
        ),
        (["key"], "must have the form key=value"),
        (["optimizer=adam", "optimizer=sgd"], "optimizer: set twice (adam and sgd)"),
        (["grids=[seed=1]"], "must have the form key=value"),
        (["trainer.max_epochs=banana"], "trainer.max_epochs=banana: must be a whole number"),
        (["seed=4294967296"], "seed=4294967296: out of range"),
        (["encoder.beam_size=3"], "encoder.beam_size: key not found; did you mean search.width?"),
        (["training.epochs=3"], "training.epochs: key not found; did you mean trainer.max_epochs?"),
        (["attention.heads=4"], "attention.heads: key not found; did you mean attention?"),
        (["trainr.max_epochs=3"], "trainr: key not found; did you mean trainer?"),
        (["run.yaml"], "to train from the config.yaml of a run, write --from run.yaml"),
        (["encoder.hidden.size=3"], "encoder.hidden: key not found; did you mean hidden_size?"),
        (["+seed.x=3"], "seed.x: key not found; seed has no keys"),
        (["~seed.x"], "seed.x: key not found; seed has no keys"),
        (["run_dir=${nowhere}"], "run_dir: "),
        (["experiment=null", "experiment=auto"], "experiment: set twice (null and auto)"),
        (["~model.dropuot"], "~model.dropuot: key not found, so it cannot be deleted"),
        (["decoder@encoder=luong"], "packages (@) are not supported"),
        (["translation.max_source=null"], "translation.max_source=null: must have a value"),
        (["schedule._target_=nmt.sweep.job.gpus"], "not a class of nmt.training.schedule"),
        (["sweep._target_=nmt.sweep.job.gpus"], "not a class of nmt.sweep"),
        (["data=mix", "data.tags=abc"], "data.tags=abc: must be names with values, as in {NAME:"),
        (["data=tsv", "data.train=[a,b]"], "data.train=[a,b]: must be text, not a list"),
    ],
)
def test_impossible_combinations_are_refused_with_a_remedy(overrides, remedy):
    assert remedy in faults(*overrides)


def test_an_unusable_device_is_refused():
    with pytest.raises(UserError, match="device=cuda:7: not available on this machine"):
        find_device("cuda:7")
    with pytest.raises(UserError, match="device=meta: not available on this machine"):
        find_device("meta")


def test_precision_without_hardware_falls_back_with_a_message(monkeypatch, caplog):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False})
    with caplog.at_level("WARNING", "nmt"):
        assert usable_precision("bfloat16", torch.device("cpu")) == "float32"
    assert "running in float32" in caplog.text


@pytest.mark.parametrize("is_native", [True, False])
def test_the_fastest_precision_of_a_device(monkeypatch, is_native):
    monkeypatch.setattr(precision, "int8_is_native", lambda: is_native)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: is_native)
    for device, name in (("cpu", "int8"), ("cuda", "bfloat16")):
        expected = name if is_native else "float32"
        assert precision.fastest_precision(torch.device(device)) == expected


# Optimizers of PyTorch


def test_every_optimizer_of_torch_is_a_choice_or_has_a_reason():
    """Each with all its parameters that are settings, so that a new version of PyTorch is noticed."""
    from nmt.training.optimizer import NOT_SETTINGS, OF_TORCH

    kinds = {
        name: kind
        for name, kind in vars(torch.optim).items()
        if inspect.isclass(kind)
        and issubclass(kind, torch.optim.Optimizer)
        and kind is not torch.optim.Optimizer
    }
    ours = {"Adam", "AdamW", "SGD", "Adadelta"}
    assert set(kinds) - {"LBFGS", "SparseAdam", "Muon"} == {*OF_TORCH} | ours
    assert {*choices("optimizer")} == {name.lower() for name in {*OF_TORCH} | ours}
    for name in OF_TORCH:
        keys = {*compose(f"optimizer={name.lower()}")["optimizer"]} - {"_target_"}
        assert keys == {*inspect.signature(kinds[name]).parameters} - {*NOT_SETTINGS}


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["optimizer=radam", "optimizer.betas=[0.9]"],
            "optimizer.betas=[0.9]: must be [a number with 0 ≤ value < 1, a number with 0 ≤ value < 1]",
        ),
        (
            ["optimizer=rprop", "optimizer.etas=[1.5,1.2]"],
            "optimizer.etas=[1.5,1.2]: must be [a number with 0 < value < 1, a number with 1 < value]",
        ),
        (
            ["optimizer=radam", "optimizer.betas=[0.9,1.5]"],
            "optimizer.betas=[0.9,1.5]: must be [a number with 0 ≤ value < 1, ",
        ),
        (
            ["optimizer=adamax", "optimizer.eps=-1", "optimizer.weight_decay=-1"],
            "optimizer.eps=-1: out of range",
        ),
        (
            ["optimizer=adamax", "optimizer.eps=-1", "optimizer.weight_decay=-1"],
            "optimizer.weight_decay=-1: out of range",
        ),
        (
            ["optimizer=rprop", "optimizer.step_sizes=[-1,5]"],
            "optimizer.step_sizes=[-1,5]: must be [a number with 0 < value",
        ),
        (["optimizer=rmsprop", "optimizer.alpha=3"], "optimizer.alpha=3: out of range"),
        (["search.length_penalty=power", "search.alpha=300"], "search.alpha=300: out of range"),
        (["optimizer=RAdam"], "did you mean radam?"),
        (
            ["optimizer=nadam", "optimizer.momentum_decay=x"],
            "optimizer.momentum_decay=x: must be a number",
        ),
        (["optimizer=rmsprop", "optimizer.beta1=0.9"], "optimizer.beta1: key not found"),
        (
            ["optimizer=adagrad", "optimizer.lr=-1"],
            "optimizer.lr=-1: out of range, must be a number with 0 < value",
        ),
        (["optimizer=lbfgs"], "optimizer=lbfgs: unknown choice"),
    ],
)
def test_parameters_of_torch_are_checked_as_ours_are(overrides, said):
    with pytest.raises(ConfigErrors) as caught:
        configure("train", overrides)
    assert said in str(caught.value)


def test_a_constructor_that_raises_is_an_error_with_its_place(monkeypatch):
    @functools.wraps(General.__init__)
    def init(self, *args, **named):
        raise TypeError("no layer")

    monkeypatch.setattr(General, "__init__", init)
    expected = "<locals>.init: TypeError: no layer ("
    assert expected in faults("decoder=luong", "attention=general")
    assert "test_config.py:" in faults("decoder=luong", "attention=general")


def test_parameters_without_annotation_accept_every_value():
    class Free:
        def __init__(self, *, weight=1.0, other: Any = None):
            pass

    assert not [*mismatches({"weight": "a", "other": [1]}, Free, "objective")]
    assert [error.key for error in mismatches({"heavy": 1}, Free, "objective")] == [
        "objective.heavy"
    ]


def test_every_score_is_tried_on_a_tiny_example(monkeypatch):
    """A score inside the package nmt is tried too: a user may have added or changed it."""
    monkeypatch.setattr(General, "forward", lambda self, query, keys: query @ keys)
    assert "a test of the score function with a tiny example failed" in faults(
        "decoder=luong", "attention=general"
    )


@pytest.mark.parametrize(
    "value", ["größe/日本", "a=b/x", "par(en)/x", "sq'uote", 'double"quote', "back\\slash("]
)
def test_text_that_has_no_place_in_the_grammar_of_hydra_is_a_value(value):
    [override], errors = parse([f"run_dir={value}"])
    assert (override.value(), errors) == (value, [])
    # Suggested commands can be typed into a shell.
    [word] = shlex.split(typed(run_dir=value))
    assert parse([word])[0][0].value() == value


def test_commas_references_and_functions_need_quotes():
    for value in ("ä,ö", "${ä", "choice(ä", "glob(ö*)", "{a:ä}", '"ä'):
        parsed, [error] = parse([f"run_dir={value}"])
        assert parsed == []
        assert "Put the value in quotes twice" in str(error)


@pytest.mark.parametrize("text", ["decoder..x=ä", "decoder.=ä", "a@b@c=ä", "a/=ä", "ä=1"])
def test_wrong_keys_of_special_values_are_one_message(text):
    parsed, [error] = parse([text])
    assert parsed == []
    assert "must have the form key=value" in str(error)


def test_values_of_a_sweep_are_those_that_were_typed():
    typed_values = ["x=choice('größe a',b)", "y='null',1"]
    combinations = [[one.value() for one in parse(words)[0]] for words in variants(typed_values)]
    assert combinations == [["größe a", "null"], ["größe a", 1], ["b", "null"], ["b", 1]]


@pytest.mark.parametrize(
    ("pairs", "epochs", "epochs_with_copies"), [(3_000, 30, 20), (29_000, 16, 16)]
)
def test_only_recipes_for_little_text_have_copied_pairs(
    monkeypatch, pairs, epochs, epochs_with_copies
):
    for has_many_names, expected in ((False, epochs), (True, epochs_with_copies)):
        text = TrainingText(pairs, has_many_names=has_many_names)
        monkeypatch.setattr(composition, "read_training_text", lambda _, text=text: text)
        config = composition.compose("train", ["data=text", "data.train=x"])
        assert config["trainer"]["max_epochs"] == expected
        assert config["copied_pairs"] == (0.5 if expected < epochs else 0)
