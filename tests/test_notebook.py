"""Output in notebooks, and pages that commands write."""

import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace
from xml.dom import minidom

import matplotlib
import numpy as np
import pytest
from commands import run
from matplotlib import font_manager
from matplotlib.figure import Figure

import nmt
from nmt.analysis.example_sentences import Example, example_section
from nmt.data import Pairs
from nmt.drawing import FigureStyle, plots
from nmt.drawing.attention_map import AttentionMap, write_map
from nmt.drawing.pages import page, render
from nmt.drawing.word_importance import Classified, write_explanations
from nmt.foundation.errors import UserError
from nmt.training.task.translation_task import TranslationTask

MAP = AttentionMap(
    ["a", "<b>", "</s>"], ["ü", "</s>"], {"": np.array([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5]])}
)
ANSWER = Classified(("good",), {"good": 0.8, "bad": 0.2}, ["<fine>", "day"], np.array([0.75, 0.25]))


def test_attention_of_one_text(small_run):
    translator = nmt.load(str(small_run))
    attention_map = translator.attention("a b c")
    assert attention_map.source == ["a", "b", "c", "</s>"]
    assert attention_map.target == [*translator.translate("a b c").split(), "</s>"]
    np.testing.assert_allclose(attention_map.total.sum(1), 1, atol=1e-5)
    given = translator.attention("a b c", "c b")
    assert given.target == ["c", "b", "</s>"]
    assert translator.attention("a b c", units="piece").source[-1] == "</s>"
    assert isinstance(attention_map.plot(), Figure)
    with pytest.raises(nmt.UserError, match="no words"):
        translator.attention("  ")
    assert repr(translator).startswith("Translator(forward → backward, Bahdanau")
    assert repr(attention_map).startswith("AttentionMap('a b c </s>' → ")


def test_a_search_by_its_name(small_run):
    assert type(nmt.load(str(small_run), search="greedy").search).__name__ == "Greedy"
    assert nmt.load(str(small_run), search="beam").search.width == 5
    with pytest.raises(nmt.UserError, match="search=best: unknown; choose one of beam, "):
        nmt.load(str(small_run), search="best")


def test_nothing_of_matplotlib_changes(small_run, tmp_path, monkeypatch):
    """Neither its backend nor its settings, and pyplot is not even loaded."""
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    usual = matplotlib.get_backend()
    matplotlib.use("svg")
    try:
        before = dict(matplotlib.rcParams)
        nmt.load(str(small_run)).attention("a b").plot().savefig(tmp_path / "x.png")
        assert matplotlib.get_backend() == "svg"
        assert before == dict(matplotlib.rcParams)
        assert "matplotlib.pyplot" not in sys.modules
    finally:
        matplotlib.use(usual)
    assert (tmp_path / "x.png").stat().st_size > 1000


def test_attention_maps_of_a_run_prefer_several_target_words():
    pairs = Pairs(["a", "b c d", "c d", "d e"], ["x", "one", "x y", "y z"], "validation")
    task = SimpleNamespace(data=SimpleNamespace(splits=SimpleNamespace(pictures=False)))
    shown_of = TranslationTask._shown_of
    assert shown_of(task, pairs, 2) == ["c d", "d e"]
    assert len(shown_of(task, pairs, 3)) == 3  # too few pairs with several words


def test_a_title_is_above_its_attention_map():
    titled = replace(MAP, title="reference: ü $5")
    titles = [axes.get_title("left") for axes in titled.plot().axes if axes.get_title("left")]
    assert titles == [r"reference: ü \$5"]


def test_images_have_the_given_size(tmp_path):
    write_map([MAP], tmp_path / "map.svg", FigureStyle(width=3.3, font_size=7))
    text = (tmp_path / "map.svg").read_text()
    assert f'width="{3.3 * 72:g}pt"' in text
    assert {*re.findall(r"font[^;\"]*?(\d+)px", text)} == {"7"}


def test_control_characters_leave_an_svg_file_readable(tmp_path):
    odd = replace(MAP, source=["a\x02", *MAP.source[1:]])
    write_map([odd], tmp_path / "map.svg")
    minidom.parse(str(tmp_path / "map.svg"))


