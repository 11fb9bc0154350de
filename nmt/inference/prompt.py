"""Interactive translation at a terminal, with commands that show details of the last
translation."""

import contextlib
import math
from collections.abc import Callable

from nmt.data.lines import has_surrogate
from nmt.foundation.errors import UserError
from nmt.inference.translation import Translation
from nmt.inference.translator import Translator
from nmt.tokenizer.words import Units

HELP = """\
Type a sentence to translate it. Commands about the last translation:
  :score       probability of each subword, and the other hypotheses of the search
  :attention   source words with the greatest attention weights for each translated word
Arrow keys recall lines. Ctrl-D quits. Put a space before a sentence that begins with a colon."""
MAX_ATTENDED = 3
"""Maximum number of source words that the command `:attention` shows for a target word."""
SHADES = "░▒▓█"
"""Characters that draw attention weights, from the least to the greatest quarter of the range 0 to
1."""
MIN_WEIGHT = 0.05
"""Minimum attention weight that the command `:attention` shows, 0 to 1."""


class Prompt:
    """Interactive translation loop: reads lines, prints translations and answers to commands.

    translator: translator of the lines
    units: units of the attention weights: words or subwords
    read: function that prints a prompt string and returns a line of input, or raises EOFError
    `say`: function that prints a line of output
    """

    def __init__(
        self,
        translator: Translator,
        units: Units,
        read: Callable[[str], str],
        say: Callable[[str], None],
    ):
        self.translator = translator
        self.units = units
        self._read = read
        self._say = say
        self._last: tuple[str, Translation] | None = None

    def run(self) -> None:
        """Reads lines and prints the answers until the input ends. Errors in a line are printed."""
        while True:
            try:
                line = self._read("> ")
            except EOFError:
                return
            if has_surrogate(line):
                self._say("the line is not UTF-8: set the terminal to UTF-8, or translate a file")
                continue
            try:
                self.answer(line)
            except UserError as error:
                self._say(f"error: {error}")

    def answer(self, line: str) -> None:
        """Prints the translation of a line, or the answer to a command such as `:score`."""
        questions = {":score": self._score, ":attention": self._attention}
        if not line.startswith(":"):
            self._translate(line)
        elif line not in questions:
            self._say(HELP if line == ":help" else f"unknown command {line.split()[0]}\n{HELP}")
        elif self._last is None:
            self._say(f"{line}: there is no last translation yet; type a sentence first")
        else:
            questions[line](*self._last)

    def _translate(self, line: str) -> None:
        self.translator.tokenizer.columns.split(
            line
        )  # `split` raises UserError for missing columns
        translation = self.translator.translations(line, details_of=1)
        self._last = (line, translation) if translation.hypotheses else None
        self._say(translation.text)

    def _score(self, line: str, translation: Translation) -> None:
        """Prints the probability of each subword of the last translation, and the other hypotheses
        of the search."""
        decoding = translation.details[0]
        tokens = translation.hypotheses[0].tokens
        pieces = [*self.translator.tokenizer.target_pieces(tokens), "</s>"]
        mean = math.exp(decoding.log_prob / len(pieces))
        self._say(
            f"log-probability {decoding.log_prob:.2f}, mean probability of a subword {mean:.2f}"
        )
        scored = zip(pieces, decoding.log_probs, strict=True)
        self._say("  ".join(f"{piece} {math.exp(log_prob):.2f}" for piece, log_prob in scored))
        others = self.translator.with_whole_beam().translations(line)
        for hypothesis, text in zip(others.hypotheses, others.texts, strict=True):
            if text != translation.text:
                self._say(f"{hypothesis.log_prob:.2f}  {text}")

    def _attention(self, line: str, translation: Translation) -> None:
        """Prints, for each word of the last translation, the source words with the greatest
        attention weights."""
        if not self.translator.attends:
            self._say("the model has no attention (decoder=fixed)")
            return
        [attention] = self.translator.attention_maps([line], [translation], units=self.units)
        for word, weights in zip(attention.target, attention.total, strict=True):
            best = weights.argsort()[::-1][:MAX_ATTENDED]  # source positions, greatest weight first
            attended = [
                f"{_shade(weights[i])} {attention.source[i]} {weights[i]:.2f}"
                for i in best
                if weights[i] >= MIN_WEIGHT
            ]
            self._say(f"{word} ← {', '.join(attended) or f'all weights below {MIN_WEIGHT}'}")


def _shade(weight: float) -> str:
    """Returns the character that represents an attention weight, from light to dark."""
    return SHADES[min(int(4 * weight), 3)]


def at_terminal(translator: Translator, units: Units) -> None:
    """Runs the interactive prompt at the terminal, with line editing and history if Python's
    readline module is available.
    """
    with contextlib.suppress(ImportError):
        import readline

        readline.parse_and_bind("tab: self-insert")  # tabs separate the columns of a line
    source, target = translator.languages
    print(f"{source} → {target}: type a sentence to translate it; :help lists commands", flush=True)
    Prompt(translator, units, input, print).run()
    print()
