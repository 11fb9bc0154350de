"""Pages of handwritten digits and the numbers on them, in words: real images without a network. scikit-learn brings the
1,797 digits of 8 x 8 pixels (Alpaydin & Kaynak 1998); num2words writes the numbers in the words of a language.

A page has one number or several below each other, each at a random place. Its name says how it is composed, so a page needs
no file:

    digits:24x24/4,402@3,1/1,71@13,9      24 rows and columns; 402 at row 3, column 1, written with the digits 4 …

Each group is IMAGES@ROW,COLUMN, the images being numbers of scikit-learn's digits, side by side. The three parts share no
digit: those of the test were never seen in training.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from nmt.data import Box, Pairs, Place, Splits
from nmt.foundation.errors import UserError
from nmt.foundation.extras import advice, installed
from nmt.foundation.ranges import Depth, Size

PREFIX = "digits:"
SIDE = 8
"""Pixels of a digit, in both directions."""
HELD = {"validation": 250, "test": 400}
"""Digits that the two small parts have for themselves."""
BELOW = {
    "en": "below it", "de": "darunter", "fr": "en dessous", "es": "debajo", "it": "sotto", "pt": "abaixo", "nl": "eronder",
    "sv": "under", "da": "nedenunder", "no": "nedenfor", "pl": "poniżej", "cs": "pod tím", "fi": "alla", "ru": "ниже",
    "uk": "нижче", "tr": "altında",
}  # fmt: skip
"""What stands between two numbers, by language; in other languages a comma alone."""
_GROUP = re.compile(r"(\d+(?:,\d+)*)@(\d+),(\d+)")


class Digits:
    """Pages of at most `numbers` numbers of at most `longest` digits, `rows` x `columns` pixels, captioned in `language`
    (a code of num2words). Raises ValueError if the numbers do not fit on the page."""

    pictures: ClassVar[bool] = True

    def __init__(
        self,
        *,
        language: str = "en",
        train: Size = 12000,
        validation: Size = 500,
        test: Size = 1000,
        numbers: Depth = 2,
        longest: Depth = 3,
        rows: Size = 24,
        columns: Size = 32,
        seed: int = 0,
    ) -> None:
        if rows < SIDE * numbers or columns < SIDE * longest:
            raise ValueError(
                f"data.rows={rows}, data.columns={columns}: a digit has {SIDE} x {SIDE} pixels, so {numbers} numbers of "
                f"{longest} digits need at least {SIDE * numbers} x {SIDE * longest}"
            )
        self.language, self.sizes, self.seed = language, (train, validation, test), seed
        self.numbers, self.longest, self.rows, self.columns = numbers, longest, rows, columns

    def load(self) -> Splits:
        """Raises UserError if scikit-learn is not installed, or the language unknown."""
        self._check_language()
        labels = _digits()[1]
        order = np.random.default_rng(0).permutation(len(labels))
        cuts = np.cumsum([len(labels) - sum(HELD.values()), HELD["validation"]])
        pools = np.split(order, cuts)
        rng, parts = random.Random(self.seed), list[Pairs]()
        for name, size, pool in zip(
            ("train", "validation", "test"), self.sizes, pools, strict=True
        ):
            by_label = [[int(i) for i in pool if labels[i] == digit] for digit in range(10)]
            sources, targets, places = zip(
                *(self._page(rng, by_label) for _ in range(size)), strict=True
            )
            parts.append(Pairs(sources, targets, f"digits, {name}", regions=places))
        return Splits(
            parts[0],
            parts[1],
            parts[2],
            languages=("picture", self.language),
            sources=0,
            pictures=True,
        )

    def _check_language(self) -> None:
        from num2words import CONVERTER_CLASSES, num2words

        try:
            num2words(402, lang=self.language)
        except NotImplementedError:
            raise UserError(
                f"data.language={self.language}: num2words does not know it; it knows {', '.join(sorted(CONVERTER_CLASSES))}"
            ) from None

    def _page(
        self, rng: random.Random, by_label: Sequence[Sequence[int]]
    ) -> tuple[str, str, list[Place]]:
        """The name of a page, its caption, and where on the page the words' digits are."""
        count = rng.randint(1, self.numbers)
        free, groups, top = self.rows - SIDE * count, list[str](), 0
        numbers, corners = list[int](), list[tuple[int, int]]()
        gaps = sorted(rng.randint(0, free) for _ in range(count))
        for k in range(count):
            size = rng.randint(1, self.longest)
            number = rng.randrange(10 ** (size - 1) if size > 1 else 0, 10**size)
            written = str(number)
            top, left = gaps[k] + SIDE * k, rng.randint(0, self.columns - SIDE * len(written))
            groups.append(
                f"{','.join(str(rng.choice(by_label[int(d)])) for d in written)}@{top},{left}"
            )
            numbers.append(number)
            corners.append((top, left))
        name = f"{PREFIX}{self.rows}x{self.columns}/{'/'.join(groups)}"
        return name, *self._caption(numbers, corners)

    def _caption(
        self, numbers: Sequence[int], corners: Sequence[tuple[int, int]]
    ) -> tuple[str, list[Place]]:
        between = f", {BELOW[self.language]} " if self.language in BELOW else ", "
        text, places = "", list[Place]()
        for k, (number, (top, left)) in enumerate(zip(numbers, corners, strict=True)):
            text += between if k else ""
            words = number_words(number, self.language)
            for begin, end, digit in digit_words(number, words, self.language):
                box = self._box(top, left + SIDE * digit)
                places.append((len(text) + begin, len(text) + end, box))
            text += words
        return text, places

    def _box(self, top: int, left: int) -> Box:
        return (
            top / self.rows, left / self.columns, (top + SIDE) / self.rows, (left + SIDE) / self.columns
        )  # fmt: skip


