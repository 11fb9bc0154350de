"""Inputs of long jobs: folders of parts, columns of Parquet files, object stores and streams, and a message for each unreadable input."""

import gzip
import os
import re
import subprocess
import sys
import uuid

import fsspec
import pyarrow
import pyarrow.parquet
import pytest
from commands import failed, run, small_disk

from nmt.data import lines
from nmt.foundation.errors import UserError
from nmt.inference import input_lines, shared_output
from nmt.inference.text_input import find_input

LINES = ["a b c", "d e", "", "f g h"]
GREEDY = ["search=greedy", "device=cpu"]


def content(lines):
    return "".join(f"{line}\n" for line in lines).encode()


def write_table(file, **columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), file)


@pytest.fixture
def store():
    """A new folder in memory, read through fsspec."""
    return f"memory://{uuid.uuid4().hex}"


def test_files_of_a_folder_in_the_order_of_their_names(tmp_path):
    (tmp_path / "part-00001.gz").write_bytes(gzip.compress(content(LINES[2:])))
    (tmp_path / "part-00000").write_bytes(content(LINES[:2]))
    for name in ("_SUCCESS", ".hidden", "part-00000.json"):
        (tmp_path / name).write_text("no text\n")
    (tmp_path / "subfolder").mkdir()
    assert list(find_input(str(tmp_path)).lines()) == LINES
    assert find_input(str(tmp_path)).digest() != find_input(str(tmp_path / "part-00000")).digest()


def test_errors_of_a_folder_name_file_and_line(tmp_path):
    (tmp_path / "a.txt").write_bytes(content(LINES))
    (tmp_path / "b.txt").write_text("good\nbad\n")

    def check(line):
        if line == "bad":
            raise UserError("not good")

    with pytest.raises(UserError, match=rf"^{tmp_path}/b\.txt, line 2: not good$"):
        find_input(str(tmp_path)).require(check)


@pytest.mark.parametrize("protocol", ["memory", "file"])
def test_object_stores(store, tmp_path, protocol):
    folder = store if protocol == "memory" else f"file://{tmp_path}/store"
    system, path = fsspec.url_to_fs(folder)
    system.makedirs(path)
    system.pipe_file(f"{path}/b.txt.gz", gzip.compress(content(LINES[2:])))
    system.pipe_file(f"{path}/a.txt", content(LINES[:2]))
    text = find_input(f"{folder}/")
    assert list(text.lines()) == LINES
    before = text.digest()
    assert find_input(f"{folder}/").digest() == before
    assert list(find_input(f"{folder}/a.txt").lines()) == LINES[:2]
    system.pipe_file(f"{path}/a.txt", b"d\xff\n")
    assert find_input(f"{folder}/").digest() != before
    with pytest.raises(UserError, match=r"a\.txt, line 1: invalid UTF-8"):
        list(find_input(f"{folder}/a.txt").lines())
    with pytest.raises(UserError, match=r"none\.txt: file not found"):
        find_input(f"{folder}/none.txt")


