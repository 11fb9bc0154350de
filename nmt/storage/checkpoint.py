"""Checkpoint files: tensors in the safetensors format, all else as JSON in the header.

    tensors    `model/…` weights by parameter name; `tokenizer/…` SentencePiece models;
               in a resumable checkpoint also `ema/…` and `optimizer/…`
    header     format version, config, metrics, versions;
               in a resumable checkpoint also the state of the training

Reading a file executes nothing in it. A new file is written beside the old one and then renamed, so
a crash or a full disk leaves the old file.
"""

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from nmt.foundation.errors import UserError, first_line
from nmt.foundation.extras import advice, installed
from nmt.storage.files import write_atomically
from nmt.storage.upgrade import upgraded
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.columns import Columns

FORMAT = 2
"""Version of the file format. Since 2, a classifier's configuration has training settings only."""
CHECKSUM = ', "checksum": '
"""JSON before the checksum, which is the last entry of the header."""
BEST = "best.safetensors"
LAST = "last.safetensors"
HUB = "hf:"
"""Prefix of models of the Hugging Face hub."""


@dataclass(frozen=True)
class Checkpoint:
    """Content of a checkpoint file.

    meta: JSON of the header
    tensors: tensors by name
    path: the file
    """

    meta: dict[str, Any]
    tensors: dict[str, Tensor]
    path: Path

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Tensors whose names begin with `prefix/`, by the rest of their names."""
        start = f"{prefix}/"
        return {
            name.removeprefix(start): tensor
            for name, tensor in self.tensors.items()
            if name.startswith(start)
        }

    @property
    def weights(self) -> dict[str, Tensor]:
        """Weights of the model by parameter name; their moving average if there is one."""
        return self.part("ema") or self.part("model")

    @property
    def config(self) -> dict[str, Any]:
        """Configuration of the training. Raises UserError if it is missing."""
        if not isinstance(self.meta.get("config"), dict):
            raise UserError(f"{self.path}: contains no configuration; the file is damaged")
        return self.meta["config"]


def weights_hash(weights: Mapping[str, Tensor]) -> str:
    """The first 16 hexadecimal digits of a SHA-256 of names, types, shapes and values."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def write(path: Path, meta: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Writes a checkpoint atomically.

    path: the file
    meta: JSON of the header
    tensors: tensors by name

    Raises UserError if the file cannot be written; an old file is then unchanged.
    """
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps({"format": FORMAT, **meta}, ensure_ascii=False)
    # One entry holds all: safetensors does not fix the order of several.
    signed = f"{text[:-1]}{CHECKSUM}{_checksum(on_cpu, text)}}}"
    write_atomically(path, save(on_cpu, metadata={"nmt": signed}))


def find_checkpoint(model: str, key: str = "model") -> Path:
    """The checkpoint file of a model.

    model: a run directory (its best checkpoint, else its last), a file, or hf:USER/NAME[@REVISION],
        which is downloaded from the Hugging Face hub once
    key: the setting that names the model, for messages

    Raises UserError if the file is not found.
    """
    if model.startswith(HUB):
        return _downloaded(model, key)
    path = Path(model)
    for file in (path / BEST, path / LAST, path):
        if file.is_file():
            return file
    problem = "no such file or folder. Give a run directory or a .safetensors file"
    if path.is_dir():
        problem = f"no {BEST} or {LAST} in this folder. Is it a run directory, and has it trained?"
    raise UserError(f"{key}={model}: {problem}")


def _downloaded(model: str, key: str) -> Path:
    if not installed("huggingface_hub"):
        raise UserError(advice("huggingface_hub"))
    import huggingface_hub

    name, revision = model.removeprefix(HUB).partition("@")[::2]
    try:
        return Path(huggingface_hub.hf_hub_download(name, BEST, revision=revision or None))
    except Exception as error:  # no network, not found, not allowed: errors of many kinds
        reason = first_line(error)
        raise UserError(f"{key}={model}: cannot be downloaded from the hub ({reason})") from error


def read_model(model: str, key: str = "model", command: str | None = None) -> Checkpoint:
    """Finds and reads the checkpoint of a model.

    model: path or name on the hub, as in `find_checkpoint`
    key: the setting that names the model, for messages
    command: command that must have trained the model (see `check_kind`); None: any

    Raises UserError as `find_checkpoint`, `read` and `check_kind` do.
    """
    checkpoint = read(find_checkpoint(model, key))
    if command is not None:
        check_kind(checkpoint, command)
    return checkpoint


def read(path: Path, key: str = "") -> Checkpoint:
    """Reads a checkpoint file, and converts it to the current format.

    path: the file
    key: the setting that names the file, for messages

    Raises UserError if the file is missing, damaged, not a checkpoint, or of a newer version.
    """
    # A file that is replaced meanwhile does no harm, because it is opened once.
    place = _place(path, key)
    try:
        data = path.read_bytes()
        tensors = load(data)
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    except Exception as error:  # a damaged file raises errors of many kinds
        raise UserError(f"{place}: not a readable checkpoint, or damaged ({error})") from error
    try:
        meta = json.loads(header["nmt"])
        version = int(meta["format"])
    except (KeyError, ValueError, TypeError, RecursionError):
        raise UserError(f"{place}: a safetensors file, but not one that nmt wrote") from None
    if version > FORMAT:
        raise UserError(
            f"{place}: written by a newer version of nmt (format {version}; this one reads up to "
            f"{FORMAT}). Upgrade nmt"
        )
    if not _is_intact(header["nmt"], version, tensors):
        raise UserError(f"{place}: damaged: its content does not match its checksum")
    meta.pop("checksum", None)
    return Checkpoint(meta=upgraded(meta, version), tensors=tensors, path=path)


def _place(path: Path, key: str) -> str:
    return f"{key}={path}" if key else str(path)


def _is_intact(header: str, version: int, tensors: Mapping[str, Tensor]) -> bool:
    """Returns whether header and tensors match the checksum."""
    if version < 2:
        checksum = 0
        for name in sorted(tensors):
            checksum = zlib.crc32(_bytes_of(tensors[name]), checksum)
        return json.loads(header).get("checksum") in (None, checksum)
    text, stated = header.rpartition(CHECKSUM)[::2]
    return stated == f"{_checksum(tensors, text + '}')}}}"


def _checksum(tensors: Mapping[str, Tensor], text: str) -> int:
    """CRC-32 of the header's text and of all tensors with their names, types and shapes."""
    checksum = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        tensor = tensors[name]
        described = f"{name} {tensor.dtype} {tuple(tensor.shape)}"
        checksum = zlib.crc32(described.encode("utf-8", "surrogatepass"), checksum)
        checksum = zlib.crc32(_bytes_of(tensor), checksum)
    return checksum


