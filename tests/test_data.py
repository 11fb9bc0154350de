"""Reading, filtering, tokenising, encoding and batching of text."""

import bz2
import gzip
import itertools
import json
import lzma
import os
import re
import signal
import sys
from dataclasses import replace

import numpy as np
import pytest
from babel import localedata
from builders import compose, trained
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt import components
from nmt.data import Pairs, Splits
from nmt.data import ragged as corpus
from nmt.data.batching import Batching, collate, pad, padding_share
from nmt.data.filters import Filters, fingerprint
from nmt.data.lines import find_file, read_lines
from nmt.data.preparation import prepare
from nmt.data.ragged import Corpus, Ragged, RaggedChain
from nmt.data.sources.everyday import Everyday
from nmt.data.sources.table import TableFiles
from nmt.data.sources.text import TextFiles
from nmt.data.text_encoding import decode_line
from nmt.data.worker_processes import _start, ordered_map
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import BOS, EOS, PAD
from nmt.tokenizer import SentencePiece

LINES = [
    f"the {a} {b} sees {c} cats ."
    for a in ("big", "small")
    for b in ("dog", "bird")
    for c in range(20)
]


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def text_files(folder, source="a\nb\n", target="x\ny\n"):
    for part in ("train", "val"):
        write(folder / f"{part}.en", source)
        write(folder / f"{part}.de", target)
    return TextFiles(
        train=str(folder / "train"), validation=str(folder / "val"), source="en", target="de"
    )


def test_newline_is_the_only_separator(tmp_path):
    text = "\ufeffone\u2028still one\x0b\x0c\x85\ntwo\r\n\nfour"
    assert read_lines(write(tmp_path / "f", text)) == [
        "one\u2028still one\x0b\x0c\x85",
        "two",
        "",
        "four",
    ]


def test_gzip_is_read(tmp_path):
    data = text_files(tmp_path)
    plain = data.load()
    for file in tmp_path.iterdir():
        file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    assert data.load().train.source == plain.train.source


@pytest.mark.parametrize("ending", [".xz", ".bz2", ".zst"])
def test_other_compressions_are_read(tmp_path, ending):
    text = "".join(line + "\n" for line in LINES).encode()
    if ending == ".zst":
        packed = pytest.importorskip(
            "backports.zstd", reason="pip install backports.zstd"
        ).compress(text)
    else:
        packed = {".xz": lzma, ".bz2": bz2}[ending].compress(text)
    for language in ("en", "de"):
        (tmp_path / f"train.{language}{ending}").write_bytes(packed)
    assert list(
        TextFiles(train=f"{tmp_path}/train", split=0.1, source="en", target="de")
        .load()
        .train.source
    )
    assert read_lines(tmp_path / f"train.en{ending}") == LINES
    (tmp_path / f"cut{ending}").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(UserError, match=rf"cut\{ending}: cannot be read"):
        read_lines(tmp_path / f"cut{ending}")


def test_parts_of_one_file_keep_their_lines(tmp_path):
    """By a hash of each pair: all lines once; added lines move none; equal pairs stay together; shares are as asked."""
    rows = [(f"a {i}", f"b {i}") for i in range(3000)]

    def parts(chosen):
        for k, language in enumerate(("en", "de")):
            (tmp_path / f"all.{language}").write_text("".join(row[k] + "\n" for row in chosen))
        splits = TextFiles(train=f"{tmp_path}/all", split=0.1, source="en", target="de").load()
        return [
            set(zip(p.source, p.target, strict=True))
            for p in (splits.train, splits.validation, splits.test)
        ]

    few, more = parts(rows[:2000]), parts([*rows[::-1], *rows[:50]])
    assert set.union(*few) == set(rows[:2000])
    assert sum(map(len, more)) == 3000
    assert all(small <= large for small, large in zip(few, more, strict=True))
    assert [len(part) for part in more] == pytest.approx([2400, 300, 300], rel=0.15)
    with pytest.raises(UserError, match="the validation set is empty"):
        parts(rows[:1])
    for wrong in ({}, {"split": 0.1, "validation": "x"}, {"split": 0.1, "test": "x"}):
        with pytest.raises(ValueError, match=r"data\.validation, data\.split"):
            TextFiles(train="x", source="en", target="de", **wrong)


def test_a_labelled_table_can_be_split(tmp_path):
    (tmp_path / "all.tsv").write_text(
        "text\tlabel\n" + "".join(f"text {i}\t{'ab'[i % 2]}\n" for i in range(400))
    )
    splits = TableFiles(
        format="tsv", train=f"{tmp_path}/all.tsv", split=0.1, text="text", label="label"
    ).labelled()
    texts = [*splits.train.texts, *splits.validation.texts, *splits.test.texts]
    assert sorted(texts) == sorted(f"text {i}" for i in range(400))
    assert all(
        label == ("ab"[int(t.split()[1]) % 2],)
        for t, label in zip(splits.test.texts, splits.test.labels, strict=True)
    )


