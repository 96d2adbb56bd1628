"""Tensors of torch wherever arrays are taken."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("ml_dtypes")

from laws import crossings
from laws.law import Draw, covering, drawn, pairs, run, shrunk

LAW = crossings.LAW


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
    dtypes = {value for pair in covered for name, value in pair if name == "dtype"}
    assert len(dtypes) > 15 and len(covered) > 1200, (len(dtypes), len(covered))


def test_random_draws() -> None:
    random = np.random.default_rng(6)
    for _ in range(300):
        tried(drawn(LAW, random))
