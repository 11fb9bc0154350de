"""Exported models: graphs that compute what the network computes, at other sizes than those they were made with."""

import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from builders import choices, network, trained
from commands import run

onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX graphs need pip install '.[export]'")
pytest.importorskip("onnx")

import nmt
from nmt.exporting import export_model, exported_beam
from nmt.exporting.onnx import write_graphs
from nmt.exporting.translate_onnx import Model
from nmt.exporting.translate_onnx import run as run_graph
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import BOS, EOS
from nmt.inference.model_facts import model_facts
from nmt.search.beam import Beam
from nmt.search.greedy import Greedy
from nmt.search.sample import Sample
from nmt.storage import checkpoint as ckpt
from nmt.tokenizer.columns import Columns

NETWORKS = (
    [(decoder, score) for decoder in choices("decoder") for score in (("none",) if decoder == "fixed" else ("concat", "general", "dot"))]
    + [("bahdanau", score) for score in choices("attention") if score not in ("none", "concat", "general", "dot", "multi_head")]
    + [("luong", "general", f"window={window}") for window in choices("window") if window != "global"]
    + [("luong_feed", "dot", f"normalizer={kind}") for kind in choices("normalizer") if kind != "softmax"]
    + [("bahdanau", "concat", *more) for more in (
        ["cell=lstm"], ["encoder.num_layers=2", "decoder.num_layers=2"], ["encoder=unidirectional", "sizes.encoder=8"],
        ["encoder=alternating", "sizes.encoder=8", "encoder.num_layers=2"], ["model.copy=true"], ["decoder.context_gate=true"],
        ["decoder.bridge=none"], ["encoder.residual=true", "encoder.num_layers=2", "encoder.layer_norm=true"],
    )]
)  # fmt: skip


@pytest.mark.parametrize(
    "choice",
    [
        pytest.param(choice, marks=[] if number % 4 == 0 else [pytest.mark.exhaustive])
        for number, choice in enumerate(NETWORKS)
    ],
    ids=" ".join,
)
def test_graphs_compute_what_the_network_computes(choice, tmp_path, unchecked):
    """Encoder, first state and three steps, for sentences of other lengths and another number of them."""
    model = network(*choice).float().eval()
    write_graphs(model, tmp_path)
    encoder, start, step = (
        onnxruntime.InferenceSession(str(tmp_path / f"{name}.onnx"))
        for name in ("encoder", "start", "step")
    )
    lengths = torch.tensor([7, 2, 9, 4])
    source = torch.randint(4, 11, (4, 9))
    for row, length in zip(source, lengths, strict=True):
        row[length - 1], row[length:] = EOS, 0
    with torch.no_grad():
        memory = model.encode(source, lengths)
        state = model.start(memory)
        encoded = run_graph(encoder, {"source": source.numpy(), "lengths": lengths.numpy()})
        assert encoded["memory.values"] == pytest.approx(memory.values.numpy(), abs=1e-4)
        parts = run_graph(start, encoded)
        words = torch.full((4,), BOS)
        for _ in range(3):
            output = model.decode(words.unsqueeze(1), state, memory)
            truth = model.output_layer.log_probs(output, memory).squeeze(1)
            result = run_graph(step, {"words": words.numpy(), **parts, **encoded})
            assert result["log_probs"] == pytest.approx(truth.numpy(), abs=1e-4)
            if output.weights is not None:
                assert result["weights"] == pytest.approx(
                    output.weights.squeeze(1).numpy(), abs=1e-5
                )
            state, words = output.state, truth.argmax(-1)
            parts = {
                name.removeprefix("next."): value
                for name, value in result.items()
                if name.startswith("next.")
            }


