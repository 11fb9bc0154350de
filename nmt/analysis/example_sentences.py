"""Example sentences of a comparison, with the translations of all systems and attention maps."""

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from nmt.analysis.comparison import Comparison
from nmt.analysis.tables import escaped
from nmt.drawing.attention_map import AttentionMap
from nmt.drawing.pages import render
from nmt.foundation.progress import tracked
from nmt.inference.translator import Translator
from nmt.tokenizer.words import bare, words

EXAMPLES = "Sentences that differ most"
"""Heading of the example sentences in a comparison of systems."""


@dataclass(frozen=True)
class Example:
    """A sentence with its translations by several systems.

    number: index of the sentence, from 0
    source: source sentence; None if unknown
    reference: reference translation
    outputs: translation of each system
    scores: chrF of each system
    log_probs: for each model, the mean log-probability per token of each system's translation
    maps: attention map of each model for its own translation
    """

    number: int
    source: str | None
    reference: str
    outputs: Mapping[str, str]
    scores: Mapping[str, float]
    log_probs: Mapping[str, Mapping[str, float]]
    maps: Mapping[str, AttentionMap]

    def as_json(self) -> dict[str, object]:
        """Returns the example as JSON values, without attention maps."""
        log_probs = {
            model: {name: round(value, 4) for name, value in values.items()}
            for model, values in self.log_probs.items()
        }
        return {
            "line": self.number + 1,
            "source": self.source,
            "reference": self.reference,
            "outputs": dict(self.outputs),
            "chrf": {name: round(score, 2) for name, score in self.scores.items()},
            "log_probs_per_token": log_probs,
        }


def most_different(comparison: Comparison, count: int) -> list[int]:
    """Returns the indices of the sentences with the largest differences in chrF.

    The difference is between the first system and another system. If possible, the first system is
    better in half of the sentences. For a single system, returns the sentences with the lowest
    chrF.

    comparison: sentence scores of all systems
    count: number of sentences
    """
    first, *others = comparison.sentence_scores.values()
    if not others:
        return sorted(range(len(first)), key=lambda i: (first[i], i))[:count]
    # Largest difference from another system, positive if the first system is better
    leads = [max((first[i] - other[i] for other in others), key=abs) for i in range(len(first))]
    ordered = sorted(range(len(leads)), key=lambda i: (-leads[i], i))
    won = [i for i in ordered if leads[i] > 0]
    lost = [i for i in reversed(ordered) if leads[i] < 0]
    won = won[: max(count // 2, count - len(lost))]
    return [*won, *lost[: count - len(won)]]


def example_section(example: Example) -> Markup:
    """Returns the HTML section for an example sentence."""
    return render(
        "example",
        example=example,
        marked=marked,
        orders=json.dumps(orders(example), ensure_ascii=False),
    )


def orders(example: Example) -> dict[str, float]:
    """Maps the name of each sort order of the HTML page to the sort key of an example.

    The example with the smallest key comes first.
    """
    (first, score), *others = example.scores.items()
    text = example.reference if example.source is None else example.source
    keys: dict[str, float] = {"line number": example.number, "longest": -len(words(text))}
    for other, value in others:
        keys[f"{first} better than {other}"] = value - score
        keys[f"{other} better than {first}"] = score - value
    return keys | {f"lowest chrF of {name}": value for name, value in example.scores.items()}


def marked(text: str, reference: str) -> Markup:
    """Returns a translation as HTML, with highlighting for words that differ from the reference.

    Punctuation is ignored.

    text: translation
    reference: reference of the sentence
    """
    written = []  # pairs of a word and the space after it, which some scripts do not have
    for chunk in text.split():
        *first, last = words(chunk)
        written += [*((word, "") for word in first), (last, " ")]
    # A separate punctuation mark is compared as a word.
    expected = [bare(word) or word for word in words(reference)]
    compared = [bare(word) or word for word, _ in written]
    # autojunk would ignore frequent words
    matcher = difflib.SequenceMatcher(None, compared, expected, autojunk=False)
    shared = {i + k for i, _, size in matcher.get_matching_blocks() for k in range(size)}
    return render("marked_differences", words=written, shared=shared)


def examples_markdown(examples: Sequence[Example]) -> str:
    """Returns example sentences as a list in Markdown."""
    lines = [f"### {EXAMPLES}", ""] if examples else []
    for example in examples:
        lines.append(f"{example.number + 1}.")
        if example.source is not None:
            lines.append(f"   - source: {escaped(example.source)}")
        lines.append(f"   - reference: {escaped(example.reference)}")
        lines += [
            f"   - {escaped(name)} (chrF {example.scores[name]:.0f}): {escaped(text)}"
            for name, text in example.outputs.items()
        ]
    return "\n".join([*lines, ""])


def _example(comparison: Comparison, models: Mapping[str, Translator], number: int) -> Example:
    """Returns an example sentence, with attention maps and log-probabilities from each model.

    comparison: translations of all systems
    models: translator of each model, by the name of its system
    number: index of the sentence
    """
    texts = {name: lines[number] for name, lines in comparison.outputs.items()}
    sentence = comparison.source[number] if comparison.source else None
    log_probs = {}
    maps = {}
    for system, model in models.items():
        if sentence is None or not words(sentence):
            continue
        # Each model scores the translations of all systems.
        tokens = model.tokenizer.encode_target(list(texts.values()))
        forced = model.force(model.encode([sentence] * len(texts)), tokens, attention=False)
        log_probs[system] = {
            name: probabilities.log_prob / len(probabilities.log_probs)
            for name, probabilities in zip(texts, forced, strict=True)
        }
        if model.attends and words(texts[system]):
            [maps[system]] = model.forced_maps([sentence], [texts[system]])
    return Example(
        number=number,
        source=sentence,
        reference=comparison.reference[number],
        outputs=texts,
        scores={name: scores[number] for name, scores in comparison.sentence_scores.items()},
        log_probs=log_probs,
        maps=maps,
    )


def example_sentences(
    comparison: Comparison, models: Mapping[str, Translator], count: int
) -> list[Example]:
    """Returns examples of the sentences in which the systems' translations differ most.

    comparison: translations of all systems
    models: translator of each model, by the name of its system
    count: number of sentences
    """
    numbers = tracked(most_different(comparison, count), "explaining sentences", "sentences")
    return [_example(comparison, models, number) for number in numbers]
