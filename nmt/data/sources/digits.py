"""Pages of handwritten digits and the numbers on them, in words: real images without a network.

scikit-learn has the 1,797 digits of 8 x 8 pixels (Alpaydin & Kaynak 1998); num2words writes the
numbers in the words of a language. A page has one number or several below each other, each at a
random place. The name of a page is its composition, so that it needs no file:

    digits:24x24/4,402@3,1/1,71@13,9      24 rows and columns; a number of two digits, images 4 and
                                          402 of scikit-learn, at row 3, column 1; then another one

The three parts share no image of a digit: those of the test were never seen in training.
"""

import functools
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nmt.data import Box, Pairs, Region, Splits
from nmt.foundation.errors import UserError
from nmt.foundation.extras import require
from nmt.foundation.ranges import Depth, Size

PREFIX = "digits:"
"""Prefix of the name of a generated page of digits."""
SIDE = 8
"""Pixels of a digit, in both directions."""
HELD_OUT = {"validation": 250, "test": 400}
"""Number of digit images that belong to each of the small parts."""
BELOW = {
    "en": "below it", "de": "darunter", "fr": "en dessous", "es": "debajo", "it": "sotto",
    "pt": "abaixo", "nl": "eronder", "sv": "under", "da": "nedenunder", "no": "nedenfor",
    "pl": "poniżej", "cs": "pod tím", "fi": "alla", "ru": "ниже",
    "uk": "нижче", "tr": "altında",
}  # fmt: skip
"""Words between two numbers, by language; in other languages only a comma separates them."""
_NUMBER = re.compile(r"/(\d+(?:,\d+)*)@(\d+),(\d+)")
_PAGE = re.compile(PREFIX + r"(\d{1,4})x(\d{1,4})((?:/\d+(?:,\d+)*@\d+,\d+)+)")
"""Name of a page: its rows and columns, and its numbers, each after a slash."""


@dataclass(frozen=True)
class PlacedNumber:
    """A number on a page.

    number: value of the number.
    top, left: first row and column, in pixels.
    images: image of each digit, an index of scikit-learn.
    """

    number: int
    top: int
    left: int
    images: Sequence[int]


class Digits:
    """Pages of numbers, captioned in words.

    language: a code of num2words.
    train, validation, test: number of pages in each part.
    numbers: largest number of numbers on a page.
    longest: largest number of digits in a number.
    rows, columns: pixels of a page.
    seed: seed of the pages.

    Raises ValueError if the numbers do not fit on the page.
    """

    pictures: ClassVar[bool] = True
    generated: ClassVar[bool] = True

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
                f"data.rows={rows}, data.columns={columns}: a digit has {SIDE} x {SIDE} pixels, so "
                f"{numbers} numbers of {longest} digits need at least "
                f"{SIDE * numbers} x {SIDE * longest}"
            )
        self.language = language
        self.sizes = {"train": train, "validation": validation, "test": test}
        self.numbers = numbers
        self.longest = longest
        self.rows = rows
        self.columns = columns
        self.seed = seed

    def load(self) -> Splits:
        """Raises UserError if scikit-learn is not installed, or the language is unknown."""
        self._check_language()
        labels = _digits()[1]
        # The seed is fixed: the same images are held out in all data sets.
        order = np.random.default_rng(0).permutation(len(labels))
        first_held_out = len(labels) - sum(HELD_OUT.values())
        images = np.split(order, [first_held_out, first_held_out + HELD_OUT["validation"]])
        rng = random.Random(self.seed)
        parts = {}
        for (name, size), indices in zip(self.sizes.items(), images, strict=True):
            # Images of each digit that belong to this part.
            by_digit = [[int(i) for i in indices if labels[i] == digit] for digit in range(10)]
            pages = [self._page(rng, by_digit) for _ in range(size)]
            captions = [self._caption(page) for page in pages]
            parts[name] = Pairs(
                source=[self._name(page) for page in pages],
                target=[text for text, _ in captions],
                name=f"digits, {name}",
                regions=[regions for _, regions in captions],
            )
        return Splits(
            train=parts["train"],
            validation=parts["validation"],
            test=parts["test"],
            languages=("picture", self.language),
            sources=0,
            pictures=True,
        )

    def _check_language(self) -> None:
        from num2words import CONVERTER_CLASSES

        try:
            number_words(402, self.language)
        except NotImplementedError:
            raise UserError(
                f"data.language={self.language}: not a language of num2words, which has "
                f"{', '.join(sorted(CONVERTER_CLASSES))}"
            ) from None

    def _page(self, rng: random.Random, by_digit: Sequence[Sequence[int]]) -> list[PlacedNumber]:
        """Random numbers at random places; `by_digit` are the images of each digit."""
        count = rng.randint(1, self.numbers)
        free_rows = self.rows - SIDE * count
        # Sorted gaps above the numbers: the numbers never overlap.
        gaps = sorted(rng.randint(0, free_rows) for _ in range(count))
        page = []
        for k, gap in enumerate(gaps):
            size = rng.randint(1, self.longest)
            number = rng.randrange(10 ** (size - 1) if size > 1 else 0, 10**size)
            left = rng.randint(0, self.columns - SIDE * size)
            images = [rng.choice(by_digit[int(digit)]) for digit in str(number)]
            page.append(PlacedNumber(number, gap + SIDE * k, left, images))
        return page

    def _name(self, page: Sequence[PlacedNumber]) -> str:
        groups = [f"{','.join(map(str, n.images))}@{n.top},{n.left}" for n in page]
        return f"{PREFIX}{self.rows}x{self.columns}/{'/'.join(groups)}"

    def _caption(self, page: Sequence[PlacedNumber]) -> tuple[str, list[Region]]:
        """The caption of a page, and the region of each word that stands for one digit."""
        separator = f", {BELOW[self.language]} " if self.language in BELOW else ", "
        text = ""
        regions: list[Region] = []
        for n in page:
            text += separator if text else ""
            words = number_words(n.number, self.language)
            for begin, end, digit in digit_words(n.number, words, self.language):
                left = n.left + SIDE * digit
                box: Box = (
                    n.top / self.rows,
                    left / self.columns,
                    (n.top + SIDE) / self.rows,
                    (left + SIDE) / self.columns,
                )
                regions.append((len(text) + begin, len(text) + end, box))
            text += words
        return text, regions


