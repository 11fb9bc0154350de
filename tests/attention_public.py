"""Attention of public tutorials and toolkits, as minimal examples: their equations, argument orders and masks in code of our own.

Each docstring names the origin that was read and the equation. `VERDICTS` are the laws that each example breaks, checked by hand;
scripts/results/attention_checks.md has the links and explains the verdicts.
"""

import math

import torch
from torch import nn
from torch.nn.functional import log_softmax, softmax


class PyTorchTutorialDecoder(nn.Module):
    """PyTorch, seq2seq translation tutorial (AttnDecoderRNN): α = softmax(W [y; s]), one output per position; one sentence."""

    def __init__(self, hidden_size, output_size, dropout_p=0.1, max_length=10):
        super().__init__()
        self.embedding = nn.Embedding(output_size, hidden_size)
        self.positions = nn.Linear(2 * hidden_size, max_length)
        self.combine = nn.Linear(2 * hidden_size, hidden_size)
        self.dropout = nn.Dropout(dropout_p)
        self.gru = nn.GRU(hidden_size, hidden_size)
        self.words = nn.Linear(hidden_size, output_size)

    def forward(self, input, hidden, encoder_outputs):
        word = self.dropout(self.embedding(input)).view(1, -1)
        weights = softmax(self.positions(torch.cat([word, hidden[0]], 1)), dim=1)
        context = weights.unsqueeze(0).bmm(encoder_outputs.unsqueeze(0))[0]
        step = torch.relu(self.combine(torch.cat([word, context], 1)))
        output, hidden = self.gru(step.unsqueeze(0), hidden)
        return log_softmax(self.words(output[0]), dim=1), hidden, weights


class PracticalPyTorchConcat(nn.Module):
    """spro/practical-pytorch, batched seq2seq notebook (Attn, concat): score = v·W [s; h], without tanh; time first."""

    def __init__(self, hidden_size):
        super().__init__()
        self.both = nn.Linear(2 * hidden_size, hidden_size)
        self.v = nn.Parameter(torch.randn(hidden_size))

    def forward(self, hidden, encoder_outputs):
        queries = torch.stack([hidden[0, b] for b in range(encoder_outputs.size(1))])
        pairs = torch.cat([queries.expand_as(encoder_outputs), encoder_outputs], 2)
        return softmax((self.both(pairs) @ self.v).t(), dim=1).unsqueeze(1)


class BentrevettAttention(nn.Module):
    """bentrevett/pytorch-seq2seq, tutorial 4: score = v·tanh(W [s; h]), padding gets −1e10; memory time first, mask batch first."""

    def __init__(self, enc_hid_dim, dec_hid_dim):
        super().__init__()
        self.energy = nn.Linear(2 * enc_hid_dim + dec_hid_dim, dec_hid_dim)
        self.v = nn.Linear(dec_hid_dim, 1, bias=False)

    def forward(self, hidden, encoder_outputs, mask):
        states = encoder_outputs.transpose(0, 1)
        queries = hidden.unsqueeze(1).expand(-1, states.size(1), -1)
        scores = self.v(torch.tanh(self.energy(torch.cat([queries, states], 2)))).squeeze(2)
        return softmax(scores.masked_fill(mask == 0, -1e10), dim=1)


class FairseqAttention(nn.Module):
    """facebookresearch/fairseq, lstm.py (AttentionLayer): score = (W s)·h, masked in float32; memory and padding mask time first."""

    def __init__(self, input_embed_dim, source_embed_dim, output_embed_dim):
        super().__init__()
        self.query = nn.Linear(input_embed_dim, source_embed_dim, bias=False)
        self.output = nn.Linear(input_embed_dim + source_embed_dim, output_embed_dim, bias=False)

    def forward(self, input, source_hids, encoder_padding_mask):
        scores = torch.einsum("sbd,bd->sb", source_hids, self.query(input))
        masked = scores.float().masked_fill(encoder_padding_mask, -math.inf)
        weights = softmax(masked.type_as(scores), dim=0)
        context = torch.einsum("sb,sbd->bd", weights, source_hids)
        return torch.tanh(self.output(torch.cat([context, input], 1))), weights


class OpenNMTAttention(nn.Module):
    """OpenNMT/OpenNMT-py, GlobalAttention (mlp): score = v·tanh(W s + U h), masked by lengths; the query is called source."""

    def __init__(self, dim, coverage=False):
        super().__init__()
        self.query = nn.Linear(dim, dim)
        self.context = nn.Linear(dim, dim, bias=False)
        self.v = nn.Linear(dim, 1, bias=False)
        self.output = nn.Linear(2 * dim, dim)

    def forward(self, source, memory_bank, src_len=None, coverage=None):
        energy = torch.tanh(self.query(source).unsqueeze(1) + self.context(memory_bank))
        scores = self.v(energy).squeeze(2)
        if src_len is not None:
            padding = torch.arange(scores.size(1)) >= src_len.unsqueeze(1)
            scores = scores.masked_fill(padding, -math.inf)
        weights = softmax(scores, dim=1)
        context = weights.unsqueeze(1).bmm(memory_bank).squeeze(1)
        return self.output(torch.cat([context, source], 1)), weights


