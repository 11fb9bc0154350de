"""Runs the command of an entry of the register of results again, and compares the figures.

python scripts/reproduce.py NAME [KEY=VALUE …] [--dry-run] [--tolerance 0.25] [--output FOLDER]

Scores must lie in the interval of the entry, or the entry's score in the interval of the new runs.
Times, speeds and memory may differ by the tolerance. The exit status is 1 if a score differs or,
for an entry without scores, another figure. The runs are in runs/reproduce/NAME-DATE (with overrides,
NAME-DATE-HASH), and their entry is in report.json, from where `scripts/results.py --add` adds it
to the register. Recipes (experiment=…) have the settings of the day of the entry, which
scripts/register/recipes.json lists.
"""

import argparse
import difflib
import hashlib
import json
import re
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import results

RUNS = ("nmt.train", "nmt.classify")
"""Modules whose runs nmt.report can read."""
RECIPES = Path(__file__).parent / "register" / "recipes.json"
"""Former settings of recipes that have changed."""
PLACEHOLDER = re.compile(r"\b(?:DIR|FILE|OUT)\b|…")
FIXED = ("seed=", "run_dir=", "resume=")
"""Keys whose values come from the entry and from the folder of the new runs."""
SCORES = ("BLEU", "chrF", "TER", "%")
"""Units of scores; larger differences than their interval are significant."""
COSTS = ("s", "MB", "target tokens/s", "sentences/s", "ms")
"""Units of figures that depend on the machine and its load."""


def commands(entry: dict[str, Any], overrides: list[str], folder: Path) -> list[list[str]]:
    """The command of each seed, or an exit with the reason why the entry cannot be reproduced.

    entry: entry of the register
    overrides: KEY=VALUE words that replace words of the command
    folder: folder of the new runs
    """
    name = entry["id"]
    if entry["kind"] == "quoted":
        sys.exit(f"{name}: quoted from {entry['source']}, so there is no command to run")
    if entry["system"] != "nmt" or entry["command"] is None:
        reason = entry.get("note") or entry["task"]
        sys.exit(f"{name}: the register has no command of nmt for this entry ({reason})")
    words = shlex.split(entry["command"])
    if words[:2] != ["python", "-m"] or words[2] not in RUNS or "-m" in words[3:]:
        sys.exit(
            f"{name}: only single runs of {' and '.join(RUNS)} can be compared; run: {entry['command']}"
        )
    for override in overrides:
        if override.startswith(FIXED):
            sys.exit(f"{override}: set by this script; use the other keys of nmt")
    words += former_settings(entry["date"], words)
    keys = tuple(override.partition("=")[0] + "=" for override in overrides)
    words = [word for word in words[1:] if not (keys and word.startswith(keys))] + overrides
    missing = [word for word in words if PLACEHOLDER.search(word)]
    if missing:
        sys.exit(f"{name}: add files of your own in place of: {' '.join(missing)}")
    words.append("resume=auto")  # repeating an interrupted reproduction continues it
    if not entry["seeds"]:
        return [[*words, f"run_dir={folder}/run"]]
    words = [word for word in words if not word.startswith("seed=")]
    return [[*words, f"seed={seed}", f"run_dir={folder}/seed{seed}"] for seed in entry["seeds"]]


def former_settings(day: str, words: list[str]) -> list[str]:
    """The settings that the recipe of a command had on a day and has no longer.

    day: date of an entry
    words: command, whose own settings are left out of the result
    """
    given = {word.partition("=")[0] for word in words}
    former = {}
    for change in json.loads(RECIPES.read_text("utf-8")):
        used = any(f"experiment={name}" in words for name in change["experiments"])
        if used and day <= change["until"]:
            former |= dict(setting.split("=") for setting in change["settings"].split())
    return [f"{key}={value}" for key, value in former.items() if key not in given]


def compare(
    old: dict[str, Any], new: dict[str, Any], tolerance: float
) -> dict[str, tuple[str, bool]]:
    """(explanation, whether the figures agree) of each metric that can be compared."""
    verdicts = {}
    for name in old["metrics"].keys() & new["metrics"].keys():
        before, now = old["metrics"][name], new["metrics"][name]
        text = f"{now['value']:,g} {now['unit']}; registered: {before['value']:,g}"
        if is_score(old, name):
            value, interval, source = now["value"], before.get("interval"), "entry"
            if interval is None:
                value, interval, source = before["value"], now.get("interval"), "new runs"
            if interval:
                low, high = interval["low"], interval["high"]
                text += f"; interval of the {source}: {low:g} to {high:g}"
                verdicts[name] = text, low <= value <= high
        elif before["unit"] in COSTS:
            ratio = now["value"] / before["value"]
            text += f"; ratio {ratio:.2f}, tolerance {tolerance:g}"
            verdicts[name] = text, 1 / (1 + tolerance) <= ratio <= 1 + tolerance
    return dict(sorted(verdicts.items()))


def is_score(entry: dict[str, Any], name: str) -> bool:
    return entry["metrics"][name]["unit"] in SCORES


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "name", metavar="NAME", help="id of an entry, see scripts/results/register.md"
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="keys of the command with other values"
    )
    parser.add_argument("--dry-run", action="store_true", help="only print the commands")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=0.25,
        help="largest relative difference of times and speeds",
    )
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="folder of the new runs")
    options = parser.parse_args()
    entries = results.register()
    if options.name not in entries:
        similar = difflib.get_close_matches(options.name, entries, n=5, cutoff=0.3)
        sys.exit(f"{options.name}: entry not found; similar entries: {', '.join(similar)}")
    entry = entries[options.name]
    name = f"{options.name}-{date.today()}"
    if options.overrides:
        # Other overrides must not continue the same runs.
        digest = hashlib.sha256("\n".join(sorted(options.overrides)).encode()).hexdigest()
        name = f"{name}-{digest[:8]}"
    folder = options.output or Path(f"runs/reproduce/{name}")
    runs = commands(entry, options.overrides, folder)
    seconds = entry["metrics"].get("seconds", {}).get("value")
    took = f"{seconds:,g} s of training" if seconds else "an unknown time"
    print(
        f"{entry['task']}\nThe entry took {took} per run, on {entry['machine'] or 'an unknown machine'}. It has:"
    )
    print(
        "\n".join(
            f"  {name}: {metric['value']:,g} {metric['unit']}"
            for name, metric in entry["metrics"].items()
        )
    )
    for words in runs:
        print("python", shlex.join(words), flush=True)
        if not options.dry_run:
            subprocess.run([sys.executable, *words], cwd=results.ROOT, check=True)
    if options.dry_run:
        return
    report = [sys.executable, "-m", "nmt.report", str(folder)]
    subprocess.run(report, cwd=results.ROOT, check=True)
    file = results.ROOT / folder / "report.json"
    [new] = json.loads(file.read_text("utf-8"))
    new |= {
        "id": f"{options.name}_{date.today():%Y%m%d}",
        "kind": "reproduced",
        "reproduces": options.name,
    }
    new["task"] = entry["task"]
    file.write_text(results.dumps([new]), "utf-8")
    if "weights" in entry:
        is_equal = entry["weights"] == new["weights"]
        print(
            f"weights: {'bit-identical to the registered ones' if is_equal else 'others than registered'}"
        )
    verdicts = compare(entry, new, options.tolerance)
    for name, (text, agrees) in verdicts.items():
        print(f"{name}: {'agrees' if agrees else 'differs'}: {text}")
    print(f"python scripts/results.py --add {file} adds the new figures to the register")
    if not verdicts:
        sys.exit(f"{options.name}: no metric of the entry has an interval or a tolerance")
    # Times on another machine do not decide about an entry that has scores.
    scores = [agrees for name, (_, agrees) in verdicts.items() if is_score(entry, name)]
    sys.exit(not all(scores or [agrees for _, agrees in verdicts.values()]))


if __name__ == "__main__":
    main()
