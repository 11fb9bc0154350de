"""The models that a server answers with: chosen by their languages or names, replaced when there are newer checkpoints."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from nmt.foundation.errors import UserError
from nmt.inference.text_classifier import TextClassifier
from nmt.inference.translation import Constraint, Translation
from nmt.inference.translator import Translator
from nmt.serving.batcher import Batcher
from nmt.serving.limits import Refused
from nmt.storage.checkpoint import HUB, find_checkpoint

log = logging.getLogger(__name__)
AUTO = "auto"
"""What a caller says who does not know the language."""


@dataclass(frozen=True)
class Loaded:
    """What a checkpoint holds: a `translator`, and one that gives all hypotheses of its beam (`lister`), or a
    `classifier`."""

    translator: Translator | None = None
    lister: Translator | None = None
    classifier: TextClassifier | None = None


@dataclass(frozen=True)
class Wish:
    """A sentence to translate. `details`: also the probabilities of its words and their attention, of so many hypotheses;
    `listed`: all hypotheses of the beam."""

    sentence: str
    constraint: Constraint | None = None
    details: int = 0
    listed: bool = False


class Served:
    """One model. `stamp` says which checkpoint it is. Answers are made by `translate`, in batches with those of others."""

    def __init__(
        self,
        name: str,
        path: str,
        load: Callable[[str], Loaded],
        pool: Executor,
        *,
        wait: float,
        most: int,
    ) -> None:
        self.name, self.path, self._load = name, path, load
        self.loaded, self.stamp = load(path), _stamp(path)
        self.batcher: Batcher[Wish, Translation] = Batcher(
            self._work, pool, wait=wait, most=most, size=lambda wish: len(wish.sentence)
        )
        self.pool = pool

    @property
    def languages(self) -> tuple[str, str]:
        assert self.loaded.translator is not None
        return self.loaded.translator.languages

    @property
    def translator(self) -> Translator:
        assert self.loaded.translator is not None
        return self.loaded.translator

    @property
    def lister(self) -> Translator:
        assert self.loaded.lister is not None
        return self.loaded.lister

    async def translate(self, wishes: Sequence[Wish]) -> list[Translation]:
        return await self.batcher.do(wishes)

    def _work(self, wishes: list[Wish]) -> list[Translation]:
        """Those that are asked in the same way together; a batch is searched by one checkpoint."""
        loaded, found = self.loaded, dict[int, Translation]()
        groups: dict[tuple[bool, int, bool], list[int]] = {}
        for i, wish in enumerate(wishes):
            groups.setdefault((wish.listed, wish.details, wish.constraint is not None), []).append(
                i
            )
        for (listed, details, constrained), its in groups.items():
            translator = loaded.lister if listed else loaded.translator
            assert translator is not None
            constraints = (
                [wishes[i].constraint or Constraint() for i in its] if constrained else None
            )
            found |= zip(
                its,
                translator.translations([wishes[i].sentence for i in its], constraints, details),
                strict=True,
            )
        return [found[i] for i in range(len(wishes))]

    def outdated(self) -> bool:
        """Whether there is another checkpoint now."""
        return not self.path.startswith(HUB) and _stamp(self.path) not in (self.stamp, None)

    def reload(self) -> None:
        """Takes the checkpoint that is there now. If it cannot be used, the one before stays; it also finishes what it has
        begun."""
        self.stamp = _stamp(self.path)
        try:
            self.loaded = self._load(self.path)
            log.info("%s: a newer checkpoint is loaded", self.name)
        except UserError as error:
            log.error(
                "%s: the newer checkpoint cannot be used, the one before stays: %s",
                self.name,
                error,
            )


class Models:
    """All that a server answers with."""

    def __init__(self, served: Sequence[Served]) -> None:
        self.translators = [one for one in served if one.loaded.translator is not None]
        self.classifiers = [one for one in served if one.loaded.classifier is not None]

    @property
    def languages(self) -> Mapping[str, list[str]]:
        """The languages that can be translated from, and into which each."""
        found: dict[str, list[str]] = {}
        for one in self.translators:
            source, target = one.languages
            if target not in found.setdefault(source, []):
                found[source].append(target)
        return found

    def translator(self, source: str, target: str, name: str | None) -> Served:
        """The first for these languages, or the one of that name. Raises Refused if there is none."""
        if not self.translators:
            raise Refused(400, "no model here translates")
        found = [
            one for one in self.translators
            if source in (AUTO, one.languages[0]) and target == one.languages[1] and name in (None, one.name)
        ]  # fmt: skip
        if not found:
            pairs = ", ".join(
                f"{one.languages[0]} → {one.languages[1]} ({one.name})" for one in self.translators
            )
            raise Refused(
                400,
                f"{source} → {target}{f' by {name}' if name else ''} is not here; there are {pairs}",
            )
        if source == AUTO and len({one.languages[0] for one in found}) > 1:
            known = ", ".join(sorted({one.languages[0] for one in found}))
            raise Refused(
                400, f"this server does not detect languages: give source, one of {known}"
            )
        return found[0]

    def classifier(self, name: str | None) -> Served:
        """The first, or the one of that name. Raises Refused if there is none."""
        found = [one for one in self.classifiers if name in (None, one.name)]
        if not found:
            there = ", ".join(one.name for one in self.classifiers)
            raise Refused(
                400,
                f"there is no model that classifies{f' called {name}; there are {there}' if there else ''}",
            )
        return found[0]

    async def watch(self, seconds: float) -> None:
        """Looks for newer checkpoints again and again."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(seconds)
            for one in (*self.translators, *self.classifiers):
                if await loop.run_in_executor(None, one.outdated):
                    await loop.run_in_executor(None, one.reload)


def _stamp(path: str) -> tuple[int, int, int] | None:
    """Which file it is: another one has another number, time or size."""
    try:
        found = Path(find_checkpoint(path)).stat()
    except (OSError, UserError):
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
