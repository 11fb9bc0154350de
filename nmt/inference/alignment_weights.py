"""Word alignment weights of sentence pairs: attention weights of a model, similarities of word
vectors, or probabilities of a statistical word aligner."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from nmt.data.lines import read_aligned
from nmt.data.word_aligner import AlignerName, WordAligner
from nmt.data.word_vectors import nearest, read_vectors
from nmt.drawing.attention_map import AttentionMap
from nmt.foundation.errors import UserError
from nmt.foundation.progress import repeating
from nmt.inference.parallel import ProgressCallback
from nmt.inference.translator import Translator
from nmt.tokenizer.words import SPLITS, Units

Attend = Callable[[Sequence[str], Sequence[str], ProgressCallback], Iterator[AttentionMap]]
"""Type of functions that return attention maps of sentence pairs, with target words as rows and
source words as columns.

The arguments are the source sentences, the target sentences, and a progress callback, which
receives the number of newly aligned pairs.
"""


def attention_of_model(
    load: Callable[[], Translator],
    name: str,
    units: Units,
    reverse: Callable[[], Translator] | None,
    sources: Sequence[str],
    targets: Sequence[str],
    progress: ProgressCallback,
) -> Iterator[AttentionMap]:
    """Returns the attention maps of sentence pairs, by forced decoding of the target sentences.

    load: function that returns the model
    name: key and name of the model, quoted in messages
    units: units of the alignment: words or subwords
    reverse: function that returns the model of the opposite direction, whose languages are checked;
        None aligns in one direction only
    sources, targets, progress: arguments of the type `Attend`
    """
    translator = load()
    if not translator.attends:
        raise UserError(
            f"{name}: the model has no attention (decoder=fixed); align with method=ibm1 "
            "or method=hmm"
        )
    if not translator.tokenizer.columns.sources:
        raise UserError(f"{name}: the model reads images, which have no words to align")
    source, target = translator.languages
    # Only equal language names prove that the reverse model has the wrong direction.
    if reverse is not None and reverse().languages == (source, target):
        raise UserError(
            f"reverse: the model translates from {source} to {target}, in the same direction "
            f"as {name}; give a model that translates from {target} to {source}"
        )
    if reverse is not None and units == "piece":
        vocabularies = translator.tokenizer.models
        if reverse().tokenizer.models != vocabularies[::-1]:
            raise UserError(
                f"reverse: units=piece needs models with the same vocabularies, but that of {name} "
                "differs; set units=word"
            )
    yield from translator.forced_maps(sources, targets, units, progress)


def attention_of_vectors(
    source_file: str,
    target_file: str,
    units: Units,
    sources: Sequence[str],
    targets: Sequence[str],
    progress: ProgressCallback,
) -> Iterator[AttentionMap]:
    """Aligns sentence pairs without a translation model: the weight of a word pair is the
    similarity of the word vectors.

    A word without a vector has weight 0.

    source_file, target_file: files with the word vectors of both languages, in a common space
    units: units of the alignment: words or subwords
    sources, targets, progress: arguments of the type `Attend`
    """
    split = SPLITS[units]
    source_table = read_vectors(source_file, _forms(sources, split))
    target_table = read_vectors(target_file, _forms(targets, split))
    # Similarity needs vectors of equal size.
    sizes = {len(vector) for vector in (*source_table.values(), *target_table.values())}
    if len(sizes) > 1:
        raise UserError(
            f"vectors: {source_file} and {target_file} must have vectors of the same size, "
            f"got sizes {sorted(sizes)}"
        )
    size = max(sizes, default=1)  # no word of these sentences has a vector
    for source, target in zip(sources, targets, strict=True):
        source_words = split(source)
        target_words = split(target)
        source_vectors = _matrix(source_words, source_table, size)  # [S, D]
        target_vectors = _matrix(target_words, target_table, size)  # [T, D]
        weights = nearest(source_vectors, target_vectors)  # [T, S]
        yield AttentionMap(source_words, target_words, {"": weights}, ends=False)
        progress(1)


def alignment_by_counts(
    method: AlignerName,
    units: Units,
    train: Sequence[str],
    sources: Sequence[str],
    targets: Sequence[str],
    progress: ProgressCallback,
) -> Iterator[AttentionMap]:
    """Trains a statistical word aligner on sentence pairs, and returns their alignment weights.

    method: name of the aligner's model
    units: units of the alignment: words or subwords, compared in lower case
    train: additional source and target files to train on; empty for none
    sources, targets, progress: arguments of the type `Attend`
    """
    split = SPLITS[units]
    further = read_aligned(*train) if train else [[], []]
    texts = [[*text, *more] for text, more in zip((sources, targets), further, strict=True)]
    words = [[split(line.lower()) for line in text] for text in texts]
    with repeating(1.0, partial(progress, 0)):  # a display during the training
        weights = WordAligner(*words, method=method).weights()
    for source, target, table in zip(sources, targets, weights, strict=False):
        yield AttentionMap(split(source), split(target), {"": table}, ends=False)
        progress(1)


def _forms(lines: Sequence[str], split: Callable[[str], list[str]]) -> set[str]:
    """Returns the set of words in the lines, as written and in lower case."""
    words = {word for line in lines for word in split(line)}
    # Files of word vectors often contain lower-case words only.
    return words | {word.lower() for word in words}


def _matrix(words: Sequence[str], vectors: Mapping[str, np.ndarray], size: int) -> np.ndarray:
    """Returns the vectors of the given words, [words, size], with zeros for words without a
    vector."""
    zeros = np.zeros(size, np.float32)
    rows = [vectors.get(word, vectors.get(word.lower(), zeros)) for word in words]
    return np.array(rows).reshape(-1, size)
