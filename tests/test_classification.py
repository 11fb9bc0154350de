"""Classification: every pooling against a loop from its equation, masks, figures, files in and answers out."""

import json
import math
import re
from types import SimpleNamespace

import commands
import numpy as np
import pytest
import torch
from builders import choices, compose
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt import components
from nmt.data import Labelled, LabelledSplits
from nmt.data.batching import Batching
from nmt.data.documents import collate_texts, encode_documents, sentences
from nmt.data.labels import LabelSet, report
from nmt.data.word_vectors import use_vectors
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import EOS, PAD, Encoded, TextBatch
from nmt.inference.explanations.word_removal import removal
from nmt.inference.text_classifier import TextClassifier
from nmt.loading import text_classifier
from nmt.model.pooling.feedforward import Feedforward
from nmt.model.pooling.final_state import FinalState
from nmt.model.pooling.hierarchical import Hierarchical
from nmt.model.pooling.max import Max
from nmt.model.pooling.mean import Mean
from nmt.model.pooling.structured import Structured
from nmt.model.pooling.word_context import WordContext
from nmt.model.seq2label import Seq2Label, label_loss
from nmt.storage import checkpoint as ckpt
from nmt.tokenizer import SentencePiece
from nmt.training.task.classification_task import ClassificationTask

POOLINGS = choices("pooling")
LENGTHS = [5, 1, 3]
SIZE = 6


def memory(values: torch.Tensor, lengths: list[int] = LENGTHS) -> Encoded:
    mask = torch.arange(values.size(1)) < torch.tensor(lengths).unsqueeze(1)
    summary = torch.stack(
        [row[length - 1] * 1.5 for row, length in zip(values, lengths, strict=True)]
    )
    return Encoded(values=values, mask=mask, final_state=summary)


def by_the_equation(
    pooling, h: torch.Tensor, summary: torch.Tensor
) -> tuple[torch.Tensor, list[list[float]]]:
    """Features and weights [H][S] of one text of real positions, in scalars."""
    hops = []
    for hop in range(pooling.hops.out_features if isinstance(pooling, Structured) else 1):
        scores = []
        for x in h:
            if isinstance(pooling, Feedforward):
                scores.append(math.tanh(float(pooling.score.weight[0] @ x + pooling.score.bias[0])))
            elif isinstance(pooling, WordContext):
                u = [
                    math.tanh(float(w @ x + b))
                    for w, b in zip(pooling.hidden.weight, pooling.hidden.bias, strict=True)
                ]
                scores.append(
                    sum(
                        float(v) * each
                        for v, each in zip(pooling.context.weight[0], u, strict=True)
                    )
                )
            elif isinstance(pooling, FinalState):
                scores.append(float(x @ summary))
            elif isinstance(pooling, Structured):
                u = [math.tanh(float(w @ x)) for w in pooling.hidden.weight]
                scores.append(
                    sum(
                        float(v) * each for v, each in zip(pooling.hops.weight[hop], u, strict=True)
                    )
                )
            else:
                scores.append(0.0)
        total = sum(math.exp(score) for score in scores)
        hops.append([math.exp(score) / total for score in scores])
    features = [
        sum(a * float(x[j]) for a, x in zip(weights, h, strict=True))
        for weights in hops
        for j in range(SIZE)
    ]
    return torch.tensor(features, dtype=torch.float64), hops


@pytest.mark.parametrize(
    "make",
    [
        lambda: Feedforward(memory_size=SIZE),
        lambda: WordContext(memory_size=SIZE, hidden_size=4),
        lambda: FinalState(memory_size=SIZE),
        lambda: Structured(memory_size=SIZE, hops=3, hidden_size=4, penalty=0.5),
        lambda: Mean(memory_size=SIZE),
    ],
)
def test_poolings_are_their_equations(make):
    torch.manual_seed(0)
    pooling, values = (
        make().double().requires_grad_(False),
        torch.randn(3, 5, SIZE, dtype=torch.float64),
    )
    seen = memory(values)
    pooled = pooling(seen, torch.ones(3, dtype=torch.int64))
    for i, length in enumerate(LENGTHS):
        features, weights = by_the_equation(pooling, values[i, :length], seen.final_state[i])
        torch.testing.assert_close(pooled.features[i], features)
        torch.testing.assert_close(
            pooled.weights[i, :, :length], torch.tensor(weights, dtype=torch.float64)
        )
        assert torch.all(pooled.weights[i, :, length:] == 0)
    if isinstance(pooling, Structured):
        for i in range(3):
            a = pooled.weights[i].tolist()
            square = sum(
                (sum(x * y for x, y in zip(a[r], a[c], strict=True)) - (r == c)) ** 2
                for r in range(3)
                for c in range(3)
            )
            assert float(pooled.penalty[i]) == pytest.approx(0.5 * square)


