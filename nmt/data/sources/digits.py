"""Generated images of handwritten numbers with captions in words; needs no download.

An image shows one or more numbers, one below the other, at random positions
(nmt/data/digit_images.py). num2words writes the captions. Training, validation and test sets share
no scan of a digit.
"""

import functools
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nmt.data import Box, Pairs, Region, Splits
from nmt.data.digit_images import PREFIX, SIDE, digit_scans
from nmt.foundation.errors import UserError
from nmt.foundation.ranges import Depth, Size

HELD_OUT = {"validation": 250, "test": 400}
"""Number of digit scans that are used only in the validation set, or only in the test set."""
BELOW = {
    "en": "below it", "de": "darunter", "fr": "en dessous", "es": "debajo", "it": "sotto",
    "pt": "abaixo", "nl": "eronder", "sv": "under", "da": "nedenunder", "no": "nedenfor",
    "pl": "poniżej", "cs": "pod tím", "fi": "alla", "ru": "ниже",
    "uk": "нижче", "tr": "altında",
}  # fmt: skip
"""Word for "below", by language, between two numbers of a caption. In other languages, only a comma
separates the numbers.
"""


@dataclass(frozen=True)
class PlacedNumber:
    """A number drawn in an image.

    number: value of the number
    top, left: first row and column, in pixels
    images: index of the scikit-learn scan of each digit
    """

    number: int
    top: int
    left: int
    images: Sequence[int]


class Digits:
    """Data source of generated number images with captions in words.

    language: language code of num2words
    train, validation, test: number of images in each set
    numbers: maximum number of numbers in an image
    longest: maximum number of digits in a number
    rows, columns: image height and width in pixels
    seed: random seed of the images

    Raises ValueError if the numbers do not fit into the image.
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
                f"data.rows={rows}, data.columns={columns}: too small; {numbers} numbers of "
                f"{longest} digits need at least {SIDE * numbers} rows and {SIDE * longest} columns"
            )
        self.language = language
        self.sizes = {"train": train, "validation": validation, "test": test}
        self.numbers = numbers
        self.longest = longest
        self.rows = rows
        self.columns = columns
        self.seed = seed

    def load(self) -> Splits:
        """Generates the training, validation and test sets.

        Raises UserError if scikit-learn is not installed or the language is unknown.
        """
        labels = digit_scans()[1]
        # A fixed seed holds out the same scans for every `data.seed`.
        order = np.random.default_rng(0).permutation(len(labels))
        first_held_out = len(labels) - sum(HELD_OUT.values())
        images = np.split(order, [first_held_out, first_held_out + HELD_OUT["validation"]])
        rng = random.Random(self.seed)
        parts = {}
        for (name, size), indices in zip(self.sizes.items(), images, strict=True):
            # Scan indices of each digit in this part.
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

    def _page(self, rng: random.Random, by_digit: Sequence[Sequence[int]]) -> list[PlacedNumber]:
        """Samples the numbers of an image, and their positions, so that the numbers do not overlap.

        rng: random number generator
        by_digit: scan indices of each digit
        """
        count = rng.randint(1, self.numbers)
        # Sorted gaps above the numbers, so that the numbers never overlap.
        gaps = sorted(rng.randint(0, self.rows - SIDE * count) for _ in range(count))
        page = []
        for k, gap in enumerate(gaps):
            size = rng.randint(1, self.longest)
            number = rng.randrange(10 ** (size - 1) if size > 1 else 0, 10**size)
            left = rng.randint(0, self.columns - SIDE * size)
            page.append(
                PlacedNumber(
                    number=number,
                    top=gap + SIDE * k,
                    left=left,
                    images=[rng.choice(by_digit[int(digit)]) for digit in str(number)],
                )
            )
        return page

    def _name(self, page: Sequence[PlacedNumber]) -> str:
        groups = [f"{','.join(map(str, n.images))}@{n.top},{n.left}" for n in page]
        return f"{PREFIX}{self.rows}x{self.columns}/{'/'.join(groups)}"

    def _caption(self, page: Sequence[PlacedNumber]) -> tuple[str, list[Region]]:
        """Returns the caption of an image, and the region of each word that names exactly one
        digit.
        """
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
    """Returns a number spelled out in a language.

    Raises UserError if num2words does not support the language.
    """
    from num2words import CONVERTER_CLASSES, num2words

    try:
        return " ".join(str(num2words(number, lang=language)).split())
    except NotImplementedError:
        raise UserError(
            f"data.language={language}: not supported by num2words (available: "
            f"{', '.join(sorted(CONVERTER_CLASSES))})"
        ) from None
    except Exception as error:  # errors of some languages for some numbers
        raise UserError(
            f"data.language={language}: num2words cannot write {number} ({error})"
        ) from error


@functools.cache
def digit_words(number: int, text: str, language: str) -> tuple[tuple[int, int, int], ...]:
    """Returns the words of `text` that name exactly one digit of `number`, as (begin, end, digit).

    In "four hundred and two" for 402, "four" names the first digit, and "two" names the last digit.
    "hundred" names no digit, because other hundreds, such as "three hundred", also contain it. In
    "two hundred and two" for 202, the first "two" names the first digit, and the second "two" names
    the last digit.

    number: number whose digits are named
    text: the number in words
    language: language code of num2words

    In the returned tuples, begin is the index of the word's first character, end the index after
    its last character, and digit the index of the digit in the number.
    """
    words: list[tuple[int, int, int]] = []
    for word, digits in _digits_by_word(str(number), language).items():
        spans = [match.span() for match in re.finditer(rf"\b{word}\b", text)]
        if len(spans) == len(digits):
            words += [(*span, digit) for span, digit in zip(spans, digits, strict=True)]
    return tuple(sorted(words))


def _digits_by_word(written: str, language: str) -> Mapping[str, list[int]]:
    """Returns, for each word, the indices of the digits of a number that the word can name.

    Such a word occurs in the digit's value, such as "four" in "four hundred" for the first digit of
    402. It does not occur in the value of another digit at the same place ("three hundred").

    written: number in decimal digits
    language: language code of num2words
    """
    digits_of: dict[str, list[int]] = {}
    for k, digit in enumerate(written):
        if digit == "0" and len(written) > 1:
            continue  # zeros have no word in a number of several digits
        zeros = 10 ** (len(written) - 1 - k)
        others = [_words(n * zeros, language) for n in range(1, 10) if n != int(digit)]
        for word in _words(int(digit) * zeros, language).difference(*others):
            digits_of.setdefault(word, []).append(k)
    return digits_of


def _words(number: int, language: str) -> set[str]:
    return set(re.findall(r"\w+", number_words(number, language)))
