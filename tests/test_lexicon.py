"""A translation lexicon in the output layer: the equations as loops, its estimation, its file, and its way through training,
checkpoints and searches."""

import itertools
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from builders import batch, lexicon_table, network, resumed, trained
from commands import failed, run
from contracts import run as decode
from torch.nn import functional as F

import nmt
from nmt.configuration.configure import configure
from nmt.data import lexicon_estimation
from nmt.data.lexicon_estimation import (
    estimated_lexicon,
    read_lexicon_table,
)
from nmt.data.lexicon_estimation import (
    lexicon_table as table_of,
)
from nmt.data.preparation import PreparedData
from nmt.data.ragged import Corpus, Ragged
from nmt.foundation.errors import Stopped, UserError
from nmt.foundation.interfaces import EOS, PAD, UNK, Hypothesis, Layout
from nmt.foundation.ranks import ALONE
from nmt.inference.translation import ForcedDecoding, Translation
from nmt.inference.unknown_words import read_lexicon, replace_unknown_words
from nmt.model.layers import fused_cross_entropy
from nmt.model.lexicon import Lexicon
from nmt.pipeline.assembly import training_alignment
from nmt.pipeline.assembly.training_alignment import token_links, with_links
from nmt.storage import checkpoint as ckpt
from nmt.tokenizer.columns import Columns

USES = ["bias", "mixture"]
TABLE = lexicon_table(11)


def model_with(use, *more):
    model = network("bahdanau", "concat", "model.lexicon=auto", f"model.lexicon_use={use}", *more)
    if use == "mixture":
        with torch.no_grad():
            model.copying.gate.bias.fill_(0.1)
    return model


def translation_probability(weights, source, word):
    """p_lex of one target word, source word by source word, entry by entry."""
    total = 0.0
    for weight, source_word in zip(weights, source, strict=True):
        for token, probability in zip(*(TABLE[key][source_word] for key in TABLE), strict=True):
            if token == word:
                total = total + weight * probability
    return total


@pytest.mark.parametrize("use", USES)
def test_the_lexicon_is_its_equation(use):
    """Arthur et al. 2016, eq. 7-9, word by word; a distribution; the loss; the rows of a beam."""
    model, data = model_with(use), batch()
    output, memory = decode(model, data)
    result = model.output_layer.log_probs(output, memory).exp()
    logits = model.output(output.readout)
    for b in range(3):
        for t in range(output.readout.size(1)):
            p_lex = torch.stack(
                [
                    torch.as_tensor(
                        translation_probability(output.weights[b, t], data.source[b], v)
                    )
                    for v in range(11)
                ]
            )
            if use == "bias":
                truth = (logits[b, t] + (p_lex + 0.001).log()).softmax(-1)
            else:
                g = torch.sigmoid(model.copying.gate(output.readout[b, t]))
                truth = g * logits[b, t].softmax(-1) + (1 - g) * p_lex
            torch.testing.assert_close(result[b, t], truth)
    real = data.targets != PAD
    gold = result.gather(2, data.targets.unsqueeze(2)).squeeze(2)[real].log()
    loss = model.output_layer.loss(output, memory, data.targets, 0.0)
    torch.testing.assert_close(loss[1], -gold.sum())
    torch.testing.assert_close(
        model.output_layer.log_probs_of(output, memory, data.targets)[real], gold
    )
    rows = torch.tensor([0, 0, 1, 2, 2])
    layout = Layout(width=2, slots=torch.tensor([0, 1, 2, 4, 5]))
    step = model.decode(data.inputs[rows, :1], model.start(memory).select(rows), memory, layout)
    torch.testing.assert_close(
        model.output_layer.log_probs(step, memory, layout)[:, 0].exp(), result[rows, 0]
    )


