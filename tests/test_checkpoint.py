"""Checkpoints: complete, atomic, never executed, and clear when they cannot be used."""

import errno
import io
import json
import os
import pickle
import stat

import pytest
import torch
from safetensors.torch import save_file

import nmt
from nmt.foundation.errors import UserError
from nmt.storage import checkpoint as ckpt

LINE = "a b c d"


def test_a_checkpoint_alone_is_enough(small_run, tmp_path):
    alone = tmp_path / "moved.safetensors"
    alone.write_bytes((small_run / ckpt.BEST).read_bytes())
    assert nmt.load(alone).translate([LINE, ""]) == nmt.load(small_run).translate([LINE, ""])


def test_the_run_folder_is_complete(small_run):
    names = {path.name for path in small_run.iterdir()}
    assert {
        "config.yaml", "run.json", "metrics.jsonl", "train.log", "results.json", "test.txt",
        "best.safetensors", "last.safetensors", "learning_curve.png", "attention.png",
    } <= names  # fmt: skip
    assert any(name.startswith("events.out.tfevents") for name in names)
    results = json.loads((small_run / "results.json").read_text())
    assert "version:" in results["scores"]["bleu"]["signature"]
    assert set(json.loads((small_run / "run.json").read_text())) == {
        "started_in",
        "device",
        "processor",
        "commands",
        "versions",
        "commit",
        "threads",
        "data",
    }


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.99])
def test_a_truncated_checkpoint_is_named(small_run, tmp_path, share):
    data = (small_run / ckpt.BEST).read_bytes()
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(UserError, match=r"broken\.safetensors: not a checkpoint, or damaged"):
        nmt.load(broken)


def test_a_flipped_byte_is_found(small_run, tmp_path):
    data = bytearray((small_run / ckpt.BEST).read_bytes())
    data[-1000] ^= 1
    (tmp_path / "flipped.safetensors").write_bytes(data)
    with pytest.raises(UserError, match=r"damaged \(wrong checksum\)"):
        nmt.load(tmp_path / "flipped.safetensors")


def test_damaged_weights_and_foreign_files_are_named(small_run, tmp_path):
    foreign = tmp_path / "foreign.safetensors"
    save_file({"x": torch.zeros(1)}, foreign)
    with pytest.raises(UserError, match="not a checkpoint of nmt"):
        nmt.load(foreign)
    saved = ckpt.read(small_run / ckpt.BEST)
    fewer = {name: t for name, t in saved.tensors.items() if "decoder" not in name}
    ckpt.write(tmp_path / "fewer.safetensors", saved.meta, fewer)
    with pytest.raises(UserError, match="do not match the configuration"):
        nmt.load(tmp_path / "fewer.safetensors")


def test_unusual_damage_is_named(small_run, tmp_path):
    saved = ckpt.read(small_run / ckpt.BEST)
    name = next(name for name in saved.tensors if name.startswith("tokenizer/"))
    tensors = {**saved.tensors, name: torch.zeros(5, dtype=torch.bfloat16)}
    ckpt.write(tmp_path / "tokenizer.safetensors", saved.meta, tensors)
    with pytest.raises(UserError, match=r"damaged checkpoint \(tokenizer"):
        nmt.load(tmp_path / "tokenizer.safetensors")
    deep = []
    for _ in range(900):
        deep = [deep]
    meta = {**saved.meta, "config": {**saved.config, "x": deep}}
    ckpt.write(tmp_path / "deep.safetensors", meta, saved.tensors)
    with pytest.raises(UserError, match="nested too deeply|key not found"):
        nmt.load(tmp_path / "deep.safetensors")
    with pytest.raises(TypeError, match="must be a path"):
        nmt.load(b"OUT")


def test_a_newer_format_asks_for_a_newer_version(small_run, tmp_path):
    saved = ckpt.read(small_run / ckpt.BEST)
    ckpt.write(tmp_path / "newer.safetensors", {**saved.meta, "format": 99}, saved.tensors)
    with pytest.raises(UserError, match=r"newer version of nmt \(format 99"):
        nmt.load(tmp_path / "newer.safetensors")


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "nmt.foundation.command_exit.with_exit_status",
        "nmt.model.attention.concat.torch.load",
        "pickle.loads",
    ],
)
def test_a_checkpoint_cannot_name_what_to_run(small_run, tmp_path, target):
    saved = ckpt.read(small_run / ckpt.BEST)
    config = {**saved.meta["config"], "attention": {"_target_": target}}
    ckpt.write(tmp_path / "evil.safetensors", {**saved.meta, "config": config}, saved.tensors)
    with pytest.raises(UserError, match="not a class of nmt.model.attention"):
        nmt.load(tmp_path / "evil.safetensors")


def test_pickles_are_never_read(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was executed",))

    buffer = io.BytesIO()
    pickle.dump(Bomb(), buffer)
    (tmp_path / "bomb.safetensors").write_bytes(buffer.getvalue())
    with pytest.raises(UserError):
        nmt.load(tmp_path / "bomb.safetensors")


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "best.safetensors"
    ckpt.write(path, {"n": 1}, {"x": torch.ones(3)})

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"No space left on device.*previous file is unchanged"):
        ckpt.write(path, {"n": 2}, {"x": torch.zeros(3)})
    assert ckpt.read(path).meta["n"] == 1
    assert list(tmp_path.iterdir()) == [path]


def test_content_and_rename_are_on_the_disk(tmp_path, monkeypatch):
    """First the file, under another name, then the folder that lists it under its own."""
    synced, path = [], tmp_path / "best.safetensors"

    def fsync(file):
        kind = os.fstat(file)
        synced.append("folder" if stat.S_ISDIR(kind.st_mode) else kind.st_size)
        assert path.exists() == (synced[-1] == "folder")

    monkeypatch.setattr(os, "fsync", fsync)
    ckpt.write(path, {}, {"x": torch.ones(3)})
    assert synced == [path.stat().st_size, "folder"]


def test_the_checksum_depends_on_names_but_not_on_their_order(tmp_path):
    first, second = torch.arange(3.0), torch.arange(3)
    for i, tensors in enumerate(({"b": first, "a": second}, {"a": second, "b": first})):
        ckpt.write(tmp_path / f"{i}", {}, tensors)
        assert ckpt.read(tmp_path / f"{i}").tensors.keys() == tensors.keys()
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()


def test_settings_may_contain_file_names_that_are_not_utf8(tmp_path):
    meta = {"config": {"run_dir": os.fsdecode(b"tr\xe4"), "name": "größer"}}
    ckpt.write(tmp_path / "x", meta, {"w": torch.ones(1)})
    assert ckpt.read(tmp_path / "x").config == meta["config"]


def test_missing_models_are_named(tmp_path):
    with pytest.raises(UserError, match="file or folder not found"):
        nmt.load(tmp_path / "nothing")
    with pytest.raises(UserError, match="has neither best.safetensors nor last.safetensors"):
        nmt.load(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / ckpt.BEST).touch()
    with pytest.raises(UserError, match=f"such as {tmp_path}/model"):
        nmt.load(tmp_path)


def test_ensembles_of_other_languages_are_named(small_run, tmp_path, caplog):
    saved = ckpt.read(small_run / ckpt.BEST)
    first, second = saved.meta["languages"]
    meta = {**saved.meta, "languages": [second, first]}
    ckpt.write(tmp_path / "reversed.safetensors", meta, saved.tensors)
    nmt.load([small_run, tmp_path / "reversed.safetensors"])
    assert f"reversed.safetensors translates {second} → {first}" in caplog.text
