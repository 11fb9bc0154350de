"""Writes the figures of the pages from the register of results, scripts/results/*.json.

python scripts/results.py [--check] [--add FILE] [--to TOPIC]

A page has the text of the template NAME of scripts/register/templates.md between the comments
`<!-- results: NAME -->` and `<!-- /results -->`. A template names figures of the register, such as
`{multi30k_en_de.bleu:.1f}`; expressions such as `{a.seconds / b.seconds:.1f}` are allowed. Formats
are those of Python, `min` (seconds as minutes), `each FORMAT` (the value of each seed) and
`± FORMAT` (mean and standard deviation over seeds). Rows of tables with figures that are
older than a change in scripts/register/changes.json get the mark of the change, † or ‡.

--check: writes nothing; the exit status is 1 if a page or the register is wrong
--add: appends the entries of a file, such as the report.json of nmt.report, to the register
"""

import argparse
import functools
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
REGISTER = ROOT / "scripts/results"
RULES = ROOT / "scripts/register"
OVERVIEW = REGISTER / "register.md"
MARKED = re.compile(r"(<!-- results: ([a-z]\w*) -->\s*)(.*?)(\s*<!-- /results -->)", re.DOTALL)
HTML_LINE = re.compile(r"^ {0,3}<!-- /?results[^>]*-->.", re.MULTILINE)
"""Comment at the start of a line of text, which Markdown would take for HTML."""
PLACEHOLDER = re.compile(r"\{([^{}:]+)(?::([^{}]*))?\}")
FIGURE = re.compile(
    r"(?<![\w.-])(?<!more than )\d[\d.,]* ?"
    r"(?:BLEU|chrF|AER|%|s|ms|min|minutes|hours|[KMG]B|×|times|points|tokens/s|sentences/s)"
    r"(?!\w)"
)
"""Number with the unit of a measurement; `more than N` is a limit."""
FACTS = (
    "2 % of the training pairs",
    "this is 1 % of the pairs",
    "these are 1 % of the sentences",
    "300 s for the default tests",
    "1,080 s for all tests",
    "20 minutes for on a bare machine",
    "reversal to > 99 %",
)
"""Figures of the READMEs that are settings or limits, with the words around them, without code."""
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


class Figure(float):
    """Value of a metric of the register, with its entry."""

    entry: "Entry"
    metric: dict[str, Any]

    @property
    def values(self) -> list[float]:
        return self.metric.get("values", [self.metric["value"]])

    @property
    def half(self) -> float:
        """Half the width of the confidence interval."""
        return (self.metric["interval"]["high"] - self.metric["interval"]["low"]) / 2

    def text(self, spec: str) -> str:
        kind, _, digits = spec.rpartition(" ")
        if kind == "each":
            return " · ".join(as_text(value, digits) for value in self.values)
        if kind == "±":
            deviation = self.metric.get("deviation") or statistics.stdev(self.values)
            return f"{as_text(float(self), digits)} ± {as_text(deviation, digits)}"
        return as_text(self.metric["value"], spec)

    def later_changes(self) -> Iterator[dict[str, Any]]:
        """Changes of nmt after the measurement that affect figures of this unit."""
        facts = self.entry.facts
        if facts["system"] == "nmt" and facts["kind"] != "quoted" and facts["date"]:
            for change in changes():
                is_older = facts["date"] < change["date"]
                is_older |= change["date"] in facts.get("before_changes", ())
                if is_older and self.metric["unit"] in change["units"]:
                    yield change


class Entry:
    """Entry of the register, whose metrics are attributes.

    used: figures that were read
    """

    def __init__(self, facts: dict[str, Any], used: list[Figure]) -> None:
        self.facts = facts
        self.used = used

    def __getattr__(self, name: str) -> Figure:
        metrics = self.facts["metrics"]
        if name not in metrics:
            sys.exit(f"{self.facts['id']}.{name}: metric not found; it has {', '.join(metrics)}")
        figure = Figure(metrics[name]["value"])
        figure.entry, figure.metric = self, metrics[name]
        self.used.append(figure)
        return figure


def register() -> dict[str, dict[str, Any]]:
    """The entries of all files by their ids."""
    files = sorted(REGISTER.glob("*.json"))
    entries = [entry for file in files for entry in json.loads(file.read_text("utf-8"))]
    return {entry["id"]: entry for entry in entries}


@functools.cache
def changes() -> list[dict[str, Any]]:
    """Changes of nmt that affect figures, the earliest first."""
    return json.loads((RULES / "changes.json").read_text("utf-8"))


def templates() -> dict[str, str]:
    text = (RULES / "templates.md").read_text("utf-8")
    return {name: body for _, name, body, _ in MARKED.findall(text)}


def as_text(value: float, spec: str) -> str:
    if isinstance(value, Figure):
        return value.text(spec)
    if spec == "min":
        value, spec = value / 60, ".0f"
    # Halves are rounded up, also if the binary value is slightly smaller.
    return f"{value + 1e-9 if spec else value:,{spec}}"


