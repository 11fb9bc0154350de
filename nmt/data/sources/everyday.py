"""Generated sentence pairs of dates, times, amounts, durations, units and number words; needs no
download.

A meaning, such as a day or a number, is drawn first and then written in both languages in a random
style. Babel formats most kinds from CLDR data, and num2words writes number words. Training,
validation and test sets share no meaning. Numbers below 1,000, from which all number words are
formed, are always in the training set.
"""

import datetime
import functools
import random
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from babel import Locale, UnknownLocaleError
from babel.dates import format_date, format_skeleton, format_time
from babel.lists import format_list
from babel.numbers import format_currency
from babel.units import format_unit
from num2words import num2words

from nmt.data import Pairs, Splits
from nmt.foundation.errors import UserError
from nmt.foundation.progress import Progress
from nmt.foundation.ranges import Size

UNITS = (  # Babel's unit identifiers
    "length-kilometer",
    "length-meter",
    "mass-kilogram",
    "mass-gram",
    "volume-liter",
    "temperature-celsius",
)
DURATIONS = (
    "duration-year",
    "duration-month",
    "duration-week",
    "duration-day",
    "duration-hour",
    "duration-minute",
)
CURRENCIES = ("EUR", "USD", "GBP", "CHF", "JPY")
TRIES = 50
"""Maximum draws per sentence pair before the requested number of pairs is rejected."""
BASIC_NUMBERS = 1000
"""Smallest number that may be in validation and test sets; number words are formed from smaller
numbers.
"""


@dataclass(frozen=True)
class Meaning:
    """Language-independent content that is written in both languages.

    key: hashable value that identifies the meaning
    write: function that writes the meaning in the language of a locale
    only_trained: whether the meaning is only in the training set
    """

    key: tuple[str, Hashable]
    write: Callable[[str], str]
    only_trained: bool = False


Kind = Callable[[random.Random], Meaning]
"""Function that draws a random meaning of one kind, such as a date or an amount of money."""


class Everyday:
    """Data source of generated sentence pairs in two locales.

    The meanings of the sentences are of several kinds, such as dates and amounts of money. Kinds
    that cannot be written in both languages are left out, such as units without a Babel pattern,
    number words unknown to num2words, and dates without month names.

    source, target: locales in Babel's notation, such as en, de or pt_BR
    train, validation, test: number of sentence pairs in each set
    seed: random seed of the meanings
    """

    generated: ClassVar[bool] = True

    def __init__(
        self,
        *,
        source: str = "en",
        target: str = "de",
        train: Size = 24000,
        validation: Size = 500,
        test: Size = 1000,
        seed: int = 0,
    ) -> None:
        self.languages = (source, target)
        self.sizes = {"train": train, "validation": validation, "test": test}
        self.seed = seed

    def load(self) -> Splits:
        """Generates the training, validation and test sets.

        Raises UserError if a locale is unknown or the sets are too large.
        """
        for key, name in zip(("source", "target"), self.languages, strict=True):
            try:
                Locale.parse(name)
            except (UnknownLocaleError, ValueError) as error:
                raise UserError(
                    f"data.{key}={name}: not a locale ({error}). "
                    "Use a locale such as en, de, fr, pt_BR or ja"
                ) from None
        with Progress("generating sentence pairs", sum(self.sizes.values()), "pairs") as step:
            return self._sample(self._kinds(), step)

    def _kinds(self) -> list[Kind]:
        """Returns the kinds of meanings that Babel and num2words can write in both languages.

        Common kinds occur several times in the list, so that they are drawn more often.
        """
        kinds: list[Kind] = [_time, _amount]
        if all(map(_has_dates, self.languages)):
            kinds = [_date, _date, *kinds]
        for draw, names in ((_duration, DURATIONS), (_unit, UNITS)):
            units = [unit for unit in names if all(_has_unit(unit, x) for x in self.languages)]
            if units:
                kinds.append(partial(draw, units=units))
        if all(map(_has_number_words, self.languages)):
            kinds += [_number_word] * 4
        return kinds

    def _sample(self, kinds: Sequence[Kind], step: Callable[[], None]) -> Splits:
        rng = random.Random(self.seed)
        part_by_meaning: dict[tuple[str, Hashable], str] = {}
        # Source sentences in the validation and test sets, which the training set must not contain.
        held_out = set[str]()
        pairs = {}
        tries = iter(range(TRIES * sum(self.sizes.values())))
        # The small sets are drawn first, so that every kind is represented.
        for part, size in reversed(self.sizes.items()):
            lines: list[tuple[str, str]] = []
            while len(lines) < size:
                if next(tries, None) is None:
                    raise UserError(
                        f"data.{part}={size}: not enough distinct sentences can be generated; "
                        f"lower data.{part}"
                    )
                meaning = rng.choice(kinds)(rng)
                is_excluded = meaning.only_trained and part != "train"
                if is_excluded or part_by_meaning.setdefault(meaning.key, part) != part:
                    continue
                source = meaning.write(self.languages[0])
                if source in held_out:
                    continue
                if part != "train":  # training pairs may repeat, since small numbers are common
                    held_out.add(source)
                lines.append((source, meaning.write(self.languages[1])))
                step()
            sources, targets = map(list, zip(*lines, strict=True))
            pairs[part] = Pairs(sources, targets, f"everyday, {part}")
        return Splits(
            train=pairs["train"],
            validation=pairs["validation"],
            test=pairs["test"],
            languages=self.languages,
        )


