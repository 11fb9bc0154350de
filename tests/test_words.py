"""Raw text in, raw text out; and what a word is, in any script."""

import sys
import unicodedata

import numpy as np
import pytest
import sentencepiece
from commands import run
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data import Pairs
from nmt.data.ragged import encode
from nmt.foundation.interfaces import UNK
from nmt.inference.word_alignment import by_word
from nmt.tokenizer import SentencePiece
from nmt.tokenizer.words import SPLITS, characters, covered, without, words

KEPT = "½ x² … ™ ﬁ Ⅷ ㎏ e\u0301 é می\u200cخواهم क्\u200dष ＡＢ １２ “a” ﷺ"
CORPUS = [KEPT, "hello world", "我爱北京 天安门", "xyz Über"] * 20


@pytest.mark.parametrize("model", ["unigram", "bpe", "char", "word"])
@pytest.mark.parametrize("byte_fallback", [False, True])
def test_text_comes_back_as_it_was_written(model, byte_fallback):
    """Every character of the training text, none replaced by a similar one."""
    tokenizer = SentencePiece(model=model, vocabulary_size=500, byte_fallback=byte_fallback).train(
        CORPUS, CORPUS
    )
    assert tokenizer.decode(tokenizer.encode_target(CORPUS[:4])) == CORPUS[:4]


@pytest.mark.parametrize("model", ["unigram", "bpe"])
@pytest.mark.parametrize("byte_fallback", [False, True])
def test_a_vocabulary_is_enlarged_for_many_characters(model, byte_fallback, caplog):
    """400 different characters do not fit in 100 subwords; with `reserve`, there are 50 more for subwords."""
    texts = ["".join(map(chr, range(0x4E00 + i, 0x4E14 + i))) for i in range(0, 400, 5)]
    enlarged = SentencePiece(
        model=model, vocabulary_size=100, byte_fallback=byte_fallback, reserve=0.5
    )
    caplog.set_level("INFO")
    tokenizer = enlarged.train(texts, texts)
    characters = len(set("".join(texts)))
    assert f"{characters} different characters" in caplog.text
    least = 4 + characters + (256 if byte_fallback else 0)
    assert least < tokenizer.target_size <= least + 50
    assert tokenizer.decode(tokenizer.encode_target(texts)) == texts


def test_a_vocabulary_with_room_for_subwords_keeps_its_size():
    sizes = {
        SentencePiece(vocabulary_size=200, reserve=reserve).train(CORPUS, CORPUS).target_size
        for reserve in (0.0, 0.2)
    }
    assert len(sizes) == 1


@settings(max_examples=150, deadline=None)
@given(
    line=st.text(
        st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="▁⁇"), max_size=30
    )
)
def test_with_bytes_any_text_comes_back(any_text, line):
    """Whatever is typed; but spaces in a row, and at the ends, are one space or none."""
    [back] = any_text.decode(any_text.encode_target([line]))
    assert back == (" ".join(part for part in line.split(" ") if part) if line.strip() else "")


@pytest.fixture(scope="module")
def any_text():
    return SentencePiece(vocabulary_size=400, byte_fallback=True).train(CORPUS, CORPUS)


@pytest.mark.parametrize("rule", ["nfkc", "nmt_nfkc"])
def test_characters_are_replaced_if_asked(rule):
    tokenizer = SentencePiece(model="char", vocabulary_size=500, normalization=rule).train(
        CORPUS, CORPUS
    )
    assert tokenizer.decode(tokenizer.encode_target(["½ x² Ⅷ"])) == [
        unicodedata.normalize("NFKC", "½ x² Ⅷ")
    ]


@pytest.mark.parametrize("model", ["word", "char", "unigram"])
def test_unknown_words_of_an_encoded_text_keep_their_places(model):
    text = ["ein mann sieht einen hund und eine katze in der stadt"] * 20
    tokenizer = SentencePiece(model=model, vocabulary_size=60 if model == "word" else 40).train(
        text, text
    )
    for line in ("ein Михаил Горбачёв sieht Ω Ψ hund", "Ξ Π Σ", "mann Ω in Ω der Ω"):
        [ids] = tokenizer.encode_target([line])
        assert tokenizer.target_words(line, ids, str.split) == tokenizer.source_words(
            line, ids, str.split
        )
    pairs = Pairs(["a Ω Ψ b"], ["ein Ω Ψ hund"], "p", links=["0-0 1-1 2-2 3-3"])
    [link] = encode(pairs, tokenizer).links
    if model == "word":
        assert link.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_unknown_words_in_bytes_have_their_spaces():
    tokenizer = SentencePiece(model="word", vocabulary_size=300, byte_fallback=True).train(
        ["a b"] * 9, ["a b"] * 9
    )
    assert tokenizer.decode(tokenizer.encode_target(["Hello, a Wörld b"])) == ["Hello, a Wörld b"]


