"""Faults of a call, of which the first that TensorFlow looks for is the one it reports.

Each fault spoils the arguments of a ``Resource*`` op in its own way, so that the message of a call
with two of them tells which was seen first. Nothing here needs TensorFlow.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from graphlib import TopologicalSorter
from itertools import combinations
from typing import Any

import numpy as np

from tfopt.rules import FORMS, Rule, checks_of

__all__ = ["OPS", "Arguments", "faults", "order", "recognize", "spoiled"]

ROWS, WIDTH, N = 4, 3, 2
Arguments = dict[str, Any]

#: The rule of each op.
OPS: dict[str, Rule] = {form.name: form.rule for form in FORMS if not form.ref}
#: A value outside of each limit.
OUTSIDE = {
    "greater than 0": 0.0,
    "at least 0": -1.0,
    "at most 0": 1.0,
    "greater than 0, or 0 with the first flag": -1.0,
}
#: What TensorFlow's kernels never look at.
UNCHECKED = {
    ("ResourceApplyAdadelta", "accum_update"),
    ("ResourceApplyAdamWithAmsgrad", "vhat"),
    ("ResourceApplyAddSign", "sign_decay"),
    ("ResourceApplyPowerSign", "sign_decay"),
}
#: Texts, TensorFlow's or tfopt's, of what only rows are checked for.
TEXTS = {
    "rank": "var must be at least 1 dimensional",
    "indices": "indices must be one-dimensional",
    "columns": "must match in dimension",
    "rows": "must be the same size as indices in the first dimension",
    "inner": "Inner dimension should be greater than zero|rows of var must not be empty",
    "range": "out of range|is not in ",
}


def _is_sparse(op: str) -> bool:
    return "Sparse" in op


def _grad(op: str) -> str:
    return "grad" if _is_sparse(op) else OPS[op].grad


def faults(op: str) -> list[str]:
    """Return the names of the faults a call of an op can have."""
    rule = OPS[op]
    checks = checks_of(rule)
    limits = checks.limits if _is_sparse(op) or checks.limited != "rows" else {}
    own = list(TEXTS) if _is_sparse(op) else ["grad"]
    if "inner" not in checks.rows and "inner" in own:
        own.remove("inner")
    names = [*rule.slots, *rule.hypers, *(f"value of {hyper}" for hyper in limits), *own]
    return [name for name in names if (op, name) not in UNCHECKED]


def pairs(op: str) -> list[tuple[str, str]]:
    """Return the pairs of faults that one call can have."""

    def both(x: str, y: str) -> bool:
        return {x, y} != {"rank", "inner"} and x.split()[-1] != y.split()[-1]

    return [(x, y) for x, y in combinations(faults(op), 2) if both(x, y)]


def spoiled(op: str, *chosen: str) -> Arguments:
    """Return the arguments of a call with these faults."""
    rule = OPS[op]
    shape = (ROWS, WIDTH)
    if "rank" in chosen:
        shape = ()
    elif "inner" in chosen:
        shape = (ROWS, 0)
    arguments: Arguments = {
        name: np.ones((9 + k,) if name in chosen else shape, np.float32)
        for k, name in enumerate(("var", *rule.slots))
    }
    for hyper in rule.hypers:
        value = 0.0 if hyper == "lr_power" else 1.0
        if f"value of {hyper}" in chosen:
            value = OUTSIDE[checks_of(rule).limits[hyper]]
        dtype = np.int64 if hyper == "global_step" else np.float32
        arguments[hyper] = np.array([value] if hyper in chosen else value, dtype)
    if _is_sparse(op):
        n, width = (N + 1 if "rows" in chosen else N), shape[1] if shape else WIDTH
        arguments["grad"] = np.ones((n, 5 if "columns" in chosen else width), np.float32)
        indices = np.array([0, ROWS if "range" in chosen else 1])
        arguments["indices"] = indices[:, None] if "indices" in chosen else indices
    else:
        arguments[rule.grad] = np.ones((5,) if "grad" in chosen else shape, np.float32)
    return arguments


def order(op: str, seen: Callable[[str, Arguments], str]) -> list[str]:
    """Return the faults in the order in which they are looked for.

    `seen` makes a call and returns the message of its error.
    """
    before: dict[str, list[str]] = {name: [] for name in faults(op)}
    for pair in pairs(op):
        first = recognize(op, seen(op, spoiled(op, *pair)))
        assert first in pair, (op, pair, first)
        before[pair[pair[0] == first]].append(first)
    return [*TopologicalSorter(before).static_order()]  # a CycleError if there is none


def recognize(op: str, message: str) -> str:
    """Return the fault that a message reports, TensorFlow's or tfopt's."""
    rule = OPS[op]
    for name, text in TEXTS.items():
        if re.search(text, message):
            return name
    if same := re.search(r"var and (\w+) do not have the same shape:? ?\[.*?\] ?\[(\d*)", message):
        name, length = same.groups()
        if name in (*rule.slots, _grad(op)):
            return "grad" if name == _grad(op) else name
        return rule.slots[int(length) - 10]  # TensorFlow says something else than the argument
    hyper = _hyper(rule, message)
    return hyper if "[1]" in message else f"value of {hyper}"


def _hyper(rule: Rule, message: str) -> str:
    spoken = re.search(
        r"(l1|l2|l2 shrinkage) regularization strength is not|(\w+) (is not|must be)", message
    )
    assert spoken, message
    name = (spoken[1] or spoken[2]).replace(" ", "_")
    return "alpha" if name == "lr" and "lr" not in rule.hypers else name
