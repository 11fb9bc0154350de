"""Several corpora in changing proportions, as a configuration file of OpusTrainer (Bogoychev et al. 2023) describes them:

    datasets: {clean: clean.tsv.gz, back: back.tsv}       source and target with a tab between them, or PATH.en, PATH.de
    stages: [start, end]
    start: [clean 0.8, back 0.2, until clean 2]           until two passes over clean
    end: [clean 1, until clean inf]
    modifiers: [UpperCase: 0.05]                          see modifiers.py

Which pairs come when is a function of the seed alone (corpus/mixing.py), so that a run can be resumed at any update.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from nmt.data import Chain, Mixture, Pairs, Splits, Stage, as_list, unique_suffixes
from nmt.data.lines import find_file
from nmt.data.modifiers import Modifier, modifier
from nmt.data.readers import stream_rows
from nmt.data.sources.table import columns
from nmt.data.sources.text import TextFiles
from nmt.data.stream import Keep, Stream, in_memory
from nmt.foundation.errors import UserError

log = logging.getLogger(__name__)
KNOWN = ("datasets", "stages", "modifiers", "seed", "num_fields", "trainer", "version")
"""Keys of the file beside the names of stages. Seed and trainer are those of nmt.train."""


class Mix:
    """`config`: the file. `validation` and `test`: files like its datasets. `source`, `target`: names of the languages.
    `tags`: texts in front of the source lines of corpora, such as {back: <back>} (Caswell et al. 2019).

    Raises ValueError for everything in the file that is wrong or not understood, by its name."""

    def __init__(
        self,
        *,
        config: str,
        validation: str | list[str],
        test: str | None = None,
        source: str = "source",
        target: str = "target",
        tags: dict[str, str] | None = None,
    ) -> None:
        self.file, self.validation, self.test = Path(config), as_list(validation), test
        self.languages, self.tags = (source, target), tags or {}
        try:
            self.text = self.file.read_text(encoding="utf-8")
            found = yaml.safe_load(self.text)
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise ValueError(f"data.config={config}: cannot be read ({why})") from error
        except (yaml.YAMLError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            where = f", line {mark.line + 1}" if mark is not None else ""
            why = getattr(error, "problem", None) or type(error).__name__
            raise ValueError(f"data.config={config}{where}: not YAML ({why})") from error
        try:
            self.files, self.stages = _understood(found)
            strange = [name for name in self.tags if name not in self.files]
            if strange:
                raise UserError(
                    f"data.tags: there is no corpus {', '.join(strange)} (there are: {', '.join(self.files)})"
                )
        except UserError as error:
            raise ValueError(f"data.config={config}: {error}") from error

    def load(self, keep: Keep = in_memory) -> Splits:
        corpora = {}
        for name, files in self.files.items():
            streams = [
                self._stream(str(self.file.parent / file), self.tags.get(name)) for file in files
            ]
            corpora[name] = keep(_chained(name, streams), True)
        names = unique_suffixes(self.validation)
        own, *others = (in_memory(self._stream(part, None)) for part in self.validation)
        settings = self.text + str(sorted(self.tags.items()))
        mixture = Mixture(corpora, self.stages, settings, tuple(self.tags.values()))
        return Splits(
            train=chained(list(corpora.values()), str(self.file)),
            validation=own,
            test=None if self.test is None else in_memory(self._stream(self.test, None)),
            languages=self.languages,
            more_validation=dict(zip(names[1:], others, strict=True)),
            mixture=mixture,
        )

    def _stream(self, path: str, tag: str | None) -> Stream:
        source, target = self.languages
        if any(
            Path(f"{path}.{source}{ending}").is_file()
            for ending in ("", ".gz", ".xz", ".bz2", ".zst")
        ):
            found = TextFiles(train=path, validation=path, source=source, target=target).stream(
                path, False
            )
        else:
            file = find_file(path)

            def read() -> Iterator[Pairs]:
                first = 1
                for table in stream_rows(file, "tsv", False):
                    yield columns(table, path, ["1"], "2", first=first)
                    first += len(table)

            found = Stream(path, read, [file], "tsv")
        if tag is None:
            return found
        return replace(found, read=partial(_tagged, found, tag), settings=f"{found.settings} {tag}")


def _tagged(stream: Stream, tag: str) -> Iterator[Pairs]:
    for chunk in stream.read():
        yield replace(chunk, source=[f"{tag} {line}" for line in chunk.source])


def _chained(name: str, streams: Sequence[Stream]) -> Stream:
    """Several files as one corpus."""

    def read() -> Iterator[Pairs]:
        for stream in streams:
            yield from stream.read()

    files = [file for stream in streams for file in stream.files]
    return Stream(f"corpus {name}", read, files, " ".join(stream.settings for stream in streams))


def chained(parts: Sequence[Pairs], name: str) -> Pairs:
    """Several corpora as one text, a view."""
    return Pairs(
        Chain([part.source for part in parts]), Chain([part.target for part in parts]), name
    )


def _understood(found: Any) -> tuple[dict[str, list[str]], list[Stage]]:
    """The files of each corpus, and the stages. Raises UserError for what is wrong."""
    if (
        not isinstance(found, dict)
        or not isinstance(found.get("datasets"), dict)
        or not isinstance(found.get("stages"), list)
    ):
        raise UserError("needs `datasets`, a file for each name, and `stages`, a list of names")
    files = {
        str(name): [str(file) for file in as_list(value)]
        for name, value in found["datasets"].items()
    }
    names = [str(name) for name in found["stages"]]
    if not files or not names or len(set(names)) < len(names):
        raise UserError("needs at least one dataset and one stage, each stage once")
    absent = [name for name in names if name not in found]
    if absent:
        raise UserError(
            f"stages names {', '.join(absent)}, but there is no such stage: write `{absent[0]}: […]` below"
        )
    strange = [str(key) for key in found if key not in KNOWN and key not in names]
    if strange:
        raise UserError(
            f"{', '.join(strange)}: not understood (keys are {', '.join(KNOWN)} and the names of stages)"
        )
    if found.get("num_fields", 2) != 2:
        raise UserError(
            f"num_fields: {found['num_fields']}: not supported; lines have a source and a target"
        )
    shared = _modifiers(found.get("modifiers"))
    stages = [_stage(name, found.get(name), files, shared) for name in names]
    for stage in stages[:-1]:
        if stage.passes is None:
            raise UserError(
                f"stage {stage.name}: until {stage.until} inf never comes, and there are stages after it"
            )
    return files, stages


def _stage(name: str, node: Any, files: Mapping[str, Any], shared: Sequence[Modifier]) -> Stage:
    lines = node.get("mix") if isinstance(node, dict) else node
    if (
        not isinstance(lines, list)
        or len(lines) < 2
        or not all(isinstance(line, str) for line in lines)
    ):
        raise UserError(
            f"stage {name}: needs lines such as `clean 0.8`, and at the end `until clean 2`"
        )
    strange = (
        [key for key in node if key not in ("mix", "modifiers")] if isinstance(node, dict) else []
    )
    if strange:
        raise UserError(
            f"stage {name}: {', '.join(map(str, strange))}: not understood (keys are mix and modifiers)"
        )
    weights: dict[str, Fraction] = {}
    for line in lines[:-1]:
        corpus, _, weight = line.strip().rpartition(" ")
        corpus = corpus.strip()
        if corpus not in files:
            raise UserError(
                f"stage {name}: `{line}` names no dataset (there are: {', '.join(files)})"
            )
        try:
            weights[corpus] = Fraction(weight)
        except (ValueError, ZeroDivisionError):
            raise UserError(f"stage {name}: `{line}`: {weight!r} is no number") from None
        if weights[corpus] < 0:
            raise UserError(f"stage {name}: `{line}`: a weight below 0")
    words = lines[-1].split()
    if (
        len(words) != 3
        or words[0] != "until"
        or not (words[2] == "inf" or (words[2].isdigit() and int(words[2])))
    ):
        raise UserError(
            f"stage {name}: the last line is `{lines[-1]}`, not such as `until clean 2` or `until clean inf`"
        )
    if not weights.get(words[1]):
        raise UserError(
            f"stage {name}: `{lines[-1]}` never comes: {words[1]} is not read in this stage"
        )
    total = sum(weights.values())
    shares = {corpus: weight / total for corpus, weight in weights.items() if weight}
    own = (
        _modifiers(node["modifiers"]) if isinstance(node, dict) and "modifiers" in node else shared
    )
    return Stage(name, shares, words[1], None if words[2] == "inf" else int(words[2]), own)


def _modifiers(nodes: Any) -> list[Modifier]:
    """Modifiers as they are written: `- Typos: 0.05`, with settings beside it. Lists in lists are as if written in one."""
    if nodes is None:
        return []
    if not isinstance(nodes, list):
        raise UserError("modifiers: needs a list, such as `- UpperCase: 0.05`")
    found: list[Modifier] = []
    for node in nodes:
        if isinstance(node, list):
            found += _modifiers(node)
            continue
        if not isinstance(node, dict) or not node:
            raise UserError(f"modifiers: {node!r} is not such as `- UpperCase: 0.05`")
        (name, probability), *settings = node.items()
        found.append(modifier(str(name), probability, dict(settings)))
    return found
