"""log=json: every line of standard error is a JSON object, errors of the settings included."""

import datetime
import json
import logging
import math
import subprocess
import sys

import pytest
from commands import run

from nmt.configuration.compose import compose
from nmt.configuration.configure import COMMANDS
from nmt.foundation import progress
from nmt.foundation.json_log import JsonFormatter


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setenv("TTY_COMPATIBLE", "0")  # restored after the test


def records(result):
    lines = [json.loads(line) for line in result.stderr.decode().splitlines()]
    for line in lines:
        assert datetime.datetime.fromisoformat(line["time"]).tzinfo is not None
        assert {"level", "message"} <= line.keys()
    return lines


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_the_key(command):
    assert compose(command, ["log=json"])["log"] == "json"


def test_lines_and_their_fields(small_run, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "DISPLAY_DELAY", 0)
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0)
    (tmp_path / "in").write_text("a b\nc\n" * 1500)
    words = [
        f"model={small_run}",
        f"input={tmp_path}/in",
        "search=greedy",
        "device=cpu",
        "log=json",
    ]
    result = run("translate", *words, f"output={tmp_path}/out")
    assert result.returncode == 0
    *_, before, last = records(result)
    assert before["task"] == "translating"
    assert before["total"] == 3000
    assert last["lines"] == 3000
    assert last["level"] == "INFO"
    assert not run("translate", *words[:-1], f"output={tmp_path}/out").stderr.startswith(b"{")


@pytest.mark.parametrize("change", ["serach=greedy", "model=none", "precision=float99"])
def test_errors(small_run, change):
    result = run("translate", f"model={small_run}", "log=json", change)
    assert result.returncode in (1, 2)
    assert records(result)[-1]["level"] == "ERROR"


def test_the_line_about_the_recipe_is_json_too(tmp_path):
    """This line is written before the log of the command is set up."""
    for part in ("train", "val"):
        for language in ("en", "de"):
            (tmp_path / f"{part}.{language}").write_text("a b c d\n" * 40)
    data = [f"data.train={tmp_path}/train", f"data.validation={tmp_path}/val"]
    words = ["data=text", *data, "data.source=en", "data.target=de", "trainer.max_updates=1"]
    command = [sys.executable, "-m", "nmt.train", *words, "log=json", f"run_dir={tmp_path}/run"]
    result = subprocess.run(command, capture_output=True, check=True)
    lines = [json.loads(line) for line in result.stderr.decode().splitlines()]
    assert "using the recipe experiment=auto" in lines[0]["message"]


def test_values_that_json_lacks():
    record = logging.makeLogRecord({"msg": "%s of it", "args": ("half",), "levelname": "INFO"})
    record.fields = {"train_loss": math.nan, "update": 3}
    values = json.loads(JsonFormatter().format(record), parse_constant=pytest.fail)
    assert (values["message"], values["train_loss"], values["update"]) == ("half of it", "nan", 3)
