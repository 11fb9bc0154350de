"""Anything at all, in every place that reads what people give. Each property holds for any input: an answer that is right,
or one UserError; nothing else. `scripts/fuzz.py` repeats these for any length of time."""

import csv
import io
import itertools
import json
import math
import os
import re

import numpy as np
import pytest
from builders import choices
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import nmt
from nmt import score
from nmt.configuration.configure import COMMANDS, configure
from nmt.configuration.settings import Settings
from nmt.data.labels import LabelSet
from nmt.data.links import parse_links, write_links
from nmt.data.sources.table import TableFiles
from nmt.data.word_vectors import read_vectors
from nmt.foundation.errors import UserError
from nmt.inference.constraint import Constraint
from nmt.inference.input_lines import InputLines
from nmt.tokenizer import SentencePiece
from nmt.tokenizer.words import words

settings.register_profile(
    "nmt",
    max_examples=int(os.environ.get("NMT_FUZZ", "25")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
anything = settings.get_profile("nmt")

ODD = ["", " ", "\r", "\t", '"', "'", "\x00", "\ufeff", "\u2028", "\x85", "▁", "<s>", "</s>", "⁇", "null", "NaN", "1e999", "9" * 30,
       "-1", "0-0", "||| ", "${seed}", "a=b", "[", "{", "😀", "שלום", "我爱", "e\u0301", "\ud800", "*" * 400]  # fmt: skip
text = st.one_of(
    st.text(max_size=30),
    st.sampled_from(ODD),
    st.lists(st.sampled_from(ODD), max_size=4).map("".join),
)
encodable = text.map(lambda t: t.encode("utf-8", "replace").decode())
line = encodable.map(lambda t: t.replace("\n", " "))
value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)


def written(path, content: str | bytes):
    path.write_bytes(
        content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    )
    return str(path)


def allowed(action, *arguments):
    """The result of the action; None if it raises a UserError."""
    try:
        return action(*arguments)
    except UserError as error:
        assert str(error).strip()  # noqa: PT017
        return None


GROUPS = ["decoder", "attention", "window", "normalizer", "search", "objective", "tokenizer", "data", "metric",
          "experiment", "optimizer", "schedule", "network", "pooling", "batching", "encoder"]  # fmt: skip
KEYS = ["seed", "device", "cell", "run_dir", "model", "model.dropout", "search.width", "trainer.max_epochs", "sizes.encoder",
        "decoder.num_layers", "tokenizer.vocab_size", "attention.size", "input", "output", "format", "averaging", "shares",
        "vectors", "explain", "gold", "hydra.run.dir", "x", "a.b.c", "grids", "data.source", "translation.max_source"]  # fmt: skip
override = st.one_of(
    st.sampled_from(GROUPS).flatmap(lambda group: st.sampled_from(choices(group) or ["x"]).map(lambda c: f"{group}={c}")),
    st.tuples(st.sampled_from(["", "", "", "+", "++", "~"]), st.sampled_from(KEYS + GROUPS), text).map("{0[0]}{0[1]}={0[2]}".format),
    st.tuples(st.sampled_from(KEYS), st.integers() | st.floats() | st.booleans()).map("{0[0]}={0[1]}".format),
    text,
)  # fmt: skip


@anything
@given(command=st.sampled_from(sorted(COMMANDS)), overrides=st.lists(override, max_size=4))
@example(command="evaluate", overrides=["model.0="])  # a key below one that is missing
@example(command="align", overrides=["*" * 300])  # too long for the name of a file
def test_any_command_line(command, overrides):
    result = allowed(configure, command, overrides)
    assert result is None or isinstance(result, Settings)


@anything
@given(form=st.sampled_from(["csv", "tsv", "jsonl"]), content=st.binary(max_size=60) | text)
@example(form="jsonl", content='{"en": "\\ud800", "de": "b"}')
def test_any_table(tmp_path, form, content):
    file = written(tmp_path / "table", content)
    result = allowed(
        TableFiles(format=form, train=file, validation=file, source="en", target="de").load
    )
    if result is not None:
        for side in (result.train.source, result.train.target):
            assert all("\n" not in cell and cell.encode() is not None for cell in side)


@anything
@given(
    form=st.sampled_from(["csv", "tsv", "jsonl"]),
    rows=st.lists(st.tuples(encodable, encodable), min_size=1, max_size=4),
)
def test_any_cells_come_back(tmp_path, form, rows):
    """Written by Python's own writers: read as they were, one line each, or refused; never moved to another row."""
    out = io.StringIO(newline="")
    if form == "jsonl":
        out.write("".join(json.dumps({"en": s, "de": t}) + "\n" for s, t in rows))
    elif form == "csv":
        writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writerows([("en", "de"), *rows])
    else:
        rows = [tuple(cell.translate({9: " ", 10: " ", 13: " "}) for cell in row) for row in rows]
        out.write("en\tde\n" + "".join(f"{s}\t{t}\n" for s, t in rows))
    file = written(tmp_path / "table", out.getvalue())
    result = allowed(
        TableFiles(format=form, train=file, validation=file, source="en", target="de").load
    )
    if result is not None:
        one_line = [tuple(re.sub("\r\n|\r|\n", " ", cell) for cell in row) for row in rows]
        assert list(zip(result.train.source, result.train.target, strict=True)) == one_line


@anything
@given(content=st.binary(max_size=60) | text | st.lists(st.tuples(text, st.floats(), st.floats())).map(
    lambda rows: "".join(f"{w} {a} {b}\n" for w, a, b in rows)))  # fmt: skip
def test_any_vectors(tmp_path, content):
    result = allowed(read_vectors, written(tmp_path / "vectors", content))
    if result is not None:
        assert len({len(vector) for vector in result.values()}) <= 1
        assert all(word and np.isfinite(vector).all() for word, vector in result.items())


@anything
@given(content=st.binary(max_size=60) | text | st.lists(value.map(json.dumps)).map("\n".join) | st.fixed_dictionaries(
    {}, optional={"prefix": value, "required": st.lists(text), "forbidden": value}).map(json.dumps))  # fmt: skip
def test_any_constraints(tmp_path, content):
    source, wishes = tmp_path / "in", written(tmp_path / "wishes", content)
    with open(wishes, "rb") as file:
        source.write_text("a\n" * sum(1 for _ in file))

    def read():
        return [
            c
            for chunk in InputLines(str(source), "strict", constraints=wishes).chunks()
            for c in chunk.constraints
        ]

    for constraint in allowed(read) or []:
        for part in (constraint.prefix, *constraint.required, *constraint.forbidden):
            assert part.encode() is not None


@pytest.fixture(scope="module")
def translator(small_run):
    return nmt.load(small_run, device="cpu", max_length_factor=0.1, max_length_offset=5)


@anything
@given(lines=st.lists(line, max_size=5), more=st.lists(st.integers(0, 4), min_size=1, max_size=5))
def test_any_constraints_are_obeyed(translator, lines, more):
    """A word that each translation must have, and one that none may have, whatever the line."""
    lines = (lines + ["a"] * len(more))[: len(more)]
    wishes = [Constraint(required=("abcde"[i],), forbidden=("fghij"[i],)) for i in more]
    for line_, wish, result in zip(
        lines, wishes, translator.translations(lines, wishes), strict=True
    ):
        for answer in result.texts if line_.strip() else []:
            assert wish.required[0] in answer.split()
            assert wish.forbidden[0] not in answer.split()


@anything
@given(entries=st.lists(st.one_of(
    line, st.tuples(st.integers() | st.sampled_from(["٣", "²", "1_0", "+1", " 0"]), line, line).map("{0[0]} ||| {0[1]} ||| {0[2]}".format),
    st.integers(0, 10**40).map("{} ||| a ||| b".format)), max_size=3))  # fmt: skip
@example(entries=[f"{10**30} ||| a ||| b"])
@example(entries=["² ||| a ||| b"])
def test_any_list_of_the_best(small_run, tmp_path, entries):
    source, nbest, output = tmp_path / "in", tmp_path / "nbest", tmp_path / "out"
    source.write_text("a b\nb\n")
    nbest.write_text("".join(entry + "\n" for entry in entries), newline="\n")
    output.unlink(missing_ok=True)
    command = [f"model={small_run}", f"source={source}", f"nbest={nbest}", f"output={output}"]
    if allowed(score.run, configure("score", command)) is None:
        assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "nbest"]
    else:
        assert output.read_bytes().count(b"\n") == len(entries)


