"""Threads that share an optimizer without locks may lose updates, but no thread crashes.

Two threads take steps of one optimizer at once, with rows of any number. No byte outside of the
variable changes, and no step raises but for what the other thread does to its slots.
"""

from __future__ import annotations

from collections.abc import Mapping

from common.optimizer_arguments import RULES

from laws.law import Draw, Law
from laws.training import OPTIONS, WRAPPED, accepted, made

__all__ = ["LAW"]

FACTORS: dict[str, tuple[str, ...]] = {
    "optimizer": RULES,
    "wrapper": tuple(WRAPPED),
    "outer": ("alone",),
    "sparse": tuple(OPTIONS["sparse"]),
    "clip": tuple(OPTIONS["clip"]),
    "storage": ("as the variable", "float32"),
    "decay": ("none",),
    "dtype": ("float64", "float32", "float16"),
    "gradients": ("rows", "dense", "either"),
    "columns": ("4", "1", "33"),
    "observes": ("False", "True"),
}


def _possible(levels: Mapping[str, str]) -> bool:
    if levels.get("wrapper") == "GradientAccumulation" and levels.get("gradients") == "either":
        return False  # all batches bring the same variables, alike
    with_plain = {**{name: levels[0] for name, levels in FACTORS.items()}, **levels}
    return "optimizer" not in levels or accepted(made(with_plain), with_plain["dtype"])


def _program(draw: Draw) -> str:
    levels = draw.levels
    kinds = {"rows": (True,), "dense": (False,), "either": (True, False)}[levels["gradients"]]
    return f"""\
import sys
import threading
import warnings

import numpy as np

import tfopt
from laws.training_run import innermost
from tfopt.optimizers import *

warnings.simplefilter("ignore")
sys.setswitchinterval(1e-6)
memory = np.full((502, {levels["columns"]}), 7, {levels["dtype"]!r})
w = tfopt.Variable(memory[1:-1], "w")
optimizer = {made(levels)}
if {levels["observes"]} and hasattr(innermost(optimizer), "observe"):
    innermost(optimizer).observe = True
raised = []


def train(number):
    random = np.random.default_rng([{draw.seed}, number])
    for step in range(12):
        n = int(random.integers(1, 1500))
        if {kinds}[step % {len(kinds)}]:
            values = random.standard_normal((n, {levels["columns"]})).astype(w.dtype)
            gradient = tfopt.IndexedSlices(values, random.integers(0, 500, n))
        else:
            gradient = random.standard_normal(w.shape).astype(w.dtype)
        try:
            optimizer.apply_gradients([(gradient, w)])
        except (tfopt.InvalidArgumentError, KeyError):
            pass  # the other thread withdraws the slots of a first step that is refused
        except Exception as error:
            raised.append(error)


threads = [threading.Thread(target=train, args=(k,)) for k in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not raised, raised[0]
assert (memory[[0, -1]] == 7).all(), "written outside of the variable"
"""


LAW = Law("threads", FACTORS, _program, _possible, alone=True)
