"""Real language without files: dates, times, amounts, durations and units as people write them (CLDR data, by Babel), and
number words (num2words), in any two locales.

A meaning (a day, a number …) is drawn first, then written in both languages in one of several styles. The three parts
share no meaning: a day seen in training in one style is never tested in another. The numbers below 1,000, from which
all number words are made, always belong to the training part.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from typing import Any

from nmt.data import Pairs, Splits
from nmt.foundation.errors import UserError
from nmt.foundation.ranges import Size

Writer = Callable[[str], str]
"""Writes one meaning in the language of a locale."""
Kind = Callable[[random.Random], tuple[Any, Writer]]
"""Draws a meaning: returns something that identifies it, and the function that writes it."""

UNITS = ("length-kilometer", "length-meter", "mass-kilogram", "mass-gram", "volume-liter", "temperature-celsius")
DURATIONS = ("duration-year", "duration-month", "duration-week", "duration-day", "duration-hour", "duration-minute")
CURRENCIES = ("EUR", "USD", "GBP", "CHF", "JPY")


class Everyday:
    """`source` and `target` are locales as Babel names them (en, de, fr, pt_BR, ja …); sampled with `seed`.

    Number words are left out where num2words does not know one of the languages.
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
        kinds: list[Kind] = [_date, _date, _time, _amount, _duration, _unit]
        if all(_speaks(name) for name in self.languages):
            kinds += [_number_word] * 4
        return self._sample(kinds)

    def _sample(self, kinds: list[Kind]) -> Splits:
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
                kind = rng.choice(kinds)
                meaning, write = kind(rng)
                if (kind is _number_word and meaning < 1000 and part) or (
                    owner.setdefault((kind.__name__, meaning), part) != part
                ):
                    continue
                line = write(self.languages[0])
                if line in held_out:
                    continue
                if part:
                    held_out.add(line)  # only the training part may repeat lines: small numbers are common
                source.append(line)
                target.append(write(self.languages[1]))
        names = ("train", "validation", "test")
        made = [Pairs(*part, f"everyday, {name}") for part, name in zip(parts, names, strict=True)]
        return Splits(made[0], made[1], made[2], languages=self.languages)


def _plain(text: str) -> str:
    """The text with ordinary spaces for the no-break spaces that CLDR puts between number and unit."""
    return " ".join(text.split())


def _date(rng: random.Random) -> tuple[Any, Writer]:
    from babel.dates import format_date

    day = datetime.date(1950, 1, 1) + datetime.timedelta(days=rng.randrange(100 * 365))
    style = rng.choice(("full", "long", "long", "short", "MMMMd", "yMMMM"))
    if style in ("MMMMd", "yMMMM"):
        from babel.dates import format_skeleton

        return day, lambda locale: _plain(format_skeleton(style, day, locale=locale))
    return day, lambda locale: _plain(format_date(day, style, locale=locale))


def _time(rng: random.Random) -> tuple[Any, Writer]:
    from babel.dates import format_time

    time = datetime.time(rng.randrange(24), rng.randrange(60), rng.randrange(60))
    style = rng.choice(("short", "medium"))
    return time.replace(second=0), lambda locale: _plain(format_time(time, style, locale=locale))


def _amount(rng: random.Random) -> tuple[Any, Writer]:
    from babel.numbers import format_currency

    cents, currency = int(10 ** rng.uniform(2, 7)), rng.choice(CURRENCIES)
    return (cents, currency), lambda locale: _plain(format_currency(cents / 100, currency, locale=locale))


def _duration(rng: random.Random) -> tuple[Any, Writer]:
    from babel.lists import format_list
    from babel.units import format_unit

    first = rng.randrange(len(DURATIONS))
    parts = [(rng.randint(1, 99), DURATIONS[first])]
    if first + 1 < len(DURATIONS) and rng.random() < 0.7:
        parts.append((rng.randint(1, 59), DURATIONS[first + 1]))
    return tuple(parts), lambda locale: _plain(
        format_list([format_unit(n, unit, length="long", locale=locale) for n, unit in parts], locale=locale)
    )


def _unit(rng: random.Random) -> tuple[Any, Writer]:
    from babel.units import format_unit

    value: float = rng.randint(1, 999) if rng.random() < 0.5 else rng.randint(1, 9999) / 10
    unit = rng.choice(UNITS)
    return (value, unit), lambda locale: _plain(format_unit(value, unit, length="long", locale=locale))


def _number_word(rng: random.Random) -> tuple[Any, Writer]:
    from num2words import num2words

    digits = str(int(10 ** rng.uniform(0, 6)) - 1)
    number = int("".join(digit if rng.random() < 0.7 else "0" for digit in digits))  # round numbers are common
    return number, lambda locale: num2words(number, lang=locale)


def _speaks(locale: str) -> bool:
    from num2words import num2words

    try:
        num2words(1, lang=locale)
    except NotImplementedError:
        return False
    return True
