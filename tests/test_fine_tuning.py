"""Starting from a trained model: its weights, vocabulary and network, with everything else new."""

import pytest
import sentencepiece
import torch
from builders import batch, network, trained
from commands import failed, run

import nmt
from nmt.foundation.errors import UserError
from nmt.model.freezing import freeze
from nmt.search.greedy import Greedy
from nmt.storage import checkpoint as ckpt
from nmt.storage.averaging import average_checkpoints
from nmt.tokenizer import SentencePiece, SentencePieceFile
from nmt.training.objective.cross_entropy import CrossEntropy

SIZES = [
    "sizes.encoder=4", "sizes.decoder=8", "sizes.readout=6", "sizes.vocabulary=30", "model.embedding_size=6", "search=greedy",
    "model.tying=all",
]  # fmt: skip


def corpus(folder, name, lines):
    for part in ("train", "validation"):
        for language in ("en", "de"):
            (folder / f"{name}-{part}.{language}").write_text(
                "".join(line + "\n" for line in lines)
            )
    return [
        "data=text",
        "data.source=en",
        "data.target=de",
        *(f"data.{p}={folder}/{name}-{p}" for p in ("train", "validation")),
    ]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    return corpus(folder, "old", ["ab ba abba", "bab a", "aa bb ab"] * 8), corpus(
        folder, "new", ["cd dc abcd", "dada ba"] * 8
    )


@pytest.fixture(scope="module")
def base(texts, tmp_path_factory):
    return trained(tmp_path_factory.mktemp("base") / "run", *texts[0], *SIZES, "decoder=luong", "attention=dot", "cell=lstm",
                   "trainer.max_epochs=2", "trainer.ema=0.9")  # fmt: skip


def weights(folder, name=ckpt.BEST):
    return ckpt.read(folder / name).part("model")


def test_training_continues_from_the_weights(base, texts, tmp_path):
    """With a rate of almost 0 the model stays what it was; its network and vocabulary need not be typed again."""
    folder = trained(
        tmp_path / "run",
        *texts[1],
        f"init={base}",
        "optimizer=sgd",
        "optimizer.lr=1e-30",
        "trainer.max_epochs=1",
    )
    ours, theirs = weights(folder), weights(base)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    mine, other = ckpt.read(folder / ckpt.BEST), ckpt.read(base / ckpt.BEST)
    assert ckpt.tokenizer_from(mine).models == ckpt.tokenizer_from(other).models
    assert mine.meta["config"]["cell"] == "lstm"
    assert nmt.load(folder, search=Greedy()).translate(["ab"]) == nmt.load(base).translate(["ab"])
    again = trained(
        tmp_path / "again",
        *texts[1],
        f"init={base}",
        "optimizer.lr=0.01",
        "trainer.max_epochs=1",
        "model.dropout=0.1",
    )
    assert not all(torch.equal(weights(again)[name], theirs[name]) for name in theirs)
    assert ckpt.read(again / ckpt.BEST).meta["config"]["model"]["dropout"] == 0.1


@pytest.mark.exhaustive
def test_a_fine_tuned_run_resumes_without_its_beginning(base, texts, tmp_path):
    """Stopped and resumed, it is the uninterrupted one; the model that it began with may be gone by then."""
    import shutil

    moved = tmp_path / "base"
    shutil.copytree(base, moved)
    options = [*texts[1], f"init={moved}", "optimizer.lr=0.01"]
    whole = trained(tmp_path / "whole", *options, "trainer.max_epochs=2", "schedule=constant")
    part = trained(tmp_path / "part", *options, "trainer.max_epochs=1", "schedule=constant")
    shutil.rmtree(moved)
    assert run("train", f"resume={part}", "trainer.max_epochs=2").returncode == 0
    ours, theirs = weights(part, ckpt.LAST), weights(whole, ckpt.LAST)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("model", ["unigram", "bpe", "char", "word"])
