"""Two or more translations of one text side by side: how good each is, and in what they differ, as compare-mt showed (Neubig
et al. 2019)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nmt.analysis.significance import SignificanceResult, agreement, over_sentences
from nmt.analysis.tables import ReportTable
from nmt.analysis.word_statistics import (
    CASES,
    FREQUENCIES,
    Bucket,
    bare,
    case_class,
    frequency_class,
    length_buckets,
    ngrams,
    tokens,
    word_accuracy,
)
from nmt.metric import Metric
from nmt.tokenizer.words import words

LONGEST = 4
"""Words of an n-gram."""
SHOWN = 12
"""Rows of tables whose rows are words or n-grams."""
FEWEST = 3
"""Times that a word must be expected to have a row."""


@dataclass(frozen=True)
class Comparison:
    """A text, its reference, and what systems wrote; `counts`: how often words of the target language are in `counted`, the
    training text or else the reference; `links`: by sentence, the source word that each word of the reference is aligned
    with, if a model could align them."""

    source: Sequence[str] | None
    reference: Sequence[str]
    outputs: Mapping[str, Sequence[str]]
    metric: Metric
    counts: Mapping[str, int]
    counted: str
    links: Sequence[Sequence[str]] | None = None
    judged: dict[str, dict[str, SignificanceResult]] = field(default_factory=dict)

    def test(self, samples: int, trials: int) -> None:
        """Makes the tests of significance, of all systems against the first."""
        for name in ("bleu", "chrf"):
            self.judged[name] = over_sentences(
                self.outputs, self.reference, self.metric, name, samples=samples, trials=trials
            )

    def tables(self) -> list[ReportTable]:
        made = [
            self.scores(),
            self.faults(),
            self.by_frequency(),
            self.by_case(),
            self.by_source_word(),
        ]
        made += [*self.by_length(), self.by_sentence_score(), *self.by_ngram()]
        return [table for table in made if table is not None]

    def scores(self) -> ReportTable:
        """All metrics, and how sure they are."""
        rows, first = [], next(iter(self.outputs))
        wanted = sum(len(words(line)) for line in self.reference)
        for name, lines in self.outputs.items():
            found = self.metric.score(lines, self.reference, ter=True)
            length = sum(len(words(line)) for line in lines) / max(1, wanted)
            row = [name]
            for metric in ("bleu", "chrf"):
                judged = self.judged[metric][name]
                row += [f"{judged.score:.2f} ± {judged.confidence:.2f}"]
                chance = [p for p in (judged.bootstrap, judged.randomization) if p is not None]
                row += [" · ".join("< 0.001" if p < 0.001 else f"{p:.3f}" for p in chance) or "–"]
                people = agreement(metric, judged.score - self.judged[metric][first].score)
                row += [f"{people:.0f} %" if people is not None and name != first else "–"]
            rows.append(
                [*row, f"{found['ter'].score:.2f}", f"{found['exact'].score:.2f}", f"{length:.3f}"]
            )
        if len(rows) < 2:
            keep = [0, 1, 4, 7, 8, 9]
            head = ["system", "BLEU", "chrF", "TER", "exact", "length"]
            rows = [[row[i] for i in keep] for row in rows]
        else:
            head = [
                "system",
                "BLEU",
                "p",
                "people",
                "chrF",
                "p",
                "people",
                "TER",
                "exact",
                "length",
            ]
        signatures = "; ".join(f"{each[first].signature}" for each in self.judged.values())
        note = f"± is half of the 95 % interval over sentences. {signatures}. length: words for each word of the reference."
        if len(rows) > 1:
            note += (
                f" p: by chance as different from {first} (paired bootstrap · approximate randomisation, Holm's "
                "method). people: how often people agree with a difference of that size (Kocmi et al. 2024; 50 % is a coin)."
            )
        return ReportTable("Scores", head, rows, note=note)

    def faults(self) -> ReportTable:
        """Outputs that look wrong whatever the reference is."""
        kinds = {
            "empty": lambda i, out: not out.strip(),
            "copied from the source": lambda i, out: (
                self.source is not None and copied(tokens(self.source[i]), tokens(out))
            ),
            "repeating itself": lambda i, out: repeats(tokens(out)),
            "less than half as long": lambda i, out: (
                0 < len(words(out)) < len(words(self.reference[i])) / 2
            ),
            "more than twice as long": lambda i, out: (
                len(words(out)) > 2 * max(1, len(words(self.reference[i])))
            ),
            "nothing of the reference": lambda i, out: detached(
                tokens(out), tokens(self.reference[i])
            ),
        }
        rows = []
        for kind, has in kinds.items():
            counts = [
                sum(bool(has(i, line)) for i, line in enumerate(lines))
                for lines in self.outputs.values()
            ]
            if kind != "copied from the source" or self.source is not None:
                rows.append([kind, *map(str, counts)])
        note = (
            "Sentences. Copied: four of five words are the source's. Repeating: a word or phrase three times in a row. "
            "Nothing of the reference: no word of three letters or more is in it, which hallucinations have in common."
        )
        return ReportTable("What looks wrong", ["output is", *self.outputs], rows, note=note)

    def _word_table(self, title: str, of, order: Sequence[str], note: str) -> ReportTable:  # type: ignore[no-untyped-def]
        reference = [tokens(line) for line in self.reference]
        found = {
            n: word_accuracy([tokens(line) for line in o], reference, of)
            for n, o in self.outputs.items()
        }
        some = next(iter(found.values()))
        rows = []
        for name in order:
            if any(name in each and each[name].wanted for each in found.values()):
                wanted = some[name].wanted if name in some else 0
                each_f1 = [
                    f"{each[name].f1:.1f}" if name in each else "0.0" for each in found.values()
                ]
                rows.append([name, f"{wanted:,}", *each_f1])
        return ReportTable(title, ["words", "expected", *found], rows, note=note)

    def by_frequency(self) -> ReportTable:
        return self._word_table(
            "Words by frequency", frequency_class(self.counts), FREQUENCIES,
            f"F1 (per cent) of the words that are as often in {self.counted} as the row says.",
        )  # fmt: skip

    def by_case(self) -> ReportTable:
        return self._word_table("Words by case", case_class, CASES, "F1 (per cent).")

    def by_source_word(self) -> ReportTable | None:
        """Source words whose translations one system has right more often than another."""
        if self.links is None:
            return None
        wanted, right = dict[str, int](), {name: dict[str, int]() for name in self.outputs}
        for i, sources in enumerate(self.links):
            targets = words(self.reference[i])
            have = {
                name: [bare(word) for word in words(lines[i])]
                for name, lines in self.outputs.items()
            }
            for target, source in zip(map(bare, targets), map(bare, sources), strict=False):
                if not source or not target:
                    continue
                wanted[source] = wanted.get(source, 0) + 1
                for name, left in have.items():
                    if target in left:
                        left.remove(target)
                        right[name][source] = right[name].get(source, 0) + 1
        first, *others = self.outputs

        def gain(source: str) -> int:
            return max(
                (abs(right[first].get(source, 0) - right[o].get(source, 0)) for o in others),
                default=0,
            )

        common = [source for source, count in wanted.items() if count >= FEWEST]
        chosen = sorted(common, key=lambda source: (-gain(source), -wanted[source], source))[:SHOWN]
        rows = []
        for source in chosen:
            shares = [100 * found.get(source, 0) / wanted[source] for found in right.values()]
            rows.append([source, f"{wanted[source]:,}", *(f"{share:.0f}" for share in shares)])
        if not rows:
            return None
        return ReportTable(
            "Source words", ["source word", "expected", *self.outputs], rows,
            note="Words of the reference that are aligned with the source word by the attention of the first model, and the "
            "per cent of them that each system wrote. Those in which systems differ most.",
        )  # fmt: skip

    def by_length(self) -> list[ReportTable]:
        measured = self.source or self.reference
        name = "source" if self.source else "reference"
        rows = [
            [f"{b.name} words", str(len(b.places)), *self._bleu(b)]
            for b in length_buckets(measured, 5)
        ]
        by_size = ReportTable(
            "Sentences by length",
            [f"{name} has", "sentences", *self.outputs],
            rows,
            note="BLEU of each group.",
        )
        rows = []
        for low, high in itertools.pairwise((-(10**9), -5, -2, 0, 1, 3, 6, 10**9)):
            counts = []
            for lines in self.outputs.values():
                pairs = zip(lines, self.reference, strict=True)
                counts.append(
                    sum(
                        low <= len(words(line)) - len(words(wanted)) < high
                        for line, wanted in pairs
                    )
                )
            rows.append([_range(low, high), *map(str, counts)])
        differing = ReportTable(
            "Sentences by length difference",
            ["words more than the reference", *self.outputs],
            rows,
            note="Sentences.",
        )
        return [by_size, differing]

    def _bleu(self, bucket: Bucket) -> list[str]:
        wanted = [self.reference[i] for i in bucket.places]
        return [
            f"{self.metric.score([lines[i] for i in bucket.places], wanted)['bleu'].score:.1f}"
            for lines in self.outputs.values()
        ]

    def sentence_scores(self) -> dict[str, list[float]]:
        """chrF of every sentence."""
        from sacrebleu.metrics import CHRF

        chrf = CHRF(lowercase=self.metric.lowercase)
        return {
            name: [
                chrf.sentence_score(line, [wanted]).score
                for line, wanted in zip(lines, self.reference, strict=True)
            ]
            for name, lines in self.outputs.items()
        }

    def by_sentence_score(self) -> ReportTable:
        scores, rows = self.sentence_scores(), []
        for low in range(0, 100, 20):
            high = low + 20 if low < 80 else 101
            counts = [sum(low <= score < high for score in each) for each in scores.values()]
            rows.append([f"{low}–{min(high, 100)}", *map(str, counts)])
        return ReportTable("Sentences by score", ["chrF", *self.outputs], rows, note="Sentences.")

    def by_ngram(self) -> list[ReportTable]:
        """What the first system has right and another one misses, and the other way round."""
        first, *others = self.outputs
        found = []
        for other in others:
            gained = dict[str, int]()
            for wanted, one, two in zip(
                self.reference, self.outputs[first], self.outputs[other], strict=True
            ):
                expected, a, b = (ngrams(tokens(line), LONGEST) for line in (wanted, one, two))
                for gram, count in expected.items():
                    more = min(count, a.get(gram, 0)) - min(count, b.get(gram, 0))
                    if more:
                        text = " ".join(gram)
                        gained[text] = gained.get(text, 0) + more
            ordered = sorted(gained.items(), key=lambda item: (-item[1], item[0]))
            best, worst = (
                ordered[:SHOWN],
                [item for item in reversed(ordered) if item[1] < 0][:SHOWN],
            )
            rows = []
            nothing = ("", 0)
            for gain, loss in itertools.zip_longest(
                [g for g in best if g[1] > 0], worst, fillvalue=nothing
            ):
                rows.append([gain[0], str(gain[1] or ""), loss[0], str(-loss[1] or "")])
            if rows:
                head = [f"{first} writes", "times", f"{other} writes", "times "]
                note = f"N-grams of the reference of up to {LONGEST} words that one has right and the other misses, net."
                found.append(ReportTable(f"N-grams: {first} and {other}", head, rows, note=note))
        return found


def _range(low: int, high: int) -> str:
    if low < -1000:
        return f"{high - 1} or fewer".replace("-", "−")
    if high > 1000:
        return f"+{low} or more"
    shown = [f"{n:+d}".replace("-", "−") if n else "0" for n in (low, high - 1)]
    return shown[0] if shown[0] == shown[1] else f"{shown[0]} to {shown[1]}"


def copied(source: Sequence[str], output: Sequence[str]) -> bool:
    """Whether at least four of five words of an output are its source's, and there are three or more of them."""
    there = set(source)
    return len(output) >= 3 and sum(word in there for word in output) >= 0.8 * len(output)


def repeats(output: Sequence[str], times: int = 3) -> bool:
    """Whether a word, or a phrase of up to four words, comes three times in a row."""
    for size in range(1, LONGEST + 1):
        for start in range(len(output) - size * times + 1):
            phrase = output[start : start + size]
            if all(
                output[start + k * size : start + (k + 1) * size] == phrase for k in range(1, times)
            ):
                return True
    return False


def detached(output: Sequence[str], reference: Sequence[str]) -> bool:
    """Whether an output of three words or more shares no word of three letters or more with its reference."""
    there = {word.lower() for word in reference if len(word) > 2}
    return len(output) > 2 and bool(there) and not there & {word.lower() for word in output}