@functools.cache
def number_words(number: int, language: str) -> str:
    """A number in the words of a language."""
    from num2words import num2words

    return " ".join(str(num2words(number, lang=language)).split())


@functools.cache
def digit_words(number: int, text: str, language: str) -> tuple[tuple[int, int, int], ...]:
    """Words of `text` that stand for exactly one digit of `number`.

    A word stands for a digit if it is among the words of the digit with its zeros (4 in 402: four
    hundred), and not among those of another digit at that place (hundred). If several digits have
    the word (two hundred and two), its first occurrence stands for the first of them.

    Returns (begin, end, digit) of each word: its characters, and the index of the digit.
    """
    digits_of = _digits_by_word(str(number), language)
    spans = list(re.finditer(r"\w+", text))
    counts = Counter(span[0] for span in spans)
    seen = Counter[str]()
    words = []
    for span in spans:
        digits = digits_of.get(span[0], [])
        if len(digits) == counts[span[0]]:
            words.append((span.start(), span.end(), digits[seen[span[0]]]))
        seen[span[0]] += 1
    return tuple(words)


def _digits_by_word(written: str, language: str) -> Mapping[str, list[int]]:
    """Indices of the digits of a number that each word stands for."""
    digits_of: dict[str, list[int]] = {}
    for k, digit in enumerate(written):
        if digit == "0" and len(written) > 1:
            continue  # zeros inside a number are not spoken
        zeros = 10 ** (len(written) - 1 - k)
        others = [_words(n * zeros, language) for n in range(1, 10) if n != int(digit)]
        for word in _words(int(digit) * zeros, language).difference(*others):
            digits_of.setdefault(word, []).append(k)
    return digits_of


def _words(number: int, language: str) -> set[str]:
    return set(re.findall(r"\w+", number_words(number, language)))


def page(name: str) -> np.ndarray:
    """Bytes [rows, columns] of the page with this name, dark on white.

    Raises UserError if the name is invalid.
    """
    match = _PAGE.fullmatch(name)
    if match is None:
        raise UserError(
            f"{name}: not a page of digits, which is {PREFIX}ROWSxCOLUMNS/IMAGE,IMAGE…@ROW,COLUMN/…"
        )
    images, _ = _digits()  # [1797, 8, 8]
    pixels = np.full((int(match[1]), int(match[2])), 255, np.uint8)
    for number in _NUMBER.finditer(match[3]):
        for k, i in enumerate(map(int, number[1].split(","))):
            top = int(number[2])
            left = int(number[3]) + SIDE * k
            region = pixels[top : top + SIDE, left : left + SIDE]
            if i >= len(images):
                raise UserError(f"{name}: there are {len(images):,} images")
            if region.shape != (SIDE, SIDE):
                raise UserError(f"{name}: a digit lies outside the page")
            region[:] = np.minimum(region, images[i])  # images may overlap
    return pixels


@functools.cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's images, dark on white [1797, 8, 8], and their digits [1797]."""
    require("sklearn")
    from sklearn.datasets import load_digits

    digits = load_digits()
    return (255 - digits.images * (255 / 16)).astype(np.uint8), digits.target