def test_parquet_columns(store, tmp_path):
    write_table(tmp_path / "one.parquet", text=LINES)
    assert list(find_input(f"{tmp_path}/one.parquet").lines()) == LINES
    pairs = [{"de": line.upper(), "en": line} for line in LINES]
    write_table(tmp_path / "two.parquet", translation=pairs, number=[1, 2, 3, None])
    two = f"{tmp_path}/two.parquet"
    assert list(find_input(f"{two}:translation.de").lines()) == [line.upper() for line in LINES]
    system, path = fsspec.url_to_fs(store)
    system.pipe_file(f"{path}/two.parquet", (tmp_path / "two.parquet").read_bytes())
    assert list(find_input(f"{store}/:translation.en").lines()) == LINES
    for name, message in (
        (two, "has the columns translation, number; choose one with"),
        (f"{two}:number", "row 1: column 'number' contains 1, not text"),
        (f"{two}:text", "column 'text' not found"),
        (
            f"{two}:translation.fr",
            "'translation.fr' not found (available: translation, number, translation.de",
        ),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            list(find_input(name).lines())
    (tmp_path / "no.parquet").write_text("text\n")
    with pytest.raises(UserError, match="cannot be read as parquet"):
        list(find_input(f"{tmp_path}/no.parquet").lines())


def test_unreadable_folders(tmp_path):
    with pytest.raises(UserError, match="contains no text files"):
        find_input(str(tmp_path))
    (tmp_path / "part-00000").write_bytes(content(LINES))
    (tmp_path / "manifest.json").write_text("{}")
    assert list(find_input(str(tmp_path)).lines()) == LINES  # a file of another program
    (tmp_path / "manifest.json").write_text('{"lines per part": "2000"}')
    with pytest.raises(UserError, match="unfinished output of nmt"):
        find_input(str(tmp_path))
    (tmp_path / "_SUCCESS").touch()
    assert list(find_input(str(tmp_path)).lines()) == LINES
    with pytest.raises(UserError, match="part-00000: not a Parquet file"):
        list(find_input(f"{tmp_path}/:text").lines())
    (tmp_path / "part-00000").unlink()  # the output of an empty input
    assert list(find_input(str(tmp_path)).lines()) == []


def test_commands_read_them(small_run, store, tmp_path, monkeypatch):
    """A folder of parts that one command has written is the input of the next one."""
    for module in (input_lines, shared_output):
        monkeypatch.setattr(module, "CHUNK", 2)
    (tmp_path / "in.txt").write_bytes(content(LINES))
    write_table(tmp_path / "in.parquet", text=LINES, other=LINES)
    fsspec.filesystem("memory").pipe_file(f"{store}/in.txt", content(LINES))
    model = f"model={small_run}"
    for number, name in enumerate(("in.txt", "in.parquet:text", f"{store}/")):
        source = name if "://" in name else f"{tmp_path}/{name}"
        result = run("translate", model, f"input={source}", f"output={tmp_path}/{number}", *GREEDY)
        assert result.returncode == 0, result.stderr.decode()
        assert (tmp_path / str(number)).read_bytes() == (tmp_path / "0").read_bytes()
    run("translate", model, f"input={store}/", f"output={tmp_path}/parts/", *GREEDY)
    assert (tmp_path / "parts" / "_SUCCESS").exists()
    words = [model, f"source={tmp_path}/in.parquet:text", "device=cpu"]
    for target in ("0", "parts/"):
        result = run(
            "score", *words, f"target={tmp_path}/{target}", f"output={tmp_path}/scores{len(target)}"
        )
        assert result.returncode == 0, result.stderr.decode()
        assert run("align", *words, f"target={tmp_path}/{target}").stdout.count(b"\n") == 4
    assert (tmp_path / "scores1").read_bytes() == (tmp_path / "scores6").read_bytes()


def test_streams_that_never_end(small_run, tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LONGEST_LINE", 1000)
    monkeypatch.setattr(input_lines, "READ_BYTES", 400)
    output = tmp_path / "out"
    result = run("translate", f"model={small_run}", f"output={output}", *GREEDY, stdin="a" * 2000)
    failed(result, "input=stdin: a line has more than 1,000 bytes; the input must be text with one")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UserError, match=r"^/dev/zero: a line has more than 1,000 bytes"):
        find_input("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match="several processes cannot share a pipe"):
        find_input(str(tmp_path / "pipe"))


@pytest.mark.exhaustive
def test_a_pipe_that_fills_the_disk(small_run, tmp_path, monkeypatch):
    """Lines without end: one message, no output, and the copy of the pipe is removed."""
    with small_disk(tmp_path / "disk", "2m") as disk:
        command = [sys.executable, "-m", "nmt.translate", f"model={small_run}", "device=cpu"]
        pipe = f"yes | {' '.join(command)} input=/dev/stdin output={disk}/out"
        result = subprocess.run(
            pipe, shell=True, env={**os.environ, "TMPDIR": str(disk)}, capture_output=True
        )
        assert result.returncode == 74
        failed(result, f"/dev/stdin, copied to {disk}/nmt-", "No space left on device")
        assert list(disk.iterdir()) == []


def test_files_need_no_fsspec():
    code = (
        "import sys; from nmt.inference.text_input import find_input; "
        f"list(find_input({__file__!r}).lines()); print('fsspec' in sys.modules)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == "False"
