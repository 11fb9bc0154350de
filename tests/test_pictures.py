"""Decoders that attend to pictures: encoders of grids and images, captions, hard attention by reinforcement, the gate."""

import gzip
import io
import itertools
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import contracts
import numpy as np
import pytest
import torch
from builders import batch, choices, compose, network, trained
from commands import failed, run
from PIL import Image
from torch.nn import functional as F

import nmt
from nmt import components
from nmt.configuration.check import faults_of
from nmt.configuration.configure import configure
from nmt.configuration.overrides import set_keys
from nmt.data import Pairs, Splits
from nmt.data.digit_images import page
from nmt.data.filters import Filters, fingerprint
from nmt.data.overlap import held_out_in_training, training_rows
from nmt.data.picture_reader import Reader
from nmt.data.pictures import check_picture, read_features, read_image
from nmt.data.sources.captions import Captions
from nmt.data.sources.digits import Digits, digit_words, number_words
from nmt.drawing.attention_figure import _wrapped, picture_figure
from nmt.drawing.picture_attention import PictureRow
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import Pictures
from nmt.foundation.part_limits import ConfigErrors
from nmt.inference.explanations.pointing_game import inside, pointing
from nmt.metric import Metric
from nmt.model.encoder.grid import Grid
from nmt.storage.upgrade import upgraded
from nmt.tokenizer import SentencePiece
from nmt.tokenizer.columns import Columns, Pictured
from nmt.training.objective.cross_entropy import CrossEntropy, likelihood_loss
from nmt.training.tracker import TensorBoard

ENCODERS = {
    "grid": ["encoder=grid", "encoder.channels=3"],
    "convolution": ["encoder=convolution", "encoder.channels=1", "encoder.widths=[3,4]", "encoder.halvings=1"],
    "bidirectional+grid": ["encoder=bidirectional+grid", "encoder.places.channels=3"],
    "bidirectional+convolution": ["encoder=bidirectional+convolution", "encoder.places.channels=1", "encoder.places.widths=[3,4]", "encoder.places.halvings=1"],
}  # fmt: skip
every_encoder = pytest.mark.parametrize("encoder", ENCODERS)


def pictures(encoder, sizes=((2, 3), (4, 2), (3, 3))):
    generator, scale = torch.Generator().manual_seed(5), 2 if "convolution" in encoder else 1
    heights_widths = torch.tensor(sizes) * scale - (scale - 1)  # images of odd sizes too
    channels = 1 if "convolution" in encoder else 3
    values = torch.rand(
        len(sizes),
        int(heights_widths[:, 0].max()),
        int(heights_widths[:, 1].max()),
        channels,
        generator=generator,
    )
    made = Pictures(values.double(), heights_widths, even=False)
    return replace(
        contracts.in_a_mess(made),
        values=values.double()
        * (contracts.in_a_mess(made).values[:, : values.size(1), : values.size(2)] != 9),
    )


def model_of(encoder, decoder="luong", score="general", *more):
    return network(decoder, "none" if decoder == "fixed" else score, *ENCODERS[encoder], *more)


def data_of(encoder, **sizes):
    return replace(batch(), pictures=pictures(encoder, **sizes))


# The contracts of all decoders hold for pictures as for words


@every_encoder
@pytest.mark.parametrize("decoder", choices("decoder"))
def test_contracts(encoder, decoder):
    contracts.check_all(model_of(encoder, decoder), data_of(encoder))


@pytest.mark.parametrize("score", [name for name in choices("attention") if name != "none"])
def test_contracts_of_every_score(score):
    contracts.check_all(
        model_of("grid", "bahdanau", score, "encoder.hidden_size=8"), data_of("grid")
    )


@every_encoder
@pytest.mark.parametrize("positions", ["none", "learnt", "sinusoidal"])
def test_places_are_all_that_is_there(encoder, positions):
    model = model_of(
        encoder,
        "bahdanau",
        "concat",
        f"encoder.{'places.' * ('+' in encoder)}positions={positions}",
    )
    data = data_of(encoder)
    contracts.weights_are_a_distribution(model, data)
    memory = contracts.run(model, data)[1]
    assert memory.encoded.grids.tolist() == [[2, 3], [4, 2], [3, 3]]
    words = data.source_lengths if model.encoder.reads_words else torch.zeros(3, dtype=torch.int64)
    assert torch.equal(memory.mask.sum(1), words + memory.encoded.grids.prod(1))


@pytest.mark.parametrize("window", [w for w in choices("window") if w not in ("global", "hard")])
def test_every_window_and_normalizer_takes_places(window):
    contracts.padding_changes_nothing(
        model_of("grid", "bahdanau", "general", f"window={window}"), data_of("grid")
    )


# Encoders, from their equations


def test_a_grid_is_projected_with_its_positions():
    model, data = model_of("grid"), data_of("grid")
    memory, layer = (
        model.encoder(data.source, data.source_lengths, data.pictures),
        model.encoder.input,
    )
    for b, (rows, columns) in enumerate(data.pictures.sizes.tolist()):
        result = []
        for r, c in itertools.product(range(rows), range(columns)):
            waves = [
                np.sin(r),
                np.cos(r),
                np.sin(c),
                np.cos(c),
            ]  # 4 features: one frequency for each direction
            result.append(
                layer.weight @ data.pictures.values[b, r, c] + layer.bias + torch.tensor(waves)
            )
        torch.testing.assert_close(memory.values[b][memory.mask[b]], torch.stack(result))
        torch.testing.assert_close(memory.final_state[b], torch.stack(result).mean(0))


@pytest.mark.parametrize("norm", [True, False])
def test_a_convolution_is_a_sum_over_neighbours(norm):
    """Against loops, and on images that are alone: what lies outside is white."""
    data = data_of("convolution")
    model = model_of("convolution", "bahdanau", "concat", f"encoder.norm={norm}")
    features, sizes = model.encoder.features(data.pictures)
    for b, (rows, columns) in enumerate(data.pictures.sizes.tolist()):
        x = 1 - data.pictures.values[b, :rows, :columns]  # [rows, columns, 1]
        for i, layer in enumerate(model.encoder.layers):
            out = torch.zeros(rows, columns, layer.out_channels, dtype=torch.double)
            for r, c, dr, dc in itertools.product(
                range(rows), range(columns), (-1, 0, 1), (-1, 0, 1)
            ):
                if 0 <= r + dr < rows and 0 <= c + dc < columns:
                    out[r, c] += layer.weight[:, :, dr + 1, dc + 1] @ x[r + dr, c + dc]
            x = (out + layer.bias).clamp(min=0)
            if i == 0:  # halved
                rows, columns = (rows + 1) // 2, (columns + 1) // 2
                x = torch.stack([torch.stack([x[2 * r : 2 * r + 2, 2 * c : 2 * c + 2].amax((0, 1)) for c in range(columns)]) for r in range(rows)])  # fmt: skip
        assert sizes[b].tolist() == [rows, columns]
        expected = F.layer_norm(x, x.shape[-1:]) if norm else x
        torch.testing.assert_close(features[b, :rows, :columns], expected)


