"""Columns of parallel text, as sentence pairs: checked, and joined where the source has several."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from nmt.data import Pairs, Text, as_list
from nmt.data.links import parse_links
from nmt.foundation.errors import UserError
from nmt.foundation.part_limits import ConfigError, RunView


def check_names(key: str, names: list[str]) -> None:
    """Raises ValueError if there are no names, or if one is repeated; `key` is the setting."""
    if not names or len(set(names)) < len(names):
        raise ValueError(f"{key}=[{','.join(names)}]: name at least one, and each once")


@dataclass(frozen=True)
class PairColumns:
    """The keys data.source, data.target, data.factors and data.alignment.

    They name columns of a table, or endings of text files.

    sources: columns of the source texts, one or several.
    target: column of the target text.
    factors: columns with a value for each word of a single source.
    alignment: column of word alignments, or None.

    Raises ValueError if they contradict each other.
    """

    sources: list[str]
    target: str
    factors: list[str]
    alignment: str | None = None

    def __post_init__(self) -> None:
        check_names("data.source", self.sources)
        if len(self.sources) > 1 and self.factors:
            raise ValueError(
                "data.factors: belong to a single source; leave them out, or name one data.source"
            )

    @property
    def names(self) -> list[str]:
        """All columns, in the order in which they are read."""
        return [*self.sources, *self.factors, self.target, *as_list(self.alignment)]

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target."""
        return "+".join(self.sources), self.target

    def without_alignment(self) -> "PairColumns":
        """A copy without word alignments."""
        return replace(self, alignment=None)

    def pairs(
        self, texts: Mapping[str, Text], name: str, places: Mapping[str, str], first: int
    ) -> Pairs:
        """Sentence pairs from the texts of the columns.

        texts: lines by column.
        name: name of the pairs.
        places: file or column, in front of the line number in messages, by column.
        first: number of the first line.

        Raises UserError if a word lacks its factor, or a link its word.
        """
        for factor in self.factors:
            _check_values(places[factor], texts[self.sources[0]], texts[factor], first)
        source, *others = [texts[column] for column in (*self.sources, *self.factors)]
        if others:
            # A tab separates columns, so that it cannot stay inside one.
            rows = zip(source, *others, strict=True)
            source = ["\t".join(cell.replace("\t", " ") for cell in row) for row in rows]
        if self.alignment is None:
            return Pairs(source, texts[self.target], name)
        pairs = Pairs(source, texts[self.target], name, texts[self.alignment])
        _check_links(pairs, places[self.alignment], len(self.factors), first)
        return pairs


def _check_values(place: str, texts: Text, factors: Text, first: int) -> None:
    """Raises UserError with the line number unless every word has one value.

    place: file or column of the factor.
    texts: lines of the source.
    factors: values of each line.
    first: number of the first line.
    """
    for number, (text, line) in enumerate(zip(texts, factors, strict=True), first):
        words = len(text.split())
        values = len(line.split())
        if words != values:
            raise UserError(
                f"{place} {number:,}: {values} values, but its text has {words} words between "
                "spaces"
            )


def _check_links(pairs: Pairs, place: str, factors: int, first: int = 1) -> None:
    """Raises UserError for a line that is not a list of links, or whose links exceed its words.

    pairs: sentence pairs with links.
    place: file or column, in front of the line number in messages.
    factors: columns of the source that are not text.
    first: number of the first line.
    """
    assert pairs.links is not None
    rows = zip(pairs.source, pairs.target, pairs.links, strict=True)
    for number, (source, target, line) in enumerate(rows, first):
        text = source.split("\t")[0] if factors else source  # factors follow the text
        source_words = len(text.split())
        target_words = len(target.split())
        try:
            sure, possible = parse_links(line)
        except ValueError as error:
            raise UserError(f"{place} {number:,}: {error}") from error
        for s, t in sure | possible:
            if s >= source_words or t >= target_words:
                raise UserError(
                    f"{place} {number:,}: word of the link {s}-{t} not found: the source has "
                    f"{source_words} words between spaces, the target {target_words}, "
                    "counted from 0"
                )


def unread_links(run: RunView) -> Iterator[ConfigError]:
    """An error for alignments of the data that the objective does not read."""
    if run.value("data.alignment") and not run.value("objective.guided_alignment"):
        problem = "is read by objective.guided_alignment only: set that above 0"
        yield run.error("data.alignment", problem)
