"""Coverings contain every pair, are much smaller than the product, and are the same in every process."""

import itertools

import pytest
from builders import compose
from coverings import covering, pairs, product

from nmt.configuration import compose as composition
from nmt.configuration.yaml_files import groups_of, options

AXES = ["abcde", "fghij", "kl", "mn"]


def test_every_pair_of_values_is_covered():
    cases = list(itertools.product(*AXES))
    chosen = covering(cases)
    assert set().union(*map(pairs, chosen)) == set().union(*map(pairs, cases))
    assert len(chosen) < len(cases) / 3
    assert chosen == covering(cases)


def test_forbidden_combinations_are_left_out():
    parameters = product("ab", "cd", "ef", allowed=lambda a, c, e: (a, c) != ("a", "c"))
    assert all(parameter.values[:2] != ("a", "c") for parameter in parameters)
    assert len(parameters) == 6
    quick = [parameter.values for parameter in parameters if not parameter.marks]
    left = set().union(*(pairs(parameter.values) for parameter in parameters))
    assert set().union(*map(pairs, quick)) == left


PARTS = ("encoder", "decoder", "attention", "window")
OTHERS = tuple(
    group
    for group in {*groups_of("train")} - {*PARTS, "experiment", "data"}
    if options(group)  # callbacks are those of plugins
)


@pytest.mark.parametrize(
    "groups", [PARTS, pytest.param((*PARTS, *sorted(OTHERS)), marks=pytest.mark.exhaustive)]
)
def test_configurations_of_tests_are_those_of_commands(groups):
    """`builders.compose` puts the choices of groups together; commands compose them at once: the same configuration."""
    overrides = [f"{group}={options(group)[-1]}" for group in groups]
    overrides += ["seed=7", "~optimizer.lr", "+model.mine=1"]
    assert compose(*overrides) == composition.compose("train", overrides)


def test_a_large_product_has_each_value_by_default_and_each_pair_in_exhaustive_tests():
    axes = ["abc", [1, 2, 3, 4], [True, False, None]]
    marks = {case.values: {mark.name for mark in case.marks} for case in product(*axes, large=True)}
    default = [values for values, names in marks.items() if not names]
    assert {value for case in default for value in enumerate(case)} == {
        (place, value) for place, axis in enumerate(axes) for value in axis
    }
    unmarked = [values for values, names in marks.items() if "slow" not in names]
    assert set().union(*map(pairs, unmarked)) == set().union(*map(pairs, marks))
    assert any("slow" in names for names in marks.values())
