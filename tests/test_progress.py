"""Long work says how far it is."""

import logging

import pytest

from nmt.report import progress
from nmt.report.progress import Progress


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
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "translating: 50 of 1,000 lines, 38 s left"
    assert said[1] == "translating: 425 of 1,000 lines, 23 s left"
    assert len(said) == 3


def test_short_work_says_nothing_and_unknown_sizes_have_no_end(clock, caplog):
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
    from rich.console import Console

    monkeypatch.setattr(progress, "console", Console(force_terminal=True, stderr=True))
    with Progress("aligning", 10, "pairs") as step:
        clock[0] += 3
        step(5)
        assert step._bar is not None
    assert "aligning (pairs)" in capsys.readouterr().err
