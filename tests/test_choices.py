"""Every choice and every key has an effect: a change changes the outcome, or a message gives the reason. Every
pair of choices trains, validates and translates, or is refused before anything is done."""

import collections
import hashlib
import itertools
import json
import logging
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from builders import PICTURED, choices, compose
from commands import run
from PIL import Image
from typechecker import unchecked

from nmt import components
from nmt.configuration.configure import configure
from nmt.foundation.errors import Stopped, UserError
from nmt.foundation.part_limits import ConfigErrors
from nmt.foundation.signatures import signature
from nmt.model.precision import usable_precision
from nmt.pipeline.assembly.run_parts import parts_of
from nmt.pipeline.run_training import train
from nmt.storage import checkpoint as ckpt
from nmt.training.callback import Callback
from nmt.training.run_directory import RunDirectory

WORDS = [
    "Haus",
    "katze",
    "Über",
    "2031",
    "ein",
    "und",
    "der",
    "läuft",
    "x²",
    "grün",
    "…",
    "42",
    "Ball",
    "sieht",
    "von",
    "mit",
]
TINY = [
    "sizes.encoder=4", "sizes.decoder=8", "sizes.readout=6", "sizes.vocabulary=60",
    "model.embedding_size=6", "batching.sentences=8", "batching.pool=3", "trainer.max_epochs=2", "schedule.warmup=1",
    "trainer.log_every=2", "translation.max_length_factor=1.0", "translation.max_length_offset=2", "seed=3", "final_test=true", "search=greedy",
]  # fmt: skip


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    folder, generator = tmp_path_factory.mktemp("corpus"), random.Random(1)
    for part, size in (("train", 24), ("validation", 2), ("test", 1)):
        rows = [generator.choices(WORDS, k=generator.choice((2, 3, 5, 9))) for _ in range(size)]
        rows += [*rows[:2], ["ein"] * 12, ["rare", "ß"], ["ein"], ["42"]]
        (folder / f"{part}.en").write_text("".join(" ".join(row) + "\n" for row in rows))
        (folder / f"{part}.de").write_text("".join(" ".join(row[::-1][:7]) + "\n" for row in rows))
        (folder / f"{part}.tag").write_text(
            "".join(" ".join(word[0] for word in row) + "\n" for row in rows)
        )
        (folder / f"{part}.links").write_text(
            "".join(f"0-{min(len(row), 7) - 1} 1-0\n" for row in rows)
        )
    generator = np.random.default_rng(1)
    for part, size in (("train", 16), ("validation", 4), ("test", 4)):
        rows = ["image,features,en,de"]
        for k in range(size):
            Image.fromarray(generator.integers(0, 256, (11, 9, 3), np.uint8)).save(
                folder / f"{part}{k}.png"
            )
            rows.append(
                f"{part}{k}.png,grids.npz#{k},{generator.choice(WORDS)},{generator.choice(WORDS)} {generator.choice(WORDS)}"
            )
        (folder / f"{part}.csv").write_text("\n".join(rows) + "\n")
    np.savez(folder / "grids.npz", **{str(k): generator.normal(size=(2, 3, 4)) for k in range(16)})
    return [f"data.{part}={folder}/{part}" for part in ("train", "validation", "test")]


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("nmt.pipeline.assembly.run_parts.trackers_of", lambda _: [])
    with unchecked():
        yield