def test_encoders_are_nested_in_any_combination():
    """Each kind of words with each kind of pictures; a wrong class and a wrong key are reported with their place."""
    nested = "encoder.words._target_=nmt.model.encoder.unidirectional.Unidirectional"
    model = model_of("bidirectional+grid", "luong", "general", nested)
    assert type(model.encoder.words).__name__ == "Unidirectional"
    typed = ["data=captions", "data.train=a.csv", "data.split=0.1", "data.source=x", "encoder=bidirectional+grid"]  # fmt: skip
    for wrong, message in {
        "encoder.places.chanels=3": "encoder.places.chanels: key not found; did you mean channels?",
        "encoder.channels=3": "encoder.channels: key not found; did you mean encoder.places.channels?",
        "encoder.places.channels=-1": "encoder.places.channels=-1: out of range",
        "encoder.words=3": "encoder.words=3: must have a _target_",
        "encoder.words._target_=nmt.model.encoder.grid.Grid": "must be a subclass of nmt.model.encoder.rnn_encoder.RNNEncoder",
        "encoder.words.residual=true": "encoder.words.residual=true: has no effect in this configuration (needs several layers",
    }.items():
        with pytest.raises(ConfigErrors) as caught:
            configure("train", [*typed, wrong])
        assert message in str(caught.value)


def test_windows_over_positions_need_a_single_source():
    typed = [
        "data=captions",
        "data.train=a.csv",
        "data.split=0.1",
        "data.source=x",
        "window=local_m",
    ]
    with pytest.raises(ConfigErrors, match="window=local_m: "):
        configure("train", [*typed, "encoder=bidirectional+grid"])


def test_single_keys_of_nested_encoders_change_in_a_saved_configuration():
    config = compose("data=captions", "encoder=bidirectional+grid")
    assert not set_keys(config, ["encoder.words.dropout=0.5", "encoder.word.dropout=1"], "")
    assert config["encoder"]["words"]["dropout"] == 0.5
    assert [error.key for error in faults_of("encoder", config["encoder"])] == ["encoder.word"]


@pytest.mark.parametrize("old", ["nmt.encoder.beside", "nmt.model.encoder.multi_modal"])
def test_former_encoders_with_one_list_of_keys_are_nested(old):
    listed = {"hidden_size": 4, "cell": "gru", "num_layers": 1, "channels": 3, "positions": "none"}
    former = {"_target_": f"{old}.BidirectionalGrid", **listed}
    assert upgraded({"config": {"encoder": former}}, 2)["config"]["encoder"] == {
        "_target_": "nmt.model.encoder.multi_modal.MultiModal",
        "words": {
            "_target_": "nmt.model.encoder.bidirectional.Bidirectional",
            "hidden_size": 4,
            "cell": "gru",
            "num_layers": 1,
        },
        "places": {
            "_target_": "nmt.model.encoder.grid.Grid",
            "channels": 3,
            "positions": "none",
        },
    }


@pytest.mark.parametrize("decoder", choices("decoder"))
@pytest.mark.parametrize("kind", ["grid", "convolution"])
def test_without_a_picture_it_is_the_model_of_words(decoder, kind):
    """To the last bit: the text-only network is a special case."""
    model = model_of(f"bidirectional+{kind}", decoder)
    score = "none" if decoder == "fixed" else "general"
    plain = network(decoder, score)
    theirs = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            parameter.copy_(
                theirs[
                    name.replace("encoder.", "encoder.words.", 1)
                    if name.startswith("encoder.")
                    else name
                ]
            )
    none = Pictures(
        torch.zeros(3, 0, 0, 1 if kind == "convolution" else 3).double(),
        torch.zeros(3, 2, dtype=torch.int64),
        even=True,
    )
    with_, _ = contracts.run(model, replace(batch(), pictures=none))
    without, _ = contracts.run(plain, batch())
    assert torch.equal(with_.readout, without.readout)
    mixed = (
        data_of(f"bidirectional+{kind}", sizes=((2, 3), (0, 0), (3, 1))) if kind == "grid" else None
    )
    if mixed is not None:  # beside others that have one, too
        result, _ = contracts.run(model, mixed)
        torch.testing.assert_close(result.readout[1], without.readout[1])
        assert not torch.allclose(result.readout[0], without.readout[0])


# Hard attention by reinforcement, the gate, the penalty


def reinforced(**keys):
    more = [f"window.{key}={value}" for key, value in keys.items()]
    return network(
        "bahdanau", "general", *ENCODERS["grid"], "window=hard", "window.estimator=reinforce", *more
    )


def test_the_mean_reward_is_an_estimate_that_ranks_share():
    """Ranks average the tensors of `estimates()` after each update; a network without such modules has none."""
    model = reinforced()
    [estimate] = model.estimates()
    assert estimate is model.decoder.attention.window.usual
    assert network("bahdanau", "general").estimates() == []


def test_the_gradient_is_that_of_all_choices_together(monkeypatch):
    """The expected estimate, enumerated over every sequence of choices on a tiny grid, is the gradient of the minimised loss."""
    model = reinforced(expected=0, entropy=0, decay=1).train()
    window = model.decoder.attention.window
    with torch.no_grad():
        window.usual.copy_(torch.tensor([-3.0, 1.0]))  # any baseline will do
    data = batch((1,), (3,))
    data = replace(data, pictures=replace(pictures("grid", sizes=((1, 2),)), even=True))
    parameters = [p for p in model.parameters() if p.requires_grad]
    exact, estimated, total = 0.0, [torch.zeros_like(p) for p in parameters], 0.0
    for choice in itertools.product(range(2), repeat=data.targets.size(1)):
        steps = iter(choice)
        monkeypatch.setattr(
            "nmt.model.attention.window.hard.sampled",
            lambda weights, steps=steps: torch.full(weights.shape[:2], next(steps)),
        )
        output, memory = model.teacher_forcing(data)
        loss, nll = likelihood_loss(model, output, memory, data.targets, 0.0)
        probability = output.state.attention[1][1].sum().exp()
        gradient = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        for estimate, g in zip(estimated, gradient, strict=True):
            estimate += 0 if g is None else probability.detach() * g
        log_likelihood = model.output_layer.log_probs_of(output, memory, data.targets).sum()
        assert float(nll) == pytest.approx(-float(log_likelihood.detach()))
        exact = exact - probability * log_likelihood
        total += float(probability.detach())
    assert total == pytest.approx(1)
    truth = torch.autograd.grad(exact, parameters, allow_unused=True)
    for estimate, g in zip(estimated, truth, strict=True):
        torch.testing.assert_close(estimate, torch.zeros_like(estimate) if g is None else g)
    assert any(g is not None and g.abs().sum() > 0 for g in truth)


def test_straight_through_is_another_gradient():
    """Biased: that of a one-hot vector read as weights."""
    torch.manual_seed(2)
    model, data = (
        network("bahdanau", "general", *ENCODERS["grid"], "window=hard").train(),
        data_of("grid"),
    )
    weights = contracts.run(model, data)[0].weights
    assert ((weights == 0) | (weights - 1).abs().lt(1e-12)).all()
    contracts.every_parameter_learns(model, data)


