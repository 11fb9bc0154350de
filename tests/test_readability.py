"""The limits of scripts/readability.py find what they are for, and nmt/ keeps them."""

import readability

DENSE = '''"""A module."""
found, held, own = 1, 2, 3
first, second = 1, 2
'''


def test_dense_code_exceeds_the_limits(tmp_path):
    (tmp_path / "dense.py").write_text(DENSE + "def long():\n" + "    print()\n" * 50)
    figures = readability.measure(tmp_path)
    assert figures["statements"] == 53
    assert figures["assignments of three or more targets"] == 1
    assert figures["% of assignments that are `a, b = x, y`"] == 100
    assert figures["% of assigned names that are generic"] == 60
    assert figures["functions over 50 lines"] == 1
    problems = "\n".join(readability.exceeded(figures))
    assert "`a, b = x, y`: 100, at most" in problems
    assert "comments per 100 lines: 0, at least" in problems


def test_plain_code_does_not(tmp_path):
    (tmp_path / "plain.py").write_text("# [B, S]\nlengths = 1\n")
    assert readability.exceeded(readability.measure(tmp_path)) == []
