"""Changes to sentence pairs while a model is trained on them, so that it meets text as people write it. The names and their
settings are OpusTrainer's (Bogoychev et al. 2023); a modifier gets a pair and random numbers, and gives pairs."""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nmt.foundation.errors import UserError

Pair = tuple[str, str]
Modify = Callable[[Pair, random.Random], list[Pair]]
NOT_HERE = {
    "Tags": "needs the alignment of every word",
    "Retokenize": "needs the alignment of every word",
    "Merge": "makes long lines of short ones, and batches are of equal length",
}
"""OpusTrainer's modifiers that there are not, and why."""
KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
SIMILAR = {
    "o": "0",
    "0": "o",
    "l": "1",
    "1": "l",
    "i": "í",
    "e": "é",
    "a": "á",
    "s": "5",
    "b": "6",
    "g": "9",
    "z": "2",
    "u": "ü",
    "c": "ç",
}
"""Characters that look like others."""
ENDS = (".。．।۔։", "!！՜", "?？؟;՞", ",，、،", ":：", ";；؛")
"""Punctuation marks of one kind in several scripts."""


@dataclass(frozen=True)
class Modifier:
    """`probability` of a sentence to be changed."""

    name: str
    probability: float
    modify: Modify

    def __call__(self, pair: Pair, draw: random.Random) -> list[Pair]:
        return self.modify(pair, draw) if draw.random() < self.probability else [pair]


def applied(modifiers: Sequence[Modifier], pair: Pair, draw: random.Random) -> list[Pair]:
    """What all modifiers, one after another, make of a pair."""
    found = [pair]
    for modifier in modifiers:
        found = [new for one in found for new in modifier(one, draw)]
    return found


def upper_case() -> Modify:
    return lambda pair, _: [(pair[0].upper(), pair[1].upper())]


def title_case() -> Modify:
    def title(text: str) -> str:
        return " ".join(word[:1].upper() + word[1:] for word in text.split())

    return lambda pair, _: [(title(pair[0]), title(pair[1]))]


def remove_end_punct() -> Modify:
    """Of pairs that end alike."""

    def modify(pair: Pair, _: random.Random) -> list[Pair]:
        alike = all(pair) and any(pair[0][-1] in kind and pair[1][-1] in kind for kind in ENDS)
        shorter = pair[0][:-1].rstrip(), pair[1][:-1].rstrip()
        return [shorter if alike and all(shorter) else pair]

    return modify


def noise(min_word_length: int = 2, max_word_length: int = 5, max_words: int = 6) -> Modify:
    """A further pair of equal sides: a few words of random letters, which can only be copied."""
    if not 1 <= min_word_length <= max_word_length or max_words < 1:
        raise ValueError("needs 1 ≤ min_word_length ≤ max_word_length, and max_words of at least 1")

    def modify(pair: Pair, draw: random.Random) -> list[Pair]:
        words = []
        for _ in range(draw.randint(1, max_words)):
            first = draw.choice(
                (0x61, 0x3B1, 0x430, 0x5D0, 0x905, 0x3041, 0x4E00, 0xAC00)
            )  # of a script, 20 letters of it
            words.append(
                "".join(
                    chr(first + draw.randrange(20))
                    for _ in range(draw.randint(min_word_length, max_word_length))
                )
            )
        return [(" ".join(words), " ".join(words)), pair]

    return modify


def prefix(
    min_words: int = 2, max_words: int = 5, template: str = "__start__ {trg} __end__ "
) -> Modify:
    """Some words of the target before the source, to be used."""
    if not 1 <= min_words <= max_words or "{trg}" not in template:
        raise ValueError("needs 1 ≤ min_words ≤ max_words, and {trg} in the template")

    def modify(pair: Pair, draw: random.Random) -> list[Pair]:
        words = pair[1].split()
        if len(words) < min_words:
            return [pair]
        count = draw.randint(min_words, min(max_words, len(words)))
        start = draw.randint(0, len(words) - count)
        return [
            (template.replace("{trg}", " ".join(words[start : start + count])) + pair[0], pair[1])
        ]

    return modify


