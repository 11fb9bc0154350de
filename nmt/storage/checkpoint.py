"""Checkpoint files: tensors in the safetensors format, and other data as JSON in the file header.

    tensors    model/NAME (weights), tokenizer/NAME (SentencePiece models),
               lexicon/NAME (translation lexicon, if the model has one);
               a resumable checkpoint also has ema/NAME and optimizer/NAME
    header     format version, config, metrics, package versions;
               a resumable checkpoint also has the training state

Reading a file executes no code from it. A file is written under a temporary name and then renamed,
so the previous file survives a crash or a full disk.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, load_file, save
from torch import Tensor, nn

from nmt.foundation import plugins
from nmt.foundation.errors import UsageError, UserError, first_line
from nmt.foundation.extras import require
from nmt.storage.files import BEST, LAST, crc32, write_atomically
from nmt.storage.upgrade import upgraded
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.columns import Columns

FORMAT = 2
"""Version of the checkpoint format. Since version 2, the configuration of a classifier no longer
contains the keys of the command nmt.label."""
CHECKSUM = ', "checksum": '
"""JSON text that precedes the checksum, the last entry of a checkpoint header."""
WEIGHT_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Types of numbers that the weights of a checkpoint may have."""
MOST_SOURCES = 100
"""Maximum number of source texts per line of a model."""
HUB = "hf:"
"""Prefix of model names on the Hugging Face Hub, `hf:USER/NAME`."""


@dataclass(frozen=True)
class Checkpoint:
    """Content of a checkpoint file.

    meta: JSON values of the header
    tensors: weights and other tensors, by name
    path: path of the checkpoint file
    is_mapped: whether the tensors are memory-mapped from the file, so that processes share them
    """

    meta: dict[str, Any]
    tensors: dict[str, Tensor]
    path: Path
    is_mapped: bool = False

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Returns a dictionary from NAME to the tensor `prefix/NAME`, for all tensors with this
        prefix."""
        start = f"{prefix}/"
        return {
            name.removeprefix(start): tensor
            for name, tensor in self.tensors.items()
            if name.startswith(start)
        }

    @property
    def weights(self) -> dict[str, Tensor]:
        """Weights of the model by parameter name; their moving average if the checkpoint contains
        one.
        """
        return self.part("ema") or self.part("model")

    @property
    def config(self) -> dict[str, Any]:
        """Training configuration. Raises UserError if the checkpoint contains no configuration."""
        if not isinstance(self.meta.get("config"), dict):
            raise UserError(f"{self.path}: damaged checkpoint (no configuration)")
        return self.meta["config"]

    @property
    def languages(self) -> tuple[str, ...]:
        """Names of the source and target languages of a translation model; empty if unknown. Raises
        UserError if the checkpoint contains another number of languages."""
        names = self.meta.get("languages")
        if isinstance(names, list | tuple) and len(names) not in (0, 2):
            raise UserError(f"{self.path}: damaged checkpoint (languages: {names})")
        return tuple(map(str, names)) if isinstance(names, list | tuple) else ()


def _parts_of(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """Yields the bytes of tensors for a digest: for each tensor, its name, type and shape, and then
    its values.
    """
    for name, tensor in sorted(tensors.items()):
        described = f"{name} {tensor.dtype} {tuple(tensor.shape)}"
        yield described.encode("utf-8", "surrogatepass")
        yield tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data


def weights_hash(weights: Mapping[str, Tensor]) -> str:
    """Returns the first 16 hexadecimal digits of the SHA-256 digest of weights, including their
    names, types and shapes."""
    digest = hashlib.sha256()
    for part in _parts_of(weights):
        digest.update(part)
    return digest.hexdigest()[:16]


def write(path: Path, meta: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Writes a checkpoint file atomically.

    path: path of the checkpoint file
    meta: JSON values of the header
    tensors: weights and other tensors, by name

    Raises UserError if the file cannot be written; an existing file is then unchanged.
    """
    # safetensors needs contiguous tensors
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps({"format": FORMAT, **meta})
    # A single header entry, because safetensors does not preserve the order of several entries.
    signed = f"{text[:-1]}{CHECKSUM}{_checksum(on_cpu, text)}}}"
    write_atomically(path, save(on_cpu, metadata={"nmt": signed}))


