"""Export of a translation model as one HTML file: the web page of nmt.serve, the network in
JavaScript (browser/), the tokenizer and the weights.

Matrices are stored as int8 values q from -127 to 127 with a scale s for each row, w ≈ s · q.
Vectors are float32. JavaScript sums in float64 and stores float32. Its translations are equal to
those of the PyTorch model with the dequantised matrices s · q, except for rounding errors.
"""

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from nmt.data.documents import ABBREVIATION, LONGEST_SENTENCE, SENTENCE_END
from nmt.exporting import exported_beam, only_model
from nmt.foundation.errors import UsageError
from nmt.inference.translator import Translator
from nmt.model.encoder.rnn_encoder import RNNEncoder
from nmt.model.seq2seq import Seq2Seq
from nmt.storage.files import write_atomically
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.sentencepiece_models import kind, parsed

BROWSER = Path(__file__).with_name("browser")
FILES = ("weights.js", "tokenizer.js", "network.js", "search.js", "answers.js")
"""JavaScript files of the page; each file follows the files that it depends on."""
PENALTIES = ("none", "average", "power", "wu", "reward")
"""Names of the length penalties that search.js implements."""
PAGE = Path(__file__).parent.parent / "serving"
PAGE_SCRIPTS = (
    "elements.js",
    "units.js",
    "state.js",
    "requests.js",
    "introduction.js",
    "words.js",
    "attention.js",
    "tree.js",
    "contrast.js",
    "classifier.js",
    "main.js",
)
"""JavaScript modules of the web page; each module follows the modules that it imports."""
IMPORT = re.compile(r'^import [^"]* from "\./\w+\.js"\n|^export ', re.MULTILINE)
"""Regular expression for import statements and `export` keywords in the page's modules, which are
removed when the modules are joined."""
TYPES = {1: "normal", 2: "unknown", 3: "control", 4: "defined", 5: "unused", 6: "byte"}
"""Maps the numeric codes of SentencePiece's token types to their names."""
CELLS = ("gru", "lstm", "norm_gru", "norm_lstm")
"""Names of the recurrent cells that network.js implements."""
IMPLEMENTED = (
    "seq2seq", "encoder.bidirectional", "encoder.unidirectional", "encoder.alternating",
    "decoder.bahdanau", "decoder.conditional", "decoder.fixed", "decoder.luong",
    "decoder.luong_feed", "attention.concat", "attention.coverage", "attention.dot",
    "attention.general", "attention.location", "attention.multi_head", "attention.normed_concat",
    "attention.scaled_dot", "attention.scaled_general", "attention.uniform",
    "attention.normalizer.entmax15", "attention.normalizer.softmax",
    "attention.normalizer.sparsemax", "attention.window",
)  # fmt: skip
"""Modules of nmt.model whose classes network.js implements."""


