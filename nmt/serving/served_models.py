"""Served models: selection by languages or name, and replacement by newer checkpoints."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from nmt.foundation.errors import UserError
from nmt.inference.constraint import Constraint
from nmt.inference.model_facts import model_facts
from nmt.inference.text_classifier import TextClassifier
from nmt.inference.translation import Translation
from nmt.inference.translator import Translator
from nmt.serving.batcher import Batcher
from nmt.serving.limits import Refused, file_stamp
from nmt.serving.monitoring import ServerMetrics
from nmt.storage.checkpoint import HUB, find_checkpoint
from nmt.storage.files import BEST

log = logging.getLogger(__name__)
AUTO = "auto"
"""Value of the request field `source` that selects the only source language of the server."""
Model = TypeVar("Model", Translator, TextClassifier)


@dataclass(frozen=True)
class SentenceRequest:
    """Translation request for one sentence.

    translator: model of the request, which a reload does not replace
    sentence: source sentence
    constraint: phrases that must or must not appear in the translation; None if unconstrained
    details_of: number of best hypotheses for which token probabilities and attention are computed
    whole_beam: whether to return all hypotheses of the beam
    """

    translator: Translator
    sentence: str
    constraint: Constraint | None = None
    details_of: int = 0
    whole_beam: bool = False


class ServedModel(Generic[Model]):
    """A served model, with its name and its request queue.

    name: name of the model in requests
    path: run folder or checkpoint of the model, or its name on the Hugging Face Hub
    load: function that returns the model at a path
    pool: executor with a single thread, which runs the models
    wait: seconds that the first sentence of a batch waits for further sentences
    most: maximum number of sentences in a batch
    metrics: metrics of the server
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
        metrics: ServerMetrics,
    ) -> None:
        self.name = name
        self.path = path
        self.pool = pool
        self._stamp = _stamp(path)  # before loading, as in `reload`
        self.model: Model = load(path)
        self.facts = model_facts(path, self.model.tokenizer)
        self.status = "ok"
        self._load: Callable[[str], Model] = load
        self._reloads = partial(metrics.reloads.labels, name)
        self.batcher: Batcher[SentenceRequest, Translation] = Batcher(
            self.translate_batch,
            pool,
            wait=wait,
            most=most,
            size=lambda request: len(request.sentence),
            on_queue=metrics.queue.labels(name).set,
            on_batch=metrics.batches.labels(name).observe,
        )

    def translate_batch(self, requests: list[SentenceRequest]) -> list[Translation]:
        """Translates sentences; sentences with the same model and options share a batch."""
        # Dictionary keys merge equal requests.
        groups: defaultdict[Any, dict[SentenceRequest, None]] = defaultdict(dict)
        for request in requests:
            # One search receives only sentences with constraints, or only sentences without.
            is_free = request.constraint is None
            options = (request.translator, request.whole_beam, request.details_of, is_free)
            groups[options][request] = None
        translations: dict[SentenceRequest, Translation] = {}
        for (translator, whole_beam, details_of, _), group in groups.items():
            searcher = translator.with_whole_beam() if whole_beam else translator
            constraints = [request.constraint for request in group if request.constraint]
            answers = searcher.translations(
                [request.sentence for request in group], constraints or None, details_of
            )
            translations |= zip(group, answers, strict=True)
        return [translations[request] for request in requests]

    def is_outdated(self) -> bool:
        """Returns whether the path of the model has a newer checkpoint than the loaded
        checkpoint.
        """
        if self.path.startswith(HUB):
            return False
        stamp = _stamp(self.path)
        # Without best.safetensors, `find_checkpoint` returns the training state, which is older.
        is_fallback = bool(self._stamp and stamp and self._stamp[0] == BEST != stamp[0])
        return stamp not in (self._stamp, None) and not is_fallback

    def reload(self) -> None:
        """Loads the newest checkpoint at the model's path.

        The previous model stays in use if loading fails, or if the new model is of a different kind
        (translator or classifier) or has different languages.
        """
        # The stamp is taken before loading, so that a file that changes meanwhile is loaded again.
        self._stamp = _stamp(self.path)
        try:
            model = self._load(self.path)
            if _kind(model) != _kind(self.model):
                raise UserError(f"expected {_kind(self.model)}, got {_kind(model)}")
            facts = model_facts(self.path, model.tokenizer)
        except Exception as error:
            self.status = (
                "the newer checkpoint cannot be used; the previous checkpoint stays in use"
            )
            self._reloads("refused").inc()
            log.error("%s: %s: %s", self.name, self.status, error)
            return
        self.model = model
        self.facts = facts
        self.status = "ok"
        self._reloads("loaded").inc()
        log.info("%s: loaded a newer checkpoint", self.name)