def test_sets_of_texts_have_the_same_kind_of_labels(tmp_path):
    files = {}
    for name, labels in (
        ("one", ["a", "b"]),
        ("several", [["a", "b"], []]),
        ("listed", [["a"], ["b"]]),
    ):
        rows = [json.dumps({"text": f"x {i}", "label": label}) for i, label in enumerate(labels)]
        files[name] = tmp_path / f"{name}.jsonl"
        files[name].write_text("\n".join(rows) + "\n")

    def labelled(validation):
        return TableFiles(
            format="jsonl", train=str(files["one"]), validation=str(files[validation]), text="text", label="label"
        ).labelled()  # fmt: skip

    assert list(labelled("listed").validation.labels) == [("a",), ("b",)]
    with pytest.raises(UserError, match="several.jsonl, row 1: must have one label"):
        labelled("several")


def test_broken_gzip_is_named(tmp_path):
    (tmp_path / "f.gz").write_bytes(gzip.compress(b"hello" * 100)[:20])
    with pytest.raises(UserError, match=r"f\.gz: cannot be read"):
        read_lines(tmp_path / "f.gz")


def test_misaligned_files_are_refused_with_both_counts(tmp_path):
    with pytest.raises(UserError, match=r"train\.en and .*train\.de: not aligned \(3 and 2 lines"):
        text_files(tmp_path, source="a\nb\nc\n").load()


def test_invalid_utf8_is_located(tmp_path):
    (tmp_path / "f").write_bytes(b"fine\nK\xf6ln\n")
    with pytest.raises(UserError, match=r"f, line 2: invalid UTF-8 \(byte 0xf6\)"):
        read_lines(tmp_path / "f")
    with pytest.raises(UserError, match=r"0x93\)\. Convert .* iconv -f cp1252 "):
        decode_line("“".encode("cp1252"), 1, "f")


def test_missing_and_empty_files_are_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.en: file not found"):
        TextFiles(train=str(tmp_path / "nowhere"), validation="x", source="en", target="de").load()
    with pytest.raises(UserError, match=r"train\.en.*no sentence pairs"):
        text_files(tmp_path, source="", target="").load()


ROWS = [('He said "hi"', "Er sagte „hi“"), ("N/A", "null"), ("a, b", "c, d")]


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "parquet"])
def test_tables_keep_the_text_as_it_is(tmp_path, kind):
    """Quotation marks, N/A and commas survive in every format."""
    file = tmp_path / f"train.{kind}"
    if kind == "tsv":
        write(file, "en\tde\n" + "".join(f"{s}\t{t}\n" for s, t in ROWS))
    elif kind == "jsonl":
        write(
            file, "".join(json.dumps({"translation": {"en": s, "de": t}}) + "\n" for s, t in ROWS)
        )
    else:
        import pandas

        frame = pandas.DataFrame(ROWS, columns=["en", "de"])
        frame.to_csv(file, index=False) if kind == "csv" else frame.to_parquet(file)
    data = TableFiles(
        format=kind, train=str(file), validation=str(file), source="en", target="de"
    ).load()
    assert list(zip(data.train.source, data.train.target, strict=True)) == ROWS


def test_hub_data_is_read_from_a_local_folder(tmp_path):
    """The hub loader itself, on a folder of files instead of an id."""
    for part in ("train", "validation", "test"):
        write(
            tmp_path / f"{part}.jsonl",
            "".join(json.dumps({"en": s, "de": t}) + "\n" for s, t in ROWS),
        )
    config = compose("data=hub", f"data.path={tmp_path}", "data.source=en", "data.target=de")
    assert components.make(config, "data").load().test.target == [t for _, t in ROWS]


def test_wrong_columns_are_answered_with_the_right_ones(tmp_path):
    file = write(tmp_path / "t.tsv", "english\tgerman\na\tb\n")
    with pytest.raises(UserError, match="available: english, german"):
        TableFiles(
            format="tsv", train=str(file), validation=str(file), source="en", target="de"
        ).load()


def test_everyday_parts_share_no_sentence_and_depend_on_the_seed_alone():
    first, again, other = (
        Everyday(train=900, validation=50, test=50, seed=s).load() for s in (1, 1, 2)
    )
    assert first == again
    assert first != other
    sets = [set(part.source) for part in (first.train, first.validation, first.test)]
    assert sum(map(len, sets)) == len(set.union(*sets))
    assert (len(first.train.source), len(sets[1]), len(sets[2])) == (900, 50, 50)
    pairs = dict(zip(first.train.source, first.train.target, strict=True))
    dates = [s for s in pairs if re.fullmatch(r"March \d+, \d{4}", s)]
    assert dates
    for line in dates:
        day, year = re.findall(r"\d+", line)
        assert pairs[line] == f"{day}. März {year}"