def _plain(text: str) -> str:
    """Replaces the no-break spaces of CLDR by ordinary spaces."""
    return " ".join(text.split())


def _write_date(day: datetime.date, style: str, locale: str) -> str:
    """Formats a date in a Babel style or with a CLDR skeleton such as yMMMM."""
    if style in ("full", "long", "short"):
        return _plain(format_date(day, style, locale=locale))
    return _plain(format_skeleton(style, day, locale=locale))


def _date(rng: random.Random) -> Meaning:
    day = datetime.date(1950, 1, 1) + datetime.timedelta(days=rng.randrange(100 * 365))
    style = rng.choice(("full", "long", "long", "short", "MMMMd", "yMMMM"))
    return Meaning(("date", day), partial(_write_date, day, style))


def _time(rng: random.Random) -> Meaning:
    time = datetime.time(rng.randrange(24), rng.randrange(60), rng.randrange(60))
    style = rng.choice(("short", "medium"))
    return Meaning(
        ("time", time.replace(second=0)),
        lambda locale: _plain(format_time(time, style, locale=locale)),
    )


def _amount(rng: random.Random) -> Meaning:
    cents = int(10 ** rng.uniform(2, 7))  # a log-uniform distribution of amounts
    currency = rng.choice(CURRENCIES)
    return Meaning(
        ("amount", (cents, currency)),
        lambda locale: _plain(format_currency(cents / 100, currency, locale=locale)),
    )


def _duration(rng: random.Random, units: Sequence[str]) -> Meaning:
    first = rng.randrange(len(units))
    # A duration has one unit or two adjacent units.
    parts = [(rng.randint(1, 99), units[first])]
    if first + 1 < len(units) and rng.random() < 0.7:
        parts.append((rng.randint(1, 59), units[first + 1]))

    def write(locale: str) -> str:
        texts = [format_unit(value, unit, length="long", locale=locale) for value, unit in parts]
        return _plain(format_list(texts, locale=locale))

    return Meaning(("duration", tuple(parts)), write)


def _unit(rng: random.Random, units: Sequence[str]) -> Meaning:
    value: float = rng.randint(1, 999) if rng.random() < 0.5 else rng.randint(1, 9999) / 10
    unit = rng.choice(units)
    return Meaning(
        ("unit", (value, unit)),
        lambda locale: _plain(format_unit(value, unit, length="long", locale=locale)),
    )


def _number_word(rng: random.Random) -> Meaning:
    digits = str(int(10 ** rng.uniform(0, 6)) - 1)
    # Zeros are frequent, since round numbers are common.
    number = int("".join(digit if rng.random() < 0.7 else "0" for digit in digits))
    return Meaning(
        ("number", number),
        lambda locale: num2words(number, lang=locale),
        only_trained=number < BASIC_NUMBERS,
    )


def _has_unit(unit: str, locale: str) -> bool:
    """Returns whether Babel can write a unit in all plural forms of a locale.

    Without a pattern for a plural form, Babel writes the unit's identifier.
    """
    # Babel has no public function that lists unit patterns.
    patterns = Locale.parse(locale)._data["unit_patterns"].get(unit, {}).get("long", {})
    return _plural_forms(locale) <= set(patterns)


@functools.cache
def _plural_forms(locale: str) -> set[str]:
    """Returns the plural categories of all numbers that are written with units."""
    plural_form = Locale.parse(locale).plural_form
    numbers = (*range(1, 1000), *(tenths / 10 for tenths in range(1, 10_000)))
    return {plural_form(number) for number in numbers}


def _has_dates(locale: str) -> bool:
    """Returns whether Babel has the month names of a locale; without them, Babel writes M01."""
    days = [datetime.date(2021, month, 1) for month in range(1, 13)]
    styles = ("full", "long", "short", "MMMMd", "yMMMM")
    try:
        texts = [_write_date(day, style, locale) for style in styles for day in days]
        return not any(re.search(r"M\d\d", text) for text in texts)
    except (TypeError, KeyError, ValueError):  # Babel raises these errors for a missing pattern
        return False


def _has_number_words(locale: str) -> bool:
    """Returns whether num2words supports numbers of up to six digits in a language."""
    try:
        return all(num2words(number, lang=locale) for number in (1, 21, 345, 6789, 98765, 654321))
    except Exception:  # num2words raises many exception types for partially supported languages
        return False
