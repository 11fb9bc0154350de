"""scripts/requirements.lock: the versions of constraints.txt with a hash for every package, and no address of a package index."""

import re
import tomllib

from commands import ROOT

LOCK = (ROOT / "scripts/requirements.lock").read_text()
VERSION = re.compile(r"^([a-z\d.-]+)==(\S+)", re.M)


def test_versions_are_those_of_the_constraints():
    locked = dict(VERSION.findall(LOCK))
    constraints = dict(VERSION.findall((ROOT / "scripts/constraints.txt").read_text()))
    both = constraints.keys() & locked.keys()
    assert {name: locked[name].partition("+")[0] for name in both} == {
        name: constraints[name] for name in both
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["plots"], *extras["tensorboard"], *extras["serve"]]
    assert {re.match(r"[\w.-]+", line)[0] for line in needed} <= locked.keys()


def test_every_package_has_a_hash():
    packages = re.split(r"\n(?=\S)", LOCK.strip())
    for package in packages:
        assert re.fullmatch(r"\S+==\S+( \\\n    --hash=sha256:[\da-f]{64})+", package), package[:80]
    assert "://" not in LOCK