@pytest.mark.slow
def test_everyday_in_every_language():
    """In no language of Babel, a name of a unit or month is a placeholder for a missing word."""
    for name in sorted(name for name in localedata.locale_identifiers() if "_" not in name):
        data = Everyday(target=name, train=40, validation=3, test=3).load()
        faults = [
            line
            for line in data.train.target
            if re.search(r"duration-|length-|mass-|volume-|temperature-|M\d\d", line)
        ]
        assert not faults, (name, faults[:3])


def test_everyday_has_other_languages_and_names_missing_ones():
    data = Everyday(source="fr", target="ja", train=50, validation=5, test=5).load()
    assert any("月" in line for line in data.train.target)
    with pytest.raises(UserError, match="data.target=klingon"):
        Everyday(target="klingon").load()


def test_filters_drop_and_count(caplog):
    pairs = Pairs(["a", "", "b", "a", " "], ["x", "y", "z", "x", "w"], "text")
    with caplog.at_level("INFO", "nmt"):
        kept = Filters(drop_duplicates=True).text(pairs)
    assert list(kept.source) == ["a", "b"]
    assert kept.source[-1:] == ["b"]
    assert "kept 2 of 5 pairs (dropped: 2 empty, 1 duplicate)" in caplog.text
    tokens = Corpus(*(corpus.encode_lines(lines, lambda ls: [[4] * int(x) for x in ls], 9) for lines in (["1", "5", "9"], ["1", "1", "9"])))  # fmt: skip
    assert Filters(max_length=8, max_ratio=3).tokens(tokens, "text").tolist() == [0]
    with pytest.raises(UserError, match="dropped all 5 sentence pairs"):
        Filters().text(Pairs([""] * 5, [""] * 5, "text"))


def test_text_without_tokens_is_dropped(caplog):
    """NFKC of SentencePiece removes zero-width spaces, byte order marks and direction marks."""
    invisible = ["\u200b", "\ufeff", "\u200e \u200b"]
    train = Pairs([*LINES, *invisible, "ein Hund"], [*LINES, *["a dog"] * 3, "\u200f"], "text")
    tokenizer = SentencePiece(model="bpe", vocabulary_size=120, normalization="nmt_nfkc")
    with caplog.at_level("INFO", "nmt"):
        prepared = prepare(Splits(train, train, None, ("de", "en")), Filters(), tokenizer)
    assert prepared.kept.tolist() == [*range(len(LINES))]
    assert "(dropped: 4 empty)" in caplog.text


@pytest.mark.parametrize("model", ["unigram", "bpe", "char", "word"])
def test_text_survives_the_tokenizer(model):
    tokenizer = SentencePiece(model=model, vocabulary_size=120).train(LINES, LINES)
    assert tokenizer.decode(tokenizer.encode_target(LINES)) == LINES
    assert {PAD, BOS, EOS}.isdisjoint(i for row in tokenizer.encode_source(LINES) for i in row)


def test_too_large_a_vocabulary_is_reduced_with_a_message(caplog):
    with caplog.at_level("INFO", "nmt"):
        tokenizer = SentencePiece(model="bpe", vocabulary_size=5000).train(LINES, LINES)
    assert tokenizer.source_size < 5000
    assert "the maximum for this training text" in caplog.text


def test_too_small_a_vocabulary_is_refused_with_a_remedy():
    with pytest.raises(UserError, match="tokenizer.vocabulary_size"):
        SentencePiece(vocabulary_size=8).train(LINES, LINES)


def test_separate_vocabularies_lowercase_and_bytes():
    tokenizer = SentencePiece(
        joint=False, vocabulary_size=300, byte_fallback=True, lowercase=True
    ).train(LINES, [line[::-1].upper() for line in LINES])
    assert not tokenizer.joint
    assert tokenizer.encode_source(["THE DOG"]) == tokenizer.encode_source(["the dog"])
    assert tokenizer.decode(tokenizer.encode_target(["ω"])) == ["ω"]


