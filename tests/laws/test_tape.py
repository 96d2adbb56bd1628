"""The laws of the tape, tried by programs that cover all pairs of their factors."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from laws import tape_outside, tape_protocol, tape_wrapped
from laws.law import Draw, Law, covering, drawn, pairs, run, shrunk

LAWS = {law.name: law for law in (tape_outside.LAW, tape_protocol.LAW, tape_wrapped.LAW)}


def tried(law: Law, draw: Draw) -> None:
    try:
        run(law.program(draw))
    except BaseException as error:
        small = shrunk(law, draw)
        error.add_note(f"the law {law.name}, broken by {small}:\n{law.program(small)}")
        raise


def possible_pairs(law: Law) -> int:
    return sum(
        law.possible({a: x, b: y})
        for a, b in combinations(law.factors, 2)
        for x, y in product(law.factors[a], law.factors[b])
    )


@pytest.mark.parametrize("name", LAWS)
def test_all_pairs(name: str) -> None:
    law, covered = LAWS[name], set()
    for draw in covering(law, seed=0):
        tried(law, draw)
        covered |= pairs(draw)
    assert len(covered) == possible_pairs(law)


@pytest.mark.parametrize("name", LAWS)
def test_other_programs(name: str) -> None:
    random = np.random.default_rng(7)
    for _ in range(3 if name != "tape_protocol" else 100):
        tried(LAWS[name], drawn(LAWS[name], random))
