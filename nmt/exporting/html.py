"""A translation model as one HTML file, without a server, a network or Python: the page of nmt.serve around the network in
JavaScript (browser/), the tokenizer, and the weights.

Matrices are int8 numbers with a scale for each row, w ≈ s_row · [-127 … 127]; vectors are float32. JavaScript sums in
float64 and keeps float32, so its translations are those of `rounded(model)` in float32 but for the order of sums.
"""

from __future__ import annotations

import base64
import copy
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.data.documents import ABBREVIATION, LONGEST_SENTENCE, SENTENCE_END
from nmt.exporting import only_model
from nmt.foundation.errors import UserError
from nmt.inference.translator import Translator
from nmt.model.encoder.layered import RNNEncoder
from nmt.model.seq2seq import Seq2Seq
from nmt.search.beam import Beam
from nmt.search.greedy import Greedy
from nmt.storage.files import write_atomically
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.sentencepiece_models import kind, parsed

log = logging.getLogger(__name__)
BROWSER = Path(__file__).with_name("browser")
FILES = ("weights.js", "tokenizer.js", "network.js", "search.js", "answers.js")
"""In reading order; each uses those before it."""
PAGE = Path(__file__).parent.parent / "serving"
TYPES = {1: "normal", 2: "unknown", 3: "control", 4: "defined", 5: "unused", 6: "byte"}
"""SentencePiece's types of pieces, by their numbers."""


