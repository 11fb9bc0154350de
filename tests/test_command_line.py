"""The commands as people type them: good input, bad input, and what is printed."""

import contextlib
import gc
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from builders import compose
from commands import ROOT, failed, run, run_alone

from nmt import __main__ as main
from nmt.configuration.command_words import space_errors, with_key
from nmt.configuration.configure import COMMANDS
from nmt.configuration.help import help_of
from nmt.configuration.overrides import parse
from nmt.configuration.yaml_files import options
from nmt.drawing import plots
from nmt.foundation import extras as deferred
from nmt.foundation import processes
from nmt.foundation.command_exit import with_exit_status
from nmt.foundation.errors import UserError, typed
from nmt.pipeline.run_preparation import check_space
from nmt.storage import checkpoint as ckpt

SMALL = [
    "encoder.hidden_size=8", "decoder.hidden_size=16", "decoder.readout_size=8", "model.embedding_size=8",
    "trainer.max_epochs=1", "tokenizer.vocabulary_size=60", "search=greedy",
]  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Files as in the README: DIR/train.en, DIR/train.de …"""
    folder = tmp_path_factory.mktemp("corpus")
    words = ["red", "green", "blue", "dog", "cat", "bird", "runs", "sleeps"]
    lines = [f"{a} {b} {c}" for a in words for b in words for c in words[:2]]
    for part, chosen in (("train", lines), ("val", lines[::10]), ("test", lines[::13])):
        (folder / f"{part}.en").write_text("\n".join(chosen) + "\n")
        (folder / f"{part}.de").write_text("\n".join(line.upper() for line in chosen) + "\n")
    return folder


def data_arguments(folder):
    return [
        "experiment=null", "data=text", f"data.train={folder}/train", f"data.validation={folder}/val", f"data.test={folder}/test",
        "data.source=en", "data.target=de",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out") / "run"
    result = run(
        "train",
        *data_arguments(corpus),
        *SMALL,
        f"run_dir={folder}",
        "seed=1",
        "decoder=bahdanau",
        "attention=concat",
    )
    assert result.returncode == 0, result.stderr.decode()
    assert b"Commands for this model:" in result.stderr
    return folder


def test_translate_file_to_file_and_stdin_to_stdout(trained, corpus, tmp_path):
    out = tmp_path / "out.txt"
    result = run(
        "translate",
        f"model={trained}",
        f"input={corpus}/test.en",
        f"output={out}",
        "search=beam",
        "search.width=5",
    )
    assert result.returncode == 0, result.stderr.decode()
    for stdin in ((), ["input=-"]):
        piped = run("translate", f"model={trained}", *stdin, stdin=(corpus / "test.en").read_text())
        assert piped.stdout == out.read_bytes()
    assert out.read_text().count("\n") == (corpus / "test.en").read_text().count("\n")
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.exhaustive
def test_translate_never_fails_on_strange_lines(trained):
    strange = [
        "",
        "   ",
        "\t",
        "word " * 3000,
        "😀🎉",
        "שלום עולם",
        "\x00\x01\x02",
        "a\u2028b\x85c",
        "\ufeff",
        "漢字",
        "x" * 5000,
    ]
    result = run(
        "translate",
        f"model={trained}",
        "translation.max_length_factor=0.05",
        stdin="\n".join(strange),
    )
    assert result.returncode == 0, result.stderr.decode()
    lines = result.stdout.decode().split("\n")
    assert len(lines) == len(strange) + 1
    assert lines[:3] == ["", "", ""]
    assert "only the first 1000 tokens are read" in result.stderr.decode()


def test_translate_keeps_stdout_clean_and_order(trained):
    lines = [f"{word} dog" for word in ("red", "green", "blue")]
    whole = (
        run("translate", f"model={trained}", stdin="\n".join(lines) + "\n")
        .stdout.decode()
        .splitlines()
    )
    alone = [
        run("translate", f"model={trained}", stdin=line).stdout.decode().rstrip("\n")
        for line in lines
    ]
    assert whole == alone


def test_resuming_a_finished_run_changes_nothing(trained):
    before = {
        path.name: path.stat().st_mtime for path in trained.iterdir() if path.name != "train.log"
    }
    result = run("train", f"resume={trained}")
    assert result.returncode == 0
    assert b"is finished" in result.stderr
    assert {
        path.name: path.stat().st_mtime for path in trained.iterdir() if path.name != "train.log"
    } == before


def test_a_map_of_empty_lines_is_no_failure(trained, tmp_path):
    result = run(
        "translate", f"model={trained}", f"attention_map={tmp_path}/map.html", stdin="\n\n"
    )
    assert result.returncode == 0
    assert result.stdout == b"\n\n"
    assert b"all lines are empty" in result.stderr


@pytest.mark.parametrize("ending", ["html", "png", "json"])
def test_attention_maps(trained, tmp_path, ending):
    target = tmp_path / f"map.{ending}"
    result = run(
        "translate",
        f"model={trained}",
        f"attention_map={target}",
        stdin="red <dog> & bird\n\nblue cat\n",
    )
    assert result.returncode == 0, result.stderr.decode()
    if ending == "png":
        assert target.read_bytes().startswith(b"\x89PNG")
        return
    text = target.read_text()
    if ending == "html":
        assert text.count("<table ") == 2
        assert "http" not in text
        assert "<dog" not in text
    else:
        for entry in json.loads(text):
            assert entry["target"][-1] == entry["source"][-1] == "</s>"
            assert list(entry["weights"]) == [""]
            assert len(entry["weights"][""]) == len(entry["target"])
            assert all(
                abs(sum(row) - 1) < 1e-3 and len(row) == len(entry["source"])
                for row in entry["weights"][""]
            )
        assert [entry["source"] for entry in json.loads(text)] == [
            ["red", "<dog>", "&", "bird", "</s>"],
            ["blue", "cat", "</s>"],
        ]


@pytest.mark.exhaustive
def test_attention_side_by_side(trained, corpus, tmp_path, monkeypatch):
    """A second model, with several heads and a different vocabulary, is forced to write the same translations."""
    has = frozenset(map(chr, range(256)))
    monkeypatch.setattr(plots, "font_characters", lambda file: has)  # whatever is installed here
    other = tmp_path / "heads"
    small = [setting for setting in SMALL if "vocabulary" not in setting]
    extra = [
        "attention=multi_head",
        "attention.heads=2",
        "decoder=luong",
        "tokenizer=char",
        f"run_dir={other}",
    ]
    assert run("train", *data_arguments(corpus), *small, *extra).returncode == 0
    for ending in ("html", "png", "json"):
        show = f"attention_map={tmp_path}/map.{ending}"
        result = run(
            "translate",
            f"model={trained}",
            f"compare=[{other}]",
            show,
            stdin="red dog 文\n\nblue cat\n",
        )
        assert result.returncode == 0, result.stderr.decode()
        assert (b"drawn as boxes" in result.stderr) is (ending == "png")
        assert b"UserWarning" not in result.stderr
    page = (tmp_path / "map.html").read_text()
    assert page.count("<table ") == 6
    assert "<figcaption><b>heads, head 2</b>" in page
    for entry in json.loads((tmp_path / "map.json").read_text()):
        assert list(entry["weights"]) == [trained.name, "heads, head 1", "heads, head 2"]
        for weights in entry["weights"].values():
            assert len(weights) == len(entry["target"])
            assert all(abs(sum(row) - 1) < 1e-3 for row in weights)
    failed(
        run("translate", f"model={trained}", f"compare=[{other}]", stdin="a"),
        "needs attention_map=FILE.html",
    )
    again = f"compare=[{trained}/]"
    failed(run("translate", f"model={trained}", again, show, stdin="a"), "neither duplicates nor")


def test_evaluate_prints_scores_with_signatures(trained, corpus):
    result = run(
        "evaluate", f"model={trained}", f"source={corpus}/test.en", f"reference={corpus}/test.de"
    )
    assert result.returncode == 0, result.stderr.decode()
    lines = result.stdout.decode().splitlines()
    assert [line.split()[0] for line in lines] == ["bleu", "chrf", "ter", "exact"]
    assert all("version:" in line for line in lines[:3])


def test_score(trained, corpus, tmp_path):
    pair = f"source={corpus}/test.en", f"target={corpus}/test.de"
    result = run("score", f"model={trained}", *pair)
    assert result.returncode == 0, result.stderr.decode()
    scores = [float(line) for line in result.stdout.decode().splitlines()]
    assert len(scores) == len((corpus / "test.en").read_text().splitlines())
    assert all(score < 0 for score in scores)
    assert b"perplexity" in result.stderr
    rows = [
        json.loads(line)
        for line in run("score", f"model={trained}", *pair, "format=jsonl").stdout.splitlines()
    ]
    assert [row["log_prob"] for row in rows] == pytest.approx(scores, abs=1e-4)
    mean = run("score", f"model={trained}", *pair, "format=jsonl", "normalize=average")
    failed(mean, "needs format=text")
    assert all(
        sum(row["token_log_probs"]) == pytest.approx(row["log_prob"], abs=1e-3) for row in rows
    )
    average = [
        float(x)
        for x in run("score", f"model={trained}", *pair, "normalize=average").stdout.split()
    ]
    assert average == pytest.approx(
        [s / len(r["tokens"]) for s, r in zip(scores, rows, strict=True)], abs=1e-5
    )
    nbest = tmp_path / "list"
    command = "translate", f"model={trained}", f"input={corpus}/test.en"
    assert (
        run(
            *command, "format=moses", "search=beam", "search.n_best=3", f"output={nbest}"
        ).returncode
        == 0
    )
    again = (
        run("score", f"model={trained}", f"source={corpus}/test.en", f"nbest={nbest}")
        .stdout.decode()
        .splitlines()
    )
    assert len(again) == len(nbest.read_text().splitlines())
    for line in again:
        features = re.search(r"logprob= (\S+) nmt= (\S+) \|\|\| (\S+)", line)
        if (
            features[1] != "0"
        ):  # the same model, hence the same numbers; but text can be cut into pieces in several ways
            assert features[2] == features[3]
    failed(run("score", f"model={trained}", pair[0]), "target, nbest: set exactly one")
    failed(run("score", f"model={trained}", pair[0], f"target={corpus}/train.de"), "not aligned")
    empty = "source=/dev/null", "target=/dev/null"
    failed(run("score", f"model={trained}", *empty), "source=/dev/null: the file is empty")
    nbest.write_text("7 ||| x ||| y\n3 ||| x ||| y\n")
    failed(
        run("score", f"model={trained}", pair[0], f"nbest={nbest}"),
        "line 2",
        "sort the n-best list by sentence number",
    )


def test_ensembles_and_searches_from_the_command_line(trained, corpus):
    alone = run("translate", f"model={trained}", f"input={corpus}/test.en")
    both = run(
        "translate", f"model=[{trained},{trained}]", f"input={corpus}/test.en", "shares=[2,1]"
    )
    assert both.returncode == 0, both.stderr.decode()
    assert alone.stdout == both.stdout
    for search in ("sample", "diverse", "mbr"):
        result = run("translate", f"model={trained}", f"input={corpus}/test.en", f"search={search}")
        assert result.returncode == 0, result.stderr.decode()
        assert result.stdout.count(b"\n") == alone.stdout.count(b"\n")
    failed(
        run("translate", f"model=[{trained}]", "shares=[1,1]", stdin="a"),
        "one positive ensemble weight for each of the 1 models",
    )
    failed(
        run("translate", f"model={trained}", "format=html"),
        "format=html: must be one of text, jsonl",
    )
    failed(run("translate", f"model={trained}", "resume=true"), "needs input=FILE and output=FILE")


def test_align(trained, corpus, tmp_path):
    pair = f"source={corpus}/test.en", f"target={corpus}/test.de"
    lines = (corpus / "test.en").read_text().splitlines()
    result = run("align", f"model={trained}", *pair)
    assert result.returncode == 0, result.stderr.decode()
    links = result.stdout.decode().splitlines()
    assert [sorted(int(link.split("-")[1]) for link in line.split()) for line in links] == [
        [0, 1, 2]
    ] * len(lines)
    rows = [
        json.loads(line)
        for line in run("align", f"model={trained}", *pair, "format=json").stdout.splitlines()
    ]
    assert [" ".join(f"{s}-{t}" for s, t in row["pairs"]) for row in rows] == links
    # Vectors in one space, a direction for each word, and the gold standard that they find.
    words = sorted({word for line in lines for word in line.split()})
    for name, case in (("s.vec", str.lower), ("t.vec", str.upper)):
        rows = [
            f"{case(w)} " + " ".join("9" if i == j else "0" for j in range(len(words)))
            for i, w in enumerate(words)
        ]
        (tmp_path / name).write_text("\n".join([f"{len(words)} {len(words)}", *rows]) + "\n")
    vectors = f"vectors=[{tmp_path}/s.vec,{tmp_path}/t.vec]"
    (tmp_path / "gold").write_text("0-0 1-1 2-2\n" * len(lines))
    results = run("align", vectors, *pair, f"gold={tmp_path}/gold", "symmetrize=intersection")
    repeated = [
        line
        for line, text in zip(results.stdout.decode().splitlines(), lines, strict=True)
        if len(set(text.split())) == 3
    ]
    assert set(repeated) == {"0-0 1-1 2-2"}
    assert b"alignment error rate 0.0" in results.stderr
    assert (
        run(
            "align",
            vectors,
            *pair,
            f"attention_map={tmp_path}/map.json",
            f"output={tmp_path}/links",
        ).returncode
        == 0
    )
    drawn = json.loads((tmp_path / "map.json").read_text())[0]
    assert (drawn["source"], drawn["target"]) == (
        lines[0].split(),
        (corpus / "test.de").read_text().split("\n")[0].split(),
    )
    weights = drawn["weights"][
        ""
    ]  # a softmax: every row sums to 1, and the word of the same direction gets most
    assert [sum(row) for row in weights] == pytest.approx([1.0] * len(weights), abs=1e-4)
    assert [row.index(max(row)) for row in weights] == [
        drawn["source"].index(w.lower()) for w in drawn["target"]
    ]
    (tmp_path / "gold").write_text("0-0 x\n" * len(lines))
    failed(
        run("align", vectors, *pair, f"gold={tmp_path}/gold"), "line 1", "not a link such as 0-1"
    )
    failed(run("align", *pair), "model, vectors, links: set exactly one")
    missing = run("align", *pair, f"model={trained}", f"reverse={tmp_path}/missing")
    assert "train.de" not in failed(
        missing, f"reverse={tmp_path}/missing: file or folder not found"
    )
    (tmp_path / "s.vec").write_text("a 1 2\nb 1\n")
    failed(run("align", vectors, *pair), "s.vec, line 2")


def test_align_without_a_model(tmp_path):
    (tmp_path / "s").write_text("the house\nThe book\na book\n")
    (tmp_path / "t").write_text("Haus das\nBuch das\nBuch ein\n")
    (tmp_path / "gold").write_text("0-1 1-0\n" * 3)
    pair = f"source={tmp_path}/s", f"target={tmp_path}/t"
    train = f"train=[{tmp_path}/s,{tmp_path}/t]"
    for method in ("ibm1", "hmm"):
        result = run("align", f"method={method}", *pair, train, f"gold={tmp_path}/gold")
        assert result.stdout.decode().splitlines() == ["0-1 1-0"] * 3, result.stderr.decode()
        assert b"alignment error rate 0.0" in result.stderr
        assert b"units=space" not in result.stderr
    (tmp_path / "s").write_text("the house\nThe book\n本です 家\n")
    result = run("align", "method=ibm1", *pair, f"gold={tmp_path}/gold")
    assert b"of 1 sentence pairs are not the words between spaces" in result.stderr
    result = run("align", "method=ibm1", *pair, f"gold={tmp_path}/gold", "units=space")
    assert b"units=space" not in result.stderr
    failed(
        run("align", "method=ibm1", *pair, "model=x", "reverse=y"),
        "set exactly one",
        "reverse: cannot be combined with vectors=…, method=ibm1",
    )
    failed(run("align", "method=ibm1", *pair, "train=[x]"), "must be two files")


def test_translations_of_validations_are_kept_if_asked(corpus, tmp_path):
    command = (
        *data_arguments(corpus),
        *SMALL,
        "trainer.max_epochs=2",
        "keep_validations=true",
        "max_validation=5",
    )
    result = run("train", *command, f"run_dir={tmp_path}/run")
    assert result.returncode == 0, result.stderr.decode()
    kept = sorted(tmp_path.glob("run/validation-*.txt"))
    assert len(kept) == 2
    assert all(file.read_text().count("\n") == 5 for file in kept)


def test_another_search_may_be_chosen_when_a_run_continues(trained, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    result = run(
        "train",
        f"resume={folder}",
        'search="greedy"',
        "trainer.max_epochs=9",
        "trainer.max_updates=1",
    )
    assert result.returncode == 0, result.stderr.decode()
    failed(
        run("train", f"resume={folder}", "run_dir=elsewhere"),
        "run_dir=elsewhere: cannot change on resume",
    )
    errors = failed(run("train", f"resume={folder}", "decoder=luong"), "cannot change on resume")
    assert "search=beam|diverse|greedy|mbr|sample" in errors


def test_another_metric_has_no_effect_on_a_finished_run(corpus, tmp_path):
    command = *data_arguments(corpus), *SMALL, "trainer.max_epochs=1", "metric=ter"
    assert run("train", *command, f"run_dir={tmp_path}/run").returncode == 0
    again = run("train", f"resume={tmp_path}/run", "metric=chrf")
    assert b"metric.name have no effect" in again.stderr
    assert b"next validation" not in again.stderr


@pytest.mark.exhaustive
def test_a_resumed_run_may_have_another_metric(corpus, tmp_path):
    """The next validation is the best so far, whatever the figures of the old metric were."""
    command = *data_arguments(corpus), *SMALL, "trainer.max_epochs=2", "metric=ter"
    assert run("train", *command, f"run_dir={tmp_path}/run").returncode == 0
    more = run(
        "train",
        f"resume={tmp_path}/run",
        "metric=chrf",
        "metric.char_order=3",
        "trainer.max_epochs=4",
        "optimizer.lr=1e-9",
    )
    assert more.returncode == 0, more.stderr.decode()
    assert b"metric has changed" in more.stderr
    records = [
        json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    ]
    best = [record["best"] for record in records if record["kind"] == "validation"]
    assert best[2] is True
    assert (
        "nc:3"
        in json.loads((tmp_path / "run/results.json").read_text())["scores"]["chrf"]["signature"]
    )
    again = run("train", f"resume={tmp_path}/run", "trainer.max_epochs=5")
    assert b"another metric" not in again.stderr


def test_a_disk_without_room_is_reported_before_the_first_update(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(
        shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10**9, 10**9 - 10**4, 10**4)
    )
    failed(
        run("train", *data_arguments(corpus), *SMALL, f"run_dir={tmp_path}/run"),
        "0 MB free on the disk",
        "lower trainer.keep",
    )
    assert not (tmp_path / "run").exists()


def test_the_needed_room_is_that_of_all_checkpoints(tmp_path, monkeypatch):
    """A checkpoint has the weights, their average and two moments. The disk has `keep` copies of the last one, two of it while it is
    replaced, the best weights, also twice, and the snapshots to average, of which one is replaced."""
    network = torch.nn.Linear(10, 10, bias=False)
    for keep, average, expected in ((1, 0, 4 * 2 + 2), (2, 0, 4 * 4 + 2), (3, 5, 4 * 5 + 2 + 6)):
        trainer = SimpleNamespace(keep=keep, average=average)
        parts = SimpleNamespace(trainer=trainer, task=SimpleNamespace(network=network))
        needed = 400 * expected
        for free in (needed, needed - 1):
            usage = shutil._ntuple_diskusage(10**9, 10**9 - free, free)
            monkeypatch.setattr(shutil, "disk_usage", lambda folder, usage=usage: usage)
            refusal = pytest.raises(UserError, match="lower trainer.keep")
            with contextlib.nullcontext() if free == needed else refusal:
                check_space(tmp_path, parts)
        # The files of a resumed run count as free space.
        (tmp_path / ckpt.LAST).write_bytes(b"0")
        check_space(tmp_path, parts)
        (tmp_path / ckpt.LAST).unlink()


def test_flags_may_follow_what_they_are_about():
    for key in ("resume=runs/a", "init=runs/a"):
        failed(run("train", key, "--cfg", "job"), "cannot be combined with resume or init")
    result = run("train", "decoder=luong", "--cfg", "job")
    assert result.returncode == 0, result.stderr.decode()
    assert b"nmt.model.decoder.luong.Luong" in result.stdout


@pytest.mark.exhaustive
def test_resume_extends_a_finished_run(corpus, tmp_path):
    run_dir = tmp_path / "run"
    assert run("train", *data_arguments(corpus), *SMALL, f"run_dir={run_dir}").returncode == 0
    result = run("train", f"resume={run_dir}", "trainer.max_epochs=2")
    assert result.returncode == 0, result.stderr.decode()
    validations = [
        e
        for e in map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
        if e["kind"] == "validation"
    ]
    assert [round(e["epoch"]) for e in validations] == [1, 2]
    failed(
        run("train", f"resume={run_dir}", "decoder.hidden_size=9"),
        "decoder.hidden_size=9: this setting cannot change on resume",
    )
    message = failed(run("train", f"resume={run_dir}", "max_epochs=9"), "did you mean trainer.max_")
    assert "cannot change" not in message


def test_bad_input_to_training(corpus, tmp_path):
    def bad(**files):
        folder = tmp_path / "bad"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(corpus, folder)
        for name, content in files.items():
            path = folder / name.replace("_", ".")
            path.unlink() if content is None else path.write_bytes(content)
        return run("train", *data_arguments(folder), *SMALL, f"run_dir={tmp_path}/never")

    failed(bad(train_de=None), "train.de: file not found", "train.en")
    failed(bad(train_de=b"one\ntwo\n"), "train.de: not aligned (128 and 2 lines)")
    failed(bad(val_en=b"", val_de=b""), "val.en", "no sentence pairs")
    failed(bad(train_en=b"fine\n\xff\xfe\n"), "train.en, line 2: invalid UTF-8")
    failed(
        run("train", "trainer.max_epoch=1", "optimizer.lr=fast"),
        "did you mean max_epochs",
        "lr=fast: must be a number",
    )
    failed(run("train", "decoder=fixed"), "add attention=none")
    failed(run("train", "resume=/nowhere"), "cannot be resumed")
    (tmp_path / "early").mkdir()
    failed(run("train", f"resume={tmp_path}/early"), f"run_dir={tmp_path}/early resume=auto")
    assert "delete" not in failed(run("train", f"resume={corpus}"), "is not a run folder")
    failed(run("train", f"resume={corpus}/val.en"), f"give the run folder, such as {corpus}")
    failed(run("train", "model.dropout=1.5", "~cell", cwd=tmp_path), "cell")
    assert not (tmp_path / "never").exists()
    assert not (tmp_path / "runs").exists()


def test_the_log_of_a_run_contains_the_choice_of_the_recipe(corpus, tmp_path):
    """The choice is made before the log file exists."""
    sizes = ["sizes.encoder=8", "sizes.decoder=16", "sizes.vocabulary=60", "trainer.max_updates=1"]
    result = run("train", *data_arguments(corpus)[1:], *sizes, f"run_dir={tmp_path}/run")
    assert result.returncode == 0, result.stderr.decode()
    log = (tmp_path / "run" / "train.log").read_text()
    assert log.count("INFO 128 training pairs: using no recipe, because sizes are set") == 1


def test_a_run_folder_is_not_overwritten(trained, corpus):
    before = {path.name: path.stat().st_mtime for path in trained.iterdir()}
    failed(
        run("train", *data_arguments(corpus), *SMALL, f"run_dir={trained}"),
        "contains another run",
        f"resume={trained}",
    )
    assert {path.name: path.stat().st_mtime for path in trained.iterdir()} == before


def test_bad_input_to_translation(trained, tmp_path):
    (tmp_path / "broken.safetensors").write_bytes(b"nonsense")
    failed(run("translate"), "model: missing")
    failed(run("translate", "model=/nowhere"), "file or folder not found")
    failed(run("translate", f"model={tmp_path}/broken.safetensors"), "not a checkpoint, or damaged")
    failed(run("translate", f"model={trained}", "input=/nowhere/x"), "/nowhere/x: file not found")
    evaluated = ["evaluate", f"model={trained}", f"source={trained}/config.yaml"]
    failed(run(*evaluated, "reference=[]"), "reference=[]: give a file")
    failed(
        run("translate", f"model={trained}", f"output={tmp_path}/no/x", stdin="a"),
        "cannot be written",
    )
    failed(
        run("translate", f"model={trained}", "attention_map=map.gif"),
        "must end in .html, .png, .pdf, .svg or .json",
    )
    failed(
        run("translate", f"model={trained}", "search.width=0", "precision=x", "search.n_best=2"),
        "search.width=0",
        "precision=x",
    )
    failed(
        run("translate", f"model={trained}", stdin=b"fine\n\xff\n"), "stdin, line 2: invalid UTF-8"
    )
    failed(
        run(
            "evaluate",
            f"model={trained}",
            f"source={trained}/config.yaml",
            f"reference={trained}/test.txt",
        ),
        "not aligned",
    )


@pytest.mark.exhaustive
def test_a_new_score_is_two_files(tmp_path):
    """README, "Add a score": one Python file, one YAML, no edits; all commands, checks and sweeps find it."""
    readme = (ROOT / "README.md").read_text()
    code = re.search(r"```python\n(# nmt/model/attention/cosine\.py.*?)```", readme, re.DOTALL)[1]
    yaml = re.search(r"```yaml\n(# Cosine attention.*?)```", readme, re.DOTALL)[1]
    for folder in ("nmt", "conf", "tests"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "nmt/model/attention/cosine.py").write_text(code)
    (tmp_path / "conf/attention/cosine.yaml").write_text(yaml)
    contract = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "not slow", "-k", "cosine", "tests/test_attention.py", "tests/test_decoders.py", "tests/test_config.py",
         "tests/test_tutorial.py"],
        cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert contract.returncode == 0, contract.stdout
    assert int(re.search(r"(\d+) passed", contract.stdout)[1]) > 5
    wrong = run_alone("train", "attention=cosin", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    failed(wrong, "available: concat, cosine, coverage, dot")


def test_shell_scripts_are_executable_and_can_be_parsed():
    files = [ROOT / ".ci/run", *(ROOT / "scripts").iterdir()]
    scripts = [path for path in files if path.is_file() and path.read_bytes()[:4] == b"#!/b"]
    assert len(scripts) >= 9
    for script in scripts:
        assert os.access(script, os.X_OK) or script.suffix
        assert subprocess.run(["sh", "-n", str(script)]).returncode == 0
    assert "scripts/test" in (ROOT / ".ci/run").read_text()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["--decoder", "luong"], "decoder=VALUE"),
        (["--trainer.max-epochs=3"], "trainer.max_epochs=3"),
        (["-x"], "x=VALUE"),
        (["--batch-size=3"], "batching.sentences=3 or batching.tokens=3"),
    ],
)
def test_flags_that_there_are_not(typed, meant):
    result = run("train", *typed)
    failed(result, f"flag not found. Write keys without dashes, as {meant}")
    assert result.returncode == 2


@pytest.mark.parametrize(
    "typed", [["seed", "=", "3"], ["seed=", "3"], ["decoder=luong", "seed", "=3"]]
)
def test_spaces_around_an_equals_sign_are_named(typed):
    result = run("train", *typed)
    failed(result, "must have the form key=value, without spaces around =")
    assert result.stderr.decode().count("  - ") == 1


@pytest.mark.parametrize(
    ("command", "typed", "message"),
    [
        ("train", ["--plugins", "nowhere"], "package not found"),
        ("train", ["--hlep"], "flag not found"),
        ("train", ["--dry-run"], "add -m"),
        ("train", ["--config-dir", "nowhere"], "folder not found"),
        ("train", ["--help", "nowhere"], "not found in the groups and keys"),
        ("train", ["device=cuda:99"], "not available on this machine"),
        ("translate", ["model=nowhere"], "file or folder not found"),
        ("train", ["resume=nowhere"], "was not found"),
        ("train", ["++resume=nowhere"], "was not found"),
        ("train", ["--help", "seed=1,2"], "only a sweep (-m) accepts"),
        ("train", ["data=text", "data.train=a", "data.validation=a", "data.source=b",
                   "data.target=c"], "file not found"),
        ("train", ["run_dir=FULL"], "contains another run"),
        ("train", ["-m", "seed=1,2", "hydra/launcher=nowhere"], "launcher not found"),
        ("score", ["model=2023", "source=2024", "target=2025"], "2024: file not found"),
        ("report", ["nowhere"], "not a folder"),
        ("translate", ["-m", "+hydra/launcher=workers", "model=a,b", "input=x"], "leave +hydra/"),
    ],
)  # fmt: skip
def test_wrong_command_lines_have_the_same_exit_status(command, typed, message, tmp_path):
    """Status 2 of conf/README.md, whatever part of the command line is wrong."""
    (tmp_path / "FULL").mkdir()
    (tmp_path / "FULL" / "last.safetensors").touch()
    result = run(command, *typed, cwd=tmp_path)
    failed(result, message)
    assert result.returncode == 2


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["model=A", "compare=[a,", "b]"], "put it in quotes: 'compare=[a, b]'"),
        (["model=A", "in.txt"], "in.txt: must have the form key=value; a file needs its key, such as input=in.txt"),
    ],
)  # fmt: skip
def test_lists_with_spaces_and_files_without_a_key_are_named(typed, message, tmp_path):
    (tmp_path / "in.txt").write_text("a\n")
    failed(run("translate", *typed, cwd=tmp_path), message)


def test_a_path_with_an_equals_sign_needs_no_key():
    typed = ["runs/lr=0.1", "columns=[bleu]", "runs/b"]
    keys = ["columns=[bleu]", "folders=['runs/lr=0.1',runs/b]"]
    assert [text.replace('"', "'") for text in with_key("report", typed)] == keys
    assert with_key("train", typed) == typed


def test_a_bracket_in_quotes_is_part_of_the_name():
    assert not list(space_errors(['systems=["A[1=x.txt"]']))


def test_the_keys_of_a_group_are_listed_once():
    """Two unknown keys of a group have a suggestion each, and one list of the keys."""
    errors = failed(
        run("train", "trainer.max_epoch=1", "trainer.patienc=1"), "max_epochs?", "did you mean patience?"
    )  # fmt: skip
    assert errors.count("(available: ") == 1


def test_a_run_folder_that_is_a_file_is_named(tmp_path):
    (tmp_path / "file").touch()
    for name in ("file", "file/run"):
        typed = ["experiment=reverse", f"run_dir={tmp_path}/{name}"]
        failed(run("train", *typed), f"run_dir={tmp_path}/{name}: is a file, or in a file;")


def test_a_command_as_an_argument_of_the_package_is_named():
    typed = [sys.executable, "-m", "nmt", "train", "seed=1"]
    result = subprocess.run(typed, capture_output=True, text=True)
    assert result.returncode == 2
    assert "write python -m nmt.train" in result.stderr


def test_the_list_of_commands_may_be_cut_off():
    """As by `python -m nmt | head`."""
    command = f"{sys.executable} -u -m nmt | true"  # nothing reads the pipe
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert "Traceback" not in result.stderr


def test_a_config_file_as_a_flag_gets_the_right_flag():
    failed(run("train", "--config", "my.yaml"), "write --from FILE")


def test_what_was_tested_is_kept_beside_the_answers(trained, corpus):
    assert (trained / "test.source.txt").read_text() == (corpus / "test.en").read_text()
    assert (trained / "test.reference.txt").read_text() == (corpus / "test.de").read_text()


@pytest.mark.parametrize(
    "name",
    [
        "OUT",
        "123",
        "1e5",
        "null",
        "True",
        "-m",
        "a b",
        "a\\",
        "it's\\",
        "it's",
        "[1]",
        "a,b",
        "x=y",
        "50%:@",
        "(s)",
        "a\\'b",
        "ü",
        "~",
        "{a}",
        "a#b",
    ],
)
def test_advice_of_a_message_can_be_typed(name):
    """A shell and the configuration's grammar both read back what was meant."""
    shell = subprocess.run(
        ["sh", "-c", f"printf '%s' {typed(resume=name)}"], capture_output=True, check=True
    )
    [override], faults = parse([shell.stdout.decode()])
    assert not faults
    assert (override.key_or_group, override.value()) == ("resume", name)


