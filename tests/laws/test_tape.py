"""The calls that programs of the tape are made of."""

from __future__ import annotations

from laws import tape_programs
from laws.tape_calls import right_calls


def test_the_calls_of_programs_are_not_few() -> None:
    """Most functions have calls whose gradients are right, so that programs are made of them."""
    names = sorted(name for group in tape_programs.GROUPS.values() for name in group)[::5]
    right = [len(right_calls(name, "vector")) for name in names]
    assert len(names) > 70 and sum(right) > 250 and sum(map(bool, right)) > 45, right
