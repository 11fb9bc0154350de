"""Converts columns of parallel text into checked sentence pairs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nmt.data import Pairs, Text, as_list
from nmt.data.links import parse_links
from nmt.foundation.errors import UserError
from nmt.foundation.part_limits import ConfigError, RunView


def check_names(key: str, names: list[str]) -> None:
    """Raises ValueError if a list of names is empty or contains duplicates.

    key: setting that contains the names, for the message
    names: names to check
    """
    if not names or len(set(names)) < len(names):
        raise ValueError(
            f"{key}=[{','.join(names)}]: must contain at least one name, and no name twice"
        )


@dataclass(frozen=True)
class PairColumns:
    """Columns named by the keys data.source, data.target, data.factors and data.alignment.

    The names are columns of a table or extensions of text files.

    sources: columns of the source texts, one or more
    target: column of the target text
    factors: columns with one value per word of a single source
    alignment: column of word alignments; None without alignments

    Raises ValueError if the settings contradict each other.
    """

    sources: list[str]
    target: str
    factors: list[str]
    alignment: str | None = None

    def __post_init__(self) -> None:
        check_names("data.source", self.sources)
        if self.target in self.sources:
            raise ValueError(
                f"data.target={self.target}: is also data.source; name two different columns or "
                "file extensions"
            )
        check_names("data.source, data.factors, data.target, data.alignment", self.names)
        if len(self.sources) > 1 and self.factors:
            raise ValueError(
                "data.factors: cannot be combined with several sources; leave data.factors out, "
                "or set data.source to one column"
            )

    @property
    def names(self) -> list[str]:
        """Names of all columns to read, in reading order: sources, factors, target, alignment."""
        return [*self.sources, *self.factors, self.target, *as_list(self.alignment)]

    @property
    def languages(self) -> tuple[str, str]:
        """Names of the source and target languages; several sources are joined with "+"."""
        return "+".join(self.sources), self.target

    def pairs(
        self, texts: Mapping[str, Text], name: str, places: Mapping[str, str], first: int
    ) -> Pairs:
        """Builds sentence pairs from columns of text.

        texts: lines of each column
        name: name of the sentence pairs, for messages
        places: file or column name for messages, by column
        first: number of the first line, for messages

        Raises UserError if a word has no factor value, or a link refers to a missing word.
        """
        for factor in self.factors:
            _check_values(places[factor], texts[self.sources[0]], texts[factor], first)
        source, *others = [texts[column] for column in (*self.sources, *self.factors)]
        if others:
            # Tabs separate columns, so tabs inside a cell become spaces.
            rows = zip(source, *others, strict=True)
            source = ["\t".join(cell.replace("\t", " ") for cell in row) for row in rows]
        if self.alignment is None:
            return Pairs(source, texts[self.target], name)
        pairs = Pairs(source, texts[self.target], name, texts[self.alignment])
        _check_links(pairs, places[self.alignment], len(self.factors), first)
        return pairs


def _check_values(place: str, texts: Text, factors: Text, first: int) -> None:
    """Raises UserError unless every line has one factor value per word.

    place: file or column of the factor, for the message
    texts: source lines
    factors: factor values of each line
    first: number of the first line, for messages
    """
    for number, (text, line) in enumerate(zip(texts, factors, strict=True), first):
        words = len(text.split())
        values = len(line.split())
        if words != values:
            raise UserError(
                f"{place} {number:,}: expected one factor value for each of the {words} "
                f"space-separated source words, got {values} values"
            )


def _check_links(pairs: Pairs, place: str, factors: int, first: int = 1) -> None:
    """Raises UserError if a line contains an invalid link or a link to a missing word.

    pairs: sentence pairs with links
    place: file or column of the links, for the message
    factors: number of factor columns in the source
    first: number of the first line, for messages
    """
    assert pairs.links is not None
    rows = zip(pairs.source, pairs.target, pairs.links, strict=True)
    for number, (source, target, line) in enumerate(rows, first):
        text = source.split("\t")[0] if factors else source  # the first column is the text
        source_words = len(text.split())
        target_words = len(target.split())
        try:
            sure, possible = parse_links(line)
        except ValueError as error:
            raise UserError(f"{place} {number:,}: {error}") from error
        for s, t in sure | possible:
            if s >= source_words or t >= target_words:
                raise UserError(
                    f"{place} {number:,}: alignment link {s}-{t} is out of range; the source "
                    f"has {source_words} and the target {target_words} space-separated words, "
                    "numbered from 0"
                )


def unread_links(run: RunView) -> Iterator[ConfigError]:
    """Yields an error if data.alignment is set although the objective does not use alignments."""
    if run.value("data.alignment") and not run.value("objective.guided_alignment"):
        problem = "has no effect without guided attention; set objective.guided_alignment above 0"
        yield run.error("data.alignment", problem)
