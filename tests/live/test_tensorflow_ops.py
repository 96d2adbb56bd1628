"""Both packages against TensorFlow itself: random steps of every rule, and refused calls.

Skipped where TensorFlow is not installed, unless TFOPT_REQUIRE_TENSORFLOW is set.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from golden.compare import Case, check
from golden.differences import DIFFERENCES, Difference
from golden.reasons import OTHER_ORDER
from golden.samples import ordinary, special
from golden.with_tensorflow import apply, has_sparse, required_tensorflow

import tfopt
from tfopt.rules import DTYPES, OPS, RULES, Rule, checks_of

tf = required_tensorflow()

CASES = 60  # of each rule, dtype and kind
BY_NAME = {rule.name: rule for rule in RULES}
KINDS = [
    (rule, kind)
    for rule in RULES
    if rule.name in OPS
    for kind in ("dense", "sparse")[: 1 + has_sparse(rule)]
]
DENSE_SHAPES = ((), (1,), (3,), (8,), (37,), (64,), (0,), (4, 5), (2, 3, 4), (3, 0))
ROW_SHAPES = ((), (1,), (1, 1), (2,), (9,), (16,), (2, 3))
POWERS = (-0.5, -0.5, -0.75, -0.3, -1.0, 0.0)

each_kind = pytest.mark.parametrize(
    ("rule", "kind"), KINDS, ids=[f"{rule.name}-{kind}" for rule, kind in KINDS]
)


def draw_hypers(random: np.random.Generator, rule: Rule, kind: str) -> dict[str, float]:
    """Return hyperparameters, now and then odd ones, but where order makes a difference."""
    odd = random.uniform() < 0.2 and not (kind == "sparse" and rule.name in OTHER_ORDER)
    usual = [0.001, 0.1, 0.5, 0.9, 1.0, 1.5]
    values = [*usual, 0.0, -0.5, 1e30, float("inf"), float("nan")] if odd else usual
    hypers = {name: float(random.choice(values)) for name in rule.hypers}
    for name in ("l1", "l2", "l2_shrinkage", "momentum"):
        if name in hypers and random.uniform() < 0.5:
            hypers[name] = 0.0
    if not odd and "momentum" in hypers:  # above 1 overflow would depend on the order
        hypers["momentum"] = min(hypers["momentum"], 1.0)
    if "lr_power" in hypers:
        hypers["lr_power"] = float(random.choice(POWERS))
    if "global_step" in hypers:
        hypers["global_step"] = int(random.choice([1, 2, 3, 1000]))
    checks = checks_of(rule)
    if checks.limits and (kind == "sparse" or checks.limited != "rows"):
        for name, limit in checks.limits.items():
            value = abs(hypers[name])
            hypers[name] = -value if limit == "at most 0" else value
        hypers["lr"] = 0.1 if not 0 < hypers["lr"] < np.inf else hypers["lr"]
        hypers |= {k: 0.5 for k in checks.limits if np.isnan(hypers[k])}
    return hypers


def draw(rule: Rule, dtype: str, kind: str, number: int) -> Case:
    random = np.random.default_rng(zlib.crc32(f"{rule.name} {dtype} {kind} {number}".encode()))
    hypers = draw_hypers(random, rule, kind)
    flags = {flag: bool(random.integers(2)) for flag in rule.flags}
    indices = None
    if kind == "dense":
        shape = rows = DENSE_SHAPES[random.integers(len(DENSE_SHAPES))]
    else:
        n, inner = int(random.integers(1, 8)), ROW_SHAPES[random.integers(len(ROW_SHAPES))]
        indices = random.integers(n, size=random.integers(12), dtype=random.choice(["i4", "i8"]))
        shape, rows = (n, *inner), (indices.size, *inner)
    values = special if random.uniform() < 0.4 else ordinary
    old = [values(random, shape, dtype) for _ in rule.operands[:-1]]
    if random.uniform() < 0.7:
        old[1:] = [np.abs(slot) for slot in old[1:]]
    return Case(rule, hypers, flags, old, values(random, rows, dtype), indices, f"case {number}")


@cache
def drawn(rule_name: str, dtype: str, kind: str) -> list[tuple[Case, list[np.ndarray]]]:
    """Return cases with TensorFlow's answers."""
    cases = [draw(BY_NAME[rule_name], dtype, kind, number) for number in range(CASES)]
    return [(c, apply(c.rule, c.old, c.grad, c.hypers, c.flags, c.indices)) for c in cases]


@pytest.mark.parametrize("dtype", DTYPES)
@each_kind
def test_random_steps(impl: ModuleType, rule: Rule, kind: str, dtype: str):
    for case, answer in drawn(rule.name, dtype, kind):
        check(case, case.apply(impl), answer)


# ---- where the answers differ on purpose


def theirs(case: Difference) -> list[float]:
    state, grad, indices = case.arrays()
    rule = BY_NAME[case.rule]
    hypers = {name: case.options[name] for name in rule.hypers}
    flags = {name: case.options[name] for name in rule.flags}
    return [float(array[-1]) for array in apply(rule, state, grad, hypers, flags, indices)]