def _bytes_of(tensor: Tensor) -> memoryview:
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def check_kind(checkpoint: Checkpoint, command: str, key: str = "") -> None:
    """Raises UserError unless a checkpoint was trained by a command.

    checkpoint: the checkpoint
    command: `train` (translation) or `classify` (classification)
    key: the setting that names the checkpoint, for messages
    """
    kind = str(checkpoint.meta.get("command", "train"))
    if kind != command:
        purposes = {
            "train": "translates; use nmt.train and nmt.translate",
            "classify": "classifies; use nmt.classify",
        }
        purpose = purposes.get(kind, f"is of another kind ({kind})")
        raise UserError(f"{_place(checkpoint.path, key)}: a model that {purpose}")


def check_weights(model: nn.Module, saved: Mapping[str, Tensor], path: Path) -> None:
    """Raises UserError unless saved parameters fit a model and are finite.

    model: a model of the same configuration
    saved: parameters by name
    path: their file, for messages
    """
    parameters = dict(model.named_parameters())
    different = sorted(set(parameters) ^ set(saved)) or [
        name for name in parameters if parameters[name].shape != saved[name].shape
    ]
    if different:
        raise UserError(
            f"{path}: its weights do not fit its config ({', '.join(different[:3])} …); the file "
            "is damaged"
        )
    not_finite = [name for name, tensor in saved.items() if not bool(torch.isfinite(tensor).all())]
    if not_finite:
        raise UserError(
            f"{path}: weights contain NaN or inf ({', '.join(not_finite[:3])} …); train the model "
            "again"
        )


def load_weights(model: nn.Module, saved: Mapping[str, Tensor], path: Path) -> None:
    """Copies saved parameters into a model. Arguments and errors are those of `check_weights`."""
    check_weights(model, saved, path)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(saved[name])


def tokenizer_parts(tokenizer: Tokenizer) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Settings of a tokenizer as JSON, and its SentencePiece models as tensors."""
    names = ("joint",) if tokenizer.joint else ("source", "target")
    models = {
        f"tokenizer/{name}": torch.frombuffer(bytearray(model), dtype=torch.uint8)
        for name, model in zip(names, tokenizer.models, strict=False)
    }
    settings: dict[str, Any] = {"lowercase": tokenizer.lowercase, "sampling": tokenizer.sampling}
    if not tokenizer.columns.plain:
        settings["columns"] = asdict(tokenizer.columns)
    return settings, models


def tokenizer_from(checkpoint: Checkpoint) -> Tokenizer:
    """The tokenizer of a checkpoint. Raises UserError if it is damaged."""
    models = {name: t.numpy().tobytes() for name, t in checkpoint.part("tokenizer").items()}
    try:
        settings = checkpoint.meta["tokenizer"]
        lowercase = settings["lowercase"]
        sampling = settings["sampling"]
        if not isinstance(lowercase, bool) or not 0 <= sampling <= 1:
            raise ValueError(f"lowercase={lowercase}, sampling={sampling}")
        columns = settings.get("columns", {})
        return Tokenizer(
            models.get("joint") or models["source"],
            models.get("joint") or models["target"],
            lowercase=lowercase,
            sampling=sampling,
            columns=Columns(
                sources=int(columns.get("sources", 1)),
                factors=tuple(tuple(map(str, values)) for values in columns.get("factors", ())),
                names=tuple(map(str, columns.get("names", ()))),
                picture=bool(columns.get("picture", False)),
            ),
        )
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise UserError(f"{checkpoint.path}: no usable tokenizer in it ({error})") from error
