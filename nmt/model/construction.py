"""Construction of a translation model from its parts, with matching sizes."""

from collections.abc import Callable, Mapping
from typing import Any

from nmt.model.attention import Attention, check_unused
from nmt.model.encoder.multi_source import MultiSource
from nmt.model.seq2seq import Seq2Seq
from nmt.tokenizer.columns import Columns

Make = Callable[..., Any]
"""A function that builds a part from the name of its group, and from arguments that are not
keys."""


def translation_model(
    make: Make,
    config: Mapping[str, Any],
    source_vocabulary: int,
    target_vocabulary: int,
    columns: Columns,
) -> Seq2Seq:
    """Builds a translation model with initial weights.

    make: function that builds a part
    config: configuration of all parts, without errors
    source_vocabulary: number of source pieces
    target_vocabulary: number of target pieces
    columns: columns of a source line

    Raises ValueError if the parts do not fit together.
    """
    embedding_size = config["model"]["embedding_size"]
    factors = len(columns.factors) * config["model"].get("factor_size", 32)
    encoders = [
        make("encoder", embedding_size=embedding_size + factors)
        for _ in range(max(1, columns.sources))
    ]
    encoder = encoders[0] if len(encoders) == 1 else MultiSource(encoders)
    decoder = make(
        "decoder",
        attention=_attention(make, config, encoder.memory_size),
        embedding_size=embedding_size,
        memory_size=encoder.memory_size,
    )
    return make(
        "model",
        encoder=encoder,
        decoder=decoder,
        source_vocabulary=source_vocabulary,
        target_vocabulary=target_vocabulary,
        radices=columns.radices,
    )


def _attention(make: Make, config: Mapping[str, Any], memory_size: int) -> Attention | None:
    """The attention of a decoder, from its score, window and normaliser; None without a score."""
    query_size = config["decoder"]["hidden_size"]
    score = None
    if "_target_" in config["attention"]:  # before the window, to keep the order of random numbers
        score = make("attention", query_size=query_size, memory_size=memory_size)
    window = make("window", query_size=query_size) if config.get("window") else None
    normalizer = make("normalizer") if config.get("normalizer") else None
    if score is None:
        check_unused(window, normalizer)
        return None
    return Attention(score, window, normalizer)
