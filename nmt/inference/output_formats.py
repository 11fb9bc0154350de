"""Output formats of translations. Each input line gives one or more complete output lines.

text      the best translation
jsonl     an object with the source and its hypotheses; each hypothesis has text, score, log_prob,
          tokens, token_log_probs (</s> last) and the word alignment. The alignment has pairs
          [source, target], weights, and the weights of </s> (nmt/inference/word_alignment.py).
          For images, `places` is the attention of each token to grid rows and columns.
pharaoh   word pairs of the best translation as source-target, counted from 0, such as 0-0 1-2
moses     n-best list: number ||| translation ||| logprob= log-probability ||| score; one line for
          each hypothesis
"""

import json
from collections.abc import Sequence
from typing import Any, Literal

from nmt.inference.translation import ForcedDecoding, Translation
from nmt.inference.word_alignment import word_alignment
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.words import Units

FormatName = Literal["text", "jsonl", "pharaoh", "moses"]
ONE_BEST = ("text", "pharaoh")
"""Names of the output formats that contain only the best hypothesis of each line."""


DETAILED_HYPOTHESES = {"pharaoh": 1, "jsonl": 1_000_000}
"""Number of hypotheses per line for which an output format needs token probabilities and attention
weights; 0 for other formats."""


def lines(
    name: FormatName,
    tokenizer: Tokenizer,
    first: int,
    sources: Sequence[str],
    translations: Sequence[Translation],
    units: Units = "word",
) -> list[str]:
    """Returns the output lines, without newline characters, for a chunk of input lines.

    name: name of the output format
    tokenizer: tokenizer of the model
    first: index of the first input line, from 0
    sources: input lines
    translations: translation of each input line; its best `DETAILED_HYPOTHESES[name]` hypotheses
        have token probabilities and attention weights
    units: units of the word alignments: words or subwords
    """
    if name == "text":
        return [one_line(translation.text) for translation in translations]
    if name == "moses":
        return [
            line
            for number, translation in enumerate(translations, first)
            for line in _moses(number, translation)
        ]
    written = []
    for source, translation in zip(sources, translations, strict=True):
        records = [
            hypothesis_record(tokenizer, source, translation, rank, units)
            for rank in range(len(translation.details))
        ]
        if name == "jsonl":
            written.append(
                json.dumps({"source": source, "hypotheses": records}, ensure_ascii=False)
            )
        else:
            written.append(_pharaoh(records))
    return written


def one_line(text: str) -> str:
    """Returns a translation on one line. Newlines, which byte fallback can produce, are replaced
    by spaces."""
    return text.replace("\n", " ")


def _moses(number: int, translation: Translation) -> list[str]:
    if not translation.hypotheses:
        return [f"{number} |||  ||| logprob= 0 ||| 0"]
    return [
        f"{number} ||| {one_line(text)} ||| logprob= {hypothesis.log_prob:.6f} "
        f"||| {hypothesis.score:.6f}"
        for hypothesis, text in zip(translation.hypotheses, translation.texts, strict=True)
    ]


def _pharaoh(records: Sequence[dict[str, Any]]) -> str:
    if not records or not records[0]["alignment"]:
        return ""
    return " ".join(f"{s}-{t}" for s, t in records[0]["alignment"]["pairs"])


def hypothesis_record(
    tokenizer: Tokenizer, source: str, translation: Translation, rank: int, units: Units
) -> dict[str, Any]:
    """Returns the JSON object of one hypothesis.

    tokenizer: tokenizer of the model
    source: input line
    translation: all hypotheses of the line
    rank: position of the hypothesis in the n-best list, from 0
    units: units of the word alignment: words or subwords
    """
    hypothesis = translation.hypotheses[rank]
    decoding = translation.details[rank]
    probabilities = decoding_record(tokenizer, hypothesis.tokens, decoding)
    record = {
        "text": one_line(translation.texts[rank]),
        "score": round(hypothesis.score, 6),
        "log_prob": round(hypothesis.log_prob, 6),
        "tokens": probabilities["tokens"],
        "token_log_probs": probabilities["token_log_probs"],
        "alignment": None,
    }
    if decoding.weights is not None and tokenizer.columns.sources:
        alignment = word_alignment(tokenizer, source, translation, rank, units)
        record["alignment"] = {
            "pairs": alignment.pairs(),
            "weights": alignment.weights.round(5).tolist(),
            "to_end": alignment.to_end.round(5).tolist(),
            "at_end": alignment.at_end.round(5).tolist(),
        }
    if decoding.places is not None:
        record["places"] = decoding.places.round(5).tolist()
    return record


def decoding_record(
    tokenizer: Tokenizer, tokens: Sequence[int], decoding: ForcedDecoding
) -> dict[str, Any]:
    """Returns the JSON object of a scored translation, with its tokens and their
    log-probabilities."""
    return {
        "log_prob": round(decoding.log_prob, 6),
        "perplexity": round(decoding.perplexity, 4),
        "tokens": [*tokenizer.target_pieces(tokens), "</s>"],
        "token_log_probs": [round(float(value), 6) for value in decoding.log_probs],
    }
