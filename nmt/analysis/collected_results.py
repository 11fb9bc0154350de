"""Collection of the results of a report: runs in folders, and translations of other systems."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from nmt.analysis.run_results import RunResult, read_result
from nmt.data import unique_suffixes
from nmt.data.lines import check_aligned, find_file, read_lines
from nmt.foundation.errors import UsageError, UserError
from nmt.metric import Metric
from nmt.storage.metrics_file import is_outdated
from nmt.sweep.run_status import RECORD, Run, find

log = logging.getLogger(__name__)
DEPTH = 3
"""Number of folder levels below a given folder that are searched for runs."""
OWN_SYSTEM = "nmt"
"""Value of the setting `system` for runs, in reports with the translations of other tools."""


@dataclass(frozen=True)
class CollectedRuns:
    """Runs found in the given folders.

    finished: results of finished runs
    swept: finished and unfinished runs of sweeps
    """

    finished: Sequence[RunResult]
    swept: Sequence[Run]


def collect(names: Sequence[str], *, different_data: bool = False) -> CollectedRuns:
    """Finds runs in folders and their subfolders. Logs a warning for each unreadable run.

    names: paths of the folders
    different_data: whether to accept runs with different data

    Raises UserError if no run is found or the runs have different data.
    """
    for name in names:
        if not Path(name).is_dir():
            raise UsageError(f"{name}: not a folder; give the folder of a run or a sweep")
    sweeps = dict.fromkeys(record.parent.parent for record in _files(names, f"*/{RECORD}"))
    # Ignore runs that a later command line of the sweep no longer includes.
    swept = [run for folder in sweeps for run in find(folder) if not run.dropped]
    for file in _files(names, "run.json"):
        is_swept = file.parent.parent in sweeps
        if not is_swept and not (file.parent / "results.json").is_file():
            log.warning(
                "%s: the run is left out of the report, because it is not finished; "
                "unless a process is training it, continue the training with resume=%s",
                file.parent,
                file.parent,
            )
    results = []
    for file in _files(names, "results.json"):
        try:
            results.append(read_result(file.parent))
        except (OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError) as e:
            log.warning(
                "%s: the run is left out of the report, because its files cannot be read (%r)",
                file.parent,
                e,
            )
    _warn_of_outdated(results)
    if not results and not swept:
        raise UsageError(
            f"{', '.join(names)}: no finished run found; the folder of a finished run contains "
            "results.json"
        )
    if not different_data:
        _check_data(results)
    return CollectedRuns(_with_choices(results), swept)


def _check_data(results: Sequence[RunResult]) -> None:
    """Raises UsageError if a data set differs between runs."""
    for name in dict.fromkeys(name for result in results for name in result.data):
        # Runs of older versions lack the hash of the test set.
        folders = {result.data[name]: result.folder for result in results if name in result.data}
        if len(folders) > 1:
            raise UsageError(
                f"{' and '.join(map(str, list(folders.values())[:2]))} have different data (the "
                f"set `{name}`), so their scores cannot be compared. Give runs with the same data, "
                "or add different_data=true"
            )


def _warn_of_outdated(results: Sequence[RunResult]) -> None:
    for result in results:
        if is_outdated(result.folder, result.updates):
            log.warning(
                "%s: the training was continued after these results were written; finish it with "
                "resume=%s",
                result.folder,
                result.folder,
            )


def _files(names: Sequence[str], pattern: str) -> list[Path]:
    """Returns the files that match a pattern in folders and their subfolders, without duplicates.

    names: paths of the folders
    pattern: glob pattern of the files, relative to a folder
    """
    files = [
        file
        for name in names
        for depth in range(DEPTH + 1)
        for file in sorted(Path(name).glob("*/" * depth + pattern))
    ]
    # A folder that has several paths, for example by a link, has the first of them.
    return list({file.resolve(): file for file in reversed(files)}.values())[::-1]


def _with_choices(results: Sequence[RunResult]) -> list[RunResult]:
    """Replaces the qualified names of classes outside nmt with the names used on the command line,
    such as `mine`.

    A name is replaced only if all command lines that select the class use the same name.
    """
    choices = {
        (_class_of(result, key), choice)
        for result in results
        for key, choice in result.typed.items()
    }
    counts = Counter(target for target, _ in choices)
    names = {
        target: choice
        for target, choice in choices
        if counts[target] == 1 and not target.startswith("nmt.")
    }
    return [
        replace(
            result,
            settings={
                key: names.get(_class_of(result, key), value)
                for key, value in result.settings.items()
            },
        )
        for result in results
    ]


def _class_of(result: RunResult, key: str) -> str:
    """Returns the qualified name of the class that a configuration group selects.

    If the key is not a group, the result is "nmt.". Callers rename only classes outside nmt, so the
    value of such a key stays unchanged.
    """
    return result.settings.get(f"{key}._target_", "nmt.")


def with_systems(runs: Sequence[RunResult], systems: Sequence[str]) -> list[RunResult]:
    """Returns the results of the runs and of other tools. The setting `system` of each result names
    the tool, "nmt" for a run.

    systems: files with other tools' translations of the test set, as FILE or NAME=FILE

    Raises UserError if no run is finished, two tools have the same name, or a file does not match
    the test set.
    """
    if not runs:
        raise UserError(f"systems={systems[0]}: cannot be scored, because no run is finished")
    # A path may contain "=" too.
    parts = [
        ("", system) if "=" not in system or Path(system).is_file() else system.split("=", 1)
        for system in systems
    ]
    files = [file for _, file in parts]
    suffixes = unique_suffixes(files)
    names = [name or suffix for (name, _), suffix in zip(parts, suffixes, strict=True)]
    for name in names:
        if name == OWN_SYSTEM or names.count(name) > 1:
            raise UserError(
                f"systems: the name {name} is used more than once; give each file its own name, as "
                "NAME=FILE"
            )
    others = [
        result_of_file(Path(file), name, runs, runs[0].scorer)
        for name, file in zip(names, files, strict=True)
    ]
    named = [replace(run, settings={"system": OWN_SYSTEM, **run.settings}) for run in runs]
    return [*named, *others]


def result_of_file(file: Path, name: str, runs: Sequence[RunResult], metric: Metric) -> RunResult:
    """Scores another tool's translations of the runs' test set, and returns the result.

    file: file of translations, one per line
    name: name of the tool, for the tables
    runs: results of the training runs
    metric: metric in which the runs are scored

    Raises UserError if the file does not match the test set.
    """
    tested = next((run for run in runs if run.references), None)
    if tested is None:
        raise UserError(
            f"systems={file}: cannot be scored, because no run has a test set with references"
        )
    references = tested.references
    file = find_file(str(file))
    lines = read_lines(file)
    check_aligned(tested.folder, len(references[0]), file, len(lines))
    scores = metric.score(
        lines,
        references[0],
        ter="ter" in tested.scores,
        others=references[1:],
        orders="bleu1" in tested.scores,
    )
    # The row copies the settings that all runs share, so that the table omits their columns.
    common = {
        key: value
        for key, value in runs[0].settings.items()
        if all(run.settings.get(key) == value for run in runs)
    }
    return replace(
        tested,
        settings={"system": name, **common},
        scores={name: result.score for name, result in scores.items()},
        signatures={name: result.signature for name, result in scores.items()},
        validation={},
        curve=(),
        seconds=0.0,
        updates=0,
        parameters=None,
        memory=None,
        leaked=0,
        answers=file,  # the file's lines replace the translations of the run
    )
