"""Forks after parallel regions, from threads, and nested: children compute the same, and end."""

from __future__ import annotations

import os
import threading
from time import monotonic, sleep

import numpy as np
from common.cases import arrays_for, ordinary_hypers
from common.updates import update

import tfopt
from campaign.calls import one
from campaign.check import drawn
from tfopt.rules import RULES


def _digest(name: str) -> bytes:
    """Step 40 000 elements, enough for two threads, and return their bytes."""
    rule = next(rule for rule in RULES if rule.name == name)
    operands = arrays_for(rule, (400, 100), "f4")
    update(tfopt, name, *operands, **ordinary_hypers(rule))
    if rule.reduction != "tensor":
        ids = np.arange(400)[::-1] // 2
        update(tfopt, name, *operands, **ordinary_hypers(rule), indices=ids, duplicates="sum")
    return b"".join(operand.tobytes() for operand in operands)


def _child(name: str, expected: bytes, depth: int) -> int:
    """Compare in a forked process, and in one forked by it; return the exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            same = _digest(name) == expected
            code = 0 if same and (depth == 0 or _child(name, expected, depth - 1) == 0) else 2
        finally:
            os._exit(code)
    end = monotonic() + 5
    while monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        sleep(0.0005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return 99


def _case(random: np.random.Generator) -> int:
    """A fork beside running kernels, perhaps nested: has the same bits within five seconds."""
    name = one(random, RULES).name
    tfopt.threads.set_num_threads(int(random.integers(1, 4)))
    expected, depth = _digest(name), int(random.integers(0, 3))
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            _digest(name)

    others = [threading.Thread(target=busy) for _ in range(int(random.integers(0, 3)))]
    for thread in others:
        thread.start()
    try:
        for _ in range(4):
            code = _child(name, expected, depth)
            assert code == 0, f"{name}: a child ended with {code}, beside {len(others)} threads"
    finally:
        stop.set()
        for thread in others:
            thread.join()
    assert _digest(name) == expected
    return 4


CHECK = drawn("forks", _case)
