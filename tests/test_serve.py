"""The server: what others' clients get, the same answers in any company, tags that stay, limits that hold, no faults."""

import asyncio
import copy
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from accessibility import violations
from builders import trained
from commands import ROOT, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("starlette", reason="the server needs pip install '.[serve]'")
uvicorn = pytest.importorskip("uvicorn")
httpx = pytest.importorskip("httpx2", reason="tests of the server need httpx2")
from starlette.testclient import TestClient

from nmt.configuration.configure import configure
from nmt.data.documents import sentences
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import BOS, EOS
from nmt.inference.explanations.explanation import explain
from nmt.inference.explanations.word_removal import influence
from nmt.loading import load
from nmt.pipeline import serve_command
from nmt.pipeline.serve_command import server_of
from nmt.search.mbr import MBR
from nmt.serving import markup
from nmt.serving.app import language_of_code
from nmt.serving.batcher import Batcher
from nmt.serving.http_server import Supervisor
from nmt.serving.limits import KeyFile, Limits, Pace, Refused
from nmt.serving.monitoring import ServerMetrics
from nmt.serving.passages import joined, spans
from nmt.serving.requested_constraint import constraint_of
from nmt.serving.served_models import ServedModel
from nmt.storage import checkpoint as ckpt
from nmt.tokenizer import SentencePiece
from nmt.tokenizer.words import words

pytestmark = pytest.mark.usefixtures("unchecked")  # searches: test_search.py executes signatures

LETTERS = "abcdefgh"


@pytest.fixture(scope="session")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels")
    rows = [
        f"{'good' if k % 2 else 'bad'}\t{'a b c' if k % 2 else 'd e f'} {LETTERS[k % 8]}"
        for k in range(40)
    ]
    (folder / "rows.tsv").write_text("label\ttext\n" + "\n".join(rows) + "\n")
    result = run("classify", "data=tsv", f"data.train={folder}/rows.tsv", f"data.validation={folder}/rows.tsv", "trainer.max_epochs=2",
                 "sizes.encoder=8", "network.embedding_size=8", "sizes.vocabulary=30", f"run_dir={folder}/run", "data.text=text", "data.label=label")  # fmt: skip
    assert result.returncode == 0, result.stderr.decode()
    return folder / "run"


def served(*overrides):
    return server_of(configure("serve", [*overrides]))


@pytest.fixture(scope="module")
def server(small_run, classifier):
    return served(
        f"model=[{small_run},{classifier}]",
        "names=[reverse,labels]",
        "wait=20",
        "max_seconds=600",  # slow machines
        "max_characters=3000",
        "max_texts=50",
    )


@pytest.fixture(scope="module")
def client(server):
    with TestClient(server.app()) as client:
        yield client


@pytest.fixture(scope="module")
def pair(server):
    """The languages of the model."""
    return dict(
        zip(("source", "target"), server.models.translators[0].model.languages, strict=True)
    )


def sentence(draw):
    return " ".join(draw.choices(LETTERS, k=draw.randint(1, 9)))


def test_libretranslate_answers(client, pair, small_run):
    translator = load(small_run)
    one = client.post("/translate", json={"q": "a b c", **pair})
    assert one.status_code == 200
    assert one.json() == {"translatedText": translator.translate("a b c")}
    many = client.post("/translate", json={"q": ["a b", "", "c"], **pair, "alternatives": 2}).json()
    assert many["translatedText"] == translator.translate(["a b", "", "c"])
    assert [len(each) for each in many["alternatives"]] == [2, 0, 2]
    assert all(
        text not in others
        for text, others in zip(many["translatedText"], many["alternatives"], strict=True)
    )
    form = client.post("/translate", data={"q": "a b c", **pair, "format": "text"})
    assert form.json() == one.json()
    auto = client.post(
        "/translate", json={"q": "a b c", "source": "auto", "target": pair["target"]}
    ).json()
    assert auto["detectedLanguage"]["language"] == pair["source"]
    several = {"q": ["a b", "c"], "source": "auto", "target": pair["target"]}
    detected = client.post("/translate", json=several).json()["detectedLanguage"]
    assert detected == [auto["detectedLanguage"]] * 2  # as of LibreTranslate
    languages = client.get("/languages").json()
    assert {"code", "name", "targets"} == {*languages[0]}
    assert next(one for one in languages if one["code"] == pair["source"])["targets"] == [
        pair["target"]
    ]
    health = client.get("/health").json()
    assert health == {"status": "ok", "models": {"reverse": "ok", "labels": "ok"}}
    settings = client.get("/frontend/settings").json()
    assert settings["charLimit"] == 3000
    assert settings["textLimit"] == 50
    assert settings["language"]["source"]["code"] == pair["source"]


def test_more_than_libretranslate(client, pair, small_run):
    asked = {
        "q": "a b c. d e",
        **pair,
        "alignment": True,
        "attention": True,
        "scores": True,
        "alternatives": 1,
    }
    answer = client.post("/translate", json=asked).json()
    assert [one["source"] for one in answer["sentences"]] == ["a b c. d e"]
    [result] = answer["sentences"]
    best = result["hypotheses"][0]
    assert best["text"] == answer["translatedText"]
    assert sum(best["token_log_probs"]) == pytest.approx(best["log_prob"], abs=1e-4)
    assert len(best["attention"]["weights"]) == len(best["words"])
    assert {t for _, t in best["alignment"]} == {*range(len(best["words"]))}
    pieces = client.post("/translate", json={**asked, "units": "piece"}).json()["sentences"][0][
        "hypotheses"
    ][0]
    assert pieces["words"] == pieces["tokens"][:-1]
    score = client.post("/score", json={"q": "a b", "translation": "b a", **pair}).json()["scores"]
    forced = load(small_run).force(
        [load(small_run).encode(["a b"])[0]], load(small_run).tokenizer.encode_target(["b a"])
    )
    assert score["log_prob"] == pytest.approx(forced[0].log_prob, abs=1e-5)
    for wish, holds in (
        ({"prefix": "h h"}, lambda text: text.startswith("h h")), ({"required": ["g"]}, lambda text: "g" in text.split()),
        ({"forbidden": ["a", "b"]}, lambda text: not {"a", "b"} & {*text.split()}),
        ({"glossary": {"C": "h", "x": "g"}}, lambda text: "h" in text.split()),
    ):  # fmt: skip
        assert holds(
            client.post("/translate", json={"q": "a b c", **pair, **wish}).json()["translatedText"]
        ), wish


@pytest.mark.parametrize(
    ("word", "sentence", "occurs"),
    [
        ("man", "The man left.", True), ("the man", "The manager left.", False), ("a cat", "a category", False),
        ("man's", "the woman's hat", False), ("man's", "the man's hat", True), ("hot dog", "The Hot  dog!", True),
        ("hot  dog", "one hot dog", True), ("C++", "in C++, or C", True), (".NET", "for .net", True),
        ("猫", "猫が好きです。", True), ("แมว", "ฉันชอบแมว", True), ("犬", "猫が好きです。", False),
        ("Sony", "Sonyの製品", True), ("क", "की", False), ("a a", "xa a a", True),
        ("می", "می\u200cخواهد", False), ("ها", "بچه\u200cها", False), ("می", "او می رود", True),
    ],
)  # fmt: skip
def test_words_of_a_glossary_are_whole_words(word, sentence, occurs):
    fields = {"glossary": {word: "x"}, "required": [], "forbidden": [], "prefix": ""}
    constraint = constraint_of(fields, sentence, is_first=False)
    assert (constraint is not None) == occurs