def test_a_page_has_probabilities_languages_and_forced_models(tmp_path):
    maps = {"a": MAP.weights[""], "ab": MAP.weights[""]}
    probabilities = {"a": np.array([0.25, 1.0]), "ab": np.array([0.5, 0.75])}
    compared = replace(
        MAP, weights=maps, probabilities=probabilities, languages=("en", "out"), author="a"
    )
    text = compared._repr_html_()
    assert re.findall(r'<td class="p">(\d+) %', text) == ["25", "100", "50", "75"]
    assert text.count("forced to produce the translation of a") == 1
    titles = [axes.get_title(loc="left") for axes in compared.plot().axes]
    assert titles[:2] == ["a", "ab\n(forced)"]
    assert 'lang="en">a &lt;b&gt;</p>' in text and 'lang="out"' not in text
    assert text.count('tabindex="0"') == 2  # one tab stop for each map
    assert 'class="upright">我' in AttentionMap(["我"], ["b"], {"": np.ones((1, 1))})._repr_html_()


def test_the_probability_of_a_word_is_that_of_its_tokens(small_run):
    translator = nmt.load(str(small_run))
    [probabilities] = translator.attention("a b c", "c b").probabilities.values()
    decoding = translator.force(
        translator.encode(["a b c"]), translator.tokenizer.encode_target(["c b"])
    )[0]
    assert probabilities.prod() == pytest.approx(np.exp(decoding.log_prob))
    assert len(probabilities) == 3


def test_attention_maps_for_papers_keep_their_text(tmp_path):
    for ending in ("pdf", "svg"):
        write_map([MAP], tmp_path / f"map.{ending}")
        write_explanations([ANSWER], tmp_path / f"words.{ending}")
    assert ">attention weight</text>" in (tmp_path / "map.svg").read_text()
    for name in ("map", "words"):
        content = (tmp_path / f"{name}.pdf").read_bytes()
        assert b"/FontFile2" in content and b"/Type3" not in content  # embedded TrueType


def test_maps_without_weights_of_words_are_refused():
    image = AttentionMap(["file.png"], ["a"], places={"": np.ones((1, 2, 2))})
    with pytest.raises(UserError, match="the source has no words"):
        _ = image.total
    with pytest.raises(UserError, match="the decoder has no attention"):
        AttentionMap(["a"], ["b"]).plot()


def test_a_page_without_effects_describes_none(tmp_path):
    for effects, described in (([], False), ([[-0.25, 0.125]], True)):
        write_explanations([ANSWER], tmp_path / "page.html", effects=effects)
        assert ("Click a word" in (tmp_path / "page.html").read_text()) == described


def test_values_are_shown_in_notebooks():
    for shown in (MAP, ANSWER):
        html = shown._repr_html_()
        assert html.count("<div") == html.count("</div>")
        assert "<body" not in html
        assert isinstance(shown.plot(), Figure)
    assert "&lt;b&gt;" in MAP._repr_html_()
    assert "&lt;fine&gt;" in ANSWER._repr_html_()
    assert "<table" in AttentionMap(["a"], ["b"], {"": np.ones((1, 1))}, ends=False)._repr_html_()


class Checked(HTMLParser):
    """Every element is closed in order; what it found is kept."""

    def __init__(self, text):
        super().__init__()
        self.open, self.found = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("kind", ["map", "explanation"])
def test_pages_are_for_everyone(kind, tmp_path):
    """Well-formed; phones, dark rooms, keyboards and screen readers are thought of; nothing comes from a network."""
    file = tmp_path / "page.html"
    if kind == "map":
        write_map([MAP, MAP], file)
    else:
        write_explanations([ANSWER], file, [("bad",)], [[-0.25, 0.125]])
    text = file.read_text(encoding="utf-8")
    result = Checked(text).found
    assert (
        "meta",
        {"name": "viewport", "content": "width=device-width, initial-scale=1"},
    ) in result
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"https?:|src=|href=", text)
    marked = [attrs for tag, attrs in result if "data-value" in attrs]
    assert marked and all("tabindex" in attrs for attrs in marked)
    texts = 2 if kind == "map" else 1
    assert sum(attrs["tabindex"] == "0" for attrs in marked) == texts  # one tab stop for each
    if kind == "explanation":
        assert ">80.0 → 55.0 %</td>" in text and ">80.0 → 92.5 %</td>" in text
        assert marked[1]["data-value"] == "0.250; without the word, good 80.0 → 92.5 %"
        assert "(wrong, correct: bad)</span>, with attention to “&lt;fine&gt;”, “day”" in text
    else:
        scopes = [attrs.get("scope") for tag, attrs in result if tag == "th"]
        assert scopes.count("col") == 6 and scopes.count("row") == 4
        assert marked[0]["data-value"] == "ü ← a: 0.700"