def write_html(translator: Translator, name: str, file: Path) -> None:
    """Writes the page. Raises UserError if the model cannot be exported, and says which part of it."""
    settings = _settings(translator, name)
    settings["weights"], blob = _packed(translator.models[0])
    text = json.dumps(settings, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    page = (PAGE / "page.html").read_text(encoding="utf-8")
    code = "\n".join((BROWSER / part).read_text(encoding="utf-8") for part in FILES)
    parts = {
        '<link rel="stylesheet" href="page.css">': f"<style>\n{(PAGE / 'page.css').read_text(encoding='utf-8')}</style>",
        '<script type="module" src="page.js"></script>': "",
        "</body>": f'<script type="application/json" id="model-settings">{text}</script>\n'
        f'<script type="text/plain" id="model-weights">{base64.b64encode(blob).decode()}</script>\n'
        f'<script type="module">\n{code}</script>\n'
        f'<script type="module">\n{(PAGE / "page.js").read_text(encoding="utf-8")}</script>\n</body>',
    }
    for old, new in parts.items():
        assert page.count(old) == 1
        page = page.replace(old, new)
    write_atomically(file, page.encode())


def rounded(model: Seq2Seq) -> Seq2Seq:
    """The same network with the weights that the page has."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if _is_matrix(name):
                small, scales = _int8(parameter)
                parameter.copy_(torch.from_numpy(small * scales[:, None]).view_as(parameter))
    return model


def _is_matrix(name: str) -> bool:
    """Whether a parameter is what vectors are multiplied by, or looked up in; not a bias, a gain or the gain of a norm."""
    return name.rpartition(".")[2].startswith("weight") and "norm" not in name


def _int8(matrix: Tensor) -> tuple[np.ndarray, np.ndarray]:
    values = matrix.detach().float().cpu().flatten(0, -2).numpy()
    scales = np.maximum(np.abs(values).max(1), 1e-30).astype(np.float32) / np.float32(127)
    return np.round(values / scales[:, None]).astype(np.int8), scales


def _packed(model: Seq2Seq) -> tuple[list[dict[str, Any]], bytes]:
    """Where each parameter stands among the bytes of all; numbers of four bytes begin at multiples of four."""
    listed, blob, known = list[dict[str, Any]](), bytearray(), dict[int, str]()

    def add(array: np.ndarray) -> int:
        blob.extend(b"\0" * (-len(blob) % 4))
        blob.extend(array.tobytes())
        return len(blob) - array.nbytes

    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) in known:
            listed.append({"name": name, "same": known[id(parameter)]})
            continue
        known[id(parameter)] = name
        rows, columns = 1, parameter.numel()
        if _is_matrix(name):
            small, scales = _int8(parameter)
            rows, columns = small.shape
            where = {"scales": add(scales), "offset": add(small)}
        else:
            where = {"offset": add(parameter.detach().float().cpu().numpy())}
        listed.append({"name": name, "rows": rows, "columns": columns, **where})
    return listed, bytes(blob)


def _settings(translator: Translator, name: str) -> dict[str, Any]:
    model, tokenizer = _exportable(translator), translator.tokenizer
    decoder, encoder = model.decoder, model.encoder
    assert isinstance(encoder, RNNEncoder)
    attention = decoder.attention if decoder.attends else None
    search = translator.search
    if not isinstance(search, Beam | Greedy) or (
        isinstance(search, Beam) and search.penalty.coverage
    ):
        log.warning(
            "the page searches with a beam of 5 by mean log-probability, not as this model does"
        )
        search = Beam()
    width, penalty = (
        (search.width, search.penalty) if isinstance(search, Beam) else (1, Beam().penalty)
    )
    return {
        "name": name, "languages": translator.languages, "cell": decoder.cell_name,
        "encoder": {"kind": _name(encoder), "layers": len(encoder.layers), "residual": encoder.residual},
        "decoder": {
            "kind": "luong_feed" if _name(decoder) == "luongfeed" else _name(decoder), "layers": decoder.num_layers,
            "hidden": decoder.hidden_size, "readout": decoder.readout_size, "residual": decoder.residual,
            "bridge": decoder.bridge.kind,
        },
        "score": "none" if attention is None else type(attention.score).__module__.rsplit(".", 1)[1],
        "heads": 1 if attention is None else attention.score.heads,
        "fertility": getattr(attention and attention.score, "fertility", None),
        "normalizer": "softmax" if attention is None else _name(attention.normalizer),
        "search": {"width": width, "penalty": penalty.name, "alpha": penalty.alpha},
        "lengthFactor": translator.max_length_factor, "lengthOffset": translator.max_length_offset,
        "longest": translator.max_source, "sentenceEnd": SENTENCE_END.pattern, "characters": LONGEST_SENTENCE,
        "abbreviation": ABBREVIATION.pattern.replace(r"\w", r"[\p{L}\p{N}_]"),
        "source": _pieces(tokenizer, 0), "target": None if tokenizer.joint else _pieces(tokenizer, 1),
    }  # fmt: skip


def _name(part: object) -> str:
    return type(part).__name__.lower()


def _exportable(translator: Translator) -> Seq2Seq:
    """The network. Raises UserError for what the page cannot do."""
    model = only_model(translator, "html")
    if model.decoder.attends and _name(model.decoder.attention.window) != "window":
        raise UserError(
            f"format=html: the page does not compute window={_name(model.decoder.attention.window)}"
        )
    if _name(model.encoder) not in ("bidirectional", "unidirectional", "alternating"):
        raise UserError(f"format=html: the page does not compute encoder={_name(model.encoder)}")
    for held in translator.tokenizer.models:
        if parsed(held).normalizer_spec.precompiled_charsmap:
            raise UserError(
                "format=html: the page keeps text as it is written; this tokenizer changes it (tokenizer.normalization)"
            )
        if parsed(held).trainer_spec.treat_whitespace_as_suffix:
            raise UserError(
                "format=html: this tokenizer puts spaces at the end of pieces, which the page does not"
            )
    return model


def _pieces(tokenizer: Tokenizer, side: int) -> dict[str, Any]:
    proto = parsed(tokenizer.models[side])
    spec = proto.normalizer_spec
    return {
        "kind": kind(tokenizer.models[side]), "lowercase": tokenizer.lowercase,
        "byWord": tokenizer.by_word, "trims": spec.remove_extra_whitespaces, "begins": spec.add_dummy_prefix,
        "pieces": [[piece.piece, piece.score, TYPES[piece.type]] for piece in proto.pieces],
    }  # fmt: skip
