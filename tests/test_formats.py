"""Files of other programs: encodings, quotation marks, line ends, pointers, gaps."""

import bz2
import gzip
import io
import json
import lzma
import subprocess
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from nmt.configuration.configure import configure
from nmt.data.lines import read_lines
from nmt.data.sources.captions import Captions
from nmt.data.sources.hub import HubData
from nmt.data.sources.table import TableFiles
from nmt.data.sources.text import TextFiles
from nmt.data.text_encoding import check_head
from nmt.foundation.errors import UserError

ENGLISH = [f"A man sees dog {i}." for i in range(60)]
CHINESE = [f"一个男人看到一只狗。{i}" for i in range(60)]


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def table(form, file, source="en", target="de", **keys):
    part = {"format": form, "train": str(file), "validation": str(file)}
    return TableFiles(**part, source=source, target=target, **keys).load().train


def both(pairs):
    return list(zip(pairs.source, pairs.target, strict=True))


def tar_of(content, form):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        info = tarfile.TarInfo("t.en")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


WIDE = ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]


@pytest.mark.parametrize("lines", [ENGLISH, CHINESE], ids=["Latin", "Chinese"])
@pytest.mark.parametrize("encoding", WIDE)
def test_wide_encodings_are_named_and_the_advice_works(tmp_path, encoding, lines):
    text = "".join(f"{line}\n" for line in lines)
    file = tmp_path / "t.txt"
    file.write_bytes(text.encode(encoding))
    with pytest.raises(UserError, match="Convert the file first: iconv -f UTF-") as caught:
        read_lines(file)
    command = str(caught.value).rpartition("first: ")[2]
    file.write_bytes(subprocess.run(f"{command} < {file}", shell=True, capture_output=True).stdout)
    assert read_lines(file) == lines


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "archive"])
def test_wide_encodings_are_named_in_every_format(tmp_path, form):
    text = "en,de\na,b\nc,d\n".encode("utf-16-le")
    file = tmp_path / "t"
    if form == "archive":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("t.en", text)
            archive.writestr("t.de", text)
    else:
        file.write_bytes(text)
    with pytest.raises(UserError, match="encoding is UTF-16LE, must be UTF-8"):
        table(form, file)


@pytest.mark.parametrize("text", ["a\0b\nc\nd e f\0\n", "Größe\n", "一\n", ""])
def test_other_text_is_no_wide_encoding(tmp_path, text):
    file = written(tmp_path / "t", text * 50)
    assert len(read_lines(tmp_path / "t")) == (text * 50).count("\n"), file


def test_binary_files_get_no_advice_about_line_ends():
    check_head(
        b"\x7fELF\x02\x00\x00\r\x01", "program"
    )  # its bytes are no UTF-8, which is named later


def test_carriage_returns_as_line_ends_are_named(tmp_path):
    file = tmp_path / "t"
    written(file, "one\rtwo\rthree\r")
    with pytest.raises(UserError, match="lines end with carriage returns") as caught:
        read_lines(file)
    command = str(caught.value).rpartition("first: ")[2]
    written(file, subprocess.run(f"{command} < {file}", shell=True, capture_output=True).stdout)
    assert read_lines(file) == ["one", "two", "three"]


def test_a_carriage_return_in_a_long_first_line_is_no_line_end(tmp_path):
    lines = ["a stray\rcarriage return " + "word " * 1000, "second"]
    for order in (lines, lines[::-1]):
        written(tmp_path / "t", "".join(line + "\n" for line in order))
        assert read_lines(tmp_path / "t") == order


def test_line_breaks_inside_cells_are_one_space(tmp_path):
    csv_file = written(tmp_path / "t.csv", b'en,de\n"a\r\nb","c\rd"\n"e\nf",g\n')
    assert both(table("csv", csv_file)) == [("a b", "c d"), ("e f", "g")]
    row = json.dumps({"en": "a\r\nb\rc", "de": "d\ne"})
    assert both(table("jsonl", written(tmp_path / "t.jsonl", row + "\n"))) == [("a b c", "d e")]


QUOTED = 'en\tde\n"He said ""hi"""\tplain\n"a b"\tc\n'


def test_quoted_cells_of_tsv_are_counted_and_can_be_read(tmp_path, caplog):
    file = written(tmp_path / "quoted.tsv", QUOTED)
    assert both(table("tsv", file))[0] == ('"He said ""hi"""', "plain")
    assert "2 of 4 cells are in quotation marks" in caplog.text
    assert "data.quotes=true" in caplog.text
    assert caplog.text.count("quotation marks") == 1
    assert both(table("tsv", file, quotes=True)) == [('He said "hi"', "plain"), ("a b", "c")]


def test_direct_speech_in_tsv_is_no_quoting(tmp_path, caplog):
    table("tsv", written(tmp_path / "speech.tsv", 'en\tde\n"Hello."\t„Hallo.“\na\tb\n'))
    assert "quotation marks" not in caplog.text


