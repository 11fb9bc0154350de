"""Output of work that several processes share, or that is kept in parts.

The chunks of the input are divided into blocks. A rank takes the next block that no rank has taken,
and writes its output to a part of its own, which is complete or absent. The first rank joins the
parts in order. Work that was killed continues with the blocks that have no part.
"""

import contextlib
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from nmt.foundation.errors import UserError
from nmt.foundation.ranks import Ranks
from nmt.inference.input_lines import CHUNK
from nmt.inference.output_sinks import (
    DELETE_IT,
    OnFailure,
    StreamSink,
    differences,
    open_sink,
)
from nmt.storage.files import write_atomically
from nmt.storage.lock import Lock

Chunk = TypeVar("Chunk")
BLOCKS = 100
"""Blocks of an input, if they are not too large: enough for ranks of different speed."""
MOST_CHUNKS = 10
"""Chunks of a block, at most: a minute or two of work, which a kill undoes."""
MANIFEST = "manifest.json"
"""File that describes the work of a folder of parts."""


def in_parts(ranks: Ranks, output: str | None) -> bool:
    """Whether no process has the output of all lines."""
    return ranks.several or str(output).endswith("/")


def sink_of(
    ranks: Ranks,
    output: str | None,
    line_count: int,
    work: Mapping[str, str],
    resume: bool = False,
    on_failure: OnFailure = "delete",
) -> contextlib.AbstractContextManager[StreamSink]:
    """The destination of output lines: one of parts with several ranks, or if a folder is named.

    ranks: all processes of the work
    output: a file, a pipe or a device, or a folder for parts, with / at the end (None: stdout)
    line_count: lines of the input
    work, resume, on_failure: as of `open_sink`

    Raises UserError as `open_sink`, and if ranks have other work or cannot share this one.
    """
    if not in_parts(ranks, output):
        return open_sink(output, work=work, resume=resume, on_failure=on_failure)
    if output is None:
        raise UserError(
            "output=stdout: several processes need files; give output=FILE, or output=FOLDER/ for "
            "the parts"
        )
    return _shared(ranks, output, line_count, work)


class PartsSink(StreamSink):
    """Writes the output of each block of input chunks to a part.

    folder: folder of the parts
    chunk_count: chunks of the input
    block_size: chunks of a block
    ranks: all processes of the work
    """

    def __init__(self, folder: Path, chunk_count: int, block_size: int, ranks: Ranks) -> None:
        self._ranks = ranks
        self._block_size = block_size
        self._lines: list[str] = []
        numbers = range(math.ceil(chunk_count / block_size))
        self.parts = [folder / f"part-{number:05}" for number in numbers]
        # The view of one rank, because others may write already.
        self._missing = ranks.of_first([n for n in numbers if not self.parts[n].exists()])

    def own(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        chunks = iter(chunks)
        position = 0
        for block in self._ranks.claimed(self._missing):
            first = block * self._block_size - position
            yield from itertools.islice(chunks, first, first + self._block_size)
            position = (block + 1) * self._block_size
            self._save(self.parts[block])

    def write(self, lines: Sequence[str], input_lines: int | None = None) -> None:
        self._lines += lines

    def _save(self, part: Path) -> None:
        """Writes the part of a block, after the sums of its lines."""
        if self.sums:
            write_atomically(part.with_suffix(".json"), json.dumps(self.sums).encode())
        text = "".join(f"{line}\n" for line in self._lines)
        write_atomically(part, text.encode("utf-8", "replace"))
        self._lines = []
        self.sums = []  # those of the next block


@contextlib.contextmanager
def _shared(
    ranks: Ranks, output: str, line_count: int, work: Mapping[str, str]
) -> Iterator[StreamSink]:
    """A sink of parts, which are joined in the end unless `output` is a folder.

    A UserError of one rank ends the work of all after their current blocks.
    """
    ranks.agree("work", dict(work), "give all the same model, files and settings")
    chunk_count = math.ceil(line_count / CHUNK)
    block_size = max(1, min(MOST_CHUNKS, math.ceil(chunk_count / BLOCKS)))
    keeps_parts = output.endswith("/")
    folder = Path(output if keeps_parts else f"{output}.parts")
    with contextlib.ExitStack() as stack:
        whole = None
        problem = ""
        if ranks.first:
            try:
                if not keeps_parts:
                    whole = stack.enter_context(open_sink(output, work=work))
                _claim_folder(folder, {**work, "lines per part": str(block_size * CHUNK)})
                stack.enter_context(Lock(folder / ".lock", f"output={output}"))
            except UserError as error:
                problem = str(error)
        if problem := ranks.of_first(problem):
            raise UserError(problem)
        sink = PartsSink(folder, chunk_count, block_size, ranks)
        try:
            yield sink
        except UserError as error:
            ranks.end_claims()
            ranks.gather(str(error))
            raise
        for number, error_text in enumerate(ranks.gather("")):
            if error_text:
                raise UserError(f"rank {number}: {error_text}")
        if ranks.first:
            sink.sums = _summed(sink.parts, folder)
        sink.sums = ranks.of_first(sink.sums)
        if whole is not None:
            for part in sink.parts:
                whole.copy(part)
    if whole is not None:
        # The manifest last: without it, parts are of unknown origin.
        for file in sorted(folder.glob("part-*")):
            file.unlink()
        (folder / MANIFEST).unlink()
        folder.rmdir()


def _claim_folder(folder: Path, work: Mapping[str, str]) -> None:
    """Makes a folder of parts and its manifest.

    Raises UserError if that fails, or if the folder has parts of other work or other content.
    """
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made ({error.strerror})") from error
    manifest = folder / MANIFEST
    if not manifest.exists():
        if names := [file.name for file in folder.glob("[!.]*")]:
            raise UserError(
                f"{folder}: contains {min(names)}, not parts of this output. {DELETE_IT}"
            )
        write_atomically(manifest, json.dumps(work, indent=1).encode())
        return
    try:
        others = differences(json.loads(manifest.read_text(encoding="utf-8")), work)
    except (OSError, ValueError, TypeError, AttributeError):
        others = ["origin unknown"]
    if others:
        raise UserError(f"{folder}: parts of other work (other {', '.join(others)}). {DELETE_IT}")


def _summed(parts: Sequence[Path], folder: Path) -> list[float]:
    """Sums of the figures of all parts. Raises UserError if a part is not there."""
    if absent := [part for part in parts if not part.exists()]:
        raise UserError(f"{absent[0]}: not found; all machines must see the same folder {folder}")
    figures = [part.with_suffix(".json") for part in parts]
    rows = [json.loads(file.read_text(encoding="utf-8")) for file in figures if file.exists()]
    return [sum(column) for column in zip(*rows, strict=True)]
