"""The compiled kernels, and the choice of their instruction set.

``cpu`` is the set in use, ``available`` the sets this machine supports. The environment variable
``TFOPT_CPU`` (``baseline``, ``v3`` or ``v4``) selects one. With ``TFOPT_BACKEND=reference`` rules
run the formulas of the reference implementation, :mod:`tfopt_ref`, instead of the compiled loops.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec

if find_spec("tfopt.kernels.platform.runtime") is None or find_spec("tfopt.training_ops") is None:
    raise ImportError(
        "tfopt's kernels are not built in this source tree: run `pip install -e .` in it, "
        "or leave it to use an installed tfopt",
        name="tfopt",  # tells `python -m tfopt` to print this line without a traceback
    )

from tfopt.kernels.arrays import layout
from tfopt.kernels.platform import runtime
from tfopt.kernels.reduce import norms
from tfopt.kernels.update import step_table
from tfopt.rules import RULES, Rule

__all__ = [
    "available",
    "backend",
    "cpu",
    "kernels",
]

#: The instruction sets that are in this build and supported by this machine, the best one last.
_SETS = {"baseline": True, "v3": runtime.has_v3(), "v4": runtime.has_v4()}
available: tuple[str, ...] = tuple(
    name for name, has in _SETS.items() if has and find_spec(f"tfopt.kernels.update.steps_{name}")
)
if not available:
    raise ImportError(
        "tfopt was built with TFOPT_NATIVE=1 on a machine with another processor: build it here",
        name="tfopt",
    )


def _choose() -> str:
    """Return the instruction set to use: that of TFOPT_CPU, or the best."""
    wanted = os.environ.get("TFOPT_CPU") or available[-1]
    if wanted not in available:
        raise ImportError(f"TFOPT_CPU={wanted}: this machine can run {', '.join(available)}")
    return wanted


def _choose_backend() -> str:
    """Return the backend of the rules: the kernels, or that of TFOPT_BACKEND."""
    wanted = os.environ.get("TFOPT_BACKEND") or "kernels"
    if wanted not in ("kernels", "reference"):
        raise ImportError(f"TFOPT_BACKEND={wanted}: it must be kernels or reference")
    return wanted


def _kernels(table: tuple[Rule, ...]) -> dict[str, step_table.Kernel]:
    """Return a kernel for each row; its position is that of its first variant's steps."""
    made, first = {}, 0
    for rule in table:
        made[rule.name] = step_table.Kernel(rule, first)
        first += len(rule.variants)
    return made


cpu = _choose()
backend = _choose_backend()
_compiled = import_module(f"tfopt.kernels.update.steps_{cpu}")
step_table.use_steps(_compiled.capsule)
norms.use_sums(_compiled.sums_capsule)
layout.use_halves(_compiled.halves_capsule)
if backend == "reference":
    # kept alive, because its steps are called as long as the process runs
    _reference = import_module("tfopt.kernels.reference").ReferenceBackend(RULES)
    step_table.call_steps(_reference.capsule)
kernels: dict[str, step_table.Kernel] = _kernels(RULES)
