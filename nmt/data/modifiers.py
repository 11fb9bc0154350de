"""Random changes to sentence pairs during training, for robustness to noisy input.

Names and settings are those of OpusTrainer (Bogoychev et al. 2023). A new modifier is a function in
this module and an entry in MODIFIERS.
"""

import inspect
import random
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nmt.foundation.errors import UserError

Pair = tuple[str, str]
"""Type of sentence pairs: source sentence and target sentence."""
Change = Callable[[str, random.Random], str]
"""Function that returns a text with one typo."""
UNSUPPORTED = {
    "Tags": "needs word alignments",
    "Retokenize": "needs word alignments",
    "Merge": "changes the lengths of lines, on which the order of batches depends",
}
"""Maps each unsupported OpusTrainer modifier to the reason why it is not supported."""
KEYBOARD = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
"""Letter rows of a QWERTY keyboard, for typos on neighbouring keys."""
SIMILAR = dict(zip("o0l1ieasbgzuc", "0o1líéá5692üç", strict=True))
"""Maps characters to visually similar characters, for typos."""
END_MARKS = (".。．།۔։", "!！՜", "?？؟;՞", ",，、،", ":：", ";；؛")
"""Groups of equivalent punctuation marks in several scripts."""
SCRIPTS = (0x61, 0x3B1, 0x430, 0x5D0, 0x905, 0x3041, 0x4E00, 0xAC00)
"""Code point of the first letter of each script used for random words."""
SCRIPT_LETTERS = 20
"""Size of the alphabet of random words: number of consecutive letters of a script."""


@dataclass(frozen=True)
class Modifier:
    """Change applied to a sentence pair with a given probability.

    probability: probability that a pair is changed, 0 to 1
    modify: function that returns the sentence pairs by which a given pair is replaced
    """

    probability: float
    modify: Callable[[Pair, random.Random], list[Pair]]

    def __call__(self, pair: Pair, rng: random.Random) -> list[Pair]:
        return self.modify(pair, rng) if rng.random() < self.probability else [pair]


def applied(modifiers: Sequence[Modifier], pair: Pair, rng: random.Random) -> list[Pair]:
    """Applies all modifiers in order and returns the resulting pairs."""
    pairs = [pair]
    for modifier in modifiers:
        pairs = [changed for pair in pairs for changed in modifier(pair, rng)]
    return pairs


def title_case(pair: Pair, _: random.Random) -> list[Pair]:
    """Capitalises the first letter of every word on both sides."""
    source, target = (
        " ".join(word[:1].upper() + word[1:] for word in text.split()) for text in pair
    )
    return [(source, target)]


def remove_end_punct(pair: Pair, _: random.Random) -> list[Pair]:
    """Removes the final punctuation mark of both sides if the marks are equivalent."""
    source, target = pair
    is_alike = any(source[-1:] in kind and target[-1:] in kind for kind in END_MARKS)
    shorter = source[:-1].rstrip(), target[:-1].rstrip()
    # A pair of only punctuation marks is kept unchanged.
    return [shorter if is_alike and all(shorter) else pair]


def noise(
    pair: Pair,
    rng: random.Random,
    min_word_length: int = 2,
    max_word_length: int = 5,
    max_words: int = 6,
) -> list[Pair]:
    """Adds a pair whose source and target are the same random words, to train the model to copy.

    min_word_length, max_word_length: number of letters of a word
    max_words: maximum number of words
    """
    if not 1 <= min_word_length <= max_word_length or max_words < 1:
        raise ValueError(
            "min_word_length, max_word_length and max_words must satisfy "
            "1 ≤ min_word_length ≤ max_word_length and max_words ≥ 1"
        )
    words = []
    for _ in range(rng.randint(1, max_words)):
        script = rng.choice(SCRIPTS)
        length = rng.randint(min_word_length, max_word_length)
        words.append("".join(chr(script + rng.randrange(SCRIPT_LETTERS)) for _ in range(length)))
    text = " ".join(words)
    return [(text, text), pair]  # the original pair is kept


def prefix(
    pair: Pair,
    rng: random.Random,
    min_words: int = 2,
    max_words: int = 5,
    template: str = "__start__ {trg} __end__ ",
) -> list[Pair]:
    """Prepends some target words to the source, as terms that the translation should use.

    min_words, max_words: number of target words
    template: string prepended to the source; {trg} is replaced by the target words
    """
    if not 1 <= min_words <= max_words or "{trg}" not in template:
        raise ValueError(
            "min_words and max_words must satisfy 1 ≤ min_words ≤ max_words, and template must "
            "contain {trg}"
        )
    source, target = pair
    words = target.split()
    if len(words) < min_words:
        return [pair]
    count = rng.randint(min_words, min(max_words, len(words)))
    start = rng.randint(0, len(words) - count)
    terms = " ".join(words[start : start + count])
    return [(template.replace("{trg}", terms) + source, target)]


