"""Objectives that use the network's own translations, or the probabilities of another network."""

import itertools
from dataclasses import replace

import pytest
import torch
from builders import batch, choices, network, trained, with_pictures
from commands import failed, run
from coverings import product
from sacrebleu.metrics import BLEU, CHRF

import nmt
from nmt.configuration.configure import configure
from nmt.foundation.interfaces import BOS, EOS, PAD, Candidate
from nmt.inference.candidates import Candidates
from nmt.model.layers import fused_cross_entropy
from nmt.storage import checkpoint as ckpt
from nmt.training.objective.cross_entropy import CrossEntropy
from nmt.training.objective.distillation import Distillation
from nmt.training.objective.minimum_risk import MinimumRisk
from nmt.training.objective.r_drop import RDrop
from nmt.training.objective.scheduled_sampling import ScheduledSampling

every_decoder = pytest.mark.parametrize("decoder", choices("decoder"))


def score_of(decoder):
    return "none" if decoder == "fixed" else "concat"


def log_p(model, data, sentence, tokens):
    """log P of one translation of one sentence, word by word, from the distribution of single steps; with copied words, by
    See et al. 2017, eq. 9."""
    length = int(data.source_lengths[sentence])
    memory = model.encode(
        data.source[sentence : sentence + 1, :length], data.source_lengths[sentence : sentence + 1]
    )
    state, word, total = model.start(memory), BOS, 0.0
    for following in [*tokens, EOS]:
        output = model.decode(torch.tensor([[word]]), state, memory)
        p = model.output(output.readout)[0, 0].softmax(0)[following]
        if model.copying is not None:
            g, same = (
                torch.sigmoid(model.copying.gate(output.readout)).squeeze(),
                data.source[sentence, :length] == following,
            )
            p = g * p + (1 - g) * (output.weights[0, 0] * same).sum()
        total = total + p.log()
        state, word = output.state, following
    return total


def same_with_gradients(model, found, truth):
    """Two losses with the same value and the same gradient of every parameter."""
    torch.testing.assert_close(found, truth)
    mine, theirs = (
        torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        for loss in (found, truth)
    )
    for (name, _), one, other in zip(model.named_parameters(), mine, theirs, strict=True):
        assert (one is None) == (other is None), name
        if one is not None:
            torch.testing.assert_close(one, other, msg=name)


def quality_of(sentence, tokens):
    """Any figure between 0 and 1 that depends on both."""
    return (
        (
            7 * sentence
            + 3 * sum((k + 1) * token for k, token in enumerate(tokens))
            + 2 * len(tokens)
        )
        % 11
        / 11
    )


def generator_of(sets):
    """Proposes given translations."""
    return lambda *_: [
        [Candidate([*tokens], quality_of(b, tokens)) for tokens in each]
        for b, each in enumerate(sets)
    ]


@pytest.mark.parametrize(
    ("network_parts", "sharpness", "likelihood"),
    product(
        [*((name, ()) for name in choices("decoder")), ("bahdanau", ("model.copy=true",))],
        [1.0, 0.3],
        [0.0, 0.4],
    ),
)
def test_minimum_risk_is_its_equation(network_parts, sharpness, likelihood):
    """Shen et al. 2016, eq. 10-11, with all translations of up to two words (of two) of the first sentence and a few of the
    others: value, and the gradient of every parameter."""
    decoder, parts = network_parts
    model, data = network(decoder, score_of(decoder), *parts).train(), batch()
    everything = [tokens for n in range(3) for tokens in itertools.product((4, 9), repeat=n)]
    sets = [everything, [(4,), (5, 6, 7, 8)], [(), (9, 9, 9), (4, 5)]]
    objective = MinimumRisk(
        sharpness=sharpness, likelihood=likelihood, candidate_generator=generator_of(sets)
    )
    result = objective(model, data, 0)
    risks = []
    for b, each in enumerate(sets):
        scores = torch.stack([sharpness * log_p(model, data, b, tokens) for tokens in each])
        costs = torch.tensor([1 - quality_of(b, tokens) for tokens in each], dtype=torch.float64)
        risks.append((scores.exp() * costs).sum() / scores.exp().sum())
    teacher = sum(
        -log_p(model, data, b, [t for t in row if t not in (PAD, EOS)])
        for b, row in enumerate(data.targets.tolist())
    )
    truth = (1 - likelihood) * data.num_tokens * sum(risks) / len(risks) + likelihood * teacher
    if likelihood:
        torch.testing.assert_close(result.nll, teacher)
    same_with_gradients(model, result.total, truth)