def test_tables_of_spreadsheets_get_hints(tmp_path):
    with pytest.raises(UserError, match="data.quotes=true"):
        table("tsv", written(tmp_path / "t.tsv", '"en"\t"de"\n"a"\t"b"\n'))
    with pytest.raises(UserError, match="Semicolons are not supported"):
        table("csv", written(tmp_path / "t.csv", "en;de\na;b\n"))
    with pytest.raises(ValueError, match="data.quotes=true: supported by tsv only"):
        table("jsonl", "t", quotes=True)


def test_columns_that_are_not_asked_for_may_be_empty_repeated_or_absent(tmp_path):
    file = written(tmp_path / "t.csv", "en,de,,\na,b,,\n")
    assert both(table("csv", file)) == [("a", "b")]
    with pytest.raises(UserError, match="duplicate column names"):
        table("csv", written(tmp_path / "u.csv", "en,de,en\na,b,c\n"))
    rows = '{"note": "x", "en": "a", "de": "b"}\n{"en": "c", "de": "d"}\n'
    assert both(table("jsonl", written(tmp_path / "t.jsonl", rows))) == [("a", "b"), ("c", "d")]
    gap = '{"en": "a", "de": "b"}\n{"en": "c"}\n'
    with pytest.raises(UserError, match="line 2: JSON key de not found"):
        table("jsonl", written(tmp_path / "u.jsonl", gap))


@pytest.mark.parametrize("ending", ["zip", "tar.gz"])
def test_archives_made_on_a_mac(tmp_path, ending):
    members = {"t.en": b"a\n", "t.de": b"b\n", "._t.en": b"\0\5", "._t.de": b"\0\5"}
    members |= {f"__MACOSX/{name}": b"\0\5" for name in ("._t.en", "._t.de")}
    file = tmp_path / f"a.{ending}"
    if ending == "zip":
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
    else:
        with tarfile.open(file, "w:gz") as archive:
            for name, content in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    assert both(table("archive", file)) == [("a", "b")]


def test_memories_keep_spaces_and_words_apart(tmp_path):
    def unit(en, de):
        return f'<tu><tuv xml:lang="en"><seg>{en}</seg></tuv><tuv xml:lang="de"><seg>{de}</seg></tuv></tu>'

    body = unit("10\u00a0km\u202f! \n\t and<ph/>next<ph/>.", "\u3000猫<bpt/>W<ept/>ort की<ph/>घर")
    file = written(tmp_path / "t.tmx", f"<tmx><body>{body}</body></tmx>")
    assert both(table("tmx", file)) == [("10\u00a0km\u202f! and next.", "\u3000猫Wort की घर")]


def test_the_first_regional_variant_of_a_language_is_read(tmp_path):
    texts = {"en-US": "color", "en-GB": "colour", "de": "Farbe", "DE": "Farben"}
    variants = [f'<tuv xml:lang="{k}"><seg>{text}</seg></tuv>' for k, text in texts.items()]
    body = f"<tu>{''.join(variants)}</tu>"
    file = written(tmp_path / "t.tmx", f"<tmx><body>{body}</body></tmx>")
    assert both(table("tmx", file)) == [("color", "Farbe")]
    assert both(table("tmx", file, source="en_gb")) == [("colour", "Farbe")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"a\n"), "compressed by gzip; .* ends with .gz"),
        (lzma.compress(b"a\n"), "compressed by xz; .* ends with .xz"),
        (bz2.compress(b"a\n"), "compressed by bzip2; .* ends with .bz2"),
        (b"PK\x03\x04a", "a ZIP archive"),
        (tar_of(b"a\n", tarfile.GNU_FORMAT), "a tar archive"),
        (tar_of(b"a\n", tarfile.USTAR_FORMAT), "a tar archive"),
        (b"PAR1\n\x80", "a Parquet table"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a binary file, not text"),
    ],
    ids=["gz", "xz", "bz2", "zip", "tar", "ustar", "parquet", "png"],
)
def test_binary_files_are_named(tmp_path, content, message):
    with pytest.raises(UserError, match=message):
        read_lines(Path(written(tmp_path / "t.en", content)))
    text = Path(written(tmp_path / "t.de", "BZh is a text\nPK\0\n"))
    assert read_lines(text) == ["BZh is a text", "PK\0"]
    for line in ("PAR1 is a receptor", "PAR1", "PAR1é"):
        text = Path(written(tmp_path / "t.fr", f"{line}\nPAR2\n"))
        assert read_lines(text) == [line, "PAR2"]


