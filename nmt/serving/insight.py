"""Answers about the reasons for a translation: attention, other words, the search, influence,
similar sentences."""

import math
from itertools import pairwise
from typing import Any

import numpy as np

from nmt.foundation.interfaces import EOS
from nmt.inference.explanations.explanation import Explanation, explain
from nmt.inference.explanations.neighbors import Index, mark, summaries
from nmt.inference.explanations.occlusion import influence
from nmt.inference.explanations.search_tree import Node
from nmt.serving.answers import token_probabilities
from nmt.serving.limits import Refused
from nmt.serving.passages import spans
from nmt.serving.request_fields import Fields
from nmt.serving.served_models import ServedModel, ServedTranslator
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.words import words

Served = ServedModel[ServedTranslator]


def _sentence(fields: Fields) -> str:
    """The sentence of `q` with the number `sentence`, from 0. Raises Refused if there is none."""
    places = spans(fields["q"])
    number = fields["sentence"]
    if not places:
        raise Refused(400, "there are no words in the text")
    if number >= len(places):
        raise Refused(400, f"sentence: expected a number from 0 to {len(places) - 1}")
    return fields["q"][places[number].start : places[number].stop]


def explained(served: Served, fields: Fields) -> dict[str, Any]:
    """The answer to /explain: a translation with attention, other tokens at each step, and the
    search tree.

    prefix: first tokens of the translation
    whole: whether they are the whole translation
    translation: a text in place of these
    `looks`: (step, source position) pairs; the only position that is attended there
    """
    text = fields["q"]
    sentence = _sentence(fields)
    translator = served.model.translator
    prefix = fields["prefix"]
    has_translation = bool(fields["translation"].strip())
    if has_translation:
        [prefix] = translator.tokenizer.encode_target([fields["translation"]])
    explanation = explain(
        served.model.n_best,
        sentence,
        prefix,
        whole=fields["whole"] or has_translation,
        attend_to=fields["looks"],
    )
    return {
        "model": served.name,
        "sentences": [text[place.start : place.stop] for place in spans(text)],
        "sentence": sentence,
        "width": getattr(translator.search, "width", 1),
        **_explanation(explanation, translator.tokenizer),
    }


def _explanation(explanation: Explanation, tokenizer: Tokenizer) -> dict[str, Any]:
    def described(node: Node, **values: Any) -> dict[str, Any]:
        log_prob = round(node.log_prob, 4)
        return {"token": node.token, "piece": piece(node.token), "log_prob": log_prob, **values}

    def piece(token: int) -> str:
        return "</s>" if token == EOS else tokenizer.target_pieces([token])[0]

    def following(node: Node) -> list[list[Any]]:
        return [[t, piece(t), round(value, 4)] for t, value in node.next if value > -math.inf]

    tree = []
    for node in explanation.tree:
        total = round(node.total, 4)
        # Five of the likeliest tokens are enough for the tree; steps list all.
        likely = following(node)[:5]
        tree.append(described(node, parent=node.parent, fate=node.fate, total=total, next=likely))
    path = [explanation.tree[i] for i in explanation.path]
    texts = tokenizer.decode([hypothesis.tokens for hypothesis in explanation.others])
    others = []
    for text, hypothesis in zip(texts, explanation.others, strict=True):
        scores = {"score": round(hypothesis.score, 4), "log_prob": round(hypothesis.log_prob, 4)}
        others.append({"text": text, **scores, "tokens": hypothesis.tokens})
    return {
        "text": texts[0],
        "source": [*tokenizer.source_pieces(explanation.source), "</s>"],
        "target": [described(node, next=following(parent)) for parent, node in pairwise(path)],
        "attention": _rounded(explanation.attention),
        "heads": _rounded(explanation.heads),
        "tree": tree,
        "path": explanation.path,
        "others": others,
    }


def _rounded(values: np.ndarray | None) -> Any:
    return None if values is None else values.round(4).tolist()


def neighbors(served: Served, fields: Fields, index: Index | None) -> dict[str, Any]:
    """The answer to /neighbors: training sentences with summaries similar to that of a sentence."""
    if index is None:
        raise Refused(
            400, "this server has no index: make one by nmt.index, and give nmt.serve index=FILE"
        )
    sentence = _sentence(fields)
    translator = served.model.translator
    if mark(translator) != index.model:
        raise Refused(400, f"the index is of another model than {served.name}")
    [vector] = summaries(translator, [sentence])
    return {
        "neighbors": [
            {"source": index.sources[i], "target": index.targets[i], "similarity": round(cosine, 4)}
            for i, cosine in index.nearest(vector, fields["count"] or 5)
        ]
    }


def contrasted(served: Served, fields: Fields) -> dict[str, Any]:
    """The answer to /contrast: probabilities of the tokens of two translations, and the influence
    of each source word on the difference."""
    sentence = _sentence(fields)
    texts = fields["translations"]
    if len(texts) != 2:
        raise Refused(400, "translations: expected two texts")
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
