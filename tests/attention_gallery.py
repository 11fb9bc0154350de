"""Attention code with one mistake each, as tutorials and answers in forums have it, and correct code in many conventions.

All code is written for this file. `BROKEN` names the laws that each example breaks; `CORRECT` are examples without mistakes.
"""

import math

import torch
from torch import nn
from torch.nn.functional import softmax


def correct_dot(query, keys, values, mask):
    scores = torch.bmm(keys, query.unsqueeze(2)).squeeze(2)
    weights = softmax(scores.masked_fill(~mask, -math.inf), dim=1)
    return torch.bmm(weights.unsqueeze(1), values).squeeze(1), weights


def time_first_product(hidden, encoder_outputs, mask):
    """hidden [1, B, H] and encoder_outputs [S, B, H] also broadcast if the batch comes first."""
    scores = torch.sum(hidden * encoder_outputs, dim=2).t()
    return scores.masked_fill(~mask, -1e9).softmax(1)


def no_mask(hidden, encoder_outputs):
    """The attention of most first tutorials."""
    return softmax((encoder_outputs * hidden.unsqueeze(1)).sum(2), dim=1)


def masked_after_softmax(query, keys, mask):
    weights = softmax(torch.einsum("bp,bsp->bs", query, keys), dim=-1)
    return weights * mask


def masked_by_zero(query, keys, mask):
    """exp(0) is 1: a score of 0 is no mask."""
    return softmax(torch.einsum("bp,bsp->bs", query, keys) * mask, dim=-1)


def masked_by_a_small_number(query, keys, mask):
    return softmax(torch.einsum("bp,bsp->bs", query, keys).masked_fill(~mask, -10.0), dim=-1)


def epsilon_after_normalising(query, keys, mask):
    weights = softmax(torch.einsum("bp,bsp->bs", query, keys).masked_fill(~mask, -math.inf), dim=-1)
    return weights / (weights.sum(1, keepdim=True) + 1e-6)


def softmax_over_the_batch(query, keys):
    return softmax(torch.einsum("bp,bsp->bs", query, keys), dim=0)


def scores_without_softmax(query, keys, mask):
    return torch.einsum("bp,bsp->bs", query, keys).masked_fill(~mask, 0.0)


def exp_without_the_largest(query, keys, mask):
    powers = torch.einsum("bp,bsp->bs", query, keys).exp() * mask
    return powers / powers.sum(1, keepdim=True)


def detached_query(decoder_hidden, encoder_outputs, mask):
    scores = torch.einsum("bp,bsp->bs", decoder_hidden.detach(), encoder_outputs)
    return softmax(scores.masked_fill(~mask, -math.inf), dim=-1)


def context_of_the_scores(query, keys, values, mask):
    scores = torch.einsum("bp,bsp->bs", query, keys)
    weights = softmax(scores.masked_fill(~mask, -math.inf), dim=-1)
    return torch.einsum("bs,bsm->bm", scores * mask, values), weights


def view_for_transpose(query, keys, mask):
    """[B, S, M] seen as [S, B, M] by view: words of all sentences in a heap."""
    keys = keys.contiguous().view(keys.size(1), keys.size(0), -1)
    scores = (keys * query).sum(2).transpose(0, 1)
    return softmax(scores.masked_fill(~mask, -math.inf), dim=1)


class LinearScore(nn.Module):
    """score = v·[q; k] without a nonlinearity: the query cancels."""

    def __init__(self, query_size, key_size):
        super().__init__()
        self.score = nn.Linear(query_size + key_size, 1)

    def forward(self, query, keys, mask):
        both = torch.cat([query.unsqueeze(1).expand(-1, keys.size(1), -1), keys], 2)
        return softmax(self.score(both).squeeze(2).masked_fill(~mask, -math.inf), dim=1)