@pytest.mark.parametrize("model", ["unigram", "bpe"])
def test_sampling_depends_on_the_seed_alone(model):
    tokenizer = SentencePiece(model=model, vocabulary_size=100, sampling=0.3).train(LINES, LINES)
    draws = [tokenizer.encode_source(LINES, seed) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    assert tokenizer.encode_source(LINES) == tokenizer.encode_source(LINES)
    assert tokenizer.decode(draws[0]) == LINES


@settings(max_examples=50, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 90), st.integers(0, 30)), min_size=1, max_size=200),
    by_tokens=st.booleans(),
    epoch=st.integers(0, 3),
)
def test_batches_hold_every_sentence_once_and_keep_their_budget(lengths, by_tokens, epoch):
    source, target = (np.array(side) for side in zip(*lengths, strict=True))
    batching = Batching(sentences=0 if by_tokens else 8, tokens=64 if by_tokens else 0, pool=4)
    for batches in (
        batching.indices(source, target, seed=1, epoch=epoch),
        batching.in_order(source, target),
    ):
        assert sorted(i for batch in batches for i in batch) == list(range(len(source)))
        for batch in batches:
            assert len(batch) <= 8 or by_tokens
            longest = max(source[batch].max(), target[batch].max()) + 1
            assert not by_tokens or longest * len(batch) <= 64 or len(batch) == 1
    for longer, shorter in itertools.pairwise(
        batches
    ):  # in order: no batch has room for the next longer sentence
        assert by_tokens or len(shorter) == 8
        following = longer[
            np.lexsort(
                (np.where(target[longer] % 2, source[longer], -source[longer]), target[longer])
            )[0]
        ]
        needed = (
            max(source[shorter].max(), target[shorter].max(), source[following], target[following])
            + 1
        )
        assert not by_tokens or needed * (len(shorter) + 1) > 64


def test_a_batch_may_fill_its_budget_exactly():
    lengths = np.full(8, 15)  # 16 positions each, EOS counted
    assert [
        len(batch) for batch in Batching(sentences=0, tokens=64).in_order(lengths, lengths)
    ] == [4, 4]
    lengths = np.full(4, 32)  # two sentences would need 66 positions
    batches = Batching(sentences=0, tokens=64).in_order(lengths, lengths)
    assert [len(batch) for batch in batches] == [1] * 4


def test_shuffling_is_a_function_of_seed_and_epoch():
    rng = np.random.default_rng(0)
    source, target = rng.integers(1, 40, 3000), rng.integers(1, 40, 3000)
    runs = [
        Batching().indices(source, target, seed=s, epoch=e)
        for s, e in ((1, 0), (1, 0), (1, 1), (2, 0))
    ]
    flat = [np.concatenate(run).tolist() for run in runs]
    assert flat[0] == flat[1]
    assert flat[0] != flat[2]
    assert flat[0] != flat[3]


def test_buckets_leave_little_padding():
    rng = np.random.default_rng(0)
    source = np.clip(rng.normal(14, 5, 29000).astype(int), 3, 40)
    target = np.clip(source + rng.integers(-3, 5, 29000), 3, 45)
    assert padding_share(Batching().indices(source, target, 1, 0), source, target) < 0.08


def test_padding_share_by_hand():
    """Lengths 1 and 3 of sources, 2 and 2 of targets, in one batch: 8 + 6 places, two of them empty; then in two."""
    source, target = np.array([1, 3]), np.array([2, 2])
    assert padding_share([np.array([0, 1])], source, target) == pytest.approx(2 / 14)
    assert padding_share([np.array([0]), np.array([1])], source, target) == 0


def test_filters_that_together_drop_all_pairs():
    train = Pairs(["a b c", "a b c d e f g"], ["x y z", "x y z x y z x"], "train")
    held_out = Pairs(["a b c"], ["x y z"], "validation")
    filters = Filters(max_length=5, drop_held_out=True)
    tokenizer = SentencePiece(model="word", vocabulary_size=30)
    with pytest.raises(UserError, match="train: the filters dropped all 2 sentence pairs"):
        prepare(Splits(train, held_out, None, ("en", "de")), filters, tokenizer)


def test_text_of_an_unknown_script_is_reported(caplog):
    latin, georgian = (["a b c d", "d c b a"] * 20, ["ა ბ გ დ", "დ გ ბ ა"] * 20)
    tokenizer = SentencePiece(model="bpe", vocabulary_size=12)
    train = Pairs(latin, latin, "train")
    splits = Splits(train, train, None, ("en", "ka"))
    tokenizer = prepare(splits, Filters(), tokenizer).tokenizer
    assert "not in the vocabulary" not in caplog.text
    with caplog.at_level("WARNING", "nmt"):
        prepare(replace(splits, validation=Pairs(georgian, latin, "val")), Filters(), tokenizer)
    [message] = [text for text in caplog.messages if "not in the vocabulary" in text]
    assert message.startswith("val: 50 % of the source tokens")