def test_combinations_of_values_do_not_write_the_same_file(small_run, tmp_path):
    source = tmp_path / "in"
    source.write_text("a b\n")
    command = ["-m", f"model={small_run}", f"input={source}", "search.width=1,2"]
    failed(
        run("translate", *command, f"output={tmp_path}/o"), "2 combinations of values would write"
    )
    assert not (tmp_path / "o").exists()
    twice = run("compare", "-m", "samples=10,20", f"reference={source}", str(source), cwd=tmp_path)
    failed(twice, "output=comparison: 2 combinations of values would write")
    several = run("translate", *command[:-1], f"output={tmp_path}/o,{tmp_path}/p")
    assert several.returncode == 0
    assert (tmp_path / "p").read_text()


def test_an_empty_path_is_refused():
    failed(run("train", "experiment=reverse", "run_dir="), "run_dir: is empty")
    failed(run("translate", "model=x", "input="), "input: is empty")


def test_advice_with_a_number_can_be_typed():
    assert typed(resume="so", **{"trainer.stop_after": 0}) == "resume=so trainer.stop_after=0"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_explains_every_key_and_nothing_else(command):
    """Every key that the command has, each with words of its own; only groups that it has."""
    message = help_of(command, [])
    config = compose(name=command)
    keys = {
        f"{group}.{key}" if isinstance(node, dict) else group
        for group, node in config.items()
        for key in (node if isinstance(node, dict) else [group])
        if key != "_target_"
    }
    shown = dict(
        re.findall(r"^  ([a-z][\w.]+)=\S*(.*)$", message[message.index("Keys (") :], re.MULTILINE)
    )
    assert set(shown) == keys
    assert [key for key, words in shown.items() if not words.strip()] == []
    assert message.startswith(f"python -m nmt.{command} ")
    groups = re.search(r"Groups.*?:\n(.*?)\n\n", message, re.DOTALL)
    assert ("pooling" in groups[1] if groups else False) == (command == "classify")
    assert max(map(len, message.splitlines())) < 160


