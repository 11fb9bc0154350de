"""Two aligned text files, one sentence per line (`train.en`, `train.de`), plain or compressed; and how text files are
read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nmt.data import Pairs, Splits, as_list, check_columns, check_values, join_columns
from nmt.data.lines import check_aligned, find_file, stream_chunks
from nmt.data.links import check_links
from nmt.data.split import cut
from nmt.data.stream import Keep, Stream, in_memory, read_parts
from nmt.foundation.ranges import Share


class TextFiles:
    """`{train,validation,test}.{source,target}`: the parts are given as path prefixes, the languages as suffixes.

    `{prefix}.{suffix}.gz` (.xz, .bz2, .zst) is read where `{prefix}.{suffix}` does not exist. `split`: a share of the
    training part for validation, and as much for the test, instead of parts of their own (see split.py). `validation` may
    be several prefixes: the first chooses the best checkpoint. `source` may be several languages. `factors`: suffixes of
    files with a value for each word of the source; `alignment`: suffix of a file with the links of each training pair.
    `{prefix}@START:STOP` takes some of the lines. Raises ValueError if these contradict each other.
    """

    def __init__(
        self,
        *,
        train: str,
        validation: str | list[str] | None = None,
        test: str | None = None,
        split: Share = 0.0,
        source: str | list[str],
        target: str,
        factors: list[str] | None = None,
        alignment: str | None = None,
    ) -> None:
        check_columns(source, validation, test, split, factors)
        self.train, self.validation, self.test, self.split = (
            train,
            as_list(validation or []),
            test,
            split,
        )
        self.source, self.target = as_list(source), target
        self.factors, self.alignment = factors or [], alignment

    def load(self, keep: Keep = in_memory) -> Splits:
        train, validation, test, beside = read_parts(
            self.stream, keep, self.train, self.validation, self.test, self.split
        )
        return Splits(
            train=train,
            validation=validation,
            test=test,
            languages=("+".join(self.source), self.target),
            more_validation=beside,
            sources=len(self.source),
            factors=self.factors,
        )

    def stream(self, prefix: str, aligned: bool) -> Stream:
        """A part, by its prefix; with its links if `aligned`."""
        alignment, (prefix, slice_) = self.alignment if aligned else None, cut(prefix)
        suffixes = [*self.source, *self.factors, self.target, *filter(None, [alignment])]
        files = [find_file(f"{prefix}.{suffix}") for suffix in suffixes]
        texts = files[:-1] if alignment else files
        name = ", ".join([str(files[0]), *(file.name for file in texts[1:])])

        def read() -> Iterator[Pairs]:
            first = 1
            for columns in _side_by_side(files):
                for factor in range(1, 1 + len(self.factors)):
                    check_values(f"{files[factor]}, line", columns[0], columns[factor], first)
                links = columns.pop() if alignment else None
                pairs = Pairs(join_columns(columns[:-1]), columns[-1], name, links)
                if links is not None:
                    check_links(pairs, f"{files[-1]}, line", len(self.factors), first)
                yield pairs
                first += len(pairs)

        return Stream(name, read, files, f"text {len(self.source)} {len(self.factors)}").sliced(
            slice_
        )


def _side_by_side(files: list[Path]) -> Iterator[list[list[str]]]:
    """The lines of several files, chunk by chunk. Raises UserError if the files have not equally many."""
    opened, counts = [stream_chunks(file) for file in files], [0] * len(files)
    while True:
        chunk = [next(lines, []) for lines in opened]
        counts = [count + len(lines) for count, lines in zip(counts, chunk, strict=True)]
        if len(set(counts)) > 1:
            counts = [
                count + sum(map(len, rest)) for count, rest in zip(counts, opened, strict=True)
            ]
            for file, count in zip(files, counts, strict=True):
                check_aligned(files[0], counts[0], file, count)
        if not chunk[0]:
            return
        yield chunk
