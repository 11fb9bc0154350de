"""Responses of the API as JSON values: translations, probabilities and labels."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nmt.data import as_list
from nmt.drawing.word_importance import as_json
from nmt.inference.output_formats import decoding_record, hypothesis_record
from nmt.inference.text_classifier import TextClassifier
from nmt.inference.translation import Translation
from nmt.inference.translator import Translator
from nmt.inference.word_alignment import word_alignment
from nmt.serving.limits import Refused
from nmt.serving.markup import AlignedSentence, Part, blocks, with_tags
from nmt.serving.passages import joined
from nmt.serving.request_fields import Fields
from nmt.serving.requested_constraint import constraint_of
from nmt.serving.served_models import AUTO, Models, SentenceRequest, ServedModel
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.words import words

DETAILS = ("alignment", "attention", "scores")
"""Names of the request fields that add details of each sentence to the response."""


@dataclass(frozen=True)
class Passage:
    """Part of a request's text with the translations of its sentences.

    part: text of the part, and its inline markup if the request has format=html
    translations: translation of each sentence of the part
    tokenizer: tokenizer of the model
    is_html: whether the request has format=html
    """

    part: Part
    translations: Sequence[Translation]
    tokenizer: Tokenizer
    is_html: bool

    def written(self, rank: int) -> str:
        """Returns the translation of the part, from the hypotheses with the given rank.

        rank: position in the n-best list, from 0; a sentence with fewer hypotheses uses its last
            hypothesis
        """
        if self.is_html:
            numbers = range(len(self.translations))
            return with_tags(self.part, [self._aligned(number, rank) for number in numbers])
        texts = [
            translation.texts[min(rank, len(translation.texts) - 1)] if translation.texts else ""
            for translation in self.translations
        ]
        return joined(self.part.text, self.part.places, texts)

    def _aligned(self, number: int, rank: int) -> AlignedSentence:
        translation = self.translations[number]
        rank = min(rank, len(translation.details) - 1)
        if rank < 0:
            return AlignedSentence(self.part.places[number], "", [])
        text = translation.texts[rank]
        alignment = word_alignment(self.tokenizer, self.part.sentences[number], translation, rank)
        # A target word without an aligned source word gets the tags of the first source word.
        source_of = {target: source for source, target in alignment.pairs()}
        source_words = [source_of.get(word, 0) for word in range(len(words(text)))]
        return AlignedSentence(self.part.places[number], text, source_words)


Document = Sequence[str | Passage]
"""Translated text: its translated parts and, as strings, the HTML between them."""


async def translated(models: Models, fields: Fields) -> dict[str, Any]:
    """Returns the response to /translate. Raises Refused or UserError for an invalid request."""
    served = models.translator(fields["source"], fields["target"], fields["model"])
    needs_attention = fields["format"] == "html" or fields["alignment"] or fields["attention"]
    if needs_attention and not served.model.attends:
        raise Refused(
            400,
            f"model={served.name}: has no attention, so format=html and the fields alignment and "
            "attention are not supported; set format=text, and leave out these fields",
        )
    documents = await _documents(served, fields)
    # In a thread, because long HTML takes seconds, in which the server must answer other requests.
    return await asyncio.to_thread(_response, served, documents, fields)


def _response(
    served: ServedModel[Translator], documents: Sequence[Document], fields: Fields
) -> dict[str, Any]:
    """Returns the response to /translate for translated texts."""
    answers: dict[str, list[Any]] = {
        "translatedText": [_written(document, rank=0) for document in documents]
    }
    if fields["alternatives"]:
        # Rank 0 is the translation itself.
        ranks = range(fields["alternatives"] + 1)
        answers["alternatives"] = [
            list(dict.fromkeys(_written(document, rank) for rank in ranks))[1:]
            for document in documents
        ]
    if any(fields[name] for name in DETAILS):
        answers["sentences"] = [_details(document, fields) for document in documents]
    if fields["source"] == AUTO:
        # source=auto means the only source language of the server; no language is detected.
        entry = {"language": served.model.languages[0], "confidence": 0}
        answers["detectedLanguage"] = [entry] * len(documents)
    return {key: per_text(values, fields) for key, values in answers.items()}


def per_text(answers: list[Any], fields: Fields) -> Any:
    """Returns all results if the request field `q` is a list, otherwise the only result."""
    return answers if isinstance(fields["q"], list) else answers[0]


async def _documents(served: ServedModel[Translator], fields: Fields) -> list[Document]:
    """Returns the translation of each text in the request field `q`, divided into its parts."""
    is_html = fields["format"] == "html"
    model = served.model  # a newer checkpoint may replace it meanwhile
    texts = await asyncio.to_thread(
        lambda: [blocks(text) if is_html else [Part(text)] for text in as_list(fields["q"])]
    )
    requests = await asyncio.to_thread(
        lambda: [request for text in texts for request in _requests(model, text, fields)]
    )
    # One translation per request, in the order of the requests.
    translations = iter(await served.batcher.do(requests))
    return [
        [
            Passage(block, [next(translations) for _ in block.places], model.tokenizer, is_html)
            if isinstance(block, Part)
            else block
            for block in text
        ]
        for text in texts
    ]


def _requests(
    model: Translator, text: Sequence[str | Part], fields: Fields
) -> list[SentenceRequest]:
    """Returns a translation request for each sentence of a text.

    model: translator of all sentences
    text: parts of the text and, as strings, the HTML between them
    fields: fields of the request, which contain the options
    """
    # HTML tags are placed by the word alignment, which needs the details.
    needs_details = fields["format"] == "html" or any(fields[name] for name in DETAILS)
    sentences = [
        sentence for block in text if isinstance(block, Part) for sentence in block.sentences
    ]
    check_lengths(model, sentences)
    return [
        SentenceRequest(
            model,
            sentence,
            constraint_of(fields, sentence, is_first=number == 0),
            details_of=1 + fields["alternatives"] if needs_details else 0,
            whole_beam=fields["alternatives"] > 0,
        )
        for number, sentence in enumerate(sentences)
    ]


def check_lengths(model: Translator, sentences: Sequence[str]) -> None:
    """Raises Refused if a sentence has more tokens than the model reads."""
    for ids in model.tokenizer.encode_source([*sentences]):
        if len(ids) > model.max_source:
            raise Refused(
                413,
                f"q: a sentence has {len(ids):,} tokens, but the model reads at most "
                f"{model.max_source:,}; shorten the sentence",
            )


def _written(document: Document, rank: int) -> str:
    return "".join(block if isinstance(block, str) else block.written(rank) for block in document)


def _details(document: Document, fields: Fields) -> list[dict[str, Any]]:
    """Returns the sentences of a translated text as JSON values, with their hypotheses."""
    return [
        _sentence(block, number, fields)
        for block in document
        if isinstance(block, Passage)
        for number in range(len(block.translations))
    ]


def _sentence(passage: Passage, number: int, fields: Fields) -> dict[str, Any]:
    sentence = passage.part.sentences[number]
    translation = passage.translations[number]
    source = list(translation.source)
    ranks = range(len(translation.details))
    return {
        "source": sentence,
        "words": passage.tokenizer.source_units(sentence, source, fields["units"])[0],
        "hypotheses": [_hypothesis(passage, number, rank, fields) for rank in ranks],
    }


def _hypothesis(passage: Passage, number: int, rank: int, fields: Fields) -> dict[str, Any]:
    tokenizer = passage.tokenizer
    translation = passage.translations[number]
    units = fields["units"]
    record = hypothesis_record(tokenizer, passage.part.sentences[number], translation, rank, units)
    tokens = translation.hypotheses[rank].tokens
    answer = {key: record[key] for key in ("text", "score", "log_prob")}
    answer["words"] = tokenizer.target_units(translation.texts[rank], tokens, units)[0]
    if fields["scores"]:
        answer |= {key: record[key] for key in ("tokens", "token_log_probs")}
    if fields["alignment"]:
        answer["alignment"] = record["alignment"]["pairs"]
    if fields["attention"]:
        answer["attention"] = {
            key: record["alignment"][key] for key in ("weights", "to_end", "at_end")
        }
    return answer


def scored(served: ServedModel[Translator], fields: Fields) -> dict[str, Any]:
    """Returns the response to /score: probabilities of given translations and of their tokens."""
    sources = as_list(fields["q"])
    targets = as_list(fields["translation"])
    if len(sources) != len(targets):
        raise Refused(
            400,
            f"q has {len(sources)} texts, translation has {len(targets)}: the request needs one "
            "translation for each text",
        )
    check_lengths(served.model, sources)
    return {"scores": per_text(token_probabilities(served.model, sources, targets), fields)}


def token_probabilities(
    translator: Translator, sources: Sequence[str], targets: Sequence[str]
) -> list[dict[str, Any]]:
    """Returns the log-probabilities of given translations and of their tokens, </s> last."""
    tokens = translator.tokenizer.encode_target(list(targets))
    forced = translator.force(translator.encode(sources), tokens, attention=False)
    return [
        decoding_record(translator.tokenizer, ids, decoding)
        for ids, decoding in zip(tokens, forced, strict=True)
    ]


def labelled(served: ServedModel[TextClassifier], fields: Fields) -> dict[str, Any]:
    """Returns the response to /classify: labels, their probabilities and the word importances."""
    classes = [as_json(text) for text in served.model.classify(as_list(fields["q"]))]
    return {"classes": per_text(classes, fields)}
