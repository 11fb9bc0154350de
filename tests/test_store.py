"""Text on disk is the text in memory: the same pairs, ids, batches and weights, whatever happens while it is written."""

import gzip
import json
import os
import shutil
import signal
import threading
from dataclasses import replace

import numpy as np
import pytest
from builders import compose, trained

from nmt import components
from nmt.configuration.configure import configure
from nmt.data import Pairs, overlap, store
from nmt.data import lines as line_files
from nmt.data.epoch_batches import EpochBatches
from nmt.data.filters import Filters, fingerprint, symbols
from nmt.data.overlap import held_out_in_training
from nmt.data.preparation import prepare, train_once
from nmt.data.sources.text import TextFiles
from nmt.data.streams import in_memory
from nmt.foundation.errors import UserError
from nmt.foundation.ranks import ALONE
from nmt.pipeline.assembly.translation_parts import check_new_training, filters_of, loaded
from nmt.storage import checkpoint as ckpt
from nmt.storage import lock
from nmt.tokenizer import SentencePiece

CHUNK = 600
"""Pairs of a chunk here; 8,192 in use."""
ROWS = 2 * CHUNK + 77


@pytest.fixture(scope="module", autouse=True)
def small_chunks():
    with pytest.MonkeyPatch.context() as patch:
        for module in (line_files, store):
            patch.setattr(module, "CHUNK", CHUNK)
        yield


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Three chunks of pairs, with empty, equal and noisy ones among them."""
    folder = tmp_path_factory.mktemp("large")
    words = [
        "ein",
        "Haus",
        "katze",
        "Über",
        "2031",
        "und",
        "der",
        "läuft",
        "x²",
        "grün",
        "…",
        "Ball",
        "猫",
    ]
    draw = np.random.default_rng(1)
    rows = [
        " ".join(words[k] for k in draw.integers(0, len(words), draw.integers(1, 5)))
        for _ in range(ROWS)
    ]
    source = [
        "" if i % 50 == 0 else "12 34 !" if i % 51 == 0 else row for i, row in enumerate(rows)
    ]
    target = [row if i % 40 == 0 else " ".join(row.split()[::-1]) for i, row in enumerate(rows)]
    for name, lines in (
        ("train.en", source),
        ("train.de", target),
        ("val.en", rows[:9]),
        ("val.de", rows[:9]),
    ):
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    (folder / "train.links").write_text(
        "".join("0-0\n" if s and t else "\n" for s, t in zip(source, target, strict=True))
    )
    return folder


def text(corpus, *overrides):
    data = [
        "data=text",
        f"data.train={corpus}/train",
        f"data.validation={corpus}/val",
        "data.source=en",
        "data.target=de",
    ]
    return compose("experiment=null", *data, *overrides)


def both(config):
    """The splits from memory, and from disk."""
    return [
        loaded({**config, "store": wanted}, components.make(config, "filters"))
        for wanted in ("memory", "disk")
    ]


@pytest.mark.parametrize(
    "filters",
    [
        [],
        ["filters.drop_duplicates=true", "filters.drop_identical=true", "filters.max_symbols=0.5"],
    ],
)
def test_the_pairs_are_those_of_memory(corpus, filters, caplog):
    caplog.set_level("INFO", "nmt")
    config = text(corpus, *filters)
    memory, disk = both(config)
    kept = components.make(config, "filters").text(memory.train)
    assert list(disk.train.source) == list(kept.source)
    assert list(disk.train.target) == list(kept.target)
    assert len(disk.train) < ROWS
    output = [record.message for record in caplog.records if "dropped" in record.message]
    assert len(output) == 2
    assert {*output[0].split(" (dropped: ")[1][:-1].split(", ")} == {
        *output[1].split(" (dropped: ")[1][:-1].split(", ")
    }
    assert fingerprint(disk.train) == fingerprint(memory.train)


def test_the_fingerprint_is_of_the_lines_and_not_of_their_files(corpus, tmp_path):
    """Compression and filters change no fingerprint, with word alignments neither."""
    memory, disk = both(text(corpus, "data.alignment=links"))
    for name in ("train.en", "train.de", "train.links"):
        with gzip.open(tmp_path / f"{name}.gz", "wt", encoding="utf-8") as packed:
            packed.write((corpus / name).read_text(encoding="utf-8"))
    changes = f"data.train={tmp_path}/train", "filters.max_symbols=0.5"
    _, compressed = both(text(corpus, "data.alignment=links", *changes))
    _, without_links = both(text(corpus))
    assert len(compressed.train) < len(disk.train)
    expected = fingerprint(memory.train)
    assert fingerprint(disk.train) == fingerprint(compressed.train) == expected
    assert fingerprint(without_links.train) != expected


def test_filters_of_lengths_use_the_same_store(corpus, cache):
    stores = {
        both(text(corpus, *filters))[1].train.store
        for filters in ([], ["filters.max_length=20"], ["filters.max_ratio=3"])
    }
    assert len(stores) == 1


def test_held_out_pairs_in_the_training_text_are_counted(corpus, caplog, monkeypatch):
    """In memory and on disk, spaces aside, and at both ends of a corpus that is too large."""
    config = text(corpus, "filters.drop_duplicates=true")
    counts = []
    for splits in both(config):
        last = [len(splits.train) - 1 - i for i in range(4)]
        strange = Pairs(["nowhere"] * 400, ["nirgends"] * 400, "more")
        test = Pairs(
            [f" {splits.train.source[i]}" for i in last],
            [f"{splits.train.target[i]} " for i in last],
            "test",
        )
        few = Pairs([*strange.source, test.source[0]], [*strange.target, test.target[0]], "few")
        splits = replace(splits, test=test, more_validation={"more": strange, "few": few})
        counts.append(held_out_in_training(splits))
        monkeypatch.setattr(overlap, "MOST_PAIRS", 2 * CHUNK)
        monkeypatch.setattr(overlap, "CHUNK", 100)
        counts.append(held_out_in_training(splits))
    for count in counts:
        count.pop("validation")
        assert count == {"more": 0, "few": 1, "test": 4}
    warnings = [
        record.message for record in caplog.records if "also training pairs" in record.message
    ]
    assert warnings[-1].startswith("data: 4 of 4 test pairs are also training pairs")
    assert not any("few" in message for message in warnings)


def test_held_out_sentences_in_a_monolingual_text_are_counted(corpus, caplog):
    splits = next(iter(both(text(corpus))))
    held_out = {*map(str.strip, splits.validation.target)}
    lines = [f" {line} " for line in sorted(held_out)[::2]]
    common = len(lines)
    lines.append("nirgends")
    overlap.warn_of_held_out_lines(splits, lines, 1, "mono.de")
    assert f"mono.de: contains {common:,} of {len(held_out):,} validation and test" in caplog.text
    caplog.clear()
    overlap.warn_of_held_out_lines(splits, ["nirgends", "niemals"], 1, "mono.de")
    assert not caplog.text


class Recording:
    """An untrained tokenizer that keeps the pairs on which it is trained."""

    def __init__(self, untrained):
        self.untrained = untrained

    def train(self, source, target, shared):
        self.pairs = {*zip(source, target, strict=True)}
        return self.untrained.train(source, target, shared)


def test_held_out_pairs_are_dropped(corpus, caplog):
    """In memory and on disk: neither tokenizer nor batches have a pair of the validation or test set."""
    caplog.set_level("INFO", "nmt")
    config = text(corpus, "filters.drop_held_out=true", "sizes.vocabulary=40")
    filters = components.make(config, "filters")
    for splits in both(config):
        train = filters.text(splits.train) if splits.train.store is None else splits.train
        leaked = [(train.source[i], train.target[i]) for i in (0, len(train) // 2)]
        test = Pairs([f" {s}" for s, _ in leaked], [f"{t} " for _, t in leaked], "test")
        tokenizer = Recording(components.make(config, "tokenizer"))
        splits = replace(splits, test=test)
        data = prepare(splits, filters, tokenizer)
        held_out = {*leaked, *zip(splits.validation.source, splits.validation.target, strict=True)}
        expected = {*zip(train.source, train.target, strict=True)} - held_out
        pairs = data.splits.train
        assert {(pairs.source[i], pairs.target[i]) for i in data.kept} == expected
        assert tokenizer.pairs == expected
        assert "held out)" in caplog.text
        assert held_out_in_training(splits, are_dropped=True) == {"validation": 0, "test": 0}


def test_every_kind_of_file_is_stored(corpus, tmp_path):
    import pyarrow
    import pyarrow.parquet

    lines = {
        side: (corpus / f"train.{side}").read_text(encoding="utf-8").splitlines()
        for side in ("en", "de")
    }
    pairs = list(zip(lines["en"], lines["de"], strict=True))
    wanted = [pair for pair in pairs if all(map(str.strip, pair))]
    (tmp_path / "t.tsv").write_text(
        "en\tde\n" + "".join(f"{s}\t{t}\n" for s, t in pairs), encoding="utf-8"
    )
    (tmp_path / "t.csv").write_text(
        "en,de\n" + "".join(f'"{s}","{t}"\n' for s, t in pairs), encoding="utf-8"
    )
    (tmp_path / "t.jsonl").write_text(
        "".join(json.dumps({"en": s, "de": t}) + "\n" for s, t in pairs)
    )
    pyarrow.parquet.write_table(pyarrow.table(lines), tmp_path / "t.parquet")
    for kind in ("tsv", "csv", "jsonl", "parquet"):
        config = compose("experiment=null", f"data={kind}", f"data.train={tmp_path}/t.{kind}", f"data.validation={tmp_path}/t.{kind}@:9",
                         "data.source=en", "data.target=de", "store=disk")  # fmt: skip
        result = loaded(config, Filters()).train
        assert result.store is not None
        assert [*zip(result.source, result.target, strict=True)] == wanted, kind
    with (
        gzip.open(tmp_path / "z.en.gz", "wt", encoding="utf-8") as a,
        gzip.open(tmp_path / "z.de.gz", "wt", encoding="utf-8") as b,
    ):
        a.write("\n".join(lines["en"]) + "\n")
        b.write("\n".join(lines["de"]) + "\n")
    stream = TextFiles(train="", validation="x", source="en", target="de").stream(
        f"{tmp_path}/z", False
    )
    assert list(store.stored(stream, True, "disk", Filters()).source) == [
        pair[0] for pair in wanted
    ]


def test_only_large_text_is_stored_by_default(corpus, cache, monkeypatch):
    stream = TextFiles(train="", validation="x", source="en", target="de").stream(
        f"{corpus}/train", False
    )

    def on_disk(where):
        return store.stored(stream, True, where, Filters()).store is not None

    assert [on_disk(where) for where in ("auto", "memory", "disk")] == [False, False, True]
    monkeypatch.setattr(store, "AUTO", stream.size - 1)
    assert [on_disk(where) for where in ("auto", "memory", "disk")] == [True, False, True]


@pytest.mark.parametrize("part", ["@100:900", "@-50:", "@10%:60%"])
def test_parts_of_files_are_stored_too(corpus, part):
    memory, disk = both(text(corpus, f"data.train={corpus}/train{part}"))
    assert list(disk.train.source) == list(Filters().text(memory.train).source)


def test_a_share_for_validation_is_the_same(corpus):
    config = text(corpus, "data.split=0.1", "data.validation=null")
    memory, disk = both(config)
    assert list(disk.train.target) == list(Filters().text(memory.train).target)
    for part in ("validation", "test"):
        for side in ("source", "target"):
            lines = [*getattr(getattr(memory, part), side)]
            assert [*getattr(getattr(disk, part), side)] == lines


QUICK = [
    "tokenizer=word", "sizes.vocabulary=30", "sizes.encoder=4", "sizes.decoder=8", "sizes.readout=6", "model.embedding_size=6",
    "trainer.max_updates=6", "batching.sentences=16", "search=greedy", "translation.max_length_offset=2", "decoder=luong",
    "attention=general", "max_validation=2", "metric=loss",
]  # fmt: skip


def test_a_run_from_disk_is_the_run_from_memory(corpus, tmp_path):
    """With links, a random segmentation and batches made ahead by another process."""
    data = [f"data.train={corpus}/train@:900", f"data.validation={corpus}/val", "data.source=en", "data.target=de", "data=text",
            "data.alignment=links", "objective.guided_alignment=0.5"]  # fmt: skip
    more = ["tokenizer=bpe", "tokenizer.sampling=0.3", "sizes.vocabulary=60"]
    quick = [text for text in QUICK if not text.startswith(("tokenizer", "sizes.vocab"))]
    for choice in ([*QUICK], [*quick, *more]):
        weights = []
        for wanted in ("memory", "disk"):
            run = trained(tmp_path / f"{wanted}{len(choice)}", *data, *choice, f"store={wanted}")
            weights.append(ckpt.read(run / ckpt.LAST).part("model"))
        for name in weights[0]:
            assert (weights[0][name] == weights[1][name]).all(), name


def killed_at(action, when):
    """Runs an action in a process that dies by SIGKILL after the `when`-th chunk; its exit status."""
    pid = os.fork()
    if pid == 0:
        calls = [0]
        original = store.append_columns

        def written(*arguments):
            original(*arguments)
            calls[0] += 1
            if calls[0] == when:
                os.kill(os.getpid(), signal.SIGKILL)

        store.append_columns = written
        try:
            action()
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1]


@pytest.mark.exhaustive
def test_killed_anywhere_nothing_half_is_used(corpus, cache, monkeypatch):
    """The files are those of a work that was never interrupted; a complete folder is not made again."""
    config = text(
        corpus,
        "filters.drop_duplicates=true",
        "store=disk",
        "tokenizer=word",
        "sizes.vocabulary=30",
    )

    def made():
        splits = loaded(config, components.make(config, "filters"))
        return prepare(
            splits, components.make(config, "filters"), components.make(config, "tokenizer")
        )

    def files():
        return {
            str(path.relative_to(cache)): path.read_bytes()
            for path in sorted(cache.rglob("*"))
            if path.is_file() and not path.name.endswith(".lock")
        }

    made()
    truth = files()
    assert any(name.endswith("/complete.json") for name in truth)
    killed = 0
    for when in range(1, 5):
        shutil.rmtree(cache)
        killed += killed_at(made, when) == signal.SIGKILL
        data = made()
        assert files() == truth, when
    assert killed == 4
    chunks = []
    monkeypatch.setattr(store, "_ids_chunk", lambda *rest: chunks.append(1))
    assert np.array_equal(made().train.target.ids, data.train.target.ids)
    assert not chunks


@pytest.mark.exhaustive
def test_two_runs_do_the_work_once(corpus, cache, caplog, monkeypatch):
    caplog.set_level("INFO", "nmt")
    monkeypatch.setattr(lock, "SILENT_ATTEMPTS", 1)
    config, result = text(corpus, "store=disk"), []
    threads = [
        threading.Thread(target=lambda: result.append(loaded(config, Filters()).train))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({pairs.store for pairs in result}) == 1
    assert len([*cache.iterdir()]) == 1
    assert "waiting for another process that is writing to it" in caplog.text


def test_a_damaged_store_is_named(corpus, cache):
    config = text(corpus, "store=disk")
    home = loaded(config, Filters()).train.store
    data = bytearray((home / "source.text").read_bytes())
    data[len(data) // 2] ^= 1
    (home / "source.text").write_bytes(data)
    with pytest.raises(UserError, match=r"source\.text: damaged.*remove the folder"):
        loaded(config, Filters())
    for damaged in ("{", '{"counts": {}}'):  # as a power cut may leave it: it is made again
        (home / "complete.json").write_text(damaged)
        assert len(loaded(config, Filters()).train)


def test_a_cache_that_cannot_be_written_is_named_with_its_remedy(corpus, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(UserError, match="cannot be written .* Set NMT_CACHE to a writable folder"):
        loaded(text(corpus, "store=disk"), Filters())


@pytest.mark.parametrize("key", ["filters.max_symbols=0.5", "filters.drop_identical=true"])
def test_filters_of_words_are_refused_for_lines_with_other_columns(key):
    columns = [
        "data=text",
        "data.train=t",
        "data.validation=v",
        "data.source=[a,b]",
        "data.target=c",
    ]
    settings = configure("train", [*columns, key, "encoder=unidirectional"])
    with pytest.raises(UserError, match=f"{key}: supports only source lines of one text"):
        check_new_training(settings)


def test_a_length_ratio_needs_a_single_source():
    columns = ["data=text", "data.train=t", "data.validation=v", "data.target=c"]
    check_new_training(configure("train", [*columns, "filters.max_ratio=2", "data.source=a"]))
    several = [*columns, "data.source=[a,b]", "encoder=unidirectional", "filters.max_ratio=2"]
    with pytest.raises(UserError, match="supports only one source text"):
        check_new_training(configure("train", several))


def test_a_full_disk_is_one_message(corpus, cache, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "append_columns", full)
    with pytest.raises(
        UserError,
        match=r"cannot be written \(No space left on device\). Free some space, or set NMT_CACHE",
    ):
        loaded(text(corpus, "store=disk"), Filters())
    assert not [*cache.iterdir()]  # the space is free again


def test_what_is_wrong_in_a_file_is_named_by_its_line(corpus, tmp_path):
    lines = (corpus / "train.en").read_bytes().split(b"\n")
    lines[CHUNK + 4] = b"K\xf6ln"
    (tmp_path / "bad.en").write_bytes(b"\n".join(lines))
    (tmp_path / "bad.de").write_bytes((corpus / "train.de").read_bytes())
    for wanted in ("memory", "disk"):
        with pytest.raises(UserError, match=rf"bad\.en, line {CHUNK + 5:,}: invalid UTF-8"):
            loaded(text(corpus, f"data.train={tmp_path}/bad", f"store={wanted}"), Filters())
    (tmp_path / "bad.en").write_bytes((corpus / "train.en").read_bytes() + b"one more\n")
    with pytest.raises(UserError, match=rf"not aligned \({ROWS + 1:,} and {ROWS:,} lines\)"):
        loaded(text(corpus, f"data.train={tmp_path}/bad", "store=disk"), Filters())


def test_another_tokenizer_or_filter_is_another_store(corpus):
    first, again, other = (loaded(text(corpus, "store=disk", *more), components.make(text(corpus, *more), "filters")).train.store
                           for more in ([], [], ["filters.drop_identical=true"]))  # fmt: skip
    assert first == again != other


def test_text_reads_as_a_list(corpus):
    disk = both(text(corpus))[1].train.source
    lines = list(disk)
    assert disk[5] == lines[5]
    assert disk[-1] == lines[-1]
    assert disk[CHUNK - 2 : CHUNK + 2] == lines[CHUNK - 2 : CHUNK + 2]
    assert disk[10:2:-3] == lines[10:2:-3]
    with pytest.raises(IndexError):
        disk[len(lines)]


def test_a_tokenizer_is_trained_on_an_even_sample(caplog):
    caplog.set_level("INFO", "nmt")
    lines = [f"{'früh' if i < 5000 else 'spät'} {i % 9}" for i in range(10_000)]
    SentencePiece(model="char", sample=20_000).train(lines, lines)
    [share] = {
        record.args[0]
        for record in caplog.records
        if "training on a random sample" in record.message
    }
    assert share == pytest.approx(100 * 10_000 / 60_000)
    whole = SentencePiece(model="word", vocabulary_size=50, sample=200_000).train(lines, lines)
    part = SentencePiece(model="word", vocabulary_size=50, sample=60_000).train(lines, lines)
    assert {*whole.source_pieces([*range(whole.source_size)])} == {
        *part.source_pieces([*range(part.source_size)])
    }


def test_noise_is_what_has_few_letters():
    assert symbols("abc") == 0
    assert symbols("12 3!") == 1
    assert symbols("ab 1 2") == 0.5
    assert symbols("नमस्ते") == 0  # marks belong to their letters
    assert symbols("می\u200cخواهم کتاب\u200cها را") == 0  # as do zero width joiners
    pairs = Pairs(["12 - 3", "a man", "same", "x 1"], ["eins", "ein Mann", "same", "y 1"], "text")
    kept = Filters(drop_identical=True, max_symbols=0.6).text(pairs)
    assert list(kept.source) == ["a man", "x 1"]
    kept = Filters(max_symbols=0.5).text(pairs)  # of "x 1", a half is no letter
    assert list(kept.source) == ["a man", "same", "x 1"]


def test_batches_are_planned_by_the_usual_segmentation(corpus):
    """With a random one, batches hold the same sentences; a batch depends on seed and epoch alone."""
    config = text(corpus, "tokenizer=bpe", "sizes.vocabulary=80")
    splits = in_memory_splits(config)
    plain = prepare(splits, Filters(), components.make(config, "tokenizer"))
    drawn = prepare(splits, Filters(), replace(plain.tokenizer, sampling=0.4))
    batching = components.make(config, "batching")
    a, b, c = (EpochBatches(drawn, batching, 1, epoch) for epoch in (0, 0, 1))
    assert all(
        (x == y).all()
        for x, y in zip(EpochBatches(plain, batching, 1, 0).indices, a.indices, strict=True)
    )
    assert all((a[i].source == b[i].source).all() for i in (3, 1, 2))
    assert not any(
        a[i].source.shape == c[i].source.shape and (a[i].source == c[i].source).all()
        for i in range(5)
    )
    ahead = EpochBatches(drawn, batching, 1, 0, ahead=2)
    for mine, theirs in zip(a.read([4, 0, 9]), ahead.read([4, 0, 9]), strict=True):
        assert (mine.source == theirs.source).all()


def in_memory_splits(config):
    return components.make(config, "data").load(
        lambda stream, training: in_memory(stream.sliced(""), training)
    )


def test_a_damaged_tokenizer_is_named_and_only_one_trains_it(tmp_path):
    """One byte in the middle of a model that stored text shares."""
    lines = [f"{'ab' * (k % 7 + 1)} {'cd' * (k % 5)} {k}" for k in range(200)]
    untrained = SentencePiece(vocabulary_size=40)
    first = train_once(untrained, lines, lines, ALONE, tmp_path)
    assert train_once(untrained, lines, lines, ALONE, tmp_path).models == first.models
    [file] = tmp_path.glob("tokenizers/*.model/sentencepiece")
    stored = bytearray(file.read_bytes())
    stored[len(stored) // 2] ^= 1
    file.write_bytes(stored)
    with pytest.raises(UserError, match=r"sentencepiece: damaged.*remove the folder"):
        train_once(untrained, lines, lines, ALONE, tmp_path)


def test_a_killed_worker_process_is_one_message(corpus, cache, monkeypatch):
    parent = os.getpid()

    def dies(self, *_):
        assert os.getpid() != parent
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(Filters, "sift", dies)
    with pytest.raises(UserError, match="a worker process was killed, possibly for lack of memory"):
        loaded(text(corpus, "store=disk"), Filters())
    assert not [*cache.iterdir()]


def test_further_validation_sets_are_never_taken_for_other_sets(tmp_path):
    """A further validation set may be in a file named test or validation."""
    names = {"train": 40, "val": 5, "test": 6, "other/validation": 7}
    for name, size in names.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        for side in ("en", "de"):
            lines = [f"{name} {side} {i}\n" for i in range(size)]
            with (tmp_path / f"{name}.{side}").open("a") as file, (tmp_path / f"train.{side}").open("a") as train:  # fmt: skip
                file.writelines(lines)
                train.writelines(lines * (name != "train"))
    further = f"[{tmp_path}/val,{tmp_path}/test,{tmp_path}/other/validation]"
    config = compose(
        "data=text", f"data.train={tmp_path}/train", f"data.validation={further}", "data.source=en", "data.target=de",
        "experiment=null",
    )  # fmt: skip
    splits = loaded(config, filters_of(config))
    assert len(overlap.training_rows(splits, Filters(drop_held_out=True))) == 40
    assert [len(part) for part in splits.more_validation.values()] == [6, 7]
