"""The laws of the tape, tried by programs that cover all pairs of their factors, and by others."""

from __future__ import annotations

import numpy as np
import pytest

from laws import (
    tape_operands,
    tape_outside,
    tape_programs,
    tape_protocol,
    tape_returned,
    tape_wrapped,
)
from laws.law import Law, all_pairs, covering, drawn, first_that_fails, pairs, shrunk
from laws.tape_calls import right_calls

#: So many further programs of each law are drawn.
MORE = [
    (tape_operands.LAW, 3), (tape_outside.LAW, 3), (tape_programs.LAW, 40),
    (tape_protocol.LAW, 200), (tape_returned.LAW, 40), (tape_wrapped.LAW, 10),
]  # fmt: skip


@pytest.mark.parametrize(("law", "more"), MORE, ids=[law.name for law, _ in MORE])
def test_law(law: Law, more: int) -> None:
    random = np.random.default_rng(7)
    draws = [*covering(law, seed=0), *(drawn(law, random) for _ in range(more))]
    failed = first_that_fails([law.program(draw) for draw in draws])
    if failed is not None:
        small = shrunk(law, draws[failed[0]])
        pytest.fail(f"{failed[1]}\n{law.name}, broken by {small}:\n{law.program(small)}")
    covered = set().union(*map(pairs, draws))
    assert covered >= set(all_pairs(law))
    print(f"{law.name}: {len(draws)} programs, {len(covered)} pairs")


def test_the_calls_of_programs_are_not_few() -> None:
    """Most functions have calls whose gradients are right, so that programs are made of them."""
    names = sorted(name for group in tape_programs.GROUPS.values() for name in group)[::5]
    right = [len(right_calls(name, "vector")) for name in names]
    assert len(names) > 70 and sum(right) > 250 and sum(map(bool, right)) > 45, right