@pytest.fixture
def no_dictionary(monkeypatch):
    """As where ICU is not installed."""
    monkeypatch.setattr(sys.modules["nmt.tokenizer.words"], "_dictionary", lambda: None)


@pytest.mark.parametrize(("text", "expected"), [
    ("a bc  d.", ["a", "bc", "d."]), ("我爱北京", list("我爱北京")), ("你好。再见。 abc def", [*"你好。再见。", "abc", "def"]),
    ("用GPU训练2次", ["用", "GPU", "训", "练", "2", "次"]), ("한국어 문장", ["한국어", "문장"]), ("ภาษาไทย", ["ภ", "า", "ษ", "า", "ไ", "ท", "ย"]),
    ("が\u3099x", ["が\u3099", "x"]), ("ที่", ["ที่"]), ("don't 3,5", ["don't", "3,5"]), ("", []), (" \u3000", []),
])  # fmt: skip
def test_words(text, expected, no_dictionary):
    assert words(text) == expected
    assert "".join(words(text)) == "".join(text.split())


@pytest.mark.parametrize(("text", "expected"), [
    ("我爱北京天安门。", ["我", "爱", "北京", "天安门", "。"]), ("ฉันรักภาษาไทย", ["ฉัน", "รัก", "ภาษา", "ไทย"]), ("don't 3,5 e.g.", ["don't", "3,5", "e.g."]),
    ("私は東京に住む", ["私", "は", "東京", "に", "住む"]),
])  # fmt: skip
def test_words_by_a_dictionary(text, expected):
    """ICU's, in scripts without spaces only."""
    pytest.importorskip("icu4py", reason="pip install '.[words]'")
    assert words(text) == expected


def test_characters():
    assert characters("ab か\u3099 ที่ 3,5") == ["a", "b", "か\u3099", "ที่", "3", ",", "5"]


@given(st.text(max_size=30))
def test_units_are_all_of_a_text(text):
    for split in SPLITS.values():
        assert "".join(split(text)) == "".join(text.split())


@pytest.mark.parametrize("units", ["word", "piece", "character", "space"])
def test_units_of_a_line_and_its_pieces(any_text, units):
    """Rows of a map add up to the same weights, whatever they are called."""
    line = "hello 我爱北京 ß"
    [ids] = any_text.encode_source([line])
    labels, places = any_text.source_units(line, ids, units)
    assert len(places) == len(ids)
    assert {number for value in places for number in value} == set(range(len(labels)))
    if units == "piece":
        assert labels == any_text.source_pieces(ids)
    else:
        assert labels == SPLITS[units](line)


def test_pieces_of_several_words_are_shared(any_text, no_dictionary):
    """A piece of two characters that are words: its attention is both's, and the rows still sum to 1."""
    tokenizer = SentencePiece(model="word", vocabulary_size=100).train(["北京 hello 我"] * 9, [])
    [ids] = tokenizer.encode_source(["北京 hello"])
    places = tokenizer.source_words("北京 hello", ids)
    assert places == [range(2), range(2, 3)]
    weights = np.array([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.0, 0.5, 0.5]])
    np.testing.assert_allclose(by_word(weights, places, places, (3, 3)), [
        [0.3, 0.3, 0.3, 0.1], [0.3, 0.3, 0.3, 0.1], [0.1, 0.1, 0.2, 0.6], [0.0, 0.0, 0.5, 0.5],
    ])  # fmt: skip
    [ids] = any_text.encode_source(["我ü 爱ß天"])  # bytes of a character belong to it
    pieces, places = any_text.source_pieces(ids), any_text.source_words("我ü 爱ß天", ids)
    seen = {piece: list(value) for piece, value in zip(pieces, places, strict=True)}
    assert words("我ü 爱ß天") == ["我", "ü", "爱", "ß", "天"]
    assert seen["<0xC3>"] in ([1], [3])
    assert seen["<0x9F>"] == [3]


def test_unknown_pieces_stand_for_text_that_no_other_piece_spells(no_dictionary):
    assert covered([0, 0, 0], ["▁我", "<unk>", "京"], "我爱北京") == [
        range(1),
        range(1, 3),
        range(3, 4),
    ]
    assert covered([0, 0, 1], ["▁我", "<unk>", "▁x"], "我爱 x") == [
        range(1),
        range(1, 2),
        range(2, 3),
    ]


