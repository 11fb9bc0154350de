"""Aligned text files with one sentence per line, such as `train.en` and `train.de`."""

import glob
import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from nmt.data import Pairs, Splits, as_list
from nmt.data.lines import check_aligned, find_file, names_file, stream_chunks
from nmt.data.pair_columns import PairColumns, unread_links
from nmt.data.parts import Keep, PartNames, load_splits, parse_part
from nmt.data.streams import Stream, in_memory
from nmt.foundation.errors import UsageError
from nmt.foundation.ranges import Share

TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
"""Suffixes of tables, which other data sources read."""


class TextFiles:
    """Data source of aligned text files `{train,validation,test}.{source,target}`.

    A training, validation or test set is named by a path prefix, a language by a suffix. If
    `{prefix}.{suffix}` does not exist, the same name with .gz, .xz, .bz2 or .zst is read.

    train: prefix, {prefix}@START:STOP for some of the lines, or a list of files (sources, factors,
        target, alignment)
    validation: one or more validation sets; the first one selects the best checkpoint
    test: test set; None without a test set
    split: fraction of the training set for validation, and the same fraction for test, if these
        sets are not named
    source: source suffixes, one or more
    target: target suffix
    factors: suffixes of files with one value per source word
    alignment: suffix of a file with the word alignments of the training pairs

    Raises ValueError if the settings contradict each other.
    """

    def __init__(
        self,
        *,
        train: str | list[str],
        validation: str | list[str | list[str]] | None = None,
        test: str | list[str] | None = None,
        split: Share = 0.0,
        source: str | list[str],
        target: str,
        factors: list[str] | None = None,
        alignment: str | None = None,
    ) -> None:
        self.columns = PairColumns(as_list(source), target, factors or [], alignment)
        self.files: dict[str, list[str]] = {}
        several: list[Any] = [validation] if isinstance(validation, str) else validation or []
        if len(several) > 1 and all(isinstance(part, str) and names_file(part) for part in several):
            several = [several]  # a list of existing files is a single part
        self.parts = PartNames(
            self._named(train),
            [self._named(part) for part in several],
            None if test is None else self._named(test),
            split,
        )

    def _named(self, part: str | list[str]) -> str:
        """Returns the name of a training, validation or test set. An explicit list of files gets
        the name FILE + FILE + …, which is its key in `self.files`.

        part: path prefix, optionally with a slice; or an explicit list of files
        """
        if isinstance(part, str):
            return part
        name = " + ".join(part)
        self.files[name] = part
        return name

    conflicts = staticmethod(unread_links)

    def load(self, keep: Keep = in_memory) -> Splits:
        """Loads the training, validation and test sets as sentence pairs.

        Raises UserError if a data set cannot be used.
        """
        return load_splits(self.columns, self.parts, self.stream, keep)

    def training_stream(self) -> Stream[Pairs]:
        """Returns the training pairs without word alignments.

        Raises UsageError if a file is not found.
        """
        return self.stream(self.parts.train, aligned=False)

    def stream(self, part: str, aligned: bool) -> Stream[Pairs]:
        """Returns the sentence pairs of a training, validation or test set.

        part: path prefix, optionally with a slice; or the names of several files, joined by " + "
        aligned: whether word alignments are read
        """
        columns = self.columns if aligned else replace(self.columns, alignment=None)
        if part in self.files:
            slice_ = ""
            paths = self.files[part]
            names = self.columns.names if len(paths) == len(self.columns.names) else columns.names
            if any(Path(f"{path}.{names[0]}").is_file() for path in paths):
                raise UsageError(
                    f"{part}: a list names one file per language; to train on several corpora, "
                    "join their files, or use data=mix"
                )
            if len(paths) != len(names):
                raise UsageError(
                    f"{part}: the number of files is {len(paths)}, expected {len(names)} "
                    f"({', '.join(names)})"
                )
        else:
            prefix, slice_ = parse_part(part)
            names = columns.names
            file = Path(prefix)
            if file.is_file() and file.suffix[1:] in columns.names:
                raise UsageError(
                    f"{file}: give the name without the language extension, {file.with_suffix('')}"
                )
            if file.is_file() and file.suffix in TABLES and not Path(f"{file}.{names[0]}").exists():
                raise UsageError(f"{file}: is a table; set data={file.suffix[1:]} instead of text")
            if file.is_dir() and not list(file.parent.glob(f"{glob.escape(file.name)}.*")):
                raise UsageError(
                    f"{file}: is a folder; give its files without the language extension, such as "
                    f"{file / 'train'}"
                )
            paths = [f"{prefix}.{suffix}" for suffix in names]
        all_files = dict(zip(names, map(find_file, paths), strict=True))
        files = {suffix: all_files[suffix] for suffix in columns.names}
        first, *others = [file for suffix, file in files.items() if suffix != columns.alignment]
        # The name identifies the pairs in messages; the alignment file is left out.
        name = ", ".join([str(first), *(file.name for file in others)])
        return Stream(
            name=name,
            read=partial(_pairs, columns, files, name),
            files=[*files.values()],
            settings=f"text {len(columns.sources)} {len(columns.factors)}",
        ).sliced(slice_)


def _pairs(columns: PairColumns, files: dict[str, Path], name: str) -> Iterator[Pairs]:
    """Yields sentence pairs in chunks. Raises UserError if the files have different numbers of
    lines.
    """
    places = {suffix: f"{file}, line" for suffix, file in files.items()}
    streams = [stream_chunks(file) for file in files.values()]
    first = 1
    for chunks in itertools.zip_longest(*streams, fillvalue=[]):
        if len(set(map(len, chunks))) > 1:
            # Chunk lengths differ, so the remaining lines of all files are counted.
            counts = [
                first - 1 + len(chunk) + sum(map(len, rest))
                for chunk, rest in zip(chunks, streams, strict=True)
            ]
            for file, count in zip(files.values(), counts, strict=True):
                check_aligned(files[columns.sources[0]], counts[0], file, count)
        yield columns.pairs(dict(zip(files, chunks, strict=True)), name, places, first)
        first += len(chunks[0])