class TanhOnTheScore(nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.general = nn.Linear(hidden_size, hidden_size, bias=False)

    def forward(self, query, keys, mask):
        scores = torch.tanh(torch.einsum("bp,bsp->bs", self.general(query), keys))
        return softmax(scores.masked_fill(~mask, -math.inf), dim=1)


class WeightPerPosition(nn.Module):
    """A layer with one output per position, computed from the decoder alone: it cannot see the words."""

    def __init__(self, hidden_size, max_length):
        super().__init__()
        self.attention = nn.Linear(hidden_size, max_length)

    def forward(self, hidden, encoder_outputs, mask):
        scores = self.attention(hidden)[:, : encoder_outputs.size(1)]
        return softmax(scores.masked_fill(~mask, -math.inf), dim=1)


class BiasPerPosition(nn.Module):
    def __init__(self, max_length):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(max_length))

    def forward(self, query, keys, mask):
        scores = torch.einsum("bp,bsp->bs", query, keys) + self.bias[: keys.size(1)]
        return softmax(scores.masked_fill(~mask, -math.inf), dim=1)


class SqueezeWithoutDimension(nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.layer = nn.Linear(2 * hidden_size, hidden_size)
        self.v = nn.Linear(hidden_size, 1, bias=False)

    def forward(self, query, keys, mask):
        both = torch.cat([query.unsqueeze(1).expand(-1, keys.size(1), -1), keys], 2)
        scores = self.v(torch.tanh(self.layer(both))).squeeze()
        return softmax(scores.masked_fill(~mask, -math.inf), dim=1)


class Additive(nn.Module):
    """Bahdanau's score with a bidirectional encoder, time first, and a mask that is 0 for padding."""

    def __init__(self, enc_hid_dim, dec_hid_dim):
        super().__init__()
        self.layer = nn.Linear(2 * enc_hid_dim + dec_hid_dim, dec_hid_dim)
        self.v = nn.Linear(dec_hid_dim, 1, bias=False)

    def forward(self, hidden, encoder_outputs, mask):
        encoder_outputs = encoder_outputs.permute(1, 0, 2)
        hidden = hidden.unsqueeze(1).repeat(1, encoder_outputs.size(1), 1)
        energy = torch.tanh(self.layer(torch.cat((hidden, encoder_outputs), dim=2)))
        scores = self.v(energy).squeeze(2).masked_fill(mask == 0, -math.inf)
        return softmax(scores, dim=1)


class WithLengths(nn.Module):
    """General score over a memory bank with lengths; the query is called source."""

    def __init__(self, dim):
        super().__init__()
        self.linear_in = nn.Linear(dim, dim, bias=False)
        self.linear_out = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, source, memory_bank, memory_lengths):
        scores = torch.bmm(self.linear_in(source).unsqueeze(1), memory_bank.transpose(1, 2))
        positions = torch.arange(memory_bank.size(1))
        padding = positions >= memory_lengths.unsqueeze(1)
        weights = softmax(scores.masked_fill(padding.unsqueeze(1), -math.inf), dim=-1)
        context = torch.bmm(weights, memory_bank)
        output = torch.tanh(self.linear_out(torch.cat([context, source.unsqueeze(1)], 2)))
        return output.squeeze(1), weights.squeeze(1)


class PaddingMask(nn.Module):
    """Projected query, memory time first, a mask that is true for padding and time first."""

    def __init__(self, input_embed_dim, source_embed_dim):
        super().__init__()
        self.input_proj = nn.Linear(input_embed_dim, source_embed_dim, bias=False)

    def forward(self, input, source_hids, encoder_padding_mask):
        scores = (source_hids * self.input_proj(input).unsqueeze(0)).sum(dim=2)
        weights = softmax(scores.masked_fill(encoder_padding_mask, -math.inf), dim=0)
        return (weights.unsqueeze(2) * source_hids).sum(dim=0), weights


