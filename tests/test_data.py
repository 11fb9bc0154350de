"""Reading, filtering, tokenising, encoding and batching of text."""

import bz2
import gzip
import itertools
import json
import lzma
import re

import numpy as np
import pytest
from babel import localedata
from builders import compose
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.configuration import build
from nmt.corpus import ragged as corpus
from nmt.corpus.batching import Batching, collate, padding_share
from nmt.corpus.filters import Filters
from nmt.corpus.ragged import Corpus
from nmt.data import Pairs
from nmt.data.everyday import Everyday
from nmt.data.table import TableFiles
from nmt.data.text import TextFiles, read_lines
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import BOS, EOS, PAD
from nmt.tokenizer import SentencePiece

LINES = [f"the {a} {b} sees {c} cats ." for a in ("big", "small") for b in ("dog", "bird") for c in range(20)]


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def text_files(folder, source="a\nb\n", target="x\ny\n"):
    for part in ("train", "val"):
        write(folder / f"{part}.en", source)
        write(folder / f"{part}.de", target)
    return TextFiles(train=str(folder / "train"), validation=str(folder / "val"), source="en", target="de")


def test_newline_is_the_only_separator(tmp_path):
    text = "\ufeffone\u2028still one\x0b\x0c\x85\ntwo\r\n\nfour"
    assert read_lines(write(tmp_path / "f", text)) == ["one\u2028still one\x0b\x0c\x85", "two", "", "four"]


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
        packed = pytest.importorskip("backports.zstd", reason="pip install backports.zstd").compress(text)
    else:
        packed = {".xz": lzma, ".bz2": bz2}[ending].compress(text)
    for language in ("en", "de"):
        (tmp_path / f"train.{language}{ending}").write_bytes(packed)
    assert list(TextFiles(train=f"{tmp_path}/train", split=0.1, source="en", target="de").load().train.source)
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
        return [set(zip(p.source, p.target, strict=True)) for p in (splits.train, splits.validation, splits.test)]

    few, more = parts(rows[:2000]), parts([*rows[::-1], *rows[:50]])
    assert set.union(*few) == set(rows[:2000])
    assert sum(map(len, more)) == 3000
    assert all(small <= large for small, large in zip(few, more, strict=True))
    assert [len(part) for part in more] == pytest.approx([2400, 300, 300], rel=0.15)
    with pytest.raises(UserError, match="leaves nothing for the validation part"):
        parts(rows[:1])
    for wrong in ({}, {"split": 0.1, "validation": "x"}, {"split": 0.1, "test": "x"}):
        with pytest.raises(ValueError, match=r"data\.validation, data\.split"):
            TextFiles(train="x", source="en", target="de", **wrong)


def test_a_labelled_table_can_be_split(tmp_path):
    (tmp_path / "all.tsv").write_text("text\tlabel\n" + "".join(f"text {i}\t{'ab'[i % 2]}\n" for i in range(400)))
    splits = TableFiles(format="tsv", train=f"{tmp_path}/all.tsv", split=0.1, text="text", label="label").labelled()
    texts = [*splits.train.texts, *splits.validation.texts, *splits.test.texts]
    assert sorted(texts) == sorted(f"text {i}" for i in range(400))
    assert all(
        label == ("ab"[int(t.split()[1]) % 2],) for t, label in zip(splits.test.texts, splits.test.labels, strict=True)
    )


def test_broken_gzip_is_named(tmp_path):
    (tmp_path / "f.gz").write_bytes(gzip.compress(b"hello" * 100)[:20])
    with pytest.raises(UserError, match=r"f\.gz: cannot be read"):
        read_lines(tmp_path / "f.gz")


def test_misaligned_files_are_refused_with_both_counts(tmp_path):
    with pytest.raises(UserError, match=r"train\.en has 3 lines.*train\.de has 2"):
        text_files(tmp_path, source="a\nb\nc\n").load()


def test_invalid_utf8_is_located(tmp_path):
    (tmp_path / "f").write_bytes(b"fine\nK\xf6ln\n")
    with pytest.raises(UserError, match=r"f, line 2: not UTF-8 \(byte 0xf6\)"):
        read_lines(tmp_path / "f")


def test_missing_and_empty_files_are_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.en: no such file"):
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
        write(file, "".join(json.dumps({"translation": {"en": s, "de": t}}) + "\n" for s, t in ROWS))
    else:
        import pandas

        frame = pandas.DataFrame(ROWS, columns=["en", "de"])
        frame.to_csv(file, index=False) if kind == "csv" else frame.to_parquet(file)
    data = TableFiles(format=kind, train=str(file), validation=str(file), source="en", target="de").load()
    assert list(zip(data.train.source, data.train.target, strict=True)) == ROWS


def test_hub_data_is_read_from_a_local_folder(tmp_path):
    """The hub loader itself, on a folder of files instead of an id."""
    for part in ("train", "validation", "test"):
        write(tmp_path / f"{part}.jsonl", "".join(json.dumps({"en": s, "de": t}) + "\n" for s, t in ROWS))
    config = compose("data=hub", f"data.path={tmp_path}", "data.source=en", "data.target=de")
    assert build.make(config, "data").load().test.target == [t for _, t in ROWS]