@pytest.mark.parametrize("use", USES)
def test_the_fused_loss_has_the_gradient_of_the_equation(use, monkeypatch):
    monkeypatch.setattr(fused_cross_entropy, "SLICE", 40)
    model, data = model_with(use), batch()
    real = data.targets != PAD
    gradients = []
    for fused in (True, False):
        output, memory = model.teacher_forcing(data)
        if fused:
            total, _ = model.output_layer.loss(output, memory, data.targets, 0.1)
        else:
            log_probs = model.output_layer.log_probs(output, memory)[real]
            smooth = (
                log_probs if use == "bias" else model.output(output.readout)[real].log_softmax(-1)
            )
            gold = log_probs.gather(1, data.targets[real][:, None])
            total = -0.9 * gold.sum() - 0.1 * smooth.mean(-1).sum()
        model.zero_grad()
        total.backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for ours, truth in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, truth)


@pytest.mark.parametrize("use", USES)
def test_padding_and_other_sentences_change_nothing(use):
    model, data = model_with(use), batch()
    truth = model.output_layer.log_probs(*decode(model, data)).detach()
    padding = torch.arange(data.source.size(1)) >= data.source_lengths.unsqueeze(1)
    longer = F.pad(data.source.masked_fill(padding, 7), (0, 3), value=9)
    again = model.output_layer.log_probs(*decode(model, replace(data, source=longer)))
    torch.testing.assert_close(again, truth)
    for i, length in enumerate(data.source_lengths):
        alone = replace(
            data,
            source=data.source[i : i + 1, :length],
            source_lengths=data.source_lengths[i : i + 1],
            inputs=data.inputs[i : i + 1],
            targets=data.targets[i : i + 1],
        )
        torch.testing.assert_close(
            model.output_layer.log_probs(*decode(model, alone)), truth[i : i + 1]
        )


def test_a_table_keeps_the_most_probable_entries():
    generator = np.random.default_rng(1)
    source, target = generator.integers(0, 9, 400), generator.integers(0, 60, 400)
    weights = generator.random(400) ** 4
    table = table_of(source, target, weights, 12)
    assert table["tokens"][EOS].tolist()[0] == EOS
    assert table["probabilities"][EOS].tolist() == [1.0] + [0.0] * (table["tokens"].size(1) - 1)
    for word in range(12):
        counts = {}
        for s, t, w in zip(source.tolist(), target.tolist(), weights.tolist(), strict=True):
            if s == word:
                counts[t] = counts.get(t, 0) + w
        total = sum(counts.values())
        ranked = sorted(((w / total, t) for t, w in counts.items() if t != UNK), reverse=True)
        expected = [(p, t) for p, t in ranked if p >= 0.001][:32]
        if word in (EOS, PAD, UNK):
            continue
        probabilities, tokens = table["probabilities"][word], table["tokens"][word]
        assert tokens[: len(expected)].tolist() == [t for _, t in expected]
        assert probabilities[: len(expected)].tolist() == pytest.approx([p for p, _ in expected])
        assert not probabilities[len(expected) :].any()


def test_the_lexicon_of_a_text_has_its_translations(monkeypatch):
    """Each source word has one translation, in another order: the lexicon finds it."""
    generator = np.random.default_rng(2)
    sources = [generator.integers(4, 20, 6) for _ in range(300)]
    targets = [generator.permutation(ids + 16) for ids in sources]
    corpus = Corpus(
        Ragged.of([ids + 40 for ids in sources]), Ragged.of(targets)
    )  # with factors: ids modulo 40
    rows = np.arange(1, 300)
    table = estimated_lexicon(corpus, rows, 40)
    assert table["tokens"][4:20, 0].tolist() == [*range(20, 36)]
    assert float(table["probabilities"][4:20, 0].min()) > 0.8
    assert not table["probabilities"][20:].any()
    monkeypatch.setattr(lexicon_estimation, "PAIRS", 200)
    some = estimated_lexicon(corpus, rows, 40)
    every = estimated_lexicon(corpus, rows[np.linspace(0, 298, 200).astype(int)], 40)
    assert all(torch.equal(some[name], every[name]) for name in every)


