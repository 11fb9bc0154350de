"""Trained models for other programs: ONNX graphs, one HTML file, folders for the HuggingFace hub.

Read: export_model, onnx, translate_onnx, html, card.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import Search
from nmt.inference.translator import Translator
from nmt.model.seq2seq import Seq2Seq
from nmt.search.beam import Beam
from nmt.search.greedy import Greedy
from nmt.storage.files import write_atomically
from nmt.tokenizer import Tokenizer

log = logging.getLogger(__name__)


def only_model(translator: Translator, form: str) -> Seq2Seq:
    """The network of a translator of plain texts. Raises UserError for others; `form`: of the
    export, for the message."""
    if len(translator.models) > 1:
        raise UserError(f"format={form}: export each model of an ensemble alone")
    if not translator.tokenizer.columns.plain:
        reads = translator.tokenizer.columns.described
        raise UserError(f"format={form}: the model reads {reads}; only plain texts can be exported")
    return translator.models[0]


def exported_beam(search: Search, form: str, penalties: Sequence[str]) -> Beam:
    """The search of an exported model: that of the translator, or else a beam by mean
    log-probability, with a warning.

    form: form of the export, for the message
    penalties: length penalties that the exported search computes
    """
    if isinstance(search, Greedy):
        return Beam(width=1)
    if (
        isinstance(search, Beam)
        and search.penalty.name in penalties
        and not search.penalty.coverage
    ):
        return search
    beam = Beam(width=search.width) if isinstance(search, Beam) else Beam()
    log.warning(
        "format=%s: searches with a beam of %s by mean log-probability, not as this model does",
        form,
        beam.width,
    )
    return beam


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes source.model and target.model of SentencePiece."""
    for side, content in zip(("source", "target"), tokenizer.models, strict=True):
        write_atomically(folder / f"{side}.model", content)
