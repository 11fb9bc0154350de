"""Checks of attention code: a verdict for each known mistake, none for correct code in other conventions."""

import contextlib
import operator
import re
from dataclasses import replace

import pytest
import torch
from attention_gallery import BROKEN, CORRECT
from attention_public import (
    VERDICTS,
    AllenNLPAttention,
    DiveIntoDeepLearningAttention,
    JoeyNMTAttention,
)
from builders import choices, compose
from commands import ROOT, run

import nmt
from nmt import check_attention, components
from nmt.analysis.attention_check import LAWS
from nmt.analysis.decoder_laws import LAWS as DECODER_LAWS
from nmt.foundation.errors import UserError
from nmt.model.attention import Score
from nmt.model.attention.layer import Attention
from nmt.model.decoder.fixed import Fixed
from nmt.model.decoder.luong import Luong

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


@pytest.mark.parametrize("example", VERDICTS, ids=lambda example: example.__name__)
def test_attention_of_public_tutorials_and_toolkits(example):
    verdict = check_attention(example)
    assert [*verdict.broken] == VERDICTS[example], verdict.text


def test_weights_kept_in_an_attribute_are_checked(monkeypatch):
    """DiveIntoDeepLearningAttention returns only the context."""
    monkeypatch.setattr("attention_public.softmax", lambda scores, dim: scores.sigmoid())
    assert "weights are a distribution" in check_attention(DiveIntoDeepLearningAttention).broken


def test_scores_far_below_the_masked_zero_lose_all_weight():
    """The hand check of AllenNLPAttention, in float32."""
    attention = AllenNLPAttention(2, 2)
    with torch.no_grad():
        attention.u.weight.copy_(torch.eye(2))
        attention.w.weight.zero_()
        attention.v.weight.fill_(-20.0)
    mask = torch.tensor([[True, True, False]])
    weights = attention(torch.zeros(1, 2), torch.full((1, 3, 2), 5.0), mask)
    assert weights.sum() < 1e-3  # both words have the score -40, so that 1/2 each is right


def test_the_checked_module_and_the_random_numbers_stay(small_run):
    attention = AllenNLPAttention(2, 2)
    before = torch.get_rng_state()
    check_attention(AllenNLPAttention)
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(UserError):
        check_attention(attention)  # its sizes are not those of the example
    check_attention(torch.nn.MultiheadAttention(8, 1, batch_first=True))
    translator = nmt.load(small_run, device="cpu")
    truth = translator.translate("a b c")
    with contextlib.suppress(UserError):
        check_attention(translator.models[0].decoder.attention)
    assert attention.training
    assert {p.dtype for p in attention.parameters()} == {torch.float32}
    assert translator.translate("a b c") == truth


def test_weights_in_float32_are_compared_in_float32():
    def loop(query, memory, mask):
        energies = torch.zeros(memory.size(0), memory.size(1))
        for i in range(memory.size(1)):
            energies[:, i] = (query * memory[:, i]).sum(1)
        return torch.softmax(energies.masked_fill(~mask, -torch.inf), -1)

    check_attention(loop)


def test_keys_projected_before_the_call_need_a_wrapper():
    """JoeyNMTStep is the wrapper."""
    with pytest.raises(ValueError, match="no call of the code returned attention weights"):
        check_attention(JoeyNMTAttention(8, 8, 8))


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
        components.make(config, "attention", query_size=8, memory_size=8),
        normalizer=components.make(config, "normalizer"),
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


class Forgetful(Luong):
    """Returns the state before its steps."""

    def forward(self, embedded, state, memory, layout=None):
        return replace(super().forward(embedded, state, memory, layout), state=state)


class Seer(Luong):
    """Reads the mean of all target tokens."""

    def forward(self, embedded, state, memory, layout=None):
        blurred = embedded + embedded.mean(1, keepdim=True)
        return super().forward(blurred, state, memory, layout)


class Unmasked(Fixed):
    """Adds the mean of all annotations, padding included."""

    def forward(self, embedded, state, memory, layout=None):
        output = super().forward(embedded, state, memory, layout)
        mean = memory.encoded.values.mean((1, 2))  # [B]
        return replace(output, readout=output.readout + mean[:, None, None])


class Mixed(Luong):
    """Subtracts the mean over the sentences of a batch."""

    def forward(self, embedded, state, memory, layout=None):
        output = super().forward(embedded, state, memory, layout)
        return replace(output, readout=output.readout - output.readout.mean(0))