def test_a_vocabulary_grows_at_its_end(model):
    old = SentencePiece(model=model, vocabulary_size=30).train(["ab ba abba"] * 9, ["bab a"] * 9)
    new = SentencePiece(model=model, vocabulary_size=40).train(["cd dc abcd"] * 9, ["dada ba"] * 9)
    grown, size = old.grown(new), old.source_size
    assert grown.source_pieces(list(range(size))) == old.source_pieces(list(range(size)))
    assert size < grown.source_size <= size + new.source_size
    assert grown.decode(grown.encode_target(["cd dada"])) == ["cd dada"]
    assert all(1 not in ids for ids in grown.encode_source(["cd dc abcd", "dada ba"]))
    assert old.grown(old).models == old.models or old.grown(old).source_size == size


def test_a_grown_vocabulary_keeps_the_old_vectors(base, texts, tmp_path):
    folder = trained(tmp_path / "run", *texts[1], f"init={base}", "init_vocabulary=grow", "optimizer=sgd", "optimizer.lr=1e-30",
                     "trainer.max_epochs=1")  # fmt: skip
    ours, theirs = weights(folder), weights(base)
    table, before = ours["source_embedding.weight"], theirs["source_embedding.weight"]
    assert len(table) > len(before)
    assert torch.equal(table[: len(before)], before)
    assert torch.equal(
        ours["output.bias"][len(before) :],
        theirs["output.bias"].min().expand(len(table) - len(before)),
    )
    assert bool(table[len(before) :].abs().sum(1).min() > 0)


def test_a_vocabulary_does_not_grow_by_held_out_pairs(base, tmp_path):
    """The vocabulary of texts with the validation pair among the training pairs is that of texts without it."""
    typed = [
        f"init={base}",
        "init_vocabulary=grow",
        "filters.drop_held_out=true",
        "trainer.max_epochs=1",
    ]
    grown = []
    for name, held_out in (("with", ["xyz zyx"] * 3), ("without", [])):
        data = corpus(tmp_path, name, ["cd dc abcd", "dada ba"] * 8 + held_out)
        for language in ("en", "de"):
            (tmp_path / f"{name}-validation.{language}").write_text("xyz zyx\n")
        folder = trained(tmp_path / name, *data, *typed)
        grown.append(ckpt.tokenizer_from(ckpt.read(folder / ckpt.BEST)).models)
    assert grown[0] == grown[1]


def test_parts_can_be_frozen(base, texts, tmp_path):
    folder = trained(
        tmp_path / "run",
        *texts[1],
        f"init={base}",
        "freeze=[encoder,source_embedding]",
        "trainer.max_epochs=1",
    )
    ours, theirs = weights(folder), weights(base)
    for name, value in ours.items():
        still = name.startswith(("encoder.", "source_embedding."))
        assert torch.equal(value, theirs[name]) == still, name


def test_tied_embeddings_are_frozen_by_any_of_their_names():
    for name in ("output", "source_embedding", "target_embedding"):
        model = network(
            "luong", "dot", "model.tying=all", "decoder.readout_size=8", "model.embedding_size=8"
        )
        freeze(model, [name])
        assert not model.output.weight.requires_grad
        assert model.output.bias.requires_grad == (name != "output")


@pytest.mark.parametrize(
    ("decoder", "name"),
    [
        ("luong", "decoder.layers.layers.0.rnn.weight_hh_l0"),
        ("luong_feed", "decoder.combine.weight"),
    ],
)
def test_the_bias_of_a_frozen_matrix_is_trained(decoder, name):
    """All other parameters have the gradients of a network without frozen parameters."""
    gradients = []
    for frozen in ([], [name]):
        torch.manual_seed(0)
        model = network(decoder, "general", "cell=lstm").train()
        freeze(model, frozen)
        CrossEntropy()(model, batch(), 0).total.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    free, partly = gradients
    assert partly.pop(name) is None
    for other, gradient in partly.items():
        torch.testing.assert_close(gradient, free[other], msg=other)


# A user-supplied tokenizer


def sentencepiece_model(path, **options):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["ab ba abba cd", "bab a dc"] * 20), model_prefix=str(path), minloglevel=2, hard_vocab_limit=False,
        vocab_size=30, **options)  # fmt: skip
    return f"{path}.model"