def marks_of(figures: list[Figure]) -> str:
    """The marks of all changes after the measurement of the figures, in the order of the changes."""
    later = [change for figure in figures for change in figure.later_changes()]
    return "".join(change["mark"] for change in changes() if change in later)


def filled(template: str, entries: dict[str, dict[str, Any]]) -> str:
    """A template with its figures, marked if they are older than the code."""
    outdated: set[str] = set()  # marks of changes
    lines = []
    for line in template.split("\n"):
        used: list[Figure] = []
        names = [name for name in re.findall(r"\w+", line) if name in entries]
        named = {name: Entry(entries[name], used) for name in names}

        def figure(match: re.Match[str], named: dict[str, Entry] = named) -> str:
            try:
                value = eval(match[1], {"__builtins__": {}}, named)
            except NameError as error:
                sys.exit(f"{match[1]}: entry not found ({error})")
            return as_text(value, match[2] or "")

        text = PLACEHOLDER.sub(figure, line)
        marks = marks_of(used)
        if marks and line.startswith("|"):
            outdated |= {*marks}
            text = re.sub(r"^(\| .*?)( \|)", rf"\1 {marks}\2", text, count=1)
        lines.append(text)
    notes = [
        f"{c['mark']} marks {c['figures']} measured before {c['change']} ({c['date']})."
        for c in changes()
        if c["mark"] in outdated
    ]
    if notes:
        lines += ["", " ".join(notes)]
    return "\n".join(lines)


def overview(entries: dict[str, dict[str, Any]]) -> str:
    """The page with a table of all entries."""
    replaced = {facts.get("replaces") for facts in entries.values()}
    lines = [
        "# Register of results",
        "Generated by `python scripts/results.py` from the files `scripts/results/*.json`. Do not "
        "edit. Figures measured before a change to nmt that affects them have the mark of the change:",
    ]
    lines.append(
        "\n".join(
            f"- {c['mark']} {c['date']}: {c['change']} ({', '.join(c['units'])})" for c in changes()
        )
    )
    for file in sorted(REGISTER.glob("*.json")):
        rows = [
            "| entry | work | figures | seeds | date, commit | machine |",
            "|---|---|---|---|---|---|",
        ]
        for facts in json.loads(file.read_text("utf-8")):
            entry = Entry(facts, [])
            figures = [
                f"{name} {as_text(getattr(entry, name), '')} {metric['unit']}"
                + f" {marks_of([getattr(entry, name)])}".rstrip()
                for name, metric in facts["metrics"].items()
            ]
            work = (
                facts["task"] if facts["system"] == "nmt" else f"{facts['system']}: {facts['task']}"
            )
            work += {"quoted": f"; quoted from {facts.get('source')}", "measured": ""}.get(
                facts["kind"], f"; reproduces `{facts.get('reproduces')}`"
            )
            work += "; replaced by a later entry" * (facts["id"] in replaced)
            when = ", ".join(
                [facts["date"] or "–", *([facts["commit"][:7]] if facts["commit"] else [])]
            )
            seeds = ", ".join(map(str, facts["seeds"] or [])) or "–"
            cells = [
                f"`{facts['id']}`",
                work,
                "; ".join(figures),
                seeds,
                when,
                facts["machine"] or "–",
            ]
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines += [f"## {file.stem.capitalize()}", "\n".join(rows)]
    return "\n\n".join(lines) + "\n"


def pages() -> list[Path]:
    result = [
        ROOT / "README.md",
        *(p for d in ("conf", "nmt", "scripts", "tests") for p in sorted((ROOT / d).rglob("*.md"))),
    ]
    return [page for page in result if RULES not in page.parents and page != OVERVIEW]


def written(page: Path, texts: dict[str, str]) -> str:
    """The text of a page with the figures of the register."""
    text = page.read_text("utf-8")
    if line := HTML_LINE.search(text):
        sys.exit(f"{page}: {line[0]}: a comment inside a paragraph must not begin a line")
    unknown = [match[2] for match in MARKED.finditer(text) if match[2] not in texts]
    if unknown:
        sys.exit(
            f"{page}: results: {unknown[0]}: template not found in scripts/register/templates.md"
        )
    return MARKED.sub(lambda match: match[1] + texts[match[2]] + match[4], text)


