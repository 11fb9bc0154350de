"""Answers for people who want to know why: what the page at / asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nmt.foundation.interfaces import EOS
from nmt.inference.explanations.explanation import explain, influence
from nmt.inference.explanations.neighbors import Index, mark, summaries
from nmt.serving.limits import Limits, Refused
from nmt.serving.passages import spans
from nmt.serving.questions import count, flag, text_of, texts_of
from nmt.serving.served_models import Served
from nmt.tokenizer.words import words

LONGEST = 1000
"""Tokens of a given beginning."""


def sentence_of(fields: Mapping[str, Any], limits: Limits) -> tuple[str, list[str]]:
    """The sentence that is asked about, and all sentences of the text. `sentence`: its number, from 0."""
    text = text_of(fields, "q")
    limits.check_texts([text])
    every = [text[place.start : place.stop] for place in spans(text)]
    number = count(fields, "sentence", max(0, len(every) - 1))
    return (every[number] if every else ""), every


def explained(served: Served, fields: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """The answer to /explain: a translation, what else might have stood at each place, the attention, the search.

    `prefix`: tokens that it begins with; `whole`: they are all of it; `translation`: a text instead of them; `looks`: pairs
    of a step and the source position that is all that is seen there."""
    (sentence, every), translator, tokenizer = (
        sentence_of(fields, limits),
        served.lister,
        served.translator.tokenizer,
    )
    prefix, whole = _numbers(fields.get("prefix") or [], "prefix"), flag(fields, "whole")
    given = fields.get("translation")
    if isinstance(given, str) and given.strip():
        limits.check_texts([given])
        [prefix], whole = tokenizer.encode_target([given]), True
    pairs = fields.get("looks") or []
    if not isinstance(pairs, list) or not all(len(_numbers(pair, "looks")) == 2 for pair in pairs):
        raise Refused(400, "looks: give a list of pairs [step, position]")
    looks = {pair[0]: pair[1] for pair in pairs}
    found = explain(translator, sentence, prefix, whole=whole, attend_to=looks)

    def piece(token: int) -> str:
        return "</s>" if token == EOS else tokenizer.target_pieces([token])[0]

    def next_of(node: Any) -> list[list[Any]]:
        return [
            [token, piece(token), round(value, 4)]
            for token, value in node.next
            if value > -math.inf
        ]

    nodes = found.tree
    steps = [
        {"token": nodes[i].token, "piece": piece(nodes[i].token), "log_prob": round(nodes[i].log_prob, 4),
         "next": next_of(nodes[before])}
        for before, i in zip(found.path, found.path[1:], strict=False)
    ]  # fmt: skip
    texts = tokenizer.decode([one.tokens for one in found.others])
    return {
        "model": served.name, "sentences": every, "sentence": sentence, "text": texts[0],
        "source": [*tokenizer.source_pieces(found.source), "</s>"], "target": steps,
        "attention": None if found.attention is None else found.attention.round(4).tolist(),
        "heads": None if found.heads is None else found.heads.round(4).tolist(),
        "tree": [
            {"parent": node.parent, "token": node.token, "piece": piece(node.token), "fate": node.fate,
             "log_prob": round(node.log_prob, 4), "total": round(node.total, 4), "next": next_of(node)[:5]}
            for node in nodes
        ],
        "path": found.path, "width": getattr(translator.search, "width", 1),
        "others": [
            {"text": text, "score": round(one.score, 4), "log_prob": round(one.log_prob, 4), "tokens": one.tokens}
            for text, one in zip(texts, found.others, strict=True)
        ],
    }  # fmt: skip


def neighbors(
    served: Served, fields: Mapping[str, Any], limits: Limits, index: Index | None
) -> dict[str, Any]:
    """The answer to /neighbors: training sentences that the encoder reads as it reads this one."""
    if index is None:
        raise Refused(
            400, "this server has no index: make one by nmt.index, and give nmt.serve index=FILE"
        )
    (sentence, _), number = sentence_of(fields, limits), count(fields, "count", 50) or 5
    if not sentence:
        raise Refused(400, "there are no words in the text")
    if mark(served.translator) != index.model:
        raise Refused(400, f"the index is of another model than {served.name}")
    [vector] = summaries(served.translator, [sentence])
    found = index.nearest(vector, number)
    return {
        "neighbors": [
            {"source": index.sources[i], "target": index.targets[i], "similarity": round(value, 4)}
            for i, value in found
        ]
    }


def contrasted(served: Served, fields: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """The answer to /contrast: the probability of each token of two translations; which source words speak for which."""
    (sentence, _), (texts, _) = sentence_of(fields, limits), texts_of(fields, "translations")
    limits.check_texts([sentence, *texts])
    if len(texts) != 2 or not all(text.strip() for text in texts):
        raise Refused(400, "translations: give two texts")
    tokenizer = served.translator.tokenizer
    ids = tokenizer.encode_target(texts)
    [source] = served.translator.encode([sentence])
    if not source:
        raise Refused(400, "there are no words in the text")
    found = served.translator.force([source, source], ids, attention=False)
    return {
        "model": served.name,
        "translations": [
            {
                "text": text, "log_prob": round(one.log_prob, 4), "tokens": [*tokenizer.target_pieces(own), "</s>"],
                "token_log_probs": [round(float(value), 4) for value in one.log_probs],
            }
            for text, own, one in zip(texts, ids, found, strict=True)
        ],
        "words": words(sentence),
        "influence": [round(value, 4) for value in influence(served.translator, sentence, *ids)],
    }  # fmt: skip


def _numbers(value: Any, name: str) -> Sequence[int]:
    if not isinstance(value, list) or not all(
        type(one) is int and 0 <= one < 2**31 for one in value
    ):
        raise Refused(400, f"{name}: give a list of numbers")
    if len(value) > LONGEST:
        raise Refused(413, f"{name}: at most {LONGEST:,} numbers")
    return value