@functools.cache
def number_words(number: int, language: str) -> str:
    from num2words import num2words

    return " ".join(str(num2words(number, lang=language)).split())


@functools.cache
def digit_words(number: int, text: str, language: str) -> tuple[tuple[int, int, int], ...]:
    """The words of a number that tell one of its digits and no other: (begin, end, digit) in characters of `text`, digits
    counted from 0. A word tells the digit d if it stands in the words of d with its zeros (4 in 402: four hundred), and
    not in those of another digit at its place (hundred). If several digits have it (two hundred and two), the first
    word tells the first."""
    written = str(number)
    owners: dict[str, list[int]] = {}
    for k, digit in enumerate(written):
        zeros = 10 ** (len(written) - 1 - k)
        if digit != "0" or len(written) == 1:
            others = {
                word
                for d in range(1, 10)
                if str(d) != digit
                for word in _parts(number_words(d * zeros, language))
            }
            for word in set(_parts(number_words(int(digit) * zeros, language))) - others:
                owners.setdefault(word, []).append(k)
    found, seen = list[tuple[int, int, int]](), dict[str, int]()
    spans = [(m.start(), m.end(), m[0]) for m in re.finditer(r"\w+", text)]
    counts = {word: sum(w == word for *_, w in spans) for *_, word in spans}
    for begin, end, word in spans:
        its = owners.get(word, [])
        if len(its) == counts[word]:  # as often as digits have it
            found.append((begin, end, its[seen.get(word, 0)]))
            seen[word] = seen.get(word, 0) + 1
    return tuple(found)


def _parts(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def page(name: str) -> np.ndarray:
    """The page of a name: bytes [rows, columns], dark on white. Raises UserError if it is no such name."""
    head, *groups = name.removeprefix(PREFIX).split("/")
    size = re.fullmatch(r"(\d{1,4})x(\d{1,4})", head)
    read = [_GROUP.fullmatch(group) for group in groups]
    if size is None or not groups or not all(read):
        raise UserError(
            f"{name}: not a page of digits, which is {PREFIX}ROWSxCOLUMNS/IMAGE,IMAGE…@ROW,COLUMN/…"
        )
    images, found = _digits()[0], np.full((int(size[1]), int(size[2])), 255, np.uint8)
    for group in read:
        assert group is not None
        top, left = int(group[2]), int(group[3])
        for k, i in enumerate(map(int, group[1].split(","))):
            place = found[top : top + SIDE, left + SIDE * k : left + SIDE * (k + 1)]
            if i >= len(images) or place.shape != (SIDE, SIDE):
                what = (
                    f"there are {len(images):,} images"
                    if i >= len(images)
                    else "a digit lies outside the page"
                )
                raise UserError(f"{name}: {what}")
            place[:] = np.minimum(place, images[i])
    return found


@functools.cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's digits, dark on white [1797, 8, 8], and which they are."""
    if not installed("sklearn"):
        raise UserError(advice("sklearn"))
    from sklearn.datasets import load_digits

    held = load_digits()
    return (255 - held.images * (255 / 16)).astype(np.uint8), held.target