def test_text_of_an_unknown_script_with_factors_is_reported(caplog):
    """Ids of subwords with factors are greater than those of the vocabulary."""
    latin, georgian = (["a b\tX Y", "d c\tY X"] * 20, ["ა ბ\tX Y", "დ გ\tY X"] * 20)
    target = ["a b", "d c"] * 20
    train = Pairs(latin, target, "train")
    splits = Splits(train, train, None, ("en", "ka"), factors=("tag",))
    tokenizer = SentencePiece(model="bpe", vocabulary_size=12)
    tokenizer = prepare(splits, Filters(), tokenizer).tokenizer
    assert "not in the vocabulary" not in caplog.text
    with caplog.at_level("WARNING", "nmt"):
        prepare(replace(splits, validation=Pairs(georgian, target, "val")), Filters(), tokenizer)
    [message] = [text for text in caplog.messages if "not in the vocabulary" in text]
    assert message.startswith("val: 50 % of the source tokens")


def test_one_gather_is_row_by_row():
    """Sequences of one part, of several, of empty parts, and of repeated rows; with and without EOS."""
    draw = np.random.default_rng(3)
    parts = [
        Ragged.of([draw.integers(4, 99, n).tolist() for n in lengths], np.uint16)
        for lengths in ([3, 0, 5, 1], [0], [2, 7, 0])
    ]
    rows = np.array([7, 0, 5, 2, 1, 4, 0, 6])
    chain = RaggedChain(parts)
    whole = Ragged.concatenated(parts)
    assert len(chain) == len(whole) == 8
    assert chain.lengths.tolist() == whole.lengths.tolist()
    for end in (True, False):
        expected = [whole[i].tolist() + [EOS] * end for i in rows]
        width = max(map(len, expected))
        for sequences in (chain, whole, [whole[i].tolist() for i in range(8)]):
            ids, lengths = pad(sequences, rows, end=end)
            assert ids.tolist() == [row + [PAD] * (width - len(row)) for row in expected]
            assert lengths.tolist() == [len(row) for row in expected]
    nothing = Ragged.of([[], []])
    assert pad(nothing, [1, 0], end=False)[0].shape == (2, 0)
    assert pad(nothing, [1, 0])[0].tolist() == [[EOS], [EOS]]


def test_collate_by_hand():
    ragged = corpus.encode_lines(
        ["57", "5", ""], lambda lines: [[int(c) for c in line] for line in lines], 10
    )
    batch = collate(Corpus(ragged, ragged), [0, 2])
    assert batch.source.tolist() == [[5, 7, EOS], [EOS, PAD, PAD]]
    assert batch.inputs.tolist() == [[BOS, 5, 7], [BOS, PAD, PAD]]
    assert batch.targets.tolist() == [[5, 7, EOS], [EOS, PAD, PAD]]
    assert batch.num_tokens == 4


PAIRS = [
    ("A man .", "Ein Mann ."),
    ("A dog .", "Ein Hund ."),
    ("Two cats .", "Zwei Katzen ."),
    ("Rain .", "Regen ."),
]


def both(pairs):
    return list(zip(pairs.source, pairs.target, strict=True))


@pytest.mark.parametrize(
    ("cut", "kept"),
    [
        (":2", PAIRS[:2]),
        ("1:", PAIRS[1:]),
        ("-1:", PAIRS[-1:]),
        ("25%:75%", PAIRS[1:3]),
        (":100%", PAIRS),
        ("0:1", PAIRS[:1]),
        ("-50%:", PAIRS[-2:]),
        (":-1%", PAIRS),
    ],
)
@pytest.mark.parametrize("kind", ["text", "tsv", "parquet", "hub"])
def test_a_slice_of_any_source_needs_no_quotes(tmp_path, kind, cut, kept):
    import datasets

    part = str(tmp_path / "t")
    if kind == "text":
        write(tmp_path / "t.en", "".join(f"{a}\n" for a, _ in PAIRS))
        write(tmp_path / "t.de", "".join(f"{b}\n" for _, b in PAIRS))
    elif kind == "tsv":
        write(tmp_path / "t", "en\tde\n" + "".join(f"{a}\t{b}\n" for a, b in PAIRS))
    else:
        table = datasets.Dataset.from_dict(
            {"en": [a for a, _ in PAIRS], "de": [b for _, b in PAIRS]}
        )
        table.to_parquet(part if kind == "parquet" else str(tmp_path / "train.parquet"))
    typed = ["data.source=en", "data.target=de"]
    if kind == "hub":
        part = "train"
        typed.append(f"data.path={tmp_path}")
    parts = [
        f"data={kind}",
        f"data.train={part}@{cut}",
        f"data.validation=[{part}@:1,{part}@-2:]",
        "data.test=null",
    ]
    splits = components.make(compose(*parts, *typed), "data").load()
    assert both(splits.train) == kept
    assert both(splits.validation) == PAIRS[:1]
    assert [both(pairs) for pairs in splits.more_validation.values()] == [PAIRS[-2:]]


