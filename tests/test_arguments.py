"""Arguments from Python programs: texts, lists of texts, anything else. The process does not check types, unlike other tests."""

import json
import subprocess
import sys

import pytest
from builders import trained
from commands import ROOT

CALLS = {
    't.translate(b"a")': "TypeError: expected a string or a list of strings, got bytes",
    "t.translate([3])": "TypeError: expected a list of strings, but item 0 is int",
    't.translate(["a", None])': "TypeError: expected a list of strings, but item 1 is NoneType",
    't.translate({"a": 1})': "TypeError: expected a string or a list of strings, got dict",
    "t.translate(3)": "TypeError: expected a string or a list of strings, got int",
    't.translate("\\ud800")': "UserError: item 0 contains half of a surrogate pair",
    't.attention(["a", "b"])': "TypeError: text: expected one string, got list",
    't.attention("a", ["x"])': "TypeError: expected a list of strings, but item 1 is list",
    't.attention("a", units="foo")': "UserError: units=foo: unknown; choose word",
    "c.classify([3])": "TypeError: expected a list of strings, but item 0 is int",
    'c.classify(b"x")': "TypeError: expected a string or a list of strings, got bytes",
    "c.probabilities([None])": "TypeError: expected a list of strings, but item 0 is NoneType",
    "nmt.load(3)": "TypeError: path: must be a path or a list of paths, not int",
    'nmt.load(PATH, device="gpu")': "UsageError: device=gpu: not available on this machine. Use auto, cpu, cuda, or cuda:1",
    't.translate(x for x in ["a b", "c"])': "two",
    "sorted(dir(nmt))": "names",
}


@pytest.fixture(scope="module")
def said(small_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels")
    (folder / "t.tsv").write_text("text\tlabel\n" + "a good day\tgood\na bad day\tbad\n" * 20)
    size = [
        "sizes.encoder=4",
        "sizes.vocabulary=30",
        "network.embedding_size=4",
        "trainer.max_epochs=1",
    ]
    files = [
        "data=tsv",
        f"data.train={folder}/t.tsv",
        f"data.validation={folder}/t.tsv",
        "data.text=text",
        "data.label=label",
    ]
    labels = trained(folder / "run", *files, *size, name="classify")
    code = f"""
import json, sys
import nmt
PATH = {str(small_run)!r}
t, c, said = nmt.load(PATH), nmt.load({str(labels)!r}), {{}}
for call in json.loads(sys.stdin.read()):
    try:
        said[call] = eval(call)
    except Exception as error:
        said[call] = f"{{type(error).__name__}}: {{error}}"
print(json.dumps(said))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps([*CALLS]),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("call", CALLS)
def test_every_call_has_its_answer(said, call):
    if CALLS[call] == "two":
        assert len(said[call]) == 2
    elif CALLS[call] == "names":
        assert said[call] == [
            "Stopped",
            "TextClassifier",
            "Translator",
            "UserError",
            "__version__",
            "check_attention",
            "evaluate",
            "load",
            "train",
        ]
    else:
        assert said[call].startswith(CALLS[call])