class ScaledHeads(nn.Module):
    """PyTorch's own attention of one head, by its own names."""

    def __init__(self, embed_dim):
        super().__init__()
        self.attention = nn.MultiheadAttention(embed_dim, 1, batch_first=True)

    def forward(self, query, key, value, key_padding_mask):
        return self.attention(query, key, value, key_padding_mask=key_padding_mask)


class DecoderStep(nn.Module):
    """A step of a decoder with embeddings, a GRU and Bahdanau's attention."""

    def __init__(self, hidden_size, output_size):
        super().__init__()
        self.embedding = nn.Embedding(output_size, hidden_size)
        self.query_layer = nn.Linear(hidden_size, hidden_size)
        self.key_layer = nn.Linear(hidden_size, hidden_size)
        self.v = nn.Linear(hidden_size, 1)
        self.gru = nn.GRU(2 * hidden_size, hidden_size, batch_first=True)
        self.out = nn.Linear(hidden_size, output_size)

    def forward(self, input, hidden, encoder_outputs, src_mask):
        query = self.query_layer(hidden.transpose(0, 1))
        scores = self.v(torch.tanh(query + self.key_layer(encoder_outputs))).transpose(1, 2)
        weights = softmax(scores.masked_fill(~src_mask.unsqueeze(1), -math.inf), dim=-1)
        context = torch.bmm(weights, encoder_outputs)
        output, hidden = self.gru(torch.cat([self.embedding(input), context], 2), hidden)
        return self.out(output), hidden, weights


class DecoderWithoutMask(DecoderStep):
    """A decoder step of tutorials that pad and do not mask."""

    def forward(self, input, hidden, encoder_outputs):
        everything = torch.ones(encoder_outputs.shape[:2], dtype=torch.bool)
        return super().forward(input, hidden, encoder_outputs, everything)


class LoopingDecoder(DecoderWithoutMask):
    """A decoder that writes ten words on its own, from the last state of the encoder."""

    def forward(self, encoder_outputs, encoder_hidden, target_tensor=None):
        tokens = torch.zeros(len(encoder_outputs), 1, dtype=torch.long)
        hidden = encoder_hidden
        attentions = []
        for _ in range(10):
            logits, hidden, weights = super().forward(tokens, hidden, encoder_outputs)
            tokens = logits.argmax(2)
            attentions.append(weights)
        return logits, hidden, torch.cat(attentions, dim=1)


UNMASKED = ["padding gets no weight", "the content of padding has no influence"]
BROKEN = {
    no_mask: UNMASKED,
    masked_after_softmax: ["weights are a distribution", "the content of padding has no influence"],
    masked_by_zero: ["padding gets no weight"],
    masked_by_a_small_number: ["padding gets no weight"],
    epsilon_after_normalising: ["weights are a distribution"],
    softmax_over_the_batch: [
        "weights are a distribution",
        *UNMASKED,
        "sentences do not influence each other",
    ],
    scores_without_softmax: ["weights are a distribution"],
    exp_without_the_largest: [
        "the content of padding has no influence",
        "one word can get all weight",
    ],
    detached_query: ["gradients reach query and memory"],
    context_of_the_scores: ["the context is the weighted sum"],
    view_for_transpose: [
        "the content of padding has no influence",
        "sentences do not influence each other",
    ],
    LinearScore: ["the query has an influence"],
    TanhOnTheScore: ["one word can get all weight"],
    WeightPerPosition: ["weights move with the words", "gradients reach query and memory"],
    BiasPerPosition: ["weights move with the words"],
    SqueezeWithoutDimension: ["all sizes can be computed"],
    DecoderWithoutMask: UNMASKED,
    LoopingDecoder: UNMASKED,
}
"""Laws that each example breaks."""
CORRECT = (
    correct_dot,
    time_first_product,
    Additive,
    WithLengths,
    PaddingMask,
    ScaledHeads,
    DecoderStep,
)
"""Examples that keep all laws."""