def test_wrong_columns_are_answered_with_the_right_ones(tmp_path):
    file = write(tmp_path / "t.tsv", "english\tgerman\na\tb\n")
    with pytest.raises(UserError, match="It has: english, german"):
        TableFiles(format="tsv", train=str(file), validation=str(file), source="en", target="de").load()


def test_everyday_parts_share_no_sentence_and_depend_on_the_seed_alone():
    first, again, other = (Everyday(train=900, validation=50, test=50, seed=s).load() for s in (1, 1, 2))
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


def test_everyday_in_every_language():
    """Of every language that Babel knows: no name of a unit or month that stands for a missing word."""
    for name in sorted(name for name in localedata.locale_identifiers() if "_" not in name):
        data = Everyday(target=name, train=40, validation=3, test=3).load()
        faults = [
            line for line in data.train.target if re.search(r"duration-|length-|mass-|volume-|temperature-|M\d\d", line)
        ]
        assert not faults, (name, faults[:3])


def test_everyday_knows_other_languages_and_says_when_it_does_not():
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
    with pytest.raises(UserError, match="no sentence pairs left of 5"):
        Filters().text(Pairs([""] * 5, [""] * 5, "text"))


@pytest.mark.parametrize("model", ["unigram", "bpe", "char", "word"])
def test_text_survives_the_tokenizer(model):
    tokenizer = SentencePiece(model=model, vocabulary_size=120).train(LINES, LINES)
    assert tokenizer.decode(tokenizer.encode_target(LINES)) == LINES
    assert {PAD, BOS, EOS}.isdisjoint(i for row in tokenizer.encode_source(LINES) for i in row)


def test_too_large_a_vocabulary_is_reduced_with_a_message(caplog):
    with caplog.at_level("INFO", "nmt"):
        tokenizer = SentencePiece(model="bpe", vocabulary_size=5000).train(LINES, LINES)
    assert tokenizer.source_size < 5000
    assert "all that the text supports" in caplog.text


def test_too_small_a_vocabulary_says_what_to_do():
    with pytest.raises(UserError, match="tokenizer.vocabulary_size"):
        SentencePiece(vocabulary_size=8).train(LINES, LINES)


def test_separate_vocabularies_lowercase_and_bytes():
    tokenizer = SentencePiece(joint=False, vocabulary_size=300, byte_fallback=True, lowercase=True).train(
        LINES, [line[::-1].upper() for line in LINES]
    )
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


def test_a_cached_corpus_is_mapped_and_equal(tmp_path):
    encoder = lambda lines: [[len(line), 7] for line in lines]  # noqa: E731
    held = corpus.encode_lines(LINES, encoder, 100)
    for _ in range(2):
        mapped = corpus.encode_cached(LINES, encoder, 100, b"key", tmp_path)
        assert isinstance(mapped.ids, np.memmap)
        assert (mapped.ids == held.ids).all()
        assert (mapped.offsets == held.offsets).all()
    assert len(list(tmp_path.iterdir())) == 3


@settings(max_examples=50, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=200),
    by_tokens=st.booleans(),
    epoch=st.integers(0, 3),
)
def test_batches_hold_every_sentence_once_and_keep_their_budget(lengths, by_tokens, epoch):
    source, target = (np.array(side) for side in zip(*lengths, strict=True))
    batching = Batching(sentences=0 if by_tokens else 8, tokens=64 if by_tokens else 0, pool=4)
    for batches in (batching.indices(source, target, seed=1, epoch=epoch), batching.in_order(source, target)):
        assert sorted(i for batch in batches for i in batch) == list(range(len(source)))
        for batch in batches:
            assert len(batch) <= 8 or by_tokens
            longest = max(source[batch].max(), target[batch].max()) + 1
            assert not by_tokens or longest * len(batch) <= 64 or len(batch) == 1
    for longer, shorter in itertools.pairwise(batches):  # in order: no batch has room for the next longer sentence
        assert by_tokens or len(shorter) == 8
        following = longer[
            np.lexsort((np.where(target[longer] % 2, source[longer], -source[longer]), target[longer]))[0]
        ]
        needed = max(source[shorter].max(), target[shorter].max(), source[following], target[following]) + 1
        assert not by_tokens or needed * (len(shorter) + 1) > 64


def test_a_batch_may_fill_its_budget_exactly():
    lengths = np.full(8, 15)  # 16 positions each, EOS counted
    assert [len(batch) for batch in Batching(sentences=0, tokens=64).in_order(lengths, lengths)] == [4, 4]


def test_shuffling_is_a_function_of_seed_and_epoch():
    rng = np.random.default_rng(0)
    source, target = rng.integers(1, 40, 3000), rng.integers(1, 40, 3000)
    runs = [Batching().indices(source, target, seed=s, epoch=e) for s, e in ((1, 0), (1, 0), (1, 1), (2, 0))]
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


def test_collate_by_hand():
    ragged = corpus.encode_lines(["57", "5", ""], lambda lines: [[int(c) for c in line] for line in lines], 10)
    batch = collate(Corpus(ragged, ragged), [0, 2])
    assert batch.source.tolist() == [[5, 7, EOS], [EOS, PAD, PAD]]
    assert batch.inputs.tolist() == [[BOS, 5, 7], [BOS, PAD, PAD]]
    assert batch.targets.tolist() == [[5, 7, EOS], [EOS, PAD, PAD]]
    assert batch.num_tokens == 4