def test_the_baseline_is_a_moving_average_that_is_kept(tmp_path):
    model, data = reinforced(decay=0.9), data_of("grid")
    model.train()
    seen = []
    for _ in range(3):
        torch.manual_seed(len(seen))
        output, memory = model.teacher_forcing(data)
        likelihood_loss(model, output, memory, data.targets, 0.0)
        with torch.no_grad():
            seen.append(
                (
                    model.output_layer.log_probs_of(output, memory, data.targets)
                    * (data.targets != 0)
                )
                .sum(1)
                .mean()
                .item()
            )
    window = model.decoder.attention.window
    assert float(window.usual[0]) == pytest.approx(
        sum(0.1 * 0.9 ** (2 - k) * one for k, one in enumerate(seen))
    )
    assert float(window.usual[1]) == pytest.approx(1 - 0.9**3)
    assert "decoder.attention.window.usual" in dict(model.named_parameters())
    contracts.every_parameter_learns(model, data)


def test_a_share_of_the_sentences_uses_the_weights_themselves():
    model, data = reinforced(expected=1), data_of("grid")
    soft = network("bahdanau", "general", *ENCODERS["grid"])
    soft.load_state_dict({k: v for k, v in model.state_dict().items() if "window" not in k})
    output, _ = model.train().teacher_forcing(data)
    torch.testing.assert_close(output.readout, soft.teacher_forcing(data)[0].readout)


@pytest.mark.exhaustive
@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "luong_feed", "conditional"])
@pytest.mark.parametrize("score", ["concat", "dot", "multi_head", "coverage"])
def test_contracts_with_a_gate(decoder, score):
    heads = ["attention.heads=2"] if score == "multi_head" else []
    model = network(decoder, score, "decoder.context_gate=true", *heads)
    contracts.check_all(model, batch())


def test_the_gate_scales_the_context():
    """Luong's readout from its equation, with β = σ(w h + b)."""
    model, data = (
        network("luong", "dot", "decoder.context_gate=true", "encoder.hidden_size=4"),
        batch(),
    )
    memory = model.encode(data.source, data.source_lengths)
    hidden, _ = model.decoder.layers(model.words(data.inputs), model.start(memory).cells, {})
    output = model.decode(data.inputs, model.start(memory), memory)
    gate, combine = model.decoder.attention.gate, model.decoder.combine
    beta = torch.sigmoid(hidden @ gate.weight.t() + gate.bias)
    context = beta * (output.weights @ memory.values)
    truth = torch.tanh(torch.cat([context, hidden], -1) @ combine.weight.t() + combine.bias)
    torch.testing.assert_close(output.readout, truth)


def test_a_closed_gate_keeps_the_weights_that_attention_maps_show():
    settings = ("decoder.context_gate=true", "model.lexical=true", "model.copy=true")
    model, data = network("luong", "dot", *settings).float(), batch()
    torch.nn.init.constant_(model.decoder.attention.gate.bias, -200.0)
    output, _ = model.teacher_forcing(data)
    weights = model.decoder.attention.mean_over_heads(output.weights)
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    CrossEntropy()(model, data, 0).total.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_the_doubly_stochastic_penalty_counts_places():
    model, data = model_of("grid", "bahdanau").train(), data_of("grid")
    with_, without = (
        CrossEntropy(doubly_stochastic=weight)(model, data, 0).total for weight in (0.7, 0.0)
    )
    output, memory = model.teacher_forcing(data)
    truth = 0.0
    for b in range(3):
        real = int((data.targets[b] != 0).sum())
        for p in range(memory.mask.size(1)):
            truth += (
                0.7 * (1 - output.weights[b, :real, p].sum()) ** 2 if memory.mask[b, p] else 0.0
            )
    torch.testing.assert_close(with_ - without, truth)


# Reading pictures


def image(folder, name, size=(5, 4), mode="RGB", seed=0):
    """An image file of noise, `size` in columns and rows."""
    values = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(values).convert(mode).save(folder / name)
    return folder / name


def test_images_have_the_requested_channels_and_size(tmp_path):
    file = image(tmp_path, "a.png")
    colours = read_image(str(file), 3, 100)
    assert (colours == np.asarray(Image.open(file))).all()
    grey = read_image(str(file), 1, 100)
    assert grey.shape == (4, 5, 1)
    assert np.abs(grey[..., 0].astype(int) - np.asarray(Image.open(file).convert("L"))).max() <= 1
    assert read_image(str(file), 3, 3).shape == (2, 3, 3)
    for mode, ending in (
        ("L", "png"),
        ("1", "png"),
        ("P", "gif"),
        ("RGBA", "png"),
        ("CMYK", "jpg"),
        ("I;16", "png"),
    ):
        name = f"{mode.replace(';', '')}.{ending}"
        picture = image(tmp_path, name, mode="L" if mode == "I;16" else mode)
        result = read_image(str(picture), 3, 100)
        assert result.shape == (4, 5, 3), mode


def test_a_batch_of_pictures_is_padded_and_kept(tmp_path):
    names = [str(image(tmp_path, f"{k}.png", size=(3 + k, 6 - k), seed=k)) for k in range(3)]
    reader = Reader(read_image, 1, longest=100)
    result = reader([*names, ""])
    assert result.sizes.tolist() == [[6, 3], [5, 4], [4, 5], [0, 0]]
    assert result.values.shape == (4, 6, 5, 1)
    assert not result.even
    assert not result.values[0, :, 3:].any()
    assert float(result.values.max()) <= 1
    (tmp_path / "0.png").unlink()
    assert torch.equal(reader(names).values, result.values[:3])  # from memory
    image(tmp_path, "1.png", size=(2, 2))
    assert reader(names).sizes.tolist() == [[6, 3], [2, 2], [4, 5]]  # a changed file is read again


def test_a_photo_is_read_upright(tmp_path):
    """Cameras record their orientation in the EXIF data: 6 means that the image has to be turned clockwise."""
    file = image(tmp_path, "a.png")
    upright = np.asarray(Image.open(file))
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.rot90(upright)).save(tmp_path / "photo.png", exif=exif)
    assert (read_image(str(tmp_path / "photo.png"), 3, 100) == upright).all()


@pytest.mark.parametrize("kept", ["image", "features"])
def test_images_among_features_are_reported_and_features_among_images(kept, tmp_path):
    np.savez(tmp_path / "f.npz", a=np.zeros((4, 6)), b=np.zeros((4, 6)))
    names = [str(image(tmp_path, f"{k}.png")) for k in "cd"]
    names = [*names[: 1 + (kept == "image")], *["f.npz#a", "f.npz#b"][(kept == "image") :]]
    (tmp_path / "t.csv").write_text("image,caption\n" + "".join(f"{name},x\n" for name in names))
    parts = {"train": str(tmp_path / "t.csv"), "validation": str(tmp_path / "t.csv")}
    with pytest.raises(
        UserError, match="has (pixels|features with 6 channels), but most rows have"
    ):
        Captions(**parts).load()
    rows = Captions(**parts, bad="skip").load().train.source
    assert len(rows) == 2
    assert all((".npz" in row) == (kept == "features") for row in rows)