@pytest.mark.parametrize(
    ("glossary", "required"),
    [
        ({"dog": "Hund", "Dog": "Hund"}, ("Hund",)),
        ({"dog": "Hund", "black dog": "schwarzer Hund"}, ("schwarzer Hund",)),
        ({"dog": "Hund", "black": "hundert"}, ("Hund", "hundert")),
    ],
)
def test_phrases_within_other_phrases_are_required_once(glossary, required):
    fields = {"glossary": glossary, "required": ["Hund"], "forbidden": [], "prefix": ""}
    assert constraint_of(fields, "A black dog runs.", is_first=False).required == required


@pytest.mark.parametrize(
    ("given", "required"),
    [
        (["Hund", "hund"], ("Hund", "hund")),
        (["US", "us army", "US  army"], ("us army", "US army")),
        (["Sie", "sie sind"], ("Sie", "sie sind")),
    ],
)
def test_required_phrases_distinguish_cases(given, required):
    fields = {"glossary": {}, "required": given, "forbidden": [], "prefix": ""}
    assert constraint_of(fields, "a", is_first=False).required == required


def test_nested_elements_are_kept(client, pair):
    """The translated words are in all elements that contain the source words."""
    html = "<b>" * 300 + " ".join("abcde"[i % 5] for i in range(60)) + "</b>" * 300
    answer = client.post("/translate", json={"q": html, "format": "html", **pair})
    assert answer.status_code == 200
    assert answer.json()["translatedText"].count("<b>") == 300


def test_an_empty_translation_has_a_score(client, pair):
    score = client.post("/score", json={"q": "a b", "translation": "", **pair})
    several = client.post("/score", json={"q": ["a b"], "translation": [""], **pair})
    assert [score.json()["scores"]] == several.json()["scores"]


def test_a_long_forbidden_phrase_is_refused(client, pair):
    refused = client.post("/translate", json={"q": "a", "forbidden": ["a b " * 100], **pair})
    assert (refused.status_code, "at most 100 are allowed" in refused.text) == (400, True)


def test_a_glossary_may_be_a_field_of_a_form(client, pair):
    fields = {"q": "a b c d", **pair}
    answer = client.post("/translate", json={**fields, "glossary": {"b": "j j"}}).json()
    assert "j j" in answer["translatedText"]
    assert client.post("/translate", data={**fields, "glossary": '{"b": "j j"}'}).json() == answer
    for wrong in ("b", "[1]", '{"b": 1}', '{"b": "\\ud800"}'):
        refused = client.post("/translate", data={**fields, "glossary": wrong})
        assert (refused.status_code, "glossary" in refused.text) == (400, True)


def test_a_prefix_is_that_of_the_first_sentence_of_a_text(client, pair):
    text = "<p>a b.</p><p>a b.</p>"
    asked = {"q": [text, text], "format": "html", "prefix": "h h", **pair}
    for answer in client.post("/translate", json=asked).json()["translatedText"]:
        assert answer.startswith("<p>h h")
        assert answer.count("h h") == 1


def test_tokens_of_a_prefix_are_not_texts(client, pair, small_run):
    [[token, *_]] = load(small_run).tokenizer.encode_target(["a"])
    answer = client.post("/explain", json={"q": "a b", "prefix": [token] * 201, **pair})
    assert answer.status_code == 200, answer.text


def test_a_prefix_has_a_maximum_length(client, pair):
    """A longer prefix would raise the length limit of the translation, and block the server."""
    for length, status in ((500, 200), (501, 400)):
        answer = client.post("/translate", json={"q": "a", "prefix": ("a " * 251)[:length], **pair})
        assert answer.status_code == status, answer.text
    assert "a text of at most 500 characters" in answer.json()["error"]


@pytest.mark.parametrize("search", ["mbr", "sample", "greedy"])
def test_searches_without_a_beam_are_served(search, small_run, pair):
    """A search that keeps one hypothesis has no alternatives."""
    with TestClient(served(f"model={small_run}", f"search={search}").app()) as client:
        asked = {"q": "a b c", **pair, "alternatives": 2}
        answer = client.post("/translate", json=asked)
        assert answer.status_code == 200
        assert answer.json()["alternatives"] == []
        explained = client.post("/explain", json={"q": "a b c", **pair})
        assert explained.status_code == (400 if search == "mbr" else 200)


def test_labels(client):
    answer = client.post("/classify", json={"q": ["a b c", "d e f"]}).json()["classes"]
    assert [sum(one["probabilities"].values()) for one in answer] == pytest.approx([1, 1], abs=1e-4)
    assert {one["name"] for one in client.get("/models").json()} == {"reverse", "labels"}


def test_long_texts_keep_their_lines(client, pair, small_run):
    text = "  a b cd.  D e!\n\n f g?\tH\n"
    answer = client.post("/translate", json={"q": text, **pair}).json()["translatedText"]
    one_by_one = load(small_run).translate(["a b cd.", "D e!", "f g?", "H"])
    assert answer == "  {}  {}\n\n {}\t{}\n".format(*one_by_one)


def test_the_same_answer_in_any_company(server, small_run):
    """Many callers at once, each with other wishes; then each alone."""
    draw = random.Random(1)
    texts = [sentence(draw) for _ in range(24)]
    with TestClient(server.app()) as client, ThreadPoolExecutor(16) as pool:
        languages = dict(
            zip(("source", "target"), server.models.translators[0].model.languages, strict=True)
        )
        wishes = [
            {"scores": True} if k % 3 == 0 else {"alternatives": 1} if k % 3 == 1 else {}
            for k in range(24)
        ]

        def asked(k):
            return client.post("/translate", json={"q": texts[k], **languages, **wishes[k]}).json()[
                "translatedText"
            ]

        together = list(pool.map(asked, range(24)))
    assert together == load(small_run).translate(texts)


def test_a_batch_is_what_waits(server):
    """Requests that arrive during other work are translated together. An error reaches its own request. Cancelled requests are
    left out."""
    batches, begun, go = [], threading.Event(), threading.Event()

    def work(items):
        batches.append(list(items))
        begun.set()
        go.wait(10)
        if "bad" in items:
            raise UserError("bad")
        return [item.upper() for item in items]

    async def all_of_it():
        batcher = Batcher(work, ThreadPoolExecutor(1), wait=0.0, most=3, size=len)
        first = asyncio.create_task(batcher.do(["a"]))
        await asyncio.to_thread(begun.wait, 10)
        others = [
            asyncio.create_task(batcher.do(items))
            for items in (["b"], ["bad"], ["gone"], ["c", "d"])
        ]
        await asyncio.sleep(0)
        others[2].cancel()
        await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(first, *others, return_exceptions=True)

    a, b, bad, gone, cd = asyncio.run(all_of_it())
    assert (a, b, cd) == (["A"], ["B"], ["C", "D"])
    assert isinstance(bad, UserError)
    assert isinstance(gone, asyncio.CancelledError)
    assert batches == [["a"], ["b", "bad", "c"], ["b"], ["bad"], ["c"], ["d"]]


def test_callers_take_turns():
    """A request with many long sentences is cut into batches, and one with a short one does not wait for them all."""
    batches, begun, go = [], threading.Event(), threading.Event()

    def work(items):
        batches.append(list(items))
        begun.set()
        go.wait(10)
        return items

    async def both():
        batcher = Batcher(work, ThreadPoolExecutor(1), wait=0.0, most=256, size=len)
        long = asyncio.create_task(batcher.do(["x" * 500] * 18))
        await asyncio.to_thread(begun.wait, 10)
        short = asyncio.create_task(batcher.do(["y"]))
        await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(long, short)

    assert asyncio.run(both()) == [["x" * 500] * 18, ["y"]]
    assert [len(batch) for batch in batches[:2]] == [4, 4]
    assert "y" in batches[1]


