"""A step of one optimizer: gradients limited, weights decayed, a rule applied to each variable."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

from tfopt_ref.algorithms import (
    ALGORITHMS,
    OF_WHOLE_TENSORS,
    OF_WHOLE_VECTORS,
    Step,
    adafactor,
    adafactor_slots,
)
from tfopt_ref.clip_ops import scaled
from tfopt_ref.limits import limited, scales
from tfopt_ref.schedules import rate
from tfopt_ref.storage import first_slot, is_blocks
from tfopt_ref.update import Gradient, Rows, summed, updated

__all__ = [
    "Asked",
    "Constraints",
    "Optimizer",
    "Pairs",
    "Result",
    "State",
    "Variables",
    "all_finite",
    "plain",
    "settings",
    "times",
    "wide",
]

Optimizer = Mapping[str, Any]
State = Mapping[str, Any]
Variables = Mapping[str, np.ndarray]
Pairs = Sequence[tuple[str, Gradient]]
Constraints = Mapping[str, Callable[[np.ndarray], np.ndarray]]
# The variables and the state after a step, and whether it was taken.
Result = tuple[dict[str, np.ndarray], dict[str, Any], bool]


class Asked(NamedTuple):
    """How a step is taken: by gradients times `scale`; if `finite`, only if they are.

    A variable that has a constraint becomes what that makes of it.
    """

    scale: float = 1.0
    finite: bool = False
    constraints: Constraints = {}


def plain(
    optimizer: Optimizer, variables: Variables, state: State, grads: Pairs, asked: Asked
) -> Result:
    """Return the variables and the state after a step, and whether it was taken."""
    if asked.finite and not all_finite(grads):
        return dict(variables), dict(state), False
    name, config = optimizer["class_name"], optimizer["config"]
    t = state["iterations"] + 1
    taken = settings(adafactor if name == "Adafactor" else ALGORITHMS[name])
    own = {key: value for key, value in config.items() if key in taken}
    lr = learning_rate(config, t, 0.0 if "decay" in own else config["decay"])
    own["learning_rate"] = lr
    new = dict(variables)
    slots = {variable: dict(of_one) for variable, of_one in state["slots"].items()}
    kept = state["kept"]
    if name == "Adafactor":
        for variable, g in whole(variables, grads, config, asked.scale):
            w = new[variable]
            shapes = adafactor_slots(w.shape)
            first = {slot: np.zeros(shape, w.dtype) for slot, shape in shapes.items()}
            before = slots.get(variable, first)
            new[variable], slots[variable] = adafactor(w, before, g, t=t, **own)
    else:
        step = ALGORITHMS[name](t=t, kept=kept, **own)
        kept, storage = step.kept, config.get("storage")
        inside = "weight_decay" in step.hypers  # a term of the rule's gradient
        cautious, seed = config.get("cautious_weight_decay"), config.get("stochastic_rounding")
        decays = {v: None if inside else decay_of(config, v, lr) for v, _ in grads}
        repeated = [step.duplicates if decays[v] is None else "sum" for v, _ in grads]
        given = limited([grad for _, grad in grads], config, asked.scale, repeated)
        if any(isinstance(grad, Rows) and makes_dense(name, new[v]) for v, grad in grads):
            given = one_by_one(name, variables, grads, config, asked.scale)
        each = zip(grads, given, strict=True)
        for place, ((variable, _), (grad, duplicates, by)) in enumerate(each):
            w, shape = new[variable], new[variable].shape
            if name in OF_WHOLE_VECTORS and w.ndim < 2:
                assert isinstance(grad, np.ndarray)
                w, grad = w.reshape(1, -1), grad.reshape(1, -1)
            before = {slot: shaped(x, shape, w) for slot, x in slots.get(variable, {}).items()}
            in_rule = zip(step.slots.items(), step.rule.operands[1:], strict=False)
            arrays = [
                before[slot]
                if slot in before
                else first_slot(w, slot, value, storage, operand in step.rule.row_slots)
                for (slot, value), operand in in_rule
            ]
            decay = decays[variable]
            options: dict[str, Any] = {"grad_scale": by}
            if decay is not None and cautious:
                options["decay"] = lr * float(config["weight_decay"])
            elif decay is not None:
                options["var_scale"] = decay
            if seed is not None:
                options["rounding"] = seed, t, place
            mode = config.get("sparse", "tensorflow")
            one = step
            if inside and is_excluded(config, variable):
                plain_ = {"weight_decay": 0.0}
                plain_ |= {"adapts": False} if "adapts" in step.rule.flags else {}
                one = step._replace(hypers={**step.hypers, **plain_})
            result = stepped(one, mode, [w, *arrays], grad, duplicates, options)
            new[variable], *after = (shaped(x, w.shape, new[variable]) for x in result)
            slots[variable] = {**before, **dict(zip(step.slots, after, strict=True))}
    bound = {variable for variable, _ in grads} & {*asked.constraints}
    new |= {variable: asked.constraints[variable](new[variable]) for variable in bound}
    return new, {"iterations": t, "slots": slots, "kept": kept}, True


def shaped(x: np.ndarray, shape: tuple[int, ...], like: np.ndarray) -> np.ndarray:
    """Return an array in the shape of another if it has a number for each of its elements."""
    return x.reshape(like.shape) if x.shape == shape and not is_blocks(x) else x


@cache
def settings(function: Any) -> set[str]:
    """Return the names of an algorithm's settings."""
    return {*signature(function).parameters} - {"t", "kept", "w", "slots", "g", "learning_rate"}