@pytest.mark.parametrize("model", ["unigram", "bpe"])
@pytest.mark.parametrize(
    "ids", [{}, {"unk_id": 2, "bos_id": 0, "eos_id": 1, "pad_id": 3}, {"bos_id": -1}]
)
def test_a_user_supplied_sentencepiece_model(tmp_path, model, ids):
    """Whatever numbers it gives its special symbols: the same pieces as SentencePiece's, with this project's numbers."""
    file = sentencepiece_model(tmp_path / "own", model_type=model, **ids)
    theirs = sentencepiece.SentencePieceProcessor(model_file=file)
    tokenizer = SentencePieceFile(model=file).train([], [])
    for text in ("ab ba abba", "cd x bab", ""):
        [result] = tokenizer.encode_source([text])
        assert tokenizer.source_pieces(result) == [
            theirs.id_to_piece(i) for i in theirs.encode(text)
        ]
        assert tokenizer.decode([result]) == [theirs.decode(theirs.encode(text))]
    assert tokenizer.source_pieces([0, 1, 2, 3]) == ["<pad>", "<unk>", "<s>", "</s>"]
    assert sorted(set(tokenizer.source_pieces(list(range(tokenizer.source_size))))) == sorted(
        {*(theirs.id_to_piece(i) for i in range(theirs.get_piece_size())), "<pad>", "<s>"}
    )


def test_unknown_words_of_a_user_supplied_model_have_the_usual_mark(tmp_path):
    """translation.unknown replaces or drops this mark."""
    file = sentencepiece_model(tmp_path / "own", model_type="bpe", unk_surface="[?]")
    tokenizer = SentencePieceFile(model=file).train([], [])
    assert tokenizer.decode(tokenizer.encode_target(["ab Ω ba"])) == ["ab  ⁇  ba"]


@pytest.mark.parametrize(
    "options",
    [
        {"user_defined_symbols": ["<x>"]},
        {"treat_whitespace_as_suffix": True},
        {"split_by_whitespace": False},
    ],
)
def test_models_whose_segmentations_cannot_be_sampled_are_refused(tmp_path, options):
    file = sentencepiece_model(tmp_path / "own", model_type="bpe", **options)
    SentencePieceFile(model=file).train([], [])
    with pytest.raises(UserError, match=r"tokenizer\.sampling=0\.1: .* set tokenizer\.sampling=0"):
        SentencePieceFile(model=file, sampling=0.1).train([], [])


def test_training_with_a_tokenizer_of_ones_own(texts, tmp_path):
    file = sentencepiece_model(tmp_path / "own")
    command = [*texts[0], *SIZES[:3], *SIZES[4:], "tokenizer=file", "trainer.max_epochs=1"]
    folder = trained(tmp_path / "run", *command, f"tokenizer.model={file}")
    failed(
        run(
            "train",
            *command,
            f"run_dir={tmp_path}/no",
            f"tokenizer.model={file}",
            "sizes.vocabulary=9",
        ),
        "has no effect in this configuration",
    )
    chars = sentencepiece_model(tmp_path / "chars", model_type="char")
    failed(
        run(
            "train",
            *command,
            f"run_dir={tmp_path}/no",
            f"tokenizer.model={chars}",
            "tokenizer.sampling=0.1",
        ),
        "neither a unigram nor a BPE model",
    )
    (tmp_path / "own.model").unlink()  # the checkpoint alone is enough
    assert isinstance(nmt.load(folder).translate(["ab ba"])[0], str)
    failed(
        run("train", *command, f"run_dir={tmp_path}/no", f"tokenizer.model={file}"),
        "tokenizer.model=",
        "file not found",
    )
    (tmp_path / "bad").write_bytes(b"x" * 100)
    failed(
        run("train", *command, f"run_dir={tmp_path}/no", f"tokenizer.model={tmp_path}/bad"),
        "not a SentencePiece model",
    )
    two = f"tokenizer.model={tmp_path}/bad", f"tokenizer.target={tmp_path}/bad"
    failed(
        run("train", *command, f"run_dir={tmp_path}/no", *two),
        "model.tying=all",
        "a shared vocabulary",
    )