def test_help_of_a_word_lists_the_keys_that_contain_it():
    lines = run("train", "--help", "dropout").stdout.decode().splitlines()
    assert any(line.startswith("  model.dropout=") for line in lines)
    assert all("dropout" in line.lower() for line in lines)
    done = run("translate", "--help", "zebra")
    assert failed(done, "--help zebra: not found in the groups and keys of this configuration")


def test_help_of_a_word_lists_all_choices_of_a_group():
    lines = run("train", "--help", "experiment").stdout.decode().splitlines()
    [group] = [line for line in lines if line.startswith("  experiment ")]
    assert {*options("experiment")} <= {*group.split()}
    assert run("train", "--help", "luong2015_multi30k").stdout.decode().startswith("  experiment ")


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["train"], "nmt.train …"), (["foo"], "foo is not a command; python -m nmt lists")],
)
def test_the_package_runs_no_command(arguments, status, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["nmt", *arguments])
    with pytest.raises(SystemExit):
        main.main()
    assert status in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"a b\rc d\re f\r", "stdin: lines end with carriage returns"),
        ("\ufeffa b\nc\n".encode("utf-16-le"), "encoding is UTF-16"),
    ],
)
def test_the_encoding_of_stdin_is_recognised(trained, data, problem):
    assert failed(run("translate", f"model={trained}", stdin=data), problem)


