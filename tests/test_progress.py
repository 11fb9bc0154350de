"""Progress displays of long work."""

import gzip
import io
import logging
import math
import random
import re
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from commands import run
from rich.console import Console

import nmt
from nmt.data.lines import stream_lines
from nmt.data.ragged import encode_lines
from nmt.data.sources.everyday import Everyday
from nmt.drawing.attention_map import write_map
from nmt.foundation import progress, terminal
from nmt.foundation.progress import Progress, waiting
from nmt.foundation.ranks import ALONE
from nmt.inference.scoring import score_files
from nmt.inference.translation import ForcedDecoding, perplexity
from nmt.training.callback import Update
from nmt.training.progress_bar import ProgressBar
from nmt.training.task import Validation


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_lines_come_now_and_then_with_the_time_left(clock, caplog):
    caplog.set_level(logging.INFO, "nmt")
    with Progress("translating", 1000, "lines") as step:
        for _ in range(40):
            clock[0] += 1
            step(25)
    output = [record.getMessage() for record in caplog.records]
    assert output[0] == "translating: 50 of 1,000 lines, 38 s left"
    assert output[1] == "translating: 425 of 1,000 lines, 23 s left"
    assert len(output) == 3


def test_short_work_shows_no_progress_and_unknown_sizes_have_no_end(clock, caplog):
    caplog.set_level(logging.INFO, "nmt")
    with Progress("scoring", 3, "lines") as step:
        clock[0] += 1
        step(3)
    assert not caplog.records
    with Progress("reading", None, "lines") as step:
        clock[0] += 3
        step(7)
    assert [record.getMessage() for record in caplog.records] == ["reading: 7 lines"]


def test_a_terminal_gets_a_bar(clock, monkeypatch, capsys):
    monkeypatch.setattr(terminal, "console", Console(force_terminal=True, stderr=True))
    with Progress("aligning", 10, "pairs") as step:
        clock[0] += 3
        step(5)
    output = capsys.readouterr().err
    assert "aligning: 5 of 10 pairs" in output
    assert "0:00:03 elapsed, 0:00:03 left" in output


def test_only_the_outer_of_two_works_is_shown(clock, caplog):
    caplog.set_level(logging.INFO, "nmt")
    with Progress("translating", 10, "lines") as outer, Progress("reading", 10, "bytes") as inner:
        clock[0] += 3
        inner(5)
        outer(1)
    assert [record.getMessage() for record in caplog.records] == [
        "translating: 1 of 10 lines, 27 s left"
    ]
    with Progress("reading", 10, "bytes") as step:
        clock[0] += 3
        step(5)
    assert "reading: 5 of 10 bytes" in caplog.text, "the works before are over"


def test_work_without_progress_counts_seconds(monkeypatch, caplog):
    caplog.set_level(logging.INFO, "nmt")
    monkeypatch.setattr(progress, "DISPLAY_DELAY", 0.0)
    before = threading.active_count()
    with waiting("training a vocabulary"):
        end = time.monotonic() + 20
        while not caplog.records and time.monotonic() < end:
            time.sleep(0.1)
    assert threading.active_count() == before
    assert re.fullmatch(
        r"training a vocabulary: \d+ seconds so far", caplog.records[0].getMessage()
    )
    with pytest.raises(RuntimeError, match="as it is"), waiting("training a vocabulary"):
        raise RuntimeError("as it is")


def test_a_notebook_that_cannot_draw_gets_lines(clock, monkeypatch, caplog):
    """Rich draws in notebooks by ipywidgets."""
    caplog.set_level(logging.INFO, "nmt")
    monkeypatch.setattr(progress, "installed", lambda package: package != "ipywidgets")
    monkeypatch.setattr(terminal, "console", Console(force_jupyter=True, file=io.StringIO()))
    with Progress("translating", 10, "lines") as step:
        clock[0] += 3
        step(5)
    assert "translating: 5 of 10 lines, 3 s left" in caplog.text