@pytest.mark.parametrize("name", ["$x^2$", "a" * 60])
def test_odd_names_of_data_are_drawn(tmp_path, name):
    records = [
        {"kind": "validation", "epoch": 1, "loss": 1.0, "bleu": 2.0, "update": 1, "best": True}
    ]
    plots.learning_curve(records, "bleu", tmp_path / "x.png", f"{name} \\frac{{ $", "tokens")
    assert (tmp_path / "x.png").stat().st_size > 0


def test_a_box_of_the_last_resort_font_is_no_letter(caplog):
    """matplotlib's own font has a box for each character: a message names those that no other font has."""
    with plots.fonts_for(["a", chr(0x10FFFD)]):
        assert not any("Last Resort" in name for name in matplotlib.rcParams["font.family"])
    assert not caplog.text  # a private character belongs to no script
    plots.warn_of_missing.cache_clear()
    for _ in range(2):
        with plots.fonts_for(["a", "\N{CUNEIFORM SIGN A}"]):
            pass
    assert caplog.text.count("no installed font has the characters 𒀀 (Cuneiform)") == 1


def test_letters_that_no_font_has_are_named(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(plots, "font_characters", lambda file: frozenset("abx"))
    plots.warn_of_missing.cache_clear()
    write_map(
        [AttentionMap(["我", "b"], ["x"], {"": np.ones((1, 2)) / 2}, ends=False)],
        tmp_path / "x.png",
    )
    assert "no installed font has the characters 我 (CJK)" in caplog.text
    assert (tmp_path / "x.png").exists()


def test_a_map_without_target_words_is_left_out(tmp_path):
    empty = AttentionMap(["a"], [], {"": np.ones((0, 1))}, ends=False)
    write_map([empty, MAP], tmp_path / "map.json")
    assert len(json.loads((tmp_path / "map.json").read_text())) == 1
    write_map([empty, MAP], tmp_path / "map.svg")


def test_a_font_that_has_the_letters_is_taken():
    """The usual font stays first; an installed font that has the letter is its fallback."""
    usual = plots.font_characters(font_manager.findfont(font_manager.FontProperties()))
    families = sorted({font.name for font in font_manager.fontManager.ttflist})
    files = [font_manager.findfont(font_manager.FontProperties(family=[name])) for name in families]
    letters = (
        [c for c in sorted(plots.font_characters(file) - usual) if c.isalpha()]
        for name, file in zip(families, files, strict=True)
        if not name.startswith("Last Resort")
    )
    letter = next((of_font[0] for of_font in letters if of_font), None)
    if letter is None:
        pytest.skip("every installed font has the same letters")
    family = matplotlib.rcParams["font.family"]
    with plots.fonts_for(["a", letter]):
        *first, fallback = matplotlib.rcParams["font.family"]
    assert first == family
    file = font_manager.findfont(font_manager.FontProperties(family=[fallback]))
    assert letter in plots.font_characters(file)
    assert matplotlib.rcParams["font.family"] == family


def test_units_of_a_page(small_run, tmp_path):
    (tmp_path / "in").write_text("abc d\n")
    for units, source in (("word", ["abc", "d"]), ("character", ["a", "b", "c", "d"])):
        done = run(
            "translate",
            f"model={small_run}",
            f"input={tmp_path}/in",
            f"units={units}",
            f"attention_map={tmp_path}/m.json",
        )
        assert done.returncode == 0, done.stderr.decode()
        assert json.loads((tmp_path / "m.json").read_text())[0]["source"] == [*source, "</s>"]


def test_every_answer_has_a_short_repr(small_run):
    translator = nmt.load(str(small_run))
    result = translator.translations("a b c", details_of=1)
    assert re.fullmatch(
        r"Translation\('[a-z ]+', log_prob=-\d+\.\d{3}, hypotheses=1\)", repr(result)
    )
    assert repr(translator.translations(" ")) == "Translation('', hypotheses=0)"
    assert re.fullmatch(
        r"ForcedDecoding\(log_prob=-\d+\.\d{3}, tokens=\d+, weights=\[\d+, 4\]\)",
        repr(result.details[0]),
    )
    assert f"<td>{result.text}</td>" in result._repr_html_()
    assert repr(ANSWER).startswith("Classified(")
    assert len(repr(nmt.Translator)) < 100


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"serach": "greedy"}, "serach: key not found; did you mean search?"),
        (
            {"beam_size": 5},
            "beam_size: key not found; set it as an option of the search algorithm, such as ",
        ),
        ({"replace_unk": True}, "replace_unk: key not found; did you mean unknown?"),
        ({"precision": "int4"}, "precision=int4: must be one of float32"),
        ({"batch_tokens": 0}, "batch_tokens=0: out of range"),
        ({"search": 3}, "search=3: must be a name"),
        ({"unknown": "x", "max_source": "y"}, "unknown=x: must be one of"),
    ],
)
def test_options_are_checked_as_on_a_command_line(small_run, option, said):
    with pytest.raises(nmt.UserError) as caught:
        nmt.load(str(small_run), **option)
    assert said in str(caught.value)


