"""Interfaces of components (protocols), and the data classes that components exchange.

The data classes are frozen, and their tensors are batch-first. Annotations state the shapes of
tensors. Masks are Boolean; True marks a real token.

Dimensions: B sentences, S source length, T target length, V vocabulary, E embedding, Q query
(decoder state), M memory, K key, H heads, G projected value, D readout, N search rows (B x beam
width). W is the number of source words, P of image positions, C of channels, L of labels.

Modules in reading order: training_values, model_values, search_interface, tensors.
"""

from nmt.foundation.interfaces.model_values import (
    DecoderOutput,
    Encoded,
    Layout,
    Prepared,
    SourceWords,
    State,
    gather_rows,
    scatter_rows,
    sentences_of_rows,
)
from nmt.foundation.interfaces.search_interface import (
    Forbidden,
    Hypothesis,
    Prediction,
    RankedPrediction,
    Request,
    Reranker,
    Search,
    SearchState,
    Step,
)
from nmt.foundation.interfaces.tensors import map_tensors, to_device, to_host
from nmt.foundation.interfaces.training_values import (
    BOS,
    EOS,
    PAD,
    UNK,
    Batch,
    Batches,
    Candidate,
    CandidateGenerator,
    Loss,
    Pictures,
    TextBatch,
    TrainingBatch,
    padded_sources,
)

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "Batch",
    "Batches",
    "Candidate",
    "CandidateGenerator",
    "DecoderOutput",
    "Encoded",
    "Forbidden",
    "Hypothesis",
    "Layout",
    "Loss",
    "Pictures",
    "Prediction",
    "Prepared",
    "RankedPrediction",
    "Request",
    "Reranker",
    "Search",
    "SearchState",
    "SourceWords",
    "State",
    "Step",
    "TextBatch",
    "TrainingBatch",
    "gather_rows",
    "map_tensors",
    "padded_sources",
    "scatter_rows",
    "sentences_of_rows",
    "to_device",
    "to_host",
]
