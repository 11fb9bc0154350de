"""Output that several processes write together as part files, which are joined or kept as parts.

The input chunks are divided into blocks. Each process (rank) takes the next free block and writes
its output to a separate part file. Every part file is complete. The first rank joins the part
files in order. Interrupted work resumes with the blocks that have no part file.
"""

import contextlib
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
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
"""Number of blocks into which a small input is divided, enough to balance ranks of different
speed."""
MOST_CHUNKS = 10
"""Maximum number of chunks in a block, about two minutes of work. If a rank is killed, the work on
its block is lost.
"""
MANIFEST = "manifest.json"
"""Name of the manifest in a folder of part files, which describes the work: models, inputs and
settings."""


def in_parts(ranks: Ranks, output: str | None) -> bool:
    """Returns whether the output is written as part files.

    This is the case for several ranks, for an output folder, and for an output file that several
    ranks have begun.
    """
    return ranks.several or str(output).endswith("/") or Path(f"{output}.parts").is_dir()


def sink_of(
    ranks: Ranks,
    output: str | None,
    line_count: int,
    work: Mapping[str, str],
    resume: bool = False,
    on_failure: OnFailure = "delete",
) -> contextlib.AbstractContextManager[StreamSink]:
    """Returns the sink of output lines: part files for several ranks or an output folder, otherwise
    a single file or stream.

    ranks: processes (ranks) that share the work
    output: path of a file, pipe or device, or of a folder for part files, which ends with /; None
        writes to stdout
    line_count: number of input lines
    work: names and hashes of everything that the output depends on
    resume: whether to continue an interrupted output file
    on_failure: treatment of an incomplete output file, as in `open_sink`

    Raises the UserErrors of `open_sink`, and UserError if the ranks have different work or share
    stdout as output.
    """
    if not in_parts(ranks, output):
        return open_sink(output, work=work, resume=resume, on_failure=on_failure)
    if output is None:
        raise UserError(
            "output=stdout: several processes cannot write to stdout; give output=FILE, or "
            "output=FOLDER/ to keep the parts"
        )
    return _shared(ranks, output, line_count, work)


class PartsSink(StreamSink):
    """Sink that writes the output of each block of input chunks to a part file.

    folder: folder of the part files
    chunk_count: number of chunks in the input
    block_size: number of chunks in a block
    ranks: processes (ranks) that share the work
    """

    def __init__(self, folder: Path, chunk_count: int, block_size: int, ranks: Ranks) -> None:
        self._ranks = ranks
        self._block_size = block_size
        self._lines: list[str] = []
        numbers = range(math.ceil(chunk_count / block_size))
        self.parts = [folder / f"part-{number:05}" for number in numbers]
        # The first rank lists missing parts for all ranks: some ranks may already write.
        self._missing = ranks.of_first([n for n in numbers if not self.parts[n].exists()])

    def own(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        chunks = iter(chunks)
        position = 0
        for block in self._ranks.claimed(self._missing):
            first = block * self._block_size - position
            yield from itertools.islice(chunks, first, first + self._block_size)
            position = (block + 1) * self._block_size  # chunks that are read or skipped
            # The caller has written all chunks of the block when it asks for the next one.
            self._save(self.parts[block])

    def write(self, lines: Sequence[str], input_lines: int | None = None) -> None:
        self._lines += lines

    def _save(self, part: Path) -> None:
        """Writes the part file of a block, after a file with the sums of the block."""
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
    """Yields a sink of part files, and joins the files at the end unless `output` is a folder.

    After a UserError, each rank stops when its current block is finished.
    """
    ranks.agree("work", dict(work), "give all processes the same model, files and settings")
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
                stack.push(partial(_leave, folder))
                stack.enter_context(Lock(folder / ".lock", f"output={output}"))
            except UserError as error:
                problem = str(error)
        # All ranks raise the problem of the first one, so that no rank waits for it.
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
        # The manifest is deleted last, because parts without a manifest are of unknown origin.
        for file in sorted(folder.glob("part-*")):
            file.unlink()
        (folder / MANIFEST).unlink()
        folder.rmdir()


def _leave(folder: Path, error: type[BaseException] | None, *_: object) -> None:
    """Removes the folder of part files if an error has ended the work before the first part."""
    if error is not None and issubclass(error, UserError) and not list(folder.glob("part-*")):
        (folder / MANIFEST).unlink()
        with contextlib.suppress(OSError):  # the folder contains other files
            folder.rmdir()


def _claim_folder(folder: Path, work: Mapping[str, str]) -> None:
    """Creates a folder for part files, with its manifest.

    Raises UserError if the folder cannot be created, or contains other files or parts of other
    work.
    """
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be created ({error.strerror})") from error
    manifest = folder / MANIFEST
    if not manifest.exists():
        if names := [file.name for file in folder.glob("[!.]*")]:
            raise UserError(
                f"{folder}: contains {min(names)}, which is not a part of this output. {DELETE_IT}"
            )
        write_atomically(manifest, json.dumps(work, indent=1).encode())
        return
    try:
        others = differences(json.loads(manifest.read_text(encoding="utf-8")), work)
    except (OSError, ValueError, TypeError, AttributeError):
        others = ["unknown origin"]
    if others:
        raise UserError(
            f"{folder}: contains parts of other work ({', '.join(others)}). {DELETE_IT}"
        )


def _summed(parts: Sequence[Path], folder: Path) -> list[float]:
    """Returns the sums over all part files. Raises UserError if a part file is missing."""
    if absent := [part for part in parts if not part.exists()]:
        raise UserError(f"{absent[0]}: not found; all machines must share the folder {folder}")
    figures = [part.with_suffix(".json") for part in parts]
    rows = [json.loads(file.read_text(encoding="utf-8")) for file in figures if file.exists()]
    return [sum(column) for column in zip(*rows, strict=True)]
