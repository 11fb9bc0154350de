"""Trained models in forms that others read: ONNX graphs, one HTML file, folders for the HuggingFace hub.

Read: this file, onnx, translate_onnx, html, card.
"""

from nmt.foundation.errors import UserError
from nmt.inference.translator import Translator
from nmt.model.seq2seq import Seq2Seq


def only_model(translator: Translator, form: str) -> Seq2Seq:
    """The network of a translator of plain texts. Raises UserError for others, which cannot be exported in this `form`."""
    if len(translator.models) > 1:
        raise UserError(f"format={form}: export each model of an ensemble alone")
    if not translator.tokenizer.columns.plain:
        reads = translator.tokenizer.columns.described
        raise UserError(f"format={form}: the model reads {reads}; only plain texts can be exported")
    return translator.models[0]