def test_one_candidate_teaches_nothing():
    """A sentence whose samples are all the same has a risk, and no gradient."""
    model, data = network("luong", "dot").train(), batch()
    generator = generator_of([[(4,)], [(5, 6)], [()]])
    objective = MinimumRisk(likelihood=0.0, candidate_generator=generator)
    result = objective(model, data, 0)
    truth = sum(1 - quality_of(b, tokens) for b, tokens in enumerate([(4,), (5, 6), ()])) / 3
    assert result.total.item() == pytest.approx(truth * data.num_tokens)
    result.total.backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


def test_the_whole_space_has_the_gradient_of_the_expected_cost():
    """Sharpness 1 and every translation: R is E[cost] over the model's own distribution (given that it has at most one word)."""
    model, data = network("luong", "dot").train(), batch()
    words = range(4, 11)
    sets = [[(), *((w,) for w in words)]] * 3
    objective = MinimumRisk(sharpness=1.0, likelihood=0.0, candidate_generator=generator_of(sets))
    result = objective(model, data, 0)
    costs = []
    for b, each in enumerate(sets):
        p = torch.stack([log_p(model, data, b, tokens) for tokens in each]).softmax(0)
        costs.append(sum(p[k] * (1 - quality_of(b, tokens)) for k, tokens in enumerate(each)))
    torch.testing.assert_close(result.total, data.num_tokens * sum(costs) / 3)


def test_risks_are_compared_between_two_candidates_at_least():
    assert MinimumRisk(candidates=2).candidates == 2
    with pytest.raises(ValueError, match="objective.candidates=1 must be at least 2"):
        MinimumRisk(candidates=1)


def test_validation_is_the_cross_entropy():
    model, data = network("bahdanau", "concat").eval(), batch()
    truth = CrossEntropy()(model, data, 0)
    for objective in (MinimumRisk(), Distillation(teacher="somewhere"), RDrop(label_smoothing=0.1)):
        result = objective(model, data, 0)
        torch.testing.assert_close((result.total, result.nll), (truth.total, truth.nll))


# Candidates and their costs


@pytest.fixture(scope="module")
def reversing(small_run):
    return nmt.load(small_run, device="cpu", max_length_offset=3)


def of_lines(translator, lines, references):
    """A batch of texts, as training makes them."""
    from nmt.data.batching import pad
    from nmt.foundation.interfaces import Batch

    source, lengths = pad(translator.tokenizer.encode_source(lines), range(len(lines)))
    targets, _ = pad(translator.tokenizer.encode_target(references), range(len(lines)))
    inputs = torch.cat([torch.full_like(targets[:, :1], BOS), targets[:, :-1]], 1)
    return Batch(source, lengths, inputs, targets, int((targets != PAD).sum()))


@pytest.mark.parametrize("source", ["sample", "beam"])
@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_candidates_are_what_the_network_writes(reversing, source, metric):
    """Candidates differ, are scored by sacreBLEU on their texts, are made without dropout, and are equal for equal states of the
    generator. The network stays in training mode."""
    model, tokenizer = reversing.models[0].train(), reversing.tokenizer
    lines = ["a b c d e", "i h", "f g h"]
    references = ["e d c b a", "h i", "h g f"]
    data = of_lines(reversing, lines, references)
    options = {"tokenize": "none", "lowercase": False, "char_order": 6}
    generator = Candidates(
        tokenizer.decode, max_length_factor=2.0, max_length_offset=3, metric_settings=options
    )
    torch.manual_seed(3)
    result = generator(model, data, 5, source, metric)
    assert model.training
    model.eval()
    metric_object = BLEU(effective_order=True, tokenize="none") if metric == "bleu" else CHRF()
    for line, each, reference in zip(lines, result, references, strict=True):
        assert 2 <= len({tuple(candidate.tokens) for candidate in each}) == len(each) <= 5
        assert all(len(c.tokens) <= 2 * len(tokenizer.encode_source([line])[0]) + 3 for c in each)
        for candidate in each:
            [text] = tokenizer.decode([candidate.tokens])
            assert candidate.quality == pytest.approx(
                metric_object.sentence_score(text, [reference]).score / 100
            )
    if source == "beam":
        wide = reversing.with_search(nmt.search.beam.Beam(width=5, n_best=5)).translations(lines)
        assert [c.tokens for c in result[0]] == [h.tokens for h in wide[0].hypotheses]
    model.train()
    torch.manual_seed(3)
    assert generator(model, data, 5, source, metric) == result
    if source == "sample":
        assert generator(model, data, 5, source, metric) != result
    model.eval()


