"""A synthetic task with a known answer: reverse a sequence of letters. Its attention map is the anti-diagonal."""

from __future__ import annotations

import random

from nmt.data import Pairs, Splits
from nmt.foundation.ranges import Size


class Reverse:
    """Distinct random sequences of `symbols` letters, `min_length` to `max_length` long, sampled with `seed`."""

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
        if sum(symbols**n for n in range(min_length, max_length + 1)) < 2 * (
            train + validation + test
        ):
            raise ValueError(
                "data: too few distinct sequences for data.train, validation and test: raise data.max_length"
            )
        self.sizes, self.seed = (train, validation, test), seed
        self.symbols, self.lengths = symbols, (min_length, max_length)

    def load(self) -> Splits:
        rng, seen = random.Random(self.seed), dict[tuple[int, ...], None]()
        while len(seen) < sum(self.sizes):
            seen[tuple(rng.randrange(self.symbols) for _ in range(rng.randint(*self.lengths)))] = (
                None
            )
        lines = [[chr(ord("a") + letter) for letter in sequence] for sequence in seen]
        parts, start = [], 0
        for name, size in zip(("train", "validation", "test"), self.sizes, strict=True):
            chosen = lines[start : start + size]
            source, target = (
                [" ".join(line) for line in chosen],
                [" ".join(reversed(line)) for line in chosen],
            )
            parts.append(Pairs(source, target, f"reverse, {name}"))
            start += size
        return Splits(parts[0], parts[1], parts[2], languages=("forward", "backward"))
