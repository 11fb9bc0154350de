"""Index of training sentences by the final state of the encoder. `nmt.index` creates the index, and
`nmt.serve` reads it to show similar sentences."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from nmt.data.lines import read_aligned
from nmt.foundation.errors import UserError
from nmt.foundation.progress import Progress
from nmt.inference.translator import Translator
from nmt.storage.files import write_atomically

log = logging.getLogger(__name__)
CHUNK = 200
"""Number of sentences that are encoded at a time while the index is created."""


@dataclass(frozen=True)
class Index:
    """Index of sentence pairs, searchable by similarity of the source sentences.

    vectors: [sentences, M] final states of the encoder, normalised to length 1
    sources: source sentences
    targets: translation of each source sentence
    model: SHA-256 hash of the encoder weights
    """

    vectors: np.ndarray
    sources: Sequence[str]
    targets: Sequence[str]
    model: str

    def nearest(self, vector: np.ndarray, count: int) -> list[tuple[int, float]]:
        """Returns the indexed sentences most similar to an encoder state. Equal sentences are
        returned once.

        vector: [M] final state of the encoder, normalised to length 1
        count: maximum number of sentences to return

        Each result is a sentence number and a cosine similarity, the most similar sentence first.
        """
        # Dot products of vectors of length 1 are cosines.
        cosines = self.vectors.astype(np.float32) @ vector  # [sentences]
        by_text: dict[str, tuple[int, float]] = {}
        for i in np.argsort(-cosines, kind="stable").tolist():
            by_text.setdefault(self.sources[i], (i, float(cosines[i])))
            if len(by_text) == count:
                break
        return list(by_text.values())

    def write(self, file: Path) -> None:
        """Writes the index to a safetensors file. Sentences are stored as UTF-8 bytes, separated by
        newlines."""
        columns = {
            "vectors": self.vectors,
            "sources": np.frombuffer("\n".join(self.sources).encode(), np.uint8),
            "targets": np.frombuffer("\n".join(self.targets).encode(), np.uint8),
        }
        write_atomically(file, save(columns, {"nmt_index": self.model}))


def summaries(translator: Translator, lines: Sequence[str]) -> np.ndarray:
    """Returns the final encoder state of each line as an array [lines, M], normalised to length
    1."""
    with torch.inference_mode(), translator.networks.generating():
        [memory, *_] = translator.networks.memories(translator.encode(lines))
        states = memory.encoded.final_state.float()  # [lines, M]
    return torch.nn.functional.normalize(states, dim=-1).cpu().numpy()


def read_index(file: Path) -> Index:
    """Reads an index file. Raises UserError if the file is not a valid index."""
    try:
        with safe_open(str(file), "np") as opened:
            model = (opened.metadata() or {})["nmt_index"]
            vectors = opened.get_tensor("vectors")
            sources, targets = (
                opened.get_tensor(name).tobytes().decode().split("\n")
                for name in ("sources", "targets")
            )
    except (OSError, SafetensorError, KeyError, UnicodeDecodeError, ValueError) as error:
        raise UserError(f"index={file}: not an index written by nmt.index ({error})") from error
    if vectors.ndim != 2 or len(vectors) != len(sources) or len(sources) != len(targets):
        raise UserError(
            f"index={file}: damaged (inconsistent sizes); create the index again with nmt.index"
        )
    return Index(vectors, sources, targets, model)


def index_files(
    load: Callable[[], Translator], *, model: str, source: str, target: str, output: str
) -> None:
    """Writes the index of two aligned files.

    load: function that returns the translator
    model: path of the model, quoted in messages
    source, target: aligned files with one sentence per line
    output: path of the index file to write

    Empty source sentences have no encoder state and are left out.

    Raises UserError if the files are not aligned, all source sentences are empty, or the model does
    not read plain text.
    """
    sources, targets = read_aligned(source, target)
    translator = load()
    columns = translator.tokenizer.columns
    if not columns.plain:
        raise UserError(
            f"model={model}: the model reads {columns.described}; an index needs plain text"
        )
    pairs = [pair for pair in zip(sources, targets, strict=True) if pair[0].strip()]
    if not pairs:
        raise UserError("source: all lines are empty; give a file with one sentence per line")
    sources, targets = map(list, zip(*pairs, strict=True))
    vectors = []
    with Progress("reading", len(sources), "sentences") as step:
        for start in range(0, len(sources), CHUNK):
            chunk = summaries(translator, sources[start : start + CHUNK])
            vectors.append(chunk.astype(np.float16))  # [chunk, M]
            step(len(chunk))
    Index(np.concatenate(vectors), sources, targets, translator.encoder_hash).write(Path(output))
    log.info("%s: wrote the index of %s sentences", output, f"{len(sources):,}")