def test_faults_of_fine_tuning_are_reported(base, texts, tmp_path):
    command = [*texts[1], f"run_dir={tmp_path}/run", "trainer.max_updates=1"]
    failed(
        run("train", *command, f"init={tmp_path}"),
        f"init={tmp_path}",
        "Give the run folder of a trained model",
    )
    failed(
        run("train", *command, f"init={base}", "decoder=bahdanau"),
        "decoder=bahdanau",
        "determined by init=",
    )
    failed(run("train", *command, f"init={base}", "cell=gru"), "cell=gru", "leave the key out")
    failed(
        run("train", *command, f"init={base}", "decoder.hidden_size=16", "attention=general"),
        "attention=general",
    )
    errors = failed(
        run(
            "train",
            *command,
            f"init={base}",
            "attention=general",
            "sizes.encoder=9",
            "optimizer.lr=-1",
        ),
        "sizes.encoder=9",
    )
    assert "attention=general" in errors  # all at once
    assert "optimizer.lr" in errors
    grow = "init_vocabulary=grow", "freeze=[encoder,source_embedding]"
    failed(run("train", *command, f"init={base}", *grow), "would not be trained")
    failed(
        run("train", *command, f"init={base}", "freeze=[readout,encodr]"), "freeze=readout,encodr"
    )
    failed(
        run(
            "train", *command, f"init={base}", "encoder.hidden_size=8", "decoder.context_gate=true"
        ),
        "encoder.hidden_size=8: this key changes the network parameters",
        "decoder.context_gate=true",
    )
    failed(run("train", *command, f"init={base}", "encoder.layer_norm=true"), "do not match")
    failed(
        run(
            "train", *command, f"init={base}", "tokenizer.lowercase=true", "tokenizer.sampling=0.1"
        ),
        "tokenizer.lowercase=true: has no effect, because the tokenizer is that of init=",
    )
    failed(run("train", *command, f"init={base}", "decoder.hiden=16"), "did you mean hidden_size")
    failed(
        run("train", *command, f"init={base}", "freeze=[encodr]"),
        "not found in the network",
        "decoder, encoder",
    )
    failed(run("train", *command, "init_vocabulary=grow"), "needs init=RUN_DIR")


@pytest.mark.parametrize(
    "setting",
    ["lowercase=true", "normalization=nfkc", "model=bpe", "byte_fallback=true"],
)
def test_a_grown_vocabulary_keeps_algorithm_and_normalization(base, texts, setting):
    grow = f"init={base}", "init_vocabulary=grow", f"tokenizer.{setting}"
    failed(run("train", *texts[1], *grow), f"tokenizer.{setting}: has no effect")


def test_the_vocabulary_of_a_tokenizer_file_does_not_grow(base, texts, tmp_path):
    """Nothing would be added to it."""
    model = tmp_path / "sentencepiece.model"
    model.write_bytes(ckpt.tokenizer_from(ckpt.read(base / ckpt.BEST)).source_model)
    sizes = [size for size in SIZES if not size.startswith("sizes.vocabulary")]
    file = "tokenizer=file", f"tokenizer.model={model}", "trainer.max_updates=1"
    of_file = trained(tmp_path / "file", *texts[0], *sizes, *file)
    grow = f"init={of_file}", "init_vocabulary=grow"
    failed(
        run("train", *texts[1], *grow), "init_vocabulary=grow", "the tokenizer of init= is a file"
    )


# Word vectors


