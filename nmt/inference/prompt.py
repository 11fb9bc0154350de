"""Translating at a terminal, line by line: history by the arrow keys, and questions about the last answer."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

from nmt.data.lines import has_surrogate
from nmt.foundation.errors import UserError
from nmt.inference.translation import Translation
from nmt.inference.translator import Translator
from nmt.tokenizer.words import Units

HELP = """\
A line is translated. About the last answer:
  :score       how probable it is, piece by piece, and the other translations that the search kept
  :attention   where the model looked for every word of it
Arrow keys bring lines back. Ctrl-D ends. A line that begins with a colon: put a space before it."""
SHOWN = 3
"""Source words shown for a word."""


class Prompt:
    """A conversation with a translator. `read` gives a line, `say` shows one."""

    def __init__(
        self,
        translator: Translator,
        units: Units,
        read: Callable[[str], str],
        say: Callable[[str], None],
    ):
        self.translator, self.units, self._read, self._say = translator, units, read, say
        self._last: tuple[str, Translation] | None = None

    def run(self) -> None:
        """Until the input ends. What is wrong with a line is said, and the next one is read."""
        while True:
            try:
                line = self._read("> ")
            except EOFError:
                return
            if has_surrogate(line):
                self._say("not UTF-8: set the terminal to UTF-8, or translate a file")
                continue
            try:
                self.answer(line)
            except UserError as error:
                self._say(f"error: {error}")

    def answer(self, line: str) -> None:
        """Says the translation of a line, or the answer to a question."""
        questions = {":score": self.score, ":attention": self.attention}
        if line in questions and self._last is None:
            self._say("there is no answer yet; type a sentence first")
        elif line in questions:
            questions[line]()
        elif line.startswith(":"):
            self._say(HELP if line == ":help" else f"there is no {line.split()[0]}\n{HELP}")
        else:
            self.translator.tokenizer.columns.split(line)
            found = self.translator.translations(line, details_of=1)
            self._last = (line, found) if found.hypotheses else None
            self._say(found.text)

    def score(self) -> None:
        """The probabilities of the last answer."""
        assert self._last is not None
        found = self._last[1]
        forced, tokens = found.details[0], found.hypotheses[0].tokens
        pieces = [*self.translator.tokenizer.target_pieces(tokens), "</s>"]
        mean = math.exp(forced.log_prob / len(pieces))
        self._say(f"log-probability {forced.log_prob:.2f}, {mean:.2f} a piece on average")
        self._say(
            "  ".join(
                f"{piece} {math.exp(p):.2f}"
                for piece, p in zip(pieces, forced.log_probs, strict=True)
            )
        )
        for hypothesis, text in list(zip(found.hypotheses, found.texts, strict=True))[1:]:
            self._say(f"{hypothesis.log_prob:.2f}  {text}")

    def attention(self) -> None:
        """For each word of the last answer, the source words with the greatest weights."""
        assert self._last is not None
        line, found = self._last
        maps = (
            self.translator.attention_maps([line], [found], units=self.units)
            if self.translator.attends
            else []
        )
        if not maps:
            return self._say("this model has no attention to show (decoder=fixed)")
        seen = maps[0]
        for word, weights in zip(seen.target, seen.total, strict=True):
            best = weights.argsort()[::-1][:SHOWN]
            looked = ", ".join(
                f"{seen.source[i]} {weights[i]:.2f}" for i in best if weights[i] >= 0.05
            )
            self._say(f"{word} ← {looked or 'everywhere a little'}")


def at_terminal(translator: Translator, units: Units) -> None:
    """A prompt on this terminal, with line editing and history where Python has them."""
    with contextlib.suppress(ImportError):
        import readline

        readline.parse_and_bind("tab: self-insert")  # between the columns of a line
    print(f"{translator}. :help says what can be asked", flush=True)
    Prompt(translator, units, input, print).run()
    print()
