"""Pairwise coverings: few combinations in which every pair of values of two axes occurs, instead of a whole product."""

import itertools

import pytest


def pairs(case):
    """The pairs of values in a combination, each with the positions of its axes."""
    return set(itertools.combinations(enumerate(case), 2))


def covering(cases):
    """A part of the combinations that contains every pair of values that occurs in any of them.

    Greedy and deterministic: the combination with the most new pairs is taken next; the first of several.
    """
    left = set().union(*(pairs(case) for case in cases))
    waiting = {case: pairs(case) for case in cases}
    taken = []
    while left:
        case = max(waiting, key=lambda case: len(waiting[case] & left))
        left -= waiting.pop(case)
        taken.append(case)
    return taken


def product(*axes, allowed=lambda *case: True, large=False, costly=False):
    """Parameters of a test: the whole product of the axes. Combinations outside the covering are exhaustive tests.

    large: whether the product is large. Then the default tests cover only the values of each axis, the covering of
        pairs is exhaustive, and all other combinations are slow tests.
    costly: whether a combination takes seconds. Then the covering of pairs is slow too.
    """
    cases = [case for case in itertools.product(*axes) if allowed(*case)]
    quick = set(covering(cases))
    if not (large or costly):
        return [
            pytest.param(*case, marks=[] if case in quick else [pytest.mark.exhaustive])
            for case in cases
        ]
    default = values_covering(cases)
    exhaustive = set() if costly else quick
    return [
        pytest.param(
            *case,
            marks=[]
            if case in default
            else [pytest.mark.exhaustive if case in exhaustive else pytest.mark.slow],
        )
        for case in cases
    ]


def values_covering(cases):
    """Returns few cases in which each value of each axis occurs. The case with the most new values is taken next."""
    waiting = {case: set(enumerate(map(str, case))) for case in cases}
    left = set().union(*waiting.values())
    chosen = set()
    while left:
        case = max(waiting, key=lambda case: len(waiting[case] & left))
        left -= waiting.pop(case)
        chosen.add(case)
    return chosen
