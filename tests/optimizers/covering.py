"""Pairwise testing: cases that cover every pair of values of two factors."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

Case = dict[str, Any]


def all_pairs(
    factors: Mapping[str, Sequence[Any]], possible: Callable[[Case], bool] = lambda case: True
) -> list[Case]:
    """Return few cases, each with a value of every factor, that cover all possible pairs.

    Parameters
    ----------
    factors : mapping of sequence
        The values of each factor, by its name.
    possible : callable
        Whether a case, or a part of one, is possible.
    """
    chosen = random.Random(0)
    missing = {pair for pair in _pairs(factors) if possible(dict(pair))}
    ordered = sorted(missing, key=repr)
    cases = []
    while missing:
        tried = [_grown(factors, missing, ordered, possible, chosen) for _ in range(20)]
        best = max(tried, key=lambda case: len(missing & set(_pairs_of(case))))
        missing -= set(_pairs_of(best))
        ordered = [pair for pair in ordered if pair in missing]
        cases.append(best)
    return cases


def _pairs(factors: Mapping[str, Sequence[Any]]) -> Iterator[Any]:
    for first, second in combinations(factors, 2):
        for a, b in product(factors[first], factors[second]):
            yield (first, a), (second, b)


def _pairs_of(case: Case) -> Iterator[Any]:
    return combinations(case.items(), 2)


def _grown(
    factors: Mapping[str, Sequence[Any]],
    missing: set[Any],
    ordered: list[Any],
    possible: Callable[[Case], bool],
    chosen: random.Random,
) -> Case:
    """Return a case with a missing pair, and greedily as many of the others as possible."""
    while True:
        case: Case = dict(chosen.choice(ordered))
        place = {name: k for k, name in enumerate(factors)}
        others = [name for name in factors if name not in case]
        chosen.shuffle(others)
        for name in others:
            fitting = [v for v in factors[name] if possible({**case, name: v})]
            if not fitting:
                break
            chosen.shuffle(fitting)
            case[name] = max(fitting, key=lambda v: _gain(case, name, v, missing, place))
        else:
            return {name: case[name] for name in factors}


def _gain(case: Case, name: str, value: Any, missing: set[Any], place: Mapping[str, int]) -> int:
    own, gain = (name, value), 0
    for other in case.items():
        gain += ((own, other) if place[name] < place[other[0]] else (other, own)) in missing
    return gain