def opened(browser, file):
    shown = browser.new_page()
    shown.goto(f"file://{file}")
    return shown


def test_a_hidden_word_changes_the_probability_on_the_page(browser, tmp_path):
    write_explanations([ANSWER], tmp_path / "page.html", None, [[-0.25, 0.125]])
    shown = opened(browser, tmp_path / "page.html")
    label, words = shown.locator(".likeliest"), shown.locator("section mark")
    assert label.inner_text() == "good 80.0 %"
    words.nth(1).click()
    assert label.inner_text() == "good 80.0 % → 92.5 %"
    words.nth(0).press("Enter")  # one word at a time
    assert label.inner_text() == "good 80.0 % → 55.0 %"
    assert [word.get_attribute("aria-pressed") for word in words.all()] == ["true", "false"]
    words.nth(0).click()
    assert label.inner_text() == "good 80.0 %"
    words.nth(0).press("ArrowRight")
    assert shown.evaluate("document.activeElement.textContent") == "day"
    shown.close()


def test_sentences_of_a_comparison_are_sorted_and_filtered(browser, tmp_path):
    scores = [(50, 10), (30, 20), (20, 80), (90, 95), (40, 40)]
    sources = ["a b", "a", "a b c d e", "a b c", "a b c d"]
    examples = [
        Example(number, source, "x", {"A": "x", "B": "y"}, {"A": a, "B": b}, {}, {})
        for number, (source, (a, b)) in enumerate(zip(sources, scores, strict=True))
    ]
    sections = [example_section(examples[i]) for i in (0, 1, 4, 3, 2)]
    text = render("comparison", first="", others=[], examples=sections, title="Sentences")
    (tmp_path / "page.html").write_bytes(page("Comparison", "", [text]))
    shown = opened(browser, tmp_path / "page.html")
    expected = {
        "gains, then losses": "12543",
        "line number": "12345",
        "longest": "35412",
        "A better than B": "12543",
        "B better than A": "34521",
        "lowest chrF of A": "32514",
        "lowest chrF of B": "12534",
    }
    assert shown.locator("select option").all_inner_texts() == list(expected)
    for order in reversed(expected):
        shown.get_by_label("Order").select_option(order)
        heads = shown.locator(".filter h3 a").all_inner_texts()
        assert "".join(head.removeprefix("Sentence ") for head in heads) == expected[order]
    shown.get_by_label("Show sentences with").fill("a b c d")
    assert shown.locator(".filter section:visible").count() == 2
    shown.close()


def test_the_last_word_of_a_shortened_map_stands_for_the_rest():
    weights = np.random.default_rng(0).dirichlet(np.ones(70), size=80)  # [T, S]
    probabilities = np.linspace(0, 1, 80)
    words = [f"w{i}" for i in range(79)]
    long = AttentionMap(
        [*words[:69], "</s>"], [*words, "</s>"], {"": weights}, probabilities={"": probabilities}
    )
    short = long.shortened
    assert len(short.source) == len(short.target) == 60
    assert short.source[-2:] == ["w58", "…"]
    assert short.weights[""].sum(1) == pytest.approx(np.ones(60))
    assert short.weights[""][:59, 59] == pytest.approx(weights[:59, 59:].sum(1))
    assert short.weights[""][59, :59] == pytest.approx(weights[59:, :59].mean(0))
    assert short.probabilities[""][59] == pytest.approx(probabilities[59:].mean())
    assert " ".join(words[:69]) in long._repr_html_()
    assert long.shortened.shortened.weights[""].shape == (60, 60)
