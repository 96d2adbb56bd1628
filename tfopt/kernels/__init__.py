"""The compiled kernels, and the choice of the instruction set they run on.

``cpu`` names the set in use, ``available`` those this machine can run. The environment variable
``TFOPT_CPU`` (``baseline`` or ``v3``) forces one. With ``TFOPT_BACKEND=reference`` the rules are
not the compiled loops but the formulas of the specification, :mod:`tfopt_ref`.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec

from tfopt.rules import RULES, Rule

if find_spec("tfopt.kernels.runtime") is None or find_spec("tfopt.training_ops") is None:
    raise ImportError(
        "tfopt's kernels are not built in this source tree: run `pip install -e .` in it, "
        "or leave it to use an installed tfopt",
        name="tfopt",  # by which `python -m tfopt` knows to print this line and no traceback
    )

from tfopt.kernels import calls, clip, groups, layout, merge, norms, runtime, together, training

__all__ = [
    "available",
    "backend",
    "calls",
    "clip",
    "cpu",
    "groups",
    "kernels",
    "merge",
    "norms",
    "runtime",
    "together",
    "training",
]

#: The instruction sets this build holds and this machine can run, the best one last.
available: tuple[str, ...] = ("baseline",)
if runtime.has_v3() and find_spec("tfopt.kernels.steps_v3"):
    available += ("v3",)


def _choose() -> str:
    """Return the instruction set to use: the one TFOPT_CPU names, or the best."""
    wanted = os.environ.get("TFOPT_CPU") or available[-1]
    if wanted not in available:
        raise ImportError(f"TFOPT_CPU={wanted}: this machine can run {', '.join(available)}")
    return wanted


def _choose_backend() -> str:
    """Return whose arithmetic the rules have: the kernels', or that TFOPT_BACKEND names."""
    wanted = os.environ.get("TFOPT_BACKEND") or "kernels"
    if wanted not in ("kernels", "reference"):
        raise ImportError(f"TFOPT_BACKEND={wanted}: it must be kernels or reference")
    return wanted


def _kernels(table: tuple[Rule, ...]) -> dict[str, calls.Kernel]:
    """Return a kernel for each row; its place is where its first variant's steps are."""
    made, first = {}, 0
    for rule in table:
        made[rule.name] = calls.Kernel(rule, first)
        first += len(rule.variants)
    return made


cpu = _choose()
backend = _choose_backend()
_compiled = import_module(f"tfopt.kernels.steps_{cpu}")
calls.use_steps(_compiled.capsule)
norms.use_sums(_compiled.sums_capsule)
together.use_sums(_compiled.sums_capsule)
layout.use_halves(_compiled.halves_capsule)
if backend == "reference":
    # kept, since its steps are called as long as the process runs
    _reference = import_module("tfopt_ref.backend").ReferenceBackend(RULES)
    calls.call_steps(_reference.capsule)
kernels: dict[str, calls.Kernel] = _kernels(RULES)