@pytest.fixture(scope="module")
def exported(small_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("onnx") / "out"
    result = run("export", f"model={small_run}", "format=onnx", f"output={folder}")
    assert result.returncode == 0, result.stderr.decode()
    return folder


@pytest.mark.parametrize(("no_repeat", "most"), [(0, 1000), (2, 3)])
def test_the_example_translates_as_the_model_does(exported, small_run, no_repeat, most, tmp_path):
    """Without nmt and PyTorch: in a process that cannot import them."""
    folder = shutil.copytree(exported, tmp_path / "out")
    settings = json.loads((folder / "settings.json").read_text())
    assert (settings["no_repeat_ngram_size"], settings["max_source"]) == (0, 1000)
    (folder / "settings.json").write_text(
        json.dumps({**settings, "no_repeat_ngram_size": no_repeat, "max_source": most})
    )
    odd = ["a\tb c", "a\rb", "\x1ca \x85 b\x0b", "a b\r", "\u00a0a\u3000b\u2003", " \u2028 ", "\t"]
    lines = ["a b c d", "", "h g f e d c b a a b", "a", "c c c c", "not known ß", *odd]
    code = f"import sys; sys.modules['torch'] = sys.modules['nmt'] = None; sys.argv = ['translate.py', {str(folder)!r}]; exec(open({str(folder / 'translate.py')!r}, encoding='utf-8').read())"
    result = subprocess.run(
        [sys.executable, "-c", code],
        input=("\ufeff" + "\n".join(lines) + "\n").encode(),
        capture_output=True,
        check=True,
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    )
    limits = {"no_repeat_ngram_size": no_repeat, "max_source": most}
    translator = nmt.load(small_run, search="beam", **limits)
    assert result.stdout.decode().splitlines() == translator.translate(lines)


def test_the_example_removes_the_line_ends_of_windows(exported):
    script = (exported / "translate.py").read_text().replace(
        "Model(sys.argv[1])", "__import__('types').SimpleNamespace(translate=repr)"
    )  # fmt: skip
    command = [sys.executable, "-c", script, exported]
    result = subprocess.run(command, input=b"a b\r\n\r\nc\rd\n", capture_output=True, check=True)
    assert result.stdout.decode().splitlines() == ["'a b'", "''", "'c\\rd'"]


def test_the_example_ends_quietly_if_its_reader_ends(exported):
    """As with: python translate.py FOLDER < FILE | head"""
    command = [sys.executable, exported / "translate.py", exported]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        process.stdin.write(b"a b\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(b"a b\n")
        process.stdin.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == b""


def test_a_failed_export_keeps_the_folder_of_another_command(small_run, tmp_path, monkeypatch):
    def meanwhile(model):
        (tmp_path / "out").mkdir()
        (tmp_path / "out/README.md").touch()
        return {}

    monkeypatch.setattr(export_model, "test_results", meanwhile)
    with pytest.raises(UserError, match="out: cannot be written .File exists"):
        export_model.export_model(
            None, model=str(small_run), format="card", output=str(tmp_path / "out")
        )
    assert (tmp_path / "out/README.md").exists()


def test_what_cannot_be_exported_is_refused_by_name(small_run, tmp_path, exported):
    for overrides, message in (
        ([f"model={small_run}", "format=onnx", f"output={exported}"], "already exists"),
        (["model=nowhere", "format=card", f"output={tmp_path}/x"], "file or folder not found"),
    ):  # fmt: skip
        result = run("export", *overrides)
        assert result.returncode in (1, 2)
        assert message in result.stderr.decode()
        assert b"Traceback" not in result.stderr
    from nmt.exporting.onnx import check_exportable

    class Held:
        models = (network("bahdanau", "concat", "cell=norm_gru"),)
        tokenizer = SimpleNamespace(columns=Columns())
        unknown = "mark"

    with pytest.raises(
        nmt.UserError,
        match="encoder has layer-normalised gates, a deep transition or a cell of your own",
    ):
        check_exportable(Held())
    Held.models = (network("bahdanau", "multi_head"),)
    with pytest.raises(nmt.UserError, match="several attention heads"):
        check_exportable(Held())
    Held.models = (network("bahdanau", "concat", "model.lexicon=auto"),)
    with pytest.raises(nmt.UserError, match="translation lexicon is not supported"):
        check_exportable(Held())


def test_the_search_of_an_export_is_that_of_the_model_if_it_is_supported(caplog):
    assert exported_beam(Greedy(), "onnx", ["wu"]).width == 1
    supported = Beam(width=3, length_penalty="wu")
    assert exported_beam(supported, "onnx", ["wu"]) is supported
    assert not caplog.text
    for search in (Beam(width=3, length_penalty="power"), Beam(width=3, coverage=0.2), Sample()):
        replaced = exported_beam(search, "onnx", ["average", "wu"])
        assert (replaced.penalty.name, replaced.penalty.coverage) == ("average", 0.0)
    assert "onnx" in caplog.text


@pytest.fixture(scope="module")
def card(small_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("card") / "out"
    assert run("export", f"model={small_run}", "format=card", f"output={folder}").returncode == 0
    return folder


def test_a_card_has_what_the_hub_reads_and_the_folder_is_a_model(card, small_run):
    import yaml

    _, head, text = (card / "README.md").read_text().split("---\n", 2)
    metadata = yaml.safe_load(head)
    assert metadata["pipeline_tag"] == "translation"
    assert {metric["type"] for metric in metadata["model-index"][0]["results"][0]["metrics"]} >= {
        "bleu",
        "chrf",
    }
    results = json.loads((small_run / "results.json").read_text())
    assert results["scores"]["bleu"]["signature"] in text
    assert nmt.load(card).translate(["a b c"]) == nmt.load(small_run).translate(["a b c"])
    assert (card / "best.safetensors").stat().st_size <= (
        small_run / "best.safetensors"
    ).stat().st_size


def test_an_export_of_the_best_checkpoint_has_the_results_and_the_name_of_its_run(
    small_run, tmp_path
):
    best = f"model={small_run}/best.safetensors"
    assert run("export", best, "format=card", f"output={tmp_path}/card").returncode == 0
    results = json.loads((small_run / "results.json").read_text())
    text = (tmp_path / "card" / "README.md").read_text()
    assert results["scores"]["bleu"]["signature"] in text
    assert run("export", best, "format=html", f"output={tmp_path}/page.html").returncode == 0
    page = (tmp_path / "page.html").read_text()
    assert f'"model-settings">{{"name":"{small_run.name}"' in page
    last = f"model={small_run}/last.safetensors"
    assert run("export", last, "format=card", f"output={tmp_path}/last").returncode == 0
    assert "has no test results" in (tmp_path / "last" / "README.md").read_text()


def test_a_card_describes_the_model(small_run, tmp_path):
    """Tags, part and network of a model without attention and without a test part, and of a classifier."""
    import yaml

    from nmt.exporting.card import card_text
    from nmt.storage import checkpoint as ckpt

    saved = ckpt.read(ckpt.find_checkpoint(str(small_run)))
    tokenizer = ckpt.tokenizer_from(saved)
    results = {"part": "validation", "scores": {"bleu": {"score": 1.0, "signature": "s"}}}

    def written(**changed):
        command = "classify" if "pooling" in changed else "train"
        config = {**saved.meta["config"], **changed}
        versions = {**saved.meta["versions"], "nmt": "0.0.9"}
        meta = {**saved.meta, "config": config, "command": command, "versions": versions}
        text = card_text(meta, tokenizer, results, 5)
        return yaml.safe_load(text.split("---\n", 2)[1]), text

    metadata, text = written()
    assert metadata["tags"] == ["recurrent", "attention", "gru"]
    assert f"# {' → '.join(saved.meta['languages'])}\n" in text
    assert metadata["model-index"][0]["results"][0]["dataset"]["type"] == "validation"
    assert "- validation bleu: 1.00 (`s`)" in text
    assert "bahdanau decoder, concat attention), trained with nmt 0.0.9." in text
    shown = yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    assert shown["trainer"] == saved.meta["config"]["trainer"]
    assert not {"run_dir", "device", "threads", "callback"} & {*shown}
    cells = {"encoder": {"_target_": "nmt.model.encoder.convolution.Convolution"}}
    fixed = {"_target_": "nmt.model.decoder.fixed.Fixed", "cell": "lstm"}
    metadata, text = written(decoder=fixed, attention={}, window={}, **cells)
    assert metadata["tags"] == ["recurrent", "lstm"]
    assert "convolution encoder, fixed decoder)" in text
    last = {"_target_": "nmt.model.pooling.last.Last"}
    metadata, text = written(pooling=last, decoder={}, attention={})
    assert metadata["pipeline_tag"] == "text-classification"
    assert "attention" not in metadata["tags"]
    assert "model.classify(" in text
    for names, codes in ((["src", "tgt"], None), (["EN", "de_DE"], ["en", "de"])):
        text = card_text({**saved.meta, "languages": names}, tokenizer, results, 5)
        assert yaml.safe_load(text.split("---\n", 2)[1]).get("language") == codes


def test_scores_of_other_weights_are_not_shown(small_run, tmp_path):
    """A continued training replaces the best weights before its test."""
    folder = tmp_path / "run"
    shutil.copytree(small_run, folder)
    tokenizer = nmt.load(folder).tokenizer
    assert model_facts(str(folder), tokenizer)["scores"]
    saved = ckpt.read(folder / ckpt.BEST)
    name = next(key for key in saved.tensors if key.startswith("model/") and "weight" in key)
    ckpt.write(folder / ckpt.BEST, saved.meta, {**saved.tensors, name: saved.tensors[name] + 1})
    assert "scores" not in model_facts(str(folder), tokenizer)


@pytest.mark.parametrize(
    "scores", ["null", "[]", '{"bleu": 30.0}', '{"bleu": {}}', '{"bleu": {"score": NaN}}']
)
def test_damaged_results_have_no_scores(scores, small_run, tmp_path):
    shutil.copy(small_run / ckpt.BEST, tmp_path / ckpt.BEST)
    (tmp_path / "results.json").write_text(f'{{"part": "test", "scores": {scores}}}')
    tokenizer = nmt.load(tmp_path).tokenizer
    assert "scores" not in model_facts(str(tmp_path), tokenizer)


def test_a_checkpoint_with_one_language_is_damaged(small_run, tmp_path):
    saved = ckpt.read(small_run / ckpt.BEST)
    ckpt.write(tmp_path / ckpt.BEST, {**saved.meta, "languages": ["en"]}, saved.tensors)
    with pytest.raises(UserError, match=r"best\.safetensors: damaged checkpoint \(languages"):
        nmt.load(tmp_path)


@pytest.mark.exhaustive
def test_a_model_comes_from_the_hub(card, small_run, tmp_path):
    """A hub on this machine, which answers as the real one does."""
    import hashlib
    import os
    import threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    pytest.importorskip("huggingface_hub")
    data = (card / "best.safetensors").read_bytes()

    class Hub(BaseHTTPRequestHandler):
        def answer(self, whole):
            there = self.path.startswith("/someone/model/resolve/main/best.safetensors")
            self.send_response(200 if there else 404)
            self.send_header("X-Repo-Commit", "a" * 40)
            self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
            self.send_header("Content-Length", str(len(data) if there else 0))
            if not there:
                self.send_header("X-Error-Code", "RepoNotFound")
            self.end_headers()
            if there and whole:
                self.wfile.write(data)

        def do_HEAD(self):
            self.answer(False)

        def do_GET(self):
            self.answer(True)

        def log_message(self, *_): ...

    hub = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    environment = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}", "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path),
                   "HF_HUB_DISABLE_XET": "1"}  # fmt: skip

    def loaded(name):
        code = f"import nmt; print(nmt.load({name!r}).translate('a b c'))"
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment
        )

    result, absent = loaded("hf:someone/model"), loaded("hf:someone/else")
    hub.shutdown()
    hub.server_close()
    assert result.stdout.strip() == nmt.load(small_run).translate("a b c"), result.stderr
    assert "model=hf:someone/else: cannot be downloaded from the Hugging Face Hub" in absent.stderr