@pytest.mark.parametrize("tying", ["all", "none"])
def test_word_vectors_in_a_translation_model(texts, tmp_path, tying):
    """At rate 0, the embeddings of words with vectors are these vectors; of both languages if one matrix serves both."""
    (tmp_path / "s.vec").write_text("ab 1 2 3 4 5 6\nzz 9 9 9 9 9 9\n")
    (tmp_path / "t.vec").write_text("ba 6 5 4 3 2 1\nab 0 0 0 0 0 1\n")
    folder = trained(
        tmp_path / "run", *texts[0], *SIZES[:-1], f"model.tying={tying}", "tokenizer=word", "optimizer=sgd", "optimizer.lr=1e-30",
        f"vectors=[{tmp_path}/s.vec,{tmp_path}/t.vec]", "trainer.max_epochs=1", "freeze=[target_embedding]" if tying == "none" else "freeze=null",
    )  # fmt: skip
    saved = ckpt.read(folder / ckpt.BEST)
    tokenizer, weights = ckpt.tokenizer_from(saved), saved.part("model")
    pieces = tokenizer.target_pieces(list(range(tokenizer.target_size)))
    ab, ba = pieces.index("▁ab"), pieces.index("▁ba")
    assert weights["source_embedding.weight"][ab].tolist() == [1, 2, 3, 4, 5, 6]
    target = weights["source_embedding.weight" if tying == "all" else "target_embedding.weight"]
    assert target[ba].tolist() == [6, 5, 4, 3, 2, 1]
    assert target[ab].tolist() == ([1, 2, 3, 4, 5, 6] if tying == "all" else [0, 0, 0, 0, 0, 1])
    command = *texts[0], *SIZES, "tokenizer=word", f"run_dir={tmp_path}/no"
    failed(run("train", *command, f"vectors=[{tmp_path}/s.vec]"), "must be two files")
    failed(
        run(
            "train",
            *command,
            f"vectors=[{tmp_path}/s.vec,null]",
            "model.embedding_size=8",
            "sizes.readout=8",
        ),
        "set model.embedding_size=6",
    )


def test_a_word_vocabulary_of_another_model_cannot_be_sampled(base, texts, tmp_path):
    words = trained(
        tmp_path / "words", *texts[0], *SIZES, "tokenizer=word", "trainer.max_updates=1"
    )
    sizes = [text for text in SIZES if not text.startswith("sizes.vocabulary")]
    typed = [*texts[0], *sizes, "tokenizer.sampling=0.3", f"run_dir={tmp_path}/run"]
    teacher = ["objective=distillation", f"objective.teacher={words}"]
    failed(run("train", *typed, *teacher), "cannot be sampled; set tokenizer.sampling=0")
    assert not (tmp_path / "run" / ckpt.LAST).exists()


# The mean of checkpoints


def test_checkpoints_are_averaged(base, texts, tmp_path):
    """Tensor by tensor; the result translates, and runs may start from it."""
    other = trained(
        tmp_path / "other", *texts[1], f"init={base}", "optimizer.lr=0.05", "trainer.max_epochs=1"
    )
    mean = tmp_path / "mean.safetensors"
    result = run("average", f"models=[{base},{other}]", f"output={mean}")
    assert result.returncode == 0, result.stderr.decode()
    assert b"independent" not in result.stderr
    ours, parts = ckpt.read(mean).part("model"), [weights(base), weights(other)]
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, (parts[0][name] + parts[1][name]) / 2)
    assert isinstance(nmt.load(mean).translate(["ab"])[0], str)
    trained(tmp_path / "next", *texts[1], f"init={mean}", "trainer.max_updates=1")


def test_a_mean_of_independent_trainings_is_warned_about(base, texts, tmp_path):
    """The units of networks with different seeds do not correspond to each other."""
    typed = [*texts[0], *SIZES, "decoder=luong", "attention=dot", "cell=lstm", "seed=5"]
    stranger = trained(tmp_path / "stranger", *typed, "trainer.max_epochs=2")
    result = run("average", f"models=[{base},{stranger}]", f"output={tmp_path}/mean.safetensors")
    assert b"come from independent training runs" in result.stderr
    # Similar weights, as in a sweep over seeds and in one over learning rates with the same seed.
    saved = ckpt.read_model(str(base))
    draw = torch.Generator().manual_seed(1)
    moved = {
        name: tensor + tensor.std() * torch.randn(tensor.shape, generator=draw)
        if tensor.dim() > 1
        else tensor
        for name, tensor in saved.tensors.items()
    }
    for changed, tensors, is_warned in (
        ({"seed": 77}, saved.tensors, True),
        ({"run_dir": "another"}, moved, True),
        ({"run_dir": "renamed"}, saved.tensors, False),
        ({}, moved, False),
    ):
        meta = {**saved.meta, "config": {**saved.config, **changed}}
        ckpt.write(tmp_path / "similar.safetensors", meta, tensors)
        models = f"models=[{base},{tmp_path}/similar.safetensors]"
        result = run("average", models, f"output={tmp_path}/mean.safetensors")
        assert (b"come from independent training runs" in result.stderr) == is_warned, changed