def outcome(corpus, *overrides):
    """All files of a training without times, or its error message."""
    folder, saves = Path(corpus[0].partition("=")[2]).parent / "run", []
    shutil.rmtree(folder, ignore_errors=True)
    original = RunDirectory.save_last

    def counted(self, *arguments):
        saves.append(1)
        original(self, *arguments)

    RunDirectory.save_last = counted
    try:
        tiny = TINY[:-1] if "search=beam" in overrides else TINY
        score = train(
            configure(
                "train", [*tiny, *corpus_for(corpus, overrides), *overrides, f"run_dir={folder}"]
            )
        ).score
    except UserError as error:
        return {"refused": str(error)}
    except Stopped as stop:  # trainer.stop_after
        return {"stopped": stop.planned}
    finally:
        RunDirectory.save_last = original
        for handler in logging.getLogger("nmt").handlers[:]:
            logging.getLogger("nmt").removeHandler(handler)
            handler.close()
    result = {
        "score": score,
        "saves": len(saves),
        "names": sorted(p.name for p in folder.iterdir()),
    }
    for name in (ckpt.LAST, ckpt.BEST):
        digest = hashlib.sha256()
        for key, tensor in sorted(ckpt.read(folder / name).tensors.items()):
            digest.update(
                f"{key} {tuple(tensor.shape)}".encode() + tensor.contiguous().numpy().tobytes()
            )
        result[name] = digest.hexdigest()
    answers = folder / "test.txt"
    result["texts"] = answers.read_text() if answers.exists() else None
    results = json.loads((folder / "results.json").read_text())
    result["scores"] = {
        key: value for key, value in results.get("scores", results).items() if "seconds" not in key
    }
    result["records"] = [
        {k: v for k, v in json.loads(line).items() if k != "speed"}
        for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]
    return result


class InMemory(Callback):
    """A store and a callback that keep the figures of a training in memory."""

    def __init__(self):
        self.figures = []

    def save_last(self, *_): ...

    save_best = save_snapshot = save_last

    def on_update(self, update):
        self.figures.append(replace(update, speed=0.0))

    def on_validation(self, update, epoch, validation, best):
        self.figures.append((update, epoch, validation.metrics, best))


def learnt(corpus, *overrides):
    """The figures and the last weights of a training in memory, or its error message."""
    try:
        typed = [*TINY, "max_validation=1", *corpus_for(corpus, overrides), *overrides]
        settings = configure("train", typed)
        memory = InMemory()
        random.seed(settings.seed)
        np.random.seed(settings.seed)
        torch.manual_seed(settings.seed)
        parts = parts_of(settings, torch.device("cpu"))
        training = {"optimizer": parts.optimizer, "schedule": parts.schedule}
        parts.trainer.fit(parts.task, **training, store=memory, callbacks=[memory])
    except UserError as error:
        return {"refused": str(error)}
    weights = {name: p.detach().clone() for name, p in parts.task.network.named_parameters()}
    return {"figures": memory.figures, "weights": ckpt.weights_hash(weights)}


def corpus_for(corpus, overrides):
    """The keys of the text, or of the pictures if the encoder reads them."""
    encoder = next(
        (text.removeprefix("encoder=") for text in overrides if text.startswith("encoder=")), ""
    )
    if encoder not in PICTURED:
        return ["data=text", "data.source=en", "data.target=de", *corpus]
    tables = [f"{text}.csv" for text in corpus]
    channels = "encoder.places.channels=4" if "+" in encoder else "encoder.channels=4"
    image = ["data.image=features", channels] if "grid" in encoder else []
    source = ["data.source=en"] if "+" in encoder else []
    return ["data=captions", "data.caption=de", *tables, *image, *source]