@pytest.mark.parametrize("kind", ["npy", "npz", "safetensors", "parquet"])
def test_features_come_from_every_kind_of_file(tmp_path, kind):
    flat = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    file = tmp_path / f"features.{kind}"
    name = f"{file}#dog"
    if kind == "npy":
        np.save(file, flat)
        name = str(file)
    elif kind == "npz":
        np.savez(file, dog=flat)
    elif kind == "safetensors":
        from safetensors.numpy import save_file

        save_file({"dog": flat}, file)
    else:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"dog": [flat.tolist()]}), file)
        name += "@0"
    assert read_features(name, 3).shape == (2, 2, 3)
    np.testing.assert_allclose(read_features(name, 3).reshape(4, 3), flat)
    with pytest.raises(
        UserError, match=r"3 channels, but the encoder expects 5; set encoder.channels=3"
    ):
        read_features(name, 5)


def test_pickles_are_refused(tmp_path):
    np.save(tmp_path / "evil.npy", np.array([{"a": 1}], dtype=object))
    with pytest.raises(UserError, match="cannot be read as features"):
        read_features(str(tmp_path / "evil.npy"), 1)


def test_missing_values_of_images_are_refused(tmp_path):
    values = np.full((4, 4), 0.5, np.float32)
    values[1, 2] = np.nan
    Image.fromarray(values).save(tmp_path / "hole.tiff")
    with pytest.raises(UserError, match=r"cannot be read as an image .contains NaN"):
        read_image(str(tmp_path / "hole.tiff"), 1, 100)
    np.save(tmp_path / "complex.npy", np.ones((2, 3), np.complex64))
    with pytest.raises(UserError, match=r"cannot be read as features .contains complex numbers"):
        read_features(str(tmp_path / "complex.npy"), 3)


@pytest.mark.parametrize(("name", "said"), [
    ("none.png", "file not found"), ("text.png", "not an image"), ("half.png", "cannot be read as an image"),
    ("digits:8x8/5000@0,0", "below 1,797"), ("digits:8x8/1@3,3", "must be inside the image of 8 x 8 pixels"), ("digits:nonsense", "invalid description of an image"),
])  # fmt: skip
def test_bad_images_are_reported_by_name(tmp_path, name, said):
    (tmp_path / "text.png").write_text("no image")
    whole = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)).save(
        whole, "png"
    )
    (tmp_path / "half.png").write_bytes(whole.getvalue()[:700])
    with pytest.raises(UserError, match=said) as caught:
        read_image(name if name.startswith("digits") else str(tmp_path / name), 1, 100)
    assert name in str(caught.value)


@pytest.mark.parametrize(("name", "said"), [
    ("none.npz#a", "file not found"), ("few.npz#b", "array b not found"), ("few.npz#flat", "expected \\[positions, channels\\]"),
    ("few.npz#inf", "contain NaN"), ("few.npz", "name an array as"), ("few.npz#none", r"shape \[0, 6\]"), ("damaged.npz#a", "cannot be read"), ("a.png", "not image features"),
])  # fmt: skip
def test_bad_features_are_reported_by_name(tmp_path, name, said):
    np.savez(
        tmp_path / "few.npz", flat=np.zeros(3), inf=np.full((2, 2), np.inf), none=np.zeros((0, 6))
    )
    (tmp_path / "damaged.npz").write_bytes(b"PK nothing")
    with pytest.raises(UserError, match=said):
        read_features(str(tmp_path / name), 6)


# Captions


def test_a_table_of_captions(tmp_path):
    for k in range(3):
        image(tmp_path, f"{k}.png", seed=k)
    rows = [
        {"image": f"{k}.png", "caption": [f"one {k}", f"two  {k}"][: 2 - (k == 2)]}
        for k in range(3)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = str(tmp_path / "t.jsonl")
    splits = Captions(train=table, validation=f"{table}@1:").load()
    assert list(splits.train.target) == ["one 0", "two 0", "one 1", "two 1", "one 2"]
    assert splits.train.source[1] == str(tmp_path / "0.png")
    assert list(splits.validation.target) == ["one 1", "one 2"]
    assert [list(other) for other in splits.validation.more_references] == [["two 1", ""]]
    assert splits.pictures
    assert splits.sources == 0


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_a_folder_with_metadata(tmp_path, ending):
    image(tmp_path, "a.png")
    columns = {
        "file_name": ["a.png", "a.png"],
        "de": ["ein Hund", "der Hund"],
        "en": ["a dog", "the dog"],
    }
    if ending == "parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "metadata.parquet")
    elif ending == "jsonl":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        (tmp_path / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        mark = "," if ending == "csv" else "\t"
        lines = [
            mark.join(columns),
            *(mark.join(row) for row in zip(*columns.values(), strict=True)),
        ]
        (tmp_path / f"metadata.{ending}").write_text("\n".join(lines) + "\n")
    splits = Captions(
        train=str(tmp_path), validation=str(tmp_path), caption="de", source="en", language="de"
    ).load()
    assert list(splits.train.source) == [f"a dog\t{tmp_path}/a.png", f"the dog\t{tmp_path}/a.png"]
    assert splits.languages == ("en", "de")


def test_a_split_does_not_depend_on_the_place_of_a_folder(tmp_path, monkeypatch):
    for k in range(12):
        image(tmp_path, f"{k}.png", seed=k)
    rows = [{"image": f"{k}.png", "caption": f"image {k}"} for k in range(12)]
    (tmp_path / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name}-copy")
    parts = []
    for folder in (tmp_path, Path(tmp_path.name), Path(f"{tmp_path.name}-copy"), Path()):
        monkeypatch.chdir(tmp_path if folder == Path() else tmp_path.parent)
        splits = Captions(train=str(folder), split=0.2).load()
        parts.append([[*pairs.target] for pairs in (splits.train, splits.validation, splits.test)])
    assert parts == parts[:1] * 4


def test_images_inside_of_parquet(tmp_path):
    import pyarrow
    import pyarrow.parquet

    content = image(tmp_path, "a.png").read_bytes()
    cells = [{"bytes": content, "path": None}, {"bytes": content, "path": "a.png"}]
    file = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"image": cells, "caption": ["a", "b"]}), file)
    splits = Captions(train=str(file), validation=str(file)).load()
    assert list(splits.train.source) == [f"{file}#image@0", f"{file}#image@1"]
    assert (
        read_image(splits.train.source[1], 3, 99) == np.asarray(Image.open(tmp_path / "a.png"))
    ).all()


