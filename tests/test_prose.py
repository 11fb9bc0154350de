"""Each rule of scripts/prose.py reports its example and accepts the same fact in plain English."""

import prose
import pytest

EXAMPLES = [
    ("first word", "a.py", '"""What is called in training."""', '"""Callbacks of training."""'),
    ("first word", "a.yaml", "size: 1  # of the beam", "size: 1  # width of the beam"),
    ("first word", "a.md", "# How runs are resumed", "# Resume a run"),
    ("dependent", "a.py", '"""The others."""', '"""Further optimizers."""'),
    ("dependent", "a.py", '"""And those of the trainer."""', '"""Keys of the trainer."""'),
    ("reference", "a.md", "A tree is drawn. It has rows.", "A tree is drawn. The tree has rows."),
    ("reference", "a.md", "- These are\nrun folders.", "- These folders are run folders."),
    ("forbidden", "a.py", '"""Callback that is told the lines."""', '"""Callback for lines."""'),
    ("forbidden", "a.py", "# nobody\n# knows", "# unknown to users"),
    ("forbidden", "a.py", 'f"the file {x} is no index at all"', 'f"the file {x} is not an index"'),
    ("forbidden", "a.js", "f(); // what the page wants", "f(); // requested by the page"),
    ("forbidden", "a.md", "A value\nthat is none.", "A value that is not set: `is none`."),
    ("forbidden", "test_a.py", "def test_it_goes_on(): ...", "def test_resume(): ..."),
    ("long", "a.md", "a word " * 18, "a word " * 17),
    ("long", "a.md", "See Li et al. " + "word " * 33, "See Li et al. " + "word " * 30 + ". Next"),
    ("long", "a.py", f'"""{"word " * 36}"""', f'"""{"word " * 20}\n\na: {"word " * 20}\nb: c"""'),
    ("long", "a.yaml", f"# {'word ' * 20}\n# {'word ' * 16}", f"# {'word ' * 20}\na: 1"),
    ("name", "a.py", "found = 1", "found_rows = 1"),
    ("name", "a.py", "for its in rows: ...", "rows.found = 1"),
    ("name", "a.js", "const held = 1;", "const held_values = 1;"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "file", "example", "counterexample"), EXAMPLES)
def test_a_rule_reports_its_example_only(tmp_path, rule, file, example, counterexample):
    path = tmp_path / file
    path.write_text(example)
    assert rules_broken(path) == {rule}
    path.write_text(counterexample)
    assert rules_broken(path) == set()


def test_the_line_is_that_of_the_word(tmp_path, capsys, monkeypatch):
    path = tmp_path / "a.py"
    path.write_text('"""Callbacks.\n\nThe trainer\ninforms nobody.\n"""\n')
    monkeypatch.setattr("sys.argv", ["prose.py", str(path)])
    with pytest.raises(SystemExit, match="1 problems"):
        prose.main()
    assert capsys.readouterr().out == f"{path}:4: forbidden: nobody\n"


def test_strings_of_tests_and_blocks_of_code_are_not_prose(tmp_path):
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_a.py").write_text('text = "nobody knows that so many are none"')
    assert rules_broken(folder / "test_a.py") == set()
    (folder / "a.md").write_text("```\nnobody knows\n```\n")
    assert rules_broken(folder / "a.md") == set()


def rules_broken(path):
    return {rule for passage in prose.passages(path) for _, rule, _ in prose.problems(passage)}
