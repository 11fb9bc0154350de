"""Memory of a training step against the sizes: linear where it should be, and never tokens x vocabulary."""

import benchmark
import growth
import pytest


@pytest.fixture(scope="module")
def held():
    """Bytes that the tensors of one step hold at most."""

    def measure(decoder, score, *, sentences=4, source=12, target=12, vocabulary=300, hidden=16):
        sizes = [f"encoder.hidden_size={hidden}", f"decoder.hidden_size={2 * hidden}", "decoder.readout_size=32"]
        run = benchmark.Training([f"decoder={decoder}", f"attention={score}", *sizes], vocabulary, vocabulary)
        batch = growth.random_batch(sentences, source, target, vocabulary)
        run.step(batch, "float32")
        return benchmark.peak_bytes(lambda: run.step(batch, "float32"))

    return measure


@pytest.mark.parametrize(("decoder", "score"), [("luong", "general"), ("bahdanau", "concat")])
@pytest.mark.parametrize("size", ["sentences", "source", "target"])
def test_memory_is_linear_in_each_size(held, decoder, score, size):
    assert held(decoder, score, **{size: 128}) <= 2 * held(decoder, score, **{size: 64})


def test_without_feeding_memory_is_linear_in_both_lengths_together(held):
    once, twice = (held("luong", "general", source=n, target=n) for n in (64, 128))
    assert twice <= 2.2 * once  # 2 but for the weights, one number a pair; 4 if it were quadratic


def test_additive_scores_take_their_numbers_once(held):
    pairs = 8 * 64 * 64 * 32 * 4  # bytes of one [B T S K]
    wide = held("luong", "concat", sentences=8, source=64, target=64)
    narrow = held("luong", "general", sentences=8, source=64, target=64)
    assert wide - narrow < 3.2 * pairs


def test_no_matrix_of_tokens_by_vocabulary(held):
    tokens, vocabulary = 64 * 100, 8000
    grown = held("luong", "general", sentences=64, target=100, vocabulary=vocabulary) - held(
        "luong", "general", sentences=64, target=100, vocabulary=50
    )
    assert grown < 0.3 * tokens * vocabulary * 4
