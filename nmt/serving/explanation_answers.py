"""Responses of the API as JSON values: explanations of translations, similar training sentences,
and comparisons of two translations."""

import math
from itertools import pairwise
from typing import Any

import numpy as np

from nmt.foundation.interfaces import EOS
from nmt.inference.explanations.explanation import Explanation, Node, explain
from nmt.inference.explanations.neighbors import Index, summaries
from nmt.inference.explanations.word_removal import influence
from nmt.inference.translator import Translator
from nmt.serving.answers import check_lengths, token_probabilities
from nmt.serving.limits import Refused
from nmt.serving.markup import Part
from nmt.serving.request_fields import Fields
from nmt.serving.served_models import ServedModel
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.words import words


def _sentences(fields: Fields, model: Translator) -> list[str]:
    """Returns all sentences of the text in the request field `q`.

    Raises Refused if `q` has no words, if no sentence has the index in the request field
    `sentence`, or if the model would read only the beginning of that sentence.
    """
    sentences = Part(fields["q"]).sentences
    if not sentences:
        raise Refused(400, "q: contains no words")
    if fields["sentence"] >= len(sentences):
        raise Refused(
            400, f"sentence: must be the index of a sentence in q, from 0 to {len(sentences) - 1}"
        )
    check_lengths(model, [sentences[fields["sentence"]]])
    return sentences


def explained(served: ServedModel[Translator], fields: Fields) -> dict[str, Any]:
    """Returns the response to /explain: a translation, its attention weights and its search tree.

    The request may have these fields:
    `prefix`: ids of the first tokens of the translation
    `whole`: whether `prefix` is the complete translation
    `translation`: complete translation as text, instead of `prefix`
    `attend_to`: pairs (decoder step, source position); at a step with pairs, only their positions
        get attention
    """
    sentences = _sentences(fields, served.model)
    sentence = sentences[fields["sentence"]]
    translator = served.model
    prefix = fields["prefix"]
    has_translation = bool(fields["translation"].strip())
    if has_translation:
        [prefix] = translator.tokenizer.encode_target([fields["translation"]])
    explanation = explain(
        translator.with_whole_beam(),
        sentence,
        prefix,
        whole=fields["whole"] or has_translation,
        attend_to=fields["attend_to"],
    )
    return {
        "model": served.name,
        "sentences": sentences,
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

    path = [explanation.tree[i] for i in explanation.path]
    texts = tokenizer.decode([hypothesis.tokens for hypothesis in explanation.others])
    return {
        "text": texts[0],
        "source": [*tokenizer.source_pieces(explanation.source), "</s>"],
        "target": [described(node, next=following(parent)) for parent, node in pairwise(path)],
        "attention": _rounded(explanation.attention),
        "heads": _rounded(explanation.heads),
        "tree": [
            described(
                node,
                parent=node.parent,
                fate=node.fate,
                total=round(node.total, 4),
                # The search tree shows five alternatives per node; the word list shows all.
                next=following(node)[:5],
            )
            for node in explanation.tree
        ],
        "path": explanation.path,
        "others": [
            {
                "text": text,
                "score": round(hypothesis.score, 4),
                "log_prob": round(hypothesis.log_prob, 4),
                "tokens": hypothesis.tokens,
            }
            for text, hypothesis in zip(texts, explanation.others, strict=True)
        ],
    }


def _rounded(values: np.ndarray | None) -> Any:
    return None if values is None else values.astype(np.float64).round(4).tolist()


def neighbors(
    served: ServedModel[Translator], fields: Fields, index: Index | None
) -> dict[str, Any]:
    """Returns the response to /neighbors: the training sentences most similar to the input
    sentence.

    Raises Refused if the server has no index, or the index belongs to another model.
    """
    if index is None:
        raise Refused(
            400,
            "the server has no index of training sentences; create an index with "
            "nmt.index, and start nmt.serve with index=FILE",
        )
    sentence = _sentences(fields, served.model)[fields["sentence"]]
    if served.model.encoder_hash != index.model:
        raise Refused(
            400,
            f"index: not created with the encoder of the model {served.name}; create the index "
            "again with nmt.index",
        )
    [vector] = summaries(served.model, [sentence])
    return {
        "neighbors": [
            {"source": index.sources[i], "target": index.targets[i], "similarity": round(cosine, 4)}
            for i, cosine in index.nearest(vector, fields["count"] or 5)
        ]
    }


def contrasted(served: ServedModel[Translator], fields: Fields) -> dict[str, Any]:
    """Returns the response to /contrast, a comparison of two translations.

    The response has the probability of each token, and the influence of each source word on the
    difference between the log-probabilities.
    """
    sentence = _sentences(fields, served.model)[fields["sentence"]]
    texts = fields["translations"]
    translator = served.model
    if not translator.encode([sentence])[0]:
        raise Refused(400, "q: contains no words")
    probabilities = token_probabilities(translator, [sentence, sentence], texts)
    differences = influence(translator, sentence, *translator.tokenizer.encode_target(texts))
    return {
        "model": served.name,
        "translations": [
            {"text": text, **values} for text, values in zip(texts, probabilities, strict=True)
        ],
        "words": words(sentence),
        "influence": [round(value, 4) for value in differences],
    }
