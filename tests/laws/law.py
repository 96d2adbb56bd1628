"""A law, the programs that test it, and the reduction of a program that breaks it.

A program is text: statements that call public functions and compare what they give with the
specification, or with a plainer way to the same. It raises if the law is broken. So a failure can
be printed, and run again by anybody.
"""

from __future__ import annotations

import json
import linecache
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import combinations, product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "LAWS", "NEEDS", "Draw", "Law", "all_pairs", "can_be_tried", "covering", "drawn",
    "first_that_fails", "found", "pairs", "run", "shrunk",
]  # fmt: skip

#: The laws by name: each is `LAW` of the module of that name.
LAWS: tuple[str, ...] = (
    "training", "threads", "settings", "hostile_states", "pickles", "crossings", "estimators",
    "numpy_calls", "tape_programs", "tape_outside", "tape_operands", "tape_returned",
    "tape_wrapped", "tape_protocol",
)  # fmt: skip

#: Modules without which a law is not tried.
NEEDS = {"crossings": ("torch", "ml_dtypes")}

TESTS = Path(__file__).resolve().parents[1]


class Draw(NamedTuple):
    """What a program is made of: a level of each factor, events in order, and a seed of numbers."""

    levels: Mapping[str, str]
    events: tuple[str, ...]
    seed: int


class Law(NamedTuple):
    """A statement that holds for all combinations of levels of factors.

    Attributes
    ----------
    name : str
    factors : mapping of sequence of str
        The levels of each factor by its name, the plainest first.
    program : callable
        Returns the text of the program of a draw.
    possible : callable
        Whether levels, of all factors or of some, go together. What a library refuses is possible,
        and the program asserts that it is refused.
    events : sequence of str
        What may happen between the calls of a program.
    length : int
        The most events of a program.
    alone : bool
        Whether programs may end the process, so that tests run them in one of their own.
    further : int
        How many draws an ordinary run tries besides those that cover all pairs.
    not_idle : callable
        Asserts, after an ordinary run, that its programs have tried something.
    """

    name: str
    factors: Mapping[str, Sequence[str]]
    program: Callable[[Draw], str]
    possible: Callable[[Mapping[str, str]], bool] = lambda levels: True
    events: Sequence[str] = ()
    length: int = 0
    alone: bool = False
    further: int = 50
    not_idle: Callable[[], None] = lambda: None


def can_be_tried(name: str) -> bool:
    """Whether all modules are here that a law needs."""
    return all(map(find_spec, NEEDS.get(name, ())))


def found(name: str) -> Law:
    """Return a law by its name."""
    law: Law = import_module(f"laws.{name}").LAW
    return law


# ---- draws


def _events(law: Law, random: np.random.Generator) -> tuple[str, ...]:
    if not law.events:
        return ()
    n = int(random.integers(law.length + 1))
    return tuple(law.events[k] for k in random.integers(len(law.events), size=n))


def drawn(law: Law, random: np.random.Generator) -> Draw:
    """Return a draw whose levels are independent, as far as they go together.

    The first factor is what the law is about, and is drawn first: each of its levels is as likely.
    """
    first, *others = law.factors
    while True:
        levels: dict[str, str] = {}
        for name in [first, *map(str, random.permutation(others))]:
            fitting = [v for v in law.factors[name] if law.possible({**levels, name: v})]
            if not fitting:
                break
            levels[name] = fitting[int(random.integers(len(fitting)))]
        else:
            break
    in_order = {name: levels[name] for name in law.factors}
    return Draw(in_order, _events(law, random), int(random.integers(2**31)))


@cache
def _covering_levels(name: str) -> list[dict[str, str]]:
    """Return levels of all factors that cover each pair that goes together with others."""
    law, random = found(name), Random(0)
    missing = dict.fromkeys(all_pairs(law))  # in order
    cases = []
    while missing:
        pair = next(iter(missing))
        case = _grown(law, dict(pair), missing, random)
        if case is None:  # it goes together with nothing
            del missing[pair]
            continue
        for covered in combinations(case.items(), 2):
            missing.pop(covered, None)
        cases.append(case)
    return cases


