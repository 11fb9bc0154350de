"""Letters to reverse: a synthetic task whose attention map is the anti-diagonal."""

import itertools
import random
from typing import ClassVar

from nmt.data import Pairs, Splits
from nmt.foundation.ranges import Size


class Reverse:
    """Distinct random sequences of letters, and the same sequences reversed.

    train, validation, test: number of sequences in each part.
    symbols: number of different letters.
    min_length, max_length: number of letters in a sequence.
    seed: seed of the sequences.

    Raises ValueError if there are too few distinct sequences.
    """

    generated: ClassVar[bool] = True

    def __init__(
        self,
        *,
        train: Size = 4000,
        validation: Size = 200,
        test: Size = 200,
        symbols: Size = 10,
        min_length: Size = 2,
        max_length: Size = 8,
        seed: int = 0,
    ) -> None:
        distinct = sum(symbols**length for length in range(min_length, max_length + 1))
        # With fewer, drawing distinct sequences would take long.
        if distinct < 2 * (train + validation + test):
            raise ValueError(
                "data: too few distinct sequences for data.train, validation and test: raise "
                "data.max_length"
            )
        self.sizes = {"train": train, "validation": validation, "test": test}
        self.symbols = symbols
        self.lengths = (min_length, max_length)
        self.seed = seed

    def load(self) -> Splits:
        """The sequences; equal seeds give equal sequences."""
        rng = random.Random(self.seed)
        sequences = dict[str, None]()  # a dict keeps the order in which they are drawn
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