def test_writing_an_unknown_word_is_never_right(reversing):
    """A word outside the vocabulary is a mark in the reference, which no translation contains."""
    model, options = reversing.models[0], {"tokenize": "none", "lowercase": False, "char_order": 6}
    generator = Candidates(
        lambda rows: ["⁇ b" for _ in rows],
        max_length_factor=1.0,
        max_length_offset=1,
        metric_settings=options,
    )
    [result] = generator(model.train(), of_lines(reversing, ["a b"], ["b a"]), 2, "beam", "chrf")
    model.eval()
    assert all(candidate.quality < 0.9 for candidate in result)


def test_captions_may_be_as_long_as_when_translating():
    """A picture counts as 32 tokens, a sentence without one as its words."""
    asked = []

    class Reached(Exception):
        pass

    def search(self, step, state, requests):
        asked.extend(request.max_length for request in requests)
        raise Reached

    data = with_pictures(batch(), 3)
    data = replace(
        data,
        pictures=replace(data.pictures, sizes=data.pictures.sizes * torch.tensor([[1], [0], [1]])),
    )
    model = network("luong", "dot")
    memory = model.encode(data.source, data.source_lengths)
    model.encode = lambda *_: memory
    generator = Candidates(as_text, max_length_factor=2.0, max_length_offset=5, metric_settings={})
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Reached):
        patch.setattr("nmt.search.beam.Beam.__call__", search)
        generator(model, data, 2, "beam", "bleu")
    words = (data.source_lengths - 1).tolist()
    assert asked == [2 * (n + 32 * seen) + 5 for n, seen in zip(words, (1, 0, 1), strict=True)]


def as_text(rows):
    return [" ".join("abcdefghijk"[i] * 3 for i in row) for row in rows]


@pytest.mark.exhaustive
def test_the_risk_falls():
    """An untrained network learns three sentences from samples and sentence chrF alone."""
    model, data = network("luong", "dot").train(), batch()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    metric_settings = {"tokenize": "none", "lowercase": False, "char_order": 6}
    generator = Candidates(
        as_text, max_length_factor=1.0, max_length_offset=1, metric_settings=metric_settings
    )
    objective = MinimumRisk(
        candidates=8, cost="chrf", sharpness=1.0, likelihood=0.0, candidate_generator=generator
    )
    risks = []
    for _ in range(100):
        loss = objective(model, data, 0).total / data.num_tokens
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        risks.append(loss.item())
    assert min(risks[:10]) > 0.75
    assert max(risks[-10:]) < 0.55
    assert all(0 <= risk <= 1 for risk in risks)


@pytest.mark.exhaustive
def test_an_untrained_network_must_be_trained_first(tmp_path):
    typed = (
        "experiment=reverse",
        "data.train=80",
        "sizes.encoder=8",
        "sizes.decoder=16",
        "sizes.readout=8",
        "model.embedding_size=8",
        "trainer.max_updates=1",
        "max_validation=2",
        "search=greedy",
    )
    done = run("train", *typed, "data.test=2", "objective=minimum_risk", f"run_dir={tmp_path}/run")
    assert done.returncode == 0, done.stderr.decode()
    assert b"which are random before training" in done.stderr


# Distillation


@every_decoder
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_distillation_is_its_equation(decoder, weight):
    """Kim & Rush 2016, eq. for word-level knowledge distillation, with two teachers, word by word."""
    model, data = network(decoder, score_of(decoder)).train(), batch()
    teachers = [network("bahdanau", "general"), network("luong", "dot")]
    objective = Distillation(teacher=["a", "b"], weight=weight, teachers=teachers)
    result = objective(model, data, 0)
    given = CrossEntropy()(model, data, 0)
    output, memory = model.teacher_forcing(data)
    mine, truth = model.output_layer.log_probs(output, memory), 0.0
    theirs = [
        teacher.output_layer.log_probs(*teacher.teacher_forcing(data)).exp() for teacher in teachers
    ]
    for b, t in itertools.product(range(3), range(data.targets.size(1))):
        if data.targets[b, t] != PAD:
            for v in range(mine.size(-1)):
                truth = truth - (theirs[0][b, t, v] + theirs[1][b, t, v]) / 2 * mine[b, t, v]
    torch.testing.assert_close(result.total, (1 - weight) * given.total + weight * truth)
    result.total.backward()
    assert all(p.grad is None for teacher in teachers for p in teacher.parameters())


