"""Metrics of translation quality on detokenised text, computed by sacreBLEU (Post 2018)."""

import itertools
import logging
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, Literal

from nmt.foundation.errors import UserError, first_line
from nmt.foundation.ranges import Depth

log = logging.getLogger(__name__)
MetricName = Literal["bleu", "chrf", "ter", "exact", "loss"]
TokenizeName = Literal[
    "auto", "13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none", "flores101", "flores200"
]
TOKENIZERS = {
    "zh": "zh zho chi cmn yue wuu hak nan gan hsn hans hant hani",
    "ja-mecab": "ja jpn jpan hira kana",
    "ko-mecab": "ko kor kore hang",
    "char": "th tha thai lo lao laoo km khm khmr my mya bur mymr bo bod tib tibt dz dzo",
}
"""Maps each sacreBLEU tokenizer to codes of languages and scripts without spaces between words.

Languages have codes of ISO 639-1, ISO 639-2 and ISO 639-3, scripts have codes of ISO 15924.
"""
WITHOUT_SPACES = {code: name for name, codes in TOKENIZERS.items() for code in codes.split()}
"""Maps the code of each language written without spaces to its sacreBLEU tokenizer."""
SCRIPTS = {
    "ja-mecab": re.compile(r"[\u3040-\u30ff]"),
    "zh": re.compile(r"[\u3400-\u9fff\U00020000-\U0003ffff]"),
    "char": re.compile(r"[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff]"),
}
"""Maps sacreBLEU tokenizers to patterns of letters in scripts without spaces.

Kana come first, because Japanese text also contains Chinese characters.
"""
SCRIPT_SHARE = 0.1
"""Minimum fraction of letters of a script without spaces. A text counts as written in the script if
at least this fraction of its letters belongs to the script."""
SCRIPT_LINES = 1000
"""Number of lines used to detect the script of a text."""
NEEDS = {"ja-mecab": ("MeCab", "sacrebleu[ja]"), "ko-mecab": ("mecab_ko", "sacrebleu[ko]")}
"""Python module and pip requirement of each sacreBLEU tokenizer that needs another package."""
TITLES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "exact": "exact match"}
"""Spelling of the names of metrics in publications, such as chrF."""
LOWER_IS_BETTER = ("ter", "loss")
"""Names of the metrics for which lower values are better."""


def score_text(name: str, score: float) -> str:
    """Returns a score as text for logs, e.g. `bleu 20.10` or `exact match 1.00 %`.

    name: name of the metric
    score: score in this metric
    """
    return f"exact match {score:.2f} %" if name == "exact" else f"{name} {score:.2f}"


@dataclass(frozen=True)
class Result:
    """Score of a set of translations in one metric.

    score: value in percent; TER may exceed 100
    signature: sacreBLEU's signature, which describes the computation
    """

    score: float
    signature: str