@pytest.mark.parametrize(
    ("key", "value", "message"), [("bridge", "linear", "decoder.bridge"), ("dropout", 0.4, "")]
)
def test_averaged_models_have_equal_equations(base, tmp_path, key, value, message):
    saved = ckpt.read_model(str(base))
    decoder = {**saved.config["decoder"], key: value}
    changed = {**saved.meta, "config": {**saved.config, "decoder": decoder}}
    ckpt.write(tmp_path / "changed.safetensors", changed, saved.tensors)
    models = f"models=[{base},{tmp_path}/changed.safetensors]"
    result = run("average", models, f"output={tmp_path}/mean.safetensors")
    assert (result.returncode == 0) == (not message), result.stderr.decode()
    assert message in result.stderr.decode()


def test_faults_of_averaging_are_reported(base, texts, tmp_path):
    out = f"output={tmp_path}/mean.safetensors"
    failed(run("average", f"models=[{base}]", out), "at least two")
    failed(run("average", f"models=[{base},{base}]", "output=mean"), "must end in .safetensors")
    best = base / ckpt.BEST
    failed(run("average", f"models=[{base},{base}]", f"output={best}"), "is also an input model")
    failed(run("average", f"models=[{base},{tmp_path}]", out), str(tmp_path))
    failed(run("average", f"models=[{base},{base}/]", out), "must not name a model twice")
    (tmp_path / "mean.safetensors").write_bytes(b"another file")
    failed(run("average", f"models=[{base},{base}]", out), "exists and is not an average")
    (tmp_path / "mean.safetensors").unlink()
    # Training states have a number of averaged updates.
    (tmp_path / "state.safetensors").write_bytes((base / ckpt.LAST).read_bytes())
    state = f"output={tmp_path}/state.safetensors"
    failed(run("average", f"models=[{base},{base}]", state), "exists and is not an average")
    saved = ckpt.read(base / ckpt.BEST)
    meta = {**saved.meta, "command": "classify"}
    ckpt.write(tmp_path / "classifier.safetensors", meta, saved.tensors)
    models = f"models=[{base},{tmp_path}/classifier.safetensors]"
    failed(run("average", models, out), "are not of one kind (translation models or classifiers)")
    grown = trained(
        tmp_path / "grown",
        *texts[1],
        f"init={base}",
        "init_vocabulary=grow",
        "trainer.max_updates=1",
    )
    failed(run("average", f"models=[{base},{grown}]", out), "differ in network architecture")
    same = trained(tmp_path / "same", *texts[1], *SIZES, "sizes.vocabulary=12", "decoder=luong", "attention=dot", "cell=lstm",
                   "trainer.max_updates=1")  # fmt: skip
    failed(run("average", f"models=[{base},{same}]", out), "differ in ", "vocabulary")
    saved = ckpt.read(base / ckpt.BEST)
    meta = {
        **saved.meta,
        "tokenizer": {**saved.meta["tokenizer"], "lowercase": True},
        "languages": ["x", "y"],
    }
    ckpt.write(tmp_path / "lower.safetensors", meta, saved.tensors)
    failed(
        run("average", f"models=[{base},{tmp_path}/lower.safetensors]", out),
        "differ in languages, lowercase",
    )
    tensors = {**saved.tensors, "lexicon/tokens": torch.zeros(1, 1, dtype=torch.int32)}
    ckpt.write(tmp_path / "lexicon.safetensors", saved.meta, tensors)
    failed(
        run("average", f"models=[{base},{tmp_path}/lexicon.safetensors]", out), "differ in lexicon"
    )
    assert not (tmp_path / "mean.safetensors").exists()