def test_the_next_batch_of_a_long_queue_is_found_quickly():
    """In linear time: the comparison of each waiting item with each item of the batch took seconds."""
    batcher = Batcher(list, ThreadPoolExecutor(1), wait=0.0, most=256, size=len)
    comparisons = 0

    class Entry(SimpleNamespace):
        def __eq__(self, other):
            nonlocal comparisons
            comparisons += 1
            return self is other

        __hash__ = object.__hash__

    batcher._waiting = [Entry(turn=n, size=1) for n in range(2000)]
    assert len(batcher._next_batch()) == 256
    assert len(batcher._waiting) == 2000 - 256
    assert comparisons < 2000


# Markup


def projected(text, align):
    """The HTML of a text that is its own translation; `align`: number of words → aligned source words."""
    written = []
    for block in markup.blocks(text):
        if isinstance(block, str):
            written.append(block)
            continue
        sentences = []
        for place in spans(block.text):
            sentence = block.text[place.start : place.stop]
            size = len(words(sentence))
            sentences.append(markup.AlignedSentence(place, sentence, align(size)))
        written.append(markup.with_tags(block, sentences))
    return "".join(written)


@pytest.mark.parametrize("text", [
    "<p>Hello <b>big</b>, world.</p><br>Two <i>dogs</i> run &amp; jump<img src=a>!", "a <b>b c", "<b><p>a</p></b>",
    "<!-- c -->Hi <a href='x'>there <em>you</em></a>.", "<script>if(a<b)</script>T", "<code>x &lt; y</code> is true",
    "<ul><li>one<li><b>two</b></ul>", '<span translate="no">Nmt <b>x</b></span> is <i></i>small',
    'das <code>x</code> läuft <span translate="no">y</span> und <img src=a> <!--c--> dann', "<b>a b. C d</b> e",
])  # fmt: skip
def test_tags_stay_where_they_were(text):
    assert projected(text, range) == text


@pytest.mark.parametrize(("tag", "translated"), [
    ("<i data-x=' translate=no'>", True), ('<i title="a" translate=\'no\'>', False), ("<i translate = NO>", False),
    ("<i translate=yes>", True), ("<i title='it\"s' translate=no>", False),
])  # fmt: skip
def test_an_attribute_keeps_an_element_untranslated(tag, translated):
    assert (
        any(not isinstance(part, str) for part in markup.blocks(f"<p>{tag}a b</i></p>"))
        == translated
    )


@pytest.mark.parametrize(("text", "written"), [
    ("das <code>x</code> läuft", "<code>x</code> läuft das"), ("a <img src=x> b <!--c-->", "<img src=x> b a <!--c-->"),
    ("<i>a</i> <b>b</b>", "<b>b</b> <i>a</i>"), ("<b>a <i>b</b> c</i> d", "d <i>c</i> <b><i>b</i> a</b>"),
    ("<b>a <img src=x>b</b>", "<b><img src=x>b a</b>"), ("<b>हिन्दी</b> <i>a</i>", "<i>a</i> <b>हिन्दी</b>"),
])  # fmt: skip
def test_tags_follow_their_words(text, written):
    """Words in reverse order."""
    result = []
    for part in markup.blocks(text):
        sentence = part.text.strip()
        turned = " ".join(reversed(sentence.split()))
        order = range(len(sentence.split()))[::-1]
        result.append(
            markup.with_tags(part, [markup.AlignedSentence(range(len(sentence)), turned, order)])
        )
    assert result == [written]


pieces = st.lists(st.sampled_from(["<b>", "</b>", "<i>", "</i>", "<p>", "</p>", "<br>", "<img src=x>", "<a href='y'>", "</a>", "word ",
                                   " two. ", "Three", "&amp;", "<!--c-->", "<code>c</code>", "\n"]), max_size=14)  # fmt: skip


@given(pieces, st.randoms())
@settings(max_examples=300, deadline=None)
def test_no_tag_is_lost(parts, draw):
    """Whatever words are aligned: each tag as often as before, each element's begin before its end, or, where it is cut by
    other words, with new beginnings and ends."""
    import re

    text, tag = "".join(parts), re.compile(r"<[^>]*>")
    written = projected(text, lambda size: [draw.randrange(size) for _ in range(size)])
    before, after = tag.findall(text), tag.findall(written)
    assert {*before} == {*after}
    assert all(after.count(one) >= before.count(one) for one in {*before})
    again = markup.blocks(written)
    assert sum(isinstance(b, str) for b in again) == sum(
        isinstance(b, str) for b in markup.blocks(text)
    )


def test_long_sentences_are_cut_between_words():
    text = " ".join(["word"] * 300) + ". Short."
    places = spans(text)
    assert [text[p.start : p.stop].count(" ") + 1 for p in places] == [100, 100, 100, 1]
    assert joined(text, places, [text[p.start : p.stop] for p in places]) == text
    assert [len(p) for p in spans("x" * 1200)] == [500, 500, 200]


@pytest.mark.parametrize(("text", "written"), [
    ("<p>a b\n   c\n d</p>", "<p>a b c d</p>"), ("<p>a&nbsp;b c</p>", "<p>a b c</p>"), ("<![CDATA[x]]>a b", "<![CDATA[x]]>a b"),
    ("<p>a bc. <code>x</code> D e.</p>", "<p>a bc. <code>x</code> D e.</p>"), ("<p>a b. <img src=x></p>", "<p>a b. <img src=x></p>"),
    ("<p><img src=x> a b.</p>", "<p><img src=x> a b.</p>"),
])  # fmt: skip
def test_what_stands_between_sentences_stays_there(client, pair, text, written):
    """Spaces of HTML are one; the translation itself is left out of the comparison."""
    import re

    answer = client.post("/translate", json={"q": text, **pair, "format": "html"}).json()[
        "translatedText"
    ]
    assert re.findall(r"\s*<[^>]*>\s*", answer) == re.findall(r"\s*<[^>]*>\s*", written)


def test_closing_quotes_belong_to_the_sentence():
    assert sentences("すごい！！行こう。") == ["すごい！！", "行こう。"]
    assert sentences("「好。」她说。走了。") == ["「好。」她说。", "走了。"]


@given(st.text(st.sampled_from("ab. !?\n\t。」猫"), max_size=40))
def test_a_text_is_its_sentences(text):
    places = spans(text)
    assert [text[p.start : p.stop] for p in places] == [
        text[p.start : p.stop].strip() for p in places
    ]
    same = joined(text, places, [text[p.start : p.stop] for p in places])
    assert same.replace(" ", "") == text.replace(" ", "")


def test_html_in_and_out(client, pair):
    text = "<p>a <b>b</b> c</p><img src='x'> d <i>e f</i>"
    answer = client.post("/translate", json={"q": text, **pair, "format": "html"}).json()[
        "translatedText"
    ]
    for tag in ("<p>", "<b>", "</b>", "</p>", "<img src='x'>", "<i>", "</i>"):
        assert tag in answer
    assert answer.startswith("<p>")
    plain = client.post("/translate", json={"q": "a b c", **pair}).json()["translatedText"]
    import re

    inner = re.sub("<[^>]*>", "", answer.partition("</p>")[0])
    assert inner == plain


# What is refused


def test_a_trailing_slash_is_no_redirection(client, pair):
    answer = client.post("/translate/", json={"q": "a", **pair}, follow_redirects=False)
    assert answer.status_code == 404
    assert answer.json()["error"]