STUCK = ["optimizer=sgd", "optimizer.lr=1e-30", "trainer.max_epochs=5"]
"""A training that never gets better."""
REINFORCED = ["window.estimator=reinforce", "trainer.max_epochs=4"]
CONTEXT = {
    "encoder.dropout": ["encoder.num_layers=2"], "encoder.residual": ["encoder.num_layers=2"],
    "model.lexicon_use": ["model.lexicon=auto"], "model.lexicon_epsilon": ["model.lexicon=auto"],
    "model.factor_size": ["data.factors=[tag]"], "objective.guided_alignment": ["data.alignment=links"],
    "encoder.recurrent_dropout_of": ["encoder.recurrent_dropout=0.3"],
    "decoder.recurrent_dropout_of": ["decoder.recurrent_dropout=0.3"],
    "encoder.variational_dropout": ["encoder.num_layers=2"], "decoder.dropout": ["decoder.num_layers=2"],
    "decoder.residual": ["decoder.num_layers=2"], "decoder.variational_dropout": ["decoder.num_layers=2"],
    "trainer.average": ["trainer.max_epochs=4"], "window.reward": REINFORCED, "window.entropy": REINFORCED,
    "window.expected": REINFORCED, "window.decay": REINFORCED, "trainer.patience": STUCK, "schedule.patience": STUCK, "schedule.shrink": STUCK,
    "trainer.on_nan": ["optimizer=sgd", "optimizer.lr=1e38"], "trainer.keep": ["trainer.max_epochs=4"],
    "batching.tokens": ["batching.sentences=0"], "schedule.start": ["trainer.max_epochs=3"], "schedule.every": ["trainer.max_epochs=4"],
    "objective.pace": ["objective.end=0.1"], "metric.lowercase": ["tokenizer=char"],
    "tokenizer.reserve": ["sizes.vocabulary=45"],
    "optimizer.decoupled_weight_decay": ["optimizer.weight_decay=0.5"],
}  # fmt: skip
VALUES = {
    "batching.sentences": "5", "objective.pace": "0.1", "batching.tokens": "60", "batching.pool": "1", "trainer.save_every": "0", "trainer.keep": "2",
    "trainer.average": "2", "trainer.patience": "1", "trainer.max_updates": "3", "trainer.ema": "0.9", "trainer.precision": "bfloat16",
    "trainer.capture": "true", "trainer.clip_norm": "0.001", "trainer.clip_value": "0.0001", "trainer.validate_every": "0.5", "trainer.validate_every_updates": "3",
    "trainer.on_nan": "skip", "filters.max_length": "4", "filters.max_ratio": "1.2", "max_validation": "2",
    "schedule.start": "1", "schedule.patience": "1", "schedule.warmup": "20", "optimizer.eps": "0.1", "optimizer.weight_decay": "0.5",
    "window.distance": "1", "attention.heads": "4", "encoder.longest": "8", "encoder.widths": "[32,64,96]", "attention.longest": "3", "decoder.bridge": "mean", "metric.char_order": "2",
    "metric.tokenize": "char", "sizes.encoder": "6", "encoder.hidden_size": "6", "tokenizer.vocabulary_size": "50", "sizes.vocabulary": "50",
    "tokenizer.character_coverage": "0.98", "tokenizer.reserve": "1.0", "translation.max_source": "3", "translation.max_length_offset": "3",
    "translation.max_length_factor": "0.1", "translation.no_repeat_ngram_size": "1", "tokenizer.sample": "150", "filters.max_symbols": "0.5", "tokenizer.normalization": "nfkc", "model.tying": "output", "model.lexicon": "auto", "model.lexicon_use": "mixture", "objective.updates": "2", "freeze": "[encoder]", "cell": "lstm", "final_test": "false",
}  # fmt: skip
ELSEWHERE = (
    "init",
    "vectors",
    "translation.unknown",
    "device",
    "run_dir",
    "repeats",
    "resume",
    "store",
    "threads",
    "log",  # test_json_log.py
    "time_budget",  # test_trainer.py
    "trainer.time_budget",
    "data",
    "search",
    "translation.batch_tokens",
)
"""Keys of other tests: initial weights, machines, folders, stores, data. Searches with scores are tested below."""


def keys(group=None, choice=None):
    """The keys of a group's choice (or those at the top) with their values."""
    config = compose(*([f"{group}={choice}"] if group else []), "data=text", "data.train=x", "data.validation=x", "data.source=a",
                     "data.target=b")  # fmt: skip
    node = config[group] if group else {k: v for k, v in config.items() if not isinstance(v, dict)}
    for part in ("words", "places"):  # of an encoder of words and pictures
        node |= {f"{part}.{k}": v for k, v in node.pop(part, {}).items()}
    return {k: v for k, v in node.items() if not k.endswith("_target_")}


