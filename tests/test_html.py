"""The page that is the model, in Chromium: what it computes is what Python computes."""

import io
import json
import math
import random

import confidence
import numpy as np
import pytest
import sentencepiece
from accessibility import violations
from builders import choices, network
from commands import failed, run
from page import rounded

import nmt
from nmt.exporting.html import write_html
from nmt.inference.explanations.explanation import explain
from nmt.inference.explanations.word_removal import influence
from nmt.inference.model_facts import _training_text, examples, model_facts
from nmt.inference.translator import Translator
from nmt.inference.word_alignment import word_alignment
from nmt.search.beam import Beam
from nmt.search.greedy import Greedy
from nmt.serving.passages import spans
from nmt.tokenizer import SentencePiece, Tokenizer

WORDS = [
    "haus",
    "katze",
    "hund",
    "ball",
    "rot",
    "blau",
    "alt",
    "neu",
    "der",
    "ein",
    "läuft",
    "über",
    "straße",
    "42",
    "x²",
    "…",
    "Ω",
]


def texts(count, seed=1):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.choice((1, 2, 4, 7)))) for _ in range(count)]


@pytest.fixture(scope="module")
def tokenizer():
    return SentencePiece(vocabulary_size=60).train(texts(200), texts(200, 2))


def opened(browser, file):
    page, faults = browser.new_page(), []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "console", lambda message: faults.append(message.text) if message.type == "error" else None
    )
    page.goto(f"file://{file}")
    page.wait_for_function("globalThis.answering !== undefined", timeout=10_000)
    assert faults == []
    return page, faults


def ask(page, path, **fields):
    return page.evaluate("([path, fields]) => answering(path, fields)", [path, fields])


def close(found, truth):
    """Probabilities that are those of Python's, but for float32."""
    return found == pytest.approx(truth, abs=3e-3)


NETWORKS = (
    [(decoder, score) for decoder in choices("decoder") for score in (("none",) if decoder == "fixed" else ("concat", "general", "dot"))]
    + [("bahdanau", score) for score in choices("attention") if score not in ("none", "concat", "general", "dot", "multi_head")]
    + [("conditional", "multi_head", "attention.heads=2"), ("luong_feed", "multi_head", "attention.heads=4")]
    + [("luong_feed", "dot", f"normalizer={kind}") for kind in choices("normalizer") if kind != "softmax"]
    + [(decoder, "general", "decoder.num_layers=3", "encoder.num_layers=2", "decoder.residual=true", "encoder.residual=true")
       for decoder in choices("decoder") if decoder != "fixed"]
    + [("bahdanau", "concat", *more) for more in (
        ["cell=lstm", "decoder.num_layers=2"], ["cell=norm_gru"], ["cell=norm_lstm", "encoder.num_layers=2"], ["encoder=unidirectional", "sizes.encoder=8"],
        ["encoder=alternating", "encoder.hidden_size=8", "encoder.num_layers=2"], ["model.copy=true"], ["model.lexical=true", "model.copy=true"],
        ["model.lexicon=auto"], ["model.lexicon=auto", "model.copy=true"], ["model.lexicon=auto", "model.lexicon_use=mixture"],
        ["decoder.context_gate=true", "model.lexical=true"], ["decoder.bridge=none"], ["decoder.bridge=mean"], ["decoder.bridge=linear", "cell=lstm"],
        ["encoder.layer_norm=true", "decoder.layer_norm=true"], ["model.tying=all"],
        ["encoder.transition_depth=2", "decoder.transition_depth=3"], ["decoder=conditional", "decoder.transition_depth=2", "cell=norm_gru"],
    )]
    + [("luong", "dot", "decoder.bridge=last"), ("fixed", "none", "cell=lstm", "decoder.num_layers=2")]
)  # fmt: skip


