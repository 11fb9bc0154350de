"""Checks of attention code: a verdict for each known mistake, none for correct code in other conventions."""

import re

import pytest
from attention_gallery import BROKEN, CORRECT
from builders import choices, compose
from commands import ROOT, run

from nmt import check_attention
from nmt.analysis.attention_laws import LAWS
from nmt.configuration import build
from nmt.model.attention import Attention

GALLERY = ROOT / "tests" / "attention_gallery.py"


@pytest.mark.parametrize("example", BROKEN, ids=lambda example: example.__name__)
def test_each_mistake_is_found_and_nothing_else(example):
    verdict = check_attention(example)
    assert list(verdict.broken) == BROKEN[example], verdict.text
    assert all(
        re.search(r"\d|NaN|fails|gradient|same weights", text) for text in verdict.broken.values()
    )


def test_the_gallery_breaks_every_law():
    assert {law for laws in BROKEN.values() for law in laws} == {*LAWS}


@pytest.mark.parametrize("example", CORRECT, ids=lambda example: example.__name__)
def test_correct_code_keeps_all_laws(example):
    verdict = check_attention(example)
    assert not verdict.broken, verdict.text


@pytest.mark.parametrize("normalizer", choices("normalizer"))
@pytest.mark.parametrize("score", [name for name in choices("attention") if name != "none"])
def test_scores_of_this_package(score, normalizer):
    """Scores that ignore the words break only the laws that they are meant to break."""
    config = compose(
        f"attention={score}",
        f"normalizer={normalizer}",
        "decoder.hidden_size=8",
        "sizes.encoder=4",
    )
    attention = Attention(
        build.make(config, "attention", query_size=8, memory_size=8),
        normalizer=build.make(config, "normalizer"),
    )
    verdict = check_attention(attention)
    by_design = {
        "location": {"weights move with the words", "gradients reach query and memory"},
        "uniform": {
            "the query has an influence",
            "one word can get all weight",
            "gradients reach query and memory",
        },
    }
    assert set(verdict.broken) == by_design.get(score, set()), verdict.text


def test_a_file_is_checked_on_the_command_line():
    result = run("check_attention", f"{GALLERY}:Additive", f"{GALLERY}:no_mask")
    text = result.stdout.decode()
    assert result.returncode == 1
    assert "Additive: keeps all" in text and "no_mask: breaks 2 of" in text


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no.py:f", "file not found"),
        (f"{GALLERY}:nobody", "not found in"),
        (f"{GALLERY}", "NAME not found in"),
        ("no_ending", "expected FILE.py:NAME"),
    ],
)
def test_wrong_targets_are_named(target, message):
    result = run("check_attention", target)
    assert result.returncode == 1 and message in result.stderr.decode()


def test_unknown_parameters_are_named():
    with pytest.raises(ValueError, match="meaning of the parameter alpha is unknown"):
        check_attention(lambda alpha, beta: alpha)
