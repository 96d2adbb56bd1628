"""Memory, objects and open files after thousands of calls, accepted and refused."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import product
from mmap import PAGESIZE
from pathlib import Path
from typing import Any

import numpy as np
from common.cases import arrays_for, ordinary_hypers
from common.step_cases import every_optimizer, gradients, params
from common.updates import update
from common.wrapper_cases import USERS, WRAPPERS

import tfopt
from campaign.check import Case, Check
from tfopt.rules import RULES

TIMES = 300
#: Of steps in wrappers, of which there are many kinds: one object of each time is too many.
SHORT = 60
#: Objects that caches of Python and NumPy may keep meanwhile; memory, in KiB: less than one of a
#: call's structures each time.
OBJECTS, MEMORY = 40, 512
#: How an optimizer in a wrapper steps: all variables or some, in a structure or as pairs.
WAYS = [f"{way} {use}" for way in ("tree", "pairs", "rows", "one") for use in ("idle", "busy")]


def _grown(call: Callable[[], Any], times: int) -> tuple[int, int, int]:
    """Return by how many blocks, KiB and open files the process has grown."""

    def state() -> tuple[int, int, int]:
        gc.collect()
        memory = int(Path("/proc/self/statm").read_text().split()[1]) * (PAGESIZE >> 10)
        return sys.getallocatedblocks(), memory, len(os.listdir("/proc/self/fd"))

    for _ in range(30):
        call()
    before = state()
    for _ in range(times):
        call()
    blocks, memory, files = (b - a for a, b in zip(before, state(), strict=True))
    return blocks, memory, files


def _steady(call: Callable[[], Any], times: int = TIMES) -> int:
    for _ in range(5):  # what is cached once, or what the allocator keeps, does not grow again
        blocks, memory, files = _grown(call, times)
        if blocks <= OBJECTS and memory <= MEMORY and files <= 0:
            return times
    raise AssertionError((blocks, memory, files))


def _rule(name: str) -> int:
    rule = next(rule for rule in RULES if rule.name == name)
    operands = arrays_for(rule, (30, 7), "f4")
    hypers = ordinary_hypers(rule)
    rows = {"indices": np.arange(30) // 2, "duplicates": "sum"}
    wrong = [*operands[:-1], operands[-1][:7]]

    def call() -> None:
        update(tfopt, name, *operands, **hypers)
        with suppress(tfopt.InvalidArgumentError):
            update(tfopt, name, *wrong, **hypers)
        if rule.reduction == "tensor":
            return
        update(tfopt, name, *operands, **hypers, **rows)
        with suppress(tfopt.InvalidArgumentError):
            update(tfopt, name, *operands, **hypers, indices=np.array([99]))

    return _steady(call)


def _optimizer(name: str) -> int:
    optimizer, variables = every_optimizer()[name](), params()
    grads = gradients(variables, 1)

    def call() -> None:
        optimizer.step(variables, grads)
        with suppress(tfopt.InvalidArgumentError):
            optimizer.step(variables, {**grads, "dense": np.ones((2, 2))})

    return _steady(call)


def around(name: str, wrapper: str, way: str) -> int:
    """Step an optimizer in a wrapper, which is idle or busy, in one of the ways to take a step."""
    case = {**WRAPPERS, **USERS}[wrapper]
    optimizer, variables = every_optimizer()[name](), params()
    outer = (case.busy if way.endswith("busy") else case.idle)(optimizer)
    grads = gradients(variables, 1)
    if way.startswith(("rows", "one")):
        variables, grads = {"table": variables["table"]}, {"table": grads["table"]}
    if way.startswith("one"):
        grads["table"] = np.ones_like(variables["table"])
    if way.startswith("tree"):
        return _steady(partial(outer.step, variables, grads), SHORT)
    pairs = [(grads[key], variables[key]) for key in variables]
    return _steady(partial(outer.apply_gradients, pairs), SHORT)


def _tape() -> int:
    w = tfopt.Variable(np.ones((5, 3)))

    def call() -> None:
        with tfopt.GradientTape() as tape:
            loss = np.mean(np.tanh(w @ np.ones((3, 2))) ** 2)
        tape.gradient(loss, w)

    return _steady(call)


def _cases(seed: int) -> Iterator[Case]:
    for rule in RULES:
        yield partial(_rule, rule.name)
    for name in every_optimizer():
        yield partial(_optimizer, name)
    alone = [name for name in every_optimizer() if name not in {**WRAPPERS, **USERS}]
    for name, wrapper, way in product(alone, {**WRAPPERS, **USERS}, WAYS):
        yield partial(around, name, wrapper, way)
    yield _tape


CHECK = Check(
    _cases,
    "Calls of every rule; steps of every optimizer, accepted and refused, and in every wrapper",
)