def test_given_translations_are_short(client, pair):
    long = "a " * 501
    for path, fields in (
        ("explain", {"translation": long}),
        ("contrast", {"translations": ["a", long]}),
    ):
        answer = client.post(f"/{path}", json={"q": "a b", **pair, **fields})
        assert answer.status_code == 400
        assert "at most 1,000 characters" in answer.json()["error"]


def test_the_specification_and_the_server_refuse_the_same_values(client, pair):
    posts = client.get("/openapi.json").json()["paths"]
    body = posts["/contrast"]["post"]["requestBody"]["content"]
    assert {*body} == {"application/json", "application/x-www-form-urlencoded"}
    schema = body["application/json"]["schema"]["properties"]["translations"]
    for texts in (["a"], ["a", "b"], ["a", "b", "c"], [" ", "b"], []):
        is_valid = schema["minItems"] <= len(texts) <= schema["maxItems"] and " " not in texts
        answer = client.post("/contrast", json={"q": "a b", **pair, "translations": texts})
        assert (answer.status_code == 200) == is_valid
        assert is_valid or "two texts" in answer.json()["error"]
        assert is_valid or "not blank" in answer.json()["error"]
    for number, status in ((1.0, 200), (1.5, 400), (True, 400)):
        fields = {"q": "a b", **pair, "alternatives": number}
        assert client.post("/translate", json=fields).status_code == status


def test_limits(small_run, pair):
    small = served(
        f"model={small_run}", "max_characters=20", "max_texts=3", "max_bytes=400", "per_minute=12"
    )
    with TestClient(small.app()) as client:
        for fields, status, message in (
            ({"q": "a" * 21, **pair}, 413, "q: 21 characters, at most 20"), ({"q": ["a"] * 4, **pair}, 413, "4 texts"),
            ({"q": "a", **pair, "glossary": {"a" * 12: "b" * 9}}, 413, "glossary: 21 characters, at most 20"),
            ({"q": "a" * 500, **pair}, 413, "larger than 400 bytes"), ({**pair}, 400, "missing q"), ({"q": "a"}, 400, "missing source"),
            ({"q": "a", "source": "xx", "target": "yy"}, 400, "xx → yy: model not found; available:"), ({"q": 3, **pair}, 400, "text or a list"),
            ({"q": "a", **pair, "format": "pdf"}, 400, "text or html"), ({"q": "\ud800", **pair}, 400, "lone surrogate"),
            ({"q": "a", **pair, "alternatives": -1}, 400, "from 0 to 20"), ({"q": "a", **pair, "required": ["ß"]}, 400, "vocabulary"),
        ):  # fmt: skip
            answer = client.post(
                "/translate",
                content=json.dumps(fields),
                headers={"content-type": "application/json"},
            )
            assert answer.status_code == status, fields
            assert message in answer.json()["error"]
        assert client.get("/translate").json() == {"error": "Method Not Allowed"}
        assert client.get("/nothing").status_code == 404
        assert client.post("/translate", files={"q": b"x"}).status_code == 415
        assert client.post("/classify", json={"q": "a"}).status_code == 400
        statuses = [
            client.post("/translate", json={"q": "a", **pair}).status_code for _ in range(8)
        ]
        assert statuses[-1] == 429
        refused = client.post("/translate", json={"q": "a", **pair})
        assert 0 < int(refused.headers["retry-after"]) <= 60
        figures = client.get("/metrics").text
        assert 'nmt_requests_total{path="/translate",status="429"}' in figures


def test_a_caller_waits_until_the_oldest_request_is_a_minute_old(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("nmt.serving.limits.time.monotonic", lambda: now[0])
    pace = Pace(per_minute=2)
    for now[0] in (100.0, 130.0):
        pace.take("a")
    now[0] = 145.5
    pace.take("b")
    with pytest.raises(Refused) as refused:
        pace.take("a")
    assert refused.value.status_code == 429
    assert refused.value.headers == {"Retry-After": "15"}  # 100 + 60 - 145.5
    now[0] = 160.0
    pace.take("a")


@pytest.mark.parametrize(
    ("code", "name"),
    [("de", "German"), ("pt-BR", "Portuguese (Brazil)"), ("zh_Hant", "Chinese (Traditional)"), ("x1", "x1"), ("src", "src")],
)  # fmt: skip
def test_languages_have_english_names(code, name):
    assert language_of_code(code) == {"code": code, "name": name}


@pytest.mark.exhaustive
def test_too_many_and_too_slow(small_run, pair, monkeypatch):
    from nmt.serving.served_models import ServedModel

    original, go = ServedModel.translate_batch, threading.Event()
    monkeypatch.setattr(
        ServedModel,
        "translate_batch",
        lambda self, wishes: (go.wait(20), original(self, wishes))[1],
    )
    busy = served(f"model={small_run}", "max_open=2", "max_seconds=1.5")
    with TestClient(busy.app()) as client, ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(client.post, "/translate", json={"q": "a", **pair}) for _ in range(3)]
        statuses = sorted(one.result().status_code for one in asked)
        go.set()
        assert statuses == [503, 503, 503]  # one at once, two after 1.5 s
        assert all(one.result().headers["retry-after"] for one in asked)
        assert client.post("/translate", json={"q": "a", **pair}).status_code == 200


def test_no_part_of_a_sentence_is_left_out_silently(small_run, pair):
    with TestClient(served(f"model={small_run}", "translation.max_source=3").app()) as client:
        assert client.post("/translate", json={"q": "a b", **pair}).status_code == 200
        fields = {
            "/translate": {},
            "/score": {"translation": "a"},
            "/explain": {},
            "/contrast": {"translations": ["a", "b"]},
        }
        for path, more in fields.items():
            result = client.post(path, json={"q": "a b c d a", **pair, **more})
            assert result.status_code == 413, path
            assert "the model reads at most 3" in result.json()["error"], path


def test_a_worker_that_cannot_listen_ends_the_server():
    """The port may be taken between the start of the supervisor and that of its processes."""
    ended = SimpleNamespace(
        child_conn=SimpleNamespace(close=lambda: None),
        is_alive=lambda _: False,
        is_ready=lambda: False,
        kill=lambda: None,
        join=lambda: None,
        exitcode=1,
    )
    supervisor = Supervisor(uvicorn.Config("none", workers=2, log_config=None), [])
    supervisor.processes = [ended]
    supervisor.keep_subprocess_alive()
    assert supervisor.has_failed
    assert supervisor.should_exit.is_set()


def test_keys(small_run, pair, tmp_path):
    (tmp_path / "keys").write_text("# ours\nfirst\nsecond\n")
    guarded = served(f"model={small_run}", f"keys={tmp_path}/keys", "origins=[https://example.org]")
    with TestClient(guarded.app(origins=["https://example.org"])) as client:
        asked = {"q": "a", **pair}
        assert client.post("/translate", json=asked).status_code == 403
        assert client.post("/translate", json={**asked, "api_key": "third"}).json() == {
            "error": "api_key: invalid"
        }
        assert client.post("/translate", json={**asked, "api_key": "second"}).status_code == 200
        for headers, key, status in (
            ({"Authorization": "Bearer first"}, {}, 200),
            ({"Authorization": "bearer first"}, {}, 200),
            ({"Authorization": "Basic dTpw"}, {"api_key": "first"}, 200),  # of a proxy
            ({"Authorization": "Basic dTpw"}, {}, 403),
            ({"Authorization": "Bearer third"}, {"api_key": "first"}, 403),
        ):
            answer = client.post("/translate", json={**asked, **key}, headers=headers)
            assert answer.status_code == status
        other = client.post(
            "/translate",
            json={**asked, "api_key": "first"},
            headers={"Origin": "https://example.org"},
        )
        assert other.headers["access-control-allow-origin"] == "https://example.org"
        assert client.get("/frontend/settings").json()["keyRequired"]
    with TestClient(served(f"model={small_run}").app()) as client:
        assert (
            "access-control-allow-origin"
            not in client.get("/health", headers={"Origin": "https://example.org"}).headers
        )


