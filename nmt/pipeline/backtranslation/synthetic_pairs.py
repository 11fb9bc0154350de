"""Step 4 of back-translation: selection of the synthetic pairs, and the mixture of synthetic and
real pairs."""

import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import yaml

from nmt.data.lines import find_file, stream_lines
from nmt.foundation.errors import UserError
from nmt.foundation.part_limits import shown
from nmt.inference.output_formats import one_line
from nmt.pipeline.backtranslation.real_pairs import check_number
from nmt.pipeline.backtranslation.step_settings import StepSettings, TextTranslation
from nmt.storage.files import write_atomically
from nmt.tokenizer.words import words

log = logging.getLogger(__name__)


def write_synthetic_pairs(plan: StepSettings) -> None:
    """Writes the selected synthetic pairs, and the mixture file of synthetic and real pairs.

    With data diversification (synthetic.direction=both), pairs that are equal to a real pair or
    to an earlier pair are dropped.
    """
    mixture = plan.folder / "mixture.yml"
    files = [plan.folder / f"synthetic.{name}" for name in plan.corpus.languages]
    if all(file.exists() for file in (mixture, *files)):
        return
    mixture.unlink(missing_ok=True)  # marks the pairs as complete, and is written last
    pairs: Iterator[tuple[str, str]] = itertools.chain(
        *map(partial(_selected, plan), plan.translators)
    )
    if plan.synthetic.direction == "both":
        real_files = [plan.folder / "corpus" / f"train.{name}" for name in plan.corpus.languages]
        pairs = _new(pairs, real_files)
    count = 0
    with (
        files[0].open("w", encoding="utf-8") as sources,
        files[1].open("w", encoding="utf-8") as targets,
    ):
        for source, target in pairs:
            sources.write(f"{source}\n")
            targets.write(f"{target}\n")
            count += 1
    check_number(count, f"synthetic.keep={shown(plan.synthetic.keep)}", plan.settings)
    log.info(
        "back-translation, step 4: selected %s synthetic pairs in %s",
        f"{count:,}",
        plan.folder / "synthetic.*",
    )
    # Number of real pairs per synthetic pair.
    real = plan.synthetic.real * plan.corpus.pairs / count
    described = {
        "datasets": {"synthetic": "synthetic", **({"real": "corpus/train"} if real else {})},
        "stages": ["all"],
        "all": [
            "synthetic 1.0",
            *([f"real {real:.9f}"] if real else []),
            "until synthetic inf",
        ],
    }
    write_atomically(mixture, yaml.safe_dump(described).encode())


def _selected(plan: StepSettings, translator: TextTranslation) -> Iterator[tuple[str, str]]:
    """Yields the selected pairs of a source and a target sentence.

    Of the translations, the fraction `synthetic.keep` with the highest log-probability per
    word is selected.
    """
    scores = np.array([score for _, score in read_translations(translator.output)])
    usable = scores[scores > -np.inf]  # log-probabilities of the non-empty translations
    if not usable.size:
        raise UserError(
            f"{translator.text}: all translations of this text are empty; check the "
            f"validation scores in {translator.folders}"
        )
    threshold = float(np.quantile(usable, 1 - plan.synthetic.keep))
    lines = stream_lines(find_file(translator.text))
    translations = read_translations(translator.output)
    for line, (translation, score) in zip(lines, translations, strict=True):
        if score < threshold or not line.strip():
            continue
        text = one_line(line)
        # In back-translation, the text is in the target language.
        is_forward = translator.direction == "forward"
        yield (text, translation) if is_forward else (translation, text)


def _new(pairs: Iterable[tuple[str, str]], real: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Yields the synthetic pairs that equal neither a real pair nor an earlier synthetic pair.

    pairs: synthetic pairs (source, target)
    real: files of the source and the target sentences of the real pairs
    """
    sides = [stream_lines(file) for file in real]
    seen = {
        hash((one_line(source), one_line(target))) for source, target in zip(*sides, strict=True)
    }
    for pair in pairs:
        if hash(pair) not in seen:
            seen.add(hash(pair))
            yield pair


def read_translations(file: Path) -> Iterator[tuple[str, float]]:
    """Yields pairs (translation, log-probability per word in nats) from a file of translations.

    The log-probability of an empty translation is -inf.

    file: n-best list in Moses format that has one hypothesis per sentence
    """
    for line in stream_lines(file):
        fields, log_prob = line.rsplit(" ||| ", 1)[0].rsplit(" ||| logprob= ", 1)
        text = fields.partition(" ||| ")[2]
        count = len(words(text))
        # The end symbol </s> also counts as a word.
        yield text, float(log_prob) / (count + 1) if count else -np.inf