def test_the_links_of_a_text_are_symmetrised_alignments():
    """Each token has one translation, in another order; one source token of each pair has none."""
    generator = np.random.default_rng(4)
    sources = [generator.permutation(16)[:7] + 4 for _ in range(300)]
    orders = [generator.permutation(6) for _ in range(300)]
    targets = [ids[:6][order] + 16 for ids, order in zip(sources, orders, strict=True)]
    truth = [{(int(s), t) for t, s in enumerate(order)} for order in orders]
    links = token_links(sources, targets)
    wrong = sum(len(one ^ other) for one, other in zip(links, truth, strict=True))
    assert wrong < 0.15 * 6 * 300


TEXT = ["data.train=30", "data.validation=4", "data.test=2", "experiment=reverse"]
SMALL = [
    *TEXT, "sizes.encoder=8", "sizes.decoder=8", "sizes.readout=6", "model.embedding_size=6", "batching.sentences=10", "max_validation=2",
    "search=beam", "trainer.max_epochs=2", "translation.max_length_factor=0.2", "translation.max_length_offset=3", "model.lexicon=auto",
]  # fmt: skip


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("lexicon") / "run", *SMALL)


def test_a_checkpoint_alone_translates(run_folder, tmp_path):
    """The lexicon is in the checkpoint: as it was in training, in an average, and in an ensemble."""
    translator = nmt.load(run_folder / ckpt.BEST)
    saved = ckpt.read(run_folder / ckpt.BEST)
    lexicon = translator.models[0].lexicon
    assert float(lexicon.probabilities.sum()) > 1
    for name, tensor in lexicon.table().items():
        assert torch.equal(tensor, saved.tensors[f"lexicon/{name}"])
    shutil.copytree(run_folder, tmp_path / "copy")
    models = f"models=[{run_folder},{tmp_path}/copy]"
    result = run("average", models, f"output={tmp_path}/mean.safetensors")
    assert result.returncode == 0, result.stderr.decode()
    lines = ["a b c d", "h g f", "a a a b c"]
    truth = translator.translate(lines)
    assert nmt.load(tmp_path / "mean.safetensors").translate(lines) == truth
    assert nmt.load([run_folder, run_folder]).translate(lines) == truth
    result = run("export", f"model={run_folder}", "format=card", f"output={tmp_path}/card")
    assert result.returncode == 0, result.stderr.decode()
    assert nmt.load(tmp_path / "card").translate(lines) == truth
    assert [translator.translate(line) for line in lines] == truth


@pytest.mark.exhaustive
def test_what_was_stopped_continues_with_its_lexicon(run_folder, tmp_path):
    with pytest.raises(Stopped):
        trained(tmp_path / "part", *SMALL, "trainer.stop_after=1")
    resumed(tmp_path / "part", "trainer.stop_after=0")
    for name in (ckpt.LAST, ckpt.BEST):
        ours, truth = (
            ckpt.read(folder / name).tensors for folder in (tmp_path / "part", run_folder)
        )
        assert ours.keys() == truth.keys()
        assert [key for key in truth if not torch.equal(ours[key], truth[key])] == []


@pytest.mark.exhaustive
def test_fine_tuning_keeps_the_lexicon(run_folder, tmp_path):
    tuned = trained(tmp_path / "tuned", *TEXT, "search=greedy", f"init={run_folder}", "trainer.max_updates=1", "max_validation=2")  # fmt: skip
    for name in ("tokens", "probabilities"):
        first, second = (
            ckpt.read(folder / ckpt.BEST).tensors[f"lexicon/{name}"]
            for folder in (run_folder, tuned)
        )
        assert torch.equal(first, second)


@pytest.mark.exhaustive
def test_fine_tuning_between_other_languages_estimates_the_lexicon(run_folder, tmp_path):
    for side, line in (("x", "a b c\n"), ("y", "f e d\n")):
        (tmp_path / f"t.{side}").write_text(line * 20)
    text = ["data=text", f"data.train={tmp_path}/t", f"data.validation={tmp_path}/t"]
    options = ["data.source=x", "data.target=y", f"init={run_folder}", "trainer.max_updates=1"]
    tuned = trained(tmp_path / "tuned", *text, *options, "search=greedy", "max_validation=2")
    tokenizer = nmt.load(tuned).tokenizer
    table = nmt.load(tuned).models[0].lexicon.table()
    sources = {
        token for token in range(len(table["tokens"])) if table["probabilities"][token, 0] > 0
    }
    assert sources <= {*tokenizer.encode_source(["a b c"])[0], EOS}