def test_units_of_alignments(small_run, tmp_path):
    """A character is a word where no spaces are written, or what stands between spaces if asked."""
    (tmp_path / "s").write_text("a我b c\n")
    files = [f"source={tmp_path}/s", f"target={tmp_path}/s", f"model={small_run}"]
    ends = []
    for units in ("word", "space", "character"):
        result = run("align", *files, f"units={units}")
        assert result.returncode == 0, result.stderr.decode()
        ends.append(result.stdout.decode().split()[-1].split("-")[1])
    assert ends == ["3", "1", "3"]


@pytest.mark.parametrize(
    "text",
    [
        "a dog , barks",
        "我喜欢好电影。",
        "我 喜欢 电影 。",
        "ラーメンを食べる",
        "สวัสดี",
        "한국어 문장",
    ],
)
def test_a_text_without_a_word_has_all_others_and_their_spaces(text):
    assert without(text, []) == text
    for i, word in enumerate(words(text)):
        shorter = without(text, [i])
        assert len(shorter) == len(text) - len(word)
        assert shorter.split() != text.split()
    assert not without(text, range(len(words(text)))).strip()


@pytest.mark.parametrize("line", [
    "bonjour\u00a0! le chat dort", "今日は\u3000とても 暑い です", "a\u2009b  c\td", "\u00a0 hello", "le\u00a0",
])  # fmt: skip
def test_words_end_at_spaces_of_every_kind(line):
    """SentencePiece divides tokens at U+0020 only, and words end at every space."""
    tokenizer = SentencePiece(model="char", vocabulary_size=100).train([line] * 9, [])
    [ids] = tokenizer.encode_source([line])
    expected = words(line)
    spelled = dict.fromkeys(range(len(expected)), "")
    places = tokenizer.source_words(line, ids)
    for piece, place in zip(tokenizer.source_pieces(ids), places, strict=True):
        spelled[place.start] += "".join(piece.replace("▁", " ").split())
    assert [*spelled.values()] == expected


def test_a_vocabulary_of_words_has_the_words_of_its_text():
    lines = ["6\u00a0Monate « Bonjour\u3000x »"] * 9
    tokenizer = SentencePiece(model="word", vocabulary_size=100, joint=False).train(lines, lines)
    [ids] = tokenizer.encode_source(lines[:1])
    assert UNK not in ids
    assert {*ids} == {*range(4, tokenizer.source_size)}


@pytest.mark.parametrize(("line", "expected"), [
    ("the ⁇ dog ⁇ runs", [[0], [1], [2], [3], [4]]),
    ("the big old dog fast runs", [[0], [1, 2], [3], [4], [5]]),
    ("the dog runs", [[0], [], [1], [], [2]]),
    ("the old dog runs", [[0], [1], [2], [], [3]]),
])  # fmt: skip
def test_unknown_words_that_were_replaced_keep_their_places(line, expected):
    text = "the dog runs"
    tokenizer = SentencePiece(model="word", vocabulary_size=20).train([text] * 9, [text] * 9)
    [ids] = tokenizer.encode_target(["the Q dog Q runs"])
    assert [list(place) for place in tokenizer.target_words(line, ids)] == expected


def test_words_around_many_unknown_words_are_found_quickly():
    """With 12 unknown words, a search with backtracking would take days."""
    corpus = ["das haus ist gross und klein"] * 50
    tokenizer = SentencePiece(model="word", vocabulary_size=12, lowercase=True).train(
        corpus, corpus
    )
    names = [
        "anna",
        "bernd",
        "carla",
        "dieter",
        "emil",
        "frida",
        "gustav",
        "heinz",
        "ida",
        "jan",
        "karl",
        "lena",
    ]
    line = " ".join([*names, "sahen das Haus"])  # "Haus" is not the decoded text
    [ids] = tokenizer.encode_target([line])
    assert ids.count(UNK) >= 12
    assert len(tokenizer.target_words(line, ids)) == len(ids)


@pytest.mark.parametrize("model", ["char", "unigram"])
def test_unknown_characters_of_a_script_without_spaces_have_their_own_words(model, no_dictionary):
    """Unknown tokens of different lengths: the others keep their characters."""
    corpus = ["的书很大。", "爱的书"] * 9
    tokenizer = SentencePiece(model=model, vocabulary_size=14).train(corpus, corpus)
    line = "龘爱Ωμέγα的书很大。"
    [ids] = tokenizer.encode_source([line])
    texts = words(line)
    for piece, place in zip(
        tokenizer.source_pieces(ids), tokenizer.source_words(line, ids), strict=True
    ):
        covered = "".join(texts[place.start : place.stop])
        assert piece.strip("▁") in (covered, "<unk>", "")
        assert piece != "<unk>" or covered in ("龘", "Ωμέγα")