def test_a_slow_body_keeps_no_place(small_run, pair, monkeypatch, tmp_path):
    """Clients that send half a body are refused after a short time, and others are answered meanwhile; one with a wrong key
    in its header is refused before its body."""
    monkeypatch.setattr("nmt.serving.app.BODY_SECONDS", 0.5)
    (tmp_path / "keys").write_text("valid\n")
    app = served(f"model={small_run}", f"keys={tmp_path}/keys", "max_open=2").app()

    async def post(body, *, key="valid", complete=True):
        messages = [{"type": "http.request", "body": body, "more_body": not complete}]
        sent = []

        async def receive():
            if messages:
                return messages.pop()
            await asyncio.sleep(30)

        async def send(message):
            sent.append(message)

        headers = [(b"authorization", f"Bearer {key}".encode())]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/translate",
            "query_string": b"",
            "headers": headers,
        }
        start = time.monotonic()
        await app(scope, receive, send)
        return sent[0]["status"], time.monotonic() - start

    async def all_of_them():
        slow = [asyncio.create_task(post(b'{"q": ', complete=False)) for _ in range(8)]
        await asyncio.sleep(0)
        quick = await post(json.dumps({"q": "a b", **pair}).encode())
        refused = await post(b'{"q": ', complete=False, key="wrong")
        return quick, refused, await asyncio.gather(*slow)

    quick, refused, slow = asyncio.run(all_of_them())
    assert quick[0] == 200
    assert refused[0] == 403
    assert refused[1] < 0.3
    assert {status for status, _ in slow} == {408}