class JoeyNMTAttention(nn.Module):
    """joeynmt/joeynmt, BahdanauAttention: score = v·tanh(W s + U h), padding gets −∞; U h must be computed before the call."""

    def __init__(self, hidden_size=1, key_size=1, query_size=1):
        super().__init__()
        self.key_layer = nn.Linear(key_size, hidden_size, bias=False)
        self.query_layer = nn.Linear(query_size, hidden_size, bias=False)
        self.energy_layer = nn.Linear(hidden_size, 1, bias=False)
        self.proj_keys = None

    def compute_proj_keys(self, keys):
        self.proj_keys = self.key_layer(keys)

    def forward(self, query, mask, values):
        assert self.proj_keys is not None, "keys must be projected before the call"
        assert query.shape[1] == mask.shape[1] == 1
        scores = self.energy_layer(torch.tanh(self.query_layer(query) + self.proj_keys))
        scores = scores.transpose(1, 2).masked_fill(mask == 0, -math.inf)
        weights = softmax(scores, dim=-1)
        return weights @ values, weights


class JoeyNMTStep(nn.Module):
    """JoeyNMTAttention with its first half: three lines make it one call."""

    def __init__(self, hidden_size):
        super().__init__()
        self.attention = JoeyNMTAttention(hidden_size, hidden_size, hidden_size)

    def forward(self, query, mask, values):
        self.attention.compute_proj_keys(values)
        return self.attention(query, mask, values)


class AllenNLPAttention(nn.Module):
    """allenai/allennlp, AdditiveAttention and masked_softmax: p = softmax(scores · mask) · mask, α = p / (Σ p + 1e-13)."""

    def __init__(self, vector_dim, matrix_dim):
        super().__init__()
        self.w = nn.Linear(vector_dim, vector_dim, bias=False)
        self.u = nn.Linear(matrix_dim, vector_dim, bias=False)
        self.v = nn.Linear(vector_dim, 1, bias=False)

    def forward(self, vector, matrix, matrix_mask=None):
        scores = self.v(torch.tanh(self.w(vector).unsqueeze(1) + self.u(matrix))).squeeze(2)
        if matrix_mask is None:
            return softmax(scores, dim=-1)
        powers = softmax(scores * matrix_mask, dim=-1) * matrix_mask
        return powers / (powers.sum(-1, keepdim=True) + 1e-13)


class DiveIntoDeepLearningAttention(nn.Module):
    """d2l.ai, AdditiveAttention: score = v·tanh(W s + U h), padding gets −1e6; returns the context and keeps the weights."""

    def __init__(self, num_hiddens, dropout, **kwargs):
        super().__init__(**kwargs)
        self.w_k = nn.LazyLinear(num_hiddens, bias=False)
        self.w_q = nn.LazyLinear(num_hiddens, bias=False)
        self.w_v = nn.LazyLinear(1, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens):
        features = torch.tanh(self.w_q(queries).unsqueeze(2) + self.w_k(keys).unsqueeze(1))
        scores = self.w_v(features).squeeze(-1)
        padding = torch.arange(scores.size(-1)) >= valid_lens.view(-1, 1, 1)
        self.attention_weights = softmax(scores.masked_fill(padding, -1e6), dim=-1)
        return self.dropout(self.attention_weights).bmm(values)


class AnnotatedEncoderDecoderAttention(nn.Module):
    """The Annotated Encoder-Decoder, an earlier version: padding is where `mask & 0`, and that is nowhere; keys are projected outside."""

    def __init__(self, hidden_size, key_size=None, query_size=None):
        super().__init__()
        self.key_layer = nn.Linear(key_size or 2 * hidden_size, hidden_size, bias=False)
        self.query_layer = nn.Linear(query_size or hidden_size, hidden_size, bias=False)
        self.energy_layer = nn.Linear(hidden_size, 1, bias=False)

    def is_padding(self, mask):
        return (mask & 0).bool()

    def forward(self, query=None, proj_key=None, value=None, mask=None):
        assert mask is not None
        energy = torch.tanh(self.query_layer(query) + proj_key)
        scores = self.energy_layer(energy).transpose(1, 2)
        weights = softmax(scores.masked_fill(self.is_padding(mask), -math.inf), dim=-1)
        return weights.bmm(value), weights