def find_checkpoint(model: str, key: str = "model") -> Path:
    """Returns the path of the checkpoint file of a model.

    model: run folder (best checkpoint, otherwise the last), checkpoint file, or
        hf:USER/NAME[@REVISION], which is downloaded from the Hugging Face Hub
    key: key of the setting that contains the model, for messages

    Raises UserError if the file is not found.
    """
    if model.startswith(HUB):
        return _downloaded(model, key)
    path = Path(model)
    for file in (path / BEST, path / LAST, path):
        if file.is_file():
            return file
    problem = "file or folder not found. Give a run folder or a .safetensors file"
    if path.is_dir():
        problem = (
            f"the folder has neither {BEST} nor {LAST}. Give the run folder of a trained model"
        )
        inner = min(path.glob(f"*/{BEST}"), default=None)  # of a sweep or a back-translation
        problem += f", such as {inner.parent}" if inner else ""
    raise UsageError(f"{key}={model}: {problem}")


def model_name(model: str) -> str:
    """Returns the name of a model: that of its run folder, or of another checkpoint file without
    the suffix.

    model: run folder, checkpoint file, or hf:USER/NAME
    """
    path = Path(model).resolve()
    name = path.parent.name if path.name in (BEST, LAST) else path.name
    return name.removesuffix(".safetensors").encode("utf-8", "replace").decode()


def _downloaded(model: str, key: str) -> Path:
    require("huggingface_hub")
    import huggingface_hub

    name, revision = model.removeprefix(HUB).partition("@")[::2]
    try:
        return Path(huggingface_hub.hf_hub_download(name, BEST, revision=revision or None))
    except Exception as error:  # the download may raise many types of errors
        raise UserError(
            f"{key}={model}: cannot be downloaded from the Hugging Face Hub ({first_line(error)})"
        ) from error


def read_model(
    model: str, key: str = "model", command: str | None = None, mapped: bool = False
) -> Checkpoint:
    """Finds and reads the checkpoint of a model.

    model: run folder (best checkpoint, otherwise the last), checkpoint file, or
        hf:USER/NAME[@REVISION] on the Hugging Face Hub
    key: key of the setting that contains the model, for messages
    command: command that must have trained the model, `train` or `classify`; None for any command
    mapped: whether to map the file into memory, so that several processes share its pages

    Raises UserError if the checkpoint is missing or invalid. If `command` is given, also raises
    UserError if another command trained the checkpoint, or if the checkpoint needs plugins that are
    not permitted.
    """
    checkpoint = read(find_checkpoint(model, key), mapped=mapped)
    if command is not None:
        check_kind(checkpoint, command)
        plugins.refuse_missing(checkpoint.meta, f"{key}={Path(model)}")
    return checkpoint


def read(path: Path, mapped: bool = False) -> Checkpoint:
    """Reads a checkpoint file and converts its content to the current format.

    path: path of the checkpoint file
    mapped: whether to map the file into memory instead of reading it, so that several processes
        share its pages; the file may then be replaced, but not overwritten

    Raises UserError if the file is missing, damaged, not a checkpoint, or of a newer version.
    """
    # The file is opened only once, because a training run may replace it meanwhile.
    try:
        with path.open("rb") as file:
            # The path of the descriptor names the same file after a replacement.
            tensors = load_file(f"/dev/fd/{file.fileno()}") if mapped else load(file.read())
            file.seek(0)
            # size of the JSON header, as safetensors defines it
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length)).get("__metadata__", {})
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error
    except Exception as error:  # a damaged file raises many types of errors
        remedy = "Give a run folder or a .safetensors file"
        if path.name in (LAST, BEST):
            remedy = "Restore the file from a copy, or repeat the training"
        copies = sorted(path.parent.glob(f"last-{'[0-9]' * 8}.safetensors"))  # of trainer.keep
        if path.name == LAST and copies:
            remedy = f"To use an earlier state, copy {copies[-1].name} to {LAST}"
        raise UsageError(f"{path}: not a checkpoint, or damaged ({error}). {remedy}") from error
    try:
        meta = json.loads(header["nmt"])
        version = int(meta["format"])
    except (KeyError, ValueError, TypeError, RecursionError, OverflowError):
        raise UserError(f"{path}: a safetensors file, but not a checkpoint of nmt") from None
    if version > FORMAT:
        raise UserError(
            f"{path}: written by a newer version of nmt (format {version}, expected at most "
            f"{FORMAT}). Upgrade nmt"
        )
    if not _is_intact(header["nmt"], version, tensors):
        raise UserError(f"{path}: damaged (wrong checksum)")
    meta.pop("checksum", None)
    try:
        current = upgraded(meta, version)
    except RecursionError:
        raise UserError(f"{path}: damaged (the configuration is nested too deeply)") from None
    return Checkpoint(current, tensors, path, is_mapped=mapped)


def _is_intact(header: str, version: int, tensors: Mapping[str, Tensor]) -> bool:
    """Returns whether the header and the tensors of a checkpoint match its checksum."""
    if version < 2:
        # The checksum of version 1 covers only the values of the tensors.
        values = list(_parts_of(tensors))[1::2]
        return json.loads(header).get("checksum") in (None, crc32(values))
    text, stated = header.rpartition(CHECKSUM)[::2]
    return stated == f"{_checksum(tensors, text + '}')}}}"


