"""The search constraint that the fields of a request describe."""

import re

from nmt.inference.constraint import Constraint
from nmt.serving.request_fields import Fields
from nmt.tokenizer.words import lengthens


def constraint_of(fields: Fields, sentence: str, *, is_first: bool) -> Constraint | None:
    """Returns the search constraint for the translation of a sentence; None without a constraint.

    The translation must contain the phrases of the field `required`. For each entry of the field
    `glossary` whose source word occurs in the sentence, it must also contain the translation of
    the entry. A phrase that is part of another required phrase adds nothing. The field `prefix`
    applies only to the first sentence of a text.
    """
    translations = [
        translation
        for source_word, translation in fields["glossary"].items()
        if _contains(sentence.casefold(), source_word.casefold())
    ]
    texts = [" ".join(phrase.split()) for phrase in [*fields["required"], *translations]]
    phrases = dict.fromkeys(texts)
    required = [
        phrase
        for phrase in phrases
        if not any(other != phrase and _contains(other, phrase) for other in phrases)
    ]
    prefix = fields["prefix"] if is_first else ""
    constraint = Constraint(prefix, tuple(required), tuple(fields["forbidden"]))
    return None if constraint == Constraint() else constraint


def _contains(sentence: str, word: str) -> bool:
    """Returns whether a word or phrase occurs in a sentence, and not as a part of other words."""
    text, phrase = (" ".join(part.split()) for part in (sentence, word))
    # The lookahead also finds occurrences that overlap.
    starts = [match.start() for match in re.finditer(f"(?={re.escape(phrase)})", text)]
    ends = [start + len(phrase) for start in starts]
    return any(
        not _inside_word(text, start) and not _inside_word(text, end)
        for start, end in zip(starts, ends, strict=True)
    )


def _inside_word(text: str, position: int) -> bool:
    """Returns whether a word continues across a position between two characters. Words of scripts
    without spaces, such as that of Japanese, have no visible boundaries, so they never do."""
    neighbours = text[max(0, position - 1) : position + 1]
    return 0 < position < len(text) and all(map(lengthens, neighbours))