@pytest.mark.parametrize(
    ("choice", "no_repeat"),
    [
        pytest.param(
            choice,
            2 * (i % 2),
            id=" ".join(choice),
            marks=[pytest.mark.exhaustive] if i > 1 else [],
        )
        for i, choice in enumerate(NETWORKS)
    ],
)
def test_it_computes_what_the_network_computes(choice, no_repeat, browser, tokenizer, tmp_path):
    """Translations by beam and greedily, probabilities, attention of each head, the search's tree. Every second network is
    searched without repeated bigrams, which is a property of the search and not of the network."""
    decoder, attention, *more = choice
    chosen = [text for text in more if text.startswith("decoder=")]
    model = network(chosen[0].partition("=")[2] if chosen else decoder, attention, *(t for t in more if t not in chosen),
                    vocabulary=tokenizer.target_size).float()  # fmt: skip
    for parameter in model.parameters():
        parameter.data.mul_(2.0)  # so that words differ in probability
    options = {"max_length_offset": 5, "no_repeat_ngram_size": no_repeat}
    beam = Translator(model, tokenizer, Beam(width=4, length_penalty="wu"), **options)
    write_html(beam, "tiny", tmp_path / "page.html")
    same = Translator(
        rounded(model), tokenizer, Beam(width=4, n_best=4, length_penalty="wu"), **options
    )
    page, faults = opened(browser, tmp_path / "page.html")
    lines = texts(6, 3)
    assert ask(page, "/translate", q=lines)["translatedText"] == same.translate(lines)
    assert ask(page, "/translate", q=lines, width=1)["translatedText"] == same.with_search(
        Greedy()
    ).translate(lines)
    for line in lines[:2]:
        result, truth = ask(page, "/explain", q=line), explain(same, line)
        assert [step["token"] for step in result["target"]] == [
            truth.tree[i].token for i in truth.path[1:]
        ]
        assert close(
            [step["log_prob"] for step in result["target"]],
            [truth.tree[i].log_prob for i in truth.path[1:]],
        )
        assert sorted(node["total"] for node in result["tree"]) == pytest.approx(
            sorted(n.total for n in truth.tree), abs=0.02
        )
        assert [other["tokens"] for other in result["others"]] == [
            one.tokens for one in truth.others
        ]
        for mine, theirs in (
            (result["attention"], truth.attention),
            (result["heads"], truth.heads),
        ):
            assert (mine is None) == (theirs is None)
            if mine is not None:
                assert close(np.array(mine).flatten().tolist(), theirs.flatten().tolist())
    assert faults == []
    page.close()


@pytest.mark.exhaustive
def test_words_of_the_page_are_those_of_python(browser, tokenizer, tmp_path):
    """The map in words is the map of nmt.translate in words; the marks of the page are those of scripts/confidence.py."""
    model = network("luong", "general", vocabulary=tokenizer.target_size).float()
    for parameter in model.parameters():
        parameter.data.mul_(2.0)
    model.output.bias.data[1] = -1e4  # <unk>, whose text ⁇ has no tokens in Python
    translator = Translator(
        rounded(model), tokenizer, Beam(width=3), languages=("de", "en"), max_length_offset=5
    )
    write_html(translator, "tiny", tmp_path / "page.html")
    page, faults = opened(browser, tmp_path / "page.html")
    for line in ("der hund läuft über straße", "42 häuser"):
        page.fill("#text", line)
        page.wait_for_function(
            "text => document.querySelector('#source').innerText.includes(text)",
            arg=line.split()[-1],
        )
        [translation] = translator.translations([line], None, 1)
        alignment = word_alignment(tokenizer, line, translation, 0)
        assert page.locator("#maps thead th").all_inner_texts() == [*line.split(), "</s>"]
        shown = page.evaluate(
            "[...document.querySelectorAll('#maps tbody tr')].map(r => [...r.querySelectorAll('td')].map(c => +c.style.getPropertyValue('--w')))"
        )
        assert close(
            np.array(shown)[:-1, :-1].flatten().tolist(), alignment.weights.flatten().tolist()
        )
        marks = confidence.marks_of(translator, line, translation)
        unsure = page.locator("#target .unsure:not(:text('</s>'))").count()
        assert unsure == round(marks["share of words marked as uncertain"] * len(alignment.weights))
        mean = math.exp(-marks["mean log-probability, negative"])
        assert f"{100 * mean:.1f} %" in page.locator("#confidence").inner_text()
    assert faults == []