def test_a_text_file_given_as_a_model_is_refused(corpus):
    done = run("translate", f"model={corpus}/test.en", stdin="a")
    assert done.returncode == 2
    assert failed(done, "not a checkpoint, or damaged", "Give a run folder")


def test_a_decimal_number_is_written_with_a_point():
    assert failed(run("train", "optimizer.lr=0,001"), "write a decimal number with a point")
    assert "decimal" not in run("train", "decoder=bahdanau,luong").stderr.decode()


def test_the_package_lists_its_commands(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["nmt"])
    main.main()
    printed = capsys.readouterr().out
    assert set(re.findall(r"python -m nmt\.(\w+)", printed)) == {*COMMANDS}
    monkeypatch.setattr(sys, "argv", ["nmt", "--help"])
    main.main()
    assert capsys.readouterr().out == printed


def test_the_garbage_collector_is_disabled_during_imports_only(monkeypatch):
    seen = []
    monkeypatch.setattr(
        deferred, "imported", lambda name: seen.append(gc.isenabled()) or (lambda object: None)
    )
    gc.disable()
    deferred.with_settings("nmt:nothing")(Namespace(object=Namespace()))
    assert seen == [False] and gc.isenabled()
    status_of(monkeypatch, "cite", "--version")
    assert gc.isenabled()
    gc.unfreeze()


