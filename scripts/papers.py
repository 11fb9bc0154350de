"""Tables and figures of a paper beside the results of its sweep, sweep=bahdanau2015 or sweep=luong2015.

    python scripts/papers.py bahdanau2015 SWEEP_FOLDER [--page PAGE]
    python scripts/papers.py luong2015 SWEEP_FOLDER [--page PAGE]

The script uses the finished runs, so it may run while the sweep runs. It writes to SWEEP_FOLDER/paper: tables.md, length.png
(BLEU by source length), curves.png (validation perplexity by updates) and, for bahdanau2015, alignments.png. Intervals are
95 % intervals of the paired bootstrap over test sentences, with the mean over seeds as the score of a model.

--page: page whose tables are replaced; each is between the comments <!-- paper: NAME --> and <!-- /paper -->
"""

import argparse
import json
import math
import random
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from sacrebleu.metrics import BLEU

import nmt
from nmt import components
from nmt.analysis.collected_results import collect
from nmt.analysis.run_results import RunResult
from nmt.data.links import GoldLinks, Links
from nmt.data.word_aligner import WordAligner
from nmt.drawing.attention_map import write_map
from nmt.drawing.plots import row_of_axes, save
from nmt.foundation.interfaces import UNK
from nmt.inference.file_alignment import word_links
from nmt.inference.word_alignment import count_links

SAMPLES = 2000
"""Number of bootstrap samples."""
BORDERS = (8, 10, 12, 14, 16, 19, 22)
"""Smallest number of source words of each length group except the first."""
PER_SENTENCE = 10
"""Number of BLEU statistics of a sentence: two lengths, matching and all n-grams of four orders."""
COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#8f7a00",
    "#6b6b6b",
    "#000000",
    "#b8b8b8",
    "#a02040",
    "#40a020",
)


Sections = dict[str, list[str]]
"""Lines of Markdown by the name of the table."""
MARKED = re.compile(r"(<!-- paper: ([\w ]+) -->\n).*?(\n<!-- /paper -->)", re.DOTALL)


@dataclass
class Model:
    """Model of a paper.

    name: name in the tables
    settings: settings that select the model's runs
    paper: figures of the paper by column
    runs: finished runs, one per seed
    """

    name: str
    settings: Mapping[str, str]
    paper: Mapping[str, float | str] = field(default_factory=dict)
    runs: Sequence[RunResult] = ()


SEARCH = {"encoder": "bidirectional", "decoder": "bahdanau", "attention": "concat"}
ENCDEC = {"encoder": "unidirectional", "decoder": "fixed"}
TO_13 = {"filters.max_length": "13"}
TO_22 = {"filters.max_length": "22"}
USUAL = {"trainer.max_updates": "2200"}
LONGER = {"trainer.max_updates": "6600"}
BAHDANAU_MODELS = (
    Model("RNNencdec-13", ENCDEC | TO_13, {"name": "RNNencdec-30", "all": 13.93, "known": 24.19}),
    Model("RNNsearch-13", SEARCH | TO_13, {"name": "RNNsearch-30", "all": 21.50, "known": 31.44}),
    Model("RNNencdec-22", ENCDEC | TO_22, {"name": "RNNencdec-50", "all": 17.82, "known": 26.71}),
    Model("RNNsearch-22", SEARCH | TO_22 | USUAL, {"name": "RNNsearch-50", "all": 26.75, "known": 34.16}),
    Model("RNNsearch-22★", SEARCH | TO_22 | LONGER, {"name": "RNNsearch-50★", "all": 28.45, "known": 36.15}),
)  # fmt: skip
BAHDANAU_CLAIMS = (
    ("RNNsearch-13", "RNNencdec-13"), ("RNNsearch-22", "RNNencdec-22"), ("RNNsearch-13", "RNNencdec-22"),
    ("RNNencdec-22", "RNNencdec-13"), ("RNNsearch-22", "RNNsearch-13"), ("RNNsearch-22★", "RNNsearch-22"),
)  # fmt: skip
"""Pairs of models, of which the first has the higher BLEU in table 1 of the paper."""
LENGTH_CLAIMS = (
    ("RNNsearch-13", "RNNencdec-13"),
    ("RNNsearch-22", "RNNencdec-22"),
    ("RNNencdec-22", "RNNencdec-13"),
)
"""Pairs of models, of which the first loses less BLEU on long sentences in figure 2 of the paper."""
LIMIT = 13
"""Maximum number of words of a short sentence, the shorter of the two training limits."""

