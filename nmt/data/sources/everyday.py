"""Generated sentence pairs of dates, times, amounts, durations, units and number words; needs no
download.

A meaning, such as a day or a number, is drawn first and then written in both languages in a random
style (nmt/data/meanings.py). Training, validation and test sets share no meaning. Numbers below
1,000, from which all number words are formed, are always in the training set.
"""

import random
from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar

from babel import Locale, UnknownLocaleError

from nmt.data import Pairs, Splits
from nmt.data.meanings import Kind, kinds_of
from nmt.foundation.errors import UserError
from nmt.foundation.progress import Progress
from nmt.foundation.ranges import Size

TRIES = 50
"""Maximum number of random draws per requested sentence pair. If more draws are needed, too few
distinct sentences exist, and UserError is raised.
"""


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
            return self._sample(kinds_of(self.languages), step)

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
