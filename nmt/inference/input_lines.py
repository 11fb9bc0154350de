"""Input lines of a command, read in chunks so that memory does not grow with the file size."""

import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nmt.data.lines import batched, check_line_length
from nmt.data.text_encoding import (
    BOM,
    Errors,
    check_head,
    decode_line,
)
from nmt.foundation.errors import UserError
from nmt.inference.constraint import Constraint
from nmt.inference.text_input import checked, find_input

CHUNK = 2000
"""Number of lines per chunk: enough for batches of similar lengths, few enough for frequent
output."""
READ_BYTES = 1 << 16
"""Maximum number of bytes that one call reads from stdin."""

LineCheck = Callable[[str], object]
"""Type of functions that raise UserError for an input line that a model cannot read."""
ConstraintCheck = Callable[[Constraint], object]
"""Type of functions that raise UserError for a constraint that a model cannot meet."""


@dataclass(frozen=True)
class InputChunk:
    """Chunk of consecutive input lines, with the constraints on their translations.

    first: index of the first line in the input, from 0
    lines: input lines
    constraints: one constraint per line; None if translations are unconstrained
    """

    first: int
    lines: list[str]
    constraints: list[Constraint] | None


class InputLines:
    """Input lines of a file, or of stdin as they arrive.

    name: file, folder or fsspec URL; None reads stdin
    errors: treatment of bytes that are not UTF-8: `strict` or `replace`
    prefix: file with the required beginning of each line's translation; None without prefixes
    constraints: JSONL file with the constraints on each line's translation; None if unconstrained

    Attributes:
        count: number of lines of the file; 0 for stdin
        characters: number of characters of the file without newlines; 0 for stdin

    The constructor reads a file completely and raises UserError for invalid lines, before any
    output is written. For stdin, UserError is raised when the invalid line arrives.
    """

    def __init__(
        self,
        name: str | None,
        errors: Errors,
        *,
        prefix: str | None = None,
        constraints: str | None = None,
    ) -> None:
        self.errors = errors
        self.count = 0
        self.characters = 0
        self._check: LineCheck = str
        self._check_constraint: ConstraintCheck = str
        self._file = None if name is None else find_input(name)
        parsers = ((prefix, lambda line, _: Constraint(line)), (constraints, _parse_constraint))
        self._constraint_files = [
            (find_input(file), parse) for file, parse in parsers if file is not None
        ]
        if self._file is None:
            return
        for line in self._file.lines(errors):
            self.count += 1
            self.characters += len(line)
        for file, _ in self._constraint_files:
            count = sum(1 for _ in file.lines(errors))
            if count != self.count:
                raise UserError(
                    f"{file}: has {count:,} lines, but the input {self._file} has "
                    f"{self.count:,}; give one line for each input line"
                )
        for _ in self._constraints():
            pass

    @property
    def is_stdin(self) -> bool:
        return self._file is None

    @property
    def is_typed(self) -> bool:
        """Whether a user types the lines at a terminal."""
        return self.is_stdin and sys.stdin is not None and sys.stdin.isatty()

    def require(self, check: LineCheck, check_constraint: ConstraintCheck) -> None:
        """Checks all lines of a file and their constraints immediately, and each line of stdin and
        its constraint when it arrives.

        Raises UserError with the line number for the first invalid line of a file.
        """
        self._check = check
        self._check_constraint = check_constraint
        if self._file is not None:
            self._file.require(check, self.errors)
            for _ in self._constraints():
                pass

    def chunks(self, skip: int = 0) -> Iterator[InputChunk]:
        """Yields the input lines in chunks, without the first `skip` lines."""
        if self._file is None:
            chunks = _stdin_chunks(self.errors, self._check)
        else:
            lines = itertools.islice(self._file.lines(self.errors), skip, None)
            chunks = batched(lines, CHUNK)
        constraints = itertools.islice(self._constraints(), skip, None)
        for chunk in chunks:
            yield InputChunk(skip, chunk, list(itertools.islice(constraints, len(chunk))) or None)
            skip += len(chunk)

    def _constraints(self) -> Iterator[Constraint]:
        """Yields the constraint on each line's translation, combined from the prefix file and the
        constraints file.
        """
        readers = [file.lines(self.errors) for file, _ in self._constraint_files]
        for number, lines in enumerate(zip(*readers, strict=True), 1):
            constraints = [
                parse(line, f"{file}, line {number:,}")
                for line, (file, parse) in zip(lines, self._constraint_files, strict=True)
            ]
            if all(constraint.prefix for constraint in constraints) and len(constraints) == 2:
                (first_file, _), (second_file, _) = self._constraint_files
                raise UserError(
                    f"{second_file}, line {number:,}: has a prefix, but {first_file} also has "
                    "a prefix for this line; remove one of the prefixes"
                )
            combined = Constraint(
                prefix="".join(constraint.prefix for constraint in constraints),
                required=tuple(text for constraint in constraints for text in constraint.required),
                forbidden=tuple(
                    text for constraint in constraints for text in constraint.forbidden
                ),
            )
            files = ", ".join(str(file) for file, _ in self._constraint_files)
            checked(self._check_constraint, combined, f"{files}, line {number:,}")
            yield combined


