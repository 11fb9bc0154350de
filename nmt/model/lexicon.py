"""A translation lexicon in the output layer (Arthur et al. 2016, sections 3 and 4).

The lexicon contains p_lex(y | x), the probability that source token x is translated by target token
y. The attention weights α_ts select the entries of the source tokens x_s in decoder step t:

    p_lex,t(y) = Σ_s α_ts p_lex(y | x_s)

The lexicon changes the distribution of the next token in one of two ways:

    bias       p_t(y) = softmax(logits_t + log(p_lex,t + ε))_y
    mixture    p_t(y) = g_t softmax(logits_t)_y + (1 − g_t) p_lex,t(y)    g_t = σ(w · readout_t + b)

The paper's mixture has one learnt coefficient, initially 1/2, instead of the gate g_t, whose initial
value is about 0.88.

The lexicon is estimated before training (nmt/data/lexicon_estimation.py) and has no gradient. Each
source token has at most k entries. Therefore only the candidates of a sentence, the C target tokens
with an entry for one of its source tokens, have p_lex,t > 0. A constant bias of all tokens does not
change the distribution. The bias is therefore computed without log ε, as log(p_lex,t / ε + 1), and
is 0 for all tokens except the candidates. The entries of a source token may sum to less than 1, or
be missing; the probabilities of the mixture then also sum to less than 1.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nmt.foundation.interfaces import (
    DecoderOutput,
    Layout,
    Prepared,
    gather_rows,
    scatter_rows,
    sentences_of_rows,
)
from nmt.model.copying import Copying

LexiconUse = Literal["bias", "mixture"]


class Lexicon(nn.Module):
    """Table of a translation lexicon, empty until `fill` is called, and the bias that the lexicon
    adds to the logits.

    source_vocabulary: number of source tokens
    target_vocabulary: number of target tokens
    epsilon: ε of the bias; the smaller ε, the stronger the lexicon
    """

    tokens: Int[Tensor, "U k"]
    probabilities: Float[Tensor, "U k"]
    uncapturable = "the lexicon has another number of candidates in each batch"

    def __init__(self, source_vocabulary: int, target_vocabulary: int, epsilon: float) -> None:
        super().__init__()
        self.target_vocabulary = target_vocabulary
        self.epsilon = epsilon
        empty = torch.zeros(source_vocabulary, 1)
        self.register_buffer("tokens", empty.long(), persistent=False)
        self.register_buffer("probabilities", empty, persistent=False)

    def fill(self, table: Mapping[str, Tensor]) -> None:
        """Replaces the table of the translation lexicon. Source tokens without a row, such as
        tokens that were added to the vocabulary later, have no entries.

        table: tensors `tokens` and `probabilities` [U, k]; a row may end with entries of
            probability 0
        """
        more = (0, 0, 0, len(self.tokens) - len(table["tokens"]))
        self.tokens = nn.functional.pad(table["tokens"].long(), more)
        self.probabilities = nn.functional.pad(table["probabilities"], more)

    def table(self) -> dict[str, Tensor]:
        """Returns the table of the translation lexicon as a mapping with the tensors `tokens` and
        `probabilities`, both [U, k].
        """
        return {"tokens": self.tokens.int(), "probabilities": self.probabilities}

    def best(self, source_token: int) -> int | None:
        """Returns the most probable translation of a source token in the lexicon; None for a token
        without lexicon entries.
        """
        is_known = float(self.probabilities[source_token, 0]) > 0
        return int(self.tokens[source_token, 0]) if is_known else None

    def forward(self, ids: Int[Tensor, "B S"]) -> tuple[Int[Tensor, "B C"], Float[Tensor, "B S C"]]:
        """Returns the candidates of each sentence, i.e. the target tokens with a lexicon entry for
        one of its source tokens, and p_lex(candidate | x_s) for each source token x_s. The lists of
        candidates are padded to equal length with tokens of probability 0.

        ids: source token ids
        """
        rows = torch.arange(len(ids), device=ids.device)  # [B]
        keys = self.tokens[ids] + rows[:, None, None] * self.target_vocabulary  # [B, S, k]
        # The candidates of all sentences, in the order of the sentences: [n] and [B, S, k]
        distinct, places = torch.unique(keys, return_inverse=True)
        sentences = distinct // self.target_vocabulary  # [n]
        counts = torch.bincount(sentences, minlength=len(ids))  # [B]
        starts = counts.cumsum(0) - counts  # [B]
        columns = torch.arange(len(distinct), device=ids.device) - starts[sentences]  # [n]
        candidates = ids.new_zeros(len(ids), int(counts.max()))  # [B, C]
        candidates[sentences, columns] = distinct % self.target_vocabulary
        probabilities = self.probabilities[ids]  # [B, S, k]
        translations = probabilities.new_zeros(*ids.shape, candidates.size(1))  # [B, S, C]
        translations.scatter_add_(2, columns[places], probabilities)
        return candidates, translations

    def bias(
        self, output: DecoderOutput, memory: Prepared, layout: Layout | None = None
    ) -> tuple[Int[Tensor, "N T C"], Float[Tensor, "N T C"]]:
        """Returns the candidates for each batch row and decoder step, i.e. the target tokens with a
        lexicon entry for a source token of the sentence, and the bias of their logits,
        log(p_lex,t / ε + 1). The bias of all other tokens is 0.

        output: output of the decoder, with attention weights
        memory: prepared encoder memory, with the candidates of the lexicon
        layout: beam slot of each row (hypothesis); None if no slot is empty, so row i is in slot i
        """
        # [B, C], [B, n, C]
        candidates, probabilities = candidate_probabilities(output, memory, layout)
        bias = torch.log1p(probabilities / self.epsilon)  # [B, n, C]
        num_rows, steps = output.readout.shape[:2]
        rows = candidates[sentences_of_rows(num_rows, memory, layout)]  # [N, C]
        return rows.unsqueeze(1).expand(-1, steps, -1), gather_rows(bias, steps, layout)


def candidate_probabilities(
    output: DecoderOutput, memory: Prepared, layout: Layout | None = None
) -> tuple[Int[Tensor, "B C"], Float[Tensor, "B n C"]]:
    """Returns the candidates of each sentence, i.e. the target tokens with a lexicon entry for a
    source token of the sentence, and their lexicon probabilities p_lex,t. The lexicon probability
    is computed for n queries per sentence: one for each beam slot and decoder step t.

    output: output of the decoder, with attention weights
    memory: prepared encoder memory, with the candidates of the lexicon
    layout: beam slot of each row (hypothesis); None if no slot is empty, so row i is in slot i
    """
    assert output.weights is not None
    assert memory.source_words is not None
    translations = memory.source_words.translations  # [B, S, C]
    weights = scatter_rows(output.weights, len(translations), layout)  # [B, n, S]
    return memory.source_words.candidates, torch.bmm(weights.to(translations.dtype), translations)


class LexiconMixture(Copying):
    """Mixture of the vocabulary distribution and the lexicon probability p_lex,t, with the gate g_t
    of the copy mechanism.

    readout_size: length of the feature vector from which g_t is computed
    """

    def pointed(
        self, output: DecoderOutput, memory: Prepared, layout: Layout | None
    ) -> tuple[Int[Tensor, "B C"], Float[Tensor, "B n C"]]:
        return candidate_probabilities(output, memory, layout)
