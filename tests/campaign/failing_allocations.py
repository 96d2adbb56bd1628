"""Each allocation of a call fails in turn: a MemoryError and nothing changed, or the whole call."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common.cases import arrays_for, lay_out, ordinary_hypers
from common.updates import update

import tfopt
from campaign.check import Case, Check
from campaign.failing import Arms, build
from tfopt.io import read_libsvm
from tfopt.optimizers import Adam
from tfopt.rules import RULES

#: Smaller allocations are Python's locks, of whose failures it makes a RuntimeError; those of its
#: small objects are not libc's: `failing_steps` lets them fail.
SIZE = 64
MANY = 300
#: Makes arguments: what the call may change, and the call.
Make = Callable[[], tuple[list[np.ndarray], Callable[[], Any]]]


def _rule(name: str, kind: str) -> tuple[list[np.ndarray], Callable[[], Any]]:
    rule = next(rule for rule in RULES if rule.name == name)
    operands = arrays_for(rule, (90, 7), "f4")
    hypers = ordinary_hypers(rule)
    if kind == "list":
        lists = [[array] for array in operands]
        function = getattr(tfopt.training_ops, f"apply_{name}")
        return operands[:-1], lambda: function(*lists, **hypers)
    options = {"indices": np.arange(90) // 2, "duplicates": "sum"} if kind == "rows" else {}
    strided = [lay_out(array, "strided") for array in operands]
    return strided[:-1], lambda: update(tfopt, name, *strided, **hypers, **options)


def _clip() -> tuple[list[np.ndarray], Callable[[], Any]]:
    arrays = [np.ones((50, 9)), np.ones(3000)]
    return arrays, lambda: tfopt.clip_by_global_norm(arrays, 1.0, out=arrays)


def _text() -> tuple[list[np.ndarray], Callable[[], Any]]:
    text = b"1 1:0.5 7:2\n-1 3:1e-3\n" * 500
    return [], lambda: read_libsvm(io.BytesIO(text))


def _step() -> tuple[list[np.ndarray], Callable[[], Any]]:
    optimizer, w = Adam(0.5, global_clipnorm=1.0), np.ones((60, 50))
    optimizer.step(w, w.copy())
    slots = [slot.numpy() for slot in optimizer.weights[1:]]
    rows = tfopt.IndexedSlices(np.ones((3, 50)), [5, 1, 5])
    return [w, *slots], lambda: optimizer.step(w, rows)


MAKERS: dict[str, Make] = {
    **{
        f"{r.name} {k}": partial(_rule, r.name, k)
        for r in RULES
        for k in ("rows", "dense", "list")
        if k != "rows" or r.reduction != "tensor"
    },
    "clip_by_global_norm": _clip,
    "read_libsvm": _text,
    "a sparse, clipped step": _step,
}


def _sweep(make: Make, arms: Arms) -> int:
    """Let the first allocation fail, then the second, until none does; return how many did."""
    arrays, call = make()
    call()
    after = [array.tobytes() for array in arrays]
    for at in range(MANY):
        arrays, call = make()
        before = [array.tobytes() for array in arrays]
        raised = False
        arms.arm("malloc", at, size=SIZE)
        try:
            call()
        except (MemoryError, SystemError):  # NumPy makes a SystemError of some
            raised = True
        failed = arms.disarm()
        found = [array.tobytes() for array in arrays]
        assert found in (before, after), f"half a call after allocation {at}"
        assert raised or found == after, f"nothing done, and nothing said, after allocation {at}"
        if not failed:
            return at
    raise AssertionError(f"more than {MANY} allocations")


def _child(library: Path, names: list[str]) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "campaign.failing_allocations", *names],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.returncode} {done.stdout} {done.stderr[-1500:]}"
    return sum(int(line.rsplit(" ", 1)[1]) for line in done.stdout.splitlines())


def _cases(seed: int) -> Iterator[Case]:
    folder = tempfile.TemporaryDirectory()
    library, names = build(Path(folder.name)), [*MAKERS]
    if library is not None:
        for start in range(0, len(names), 20):
            yield partial(_child, library, names[start : start + 20])
    folder.cleanup()


CHECK = Check(_cases, "A rule, clipping, reading or a step in which any one allocation fails")

if __name__ == "__main__":
    weapon = Arms()
    for name in sys.argv[1:]:
        print(name, end=" ", flush=True)
        print(_sweep(MAKERS[name], weapon), flush=True)
