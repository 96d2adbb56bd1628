"""The law of estimators, on draws that cover all pairs of levels that go together."""

from __future__ import annotations

import warnings
from itertools import combinations, product

import numpy as np
import pytest

from laws import estimators
from laws.law import Draw, covering, drawn, pairs, run, shrunk

LAW = estimators.LAW


def tried(draw: Draw) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run(LAW.program(draw))
        except Exception as error:
            text = LAW.program(shrunk(LAW, draw))
            pytest.fail(f"{error!r}. In tests/, run this program again:\n\n{text}")


def test_all_pairs_of_levels() -> None:
    draws, covered = [*covering(LAW, seed=0)], set()
    for draw in draws:
        tried(draw)
        covered |= pairs(draw)
    every = {
        ((first, a), (second, b))
        for first, second in combinations(LAW.factors, 2)
        for a, b in product(LAW.factors[first], LAW.factors[second])
        if LAW.possible({first: a, second: b})
    }
    print(
        f"{len(draws)} draws, {len(covered)} of {len(every)} pairs; others need what excludes them"
    )
    assert covered <= every and len(covered) > 0.99 * len(every), len(covered) / len(every)


def test_random_draws() -> None:
    random = np.random.default_rng(7)
    for _ in range(30):
        tried(drawn(LAW, random))
