"""The prompt of nmt.translate: answers, questions about them, a real terminal."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from unittest import mock

import pytest
from commands import ROOT

import nmt
from nmt.inference.prompt import HELP, SHADES, Prompt


@pytest.fixture(scope="module")
def translator(small_run):
    return nmt.load(str(small_run))


def conversation(translator, *typed):
    output = []
    with (
        mock.patch("builtins.input", side_effect=[*typed, EOFError]),
        mock.patch("builtins.print", output.append),
    ):
        Prompt(translator, "word").run()
    return output


def test_lines_are_translated_and_questions_answered(translator):
    output = conversation(translator, "a b c", ":score", ":attention")
    assert output[0] == translator.translate("a b c")
    pieces = output[2].split("  ")
    assert pieces[-1].startswith("</s> ") and all(
        0 <= float(piece.split()[-1]) <= 1 for piece in pieces
    )
    product = float(output[1].split()[1].rstrip(","))
    assert product == pytest.approx(
        translator.translations("a b c", details_of=1).details[0].log_prob, abs=0.006
    )
    words = output[0].split()
    looked = [line.split(" ← ") for line in output if " ← " in line]
    assert [word for word, _ in looked] == [*words, "</s>"]
    assert all(
        part.split(" ")[0] in SHADES and part.split(" ")[1] in ("a", "b", "c", "</s>")
        for _, where in looked
        for part in where.split(", ")
    )


def test_other_translations_that_the_search_keeps_are_shown(small_run):
    """All that a beam holds, also if it returns the best one only."""
    for n_best, others in ((1, 4), (3, 2)):
        translator = nmt.load(str(small_run), search="beam")
        translator.search.n_best = n_best
        output = conversation(translator, "a b c", ":score")
        assert len(output) == 3 + others
        assert output[0] not in [line.split("  ")[1] for line in output[3:]]
    assert len(conversation(nmt.load(str(small_run), search="greedy"), "a b c", ":score")) == 3


def test_several_sentences_in_a_line_give_no_advice_for_python(small_run, caplog):
    translator = nmt.load(str(small_run))  # warns once
    assert conversation(translator, "A b. C d.", ":score")
    assert "give a list of sentences" not in caplog.text


def test_what_cannot_be_answered_is_said(translator):
    assert conversation(translator, ":score", ":help", ":what", "caf\udce9", "", ":attention") == [
        ":score: there is no last translation yet; type a sentence first", HELP, f"unknown command :what\n{HELP}",
        "error: the line is not UTF-8; set the terminal to UTF-8, or translate a file", "",
        ":attention: there is no last translation yet; type a sentence first",
    ]  # fmt: skip


def test_an_error_is_no_end(small_run, monkeypatch):
    translator = nmt.load(str(small_run))
    usual, refused = translator.translations, [nmt.UserError("no")]

    def translations(*arguments, **options):
        if refused:
            raise refused.pop()
        return usual(*arguments, **options)

    monkeypatch.setattr(translator, "translations", translations)
    assert conversation(translator, "x", "a b") == ["error: no", translator.translate("a b")]


def test_mostly_unknown_input_is_reported(translator, caplog):
    translator.translate(["a b c", "a b ж"])
    assert "vocabulary" not in caplog.text
    translator.translate(["a b c", "жжж щщщ", "жук"])
    assert (
        'input: in 2 of 3 lines, most words are not in the vocabulary (first such line: "жжж щщщ")'
        in caplog.text
    )
    assert "(forward)" in caplog.text
    caplog.clear()
    translator.translate(["жжж щщщ жук дом a"])
    assert "input: in 1 of 1 lines" in caplog.text


@pytest.mark.exhaustive
def test_a_real_terminal_has_history(small_run):
    """Typed by a program into a pseudo-terminal: the arrow key brings the line back."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "nmt.translate", f"model={small_run}"]
    process = subprocess.Popen(
        command,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm", "OMP_NUM_THREADS": "1"},
    )
    os.close(slave)
    seen = b""

    def until(what):
        nonlocal seen
        end = time.monotonic() + 60
        while not re.search(what, seen) and time.monotonic() < end:
            if select.select([master], [], [], 0.2)[0]:
                seen += os.read(master, 4096)
        assert re.search(what, seen), seen

    until(rb":help lists commands[\s\S]*> ")
    os.write(master, b"a b c\n")
    until(rb"a b c\r\n[^>]*> ")
    seen = b""
    os.write(master, b"\x1b[A\n")
    until(rb"a b c\r\n[^>]*> ")
    seen = b""
    os.write(master, b":score\n")
    until(rb"log-probability -\d[\s\S]*> ")
    end = time.monotonic() + 60
    while (
        process.poll() is None and time.monotonic() < end
    ):  # Ctrl-D before the prompt listens is lost
        os.write(master, b"\x04")
        time.sleep(0.5)
    assert process.poll() == 0
    os.close(master)