@pytest.mark.parametrize("names", ["validation-test test", "test validation-test"])
def test_no_validation_set_replaces_another(tmp_path, names):
    for name in ("train", "first", "test", "validation-test"):
        for language in ("en", "de"):
            (tmp_path / f"{name}.{language}").write_text(f"{name}\n")
    sets = [str(tmp_path / name) for name in ["first", *names.split()]]
    splits = TextFiles(train=f"{tmp_path}/train", validation=sets, source="en", target="de").load()
    further = splits.more_validation
    assert len(further) == 2
    assert [pairs.source[0] for pairs in further.values()] == names.split()
    assert not {"train", "validation", "test"} & further.keys()


def test_names_of_files_are_no_patterns(tmp_path):
    (tmp_path / "c[1]").mkdir()
    for language in ("en", "de"):
        (tmp_path / f"c[1].{language}").write_text("a\n")
    name = f"{tmp_path}/c[1]"
    splits = TextFiles(train=name, validation=name, source="en", target="de").load()
    assert list(splits.train.source) == ["a"]


def test_an_empty_slice_is_named(tmp_path):
    text_files(tmp_path)
    data = TextFiles(
        train=f"{tmp_path}/train@5:9", validation=f"{tmp_path}/val", source="en", target="de"
    )
    with pytest.raises(UserError, match="@5:9: contains no sentence pairs"):
        data.load()


@pytest.mark.parametrize("kind", ["tsv", "csv"])
def test_a_table_without_names_goes_by_numbers(tmp_path, kind):
    separator = {"tsv": "\t", "csv": ","}[kind]
    file = write(
        tmp_path / "t",
        "".join(f"{i}{separator}{b}{separator}{a}\n" for i, (a, b) in enumerate(PAIRS)),
    )
    part = [f"data={kind}", f"data.train={file}", f"data.validation={file}", "data.header=false"]
    splits = components.make(compose(*part, "data.source=3", "data.target=2"), "data").load()
    assert both(splits.train) == PAIRS
    with pytest.raises(UserError, match="column '7' not found .available: 1, 2, 3"):
        components.make(compose(*part, "data.source=3", "data.target=7"), "data").load()
    file.write_text(file.read_text() + "one cell\n")
    with pytest.raises(UserError, match="line 5: 1 column, but the first row has 3"):
        components.make(compose(*part, "data.source=3", "data.target=2"), "data").load()


def tmx(units):
    body = "".join(
        f"<tu>{''.join(f'<tuv {k}><seg>{v}</seg></tuv>' for k, v in unit)}</tu>" for unit in units
    )
    return f'<?xml version="1.0"?><!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx version="1.4"><header/><body>{body}</body></tmx>'


def test_a_translation_memory_is_read(tmp_path, caplog):
    en, de, fr = 'xml:lang="EN-us"', 'xml:lang="de"', 'lang="fr"'
    units = [
        [
            (
                en,
                'A <bpt i="1">&lt;b&gt;</bpt>man<ept i="1">&lt;/b&gt;</ept> &amp; <hi>a\n dog</hi>.',
            ),
            (de, "Ein Mann"),
            (fr, "Un"),
        ],
        [(de, "Nur Deutsch")],
        [(de, "Zwei"), (en, "Two"), (en, "A second variant")],
    ]
    file = tmp_path / "m.tmx.gz"
    whole = tmx(units).replace("<tmx ", '<tmx xmlns="http://www.lisa.org/tmx14" ')
    file.write_bytes(gzip.compress(whole.encode("utf-16")))
    typed = [
        "data=tmx",
        f"data.train={file}",
        f"data.validation={file}@:1",
        "data.source=en",
        "data.target=de",
    ]
    splits = components.make(compose(*typed), "data").load()
    assert both(splits.train) == [("A man & a dog.", "Ein Mann"), ("Two", "Zwei")]
    assert "skipped 1 of 3 translation units that lack en and de" in caplog.text
    with pytest.raises(
        UserError, match="no translation unit contains en and it .languages: EN-us, de, fr"
    ):
        components.make(compose(*typed[:-1], "data.target=it"), "data").load()
    file.write_bytes(gzip.compress(tmx(units)[:-30].encode()))
    with pytest.raises(UserError, match="cannot be read as TMX"):
        components.make(compose(*typed), "data").load()


def test_a_big_translation_memory_takes_little_memory(tmp_path, monkeypatch):
    """Units are forgotten as they are read: beyond a chunk, memory does not grow with their number."""
    import tracemalloc

    import nmt.foundation.terminal  # noqa: F401  (a slow machine would import it meanwhile, for the progress display)
    from nmt.data.formats import tmx as memory

    monkeypatch.setattr("nmt.data.lines.CHUNK", 100)
    unit, peaks = [('xml:lang="en"', "a"), ('xml:lang="de"', "b")], []
    for count in (1500, 1500, 4500):  # the first reading fills the caches
        file = write(tmp_path / "m.tmx", tmx([unit] * count))
        tracemalloc.start()
        rows = sum(len(part.values["en"]) for part in memory.read(file, ["en", "de"]))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert rows == count
    assert peaks[2] - peaks[1] < 100_000


