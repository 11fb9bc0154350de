"""One file holds a model: weights as safetensors, everything else as JSON in its header. Nothing in it is ever executed.

    tensors    weights by parameter name; `tokenizer/…` SentencePiece models; in a resumable checkpoint also `ema/…` and
               `optimizer/…`
    header     format version, config, metrics, versions, and in a resumable checkpoint the state of the training

Files are written beside the old one and renamed over it, so that a crash or a full disk leaves the old one whole.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from nmt.foundation.errors import UserError
from nmt.foundation.extras import advice, installed
from nmt.storage.files import write_atomically
from nmt.storage.upgrade import upgraded
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.columns import Columns

FORMAT = 2
"""2: encoders are a package, nmt.model.encoder; a classifier's configuration holds only what trained it."""
_CHECKSUM = ', "checksum": '
"""How the checksum is written at the end of the header's JSON."""
BEST, LAST = "best.safetensors", "last.safetensors"
HUB = "hf:"


@dataclass(frozen=True)
class Checkpoint:
    """What was read: `meta` is the header's JSON, `tensors` by name."""

    meta: dict[str, Any]
    tensors: dict[str, Tensor]
    path: Path

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors under `prefix/`, without it."""
        return {
            name[len(prefix) + 1 :]: t
            for name, t in self.tensors.items()
            if name.startswith(prefix + "/")
        }


def write(path: Path, meta: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Atomically replaces `path`. Raises UserError if it cannot be written; the old file is untouched then."""
    held = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    text = json.dumps({"format": FORMAT, **meta}, ensure_ascii=False)
    signed = f"{text[:-1]}{_CHECKSUM}{_checksum(held, text)}}}"  # in one entry: the order of several is not fixed
    write_atomically(path, save(held, metadata={"nmt": signed}))


def find_checkpoint(model: str, key: str = "model") -> Path:
    """The checkpoint file that a setting names.

    model: a run directory (its best checkpoint, else its last), a file, or hf:USER/NAME[@REVISION], which is downloaded
        from the Hugging Face hub unless it is in the local cache.
    key: the setting, for error messages.

    Raises UserError if there is no checkpoint.
    """
    if model.startswith(HUB):
        return _downloaded(model, key)
    path = Path(model)
    if path.is_dir():
        for name in (BEST, LAST):
            if (path / name).is_file():
                return path / name
        raise UserError(
            f"{key}={model}: no {BEST} or {LAST} in this folder. Is it a run directory, and has it trained?"
        )
    if not path.is_file():
        raise UserError(
            f"{key}={model}: no such file or folder. Give a run directory or a .safetensors file"
        )
    return path


def _downloaded(model: str, key: str) -> Path:
    if not installed("huggingface_hub"):
        raise UserError(advice("huggingface_hub"))
    import huggingface_hub

    name, _, revision = model.removeprefix(HUB).partition("@")
    try:
        return Path(huggingface_hub.hf_hub_download(name, BEST, revision=revision or None))
    except (
        Exception
    ) as error:  # no network, no such model, not allowed: the hub has many errors of its own
        why = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise UserError(f"{key}={model}: cannot be had from the hub ({why})") from error


def read(path: Path) -> Checkpoint:
    """Raises UserError if the file is missing, truncated, damaged, not a checkpoint, or from a newer version of nmt.

    The file is opened once: whoever replaces it meanwhile disturbs nobody.
    """
    try:
        data = path.read_bytes()
        tensors = load(data)
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    except _UNREADABLE as error:
        raise UserError(f"{path}: not a readable checkpoint, or damaged ({error})") from error
    try:
        meta = json.loads(header["nmt"])
        version = int(meta["format"])
    except (KeyError, ValueError, TypeError, RecursionError):
        raise UserError(f"{path}: a safetensors file, but not one that nmt wrote") from None
    if version > FORMAT:
        raise UserError(
            f"{path}: written by a newer version of nmt (format {version}; this one reads up to {FORMAT}). Upgrade nmt"
        )
    if version < 2:
        whole = meta.get("checksum") in (None, _checksum_of_format_1(tensors))
    else:
        text, _, stated = header["nmt"].rpartition(_CHECKSUM)
        whole = stated == f"{_checksum(tensors, text + '}')}}}"
    if not whole:
        raise UserError(f"{path}: damaged: its content does not match its checksum")
    meta.pop("checksum", None)
    return Checkpoint(meta=upgraded(meta, version), tensors=tensors, path=path)