def test_a_body_may_begin_with_a_byte_order_mark(client, pair):
    body = json.dumps({"q": "a b", **pair}).encode("utf-8-sig")
    answer = client.post("/translate", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200


def test_a_checkpoint_of_another_kind_is_refused(small_run, classifier, pair, tmp_path):
    """The model before continues to answer, and /health names the problem."""
    shutil.copytree(small_run, tmp_path / "run")
    file = tmp_path / "run/best.safetensors"
    server = served(f"model={tmp_path}/run", "names=[reverse]")
    [model] = server.models.all
    saved = ckpt.read(file)
    with TestClient(server.app()) as client:
        before = client.post("/translate", json={"q": "a b c", **pair}).json()

        def changed(languages=None, content=None):
            new = tmp_path / "new"
            if languages:
                ckpt.write(new, {**saved.meta, "languages": languages}, saved.tensors)
            else:
                new.write_bytes(content)
            new.replace(file)
            assert model.is_outdated()
            model.reload()
            assert client.get("/models").status_code == 200
            assert client.post("/translate", json={"q": "a b c", **pair}).json() == before
            return client.get("/health").json()["models"]["reverse"]

        assert "cannot be used" in changed(content=(classifier / "best.safetensors").read_bytes())
        assert "cannot be used" in changed(languages=["fr", "ja"])
        assert "cannot be used" in changed(content=b"damaged")
        assert changed(languages=list(pair.values())) == "ok"


def test_the_pace_of_each_caller(tmp_path):
    pace = Pace(2)
    pace.take("a")
    pace.take("a")
    pace.take("b")
    with pytest.raises(Refused, match="more than 2 requests"):
        pace.take("a")
    (tmp_path / "keys").write_text("x\n")
    with pytest.raises(Refused, match="api_key: invalid"):
        Limits(1, 1, 1, 1, 1, keys=KeyFile(tmp_path / "keys")).check_key("é")


def test_a_checkpoint_has_the_name_of_its_run(small_run):
    typed = [f"model={small_run}/best.safetensors"]
    assert [*configure("serve", typed).called] == [small_run.name]


def test_a_precision_without_effect_is_reported(classifier, caplog):
    settings = configure("serve", [f"model={classifier}", "precision=int8"])
    serve_command._loaded(settings, str(classifier))
    assert "precision=int8 has no effect on a model of nmt.classify" in caplog.text


def test_what_is_typed_wrong_is_reported(small_run, classifier, tmp_path):
    for overrides, message in (
        ([f"model=[{small_run},{small_run}]"], "must be unique"), (["model=nowhere"], "nowhere"),
        ([f"model={small_run}", "names=[a,b]"], "one name for each of the 1 models"), ([f"model={small_run}", "host=256.0.0.1"], "host=256.0.0.1"),
        ([f"model={small_run}", "search.n_best=3"], "the number of alternatives"), ([f"model={small_run}", f"keys={tmp_path}/no"], "file not found"),
    ):  # fmt: skip
        result = run("serve", *overrides)
        assert result.returncode in (1, 2)
        assert message in result.stderr.decode()
        assert b"Traceback" not in result.stderr


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 10**6)
    | st.floats(allow_nan=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
names = ("q", "source", "target", "format", "alternatives", "alignment", "attention", "scores", "units", "glossary", "prefix", "required",
         "forbidden", "model", "api_key", "translation", "translations", "attend_to", "whole")  # fmt: skip


@given(
    path=st.sampled_from(
        ["/translate", "/detect", "/score", "/classify", "/explain", "/contrast", "/neighbors"]
    ),
    fields=st.dictionaries(st.sampled_from(names), values, max_size=6),
    right=st.booleans(),
)
@settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_nothing_is_a_fault_of_the_server(client, pair, path, fields, right):
    if right:
        fields = {**fields, **pair, "q": "a b"}
        fields.pop("model", None)
    answer = client.post(
        path, content=json.dumps(fields), headers={"content-type": "application/json"}
    )
    assert answer.status_code in (200, 400, 413), answer.text
    assert (answer.status_code == 200) == ("error" not in answer.json())


@given(
    st.binary(max_size=60),
    st.sampled_from(["application/json", "application/x-www-form-urlencoded", "", "text/plain"]),
)
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_body_is_a_fault_of_the_server(client, body, kind):
    assert (
        client.post("/translate", content=body, headers={"content-type": kind}).status_code == 400
    )


def test_the_specification_lists_the_fields_of_requests(client):
    result = client.get("/openapi.json").json()
    assert result["openapi"].startswith("3.1")
    for path, methods in result["paths"].items():
        for method in methods:
            answer = client.request(method, path, **({"json": {}} if method == "post" else {}))
            assert str(answer.status_code) in methods[method]["responses"]


# Why


def test_the_tree_is_what_the_search_did(small_run):
    translator = load(small_run)
    from nmt.search.beam import Beam

    lister = translator.with_search(Beam(width=4, n_best=4))
    result = explain(lister, "a b c d")
    [truth] = lister.translations(["a b c d"], details_of=1)
    assert [h.tokens for h in result.others] == [h.tokens for h in truth.hypotheses]
    assert [result.tree[i].token for i in result.path[1:-1]] == truth.hypotheses[0].tokens
    assert result.tree[result.path[-1]].total == pytest.approx(
        truth.hypotheses[0].log_prob, abs=1e-4
    )
    assert result.attention == pytest.approx(truth.details[0].weights, abs=1e-5)
    for node in result.tree[1:]:
        parent = result.tree[node.parent]
        assert node.total == pytest.approx(parent.total + node.log_prob, abs=1e-5)
        known = dict(parent.next)
        assert known.get(node.token, node.log_prob) == pytest.approx(node.log_prob, abs=1e-5)
    by_step = {}
    for i in range(1, len(result.tree)):
        depth, k = 0, i
        while k > 0:
            depth, k = depth + 1, result.tree[k].parent
        by_step.setdefault(depth, []).append(i)
    assert max(len([i for i in row if result.tree[i].token != 3]) for row in by_step.values()) <= 4
    assert [node.fate for node in result.tree].count("written") == len(result.path)


def test_what_if(small_run):
    """After a chosen word or directed attention, the rest is the model's own."""
    translator = load(small_run)
    usual = explain(translator, "a b c d")
    other = next(
        token
        for token, _ in usual.tree[usual.path[1]].next
        if token > 3 and token != usual.others[0].tokens[1]
    )
    forced = explain(translator, "a b c d", [usual.others[0].tokens[0], other])
    assert forced.others[0].tokens[:2] == [usual.others[0].tokens[0], other]
    looked = explain(translator, "a b c d", attend_to=[(0, 2), (1, 0), (1, 1)])
    assert looked.attention[0].tolist() == [0, 0, 1] + [0] * (looked.attention.shape[1] - 3)
    assert (looked.attention[1] > 0).tolist() == [True, True] + [False] * (
        looked.attention.shape[1] - 2
    )
    assert looked.attention[1].sum() == pytest.approx(1)
    brief = translator.with_search(translator.search)
    brief.max_length_factor, brief.max_length_offset = 0.0, 3
    [translation] = brief.translations(["a b c d"])
    assert explain(brief, "a b c d").others[0].tokens == translation.hypotheses[0].tokens
    whole = explain(translator, "a b", usual.others[0].tokens, whole=True)
    assert whole.others[0].tokens == usual.others[0].tokens
    for prefix, attend_to in (([10**6], ()), ([BOS], ()), ([EOS], ()), ([], [(0, 99)])):
        with pytest.raises(UserError, match="must be"):
            explain(translator, "a b", prefix, attend_to=attend_to)
    with pytest.raises(UserError, match="search: reranks its translations"):
        explain(translator.with_search(MBR(source="beam")), "a b")


def test_influence_is_a_difference_of_probabilities(small_run):
    translator = load(small_run)
    first, second = translator.tokenizer.encode_target(["b a", "c a"])
    values = influence(translator, "a b", first, second)
    assert len(values) == 2
    assert influence(translator, "a b", first, first) == pytest.approx([0, 0], abs=1e-5)
    assert influence(translator, "a b", second, first) == pytest.approx(
        [-value for value in values], abs=1e-5
    )


@pytest.fixture(scope="module")
def index(small_run, tmp_path_factory):
    folder, draw = tmp_path_factory.mktemp("index"), random.Random(3)
    lines = [*(sentence(draw) for _ in range(300)), "a b c d", ""]
    (folder / "s").write_text("\n".join(lines) + "\n")
    (folder / "t").write_text("\n".join(line[::-1] for line in lines) + "\n")
    result = run(
        "index",
        f"model={small_run}",
        f"source={folder}/s",
        f"target={folder}/t",
        f"output={folder}/index.safetensors",
    )
    assert result.returncode == 0, result.stderr.decode()
    return folder / "index.safetensors", lines


def test_neighbors_are_those_of_the_encoder(index, small_run, pair):
    """Against the cosine of summaries, one sentence at a time."""
    file, lines = index
    translator = load(small_run)

    def summary(line):
        [memory] = translator.networks.memories(translator.encode([line]))
        return memory.encoded.final_state[0] / memory.encoded.final_state[0].norm()

    with torch.inference_mode():
        query = summary("a b c d")
        truth = sorted(
            {line: float(query @ summary(line)) for line in lines if line}.items(),
            key=lambda one: -one[1],
        )
    with TestClient(served(f"model={small_run}", f"index={file}").app()) as client:
        result = client.post("/neighbors", json={"q": "a b c d", **pair, "count": 7}).json()[
            "neighbors"
        ]
        assert client.get("/frontend/settings").json()["neighbors"]
        assert client.post("/neighbors", json={"q": "  ", **pair}).status_code == 400
    assert (result[0]["source"], result[0]["target"]) == ("a b c d", "d c b a")
    assert [one["similarity"] for one in result] == pytest.approx(
        [value for _, value in truth[:7]], abs=2e-3
    )
    assert len({one["source"] for one in result}) == 7


def test_an_index_of_another_model_is_refused(
    index, small_run, pair, tmp_path, client, monkeypatch
):
    assert (
        "the server has no index"
        in client.post("/neighbors", json={"q": "a b", **pair}).json()["error"]
    )
    other = trained(tmp_path / "other", "experiment=reverse", "data.train=40", "data.validation=5", "data.test=5", "trainer.max_epochs=1",
                    "sizes.encoder=8", "sizes.decoder=8", "sizes.readout=8", "model.embedding_size=8", "attention.size=8")  # fmt: skip
    warnings = []
    monkeypatch.setattr(serve_command.log, "warning", lambda *words: warnings.append(words))
    with TestClient(served(f"model={other}", f"index={index[0]}").app()) as asked:
        answer = asked.post("/neighbors", json={"q": "a b", **pair})
        assert (answer.status_code, "not created with" in answer.json()["error"]) == (400, True)
    [(message, file)] = warnings
    assert "not created with the encoder of a served model" in message
    assert file == str(index[0])
    (tmp_path / "no.safetensors").write_bytes(b"x" * 40)
    result = run("serve", f"model={small_run}", f"index={tmp_path}/no.safetensors")
    assert b"not an index written by nmt.index" in result.stderr
    text = f"source={index[0].parent}/s", f"target={index[0].parent}/t"
    for output, message in (
        ("no.safetensors", "exists and is not an index"),
        ("no/index.safetensors", "cannot be written (folder"),
    ):
        result = run("index", f"model={small_run}", *text, f"output={tmp_path}/{output}")
        assert result.returncode in (1, 2)
        assert message in result.stderr.decode()
    assert (tmp_path / "no.safetensors").read_bytes() == b"x" * 40
    result = run(
        "index",
        f"model={small_run}",
        f"source={tmp_path}/no.safetensors",
        f"target={index[0].parent}/t",
        f"output={tmp_path}/x.safetensors",
    )
    assert result.returncode == 1
    assert b"Traceback" not in result.stderr


# As a process


def start(*overrides):
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "nmt.serve", "port=0", "access_log=false", *overrides],
        env=environment,
        text=True,
        stderr=subprocess.PIPE,
    )
    for line in process.stderr:
        if "http://" in line:
            return process, "http" + line.split("http", 1)[1].strip()
    raise AssertionError(process.wait())


def end(process):
    """Ends a server as a service manager does; what it has said since it began to serve."""
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=40)[1]
    assert process.returncode == 0, output
    assert "Traceback" not in output
    return output