TOKENIZERS = {
    "unigram": {}, "unigram with bytes": {"byte_fallback": True, "vocabulary_size": 330}, "bpe": {"model": "bpe"},
    "bpe with bytes": {"model": "bpe", "byte_fallback": True, "vocabulary_size": 330}, "char": {"model": "char"},
    "word": {"model": "word", "vocabulary_size": 25}, "lower case": {"lowercase": True}, "two vocabularies": {"joint": False},
    "digits": {"split_digits": True},
}  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_subwords_that_are_never_divided(kind, prefix, browser, tmp_path):
    """Placeholders of a model that was trained outside of nmt."""
    lines = ["a<sep>b", "haus <sep> <a><ab>", "<sep", "<sep><sep>haus", "<absep>"]
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts(200)), model_writer=writer, model_type=kind, vocab_size=40 if kind == "char" else 60,
        pad_id=0, unk_id=1, bos_id=2, eos_id=3, user_defined_symbols=["<sep>", "<a>", "<ab>"],
        normalization_rule_name="identity", add_dummy_prefix=prefix, minloglevel=2,
    )  # fmt: skip
    tokenizer = Tokenizer(writer.getvalue(), writer.getvalue(), lowercase=False)
    model = network("luong", "dot", vocabulary=tokenizer.target_size).float()
    translator = Translator(model, tokenizer, Beam(width=2), languages=("de", "en"))
    write_html(translator, "tiny", tmp_path / "page.html", {})
    page, _ = opened(browser, tmp_path / "page.html")
    got = ask(page, "/pieces", q=lines)
    assert [row[0] for row in got] == tokenizer.encode_source(lines)
    draw = random.Random(5)
    ids = [
        [draw.randrange(1, tokenizer.target_size) for _ in range(draw.randrange(0, 9))]
        for _ in range(60)
    ]
    assert ask(page, "/text", q=ids) == tokenizer.decode(ids)
    page.close()


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", TOKENIZERS.values(), ids=TOKENIZERS)
def test_text_becomes_the_same_pieces(options, browser, tmp_path):
    """Spaces of all kinds, unknown letters alone and in rows, marks, emoji: the pieces are SentencePiece's, and so is the text."""
    tokenizer = SentencePiece(**{"vocabulary_size": 60, **options}).train(texts(200), texts(200, 2))
    model = network(
        "luong", "dot", vocabulary=max(tokenizer.source_size, tokenizer.target_size)
    ).float()
    translator = Translator(model, tokenizer, Beam(width=2), languages=("de", "en"))
    write_html(
        translator,
        "tiny",
        tmp_path / "page.html",
        {"examples": [{"kind": "easy", "text": "haus <hund>"}]},
    )
    page, _ = opened(browser, tmp_path / "page.html")
    page.wait_for_selector("#target button")  # the example is translated at once
    assert page.input_value("#text") == "haus <hund>"
    draw = random.Random(5)
    letters = "abe hausktzß \u00a0\t 4² ΩЖ漢字 é\u0301 👍🏽 İ ▁ …,.-"
    lines = ["", " ", "haus", " haus  katze ", "ZZZ qqq", "Haus\tBlau", "▁haus", "👍 haus 👍👍"]
    lines += ["\ufeffhaus", "haus\ufeffkatze", "haus\x1fkatze", "\x1c\ufeff\r", "haus\x85\u2028"]
    lines += ["".join(draw.choices(letters, k=draw.randrange(1, 25))) for _ in range(150)]
    got = ask(page, "/pieces", q=lines)
    assert [row[0] for row in got] == tokenizer.encode_source(lines)
    assert [row[1] for row in got] == tokenizer.encode_target(lines)
    ids = [
        [draw.randrange(1, tokenizer.target_size) for _ in range(draw.randrange(0, 9))]
        for _ in range(100)
    ]
    assert ask(page, "/text", q=ids) == tokenizer.decode(ids)
    page.close()