@pytest.mark.parametrize("space", ["\u00a0", "\u202f", "\u3000", "\u2028"])
@pytest.mark.parametrize("word", ["man", "Ω"])
@pytest.mark.parametrize(("model", "seed"), [("unigram", None), ("unigram", 1), ("bpe", 1)])
def test_words_after_unusual_spaces_keep_their_places(space, word, model, seed):
    """With an unknown word, too, for which SentencePiece writes <unk>, and with sampling."""
    corpus = ["the man goes to town in 5 minutes", "five km to the town"] * 9
    sampling = {} if seed is None else {"sampling": 0.5}
    tokenizer = SentencePiece(model=model, vocabulary_size=40, **sampling).train(corpus, corpus)
    line = f"the man goes 5{space}km to {word} town"
    [ids] = tokenizer.encode_source([line], seed)
    places = tokenizer.source_words(line, ids)
    pieces = tokenizer.source_pieces(ids)
    if word == "Ω":
        assert UNK in ids
        assert [*places[len(ids) - 1 - ids[::-1].index(UNK)]] == [6]
    spelled = [
        "".join(p for p, place in zip(pieces, places, strict=True) if n in place) for n in (4, 7)
    ]
    assert [text.strip("▁").removeprefix("<unk>") for text in spelled] == ["km", "town"]


@pytest.mark.parametrize("model", ["unigram", "bpe"])
@settings(deadline=None)
@given(
    line=st.lists(
        st.sampled_from(
            ["the man", "Ω", "é", "5\u00a0km", "»\u00a0!", "\u3000", ":", "goes", "日本"]
        )
    ).map(" ".join)
)
def test_words_of_bytes_and_unusual_spaces_are_those_of_sentencepiece(by_bytes, model, line):
    """The positions of the subwords in the text are those that SentencePiece states."""
    tokenizer, processor = by_bytes[model]
    pieces = processor.encode(line, return_type="proto").pieces
    # The word of each character except spaces
    owners = [number for number, word in enumerate(line.split()) for _ in word]
    ids = [piece.id for piece in pieces]
    places = tokenizer.target_words(line, ids, str.split, encoded=True)
    begin = 0
    for piece, place in zip(pieces, places, strict=True):
        end = begin + len("".join(piece.surface.split()))
        if begin < len(owners):  # not a space at the end
            assert [*place] == [*range(owners[begin], owners[max(begin, end - 1)] + 1)]
        begin = end


@pytest.fixture(scope="module")
def by_bytes():
    """Tokenizers that spell unknown characters by bytes, and their SentencePiece processors."""
    corpus = ["the man goes to town", "« oui »\u00a0! non", "« non »\u00a0! oui 5 km"] * 9
    tokenizers = {
        model: SentencePiece(model=model, vocabulary_size=315, byte_fallback=True).train(
            corpus, corpus
        )
        for model in ("unigram", "bpe")
    }
    return {
        model: (tokenizer, sentencepiece.SentencePieceProcessor(model_proto=tokenizer.models[1]))
        for model, tokenizer in tokenizers.items()
    }


def test_a_subword_with_a_no_break_space_covers_both_words():
    corpus = ["« oui »\u00a0! non", "« non »\u00a0! oui", "« si »\u00a0! oui"] * 20
    tokenizer = SentencePiece(model="bpe", vocabulary_size=60).train(corpus, corpus)
    line = "« oui »\u00a0! non"
    [ids] = tokenizer.encode_target([line])
    assert "▁»\u00a0!" in tokenizer.target_pieces(ids)
    covered = {word for place in tokenizer.target_words(line, ids, str.split) for word in place}
    assert covered == set(range(len(line.split())))


def test_lines_with_any_character_and_with_long_words_train_a_tokenizer():
    """SentencePiece skips lines with its own symbol ▅, and cannot load a word of 8,000 bytes."""
    corpus = ["a b c"] * 9
    characters = SentencePiece(model="char", vocabulary_size=50).train(["▅▆ Qx", *corpus], [])
    assert UNK not in characters.encode_source(["Q x"])[0]
    words = SentencePiece(model="word", vocabulary_size=50).train(["ก" * 3000, *corpus], [])
    assert words.encode_source(["ก" * 3000, "a"]) == [[UNK], [words.encode_source(["a"])[0][0]]]
