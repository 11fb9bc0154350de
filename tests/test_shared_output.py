"""Several processes translate as one: the same bytes after any kill, and one message for work that they cannot share."""

import errno
import itertools
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import failed, run, small_disk
from test_ranks import forks

from nmt.foundation.errors import UserError
from nmt.foundation.ranks import ALONE
from nmt.inference import file_alignment, input_lines, output_sinks, scoring, shared_output
from nmt.storage.lock import Lock, LockHeld

GREEDY = ["search=greedy", "device=cpu"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Chunks of four lines; each is a part."""
    for module in (file_alignment, input_lines, scoring, shared_output):
        monkeypatch.setattr(module, "CHUNK", 4)


@pytest.fixture
def text(tmp_path):
    draw = random.Random(1)
    lines = [" ".join(draw.choices("abcdefgh", k=draw.randint(1, 7))) for _ in range(43)]
    file = tmp_path / "in.txt"
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def wait_for(file):
    """Waits until another rank has written a file."""
    for _ in range(1000):
        if file.exists():
            return
        time.sleep(0.02)
    raise AssertionError(f"{file} is not written")


def work(small_run, file, output, *more):
    return [f"model={small_run}", f"input={file}", f"output={output}", *GREEDY, *more]


@pytest.mark.parametrize("form", ["text", pytest.param("moses", marks=pytest.mark.exhaustive)])
def test_two_ranks_write_what_one_process_writes(small_run, text, tmp_path, form):
    assert (
        run("translate", *work(small_run, text, tmp_path / "one", f"format={form}")).returncode == 0
    )
    words = work(small_run, text, tmp_path / "two", f"format={form}")
    statuses, printed = forks("nmt.translate", *words)
    assert statuses == [0, 0], printed
    assert (tmp_path / "two").read_bytes() == (tmp_path / "one").read_bytes()
    assert {file.name for file in tmp_path.iterdir()} == {"in.txt", "one", "two"}


def test_a_folder_keeps_the_parts_and_what_is_there_is_not_done_again(small_run, text, tmp_path):
    run("translate", *work(small_run, text, tmp_path / "one"))
    words = work(small_run, text, f"{tmp_path}/parts/")
    assert run("translate", *words).returncode == 0
    parts = sorted((tmp_path / "parts").glob("part-*"))
    assert len(parts) == 11
    assert b"".join(part.read_bytes() for part in parts) == (tmp_path / "one").read_bytes()
    before = parts[0].stat().st_mtime_ns
    parts[3].unlink()
    assert run("translate", *words).returncode == 0
    assert b"".join(part.read_bytes() for part in parts) == (tmp_path / "one").read_bytes()
    assert parts[0].stat().st_mtime_ns == before
    failed(
        run("translate", *words, "format=jsonl"),
        "parts: contains output of a command with other settings or input (different settings)",
    )


def test_two_ranks_score_as_one_process(small_run, text, tmp_path):
    words = [f"model={small_run}", f"source={text}", f"target={text}", "device=cpu"]
    alone = run("score", *words, f"output={tmp_path}/one")
    statuses, printed = forks("nmt.score", *words, f"output={tmp_path}/two")
    assert statuses == [0, 0], printed
    assert (tmp_path / "two").read_bytes() == (tmp_path / "one").read_bytes()
    total = alone.stderr.decode().partition("log-probability")[2].strip()
    assert total
    assert printed.count(total) == 1, printed


def test_two_ranks_align_as_one_process(small_run, text, tmp_path):
    gold = tmp_path / "gold"
    gold.write_text("0-0 9-9\n" * 43)
    words = [f"model={small_run}", f"source={text}", f"target={text}", "device=cpu", f"gold={gold}"]
    alone = run("align", *words, f"output={tmp_path}/one").stderr.decode()
    statuses, printed = forks("nmt.align", *words, f"output={tmp_path}/two")
    assert statuses == [0, 0], printed
    assert (tmp_path / "two").read_bytes() == (tmp_path / "one").read_bytes()
    for message in ("precision ", f"{gold}: 43 alignment links refer to words after"):
        result = alone.partition(message)[2].partition("\n")[0]
        assert result
        assert printed.count(f"{message}{result}") == 1, printed


def test_one_process_continues_what_several_began(small_run, text, tmp_path):
    run("translate", *work(small_run, text, tmp_path / "one"))
    assert run("translate", *work(small_run, text, f"{tmp_path}/two.parts/")).returncode == 0
    (tmp_path / "two.parts" / "part-00002").write_text("changed\n" * 4)
    assert run("translate", *work(small_run, text, tmp_path / "two")).returncode == 0
    expected = (tmp_path / "one").read_text().splitlines()
    assert (tmp_path / "two").read_text().splitlines() == expected[:8] + ["changed"] * 4 + expected[
        12:
    ]
    assert not (tmp_path / "two.parts").exists()


def test_jobs_without_a_connection(small_run, text, tmp_path):
    """Three jobs of an array write one folder in any order; only the last one finds it complete."""
    run("translate", *work(small_run, text, tmp_path / "one"))
    words = work(small_run, text, f"{tmp_path}/parts/")
    for job in ("2/3", "3/3", "1/3"):
        assert not (tmp_path / "parts" / "_SUCCESS").exists()
        result = run("translate", *words, f"job={job}")
        assert result.returncode == 0, result.stderr.decode()
        assert b"43 lines translated" not in result.stderr  # only those of the job
        assert b" lines translated" in result.stderr
    assert b" lines translated" not in run("translate", *words, "job=1/3").stderr
    assert (tmp_path / "parts" / "_SUCCESS").exists()
    parts = sorted((tmp_path / "parts").glob("part-*"))
    assert b"".join(part.read_bytes() for part in parts) == (tmp_path / "one").read_bytes()
    for job in ("0/3", "4/3", "a/b"):
        failed(run("translate", *words, f"job={job}"), "must be K/N with 1 <= K <= N")
    failed(run("translate", *work(small_run, text, "out"), "job=1/3"), "set output=FOLDER/")


def test_two_jobs_that_finish_at_the_same_moment(tmp_path, monkeypatch):
    """The second job finishes while the first one writes the marker of a complete folder."""
    jobs = [
        shared_output.PartsSink(tmp_path, 2, 1, ALONE, shared_output.JobShare(number, 2))
        for number in range(2)
    ]
    for part in jobs[0].parts:
        part.touch()
    killed = tmp_path / ".part-00000.1-1.writing"
    killed.touch()
    replace = os.replace
    others = jobs[1:]

    def meets(source, target):
        while others:
            others.pop().finish(keeps_parts=True)
        replace(source, target)

    monkeypatch.setattr(os, "replace", meets)
    jobs[0].finish(keeps_parts=True)
    assert not others
    assert (tmp_path / "_SUCCESS").exists()
    assert not killed.exists()


@pytest.mark.parametrize("change", [{"method": "hmm"}, {"attention_map": "a.html"}])
def test_what_an_alignment_cannot_divide(small_run, text, tmp_path, change):
    settings = {"source": text, "target": text, "output": f"{tmp_path}/parts/"} | change
    settings |= {} if "method" in change else {"model": small_run}
    words = [f"{key}={value}" for key, value in settings.items()]
    failed(run("align", *words), "not supported with several processes or an output folder")
    assert not (tmp_path / "parts").exists()


def test_an_error_before_the_first_part_leaves_nothing(small_run, text, tmp_path, monkeypatch):
    def fails(*_):
        raise UserError("nothing works")

    monkeypatch.setattr("nmt.inference.translator.Translator.translations", fails)
    statuses, printed = forks("nmt.translate", *work(small_run, text, tmp_path / "two"))
    assert statuses == [1, 1]
    assert printed.count("nothing works") == 1, printed
    assert {file.name for file in tmp_path.iterdir()} == {"in.txt"}
    # Hidden files of the user stay.
    (tmp_path / "parts" / ".git").mkdir(parents=True)
    (tmp_path / "parts" / ".env").touch()
    statuses, printed = forks("nmt.translate", *work(small_run, text, f"{tmp_path}/parts/"))
    assert printed.count("nothing works") == 1, printed
    assert {file.name for file in (tmp_path / "parts").iterdir()} == {".git", ".env"}


def test_a_part_of_unknown_origin(small_run, text, tmp_path):
    (tmp_path / "two.parts").mkdir()
    (tmp_path / "two.parts" / "part-00000").write_text("nonsense\n")
    words = work(small_run, text, tmp_path / "two")
    statuses, printed = forks("nmt.translate", *words)
    assert statuses == [1, 1]
    expected = (
        "contains part-00000, which does not belong to the output of this command. Delete this"
    )
    assert printed.count(expected) == 1, printed
    assert printed.count("Run the same command") == 0


@pytest.mark.parametrize("key", ["input", "model"])
def test_ranks_with_other_work(small_run, text, tmp_path, key):
    other = tmp_path / "other.txt"
    other.write_text(text.read_text().replace("a", "b"))
    files = {"model": small_run / "best.safetensors", "input": text}
    others = files | {key: {"model": small_run / "last.safetensors", "input": other}[key]}
    first, second = (
        work(used["model"], used["input"], tmp_path / "two") for used in (files, others)
    )
    statuses, printed = forks("nmt.translate", *first, second=second)
    assert statuses == [1, 1]
    assert printed.count(f"rank 1 differs from rank 0 ({key}: ") == 1, printed
    assert not (tmp_path / "two.parts").exists()


def test_parts_of_another_run(small_run, text, tmp_path):
    """Parts of an unfinished output of another input stay as they are."""
    folder = tmp_path / "two.parts"
    folder.mkdir()
    manifest = json.dumps({"input": "another", "lines per part": "4"})
    (folder / "manifest.json").write_text(manifest)
    (folder / "part-00000").write_text("b a\n")
    statuses, printed = forks("nmt.translate", *work(small_run, text, tmp_path / "two"))
    assert statuses == [1, 1]
    assert (
        printed.count("two.parts: contains output of a command with other settings or input (") == 1
    ), printed
    assert (folder / "part-00000").read_text() == "b a\n"
    assert (folder / "manifest.json").read_text() == manifest
    assert {file.name for file in tmp_path.iterdir()} == {"in.txt", "two.parts"}


def test_exit_statuses(small_run, text, tmp_path, monkeypatch):
    """Schedulers distinguish the errors by the statuses in conf/README.md."""
    words = work(small_run, text, f"{tmp_path}/parts/")
    assert run("translate", *words, "serach=greedy").returncode == 2
    assert run("translate", *words, f"input={tmp_path}/none").returncode == 2
    (tmp_path / "parts").mkdir()
    with Lock(tmp_path / "parts" / ".lock", "another command"):
        assert run("translate", *words).returncode == 75

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert run("translate", *words).returncode == 74
    assert run("translate", *words).returncode == 0


@pytest.mark.exhaustive
def test_a_full_file_system(small_run, text, tmp_path):
    """Two ranks fill a small file system: one message, complete parts only, and more space ends the work."""
    run("translate", *work(small_run, text, tmp_path / "one"))
    expected = (tmp_path / "one").read_text().splitlines(keepends=True)
    with small_disk(tmp_path / "disk", "24k") as disk:
        words = work(small_run, text, disk / "two")
        statuses, printed = forks("nmt.translate", *words)
        assert statuses in ([74, 1], [1, 1]), printed
        assert printed.count("No space left on device") == 1, printed
        parts = sorted((disk / "two.parts").glob("part-*"))
        assert 0 < len(parts) < 11
        for part in parts:
            number = int(part.name.removeprefix("part-"))
            assert part.read_text() == "".join(expected[4 * number : 4 * number + 4])
        assert not (disk / "two").exists()
        subprocess.run(["mount", "-o", "remount,size=1m", str(disk)], check=True)
        statuses, printed = forks("nmt.translate", *words)
        assert statuses == [0, 0], printed
        assert (disk / "two").read_text() == "".join(expected)
        assert [file.name for file in disk.iterdir()] == ["two"]


def test_a_full_disk_on_one_rank(small_run, text, tmp_path, monkeypatch):
    original = shared_output.write_atomically

    def full(path, data):
        if os.environ.get("RANK") == "1":
            (tmp_path / "full").touch()
            raise UserError(f"{path}: cannot be written (No space left on device)")
        if path.name.startswith("part-"):  # otherwise rank 0 might write all parts
            wait_for(tmp_path / "full")
        original(path, data)

    monkeypatch.setattr(shared_output, "write_atomically", full)
    words = work(small_run, text, tmp_path / "two")
    statuses, printed = forks("nmt.translate", *words)
    assert statuses == [1, 1]
    assert printed.count("No space left on device") == 1, printed
    assert "rank 1: " in printed
    monkeypatch.setattr(shared_output, "write_atomically", original)
    run("translate", *work(small_run, text, tmp_path / "one"))
    statuses, printed = forks("nmt.translate", *words)
    assert statuses == [0, 0], printed
    assert (tmp_path / "two").read_bytes() == (tmp_path / "one").read_bytes()


@pytest.mark.exhaustive
@pytest.mark.parametrize("change", [{"input": None}, {"output": None}, {"attention_map": "a.html"}])
def test_what_ranks_cannot_share(small_run, text, tmp_path, change):
    settings = {"model": small_run, "input": text, "output": tmp_path / "two"} | change
    words = [f"{key}={value}" for key, value in settings.items() if value is not None]
    statuses, printed = forks("nmt.translate", *words, *GREEDY)
    assert statuses == [1, 1]
    assert printed.count("several processes") == printed.count("ERROR") == 1, printed


def test_blocks_of_a_long_input(tmp_path):
    """Every line belongs to one part, in order; blocks are taken in any order."""
    for lines, size in ((0, 1), (1, 1), (400, 1), (401, 2), (10_000, 10)):
        folder = tmp_path / str(lines)
        folder.mkdir()
        chunks = [range(start, min(start + 4, lines)) for start in range(0, lines, 4)]
        sink = shared_output.PartsSink(folder, len(chunks), size, ALONE, shared_output.JobShare())
        for chunk in sink.own(chunks):
            sink.write([str(number) for number in chunk])
        written = "".join(part.read_text() for part in sink.parts)
        assert written == "".join(f"{number}\n" for number in range(lines))


@pytest.mark.exhaustive
@pytest.mark.parametrize("quarter", [0, 3])
def test_a_kill_in_the_first_and_in_the_last_quarter(
    small_run, text, tmp_path, monkeypatch, quarter
):
    run("translate", *work(small_run, text, tmp_path / "one"))
    original = shared_output.write_atomically
    count = itertools.count()

    def killed(path, data):
        if os.environ.get("RANK") == "0" and path.name.startswith("part-"):
            wait_for(tmp_path / "killed")  # otherwise, a fast rank 0 writes all parts
        original(path, data)
        if os.environ.get("RANK") == "1" and next(count) >= quarter:
            (tmp_path / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    words = work(small_run, text, tmp_path / "two")
    with monkeypatch.context() as patch:
        patch.setattr(shared_output, "write_atomically", killed)
        statuses, printed = forks("nmt.translate", *words)
    assert statuses == [1, -signal.SIGKILL], printed
    assert printed.count("rank 1 of 2 has ended") == 1
    assert "Run the same command again to continue" in printed
    manifest = json.loads((tmp_path / "two.parts" / "manifest.json").read_text())
    assert manifest["lines per part"] == "4"
    statuses, printed = forks("nmt.translate", *words)
    assert statuses == [0, 0], printed
    assert (tmp_path / "two").read_bytes() == (tmp_path / "one").read_bytes()


@pytest.mark.exhaustive
@pytest.mark.parametrize("moment", ["parts", "join", "removal"])
def test_a_kill_of_the_first_rank(small_run, text, tmp_path, monkeypatch, moment):
    """The first rank is killed while it writes parts, joins them, or removes them after the join."""
    run("translate", *work(small_run, text, tmp_path / "one"))
    count = itertools.count()

    def killed(original):
        def call(*arguments):
            if not any(Path(str(argument)).name.startswith("part-") for argument in arguments):
                return original(*arguments)
            if os.environ.get("RANK") == "1":
                wait_for(tmp_path / "killed")
            if os.environ.get("RANK") == "0" and next(count) == 3:
                (tmp_path / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments)

        return call

    words = work(small_run, text, tmp_path / "two", "resume=true")
    target, name = {
        "parts": (shared_output, "write_atomically"),
        "join": (output_sinks.StreamSink, "copy"),
        "removal": (os, "unlink"),
    }[moment]
    with monkeypatch.context() as patch:
        patch.setattr(target, name, killed(getattr(target, name)))
        statuses, printed = forks("nmt.translate", *words)
    assert statuses[0] == -signal.SIGKILL, printed
    (tmp_path / "killed").unlink()
    assert (tmp_path / "two.parts").exists()
    statuses, printed = forks("nmt.translate", *words)
    assert statuses == [0, 0], printed
    assert (tmp_path / "two").read_bytes() == (tmp_path / "one").read_bytes()
    assert {file.name for file in tmp_path.iterdir()} == {"in.txt", "one", "two"}


def test_a_folder_of_parts_has_one_writer(small_run, text, tmp_path):
    (tmp_path / "parts").mkdir()
    with Lock(tmp_path / "parts" / ".lock", "another command"):
        failed(run("translate", *work(small_run, text, f"{tmp_path}/parts/")), "parts/")
    assert not list((tmp_path / "parts").glob("part-*"))


def test_a_refused_command_leaves_the_folder_of_the_other(tmp_path):
    folder = f"{tmp_path}/parts/"
    with shared_output.sink_of(ALONE, folder, 3, {"model": "m"}) as sink:
        with pytest.raises(LockHeld), shared_output.sink_of(ALONE, folder, 3, {"model": "m"}):
            pass
        assert (tmp_path / "parts" / "manifest.json").exists()
        for chunk in sink.own([["a"]]):
            sink.write(chunk)
    assert (tmp_path / "parts" / "_SUCCESS").exists()


@pytest.mark.parametrize("policy", ["delete", "resume"])
def test_a_full_disk_removes_the_file_or_leaves_it_to_be_continued(policy, tmp_path, caplog):
    """The rest of the failed write fails once more when the file is closed."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20480, limits[1]))
        with (
            pytest.raises(UserError, match="cannot be written"),
            output_sinks.open_sink(f"{tmp_path}/out", on_failure=policy) as sink,
        ):
            for _ in range(9):
                sink.write(["x" * 100] * 60)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)
    assert bool(list(tmp_path.glob("out*"))) == (policy == "resume")
    assert ("continue with resume=true" in caplog.text) == (policy == "resume")