def all_pairs(law: Law) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Return the pairs of levels that may go together."""
    for first, second in combinations(law.factors, 2):
        for a, b in product(law.factors[first], law.factors[second]):
            if law.possible({first: a, second: b}):
                yield (first, a), (second, b)


def _grown(
    law: Law, pair: dict[str, str], missing: Mapping[Any, None], random: Random
) -> dict[str, str] | None:
    """Return levels of all factors with those of a pair; None if twenty tries find none."""
    order = {name: k for k, name in enumerate(law.factors)}

    def gain(case: dict[str, str], name: str, level: str) -> int:
        own = name, level
        return sum(
            ((other, own) if order[other[0]] < order[name] else (own, other)) in missing
            for other in case.items()
        )

    for _ in range(20):
        case = dict(pair)
        for name in random.sample([*law.factors], len(law.factors)):
            if name in case:
                continue
            tried = random.sample([*law.factors[name]], len(law.factors[name]))
            fitting = [level for level in tried if law.possible({**case, name: level})]
            if not fitting:
                break
            case[name] = max(fitting[:4], key=lambda level: gain(case, name, level))
        else:
            return {name: case[name] for name in law.factors}
    return None


def covering(law: Law, seed: int) -> Iterator[Draw]:
    """Return draws that cover all possible pairs of levels; events and numbers are random."""
    random = np.random.default_rng([seed, len(law.name)])
    for levels in _covering_levels(law.name):
        yield Draw(levels, _events(law, random), int(random.integers(2**31)))


def pairs(draw: Draw) -> set[tuple[tuple[str, str], tuple[str, str]]]:
    """Return the pairs of levels that a draw covers."""
    return set(combinations(draw.levels.items(), 2))


# ---- running


def run(program: str) -> None:
    """Run a program; it raises if its law is broken."""
    name = "<program>"
    linecache.cache[name] = (len(program), None, program.splitlines(keepends=True), name)
    exec(compile(program, name, "exec"), {"__name__": "__main__"})


def first_that_fails(programs: Sequence[str], patience: float = 600.0) -> tuple[int, str] | None:
    """Run programs in one process; return the first that fails or ends it, and what was said."""
    command = [sys.executable, "-c", _EACH]
    text = json.dumps([*programs])
    done = subprocess.run(
        command, cwd=TESTS, input=text, capture_output=True, text=True, timeout=patience
    )
    if done.returncode == 0:
        return None
    return int(done.stdout.split()[-1]), f"ended with {done.returncode}: {done.stderr[-4000:]}"


#: Runs the programs that it reads, and says which one it begins.
_EACH = """
import faulthandler, json, sys
from laws.law import run
faulthandler.enable()
for number, program in enumerate(json.load(sys.stdin)):
    print(number, flush=True)
    run(program)
"""


def _fails_alone(program: str, patience: float) -> bool:
    """Whether a program fails, dies or hangs in a process of its own."""
    command = [sys.executable, "-c", program]
    try:
        done = subprocess.run(command, cwd=TESTS, capture_output=True, timeout=patience)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def shrunk(law: Law, draw: Draw, tries: int = 60, patience: float = 30.0) -> Draw:
    """Return a draw with fewer events and plainer levels whose program fails, too.

    Each try is a process of its own, since a program may be the end of it.
    """
    left = tries

    def fails(changed: Draw) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and _fails_alone(law.program(changed), patience)

    size = len(draw.events)
    while size:
        for start in range(0, len(draw.events), size):
            fewer = draw._replace(events=draw.events[:start] + draw.events[start + size :])
            if len(fewer.events) < len(draw.events) and fails(fewer):
                draw = fewer
                break
        else:
            size //= 2
    for name, levels in law.factors.items():
        for plainer in levels[: list(levels).index(draw.levels[name])]:
            changed = draw._replace(levels={**draw.levels, name: plainer})
            if law.possible(changed.levels) and fails(changed):
                draw = changed
                break
    return draw