FEED = {"encoder": "reversed", "decoder": "luong_feed"}
GLOBAL = FEED | {"window": "global"}
LOCAL_M = FEED | {"window": "local_m"}
LOCAL_P = FEED | {"window": "local_p"}
NO_ATTENTION = {"encoder": "reversed", "decoder": "fixed"}
LUONG_MODELS = (
    Model("base", {"encoder": "unidirectional", "decoder": "fixed"}, {"ppl": 10.6, "bleu": 11.3}),
    Model("+ reversed source", NO_ATTENTION | {"model.dropout": "0"}, {"ppl": 9.9, "bleu": 12.6}),
    Model("+ dropout", NO_ATTENTION | {"model.dropout": "0.2"}, {"ppl": 8.1, "bleu": 14.0}),
    Model("+ global attention (location)", {"decoder": "luong", "attention": "location"}, {"ppl": 7.3, "bleu": 16.8}),
    Model("global, location", GLOBAL | {"attention": "location"}, {"ppl": 6.4, "bleu": 18.1, "copy": 19.3, "aer": 0.39}),
    Model("global, dot", GLOBAL | {"attention": "dot"}, {"ppl": 6.1, "bleu": 18.6, "copy": 20.5}),
    Model("global, general", GLOBAL | {"attention": "general"}, {"ppl": 6.1, "bleu": 17.3, "copy": 19.1}),
    Model("global, concat", GLOBAL | {"attention": "concat"}),
    Model("local-m, dot", LOCAL_M | {"attention": "dot"}, {"ppl": "> 7.0", "bleu": "x", "copy": "x"}),
    Model("local-m, general", LOCAL_M | {"attention": "general"}, {"ppl": 6.2, "bleu": 18.6, "copy": 20.4, "aer": 0.34}),
    Model("local-p, dot", LOCAL_P | {"attention": "dot"}, {"ppl": 6.6, "bleu": 18.0, "copy": 19.6}),
    Model("local-p, general", LOCAL_P | {"attention": "general"}, {"ppl": 5.9, "bleu": 19.0, "copy": 20.9, "aer": 0.36}),
)  # fmt: skip
LADDER = {
    "base": "base", "+ reversed source": "+ reversed source", "+ dropout": "+ dropout",
    "+ global attention (location)": "+ global attention (location)", "global, location": "+ input feeding",
    "local-p, general": "+ local-p attention (general)",
}  # fmt: skip
"""Models of table 1 of Luong et al. 2015 in order, with their names in the table."""
LUONG_CLAIMS = (
    ("global, dot", "global, location"), ("global, dot", "global, general"), ("global, location", "global, general"),
    ("local-m, general", "global, general"), ("local-p, general", "local-m, general"), ("local-p, general", "global, dot"),
    ("local-p, general", "global, location"), ("local-p, general", "local-p, dot"),
)  # fmt: skip
"""Pairs of models, of which the first has the higher BLEU in table 4, before unknown words are replaced."""