def test_the_largest_value_and_where_it_comes_from():
    torch.manual_seed(0)
    values = torch.randn(3, 5, SIZE, dtype=torch.float64)
    values[:, 4] += 9.0  # padding of two of them
    pooled = Max(memory_size=SIZE)(memory(values), torch.ones(3, dtype=torch.int64))
    for i, length in enumerate(LENGTHS):
        for j in range(SIZE):
            assert float(pooled.features[i, j]) == max(
                float(values[i, s, j]) for s in range(length)
            )
        wins = [
            sum(int(values[i, :length, j].argmax()) == s for j in range(SIZE)) / SIZE
            for s in range(length)
        ]
        assert pooled.weights[i, 0, :length].tolist() == pytest.approx(wins)
        assert torch.all(pooled.weights[i, 0, length:] == 0)


def test_hierarchical_is_words_then_sentences():
    """Text by text and sentence by sentence, with the parts used alone."""
    torch.manual_seed(0)
    pooling = (
        Hierarchical(memory_size=SIZE, hidden_size=4, sentence_size=3)
        .double()
        .requires_grad_(False)
    )
    values, lengths, counts = torch.randn(4, 5, SIZE, dtype=torch.float64), [5, 2, 1, 3], [1, 3]
    seen = memory(values, lengths)
    pooled = pooling(seen, torch.tensor(counts))
    row = 0
    for i, count in enumerate(counts):
        alone = []
        for s in range(row, row + count):
            one = memory(values[s : s + 1, : lengths[s]], [lengths[s]])
            alone.append(pooling.words(one, torch.ones(1, dtype=torch.int64)))
        vectors = torch.cat([each.features for each in alone]).unsqueeze(0)
        states, (last,) = pooling.encoder(vectors, lengths=torch.tensor([count]))
        text = pooling.sentences(
            Encoded(values=states, mask=torch.ones(1, count, dtype=torch.bool), final_state=last),
            torch.ones(1, dtype=torch.int64),
        )
        torch.testing.assert_close(pooled.features[i], text.features[0])
        total = 0.0
        for s, each in enumerate(alone):
            share = each.weights[0, 0] * text.weights[0, 0, s]
            torch.testing.assert_close(pooled.weights[row + s, 0, : lengths[row + s]], share)
            total += float(pooled.weights[row + s].sum())
        assert total == pytest.approx(1.0)
        row += count


def network(name: str, several: bool = False) -> Seq2Label:
    config = compose(
        f"pooling={name}", "encoder.hidden_size=4", "network.embedding_size=5", name="classify"
    )
    for key in ("hidden_size", "sentence_size"):
        if key in config["pooling"]:
            config["pooling"][key] = 3
    torch.manual_seed(1)
    return components.classifier(config, 20, LabelSet(("a", "b", "c"), several)).eval()


def batch(rows: list[list[int]], counts: list[int], labels: int = 3) -> TextBatch:
    longest = max(map(len, rows))
    gold = torch.zeros(len(counts), labels, dtype=torch.bool)
    gold[:, 0] = True
    return TextBatch(
        tokens=torch.tensor([row + [0] * (longest - len(row)) for row in rows]),
        lengths=torch.tensor([len(row) for row in rows]), counts=torch.tensor(counts), labels=gold, num_tokens=len(counts),
    )  # fmt: skip


