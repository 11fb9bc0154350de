"""python -m nmt.translate model=RUN_DIR [input=FILE] [output=FILE] [search=beam search.width=5] [attention_map=map.html]

One line out for every line in, in order. Without input=, stdin is translated as it arrives; at a terminal, line by line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nmt.config import command_line

CHUNK = 2000
"""Lines translated together: enough for batches of equal length, few enough to see the output grow."""


def check(config: dict[str, Any]) -> None:
    """Raises UserError listing everything that is wrong with the configuration."""
    from nmt.application import check

    check(config, "translate")


def run(config: dict[str, Any]) -> None:
    """Translates a file or stdin."""
    from nmt.allocator import keep_freed_memory
    from nmt.application import load_translator, one_line
    from nmt.errors import UserError
    from nmt.progress import set_up_logging

    set_up_logging()
    keep_freed_memory()
    show = config["attention_map"]
    lines = _chunks(config["input"])
    translator = load_translator(config)
    if show and translator.model.decoder.attention is None:
        raise UserError(f"attention_map={show}: this model has no attention to show (decoder=fixed)")
    seen: list[tuple[list[int], list[int]]] = []
    with _output(config["output"]) as write:
        for chunk in lines:
            sources = translator.encode(chunk)
            best = translator.best(sources)
            write("".join(one_line(text) + "\n" for text in translator.tokenizer.decode(best)))
            if show:
                seen += zip(sources, best, strict=True)
    if show:
        from nmt.attention_map import write_map

        write_map(translator.align([s for s, _ in seen], [t for _, t in seen]), Path(show))


def _chunks(name: str | None) -> Iterator[list[str]]:
    from nmt.data.text import find, read_lines

    if name is None:
        return _stdin()
    lines = read_lines(find(name))
    return (lines[start : start + CHUNK] for start in range(0, len(lines), CHUNK))


def _stdin() -> Iterator[list[str]]:
    """The lines that have arrived, whenever some have."""
    from nmt.errors import UserError

    prompt, rest, number = sys.stdin.isatty(), b"", 0
    while True:
        if prompt:
            print("> ", end="", file=sys.stderr, flush=True)
        data = os.read(sys.stdin.fileno(), 1 << 16)
        *lines, rest = (rest + data).split(b"\n")
        if not data and rest:
            lines, rest = [rest], b""
        texts = []
        for line in lines:
            number += 1
            try:
                texts.append(line.decode("utf-8").removesuffix("\r"))
            except UnicodeDecodeError as error:
                raise UserError(f"stdin, line {number:,}: not UTF-8 (byte 0x{line[error.start]:02x})") from error
        for start in range(0, len(texts), CHUNK):
            yield texts[start : start + CHUNK]
        if not data:
            return


class _output:
    """Writes text to stdout, or to a file that appears whole when all is done."""

    def __init__(self, name: str | None) -> None:
        self._path = None if name is None else Path(name)
        self._partial = self._path
        if self._path is not None and (self._path.is_file() or not self._path.exists()):
            self._partial = self._path.with_name(f"{self._path.name}.partial")
        self._file: Any = None

    def __enter__(self) -> Callable[[str], None]:
        from nmt.errors import UserError

        if self._partial is None:
            self._file = open(sys.stdout.fileno(), "wb", closefd=False)  # bytes: no locale, no newline translation
        else:
            try:
                self._file = open(self._partial, "wb")
            except OSError as error:
                raise UserError(f"output={self._path}: cannot be written ({error.strerror})") from error
        return self._write

    def _write(self, text: str) -> None:
        from nmt.errors import UserError

        try:
            self._file.write(text.encode("utf-8"))
            self._file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UserError(f"output={self._path or 'stdout'}: cannot be written ({error.strerror})") from error

    def __exit__(self, kind: Any, *_: Any) -> None:
        self._file.close()
        if self._partial is not None and self._path is not None and self._partial != self._path and kind is None:
            os.replace(self._partial, self._path)


main = command_line("translate", check, run)

if __name__ == "__main__":
    main()
