"""Answers about the reasons for a translation: attention, other words, the search, influence, similar sentences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nmt.foundation.interfaces import EOS
from nmt.inference.explanations.explanation import Explanation, explain, influence
from nmt.inference.explanations.neighbors import Index, mark, summaries
from nmt.inference.explanations.search_tree import Node
from nmt.serving.answers import token_probabilities
from nmt.serving.limits import Limits, Refused
from nmt.serving.passages import spans
from nmt.serving.request_fields import RequestFields
from nmt.serving.served_models import ServedModel, ServedTranslator
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.words import words

Served = ServedModel[ServedTranslator]
MAX_TOKENS = 1000
"""Tokens of a prefix."""


def _sentences(fields: RequestFields, limits: Limits) -> list[str]:
    """Sentences of the text `q`."""
    text = fields.text("q")
    limits.check_texts([text])
    return [text[place.start : place.stop] for place in spans(text)]


def _sentence(fields: RequestFields, limits: Limits) -> str:
    """The sentence of `q` with the number `sentence`, from 0."""
    sentences = _sentences(fields, limits)
    number = fields.count("sentence", max(0, len(sentences) - 1))
    if not sentences:
        raise Refused(400, "there are no words in the text")
    return sentences[number]


def _numbers(value: Any, name: str) -> list[int]:
    if not isinstance(value, list) or not all(type(n) is int and 0 <= n < 2**31 for n in value):
        raise Refused(400, f"{name}: give a list of numbers")
    if len(value) > MAX_TOKENS:
        raise Refused(413, f"{name}: at most {MAX_TOKENS:,} numbers")
    return value


def explained(served: Served, fields: RequestFields, limits: Limits) -> dict[str, Any]:
    """The answer to /explain: a translation with attention, other tokens at each step, and the search tree.

    prefix: first tokens of the translation
    whole: whether they are the whole translation
    translation: a text in place of these
    looks: pairs of a step and the only source position that is attended there
    """
    sentence = _sentence(fields, limits)
    tokenizer = served.model.translator.tokenizer
    prefix = _numbers(fields.values.get("prefix") or [], "prefix")
    whole = fields.flag("whole")
    translation = fields.values.get("translation")
    if isinstance(translation, str) and translation.strip():
        limits.check_texts([translation])
        [prefix] = tokenizer.encode_target([translation])
        whole = True
    pairs = fields.values.get("looks") or []
    if not isinstance(pairs, list) or not all(len(_numbers(pair, "looks")) == 2 for pair in pairs):
        raise Refused(400, "looks: give a list of pairs [step, position]")
    explanation = explain(served.model.n_best, sentence, prefix, whole=whole, attend_to=dict(pairs))
    return {
        "model": served.name,
        "sentences": _sentences(fields, limits),
        "sentence": sentence,
        "width": getattr(served.model.translator.search, "width", 1),
        **_explanation(explanation, tokenizer),
    }


def _explanation(explanation: Explanation, tokenizer: Tokenizer) -> dict[str, Any]:
    def piece(token: int) -> str:
        return "</s>" if token == EOS else tokenizer.target_pieces([token])[0]

    def described(node: Node) -> dict[str, Any]:
        log_prob = round(node.log_prob, 4)
        return {"token": node.token, "piece": piece(node.token), "log_prob": log_prob}

    def following(node: Node) -> list[list[Any]]:
        return [
            [token, piece(token), round(value, 4)]
            for token, value in node.next
            if value > -math.inf
        ]

    tree = []
    for node in explanation.tree:
        place = {"parent": node.parent, "fate": node.fate, "total": round(node.total, 4)}
        tree.append({**described(node), **place, "next": following(node)[:5]})
    nodes = [explanation.tree[i] for i in explanation.path]
    steps = []
    for node, parent in zip(nodes[1:], nodes, strict=False):
        steps.append({**described(node), "next": following(parent)})
    texts = tokenizer.decode([hypothesis.tokens for hypothesis in explanation.others])
    others = []
    for text, hypothesis in zip(texts, explanation.others, strict=True):
        scores = {"score": round(hypothesis.score, 4), "log_prob": round(hypothesis.log_prob, 4)}
        others.append({"text": text, **scores, "tokens": hypothesis.tokens})
    return {
        "text": texts[0],
        "source": [*tokenizer.source_pieces(explanation.source), "</s>"],
        "target": steps,
        "attention": _rounded(explanation.attention),
        "heads": _rounded(explanation.heads),
        "tree": tree,
        "path": explanation.path,
        "others": others,
    }


def _rounded(values: np.ndarray | None) -> Any:
    return None if values is None else values.round(4).tolist()


def neighbors(
    served: Served, fields: RequestFields, limits: Limits, index: Index | None
) -> dict[str, Any]:
    """The answer to /neighbors: training sentences with summaries similar to that of a sentence."""
    if index is None:
        problem = "this server has no index: make one by nmt.index, and give nmt.serve index=FILE"
        raise Refused(400, problem)
    sentence = _sentence(fields, limits)
    count = fields.count("count", 50) or 5
    translator = served.model.translator
    if mark(translator) != index.model:
        raise Refused(400, f"the index is of another model than {served.name}")
    [vector] = summaries(translator, [sentence])
    return {
        "neighbors": [
            {"source": index.sources[i], "target": index.targets[i], "similarity": round(cosine, 4)}
            for i, cosine in index.nearest(vector, count)
        ]
    }


def contrasted(served: Served, fields: RequestFields, limits: Limits) -> dict[str, Any]:
    """The answer to /contrast: probabilities of the tokens of two translations, and the influence of each source word on
    the difference."""
    sentence = _sentence(fields, limits)
    texts = fields.texts("translations")
    limits.check_texts([sentence, *texts])
    if len(texts) != 2 or not all(text.strip() for text in texts):
        raise Refused(400, "translations: give two texts")
    translator = served.model.translator
    if not translator.encode([sentence])[0]:
        raise Refused(400, "there are no words in the text")
    translations = token_probabilities(translator, [sentence, sentence], texts)
    for text, translation in zip(texts, translations, strict=True):
        translation["text"] = text
    tokens = translator.tokenizer.encode_target(texts)
    differences = influence(translator, sentence, *tokens)
    return {
        "model": served.name,
        "translations": translations,
        "words": words(sentence),
        "influence": [round(value, 4) for value in differences],
    }
