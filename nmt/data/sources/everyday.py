"""Real language without files: dates, times, amounts, durations and units as people write them (CLDR data, by Babel), and
number words (num2words), in any two locales.

A meaning (a day, a number …) is drawn first, then written in both languages in one of several styles. The three parts
share no meaning: a day seen in training in one style is never tested in another. The numbers below 1,000, from which
all number words are made, always belong to the training part.
"""

from __future__ import annotations

import datetime
import functools
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from nmt.data import Pairs, Splits
from nmt.foundation.errors import UserError
from nmt.foundation.progress import Progress
from nmt.foundation.ranges import Size

Writer = Callable[[str], str]
"""Writes one meaning in the language of a locale."""
DateWriter = Callable[[datetime.date, str], str]
Kind = Callable[[random.Random, Sequence[str]], tuple[Any, Writer]]
"""Draws a meaning: returns something that identifies it, and the function that writes it. The names are the units that both
languages have words for."""

UNITS = (
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


class Everyday:
    """`source` and `target` are locales as Babel names them (en, de, fr, pt_BR, ja …); sampled with `seed`.

    What one of the languages has no words for is left out: single units where Babel has no pattern, number words where
    num2words does not know it, dates where the months have no names. Raises UserError if a language is unknown.
    """

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
        self.languages, self.sizes, self.seed = (source, target), (train, validation, test), seed

    def load(self) -> Splits:
        from babel import Locale, UnknownLocaleError

        for key, name in zip(("source", "target"), self.languages, strict=True):
            try:
                Locale.parse(name)
            except (UnknownLocaleError, ValueError) as error:
                raise UserError(
                    f"data.{key}={name}: not a locale ({error}). Use one like en, de, fr, pt_BR or ja"
                ) from None
        units, durations = (
            [u for u in us if all(_has_unit(u, name) for name in self.languages)]
            for us in (UNITS, DURATIONS)
        )
        kinds: list[tuple[Kind, Sequence[str]]] = []
        if all(_has_dates(name) for name in self.languages):
            kinds += [(_date, ())] * 2
        kinds += [(_time, ()), (_amount, ())]
        kinds += [
            (kind, names) for kind, names in ((_duration, durations), (_unit, units)) if names
        ]
        if all(_speaks(name) for name in self.languages):
            kinds += [(_number_word, ())] * 4
        return self._sample(kinds)

    def _sample(self, kinds: Sequence[tuple[Kind, Sequence[str]]]) -> Splits:
        with Progress("making sentences", sum(self.sizes), "pairs") as step:
            return self._made(kinds, step)

    def _made(
        self, kinds: Sequence[tuple[Kind, Sequence[str]]], step: Callable[[], None]
    ) -> Splits:
        rng = random.Random(self.seed)
        owner: dict[tuple[str, Any], int] = {}  # which part a meaning belongs to
        held_out: set[str] = set()  # source sentences of the two small parts
        parts: list[tuple[list[str], list[str]]] = [([], []), ([], []), ([], [])]
        tries = 0
        for part in (2, 1, 0):  # the small parts first: they get their share of every kind
            source, target = parts[part]
            while len(source) < self.sizes[part]:
                tries += 1
                if tries > 50 * sum(self.sizes):
                    raise UserError(
                        f"data: there are not {self.sizes[part]:,} different things to say: lower data.train"
                    )
                kind, names = rng.choice(kinds)
                meaning, write = kind(rng, names)
                if (kind is _number_word and meaning < 1000 and part) or (
                    owner.setdefault((kind.__name__, meaning), part) != part
                ):
                    continue
                line = write(self.languages[0])
                if line in held_out:
                    continue
                if part:
                    held_out.add(
                        line
                    )  # only the training part may repeat lines: small numbers are common
                source.append(line)
                target.append(write(self.languages[1]))
                step()
        part_names = ("train", "validation", "test")
        made = [
            Pairs(*part, f"everyday, {name}") for part, name in zip(parts, part_names, strict=True)
        ]
        return Splits(made[0], made[1], made[2], languages=self.languages)


def _plain(text: str) -> str:
    """The text with ordinary spaces for the no-break spaces that CLDR puts between number and unit."""
    return " ".join(text.split())


def _formatted(style: str) -> DateWriter:
    def write(day: datetime.date, locale: str) -> str:
        from babel.dates import format_date

        return _plain(format_date(day, style, locale=locale))

    return write


def _by_skeleton(style: str) -> DateWriter:
    def write(day: datetime.date, locale: str) -> str:
        from babel.dates import format_skeleton

        return _plain(format_skeleton(style, day, locale=locale))

    return write


DATE_STYLES: dict[str, DateWriter] = {
    **{style: _formatted(style) for style in ("full", "long", "short")},
    **{style: _by_skeleton(style) for style in ("MMMMd", "yMMMM")},
}


def _date(rng: random.Random, _: Sequence[str]) -> tuple[Any, Writer]:
    day = datetime.date(1950, 1, 1) + datetime.timedelta(days=rng.randrange(100 * 365))
    write = DATE_STYLES[rng.choice(("full", "long", "long", "short", "MMMMd", "yMMMM"))]
    return day, lambda locale: write(day, locale)


def _time(rng: random.Random, _: Sequence[str]) -> tuple[Any, Writer]:
    from babel.dates import format_time

    time = datetime.time(rng.randrange(24), rng.randrange(60), rng.randrange(60))
    style = rng.choice(("short", "medium"))
    return time.replace(second=0), lambda locale: _plain(format_time(time, style, locale=locale))


def _amount(rng: random.Random, _: Sequence[str]) -> tuple[Any, Writer]:
    from babel.numbers import format_currency

    cents, currency = int(10 ** rng.uniform(2, 7)), rng.choice(CURRENCIES)
    return (cents, currency), lambda locale: _plain(
        format_currency(cents / 100, currency, locale=locale)
    )


def _duration(rng: random.Random, names: Sequence[str]) -> tuple[Any, Writer]:
    from babel.lists import format_list
    from babel.units import format_unit

    first = rng.randrange(len(names))
    parts = [(rng.randint(1, 99), names[first])]
    if first + 1 < len(names) and rng.random() < 0.7:
        parts.append((rng.randint(1, 59), names[first + 1]))
    return tuple(parts), lambda locale: _plain(
        format_list(
            [format_unit(n, unit, length="long", locale=locale) for n, unit in parts], locale=locale
        )
    )


def _unit(rng: random.Random, names: Sequence[str]) -> tuple[Any, Writer]:
    from babel.units import format_unit

    value: float = rng.randint(1, 999) if rng.random() < 0.5 else rng.randint(1, 9999) / 10
    unit = rng.choice(names)
    return (value, unit), lambda locale: _plain(
        format_unit(value, unit, length="long", locale=locale)
    )


def _number_word(rng: random.Random, _: Sequence[str]) -> tuple[Any, Writer]:
    from num2words import num2words

    digits = str(int(10 ** rng.uniform(0, 6)) - 1)
    number = int(
        "".join(digit if rng.random() < 0.7 else "0" for digit in digits)
    )  # round numbers are common
    return number, lambda locale: num2words(number, lang=locale)


def _has_unit(unit: str, locale: str) -> bool:
    """Whether Babel can write numbers of a unit. Where it has no pattern, it would write the unit's own name."""
    from babel import Locale

    return _plural_forms(locale) <= set(
        Locale.parse(locale)._data["unit_patterns"].get(unit, {}).get("long", {})
    )


@functools.cache
def _plural_forms(locale: str) -> set[str]:
    """Those of all numbers that are written with units."""
    from babel import Locale

    found = Locale.parse(locale)
    return {
        found.plural_form(number)
        for number in (*range(1, 1000), *(n / 10 for n in range(1, 10_000)))
    }


def _has_dates(locale: str) -> bool:
    """Whether Babel can write dates. Where the months have no names, it would write M01."""
    days = [datetime.date(2021, month, 1) for month in range(1, 13)]
    try:
        texts = [write(day, locale) for write in DATE_STYLES.values() for day in days]
    except (TypeError, KeyError, ValueError):  # there is no such pattern
        return False
    return not any(re.search(r"M\d\d", text) for text in texts)


def _speaks(locale: str) -> bool:
    """Whether num2words can write numbers of any length in a language."""
    from num2words import num2words

    try:
        return all(num2words(number, lang=locale) for number in (1, 21, 345, 6789, 98765, 654321))
    except Exception:  # languages that it does not know, and some that it does not know well
        return False
