"""Sentences that a model reads alike: an index of training text by the encoder's summaries, searched exactly."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from nmt.foundation.errors import UserError
from nmt.foundation.progress import Progress
from nmt.inference.translator import Translator
from nmt.model.encoder import Encoder
from nmt.storage.files import write_atomically

CHUNK = 200
"""Sentences encoded at a time."""


@dataclass(frozen=True)
class Index:
    """`vectors` [n M] of length 1: what the encoder makes of each of `sources`; `targets`: their translations; `model`: a
    hash of the weights that made them."""

    vectors: np.ndarray
    sources: Sequence[str]
    targets: Sequence[str]
    model: str

    def nearest(self, vector: np.ndarray, count: int) -> list[tuple[int, float]]:
        """The sentences with the most similar vectors, and their cosine, best first; each text once."""
        values, found, seen = (
            self.vectors.astype(np.float32) @ vector,
            list[tuple[int, float]](),
            set[str](),
        )
        for i in np.argsort(-values, kind="stable").tolist():
            if self.sources[i] not in seen:
                seen.add(self.sources[i])
                found.append((i, float(values[i])))
            if len(found) == count:
                break
        return found

    def write(self, file: Path) -> None:
        texts = {
            name: np.frombuffer("\n".join(lines).encode(), np.uint8)
            for name, lines in (("sources", self.sources), ("targets", self.targets))
        }
        write_atomically(file, save({"vectors": self.vectors, **texts}, {"nmt_index": self.model}))


def make_index(translator: Translator, sources: Sequence[str], targets: Sequence[str]) -> Index:
    """The index of aligned sentences; those without words are left out. Raises UserError if none is left."""
    kept = [i for i, source in enumerate(sources) if source.strip()]
    if not kept:
        raise UserError("source: there are no sentences in it")
    parts = []
    with Progress("reading", len(kept), "sentences") as step:
        for start in range(0, len(kept), CHUNK):
            parts.append(
                summaries(translator, [sources[i] for i in kept[start : start + CHUNK]]).astype(
                    np.float16
                )
            )
            step(len(parts[-1]))
    vectors = np.concatenate(parts)
    return Index(vectors, [sources[i] for i in kept], [targets[i] for i in kept], mark(translator))


def summaries(translator: Translator, lines: Sequence[str]) -> np.ndarray:
    """[lines M] what the encoder makes of each line as a whole, of length 1."""
    with torch.inference_mode(), translator.networks.generating():
        found = translator.networks.memories(translator.encode(lines))[0].encoded.final_state.float()
    return torch.nn.functional.normalize(found, dim=-1).cpu().numpy()


_MARKS: weakref.WeakKeyDictionary[Encoder, str] = weakref.WeakKeyDictionary()


def mark(translator: Translator) -> str:
    """A hash of the weights of the encoder, which do not change while a translator is in use."""
    encoder = translator.models[0].encoder
    if encoder not in _MARKS:
        digest = hashlib.sha256()
        for name, weight in sorted(encoder.state_dict().items()):
            digest.update(name.encode() + weight.detach().cpu().contiguous().numpy().tobytes())
        _MARKS[encoder] = digest.hexdigest()
    return _MARKS[encoder]


def read_index(file: Path) -> Index:
    """Raises UserError if it is none."""
    try:
        with safe_open(str(file), "np") as opened:
            model = (opened.metadata() or {})["nmt_index"]
            vectors = opened.get_tensor("vectors")
            sources, targets = (
                opened.get_tensor(name).tobytes().decode().split("\n")
                for name in ("sources", "targets")
            )
    except (OSError, SafetensorError, KeyError, UnicodeDecodeError, ValueError) as error:
        raise UserError(f"index={file}: not an index of nmt.index ({error})") from error
    if vectors.ndim != 2 or len(vectors) != len(sources) or len(sources) != len(targets):
        raise UserError(f"index={file}: its parts do not fit together; make it again by nmt.index")
    return Index(vectors, sources, targets, model)
