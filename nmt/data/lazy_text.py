"""Text that is read line by line, on demand: selections and chains of texts without copies."""

import bisect
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Text = Sequence[str]
"""Lines of text, either a list in memory or a sequence that reads lines on demand."""


class View(Text):
    """Base class for sequences of lazily read lines; subclasses define `__len__` and `line`."""

    def line(self, i: int) -> str:
        """Returns the line with index `i`, counted from 0."""
        raise NotImplementedError

    def lines(self, rows: range) -> list[str]:
        """Returns the lines whose indices are in a range."""
        return [self.line(i) for i in rows]

    def __getitem__(self, i: Any, /) -> Any:
        rows = range(len(self))  # supports negative indices and slices with any step
        return self.lines(rows[i]) if isinstance(i, slice) else self.line(rows[i])


class Selection(View):
    """View of some lines of a text, selected by their indices.

    text: all lines
    indices: index of each selected line
    """

    def __init__(self, text: Text, indices: Sequence[int] | np.ndarray) -> None:
        self._text = text
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    def line(self, i: int) -> str:
        return self._text[int(self._indices[i])]


class Chain(View):
    """View of several texts as one text, without copying."""

    def __init__(self, texts: Sequence[Text]) -> None:
        self._texts = texts
        self._starts = [0, *itertools.accumulate(map(len, texts))]

    def __len__(self) -> int:
        return self._starts[-1]

    def line(self, i: int) -> str:
        k = bisect.bisect_right(self._starts, i) - 1  # the text that contains line i
        return self._texts[k][i - self._starts[k]]

    def __iter__(self) -> Iterator[str]:
        return itertools.chain.from_iterable(self._texts)
