"""Estimation of a translation lexicon p_lex(y | x) over the tokens of a model.

A lexicon is a table with one row per source token: the most probable target tokens and their
probabilities, in descending order. `</s>` is translated as `</s>`. `<unk>` is never a translation.
"""

import math
import re
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from nmt.data.lines import find_file, stream_lines
from nmt.data.ragged import Corpus, Ragged, RaggedChain
from nmt.data.word_aligner import WordAligner
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import EOS, PAD, UNK
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.columns import Columns

ENTRIES = 32
"""Maximum number of target tokens per source token in a lexicon."""
SMALLEST = 0.001
"""Minimum probability of a lexicon entry."""
PAIRS = 100_000
"""Maximum number of sentence pairs that are aligned together.

For pairs of 15 tokens per side, the aligner needs about 10 kB per pair, or 1 GB for 100,000 pairs.
"""
ENTRY = re.compile(
    r"[^\S\t]*([^\t]*\S)[^\S\t]*\t[^\S\t]*([^\t]*\S)[^\S\t]*"
    r"(?:\t\s*((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*)?"
)
"""Pattern of a line of a lexicon file: word, translation and optional probability."""


def estimated_lexicon(
    corpus: Corpus, rows: np.ndarray, source_vocabulary: int
) -> dict[str, Tensor]:
    """Estimates the lexicon of a corpus with a hidden Markov model. If there are more than PAIRS
    sentence pairs, only PAIRS evenly spaced pairs are used.

    corpus: encoded sentence pairs
    rows: indices of the pairs that may be used
    source_vocabulary: number U of tokens in the source vocabulary, without factor values

    Returns at most k target tokens for each source token, the most probable first: `tokens` [U, k]
    and `probabilities` [U, k], with k ≤ ENTRIES. Unused entries have probability 0.
    """
    if len(rows) > PAIRS:
        rows = rows[np.linspace(0, len(rows) - 1, PAIRS).astype(np.int64)]
    sources = [ids % source_vocabulary for ids in sequences(corpus.source, rows)]
    aligner = WordAligner(sources, sequences(corpus.target, rows), method="hmm")
    source_ids = np.array([PAD, *list(aligner.source_words)[1:]])  # the first word is NULL
    target_ids = np.array([*aligner.target_words])
    return lexicon_table(
        source=source_ids[aligner.pairs[0]],  # [n]
        target=target_ids[aligner.pairs[1]],  # [n]
        weights=aligner.counts,
        source_vocabulary=source_vocabulary,
    )


def read_lexicon_table(path: str, tokenizer: Tokenizer) -> dict[str, Tensor]:
    """Reads the lexicon of a model from a file of word translations.

    If a word or its translation consists of several tokens, each token of the word gets all tokens
    of the translation as equally probable translations.

    path: file with one entry per line: WORD, tab, TRANSLATION, and optionally tab, PROBABILITY
        (default 1); the probabilities of a word are normalised if their sum exceeds 1
    tokenizer: tokenizer of the model

    Raises UserError with the line number for a malformed line.
    """
    file = find_file(path)
    lines = []
    for number, line in enumerate(stream_lines(file), 1):
        match = ENTRY.fullmatch(line)
        if match is None or math.isinf(float(match[3] or 1)):
            raise UserError(
                f"{file}, line {number:,}: expected a source word, a tab, its translation, and "
                "optionally a tab and the probability of the translation"
            )
        lines.append(match)
    of_words = replace(tokenizer, columns=Columns())  # words of the lexicon have no factors
    source_ids = of_words.encode_source([match[1] for match in lines])
    target_ids = tokenizer.encode_target([match[2] for match in lines])
    entries = [
        (source, target, float(match[3] or 1) / len(targets))
        for match, sources, targets in zip(lines, source_ids, target_ids, strict=True)
        for source in sources
        for target in targets
    ]
    if not entries:
        raise UserError(
            f"{file}: the lexicon has no entries; expected lines of a source word, a tab and "
            "its translation"
        )
    source, target = np.array([entry[:2] for entry in entries]).T  # [n], [n]
    return lexicon_table(
        source=source,
        target=target,
        weights=np.array([entry[2] for entry in entries]),  # [n]
        source_vocabulary=tokenizer.source_size,
        least_total=1.0,  # the probabilities of a word may sum to less than 1
    )


def lexicon_table(
    source: np.ndarray,
    target: np.ndarray,
    weights: np.ndarray,
    source_vocabulary: int,
    least_total: float = 1e-30,
) -> dict[str, Tensor]:
    """Returns the table of a lexicon with the most probable entries of each source token.

    source, target: [n] token ids of each entry; entries may repeat
    weights: [n] unnormalised probability of each entry
    source_vocabulary: number U of tokens in the source vocabulary
    least_total: smallest sum of the weights of a source token that is normalised to 1
    """
    size = int(target.max(initial=0)) + 1
    keys, places = np.unique(source * size + target, return_inverse=True)
    source, target = np.divmod(keys, size)
    weights = np.bincount(places, weights)
    probabilities = weights / np.bincount(source, weights)[source].clip(least_total)
    usable = (probabilities >= SMALLEST) & (target != UNK) & ~np.isin(source, (PAD, UNK, EOS))
    order = np.flatnonzero(usable)
    order = order[np.lexsort((-probabilities[order], source[order]))]
    source = source[order]
    ranks = np.arange(len(order)) - np.searchsorted(source, source)  # rank of an entry in its row
    kept = ranks < ENTRIES
    place = source[kept], ranks[kept]
    tokens = np.zeros((source_vocabulary, int(ranks[kept].max(initial=0)) + 1), np.int32)
    table = np.zeros(tokens.shape, np.float32)
    tokens[place] = target[order][kept]
    table[place] = probabilities[order][kept]
    tokens[EOS, 0] = EOS
    table[EOS, 0] = 1
    return {"tokens": torch.from_numpy(tokens), "probabilities": torch.from_numpy(table)}


def sequences(text: Ragged | RaggedChain, rows: np.ndarray) -> list[np.ndarray]:
    """Returns the token ids of the sentences with the given indices."""
    selected = text.select(rows)
    return np.split(selected.ids.astype(np.int64), selected.offsets[1:-1])