def other(key, value, group, choice):
    """A different value of the same type."""
    if key == "metric.name":
        return "chrf" if choice == "loss" else "loss"
    if key == "tokenizer.vocabulary_size" and choice in ("char", "word"):
        return "15"
    if isinstance(value, list) and value and isinstance(value[-1], float):  # null: a usual value
        return (
            f"[{','.join(str((one or 0.001) * 0.9) for one in value)}]"
            if value[-1] < 9
            else "[0.0001,0.0002]"
        )
    usual = key.replace(".words.", ".").replace(".places.", ".")
    if usual in VALUES:
        return VALUES[usual]
    if isinstance(value, bool):
        return str(not value).lower()
    if isinstance(value, int):
        return str(value + 1)
    if isinstance(value, float):
        return str(value * 0.5 + 0.2)
    node = compose(f"{group}={choice}")[group]
    _, *parts, name = key.split(".")
    for part in parts:
        node = node[part]
    hint = signature(components.class_of(group, node))[0][name]
    return next(str(v) for v in hint.__args__ if v != value)


WEIGHTS = (
    "decoder",
    "encoder",
    "attention",
    "window",
    "normalizer",
    "optimizer",
    "schedule",
    "model",
    "sizes",
    "objective",
)
"""Groups whose keys change the weights, so a training in memory shows what they do."""
LAYERS = ("decoder", "encoder", "attention", "normalizer", "model", "sizes")
"""Groups whose keys show in the first updates."""
CHOSEN = [
    (group, choice)
    for group in ("encoder", "decoder", "attention", "window", "normalizer", "objective", "schedule", "optimizer", "metric", "tokenizer")
    for choice in choices(group) if choice not in ("file", "distillation")  # test_fine_tuning.py, test_objectives.py
] + [(group, None) for group in ("model", "filters", "batching", "translation", "trainer", "sizes", "")]  # fmt: skip


def fitting(group, choice):
    """Further choices that a choice requires."""
    if (group, choice) in (("decoder", "fixed"), ("attention", "none")):
        return ["decoder=fixed", "attention=none"]
    if choice in ("unidirectional", "reversed", "alternating"):
        return ["sizes.encoder=8"]
    return []


BEYOND = {
    *(("encoder", name) for name in ("bidirectional+convolution", "bidirectional+grid", "reversed", "unidirectional")),
    *(("decoder", name) for name in ("conditional", "luong")),
    *(("schedule", name) for name in ("cosine", "inverse_sqrt", "luong_halving", "noam")),
} | {
    (group, choice)
    for group, quick in (("optimizer", ("adam", "sgd", "adafactor")), ("metric", ("bleu",)), ("tokenizer", ("unigram",)))
    for choice in choices(group) if choice not in quick
}  # fmt: skip
"""Choices whose keys others have too, or PyTorch: `scripts/test -m slow tests/test_choices.py`."""


QUICK = [
    ("attention", "concat"),
    ("window", "local_p"),
    ("optimizer", "sgd"),
    ("schedule", "linear"),
    ("objective", "cross_entropy"),
]
"""Choices whose keys the default tests try; those of all others are exhaustive."""


def marks(group, choice):
    if (group, choice) in BEYOND:
        return [pytest.mark.slow]
    return [] if (group, choice) in QUICK else [pytest.mark.exhaustive]


@pytest.mark.parametrize(
    ("group", "choice"),
    [pytest.param(g, c, id=f"{g or 'top'}={c}", marks=marks(g, c)) for g, c in CHOSEN],
)
def test_every_key_of_every_choice_means_something(corpus, group, choice):
    chosen = [*fitting(group, choice), *([f"{group}={choice}"] if choice else [])]
    if group in LAYERS:
        chosen += ["trainer.max_updates=3"]
    result = learnt if group in WEIGHTS else outcome
    named = {
        f"{group}.{k}" if group else k: v
        for k, v in (keys(group, choice) if choice else keys_of(group)).items()
    }
    seen: dict[tuple[str, ...], dict] = {}
    idle = []
    for key, value in named.items():
        if key.startswith(ELSEWHERE):
            continue
        if (
            key == "trainer.precision"
            and usable_precision("bfloat16", torch.device("cpu")) == "float32"
        ):
            continue  # this machine would only emulate it
        needed = CONTEXT.get(key.replace(".words.", "."), ())
        if ".words." in key:
            needed = tuple(text.replace("encoder.", "encoder.words.") for text in needed)
        context = (*chosen, *needed)
        if key.endswith(".vocabulary_size"):
            context = (*context, "sizes.vocabulary=60")
        if context not in seen:
            seen[context] = result(corpus, *context)
        changed = result(corpus, *context, f"{key}={other(key, value, group, choice)}")
        if changed == seen[context]:
            idle.append(f"{key}: {value} → {other(key, value, group, choice)}")
    assert idle == []


def keys_of(group):
    config = compose(
        "data=text", "data.train=x", "data.validation=x", "data.source=a", "data.target=b"
    )
    node = config[group] if group else {k: v for k, v in config.items() if not isinstance(v, dict)}
    return {k: v for k, v in node.items() if k != "_target_"}


# experiment=auto has the values of other recipes
@pytest.mark.parametrize("experiment", sorted({*choices("experiment")} - {"auto"}))
def test_no_recipe_sets_what_changes_nothing(experiment):
    settings = configure("train", [f"experiment={experiment}"])
    import yaml

    from nmt.configuration.yaml_files import CONF

    recipe = yaml.safe_load(Path(CONF, "experiment", f"{experiment}.yaml").read_text())
    named = {f"{g}.{k}" for g, node in recipe.items() if isinstance(node, dict) for k in node}
    assert not named & {*settings.idle()}


@pytest.mark.parametrize(("overrides", "said"), [
    (["encoder.dropout=0.5"], "encoder.dropout=0.5: has no effect in this configuration (needs several layers"),
    (["decoder.variational_dropout=true", "decoder.num_layers=2", "decoder.dropout=0"], "set decoder.dropout"),
    (["decoder.residual=true"], "decoder.residual"), (["model.variational_dropout=true", "model.dropout=0", "model.readout_dropout=0"], "dropout is 0"),
    (["search=beam", "search.n_best=3"], "search.n_best"), (["objective=scheduled_sampling", "objective.decay=constant", "objective.start=0.5", "objective.end=0.1"], "objective.end"),
    (["objective=scheduled_sampling", "objective.decay=constant", "objective.start=0.5", "objective.updates=9"], "objective.updates"),
    (["trainer.average=3", "trainer.max_epochs=1"], "validates only once"), (["trainer.average=1"], "at least 2"),
    (["tokenizer=char", "tokenizer.split_digits=true"], "every character is already a token"),
    (["tokenizer=word", "tokenizer.reserve=0.5"], "there are no subwords"), (["tokenizer=word", "tokenizer.split_digits=true"], "words are not split"),
    (["decoder=fixed", "attention=none", "search=beam", "search.coverage=0.1"], "search.coverage=0.1: needs attention"),
    (["decoder=fixed", "attention=none", "objective.doubly_stochastic=1"], "objective.doubly_stochastic=1: needs attention"),
    (["decoder=fixed", "attention=none", "translation.unknown=copy"], "translation.unknown=copy: needs attention"),
    (["window=monotonic", "normalizer=sparsemax"], "window=monotonic ignores the normalizer"), (["metric.tokenize=ja-mecab"], "sacrebleu[ja]"),
])  # fmt: skip
def test_what_would_change_nothing_is_refused(corpus, overrides, said):
    assert said in outcome(corpus, *overrides)["refused"]


def test_what_would_change_nothing_is_refused_by_the_other_commands(small_run):
    pair = "source=x", "target=y"
    for command, overrides, output in (
        ("translate", ["averaging=log_probability"], "averaging"), ("translate", ["shares=[1]"], "shares"),
        ("align", [*pair, "symmetrize=union"], "reverse=RUN_DIR"), ("score", [*pair, "averaging=probability"], "needs an ensemble"),
    ):  # fmt: skip
        with pytest.raises(ConfigErrors, match="has no effect in this configuration") as caught:
            configure(command, [f"model={small_run}", *overrides])
        assert output in str(caught.value)


# Searches, whose settings show in scores


@pytest.mark.parametrize(
    "search",
    [
        pytest.param(name, marks=[] if name == "beam" else [pytest.mark.exhaustive])
        for name in choices("search")
    ],
)
def test_every_key_of_every_search_means_something(small_run, tmp_path, search):
    source = tmp_path / "in"
    source.write_text("a b c d e f\nb b\nf e d c b a a b\n")

    def found(*overrides):
        result = run("translate", f"model={small_run}", f"input={source}", f"search={search}", "format=jsonl",
                     "translation.max_length_offset=3", *overrides)  # fmt: skip
        assert result.returncode == 0, result.stderr.decode()
        return result.stdout

    context = {"coverage": ["translation.max_length_factor=0.1"], "alpha": ["search.length_penalty=reward"], "width": ["search.groups=1"] if search == "diverse" else [], "epsilon": ["search.temperature=2"], "groups": ["search.n_best=3"],
               "diversity": ["search.n_best=6"]}  # fmt: skip
    values = {"width": "2", "length_penalty": "none", "coverage": "0.3", "groups": "2", "diversity": "0.0", "candidates": "3",
              "source": "beam", "utility": "bleu", "top_k": "1", "top_p": "0.2", "epsilon": "0.2", "seed": "5", "n_best": "2"}  # fmt: skip
    for key, value in keys("search", search).items():
        given = context.get(key, [])
        if search == "mbr" and key in ("temperature", "epsilon", "seed", "candidates", "utility"):
            given = ["search.n_best=3"]
        changed = values.get(key) or str(value * 0.5 + 0.2)
        assert found(*given) != found(*given, f"search.{key}={changed}"), key


# All pairs

AXES = {
    "encoder": [[f"encoder={c}", *fitting("encoder", c)] for c in choices("encoder") if c not in PICTURED],
    "decoder": [[f"decoder={c}"] for c in choices("decoder")],
    "attention": [[f"attention={c}"] for c in choices("attention")],
    "window": [[f"window={c}"] for c in choices("window")],
    "normalizer": [[f"normalizer={c}"] for c in choices("normalizer")],
    "objective": [["objective=cross_entropy"], ["objective.doubly_stochastic=0.5"], ["objective=scheduled_sampling", "objective.pace=0.1"], ["objective=minimum_risk", "objective.candidates=3"], ["objective=r_drop", "model.dropout=0.2"]],
    "search": [[f"search={c}"] for c in choices("search")] + [["search=beam", "search.coverage=0.1"]],
    "metric": [[f"metric={c}"] for c in choices("metric")],
    "optimizer": [[f"optimizer={c}", "optimizer.lr=0.01"] for c in choices("optimizer")],
    "schedule": [[f"schedule={c}"] for c in choices("schedule")],
    "tokenizer": [[f"tokenizer={c}"] for c in choices("tokenizer") if c != "file"] + [["tokenizer=bpe", "tokenizer.sampling=0.2"], ["tokenizer.joint=false", "model.tying=output"]],
    "cell": [["cell=gru"], ["cell=lstm"], ["cell=norm_gru"], ["cell=norm_lstm"]],
    "layers": [[], ["decoder.num_layers=2", "encoder.num_layers=2", "decoder.residual=true", "encoder.residual=true"],
               ["decoder.transition_depth=2", "encoder.transition_depth=2"]],
    "dropout": [["model.dropout=0.2"], ["model.variational_dropout=true", "decoder.recurrent_dropout=0.2", "encoder.recurrent_dropout=0.2"]],
    "bridge": [[f"decoder.bridge={b}"] for b in ("tanh", "mean", "last", "none")],
    "copy": [[], ["model.copy=true"], ["model.lexical=true"], ["model.copy=true", "model.lexical=true"], ["model.lexicon=auto"]],
    "columns": [[], ["data.source=[en,de]"], ["data.factors=[tag]"], ["data.alignment=links", "objective.guided_alignment=0.5"]],
    "precision": [["trainer.precision=float32"], ["trainer.precision=bfloat16"]],
    "trainer": [["trainer.ema=0.9"], ["trainer.accumulate=2", "trainer.validate_every_updates=2", "trainer.average=2"]],
    "batches": [["batching.sentences=8"], ["batching.sentences=0", "batching.tokens=60"]],
}  # fmt: skip
BASE = ["trainer.max_updates=3", "decoder.hidden_size=8", "model.embedding_size=6"]


def command_line(corpus, picked):
    usual = {"decoder": ["decoder=luong"], "attention": ["attention=general"], **picked}
    return [
        *TINY[:-1],
        *corpus_for(corpus, ()),
        *BASE,
        *(text for texts in usual.values() for text in texts),
    ]


def refusal(corpus, picked):
    """Why a training is refused, None if it is not."""
    try:
        configure("train", command_line(corpus, picked))
    except UserError as error:
        return str(error)
    return None


@pytest.mark.slow
def test_all_pairs_of_choices(corpus, tmp_path):
    """Each pair is in some training, or is refused whatever the rest; then the model translates and scores."""
    generator, open_pairs, refused, runs = random.Random(1), [], collections.Counter(), 0
    for a, b in itertools.combinations(AXES, 2):
        open_pairs += [((a, i), (b, j)) for i in range(len(AXES[a])) for j in range(len(AXES[b]))]
    generator.shuffle(open_pairs)
    left, lines = set(open_pairs), tmp_path / "in"
    lines.write_text("ein Haus\n\nkatze 42 Über\n")
    beside = tmp_path / "columns"
    beside.write_text("ein Haus\te H\n\nkatze 42 Über\tk 4 neu\n")
    for pair in open_pairs:
        if pair not in left:
            continue
        picked = {axis: AXES[axis][i] for axis, i in pair}
        if picked.get("attention") == ["attention=none"]:
            picked.setdefault("decoder", ["decoder=fixed"])
        if picked.get("decoder") == ["decoder=fixed"]:
            picked.setdefault("attention", ["attention=none"])
        why = refusal(corpus, picked)
        if why:
            refused[re.sub(r"\S*\d\S*", "…", why.splitlines()[1])] += 1
            left.discard(pair)
            continue
        numbers = dict(pair)
        for axis in generator.sample(
            [axis for axis in AXES if axis not in picked], len(AXES) - len(picked)
        ):
            gain = {i: sum(1 for b, j in numbers.items() if ((axis, i), (b, j)) in left or ((b, j), (axis, i)) in left)
                    for i in range(len(AXES[axis]))}  # fmt: skip
            for i in sorted(gain, key=lambda i: -gain[i]):
                if refusal(corpus, {**picked, axis: AXES[axis][i]}) is None:
                    picked[axis], numbers[axis] = AXES[axis][i], i
                    break
        folder = tmp_path / f"run{runs}"
        overrides = command_line(corpus, picked)
        result = run("train", *overrides, f"run_dir={folder}")
        assert result.returncode == 0, (overrides, result.stderr.decode())
        several = any(
            text.startswith(("data.source", "data.factors")) for text in picked.get("columns", [])
        )
        source = beside if several else lines
        for command, extra in (
            ("translate", [f"input={source}"]),
            ("score", [f"source={source}", f"target={lines}"]),
        ):
            result = run(command, f"model={folder}", *extra)
            assert result.returncode == 0, (command, overrides, result.stderr.decode())
            assert result.stdout.count(b"\n") == 3
        shutil.rmtree(folder)
        runs += 1
        left -= {tuple(two) for two in itertools.permutations(numbers.items(), 2)}
    print(f"{len(open_pairs):,} pairs: {refused.total()} refused, the others in {runs} trainings")
    for why, count in refused.most_common():
        print(f"  {count}: {why}")
    assert refused.total() < 0.1 * len(open_pairs)
