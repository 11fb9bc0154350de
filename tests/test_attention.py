"""Every score against a loop written from its equation; what holds for any score."""

import math

import pytest
import torch
from builders import batch, choices, compose, network

from nmt import components
from nmt.foundation.interfaces import Encoded, Prepared
from nmt.model.attention import Score, check_score
from nmt.model.attention.layer import Attention, sums
from nmt.model.attention.multi_head import MultiHead

SCORES = [name for name in choices("attention") if name != "none"]
B, T, S, SIZE = 2, 3, 4, 6


def attention(name: str) -> Attention:
    config = compose(f"attention={name}")
    if "size" in config["attention"]:
        config["attention"]["size"] = 5
    return Attention(
        components.make(config, "attention", query_size=SIZE, memory_size=SIZE)
    ).double()


def memory_for(model: Attention, values=None) -> Prepared:
    values = torch.randn(B, S, SIZE, dtype=torch.float64) if values is None else values
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    return model.prepare(Encoded(values=values, mask=mask, final_state=values[:, 0]))


@torch.no_grad()
def paper(name: str, score, q: torch.Tensor, h: torch.Tensor) -> float:
    """The score of one query and one annotation, from the paper's equation."""
    if name == "concat":  # v' tanh(W q + U h + b)
        w, u, b = score.query_layer.weight, score.key_layer.weight, score.key_layer.bias
        return sum(
            float(score.v[k]) * math.tanh(float(w[k] @ q + u[k] @ h + b[k]))
            for k in range(len(score.v))
        )
    if name == "general":  # q' W h
        w = score.key_layer.weight
        return sum(float(q[i] * w[i, j] * h[j]) for i in range(SIZE) for j in range(SIZE))
    dot = sum(float(q[i] * h[i]) for i in range(SIZE))
    return {"dot": dot, "scaled_dot": dot / math.sqrt(SIZE)}[name]


@pytest.mark.parametrize("name", ["concat", "general", "dot", "scaled_dot"])
def test_score_equals_its_equation(name):
    model = attention(name)
    query = torch.randn(B, T, SIZE, dtype=torch.float64)
    memory = memory_for(model)
    scores = model.score(model.project(query), memory.keys)
    for b in range(B):
        for t in range(T):
            for s in range(S):
                truth = paper(name, model.score, query[b, t], memory.values[b, s])
                assert scores[b, t, s].item() == pytest.approx(truth, abs=1e-10)


@pytest.mark.parametrize("name", SCORES)
def test_rows_of_a_beam_share_the_memory(name):
    """Three rows a sentence give what three copies of the memory would."""
    model = attention(name)
    memory = memory_for(model)
    query = model.project(torch.randn(3 * B, T, SIZE, dtype=torch.float64))
    rows = torch.arange(B).repeat_interleave(3)
    copy = memory.select(rows)
    shared, _ = model.attend(query, memory, model.initial_attention_state(memory, 3 * B))
    copied, _ = model.attend(query, copy, model.initial_attention_state(copy, 3 * B))
    torch.testing.assert_close(shared, copied)
    torch.testing.assert_close(sums(shared, memory.values, memory), sums(copied, copy.values, copy))


@pytest.mark.parametrize("name", ["concat", "normed_concat", "coverage"])
def test_vectors_start_as_short_as_their_size_asks(name):
    """Uniform within ± 1 / √size, so a sum over all hidden units has the same variance whatever their number."""
    for key, parameter in attention(name).score.named_parameters():
        if key in ("v", "coverage"):
            vector = parameter.detach()
            limit = len(vector) ** -0.5
            assert limit / 8 < vector.max() <= limit
            assert limit / 8 < -vector.min() <= limit


class Transposed(Score):
    def forward(self, query, keys, *_):
        return torch.bmm(keys, query.transpose(1, 2))  # [B, S, T]


class Several(Score):
    def forward(self, query, keys, *_):
        return query, keys


class Halved(Score):
    def keys(self, values):
        return values[..., ::2]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            Transposed,
            r"attention=Transposed: `forward` returned scores of shape \[2, 4, 3\].*\[2, 3, 4\]",
        ),
        (Several, r"attention=Several: `forward` returned scores of shape tuple, expected"),
        (Halved, "attention=Halved: a test of the score function with a tiny example failed"),
    ],
)
def test_scores_of_plugins_with_wrong_shapes_are_named(kind, message):
    with pytest.raises(ValueError, match=message):
        check_score(kind(), query_size=6, memory_size=6)
    check_score(Score(), query_size=6, memory_size=6)


def test_sizes_that_dot_cannot_use_are_refused_with_a_remedy():
    from nmt.model.attention.dot import Dot

    with pytest.raises(ValueError, match=r"decoder.hidden_size=8.*attention=general"):
        Dot(query_size=6, memory_size=8)


def test_the_projections_of_heads_have_no_bias():
    """Vaswani et al. 2017, section 3.2.2: W^Q, W^K, W^V and W^O."""
    names = {name for name, _ in MultiHead(query_size=8, memory_size=6, heads=2).named_parameters()}
    assert names == {f"{key}_layer.weight" for key in ("query", "key", "value", "output")}


@pytest.mark.parametrize("decoder", ["bahdanau", "conditional", "luong", "luong_feed"])
@pytest.mark.parametrize("heads", [1, 2])
def test_the_lexical_model_attends_with_the_mean_of_the_heads(decoder, heads):
    """f_t = tanh Σ_s α_ts e_s (Nguyen & Chiang 2018), in training and in a search."""
    model = network(decoder, "multi_head", f"attention.heads={heads}", "model.lexical=true")
    output, memory = model.teacher_forcing(batch())
    attended = torch.tanh(output.weights @ memory.source_words.vectors)
    expected = torch.tanh(model.lexical.hidden(attended)) + attended
    torch.testing.assert_close(model.lexical(output.weights, memory), expected)