KINDS = {
    "plain": ["attention=dot", "decoder=luong", "cell=lstm"],
    "fixed": ["decoder=fixed", "attention=none", "cell=norm_gru"],
    "mixed": ["encoder.cell=lstm", "decoder.cell=gru", "trainer.ema=0.5"],
    "factors": ["data.factors=[tag]"],
    "labels": [],
    "labels by attention": ["pooling=structured"],
}
"""Parts of the models whose cards are compared with them."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_a_card_is_that_of_the_model(kind, tmp_path):
    import yaml

    rows = "".join(f"a b {k}\t{'xy'[k % 2]} z z\t{'xy'[k % 2]}\tN N V\n" for k in range(30))
    (tmp_path / "t.tsv").write_text(f"en_GB\ty\tlabel\ttag\n{rows}")
    is_classifier = kind.startswith("labels")
    columns = (
        ["data.text=en_GB", "data.label=label"]
        if is_classifier
        else ["data.source=en_GB", "data.target=y"]
    )
    if kind == "factors":
        columns = ["data.source=en_GB", "data.target=y"]
    sizes = ["sizes.encoder=4", "tokenizer=word", "trainer.max_epochs=2"]
    if not is_classifier:
        sizes += ["sizes.decoder=8", "sizes.readout=8", "model.embedding_size=8", "search=greedy"]
    folder = tmp_path / "run"
    overrides = [
        "data=tsv",
        f"data.train={tmp_path}/t.tsv",
        "data.split=0.2",
        *columns,
        *sizes,
        *KINDS[kind],
    ]
    trained(folder, *overrides, name="classify" if is_classifier else "train")
    card = tmp_path / "card"
    result = run("export", f"model={folder}", "format=card", f"output={card}")
    assert result.returncode == 0, result.stderr.decode()
    _, head, text = (card / "README.md").read_text().split("---\n", 2)
    metadata = yaml.safe_load(head)
    model = nmt.load(folder)
    network = model.model if is_classifier else model.models[0]
    cells = {layer.cell_name for layer in network.modules() if hasattr(layer, "cell_name")}
    attends = network.pooling.attends if is_classifier else model.attends
    assert metadata["tags"] == ["recurrent", *["attention"] * attends, *sorted(cells)]
    assert metadata["pipeline_tag"] == ("text-classification" if is_classifier else "translation")
    assert metadata.get("language", []) == ([] if is_classifier else ["en"])
    assert f"Parameters: {sum(p.numel() for p in network.parameters()):,}." in text
    scores = json.loads((folder / "results.json").read_text())["scores"]
    [shown] = metadata["model-index"][0]["results"]
    assert {m["type"]: m["value"] for m in shown["metrics"]} == {
        name: round(entry["score"], 2) for name, entry in scores.items()
    }
    config = yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    saved = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["encoder"] == saved["encoder"]
    assert nmt.load(card).tokenizer.models == model.tokenizer.models


def test_bytes_of_a_translation_leave_a_line():
    """Byte fallback may leave the sign for a space, and may spell a line feed."""
    settings = {"lowercase": False, "by_word": False, "max_source": 9, "eos": EOS}
    settings |= {"max_length_factor": 1, "max_length_offset": 1}
    model = Model.__new__(Model)
    model.settings = settings
    model.source = SimpleNamespace(encode=lambda _: [5])
    model.target = SimpleNamespace(decode=lambda _: "▁ein▁犬\nhier ")
    graph = SimpleNamespace(get_inputs=list, get_outputs=list, run=lambda *_: [])
    model.graphs = {"encoder": graph}
    model.search = lambda *_: []
    assert model.translate("x") == "ein 犬 hier"
