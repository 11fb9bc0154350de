"""The properties of tests/test_fuzz.py with as many examples as fit into a time, each round with another seed.

    python scripts/fuzz.py [--seconds 3600] [--seed 1]

Prints the number of examples of each property, and every input that broke one, made as small as possible. Exit status 1
if there was any.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROUND = 200  # examples of each property in a round


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    examples: collections.Counter[str] = collections.Counter()
    began, broken, seed = time.monotonic(), 0, options.seed
    while time.monotonic() - began < options.seconds:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", "tests/test_fuzz.py",
                   "--hypothesis-show-statistics", f"--hypothesis-seed={seed}"]  # fmt: skip
        variables = {**os.environ, "NMT_FUZZ": str(ROUND), "PYTHONPATH": str(ROOT)}
        result = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
        name = ""
        for line in result.stdout.splitlines():
            title, count = (
                re.match(r"\S*::test_(\w+):$", line),
                re.search(r"- (\d+) passing,", line),
            )
            name = title[1] if title else name
            examples[name] += int(count[1]) if count else 0
        if result.returncode:
            broken += 1
            print(f"seed {seed}:\n{result.stdout}\n{result.stderr}", file=sys.stderr, flush=True)
        seed += 1
    print(
        f"{seed - options.seed} rounds in {time.monotonic() - began:.0f} s, {broken} of them with a fault"
    )
    for name, number in sorted(examples.items()):
        if name:
            print(f"  {name}: {number:,} examples")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