_UNREADABLE = (
    OSError, safetensors.SafetensorError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, OverflowError,
    RecursionError, MemoryError,
)  # fmt: skip
"""What damaged files do to their reader."""


def check_kind(checkpoint: Checkpoint, command: str) -> None:
    """Raises UserError unless the checkpoint was trained by this command (`train`: to translate, or `classify`)."""
    kind = str(checkpoint.meta.get("command", "train"))
    if kind != command:
        does = {
            "train": "translates; use nmt.train and nmt.translate",
            "classify": "classifies; use nmt.classify",
        }
        raise UserError(
            f"{checkpoint.path}: a model that {does.get(kind, f'is of another kind ({kind})')}"
        )


def _checksum(tensors: Mapping[str, Tensor], text: str) -> int:
    """CRC-32 of the header's text and of all tensors, with their names, types and shapes, in the order of the names."""
    value = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        tensor = tensors[name]
        value = zlib.crc32(
            f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode("utf-8", "surrogatepass"), value
        )
        value = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, value)
    return value


def _checksum_of_format_1(tensors: Mapping[str, Tensor]) -> int:
    value = 0
    for name in sorted(tensors):
        value = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, value)
    return value


def check_weights(model: nn.Module, saved: Mapping[str, Tensor], path: Path) -> None:
    """Raises UserError unless saved parameters have the names and shapes of the model's, and are numbers."""
    own = dict(model.named_parameters())
    wrong = sorted(set(own) ^ set(saved)) or [n for n in own if own[n].shape != saved[n].shape]
    if wrong:
        raise UserError(
            f"{path}: its weights do not fit its config ({', '.join(wrong[:3])} …); the file is damaged"
        )
    unusable = [name for name, tensor in saved.items() if not bool(torch.isfinite(tensor).all())]
    if unusable:
        raise UserError(
            f"{path}: weights that are not numbers ({', '.join(unusable[:3])} …); train the model again"
        )


def load_weights(model: nn.Module, saved: Mapping[str, Tensor], path: Path) -> None:
    """Copies saved parameters into the model. Raises UserError as `check_weights` does."""
    check_weights(model, saved, path)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(saved[name])


def tokenizer_parts(tokenizer: Tokenizer) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A tokenizer as (JSON, tensors)."""
    names = ("joint",) if tokenizer.joint else ("source", "target")
    models = {
        f"tokenizer/{name}": torch.frombuffer(bytearray(model), dtype=torch.uint8)
        for name, model in zip(names, tokenizer.models, strict=False)
    }
    how: dict[str, Any] = {"lowercase": tokenizer.lowercase, "sampling": tokenizer.sampling}
    if not tokenizer.columns.plain:
        how["columns"] = asdict(tokenizer.columns)
    return how, models


def tokenizer_from(checkpoint: Checkpoint) -> Tokenizer:
    """The inverse of `tokenizer_parts`. Raises UserError if the tokenizer is damaged."""
    parts = {name: t.numpy().tobytes() for name, t in checkpoint.part("tokenizer").items()}
    try:
        source = parts.get("joint") or parts["source"]
        target = parts.get("joint") or parts["target"]
        how = checkpoint.meta["tokenizer"]
        lowercase, sampling = how["lowercase"], how["sampling"]
        if not isinstance(lowercase, bool) or not 0 <= sampling <= 1:
            raise ValueError(f"lowercase={lowercase}, sampling={sampling}")
        held = how.get("columns", {})
        factors = tuple(tuple(map(str, values)) for values in held.get("factors", ()))
        names, picture = tuple(map(str, held.get("names", ()))), bool(held.get("picture", False))
        columns = Columns(int(held.get("sources", 1)), factors, names, picture)
        return Tokenizer(source, target, lowercase=lowercase, sampling=sampling, columns=columns)
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise UserError(f"{checkpoint.path}: no usable tokenizer in it ({error})") from error