def problems(entries: dict[str, dict[str, Any]]) -> Iterator[str]:
    """One line for each violation of the schema, and each entry that was changed or removed."""
    import jsonschema

    schema = json.loads((RULES / "schema.json").read_text("utf-8"))
    contents = {
        file: json.loads(file.read_text("utf-8")) for file in sorted(REGISTER.glob("*.json"))
    }
    is_valid = True
    for file, content in contents.items():
        for error in jsonschema.Draft202012Validator(schema).iter_errors(content):
            place = content[error.path[0]].get("id") if error.path else ""
            yield f"{file.name}: {place}: {error.json_path}: {error.message[:200]}"
            is_valid = False
    if not is_valid:
        return
    names = [facts["id"] for content in contents.values() for facts in content]
    yield from (f"{name}: two entries have this id" for name in {*names} if names.count(name) > 1)
    for name, facts in entries.items():
        for key in ("replaces", "reproduces"):
            if facts.get(key, name) not in entries:
                yield f"{name}: {key}: {facts[key]}: entry not found"
        for metric, figure in facts["metrics"].items():
            if len(figure.get("values", [])) not in (
                0,
                len(facts.get("seeds") or figure.get("values", [])),
            ):
                yield f"{name}.{metric}: expected one value per seed"
    replaced = {facts.get("replaces") for facts in entries.values()} - {None}
    for name, template in templates().items():
        for word in replaced & {*re.findall(r"\w+", template)}:
            yield f"{name}: {word} was replaced by another entry"
    for name, facts in committed():
        if entries.get(name) != facts:
            yield f"{name}: a committed entry was changed or removed; add an entry with replaces={name}"


def committed() -> Iterator[tuple[str, dict[str, Any]]]:
    """(id, entry) of every committed version of the register; none without git."""
    log = _git(
        "log", "--format=", "--raw", "--no-abbrev", "--no-renames", "--", "scripts/results/*.json"
    )
    versions = {line.split()[3] for line in log.splitlines()} - {"0" * 40}
    for version in versions:
        yield from ((facts["id"], facts) for facts in json.loads(_git("cat-file", "blob", version)))


def _git(*arguments: str) -> str:
    try:
        return subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def unregistered() -> Iterator[str]:
    """Figures of the READMEs with units of measurements, outside of the text from templates."""
    for page in pages():
        if page.name == "README.md" or page == ROOT / "conf/data.md":
            text = CODE.sub("", MARKED.sub("", page.read_text("utf-8")))
            for match in FIGURE.finditer(text):
                around = " ".join(text[max(0, match.start() - 60) : match.end() + 60].split())
                if not any(fact in around for fact in FACTS):
                    yield f"{page.relative_to(ROOT)}: {match[0]}: figure without an entry: … {around} …"


def dumps(entries: list[dict[str, Any]]) -> str:
    """JSON text of a file of the register, with a line for each key and each metric."""

    def line(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    texts = []
    for facts in entries:
        keys = {key: line(value) for key, value in facts.items()}
        metrics = [
            f"      {line(name)}: {line(metric)}" for name, metric in facts["metrics"].items()
        ]
        keys["metrics"] = "{\n" + ",\n".join(metrics) + "\n    }"
        texts.append(
            "  {\n" + ",\n".join(f"    {line(key)}: {text}" for key, text in keys.items()) + "\n  }"
        )
    return "[\n" + ",\n".join(texts) + "\n]\n"


def add(file: Path, topic: str) -> list[str]:
    """Appends the entries of a file to the register, and returns their ids.

    If an entry is wrong, the register stays as it was, and the program ends with the reasons.
    """
    target = REGISTER / f"{topic}.json"
    before = target.read_text("utf-8") if target.exists() else None
    new = json.loads(file.read_text("utf-8"))
    if faults := [f"entry {n}: has no id" for n, facts in enumerate(new, 1) if "id" not in facts]:
        sys.exit("\n".join([f"{file}: nothing was added, because:", *faults]))
    target.write_text(dumps(json.loads(before or "[]") + new), "utf-8")
    if faults := list(problems(register())):
        if before is None:
            target.unlink()
        else:
            target.write_text(before, "utf-8")
        sys.exit("\n".join([f"{file}: nothing was added, because:", *faults]))
    return [facts["id"] for facts in new]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, report problems")
    parser.add_argument("--add", type=Path, metavar="FILE", help="append the entries of FILE")
    parser.add_argument(
        "--to", default="quality", metavar="TOPIC", help="file of the register: TOPIC.json"
    )
    options = parser.parse_args()
    if options.check and options.add:
        parser.error("--check writes nothing; leave out --check or --add")
    if options.add:
        print("added:", ", ".join(add(options.add, options.to)))
    entries = register()
    faults = list(problems(entries))
    texts = {name: filled(body, entries) for name, body in templates().items()}
    contents = {page: written(page, texts) for page in pages()}
    contents[OVERVIEW] = overview(entries)
    for page, content in contents.items():
        current = page.read_text("utf-8") if page.exists() else ""
        if content != current and options.check:
            faults.append(
                f"{page.relative_to(ROOT)}: not up to date; run `python scripts/results.py`"
            )
        elif content != current:
            page.write_text(content, "utf-8")
            print(f"wrote {page.relative_to(ROOT)}")
    faults += unregistered()
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