def learning_rate(config: Mapping[str, Any], t: int, decay: float) -> float:
    """Return the learning rate of step t; TensorFlow rounds that of a schedule to float32."""
    given = config["learning_rate"]
    lr = rate(given, t - 1)
    if config.get("compat") == "tensorflow" and isinstance(given, dict):
        lr = float(np.float32(lr))
    return lr / (1 + decay * (t - 1))


def decay_of(config: Mapping[str, Any], variable: str, lr: float) -> float | None:
    """Return what a variable is multiplied by before it is updated, if it decays."""
    if not config.get("weight_decay") or is_excluded(config, variable):
        return None
    return 1 - lr * float(config["weight_decay"])


def is_excluded(config: Mapping[str, Any], variable: str) -> bool:
    """Return whether a variable's weights do not decay."""
    return any(re.search(p, variable) for p in config.get("exclude_from_weight_decay", ()))


def stepped(
    step: Step,
    mode: str,
    arrays: list[np.ndarray],
    grad: Gradient,
    duplicates: str,
    options: dict[str, Any],
) -> list[np.ndarray]:
    """Return a variable and its slots after a step.

    A step of some rows leaves the others alone if it is "lazy". If they "catch_up", they end where
    a dense step by a gradient of zero takes them; in TensorFlow, where the rule of rows does.
    """
    if not isinstance(grad, Rows):
        return updated(step.rule, arrays, grad, step.hypers, **options)
    rule = step.rule if mode == "catch_up" else step.rows or step.rule
    if mode != "tensorflow":
        rule = rule.lazy()
    new = updated(rule, arrays, grad, step.hypers, duplicates=duplicates, **options)
    if mode == "catch_up":
        absent = np.setdiff1d(np.arange(len(arrays[0])), grad.indices)
        others = [array[absent] for array in arrays]
        zeros = np.zeros_like(others[0])
        decayed = options.get("var_scale", 1.0)
        moved = updated(step.rule, others, zeros, step.hypers, var_scale=decayed)
        for array, rows in zip(new, moved, strict=True):
            array[absent] = rows
    return new


def makes_dense(name: str, variable: np.ndarray) -> bool:
    """Return whether an optimizer makes gradients of some rows of a variable dense ones."""
    return name in OF_WHOLE_TENSORS or (name in OF_WHOLE_VECTORS and variable.ndim < 2)


def one_by_one(
    name: str, variables: Variables, grads: Pairs, config: Mapping[str, Any], scale: float
) -> list[tuple[Gradient, str, float]]:
    """Return limited gradients, dense where an optimizer needs them to be; as `limited` does."""
    return [
        (_whole(grad, variables[v]) if makes_dense(name, variables[v]) else grad, "sum", 1.0)
        for (v, _), grad in zip(grads, _copies(grads, config, scale), strict=True)
    ]


def whole(
    variables: Variables, grads: Pairs, config: Mapping[str, Any], scale: float
) -> list[tuple[str, np.ndarray]]:
    """Return limited gradients as arrays of their variables' shapes, zeros where there is none."""
    given = _copies(grads, config, scale)
    return [(v, _whole(grad, variables[v])) for (v, _), grad in zip(grads, given, strict=True)]


def _whole(grad: Gradient, variable: np.ndarray) -> np.ndarray:
    """Return a gradient of some rows as one of all, with zeros elsewhere."""
    if not isinstance(grad, Rows):
        return grad
    rows = summed(grad)
    dense = np.zeros(variable.shape, rows.values.dtype)
    dense[rows.indices] = rows.values
    return dense


def _copies(grads: Pairs, config: Mapping[str, Any], scale: float) -> list[Gradient]:
    """Return gradients, scaled and limited, each rounded to its dtype."""
    given = [times(grad, scale) for _, grad in grads]
    if {"clipvalue", "clipnorm", "global_clipnorm"} & set(config):
        given, by = scales(given, config, 1.0)
        given = [
            Rows(scaled(grad.values, *both), grad.indices)
            if isinstance(grad, Rows)
            else scaled(grad, *both)
            for grad, both in zip(given, by, strict=True)
        ]
    return given


def all_finite(grads: Pairs) -> bool:
    """Return whether no element of a gradient is infinite or NaN."""
    arrays = [grad.values if isinstance(grad, Rows) else grad for _, grad in grads]
    return all(bool(np.isfinite(array).all()) for array in arrays)


def times(grad: Gradient, scale: float) -> Gradient:
    """Return a gradient times a number; in float32, and rounded, if it has 16 bits."""
    if isinstance(grad, Rows):
        return Rows(np.asarray(times(grad.values, scale)), grad.indices)
    if scale == 1:
        return grad
    with np.errstate(all="ignore"):
        product = grad.astype(wide(grad.dtype)) * wide(grad.dtype).type(scale)
        return np.asarray(product).astype(grad.dtype)


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which numbers of a dtype are added up."""
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype
