"""Plugins: the repository of tests/plugin_example is trained, swept, translated, loaded, resumed, and refused."""

import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from builders import forget_configurations
from commands import ROOT, failed, run

import nmt
from nmt.analysis.citations import papers_of, print_papers
from nmt.configuration.check import mismatches
from nmt.configuration.configure import configure
from nmt.foundation import plugins
from nmt.foundation.configurations import flat
from nmt.foundation.errors import UserError
from nmt.foundation.part_limits import ConfigErrors
from nmt.foundation.ranges import NonNegative, Size
from nmt.foundation.signatures import signature
from nmt.metric import Metric, Result
from nmt.model.decoder.luong import Luong
from nmt.storage import checkpoint as ckpt
from nmt.sweep.run_status import RunState, find
from nmt.training.objective import check_objective

EXAMPLE = Path(__file__).with_name("plugin_example")
PARTS = [
    "data=doubled", "attention=cosine", "decoder=scaled", "encoder=averaged", "objective=entropy", "metric=length",
]  # fmt: skip
TINY = [
    "data.train=60", "data.validation=10", "trainer.max_epochs=2", "sizes.encoder=8", "sizes.decoder=16", "sizes.readout=8",
    "model.embedding_size=8", "search=greedy", "tokenizer=word",
]  # fmt: skip
NEEDED = re.escape("needs the plugin mynmt, whose code is not run without permission")


@pytest.fixture
def findable(monkeypatch):
    """mynmt can be imported, and nothing of it is imported or permitted."""
    monkeypatch.syspath_prepend(EXAMPLE)
    monkeypatch.setattr(plugins, "_of_process", [])
    forgotten()
    yield
    monkeypatch.undo()
    forgotten()


