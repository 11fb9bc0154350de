"""Step 1 of back-translation: the real (not synthetic) sentence pairs, written to files in corpus/,
and the record with which a repeated command is compared."""

import json
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from nmt import components
from nmt.configuration.training_settings import BacktranslateSettings
from nmt.data import Pairs, Splits
from nmt.data.lines import find_file, stream_lines
from nmt.data.overlap import training_rows, warn_of_held_out_lines
from nmt.data.synthetic import Synthetic
from nmt.foundation.configurations import changed_keys, flat, learnt_settings
from nmt.foundation.errors import UsageError, UserError
from nmt.foundation.part_limits import shown
from nmt.inference.output_formats import one_line
from nmt.pipeline.assembly.translation_parts import loaded
from nmt.pipeline.fingerprint import hash_of_file
from nmt.storage.files import write_atomically
from nmt.storage.upgrade import renamed
from nmt.training.task.translation_task import fingerprints

log = logging.getLogger(__name__)
RECORD = "backtranslation.json"
"""Name of the file that records the settings and the real (not synthetic) sentence pairs.

A repeated command compares the file with its own settings.
"""
UNFINISHED = ".corpus.writing"
"""Name of the folder corpus/ until all its files are written."""


@dataclass(frozen=True)
class RealPairs:
    """Record of the real (not synthetic) sentence pairs and of the command's inputs. A repeated
    command is compared with the record.

    languages: source and target language
    pairs: number of training pairs
    test: whether there is a test set
    beside: paths of the further validation sets in corpus/
    settings: settings of the command, by dotted key
    text: digest of the monolingual text file; None without a file
    files: names of the files in corpus/
    data: hashes of the data sets by name; empty in the records of older versions
    """

    languages: tuple[str, str]
    pairs: int
    test: bool
    beside: list[str]
    settings: dict[str, Any]
    text: str | None
    files: list[str] = field(default_factory=list)
    data: dict[str, str] = field(default_factory=dict)


def write_real_pairs(
    settings: BacktranslateSettings, synthetic: Synthetic, folder: Path
) -> RealPairs:
    """Writes the real (not synthetic) sentence pairs to files unless the files exist.

    Returns the record of the pairs and of the command's inputs. Raises UserError if the folder has
    other content or was created with other settings."""
    record = folder / RECORD
    text_hash = hash_of_file(synthetic.text) if synthetic.text else None
    values = flat(learnt_settings(settings.values))
    if record.exists():
        corpus = _read_record(record)
        _check_unchanged(corpus, values, text_hash, synthetic, folder)
        _check_data(corpus, settings, folder)
        if all((folder / "corpus" / name).exists() for name in corpus.files):
            return corpus
    elif others := {path.name for path in folder.iterdir()} - {".lock", UNFINISHED}:
        raise UserError(
            f"run_dir={folder}: contains {min(others)}, which nmt.backtranslate did not create; "
            "choose another folder"
        )
    loaded_splits = _loaded(settings)
    splits = _without_held_out(settings, loaded_splits)
    if synthetic.text:
        _check_text(settings, synthetic)
        side = 0 if synthetic.direction == "forward" else 1
        lines = stream_lines(find_file(synthetic.text))
        warn_of_held_out_lines(splits, lines, side, f"synthetic.text={synthetic.text}")
    batch = settings.batching.get("sentences") or 1
    if synthetic.real and len(splits.train) < batch:
        raise UserError(
            f"{splits.train.name}: only {len(splits.train):,} sentence pairs, fewer than one batch "
            f"({batch:,}); lower batching.sentences, or set synthetic.real=0"
        )
    corpus = RealPairs(
        languages=splits.languages,
        pairs=len(splits.train),
        test=splits.test is not None,
        beside=[str(folder / "corpus" / name) for name in _further_sets(splits)],
        settings=values,
        text=text_hash,
        files=_write_splits(splits, folder / UNFINISHED),
        data=_hashes(loaded_splits),
    )
    _save(corpus, folder)
    place = folder / "corpus"
    log.info("back-translation, step 1: wrote %s real pairs to %s", f"{corpus.pairs:,}", place)
    return corpus


def _save(corpus: RealPairs, folder: Path) -> None:
    """Writes the record of the pairs, and moves their files to corpus/."""
    # The record comes first, because a folder corpus/ without a record belongs to the user.
    text = json.dumps(asdict(corpus), indent=2, ensure_ascii=False)
    write_atomically(folder / RECORD, text.encode())
    shutil.rmtree(folder / "corpus", ignore_errors=True)  # incomplete
    os.replace(folder / UNFINISHED, folder / "corpus")


def _read_record(record: Path) -> RealPairs:
    """Reads the record of the real (not synthetic) sentence pairs.

    Raises UserError if the record is damaged.
    """
    try:
        fields = json.loads(record.read_text(encoding="utf-8"))
        fields["languages"] = tuple(fields["languages"])
        fields["settings"] = {
            key: renamed(value) if key.endswith("_target_") else value
            for key, value in fields["settings"].items()
        }
        return RealPairs(**fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{record}: damaged; remove the file, or choose another run_dir") from error


def _check_unchanged(
    corpus: RealPairs,
    values: Mapping[str, Any],
    text_hash: str | None,
    synthetic: Synthetic,
    folder: Path,
) -> None:
    """Raises UserError if the settings or the monolingual text have changed since the run folder of
    the back-translation was created."""
    if corpus.text != text_hash:
        raise UsageError(
            f"synthetic.text={synthetic.text}: the file has changed since the back-translation "
            f"in {folder} began; choose another run_dir"
        )
    for key in changed_keys(corpus.settings, values):
        reuse = f", and reuse the reverse model by synthetic.model={folder / 'reverse'}"
        is_trained = (folder / "reverse" / "results.json").exists()
        raise UsageError(
            f"run_dir={folder}: created with {key}={shown(corpus.settings.get(key))}, not "
            f"{shown(values.get(key))}; choose another folder{reuse if is_trained else ''}"
        )


def _loaded(settings: BacktranslateSettings) -> Splits:
    config = {**settings.values, "copied_pairs": 0.0}  # each training adds its own copied pairs
    return loaded(config, components.make(config, "filters"))


def _without_held_out(settings: BacktranslateSettings, splits: Splits) -> Splits:
    """Returns data sets without the training pairs that `filters.drop_held_out` drops, because
    translations of these pairs would no longer be recognised as held out."""
    rows = training_rows(splits, components.make(settings.values, "filters"))
    if len(rows) == len(splits.train):
        return splits
    return replace(splits, train=splits.train.select(rows))


def _check_data(corpus: RealPairs, settings: BacktranslateSettings, folder: Path) -> None:
    """Raises UserError if the data sets have changed since the run folder was created."""
    try:
        hashes = _hashes(_loaded(settings))
    except UserError:  # the data may have been removed, since the run folder has the pairs
        return
    if corpus.data and corpus.data != hashes:
        raise UsageError(
            f"run_dir={folder}: the data has changed since the back-translation began; choose "
            "another run_dir"
        )


def _hashes(splits: Splits) -> dict[str, str]:
    """Returns the hashes of the data sets by name."""
    training, test = fingerprints(splits)
    return training | test


def _check_text(settings: BacktranslateSettings, synthetic: Synthetic) -> None:
    """Raises UserError if the monolingual text has too few lines for a batch."""
    lines = stream_lines(find_file(str(synthetic.text)))
    count = sum(bool(line.strip()) for line in lines)
    if not count:
        raise UserError(f"synthetic.text={synthetic.text}: contains no words")
    check_number(int(synthetic.keep * count), f"synthetic.text={synthetic.text}", settings)


def check_number(pairs: int, key: str, settings: BacktranslateSettings) -> None:
    """Raises UserError if there are fewer synthetic pairs than one batch needs."""
    batch = settings.batching.get("sentences") or 1
    if pairs < batch:
        raise UserError(
            f"{key}: gives only {pairs:,} synthetic pairs, fewer than one batch ({batch:,}). Start "
            "again with a new run_dir, and lower batching.sentences, give more text, or raise "
            "synthetic.keep"
        )


def _write_splits(splits: Splits, folder: Path) -> list[str]:
    """Writes the training, validation and test sets, and returns the names of the files."""
    shutil.rmtree(folder, ignore_errors=True)  # removes files of an interrupted attempt
    folder.mkdir()
    parts = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    for name, pairs in {**parts, **_further_sets(splits)}.items():
        sides = () if pairs is None else (pairs.source, pairs.target)
        for language, lines in zip(splits.languages, sides, strict=False):
            with Path(folder, f"{name}.{language}").open("w", encoding="utf-8") as file:
                file.writelines(f"{one_line(line)}\n" for line in lines)
    return sorted(file.name for file in folder.iterdir())


def _further_sets(splits: Splits) -> dict[str, Pairs]:
    """Returns the further validation sets by the names of their files, which differ from those of
    the other sets."""
    return {f"validation-{i}": part for i, part in enumerate(splits.more_validation.values(), 2)}