@pytest.mark.parametrize("ending", ["zip", "tar.gz"])
def test_an_archive_of_aligned_files_is_read(tmp_path, ending):
    import tarfile
    import zipfile

    files = {
        "README": "about", "Books.de-en.en": "\ufeff" + "".join(f"{a}\n" for a, _ in PAIRS), "Books.de-en.ids": "1\n",
        "Books.de-en.de": "".join(f"{b}\n" for _, b in PAIRS),
    }  # fmt: skip

    def pack(contents):
        archive = tmp_path / f"a.{ending}"
        if ending == "zip":
            with zipfile.ZipFile(archive, "w") as opened:
                for name, text in contents.items():
                    opened.writestr(name, text)
        else:
            with tarfile.open(archive, "w:gz") as opened:
                for name, text in contents.items():
                    opened.add(write(tmp_path / name, text), name)
        return archive

    archive = pack(files)
    typed = [
        "data=archive",
        f"data.train={archive}",
        "data.split=0.2",
        "data.source=en",
        "data.target=de",
    ]
    data = [f"data.train={archive}", f"data.validation={archive}@-1:"]
    splits = components.make(compose(typed[0], *data, *typed[3:]), "data").load()
    assert both(splits.train) == PAIRS
    assert both(splits.validation) == PAIRS[-1:]
    with pytest.raises(
        UserError, match="the same name and the extensions en, fr; contents: README, Books"
    ):
        components.make(compose(*typed[:-1], "data.target=fr"), "data").load()
    pack({**files, "Other.en": "x\n", "Other.de": "y\n"})
    with pytest.raises(
        UserError, match=r"several texts: Books.de-en, Other. Unpack the archive and use data=text"
    ):
        components.make(compose(*typed), "data").load()
    pack({**files, "Books.de-en.de": "y\n"})
    with pytest.raises(
        UserError, match=r"Books.de-en.en and .*Books.de-en.de: not aligned \(4 and 1"
    ):
        components.make(compose(*typed), "data").load()
    archive.write_bytes(archive.read_bytes()[:50])
    with pytest.raises(UserError, match="cannot be read as an archive"):
        components.make(compose(*typed), "data").load()


def test_missing_files_and_columns_get_suggestions(tmp_path):
    for name in ("train.en", "train.de", *(f"a{i}" for i in range(12))):
        write(tmp_path / name, "A man .\tEin Mann .\nA dog .\tEin Hund .\n")

    def told(*overrides):
        with pytest.raises(UserError) as caught:
            components.make(compose(*overrides, "data.validation=x"), "data").load()
        return str(caught.value)

    files = ["data=text", "data.source=en", "data.target=de"]
    assert re.search(
        r"file not found. Files in the folder: train.en, .* …$",
        told(*files, f"data.train={tmp_path}/trein"),
    )
    wrong = told(*files, f"data.train={tmp_path}/train.en")
    assert (
        wrong
        == f"{tmp_path}/train.en: give the name without the language extension, {tmp_path}/train"
    )
    told_of_folder = told(*files, f"data.train={tmp_path}")
    assert (
        f"{tmp_path}: is a folder; give its files without the language extension" in told_of_folder
    )
    for wrong in ("train@5", "train@a:b", "train@::2"):
        assert "To read only some rows, give NAME@START:STOP" in told(
            *files, f"data.train={tmp_path}/{wrong}"
        )
    with pytest.raises(UserError, match="Rows cannot be selected here"):
        find_file(f"{tmp_path}/train.en@:10")
    table = ["data=tsv", f"data.train={tmp_path}/train.en"]
    output = told(*table, "data.source=en", "data.target=de")
    assert (
        "columns 'en' and 'de' not found (available: A man ., Ein Mann .). If the first line is data, set data.header=false"
        in output
    )
    output = told(*table, "data.header=false", "data.source=1", "data.target=3")
    assert "column '3' not found (available: 1, 2). Set" in output
    write(tmp_path / "c", "en,de\nx,y\n")
    assert "(available: en,de). For comma-separated columns, set data=csv" in told(
        "data=tsv", f"data.train={tmp_path}/c", "data.source=en", "data.target=de"
    )
    output = told("data=tsv", f"data.train={tmp_path}", "data.source=en", "data.target=de")
    assert re.search(r"is a folder, not a file. Files in the folder: .*train\.en", output)


