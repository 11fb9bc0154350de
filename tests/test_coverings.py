"""Coverings contain every pair, are much smaller than the product, and are the same in every process."""

import itertools

from coverings import covering, pairs, product

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
