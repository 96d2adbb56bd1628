"""The laws of the tape, tried by programs that cover all pairs of their factors."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations, product

import numpy as np
import pytest

from laws import tape_outside, tape_programs, tape_protocol, tape_returned, tape_wrapped
from laws.law import TESTS, Draw, Law, covering, drawn, pairs, run, shrunk
from laws.tape_calls import right_calls

LAWS = {
    module.LAW.name: module.LAW
    for module in (tape_outside, tape_programs, tape_protocol, tape_returned, tape_wrapped)
}
#: How many further programs are drawn, of laws whose programs take milliseconds.
MORE = {"tape_protocol": 100, "tape_programs": 20}


def tried(law: Law, draw: Draw) -> None:
    try:
        run(law.program(draw))
    except Exception as error:
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
    """In a process of their own, since what is wrong in compiled code may end it."""
    law = LAWS[name]
    draws = list(covering(law, seed=0))
    program = (
        "import warnings; from laws.law import covering, found, run\n"
        f"law = found({name!r}); warnings.simplefilter('ignore')\n"
        "for draw in covering(law, seed=0):\n"
        "    run(law.program(draw)); print(end='.', flush=True)\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=300)
    if len(done.stdout) < len(draws):
        small = shrunk(law, draws[len(done.stdout)])
        pytest.fail(f"{done.stderr[-3000:]}\n{law.name}, broken by {small}:\n{law.program(small)}")
    assert len(set.union(*map(pairs, draws))) == possible_pairs(law)


@pytest.mark.parametrize("name", LAWS)
def test_other_programs(name: str) -> None:
    random = np.random.default_rng(7)
    for _ in range(MORE.get(name, 3)):
        tried(LAWS[name], drawn(LAWS[name], random))


def test_the_calls_of_programs_are_not_few() -> None:
    """Most functions have calls whose gradients are right, so that programs are made of them."""
    names = sorted(name for group in tape_programs.GROUPS.values() for name in group)[::5]
    right = [len(right_calls(name, "vector")) for name in names]
    assert len(names) > 70 and sum(right) > 250 and sum(map(bool, right)) > 45, right