def test_features_of_other_sizes_are_reported_before_anything_is_trained(tmp_path, caplog):
    np.savez(
        tmp_path / "f.npz",
        a=np.zeros((4, 6)),
        b=np.zeros((2, 3, 6)),
        c=np.zeros((4, 7)),
        d=np.zeros(3),
    )
    rows = "".join(f"f.npz#{key},caption\n" for key in "abcd")
    (tmp_path / "t.csv").write_text("image,caption\n" + rows)
    names = {"train": str(tmp_path / "t.csv"), "validation": str(tmp_path / "t.csv@:2")}
    with pytest.raises(
        UserError,
        match=r"2 of 4 rows.*f.npz#d: features of shape \[3\].*f.npz#c: has features with 7 channels, but most rows have features with 6",
    ):
        Captions(**names).load()
    assert len(Captions(**names, bad="skip").load().train) == 2


def test_texts_without_a_picture_are_split_too(tmp_path):
    image(tmp_path, "a.png")
    rows = "".join(f",text {k},caption {k}\n" for k in range(60))
    (tmp_path / "t.csv").write_text(f"image,en,caption\na.png,x,y\n{rows}")
    splits = Captions(train=str(tmp_path / "t.csv"), source="en", split=0.2).load()
    assert min(map(len, (splits.train, splits.validation, splits.test))) > 3
    with pytest.raises(UserError, match="set is empty"):
        Captions(train=str(tmp_path / "t.csv@:2"), source="en", split=0.01).load()


def test_the_captions_of_a_picture_stay_together(tmp_path):
    for k in range(40):
        image(tmp_path, f"{k}.png", seed=k)
    lines = [f"{k}.png,caption {n}" for k in range(40) for n in range(2)]
    (tmp_path / "t.csv").write_text("\n".join(["image,caption", *lines]) + "\n")
    splits = Captions(train=str(tmp_path / "t.csv"), split=0.2).load()
    parts = [set(part.source) for part in (splits.train, splits.validation, splits.test)]
    assert sum(map(len, parts)) == len(set().union(*parts)) == 40

    [others] = splits.validation.more_references
    assert {*splits.validation.target} == {"caption 0"}
    assert {*others} == {"caption 1"}


def test_the_captions_of_an_image_in_a_table_stay_together(tmp_path):
    import pyarrow
    import pyarrow.parquet

    images = [image(tmp_path, f"{k}.png", seed=k).read_bytes() for k in range(40)]
    rows = [(k, {"bytes": images[k], "path": None}) for k in range(40) for _ in range(2)]
    table = {"image": [cell for _, cell in rows], "caption": [f"image {k}" for k, _ in rows]}
    pyarrow.parquet.write_table(pyarrow.table(table), tmp_path / "t.parquet")
    splits = Captions(train=str(tmp_path / "t.parquet"), split=0.2).load()
    parts = [set(part.target) for part in (splits.train, splits.validation, splits.test)]
    assert sum(map(len, parts)) == len(set().union(*parts)) == 40


def test_no_caption_of_a_held_out_image_is_a_training_pair():
    train = Pairs(
        [*["a.jpg"] * 5, "b.jpg"], [*[f"caption {i}" for i in range(5)], "other"], "train"
    )
    references = [[f"caption {i}"] for i in range(1, 5)]
    test = Pairs(["a.jpg"], ["caption 0"], "test", more_references=references)
    validation = Pairs(["c.jpg"], ["third"], "validation")
    splits = Splits(train, validation, test, ("picture", "en"), sources=0, pictures=True)
    assert [*training_rows(splits, Filters(drop_held_out=True))] == [5]
    assert held_out_in_training(splits) == {"validation": 0, "test": 5}


def test_names_of_folders_may_contain_number_signs(tmp_path):
    folder = tmp_path / "C#"
    folder.mkdir()
    image(folder, "a#1.png")
    np.savez(folder / "x.npz", k=np.zeros((2, 3, 4), np.float32))
    assert check_picture(f"{folder}/a#1.png").channels is None
    assert check_picture(f"{folder}/x.npz#k").channels == 4
    with pytest.raises(UserError, match=r"C#/x\.npz#j: array j not found"):
        check_picture(f"{folder}/x.npz#j")


@pytest.mark.parametrize("bad", ["refuse", "skip"])
def test_bad_pictures_are_counted_or_refused(tmp_path, bad, caplog):
    image(tmp_path, "good.png")
    (tmp_path / "bad.png").write_text("x")
    (tmp_path / "t.csv").write_text("image,caption\ngood.png,a\nbad.png,b\nmissing.png,c\n")
    data = Captions(train=str(tmp_path / "t.csv"), validation=str(tmp_path / "t.csv"), bad=bad)
    if bad == "skip":
        assert len(data.load().train) == 1
        assert "skipped 2 of 3 rows as invalid" in caplog.text
        assert "missing.png: file not found" in caplog.text
        return
    with pytest.raises(
        UserError, match="2 of 3 rows are invalid.*bad.png: not an image.*data.bad=skip"
    ):
        data.load()


@pytest.mark.parametrize("name", ["x.csv.tsv", "x.tsv.gz"])
def test_the_last_suffix_determines_the_format_of_a_table(tmp_path, name):
    image(tmp_path, "a.png")
    text = b"image\tcaption\na.png\tone\n"
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    table = str(tmp_path / name)
    assert list(Captions(train=table, validation=table).load().train.target) == ["one"]


def test_tables_with_column_names_have_a_header(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"image": "a.png", "caption": "one"}\n')
    table = str(tmp_path / "t.jsonl")
    with pytest.raises(UserError, match="data.header=false: .* leave this key out"):
        Captions(train=table, validation=table, header=False).load()


def test_what_a_table_of_captions_lacks_is_reported(tmp_path):
    image(tmp_path, "a.png")
    (tmp_path / "t.csv").write_text("picture,text\na.png,a\n")
    with pytest.raises(
        UserError, match="columns 'image' and 'caption' not found .available: picture, text"
    ):
        Captions(train=str(tmp_path / "t.csv"), validation="x").load()
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="table of captions not found"):
        Captions(train=str(tmp_path / "empty"), validation="x").load()
    (tmp_path / "u.csv").write_text("image,caption\na.png,\n")
    with pytest.raises(UserError, match="1 of 1 rows are invalid .row 1: no caption"):
        Captions(train=str(tmp_path / "u.csv"), validation="x").load()


# Pages of digits


def test_pages_of_digits_show_their_captions():
    data = Digits(train=30, validation=5, test=5).load()
    used = [
        {
            int(i)
            for name in part.source
            for group in name.split("/")[1:]
            for i in group.split("@")[0].split(",")
        }
        for part in (data.train, data.validation, data.test)
    ]
    assert not used[0] & used[1]
    assert not (used[0] | used[1]) & used[2]
    from sklearn.datasets import load_digits

    labels = load_digits().target
    for name, caption, places in zip(
        data.train.source, data.train.target, data.train.regions, strict=True
    ):
        seen = page(name)
        assert seen.shape == (24, 32)
        groups = [group.split("@")[0].split(",") for group in name.split("/")[1:]]
        numbers = [int("".join(str(labels[int(i)]) for i in group)) for group in groups]
        assert caption == ", below it ".join(number_words(number, "en") for number in numbers)
        for begin, end, (top, left, bottom, right) in places:
            assert caption[begin:end].isalpha()
            box = seen[round(24 * top) : round(24 * bottom), round(32 * left) : round(32 * right)]
            assert box.shape == (8, 8)
            assert box.min() < 60, "a digit is dark"