@pytest.fixture(scope="module")
def address(small_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "run"
    shutil.copytree(small_run, folder)
    process, address = start(f"model={folder}", "names=[reverse]", "reload=0.3")
    yield address, folder
    end(process)


def test_a_client_that_others_wrote(address, small_run):
    libretranslatepy = pytest.importorskip("libretranslatepy")
    client = libretranslatepy.LibreTranslateAPI(address[0])
    languages = client.languages()
    source = next(one for one in languages if one["targets"])
    translated = client.translate("a b c", source["code"], source["targets"][0])
    assert translated == load(small_run).translate("a b c")
    with pytest.raises(urllib.error.HTTPError):
        client.detect("a b c")


def test_a_checkpoint_written_while_the_server_starts_is_newer(small_run, tmp_path):
    folder = shutil.copytree(small_run, tmp_path / "run")

    def load_while_training(path):
        model = load(path)
        (folder / "new").write_bytes((folder / "best.safetensors").read_bytes())
        (folder / "new").replace(folder / "best.safetensors")
        return model

    pool = ThreadPoolExecutor(1)
    model = ServedModel(
        "m", str(folder), load_while_training, pool, wait=0, most=8, metrics=ServerMetrics()
    )
    assert model.is_outdated()
    pool.shutdown()


def test_a_reload_does_not_change_requests_in_progress(small_run, pair, monkeypatch):
    """The tokens of a response are those of the tokenizer of the model that has translated."""
    server = served(f"model={small_run}", "names=[reverse]")
    [model] = server.models.all
    asked = {"q": "a b c", **pair, "scores": True, "units": "piece"}
    other = copy.copy(model.model)
    other.tokenizer = SentencePiece(model="char", vocabulary_size=9).train(["x y z"], ["x y z"])
    with TestClient(server.app()) as client:
        before = client.post("/translate", json=asked).json()
        work = model.batcher.work

        def reloaded(requests):
            monkeypatch.setattr(model, "model", other)
            return work(requests)

        monkeypatch.setattr(model.batcher, "work", reloaded)
        assert client.post("/translate", json=asked).json() == before


def test_the_training_state_is_no_newer_checkpoint(small_run, tmp_path):
    """A deployment that deletes best.safetensors before it moves the next one keeps the model."""
    folder = shutil.copytree(small_run, tmp_path / "run")
    [model] = served(f"model={folder}").models.all
    assert not model.is_outdated()
    (folder / "best.safetensors").rename(folder / "later")
    assert (folder / "last.safetensors").exists()
    assert not model.is_outdated()
    (folder / "best.safetensors").write_bytes((folder / "later").read_bytes())
    assert model.is_outdated()


@pytest.mark.exhaustive
def test_a_newer_checkpoint_is_taken_without_a_lost_request(address, tmp_path, pair):
    """While requests come without a pause, the checkpoint is replaced by one that writes otherwise."""
    url, folder = address
    other = trained(tmp_path / "other", "experiment=reverse", "data.train=40", "data.validation=5", "data.test=5", "trainer.max_epochs=1",
                    "sizes.encoder=8", "sizes.decoder=8", "sizes.readout=8", "model.embedding_size=8", "attention.size=8", "seed=7")  # fmt: skip
    wanted, answers, stop = load(other).translate("a b c d"), [], threading.Event()

    def asking():
        with httpx.Client() as client:
            while not stop.is_set():
                answer = client.post(f"{url}/translate", json={"q": "a b c d", **pair}, timeout=30)
                answers.append((answer.status_code, answer.json().get("translatedText")))

    threads = [threading.Thread(target=asking) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    (folder / "new").write_bytes((other / "best.safetensors").read_bytes())
    (folder / "new").replace(folder / "best.safetensors")
    until = time.monotonic() + 20
    while time.monotonic() < until and (not answers or answers[-1][1] != wanted):
        time.sleep(0.05)
    stop.set()
    for thread in threads:
        thread.join()
    assert {status for status, _ in answers} == {200}
    assert answers[0][1] != wanted
    assert answers[-1][1] == wanted


@pytest.mark.exhaustive
def test_sigterm_finishes_what_is_open(small_run, pair):
    process, url = start(f"model={small_run}", "search.width=20", "max_characters=200000")
    body, answers = {"q": [" ".join(LETTERS * 4)] * 150, **pair}, []
    asking = threading.Thread(
        target=lambda: answers.append(httpx.post(f"{url}/translate", json=body, timeout=60))
    )
    asking.start()
    time.sleep(0.7)
    end(process)
    asking.join()
    assert answers[0].status_code == 200
    assert len(answers[0].json()["translatedText"]) == 150


# The page, in a browser


@pytest.fixture(scope="module")
def page_of(small_run, classifier, index):
    process, url = start(
        f"model=[{small_run},{classifier}]", "names=[reverse,labels]", f"index={index[0]}"
    )
    yield url
    end(process)


@pytest.mark.exhaustive
def test_the_page_ignores_what_it_cannot_use(browser, page_of):
    """A dropped text from elsewhere, outdated answers, and texts with too many shortened copies."""
    page, faults = browser.new_page(), []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(f"{page_of}/#text=a+b+c+d&model=reverse")
    page.wait_for_selector("#source button")
    before = page.url
    page.evaluate("""
        const data = new DataTransfer()
        data.setData("text/plain", "hello")
        const drop = new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true })
        document.querySelector("#source button").dispatchEvent(drop)
    """)
    assert (page.url, faults) == (before, [])
    page.fill("#text", "A b! C d! A c!")
    page.wait_for_selector("#sentences button:nth-of-type(3)")
    page.locator("#sentences button").nth(2).click()
    page.fill("#text", "a b")  # the answer about the third sentence comes too late
    page.wait_for_function(READS, arg="ab</s>", timeout=8000)
    assert "sentence=" not in page.url
    page.goto("about:blank")
    page.goto(f"{page_of}/#model=labels&text={'wonderful+' * 45}")
    page.wait_for_selector("#marked button")
    assert page.locator("#message").inner_text() == ""
    page.close()


READS = "text => document.querySelector('#source').innerText.replace(/\\s/g, '') === text"
"""Whether the words of the source are those of a text without spaces."""


@pytest.mark.exhaustive
def test_the_page_explains(browser, page_of, small_run):
    page, faults = browser.new_page(), []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "console", lambda message: faults.append(message.text) if message.type == "error" else None
    )
    page.goto(page_of)
    page.wait_for_selector("#target button")  # the first example
    assert page.input_value("#text") == page.locator("#examples button span").nth(0).inner_text()
    page.fill("#text", "a b c d")
    page.wait_for_function(READS, arg="abcd</s>", timeout=8000)
    page.click("#units [value=subwords]")
    shown = page.locator("#target button").all_inner_texts()
    assert " ".join(shown[:-1]) == load(small_run).translate("a b c d")
    assert shown[-1] == "</s>"
    assert page.locator("#maps table tbody tr").count() == len(shown)
    assert page.locator("#tree button.written").count() == len(shown)
    page.wait_for_selector("#neighbors li")
    assert page.locator("#neighbors li").nth(0).inner_text().startswith("a b c d")
    page.locator("#target button").nth(0).hover()
    weights = [
        float(one.evaluate("e => e.style.getPropertyValue('--w')"))
        for one in page.locator("#source button").all()
    ]
    assert sum(weights) == pytest.approx(1, abs=0.01)
    page.locator("#target button").nth(1).click()  # what if: another word
    choice = page.locator("#choices li button:not([aria-current])", has_not_text="</s>").nth(0)
    wanted = choice.locator("span").nth(0).inner_text().removeprefix("·")
    choice.click()
    page.wait_for_function(
        "word => document.querySelectorAll('#target button')[1]?.innerText === word", arg=wanted
    )
    assert page.locator("#reset").is_visible()
    address = page.url
    again = browser.new_page()  # the link shows the same
    again.goto(address)
    again.wait_for_selector("#target button.chosen")
    assert again.evaluate("document.activeElement.tagName") in ("BODY", "TEXTAREA")
    assert (
        again.locator("#target button").all_inner_texts()
        == page.locator("#target button").all_inner_texts()
    )
    page.locator("#reset").click()
    page.wait_for_function(
        "text => [...document.querySelectorAll('#target button')].map(b => b.innerText).join(' ') === text",
        arg=" ".join(shown),
    )
    page.locator("#target button").nth(0).click()  # directed attention
    page.locator("#source button").nth(2).click()
    page.wait_for_selector("#target button.looked")
    look = page.locator("#maps tbody tr").nth(0).locator("td").all_inner_texts()
    assert look == ["", "", "1.00", "", ""]
    page.go_back()
    page.wait_for_function("() => !document.querySelector('#target button.looked')")
    page.fill("#text", "a b cd. E f g.")  # two sentences
    page.wait_for_selector("#sentences button >> nth=1")
    assert page.locator("#plain").inner_text() == load(small_run).translate("a b cd.") + " " + load(
        small_run
    ).translate("E f g.")
    page.locator("#sentences button").nth(1).click()
    page.wait_for_function("() => document.querySelector('#source').innerText.includes('f')")
    page.fill("#text", "a b c d")
    page.wait_for_function("() => document.querySelector('#sentences').hidden")
    page.fill("#this", "d c b a")
    page.fill("#that", "a b c d")
    page.click("#contrast")
    page.wait_for_selector("#contrasted table")
    assert page.locator("#contrasted tbody tr").count() == 4
    page.locator("#tree button.written").nth(1).focus()
    page.keyboard.press("Enter")
    assert page.locator("#node").inner_text()
    page.select_option("#model", "labels")  # a classifier
    page.wait_for_selector("#marked button")
    assert "→" not in page.locator("#probabilities").inner_text()
    assert page.locator("#source").inner_text() == ""  # words of the last translation
    page.locator("#marked button").nth(0).click()
    page.wait_for_function("() => document.querySelector('#probabilities').innerText.includes('→')")
    assert faults == []


@pytest.mark.exhaustive
def test_the_page_behind_a_prefix_marks_the_same_word_in_all_maps(browser):
    """The page at /mt/ asks for nothing outside of it. Models with other pieces have the rows of the same characters marked."""
    from nmt.serving.app import PAGES

    pieces = {"one": ["▁ein", "▁Hund"], "two,2": ["▁e", "in", "▁Hu", "nd"]}

    def explained(name):
        target = [*pieces[name], "</s>"]
        steps = [{"token": 9, "piece": piece, "log_prob": -0.1, "next": []} for piece in target]
        root = {
            "parent": -1,
            "token": 1,
            "piece": "",
            "log_prob": 0,
            "total": 0,
            "next": [],
            "fate": "written",
        }
        return {
            "model": name, "sentences": ["a dog"], "sentence": "a dog", "text": "ein Hund", "source": ["▁a", "▁dog", "</s>"],
            "target": steps, "attention": [[0.5, 0.3, 0.2]] * len(target), "heads": None, "width": 1, "path": [0],
            "tree": [root, {**root, "parent": 0, "piece": "▁ein"}], "others": [{"text": "ein Hund", "score": 0, "log_prob": 0, "tokens": []}],
        }  # fmt: skip

    def answer(route):
        path = route.request.url.removeprefix("http://nmt.test/mt/").partition("#")[0]
        model = {"source": "en", "target": "de", "attention": True}
        answers = {
            "models": [{"name": "one", **model}, {"name": "two,2", **model}],
            "frontend/settings": {"keyRequired": False, "neighbors": False},
        }
        if path == "explain":
            return route.fulfill(json=explained(route.request.post_data_json["model"]))
        if path in answers:
            return route.fulfill(json=answers[path])
        return route.fulfill(path=PAGES / (path or "page.html"))

    page = browser.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.route("http://nmt.test/**", answer)
    page.goto("http://nmt.test/mt/#text=a+dog&model=one&beside=two%2C2&units=subwords")
    page.wait_for_selector("#maps table >> nth=1")
    assert all(url.startswith("http://nmt.test/mt/") for url in asked)
    page.locator("#target button").nth(1).hover()
    marked = page.evaluate(
        "[...document.querySelectorAll('#maps tbody')].map(body => [...body.rows].map(row => row.className === 'now'))"
    )
    assert marked == [[False, True, False], [False, False, True, True, False]]
    captions = page.locator("#maps figcaption").all_inner_texts()
    assert captions[0] == "one, which wrote the translation"
    assert captions[2].startswith("two,2, forced to write the translation of one")
    assert violations(page) == []


@pytest.mark.exhaustive
def test_the_page_fits_a_phone_and_needs_no_network(browser, page_of):
    page = browser.new_context(
        viewport={"width": 360, "height": 640}, color_scheme="dark"
    ).new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{page_of}/#text=a+b+c+d+e+f+g+h&model=reverse")
    page.wait_for_selector("#maps td")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert all(url.startswith((page_of, "data:")) for url in asked)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 28)"
    named = page.evaluate(
        "[...document.querySelectorAll('button, select, textarea')].filter(e => !(e.innerText || e.labels?.length || e.ariaLabel)).length"
    )
    assert named == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 390)])