def test_keys_of_csv_are_not_suggested_for_other_formats(tmp_path):
    row = {"en": "a", "my text": "b"}
    with pytest.raises(UserError) as other:
        table("jsonl", written(tmp_path / "t.jsonl", json.dumps(row) + "\n"))
    assert "not found" in str(other.value)
    assert "data.header" not in str(other.value)
    with pytest.raises(UserError, match=r"set data\.header=false"):
        table("csv", written(tmp_path / "t.csv", "en,my text\na,b\n"))


def test_pointers_of_git_lfs_are_named(tmp_path):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    for form in ("tsv", "jsonl", "parquet", "tmx", "archive"):
        with pytest.raises(UserError, match="a pointer of Git LFS.*git lfs pull"):
            table(form, written(tmp_path / f"t.{form}", pointer))
    with pytest.raises(UserError, match="a pointer of Git LFS"):
        read_lines(tmp_path / "t.tsv")
    written(tmp_path / "a.png", pointer)
    rows = written(tmp_path / "p.csv", "image,caption\na.png,a\n")
    with pytest.raises(UserError, match="a.png: a pointer of Git LFS"):
        Captions(train=rows, validation=rows).load()


NESTED = {"translation": {"en": "a", "de": "b"}}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"translation": {"en": "c"}}, "row 2: column 'translation' has the languages en;"),
        ({"translation": None}, "row 2: column 'translation' contains None, expected a mapping"),
        ({"translation": [{"en": "c", "de": "d"}]}, "row 2: column 'translation' contains"),
        ({"translation": {"en": "c", "de": None}}, "row 2: column 'de' contains None, not text"),
        ({"translation": "c"}, "row 2: column 'translation' contains 'c'"),
        ({}, "line 2: JSON key translation not found"),
    ],
)
@pytest.mark.parametrize("store", ["memory", "disk"])
def test_gaps_in_nested_translations_are_named(tmp_path, monkeypatch, row, message, store):
    from builders import compose

    from nmt.data.filters import Filters
    from nmt.pipeline.assembly.translation_parts import loaded

    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    lines = f"{json.dumps(NESTED)}\n{json.dumps(row)}\n"
    file = written(tmp_path / "t.jsonl", lines)
    keys = [f"data.train={file}", f"data.validation={file}", "data.source=en", "data.target=de"]
    config = compose("data=jsonl", *keys, f"store={store}")
    with pytest.raises(UserError, match=message):
        loaded(config, Filters())


def test_a_text_column_may_have_the_name_translation(tmp_path):
    with pytest.raises(UserError, match="column 'de' not found .available: en, translation."):
        table("csv", written(tmp_path / "t.csv", "en,translation\na,b\n"))


def test_maps_of_parquet_are_translations(tmp_path):
    import pyarrow
    import pyarrow.parquet

    kind = pyarrow.map_(pyarrow.string(), pyarrow.string())
    cells = pyarrow.array([[("en", "a"), ("de", "b")], [("de", "d"), ("en", "c")]], kind)
    file = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"translation": cells}), file)
    assert both(table("parquet", file)) == [("a", "b"), ("c", "d")]


def test_folders_of_save_to_disk_are_read(tmp_path):
    import datasets

    columns = {"en": ["a", "c"], "de": ["b", "d"]}
    one = datasets.Dataset.from_dict(columns)
    datasets.DatasetDict({"train": one, "dev": one}).save_to_disk(tmp_path / "dict")
    one.save_to_disk(tmp_path / "one")
    keys = {"source": "en", "target": "de", "test": None}
    splits = HubData(path=str(tmp_path / "dict"), validation="dev", **keys).load()
    assert both(splits.train) == both(splits.validation) == [("a", "b"), ("c", "d")]
    train = HubData(path=str(tmp_path / "one"), validation="train@:1", **keys).load().train
    assert both(train) == [("a", "b"), ("c", "d")]
    for key in ("name", "revision"):
        with pytest.raises(UserError, match=r"data\.name and data\.revision have no effect"):
            HubData(path=str(tmp_path / "one"), **{key: "x"}, **keys).load()
    for folder, splits in (("dict", "train, dev"), ("one", "train")):
        with pytest.raises(UserError, match=f"split validation not found .available: {splits}.. "):
            HubData(path=str(tmp_path / folder), **keys).load()


