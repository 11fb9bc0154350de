"""Checks whether the JavaScript code of an exported web page supports a model."""

from nmt.exporting import only_model
from nmt.foundation.errors import UsageError
from nmt.inference.translator import Translator
from nmt.model.attention.window import Window
from nmt.model.seq2seq import Seq2Seq
from nmt.tokenizer.sentencepiece_models import parsed

CELLS = ("gru", "lstm", "norm_gru", "norm_lstm")
"""Names of the recurrent cells that network.js implements."""
IMPLEMENTED = {
    "encoder": ("bidirectional", "unidirectional", "alternating"),
    "decoder": ("bahdanau", "conditional", "fixed", "luong", "luong_feed"),
    "attention": (
        "concat", "coverage", "dot", "general", "location", "multi_head", "normed_concat",
        "scaled_dot", "scaled_general", "uniform",
    ),
    "attention.normalizer": ("entmax15", "softmax", "sparsemax"),
}  # fmt: skip
"""Maps subpackages of nmt.model to the modules whose classes network.js implements."""


def part_name(part: object) -> str:
    """Returns the name of a component's class in lower case."""
    return type(part).__name__.lower()


def exportable(translator: Translator) -> Seq2Seq:
    """Returns the network of a translator for the export to HTML.

    Raises UsageError if the JavaScript code does not support the network or the tokenizer.
    """
    model = only_model(translator, "html")
    window: object = None
    parts: dict[str, object] = {"encoder": model.encoder, "decoder": model.decoder}
    if model.decoder.attends:
        attention = model.decoder.attention
        window = attention.window
        parts |= {"attention": attention.score, "attention.normalizer": attention.normalizer}
    tokenizers = [parsed(content) for content in translator.tokenizer.models]
    has_two_cells = getattr(model.encoder, "cell_name", None) != model.decoder.cell_name
    problems = {}
    for group, part in parts.items():
        modules = {f"nmt.model.{group}.{name}" for name in IMPLEMENTED[group]}
        problem = f"the page does not support {group.rpartition('.')[2]}={part_name(part)}"
        problems[problem] = type(part).__module__ not in modules
    problems |= {
        f"the page does not support model={part_name(model)}": type(model) is not Seq2Seq,
        f"the page does not support window={part_name(window)}": type(window)
        not in (Window, type(None)),
        "the page does not support different cells of encoder and decoder": has_two_cells,
        f"the page does not support cell={model.decoder.cell_name}": model.decoder.cell_name
        not in CELLS,
        "the page does not support text normalisation (tokenizer.normalization)": any(
            tokenizer.normalizer_spec.precompiled_charsmap for tokenizer in tokenizers
        ),
        "the page does not support tokenizers with spaces at the end of subwords": any(
            tokenizer.trainer_spec.treat_whitespace_as_suffix for tokenizer in tokenizers
        ),
    }
    for problem, is_present in problems.items():
        if is_present:
            raise UsageError(f"format=html: {problem}")
    return model
