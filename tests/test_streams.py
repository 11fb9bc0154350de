"""Lines in, lines out: any bytes, any stop."""

import json
import logging

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from nmt import translate
from nmt.configuration.configure import configure
from nmt.data.lines import stream_lines
from nmt.data.text_encoding import BOM, HEAD, check_head
from nmt.foundation.errors import UserError
from nmt.inference import input_lines, output_sinks

pytestmark = pytest.mark.usefixtures("unchecked")  # searches: test_search.py executes signatures

FORMATS = [("text", 1), ("pharaoh", 1), ("jsonl", 3), ("moses", 3)]


@pytest.fixture(autouse=True)
def _quiet():
    yield
    logging.getLogger("nmt").handlers.clear()


def translated(run, source, output, *overrides):
    translate.run(
        configure("translate", [f"model={run}", f"input={source}", f"output={output}", *overrides])
    )
    return output.read_bytes()


def is_refused(text):
    """Whether a file with this text is refused by name, because of its first bytes."""
    try:
        check_head(text[:HEAD], "in")
    except UserError:
        return True
    return False


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    lines=st.lists(
        st.one_of(
            st.binary(max_size=40).filter(lambda b: b"\n" not in b),
            st.text(max_size=40)
            .filter(lambda t: "\n" not in t)
            .map(lambda t: t.encode("utf-8", "surrogatepass")),
            st.sampled_from(
                [
                    b"",
                    b"   ",
                    b"a\r",
                    b"\r",
                    b"\x00",
                    b"\xff",
                    "😀 שלום".encode(),
                    b"a b " * 400,
                    b"\xef\xbb\xbf",
                ]
            ),
        ),
        max_size=6,
    )
)
def test_whatever_comes_in_as_many_lines_go_out(small_run, tmp_path, lines):
    """errors=replace: one line for each; errors=strict: the same, or an error before anything is written."""
    text = b"".join(line + b"\n" for line in lines)
    # Random bytes may be valid UTF-16, and Hypothesis also tries texts of the code; UTF-16 and a
    # pointer of Git LFS are refused by name (test_formats.py).
    assume(not any(map(is_refused, (text, text.removeprefix(BOM)))))
    source, output = tmp_path / "in", tmp_path / "out"
    output.unlink(missing_ok=True)
    source.write_bytes(text)
    overrides = (
        "search=greedy",
        "translation.max_length_offset=2",
        "translation.max_length_factor=0.1",
    )
    assert translated(small_run, source, output, "errors=replace", *overrides).count(b"\n") == len(
        lines
    )
    output.unlink()
    try:
        for line in lines:
            line.decode()
    except UnicodeDecodeError:
        with pytest.raises(UserError, match="invalid UTF-8"):
            translated(small_run, source, output, *overrides)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]
    else:
        assert translated(small_run, source, output, *overrides).count(b"\n") == len(lines)


def until_byte(stop):
    """A `write` that is interrupted when the file has `stop` bytes."""

    def write(self, lines, input_lines=None):
        data = "".join(line + "\n" for line in lines).encode()
        left = stop - self._file.tell()
        self._file.write(data[:left])
        self._file.flush()
        if left < len(data):
            raise KeyboardInterrupt
        self.finished_lines += len(lines) if input_lines is None else input_lines

    return write