@anything
@given(pairs=st.lists(st.tuples(line, line), max_size=4))
def test_any_pair_has_a_probability(translator, pairs):
    sources = translator.encode([s for s, _ in pairs])
    targets = translator.tokenizer.encode_target([t for _, t in pairs])
    for result in translator.force(sources, targets):
        assert math.isfinite(result.log_prob)
        assert result.log_prob < 0


@anything
@given(
    words=st.lists(
        st.one_of(
            text,
            st.tuples(st.integers(), st.sampled_from("-?p"), st.integers()).map(
                "{0[0]}{0[1]}{0[2]}".format
            ),
        )
    )
)
def test_any_links(words):  # fmt: skip
    try:
        sure, possible = parse_links(" ".join(words))
    except ValueError as error:
        assert str(error)  # noqa: PT017
    else:
        assert parse_links(write_links(sure)) == (sure, frozenset())
        assert all(s >= 0 and t >= 0 for s, t in sure | possible)


@anything
@given(values=st.lists(value, min_size=1, max_size=4))
def test_any_labels(tmp_path, values):
    """As many rows as texts, and every label on one line of its own."""
    file = written(
        tmp_path / "t", "".join(json.dumps({"text": "a", "label": v}) + "\n" for v in values)
    )
    result = allowed(
        TableFiles(format="jsonl", train=file, validation=file, text="text", label="label").labelled
    )
    if result is not None:
        assert len(result.train.labels) == len(values)
        names = LabelSet.of(result.train.labels, result.train.multi_label).names
        assert all(name.strip() and len(name.splitlines()) == 1 and name.encode() for name in names)


@pytest.fixture(scope="module")
def cutters():
    lines = ["the cat sat on the mat 我爱北京 שלום"] * 20
    forms = ("unigram", "bpe", "char", "word")
    return [SentencePiece(model=form, vocabulary_size=60).train(lines, lines) for form in forms]


@anything
@given(
    kind=st.integers(0, 3),
    lines=st.lists(line, max_size=4),
    seed=st.none() | st.integers(0, 2**32 - 1),
)
def test_any_text_is_cut(cutters, kind, lines, seed):
    """As many lines, known numbers; a word for each piece; read back, it is text that is cut the same again."""
    tokenizer = cutters[kind]
    ids = tokenizer.encode_source(lines, seed)
    assert len(ids) == len(lines)
    for written_line, cut in zip(lines, ids, strict=True):
        assert all(0 <= i < tokenizer.source_size for i in cut)
        places = tokenizer.source_words(written_line, cut)
        assert len(places) == len(cut)
        assert all(a.start <= b.start and a.stop <= b.stop for a, b in itertools.pairwise(places))
        assert all(
            0 <= values.start < values.stop <= max(1, len(words(written_line))) for values in places
        )
    assert len(tokenizer.decode(ids)) == len(lines)