@pytest.mark.parametrize(("number", "language", "told"), [
    (402, "en", [("four", 0), ("two", 2)]), (71, "en", [("seventy", 0), ("one", 1)]), (222, "en", [("two", 0), ("twenty", 1), ("two", 2)]),
    (17, "en", []), (0, "en", [("zero", 0)]), (30, "en", [("thirty", 0)]), (402, "de", []), (4, "fr", [("quatre", 0)]),
    (402, "es", [("cuatrocientos", 0), ("dos", 2)]),
])  # fmt: skip
def test_words_that_depend_on_one_digit(number, language, told):
    text = number_words(number, language)
    assert [
        (text[begin:end], digit) for begin, end, digit in digit_words(number, text, language)
    ] == told


def test_unknown_languages_and_small_pages_are_refused():
    with pytest.raises(UserError, match="data.language=xx: not supported by num2words"):
        Digits(language="xx").load()
    with pytest.raises(UserError, match="data.language=am: num2words cannot write 1234 "):
        number_words(1234, "am")
    with pytest.raises(ValueError, match="need at least 16 rows and 24 columns"):
        Digits(columns=20)


def test_the_place_of_the_most_attention():
    weights = np.zeros((3, 4))
    weights[1, 2] = 1
    assert inside(weights, (0.3, 0.5, 0.7, 0.8))
    assert not inside(weights, (0.0, 0.5, 0.3, 0.8))
    assert not inside(weights, (0.3, 0.0, 0.7, 0.5))


def test_spans_of_pieces():
    text = ["four hundred and two, below it seventy-one", "one"] * 20
    for kind in ("unigram", "bpe", "char"):
        tokenizer = SentencePiece(model=kind, vocabulary_size=40).train([], text)
        [ids] = tokenizer.encode_target(text[:1])
        spans = tokenizer.target_spans(text[0], ids)
        pieces = [piece.replace("▁", "") for piece in tokenizer.target_pieces(ids)]
        assert [text[0][span.start : span.stop] for span in spans] == pieces
        line = "four ŻŻ hundŻed one"
        [ids] = tokenizer.encode_target([line])
        spans = tokenizer.target_spans(line, ids)
        assert "".join(line[span.start : span.stop] for span in spans) == line.replace(" ", "")


# Several references


def test_several_references():
    from sacrebleu.metrics import BLEU

    answers, first, second = (
        ["a dog runs fast here", "a cat"],
        ["the dog runs fast here", "one cat"],
        ["a dog runs fast now", ""],
    )
    result = Metric(tokenize="13a").score(answers, first, others=[second], orders=True)
    for order in (1, 2, 3, 4):
        truth = (
            BLEU(max_ngram_order=order)
            .corpus_score(answers, [first, ["a dog runs fast now", None]])
            .score
        )
        assert result["bleu" if order == 4 else f"bleu{order}"].score == pytest.approx(truth)
    assert (
        Metric(tokenize="13a").score(["x", "b"], ["a", "b"], others=[["x", ""]])["exact"].score
        == 100
    )


# From training to answers


TINY = [
    "experiment=read_digits", "data.train=24", "data.validation=4", "data.test=4", "data.numbers=1", "sizes.encoder=8",
    "sizes.decoder=12", "sizes.readout=8", "sizes.vocabulary=60", "encoder.widths=[4,8]", "encoder.halvings=2",
    "model.embedding_size=8", "trainer.max_epochs=2", "batching.sentences=8", "trainer.log_every=2", "trainer.save_every=0",
    "translation.max_length_factor=0.2",
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def no_pictures_in_tensorboard():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TensorBoard, "picture", lambda *_: None)
        yield


@pytest.fixture(scope="module")
def reader_of_digits(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("digits") / "run", *TINY)


@pytest.mark.exhaustive
def test_what_training_leaves(reader_of_digits):
    results = json.loads((reader_of_digits / "results.json").read_text())
    assert {"bleu", "bleu1", "bleu2", "bleu3", "chrf", "exact"} <= {*results["scores"]}
    assert 0 <= results["scores"]["pointing"]["score"] <= 100
    with Image.open(reader_of_digits / "attention.png") as drawn:
        assert drawn.size[0] > 100


@pytest.mark.exhaustive
def test_separate_vocabularies_of_an_image_model_grow(tmp_path):
    separate = [*TINY, "tokenizer.joint=false", "model.tying=output"]
    first = trained(tmp_path / "first", *separate)
    grown = trained(tmp_path / "grown", *separate, f"init={first}", "init_vocabulary=grow")
    assert (grown / "results.json").exists()


@pytest.mark.exhaustive
def test_captions_of_files(tmp_path, reader_of_digits):
    """A path a line; the same page as a file and by its name has the same caption; an empty line stays one."""
    names = list(Digits(train=4, validation=1, test=1).load().train.source)
    for k, name in enumerate(names):
        Image.fromarray(page(name)).save(tmp_path / f"{k}.png")
    (tmp_path / "by_name.txt").write_text("".join(f"{name}\n" for name in [*names, ""]))
    (tmp_path / "images.txt").write_text("".join(f"{tmp_path}/{k}.png\n" for k in range(4)) + "\n")
    model = f"model={reader_of_digits}"
    result = [
        run("translate", model, f"input={tmp_path}/{file}.txt", "search=greedy")
        for file in ("images", "by_name")
    ]
    assert result[0].returncode == 0, result[0].stderr.decode()
    assert result[0].stdout == result[1].stdout
    assert result[0].stdout.count(b"\n") == 5
    assert result[0].stdout.endswith(b"\n\n")
    for more in (
        ["precision=int8"],
        ["search=beam"],
        ["search=sample"],
        ["search=mbr"],
        ["format=moses"],
    ):
        assert run("translate", model, f"input={tmp_path}/images.txt", *more).returncode == 0, more
    ensemble = run(
        "translate",
        f"model=[{reader_of_digits},{reader_of_digits}]",
        f"input={tmp_path}/images.txt",
        "search=greedy",
    )
    assert ensemble.stdout == result[0].stdout
    rows = (
        run("translate", model, f"input={tmp_path}/images.txt", "format=jsonl")
        .stdout.decode()
        .splitlines()
    )
    places = np.array(json.loads(rows[0])["hypotheses"][0]["places"])
    assert places.shape[1:] == (6, 8)
    np.testing.assert_allclose(places.sum((1, 2)), 1, atol=2e-3)
    failed(
        run("translate", model, f"input={tmp_path}/images.txt", "format=pharaoh"), "reads images"
    )
    failed(
        run("align", model, f"source={tmp_path}/images.txt", f"target={tmp_path}/images.txt"),
        "which have no words",
    )
    (tmp_path / "wrong.txt").write_text("nothing.png\n")
    failed(run("translate", model, f"input={tmp_path}/wrong.txt"), "nothing.png: file not found")
    images = (tmp_path / "images.txt").read_text().splitlines()
    (tmp_path / "scored.txt").write_text("".join(f"{name}\n" for name in images if name))
    score = run("score", model, f"source={tmp_path}/scored.txt", f"target={tmp_path}/scored.txt")
    assert score.stdout.count(b"\n") == 4