@pytest.fixture(scope="module")
def shown(browser, small_run, tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "model.html"
    assert run("export", f"model={small_run}", "format=html", f"output={file}").returncode == 0
    page, faults = opened(browser, file)
    yield page, file
    assert faults == []


@pytest.mark.exhaustive
def test_the_page_around_it_is_that_of_the_server(shown, small_run):
    """A typed text, another word, other weights and a contrast, without a server."""
    page, file = shown
    page.fill("#text", "a b c d")
    page.wait_for_function(
        "document.querySelector('#source')?.innerText.replace(/\\s/g, '') === 'abcd</s>'"
    )
    page.click("#units [value=subwords]")
    exact = nmt.load(small_run)
    exact.networks.models = [rounded(exact.models[0]).eval()]
    pieces = page.locator("#target button").all_inner_texts()
    assert (
        " ".join(pieces[:-1]) == exact.translate("a b c d") == page.locator("#plain").inner_text()
    )
    assert page.locator("#maps table tbody tr").count() == len(pieces)
    assert page.locator("#tree button.written").count() == len(pieces)
    page.locator("#target button").nth(1).click()
    choice = page.locator("#choices li button:not([aria-current])", has_not_text="</s>").nth(0)
    wanted = choice.locator("span").nth(0).inner_text().removeprefix("·")
    choice.click()
    page.wait_for_function(
        "word => document.querySelectorAll('#target button')[1]?.innerText === word", arg=wanted
    )
    forced = [
        json.loads(json.dumps(one))
        for one in ask(page, "/explain", q="a b c d", prefix=[4, 5])["target"][:2]
    ]
    assert [one["token"] for one in forced] == [4, 5]
    looked = ask(page, "/explain", q="a b c d", attend_to=[[0, 2], [1, 0], [1, 1]])
    truth = explain(
        exact.with_search(Beam(width=5, n_best=5)), "a b c d", attend_to=[(0, 2), (1, 0), (1, 1)]
    )
    assert looked["attention"][0] == pytest.approx([0, 0, 1, 0, 0])
    assert looked["attention"][1] == pytest.approx(truth.attention[1].tolist(), abs=1e-3)
    assert [one["token"] for one in looked["target"]] == [
        truth.tree[i].token for i in truth.path[1:]
    ]
    result = ask(page, "/contrast", q="a b c d", translations=["d c b a", "a b"])
    tokens = exact.tokenizer.encode_target(["d c b a", "a b"])
    assert result["influence"] == pytest.approx(influence(exact, "a b c d", *tokens), abs=3e-3)
    assert file.stat().st_size < 3e6
    assert violations(page) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("width", "search"), [(1, Greedy()), (5, Beam(width=5))], ids=["greedy", "beam"]
)
def test_a_thousand_sentences(shown, small_run, width, search):
    draw = random.Random(7)
    lines = [" ".join(draw.choices("abcdefghi", k=draw.randrange(1, 9))) for _ in range(1000)]
    exact = nmt.load(small_run, search=search)
    exact.networks.models = [rounded(exact.models[0]).eval()]
    assert ask(shown[0], "/translate", q=lines, width=width)["translatedText"] == exact.translate(
        lines
    )


@pytest.mark.exhaustive
def test_sentences_end_where_they_end_for_the_server(shown):
    page, _ = shown
    text = "a b c. d e! Dr. f g h (z.B. i) a? b\nc d. e. F g… h"
    georgian = "დღეს კარგი. ჩვენ პარკში."
    adlam = "a b. \U0001e922b c. \U0001e900 d؟ e। f። g"
    spaces = (
        georgian,
        adlam,
        "\ufeffa b.",
        "a b.\ufeff C",
        "a b.\x1f C\x85",
        " a\u3000b.\u00a0 C ",
    )
    for each in (text, "a b c d e f g " * 90, "abc" * 400, *spaces):
        assert ask(page, "/explain", q=each)["sentences"] == [
            each[place.start : place.stop] for place in spans(each)
        ]


