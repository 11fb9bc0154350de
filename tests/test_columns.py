"""Lines of several columns: several sources, factors of words, and alignments that guide attention."""

import json
from dataclasses import replace

import contracts
import numpy as np
import pytest
import torch
from builders import (
    NO_DROPOUT,
    PICTURED,
    SIZES,
    batch,
    choices,
    compose,
    network,
    trained,
    with_pictures,
)
from commands import failed, run
from hypothesis import given, settings
from hypothesis import strategies as st

import nmt
from nmt import components
from nmt.data import Pairs, Splits, unique_suffixes
from nmt.data.batching import Batching, collate
from nmt.data.epoch_batches import EpochBatches
from nmt.data.filters import Filters
from nmt.data.preparation import prepare
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import EOS, PAD
from nmt.tokenizer import SentencePiece
from nmt.tokenizer.columns import Columns
from nmt.training.objective.cross_entropy import CrossEntropy

TWO = Columns(sources=2)
TAGGED = Columns(factors=(("a", "b", "c"), ("x",)))


def made(decoder, columns, *overrides):
    score = "none" if decoder == "fixed" else "concat"
    config = compose(
        f"decoder={decoder}",
        f"attention={score}",
        *SIZES,
        *NO_DROPOUT,
        "model.factor_size=3",
        *overrides,
    )
    torch.manual_seed(1)
    return components.network(config, 11, 11, columns).double().eval()


def of_two_sources():
    """Each row has a second EOS: in the middle, at the beginning (the first source is empty), before the end."""
    data = batch((6, 4, 5))
    source = data.source.clone()
    source[0, 2] = source[1, 0] = source[2, 3] = EOS
    return replace(data, source=source)


def with_factors():
    data = batch()
    real = (data.source != PAD) & (data.source != EOS)
    factors = torch.randint(0, 4 * 2, data.source.shape, generator=torch.Generator().manual_seed(1))
    return replace(data, source=data.source + 11 * factors * real)


def everything(model, data):
    contracts.all_at_once_equals_single_steps(model, data)
    contracts.padding_changes_nothing(model, data)
    contracts.a_batch_equals_one_by_one(model, data)
    contracts.rows_of_a_beam_share_the_memory(model, data)
    contracts.gradients_agree_with_finite_differences(model, data)
    model.zero_grad()
    contracts.every_parameter_learns(model, data)


# Several sources


@pytest.mark.parametrize("decoder", choices("decoder"))
def test_contracts_with_several_sources(decoder):
    everything(made(decoder, TWO), of_two_sources())


@pytest.mark.parametrize("encoder", [name for name in choices("encoder") if name not in PICTURED])
def test_each_encoder_reads_its_own_source(encoder):
    """The memory of two sources is that of the first encoder alone, then that of the second."""
    model, data = (
        made("luong", TWO, f"encoder={encoder}", "encoder.hidden_size=4", "encoder.num_layers=2"),
        of_two_sources(),
    )
    memory = model.encoder(data.source, data.source_lengths)
    ends = [2, 0, 3]
    for row, end in enumerate(ends):
        length = int(data.source_lengths[row])
        cut = [data.source[row, : end + 1], data.source[row, end + 1 : length]]
        alone = [
            encoder.encode(model.encoder.input(part.unsqueeze(0)), torch.tensor([len(part)]))
            for encoder, part in zip(model.encoder.encoders, cut, strict=True)
        ]
        torch.testing.assert_close(
            memory.values[row, :length], torch.cat([each.values[0] for each in alone])
        )
        assert not memory.values[row, length:].any()
        summaries = torch.cat([each.final_state[0] for each in alone])
        weight, bias = model.encoder.join.weight, model.encoder.join.bias
        torch.testing.assert_close(memory.final_state[row], torch.tanh(weight @ summaries + bias))


def test_attention_is_one_distribution_over_all_sources():
    model, data = made("bahdanau", TWO), of_two_sources()
    output, _ = contracts.run(model, data)
    torch.testing.assert_close(output.weights.sum(-1), torch.ones_like(output.weights[..., 0]))
    assert (output.weights[0, :, :3] > 0).all()
    assert (output.weights[0, :, 3:] > 0).all()


# Factors


