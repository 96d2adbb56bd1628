"""A step of training: the effect of an optimizer and its wrappers on variables.

An optimizer is a dict of "class_name" and "config", as returned by `tfopt.optimizers.serialize`.
Its state is a dict; `first_state` returns the state before the first step. No function changes an
argument; a step returns new variables and a new state.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfopt_ref.arithmetic import computed, dtype_named, operand
from tfopt_ref.clip_ops import global_norm
from tfopt_ref.optimizer_step import (
    Asked,
    Constraints,
    Optimizer,
    Pairs,
    Result,
    State,
    Variables,
    all_finite,
    plain,
)
from tfopt_ref.training_ops import apply_gradient_descent, apply_moving_average
from tfopt_ref.update import Gradient, Rows, mapped, times, updated, values_of


def train_step(
    optimizer: Optimizer, variables: Variables, state: State, grads: Pairs,
    constraints: Constraints | None = None, grad_scale: float = 1.0, use_norm: float | None = None,
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:  # fmt: skip
    """Return the variables and the state after one step.

    Parameters
    ----------
    optimizer : dict
        "class_name" and "config".
    variables : dict of ndarray
        The variables by name.
    state : dict
    grads : sequence of (str, ndarray or Rows)
        The variables' names with their gradients; a name may come twice.
    constraints : dict of callable, optional
        By variable: the function that maps its value after each update to a valid one.
    grad_scale : float
        The factor of the gradients.
    use_norm : float, optional
        The norm of the given gradients, for the limit of the global norm.
    """
    asked = Asked(grad_scale, use_norm, constraints=constraints or {})
    new, after, _ = _stepped(optimizer, variables, state, grads, asked)
    return new, after


def arrived_step(
    optimizer: Optimizer, variables: Variables, state: State, arrived: Mapping[str, Gradient],
    **asked: Any,
) -> tuple[dict[str, np.ndarray], dict[str, Any], np.float64, list[str]]:  # fmt: skip
    """Return the results of `train_step` for gradients that arrived in any order.

    Also return their norm, and the names of the gradients that are not finite. The step and the sum
    of squares take the variables in their order.
    """
    pairs = [(name, arrived[name]) for name in variables if name in arrived]
    norm = global_norm([values_of(grad) for _, grad in pairs], np.float64)
    new, after = train_step(optimizer, variables, state, pairs, **asked)
    return new, after, norm, [name for name, grad in pairs if not all_finite([(name, grad)])]


def first_state(optimizer: Optimizer) -> dict[str, Any]:
    """Return the state of an optimizer that has taken no step."""
    name, config = optimizer["class_name"], optimizer["config"]
    if name not in WRAPPERS:
        return {"iterations": 0, "slots": {}, "kept": None}
    inner = first_state(config["optimizer"])
    if name == "ParameterGroups":
        return {"optimizers": [*(first_state(group) for _, group in config["groups"]), inner]}
    own: dict[str, dict[str, Any]] = {
        "GradientAccumulation": {"pending": 0, "sums": {}},
        "LossScaleOptimizer": {"step_counter": 0, "dynamic_scale": config.get("initial_scale")},
        "Mirror": {"mirror": {}},
        "WeightAverage": {"average": {}},
    }
    return {"optimizer": inner, **own[name]}


def iterations(state: State) -> int:
    """Return the number of steps; for groups, of the optimizer of variables in no group."""
    if "optimizers" in state:
        return iterations(state["optimizers"][-1])
    return iterations(state["optimizer"]) if "optimizer" in state else int(state["iterations"])


def _stepped(
    optimizer: Optimizer, variables: Variables, state: State, grads: Pairs, asked: Asked
) -> Result:
    """Take a step; return the variables, the state, and whether the step was taken."""
    step = WRAPPERS.get(optimizer["class_name"], plain)
    return step(optimizer, variables, state, grads, asked)


# ---- wrappers


def accumulation(
    optimizer: Optimizer, variables: Variables, state: State, grads: Pairs, asked: Asked
) -> Result:
    """Add the gradients of some batches; after the last one, step by their mean or sum."""
    if asked.finite and not all_finite(grads):
        return dict(variables), dict(state), False
    config = optimizer["config"]
    before = state["sums"] if state["pending"] else {}
    sums = {k: added(before.get(k), grad, asked.scale, variables[k]) for k, grad in grads}
    pending = state["pending"] + 1
    if pending < config["steps"]:
        return dict(variables), {**state, "pending": pending, "sums": sums}, True
    given, unit = in_dtypes(sums, variables)
    mean = 1 / pending if config["reduction"] == "mean" else 1.0
    inside = config["optimizer"]
    mean_asked = asked._replace(scale=mean * unit, finite=False)
    new, inner, _ = _stepped(inside, variables, state["optimizer"], given, mean_asked)
    return new, {"optimizer": inner, "pending": 0, "sums": {}}, True


def added(total: Gradient | None, grad: Gradient, scale: float, variable: np.ndarray) -> Gradient:
    """Return a sum plus a gradient times a scale; a sum of gradients of rows stays one of rows.

    With a dense gradient, the sum begins with the first one, to which earlier rows are added.
    """
    dtype = computed(variable.dtype)
    if isinstance(grad, Rows):
        grad = Rows(grad.values.astype(dtype), grad.indices)
        if total is None or isinstance(total, Rows):
            new = times(grad, scale)
            both = [new] if total is None else [total, new]
            return Rows(*map(np.concatenate, zip(*both, strict=True)))
        return plus(total, grad, scale)
    if isinstance(total, np.ndarray):
        return plus(total, grad, scale)
    with np.errstate(all="ignore"):
        first = np.asarray(operand(grad, dtype) * operand(scale, dtype))
    return first if total is None else plus(first, total, 1.0)


def plus(total: np.ndarray, grad: Gradient, scale: float) -> np.ndarray:
    """Return a dense sum plus a gradient times a scale."""
    rule, upward = apply_gradient_descent, {"alpha": -1.0}
    (new,) = updated(rule, [total], grad, upward, duplicates="sequential", grad_scale=scale)
    return new


def in_dtypes(sums: Mapping[str, Gradient], variables: Variables) -> tuple[Pairs, float]:
    """Return sums in their variables' dtypes, and the unit of their numbers.

    The unit is 1, unless a variable has 16 bits. Then it is a power of two: the one that makes the
    largest float16 number as large as possible, unless numbers of another dtype would overflow.
    """
    dtypes = {name: variables[name].dtype for name in sums}
    if all(dtype.itemsize != 2 for dtype in dtypes.values()):
        return list(sums.items()), 1.0
    tops = {name: exponent(total) for name, total in sums.items()}
    halves = [top for name, top in tops.items() if dtypes[name] == np.float16]
    shift = min(15 - max(halves), 127 - max(tops.values())) if halves else 0
    pairs: list[tuple[str, Gradient]] = []
    for name, total in sums.items():
        product = times(total, 2.0**shift)
        pairs.append((name, mapped(rounded, product, dtypes[name])))
    return pairs, 2.0**-shift


def rounded(x: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return numbers rounded to a dtype."""
    with np.errstate(all="ignore"):
        return x.astype(dtype)


