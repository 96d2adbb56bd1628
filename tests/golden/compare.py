"""The tolerances of comparisons with TensorFlow, and the comparison.

Bit for bit, unless there is a reason (module `reasons`). Then within a relative error and, where a
power nearly cancels, within what rounding that power can do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from common.updates import update
from golden.reasons import reasons

import tfopt_ref
from tfopt.rules import Rule

__all__ = ["RELATIVE", "Case", "check", "check_array"]

#: Where bits may differ: the error relative to the larger of an element's old and new magnitude.
RELATIVE = {"float32": 1e-5, "float64": 1e-12}


class Case(NamedTuple):
    """One step of one rule."""

    rule: Rule
    hypers: Mapping[str, float]
    flags: Mapping[str, bool]
    old: Sequence[np.ndarray]  # the variable and its slots before the step
    grad: np.ndarray
    indices: np.ndarray | None = None
    label: str = ""

    @property
    def dtype(self) -> str:
        return self.old[0].dtype.name

    @property
    def reasons(self) -> dict[str, list[str]]:
        """Why the bits of the variable and of each slot may differ; empty if they must not."""
        shape = self.old[0].shape
        return reasons(
            self.rule, self.hypers, self.flags, self.dtype, shape, self.indices is not None
        )

    def apply(self, impl: Any) -> list[np.ndarray]:
        """Return the variable and its slots after the step."""
        state = [np.array(old) for old in self.old]
        options = {**self.hypers, **self.flags, "indices": self.indices}
        update(impl, self.rule.name, *state, self.grad, **options)
        return state

    def __str__(self) -> str:
        options = ", ".join(f"{k}={v}" for k, v in {**self.hypers, **self.flags}.items())
        kind = "dense" if self.indices is None else "sparse"
        return (
            f"{self.rule.name}({options}) {kind} {self.dtype} {list(self.old[0].shape)} "
            f"{self.label}"
        )


def check(case: Case, ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> None:
    """Compare the answers to a case, operand by operand."""
    found = case.reasons
    steps = single_steps(case) if any(found.values()) else []
    bounds = ftrl_bounds(case, steps) if steps and case.rule.name.startswith("ftrl") else {}
    # an intermediate result that is flushed in one order of operations and not in the other
    underflow = float(np.finfo(case.dtype).tiny) * max(1.0, abs(case.hypers.get("lr", 1.0)))
    for k, (own, tf) in enumerate(zip(ours, theirs, strict=True)):
        name, allowed = case.rule.operands[k], None
        if found[name]:
            scale = np.array(np.abs(tf), np.float64)
            for row, before, _ in steps:
                scale[row] = np.maximum(scale[row], np.abs(before[k]))
            with np.errstate(all="ignore"):
                allowed = RELATIVE[case.dtype] * scale + underflow * len(steps)
                allowed += bounds.get(name, 0.0)
        if name in bounds:
            own = np.where(power_of_denormal(case) | np.isinf(bounds[name]), tf, own)
        check_array(own, tf, allowed, f"{case} {name}", found[name])


def single_steps(case: Case) -> list[tuple[Any, list[np.ndarray], np.ndarray]]:
    """Return the rows in the order they are stepped, each with its state before and gradient."""
    if case.indices is None:
        return [(..., list(case.old), case.grad)]
    state = [np.array(old) for old in case.old]
    first = np.zeros(1, np.int32)
    steps = []
    for i, row in enumerate(case.indices):
        steps.append((row, [np.array(array[row]) for array in state], case.grad[i]))
        one = [array[row : row + 1] for array in state]
        options = {**case.hypers, **case.flags, "indices": first}
        update(tfopt_ref, case.rule.name, *one, case.grad[i : i + 1], **options)
    return steps


def check_array(
    ours: np.ndarray,
    theirs: np.ndarray,
    allowed: np.ndarray | None,
    what: str,
    why: Sequence[str] = (),
) -> None:
    """Compare arrays: NaNs and infinities in the same places, the rest within what is allowed.

    If nothing is allowed, bit for bit; the bits of a NaN do not count.
    """
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, what
    with np.errstate(all="ignore"):
        good = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        if allowed is None:
            good &= (np.signbit(ours) == np.signbit(theirs)) | np.isnan(theirs)
        else:
            difference = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
            good |= np.isfinite(ours) & np.isfinite(theirs) & (difference <= allowed)
    if good.all():
        return
    at = tuple(int(i) for i in np.argwhere(~good)[0])
    limit = "nothing" if allowed is None else f"{allowed[at]:.3g} for {'; '.join(why)}"
    raise AssertionError(
        f"{what}{list(at)} is {ours[at]!r} where TensorFlow has {theirs[at]!r}; allowed error: "
        f"{limit}; {np.count_nonzero(~good)} of {good.size} elements are wrong"
    )


def power_of_denormal(case: Case) -> np.ndarray:
    """Where TensorFlow's answer depends on an element's place; `differences` has ours.

    It flushes a denormal accum before it takes a power, but not in the elements left over after
    the last full vector.
    """
    accum = np.abs(case.old[1])
    return (accum > 0) & (accum < np.finfo(case.dtype).tiny)


def ftrl_bounds(case: Case, steps: Sequence[Any]) -> dict[str, np.ndarray]:
    """Return how far rounding a power may carry var and linear, besides the relative error.

    linear takes up the difference of two powers, times var / lr. Where they nearly cancel, four
    units in the last place of the power count, however small the difference is. var then has the
    error of linear over the curvature; and where an index repeats, both go into the next step.
    """
    shape, hypers = case.old[0].shape, case.hypers
    error_var, error_linear = np.zeros(shape), np.zeros(shape)
    scaled = case.flags["multiply_linear_by_lr"]
    lr = np.abs(np.float64(1 if scaled else hypers["lr"]))
    ridge = np.float64(2 * hypers["l2"] * (hypers["lr"] if scaled else 1))
    with np.errstate(all="ignore"):
        for row, (var, accum, _), grad in steps:
            old = accum.astype(np.float64) ** -hypers["lr_power"]
            new = (accum + grad * grad).astype(np.float64) ** -hypers["lr_power"]
            larger = np.maximum(np.abs(old), np.abs(new)).astype(case.dtype)
            unit = 4 * np.spacing(larger).astype(np.float64)
            growth = np.abs(new - old)
            # infinity times the difference is known if the difference certainly is not zero
            known = np.isinf(var) & (growth > unit)
            error_linear[row] += growth / lr * error_var[row]
            error_linear[row] += np.where(known, 0, unit * np.abs(var) / lr)
            error_var[row] = error_linear[row] / np.abs(new / lr + ridge)
    return {
        "var": np.nan_to_num(error_var, nan=0, posinf=np.inf),
        "linear": np.nan_to_num(error_linear, nan=0, posinf=np.inf),
    }