@pytest.mark.parametrize("number", [-1, 2])
def test_numbers_of_no_class_are_refused(tmp_path, number):
    import datasets

    kinds = {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])}
    rows = {"text": ["a", "b"], "label": [1, 0]}
    saved = datasets.Dataset.from_dict(rows, features=datasets.Features(kinds))
    file = tmp_path / "t.parquet"
    saved.to_parquet(file)
    import pyarrow
    import pyarrow.parquet

    read = pyarrow.parquet.read_table(file)
    changed = read.set_column(1, read.field("label"), pyarrow.array([1, number], "int64"))
    pyarrow.parquet.write_table(changed, file)
    data = TableFiles(
        format="parquet", train=str(file), validation=str(file), text="text", label="label"
    )
    with pytest.raises(
        UserError, match=f"row 2: column 'label' contains {number}, expected a label"
    ):
        data.labelled()


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "CMYK", "I;16", "I;16B", "I", "F"])
def test_images_of_every_mode_have_the_values_of_numpy(tmp_path, mode):
    from PIL import Image

    from nmt.data.pictures import image_of

    grey = np.arange(240, dtype=np.uint8).reshape(12, 20)
    expected = grey
    if mode in ("I;16", "I;16B", "I"):
        kind = {"I;16": "<u2", "I;16B": ">u2", "I": "<i4"}[mode]
        values = (grey.astype(np.uint32) * 257).astype(kind)
        image = Image.frombytes(mode, (20, 12), values.tobytes())
    elif mode == "F":
        image = Image.fromarray(grey.astype(np.float32) / 255)
    else:
        image = Image.fromarray(grey).convert(mode)
        expected = np.asarray(image.convert("L"))
    file = tmp_path / "a.tiff"
    image.save(file)
    pixels = image_of(str(file)).astype(int).mean(2)
    assert np.abs(pixels - expected).max() <= 1, mode


def test_paths_from_the_home_folder_get_advice_that_works(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for language in ("en", "de"):
        written(tmp_path / f"t.{language}", "".join(f"{line}\n" for line in ENGLISH))
    keys = ["data=text", "data.split=0.1", "data.source=en", "data.target=de"]
    with pytest.raises(UserError, match=r"Write data.train=\$HOME/t") as caught:
        configure("train", ["data.train=~/t", *keys])
    typed = str(caught.value).partition("Write ")[2].splitlines()[0]
    echo = subprocess.run(f"echo {typed}", shell=True, capture_output=True, text=True)
    assert (
        configure("train", [echo.stdout.strip(), *keys]).values["data"]["train"] == f"{tmp_path}/t"
    )


def test_a_text_with_commas_gets_advice_that_works():
    keys = ["data=text", "data.split=0.1", "data.source=en", "data.target=de"]
    with pytest.raises(UserError, match="Write a list as") as caught:
        configure("train", ["data.train=a.ha,b.en", *keys])
    typed = str(caught.value).rpartition("text with commas as ")[2].splitlines()[0]
    echo = subprocess.run(f"echo {typed}", shell=True, capture_output=True, text=True)
    assert configure("train", [echo.stdout.strip(), *keys]).values["data"]["train"] == "a.ha,b.en"


@pytest.mark.parametrize("count", range(1, 30))
def test_parts_by_percentages_are_disjoint_and_complete(tmp_path, count):
    (tmp_path / "t.tsv").write_text("".join(f"{i}\tx\n" for i in range(count)))
    for percent in range(5, 100, 5):
        parts = (f"@:{100 - percent}%", f"@-{percent}%:")
        names = dict(
            zip(("train", "validation"), (f"{tmp_path}/t.tsv{p}" for p in parts), strict=True)
        )
        columns = {"source": "1", "target": "2", "header": False}
        try:
            splits = TableFiles(format="tsv", split=0.0, **names, **columns).load()
        except UserError:  # one part has no row
            continue
        rows = [*splits.train.source, *splits.validation.source]
        assert rows == [str(i) for i in range(count)]


def test_missing_columns_of_a_part_are_named(tmp_path):
    (tmp_path / "r.csv").write_text("review,class\n" + "a,b\n" * 10)
    names = {"train": f"{tmp_path}/r.csv@:5", "validation": f"{tmp_path}/r.csv@5:"}
    with pytest.raises(UserError, match="review"):
        TableFiles(format="csv", split=0.0, **names, text="text", label="label").labelled()


def test_lists_of_corpora_and_tables_get_hints(tmp_path):
    for name in ("a.en", "a.de", "b.en", "b.de", "t.tsv"):
        (tmp_path / name).write_text("x\ty\n")
    languages = {"source": "en", "target": "de", "split": 0.1}
    with pytest.raises(UserError, match="one file per language.*data=mix"):
        TextFiles(train=[f"{tmp_path}/a", f"{tmp_path}/b"], **languages).load()
    with pytest.raises(UserError, match="is a table; set data=tsv"):
        TextFiles(train=f"{tmp_path}/t.tsv", **languages).load()


def test_a_file_with_the_name_of_a_pair_of_files_does_not_hide_the_pair(tmp_path):
    for ending in ("", ".en", ".de"):
        (tmp_path / f"val{ending}").write_text("a\n")
    name = str(tmp_path / "val")
    data = TextFiles(train=name, validation=name, source="en", target="de")
    assert len(data.load().validation) == 1
    with pytest.raises(UserError, match="without the language extension"):
        TextFiles(train=name, validation=f"{name}.en", source="en", target="de").load()
