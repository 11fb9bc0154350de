"""Configuration: every YAML works, every fault is found, all at once."""

import re
from pathlib import Path

import pytest
import torch
from builders import CONF, SIZES, batch, choices, compose

from nmt.configuration import build
from nmt.configuration.command_line import check_command_line
from nmt.configuration.devices import find_device, usable_precision
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import Batch
from nmt.train import check

NEEDED = {
    "text": ["data.train=a", "data.validation=b", "data.source=en", "data.target=de"],
    "hub": ["data.path=x", "data.source=en", "data.target=de"],
} | dict.fromkeys(
    ("tsv", "csv", "jsonl", "parquet"), ["data.train=a", "data.validation=b", "data.source=en", "data.target=de"]
)
GROUPS = ["data", "tokenizer", "encoder", "decoder", "attention", "optimizer", "schedule", "objective", "search", "metric", "trainer", "experiment"]  # fmt: skip


@pytest.mark.parametrize(("group", "name"), [(group, name) for group in GROUPS for name in choices(group)])
def test_every_choice_composes_builds_and_takes_a_step(group, name):
    extra = {"fixed": ["attention=none"], "none": ["decoder=fixed"]}.get(name, [])
    config = compose(f"{group}={name}", *extra, *(NEEDED.get(name, []) if group == "data" else []))
    build.check(config)
    small = compose(f"{group}={name}", *extra, *SIZES, *(NEEDED.get(name, []) if group == "data" else []))
    torch.manual_seed(0)
    model = build.network(small, 11, 11).train()
    optimizer = build.make(small, "optimizer", parameters=list(model.parameters()))
    before = [p.detach().clone() for p in model.parameters()]
    data: Batch = batch()
    build.make(small, "objective")(model, data, 10**6).total.backward()
    build.make(small, "trainer")
    build.make(small, "schedule").factor(1, 10, 0.1)
    optimizer.step()
    assert any(not torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


def test_the_groups_of_train_yaml_are_listed_in_it():
    text = Path(CONF, "train.yaml").read_text()
    for group in GROUPS:
        assert re.search(rf"^  - {group}: ", text, re.MULTILINE), group


def faults(*overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        check_command_line("train", list(overrides), check)
        build.check(compose(*overrides))
    return str(caught.value)


def test_all_faults_are_listed_at_once():
    message = faults(
        "decoder=bahdana", "trainer.max_epoch=3", "optimizer.lr=-1", "seed=abc", "attention=dot",
        "decoder.hidden_size=100", "search.length_penalty=foo", "nonsense=1", "model.tying=1",
    )  # fmt: skip
    for expected in (
        "there is no 'bahdana' to choose for decoder (there are: bahdanau, fixed, luong, luong_feed)",
        "trainer.max_epoch: no such key; did you mean max_epochs?",
        "optimizer.lr=-1: out of range, must be a number with 0 < value",
        "seed=abc: must be a whole number",
        "search.length_penalty=foo: must be one of none, average, wu",
        "nonsense: no such key",
        "model.tying=1: must be one of none, output, all",
    ):
        assert expected in message
    assert len(message.splitlines()) == 8


@pytest.mark.parametrize(
    ("overrides", "remedy"),
    [
        (["decoder=fixed"], "add attention=none"),
        (["attention=none"], "choose attention=concat"),
        (["attention=dot", "decoder.hidden_size=40", "decoder.readout_size=128"], "set decoder.hidden_size=256"),
        (["decoder.readout_size=40"], "set decoder.readout_size=128, or model.tying=none"),
        (["tokenizer.joint=false"], "set tokenizer.joint=true or model.tying=output"),
        (["batching.tokens=100"], "set exactly one of them"),
        (["search.n_best=9"], "search.width=5"),
        (["tokenizer=word", "tokenizer.sampling=0.1"], "only unigram and bpe can sample"),
        (["objective=scheduled_sampling", "objective.start=0.1"], "objective.end"),
        (["data=text"], "data.train: missing; give data.train=<text>"),
        (["key"], "not of the form key=value"),
    ],
)
def test_impossible_combinations_say_what_to_change(overrides, remedy):
    assert remedy in faults(*overrides)


def test_valid_sweeps_pass_the_check():
    check_command_line("train", ["-m", "decoder=bahdanau,luong", "attention=concat,general,dot", "seed=1,2"])
    with pytest.raises(UserError, match="'bad'"):
        check_command_line("train", ["-m", "decoder=bahdanau,bad"])


def test_an_unusable_device_is_refused():
    with pytest.raises(UserError, match="device=cuda:7 cannot be used here"):
        find_device("cuda:7")


def test_precision_without_hardware_falls_back_and_says_so(monkeypatch, caplog):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False})
    with caplog.at_level("WARNING", "nmt"):
        assert usable_precision("bfloat16", torch.device("cpu")) == "float32"
    assert "running in float32" in caplog.text