def typos(pair: Pair, rng: random.Random, **probabilities: float) -> list[Pair]:
    """Adds random typos to the source, at most one of each kind.

    probabilities: probability of each kind in MISTAKES; without any probability, 0.1 for every kind
    """
    values = probabilities.values()
    if not all(isinstance(value, int | float) and 0 <= value <= 1 for value in values):
        raise ValueError("every probability of a typo must be a number from 0 to 1")
    source, target = pair
    text = source
    for name, probability in (probabilities or dict.fromkeys(MISTAKES, 0.1)).items():
        if rng.random() < probability:
            text = MISTAKES[name](text, rng)
    return [(text if text.strip() else source, target)]  # the source must not be empty


def _change_one(pattern: str, change: Change, text: str, rng: random.Random) -> str:
    """Applies a change to a randomly chosen match of a pattern in a text."""
    matches = list(re.finditer(pattern, text))
    if not matches:
        return text
    match = rng.choice(matches)  # all matches are equally probable
    return text[: match.start()] + change(match[0], rng) + text[match.end() :]


def _nearby_key(letter: str, rng: random.Random) -> str:
    """Returns a random letter next to the given letter on the keyboard."""
    lower = letter.lower()
    for row, keys in enumerate(KEYBOARD):
        column = keys.find(lower)
        if column >= 0:
            rows = KEYBOARD[max(0, row - 1) : row + 2]
            nearby = "".join(keys[max(0, column - 1) : column + 2] for keys in rows)
            key = rng.choice(nearby.replace(lower, ""))
            return key.upper() if letter.isupper() else key
    return letter  # the letter is not on the keyboard


def _swap_letters(text: str, rng: random.Random) -> str:
    """Returns a text in which two random adjacent letters are exchanged."""
    places = [match.start() for match in re.finditer(r"(?=\w\w)", text)]
    if not places:
        return text
    first = rng.choice(places)
    return text[:first] + text[first + 1] + text[first] + text[first + 2 :]


MISTAKES: Mapping[str, Change] = {
    "char_swap": _swap_letters,
    "missing_char": partial(_change_one, r"\w", lambda *_: ""),
    "extra_char": partial(_change_one, r"\w", lambda one, rng: one + _nearby_key(one, rng)),
    "nearby_char": partial(_change_one, r"\w", _nearby_key),
    "similar_char": partial(_change_one, r"\w", lambda one, _: SIMILAR.get(one, one)),
    "skipped_space": partial(_change_one, r"(?<=\S) (?=\S)", lambda *_: ""),
    "random_space": partial(_change_one, r"(?<=\w)(?=\w)", lambda *_: " "),
    "repeated_char": partial(_change_one, r"\w", lambda one, _: one + one),
    "unichar": partial(_change_one, r"(\w)\1", lambda two, _: two[0]),
}
"""Functions that make one typo in a text, by name of the kind of typo."""
EXAMPLE = " ".join("abcdefghijklmnopqrst")
"""Text of 20 words for a trial call of a modifier, long enough to use all of its settings."""
MODIFIERS: Mapping[str, Callable[..., list[Pair]]] = {
    "UpperCase": lambda pair, _: [(pair[0].upper(), pair[1].upper())],
    "TitleCase": title_case,
    "RemoveEndPunct": remove_end_punct,
    "Noise": noise,
    "Prefix": prefix,
    "Typos": typos,
}


def check_known(kind: str, names: Iterable[object], known: Collection[str]) -> None:
    """Raises UserError if a name is unknown.

    kind: kind of the names, for the message
    names: names to check
    known: all valid names
    """
    unknown = [str(name) for name in names if str(name) not in known]
    if unknown:
        available = ", ".join(known) or "none"
        raise UserError(f"{kind} {', '.join(unknown)}: not found (available: {available})")


def modifier(name: str, probability: Any, settings: Mapping[str, Any]) -> Modifier:
    """Creates a modifier from an entry of an OpusTrainer file.

    name: key of MODIFIERS
    probability: probability that a pair is changed, 0 to 1
    settings: keyword arguments of the modifier function

    Raises UserError if the name is unknown or a setting is invalid.
    """
    if name in UNSUPPORTED:
        raise UserError(f"modifier {name}: not supported, because the modifier {UNSUPPORTED[name]}")
    check_known("modifier", [name], MODIFIERS)
    if type(probability) not in (int, float) or not 0 <= probability <= 1:
        raise UserError(
            f"modifier {name}: probability {probability!r} must be a number from 0 to 1"
        )
    # the parameters after `pair` and `rng`
    parameters = list(inspect.signature(MODIFIERS[name]).parameters)[2:]
    known = list(MISTAKES) if parameters == ["probabilities"] else parameters
    check_known(f"modifier {name}: setting", settings, known)
    for key, value in settings.items():
        if key.startswith(("min_", "max_")) and type(value) is not int:
            raise UserError(f"modifier {name}: {key} must be a whole number, got {value!r}")
    modify = partial(MODIFIERS[name], **settings)
    try:
        modify((EXAMPLE, EXAMPLE), random.Random(0))  # raises an error for invalid settings
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(f"modifier {name}: {error}") from error
    return Modifier(float(probability), modify)
