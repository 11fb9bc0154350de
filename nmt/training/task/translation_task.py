"""Translation task: parallel text and an objective. By default, BLEU of greedy translations selects
the best weights."""

import functools
import hashlib
import logging
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from nmt.data import Pairs, Splits
from nmt.data.batching import Batching, collate
from nmt.data.epoch_batches import EpochBatches
from nmt.data.filters import fingerprint
from nmt.data.mixing import Mixing
from nmt.data.preparation import PreparedData
from nmt.data.ragged import Corpus
from nmt.drawing.attention_map import AttentionMap, write_map
from nmt.foundation import plugins
from nmt.foundation.errors import typed
from nmt.foundation.extras import installed
from nmt.foundation.interfaces import Search, to_device
from nmt.foundation.ranks import ALONE, Ranks
from nmt.inference.explanations.pointing_game import pointing
from nmt.inference.output_formats import one_line
from nmt.inference.translator import Translator
from nmt.metric import Metric, score_text, similarity
from nmt.model import Objective
from nmt.model.seq2seq import Seq2Seq
from nmt.search.greedy import Greedy
from nmt.storage.checkpoint import lexicon_parts, tokenizer_parts
from nmt.tokenizer.words import words
from nmt.training.task import FinalResult, Task, Validation, ValidationStopped, never

log = logging.getLogger(__name__)
PAIR_LENGTH = 64
"""Preferred length, in characters of source plus reference, of the example on the terminal after a
validation. The pair with the closest length is chosen. This length fits on a line of 80 columns."""


def fingerprints(splits: Splits) -> tuple[dict[str, str], dict[str, str]]:
    """Returns two dictionaries from the name of a data set to its hash: one for the training set
    and the validation sets, one for the test set."""
    mixture = splits.mixture
    if mixture is None:
        train = fingerprint(splits.train)
    else:
        corpora = [fingerprint(pairs) for pairs in mixture.corpora.values()]
        train = hashlib.sha256("\0".join([*corpora, mixture.settings]).encode()).hexdigest()
    validation = {"validation": splits.validation, **splits.more_validation}
    hashes = {name: fingerprint(pairs) for name, pairs in validation.items()}
    return {"train": train, **hashes}, {"test": fingerprint(splits.test)} if splits.test else {}


