"""Answers as the objects that callers get."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nmt.drawing.word_importance import as_json
from nmt.inference.output_formats import described
from nmt.inference.translation import Translation
from nmt.serving import markup
from nmt.serving.limits import Refused
from nmt.serving.passages import joined, spans
from nmt.serving.questions import Question
from nmt.serving.served_models import AUTO, Models, Served, Wish
from nmt.tokenizer.words import spaceless, words


@dataclass(frozen=True)
class Passage:
    """A text, where its sentences stand, and their translations."""

    text: str
    places: list[range]
    found: list[Translation]

    def sentence(self, i: int) -> str:
        return self.text[self.places[i].start : self.places[i].stop]

    def whole(self, choice: int = 0) -> str:
        """The translation of the text; of each sentence the so-many-th hypothesis, or the last that it has."""
        its = [
            one.texts[min(choice, len(one.texts) - 1)] if one.texts else "" for one in self.found
        ]
        return joined(self.text, self.places, its)


async def translated(models: Models, question: Question) -> dict[str, Any]:
    """The answer to /translate. Raises Refused or UserError if it cannot be answered."""
    served = models.translator(question.source, question.target, question.model)
    if (
        question.html or question.details & {"alignment", "attention"}
    ) and not served.translator.attends:
        raise Refused(
            400,
            f"{served.name} has no attention, so it aligns no words and keeps no tags: use format=text",
        )
    cut = [markup.blocks(text) if question.html else [markup.Part(text)] for text in question.texts]
    texts = [block.text for blocks in cut for block in blocks if isinstance(block, markup.Part)]
    passages = iter(await _passages(served, question, texts))
    each = [
        [block if isinstance(block, str) else (block, next(passages)) for block in blocks]
        for blocks in cut
    ]
    answer: dict[str, Any] = {
        "translatedText": [_written(served, question, blocks, 0) for blocks in each]
    }
    if question.alternatives:
        answer["alternatives"] = [_alternatives(served, question, blocks) for blocks in each]
    if question.details:
        answer["sentences"] = [
            [
                one
                for block in blocks
                if not isinstance(block, str)
                for one in _details(served, question, block[1])
            ]
            for blocks in each
        ]
    if question.single:
        answer = {key: value[0] for key, value in answer.items()}
    if question.source == AUTO:
        answer["detectedLanguage"] = {
            "language": served.languages[0],
            "confidence": 0,
        }  # the only one, not detected
    return answer


async def _passages(served: Served, question: Question, texts: Sequence[str]) -> list[Passage]:
    """All sentences of all texts, translated together."""
    places = [spans(text) for text in texts]
    wishes = [
        Wish(
            text[place.start : place.stop],
            question.constraint_for(text[place.start : place.stop], first=k == 0),
            details=1 + question.alternatives if question.details or question.html else 0,
            listed=question.alternatives > 0,
        )
        for text, its in zip(texts, places, strict=True)
        for k, place in enumerate(its)
    ]
    found = iter(await served.translate(wishes))
    return [
        Passage(text, its, [next(found) for _ in its])
        for text, its in zip(texts, places, strict=True)
    ]


Block = str | tuple[markup.Part, Passage]


def _written(served: Served, question: Question, blocks: Sequence[Block], choice: int) -> str:
    """The translation of a text, with its tags."""
    if not question.html:
        return "".join(
            block if isinstance(block, str) else block[1].whole(choice) for block in blocks
        )
    return "".join(
        block if isinstance(block, str) else _with_tags(served, *block, choice) for block in blocks
    )


def _with_tags(served: Served, part: markup.Part, passage: Passage, choice: int) -> str:
    if not passage.places:  # nothing but spaces and tags
        return markup.marked(part, part.text, [])
    written, end = list[str](), 0
    for place, sentence, found in zip(
        passage.places, part.sentences(passage.places), passage.found, strict=True
    ):
        which, text, source_of = min(choice, len(found.details) - 1), "", dict[int, int]()
        if which >= 0:
            text = found.texts[which]
            pairs = described(served.translator.tokenizer, sentence.text, found, which, "word")[
                "alignment"
            ]["pairs"]
            source_of = {t: s for s, t in pairs}
        gap = part.between(end, place.start)
        space = " " if end and not gap and text and not spaceless(text[0]) else ""
        tagged = markup.marked(
            sentence, text, [source_of.get(t, 0) for t in range(len(words(text)))]
        )
        written += [gap, space, tagged]
        end = place.stop
    return "".join(written) + part.between(end, len(part.text))


def _alternatives(served: Served, question: Question, blocks: Sequence[Block]) -> list[str]:
    """Other translations of a text, as many as were asked for and there are, all different."""
    best, found = _written(served, question, blocks, 0), list[str]()
    for choice in range(1, question.alternatives + 1):
        text = _written(served, question, blocks, choice)
        found += [] if text in (best, *found) else [text]
    return found


def _details(served: Served, question: Question, passage: Passage) -> list[dict[str, Any]]:
    """What was asked for about each sentence."""
    tokenizer, answers = served.translator.tokenizer, []
    for i, found in enumerate(passage.found):
        sentence, hypotheses = passage.sentence(i), []
        for k in range(len(found.details)):
            whole = described(tokenizer, sentence, found, k, question.units)
            target = tokenizer.target_units(
                found.texts[k], found.hypotheses[k].tokens, question.units
            )[0]
            one = {
                "text": whole["text"],
                "score": whole["score"],
                "log_prob": whole["log_prob"],
                "words": target,
            }
            if "scores" in question.details:
                one |= {"tokens": whole["tokens"], "token_log_probs": whole["token_log_probs"]}
            if "alignment" in question.details:
                one["alignment"] = whole["alignment"]["pairs"]
            if "attention" in question.details and whole["alignment"]:
                one["attention"] = {
                    key: whole["alignment"][key] for key in ("weights", "to_end", "at_end")
                }
            hypotheses.append(one)
        source = tokenizer.source_units(sentence, list(found.source), question.units)[0]
        answers.append({"source": sentence, "words": source, "hypotheses": hypotheses})
    return answers


def scored(served: Served, sources: Sequence[str], targets: Sequence[str]) -> list[dict[str, Any]]:
    """The probability of given translations, and of each of their tokens."""
    translator, found = served.translator, list[dict[str, Any]]()
    tokens = translator.tokenizer.encode_target(list(targets))
    for ids, forced in zip(
        tokens, translator.force(translator.encode(sources), tokens, attention=False), strict=True
    ):
        found.append({
            "log_prob": round(forced.log_prob, 6),
            "perplexity": round(math.exp(min(-forced.log_prob / len(forced.log_probs), 700)), 4),
            "tokens": [*translator.tokenizer.target_pieces(ids), "</s>"],
            "token_log_probs": [round(float(value), 6) for value in forced.log_probs],
        })  # fmt: skip
    return found


def labelled(served: Served, texts: Sequence[str]) -> list[dict[str, object]]:
    """The labels of texts, their probabilities, and which words decided."""
    assert served.loaded.classifier is not None
    return [as_json(one) for one in served.loaded.classifier.classify(list(texts))]