def test_works_at_the_same_time_share_a_terminal(clock, monkeypatch, capsys):
    monkeypatch.setattr(terminal, "console", Console(force_terminal=True, stderr=True))
    with ProgressBar() as bar:
        bar.on_update(
            Update(update=1, total=10, epoch=0.5, loss=2.0, rate=0.1, gradient_norm=1.0, speed=9.0)
        )
        with Progress("translating", 10, "lines") as step:
            clock[0] += 3
            step(5)
    output = capsys.readouterr().err
    assert "epoch 0.50  update 1/10  train_loss 2.000" in output
    assert "translating: 5 of 10 lines" in output
    assert "0:00:03 elapsed, 0:00:03 left" in output


@pytest.fixture
def screen(monkeypatch):
    """A terminal of 80 columns; the log handlers of before are put back."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, color_system=None, width=80)
    monkeypatch.setattr(terminal, "console", console)
    handlers = terminal.logging.getLogger("nmt").handlers[:]
    terminal.set_up_logging()
    yield written
    for handler in terminal.logging.getLogger("nmt").handlers:
        handler.close()
    terminal.logging.getLogger("nmt").handlers[:] = handlers


def test_a_terminal_gets_a_table_of_validations(screen, tmp_path):
    terminal.set_up_logging(tmp_path / "train.log")
    metrics = {"loss": 2.0, "bleu": 20.0, "chrf": 40.0, "ter": 61.0, "exact": 1.5, "b/bleu": 1.0}
    with ProgressBar() as bar:
        for number in (1, 2):
            bar.on_update(
                Update(update=number * 10, total=25, epoch=0.5, loss=3.0, rate=0.1, gradient_norm=1.0, speed=9.0)
            )  # fmt: skip
            example = "A man sleeps. → Ein Mann schläft."
            validation = Validation(metrics=metrics, example=example)
            bar.on_validation(number * 12, number, validation, best=number == 2)
        terminal.logging.getLogger("nmt").warning("it is slow: %s", "1,500")
    output = screen.getvalue()
    text = re.sub(r"\x1b\[[^m]*?[A-Za-z]", "", output)
    lines = [line.strip() for line in text.splitlines()]
    assert max(map(len, text.replace("\r", "\n").splitlines())) <= 80
    heads = [line for line in lines if line.startswith("epoch updates train_loss    nll")]
    assert len(heads) == 1
    rows = [line.split()[1:] for line in lines if " 7.389 " in line]
    assert rows[0] == ["1.00", "12", "3.000", "2.000", "7.389", "20.00", "40.00", "61.00"]
    assert rows[1] == ["2.00", "24", *rows[0][2:], "★"]
    assert lines.count("A man sleeps. → Ein Mann schläft.") == 2
    assert "INFO" not in text
    assert re.search(r"\d\d:\d\d:\d\d WARNING it is slow: 1,500", text)
    assert "epoch 2.00  update 24/25" in lines[-2], "the bar stays, full"
    assert re.fullmatch("━{30} 0:00:00 elapsed", lines[-1])
    log = (tmp_path / "train.log").read_text()
    assert "INFO validation after 1.00 epochs: nll 2.00 " in log
    assert "★" not in log and "exact match 1.50 %" in log, "the table has no room for it"


def test_the_time_left_counts_characters(clock, caplog):
    caplog.set_level(logging.INFO, "nmt")
    with Progress("translating", 10, "lines", work=100) as step:
        clock[0] += 5
        step(1, 50)
    assert [r.getMessage() for r in caplog.records] == ["translating: 1 of 10 lines, 5 s left"]


def test_a_long_training_is_announced_with_its_duration(clock, caplog):
    caplog.set_level(logging.INFO, "nmt")
    for total, expected in ((90, 0), (4000, 1)):
        caplog.clear()
        bar = ProgressBar()
        for number in (1, 2, 3):
            clock[0] += 20
            bar.on_update(
                Update(update=number * 10, total=total, epoch=0.5, loss=3.0, rate=0.1, gradient_norm=1.0, speed=9.0)
            )  # fmt: skip
        announced = [
            r.getMessage() for r in caplog.records if "estimated training time" in r.getMessage()
        ]
        assert len(announced) == expected
    assert "2 h 13 min (until about update 4,000; less if" in announced[0]


def test_the_end_of_a_translation_is_logged(small_run, tmp_path):
    (tmp_path / "in").write_text("a b c\nb\n\nc a\n")
    done = run("translate", f"model={small_run}", f"input={tmp_path}/in", f"output={tmp_path}/o")
    logged = done.stderr.decode()
    piped = run(
        "translate", f"model={small_run}", "input=-", f"output={tmp_path}/p", stdin="a b c\n"
    )
    assert re.search(r" INFO 1 lines translated", piped.stderr.decode()), piped.stderr.decode()
    assert re.search(r" INFO 4 lines translated, [\d.,]+ per second → .*/o$", logged, re.MULTILINE)


def test_training_and_validation_have_different_names(caplog):
    """The loss of training is smoothed and has dropout; that of a validation has neither, and a perplexity."""
    caplog.set_level(logging.INFO, "nmt")
    with ProgressBar() as bar:
        bar.on_validation(10, 0.5, Validation(metrics={"bleu": 20.0, "loss": 2.0}), best=True)
    expected = "bleu 20.00  nll 2.00 (without label smoothing and dropout)  perplexity 7.39  ← best checkpoint so far"
    assert expected in caplog.text


def test_reading_shows_its_progress(tmp_path, clock, caplog, monkeypatch):
    """In bytes of the file as it lies there, compressed or not."""
    caplog.set_level(logging.INFO, "nmt")
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(
        progress.time, "monotonic", lambda: clock.__setitem__(0, clock[0] + 1) or clock[0]
    )
    for name, content in (
        ("t", b"a line\n" * 9000),
        ("t.gz", gzip.compress(random.Random(1).randbytes(400_000).hex().encode())),
    ):
        (tmp_path / name).write_bytes(content)
        assert list(stream_lines(tmp_path / name))
        output = [r.getMessage() for r in caplog.records if f"reading {name}: " in r.getMessage()]
        assert output and all(f" of {len(content):,} bytes" in text for text in output)


def test_all_long_work_shows_progress(small_run, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "nmt")
    monkeypatch.setattr(progress, "DISPLAY_DELAY", -1.0)
    lines = [f"{a} {b} {c}" for a in "abc" for b in "abc" for c in "ab"] * 4
    translator = nmt.load(str(small_run), search="greedy")
    translator.batch_tokens = 20
    monkeypatch.setattr("nmt.inference.forced_decoder.FORCED_TOKENS", 100)
    translator.translate(lines)
    translator.forced_maps(lines, lines)
    write_map(translator.forced_maps(lines[:9], lines[:9]), tmp_path / "map.html")
    encode_lines(lines * 100, translator.tokenizer.encode_source, 1000)
    Everyday(source="en", target="de", train=300, validation=10, test=10, seed=1).load()
    output = "\n".join(record.getMessage() for record in caplog.records)
    for what in (
        "translating",
        "scoring",
        "drawing map.html",
        "encoding",
        "generating sentence pairs",
    ):
        assert re.search(rf"^{what}: [\d,]+ of [\d,]+ \w+, [\d,]+ s left$", output, re.MULTILINE), (
            what
        )


def test_perplexity_is_per_token(tmp_path):
    assert perplexity(math.log(1 / 8), 3) == pytest.approx(2.0)
    (tmp_path / "source").write_text("a\nb\n")
    (tmp_path / "target").write_text("x\ny y\n")
    probabilities = ([0.5, 0.5], [0.25, 0.25, 0.5])
    decodings = [ForcedDecoding(log_probs=np.log(p), weights=None) for p in probabilities]
    translator = SimpleNamespace(
        check_scored_line=lambda line: None,
        encode=list,
        tokenizer=SimpleNamespace(encode_target=list),
        force=lambda *_, **__: decodings,
    )
    overall = score_files(
        lambda: translator, ranks=ALONE, source=f"{tmp_path}/source", target=f"{tmp_path}/target",
        nbest=None, errors="strict", output=f"{tmp_path}/out", work={}, format="text",
        normalize="none",
    )  # fmt: skip
    assert overall == pytest.approx(2 ** (7 / 5))
