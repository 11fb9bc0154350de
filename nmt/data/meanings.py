"""Meanings such as dates, amounts and numbers: drawn at random, and written in any language.

Babel formats most kinds of meanings from CLDR data, and num2words writes number words.
"""

import datetime
import random
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache, partial

from babel import Locale
from babel.dates import format_date, format_skeleton, format_time
from babel.lists import format_list
from babel.numbers import format_currency
from babel.units import format_unit
from num2words import num2words

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
BASIC_NUMBERS = 1000
"""Smallest number that may occur in validation and test sets. Smaller numbers occur only in the
training set, because their words are components of larger number words.
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


def kinds_of(languages: Sequence[str]) -> list[Kind]:
    """Returns the kinds of content, such as dates, amounts of money and number words, that Babel
    and num2words can write in all given languages.

    Common kinds occur several times in the list, so that they are drawn more often.

    languages: locales in Babel's notation
    """
    kinds: list[Kind] = [_time, _amount]
    if all(map(_has_dates, languages)):
        kinds = [_date, _date, *kinds]
    for draw, names in ((_duration, DURATIONS), (_unit, UNITS)):
        units = [unit for unit in names if all(_has_unit(unit, x) for x in languages)]
        if units:
            kinds.append(partial(draw, units=units))
    if all(map(_has_number_words, languages)):
        kinds += [_number_word] * 4
    return kinds


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


@cache
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
