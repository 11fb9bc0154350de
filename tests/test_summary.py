"""The last lines of a test run."""

from types import SimpleNamespace

import conftest


def test_a_failure_shows_its_message_and_the_command_that_repeats_it():
    lines = []
    crash = SimpleNamespace(message="AssertionError: assert 3 == 4\n +  where 3 = f()")
    failure = SimpleNamespace(
        nodeid="tests/test_a.py::test_b[c d]", longrepr=SimpleNamespace(reprcrash=crash)
    )
    broken = SimpleNamespace(nodeid="tests/test_a.py::test_e", longrepr="no such fixture")
    skipped = SimpleNamespace(longrepr=("test_a.py", 7, "Skipped: there is no Chromium"))
    stats = {"failed": [failure], "error": [broken], "skipped": [skipped, skipped]}
    config = SimpleNamespace(option=SimpleNamespace(markexpr="not slow and not exhaustive"))
    conftest.pytest_terminal_summary(
        SimpleNamespace(write_line=lines.append, stats=stats), config=config
    )
    assert lines == [
        "not run: 2 x there is no Chromium",
        "not run: the exhaustive tests (scripts/test --all)",
        "",
        "  AssertionError: assert 3 == 4",
        "   +  where 3 = f()",
        "  repeat: .venv/bin/python -m pytest -n 0 -m '' 'tests/test_a.py::test_b[c d]'",
        "",
        "  no such fixture",
        "  repeat: .venv/bin/python -m pytest -n 0 -m '' 'tests/test_a.py::test_e'",
    ]