@pytest.mark.parametrize("name", POOLINGS)
@pytest.mark.parametrize("several", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_gradients_by_finite_differences(name, several):
    model = network(name, several).double()
    data = batch([[4, 5, 6, 7], [8, 9], [5]], [1, 2] if model.pooling.splits else [1, 1, 1])
    parameters = [p for p in model.parameters() if p.requires_grad]

    def loss(*_):
        return label_loss(model, data).total

    assert torch.autograd.gradcheck(loss, parameters, fast_mode=True, atol=1e-5)


@pytest.mark.parametrize("name", POOLINGS)
def test_company_changes_nothing(name):
    """A text alone and in a batch with longer ones: the same answer, the same weights, nothing on padding."""
    model = network(name).double()
    texts = [[[4, 5, 6, 7, 8, 9, 10, 11]], [[12, 13]], [[14]]]
    if model.pooling.splits:
        texts = [[[4, 5, 6, 7, 8], [9], [10, 11]], [[12, 13]], [[14], [15, 16]]]
    together, pooled = model.read(
        batch([row for text in texts for row in text], [len(text) for text in texts])
    )
    place = 0
    for i, text in enumerate(texts):
        alone, pooled_alone = model.read(batch(text, [len(text)]))
        torch.testing.assert_close(together[i : i + 1], alone)
        if pooled.weights is None:
            continue
        total = pooled.weights[place : place + len(text)].sum((0, 2))
        torch.testing.assert_close(total, torch.ones_like(total))
        for r, row in enumerate(text):
            torch.testing.assert_close(
                pooled.weights[place + r, :, : len(row)], pooled_alone.weights[r, :, : len(row)]
            )
            assert torch.all(pooled.weights[place + r, :, len(row) :] == 0)
        place += len(text)


def test_tanh_caps_a_weight_of_feedforward_attention():
    """e² / (e² + T − 1), whatever the parameters; and the bias belongs to no position."""
    pooling = Feedforward(memory_size=1).requires_grad_(False)
    with torch.no_grad():
        pooling.score.weight.fill_(1e6)
    for length in (2, 10, 500):
        values = torch.full((1, length, 1), -1.0)
        values[0, 0] = 1.0
        weights = pooling(memory(values, [length]), torch.ones(1, dtype=torch.int64)).weights
        assert float(weights.max()) == pytest.approx(math.e**2 / (math.e**2 + length - 1), rel=1e-4)
    assert pooling.score.bias.shape == (1,)


def test_the_penalty_is_in_the_loss_and_parts_the_hops():
    torch.manual_seed(0)
    model, data = (
        network("structured"),
        batch([[4, 5, 6, 7, 11, 12, 13, 14], [8, 9, 10, 15, 16, 17, 18, 19]], [1, 1]),
    )
    result = label_loss(model, data)
    assert float(result.total.detach()) > float(result.nll) + 0.01
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    overlap = []
    for _ in range(60):
        pooled = model.read(data)[1]
        a = pooled.weights.detach()
        overlap.append(
            float((a @ a.transpose(1, 2) - torch.eye(a.size(1))).square().sum((1, 2)).mean())
        )
        label_loss(model, data).total.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert overlap[-1] < 0.6 * overlap[0]


def test_a_hidden_layer_before_the_labels():
    """Lin et al. 2017, section 4: W₂ relu(W₁ features + b₁) + b₂."""
    config = compose(
        "pooling=mean",
        "encoder.hidden_size=4",
        "network.embedding_size=5",
        "network.hidden_size=7",
        name="classify",
    )
    torch.manual_seed(1)
    model, data = (
        components.classifier(config, 20, LabelSet(("a", "b", "c"), False)).eval(),
        batch([[4, 5], [6]], [1, 1]),
    )
    logits, pooled = model.read(data)
    hidden = (pooled.features @ model.hidden.weight.T + model.hidden.bias).clamp(min=0)
    assert hidden.shape == (2, 7)
    torch.testing.assert_close(logits, hidden @ model.output.weight.T + model.output.bias)
    label_loss(model, data).total.backward()
    assert all(
        p.grad is not None and p.grad.abs().sum() > 0
        for p in (model.hidden.weight, model.output.weight)
    )


@given(st.integers(0, 10**6), st.booleans())
def test_figures_by_counting(seed, several):
    generator = np.random.default_rng(seed)
    names, size = ["a", "b", "c"], int(generator.integers(1, 12))
    if several:
        gold, guess = generator.random((2, size, 3)) > 0.6
    else:
        gold, guess = (np.eye(3, dtype=bool)[generator.integers(0, 3, size)] for _ in range(2))
    result = report(gold, guess, names)
    scores = []
    for k, name in enumerate(names):
        right = sum(bool(g[k] and p[k]) for g, p in zip(gold, guess, strict=True))
        output, real = sum(bool(p[k]) for p in guess), sum(bool(g[k]) for g in gold)
        precision, recall = (right / output if output else 0.0), (right / real if real else 0.0)
        f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        assert result["labels"][name]["f1"] == pytest.approx(100 * f1)
        assert result["labels"][name]["precision"] == pytest.approx(100 * precision)
        assert result["labels"][name]["recall"] == pytest.approx(100 * recall)
        if output or real:
            scores.append(f1)
    assert result["macro_f1"] == pytest.approx(100 * sum(scores) / len(scores) if scores else 0.0)
    same = sum(g.tolist() == p.tolist() for g, p in zip(gold, guess, strict=True))
    assert result["accuracy"] == pytest.approx(100 * same / size)


def test_losses_of_one_label_and_of_several():
    logits = torch.randn(4, 3, dtype=torch.float64)
    one = torch.eye(3, dtype=torch.bool)[[0, 2, 1, 1]]
    expected = torch.nn.functional.cross_entropy(
        logits, torch.tensor([0, 2, 1, 1]), reduction="none"
    )
    torch.testing.assert_close(LabelSet(("a", "b", "c"), False).losses(logits, one), expected)
    many = torch.rand(4, 3) > 0.5
    p = torch.where(many, logits.sigmoid(), 1 - logits.sigmoid())
    torch.testing.assert_close(
        LabelSet(("a", "b", "c"), True).losses(logits, many), -p.log().sum(1)
    )


def test_sentences():
    assert sentences("One. Two two! 3.5 is no end? “Quoted.” Then…  end") == [
        "One.", "Two two!", "3.5 is no end?", "“Quoted.”", "Then…", "end",
    ]  # fmt: skip
    assert sentences("Dr. Smith met J. R. Ewing at 5 p.m. near St. Pauls. Prof. Dr. Kurz ging. Im 3. Stock? ca. drei.") == [
        "Dr. Smith met J. R. Ewing at 5 p.m. near St. Pauls.", "Prof. Dr. Kurz ging.", "Im 3. Stock?", "ca. drei.",
    ]  # fmt: skip
    assert sentences("He came in no. 5 (vs. six). Then.") == [
        "He came in no. 5 (vs. six).",
        "Then.",
    ]
    assert sentences("一。二！三") == ["一。", "二！", "三"]
    for text in ("كلب شمس. رَجُل؟ كلب.", "यह घर है। वह। है।", "ሰላም። እንዴት፧ ደህና።", "Այո։ Ոչ։ Այո։"):
        assert len(sentences(text)) == 3
    georgian = "დღეს კარგი ამინდია. ჩვენ პარკში მივდივართ. გმადლობთ."
    assert len(sentences(georgian)) == 3  # without capital letters
    assert sentences("   ") == []


@pytest.fixture(scope="module")
def tokenizer():
    texts = [
        "a very good day, truly good!",
        "what a bad, bad film. never again.",
        "nothing much to say here",
    ] * 20
    return SentencePiece(vocabulary_size=60).train(texts, [])


@pytest.mark.parametrize("name", [name for name in POOLINGS if name != "last"])
@settings(max_examples=20, deadline=None)
@given(text=st.text(alphabet="agod byfm.,!? ▁\u3000é", max_size=60))
def test_importances_are_of_words_and_sum_to_one(name, tokenizer, text):
    config = compose(
        f"pooling={name}", "encoder.hidden_size=4", "network.embedding_size=5", name="classify"
    )
    model = components.classifier(config, tokenizer.source_size, LabelSet(("x", "y"), False)).eval()
    [answer, _] = TextClassifier(model, tokenizer, max_tokens=12).classify(
        [text, "a longer text to stand beside it . yes"]
    )
    assert answer.words == text.split()
    assert sum(answer.probabilities.values()) == pytest.approx(1.0)
    if not answer.words:
        assert answer.importances is None
    elif (
        encode_documents([text], tokenizer, model.pooling.splits, 12).rows.ids[0] != 3
    ):  # a text of which nothing is left
        assert len(answer.importances) == len(answer.words)
        assert answer.importances.sum() == pytest.approx(1.0)


def test_importances_are_means_over_the_hops(tokenizer):
    config = compose(
        "pooling=structured", "encoder.hidden_size=4", "network.embedding_size=5", name="classify"
    )
    labels = LabelSet(("x", "y"), False)
    model = components.classifier(config, tokenizer.source_size, labels).eval()
    text = "a longer text"
    classifier = TextClassifier(model, tokenizer, max_tokens=12)
    [answer] = classifier.classify([text])
    [ids] = tokenizer.encode_source([text])
    _, pooled = model.read(batch([ids], [1]))
    of_pieces = pooled.weights.double().mean(1)[0].tolist()
    expected = [0.0] * 3
    for place, weight in zip(tokenizer.source_words(text, ids), of_pieces, strict=True):
        expected[place.start] += weight
    assert answer.importances.tolist() == pytest.approx(expected)


def test_documents_are_cut_and_never_empty(tokenizer):
    documents = encode_documents(["", "good day. bad film.", "day"], tokenizer, True, 3)
    assert len(documents) == 3
    assert documents.lengths.tolist() == [1, 3, len(tokenizer.encode_source(["day"])[0])]
    assert documents.cut == 1
    data = collate_texts(documents, [2, 0], np.array([[True], [False], [True]]))
    assert data.labels.tolist() == [[True], [True]]
    assert data.lengths.tolist() == [int(documents.lengths[2]), 1]


def test_vectors_are_taken_by_word():
    words = SentencePiece(model="word", vocabulary_size=30).train(["Good day bad film"] * 9, [])
    pieces = words.source_pieces(list(range(words.source_size)))
    vectors = {
        "good": np.array([1, 2, 3, 4, 5], np.float32),
        "film": np.array([9, 8, 7, 6, 5], np.float32),
    }
    config = compose("encoder.hidden_size=4", "network.embedding_size=5", name="classify")
    model = components.classifier(config, len(pieces), LabelSet(("x", "y"), False))
    assert use_vectors(model.embedding, pieces, vectors) == pytest.approx(2 / len(pieces))
    assert model.embedding.weight[pieces.index("▁Good")].tolist() == [1, 2, 3, 4, 5]
    assert model.embedding.weight[pieces.index("▁film")].tolist() == [9, 8, 7, 6, 5]
    assert torch.all(model.embedding.weight[0] == 0)


def test_unknown_words_in_a_row_stay_apart():
    words = SentencePiece(model="word", vocabulary_size=30).train(["good day bad film"] * 9, [])
    assert [len(ids) for ids in words.encode_source(["xxx yyy good zzz", "good", "", "x  y"])] == [
        4,
        1,
        0,
        2,
    ]
    config = compose("encoder.hidden_size=4", "network.embedding_size=5", name="classify")
    classifier = TextClassifier(
        components.classifier(config, words.source_size, LabelSet(("x", "y"), False)).eval(),
        words,
        max_tokens=9,
    )
    [answer] = classifier.classify(["xxx yyy good zzz"])
    assert min(answer.importances) > 0


def test_labels_that_training_has_not_seen_are_missed(tokenizer, caplog):
    """A warning names them, and a text that has one is never right."""
    labels = LabelSet.of([("a",), ("b",)], False)
    assert labels.unseen([("c",), ("a",)]) == ["c"]
    config = compose("encoder.hidden_size=4", "network.embedding_size=5", name="classify")
    network = components.classifier(config, tokenizer.source_size, labels).eval()
    with torch.no_grad():
        network.output.bias[:] = torch.tensor([50.0, -50.0])  # it always predicts a
    train = Labelled(["good day", "bad film"], [("a",), ("b",)], "train")
    validation = Labelled(
        ["good", "bad", "film", "day"], [("a",), ("c",), ("c",), ("b",)], "validation"
    )
    with caplog.at_level("WARNING", "nmt"):
        task = ClassificationTask(
            LabelledSplits(train, validation, None), labels, tokenizer, network,
            batching=Batching(sentences=2), metric="macro_f1", seed=1, max_tokens=9,
        )  # fmt: skip
    assert (
        "validation: these labels are not in the training set, so their texts count as errors: c"
        in caplog.text
    )
    result = task.validate().metrics
    assert result["accuracy"] == 25.0
    # a has probability 1, b e^-100; c, which is never predicted, counts in no loss
    assert result["loss"] == pytest.approx((0 + -math.log(1e-30)) / 2, rel=1e-4)
    assert result["macro_f1"] == pytest.approx((100 * 2 / (4 + 1) + 0 + 0) / 3)


def write(path, rows, kind="tsv"):
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        separator = {"tsv": "\t", "csv": ","}[kind]
        lines = [separator.join(rows[0]), *(separator.join(row.values()) for row in rows)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def loaded(kind, file, **options):
    node = compose(f"data={kind}", f"data.train={file}", f"data.validation={file}", name="classify")
    node["data"] |= {"text": "text", "label": "label", **options}
    return components.make(node, "data").labelled()


def test_labelled_tables(tmp_path):
    rows = [{"text": 'say "hi"', "label": "good"}, {"text": "N/A", "label": "null"}]
    for kind in ("tsv", "jsonl"):
        data = loaded(kind, write(tmp_path / f"one.{kind}", rows, kind))
        assert data.train.texts == ['say "hi"', "N/A"]
        assert data.train.labels == [("good",), ("null",)]
        assert not data.train.multi_label
        assert data.test is None
    data = loaded(
        "tsv",
        write(tmp_path / "many.tsv", [{"text": "a", "label": "x, y"}, {"text": "b", "label": ""}]),
        separator=",",
    )
    assert data.train.labels == [("x", "y"), ()]
    assert data.train.multi_label
    data = loaded(
        "jsonl",
        write(
            tmp_path / "l.jsonl",
            [{"text": "a", "label": ["x", "y"]}, {"text": "b", "label": []}],
            "jsonl",
        ),
    )
    assert data.train.labels == [("x", "y"), ()]
    assert data.train.multi_label
    first_empty = [{"text": "a", "label": None}, {"text": "b", "label": ["x", "y"]}]
    data = loaded("jsonl", write(tmp_path / "n.jsonl", first_empty, "jsonl"))
    assert data.train.labels == [(), ("x", "y")]
    data = loaded(
        "jsonl",
        write(
            tmp_path / "n.jsonl", [{"text": "a", "label": 1}, {"text": "b", "label": 0}], "jsonl"
        ),
    )
    assert data.train.labels == [("1",), ("0",)]


def test_labels_in_columns_of_their_own(tmp_path):
    """A column of 0 and 1 for each label: a text has those that are marked, or none."""
    rows = [("good day", "1", "0", "1"), ("bad", "0", "0", "0"), ("so so", "0", "1", "0")]
    (tmp_path / "t.csv").write_text(
        "text,kind,rude,long\n" + "".join(",".join(row) + "\n" for row in rows)
    )
    (tmp_path / "t.jsonl").write_text("".join(
        json.dumps({"text": t, "kind": int(a), "rude": b == "1", "long": float(c)}) + "\n" for t, a, b, c in rows))  # fmt: skip
    for kind in ("csv", "jsonl"):
        result = loaded(kind, tmp_path / f"t.{kind}", text="text", label=["kind", "rude", "long"])
        assert result.train.multi_label
        assert list(result.train.labels) == [("kind", "long"), (), ("rude",)]
        assert list(result.train.texts) == ["good day", "bad", "so so"]
    with pytest.raises(UserError, match="column 'rudde' not found"):
        loaded("csv", tmp_path / "t.csv", text="text", label=["kind", "rudde"])
    with pytest.raises(UserError, match="row 1: column 'text' contains 'good day', not 0 or 1"):
        loaded("csv", tmp_path / "t.csv", text="text", label=["text"])


@pytest.mark.parametrize("several", [False, True])
def test_numbered_labels_get_their_names(tmp_path, several):
    import datasets

    names = datasets.ClassLabel(names=["neg", "pos"])
    label = datasets.Sequence(names) if several else names
    features = datasets.Features({"text": datasets.Value("string"), "label": label})
    labels = [[1, 0], [0]] if several else [1, 0]
    table = datasets.Dataset.from_dict({"text": ["a", "b"], "label": labels}, features=features)
    table.to_parquet(tmp_path / "t.parquet")
    result = loaded("parquet", tmp_path / "t.parquet").train.labels
    assert result == ([("pos", "neg"), ("neg",)] if several else [("pos",), ("neg",)])


def test_faults_of_labelled_data_are_named(tmp_path):
    file = write(tmp_path / "a.tsv", [{"text": "a", "label": "x"}, {"text": "b", "label": ""}])
    with pytest.raises(UserError, match="row 2: column 'label' contains no label"):
        loaded("tsv", file)
    with pytest.raises(UserError, match="column 'sentiment' not found .available: text, label."):
        loaded("tsv", file, label="sentiment")
    with pytest.raises(UserError, match="nmt.classify needs data.text and data.label"):
        loaded("tsv", file, text=None, label=None, source="text", target="label")
    with pytest.raises(ValueError, match="set either data.source and data.target"):
        loaded("tsv", file, label=None)
    rows = [{"text": "a", "label": "x"}, {"text": "b", "label": ["x", "y"]}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match="row 2: column 'label' contains a list of labels"):
        loaded("jsonl", tmp_path / "a.jsonl")


GOOD, BAD = ["lovely", "great", "superb"], ["awful", "boring", "terrible"]


def texts(count: int, seed: int) -> list[dict[str, str]]:
    """Texts of which one word decides."""
    generator = np.random.default_rng(seed)
    filler = [
        "the",
        "film",
        "was",
        "seen",
        "by",
        "some",
        "people",
        "on",
        "a",
        "day",
        "in",
        "town",
        "and",
        "then",
        "home",
    ]
    rows = []
    for i in range(count):
        words = list(generator.choice(filler, generator.integers(6, 12)))
        words.insert(int(generator.integers(len(words))), str(generator.choice([GOOD, BAD][i % 2])))
        rows.append({"text": " ".join(words), "label": ["good", "bad"][i % 2]})
    return rows


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classify")
    parts = {
        part: write(folder / f"{part}.tsv", texts(n, i))
        for i, (part, n) in enumerate({"train": 400, "validation": 60, "test": 60}.items())
    }
    small = [
        "tokenizer.vocabulary_size=80",
        "encoder.hidden_size=16",
        "network.embedding_size=16",
        "trainer.max_epochs=4",
        "optimizer.lr=0.01",
        "network.dropout=0.1",
        "network.feature_dropout=0.1",
        "network.word_dropout=0",
    ]
    arguments = [
        "data=tsv",
        *(f"data.{part}={file}" for part, file in parts.items()),
        "data.text=text",
        "data.label=label",
        *small,
    ]
    result = run(*arguments, f"run_dir={folder}/run")
    assert result.returncode == 0, result.stderr
    return folder, arguments


def run(*arguments, stdin="", module="classify"):
    result = commands.run(module, *arguments, stdin=stdin)
    return SimpleNamespace(
        returncode=result.returncode, stdout=result.stdout.decode(), stderr=result.stderr.decode()
    )


def test_training_writes_what_it_found(trained):
    folder, _ = trained
    results = json.loads((folder / "run/results.json").read_text())
    assert results["part"] == "test"
    assert results["scores"]["macro_f1"]["score"] == 100.0
    assert set(results["labels"]) == {"good", "bad"}
    assert results["removal"]["most_important"] > 0.3 + results["removal"]["random"]
    assert (folder / "run/test.txt").read_text().splitlines()[:2] == ["good", "bad"]
    for name in (
        "learning_curve.png",
        "explanations.html",
        "best.safetensors",
        "config.yaml",
        "metrics.jsonl",
    ):
        assert (folder / "run" / name).stat().st_size > 0


def test_a_classifier_is_exported_as_a_card_only(trained, tmp_path):
    folder, _ = trained
    for format, output in (("onnx", "out"), ("html", "out.html")):
        typed = [f"model={folder}/run", f"format={format}", f"output={tmp_path}/{output}"]
        commands.failed(
            commands.run("export", *typed), "supports only translation models; use format=card"
        )
    assert not [*tmp_path.iterdir()]


def test_answers_and_explanations(trained):
    folder, _ = trained
    (folder / "in.txt").write_text(
        "the film was superb on a day\n\na boring day in town\n<b>film</b>\n"
    )
    for name in ("page.html", "page.png", "page.json"):
        result = run(
            f"model={folder}/run",
            f"input={folder}/in.txt",
            f"output={folder}/out",
            f"explain={folder}/{name}",
        )
        assert result.returncode == 0, result.stderr
    lines = (folder / "out").read_text().splitlines()
    assert len(lines) == 4
    assert (lines[0], lines[2]) == ("good", "bad")
    page = (folder / "page.html").read_text()
    assert "&lt;b&gt;" in page
    assert "good</span>, with attention to “superb”, “" in page
    assert ">“good” without the word</th>" in page
    assert "the 3 most important words lowers the probability" in page
    assert not re.search(r"https?://|src=", page)
    results = json.loads((folder / "page.json").read_text())
    assert [results[i]["labels"] for i in (0, 2)] == [["good"], ["bad"]]
    assert len(results) == 4
    assert results[1]["importances"] is None
    assert sum(results[0]["importances"]) == pytest.approx(1.0, abs=1e-3)
    assert results[0]["words"][int(np.argmax(results[0]["importances"]))] == "superb"
    (folder / "many.txt").write_text("a superb film\n" * 13)
    explain = f"explain={folder}/page.png"
    result = run(f"model={folder}/run", f"input={folder}/many.txt", explain)
    assert "shows only the first 12 of 13 texts" in result.stderr
    result = run(f"model={folder}/run", "format=jsonl", stdin="the film was awful on a day")
    assert json.loads(result.stdout)["labels"] == ["bad"]


def test_a_string_gives_one_answer(trained):
    import nmt

    classifier = nmt.load(str(trained[0] / "run"))
    one, [same] = classifier.classify("good news"), classifier.classify(["good news"])
    assert (one.labels, one.words) == (same.labels, same.words) and one.words == ["good", "news"]
    np.testing.assert_allclose(
        classifier.probabilities("good news"), classifier.probabilities(["good news"])[0]
    )
    pieces = classifier.classify("good news", units="piece")
    assert "".join(pieces.words).replace("▁", " ").split() == ["good", "news"]
    assert pieces.importances.sum() == pytest.approx(1.0)


def test_removing_what_decides_hurts_more(trained):
    folder, _ = trained
    classifier = text_classifier(str(folder / "run"))
    gap = removal(classifier, [row["text"] for row in texts(40, 9)], count=1)
    assert gap.most_important > 2 * gap.random
    assert gap.texts == 40


def test_a_finished_run_continues_and_kinds_are_distinguished(trained, tmp_path):
    folder, _ = trained
    result = run(f"resume={folder}/run", "trainer.max_epochs=5")
    assert result.returncode == 0, result.stderr
    assert ckpt.read(folder / "run/last.safetensors").meta["training"]["progress"]["epoch"] == 5
    refused = run(
        f"resume={folder}/run", "pooling=mean", "optimizer.lr=0.1", "run_dir=x", "seed=3"
    ).stderr
    for text in ("pooling=mean", "seed=3"):
        assert f"{text}: this setting cannot change on resume" in refused
    assert "run_dir=x: cannot change on resume" in refused
    assert "lr" not in refused
    assert [
        command[-1] for command in json.loads((folder / "run/run.json").read_text())["commands"]
    ][1:] == ["trainer.max_epochs=5"]
    result = run(f"model={folder}/run", module="translate", stdin="a")
    assert "a classifier, for nmt.label and nmt.classify" in result.stderr
    result = run(f"resume={folder}/run", module="train", stdin="a")
    assert "a classifier, for nmt.label and nmt.classify" in result.stderr


def test_faults_are_reported(trained):
    folder, arguments = trained
    model = f"model={folder}/run"
    for wrong, message in [
        ([model, "optimizer.lr=1"], "optimizer: key not found (available: device, errors, explain"),
        ([model, "explain=page.gif"], "must end in .html, .png, .pdf, .svg or .json"),
        ([model, "input=nowhere.txt"], "file not found"),
        ([f"model={folder}"], "has neither best.safetensors nor last.safetensors"),
        ([*arguments, "explain=page.html"], "explain: key not found"),
        ([*arguments, "pooling=wordcontext"], "pooling=wordcontext: unknown choice"),
        ([*arguments, "pooling=structured", "pooling.hops=0"], "pooling.hops=0: out of range"),
        ([*arguments, "freeze=true"], "needs vectors=FILE"),
        ([*arguments, "choose_by=bleu"], "choose_by=bleu: must be one of macro_f1, accuracy, loss"),
        ([model, f"input={folder}/test.tsv", f"explain={folder}/test.tsv"], "must end in .html"),
        (
            [model, f"output={folder}/x.html", f"explain={folder}/x.html"],
            "is also written by output; choose another file",
        ),
        ([*arguments, "tokenizer.joint=false"], "one vocabulary only"),
        (["data=everyday"], "no labels"),
        (["cell=gru"], "data.train: missing"),
    ]:
        place = [] if wrong[0].startswith("model=") else [f"run_dir={folder}/none"]
        result = run(*wrong, *place)
        assert result.returncode in (1, 2), wrong
        assert message in result.stderr, result.stderr
        assert "Traceback" not in result.stderr


def test_several_labels_vectors_and_last(tmp_path):
    rows = [
        {"text": row["text"], "label": [row["label"], "film"] if "film" in row["text"] else []}
        for row in texts(200, 3)
    ]
    file = write(tmp_path / "many.jsonl", rows, "jsonl")
    words = sorted({word for row in texts(200, 3) for word in row["text"].split()})
    (tmp_path / "v.txt").write_text(
        "".join(
            f"{w} {' '.join(f'{x:.3f}' for x in np.random.default_rng(i).normal(size=8))}\n"
            for i, w in enumerate(words)
        )
    )
    common = [
        "data=jsonl",
        f"data.train={file}",
        f"data.validation={file}",
        "data.text=text",
        "data.label=label",
        "tokenizer=word",
        "choose_by=loss",
        "encoder.hidden_size=8",
        "trainer.max_epochs=2",
    ]
    result = run(
        *common,
        f"vectors={tmp_path}/v.txt",
        "freeze=true",
        "network.embedding_size=8",
        f"run_dir={tmp_path}/frozen",
    )
    assert result.returncode == 0, result.stderr
    saved, last = (ckpt.read(tmp_path / "frozen" / name) for name in (ckpt.BEST, ckpt.LAST))
    classifier = text_classifier(str(tmp_path / "frozen"))
    pieces = classifier.tokenizer.source_pieces(list(range(classifier.tokenizer.source_size)))
    expected = [
        float(x)
        for x in (tmp_path / "v.txt").read_text().splitlines()[words.index("film")].split()[1:]
    ]
    for each in (saved, last):
        assert each.part("model")["embedding.weight"][
            pieces.index("▁film")
        ].tolist() == pytest.approx(expected)
    assert saved.meta["labels"]["several"] is True
    assert (tmp_path / "frozen/validation.txt").exists()
    result = run(*common, f"vectors={tmp_path}/v.txt", f"run_dir={tmp_path}/wrong")
    assert "set network.embedding_size=8" in result.stderr
    assert not (tmp_path / "wrong").exists()
    result = run(*common, "pooling=last", f"run_dir={tmp_path}/last")
    assert result.returncode == 0, result.stderr
    result = run(f"model={tmp_path}/last", f"explain={tmp_path}/x.html", stdin="a")
    assert "the classifier has no word importances" in result.stderr
    assert "train a classifier with another pooling" in result.stderr


def test_a_wrong_label_column_does_not_flood_the_terminal(tokenizer, caplog):
    labels = LabelSet.of([("a",), ("b",)], False)
    config = compose("encoder.hidden_size=4", "network.embedding_size=5", name="classify")
    network = components.classifier(config, tokenizer.source_size, labels)
    train = Labelled(["good day", "bad film"], [("a",), ("b",)], "train")
    wrong = [(f"a whole sentence that is no label, number {i}",) for i in range(500)]
    validation = Labelled(["good"] * 500, wrong, "validation")
    with caplog.at_level("WARNING", "nmt"):
        ClassificationTask(
            LabelledSplits(train, validation, None), labels, tokenizer, network,
            batching=Batching(sentences=2), metric="macro_f1", seed=1, max_tokens=9,
        )  # fmt: skip
    assert len(caplog.text) < 700
    assert "and more; check that data.label is the right column" in caplog.text


def test_words_without_a_vector_are_drawn_like_the_vectors():
    """With the mean and the standard deviation of the vectors; padding and the end are zeros."""
    torch.manual_seed(1)
    pieces = ["<pad>", "<unk>", "<s>", "</s>", *(f"▁w{i}" for i in range(400))]
    table = torch.nn.Embedding(len(pieces), 20)
    vectors = {f"w{i}": np.full(20, 3 + 2 * (-1) ** i, np.float32) for i in range(4)}
    assert use_vectors(table, pieces, vectors) == 4 / len(pieces)
    drawn = table.weight[8:].detach()
    assert 2.9 < float(drawn.mean()) < 3.1
    assert 1.9 < float(drawn.std()) < 2.2
    assert not table.weight[[PAD, EOS]].any()