def test_the_best_student_of_itself():
    """The cross-entropy with a teacher's distribution is least, and flat, at the teacher."""
    teacher, data = network("luong", "general"), batch()
    model = network("luong", "general").train()
    model.load_state_dict(teacher.state_dict())
    objective = Distillation(teacher="a", weight=1.0, teachers=[teacher])
    loss = objective(model, data, 0).total
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    assert all(g is None or g.abs().max() < 1e-12 for g in gradients)
    assert loss.item() > 1.0


def test_a_student_has_its_teachers_vocabulary(small_run, tmp_path):
    data = [
        "experiment=reverse",
        "data.train=40",
        "data.validation=5",
        "data.test=5",
        "search=greedy",
        "data.seed=7",
        "trainer.max_epochs=1",
    ]
    sizes = [
        "sizes.encoder=8",
        "sizes.decoder=16",
        "sizes.readout=8",
        "model.embedding_size=8",
        "attention.size=8",
    ]
    student = trained(
        tmp_path / "student",
        *data,
        *sizes,
        "objective=distillation",
        f"objective.teacher={small_run}",
    )
    of_student, of_teacher = (
        ckpt.tokenizer_from(ckpt.read(folder / ckpt.BEST)) for folder in (student, small_run)
    )
    assert of_student.models == of_teacher.models
    assert run("translate", f"model={student}", stdin="a b\n").stdout.count(b"\n") == 1


@pytest.mark.exhaustive
def test_two_vocabularies_share_no_matrix(tmp_path):
    """The tokenizer is the teacher's, so it is its vocabulary that must be one."""
    for name in ("train", "val"):
        (tmp_path / f"{name}.tsv").write_text(
            "x\ty\n" + "".join(f"a b c {k % 3}\td e {k % 2}\n" for k in range(30))
        )
    data = [
        "data=tsv",
        f"data.train={tmp_path}/train.tsv",
        f"data.validation={tmp_path}/val.tsv",
        "data.source=x",
        "data.target=y",
    ]
    sizes = [
        "sizes.encoder=8",
        "sizes.decoder=16",
        "sizes.readout=8",
        "model.embedding_size=8",
        "attention.size=8",
    ]
    sizes += [
        "experiment=null",
        "batching.sentences=10",
        "trainer.max_updates=1",
        "max_validation=3",
    ]
    teacher = trained(
        tmp_path / "teacher",
        *data,
        *sizes,
        "tokenizer=char",
        "tokenizer.joint=false",
        "model.tying=output",
    )
    taught = [*data, *sizes, "objective=distillation", f"objective.teacher={teacher}"]
    failed(
        run("train", *taught, "model.tying=all", f"run_dir={tmp_path}/student"),
        "model.tying: requires a shared vocabulary",
    )
    trained(tmp_path / "student", *taught, "model.tying=output")


@pytest.mark.exhaustive
def test_a_teacher_reads_pictures_alike(tmp_path):
    data = [
        "experiment=read_digits",
        "data.train=16",
        "data.validation=2",
        "data.test=2",
        "search=greedy",
        "encoder.widths=[4,8]",
        "encoder.halvings=2",
        "translation.max_length_factor=0.2",
        "sizes.encoder=8",
        "sizes.decoder=16",
        "sizes.readout=8",
        "model.embedding_size=8",
        "trainer.max_updates=1",
    ]
    teacher = trained(tmp_path / "teacher", *data)
    taught = [*data, "objective=distillation", f"objective.teacher={teacher}"]
    failed(
        run("train", *taught, "encoder.channels=3", f"run_dir={tmp_path}/student"),
        "reads images as",
        "channels=3",
    )
    failed(
        run("train", *taught, "encoder.longest=20", f"run_dir={tmp_path}/student"),
        "reads images as",
        "longest=20",
    )


# R-Drop


