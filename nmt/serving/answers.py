"""Answers of the API as JSON values: translations, probabilities and labels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from nmt.drawing.word_importance import as_json
from nmt.inference.output_formats import hypothesis_record
from nmt.inference.text_classifier import TextClassifier
from nmt.inference.translation import Translation
from nmt.inference.translator import Translator
from nmt.serving.limits import Refused
from nmt.serving.markup import AlignedSentence, Part, blocks, with_tags
from nmt.serving.passages import joined, spans
from nmt.serving.request_fields import Fields, as_list, constraint_of
from nmt.serving.served_models import (
    AUTO,
    Models,
    SentenceRequest,
    ServedModel,
    ServedTranslator,
)
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.words import Units, words

DETAILS = ("alignment", "attention", "scores")
"""Fields that ask for details of sentences."""


@dataclass(frozen=True)
class Passage:
    """A part of a text, the places of its sentences, and their translations by the model with this
    tokenizer."""

    part: Part
    places: Sequence[range]
    translations: Sequence[Translation]
    tokenizer: Tokenizer
    is_html: bool

    def sentence(self, number: int) -> str:
        place = self.places[number]
        return self.part.text[place.start : place.stop]

    def written(self, rank: int) -> str:
        """The translation of the part. Each sentence has its hypothesis of this rank, or else its
        last."""
        if self.is_html:
            aligned = [self._aligned(number, rank) for number in range(len(self.translations))]
            return with_tags(self.part, aligned)
        texts = [
            translation.texts[min(rank, len(translation.texts) - 1)] if translation.texts else ""
            for translation in self.translations
        ]
        return joined(self.part.text, self.places, texts)

    def _aligned(self, number: int, rank: int) -> AlignedSentence:
        translation = self.translations[number]
        place = self.places[number]
        rank = min(rank, len(translation.details) - 1)
        if rank < 0:
            return AlignedSentence(place, "", [])
        text = translation.texts[rank]
        answer = hypothesis_record(self.tokenizer, self.sentence(number), translation, rank, "word")
        # A word without an alignment gets the tags of the first source word.
        source_of = {target: source for source, target in answer["alignment"]["pairs"]}
        source_words = [source_of.get(word, 0) for word in range(len(words(text)))]
        return AlignedSentence(place, text, source_words)


Document = Sequence[str | Passage]
"""A translated text: its parts, and the HTML between them."""


async def translated(models: Models, fields: Fields) -> dict[str, Any]:
    """The answer to /translate. Raises Refused or UserError if it cannot be given."""
    served = models.translator(fields["source"], fields["target"], fields["model"])
    details = [name for name in DETAILS if fields[name]]
    needs_attention = fields["format"] == "html" or {*details} - {"scores"}
    if needs_attention and not served.model.translator.attends:
        raise Refused(
            400,
            f"{served.name} has no attention, so it aligns no words and keeps no tags: "
            "use format=text",
        )
    documents = await _documents(served, fields)
    answers: dict[str, list[Any]] = {}
    answers["translatedText"] = [_written(document, rank=0) for document in documents]
    if fields["alternatives"]:
        ranks = range(fields["alternatives"] + 1)
        answers["alternatives"] = [
            list(dict.fromkeys(_written(document, rank) for rank in ranks))[1:]
            for document in documents
        ]
    if details:
        answers["sentences"] = [
            _sentences(document, fields["units"], details) for document in documents
        ]
    answer = {key: per_text(values, fields) for key, values in answers.items()}
    if fields["source"] == AUTO:
        # The only source language; it is not detected.
        answer["detectedLanguage"] = {"language": served.model.languages[0], "confidence": 0}
    return answer


def per_text(answers: list[Any], fields: Fields) -> Any:
    """Answers to a list of texts; the only one to a text."""
    return answers if isinstance(fields["q"], list) else answers[0]


async def _documents(served: ServedModel[ServedTranslator], fields: Fields) -> list[Document]:
    """Texts with their translations. All sentences are translated together, those of equal parts
    once."""
    is_html = fields["format"] == "html"
    texts = [blocks(text) if is_html else [Part(text)] for text in as_list(fields["q"])]
    # One request per sentence of each part; the answers come in the same order.
    parts = [block for text in texts for block in text if isinstance(block, Part)]
    places = {part: spans(part.text) for part in parts}
    # Tags follow the alignment, which is one of the details.
    needs_details = is_html or any(fields[name] for name in DETAILS)
    requests = []
    for part in places:
        for place in places[part]:
            sentence = part.text[place.start : place.stop]
            is_first = place == places[part][0]
            request = SentenceRequest(
                sentence,
                constraint_of(fields, sentence, is_first=is_first),
                details_of=1 + fields["alternatives"] if needs_details else 0,
                n_best=fields["alternatives"] > 0,
            )
            requests.append(request)
    translations = iter(await served.batcher.do(requests))
    tokenizer = served.model.translator.tokenizer
    passages = {}
    for part in places:
        of_part = list(islice(translations, len(places[part])))
        passages[part] = Passage(part, places[part], of_part, tokenizer, is_html)
    return [
        [block if isinstance(block, str) else passages[block] for block in text] for text in texts
    ]


def _written(document: Document, rank: int) -> str:
    return "".join(block if isinstance(block, str) else block.written(rank) for block in document)


def _sentences(document: Document, units: Units, details: Sequence[str]) -> list[dict[str, Any]]:
    """Sentences with details of their hypotheses."""
    answers = []
    for passage in document:
        if isinstance(passage, str):
            continue
        for number, translation in enumerate(passage.translations):
            sentence = passage.sentence(number)
            source_tokens = list(translation.source)
            hypotheses = [
                _hypothesis(passage, number, rank, units, details)
                for rank in range(len(translation.details))
            ]
            words_of = passage.tokenizer.source_units(sentence, source_tokens, units)[0]
            answers.append({"source": sentence, "words": words_of, "hypotheses": hypotheses})
    return answers


def _hypothesis(
    passage: Passage, number: int, rank: int, units: Units, details: Sequence[str]
) -> dict[str, Any]:
    tokenizer = passage.tokenizer
    translation = passage.translations[number]
    full = hypothesis_record(tokenizer, passage.sentence(number), translation, rank, units)
    tokens = translation.hypotheses[rank].tokens
    written = tokenizer.target_units(translation.texts[rank], tokens, units)[0]
    answer = {key: full[key] for key in ("text", "score", "log_prob")} | {"words": written}
    if "scores" in details:
        answer |= {key: full[key] for key in ("tokens", "token_log_probs")}
    if "alignment" in details:
        answer["alignment"] = full["alignment"]["pairs"]
    if "attention" in details:
        weights = ("weights", "to_end", "at_end")
        answer["attention"] = {key: full["alignment"][key] for key in weights}
    return answer


def scored(served: ServedModel[ServedTranslator], fields: Fields) -> dict[str, Any]:
    """The answer to /score: probabilities of translations, and of each of their tokens."""
    sources = as_list(fields["q"])
    targets = as_list(fields["translation"])
    if len(sources) != len(targets):
        numbers = f"q has {len(sources)} texts, translation {len(targets)}"
        raise Refused(400, f"{numbers}: give as many")
    scores = token_probabilities(served.model.translator, sources, targets)
    for score in scores:
        mean = score["log_prob"] / len(score["tokens"])
        # Bounded, as exp overflows beyond about 709.
        score["perplexity"] = round(math.exp(min(-mean, 700)), 4)
    return {"scores": per_text(scores, fields)}


def token_probabilities(
    translator: Translator, sources: Sequence[str], targets: Sequence[str]
) -> list[dict[str, Any]]:
    """Natural-log probabilities of given translations and of each of their tokens, </s> last."""
    tokens = translator.tokenizer.encode_target(list(targets))
    forced = translator.force(translator.encode(sources), tokens, attention=False)
    return [
        {
            "log_prob": round(probabilities.log_prob, 6),
            "tokens": [*translator.tokenizer.target_pieces(ids), "</s>"],
            "token_log_probs": [round(float(value), 6) for value in probabilities.log_probs],
        }
        for ids, probabilities in zip(tokens, forced, strict=True)
    ]


def labelled(served: ServedModel[TextClassifier], fields: Fields) -> dict[str, Any]:
    """The answer to /classify: labels of texts, their probabilities, and the attention to the
    words."""
    classes = [as_json(text) for text in served.model.classify(as_list(fields["q"]))]
    return {"classes": per_text(classes, fields)}