def test_the_page_is_accessible(browser, page_of, scheme, width):
    """axe-core finds nothing in any state: example, subwords, alternatives, dropped words, contrast, classifier, errors."""
    size = {"width": width, "height": 900}
    page = browser.new_context(viewport=size, color_scheme=scheme).new_page()

    def check(selector):
        page.wait_for_selector(selector)
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width

    page.goto(f"{page_of}/#text=a+b+c+d&model=reverse")
    check("#tree button")
    page.evaluate("document.querySelector('#legend').open = true")
    page.click("#units [value=subwords]")
    page.locator("#target button").nth(0).click()
    check("#choices button")
    page.locator("#choices li button:not([aria-current])", has_not_text="</s>").nth(0).click()
    check("#target .chosen")
    page.locator("#target button").nth(0).click()
    page.locator("#source button").nth(2).click()
    check("#target .looked")
    page.locator("#tree .more").nth(0).click()
    check("#tree .dropped:not([hidden]) button")
    page.fill("#this", "d c b a")
    page.fill("#that", "a b c d")
    page.click("#contrast")
    check("#contrasted tbody tr")
    page.fill("#this", "")
    page.click("#contrast")
    check("#message:not(:empty)")
    page.fill("#text", "a b c d. Ω e f g")
    check("#source .unknown")
    page.fill("#text", "")
    check("#outcome[hidden] >> xpath=..")
    page.goto(f"{page_of}/#text=a+b+c+d&model=labels")
    page.reload()
    check("#marked button")
    page.locator("#marked button").nth(0).click()
    check("#marked button[aria-pressed=true]")


@pytest.mark.exhaustive
def test_each_map_and_row_is_one_tab_stop(browser, page_of):
    page = browser.new_page()
    page.goto(f"{page_of}/#text=a+b+c+d&model=reverse")
    page.wait_for_selector("#tree button")
    for part in ("#source", "#target", "#maps table", "#tree"):
        stops = page.locator(f"{part} [tabindex='0']")
        assert stops.count() == 1
    page.locator("#maps tbody td").nth(0).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    place = "[document.activeElement.cellIndex, document.activeElement.parentElement.rowIndex]"
    assert page.evaluate(place) == [2, 2]
    assert "attends to" in page.locator("#maps .value").nth(0).inner_text()
    page.keyboard.press("End")
    assert page.evaluate(place) == [5, 2]
    stop = page.locator("#maps table [tabindex='0']")  # follows the focus
    assert stop.count() == 1 and stop.evaluate("e => e === document.activeElement")
    page.fill("#text", "\u05e9\u05dc\u05d5\u05dd a b")  # a text from right to left
    page.wait_for_selector("#source[dir=rtl]")
    page.locator("#source button").nth(0).focus()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.innerText") == "a"