@pytest.mark.parametrize(("overrides", "message"), [
    (("luong", "general", "encoder.cell=lstm", "decoder.cell=gru"), "does not support different cells"),
    (("luong", "general", "window=local_m"), "does not support window=localm"),
    (("luong", "general", "encoder=grid", "encoder.channels=4"), "does not support encoder=grid"),
])  # fmt: skip
def test_what_cannot_be_exported_is_refused_by_name(overrides, message, tokenizer, tmp_path):
    model = network(*overrides, vocabulary=tokenizer.target_size).float()
    with pytest.raises(nmt.UserError, match=message):
        write_html(Translator(model, tokenizer, Greedy()), "tiny", tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_a_normalising_tokenizer_is_refused_by_name(tmp_path):
    tokenizer = SentencePiece(vocabulary_size=60, normalization="nmt_nfkc").train(
        texts(200), texts(200, 2)
    )
    model = network("luong", "dot", vocabulary=tokenizer.target_size).float()
    with pytest.raises(nmt.UserError, match=r"tokenizer\.normalization"):
        write_html(Translator(model, tokenizer, Greedy()), "tiny", tmp_path / "page.html")


def test_facts_of_a_run(small_run, tmp_path):
    """Network, training text and scores of the run's files; examples from its test set, each with its kind."""
    tokenizer = nmt.load(small_run).tokenizer
    facts = model_facts(str(small_run), tokenizer)
    results = json.loads((small_run / "results.json").read_text())
    assert facts["network"] == "bidirectional encoder, bahdanau decoder, concat attention"
    assert facts["parameters"] == results["parameters"]
    assert facts["training"] == "200 generated sentence pairs"
    assert facts["part"] == "test"
    assert facts["scores"][0] == {"name": "BLEU", "score": results["scores"]["bleu"]["score"]}
    lines = (small_run / "test.source.txt").read_text().splitlines()
    assert {example["text"] for example in facts["examples"]} <= {*lines}
    assert model_facts(str(tmp_path / "missing"), tokenizer) == {}


@pytest.mark.parametrize(("train", "source", "expected"), [
    ("corpus/train", "en", "train.en, train.de"), ("corpus/train@:400", "en", "train.en@:400, train.de@:400"),
    ("train", ["fr", "en"], "train.fr, train.en, train.de"),
])  # fmt: skip
def test_the_training_text_is_named_by_its_files(train, source, expected):
    data = {"_target_": "nmt.data.sources.text.TextFiles", "source": source, "target": "de"}
    assert _training_text({**data, "train": train}) == expected


def test_examples_are_easy_long_and_rare(small_run):
    tokenizer = nmt.load(small_run).tokenizer
    lines = ["a b", "a " * 20, "a b c Ω", "a " * 70, "b " * 90]
    assert examples(tokenizer, lines) == [
        {"kind": "easy", "text": ("a " * 20).strip()},
        {"kind": "long", "text": ("a " * 70).strip()},
        {"kind": "unknown", "text": "a b c Ω"},
    ]
    assert [example["kind"] for example in examples(tokenizer, ["a b", "a b"])] == ["easy"]
    assert examples(tokenizer, ["", " "]) == []


def test_files_are_named(small_run, tmp_path):
    failed(
        run("export", f"model={small_run}", "format=html", f"output={tmp_path}/x"),
        "must end in .html",
    )
    (tmp_path / "x.html").write_text("mine")
    failed(
        run("export", f"model={small_run}", "format=html", f"output={tmp_path}/x.html"),
        "already exists",
    )
    assert (tmp_path / "x.html").read_text() == "mine"