class Deaf(Luong):
    """Decodes without the source."""

    def forward(self, embedded, state, memory, layout=None):
        hidden, cells = self.layers(embedded, state.cells, state.masks)  # [N, T, Q]
        context = torch.zeros(*hidden.shape[:2], self.memory_size, dtype=hidden.dtype)
        readout = self.combine(torch.cat([context, hidden], -1))  # [N, T, D]
        return self.output(readout, replace(state, cells=cells))

    def initial(self, memory):
        state = super().initial(memory)
        cells = tuple(tuple(0 * part for part in layer) for layer in state.cells)
        return replace(state, cells=cells)


class Narrow(Luong):
    """Returns one feature too few."""

    def forward(self, embedded, state, memory, layout=None):
        output = super().forward(embedded, state, memory, layout)
        return replace(output, readout=output.readout[..., :-1])


class OneRow(Luong):
    """Multiplies by the values of the memory, as if each sentence had one row."""

    def forward(self, embedded, state, memory, layout=None):
        output = super().forward(embedded, state, memory, layout)
        context = torch.bmm(output.weights, memory.values)  # [B, T, M]
        return replace(output, readout=output.readout + context.mean(-1, keepdim=True))


class OneQuery(Score):
    """Scores the first query only."""

    def forward(self, query, keys, *_):
        return super().forward(query, keys)[:, :1]


def test_shapes_of_scores_are_those_of_training():
    with pytest.raises(UserError, match=r"OneQuery: .*shape \[2, 1, 4\], expected .* \[2, 3, 4\]"):
        check_attention(OneQuery())


def test_all_verdicts_are_printed_whatever_fails():
    names = (f"{GALLERY}:Additive", f"{GALLERY}:nobody", f"{GALLERY}:no_mask")
    result = run("check_attention", *names)
    assert result.returncode == 2  # a name is not found
    assert "Additive: keeps all" in result.stdout.decode()
    assert "no_mask: breaks" in result.stdout.decode()
    assert "nobody not found" in result.stderr.decode()


@pytest.mark.parametrize(
    ("decoder", "law"),
    [*zip([Narrow, Forgetful, Seer, Unmasked, Mixed, Deaf, OneRow], DECODER_LAWS, strict=True)],
)
def test_each_mistake_of_a_decoder_is_found(decoder, law):
    verdict = check_attention(decoder)
    assert law in verdict.broken, verdict.text
    assert re.search(r"\d|does not read the source", verdict.broken[law])


@pytest.mark.parametrize("name", choices("decoder"))
def test_decoders_of_this_package_keep_all_laws(name):
    decoder = components.class_of("decoder", compose(f"decoder={name}")["decoder"])
    verdict = check_attention(decoder)
    assert not verdict.broken, verdict.text
    assert "keeps all 7 laws" in verdict.text


def test_a_decoder_for_one_row_of_each_sentence_breaks_only_the_law_of_searches():
    [observation] = check_attention(OneRow).broken.values()
    assert "pass `layout` to `attend`" in observation


def masked(masks, value=-torch.inf):
    """Attention that masks positions by their place and the length of the sentence."""

    def attention(query, memory, lengths):
        scores = (query.unsqueeze(1) @ memory[..., : query.size(1)].transpose(1, 2)).squeeze(1)
        places = torch.arange(memory.size(1))
        return scores.masked_fill(masks(places, lengths.unsqueeze(1)), value).softmax(1)

    return attention


@pytest.mark.parametrize(
    ("attention", "cause"),
    [
        (masked(operator.ge, 0.0), "The mask has no effect on the softmax"),
        (masked(operator.gt), "Only the first padding has a weight: the mask is one position too long"),
        (masked(operator.lt), "the mask is inverted"),
    ],
)  # fmt: skip
def test_the_cause_of_a_wrong_mask_is_named(attention, cause):
    assert cause in check_attention(attention, "attention").text


def test_a_mask_that_must_be_true_for_padding_is_pointed_out():
    def attention(query, memory, mask):
        scores = (query.unsqueeze(1) @ memory[..., : query.size(1)].transpose(1, 2)).squeeze(1)
        return scores.masked_fill(mask, -torch.inf).softmax(1)

    text = check_attention(attention).text
    assert "Its mask must be true for padding; the masks of nmt are true for words." in text