def test_a_link_as_output_stays_a_link(tmp_path):
    """As /dev/stdout, if the shell redirects the output to a file."""
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "file").touch()
    with output_sinks.open_sink(str(tmp_path / "link")) as sink:
        sink.write(["a"])
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "a\n"


def test_an_unfinished_output_behind_a_link_is_not_complete(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "file").write_text("1\n2\n")
    assert output_sinks.is_complete(str(tmp_path / "link"), 2, False)
    (tmp_path / "file.partial").write_text("1\n")
    assert not output_sinks.is_complete(str(tmp_path / "link"), 2, False)


@pytest.mark.parametrize("name", output_sinks.STDOUT)
def test_the_file_that_stdout_is_redirected_to_is_not_replaced(tmp_path, name):
    (tmp_path / "log").write_text("header\n")
    program = (
        "from nmt.inference.output_sinks import open_sink\n"
        f"with open_sink({name!r}) as sink: sink.write(['x'])\n"
    )
    with open(tmp_path / "log", "a") as log:
        subprocess.run([sys.executable, "-c", program], stdout=log, check=True)
        log.write("trailer\n")
    assert (tmp_path / "log").read_text() == "header\nx\ntrailer\n"


def test_an_output_without_record_is_written_again_after_a_kill(tmp_path):
    """nmt.evaluate records no settings of its output, and always begins again."""
    sink = output_sinks.open_sink(str(tmp_path / "out"))
    sink.write(["a"])
    sink._lock.release()  # as after a kill
    sink._file.close()
    with output_sinks.open_sink(str(tmp_path / "out")) as again:
        again.write(["b"])
    assert (tmp_path / "out").read_text() == "b\n"


def test_joined_parts_are_on_the_disk_before_the_file_is_renamed(tmp_path, monkeypatch):
    (tmp_path / "part").write_bytes(b"x" * 1500)
    sizes = []
    monkeypatch.setattr(output_sinks.os, "fsync", lambda fd: sizes.append(os.fstat(fd).st_size))
    with output_sinks.open_sink(str(tmp_path / "out")) as sink:
        sink.copy(tmp_path / "part")
    assert 1500 in sizes