def test_every_command_is_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {f"nmt-{name}": f"nmt.{name}:main" for name in COMMANDS}


def test_help_follows_what_is_chosen():
    message = help_of("train", ["decoder=luong", "optimizer=radam", "sizes.decoder=77"])
    assert "decoder=luong   Decoder of Luong et al. 2015" in message
    assert "  decoder.hidden_size=77 " in message
    assert "  optimizer.betas=[0.9,0.999] " in message
    done = run("train", "--help", "decoder=lung")
    assert done.returncode == 2
    assert "did you mean luong?" in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


def status_of(monkeypatch, command, *arguments):
    """Exit status of `nmt-COMMAND ARGUMENT …`, which an installer writes as sys.exit(main())."""
    monkeypatch.setattr(sys, "argv", [f"nmt-{command}", *arguments])
    try:
        return importlib.import_module(f"nmt.{command}").main() or 0
    except SystemExit as end:
        return end.code or 0


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_completes(command, monkeypatch, capfd):
    """The output of `nmt-COMMAND -sc install=SHELL` names the command."""
    for shell in ("bash", "zsh", "fish"):
        assert status_of(monkeypatch, command, "-sc", f"install={shell}") == 0
        printed = capfd.readouterr().out
        assert "complete" in printed
        assert f"nmt-{command}" in printed


