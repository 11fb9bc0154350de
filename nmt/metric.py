"""Quality of translations against references, by sacreBLEU (Post 2018), on detokenised text, with signatures."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal

from nmt.foundation.errors import UserError
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
"""sacreBLEU's tokeniser of languages whose words spaces do not separate well enough.

The codes of ISO 639-1 and 639-3, and the script subtags of ISO 15924.
"""
WITHOUT_SPACES = {code: name for name, codes in TOKENIZERS.items() for code in codes.split()}
SCRIPTS = {
    "ja-mecab": re.compile(r"[\u3040-\u30ff]"),
    "zh": re.compile(r"[\u3400-\u9fff\U00020000-\U0003ffff]"),
    "char": re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"),
}
"""Letters of scripts that are written without spaces, with the tokeniser of the script. Kana comes first: Japanese text
also has Chinese characters."""
SCRIPT_SHARE = 0.1
"""Smallest share of a script among the letters of a text that is written in it."""
SCRIPT_LINES = 1000
"""Lines of a text that are examined for its script."""
NEEDS = {"ja-mecab": ("MeCab", "sacrebleu[ja]"), "ko-mecab": ("mecab_ko", "sacrebleu[ko]")}
"""Modules that tokenisers need, and how pip installs them."""
LOWER_IS_BETTER = ("ter", "loss")


@dataclass(frozen=True)
class Result:
    """A score in per cent (TER may exceed 100) and the signature that says how it was computed."""

    score: float
    signature: str


class Metric:
    """How a run is judged. The metric `name` chooses the checkpoint, decides early stopping and is the objective of
    sweeps; BLEU, chrF and exact match are always reported. `tokenize`: sacreBLEU's, for BLEU; auto: by the target language,
    see `of`. `lowercase`: case does not count."""

    def __init__(
        self,
        *,
        name: MetricName = "bleu",
        tokenize: TokenizeName = "auto",
        lowercase: bool = False,
        char_order: Depth = 6,
    ) -> None:
        self.name = name
        self.tokenize = tokenize
        self.lowercase = lowercase
        self.char_order = char_order
        self._given_warnings: set[str] = set()

    def of(self, language: str, references: Sequence[str] = ()) -> Metric:
        """This metric for a target language: `auto` becomes a tokeniser of sacreBLEU.

        language: a code such as zh, zho or zho_Hans; a name that is no code has no effect
        references: text of the language, whose script decides if the code does not

        Where the tokeniser is not installed, `auto` becomes `char`, with a warning. Raises UserError if a chosen tokeniser
        cannot be used here.
        """
        tokenize = self.tokenize
        if tokenize == "auto":
            subtags = re.split(r"[-_]", language.lower())
            known = [WITHOUT_SPACES[tag] for tag in subtags if tag in WITHOUT_SPACES]
            tokenize = known[0] if known else script_tokenizer(references) or "13a"  # type: ignore[assignment]
            if tokenize in NEEDS and find_spec(NEEDS[tokenize][0]) is None:
                log.warning(
                    "metric.tokenize=auto: char, as %s is not installed", NEEDS[tokenize][1]
                )
                tokenize = "char"
        found = Metric(
            name=self.name, tokenize=tokenize, lowercase=self.lowercase, char_order=self.char_order
        )
        try:
            found.score(["a"], ["a"])
        except Exception as error:  # what is missing, sacreBLEU and its packages say in many ways
            how = f": pip install '{NEEDS[tokenize][1]}'" if tokenize in NEEDS else ""
            raise UserError(
                f"metric.tokenize={tokenize}: cannot be used here ({_first_line(error)}){how}"
            ) from error
        return found

    @property
    def options(self) -> dict[str, Any]:
        """How texts are compared, as `similarity` takes it."""
        return {
            "tokenize": self.tokenize,
            "lowercase": self.lowercase,
            "char_order": self.char_order,
        }

    def better(self, new: float, old: float | None) -> bool:
        """Whether `new` improves on `old`."""
        return old is None or (new < old if self.name in LOWER_IS_BETTER else new > old)

    def score(
        self,
        hypotheses: Sequence[str],
        references: Sequence[str],
        ter: bool = False,
        others: Sequence[Sequence[str]] = (),
        orders: bool = False,
    ) -> dict[str, Result]:
        """bleu, chrf and exact, and optionally ter, of aligned lines.

        references, others: one or several references of each line; an empty line means no reference, in each of them, so
            that their order does not matter
        orders: also bleu1, bleu2 and bleu3, of words, pairs and triples at most, as captions are judged

        Lines without any reference, and references without spaces for a tokeniser that splits at spaces, are warned about.
        """
        from sacrebleu.metrics import BLEU, CHRF, TER

        # Text that is compared as it is has been tokenised on purpose: no warning.
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
        # sacreBLEU wants a reference for each line in the first stream, and None where a line has no further one.
        streams: list[Any] = [[lines[0] if lines else "" for lines in sets]]
        for number in range(1, 1 + len(others)):
            streams.append([lines[number] if number < len(lines) else None for lines in sets])
        results = {}
        for name, metric in metrics.items():
            score = metric.corpus_score(list(hypotheses), streams).score
            results[name] = Result(score, str(metric.get_signature()))
        same = 0
        fold = str.lower if self.lowercase else str
        for hypothesis, lines in zip(hypotheses, sets, strict=True):
            same += fold(hypothesis) in {fold(line) for line in lines or [""]}
        case = "spaces counted, case not" if self.lowercase else "case and spaces counted"
        results["exact"] = Result(100 * same / max(1, len(references)), f"whole lines, {case}")
        return results

    def _warn_of_references(
        self, hypotheses: Sequence[str], first: Sequence[str], sets: Sequence[Sequence[str]]
    ) -> None:
        """Warns of translations without a reference and of a tokeniser that does not fit the script."""
        missing = sum(
            bool(hypothesis) and not lines
            for hypothesis, lines in zip(hypotheses, sets, strict=True)
        )
        if missing:
            self._warn_once(
                f"reference: {missing:,} of {len(sets):,} lines have no reference; their translations "
                "count as wrong"
            )
        fitting = script_tokenizer(first) if self.tokenize in ("auto", "13a", "intl") else None
        if fitting is not None:
            self._warn_once(
                f"metric.tokenize={self.tokenize}: the references are written without spaces, so BLEU "
                f"counts whole lines as words; set metric.tokenize={fitting}"
            )

    def _warn_once(self, message: str) -> None:
        # A metric scores every validation of a training.
        if message not in self._given_warnings:
            self._given_warnings.add(message)
            log.warning("%s", message)


def script_tokenizer(lines: Sequence[str]) -> str | None:
    """The tokeniser of the script of a text, None for a script with spaces."""
    text = "".join(lines[:SCRIPT_LINES])
    letters = sum(map(str.isalpha, text))
    for name, script in SCRIPTS.items():
        if letters and len(script.findall(text)) >= SCRIPT_SHARE * letters:
            return name
    return None


def similarity(
    name: Literal["bleu", "chrf"],
    tokenize: str = "13a",
    lowercase: bool = False,
    char_order: int = 6,
) -> Callable[[str, str], float]:
    """How like a reference a sentence is, from 0 to 100: (sentence, reference) → sentence BLEU of the orders that it has, or
    chrF, by sacreBLEU."""
    from sacrebleu.metrics import BLEU, CHRF

    metric: Any = CHRF(char_order=char_order, lowercase=lowercase)
    if name == "bleu":
        metric = BLEU(
            tokenize=tokenize, lowercase=lowercase, effective_order=True, force=tokenize == "none"
        )
    return lambda text, reference: metric.sentence_score(text, [reference]).score


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
