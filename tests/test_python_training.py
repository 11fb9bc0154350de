"""nmt.train: training from Python."""

import json
import logging
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from commands import run

import nmt
from nmt.foundation.errors import UserError
from nmt.model import Network
from nmt.training.callback import Callback

TINY = [
    "data.source=de", "data.target=en", "tokenizer=word", "trainer.max_epochs=2", "sizes.encoder=8", "sizes.decoder=16",
    "sizes.readout=8", "model.embedding_size=8", "search=greedy", "trainer.log_every=1",
]  # fmt: skip


class Seen(Callback):
    def __init__(self):
        self.losses, self.epochs, self.results, self.threads = [], [], None, set()

    def on_update(self, update):
        self.losses.append(update.loss)
        self.threads.add(torch.get_num_threads())

    def on_epoch(self, epoch):
        self.epochs.append(epoch)

    def on_end(self, results):
        self.results = results


def test_a_data_set_of_python_is_trained_and_gives_a_run(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    rows = {"de": ["ein Hund", "zwei Katzen"] * 20, "en": ["a dog", "two cats"] * 20}
    data = datasets.DatasetDict(
        {part: datasets.Dataset.from_dict(rows) for part in ("train", "validation", "test")}
    )
    seen = Seen()
    before = logging.getLogger("nmt").handlers[:]
    threads = torch.get_num_threads()
    typed = [*TINY, f"run_dir={tmp_path}/run", f"threads={threads + 1}"]
    run = nmt.train(*typed, data=data, callbacks=[seen])
    assert logging.getLogger("nmt").handlers == before
    assert torch.get_num_threads() == threads
    assert seen.threads == {threads + 1}
    assert run.folder == tmp_path / "run"
    assert run.score == run.results["scores"]["bleu"]["score"] == seen.results["bleu"]
    updates = [record["loss"] for record in run.metrics if record["kind"] == "train"]
    assert seen.losses == updates
    assert seen.epochs == [1, 2]
    assert len(run.translator.translate(["ein Hund"])) == 1
    assert nmt.train(f"resume={tmp_path}/run").score == run.score
    results = run.results
    results["scores"]["bleu"]["score"] = 12.5  # unlike the validation score
    (tmp_path / "run/results.json").write_text(json.dumps(results))
    assert nmt.train(f"resume={tmp_path}/run").score == 12.5
    again = nmt.train(f"resume={tmp_path}/run", "trainer.max_epochs=3", callbacks=[seen])
    assert again.folder == run.folder
    assert again.score == again.results["scores"]["bleu"]["score"] == seen.results["bleu"]
    assert seen.epochs == [1, 2, 3]


@pytest.mark.parametrize("parts", [(), ("train", "validation")])
def test_missing_splits_of_a_data_set_are_no_errors(parts, tmp_path, monkeypatch):
    """A Dataset needs only data.split, and a DatasetDict may have no test set."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    numbers = range(60)
    rows = {"de": [f"Hund {i}" for i in numbers], "en": [f"dog {i}" for i in numbers]}
    data = datasets.Dataset.from_dict(rows)
    split = () if parts else ("data.split=0.2",)
    if parts:
        data = datasets.DatasetDict(dict.fromkeys(parts, data))
    seen = Seen()
    run = nmt.train(*TINY, *split, f"run_dir={tmp_path}/run", data=data, callbacks=[seen])
    assert run.results["part"] == ("validation" if parts else "test")
    assert seen.results["bleu"] == run.score


def test_wrong_settings_are_errors_without_a_run(tmp_path):
    with pytest.raises(UserError, match="did you mean decoder"):
        nmt.train("decodr=luong", f"run_dir={tmp_path}/run")
    with pytest.raises(UserError, match="-m is a flag of the command line"):
        nmt.train("-m", "decoder=luong,bahdanau")
    with pytest.raises(UserError, match="this sweep has several runs"):
        nmt.train("experiment=reverse", "sweep=seeds", f"run_dir={tmp_path}/run")
    with pytest.raises(UserError, match=r"hydra.run.dir=x: supported only by sweeps"):
        nmt.train("experiment=reverse", "hydra.run.dir=x", f"run_dir={tmp_path}/run")
    with pytest.raises(UserError, match=r"settings must be strings such as .decoder=luong., not 3"):
        nmt.train(3)
    with pytest.raises(UserError, match=r'no parameter decoder; did you mean "decoder=luong"\?'):
        nmt.train(decoder="luong")
    with pytest.raises(UserError, match=r'did you mean "freeze=\[encoder,output\]"\?'):
        nmt.train(freeze=["encoder", "output"])
    with pytest.raises(UserError, match='did you mean "resume=null"'):
        nmt.train(resume=None)
    with pytest.raises(UserError, match=r"no parameter callback; did you mean callbacks\?"):
        nmt.train(callback=[])
    with pytest.raises(UserError, match="Give each setting .* in Python as a string of its own"):
        nmt.train(f"decoder=luong run_dir={tmp_path}/run")
    with pytest.raises(UserError, match=r"data must be a datasets\.Dataset .* not dict; datasets"):
        nmt.train(f"run_dir={tmp_path}/run", data={"de": ["Hund"], "en": ["dog"]})
    assert not (tmp_path / "run").exists()


def test_wrong_cells_of_a_data_set_are_named_without_the_cache(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    data = datasets.Dataset.from_dict({"de": ["Hund", None], "en": ["dog", "cat"]})
    data = datasets.DatasetDict(train=data, validation=data)
    with pytest.raises(UserError, match=r"^data, split train, row 2: column 'de' contains None"):
        nmt.train(*TINY, f"run_dir={tmp_path}/run", data=data)


@pytest.mark.parametrize(
    ("callbacks", "problem"),
    [
        (Seen(), "must be a list, got Seen"),
        ([Seen], "Seen must be an instance of a subclass of Callback"),
        (
            [type("Late", (Callback,), {"on_epoch_end": print})()],
            "Late.on_epoch_end is never called",
        ),
    ],
)
def test_wrong_callbacks_are_named_before_the_training(callbacks, problem, tmp_path):
    with pytest.raises(UserError, match=problem):
        nmt.train("experiment=reverse", f"run_dir={tmp_path}/run", callbacks=callbacks)
    assert not (tmp_path / "run").exists()


def test_a_wrong_callback_of_a_configuration_is_named_before_the_training(tmp_path, monkeypatch):
    code = "from nmt.training.callback import Callback\nclass Late(Callback):\n    on_epoch_end = print\n"
    (tmp_path / "lateness.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    late = "+callback._target_=lateness.Late"
    with pytest.raises(UserError, match=r"Late\.on_epoch_end is never called"):
        nmt.train("experiment=reverse", f"run_dir={tmp_path}/run", late, plugins=["lateness"])
    assert not (tmp_path / "run").exists()


def test_scores_need_columns(small_run):
    with pytest.raises(UserError, match=r"must be a datasets\.Dataset, or a mapping .* not list"):
        nmt.evaluate(nmt.load(small_run), [{"en": "a", "de": "b"}], source="en", reference="de")
    with pytest.raises(UserError, match="not NoneType"):
        nmt.evaluate(nmt.load(small_run), None, source="en", reference="de")


def test_a_missing_column_to_translate_is_named(small_run):
    with pytest.raises(UserError, match=r"data: column de not found .available: en, fr"):
        nmt.load(small_run).for_column("de")({"en": ["a"], "fr": ["b"]})


class TensorLoss:
    def __call__(self, network, batch, update, total):
        return torch.zeros(())


def test_an_objective_that_returns_no_loss_is_named():
    with pytest.raises(UserError, match=r"objective: returned Tensor, must be nmt\.foundation"):
        Network()(TensorLoss(), None, 0)


def test_the_module_of_the_command_is_a_function_and_importing_nmt_stays_cheap():
    code = (
        "import sys, nmt; function = nmt.train; assert callable(function); import nmt.train;"
        "assert nmt.train is function and callable(nmt.train.main);"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_data_set_is_translated_and_evaluated_from_python(small_run, tmp_path):
    """As the commands do from files."""
    datasets = pytest.importorskip("datasets")
    lines, references = ["a b c", "d e", "b"], ["c b a", "e d", "x"]
    data = datasets.Dataset.from_dict({"in": lines, "out": references, "other": lines})
    translator = nmt.load(small_run)
    mapped = data.map(translator.for_column("in"), batched=True, batch_size=2)
    assert mapped["translation"] == translator.translate(lines)
    assert "mine" in data.map(translator.for_column("in", "mine"), batched=True).column_names
    for name, column in (("in", lines), ("out", references), ("other", lines)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in column))
    files = [f"source={tmp_path}/in", f"reference=[{tmp_path}/out,{tmp_path}/other]"]
    printed = run("evaluate", f"model={small_run}", *files).stdout.decode()
    for model in (small_run, translator):
        scores = nmt.evaluate(model, data, source="in", reference=["out", "other"])
        for name, result in scores.items():
            assert f"{name:6}{result.score:7.2f}   {result.signature}" in printed
    with pytest.raises(nmt.UserError, match="column de not found .available: in, out, other"):
        nmt.evaluate(small_run, data, source="in", reference="de")
    single = data.map(translator.for_column("in"))  # without batched=True
    assert single["translation"] == [translator.translate(line) for line in lines]


@pytest.mark.parametrize(("columns", "reference", "problem"), [
    ({"in": ["a", "b"], "out": ["c"]}, "out", "the same number of rows"),
    ({"in": [], "out": []}, "out", "at least one"),
    ({"in": ["a"], "out": [None]}, "out", "data: column out: .*None"),
    ({"in": ["a"]}, [], "give the name of a column"),
    ({"in": "ab", "out": "cd"}, "out", "data: column in: must be a list of strings"),
])  # fmt: skip
def test_wrong_columns_of_an_evaluation_are_named(small_run, columns, reference, problem):
    with pytest.raises((nmt.UserError, TypeError), match=problem):
        nmt.evaluate(small_run, columns, source="in", reference=reference)


def test_a_metric_is_not_a_name(small_run):
    with pytest.raises(TypeError, match="metric: must be a nmt.metric.Metric"):
        nmt.evaluate(small_run, {"a": ["x"]}, source="a", reference="a", metric="bleu")


def test_data_sets_with_other_names_of_splits_are_kept_apart(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    one, two, three = (
        datasets.Dataset.from_dict({"de": [word] * 40, "en": [word] * 40}) for word in "abc"
    )
    for names in (("train", "validation", "test"), ("train", "test", "validation")):
        data = datasets.DatasetDict(zip(names, (one, two, three), strict=True))
        typed = [
            *TINY,
            "trainer.max_updates=1",
            "final_test=true",
            f"run_dir={tmp_path}/{names[1]}",
        ]
        nmt.train(*typed, data=data)
        text = (tmp_path / names[1] / "test.reference.txt").read_text()
        assert set(text.split()) == {"c" if names[2] == "test" else "b"}


def test_damaged_files_of_a_saved_data_set_are_named(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    rows = {"de": ["ein Hund", "zwei Katzen"] * 20, "en": ["a dog", "two cats"] * 20}
    data = datasets.DatasetDict(
        dict.fromkeys(("train", "validation"), datasets.Dataset.from_dict(rows))
    )
    typed = [*TINY, "trainer.max_updates=1", "final_test=false"]
    nmt.train(*typed, f"run_dir={tmp_path}/a", data=data)
    [file] = (tmp_path / "cache").rglob("train/*.arrow")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"train/data.*arrow: damaged \(wrong checksum\)"):
        nmt.train(*typed, f"run_dir={tmp_path}/b", data=data)


def test_formats_of_data_sets(tmp_path, monkeypatch):
    """A format that hides columns has no effect; what cannot be saved is named."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    rows = {"de": [f"Hund {i}" for i in range(60)], "en": [f"dog {i}" for i in range(60)]}
    data = datasets.Dataset.from_dict(rows)
    typed = [*TINY, "data.split=0.2", "trainer.max_updates=1", "final_test=false"]
    run = nmt.train(*typed, f"run_dir={tmp_path}/a", data=data.with_format("numpy", columns=["en"]))
    hidden = data.with_format("numpy", columns=["en"])
    assert nmt.evaluate(run.translator, hidden, source="de", reference="en")["bleu"].score >= 0
    for wrong, problem in (
        (data.with_transform(lambda batch: batch), "data: has a transform"),
        (datasets.DatasetDict(train=data, more=data.select([])), "data, split more: is empty"),
    ):
        with pytest.raises(UserError, match=problem):
            nmt.train(*typed, f"run_dir={tmp_path}/b", data=wrong)


def test_a_second_thread_cannot_train(tmp_path):
    """Both trainings would share logging and random numbers. A callback may train another model."""

    class Trains(Callback):
        errors = ()

        def on_validation(self, *_):
            nmt.train(*TRIAL, f"run_dir={tmp_path}/nested")
            with ThreadPoolExecutor() as pool:
                other = pool.submit(nmt.train, *TRIAL, f"run_dir={tmp_path}/other")
                self.errors = [str(other.exception())]

    trains = Trains()
    nmt.train(*TRIAL, f"run_dir={tmp_path}/run", callbacks=[trains])
    assert (tmp_path / "nested/results.json").exists()
    assert not (tmp_path / "other").exists()
    assert "another thread of this process is training" in trains.errors[0]
    nmt.train(*TRIAL, f"run_dir={tmp_path}/after")


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_the_default_type_of_tensors_has_no_effect(kind, tmp_path, small_run):
    expected = nmt.load(small_run).translations(["a b c"])
    torch.set_default_dtype(kind)
    try:
        run = nmt.train(*TRIAL, f"run_dir={tmp_path}/run")
        assert torch.get_default_dtype() == kind
        assert nmt.load(small_run).translations(["a b c"]) == expected
    finally:
        torch.set_default_dtype(torch.float32)
    assert {p.dtype for p in run.translator.models[0].parameters()} == {torch.float32}


def test_a_training_leaves_random_numbers_and_log_handlers_of_the_caller(tmp_path):
    handler = logging.FileHandler(tmp_path / "mine.log", mode="w")
    logging.getLogger("nmt").addHandler(handler)
    try:
        draws = []
        for number in range(2):
            torch.manual_seed(5)
            random.seed(5)
            np.random.seed(5)
            if number:
                nmt.train(
                    "experiment=reverse", "trainer.max_updates=1", "final_test=false", f"run_dir={tmp_path}/run"
                )  # fmt: skip
            draws.append((random.random(), np.random.rand(), torch.rand(1).item()))
        assert draws[0] == draws[1]
        with pytest.raises(nmt.UserError):
            nmt.train("seeed=1")
        logging.getLogger("nmt").warning("still open")
        assert "still open" in (tmp_path / "mine.log").read_text()
    finally:
        logging.getLogger("nmt").removeHandler(handler)
        handler.close()


TRIAL = ["experiment=reverse", "trainer.max_updates=1", "final_test=false"]


def test_callbacks_learn_of_a_failure_after_the_training(tmp_path):
    class Removes(Seen):
        def on_validation(self, *_):
            (tmp_path / "run" / "best.safetensors").unlink()

    seen = Removes()
    seen.results = "nothing"
    with pytest.raises(nmt.UserError, match=r"best\.safetensors"):
        nmt.train(*TRIAL, f"run_dir={tmp_path}/run", callbacks=[seen])
    assert seen.results is None


def test_a_failure_after_a_validation_keeps_the_best_weights(tmp_path):
    class Fails(Seen):
        def on_validation(self, *_):
            raise RuntimeError("failed")

    with pytest.raises(RuntimeError, match="failed"):
        nmt.train(*TRIAL, f"run_dir={tmp_path}/run", callbacks=[Fails()])
    assert (tmp_path / "run/best.safetensors").exists()