@every_decoder
@pytest.mark.parametrize("slice_", [8, 2**23])
def test_r_drop_is_its_equation(decoder, slice_, monkeypatch):
    """Liang et al. 2021, eq. 1-4 (half of it), word by word, from the distributions of two readings; value and every gradient."""
    monkeypatch.setattr(fused_cross_entropy, "SLICE", slice_)
    model = network(
        decoder, score_of(decoder), "model.dropout=0.3", "model.readout_dropout=0.2"
    ).train()
    data, smoothing, alpha = batch(), 0.1, 5.0
    torch.manual_seed(4)
    result = RDrop(agreement=alpha, label_smoothing=smoothing)(model, data, 0)
    assert result.num_tokens == data.num_tokens
    torch.manual_seed(4)
    log_p, truth, nll = (
        model.output_layer.log_probs(*model.teacher_forcing(data.repeated(2))),
        0.0,
        0.0,
    )
    for b, t in itertools.product(range(3), range(data.targets.size(1))):
        gold = data.targets[b, t]
        if gold != PAD:
            p, q = log_p[2 * b, t], log_p[2 * b + 1, t]
            assert not torch.allclose(p, q)
            for one in (p, q):
                truth = truth - ((1 - smoothing) * one[gold] + smoothing * one.mean()) / 2
                nll = nll - one[gold] / 2
            truth = truth + alpha / 4 * ((p.exp() * (p - q)).sum() + (q.exp() * (q - p)).sum())
    torch.testing.assert_close(result.nll, nll.detach())
    same_with_gradients(model, result.total, truth)


def test_a_repeated_batch_has_each_pair_beside_itself():
    data = batch()
    data = replace(data, links=torch.rand(*data.targets.shape, data.source.size(1)))
    twice = data.repeated(2)
    assert twice.num_tokens == 2 * data.num_tokens
    for name in ("source", "source_lengths", "inputs", "targets", "links"):
        for k in range(2):
            assert torch.equal(getattr(twice, name)[k::2], getattr(data, name))
    pictured = with_pictures(data, 3)
    seen = pictured.repeated(2).pictures
    assert torch.equal(seen.values[::2], seen.values[1::2])
    assert torch.equal(seen.sizes[::2], pictured.pictures.sizes)


@pytest.mark.parametrize(("arguments", "message"), [
    (["objective=r_drop", "model.dropout=0", "model.readout_dropout=0"], "every dropout probability is 0"),
    (["objective=r_drop", "model.copy=true"], "model.copy"),
    (["objective=r_drop", "objective.agreement=0"], "objective.agreement"),
    (["objective=distillation"], "objective.teacher must be the run folder of a trained model"),
    (["objective=distillation", "objective.teacher=nowhere"], "objective.teacher=nowhere"),
    (["objective=distillation", "objective.teacher=a", "sizes.vocabulary=50"], "uses the vocabulary of the teacher"),
    (["objective=distillation", "objective.teacher=a", "objective.weight=1", "objective.label_smoothing=0.1"], "has no effect with objective.weight=1"),
    (["objective=minimum_risk", "objective.candidates=1"], "must be at least 2"),
    (["objective=minimum_risk", "objective.likelihood=0", "objective.label_smoothing=0.1"], "has no effect with objective.likelihood=0"),
    (["objective=minimum_risk", "objective.likelihood=1"], "objective.likelihood=1: out of range"),
    (["objective=minimum_risk", "window=hard", "window.estimator=reinforce"], "window.estimator"),
    (["objective=distillation", "objective.teacher=a", "objective.weight=1", "window=hard", "window.estimator=reinforce"],
     "window.estimator"),
])  # fmt: skip
def test_what_does_not_fit_is_named(arguments, message, tmp_path):
    failed(run("train", "experiment=reverse", *arguments, f"run_dir={tmp_path}/run"), message)
    assert not (tmp_path / "run").exists()


def test_dropout_between_layers_is_dropout_for_r_drop():
    dropout = ["model.dropout=0", "model.readout_dropout=0", "encoder.dropout=0.1"]
    configure("train", ["objective=r_drop", *dropout, "encoder.num_layers=2"])


def test_scheduled_sampling_draws_no_symbol_that_a_search_excludes():
    model, data, inputs = network("luong", "dot").train(), batch(), []
    with torch.no_grad():
        model.output.bias[[PAD, BOS]] = 50.0
    plain = model.decode
    model.decode = lambda tokens, *rest: (inputs.append(tokens), plain(tokens, *rest))[1]
    ScheduledSampling(decay="constant", start=0.0, end=0.0)(model, data, 0)
    drawn = torch.cat(inputs, 1)[:, 1:][data.inputs[:, 1:] != PAD]
    assert len(drawn)
    assert not torch.isin(drawn, torch.tensor([PAD, BOS])).any()