def test_an_empty_line_has_no_image_to_score(reader_of_digits, tmp_path):
    translator = nmt.load(reader_of_digits)
    [source] = translator.encode(["digits:16x8/1@0,0"])
    with pytest.raises(UserError, match="expected the name of an image"):
        translator.force([source, []], [[5], [6]])
    (tmp_path / "in").write_text("digits:16x8/1@0,0\n\n")
    (tmp_path / "out").write_text("one\ntwo\n")
    result = run(
        "score",
        f"model={reader_of_digits}",
        f"source={tmp_path}/in",
        f"target={tmp_path}/out",
        f"output={tmp_path}/scores",
    )
    assert "in, line 2: the line is empty" in result.stderr.decode()
    assert not (tmp_path / "scores").exists()


def test_a_title_is_not_wrapped_within_an_escaped_character():
    for line in _wrapped("m" * 23 + "$a$b", 24).splitlines():
        assert line.count("$") == line.count("\\$")
        assert not line.endswith("\\")


def test_a_long_title_of_an_image_is_wrapped():
    title = "reference: five hundred and twenty-one\nchrF of the translation: 55"
    row = PictureRow("", np.zeros((8, 16, 3), np.uint8), ["five"], np.ones((1, 2, 4)), title)
    figure = picture_figure([row])
    figure.draw_without_rendering()
    first, second = figure.axes[:2]
    assert " ".join(first.get_title().split()) == " ".join(title.split())
    assert first.title.get_window_extent().x1 <= second.title.get_window_extent().x0


@pytest.mark.exhaustive
def test_a_batch_is_one_by_one(reader_of_digits):
    translator = nmt.load(reader_of_digits)
    names = list(Digits(train=20, validation=1, test=1).load().train.source)
    assert translator.translate(names) == [translator.translate(name) for name in names]


@pytest.mark.exhaustive
@pytest.mark.parametrize("ending", ["html", "png", "json"])
def test_maps_of_pictures(tmp_path, reader_of_digits, ending):
    names = list(Digits(train=2, validation=1, test=1).load().train.source)
    (tmp_path / "in").write_text("".join(f"{name}\n" for name in names))
    out = tmp_path / f"map.{ending}"
    result = run(
        "translate",
        f"model={reader_of_digits}",
        f"input={tmp_path}/in",
        f"attention_map={out}",
        f"compare={reader_of_digits}/best.safetensors",
    )
    assert result.returncode == 0, result.stderr.decode()
    if ending == "json":
        rows = json.loads(out.read_text())
        assert [row["picture"] for row in rows] == names
        for row in rows:
            for places in row["places"].values():
                assert np.array(places).shape == (len(row["target"]), 6, 8)
    elif ending == "png":
        with Image.open(out) as drawn:
            assert drawn.size[0] > 200
    else:
        text = out.read_text()
        words = sum(
            min(60, len(caption.split()) + 1) for caption in result.stdout.decode().splitlines()
        )
        assert text.count('class="look"') == 2 * words
        assert 'role="img"' in text
        assert "http" not in text


@pytest.mark.exhaustive
def test_pointing_counts_words(reader_of_digits):
    part = Digits(train=9, validation=1, test=1).load().train
    result = pointing(nmt.load(reader_of_digits), part)
    assert result.signature.startswith(f"{sum(map(len, part.regions))} words")
    everywhere = replace(
        part,
        regions=[[(b, e, (0.0, 0.0, 1.0, 1.0)) for b, e, _ in value] for value in part.regions],
    )
    nowhere = replace(
        part,
        regions=[[(b, e, (2.0, 2.0, 3.0, 3.0)) for b, e, _ in value] for value in part.regions],
    )
    assert [pointing(nmt.load(reader_of_digits), each).score for each in (everywhere, nowhere)] == [
        100,
        0,
    ]
    assert 0 <= result.score <= 100