def exponent(total: Gradient) -> int:
    """Return the exponent of the power of two above all finite elements; 15 if they are zeros."""
    array = np.abs(values_of(total))
    largest = float(array.max(where=np.isfinite(array), initial=0))
    return math.frexp(largest)[1] if largest else 15


def loss_scale(
    optimizer: Optimizer, variables: Variables, state: State, grads: Pairs, asked: Asked
) -> Result:
    """Divide gradients by a scale, which is doubled after some steps.

    If a gradient is not finite, the step is left out and the scale is halved (Micikevicius et al.
    2018).
    """
    config, factor, counter = optimizer["config"], state["dynamic_scale"], state["step_counter"]
    inside = config["optimizer"]
    inner_asked = asked._replace(scale=asked.scale / factor, finite=True)
    new, inner, taken = _stepped(inside, variables, state["optimizer"], grads, inner_asked)
    if not taken:
        counter, changed = 0, factor / 2
    elif counter + 1 < config["dynamic_growth_steps"]:
        counter, changed = counter + 1, factor
    else:
        counter, changed = 0, 2 * factor
    if not sys.float_info.min <= changed <= 1 / sys.float_info.min:  # gradients are divided by it
        changed = factor
    after = {"optimizer": inner, "step_counter": counter, "dynamic_scale": changed}
    return new, after, taken or not asked.finite


