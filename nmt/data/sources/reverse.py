"""Synthetic task of reversing letter sequences; the ideal attention map is anti-diagonal."""

import itertools
import random
from typing import Annotated, ClassVar

from nmt.data import Pairs, Splits
from nmt.foundation.ranges import Range, Size


class Reverse:
    """Data source of distinct random letter sequences and their reversals.

    train, validation, test: number of sequences in each set
    symbols: number of different letters
    min_length, max_length: number of letters per sequence
    seed: random seed of the sequences

    Raises ValueError if there are too few distinct sequences.
    """

    generated: ClassVar[bool] = True

    def __init__(
        self,
        *,
        train: Size = 4000,
        validation: Size = 200,
        test: Size = 200,
        symbols: Annotated[int, Range(1, 26)] = 10,
        min_length: Size = 2,
        max_length: Size = 8,
        seed: int = 0,
    ) -> None:
        distinct = sum(symbols**length for length in range(min_length, max_length + 1))
        # With fewer sequences, drawing distinct ones would take too long.
        if distinct < 2 * (train + validation + test):
            raise ValueError(
                "data.max_length: not enough distinct lines can be generated for data.train, "
                "data.validation and data.test; raise data.max_length"
            )
        self.sizes = {"train": train, "validation": validation, "test": test}
        self.symbols = symbols
        self.lengths = (min_length, max_length)
        self.seed = seed

    def load(self) -> Splits:
        """Generates the training, validation and test sets; equal seeds give equal sequences."""
        rng = random.Random(self.seed)
        sequences = dict[str, None]()  # a dictionary serves as an ordered set
        while len(sequences) < sum(self.sizes.values()):
            length = rng.randint(*self.lengths)
            letters = [chr(ord("a") + rng.randrange(self.symbols)) for _ in range(length)]
            sequences[" ".join(letters)] = None
        lines = iter(sequences)
        parts = {}
        for name, size in self.sizes.items():
            source = list(itertools.islice(lines, size))
            parts[name] = Pairs(source, [line[::-1] for line in source], f"reverse, {name}")
        return Splits(
            train=parts["train"],
            validation=parts["validation"],
            test=parts["test"],
            languages=("forward", "backward"),
        )
