"""Replacement of unknown words in translations (Luong, Sutskever et al. 2015; Jean et al. 2015).

mark    keeps ⁇, with which the tokenizer marks an unknown word
drop    removes the word; a translation of unknown words only is empty
copy    inserts the source word with the greatest attention, or its translation in a lexicon
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

import numpy as np

from nmt.data.lines import find_file, stream_lines
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import UNK
from nmt.inference.constraint import Constraint
from nmt.inference.translation import ForcedDecoding, Translation
from nmt.model.lexicon import Lexicon
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.words import MARKS, bare, spaceless, words

Unknown = Literal["mark", "drop", "copy"]
MARK = "⁇"


def read_lexicon(path: str) -> dict[str, str]:
    """Reads a lexicon file, whose lines consist of a source word, a tab and a translation.

    If a source word has several lines, the first line is used. The keys have the Unicode
    normalisation form NFC. Raises UserError with the line number for a malformed line.
    """
    file = find_file(path, f"lexicon={path}")
    lexicon: dict[str, str] = {}
    for number, line in enumerate(stream_lines(file), 1):
        word, tab, translation = line.partition("\t")
        if not tab or not word.strip() or "\t" in translation:
            raise UserError(
                f"{file}, line {number:,}: expected a source word, a tab and its translation"
            )
        lexicon.setdefault(_nfc(word.strip()), translation.strip())
    return lexicon


def filled(
    text: str,
    tokens: Sequence[int],
    weights: np.ndarray | None,
    piece_words: Sequence[range],
    words: Sequence[str],
    lexicon: Mapping[str, str],
    forbidden: Collection[str] = (),
) -> str:
    """Returns a translation with its unknown words replaced.

    text: translation, with the mark ⁇ for each unknown token
    tokens: token ids of the translation
    weights: [tokens + EOS, source tokens + EOS] attention weights; None drops unknown words
    piece_words: range of source words (from 0) to which each source token belongs
    words: source words
    lexicon: translations of source words; words that are not in the lexicon are copied
    forbidden: words or phrases; a replacement is not inserted if the text would then contain one
        of them

    Adjacent unknown tokens that attend to the same source word are replaced by one word.
    """
    parts = text.split(MARK)
    unknown_steps = [step for step, token in enumerate(tokens) if token == UNK]
    if len(parts) != len(unknown_steps) + 1:
        return text  # the mark is also a word of the text
    # source positions of words, without </s> after a text
    positions = [i for i, span in enumerate(piece_words) if span.start < len(words)]
    # parts[n] is the text before the n-th unknown word.
    written = parts[0]
    previous: range | None = None
    for step, rest in zip(unknown_steps, parts[1:], strict=True):
        if weights is not None and positions:
            attended = piece_words[positions[int(weights[step, positions].argmax())]]
            if attended != previous or not written.strip():
                word = "".join(words[attended.start : attended.stop])
                name = bare(word) or word  # the network writes the punctuation itself
                entry = lexicon.get(_nfc(word), lexicon.get(_nfc(name)))
                replacement = name if entry is None else entry
                candidate = f"{written} {replacement} "
                if not any(_contains(candidate + rest, phrase) for phrase in forbidden):
                    written = candidate
            previous = None if rest.strip() else attended
        written += rest
    return re.sub(" +", " ", written).strip(" ")


def _nfc(word: str) -> str:
    """Returns a word in the Unicode normalisation form NFC, so that composed and decomposed letters
    are equal."""
    return unicodedata.normalize("NFC", word)


def _contains(text: str, phrase: str) -> bool:
    """Returns whether the words of a phrase occur in a text one after another. In scripts without
    spaces between words, the phrase may also be part of a word."""
    phrase = phrase.strip()
    if not phrase:
        return False
    pattern = r"\s+".join(map(re.escape, phrase.split()))
    before = "" if spaceless(phrase[0]) else rf"(?<![\w{MARKS}])"
    after = "" if spaceless(phrase[-1]) else rf"(?![\w{MARKS}])"
    return re.search(f"{before}{pattern}{after}", text) is not None


def replace_unknown_words(
    lines: Sequence[str],
    translations: Sequence[Translation],
    tokenizer: Tokenizer,
    force: Callable[[list[Sequence[int]], list[Sequence[int]]], list[ForcedDecoding]] | None,
    lexicon: Mapping[str, str],
    model_lexicon: Lexicon | None,
    constraints: Sequence[Constraint] | None = None,
) -> None:
    """Replaces the unknown words in the texts of translations.

    lines: source lines
    translations: translation of each line, whose texts are changed
    tokenizer: tokenizer of the model
    force: function of source and target tokens that computes attention weights; None drops unknown
        words
    lexicon: translations of source words, which take precedence over those of the model's lexicon
    model_lexicon: lexicon of the model; None for a model without a lexicon
    constraints: constraint of each line, whose forbidden words are not inserted
    """
    unknown = [
        (i, rank)
        for i, translation in enumerate(translations)
        for rank, hypothesis in enumerate(translation.hypotheses)
        if UNK in hypothesis.tokens
    ]
    attention: list[np.ndarray | None] = [None] * len(unknown)
    if force is not None:
        decodings = force(
            [translations[i].source for i, _ in unknown],
            [translations[i].hypotheses[rank].tokens for i, rank in unknown],
        )
        attention = [decoding.weights for decoding in decodings]  # [T, S] each
    for (i, rank), weights in zip(unknown, attention, strict=True):
        source = translations[i].source
        piece_words = tokenizer.source_words(lines[i], source)
        source_words = words(tokenizer.columns.words(lines[i]))
        entries = _entries_of_words(model_lexicon, tokenizer, source, piece_words, source_words)
        translations[i].texts[rank] = filled(
            text=translations[i].texts[rank],
            tokens=translations[i].hypotheses[rank].tokens,
            weights=weights,
            piece_words=piece_words,
            words=source_words,
            lexicon={**entries, **lexicon},
            forbidden=constraints[i].forbidden if constraints else (),
        )


def _entries_of_words(
    lexicon: Lexicon | None,
    tokenizer: Tokenizer,
    source: Sequence[int],
    piece_words: Sequence[range],
    source_words: Sequence[str],
) -> dict[str, str]:
    """Returns the translations that a model's lexicon has for the words of a source sentence.
    Words of several tokens have no entry in the lexicon. The words are without the punctuation
    around them, which the network writes itself.

    lexicon: lexicon of the model; None for a model without a lexicon
    tokenizer: tokenizer of the model
    source: source token ids
    piece_words: range of source words (from 0) to which each source token belongs
    source_words: source words
    """
    if lexicon is None:
        return {}
    entries: dict[str, str] = {}
    for token, span in zip(source, piece_words, strict=True):
        token %= tokenizer.source_size
        translation = None if token == UNK else lexicon.best(token)
        if translation is not None and list(piece_words).count(span) == len(span) == 1:
            word = source_words[span.start]
            text = tokenizer.decode([[translation]])[0]
            entries.setdefault(_nfc(bare(word) or word), bare(text) or text)
    return entries