@pytest.mark.parametrize("case", DIFFERENCES, ids=lambda case: case.name)
def test_difference(case: Difference):
    np.testing.assert_array_equal(theirs(case), case.theirs)


def test_full_vectors_flush_denormals():
    """Of these elements some make a full vector, and are as tfopt's; the last one is left over."""
    case = next(c for c in DIFFERENCES if c.name == "power of a negative denormal")
    assert theirs(case._replace(elements=16)) == case.ours


# ---- refused calls

Arguments = dict[str, Any]


def another_shape(name: str) -> Callable[[Rule, Arguments], None]:
    def spoil(rule: Rule, given: Arguments) -> None:
        position = rule.operands.index(name)
        given["arrays"][position] = np.ones((4, 2), given["arrays"][0].dtype)

    return spoil


def no_scalar(name: str) -> Callable[[Rule, Arguments], None]:
    def spoil(rule: Rule, given: Arguments) -> None:
        given["hypers"][name] = np.array([given["hypers"][name]])

    return spoil


def index(value: int) -> Callable[[Rule, Arguments], None]:
    def spoil(rule: Rule, given: Arguments) -> None:
        given["indices"][1] = value

    return spoil


def replace(name: str, change: Callable[[Any], Any]) -> Callable[[Rule, Arguments], None]:
    def spoil(rule: Rule, given: Arguments) -> None:
        if name == "grad":
            given["arrays"][-1] = change(given["arrays"][-1])
        elif name == "variables":
            given["arrays"][:-1] = map(change, given["arrays"][:-1])
        else:
            given[name] = change(given[name])

    return spoil


SPARSE_FAULTS = {
    "index past the end": index(4),
    "index far past the end": index(2**31 - 1),
    "negative index": index(-1),
    "indices of rank 2": replace("indices", lambda indices: indices.reshape(1, -1)),
    "indices of rank 0": replace("indices", lambda indices: indices[0]),
    "indices of int16": replace("indices", lambda indices: indices.astype(np.int16)),
    "indices of float64": replace("indices", lambda indices: indices.astype(np.float64)),
    "fewer rows than indices": replace("grad", lambda grad: grad[:-1]),
    "more rows than indices": replace("grad", lambda grad: np.repeat(grad, 2, axis=0)),
    "rows too short": replace("grad", lambda grad: grad[:, :-1]),
    "one element for a row": replace("grad", lambda grad: grad[:, :1]),
    "gradient of another dtype": replace("grad", lambda grad: grad.astype(np.float64)),
    "variables of rank 0": replace("variables", lambda array: array[0, 0, ...]),
}


def faults(rule: Rule, kind: str) -> dict[str, Callable[[Rule, Arguments], None]]:
    found = {f"{name} of another shape": another_shape(name) for name in rule.operands[1:-1]}
    found |= {f"{name} no scalar": no_scalar(name) for name in rule.hypers}
    if kind == "sparse":
        return found | SPARSE_FAULTS
    return found | {
        "gradient of another shape": another_shape(rule.grad),
        "gradient to be broadcast": replace("grad", lambda grad: grad[:1]),
        "gradient of rank 0": replace("grad", lambda grad: grad[0, 0, ...]),
        "gradient of another dtype": replace("grad", lambda grad: grad.astype(np.float64)),
    }


#: What TensorFlow's dense kernels do not look at.
UNCHECKED = {
    "adadelta": ("accum_update of another shape",),
    "adam_with_amsgrad": ("vhat of another shape",),
    "add_sign": ("sign_decay no scalar",),
    "power_sign": ("sign_decay no scalar",),
}
FAULTY = [(rule, kind, fault) for rule, kind in KINDS for fault in faults(rule, kind)]


@pytest.mark.parametrize(
    ("rule", "kind", "fault"), FAULTY, ids=[f"{r.name}-{kind}-{f}" for r, kind, f in FAULTY]
)
def test_refused(rule: Rule, kind: str, fault: str):
    arrays = [np.ones((4, 3), np.float32) for _ in rule.operands]
    given: Arguments = {"arrays": arrays, "hypers": dict.fromkeys(rule.hypers, 0.5)}
    if "lr_power" in rule.hypers:
        given["hypers"]["lr_power"] = -0.5
    if "global_step" in rule.hypers:
        given["hypers"]["global_step"] = 1
    given["indices"] = None
    if kind == "sparse":
        given["indices"] = np.array([2, 0, 2])
        arrays[-1] = arrays[-1][:3]
    faults(rule, kind)[fault](rule, given)
    *variables, grad = given["arrays"]
    if fault not in UNCHECKED.get(rule.name, ()):  # TensorFlow would read outside its memory
        with pytest.raises(tf.errors.InvalidArgumentError):
            apply(rule, variables, grad, given["hypers"], rule.flags, given["indices"])
    before = [array.copy() for array in variables]
    function = getattr(tfopt.training_ops, f"apply_{rule.name}")
    with pytest.raises(tfopt.InvalidArgumentError):
        function(*variables, grad, **given["hypers"], indices=given["indices"])
    for name, array, old in zip(rule.operands, variables, before, strict=False):
        assert (array == old).all(), f"a refused call has changed {name}"
