"""Copies and pickles of everything that can be pickled."""

from __future__ import annotations

import numpy as np

from laws import pickles
from laws.law import Draw, covering, drawn, pairs, run, shrunk

LAW = pickles.LAW


def tried(draw: Draw) -> None:
    try:
        run(LAW.program(draw))
    except BaseException as error:
        raise AssertionError(LAW.program(shrunk(LAW, draw))) from error


def test_all_pairs_of_levels() -> None:
    draws = [*covering(LAW, seed=0)]
    for draw in draws:
        tried(draw)
    covered = set().union(*map(pairs, draws))
    ways = {value for pair in covered for name, value in pair if name == "way"}
    assert ways == {*pickles.WAYS} and len(covered) > 700, len(covered)


def test_random_draws() -> None:
    random = np.random.default_rng(5)
    for _ in range(40):
        tried(drawn(LAW, random))
