"""Models of a server: found by languages or names, replaced by newer checkpoints."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from nmt.foundation.errors import UserError
from nmt.inference.text_classifier import TextClassifier
from nmt.inference.translation import Constraint, Translation
from nmt.inference.translator import Translator
from nmt.serving.batcher import Batcher
from nmt.serving.limits import Refused
from nmt.storage.checkpoint import HUB, find_checkpoint

log = logging.getLogger(__name__)
AUTO = "auto"
"""Source language of a request for the detection of languages."""
Model = TypeVar("Model", Translator, TextClassifier)


@dataclass(frozen=True)
class SentenceRequest:
    """A sentence to translate.

    constraint: texts that its translation must and must not have
    details_of: number of hypotheses with word probabilities and attention
    whole_beam: whether to return all hypotheses of the beam
    """

    sentence: str
    constraint: Constraint | None = None
    details_of: int = 0
    whole_beam: bool = False


class ServedModel(Generic[Model]):
    """A model with its name, and the requests that wait for it.

    name: name in requests
    path: run directory or checkpoint, as `load` takes it
    load: reads the model at a path
    pool: thread in which models compute
    wait: seconds that a batch waits for further sentences
    most: largest number of sentences in a batch
    """

    def __init__(
        self,
        name: str,
        path: str,
        load: Callable[[str], Model],
        pool: Executor,
        *,
        wait: float,
        most: int,
    ) -> None:
        self.name = name
        self.path = path
        self.pool = pool
        self.model: Model = load(path)
        self.status = "ok"
        self._load: Callable[[str], Model] = load
        self._stamp = _stamp(path)
        self.batcher: Batcher[SentenceRequest, Translation] = Batcher(
            self.translate_batch,
            pool,
            wait=wait,
            most=most,
            size=lambda request: len(request.sentence),
        )

    def translate_batch(self, requests: list[SentenceRequest]) -> list[Translation]:
        """Translations of sentences, by one checkpoint, those with the same options together."""
        # Taken once: a newer checkpoint may replace it meanwhile.
        translator = self.model
        assert isinstance(translator, Translator)
        # A dictionary has equal requests once.
        groups: defaultdict[Any, dict[SentenceRequest, None]] = defaultdict(dict)
        for request in requests:
            # A search has constraints for all of its sentences or for none.
            is_free = request.constraint is None
            groups[request.whole_beam, request.details_of, is_free][request] = None
        translations: dict[SentenceRequest, Translation] = {}
        for group in groups.values():
            first = next(iter(group))
            searcher = translator.with_whole_beam() if first.whole_beam else translator
            constraints = [request.constraint for request in group if request.constraint]
            answers = searcher.translations(
                [request.sentence for request in group], constraints or None, first.details_of
            )
            translations |= zip(group, answers, strict=True)
        return [translations[request] for request in requests]

    def is_outdated(self) -> bool:
        """Returns whether the path has another checkpoint than the one last read."""
        return not self.path.startswith(HUB) and _stamp(self.path) not in (self._stamp, None)

    def reload(self) -> None:
        """Reads the checkpoint at the path. The model before stays if that fails, or if the new one
        is of another kind or has other languages."""
        # Before reading, so that a file that changes meanwhile is read again.
        self._stamp = _stamp(self.path)
        try:
            model = self._load(self.path)
            if _kind(model) != _kind(self.model):
                raise UserError(f"it is {_kind(model)}, not {_kind(self.model)}")
        # Any error: the watcher continues, and the previous model stays in use.
        except Exception as error:
            self.status = "the newer checkpoint cannot be used; the previous one stays in use"
            log.error("%s: %s: %s", self.name, self.status, error)
            return
        self.model = model
        self.status = "ok"
        log.info("%s: a newer checkpoint is loaded", self.name)


def _kind(model: Translator | TextClassifier) -> str:
    if isinstance(model, Translator):
        return f"a translator from {' to '.join(model.languages)}"
    return "a classifier"


class Models:
    """Models of a server."""

    def __init__(self, models: Sequence[ServedModel[Any]]) -> None:
        self.all = models
        self.translators: list[ServedModel[Translator]] = [
            served for served in models if isinstance(served.model, Translator)
        ]
        self.classifiers: list[ServedModel[TextClassifier]] = [
            served for served in models if isinstance(served.model, TextClassifier)
        ]

    @property
    def languages(self) -> Mapping[str, list[str]]:
        """Target languages by source language."""
        # A dictionary keeps the order of the models, and each language once.
        targets: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for served in self.translators:
            source, target = served.model.languages
            targets[source][target] = None
        return {source: [*codes] for source, codes in targets.items()}

    def translator(self, source: str, target: str, name: str) -> ServedModel[Translator]:
        """The first translator for these languages, and of that name unless it is empty. Raises
        Refused if there is none."""
        if not self.translators:
            raise Refused(400, "no served model translates")
        candidates = [
            served
            for served in self.translators
            if source in (AUTO, served.model.languages[0])
            and target == served.model.languages[1]
            and name in ("", served.name)
        ]
        if not candidates:
            request = f"{source} → {target}{f' by {name}' if name else ''}"
            pairs = ", ".join(
                f"{' → '.join(served.model.languages)} ({served.name})"
                for served in self.translators
            )
            raise Refused(400, f"{request}: not served; available: {pairs}")
        sources = sorted({served.model.languages[0] for served in candidates})
        if len(sources) > 1:
            raise Refused(
                400,
                f"this server does not detect languages: give source, one of {', '.join(sources)}",
            )
        return candidates[0]

    def classifier(self, name: str) -> ServedModel[TextClassifier]:
        """The first classifier, or the one of that name. Raises Refused if there is none."""
        for served in self.classifiers:
            if name in ("", served.name):
                return served
        names = ", ".join(served.name for served in self.classifiers)
        problem = f" called {name}; there are {names}" if names else ""
        raise Refused(400, f"there is no model that classifies{problem}")

    async def watch(self, seconds: float) -> None:
        """Reads newer checkpoints, for ever; 0 seconds: never."""
        while seconds:
            await asyncio.sleep(seconds)
            for served in self.all:
                if await asyncio.to_thread(served.is_outdated):
                    await asyncio.to_thread(served.reload)  # requests are answered meanwhile


def _stamp(path: str) -> tuple[int, int, int] | None:
    """Inode, time and size of a checkpoint; None if it cannot be found."""
    try:
        status = Path(find_checkpoint(path)).stat()
    except (OSError, UserError):
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