@pytest.mark.parametrize(
    ("form", "n_best"),
    [
        ("text", 1),
        ("jsonl", 3),
        *(
            pytest.param(*one, marks=pytest.mark.exhaustive)
            for one in FORMATS
            if one[0] in ("pharaoh", "moses")
        ),
    ],
)
@pytest.mark.parametrize("stops", [2, pytest.param(12, marks=pytest.mark.exhaustive)])
def test_a_resumed_translation_is_the_uninterrupted_one(
    small_run, tmp_path, monkeypatch, form, n_best, stops
):
    """Stopped at any byte: nothing is repeated, nothing is lost."""
    monkeypatch.setattr(input_lines, "CHUNK", 3)
    source, output, partial = tmp_path / "in", tmp_path / "out", tmp_path / "out.partial"
    source.write_text("".join(f"a b {'abcdefgh'[i]}\n" if i != 3 else "\n" for i in range(8)))
    overrides = (f"format={form}", f"search.n_best={n_best}")
    whole = translated(small_run, source, output, *overrides)
    for stop in range(0, len(whole), max(1, len(whole) // stops)):
        output.unlink(missing_ok=True)
        with monkeypatch.context() as patch:
            patch.setattr(output_sinks.StreamSink, "write", until_byte(stop))
            with pytest.raises(KeyboardInterrupt):
                translated(small_run, source, output, *overrides)
        if partial.exists():
            assert partial.read_bytes() == whole[:stop]
        assert translated(small_run, source, output, "resume=true", *overrides) == whole
        assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]
    before = output.stat().st_mtime_ns
    translated(small_run, source, output, "resume=true", *overrides)  # complete: nothing to do
    assert output.stat().st_mtime_ns == before


def test_an_interrupted_translation_keeps_what_is_done(small_run, tmp_path, monkeypatch):
    monkeypatch.setattr(input_lines, "CHUNK", 2)
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_text("a\nb\nc\nd\ne\n")
    calls = []
    original = output_sinks.FileSink.write

    def write(self, lines, input_lines):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(lines)
        original(self, lines, input_lines)

    with monkeypatch.context() as patch:
        patch.setattr(output_sinks.FileSink, "write", write)
        with pytest.raises(KeyboardInterrupt):
            translated(small_run, source, output)
    partial = tmp_path / "out.partial"
    assert partial.read_text().count("\n") == 4
    assert not output.exists()
    with pytest.raises(
        UserError, match="4 finished lines of an interrupted command. Continue with resume=true"
    ):
        translated(small_run, source, output)
    assert partial.read_text().count("\n") == 4
    assert translated(small_run, source, output, "resume=true").count(b"\n") == 5


def test_formats(small_run, tmp_path):
    source = tmp_path / "in"
    source.write_text("a b c\n\nd e\n")
    moses = (
        translated(small_run, source, tmp_path / "m", "format=moses", "search.n_best=2")
        .decode()
        .splitlines()
    )
    assert [line.split(" ||| ")[0] for line in moses] == ["0", "0", "1", "2", "2"]
    assert all(len(line.split("|||")) == 4 for line in moses)
    rows = [
        json.loads(line)
        for line in translated(small_run, source, tmp_path / "j", "format=jsonl").splitlines()
    ]
    assert [row["source"] for row in rows] == ["a b c", "", "d e"]
    assert rows[1]["hypotheses"] == []
    for row in (rows[0], rows[2]):
        [result] = row["hypotheses"]
        assert sum(result["token_log_probs"]) == pytest.approx(result["log_prob"], abs=1e-4)
        assert len(result["tokens"]) == len(result["token_log_probs"])
        alignment, words = result["alignment"], result["text"].split()
        assert len(alignment["weights"]) == len(alignment["to_end"]) == len(words)
        for weights, end in zip(alignment["weights"], alignment["to_end"], strict=True):
            assert sum(weights) + end == pytest.approx(1, abs=1e-3)
    pharaoh = translated(small_run, source, tmp_path / "p", "format=pharaoh").decode().split("\n")
    text = translated(small_run, source, tmp_path / "t").decode().split("\n")
    assert [len(line.split()) for line in pharaoh] == [len(line.split()) for line in text]
    assert pharaoh[1] == ""


def test_constraints_from_files(small_run, tmp_path):
    source, prefix, constraints = tmp_path / "in", tmp_path / "prefix", tmp_path / "c.jsonl"
    source.write_text("a b c\n\nd e\n")
    prefix.write_text("j\n\n\n")
    result = (
        translated(small_run, source, tmp_path / "out", f"prefix={prefix}").decode().split("\n")
    )
    assert result[0].startswith("j")
    constraints.write_text('{"required": ["h"], "forbidden": ["a"]}\n\n{"prefix": "f f"}\n')
    first, _, third, _ = (
        translated(small_run, source, tmp_path / "o2", f"constraints={constraints}")
        .decode()
        .split("\n")
    )
    assert "h" in first.split()
    assert "a" not in first.split()
    assert third.startswith("f f")
    constraints.write_text('{"required": ["h"]}\n\n{"forbidden": ["e"]}\n')
    both = f"prefix={prefix}", f"constraints={constraints}"
    first, _, third, _ = translated(small_run, source, tmp_path / "o4", *both).decode().split("\n")
    assert first.startswith("j")
    assert "h" in first.split()
    assert "e" not in third.split()
    constraints.write_text('{"prefix": "h"}\n\n\n')
    with pytest.raises(UserError, match="also has a prefix"):
        translated(small_run, source, tmp_path / "o3", *both)
    for bad, message in (
        ("{}\n", "has 1 lines"), ("[]\n\n\n", "line 1: a line must be an object"), ("{}\nx\n\n", "line 2: not JSON"),
        ('{"required": [1]}\n\n\n', "line 1: a line must be an object"), ('{"prefix": "\\ud800"}\n\n\n', "line 1: .*surrogate"),
        ('{"must": []}\n\n\n', "line 1"), ('{"required": "h"}\n\n\n', "line 1"),
        ('\n\n{"required": ["h"], "forbidden": ["h"]}\n', r'c\.jsonl, line 3: .* "h" is required'),
        ('\n{"required": ["ж"]}\n\n', r"c\.jsonl, line 2: .* not in the vocabulary"),
        ('{"prefix": "h a", "forbidden": ["h"]}\n\n\n', "line 1: .* no translation that begins with the prefix avoids"),
    ):  # fmt: skip
        constraints.write_text(bad)
        with pytest.raises(UserError, match=message):
            translated(small_run, source, tmp_path / "o3", f"constraints={constraints}")
    constraints.write_text('{"required": ["h"]}\n\n\n')
    with pytest.raises(UserError, match="search=beam"):
        translated(
            small_run, source, tmp_path / "o3", f"constraints={constraints}", "search=greedy"
        )
    assert not (tmp_path / "o3").exists()
    with pytest.raises(UserError, match="is also read by input"):
        translated(small_run, source, source)
    (tmp_path / "texts").mkdir()
    with pytest.raises(UserError, match="is in the folder that input reads; choose another folder"):
        translated(small_run, tmp_path / "texts", tmp_path / "texts/o4")
    (tmp_path / "texts/a").write_text("a b\n")
    texts = f"{tmp_path}/texts"
    parts = [f"model={small_run}", f"input={texts}", f"output={texts}/parts/"]
    translate.run(configure("translate", parts))
    assert (tmp_path / "texts/parts/part-00000").exists()
    weights = small_run / "best.safetensors"
    with pytest.raises(UserError, match="is also read by model"):
        translated(weights, source, weights)
    with pytest.raises(UserError, match=r"model=\[\]"):
        translated([], source, tmp_path / "o3")


def test_a_translation_is_resumed_with_another_number_of_threads(small_run, tmp_path, monkeypatch):
    monkeypatch.setattr(input_lines, "CHUNK", 1)
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_text("a b\nc d\ne f\n")
    whole = translated(small_run, source, output, "threads=1")
    output.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(output_sinks.StreamSink, "write", until_byte(len(whole) - 1))
        with pytest.raises(KeyboardInterrupt):
            translated(small_run, source, output, "threads=1")
    assert (tmp_path / "out.partial").exists()
    assert translated(small_run, source, output, "threads=2", "resume=true") == whole


@pytest.mark.parametrize("errors", ["strict", "replace"])
def test_a_byte_order_mark_is_removed(tmp_path, errors):
    (tmp_path / "text").write_bytes(b"\xef\xbb\xbfHello\r\nworld")
    assert list(stream_lines(tmp_path / "text", errors)) == ["Hello", "world"]