def test_files_with_any_names_are_a_part(tmp_path):
    """Source and target are listed; the pairs are those of the usual names."""
    for name, other, text in (
        ("train.en", "europarl.src", "a\nb\nc\n"),
        ("train.de", "x.trg.gz", "A\nB\nC\n"),
    ):
        (tmp_path / name).write_text(text)
        is_packed = other.endswith(".gz")
        (tmp_path / other).write_bytes(gzip.compress(text.encode()) if is_packed else text.encode())
    usual = TextFiles(
        train=f"{tmp_path}/train", validation=f"{tmp_path}/train", source="en", target="de"
    ).load()
    files = [f"{tmp_path}/europarl.src", f"{tmp_path}/x.trg.gz"]
    without_ending = [files[0], f"{tmp_path}/x.trg"]
    for validation in (files, without_ending, [files], f"{tmp_path}/train"):
        named = TextFiles(
            train=files, validation=validation, test=files, source="en", target="de"
        ).load()
        for pairs in (named.train, named.validation, named.test):
            assert [*pairs.source] == [*usual.train.source]
            assert [*pairs.target] == [*usual.train.target]
        assert named.languages == ("en", "de")
    for wrong in (files[:1], [*files, files[0]]):
        with pytest.raises(UserError, match=r"expected 2 .en, de"):
            TextFiles(train=wrong, validation=[files], source="en", target="de").load()
    with pytest.raises(UserError, match="file not found"):
        TextFiles(train=[files[0], "nowhere"], validation=[files], source="en", target="de").load()


def test_few_updates_are_warned_about_with_a_recipe(tmp_path):
    for ending in ("en", "de"):
        (tmp_path / f"t.{ending}").write_text("".join(f"a b {i}\n" for i in range(40)))
    text = [f"data.train={tmp_path}/t", "data.split=0.2", "data.source=en", "data.target=de"]
    sizes = [
        "sizes.encoder=4",
        "sizes.decoder=4",
        "sizes.readout=4",
        "model.embedding_size=4",
        "tokenizer=char",
    ]
    several = ["trainer.max_epochs=3", "batching.sentences=4", "trainer.accumulate=4"]
    for more, count in (
        (["trainer.max_epochs=1"], 1),
        (several, 6),
        (["trainer.max_updates=1"], 0),
    ):
        folder = trained(tmp_path / str(count), "data=text", *text, *sizes, *more)
        log = (folder / "train.log").read_text()
        assert ("add sentence pairs, or raise trainer.max_epochs" in log) is bool(count)
        assert (f"has only {count} updates" in log) is bool(count)


def vanished(index):
    raise UserError("a.png: not found")


@pytest.mark.parametrize("processes", [0, 1])
def test_an_error_of_a_batch_has_the_same_text_in_another_process(processes):
    with pytest.raises(UserError, match=r"^a\.png: not found$"):
        list(ordered_map(vanished, range(3), processes))


def survived(index):
    os.kill(os.getpid(), signal.SIGTERM)
    return index


def test_a_worker_process_outlives_a_signal_to_the_process_group():
    """The main process needs its results to stop at the end of an update and to save."""
    assert list(ordered_map(survived, range(3), 1)) == [0, 1, 2]


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a process of its parent's end"
)
def test_a_worker_whose_parent_has_ended_ends():
    """Without its end, the inherited locks would never be released."""
    for parent, status in ((os.getpid(), 7), (1, 1)):
        child = os.fork()
        if child == 0:
            _start(parent, 0)
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == status


def test_batches_are_not_ordered_by_length_and_differ_between_epochs():
    rng = np.random.default_rng(0)
    source, target = rng.integers(1, 40, 3000), rng.integers(1, 40, 3000)
    batches = Batching(sentences=10).indices(source, target, seed=1, epoch=0)
    means = np.array([target[rows].mean() for rows in batches])
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3
    pooled = Batching(sentences=10, pool=20)
    first, second = (
        {frozenset(rows.tolist()) for rows in pooled.indices(source, target, seed=1, epoch=epoch)}
        for epoch in (0, 1)
    )
    assert len(first & second) < 0.1 * len(first)


def test_sentences_at_the_limits_are_kept_and_both_sides_count():
    def sides(*lengths):
        return Ragged.of([[4] * length for length in lengths])

    tokens = Corpus(sides(8, 9, 3, 6, 7, 1, 1), sides(8, 8, 9, 2, 2, 3, 4))
    assert Filters(max_length=8).tokens(tokens, "text").tolist() == [0, 3, 4, 5, 6]
    assert Filters(max_ratio=3).tokens(tokens, "text").tolist() == [0, 1, 2, 3, 5]


def test_the_fingerprint_depends_on_both_sides_and_on_the_order():
    corpora = [
        (["a", "b"], ["c", "d"]), (["a", "b"], ["c", "e"]),
        (["a", "e"], ["c", "d"]), (["b", "a"], ["d", "c"]),
    ]  # fmt: skip
    digests = {fingerprint(Pairs(source, target, "text")) for source, target in corpora}
    assert len(digests) == 4
