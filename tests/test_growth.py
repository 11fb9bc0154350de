"""Memory of a training step against the sizes: linear where it should be, and never tokens x vocabulary."""

import ctypes
import os
import subprocess
import sys

import benchmark
import growth
import pytest

from nmt.training.memory import CACHES, keep_few_products


@pytest.fixture(scope="module")
def held():
    """Bytes that the tensors of one step hold at most."""

    def measure(decoder, score, *, sentences=4, source=12, target=12, vocabulary=300, hidden=16):
        sizes = [
            f"encoder.hidden_size={hidden}",
            f"decoder.hidden_size={2 * hidden}",
            "decoder.readout_size=32",
        ]
        run = benchmark.Training(
            [f"decoder={decoder}", f"attention={score}", *sizes], vocabulary, vocabulary
        )
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


@pytest.mark.exhaustive
def test_no_matrix_of_tokens_by_vocabulary(held):
    tokens, vocabulary = 64 * 100, 8000
    grown = held("luong", "general", sentences=64, target=100, vocabulary=vocabulary) - held(
        "luong", "general", sentences=64, target=100, vocabulary=50
    )
    assert grown < 0.3 * tokens * vocabulary * 4


KEPT = """
import ctypes, os, sys, torch
class Info(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    _fields_ = [(name, ctypes.c_size_t) for name in names]
library = ctypes.CDLL(None)
library.mallinfo2.restype = Info
if sys.argv[1] == "few":
    from nmt.training.memory import keep_few_products
    keep_few_products()
torch.set_num_threads(1)
weight = torch.randn(1500, 256).bfloat16()
def multiply(sizes):
    for rows in sizes:
        torch.nn.functional.linear(torch.randn(rows, 256).bfloat16(), weight)
multiply(range(100, 120))
before = library.mallinfo2()
multiply(range(200, 360))
after = library.mallinfo2()
print((after.uordblks + after.hblkhd - before.uordblks - before.hblkhd) / 2**20)
"""


@pytest.mark.exhaustive
def test_products_of_many_sizes_are_not_all_kept():
    """Megabytes in use after 160 products of different sizes. The bound reduces them to a small part."""
    if not hasattr(ctypes.CDLL(None), "mallinfo2"):
        pytest.skip("the C library does not say what is in use")
    clean = {
        name: value for name, value in os.environ.items() if name not in CACHES
    }  # as earlier tests have not left it

    def kept(how):
        command = [sys.executable, "-c", KEPT, how]
        return float(subprocess.run(command, capture_output=True, check=True, env=clean).stdout)

    usual = kept("all")
    if usual < 12:
        pytest.skip("this torch keeps little by itself")
    assert kept("few") < 0.3 * usual


def test_what_people_have_set_stays(monkeypatch):
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "7")
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    keep_few_products()
    assert (os.environ["LRU_CACHE_CAPACITY"], os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"]) == (
        "7",
        "32",
    )