@dataclass(frozen=True, kw_only=True)
class Metric:
    """Metric of a training run, with its options.

    name: metric for early stopping, and for selecting the best checkpoint and the best run of a
        sweep; BLEU, chrF and exact match are always reported
    tokenize: sacreBLEU tokenizer for BLEU; `auto` selects it by the target language
    lowercase: whether to ignore case
    char_order: maximum order of chrF's n-grams, in characters
    """

    name: MetricName = "bleu"
    tokenize: TokenizeName = "auto"
    lowercase: bool = False
    char_order: Depth = 6
    _given_warnings: set[str] = field(default_factory=set, init=False, compare=False, repr=False)

    def of(self, language: str, references: Sequence[str] = ()) -> "Metric":
        """Returns the metric for a target language, with `auto` replaced by a sacreBLEU tokenizer.

        If the tokenizer's package is not installed, `auto` becomes `char`, with a warning.

        language: language code such as zh, zho or zho_Hans; other names are ignored
        references: text in the language; its script selects the tokenizer if the code does not

        Raises UserError if an explicitly chosen tokenizer cannot be used.
        """
        tokenize = self.tokenize
        if tokenize == "auto":
            subtags = re.split(r"[-_]", language.lower())
            known = [WITHOUT_SPACES[tag] for tag in subtags if tag in WITHOUT_SPACES]
            detected: Any = [*known, script_tokenizer(references) or "13a"]
            tokenize = detected[0]
            if tokenize in NEEDS and find_spec(NEEDS[tokenize][0]) is None:
                log.warning(
                    "metric.tokenize=auto: using char, because %s is not installed",
                    NEEDS[tokenize][1],
                )
                tokenize = "char"
        metric = replace(self, tokenize=tokenize)
        one = ["a a a a"]  # four words, as for BLEU
        try:
            Metric.score(metric, one, one)
        except Exception as error:  # a missing package raises many types of errors
            how = f": pip install '{NEEDS[tokenize][1]}'" if tokenize in NEEDS else ""
            message = first_line(error)
            raise UserError(
                f"metric.tokenize={tokenize}: cannot be used ({message}){how}"
            ) from error
        # All arguments, which a plugin's method must accept.
        metric._check(metric.score(one, one, ter=False, others=[one], orders=False))
        return metric

    def _check(self, results: dict[str, Result]) -> None:
        """Checks the class of a plugin and the result of its method `score`.

        Raises UserError if the result lacks the selected metric, or contains a value that is not a
        `Result`, or if the class is not a dataclass, so that its field `name` has no effect.
        """
        name = type(self).__name__
        members = vars(type(self))
        if "name" in members and "__dataclass_fields__" not in members:
            raise UserError(
                f"metric={name}: the field `name` has no effect, because the class is not a "
                "dataclass; write the decorator @dataclass of nmt.metric.Metric above the class"
            )
        for key, result in results.items():
            if not isinstance(result, Result):
                problem = f"{key} is {type(result).__name__}, must be nmt.metric.Result"
                raise UserError(f"metric={name}: `score` returned an invalid value; {problem}")
        if self.name not in results and self.name != "loss":
            raise UserError(
                f"metric={name}: the result of `score` must contain the key {self.name}, the "
                f"name of the metric (returned: {', '.join(results)})"
            )
        added = results.keys() - {"bleu", "chrf", "ter", "exact"}
        if added and self.name in TITLES:
            log.warning(
                "metric=%s: the class selects the best checkpoint by %s, the default of its field "
                '`name`; to select by %s, declare `name: Literal["%s"] = "%s"` in the class',
                name,
                self.name,
                *[min(added)] * 3,
            )

    @property
    def options(self) -> dict[str, Any]:
        """Options for comparing texts, as keyword arguments of the function `similarity`."""
        return {
            "tokenize": self.tokenize,
            "lowercase": self.lowercase,
            "char_order": self.char_order,
        }

    @property
    def lower_is_better(self) -> bool:
        """Whether a lower score of the selected metric is better."""
        return self.better(0.0, 1.0)

    def better(self, new: float, old: float | None) -> bool:
        """Returns whether a new score is better than an old score; True without an old score."""
        return old is None or (new < old if self.name in LOWER_IS_BETTER else new > old)

    def sacrebleu_metric(self, name: str, *, force: bool = False, **bleu_options: Any) -> Any:
        """Returns sacreBLEU's metric BLEU or chrF with the options of this metric. The tokenizer
        `auto`, if not replaced by `of`, is sacreBLEU's default, 13a.

        name: `bleu` or `chrf`
        force: whether to suppress the warning about tokenised text, which tokenize=none expects
        bleu_options: further options of BLEU, which chrF ignores
        """
        from sacrebleu.metrics import BLEU, CHRF

        if name == "chrf":
            return CHRF(char_order=self.char_order, lowercase=self.lowercase)
        return BLEU(
            tokenize="13a" if self.tokenize == "auto" else self.tokenize,
            lowercase=self.lowercase,
            force=force or self.tokenize == "none",
            **bleu_options,
        )

    def score(
        self,
        hypotheses: Sequence[str],
        references: Sequence[str],
        ter: bool = False,
        others: Sequence[Sequence[str]] = (),
        orders: bool = False,
    ) -> dict[str, Result]:
        """Returns the scores of translations by metric name: bleu, chrf, exact, optionally more.

        hypotheses: translations
        references: reference of each line; an empty line means that the reference is missing
        ter: whether to compute TER too
        others: further sets of references
        orders: whether to compute bleu1, bleu2 and bleu3 too, for image captions

        Logs warnings for missing references, and for references that do not fit BLEU.
        """
        from sacrebleu.metrics import TER

        with_ter = ter or self.name == "ter"
        splits = self.tokenize in ("zh", "ja-mecab", "char")  # Chinese and Japanese text, in TER
        metrics = {
            "bleu": self.sacrebleu_metric("bleu"),
            "chrf": self.sacrebleu_metric("chrf"),
            **({"ter": TER(normalized=splits, asian_support=splits)} if with_ter else {}),
        }
        for order in (1, 2, 3) if orders else ():
            metrics[f"bleu{order}"] = self.sacrebleu_metric("bleu", max_ngram_order=order)
        sets = reference_sets([references, *others])
        self._warn_of_references(hypotheses, references, sets)
        streams = reference_streams(sets)
        results = {}
        for name, metric in metrics.items():
            # sacreBLEU's TER separates only Chinese and Japanese characters.
            is_spaced = name == "ter" and self.tokenize == "char"
            spaced = _with_spaces if is_spaced else list
            score = metric.corpus_score(spaced(hypotheses), [spaced(stream) for stream in streams])
            suffix = "|characters" if is_spaced else ""
            results[name] = Result(score.score, f"{metric.get_signature()}{suffix}")
            if name == "bleu" and not score.totals[-1]:
                self._warn_of_short_references(metric, sets)
        fold = str.lower if self.lowercase else str
        same = sum(
            fold(hypothesis) in {fold(line) for line in lines or [""]}
            for hypothesis, lines in zip(hypotheses, sets, strict=True)
        )
        case = "case-insensitive, whitespace" if self.lowercase else "case- and whitespace"
        results["exact"] = Result(100 * same / max(1, len(references)), f"{case}-sensitive")
        return results

    def bleu_of_group(self, hypotheses: Sequence[str], *references: Sequence[str]) -> float:
        """Returns corpus BLEU of some translations of a set, without warnings, which concern the
        whole set.

        hypotheses: translations
        references: sets of references, as for `score`
        """
        streams = reference_streams(reference_sets(references))
        bleu = self.sacrebleu_metric("bleu", force=True)
        return float(bleu.corpus_score(list(hypotheses), streams).score)

    def _warn_of_references(
        self, hypotheses: Sequence[str], first: Sequence[str], sets: Sequence[Sequence[str]]
    ) -> None:
        """Logs warnings for missing references, for references with another Unicode form than the
        translations, and for a tokenizer that does not match the script.

        hypotheses: translations
        first: first reference of each line
        sets: all references of each line
        """
        missing = sum(
            bool(hypothesis) and not lines
            for hypothesis, lines in zip(hypotheses, sets, strict=True)
        )
        if missing:
            self._warn_once(
                f"reference: {missing:,} of {len(sets):,} lines have no reference translation: "
                "BLEU, TER and exact match count their translations as wrong, and chrF leaves them "
                "out; complete the reference file"
            )
        form, reference_form = _unicode_form(hypotheses), _unicode_form(first)
        if form and reference_form and form != reference_form:
            self._warn_once(
                f"the translations have the Unicode form {form} and the references the form "
                f"{reference_form}, so equal words count as different; convert one of them"
            )
        fitting = script_tokenizer(first) if self.tokenize in ("auto", "13a", "intl") else None
        if fitting is not None:
            self._warn_once(
                f"metric.tokenize={self.tokenize}: the references are written without spaces, so "
                f"BLEU counts whole lines as words; set metric.tokenize={fitting}"
            )

    def _warn_of_short_references(self, bleu: Any, sets: Sequence[Sequence[str]]) -> None:
        """Logs a warning if no reference has the four words that BLEU's longest n-grams need.

        bleu: sacreBLEU's metric
        sets: all references of each line
        """
        counts = [len(bleu.tokenizer(line).split()) for lines in sets for line in lines]
        if counts and max(counts) < 4:
            self._warn_once(
                "no reference has four words, so BLEU is 0; read the chrF score, and in training set "
                "metric.name=chrf"
            )

    def _warn_once(self, message: str) -> None:
        # Warn only once, because the metric scores every validation.
        if message not in self._given_warnings:
            self._given_warnings.add(message)
            log.warning("%s", message)


