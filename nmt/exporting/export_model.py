"""Exports a model as ONNX graphs, an HTML page, or a folder for the Hugging Face Hub."""

import contextlib
import logging
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

from nmt.exporting.card import write_card
from nmt.exporting.html import exportable, write_html
from nmt.exporting.onnx import write_onnx
from nmt.foundation.errors import UsageError, UserError
from nmt.foundation.extras import require
from nmt.inference.model_facts import model_facts, test_results
from nmt.inference.translator import Translator
from nmt.storage import checkpoint as ckpt
from nmt.storage.files import check_folder

log = logging.getLogger(__name__)


def export_model(
    load: Callable[[], Translator],
    *,
    model: str,
    format: Literal["onnx", "card", "html"],
    output: str,
) -> None:
    """Exports a model to a new folder, or to a single file for `html`.

    load: function that returns the translator
    model: run folder or checkpoint
    format: `onnx` (ONNX graphs), `card` (folder for the Hugging Face Hub) or `html` (web page
        that translates)
    output: path of the new folder or file

    Raises UserError if the output exists, or if the model cannot be exported.
    """
    path = Path(output)
    if path.exists():
        raise UsageError(f"output={path}: already exists; choose another output")
    check_folder(path, f"output={path}")
    saved = ckpt.read_model(model)
    if format != "card" and saved.meta.get("command") == "classify":
        raise UsageError(f"format={format}: supports only translation models; use format=card")
    if format == "card":
        write = partial(write_card, saved, test_results(saved))
    elif format == "html":
        translator = load()
        exportable(translator)  # raises an error before the model's facts are read
        facts = model_facts(model, translator.tokenizer)
        write = partial(write_html, translator, ckpt.model_name(model), facts=facts)
    else:
        require("onnx")
        write = partial(write_onnx, load())
    try:
        with contextlib.nullcontext() if format == "html" else _new_folder(path):
            write(path)
    except OSError as error:
        raise UserError(f"output={path}: cannot be written ({error.strerror or error})") from error
    files = list(path.iterdir()) if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files) / 1e6
    advice = "; open the file in a browser" if format == "html" else ""
    count = f"{len(files)} file{'s'[: len(files) > 1]}"
    log.info("exported %s: %s, %.1f MB%s", path, count, size, advice)


@contextlib.contextmanager
def _new_folder(path: Path) -> Iterator[None]:
    """Context manager that creates a folder, and removes it if an exception is raised."""
    path.mkdir(parents=True)
    try:
        yield
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