def test_a_decoder_that_cannot_be_built_is_named():
    class Demanding(Luong):
        def __init__(self, *, style, **settings):
            super().__init__(**settings)

    with pytest.raises(UserError, match=r"Demanding: cannot be created.*'style'"):
        check_attention(Demanding)

    class Refusing(Luong):
        def __init__(self, **settings):
            raise KeyError("weight")

    with pytest.raises(UserError, match=r"Refusing: cannot be created: KeyError: 'weight'"):
        check_attention(Refusing)


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
    assert result.returncode == 2 and message in result.stderr.decode()


def test_packages_of_the_same_name_are_not_confused(tmp_path):
    for folder in ("old", "new"):
        (tmp_path / folder / "model").mkdir(parents=True)
        (tmp_path / folder / "model" / "__init__.py").touch()
        (tmp_path / folder / "model" / "att.py").write_text(GALLERY.read_text())
    files = [f"{tmp_path}/{folder}/model/att.py:Additive" for folder in ("old", "new")]
    result = run("check_attention", *files)
    assert result.returncode == 1
    assert f"another package model is loaded ({tmp_path}/old/model" in result.stderr.decode()


def test_a_file_of_a_package_is_imported(tmp_path):
    folder = tmp_path / "attending_package"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "helpers.py").write_text("def scaled(scores):\n    return scores / 2\n")
    (folder / "score.py").write_text(
        "from .helpers import scaled\n\n\n"
        "def attend(query, memory, mask):\n"
        "    scores = scaled(memory.sum(2) * query.sum(1, keepdim=True))\n"
        "    return scores.masked_fill(~mask, -1e9).softmax(1)\n"
    )
    result = run("check_attention", f"{folder}/score.py:attend")
    assert "keeps all" in result.stdout.decode()


def test_the_exception_of_the_code_is_shown():
    layer = torch.nn.Linear(8, 8)  # float32

    def attend(query, memory, mask):
        return (layer(memory) @ query.unsqueeze(2)).squeeze(2).softmax(1)

    with pytest.raises(UserError, match="float64, raised RuntimeError: .*dtype"):
        check_attention(attend)


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        (5, "must be a function, module or class"),
        (Luong.__new__(Luong), "give the class of the decoder"),
    ],
)
def test_other_objects_are_refused(target, problem):
    with pytest.raises(UserError, match=problem):
        check_attention(target)


def test_unknown_parameters_are_named():
    with pytest.raises(ValueError, match="meaning of the parameter alpha is unknown"):
        check_attention(lambda alpha, beta: alpha)


def _scores(query, memory):
    return (query.unsqueeze(1) @ memory[..., : query.size(1)].transpose(1, 2)).squeeze(1)


def _sum(weights, memory):
    return (weights.unsqueeze(2) * memory).sum(1)


@pytest.mark.parametrize(
    "masked", [lambda scores, mask: scores.masked_fill(mask, -torch.inf), operator.add]
)
def test_any_mask_is_found_by_the_context_alone(masked):
    def attention(query, memory, mask):
        return _sum(masked(_scores(query, memory), mask).softmax(1), memory)

    verdict = check_attention(attention)
    assert not verdict.broken, verdict.text
    assert verdict.text.startswith("attention: keeps all 5 laws")


def test_a_mask_that_is_added_to_the_scores():
    def attention(query, memory, mask):
        return (_scores(query, memory) + mask).softmax(1)

    text = check_attention(attention).text
    assert "keeps all 10 laws" in text
    assert "Its mask must be 0 for words and -inf for padding" in text


def test_laws_that_need_weights_are_not_counted_without_them():
    """The weights do not sum to 1, which the context does not show."""

    def attention(query, memory, mask):
        return _sum(_scores(query, memory).sigmoid() * mask, memory)

    verdict = check_attention(attention)
    assert verdict.tried == 5 and "weights are a distribution" in verdict.skipped
    assert "Not tested, because the code returns no attention weights" in verdict.text


def test_exceptions_of_the_code_are_one_message(tmp_path):
    """A missing key is reported with its line; the rest is still tested."""
    (tmp_path / "late.py").write_text(
        "from nmt.model.attention.dot import Dot\n\n\nclass Late(Dot):\n    def forward(self, query, keys, *_):\n        return {}['missing']\n"
    )
    (tmp_path / "script.py").write_text("import sys\n\nsys.exit(0)\n")
    files = ("late", "nowhere", "script")
    result = run("check_attention", *(f"{tmp_path}/{name}.py:Late" for name in files))
    assert result.returncode == 2  # a file is not found
    assert b"script.py cannot be run" in result.stderr
    assert b"KeyError: 'missing'" in result.stderr and b"late.py:6" in result.stderr
    assert b"nowhere.py" in result.stderr and b"Traceback" not in result.stderr