def test_an_installed_command_ends_with_status_0(small_run, tmp_path, monkeypatch, capfd):
    """`main` returns the exit status: the score of a run is not a failure."""
    for command in COMMANDS:
        assert status_of(monkeypatch, command, "--version") == 0
    (tmp_path / "t").write_text("a b c\n")
    pair = f"source={tmp_path}/t", f"target={tmp_path}/t"
    assert status_of(monkeypatch, "score", f"model={small_run}", *pair) == 0
    assert float(capfd.readouterr().out.splitlines()[-1]) < 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "resume=456"], "resume=456: the run folder was not found"),
        (["train", "resume=[a,b]"], "resume=[a,b]: must be text or null"),
        (["train", "init=true", "data=reverse"], "init=true: must be text or null"),
        (["train", "resume=nowhere"], "resume=nowhere: the run folder was not found"),
        (["train", "~decoder=luong"], "~decoder=luong: ~ deletes a key or a choice"),
        (["train", "~seed=5"], "so it takes no value; write ~seed"),
        (["train", "+run_dir="], "run_dir: is empty"),
        (["train", "--", "seed=1"], "--: not supported; leave it out"),
        (["evaluate", "model=x", "source=y", "reference=[1,2]"], """reference='["1","2"]'"""),
        (["train", "run_dir=[a,b]"], "run_dir=[a,b]: must be text or null"),
        (["train", "--resolve"], "--resolve: flag not found"),
        (["train", "--hlep"], "did you mean --help?"),
        (["train", "--cfg", "jobs"], "--cfg/-c: invalid choice: 'jobs' (choose from"),
        (["train", "--cfg"], "--cfg/-c: expected one argument"),
        (["train", "-sc"], "-sc: must be one of install=bash"),
        (["train", "-sc", "query=bash"], "-sc: must be one of install=bash"),
        (["train", "--config-dir", "nowhere"], "--config-dir nowhere: folder not found"),
        (["train", "data.train=c", "data.source=en"], "for your own files, add data=text"),
        (
            ["translate", "model=x", "input=x", "output=o.txt.gz"],
            "output=o.txt.gz: compressed output is not supported",
        ),
        (["translate", "model=x", "device=gpu"], "model=x: file or folder not found"),
    ],
)
def test_first_mistakes_get_one_message_each(arguments, said, tmp_path):
    done = run(*arguments, cwd=tmp_path)
    message = done.stderr.decode()
    assert done.returncode in (1, 2)
    assert said in message
    assert "Traceback" not in message