def forgotten():
    """Removes mynmt from the imported modules."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "mynmt"]:
        del sys.modules[name]
    plugins.installed.cache_clear()
    forget_configurations()


@pytest.fixture(scope="module")
def trained_example(tmp_path_factory):
    """A run of the example."""
    folder = tmp_path_factory.mktemp("plugin") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLE)
        patch.setattr(plugins, "_of_process", [])
        notes = ["callback=notes", f"callback.file={folder.parent}/notes.txt"]
        typed = [*PARTS, *TINY, *notes, "trainer.log_every=1", "batching.sentences=40"]
        result = run("train", "--plugins", "mynmt", *typed, f"run_dir={folder}")
        assert result.returncode == 0, result.stderr.decode()
        assert b"python -m nmt.translate --plugins mynmt model=" in result.stderr
    forgotten()
    return folder


@pytest.mark.usefixtures("findable")
def test_a_model_of_a_plugin_is_loaded_with_permission_only(trained_example):
    with pytest.raises(UserError, match=NEEDED) as caught:
        nmt.load(trained_example)
    assert "add --plugins mynmt" in str(caught.value)
    assert "mynmt" not in sys.modules
    translator = nmt.load(trained_example, plugins=["mynmt"])
    assert type(translator.models[0].decoder).__module__ == "mynmt.decoder"
    assert len(translator.translate(["a b"])) == 1
    with pytest.raises(UserError, match=NEEDED):  # the permission was for one call
        nmt.load(trained_example)


def changed(folder, monkeypatch, file, old, new):
    """Makes a copy of the example in which a text of one file is replaced."""
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = (folder / "mynmt" / file).read_text("utf-8")
    assert old in text
    (folder / "mynmt" / file).write_text(text.replace(old, new), "utf-8")
    monkeypatch.syspath_prepend(folder)


@pytest.mark.usefixtures("findable")
def test_a_decoder_that_fails_in_a_search_is_named(trained_example, tmp_path, monkeypatch):
    """One message for every command: the method, its line, and the command that tests the class."""
    line = "readout = output.readout * memory.values.new_ones(len(memory.mask), 1, 1)"
    replaced = "return replace(output, readout=output.readout * self.scale)"
    right = f"{line}\n        return replace(output, readout=readout)"
    changed(tmp_path / "own", monkeypatch, "decoder.py", replaced, right)
    typed = [f"model={trained_example}", "search=beam", "search.width=3"]
    result = run("translate", "--plugins=mynmt", *typed, stdin="a b\nb a\n")
    file = tmp_path / "own" / "mynmt" / "decoder.py"
    number = file.read_text("utf-8").splitlines().index(f"        {line}") + 1
    failed(
        result,
        "Scaled.forward: RuntimeError: The size of tensor a",
        f"({file}:{number}: {line}); to test your classes: ",
        f"python -m nmt.check_attention {file}:Scaled\n",
    )
    assert result.returncode == 1


@pytest.mark.usefixtures("findable")
@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            "decoder.py",
            "super().forward(embedded",
            "(memory.encoded.values.mul_(2.0), super().forward(embedded",
            "classes of mynmt may change tensors in place or return wrong values",
        ),
        ("score.py", "return self.sharpness", "return torch.nan * self.sharpness", "is NaN"),
        (
            "score.py",
            "self.sharpness = ",
            "self.register_buffer('level', torch.ones(1)); self.sharpness = ",
            "checkpoints do not contain the buffer decoder.attention.score.level",
        ),
        (
            "objective.py",
            "self.penalty = penalty",
            "raise ValueError('penalty must be odd')",
            "objective=Entropy: penalty must be odd",
        ),
    ],
)
def test_classes_that_fail_in_training_are_named(tmp_path, monkeypatch, file, old, new, message):
    if "mul_" in new:
        old, new = f"{old}, state, memory, layout)", f"{new}, state, memory, layout))[1]"
    changed(tmp_path / "own", monkeypatch, file, old, new)
    typed = [*PARTS, *TINY, "final_test=false", f"run_dir={tmp_path}/run"]
    errors = failed(run("train", "--plugins=mynmt", *typed), message)
    test = f"python -m nmt.check_attention {tmp_path}/own/mynmt/"
    assert (test in errors) == (file != "objective.py" and "buffer" not in message)


@pytest.mark.usefixtures("findable")
def test_constant_tensors_of_a_class_have_their_values_in_a_loaded_model(tmp_path, monkeypatch):
    """As an attribute and as a buffer that is not persistent; checkpoints contain neither."""
    new = "self.register_buffer('two', torch.tensor(2.0), persistent=False); self.half = torch.tensor(0.5); self.sharpness = "
    changed(tmp_path / "own", monkeypatch, "score.py", "self.sharpness = ", new)
    file = tmp_path / "own/mynmt/score.py"
    file.write_text(
        file.read_text().replace("return self.sharp", "return self.two * self.half * self.sharp")
    )
    typed = [*PARTS, *TINY, "trainer.max_updates=2", f"run_dir={tmp_path}/run"]
    trained = nmt.train(*typed, plugins=["mynmt"])
    score = trained.translator.models[0].decoder.attention.score
    assert (float(score.two), float(score.half)) == (2.0, 0.5)
    assert len(trained.translator.translate(["a b", "b"])) == 2


@pytest.mark.usefixtures("findable")
@pytest.mark.parametrize("divided", ["", " / batch.num_tokens"])
def test_an_objective_that_returns_a_mean_is_named(tmp_path, monkeypatch, divided):
    """The warning names the mean, and does not appear for the sum."""
    new = f"Loss(total=loss{divided}"
    changed(tmp_path / "own", monkeypatch, "objective.py", "Loss(total=loss", new)
    typed = [*PARTS, *TINY, "trainer.max_updates=1", f"run_dir={tmp_path}/run"]
    result = run("train", "--plugins=mynmt", *typed)
    assert result.returncode == 0, result.stderr.decode()
    assert (b"objective=Entropy: `total` is the same" in result.stderr) == bool(divided)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("findable")
def test_commands_take_a_model_of_a_plugin_with_permission_only(trained_example, tmp_path):
    commands = {
        "translate": [f"model={trained_example}", "input=in.txt"],
        "evaluate": [f"model={trained_example}", "source=in.txt", "reference=out.txt"],
        "train": [f"resume={trained_example}", "trainer.max_epochs=3"],
    }
    for name in ("in.txt", "out.txt"):
        (tmp_path / name).write_text("a b\n")
    for command, typed in commands.items():
        refused = run(command, *typed, cwd=tmp_path)
        assert refused.returncode in (1, 2)
        assert "--plugins mynmt" in refused.stderr.decode()
        assert "mynmt" not in sys.modules
    for command, typed in commands.items():
        result = run(command, "--plugins=mynmt", *typed, cwd=tmp_path)
        assert result.returncode == 0, result.stderr.decode()
    page = ["export", "--plugins=mynmt", f"model={trained_example}", "format=html", "output=a.html"]
    failed(run(*page, cwd=tmp_path), "the page does not support")  # classes that JavaScript lacks
    assert "length" in run(
        "evaluate", "--plugins=mynmt", *commands["evaluate"], "metric=length", cwd=tmp_path
    ).stdout.decode()  # fmt: skip


def test_the_checkpoint_of_a_run_names_its_plugins(trained_example, small_run):
    assert ckpt.read(trained_example / ckpt.BEST).meta["plugins"] == ["mynmt"]
    assert "plugins" not in ckpt.read(small_run / ckpt.BEST).meta
    metrics = ckpt.read(trained_example / ckpt.BEST).meta["metrics"]
    assert 0 <= metrics["length"] <= 100


def test_callbacks_are_called_in_the_documented_order_with_the_documented_values(trained_example):
    assert (trained_example.parent / "notes.txt").read_text().splitlines()[:9] == [
        "update 1 of 4", "update 2 of 4", "validation 2 1 bleu True", "epoch 1",
        "update 3 of 4", "update 4 of 4", "validation 4 2 bleu True", "epoch 2", "end bleu",
    ]  # fmt: skip


@pytest.mark.usefixtures("findable")
def test_a_model_file_never_causes_an_import(trained_example, tmp_path, capsys, caplog):
    """No import without the record of the plugin, or through its papers."""
    saved = ckpt.read(trained_example / ckpt.BEST)
    meta = {key: value for key, value in saved.meta.items() if key != "plugins"}
    ckpt.write(tmp_path / "forged.safetensors", meta, saved.tensors)
    with pytest.raises(UserError, match="not a class of nmt.model.attention"):
        nmt.load(tmp_path / "forged.safetensors")
    papers_of(flat(meta["config"]))
    assert "mynmt" not in sys.modules
    with plugins.permitting(["mynmt"]):
        # A short reference of a plugin may be another paper than that of nmt.
        assert "graves-et-al-2014" not in papers_of(flat(meta["config"]))
        print_papers(model=str(tmp_path / "forged.safetensors"))
    assert "are left out" not in caplog.text
    print_papers(model=str(tmp_path / "forged.safetensors"))
    assert (
        "plugin mynmt: the papers that its code cites are not listed; add --plugins mynmt"
        in caplog.text
    )
    assert "% mynmt.score.Cosine cites graves-et-al-2014: add" in capsys.readouterr().out


@pytest.mark.usefixtures("findable")
def test_a_permission_covers_only_what_the_package_defines():
    with plugins.permitting(["mynmt"]):
        for target in ("mynmt.score.torch.load", "mynmt.score.nn", "mynmt.score.F", "mynmt.nowhere.X"):  # fmt: skip
            with pytest.raises(ConfigErrors, match=f"_target_={target}: not a class of"):
                configure("train", ["attention=cosine", f"attention._target_={target}"])
        with pytest.raises(ConfigErrors, match=r"must be a subclass of nmt\.metric\.Metric"):
            configure("train", ["metric=length", "metric._target_=mynmt.score.Cosine"])
        with pytest.raises(
            ConfigErrors, match=r"must be a subclass of nmt\.model\.decoder\.Decoder"
        ):
            configure("train", ["decoder=scaled", "decoder._target_=mynmt.score.Cosine"])


@pytest.mark.usefixtures("findable")
def test_limits_and_ranges_of_a_plugin_are_checked_as_those_of_nmt():
    with plugins.permitting(["mynmt"]):
        with pytest.raises(ConfigErrors, match=r"model\.copy=true: is not for objective=entropy"):
            configure("train", ["objective=entropy", "model.copy=true"])
        with pytest.raises(ConfigErrors, match=r"objective\.penalty=-1: out of range"):
            configure("train", ["objective=entropy", "objective.penalty=-1"])
        with pytest.raises(ConfigErrors, match=r"did you mean penalty\?"):
            configure("train", ["objective=entropy", "objective.penalt=1"])
    with pytest.raises(ConfigErrors, match="objective=entropy: unknown choice"):
        configure("train", ["objective=entropy"])


class WithKey(Luong):
    def __init__(self, *, initial_scale: NonNegative = 1.0, num_layers: Size = 3, **settings):
        super().__init__(num_layers=num_layers, **settings)


def test_a_class_with_settings_has_the_keys_of_its_base():
    """Own keys are first, and own defaults and ranges replace those of the base class."""
    of_base = signature(Luong)[1]
    keys = signature(WithKey)[1]
    assert [*keys][:2] == ["initial_scale", "num_layers"]
    assert keys == {**of_base, "initial_scale": 1.0, "num_layers": 3}
    sizes = dict.fromkeys(("embedding_size", "memory_size", "hidden_size", "readout_size"), 8)
    node = {**sizes, "attention": None, "initial_scale": -1.0, "cell": "elman", "scale": 1}
    problems = {error.key for error in mismatches(node, WithKey)}
    assert problems == {"initial_scale", "cell", "scale"}


@dataclass(frozen=True, kw_only=True)
class Wer(Metric):
    name: Literal["wer", "cer"] = "wer"
    returned: Any = field(default_factory=lambda: {"wer": Result(40.0, "")})

    def score(self, *arguments, **options):
        return {"bleu": Result(10.0, ""), **self.returned}

    def better(self, new, old):
        return old is None or new < old


def test_wrong_results_of_a_plugin_metric_are_named(caplog):
    assert Wer().of("en").lower_is_better
    assert not Metric().lower_is_better
    assert Metric(name="ter").lower_is_better
    with pytest.raises(UserError, match=r"wer is float, must be nmt\.metric\.Result"):
        Wer(returned={"wer": 40.0}).of("en")
    with pytest.raises(UserError, match=r"the key cer, the name of the metric .*: bleu, wer"):
        Wer(name="cer").of("en")
    assert not caplog.text

    @dataclass(frozen=True, kw_only=True)
    class Nameless(Metric):
        def score(self, *arguments, **options):
            return {**super().score(*arguments, **options), "wer": Result(40.0, "")}

    class Undecorated(Nameless):
        name: Literal["wer"] = "wer"

    with pytest.raises(UserError, match=r"metric=Undecorated: .* write the decorator @dataclass"):
        Undecorated().of("en")

    @dataclass(frozen=True, kw_only=True)
    class Failing(Metric):
        def score(self, *arguments, **options):
            raise ZeroDivisionError("division by zero")

    with pytest.raises(ZeroDivisionError):  # and not an error of metric.tokenize
        Failing().of("en")
    Nameless().of("en")
    assert (
        "selects the best checkpoint by bleu, the default of its field `name`; to select by wer, declare"
        in caplog.text
    )


def test_an_objective_with_other_parameters_is_named():
    class Torchlike:
        def __call__(self, output, target): ...

    class Empty: ...

    for objective in (Torchlike, Empty):
        message = rf"objective={objective.__name__}: `__call__` must have .* total"
        with pytest.raises(ValueError, match=message):
            check_objective(objective)


def test_a_decoder_without_the_layout_is_named():
    class Short(Luong):
        def forward(self, embedded, state, memory): ...

    with pytest.raises(ValueError, match="decoder=Short: `forward` must have .* missing: layout"):
        Short.check_forward()


def test_a_decoder_that_returns_nothing_is_named(small_run):
    network = nmt.load(small_run).models[0]
    with pytest.raises(UserError, match=r"`forward` returns NoneType, must be .*DecoderOutput"):
        network.check_output(None, (2, 1, 5))


def test_a_parameter_that_is_not_keyword_only_is_named():
    class Positional:
        def __init__(self, rate: float, *, other: float = 1.0) -> None: ...

    [error] = mismatches({"rate": 0.5, "other": 2.0}, Positional, "objective")
    assert str(error) == "objective.rate: write this parameter of Positional after * (keyword-only)"


@pytest.mark.usefixtures("findable")
def test_help_shows_choices_and_comments_of_a_plugin():
    shown = run("train", "--help", "objective=entropy", "--plugins", "mynmt").stdout.decode()
    assert re.search(r"objective\.penalty=0\.1 +weight λ of the entropy of the predictions", shown)
    assert re.search(r"^  metric .*\blength\b", shown, re.MULTILINE)


@pytest.mark.usefixtures("findable")
def test_an_installed_package_is_permitted_by_its_entry_point(tmp_path, monkeypatch):
    facts = tmp_path / "mynmt-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: mynmt\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[nmt.plugins]\nmynmt = mynmt\n")
    monkeypatch.syspath_prepend(tmp_path)
    plugins.installed.cache_clear()
    assert plugins.permitted() == ("mynmt",)
    assert "mynmt" not in sys.modules
    configured = configure("train", ["attention=cosine"])
    assert configured.values["attention"]["sharpness"] == 5.0
    assert "mynmt" in sys.modules


@pytest.mark.usefixtures("findable")
@pytest.mark.parametrize("package", ["nowhere_to_be_found", "a.b", "", "-x"])
def test_a_plugin_that_is_not_found_is_named(package):
    refused = run("train", f"--plugins={package}")
    assert refused.returncode == 2
    assert f"plugins={package}: package not found" in refused.stderr.decode()
    with pytest.raises(UserError, match="package not found"), plugins.permitting([package]):
        pass


def test_a_script_is_no_plugin(monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    with pytest.raises(UserError, match="package not found"), plugins.permitting(["__main__"]):
        pass


@pytest.mark.exhaustive
@pytest.mark.usefixtures("findable")
def test_a_sweep_permits_the_plugin_to_its_processes(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLE))
    typed = ["-m", *PARTS, *TINY, "objective.penalty=0.0,0.1", f"run_dir={tmp_path}/out"]
    result = run("train", "--plugins=mynmt", *typed)
    assert result.returncode == 0, result.stderr.decode()
    runs = find(tmp_path / "out")
    assert [each.state for each in runs] == [RunState.FINISHED] * 2
    assert {each.plugins for each in runs} == {("mynmt",)}


@pytest.mark.usefixtures("findable")
def test_the_score_is_the_cosine():
    from mynmt.score import Cosine

    score = Cosine(query_size=3, memory_size=4, sharpness=2.0)
    query, values = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    expected = 2 * torch.cosine_similarity(query[:, :, None], values[:, None], dim=-1)
    torch.testing.assert_close(score(query, score.keys(values)), expected)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("findable")
def test_the_plugin_of_the_documentation_trains_and_translates(tmp_path, monkeypatch):
    page, readme = ((ROOT / name).read_text("utf-8") for name in ("conf/python.md", "README.md"))
    blocks = re.findall(r"```(?:python|yaml)\n# (mynmt\S+)\n(.*?)```", page, re.DOTALL)
    score = re.search(r"```python\n# nmt/model/attention/cosine\.py\n(.*?)```", readme, re.DOTALL)
    files = dict(blocks) | {
        "mynmt/__init__.py": "",
        "mynmt/score.py": score[1],
        "mynmt/conf/attention/cosine.yaml": "_target_: mynmt.score.Cosine\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    assert len(files) == 5 and all(name in page for name in files)
    monkeypatch.syspath_prepend(tmp_path)
    parts = ["attention=cosine", "decoder=scaled", "data=reverse"]
    typed = [*parts, *TINY, f"run_dir={tmp_path}/run"]
    result = run("train", "--plugins", "mynmt", *typed, "decoder.initial_scale=2.0")
    assert result.returncode == 0, result.stderr.decode()
    translator = nmt.load(tmp_path / "run", plugins=["mynmt"])
    decoder = translator.models[0].decoder
    assert decoder.scale.shape == (8,) and decoder.initial_scale == 2.0
    assert len(translator.translate(["a b"])) == 1