def test_a_file_of_words_becomes_a_lexicon_of_tokens(run_folder, tmp_path):
    tokenizer = nmt.load(run_folder).tokenizer
    file = tmp_path / "words"
    file.write_text("a b\tc\t0.5\na b\td\t1.5\nc\te f\t0.4\nd\tc\t0.05\n")
    table = read_lexicon_table(str(file), tokenizer)
    [[*ab], [c]] = tokenizer.encode_source(["a b", "c"])
    [[to_c], [to_d], ef] = tokenizer.encode_target(["c", "d", "e f"])
    for source in ab:
        assert table["tokens"][source, :2].tolist() == [to_d, to_c]
        assert table["probabilities"][source, :2].tolist() == [0.75, 0.25]
    assert {*table["tokens"][c, : len(ef)].tolist()} == {*ef}
    # The probability of a translation is divided among its tokens.
    assert table["probabilities"][c, :2].tolist() == pytest.approx([0.4 / len(ef)] * 2)
    [[d]] = tokenizer.encode_source(["d"])
    assert table["probabilities"][d].tolist() == pytest.approx([0.05, 0])
    with_factors = replace(tokenizer, columns=Columns(1, (("N", "V"),)))
    again = read_lexicon_table(str(file), with_factors)
    assert all(torch.equal(again[name], table[name]) for name in table)
    for wrong in ("no tab", "a\tb\t1.2.3", "a\tb\t.", "a\tb\t1e400", "a\t\t0.5", "\ta\tb"):
        file.write_text(f"a\tb\n{wrong}\n")
        with pytest.raises(UserError, match="line 2: expected a source word, a tab"):
            read_lexicon_table(str(file), tokenizer)


def test_unknown_words_are_written_as_the_lexicon_translates_them(run_folder):
    """The model is made to write unknown words; the lexicon is that of the next letter, for all letters but d."""
    translator = nmt.load(run_folder, unknown="copy", search="greedy")
    tokenizer, model = translator.tokenizer, translator.models[0]
    letters = [ids[0] for ids in tokenizer.encode_source(list("abcde"))]
    tokens, probabilities = (
        torch.zeros(tokenizer.source_size, 1),
        torch.zeros(tokenizer.source_size, 1),
    )
    for letter, following in itertools.pairwise(letters):
        tokens[letter], probabilities[letter] = following, float(letter != letters[3])
    tokens[UNK], probabilities[UNK] = letters[0], 1.0  # in lexicons of older versions
    model.lexicon.fill({"tokens": tokens, "probabilities": probabilities})
    with torch.no_grad():
        model.output.bias[:] = -50.0
        model.output.bias[UNK] = 9.0
    [result] = translator.translations(["a b c d"])
    [forced] = translator.force([result.source], [result.hypotheses[0].tokens])
    attended = [int(row[:-1].argmax()) for row in forced.weights[:-1]]
    distinct = [s for t, s in enumerate(attended) if t == 0 or attended[t - 1] != s]
    assert result.text.split() == ["bcdd"[s] for s in distinct]
    [result] = translator.translations(["ö"])
    assert result.text.split() == ["ö"]  # an unknown word has no translation