def _checksum(tensors: Mapping[str, Tensor], text: str) -> int:
    """Returns the CRC-32 checksum of the header text and of all tensors, including their names,
    types and shapes.
    """
    return crc32([text.encode("utf-8", "surrogatepass"), *_parts_of(tensors)])


def check_kind(checkpoint: Checkpoint, command: str) -> None:
    """Raises UsageError unless the model of a checkpoint was trained by the given command.

    checkpoint: checkpoint to check
    command: `train` (translation) or `classify` (classification)
    """
    kind = str(checkpoint.meta.get("command", "train"))
    if kind != command:
        purposes = {
            "train": "the model is a translation model, for nmt.translate and nmt.train",
            "classify": "the model is a classifier, for nmt.label and nmt.classify",
        }
        purpose = purposes.get(kind, f"the model was trained by an unknown command ({kind})")
        raise UsageError(f"{checkpoint.path}: {purpose}")


def check_weights(model: nn.Module, saved: Mapping[str, Tensor], path: Path) -> None:
    """Raises UserError unless saved parameters match a model and are finite.

    model: model with the same configuration
    saved: saved parameters by name
    path: path of the checkpoint, for messages
    """
    parameters = dict(model.named_parameters())
    different = sorted(set(parameters) ^ set(saved)) or [
        name
        for name in parameters
        if parameters[name].shape != saved[name].shape or saved[name].dtype not in WEIGHT_TYPES
    ]
    if different:
        raise UserError(
            f"{path}: damaged checkpoint; the weights do not match the configuration ("
            f"{', '.join(different[:3])}, …)"
        )
    not_finite = [name for name, tensor in saved.items() if not bool(torch.isfinite(tensor).all())]
    if not_finite:
        raise UserError(
            f"{path}: weights contain NaN or inf ({', '.join(not_finite[:3])}, …); train the model "
            "again"
        )


def load_weights(model: nn.Module, saved: Mapping[str, Tensor], path: Path) -> None:
    """Copies saved parameters into a model.

    model: model with the same configuration
    saved: saved parameters by name
    path: path of the checkpoint, for messages

    Raises UserError unless the parameters match the model and are finite.
    """
    check_weights(model, saved, path)
    # A checkpoint stores the lexicon, which is not trained, apart from the weights.
    model.load_state_dict(saved, strict=False)


def lexicon_parts(model: nn.Module) -> dict[str, Tensor]:
    """Returns the tensors of a model's translation lexicon, by name; empty for a model without a
    lexicon."""
    lexicon = getattr(model, "lexicon", None)
    table = {} if lexicon is None else lexicon.table()
    return {f"lexicon/{name}": tensor for name, tensor in table.items()}


def load_lexicon(model: nn.Module, saved: Checkpoint) -> None:
    """Copies the translation lexicon of a checkpoint into a model that has a lexicon.

    Raises UserError if the checkpoint has no usable lexicon.
    """
    lexicon = getattr(model, "lexicon", None)
    if lexicon is None:
        return
    try:
        lexicon.fill(saved.part("lexicon"))
    except (KeyError, ValueError, RuntimeError) as error:
        raise UserError(f"{saved.path}: damaged checkpoint (lexicon: {error})") from error


def tokenizer_parts(tokenizer: Tokenizer) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Returns the settings of a tokenizer (JSON values) and its SentencePiece models (tensors)."""
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
    """Returns the tokenizer of a checkpoint; raises UserError if the tokenizer is damaged."""
    try:
        models = {name: t.numpy().tobytes() for name, t in checkpoint.part("tokenizer").items()}
        settings = checkpoint.meta["tokenizer"]
        lowercase = settings["lowercase"]
        sampling = settings["sampling"]
        if not isinstance(lowercase, bool) or not 0 <= sampling <= 1:
            raise ValueError(f"lowercase={lowercase}, sampling={sampling}")
        columns = settings.get("columns", {})
        sources = int(columns.get("sources", 1))
        if not 0 <= sources <= MOST_SOURCES:
            raise ValueError(f"sources={sources}")
        return Tokenizer(
            models.get("joint") or models["source"],
            models.get("joint") or models["target"],
            lowercase=lowercase,
            sampling=sampling,
            columns=Columns(
                sources=sources,
                factors=tuple(tuple(map(str, values)) for values in columns.get("factors", ())),
                names=tuple(map(str, columns.get("names", ()))),
                picture=bool(columns.get("picture", False)),
            ),
        )
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise UserError(f"{checkpoint.path}: damaged checkpoint (tokenizer: {error})") from error