def typos(**probabilities: float) -> Modify:
    """Each kind of mistake once in the source, with its probability; all kinds with 0.1 if none is named."""
    wrong = [name for name in probabilities if name not in MISTAKES]
    if wrong:
        raise ValueError(f"has no {', '.join(wrong)} (there are: {', '.join(MISTAKES)})")
    if not all(0 <= p <= 1 for p in probabilities.values()):
        raise ValueError("needs probabilities from 0 to 1")
    chosen = probabilities or dict.fromkeys(MISTAKES, 0.1)

    def modify(pair: Pair, draw: random.Random) -> list[Pair]:
        text = pair[0]
        for name, probability in chosen.items():
            if draw.random() < probability:
                text = MISTAKES[name](text, draw)
        return [(text if text.strip() else pair[0], pair[1])]

    return modify


def _at(
    pattern: str, change: Callable[[str, random.Random], str]
) -> Callable[[str, random.Random], str]:
    """A change of one of the places that a pattern finds."""
    compiled = re.compile(pattern)

    def mistake(text: str, draw: random.Random) -> str:
        places = [found.span() for found in compiled.finditer(text)]
        if not places:
            return text
        start, end = draw.choice(places)
        return text[:start] + change(text[start:end], draw) + text[end:]

    return mistake


def _near(letter: str, draw: random.Random) -> str:
    """A letter beside another on a keyboard."""
    for row, keys in enumerate(KEYS):
        at = keys.find(letter.lower())
        if at >= 0:
            rows = KEYS[max(0, row - 1) : row + 2]
            near = [
                key
                for line in rows
                for key in line[max(0, at - 1) : at + 2]
                if key != letter.lower()
            ]
            return draw.choice(near).upper() if letter.isupper() else draw.choice(near)
    return letter


MISTAKES: Mapping[str, Callable[[str, random.Random], str]] = {
    "char_swap": _at(r"(?=(\w\w))\w\w", lambda two, _: two[::-1]),
    "missing_char": _at(r"\w", lambda *_: ""),
    "extra_char": _at(r"\w", lambda one, draw: one + _near(one, draw)),
    "nearby_char": _at(r"\w", _near),
    "similar_char": _at(r"\w", lambda one, _: SIMILAR.get(one, one)),
    "skipped_space": _at(r"(?<=\S) (?=\S)", lambda *_: ""),
    "random_space": _at(r"(?<=\w)(?=\w)", lambda *_: " "),
    "repeated_char": _at(r"\w", lambda one, _: one + one),
    "unichar": _at(r"(\w)\1", lambda two, _: two[0]),
}
"""Kinds of mistakes."""
MODIFIERS: Mapping[str, Callable[..., Modify]] = {
    "UpperCase": upper_case, "TitleCase": title_case, "RemoveEndPunct": remove_end_punct, "Noise": noise, "Prefix": prefix,
    "Typos": typos,
}  # fmt: skip


def modifier(name: str, probability: Any, settings: Mapping[str, Any]) -> Modifier:
    """Raises UserError if there is no such modifier, or if its settings are wrong."""
    if name in NOT_HERE:
        raise UserError(f"modifier {name} is not supported: it {NOT_HERE[name]}")
    if name not in MODIFIERS:
        raise UserError(f"there is no modifier {name} (there are: {', '.join(MODIFIERS)})")
    if (
        isinstance(probability, bool)
        or not isinstance(probability, int | float)
        or not 0 <= probability <= 1
    ):
        raise UserError(f"modifier {name}: {probability!r} is no probability from 0 to 1")
    make = MODIFIERS[name]
    known = inspect.signature(make).parameters
    strange = [] if make is typos else [key for key in settings if key not in known]
    if strange:
        raise UserError(
            f"modifier {name} has no {', '.join(strange)} (it has: {', '.join(known) or 'no settings'})"
        )
    try:
        return Modifier(name, float(probability), make(**settings))
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(f"modifier {name}: {error}") from error