def write_html(
    translator: Translator, name: str, file: Path, facts: Mapping[str, Any] | None = None
) -> None:
    """Writes an HTML file that translates with a model in the browser.

    translator: translator whose model is exported
    name: name of the model on the page
    file: path of the HTML file
    facts: facts about the model for the first screen, such as training text and test scores; None
        for no facts

    Raises UserError if the model cannot be exported.
    """
    settings = {**_settings(translator, name), "facts": dict(facts or {})}
    settings["weights"], weights = _packed(translator.models[0])
    # Escape "<", because "</script>" would end the element.
    text = json.dumps(settings, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    encoded_weights = base64.b64encode(weights).decode()
    code = "\n".join((BROWSER / part).read_text(encoding="utf-8") for part in FILES)
    page = (PAGE / "page.html").read_text(encoding="utf-8")
    style = (PAGE / "page.css").read_text(encoding="utf-8")
    modules = [(PAGE / "page" / part).read_text(encoding="utf-8") for part in PAGE_SCRIPTS]
    # The modules become one script, so their names at the top level must be unique.
    script = "\n".join(IMPORT.sub("", module) for module in modules)
    scripts = [
        f'<script type="application/json" id="model-settings">{text}</script>',
        f'<script type="text/plain" id="model-weights">{encoded_weights}</script>',
        f'<script type="module">\n{code}</script>',
        f'<script type="module">\n{script}</script>',
        "</body>",
    ]
    replaced = {
        '<link rel="stylesheet" href="page.css">': f"<style>\n{style}</style>",
        '<script type="module" src="page/main.js"></script>': "",
        "</body>": "\n".join(scripts),
    }
    # Each replaced string occurs exactly once in page.html.
    for old, new in replaced.items():
        assert page.count(old) == 1
        page = page.replace(old, new)
    write_atomically(file, page.encode("utf-8", "replace"))


def is_matrix(name: str) -> bool:
    """Returns whether a parameter is a weight matrix or an embedding matrix."""
    return name.rpartition(".")[2].startswith("weight") and "norm" not in name


def quantized(matrix: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Returns a matrix quantised to int8, and the scale of each row."""
    values = matrix.detach().float().cpu().flatten(0, -2).numpy()  # [rows, columns]
    # The lower bound avoids a division by 0 for rows of zeros.
    scales = np.maximum(np.abs(values).max(1), 1e-30).astype(np.float32) / np.float32(127)
    return np.round(values / scales[:, None]).astype(np.int8), scales


def _packed(model: Seq2Seq) -> tuple[list[dict[str, Any]], bytes]:
    """Returns the layout of the parameters in the file, and the bytes of all parameters.

    The layout has names, sizes and byte offsets. Offsets are multiples of four.
    """
    places: list[dict[str, Any]] = []
    packed = bytearray()
    names: dict[int, str] = {}

    def add(array: np.ndarray) -> int:
        # JavaScript's Float32Array needs offsets that are multiples of four.
        packed.extend(b"\0" * (-len(packed) % 4))
        packed.extend(array.tobytes())
        return len(packed) - array.nbytes

    tables = {} if model.lexicon is None else model.lexicon.table()
    # Token ids are below 2^24, so that float32 represents them exactly.
    lexicon = [(f"lexicon.{name}", table) for name, table in tables.items()]
    for name, parameter in [*model.named_parameters(remove_duplicate=False), *lexicon]:
        first_name = names.setdefault(id(parameter), name)
        # Tied parameters are stored once.
        if first_name != name:
            places.append({"name": name, "same": first_name})
        elif is_matrix(name):
            rounded_rows, scales = quantized(parameter)
            rows, columns = rounded_rows.shape
            places.append(
                {
                    "name": name,
                    "rows": rows,
                    "columns": columns,
                    "scales": add(scales),
                    "offset": add(rounded_rows),
                }
            )
        else:
            offset = add(parameter.detach().float().cpu().numpy())
            places.append({"name": name, "rows": 1, "columns": parameter.numel(), "offset": offset})
    return places, bytes(packed)


def part_name(part: object) -> str:
    """Returns the name of a component's class in lower case."""
    return type(part).__name__.lower()


def exportable(translator: Translator) -> Seq2Seq:
    """Returns the network of a translator for the export to HTML.

    Raises UsageError if the JavaScript code does not support the network or the tokenizer.
    """
    model = only_model(translator, "html")
    parts: dict[str, object] = {
        "encoder": model.encoder,
        "decoder": model.decoder,
        "model": model,
    }
    if model.decoder.attends:
        attention = model.decoder.attention
        parts |= {
            "attention": attention.score,
            "normalizer": attention.normalizer,
            "window": attention.window,
        }
    modules = {f"nmt.model.{name}" for name in IMPLEMENTED}
    tokenizers = [parsed(content) for content in translator.tokenizer.models]
    has_two_cells = getattr(model.encoder, "cell_name", None) != model.decoder.cell_name
    unsupported = {
        f"{group}={part_name(part)}": type(part).__module__ not in modules
        for group, part in parts.items()
    } | {
        "different cells of encoder and decoder": has_two_cells,
        f"cell={model.decoder.cell_name}": model.decoder.cell_name not in CELLS,
        "text normalisation (tokenizer.normalization)": any(
            tokenizer.normalizer_spec.precompiled_charsmap for tokenizer in tokenizers
        ),
        "tokenizers with spaces at the end of subwords": any(
            tokenizer.trainer_spec.treat_whitespace_as_suffix for tokenizer in tokenizers
        ),
    }
    for feature, is_present in unsupported.items():
        if is_present:
            raise UsageError(f"format=html: the page does not support {feature}")
    return model


def _settings(translator: Translator, name: str) -> dict[str, Any]:
    model = exportable(translator)
    tokenizer = translator.tokenizer
    decoder = model.decoder
    encoder = model.encoder
    assert isinstance(encoder, RNNEncoder)
    attention = decoder.attention if decoder.attends else None
    beam = exported_beam(translator.search, "html", PENALTIES)
    return {
        "name": name,
        "languages": translator.languages,
        "cell": decoder.cell_name,
        "encoder": {
            "kind": part_name(encoder),
            "layers": len(encoder.layers),
            "residual": encoder.residual,
        },
        "decoder": {
            "kind": "luong_feed" if part_name(decoder) == "luongfeed" else part_name(decoder),
            "layers": decoder.num_layers,
            "hidden": decoder.hidden_size,
            "readout": decoder.readout_size,
            "residual": decoder.residual,
            "bridge": decoder.bridge.kind,
        },
        "score": "none" if attention is None else type(attention.score).__module__.split(".")[-1],
        "heads": 1 if attention is None else attention.score.heads,
        "fertility": getattr(attention and attention.score, "fertility", None),
        "normalizer": "softmax" if attention is None else part_name(attention.normalizer),
        "lexicon": _lexicon_settings(model),
        "search": {
            "width": beam.width,
            "penalty": beam.penalty.name,
            "alpha": beam.penalty.alpha,
            "noRepeat": translator.no_repeat_ngram_size,
        },
        "lengthFactor": translator.max_length_factor,
        "lengthOffset": translator.max_length_offset,
        "longest": translator.max_source,
        "sentenceEnd": SENTENCE_END.pattern,
        "characters": LONGEST_SENTENCE,
        "abbreviation": ABBREVIATION.pattern.replace(r"\w", r"[\p{L}\p{N}_]"),
        "source": _pieces(tokenizer, 0),
        "target": None if tokenizer.joint else _pieces(tokenizer, 1),
    }


def _lexicon_settings(model: Seq2Seq) -> dict[str, Any] | None:
    """Returns the settings of the translation lexicon; None for a network without a lexicon."""
    if model.lexicon is None:
        return None
    return {
        "use": "bias" if model.output_layer.lexicon is not None else "mixture",
        "epsilon": model.lexicon.epsilon,
        "entries": model.lexicon.tokens.size(1),
    }


def _pieces(tokenizer: Tokenizer, side: int) -> dict[str, Any]:
    model = parsed(tokenizer.models[side])
    return {
        "kind": kind(tokenizer.models[side]),
        "lowercase": tokenizer.lowercase,
        "byWord": tokenizer.by_word,
        "trims": model.normalizer_spec.remove_extra_whitespaces,
        "begins": model.normalizer_spec.add_dummy_prefix,
        "pieces": [[piece.piece, piece.score, TYPES[piece.type]] for piece in model.pieces],
    }
