"""Interactive translation at a terminal, with commands that show details of the last
translation."""

import contextlib
import math

from nmt.data.text_encoding import has_surrogate
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
"""Characters that display attention weights: one for each quarter of the range 0 to 1, in ascending
order."""
MIN_WEIGHT = 0.05
"""Minimum attention weight that the command `:attention` shows, 0 to 1."""


class Prompt:
    """Interactive translation loop: reads lines, prints translations and executes commands.

    translator: translator of the lines
    units: units of the attention weights: words or subwords
    """

    def __init__(self, translator: Translator, units: Units) -> None:
        self.translator = translator
        self.units = units
        self._last: tuple[str, Translation] | None = None

    def run(self) -> None:
        """Reads lines and prints the answers until the input ends. Errors in a line are printed."""
        while True:
            try:
                self.answer(input("> "))
            except EOFError:
                return
            except UserError as error:
                print(f"error: {error}")

    def answer(self, line: str) -> None:
        """Prints the translation of a line, or the answer to a command such as `:score`.

        Raises UserError if the line is not UTF-8 or lacks columns that the model reads.
        """
        if has_surrogate(line):
            raise UserError("the line is not UTF-8; set the terminal to UTF-8, or translate a file")
        questions = {":score": self._score, ":attention": self._attention}
        if not line.startswith(":"):
            self._translate(line)
        elif line not in questions:
            print(HELP if line == ":help" else f"unknown command {line.split()[0]}\n{HELP}")
        elif self._last is None:
            print(f"{line}: there is no last translation yet; type a sentence first")
        else:
            questions[line](*self._last)

    def _translate(self, line: str) -> None:
        [translation] = self.translator.translations([line], details_of=1)
        self._last = (line, translation) if translation.hypotheses else None
        print(translation.text)

    def _score(self, line: str, translation: Translation) -> None:
        """Prints the probability of each subword of the last translation, and the other hypotheses
        of the search."""
        decoding = translation.details[0]
        tokens = translation.hypotheses[0].tokens
        pieces = [*self.translator.tokenizer.target_pieces(tokens), "</s>"]
        mean = math.exp(decoding.log_prob / len(pieces))
        print(f"log-probability {decoding.log_prob:.2f}, mean probability of a subword {mean:.2f}")
        scored = zip(pieces, decoding.log_probs, strict=True)
        print("  ".join(f"{piece} {math.exp(log_prob):.2f}" for piece, log_prob in scored))
        [others] = self.translator.with_whole_beam().translations([line])
        for hypothesis, text in zip(others.hypotheses, others.texts, strict=True):
            if text != translation.text:
                print(f"{hypothesis.log_prob:.2f}  {text}")

    def _attention(self, line: str, translation: Translation) -> None:
        """Prints, for each word of the last translation, the source words with the greatest
        attention weights."""
        if not self.translator.attends or not self.translator.tokenizer.columns.sources:
            print("the model has no attention to source words")
            return
        [attention] = self.translator.attention_maps([line], [translation], units=self.units)
        for word, weights in zip(attention.target, attention.total, strict=True):
            best = weights.argsort()[::-1][:MAX_ATTENDED]  # source positions, greatest weight first
            attended = [
                f"{SHADES[min(int(4 * weights[i]), 3)]} {attention.source[i]} {weights[i]:.2f}"
                for i in best
                if weights[i] >= MIN_WEIGHT
            ]
            print(f"{word} ← {', '.join(attended) or f'all weights below {MIN_WEIGHT}'}")


def at_terminal(translator: Translator, units: Units) -> None:
    """Runs the interactive prompt at the terminal, with line editing and history if Python's
    readline module is available.
    """
    with contextlib.suppress(ImportError):
        import readline

        readline.parse_and_bind("tab: self-insert")  # tabs separate the columns of a line
    source, target = translator.languages
    print(f"{source} → {target}: type a sentence to translate it; :help lists commands", flush=True)
    Prompt(translator, units).run()
    print()