def statistics_of(lines: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Returns the BLEU statistics of each sentence, [sentences, PER_SENTENCE]."""
    scorer: Any = BLEU(force=True)
    return np.array(scorer._extract_corpus_statistics(list(lines), [list(references)]), float)


def bleu(sums: np.ndarray) -> np.ndarray:
    """Returns BLEU for sums of statistics over sentences, [..., PER_SENTENCE]."""
    output, reference = sums[..., 0], sums[..., 1]
    matches, total = np.maximum(sums[..., 2:6], 1e-9), np.maximum(sums[..., 6:], 1e-9)
    brevity = np.minimum(0.0, 1 - reference / np.maximum(output, 1e-9))
    return 100 * np.exp(brevity + np.log(matches / total).mean(-1))


@dataclass(frozen=True)
class Sampled:
    """Score of a model, with its bootstrap samples.

    values: score of each seed
    samples: [SAMPLES] mean over seeds for each bootstrap sample of the test set
    """

    values: Sequence[float]
    samples: np.ndarray

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    def text(self, digits: int = 2) -> str:
        half = (np.percentile(self.samples, 97.5) - np.percentile(self.samples, 2.5)) / 2
        spread = (
            f" (seeds: ± {statistics.stdev(self.values):.{digits}f})"
            if len(self.values) > 1
            else ""
        )
        return f"{self.mean:.{digits}f} ± {half:.{digits}f}{spread}"


@dataclass(frozen=True)
class Verdict:
    """Comparison of a difference with its sign in the paper.

    paper: difference in the paper; the expected sign
    ours: measured difference
    low, high: 95 % interval of the measured difference
    """

    paper: float
    ours: float
    low: float
    high: float

    @property
    def agrees(self) -> bool:
        return self.ours * self.paper > 0

    @property
    def is_significant(self) -> bool:
        return self.low > 0 or self.high < 0

    @property
    def text(self) -> str:
        direction = "agrees" if self.agrees else "disagrees"
        return f"{direction}, {'significant' if self.is_significant else 'not significant'}"

    @property
    def cells(self) -> list[str]:
        return [f"{self.paper:+.1f}", f"{self.ours:+.2f}", f"{self.low:+.2f} to {self.high:+.2f}"]

    def row(self, claim: str, seeds: int, digits: int = 2) -> str:
        interval = f"{self.low:+.{digits}f} to {self.high:+.{digits}f}"
        return row(
            claim,
            f"{self.paper:+.{digits}f}",
            f"{self.ours:+.{digits}f}",
            interval,
            seeds,
            self.text,
        )


class Results:
    """Finished runs of a sweep on one test set, with scores and outputs of the models.

    folder: folder of the sweep
    models: models of the paper
    """

    def __init__(self, folder: Path, models: Sequence[Model]) -> None:
        self.out = folder / "paper"
        self.out.mkdir(exist_ok=True)
        finished = collect([str(folder)]).finished
        for model in models:
            chosen = [
                r
                for r in finished
                if all(r.settings.get(k) == v for k, v in model.settings.items())
            ]
            model.runs = sorted(chosen, key=lambda run: run.seed)
        self.models = {model.name: model for model in models if model.runs}
        self.waiting = [model.name for model in models if not model.runs]
        if not self.models:
            raise SystemExit(
                f"{folder}: no finished run found; wait for the first run of the sweep"
            )
        first = next(iter(self.models.values())).runs[0]
        self.source = first.lines(".source") or []
        self.references = first.lines(".reference") or []
        weights = np.random.default_rng(1).multinomial(
            len(self.source), np.full(len(self.source), 1 / len(self.source)), SAMPLES
        )
        self.weights = weights.astype(float)  # [SAMPLES, sentences]

    def score(
        self, outputs: Sequence[Sequence[str]], chosen: Iterable[int] | None = None
    ) -> Sampled:
        """Returns BLEU of the outputs of each seed, over all test sentences or the chosen ones."""
        kept = np.zeros((len(self.source), 1))
        kept[range(len(self.source)) if chosen is None else list(chosen)] = 1
        of_seeds = [statistics_of(lines, self.references) * kept for lines in outputs]
        values = [float(bleu(sums.sum(0))) for sums in of_seeds]
        return Sampled(values, np.mean([bleu(self.weights @ sums) for sums in of_seeds], 0))

    def outputs(self, name: str) -> list[list[str]]:
        return [run.lines() or [] for run in self.models[name].runs]

    def copied(self, name: str) -> list[list[str]]:
        """Returns translations in which unknown words are replaced by the source word with the most attention."""
        outputs = []
        for run in self.models[name].runs:
            file = self.out / f"{run.folder.name}.copy.txt"
            if not file.is_file():
                translator: Any = nmt.load(run.folder, "cpu", unknown="copy")
                file.write_text("\n".join(translator.translate(self.source)), encoding="utf-8")
            outputs.append(file.read_text(encoding="utf-8").split("\n"))
        return outputs

    def difference(self, better: Sampled, worse: Sampled, paper: float) -> Verdict:
        samples = better.samples - worse.samples
        low, high = np.percentile(samples, [2.5, 97.5])
        return Verdict(paper, better.mean - worse.mean, float(low), float(high))

    def seeds(self, *names: str) -> int:
        return min(len(self.models[name].runs) for name in names)

    @cached_property
    def known(self) -> list[int]:
        """Indices of the test sentences without unknown words in source and reference."""
        kept = set(range(len(self.source)))
        for model in self.models.values():
            tokenizer = nmt.load(model.runs[0].folder, "cpu").tokenizer
            sides = tokenizer.encode_source(self.source), tokenizer.encode_target(self.references)
            kept -= {i for side in sides for i, ids in enumerate(side) if UNK in ids}
        return sorted(kept)

    def draw(self) -> None:
        """Draws BLEU by source length and validation perplexity by updates."""
        figure, [ax] = row_of_axes(1, width=7.5, height=4.2)
        words = np.array([len(line.split()) for line in self.source])
        group_of = np.digitize(words, BORDERS)
        groups = [np.flatnonzero(group_of == group) for group in np.unique(group_of)]
        middles = [float(words[group].mean()) for group in groups]
        for name, colour in zip(self.models, COLOURS, strict=False):
            scores = [self.score(self.outputs(name), group).mean for group in groups]
            ax.plot(middles, scores, "o-", ms=3, lw=1.4, color=colour, label=name)
        ax.set(xlabel="words of the source sentence", ylabel="test BLEU", ylim=(0, None))
        ax.legend(fontsize=7, ncols=2)
        save(figure, self.out / "length.png")
        figure, [ax] = row_of_axes(1, width=7.5, height=4.2)
        for (name, model), colour in zip(self.models.items(), COLOURS, strict=False):
            points = [validations(run) for run in model.runs]
            updates = sorted(set.intersection(*(set(of_run) for of_run in points)))
            means = [statistics.fmean(of_run[update] for of_run in points) for update in updates]
            ax.plot(updates, means, "o-", ms=3, lw=1.4, color=colour, label=name)
        ax.set(xlabel="updates", ylabel="validation perplexity", yscale="log")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter("{x:g}")
        ax.legend(fontsize=7, ncols=2)
        save(figure, self.out / "curves.png")


def validations(run: RunResult) -> dict[int, float]:
    """Returns the perplexity of each validation by update."""
    entries = [entry for entry in run.curve if entry.get("kind") == "validation"]
    return {int(entry["update"]): math.exp(entry["loss"]) for entry in entries}


def perplexity(model: Model) -> float:
    """Returns the mean over seeds of the lowest validation perplexity."""
    return statistics.fmean(min(validations(run).values()) for run in model.runs)


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def head(*names: str) -> list[str]:
    """Returns the first two lines of a table, with the first column aligned to the left."""
    return [row(*names), f"|---|{'---:|' * (len(names) - 1)}"]


CLAIMS = head("claim of the paper", "paper", "ours", "95 % interval", "seeds", "verdict")


def quoted_difference(results: Results, better: str, worse: str, column: str) -> float:
    """Returns the difference of two models in the paper."""
    return float(results.models[better].paper[column]) - float(results.models[worse].paper[column])


def bahdanau(results: Results) -> Sections:
    """Returns the tables for Bahdanau et al. 2015, and draws the alignments of figure 3."""
    every = {name: results.score(results.outputs(name)) for name in results.models}
    known = {name: results.score(results.outputs(name), results.known) for name in results.models}
    columns = "paper: all", "ours: all", "paper: no UNK", "ours: no UNK", "perplexity", "seeds"
    lines = head("model", "model of the paper", *columns)
    for name, model in results.models.items():
        paper = model.paper
        cells = [
            f"{paper['all']:.2f}",
            every[name].text(),
            f"{paper['known']:.2f}",
            known[name].text(),
        ]
        lines.append(row(name, paper["name"], *cells, f"{perplexity(model):.1f}", len(model.runs)))
    known_count = f"{len(results.known)} of {len(results.source):,} test sentences"
    lines += [
        "",
        f"The columns *no UNK* show the results on the {known_count} without unknown words.",
    ]
    claims = [*CLAIMS]
    verdicts = []
    for better, worse in BAHDANAU_CLAIMS:
        if not {better, worse} <= results.models.keys():
            continue
        for column, title, scores in (("all", "all", every), ("known", "no UNK", known)):
            expected = quoted_difference(results, better, worse, column)
            verdicts.append(results.difference(scores[better], scores[worse], expected))
            claim = f"{better} > {worse} ({title})"
            claims.append(verdicts[-1].row(claim, results.seeds(better, worse)))
    best = results.models.get("RNNsearch-22★") or results.models.get("RNNsearch-22")
    if best:
        draw_alignments(results, best)
    return {
        "table 1": lines,
        "claims of table 1": [
            *claims,
            "",
            *counted(verdicts, "claims of Bahdanau et al. 2015 on BLEU"),
        ],
        **by_length(results),
    }


def by_length(results: Results) -> Sections:
    """Returns tables of BLEU on short and long sentences, for figure 2 of Bahdanau et al. 2015."""
    words = [len(line.split()) for line in results.source]
    short = [i for i, count in enumerate(words) if count <= LIMIT]
    long = [i for i, count in enumerate(words) if count > LIMIT]
    columns = f"{len(short)} sentences of at most {LIMIT} words", f"{len(long)} longer sentences"
    lines = head("model", *columns, "change", "95 % interval", "BLEU kept", "95 % interval")
    changes = {}
    for name in results.models:
        of_long, of_short = (results.score(results.outputs(name), part) for part in (long, short))
        change = results.difference(of_long, of_short, -1.0)
        changes[name] = Sampled([change.ours], of_long.samples - of_short.samples)
        kept = 100 * np.percentile(of_long.samples / of_short.samples, [2.5, 97.5])
        cells = [f"{of_short.mean:.2f}", f"{of_long.mean:.2f}", f"{change.ours:+.2f}"]
        cells += [
            f"{change.low:+.2f} to {change.high:+.2f}",
            f"{100 * of_long.mean / of_short.mean:.0f} %",
        ]
        lines.append(row(name, *cells, f"{kept[0]:.0f} % to {kept[1]:.0f} %"))
    claims = [*CLAIMS]
    verdicts = []
    for better, worse in LENGTH_CLAIMS:
        if {better, worse} <= results.models.keys():
            verdict = results.difference(changes[better], changes[worse], 1.0)
            verdicts.append(verdict)
            interval = f"{verdict.low:+.2f} to {verdict.high:+.2f}"
            claim = f"{better} loses less on longer sentences than {worse}"
            seeds = results.seeds(better, worse)
            claims.append(row(claim, "> 0", f"{verdict.ours:+.2f}", interval, seeds, verdict.text))
    claims += ["", *counted(verdicts, "claims of Bahdanau et al. 2015 on sentence length")]
    return {"lengths": lines, "claims of the lengths": claims}


def draw_alignments(results: Results, model: Model) -> None:
    """Draws the attention for four random sentences of 8 to 14 words without unknown words."""
    length = {i: len(results.source[i].split()) for i in results.known}
    suitable = [i for i in results.known if 8 <= length[i] <= 14]
    drawn = random.Random(1).sample(suitable, min(4, len(suitable)))
    translator: Any = nmt.load(model.runs[0].folder, "cpu")
    maps = [translator.attention(results.source[i], units="word") for i in drawn]
    write_map(maps, results.out / "alignments.png")


def counted(verdicts: Sequence[Verdict], claims: str) -> list[str]:
    """Returns a sentence with the numbers of confirmed and contradicted claims; [] without claims."""
    agreeing = [verdict for verdict in verdicts if verdict.agrees]
    opposed = [verdict for verdict in verdicts if not verdict.agrees]
    if not verdicts:
        return []
    if not agreeing or not opposed:
        verb = "agree" if agreeing else "disagree"
        sentence = f"All {len(verdicts)} {claims} {verb} in direction with the results"
        return [f"{sentence} ({significance(verdicts)})."]
    agree = "agrees" if len(agreeing) == 1 else "agree"
    disagree = "disagrees" if len(opposed) == 1 else "disagree"
    return [
        f"Of the {len(verdicts)} {claims}, {len(agreeing)} {agree} in direction with the results "
        f"({significance(agreeing)}), and {len(opposed)} {disagree} ({significance(opposed)})."
    ]


def significance(verdicts: Sequence[Verdict]) -> str:
    """Returns how many verdicts are significant, such as `2 significantly`."""
    count = sum(verdict.is_significant for verdict in verdicts)
    if len(verdicts) == 1:
        return "significantly" if count else "not significantly"
    if count == len(verdicts):
        return "all significantly"
    return f"{count or 'none'} significantly"


def luong(results: Results) -> Sections:
    """Returns the tables for Luong et al. 2015."""
    scores = {name: results.score(results.outputs(name)) for name in results.models}
    with_attention = [name for name in results.models if name not in list(LADDER)[:3]]
    copies = {name: results.score(results.copied(name)) for name in with_attention}
    columns = (
        "ours",
        "paper: BLEU",
        "ours",
        "paper: gain",
        "gain",
        "95 % interval",
        "seeds",
        "verdict",
    )
    lines = head("model", "paper: perplexity", *columns)
    verdicts: list[Verdict] = []
    rungs = [(name, title, scores.get(name), "bleu") for name, title in LADDER.items()]
    rungs.append((rungs[-1][0], "+ unknown words replaced", copies.get(rungs[-1][0]), "copy"))
    before = None
    for name, title, score, column in rungs:
        if score is None:
            lines.append(row(title, "not finished", *[""] * 8))
            before = None
            continue
        model = results.models[name]
        bleu_of_paper = float(model.paper[column])
        cells = [model.paper["ppl"], f"{perplexity(model):.1f}", bleu_of_paper, score.text()]
        if before is None:
            lines.append(row(title, *cells, "", "", "", len(model.runs), ""))
        else:
            before_name, before_score, before_paper = before
            verdicts.append(results.difference(score, before_score, bleu_of_paper - before_paper))
            seeds = results.seeds(name, before_name)
            lines.append(row(title, *cells, *verdicts[-1].cells, seeds, verdicts[-1].text))
        before = name, score, bleu_of_paper
    tables = {"table 1": [*lines, "", *counted(verdicts, "claims of Luong et al. 2015 in table 1")]}
    return {**tables, **table_4(results, scores, copies), **table_6(results)}


def table_4(
    results: Results, scores: Mapping[str, Sampled], copies: Mapping[str, Sampled]
) -> Sections:
    columns = (
        "ours",
        "paper: BLEU",
        "ours",
        "paper: replaced",
        "ours",
        "gain of the replacement",
        "seeds",
    )
    lines = head("attention", "paper: perplexity", *columns)
    verdicts = []
    replacements = []
    for name in (model.name for model in LUONG_MODELS[4:]):
        if name not in results.models:
            lines.append(row(name, "not finished", *[""] * 7))
            continue
        model = results.models[name]
        ppl, before, after = (model.paper.get(key, "–") for key in ("ppl", "bleu", "copy"))
        change = results.difference(copies[name], scores[name], 1.0)
        replacements += [change] if isinstance(after, float) else []
        gain = f"{change.ours:+.2f} ({change.low:+.2f} to {change.high:+.2f})"
        cells = [before, scores[name].text(), after, copies[name].text(), gain, len(model.runs)]
        lines.append(row(name, ppl, f"{perplexity(model):.1f}", *cells))
    claims = [*CLAIMS]
    for better, worse in LUONG_CLAIMS:
        if {better, worse} <= results.models.keys():
            expected = quoted_difference(results, better, worse, "bleu")
            verdicts.append(results.difference(scores[better], scores[worse], expected))
            claims.append(verdicts[-1].row(f"{better} > {worse}", results.seeds(better, worse)))
    claims += ["", *counted(verdicts, "claims of Luong et al. 2015 in table 4")]
    gains = "gains of Luong et al. 2015 from the replacement of unknown words"
    claims += ["", *counted(replacements, gains)]
    return {"table 4": lines, "claims of table 4": claims}


# Table 6: alignment error rate


def reference_links(results: Results) -> list[GoldLinks]:
    """Returns the links of both directions of the hidden Markov model: sure in both, possible in one."""
    file = results.out / "hmm.json"
    if not file.is_file():
        folder = next(iter(results.models.values())).runs[0].folder
        config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        train = components.make(config, "data").load().train
        texts = [[*results.source, *train.source], [*results.references, *train.target]]
        source, target = ([line.lower().split() for line in text] for text in texts)
        count = len(results.source)
        forward = WordAligner(source, target, method="hmm").weights()[:count]  # [T, S] each
        backward = WordAligner(target, source, method="hmm").weights()[:count]  # [S, T] each
        links = [
            [
                [(int(s), t) for t, s in enumerate(into.argmax(1))],
                [(s, int(t)) for s, t in enumerate(back.argmax(1))],
            ]
            for into, back in zip(forward, backward, strict=True)
        ]
        file.write_text(json.dumps(links))
    pairs = [map(links_of, pair) for pair in json.loads(file.read_text())]
    return [GoldLinks(into & back, into | back) for into, back in pairs]


def links_of(rows: Sequence[Sequence[int]]) -> Links:
    return frozenset((s, t) for s, t in rows)


def table_6(results: Results) -> Sections:
    """Returns the alignment error rates of the attention in forced decoding, with a table of claims."""
    gold = reference_links(results)
    rates = {}
    for name, model in results.models.items():
        if model.settings.get("decoder") != "luong_feed":
            continue
        counts = [error_counts(results, run, gold) for run in model.runs]
        values = [float(error_rate(of_seed.sum(0))) for of_seed in counts]
        samples = np.mean([error_rate(results.weights @ of_seed) for of_seed in counts], 0)
        rates[name] = Sampled(values, samples)
    lines = head("attention", "paper: AER", "ours: AER", "seeds")
    for name, rate in rates.items():
        paper = results.models[name].paper.get("aer", "–")
        lines.append(row(name, paper, rate.text(3), len(rate.values)))
    claims = [*CLAIMS]
    verdicts = []
    for worse, better, expected in (
        ("global, location", "local-p, general", 0.03),
        ("global, location", "local-m, general", 0.05),
        ("local-p, general", "local-m, general", 0.02),
    ):
        if {worse, better} <= rates.keys():
            verdicts.append(results.difference(rates[worse], rates[better], expected))
            claims.append(
                verdicts[-1].row(f"AER: {worse} > {better}", results.seeds(worse, better), 3)
            )
    claims += ["", *counted(verdicts, "claims of Luong et al. 2015 on alignment error rates")]
    return {"table 6": lines, "claims of table 6": claims}


def error_counts(results: Results, run: RunResult, gold: Sequence[GoldLinks]) -> np.ndarray:
    """Returns the counts of `count_links` for each sentence, [sentences, 4]."""
    file = results.out / f"{run.folder.name}.links.json"
    if not file.is_file():
        translator: Any = nmt.load(run.folder, "cpu")
        maps = translator.forced_maps(results.source, results.references, "space")
        file.write_text(json.dumps([sorted(word_links(weights)) for weights in maps]))
    links = map(links_of, json.loads(file.read_text()))
    return np.array([count_links([a], [g]) for a, g in zip(links, gold, strict=True)], float)


def error_rate(sums: np.ndarray) -> np.ndarray:
    """Returns the alignment error rate, 0 to 1, for sums of counts, [..., 4]."""
    return 1 - (sums[..., 0] + sums[..., 1]) / (sums[..., 2] + sums[..., 3])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paper", choices=("bahdanau2015", "luong2015"))
    parser.add_argument("folder", type=Path, help="folder of the sweep")
    parser.add_argument("--page", type=Path, help="page whose tables are replaced")
    arguments = parser.parse_args()
    is_bahdanau = arguments.paper == "bahdanau2015"
    results = Results(arguments.folder, BAHDANAU_MODELS if is_bahdanau else LUONG_MODELS)
    sections = bahdanau(results) if is_bahdanau else luong(results)
    if results.waiting:
        sections["waiting"] = [f"Models without a finished run: {', '.join(results.waiting)}."]
    results.draw()
    minus = re.compile(r"(?<=[ (])-(?=\d)")
    texts = {name: minus.sub("−", "\n".join(lines)) for name, lines in sections.items()}
    tables = "\n\n".join(texts.values())
    (results.out / "tables.md").write_text(f"{tables}\n", encoding="utf-8")
    print(tables)
    if arguments.page:
        page = arguments.page.read_text(encoding="utf-8")
        page = MARKED.sub(lambda match: match[1] + texts[match[2]] + match[3], page)
        arguments.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
