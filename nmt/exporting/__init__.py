"""Export of trained models: ONNX graphs, a single HTML file, or a folder for the Hugging Face Hub.

Modules in reading order: export_model, onnx, translate_onnx, html, card.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from nmt.foundation.errors import UsageError
from nmt.foundation.interfaces import Search
from nmt.inference.translator import Translator
from nmt.model.seq2seq import Seq2Seq
from nmt.search.beam import Beam
from nmt.search.greedy import Greedy
from nmt.storage.files import write_atomically
from nmt.tokenizer import Tokenizer

log = logging.getLogger(__name__)


def only_model(translator: Translator, form: str) -> Seq2Seq:
    """Returns the network of a translator, if the model can be exported.

    translator: translator whose model is exported
    form: export format, for messages

    Raises UsageError for an ensemble, and for a model that does not read plain text.
    """
    if len(translator.models) > 1:
        raise UsageError(f"format={form}: an ensemble cannot be exported; export each model alone")
    if not translator.tokenizer.columns.plain:
        reads = translator.tokenizer.columns.described
        raise UsageError(f"format={form}: the model must read plain text, but reads {reads}")
    if translator.unknown != "mark":
        log.warning(
            "format=%s: translation.unknown=%s is not supported; the exported model writes ⁇ for "
            "an unknown word",
            form,
            translator.unknown,
        )
    return translator.models[0]


def exported_beam(search: Search, form: str, penalties: Sequence[str]) -> Beam:
    """Returns the search with which an exported model translates.

    The result is the given search if the export supports it. Otherwise, the result is a beam search
    that ranks hypotheses by mean log-probability, and a warning is logged.

    search: search with which the translator decodes
    form: export format, for messages
    penalties: length penalties that the exported search supports
    """
    if isinstance(search, Greedy):
        return Beam(width=1)
    if type(search) is Beam and search.penalty.name in penalties and not search.penalty.coverage:
        return search
    beam = Beam(width=search.width) if isinstance(search, Beam) else Beam()
    log.warning(
        "format=%s: the model's search settings are not supported; the exported model uses beam "
        "search of width %s, and ranks translations by mean log-probability",
        form,
        beam.width,
    )
    return beam


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes the SentencePiece models source.model and target.model into a folder."""
    for side, content in zip(("source", "target"), tokenizer.models, strict=True):
        write_atomically(folder / f"{side}.model", content)
