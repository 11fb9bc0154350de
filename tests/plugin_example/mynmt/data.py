"""Sequences of letters, and the same sequences with each letter written twice."""

import random

from nmt.data import Pairs, Splits
from nmt.foundation.ranges import Size


class Doubled:
    """train, validation: number of pairs."""

    def __init__(self, *, train: Size = 400, validation: Size = 50) -> None:
        self.sizes = (train, validation)

    def load(self) -> Splits:
        rng = random.Random(1)
        parts = []
        for size in self.sizes:
            source = [" ".join(rng.choices("abcdefgh", k=rng.randint(2, 6))) for _ in range(size)]
            target = [" ".join(letter * 2 for letter in line.split()) for line in source]
            parts.append(Pairs(source, target, "doubled"))
        return Splits(*parts, test=None, languages=("single", "double"))