@pytest.mark.exhaustive
def test_evaluation_against_several_references(tmp_path, reader_of_digits):
    part = Digits(train=3, validation=1, test=1).load().train
    for name, lines in (("in", part.source), ("a", part.target), ("b", ["nothing"] * 3)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    one, two = (
        run(
            "evaluate", f"model={reader_of_digits}", f"source={tmp_path}/in", f"reference={given}"
        ).stdout.decode()
        for given in (f"{tmp_path}/a", f"[{tmp_path}/a,{tmp_path}/b]")
    )
    assert "nrefs:1" in one
    assert "nrefs:2" in two
    assert "bleu1" in two


@pytest.mark.exhaustive
def test_multimodal_translation(tmp_path):
    """Words and an image: trained, translated with and without the image, drawn."""
    words, lines = ["red", "dog", "runs", "two", "cats"], []
    generator = np.random.default_rng(0)
    for k in range(24):
        image(tmp_path, f"{k}.png", size=(9, 6 + k % 3), seed=k)
        text = " ".join(generator.choice(words, 3))
        lines.append(f"{k}.png,{text},{text[::-1]}")
    (tmp_path / "t.csv").write_text("\n".join(["image,en,de", *lines]) + "\n")
    keys = [
        "data=captions",
        f"data.train={tmp_path}/t.csv",
        f"data.validation={tmp_path}/t.csv@:4",
        "data.source=en",
        "data.caption=de",
        "data.language=de",
    ]
    small = [
        text
        for text in TINY
        if not text.startswith(("experiment", "data.", "encoder.", "sizes.vocab"))
    ]
    folder = trained(
        tmp_path / "run",
        *keys,
        *small,
        "encoder=bidirectional+convolution",
        "encoder.places.widths=[4,4]",
        "encoder.places.halvings=1",
        "tokenizer=char",
    )
    (tmp_path / "in").write_text(f"red dog\t{tmp_path}/0.png\nred dog\t\n")
    # Sentences with and without an image have different legends, in any order.
    (tmp_path / "turned").write_text(f"red dog\t\nred dog\t{tmp_path}/0.png\n")
    for name in ("in", "turned"):
        command = "translate", f"model={folder}", f"input={tmp_path}/{name}"
        result = run(*command, f"attention_map={tmp_path}/map.html")
        assert result.returncode == 0, result.stderr.decode()
        assert result.stdout.count(b"\n") == 2
        html = (tmp_path / "map.html").read_text()
        assert 'class="look"' in html
        assert "Columns are source words" in html
        assert "One image per target word" in html
        result = run(*command, f"attention_map={tmp_path}/map.png")
        assert result.returncode == 0, result.stderr.decode()
        assert b"shows only the attention to images" in result.stderr
    np.save(tmp_path / "features.npy", np.zeros((4, 3), np.float32))
    (tmp_path / "features").write_text(f"red dog\t\nred dog\t{tmp_path}/features.npy\n")
    failed(
        run("translate", f"model={folder}", f"input={tmp_path}/features"),
        "features, line 2",
        "contains features, not an image",
    )
    (tmp_path / "wrong").write_text("red dog\n")
    failed(
        run("translate", f"model={folder}", f"input={tmp_path}/wrong"),
        "1 column; the model expects a text and an image name",
    )


@pytest.mark.parametrize(("overrides", "said"), [
    (["encoder=grid"], "reads images, but this data has none"),
    (["data=digits"], "choose encoder=grid or convolution"),
    (["data=digits", "encoder=bidirectional+grid"], "reads text and images"),
    (["data=digits", "encoder=convolution", "encoder.channels=1", "model.copy=true"], "this encoder reads images"),
    (["data=digits", "encoder=convolution", "encoder.halvings=9"], "the number of layers in encoder.widths"),
    (["data=digits", "encoder=convolution", "encoder.channels=1", "encoder.widths=[]"], "encoder.widths=[]: needs at least one layer"),
    (["data=digits", "encoder=grid", "sizes.encoder=6"], "must be a multiple of 4"),
    (["window=hard", "window.reward=0.5"], "has an effect only with window.estimator=reinforce"),
    (["decoder=fixed", "attention=none", "decoder.context_gate=true"], "needs attention: set decoder.context_gate=false"),
])  # fmt: skip
def test_what_does_not_fit_is_reported(overrides, said):
    failed(run("train", *overrides), said)


def test_pictured_lines():
    columns = Columns(sources=1, picture=True)
    assert columns.split("a\tb.png") == ["a", "b.png"]
    assert columns.words("a\tb.png") == "a"
    assert columns.picture_in("a\t") == ""
    short = columns.shortened(Pictured([1, 2, 3], "b.png"), 2)
    assert (list(short), short.picture) == ([1, 2], "b.png")
    assert Pictured([], "x")
    assert not Pictured([], "")


def test_build_without_source_words():
    config = compose(
        "encoder=grid",
        "decoder=luong",
        "attention=dot",
        "encoder.channels=3",
        "sizes.encoder=8",
        "decoder.hidden_size=8",
    )
    model = components.network(config, 9, 11, Columns(0, picture=True))
    assert model.source_embedding is None
    assert model.target_embedding.num_embeddings == 11
    assert model.output.weight is model.target_embedding.weight  # tying=all
    assert F.embedding is not None


def test_a_picture_that_changes_is_other_data(tmp_path):
    image(tmp_path, "a.png", seed=1)
    (tmp_path / "t.csv").write_text("image,caption\na.png,a dog\n")
    data, prints = Captions(train=f"{tmp_path}/t.csv", validation=f"{tmp_path}/t.csv"), []
    for seed in (1, 1, 2):
        image(tmp_path, "a.png", seed=seed)
        prints.append(fingerprint(data.load().train))
    assert prints[0] == prints[1] != prints[2]


def test_a_further_reference_that_changes_is_other_data(tmp_path):
    image(tmp_path, "a.png", seed=1)
    prints = []
    for second in ("a cat", "a cat", "a cow"):
        row = {"image": "a.png", "caption": ["a dog", second]}
        (tmp_path / "t.jsonl").write_text(json.dumps(row) + "\n")
        data = Captions(train=f"{tmp_path}/t.jsonl", validation=f"{tmp_path}/t.jsonl")
        prints.append(fingerprint(data.load().validation))
    assert prints[0] == prints[1] != prints[2]


def test_empty_cells_of_a_table_are_rows_without_caption_or_picture(tmp_path):
    image(tmp_path, "a#1.png")
    rows = [
        {"image": "a#1.png", "caption": "x"},
        {"image": "a#1.png", "caption": None},
        {"image": None, "caption": "y"},
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = {"train": str(tmp_path / "t.jsonl"), "validation": str(tmp_path / "t.jsonl")}
    assert list(Captions(**names, bad="skip").load().train.target) == ["x"]
    with pytest.raises(
        UserError, match="2 of 3 rows are invalid .row 2: no caption; row 3: no image"
    ):
        Captions(**names).load()


def test_an_empty_image_of_parquet_is_a_row_without_image(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install '.[parquet]'")
    pyarrow = pytest.importorskip("pyarrow")
    file = tmp_path / "t.parquet"
    name = image(tmp_path, "a.png")
    columns = {"image": [str(name), None], "caption": ["x", "y"], "en": ["a", "b"]}
    parquet.write_table(pyarrow.table(columns), file)
    names = {"train": str(file), "validation": str(file)}
    assert len(Captions(**names, source="en").load().train) == 2
    with pytest.raises(UserError, match="row 2: no image"):
        Captions(**names).load()


def test_changed_features_and_cells_of_the_same_size_are_detected(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    stamps = set()
    for number in (1, 2):
        np.save(tmp_path / "x.npy", np.full((2, 2, 3), number, np.float32))
        stamps.add(check_picture(f"{tmp_path}/x.npy").stamp)
    pixels = [Image.new("L", (4, 4), colour) for colour in (10, 20)]
    for number, picture in enumerate(pixels):  # the column of a file is read once
        file = tmp_path / f"{number}.parquet"
        data = io.BytesIO()
        picture.save(data, "BMP")
        table = pa.table({"image": [{"bytes": data.getvalue(), "path": None}]})
        parquet.write_table(table, file, compression="none")
        stamps.add(check_picture(f"{file}#image@0").stamp)
    assert len(stamps) == 4


def test_positions_of_a_grid_have_several_frequencies():
    """Sines and cosines of the row, then of the column, at frequencies from 1 downwards."""
    encoder = Grid(embedding_size=1, hidden_size=12, channels=2)
    positions = encoder.position(3, 5, torch.zeros((), dtype=torch.double))
    assert positions.shape == (3, 5, 12)
    frequencies = [10_000 ** (-2 * i / 6) for i in range(3)]
    for row in range(3):
        for column in range(5):
            expected = [
                wave(place * frequency)
                for place in (row, column)
                for wave in (math.sin, math.cos)
                for frequency in frequencies
            ]
            torch.testing.assert_close(
                positions[row, column], torch.tensor(expected).double(), atol=1e-5, rtol=0.0
            )


def test_learnt_positions_are_those_of_the_row_and_the_column():
    torch.manual_seed(1)
    encoder = Grid(embedding_size=1, hidden_size=6, channels=2, positions="learnt")
    positions = encoder.position(3, 5, torch.zeros(()))
    for row in range(3):
        for column in range(5):
            expected = encoder.rows.weight[row] + encoder.columns.weight[column]
            torch.testing.assert_close(positions[row, column], expected)
    with pytest.raises(
        UserError, match="at most 64 x 64 image positions, but a batch of images has"
    ):
        encoder.position(3, 65, torch.zeros(()))