@pytest.fixture
def checkpoints(tmp_path):
    """Function that writes a checkpoint of random or given weights, and returns its path."""
    settings, models = ckpt.tokenizer_parts(
        SentencePiece(model="char", vocabulary_size=9).train(["ab ba"] * 9, [])
    )

    def write(name, weights, config=None, **meta):
        path = tmp_path / f"{name}.safetensors"
        header = {"config": {"seed": 1, **(config or {})}, "tokenizer": settings, **meta}
        ckpt.write(path, header, {"model/w": weights, **models})
        return str(path)

    return write


def test_other_equations_with_the_same_weights_are_not_averaged(checkpoints, tmp_path):
    out, weights = f"{tmp_path}/mean.safetensors", torch.ones(2, 3)
    target = "nmt.model.attention"
    first = checkpoints("first", weights, {"attention": {"_target_": f"{target}.dot.Dot"}})
    scaled = {"_target_": f"{target}.scaled_dot.ScaledDot"}
    other = checkpoints("other", weights, {"attention": scaled})
    with pytest.raises(UserError, match="differ in attention"):
        average_checkpoints(models=[first, other], output=out)
    labels = [checkpoints(name, weights, labels=[name, "z"]) for name in ("x", "y")]
    with pytest.raises(UserError, match="differ in labels"):
        average_checkpoints(models=labels, output=out)


def test_an_average_has_no_properties_of_one_training(checkpoints, tmp_path):
    of_training = {"training": {"progress": {}}, "metrics": {"bleu": 1}, "update": 7}
    kept = {"languages": ["en", "de"], "plugins": ["x"]}
    models = [
        checkpoints(name, torch.full((2, 3), value), **of_training, **kept)
        for name, value in (("a", 1.0), ("b", 4.0))
    ]
    output = tmp_path / "mean.safetensors"
    average_checkpoints(models=models, output=str(output))
    mean = ckpt.read(output)
    assert mean.meta.keys() == {"format", "config", "tokenizer", "averaged", *kept}
    assert mean.meta["averaged"] == models
    assert mean.part("model")["w"].unique().tolist() == [2.5]
    average_checkpoints(models=models, output=str(output))  # an average may be replaced


@pytest.mark.parametrize("place", [0, 1])
def test_models_that_start_from_a_model_may_have_other_seeds(checkpoints, tmp_path, place, caplog):
    """The weights decide, whichever model started from the other."""
    draw = torch.Generator().manual_seed(1)
    weights, strange = torch.randn(2, 20, 20, generator=draw)
    similar = weights + torch.randn(20, 20, generator=draw)
    for other, is_warned in ((similar, False), (strange, True)):
        inits = [{"init": "OUT"}, {}]
        models = [
            checkpoints("a", weights, {**inits[place], "seed": 1}),
            checkpoints("b", other, {**inits[1 - place], "seed": 2}),
        ]
        caplog.clear()
        with caplog.at_level("WARNING", "nmt"):
            average_checkpoints(models=models, output=f"{tmp_path}/mean.safetensors")
        assert ("independent training runs" in caplog.text) == is_warned


def test_a_grown_vocabulary_segments_the_old_text_as_before():
    """New merges of BPE rank after all merges of the old vocabulary."""
    old = SentencePiece(model="bpe", vocabulary_size=9).train(["aab aab ab"] * 9, [])
    new = SentencePiece(model="bpe", vocabulary_size=9).train(["ba ba bab"] * 9, [])
    grown, lines = old.grown(new), ["bab", "aab bab"]
    before, after = (
        [tokenizer.source_pieces(ids) for ids in tokenizer.encode_source(lines)]
        for tokenizer in (old, grown)
    )
    assert before == after
    assert before[0] == ["▁", "b", "ab"]
    assert grown.source_pieces(range(old.source_size, grown.source_size)) == ["ba", "▁ba"]