@pytest.mark.parametrize("decoder", choices("decoder"))
def test_contracts_with_factors(decoder):
    everything(made(decoder, TAGGED), with_factors())


def test_vectors_of_a_word_and_its_factors_stand_side_by_side():
    model, data = made("luong", TAGGED), with_factors()
    vectors = model.encoder.input(data.source)
    first, second = model.encoder.input.table.factors
    for row in range(3):
        for s in range(data.source.size(1)):
            word, rest = int(data.source[row, s]) % 11, int(data.source[row, s]) // 11
            parts = [
                model.source_embedding.weight[word],
                first.weight[rest % 4],
                second.weight[rest // 4],
            ]
            torch.testing.assert_close(vectors[row, s], torch.cat(parts))


def test_without_factors_it_is_the_plain_network():
    """A model of factors whose vectors are zero answers as the plain model with the same weights."""
    plain, model, data = made("bahdanau", Columns()), made("bahdanau", TAGGED), batch()
    with torch.no_grad():
        theirs = dict(plain.named_parameters())
        for name, parameter in model.named_parameters():
            if ".factors." in name:
                parameter.zero_()
            elif parameter.shape != theirs[name].shape:  # the gates of the encoder's input
                parameter[:, :6] = theirs[name]
            else:
                parameter.copy_(theirs[name])
    torch.testing.assert_close(
        contracts.run(model, with_factors())[0].readout, contracts.run(plain, data)[0].readout
    )


def test_copying_compares_the_word_without_its_factors():
    model, data = made("bahdanau", TAGGED, "model.copy=true"), with_factors()
    assert torch.equal(
        model.encode(data.source, data.source_lengths).source_words.ids, batch().source
    )
    everything(model, data)


# From text to ids

WORD = st.text("abcdé", min_size=1, max_size=6)
LINE = st.lists(WORD, min_size=0, max_size=6).map(" ".join)


@pytest.fixture(scope="module")
def tokenizer():
    return SentencePiece(vocabulary_size=30).train(
        ["abc dé ab cd", "éd cb a", "dddd abab é"] * 4, ["ab"]
    )


@given(st.lists(LINE, min_size=2, max_size=3))
@settings(deadline=None)
def test_texts_come_back_from_ids(tokenizer, texts):
    read = replace(tokenizer, columns=Columns(sources=len(texts)))
    [ids] = read.encode_source(["\t".join(texts)])
    each = tokenizer.encode_source(texts)
    if not any(each):
        assert ids == []
        return
    assert read.columns.texts(ids) == each
    words = sum(len(text.split()) for text in texts)
    places = read.source_words("\t".join(texts), ids)
    assert [place.start for place in places] == sorted(place.start for place in places) or max(
        map(len, texts)
    ) > 0
    assert {place.start for place, i in zip(places, ids, strict=True) if i == EOS} <= {words}
    assert {w for place, i in zip(places, ids, strict=True) if i != EOS for w in place} == set(
        range(words)
    )


@given(
    st.lists(
        st.tuples(WORD, st.sampled_from("abcz"), st.sampled_from("xz")), min_size=1, max_size=6
    )
)
@settings(deadline=None)
def test_every_piece_has_the_factors_of_its_word(tokenizer, rows):
    read, size = replace(tokenizer, columns=TAGGED), tokenizer.source_size
    line = "\t".join(" ".join(column) for column in zip(*rows, strict=True))
    [ids] = read.encode_source([line])
    assert [i % size for i in ids] == tokenizer.encode_source([line.split("\t")[0]])[0]
    for i, place in zip(ids, read.source_words(line, ids), strict=True):
        _, first, second = rows[place.start]
        rest = i // size
        assert (rest % 4, rest // 4) == (
            "zabc".index(first),
            "zx".index(second),
        )  # z: not in training, 0
    assert max(ids) < read.source_ids


def test_long_sources_are_cut_evenly():
    assert TWO.shortened([5, 6, 7, 8, EOS, 9, 10, 11], 4) == [5, 6, EOS, 9, 10]
    assert Columns().shortened([5, 6, 7], 2) == [5, 6]
    assert TWO.shortened([5, EOS, 6], 10) == [5, EOS, 6]


@pytest.mark.parametrize(
    ("columns", "line", "message"),
    [
        (TWO, "a b", "1 column; the model expects 2 sources"),
        (TWO, "a\tb\tc", "3 columns; the model expects 2 sources"),
        (TAGGED, "a b\ta\tx x", "2 space-separated words, but 1 value of factor 1"),
        (TAGGED, "a b\ta a", "2 columns; the model expects a text and 2 factors"),
    ],
)
def test_lines_that_do_not_fit(tokenizer, columns, line, message):
    with pytest.raises(UserError, match=message):
        replace(tokenizer, columns=columns).encode_source([line])


def test_too_many_combinations_are_refused(tokenizer):
    many = Columns(factors=(tuple(map(str, range(70_000))),) * 2)
    with pytest.raises(UserError, match=r"data\.factors: .* combinations"):
        _ = replace(tokenizer, columns=many).source_ids


# Alignments


def test_links_between_pieces_and_their_batch(tokenizer):
    """All pieces of linked words are linked; a row of the batch is shared equally by its links."""
    lines = Pairs(["abc dé", "ab a"], ["dddd ab", "é"], "here", ["0-1 1-0", "1-0 0-0"])
    splits = Splits(lines, lines, None, ("a", "b"))
    data = prepare(splits, Filters(), tokenizer)
    made = collate(data.train, [0, 1])
    for row, line in enumerate(lines.links):
        source, target = lines.source[row], lines.target[row]
        s_ids, t_ids = tokenizer.encode_source([source])[0], tokenizer.encode_target([target])[0]
        s_words, t_words = (
            tokenizer.source_words(source, s_ids),
            tokenizer.target_words(target, t_ids),
        )
        links = {tuple(map(int, link.split("-"))) for link in line.split()}
        expected = np.zeros(made.links.shape[1:])
        for t, of_t in enumerate(t_words):
            for s, of_s in enumerate(s_words):
                expected[t, s] = any((a, b) in links for a in of_s for b in of_t)
        expected /= np.maximum(1, expected.sum(1, keepdims=True))
        np.testing.assert_allclose(made.links[row].numpy(), expected)
    assert data.validation.links is not None


def test_links_follow_a_random_segmentation(tokenizer):
    lines = Pairs(["abc dé"] * 3, ["abc dé"] * 3, "here", ["0-0 1-1"] * 3)
    data = prepare(
        Splits(lines, lines, None, ("a", "b")), Filters(), replace(tokenizer, sampling=0.1)
    )
    for epoch in range(4):
        batches = EpochBatches(data, Batching(sentences=3), 1, epoch)
        made = batches[0]
        for row in range(3):
            words = [
                tokenizer.source_words("abc dé", [i for i in ids[row].tolist() if i > EOS])
                for ids in (made.source, made.targets)
            ]
            for t, of_t in enumerate(words[1]):
                for s, of_s in enumerate(words[0]):
                    assert bool(made.links[row, t, s] > 0) == (of_t == of_s)


def test_guided_alignment_is_its_equation():
    """Chen et al. 2016, as scalars: what is added is γ Σ_t −Σ_s A_ts log α_ts; validation does not have it."""
    model, data = network("bahdanau", "concat"), batch()
    links = torch.rand(3, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    inside = (torch.arange(5) < data.source_lengths.unsqueeze(1)).unsqueeze(1) & (
        data.targets != PAD
    ).unsqueeze(2)
    data = replace(data, links=(links * inside).float())
    plain, guided = CrossEntropy(), CrossEntropy(guided_alignment=0.7)
    model.train()
    alpha = contracts.run(model, data)[0].weights.detach()
    expected = 0.0
    for b in range(3):
        for t in range(6):
            for s in range(5):
                if data.links[b, t, s] > 0:
                    expected -= float(data.links[b, t, s]) * float(alpha[b, t, s].log())
    added = (guided(model, data, 0).total - plain(model, data, 0).total).detach()
    torch.testing.assert_close(float(added), 0.7 * expected)
    torch.testing.assert_close(guided(model, data, 0).nll, plain(model, data, 0).nll)
    model.eval()
    assert torch.equal(guided(model, data, 0).total, plain(model, data, 0).total)


def test_guided_alignment_ignores_the_places_of_an_image():
    """The places follow the words; only the words have links."""
    model = network("bahdanau", "concat", "encoder=bidirectional+grid").float().train()
    data = with_pictures(batch(), model.encoder.reader.channels)
    links = torch.zeros(3, 6, 5)
    links[:, 0, 0] = 1
    data = replace(data, links=links)
    plain, guided = CrossEntropy(), CrossEntropy(guided_alignment=0.7)
    weights = contracts.run(model, data)[0].weights
    assert weights.size(2) > links.size(2)
    added = guided(model, data, 0).total - plain(model, data, 0).total
    torch.testing.assert_close(added, -0.7 * weights[:, 0, 0].log().sum())


# Whole runs

FEW = [
    "sizes.encoder=8", "sizes.decoder=16", "sizes.readout=8", "sizes.vocabulary=40", "model.embedding_size=8", "optimizer.lr=0.01",
    "batching.sentences=20", "search=greedy", "trainer.max_epochs=1",
]  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Three words in two languages, their tags, the translation (in another order), and its alignment."""
    folder, rng = tmp_path_factory.mktemp("corpus"), np.random.default_rng(1)
    for part, size in (("train", 120), ("val", 12), ("other", 9)):
        rows = [rng.integers(0, 5, 3) for _ in range(size)]
        columns = {
            "en": [" ".join("abcde"[i] * 2 for i in row) for row in rows],
            "fr": [" ".join("fghij"[i] * 2 for i in row) for row in rows],
            "tag": [" ".join("XYXYZ"[i] for i in row) for row in rows],
            "de": [" ".join("klmno"[i] * 2 for i in row[::-1]) for row in rows],
            "links": ["0-2 1-1 2-0"] * size,
        }
        for name, lines in columns.items():
            (folder / f"{part}.{name}").write_text("\n".join(lines) + "\n")
    return folder


def text(corpus, *more):
    named = [
        f"data.train={corpus}/train",
        f"data.validation={corpus}/val",
        "data.source=en",
        "data.target=de",
    ]
    keys = {one.partition("=")[0] for one in more}
    return ["data=text", *(one for one in named if one.partition("=")[0] not in keys), *more, *FEW]


def test_several_sources_from_training_to_answers(corpus, tmp_path):
    folder = trained(tmp_path / "run", *text(corpus, "data.source=[en,fr]"))
    page = f"output={tmp_path}/page.html"
    failed(run("export", f"model={folder}", "format=html", page), "the model must read plain text")
    few = [
        one
        for one in text(corpus, "data.source=[fr,en]")
        if not one.startswith(("sizes", "model", "data.source"))
    ]
    translator = nmt.load(folder)
    assert translator.languages == ("en+fr", "de")
    lines = [
        f"{a}\t{b}"
        for a, b in zip(
            *((corpus / f"val.{x}").read_text().splitlines() for x in ("en", "fr")), strict=True
        )
    ]
    answers = translator.translate([*lines, ""])
    assert len(answers) == len(lines) + 1
    assert answers[-1] == ""
    (tmp_path / "input").write_text("\n".join(lines) + "\n")
    made = run(
        "translate",
        f"model={folder}",
        f"input={tmp_path}/input",
        "format=jsonl",
        f"attention_map={tmp_path}/map.json",
    )
    assert made.returncode == 0
    assert (
        len(json.loads(made.stdout.splitlines()[0])["hypotheses"][0]["alignment"]["weights"][0])
        == 6
    )
    assert json.loads((tmp_path / "map.json").read_text())[0]["source"] == [
        *lines[0].split(),
        "</s>",
    ]
    bad = run("translate", f"model={folder}", stdin="aa\tff\naa bb\n")
    failed(bad, "stdin, line 2", "1 column; the model expects 2 sources (en, fr)")
    assert bad.stdout.count(b"\n") == 1  # the line before it is answered
    (tmp_path / "bad").write_text("aa\tff\nbb\n")
    failed(
        run("translate", f"model={folder}", f"input={tmp_path}/bad", f"output={tmp_path}/out"),
        "bad, line 2",
    )
    assert not (tmp_path / "out.partial").exists()
    pair = f"source={tmp_path}/bad", f"target={tmp_path}/bad"
    failed(run("score", f"model={folder}", *pair), "bad, line 2", "1 column")
    failed(run("align", f"model={folder}", *pair), "bad, line 2", "1 column")
    swapped = run(
        "train", *few, "data.source=[fr,en]", f"init={folder}", f"run_dir={tmp_path}/swapped"
    )
    assert (
        b"reads the columns fr, en instead of the columns en, fr of its training data"
        in swapped.stderr
    )
    alone = trained(tmp_path / "alone", *text(corpus))
    both = f"input={tmp_path}/input", f"attention_map={tmp_path}/both.json"
    failed(
        run("translate", f"model={folder}", *both, f"compare=[{alone}]"),
        "this model reads one text, but the model that translates the input reads 2 sources",
    )
    message = run("translate", f"model={alone}", stdin="aa\tff\n")
    assert b"the model reads one text per line and treats a tab as a space" in message.stderr
    assert b"cut -f1" in message.stderr


def test_factors_from_training_to_answers(corpus, tmp_path):
    folder = trained(
        tmp_path / "run", *text(corpus, "data.factors=[tag]", "tokenizer.sampling=0.1")
    )
    translator = nmt.load(folder)
    first, other = translator.encode(["aa bb\tX Y", "aa bb\tZ Z"])
    assert first != other
    assert len(first) == len(other)
    assert translator.tokenizer.source_pieces(first) == translator.tokenizer.source_pieces(other)
    assert len(translator.translate(["aa bb\tX Y", "aa bb\tX never"])) == 2
    resumed = run("train", f"resume={folder}", "trainer.max_epochs=2")
    assert resumed.returncode == 0
    sizes = [one for one in text(corpus) if not one.startswith(("sizes", "model"))]
    other = run("train", *sizes, f"init={folder}", f"run_dir={tmp_path}/other")
    failed(
        other,
        "contain one text, but the initial model expects a text and 1 factor (en, tag)",
    )
    unseen = run("translate", f"model={folder}", stdin="aa bb\tX never\n")
    assert b"1 factor values, such as never, are not in the training data" in unseen.stderr
    assert b"most words are not in the vocabulary" not in unseen.stderr
    assert unseen.stdout.count(b"\n") == 1
    unknown = run("translate", f"model={folder}", stdin="жж щщ\tX Y\n")
    assert b"most words are not in the vocabulary" in unknown.stderr


@pytest.mark.exhaustive
def test_guided_attention_learns_the_links(corpus, tmp_path):
    """The alignment error rate of the given links, with and without guidance, after the same few updates."""
    rates = []
    given = ("data.alignment=links", "objective.guided_alignment=2.0")
    for more in ((), given, given[1:]):
        quick = (
            "metric=loss",
            "tokenizer=word",
            "trainer.max_epochs=8",
            "batching.sentences=5",
            "decoder=luong",
        )
        folder = trained(tmp_path / f"run{len(more)}", *text(corpus, *more), *quick)
        out = run(
            "align", f"model={folder}", f"source={corpus}/val.en", f"target={corpus}/val.de", f"gold={corpus}/val.links",
            f"attention_map={tmp_path}/map.json", f"output={tmp_path}/links{len(more)}",
        )  # fmt: skip
        assert out.returncode == 0
        rates.append(float(out.stderr.decode().split("error rate ")[1].split()[0]))
    assert rates[1] < min(0.1, rates[0])
    assert rates[2] < min(0.1, rates[0]), "the links that are estimated"
    shown = json.loads((tmp_path / "map.json").read_text())
    np.testing.assert_allclose(np.sum(shown[0]["weights"][""], axis=1), 1, atol=1e-3)


def test_several_validation_sets(corpus, tmp_path):
    folder = trained(
        tmp_path / "run", *text(corpus, f"data.validation=[{corpus}/val,{corpus}/other]")
    )
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    [validation] = [record for record in records if record["kind"] == "validation"]
    assert {"loss", "bleu", "other/loss", "other/bleu"} <= set(validation)
    alone = trained(tmp_path / "alone", *text(corpus, f"data.validation={corpus}/other"))
    [other] = [
        r
        for r in map(json.loads, (alone / "metrics.jsonl").read_text().splitlines())
        if r["kind"] == "validation"
    ]
    assert other["loss"] == pytest.approx(validation["other/loss"], rel=1e-6)


@pytest.mark.exhaustive
def test_tables_have_columns_too(corpus, tmp_path):
    for part in ("train", "val"):
        names = ["en", "fr", "tag", "de", "links"]
        columns = [(corpus / f"{part}.{name}").read_text().splitlines() for name in names]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        (tmp_path / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = [
        "data=jsonl",
        f"data.train={tmp_path}/train.jsonl",
        f"data.validation={tmp_path}/val.jsonl",
        "data.target=de",
    ]
    more = ["data.source=[en,fr]", "data.alignment=links", "objective.guided_alignment=1.0"]
    assert (
        "is out of range"
        not in run("train", *table, *more, *FEW, f"run_dir={tmp_path}/a").stderr.decode()
    )
    same = ["data.source=en", "data.factors=[tag]"]
    folder = trained(tmp_path / "b", *table, *same, *FEW)
    from_files = trained(tmp_path / "c", *text(corpus, "data.factors=[tag]"))
    prints = [
        json.loads((each / "results.json").read_text())["data"] for each in (folder, from_files)
    ]
    assert prints[0] == prints[1]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.alignment=links"], "data.alignment=links: has no effect without guided attention"),
        (["objective.guided_alignment=1.0", "tokenizer=bpe", "tokenizer.sampling=0.1"], "give word alignments"),
        (["data.alignment=links", "objective.guided_alignment=1.0", "normalizer=sparsemax"], "use normalizer=softmax"),
        (["data.source=[en,fr]", "data.factors=[tag]"], "data.factors: cannot be combined with several sources"),
        (["data.source=[en,en]"], "and no name twice"),
        (["data.factors=[tag,tag]"], "data.alignment=[en,tag,tag,de]: must contain at least one name, and no name twice"),
        (["data.factors=[de]"], "data.alignment=[en,de,de]: must contain"),
        (["data.alignment=en", "objective.guided_alignment=1.0"], "data.alignment=[en,de,en]: must contain"),
        (["data.source=[en,fr]", "window=local_p"], "restricts the positions of a single source"),
        (["model.factor_size=8"], "the source has no factors"),
        (["data.factors=[fr,missing]"], "train.missing: file not found"),
        (["data.alignment=tag", "objective.guided_alignment=1.0"], 'train.tag, line 1: "'),
    ],
)  # fmt: skip
def test_faults_are_reported(corpus, tmp_path, overrides, message):
    failed(run("train", *text(corpus, *overrides), f"run_dir={tmp_path}/run"), message)


def test_links_that_lead_nowhere_name_their_line(corpus, tmp_path):
    for name in ("en", "de", "links"):
        for part in ("train", "val"):
            (tmp_path / f"{part}.{name}").write_text((corpus / f"{part}.{name}").read_text())
    links = (tmp_path / "train.links").read_text().splitlines()
    links[6] = "0-0 3-1"
    (tmp_path / "train.links").write_text("\n".join(links) + "\n")
    made = text(tmp_path, "data.alignment=links", "objective.guided_alignment=1.0")
    failed(
        run("train", *made, f"run_dir={tmp_path}/r"),
        "train.links, line 7: alignment link 3-1 is out of range",
    )


@pytest.mark.exhaustive
def test_a_sweep_over_sources_has_a_folder_for_each(corpus, tmp_path):
    done = run("train", "-m", *text(corpus, "data.source=en,fr"), f"run_dir={tmp_path}/sweep")
    assert done.returncode == 0, done.stderr.decode()
    assert len([*tmp_path.glob("sweep/source-*/results.json")]) == 2
    failed(
        run("train", *text(corpus, "data.source=en,fr")),
        "has several values, which only a sweep",
        "data.source=[en,fr]",
    )


def test_validation_sets_have_the_shortest_names_that_distinguish_them():
    assert unique_suffixes(["a/val", "b/other", "c/d/val"]) == ["a/val", "other", "d/val"]
    assert unique_suffixes(["val"]) == ["val"]
    assert unique_suffixes(["/x/val", "/y/val"]) == ["x/val", "y/val"]
    assert unique_suffixes(["/x/val", "x/val"]) == ["/x/val", "x/val"]