class TranslationTask(Task):
    """Task that trains a translation model.

    data: parallel text encoded as token ids, with its tokenizer
    network: network to train
    objective: function that returns the training loss
    batching: size and order of batches
    metric: metric that selects the best weights
    search: search algorithm for the test set; validation uses greedy search
    seed: random seed of data order and dropout
    max_validation: maximum number of sentences to translate in a validation; 0 translates all
    options: keyword arguments of `Translator`
    ranks: processes that train together
    samples: number of sentences in the samples of a validation; 0 disables samples and the
        attention map
    typical_words: typical words of the source and the target text, saved in checkpoints to detect
        input in the target language; None for a mixture of corpora, because it may contain both
        translation directions
    """

    command = "train"
    unit = "target tokens"
    network: Seq2Seq

    def __init__(
        self,
        data: PreparedData,
        network: Seq2Seq,
        objective: Objective,
        *,
        batching: Batching,
        metric: Metric,
        search: Search,
        seed: int,
        max_validation: int,
        options: Mapping[str, Any],
        ranks: Ranks = ALONE,
        samples: int = 0,
        typical_words: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.data = data
        self.network = network
        self.objective = objective
        self.batching = batching
        self.judge = metric
        self.search = search
        self.seed = seed
        self.max_validation = max_validation
        self.options = options
        self.ranks = ranks
        self.samples = samples
        self.device = next(network.parameters()).device
        self.metric = metric.name
        # Cached, because both the introduction and the training loop use the first epoch.
        self._planned = functools.lru_cache(maxsize=1)(self._plan)
        splits = data.splits
        self.mixing = None
        if splits.mixture is not None:
            mean_size = batching.mean_size(data.train.source.lengths, data.train.target.lengths)
            self.mixing = Mixing(splits.mixture, data.kept, seed, mean_size)
            self.epochs = self.mixing.epochs
            for line in self.mixing.described():
                log.info("mixture: %s", line)
        self.title = f"{type(network.decoder).__name__} · {' → '.join(splits.languages)}"
        self.fingerprints, self.test_fingerprints = fingerprints(splits)
        tokenizer_meta, tensors = tokenizer_parts(data.tokenizer)
        self.tensors = {**tensors, **lexicon_parts(network)}
        self.meta = {"tokenizer": tokenizer_meta, "languages": splits.languages}
        if typical_words:
            self.meta["typical_words"] = typical_words
        self._log_warnings()

    def _log_warnings(self) -> None:
        """Logs a warning if translations are in lower case but the references are not, and a
        warning if the objective of a plugin returns a mean instead of a sum over tokens."""
        if self.data.tokenizer.lowercase and not self.judge.lowercase:
            log.warning(
                "tokenizer.lowercase=true: translations are in lower case, but the references "
                "are not; also set metric.lowercase=true"
            )
        if plugins.home_of(type(self.objective).__module__):
            self._warn_of_mean()

    def _warn_of_mean(self) -> None:
        """Logs a warning if the objective, a class of a plugin, returns a mean instead of a sum.

        The check computes the loss of one sentence and of a batch with this sentence twice. A sum
        over the tokens is twice as large for the batch; a mean is the same for both.
        """
        totals = []
        self.network.eval()  # without dropout
        with torch.no_grad(), torch.random.fork_rng():
            for rows in ([0], [0, 0]):
                batch = collate(self.data.validation, rows, self.network.encoder.reader)
                loss = self.network(self.objective, to_device(batch, self.device), 0)
                totals.append(loss.total)
        self.network.train()
        if totals[0] and torch.isclose(totals[0], totals[1], rtol=1e-3):
            log.warning(
                "objective=%s: `total` is the same for one sentence and for a batch that contains "
                "the sentence twice, so `total` seems to be a mean. Return the sum over the target "
                "tokens of the batch",
                type(self.objective).__name__,
            )

    def introduction(self) -> tuple[str, str]:
        splits = self.data.splits
        tokenizer = self.data.tokenizer
        decoder = self.network.decoder
        sizes = [len(part) for part in (splits.validation, *splits.more_validation.values())]
        limit = (
            f" (only the first {self.max_validation:,} are translated, set by max_validation)"
            if 0 < self.max_validation < max(sizes)
            else ""
        )
        score = type(decoder.attention.score).__name__.lower() if decoder.attends else "none"
        data = (
            f"{len(self.data.kept):,} training pairs, "
            f"{' + '.join(f'{size:,}' for size in sizes)} validation pairs{limit}, "
            f"{len(splits.test or ()):,} test pairs ({' → '.join(splits.languages)}); "
            f"source vocabulary {tokenizer.source_size:,}, "
            f"target vocabulary {tokenizer.target_size:,}; "
            f"{100 * self.batches(0).padding:.1f} % of batch positions are padding"
        )
        return data, (
            f"{type(decoder).__name__.lower()} decoder, {score} attention, "
            f"{decoder.cell_name} cells"
        )

    @property
    def capture_obstacle(self) -> str:  # type: ignore[override]
        """Reason why the computation of gradients cannot be recorded and replayed (on a GPU, as a
        CUDA graph); empty if it can."""
        if not getattr(self.objective, "can_be_recorded", False):
            name = type(self.objective).__name__
            return f"objective {name} depends on the update or computes on the host"
        return self.network.capture_obstacle

    def better(self, new: float, old: float | None) -> bool:
        return self.judge.better(new, old)

    def batches(self, epoch: int) -> EpochBatches:
        return self._planned(epoch)

    def _plan(self, epoch: int) -> EpochBatches:
        stages = () if self.mixing is None else self.mixing.mixture.stages
        is_modified = any(stage.modifiers for stage in stages)
        # A separate process prepares slow batches.
        is_slow = bool(self.data.tokenizer.sampling) or self.device.type == "cuda" or is_modified
        return EpochBatches(
            self.data,
            self.batching,
            self.seed,
            epoch,
            self.network.encoder.reader,
            ahead=int(is_slow),
            mixing=self.mixing,
        )

    def validate(self, interrupted: Callable[[], bool] = never) -> Validation:
        """Computes the loss and the metrics of greedy translations on all validation sets.

        The loss is computed with teacher forcing and without label smoothing, in nats per token.
        Metrics of additional validation sets have names such as `NAME/bleu`.
        """
        splits = self.data.splits
        first = self._validation_of(self.data.validation, splits.validation, interrupted)
        metrics = dict(first.metrics)
        for name, pairs in splits.more_validation.items():
            further = self._validation_of(self.data.more_validation[name], pairs, interrupted)
            metrics |= {f"{name}/{figure}": value for figure, value in further.metrics.items()}
        return replace(
            first,
            metrics=metrics,
            example=_example(splits.validation, first.answers),
            samples=_table(splits.validation, first.answers, self.samples) if self.samples else "",
            attention=self._attention(splits.validation) if self.samples else None,
        )

    def _validation_of(
        self, corpus: Corpus, part: Pairs, interrupted: Callable[[], bool]
    ) -> Validation:
        """Returns the loss, the metrics and the translations of one validation set."""
        # The loss covers all pairs; `max_validation` limits only the translations.
        count = self.max_validation or len(part)
        loss, tokens = self._loss_of(corpus, interrupted)
        answers = self._share_translated(Greedy(), part.source[:count], interrupted)
        if self.ranks.any(interrupted()):
            raise ValidationStopped
        loss, tokens = self.ranks.sums(loss, tokens)  # from all ranks
        answers = self.ranks.whole(answers)  # in the order of the sentences
        others = [other[:count] for other in part.more_references]
        scores = self.judge.score(answers, part.target[:count], others=others)
        metrics = {name: result.score for name, result in scores.items()}
        return Validation(metrics={"loss": loss / tokens, **metrics}, answers=answers)

    def _loss_of(self, corpus: Corpus, interrupted: Callable[[], bool]) -> tuple[float, float]:
        """Computes the loss on this rank's share of a validation set. Returns the loss in nats,
        summed over the tokens, and the number of tokens."""
        loss = 0.0
        tokens = 0.0
        lengths = corpus.source.lengths, corpus.target.lengths
        with torch.inference_mode():
            for indices in self.ranks.share(self.batching.in_order(*lengths)):
                if interrupted():
                    break
                batch = collate(corpus, indices, self.network.encoder.reader)
                result = self.network(self.objective, to_device(batch, self.device), 0)
                loss += float(result.nll)
                tokens += result.num_tokens
        return loss, tokens

    def _share_translated(
        self, search: Search, lines: Sequence[str], interrupted: Callable[[], bool] = never
    ) -> list[str]:
        """Translates this rank's share of source lines, and returns one translation per line.

        The result is empty if the validation was interrupted.
        """

        def check(_: int) -> None:
            if interrupted():
                raise ValidationStopped

        share = list(self.ranks.share(lines))
        try:
            # A signal may have arrived during the computation of the loss.
            check(0)
            return [one_line(text) for text in self._translator(search).translate(share, check)]
        except ValidationStopped:
            return []

    def _attention(self, part: Pairs) -> AttentionMap | None:
        """Returns the attention map of one validation sentence; None if the model has no attention
        or the set is empty."""
        translator = self._translator(Greedy())
        lines = self._shown_of(part, 1)
        if not translator.attends or not lines:
            return None
        translations = translator.translations(lines, details_of=1)
        maps = translator.attention_maps(lines, translations, units="piece")
        return maps[0] if maps else None

    def _shown_of(self, part: Pairs, count: int) -> list[str]:
        """Returns `count` source lines for attention maps.

        For text, the lines have about the median length of the sentences shorter than 80
        characters. Sentences with several target words are preferred. For images, the first lines
        are chosen.
        """
        if self.data.splits.pictures:
            return list(part.source[:count])
        pairs = [pair for pair in zip(part.source, part.target, strict=True) if pair[0].strip()]
        short = [pair for pair in pairs if len(pair[0]) < 80]
        several = [pair for pair in short if len(words(pair[1])) > 1]
        candidates = several if len(several) >= count else short
        lines = sorted((line for line, _ in candidates), key=len)
        start = max(0, (len(lines) - count) // 2)
        return lines[start : start + count] or [line for line, _ in pairs[:1]]

    def _translator(self, search: Search) -> Translator:
        # Recordings pay off only for more text than a validation set.
        options = {**self.options, "capture": False, "languages": self.data.splits.languages}
        return Translator(self.network, self.data.tokenizer, search, **options)

    @property
    def _last_part(self) -> tuple[str, Pairs]:
        splits = self.data.splits
        return ("test", splits.test) if splits.test else ("validation", splits.validation)

    def test(self) -> FinalResult:
        name, part = self._last_part
        began = time.monotonic()
        hypotheses = self.ranks.whole(self._share_translated(self.search, part.source))
        seconds = time.monotonic() - began
        scores = self.judge.score(
            hypotheses,
            part.target,
            others=part.more_references,
            orders=self.data.splits.pictures,
        )
        texts = {
            name: hypotheses,
            f"{name}.source": part.source,
            f"{name}.reference": part.target,
            **{f"{name}.reference{n}": lines for n, lines in enumerate(part.more_references, 2)},
        }
        if part.regions is not None and self.network.decoder.attends:
            scores["pointing"] = pointing(self._translator(self.search), part)
        return FinalResult(
            part=name,
            results={
                "scores": {metric: vars(result) for metric, result in scores.items()},
                "translation_seconds": round(seconds, 2),
            },
            lines=[
                f"{score_text(name, result.score)} ({result.signature})"
                for name, result in scores.items()
            ],
            texts=texts,
        )

    def draw(self, folder: Path) -> None:
        """Draws the attention maps of a few validation sentences, and writes them to an image file
        in `folder`."""
        translator = self._translator(self.search)
        if not translator.attends:
            return
        part = self.data.splits.validation
        lines = self._shown_of(part, 4 if self.data.splits.pictures else 2)
        result = translator.translations(lines, details_of=1)
        file = folder / ("attention.png" if installed("matplotlib") else "attention.html")
        maps = translator.attention_maps(lines, result, units="word")
        references = dict(zip(part.source, part.target, strict=True))
        chrf = similarity("chrf")
        titles = [
            f"reference: {references[line]}\n"
            f"chrF of the translation: {chrf(answer.text, references[line]):.0f}"
            for line, answer in zip(lines, result, strict=True)
            if answer.hypotheses  # sentences without a translation have no map
        ]
        write_map([replace(m, title=t) for m, t in zip(maps, titles, strict=True)], file)

    def next_commands(self, folder: Path) -> list[str]:
        model = typed(model=folder)
        attends = self.network.decoder.attends
        drawing = " attention_map=map.html" if attends else ""
        return [
            f"{_says(self._last_part[1].source[0])} | python -m nmt.translate {model}",
            f"python -m nmt.translate {model} input=FILE output=FILE{drawing}",
            f"python -m nmt.evaluate {model} source=FILE reference=FILE",
        ]


def _example(part: Pairs, answers: Sequence[str]) -> str:
    """Returns a validation sentence with its translation. Every validation of a run returns the
    same sentence: the one whose sentence pair has the length closest to `PAIR_LENGTH`."""
    lengths = [abs(len(part.source[i] + part.target[i]) - PAIR_LENGTH) for i in range(len(answers))]
    if not lengths:
        return ""
    place = lengths.index(min(lengths))
    return f"{part.source[place]} → {answers[place]}".replace("\t", " | ")


def _table(part: Pairs, answers: Sequence[str], count: int) -> str:
    """Returns a Markdown table with the first validation sentences, their references and their
    translations."""
    rows = [("source", "reference", "translation"), ("---",) * 3]
    rows += list(zip(part.source, part.target, answers, strict=False))[:count]
    cells = [[cell.replace("|", " ") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _says(line: str) -> str:
    """Returns a shell command that prints a source line for nmt.translate.

    line: source line, with tabs between its columns
    """
    columns = line.split("\t")
    if len(columns) == 1:
        return f"echo {shlex.quote(line)}"
    form = r"\t".join(["%s"] * len(columns)) + r"\n"
    return f"printf '{form}' {shlex.join(columns)}"