def _kind(model: Translator | TextClassifier) -> str:
    if isinstance(model, Translator):
        return f"a translator from {' to '.join(model.languages)}"
    return "a classifier"


class Models:
    """Translators and classifiers of the server, which requests select by languages or by name."""

    def __init__(self, models: Sequence[ServedModel[Any]]) -> None:
        self.all = models
        self.translators: list[ServedModel[Translator]] = [
            served for served in models if isinstance(served.model, Translator)
        ]
        self.classifiers: list[ServedModel[TextClassifier]] = [
            served for served in models if isinstance(served.model, TextClassifier)
        ]

    @property
    def expected_seconds(self) -> float:
        """Expected time until all waiting sentences are translated, in seconds."""
        # One thread computes for all models.
        return sum(served.batcher.expected_seconds for served in self.all)

    @property
    def languages(self) -> Mapping[str, list[str]]:
        """Target languages of each source language, in the order of the models."""
        # Dictionary keys keep the order of the models and contain each language once.
        pairs = dict.fromkeys(served.model.languages for served in self.translators)
        targets: dict[str, list[str]] = {}
        for source, target in pairs:
            targets.setdefault(source, []).append(target)
        return targets

    def translator(self, source: str, target: str, name: str) -> ServedModel[Translator]:
        """Returns the first translator for a language pair.

        source: source language, or `auto`
        target: target language
        name: name of the model; "" for any model

        Raises Refused if no translator matches, or `auto` matches several source languages.
        """
        if not self.translators:
            raise Refused(400, "this server has no translation model, only classifiers")
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
            raise Refused(400, f"{request}: model not found; available: {pairs}")
        sources = sorted({served.model.languages[0] for served in candidates})
        if len(sources) > 1:
            raise Refused(
                400,
                f"source=auto: this server does not detect languages; give {' or '.join(sources)}",
            )
        return candidates[0]

    def classifier(self, name: str) -> ServedModel[TextClassifier]:
        """Returns the classifier with the given name; for the name "", the first classifier.

        Raises Refused if no classifier matches.
        """
        for served in self.classifiers:
            if name in ("", served.name):
                return served
        names = ", ".join(served.name for served in self.classifiers)
        raise Refused(
            400,
            f"classifier {name} not found; available: {names}"
            if names
            else "this server has no classifier",
        )

    async def watch(self, seconds: float) -> None:
        """Loads newer checkpoints in an endless loop, until the task is cancelled.

        seconds: interval between checks in seconds; 0 disables the checks
        """
        while seconds:
            await asyncio.sleep(seconds)
            for served in self.all:
                if await asyncio.to_thread(served.is_outdated):
                    await asyncio.to_thread(served.reload)  # requests are answered during this wait


def _stamp(path: str) -> tuple[Any, ...] | None:
    """Returns the name, inode, modification time and size of the checkpoint file of a model; None
    if not found."""
    try:
        file = find_checkpoint(path)
    except (UserError, OSError):  # OSError: the file system is not available for now
        return None
    return file.name, *(file_stamp(file) or ())