def average(
    optimizer: Optimizer, variables: Variables, state: State, grads: Pairs, asked: Asked
) -> Result:
    """Keep decaying means of the weights after steps; replace the weights by them at times."""
    config, inside = optimizer["config"], optimizer["config"]["optimizer"]
    new, inner, taken = _stepped(inside, variables, state["optimizer"], grads, asked)
    names = list(dict.fromkeys(name for name, _ in grads))
    first = {name: variables[name].astype(computed(variables[name].dtype)) for name in names}
    averages = {**first, **state["average"]}
    before, count = iterations(state["optimizer"]), iterations(inner)
    if taken and count > before:
        for name in names:
            momentum = config["momentum"] if before else 0.0
            (averages[name],) = updated(
                apply_moving_average, [averages[name]], new[name], {"momentum": momentum}
            )
        frequency = config["overwrite_frequency"]
        if frequency and count % frequency == 0:
            new |= {name: rounded(mean, new[name].dtype) for name, mean in averages.items()}
    return new, {"optimizer": inner, "average": averages}, taken


def mirror(
    optimizer: Optimizer, variables: Variables, state: State, grads: Pairs, asked: Asked
) -> Result:
    """Keep copies of float32 variables, rounded to 16 bits."""
    config = optimizer["config"]
    new, inner, taken = _stepped(config["optimizer"], variables, state["optimizer"], grads, asked)
    names = {name for name, _ in grads if variables[name].dtype == np.float32}
    into = dtype_named(config["dtype"])
    copies = {name: rounded(new[name], into) for name in {*state["mirror"], *names}}
    return new, {"optimizer": inner, "mirror": copies}, taken


def groups(
    optimizer: Optimizer, variables: Variables, state: State, grads: Pairs, asked: Asked
) -> Result:
    """Step each group of variables by its own optimizer.

    A variable is in the first group whose pattern is in its name. If one optimizer leaves a step
    out, all do. An optimizer whose group has no gradient counts the step.
    """
    config = optimizer["config"]
    inside = [*(group for _, group in config["groups"]), config["optimizer"]]
    patterns = [*(pattern for pattern, _ in config["groups"]), ""]
    of: list[list[Any]] = [[] for _ in inside]
    for name, grad in grads:
        of[next(k for k, p in enumerate(patterns) if re.search(p, name))].append((name, grad))
    results: list[Result] = [
        _stepped(one, variables, before, own, asked)
        if own
        else (dict(variables), counted(before), True)
        for one, before, own in zip(inside, state["optimizers"], of, strict=True)
    ]
    if all(taken for _, _, taken in results):
        new = dict(variables)
        for (after, _, _), own in zip(results, of, strict=True):
            new |= {name: after[name] for name in changed_by(after, variables, own)}
        return new, {"optimizers": [after for _, after, _ in results]}, True
    states = [
        before if taken else after
        for (_, after, taken), before in zip(results, state["optimizers"], strict=True)
    ]
    return dict(variables), {"optimizers": states}, False


def changed_by(after: Variables, before: Variables, own: Pairs) -> set[str]:
    """Return the variables that a group's step may have changed."""
    return {name for name, _ in own} | {n for n in after if after[n] is not before[n]}


def counted(state: State) -> dict[str, Any]:
    """Return a state in which one more step is counted."""
    if "optimizers" in state:
        *others, last = state["optimizers"]
        return {**state, "optimizers": [*others, counted(last)]}
    if "optimizer" in state:
        return {**state, "optimizer": counted(state["optimizer"])}
    return {**state, "iterations": state["iterations"] + 1}


WRAPPERS = {
    "GradientAccumulation": accumulation,
    "LossScaleOptimizer": loss_scale,
    "Mirror": mirror,
    "ParameterGroups": groups,
    "WeightAverage": average,
}
