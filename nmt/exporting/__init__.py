"""Trained models for other programs: ONNX graphs, one HTML file, folders for the HuggingFace hub.

Read: export_model, onnx, translate_onnx, html, card.
"""

from pathlib import Path

from nmt.foundation.errors import UserError
from nmt.inference.translator import Translator
from nmt.model.seq2seq import Seq2Seq
from nmt.storage.files import write_atomically
from nmt.tokenizer import Tokenizer


def only_model(translator: Translator, form: str) -> Seq2Seq:
    """The network of a translator of plain texts. Raises UserError for others; `form`: of the
    export, for the message."""
    if len(translator.models) > 1:
        raise UserError(f"format={form}: export each model of an ensemble alone")
    if not translator.tokenizer.columns.plain:
        reads = translator.tokenizer.columns.described
        raise UserError(f"format={form}: the model reads {reads}; only plain texts can be exported")
    return translator.models[0]


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes source.model and target.model of SentencePiece."""
    for side, content in zip(("source", "target"), tokenizer.models, strict=True):
        write_atomically(folder / f"{side}.model", content)