def test_a_page_has_the_lexicon_and_onnx_refuses_it(run_folder, tmp_path):
    """test_html.py compares the probabilities on the page with those of the network."""
    words = [f"model={run_folder}", f"output={tmp_path}/out.html"]
    result = run("export", *words, "format=onnx")
    assert "translation lexicon" in failed(result, "format=onnx")
    assert run("export", *words, "format=html").returncode == 0
    assert '"lexicon.probabilities"' in (tmp_path / "out.html").read_text()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.lexicon_use=mixture"], "the network has no lexicon"),
        (["model.lexicon=auto", "model.lexicon_use=mixture", "model.copy=true"], "cannot be combined with model.copy"),
        (["model.lexicon=auto", "model.lexicon_use=mixture", "objective=r_drop", "model.dropout=0.1"], "objective=r_drop"),
        (["model.lexicon=auto", "attention=none", "decoder=fixed"], "this decoder has no attention"),
        (["model.lexicon=auto", "model.lexicon_use=mixture", "model.lexicon_epsilon=0.1"], "needs model.lexicon_use=bias"),
    ],
)  # fmt: skip
def test_impossible_settings_are_refused(overrides, message):
    with pytest.raises(UserError, match=message):
        configure("train", ["experiment=reverse", *overrides])


def test_the_links_of_training_pairs_are_at_their_rows(monkeypatch):
    """Dropped pairs have no links, factors change no link, and blocks are separate."""
    draw, vocabulary, size = np.random.default_rng(1), 20, 70
    sources = [draw.integers(4, vocabulary, draw.integers(2, 6)) for _ in range(size)]
    targets = [ids[::-1] for ids in sources]
    kept = np.array([row for row in range(size) if row % 7 != 2])
    factors = [ids + vocabulary * draw.integers(0, 3, len(ids)) for ids in sources]
    monkeypatch.setattr(training_alignment, "PAIRS", 40)
    expected = [()] * size
    for block in (kept[:40], kept[40:]):
        links = token_links([sources[i] for i in block], [targets[i] for i in block])
        for row, pairs in zip(block, links, strict=True):
            expected[row] = [place for pair in sorted(pairs) for place in pair]
    corpus = Corpus(Ragged.of(factors), Ragged.of(targets))
    tokenizer = SimpleNamespace(source_size=vocabulary)
    data = PreparedData(None, tokenizer, corpus, corpus, kept)
    result = with_links(data, ALONE).train.links
    assert [ids.tolist() for ids in (result[i] for i in range(size))] == [*map(list, expected)]
    assert sum(map(bool, expected)) == len(kept)


def test_entries_of_the_lexicon_are_those_of_whole_words():
    """A word of several tokens is copied; entries of the user win over those of the model."""
    lexicon = Lexicon(10, 10, 0.001)
    lexicon.fill({"tokens": torch.arange(10)[:, None], "probabilities": torch.ones(10, 1)})
    tokenizer = SimpleNamespace(
        columns=Columns(),
        source_size=10,
        source_words=lambda *_: [range(1), range(1), range(1, 2), range(2, 3)],
        decode=lambda ids: [f"t{ids[0][0]}"],
    )
    weights = np.eye(5)[[0, 2, 3, 4]]
    decoding = ForcedDecoding(log_probs=np.zeros(4), weights=weights)
    source = [4, 5, 6, 17]  # 17 is token 7 with a factor
    unknown = Hypothesis([UNK] * 3, 0.0, 0.0)
    cases = (
        ({}, "goldfish t6 t7"),
        ({"cat": "Katze"}, "goldfish Katze t7"),
        ({"goldfish": "Goldfisch", "cat": "Katze"}, "Goldfisch Katze t7"),
    )
    for entries, text in cases:
        translation = Translation(source, [unknown], ["⁇ ⁇ ⁇"], [])
        replace_unknown_words(
            ["goldfish cat dog"], [translation], tokenizer, lambda *_: [decoding], entries, lexicon
        )
        assert translation.text == text


def test_the_first_entry_of_a_word_in_a_file_is_used(tmp_path):
    file = tmp_path / "lexicon"
    file.write_text("a\tx\nb\ty\na\tz\ncafe\u0301\tbar \n")
    assert read_lexicon(str(file)) == {"a": "x", "b": "y", "caf\u00e9": "bar"}


def test_tokens_added_to_the_vocabulary_have_no_entries():
    lexicon = Lexicon(6, 9, 0.001)
    lexicon.fill({"tokens": torch.full((4, 2), 5), "probabilities": torch.full((4, 2), 0.25)})
    assert [lexicon.best(token) for token in range(6)] == [5, 5, 5, 5, None, None]
