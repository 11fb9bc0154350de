"""Metrics of translation quality on detokenised text, by sacreBLEU (Post 2018)."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
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
    "char": "th tha thai lo lao laoo km khm khmr my mya bur mymr",
}
"""Languages by sacreBLEU's tokeniser for them, because spaces do not separate their words.

Languages are codes of ISO 639-1 and 639-3, and script subtags of ISO 15924.
"""
WITHOUT_SPACES = {code: name for name, codes in TOKENIZERS.items() for code in codes.split()}
"""Tokenisers by the code of the language."""
SCRIPTS = {
    "ja-mecab": re.compile(r"[\u3040-\u30ff]"),
    "zh": re.compile(r"[\u3400-\u9fff\U00020000-\U0003ffff]"),
    "char": re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"),
}
"""Letters of scripts without spaces, by the tokeniser of the script.

Kana comes first, because Japanese text also has Chinese characters.
"""
SCRIPT_SHARE = 0.1
"""Smallest share of a script among the letters of a text in this script."""
SCRIPT_LINES = 1000
"""Number of lines in which the script of a text is detected."""
NEEDS = {"ja-mecab": ("MeCab", "sacrebleu[ja]"), "ko-mecab": ("mecab_ko", "sacrebleu[ko]")}
"""Module and pip requirement of a tokeniser."""
LOWER_IS_BETTER = ("ter", "loss")
"""Metrics whose lower values are better."""


@dataclass(frozen=True)
class Result:
    """A score.

    score: per cent (TER may exceed 100)
    signature: signature of sacreBLEU, which describes the computation
    """

    score: float
    signature: str


@dataclass(frozen=True, kw_only=True)
class Metric:
    """Metric of a run, with its options.

    name: metric that chooses the checkpoint, decides early stopping and is maximised by sweeps;
        BLEU, chrF and exact match are always reported
    tokenize: sacreBLEU's tokeniser for BLEU; auto: by the target language, see `of`
    lowercase: whether case is ignored
    char_order: maximal n-gram of chrF, in characters
    """

    name: MetricName = "bleu"
    tokenize: TokenizeName = "auto"
    lowercase: bool = False
    char_order: Depth = 6
    _given_warnings: set[str] = field(default_factory=set, init=False, compare=False, repr=False)

    def of(self, language: str, references: Sequence[str] = ()) -> Metric:
        """This metric for a target language: `auto` becomes a tokeniser of sacreBLEU.

        language: code such as zh, zho or zho_Hans; other names have no effect
        references: text of the language; its script decides if the code does not

        If the tokeniser is not installed, `auto` becomes `char`, with a warning. Raises UserError
        if a chosen tokeniser cannot be used.
        """
        tokenize = self.tokenize
        if tokenize == "auto":
            subtags = re.split(r"[-_]", language.lower())
            known = [WITHOUT_SPACES[tag] for tag in subtags if tag in WITHOUT_SPACES]
            detected: Any = [*known, script_tokenizer(references) or "13a"]
            tokenize = detected[0]
            if tokenize in NEEDS and find_spec(NEEDS[tokenize][0]) is None:
                log.warning(
                    "metric.tokenize=auto: uses char, as %s is not installed", NEEDS[tokenize][1]
                )
                tokenize = "char"
        metric = replace(self, tokenize=tokenize)
        try:
            metric.score(["a"], ["a"])
        except Exception as error:  # a missing package raises errors of many kinds
            how = f": pip install '{NEEDS[tokenize][1]}'" if tokenize in NEEDS else ""
            message = first_line(error)
            raise UserError(
                f"metric.tokenize={tokenize}: cannot be used here ({message}){how}"
            ) from error
        return metric

    @property
    def options(self) -> dict[str, Any]:
        """Options of the comparison of texts, as arguments of `similarity`."""
        return {
            "tokenize": self.tokenize,
            "lowercase": self.lowercase,
            "char_order": self.char_order,
        }

    def better(self, new: float, old: float | None) -> bool:
        """Returns whether a score is better than an older one, or the first one."""
        return old is None or (new < old if self.name in LOWER_IS_BETTER else new > old)

    def score(
        self,
        hypotheses: Sequence[str],
        references: Sequence[str],
        ter: bool = False,
        others: Sequence[Sequence[str]] = (),
        orders: bool = False,
    ) -> dict[str, Result]:
        """Scores of translations by metric: bleu, chrf and exact.

        hypotheses: translations
        references: reference of each line; an empty line means that there is none
        ter: whether TER is computed too
        others: further references of each line
        orders: whether bleu1, bleu2 and bleu3 are computed too, for captions of pictures

        Logs a warning for lines without a reference, and for references without spaces whose
        tokeniser splits at spaces.
        """
        from sacrebleu.metrics import BLEU, CHRF, TER

        # With tokenize=none, the text is tokenised on purpose: sacreBLEU must not warn.
        bleu = partial(
            BLEU, tokenize=self.tokenize, lowercase=self.lowercase, force=self.tokenize == "none"
        )
        metrics = {
            "bleu": bleu(),
            "chrf": CHRF(char_order=self.char_order, lowercase=self.lowercase),
            **({"ter": TER()} if ter or self.name == "ter" else {}),
        }
        for order in (1, 2, 3) if orders else ():
            metrics[f"bleu{order}"] = bleu(max_ngram_order=order)
        sets = [[line for line in lines if line] for lines in zip(references, *others, strict=True)]
        self._warn_of_references(hypotheses, references, sets)
        # sacreBLEU needs a reference for each line first, and None for a missing further one.
        streams: list[Any] = [[lines[0] if lines else "" for lines in sets]]
        for number in range(1, 1 + len(others)):
            streams.append([lines[number] if number < len(lines) else None for lines in sets])
        results = {}
        for name, metric in metrics.items():
            score = metric.corpus_score(list(hypotheses), streams).score
            results[name] = Result(score, str(metric.get_signature()))
        fold = str.lower if self.lowercase else str
        same = sum(
            fold(hypothesis) in {fold(line) for line in lines or [""]}
            for hypothesis, lines in zip(hypotheses, sets, strict=True)
        )
        case = "spaces counted, case not" if self.lowercase else "case and spaces counted"
        results["exact"] = Result(100 * same / max(1, len(references)), f"whole lines, {case}")
        return results

    def _warn_of_references(
        self, hypotheses: Sequence[str], first: Sequence[str], sets: Sequence[Sequence[str]]
    ) -> None:
        """Warns of missing references, and of a tokeniser that does not fit the script.

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
                f"reference: {missing:,} of {len(sets):,} lines have no reference; their "
                "translations count as wrong"
            )
        fitting = script_tokenizer(first) if self.tokenize in ("auto", "13a", "intl") else None
        if fitting is not None:
            self._warn_once(
                f"metric.tokenize={self.tokenize}: the references are written without spaces, so "
                f"BLEU counts whole lines as words; set metric.tokenize={fitting}"
            )

    def _warn_once(self, message: str) -> None:
        # A metric scores every validation of a training.
        if message not in self._given_warnings:
            self._given_warnings.add(message)
            log.warning("%s", message)


def script_tokenizer(lines: Sequence[str]) -> str | None:
    """The tokeniser for the script of a text; None for a script with spaces."""
    text = "".join(lines[:SCRIPT_LINES])
    least = SCRIPT_SHARE * sum(map(str.isalpha, text))
    return next(
        (n for n, letters in SCRIPTS.items() if len(letters.findall(text)) >= least > 0), None
    )


def similarity(
    name: Literal["bleu", "chrf"],
    tokenize: str = "13a",
    lowercase: bool = False,
    char_order: int = 6,
) -> Callable[[str, str], float]:
    """Function of a sentence and a reference that returns sentence BLEU or chrF, from 0 to 100.

    name: bleu (of the n-grams that the sentence has) or chrf
    tokenize: sacreBLEU's tokeniser for BLEU
    lowercase: whether case is ignored
    char_order: maximal n-gram of chrF, in characters
    """
    from sacrebleu.metrics import BLEU, CHRF

    metric: Any = CHRF(char_order=char_order, lowercase=lowercase)
    if name == "bleu":
        metric = BLEU(
            tokenize=tokenize, lowercase=lowercase, effective_order=True, force=tokenize == "none"
        )
    return lambda text, reference: metric.sentence_score(text, [reference]).score
