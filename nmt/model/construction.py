"""Construction of a translation model from a configuration, with matching layer sizes."""

from collections.abc import Callable, Mapping
from typing import Any

from nmt.model.attention import check_score
from nmt.model.attention.layer import Attention, check_unused
from nmt.model.encoder.multi_source import MultiSource
from nmt.model.seq2seq import Seq2Seq
from nmt.tokenizer.columns import Columns

Make = Callable[..., Any]
"""Type of factory functions that build a component of a network. The arguments are the name of a
configuration group, such as "encoder", and keyword arguments that are not configuration keys."""


def translation_model(
    make: Make,
    config: Mapping[str, Any],
    source_vocabulary: int,
    target_vocabulary: int,
    columns: Columns,
) -> Seq2Seq:
    """Builds a translation model with initial weights.

    make: factory function of the components
    config: validated configuration of all components
    source_vocabulary: number of source subwords
    target_vocabulary: number of target subwords
    columns: layout of a line of source data, which has one column per source and per factor

    Raises ValueError if the components do not fit together.
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
    decoder.check_forward()
    return make(
        "model",
        encoder=encoder,
        decoder=decoder,
        source_vocabulary=source_vocabulary,
        target_vocabulary=target_vocabulary,
        radices=columns.radices,
    )


def _attention(make: Make, config: Mapping[str, Any], memory_size: int) -> Attention | None:
    """Builds the attention of a decoder from the configured score, window and normaliser; returns
    None if the configuration has no score."""
    query_size = config["decoder"]["hidden_size"]
    gate_size = query_size if config["decoder"].get("context_gate") else None
    score = None
    if (
        "_target_" in config["attention"]
    ):  # the score is built before the window, which fixes the order of random draws
        score = make("attention", query_size=query_size, memory_size=memory_size)
        check_score(score, query_size, memory_size)
    window = make("window", query_size=query_size) if config.get("window") else None
    normalizer = make("normalizer") if config.get("normalizer") else None
    if score is None:
        check_unused(window, normalizer)
        return None
    return Attention(score, window, normalizer, gate_size)
