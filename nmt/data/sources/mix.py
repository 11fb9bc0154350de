"""Data mixtures: several corpora in changing proportions, described by an OpusTrainer file
(Bogoychev et al. 2023).

    datasets: {clean: clean.tsv.gz, back: back.tsv}     source and target separated by a tab,
                                                        or PATH for the files PATH.en and PATH.de
    stages: [start, end]
    start: [clean 0.8, back 0.2, until clean 2]         until two passes over clean
    end: [clean 1, until clean inf]
    modifiers: [UpperCase: 0.05]                        names in nmt/data/modifiers.py

The order of the pairs is a function of the seed alone (nmt/data/mixing.py), so a run can resume at
any update.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from nmt.data import Mixture, Pairs, Splits, Stage, as_list, chained
from nmt.data.formats import reader
from nmt.data.lines import OPENERS, find_file, reading
from nmt.data.modifiers import Modifier, check_known, modifier
from nmt.data.pair_columns import PairColumns
from nmt.data.parts import Keep, PartNames, parse_part, with_named_parts
from nmt.data.sources.table import pairs_of
from nmt.data.sources.text import TextFiles
from nmt.data.streams import Stream, in_memory
from nmt.foundation.errors import UserError
from nmt.foundation.part_limits import ConfigError, RunView

KEYS = ("datasets", "stages", "modifiers", "seed", "num_fields", "trainer", "version")
"""Top-level keys of a mixture file besides stage names; nmt ignores `seed` and `trainer`."""


class Mix:
    """Data source that mixes several corpora in stages.

    config: OpusTrainer file with corpora and stages
    validation, test: names of data sets: a file of tab-separated pairs, or PATH for the files
        PATH.SOURCE and PATH.TARGET with the names of the languages as extensions
    source, target: names of the languages
    tags: strings prepended to the source lines of corpora, such as {back: <back>} (Caswell et al.
        2019)

    Raises ValueError if the file cannot be read or its content is invalid.
    """

    def __init__(
        self,
        *,
        config: str,
        validation: str | list[str],
        test: str | None = None,
        source: str = "source",
        target: str = "target",
        tags: dict[str, str | None] | None = None,
    ) -> None:
        self.file = Path(config)
        self.parts = PartNames(config, as_list(validation), test, share=0.0)
        self.languages = (source, target)
        self.tags = {name: tag for name, tag in (tags or {}).items() if tag is not None}
        key = f"data.config={config}"
        with reading(key, " as YAML"):
            self.text = self.file.read_text(encoding="utf-8")
            nodes = OmegaConf.to_container(OmegaConf.create(self.text))
        # YAML reads some names as numbers or Booleans.
        content = {str(name): nodes[name] for name in nodes} if isinstance(nodes, dict) else {}
        try:
            self.files = _corpora(content)
            self.stages = _stages(content, self.files)
            check_known("data.tags: corpus", self.tags, self.files)
            for name, tag in self.tags.items():
                if not isinstance(tag, str) or "\n" in tag:
                    raise UserError(f"data.tags.{name}={tag!r}: must be text without line breaks")
        except UserError as error:
            raise ValueError(f"{key}: {error}") from error

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """Yields an error if synthetic data is enabled, or attention is guided by alignments.
        Back-translation would need the pairs of a mixture with source and target swapped, and
        alignments would have to be estimated for each corpus, which is not supported.
        """
        if run.value("objective.guided_alignment"):
            yield run.error(
                "objective.guided_alignment",
                "a mixture of corpora (data=mix) cannot be aligned; set "
                "objective.guided_alignment=0",
            )
        if run.value("synthetic"):
            yield ConfigError(
                "data",
                "source and target of a mixture of corpora cannot be swapped for back-translation; "
                "give the parallel corpus with data=text or data=tsv",
                "mix",
            )

    def load(self, keep: Keep = in_memory) -> Splits:
        """Loads the corpora as one training set, with validation and test sets.

        Raises UserError if a file cannot be used.
        """
        corpora = {name: keep(self._corpus(name), True) for name in self.files}
        train = chained(list(corpora.values()), str(self.file))
        splits = with_named_parts(train, self.parts, self._stream, self.languages)
        return replace(
            splits,
            mixture=Mixture(
                corpora=corpora,
                stages=self.stages,
                # The file's text is part of the data fingerprint, which a resumed run checks.
                settings=self.text + str(sorted(self.tags.items())),
                tags=tuple(self.tags.values()),
            ),
        )

    def _corpus(self, name: str) -> Stream[Pairs]:
        """Returns the stream of a corpus, with its tag prepended to the source lines."""
        # Paths in the file are relative to its folder.
        streams = [self._stream(str(self.file.parent / file)) for file in self.files[name]]
        if name in self.tags:  # the tag is part of the cache key of stored pairs
            tag = self.tags[name]
            streams = [
                stream.map(
                    lambda pairs: replace(pairs, source=[f"{tag} {line}" for line in pairs.source]),
                    f"{stream.settings} {tag}",
                )
                for stream in streams
            ]
        return Stream(
            name=f"corpus {name}",
            read=lambda: itertools.chain.from_iterable(stream.read() for stream in streams),
            files=[file for stream in streams for file in stream.files],
            settings=" ".join(stream.settings for stream in streams),
        )

    def _stream(self, path: str, aligned: bool = False) -> Stream[Pairs]:
        """Returns the stream of sentence pairs in two text files, or in one file of tab-separated
        pairs.
        """
        source, target = self.languages
        name, slice_ = parse_part(path)
        if any(Path(f"{name}.{source}{ending}").is_file() for ending in ("", *OPENERS)):
            # Only `stream` is used; `validation` is set because TextFiles requires it.
            files = TextFiles(train=path, validation=path, source=source, target=target)
            return files.stream(path, aligned)
        file = find_file(name)
        columns = PairColumns(sources=["1"], target="2", factors=[])
        rows = Stream(path, partial(reader("tsv"), file, columns.names, header=False), [file])
        return rows.map(partial(pairs_of, columns), "tsv").sliced(slice_)


def _corpora(content: Mapping[str, Any]) -> dict[str, list[str]]:
    """Returns the files of each corpus.

    Raises UserError if a key of the mixture file is invalid.
    """
    datasets = content.get("datasets")
    stages = content.get("stages")
    if not (datasets and isinstance(datasets, dict) and stages and isinstance(stages, list)):
        raise UserError(
            "the mixture file needs the keys `datasets` (maps corpus names to files) and `stages` "
            "(list of stage names)"
        )
    stages = list(map(str, stages))
    if len(set(stages)) < len(stages):
        raise UserError("stages: contains a duplicate name; each stage must appear once")
    missing = [name for name in stages if name not in content]
    if missing:
        raise UserError(
            f"stages: definition of {', '.join(missing)} not found; add a key `{missing[0]}: […]`"
        )
    check_known("key", content, [*KEYS, *stages])
    if content.get("num_fields", 2) != 2:
        raise UserError(f"num_fields: must be 2 (source and target), not {content['num_fields']}")
    return {str(name): as_list(files) for name, files in datasets.items()}


def _stages(content: Mapping[str, Any], files: Mapping[str, Any]) -> list[Stage]:
    """Returns the stages of a mixture in order. Raises UserError if a stage is invalid."""
    shared = _modifiers(content.get("modifiers"))
    stages = []
    for name in map(str, content["stages"]):
        # A stage is a list, or a mapping with keys `mix` and `modifiers`.
        node = content[name] if isinstance(content[name], dict) else {"mix": content[name]}
        try:
            stage = _stage(name, node.get("mix"), files)
            check_known("key", node, ("mix", "modifiers"))
        except UserError as error:
            raise UserError(f"stage {name}: {error}") from error
        modifiers = _modifiers(node["modifiers"]) if "modifiers" in node else shared
        stages.append(replace(stage, modifiers=modifiers))
    for stage in stages[:-1]:
        if stage.passes is None:
            raise UserError(
                f"stage {stage.name}: never ends (until {stage.until} inf); only the last "
                "stage may end with `inf`"
            )
    return stages


def _stage(name: str, lines: Any, files: Mapping[str, Any]) -> Stage:
    """Parses a stage from lines such as `clean 0.8` and a last line such as `until clean 2`."""
    is_list = isinstance(lines, list) and all(isinstance(line, str) for line in lines)
    if not is_list or len(lines) < 2:
        raise UserError(
            "expected a line for each corpus with its weight, such as `clean 0.8`, and a last line "
            "with the end of the stage, such as `until clean 2` (two epochs of the corpus clean)"
        )
    *shares, last = lines
    # The weights are exact fractions, without rounding errors.
    pairs = [_weight(line, files) for line in shares]
    weights = dict(pairs)
    if len(weights) < len(pairs):
        raise UserError("a corpus is listed twice; add up its weights")
    total = sum(weights.values())
    end = re.fullmatch(r"until (\S+) (inf|0*[1-9]\d*)", " ".join(last.split()))
    if end is None:
        raise UserError(
            f"last line `{last}`: expected the end of the stage, such as `until clean 2` (two "
            "epochs of the corpus clean) or `until clean inf`"
        )
    if not weights.get(end[1]):
        raise UserError(
            f"`{last}`: the stage never ends, because the corpus {end[1]} has no weight in this "
            "stage; name a corpus of the stage"
        )
    return Stage(
        name=name,
        weights={corpus: weight / total for corpus, weight in weights.items() if weight},
        until=end[1],
        passes=None if end[2] == "inf" else int(end[2]),
    )


def _weight(line: str, files: Mapping[str, Any]) -> tuple[str, Fraction]:
    """Parses the corpus and weight of a line such as `clean 0.8`."""
    corpus, number = line.strip().rpartition(" ")[::2]
    corpus = corpus.strip()
    check_known(f"`{line}`: corpus", [corpus], files)
    try:
        weight = Fraction(number)
    except (ValueError, ZeroDivisionError):
        raise UserError(f"`{line}`: the weight {number!r} of the corpus is not a number") from None
    if weight < 0:
        raise UserError(f"`{line}`: the weight of a corpus must be at least 0")
    return corpus, weight


def _modifiers(nodes: Any) -> list[Modifier]:
    """Parses modifiers such as `- Typos: 0.05`, with their settings; lists may be nested."""
    if nodes is None:
        return []
    if not isinstance(nodes, list):
        raise UserError("modifiers: expected a list with entries such as `- UpperCase: 0.05`")
    modifiers: list[Modifier] = []
    for node in nodes:
        if isinstance(node, list):
            modifiers += _modifiers(node)
            continue
        if not isinstance(node, dict) or not node:
            raise UserError(f"modifiers: {node!r}: expected an entry such as `- UpperCase: 0.05`")
        (name, probability), *settings = node.items()
        # Settings follow the name in the same mapping.
        modifiers.append(modifier(str(name), probability, dict(settings)))
    return modifiers