class RepairedAnnotatedEncoderDecoderAttention(AnnotatedEncoderDecoderAttention):
    """The Annotated Encoder-Decoder, later version: padding is where `mask == 0`."""

    def is_padding(self, mask):
        return mask == 0


class ESPnetLocationAttention(nn.Module):
    """espnet/espnet, AttLoc: score = v·tanh(W s + U h + V (F ∗ α of the step before)); keeps U h and mask until reset()."""

    def __init__(self, eprojs, dunits, att_dim, aconv_chans, aconv_filts):
        super().__init__()
        self.encoder = nn.Linear(eprojs, att_dim)
        self.decoder = nn.Linear(dunits, att_dim, bias=False)
        self.location = nn.Linear(aconv_chans, att_dim, bias=False)
        width = 2 * aconv_filts + 1
        self.convolution = nn.Conv1d(1, aconv_chans, width, padding=aconv_filts, bias=False)
        self.v = nn.Linear(att_dim, 1)
        self.reset()

    def reset(self):
        self.keys = None
        self.padding = None

    def forward(self, enc_hs_pad, enc_hs_len, dec_z, att_prev, scaling=2.0):
        if self.keys is None:
            self.memory = enc_hs_pad
            self.keys = self.encoder(enc_hs_pad)
            self.padding = torch.arange(enc_hs_pad.size(1)) >= enc_hs_len.unsqueeze(1)
        if att_prev is None:
            att_prev = (~self.padding).to(dec_z.dtype) / enc_hs_len.unsqueeze(1)
        features = self.convolution(att_prev.unsqueeze(1)).transpose(1, 2)
        query = self.decoder(dec_z).unsqueeze(1)
        scores = self.v(torch.tanh(self.location(features) + self.keys + query)).squeeze(2)
        weights = softmax(scaling * scores.masked_fill(self.padding, -math.inf), dim=1)
        return weights.unsqueeze(1).bmm(self.memory).squeeze(1), weights


class IBMAttention(nn.Module):
    """IBM/pytorch-seq2seq, Attention: score = s·h, context and query by tanh(W [c; s]); the mask is set by another method."""

    def __init__(self, dim):
        super().__init__()
        self.linear_out = nn.Linear(2 * dim, dim)
        self.mask = None

    def set_mask(self, mask):
        self.mask = mask

    def forward(self, output, context):
        scores = output.bmm(context.transpose(1, 2))
        if self.mask is not None:
            scores = scores.masked_fill(self.mask, -math.inf)
        weights = softmax(scores, dim=-1)
        mix = weights.bmm(context)
        return torch.tanh(self.linear_out(torch.cat([mix, output], 2))), weights


class Tacotron2Attention(nn.Module):
    """NVIDIA/tacotron2, Attention: location-sensitive, previous and summed weights as two channels; the keys come from outside."""

    def __init__(self, attention_rnn_dim, embedding_dim, attention_dim, location_n_filters=4):
        super().__init__()
        self.query_layer = nn.Linear(attention_rnn_dim, attention_dim, bias=False)
        self.memory_layer = nn.Linear(embedding_dim, attention_dim, bias=False)
        self.convolution = nn.Conv1d(2, location_n_filters, 3, padding=1, bias=False)
        self.location = nn.Linear(location_n_filters, attention_dim, bias=False)
        self.v = nn.Linear(attention_dim, 1, bias=False)

    def forward(
        self, attention_hidden_state, memory, processed_memory, attention_weights_cat, mask
    ):
        location = self.location(self.convolution(attention_weights_cat).transpose(1, 2))
        query = self.query_layer(attention_hidden_state).unsqueeze(1)
        scores = self.v(torch.tanh(query + location + processed_memory)).squeeze(2)
        weights = softmax(scores.masked_fill(mask, -math.inf), dim=1)
        return weights.unsqueeze(1).bmm(memory).squeeze(1), weights


UNMASKED = ["padding gets no weight", "the content of padding has no influence"]
VERDICTS = {
    PyTorchTutorialDecoder: [
        "weights move with the words",
        "all sizes can be computed",
        "gradients reach query and memory",
    ],
    PracticalPyTorchConcat: [*UNMASKED, "the query has an influence"],
    BentrevettAttention: [],
    FairseqAttention: [],
    OpenNMTAttention: [],
    JoeyNMTStep: [],
    AllenNLPAttention: ["weights are a distribution"],
    DiveIntoDeepLearningAttention: [],
    AnnotatedEncoderDecoderAttention: UNMASKED,
    RepairedAnnotatedEncoderDecoderAttention: [],
    ESPnetLocationAttention: ["weights move with the words"],
    IBMAttention: UNMASKED,
    Tacotron2Attention: ["weights move with the words"],
}
"""Laws that each example breaks."""