def _with_spaces(lines: Sequence[str | None]) -> list[str | None]:
    """Returns lines with spaces between their characters; None, a missing line, stays None."""
    return [None if line is None else " ".join(line) for line in lines]


def _unicode_form(lines: Sequence[str]) -> str | None:
    """Returns the Unicode normalisation form of the letters with diacritics: NFC (composed letters)
    or NFD (decomposed letters); None if less than a tenth of the lines has such letters."""
    composed = sum(not unicodedata.is_normalized("NFD", line) for line in lines)
    decomposed = sum(not unicodedata.is_normalized("NFC", line) for line in lines)
    if 10 * max(composed, decomposed) <= len(lines):
        return None
    return "NFC" if composed > decomposed else "NFD"


def reference_sets(references: Sequence[Sequence[str]]) -> list[list[str]]:
    """Returns the references of each sentence, without missing ones.

    references: one or more references for all sentences; a missing reference is empty, or has only
        spaces
    """
    return [[line for line in lines if line.strip()] for lines in zip(*references, strict=True)]


def reference_streams(sets: Sequence[Sequence[str]]) -> list[Any]:
    """Returns references in the form that sacreBLEU expects: a first list with a string for each
    sentence, and further lists with None for a missing reference.

    sets: references of each sentence, without missing ones
    """
    first = [lines[0] if lines else "" for lines in sets]
    return [first, *list(itertools.zip_longest(*sets))[1:]]


def script_tokenizer(lines: Sequence[str]) -> str | None:
    """Returns sacreBLEU's tokenizer for the script of a text, or None for a script with spaces."""
    text = "".join(lines[:SCRIPT_LINES])
    least = SCRIPT_SHARE * sum(map(str.isalpha, text))  # number of letters in the lines
    return next(
        (n for n, letters in SCRIPTS.items() if len(letters.findall(text)) >= least > 0), None
    )


def similarity(
    name: Literal["bleu", "chrf"],
    tokenize: TokenizeName = "13a",
    lowercase: bool = False,
    char_order: int = 6,
) -> Callable[[str, str], float]:
    """Returns a function that scores a sentence against its reference by sentence BLEU or chrF.

    The scores are from 0 to 100.

    name: `bleu` or `chrf`; BLEU uses the effective order, which ignores n-grams longer than the
        translation
    tokenize: sacreBLEU tokenizer for BLEU
    lowercase: whether to ignore case
    char_order: maximum order of chrF's n-grams, in characters
    """
    options = Metric(tokenize=tokenize, lowercase=lowercase, char_order=char_order)
    metric = options.sacrebleu_metric(name, effective_order=True)

    def score(text: str, reference: str) -> float:
        if text == reference:  # sacreBLEU gives two empty texts a score of 0
            return 100.0
        return metric.sentence_score(text, [reference]).score

    return score