def test_links_of_another_tool_are_compared_with_gold_in_every_format(tmp_path):
    """Two pairs by hand: 4 links, 3 of them possible; 3 sure links, 2 of them found."""
    gold = {
        "pharaoh": "0-0 1?1\n0-0 1-1\n",
        "naacl.wa": "1 1 1 S\n1 2 2 P\n2 1 1\n2 2 2 S\n",
        "json": '{"sure": [[0, 0]], "possible": [[1, 1]]}\n{"pairs": [[0, 0], [1, 1]]}\n',
    }
    (tmp_path / "text").write_text("a b\na b\n")
    (tmp_path / "links").write_text("0-0 1-1\n0-0 1-0\n")
    files = [f"{key}={tmp_path}/text" for key in ("source", "target")]
    typed = [f"links={tmp_path}/links", *files]
    for name, text in gold.items():
        (tmp_path / name).write_text(text)
        output = run("align", *typed, f"gold={tmp_path}/{name}").stderr.decode()
        rate = 1 - (2 + 3) / (4 + 3)
        assert f"precision 0.7500, recall 0.6667, alignment error rate {rate:.4f} on 2" in output
    (tmp_path / "beyond").write_text("1-1\n2-2\n")
    output = run("align", f"links={tmp_path}/beyond", *files, f"gold={tmp_path}/pharaoh")
    assert f"{tmp_path}/beyond: 1 alignment links refer to words after" in output.stderr.decode()
    (tmp_path / "beyond").write_text("1-1\n0-7\n")
    output = run("align", f"links={tmp_path}/beyond", *files, f"gold={tmp_path}/pharaoh")
    assert f"{tmp_path}/beyond: 1 alignment links refer to words after" in output.stderr.decode()
    (tmp_path / "blank").write_text("\n")
    blank = f"links={tmp_path}/blank"
    failed(run("align", blank, *files, f"gold={tmp_path}/pharaoh"), "blank: has 1 lines")
    failed(run("align", *typed), "links: needs gold=FILE")
    failed(
        run("align", *files),
        "set exactly one: model=RUN_DIR, vectors=[SOURCE,TARGET], links=FILE",
    )
    deep = f'{{"sure": {"[" * 10**5}{"]" * 10**5}}}'
    for wrong in ('{"sure": [[0]]}', '{"sure": [[-1, 0]]}', '{"words": []}', "{1}", deep):
        (tmp_path / "wrong").write_text(f"{wrong}\n0-0\n")
        failed(run("align", *typed, f"gold={tmp_path}/wrong"), "wrong, line 1: ")
    (tmp_path / "short").write_text("0-0\n")
    failed(
        run("align", *files, f"links={tmp_path}/short", f"gold={tmp_path}/pharaoh"),
        "short: has 1 lines",
    )


def test_a_table_is_not_its_own_reference(trained, tmp_path):
    """Both columns of a file would be compared with themselves."""
    (tmp_path / "t.tsv").write_text("a\tb\n")
    files = [f"{key}={tmp_path}/t.tsv" for key in ("source", "reference")]
    failed(
        run("evaluate", f"model={trained}", *files), "this file is also the source file. If a table"
    )


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
    ],
)
def test_a_lack_of_memory_is_one_message(error, capsys):
    def fail():
        raise error

    with pytest.raises(SystemExit) as caught:
        with_exit_status(fail)
    assert caught.value.code == 1
    assert "not enough memory" in capsys.readouterr().err


def test_more_threads_than_cores_are_named(monkeypatch):
    warnings = []
    monkeypatch.setattr(processes.log, "warning", lambda *values: warnings.append(values))
    before = torch.get_num_threads()
    processes.prepare_process(processes.available_cores() + 1)
    torch.set_num_threads(before)
    assert "further threads make it slower" in warnings[0][0]