CONSTRAINT_FORM = (
    "a line must be an object like "
    '{"prefix": "Ein", "required": ["Hund"], "forbidden": ["Katze", "Kater"]}'
)


def _parse_constraint(line: str, place: str) -> Constraint:
    """Returns the constraint in one line of a constraints file (JSONL). An empty line contains no
    constraint.
    """
    try:
        fields = json.loads(line) if line.strip() else {}
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place}: not JSON ({error}); {CONSTRAINT_FORM}") from error
    types = {"prefix": str, "required": list, "forbidden": list}
    if not isinstance(fields, dict):
        raise UserError(f"{place}: {CONSTRAINT_FORM}")
    for key, value in fields.items():
        if not isinstance(value, types.get(key, ())):
            problem = "wrong type of value" if key in types else "unknown key"
            raise UserError(f"{place}: {key}: {problem}; {CONSTRAINT_FORM}")
    try:
        return Constraint(
            prefix=fields.get("prefix", ""),
            required=tuple(fields.get("required", ())),
            forbidden=tuple(fields.get("forbidden", ())),
        )
    except TypeError:  # an item of a list is not text
        raise UserError(f"{place}: {CONSTRAINT_FORM}") from None
    except UserError as error:
        raise UserError(f"{place}: {error}") from None


def _stdin_chunks(errors: Errors, check: LineCheck) -> Iterator[list[str]]:
    """Yields the lines of stdin as they arrive. All lines before an invalid line are yielded before
    its error is raised."""
    number = 0
    for arrived in _stdin_lines(errors):
        texts: list[str] = []
        try:
            for line in arrived:
                number += 1
                data = line.removeprefix(BOM) if number == 1 else line
                text = decode_line(data, number, "stdin", errors)
                checked(check, text, f"stdin, line {number:,}")
                texts.append(text)
        finally:  # an error is raised after all earlier lines are translated
            if texts:
                yield texts


def _stdin_lines(errors: Errors) -> Iterator[list[bytes]]:
    """Yields the complete lines after each read of stdin. The end of stdin completes the last
    line. Raises UserError for another encoding than UTF-8, unless its bytes may be replaced."""
    if sys.stdin is None:
        raise UserError("input=stdin: stdin is closed; give input=FILE")
    is_terminal = sys.stdin.isatty()
    incomplete = b""
    for number in itertools.count():
        if is_terminal:
            print("> ", end="", file=sys.stderr, flush=True)
        data = os.read(sys.stdin.fileno(), READ_BYTES)
        if number == 0 and errors == "strict" and not is_terminal:
            check_head(data, "stdin")
        *lines, incomplete = (incomplete + data).split(b"\n")
        if not data:
            yield [incomplete] if incomplete else []
            return
        yield lines
        check_line_length(len(incomplete), "input=stdin")
