"""A step of one optimizer: its rate, clipping of gradients, weight decay, a rule, a constraint."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfopt_ref import schedules
from tfopt_ref.algorithms import Step, adafactor_step, step_of
from tfopt_ref.limits import Limited, copied, densified, limited
from tfopt_ref.storage import first_slot, is_blocks
from tfopt_ref.update import Gradient, Rows, updated, values_of

Optimizer = Mapping[str, Any]
State = Mapping[str, Any]
Variables = Mapping[str, np.ndarray]
Pairs = Sequence[tuple[str, Gradient]]
Constraints = Mapping[str, Callable[[np.ndarray], np.ndarray]]
# The variables and the state after a step, and whether the step was taken.
Result = tuple[dict[str, np.ndarray], dict[str, Any], bool]


class Asked(NamedTuple):
    """The settings of a step: gradients are multiplied by `scale`.

    With `finite`, a step is only taken if all gradients are finite, and `norm` if it is given. A
    constraint maps the new value of its variable to another. `norm` is the norm of all gradients
    before they are scaled, if it is known.
    """

    scale: float = 1.0
    norm: float | None = None
    finite: bool = False
    constraints: Constraints = {}


def plain(
    optimizer: Optimizer, variables: Variables, state: State, grads: Pairs, asked: Asked
) -> Result:
    """Return the variables and the state after a step, and whether the step was taken."""
    if asked.finite and not (all_finite(grads) and np.isfinite(asked.norm or 0)):
        return dict(variables), dict(state), False
    name, config, t = optimizer["class_name"], optimizer["config"], state["iterations"] + 1
    lr = rate(name, config, t)
    new, slots, kept = dict(variables), dict(state["slots"]), state["kept"]
    if name == "Adafactor":
        copies = copied([grad for _, grad in grads], config, asked.scale, asked.norm)
        for (v, _), grad in zip(grads, copies, strict=True):
            dense = densified(grad, new[v])
            new[v], slots[v] = adafactor_step(config, new[v], slots.get(v), dense, t, lr)
    else:
        step = step_of(name, config, t, lr, kept)
        kept = step.kept
        decays = [decay(step, config, v, lr) for v, _ in grads]
        clipped = clip(step, config, variables, grads, asked, decays)
        for place, (v, _) in enumerate(grads):
            own = without_decay(step) if is_excluded(config, v) else step
            options: dict[str, Any] = {**decays[place]}
            if config.get("stochastic_rounding") is not None:
                options["rounding"] = config["stochastic_rounding"], t, place
            new[v], slots[v] = rule(own, config, new[v], slots.get(v, {}), clipped[place], options)
    new |= constraint(new, grads, asked.constraints)
    return new, {"iterations": t, "slots": slots, "kept": kept}, True


def all_finite(grads: Pairs) -> bool:
    """Return whether no element of a gradient is infinite or NaN."""
    return all(bool(np.isfinite(values_of(grad)).all()) for _, grad in grads)


# ---- the rate


def rate(name: str, config: Mapping[str, Any], t: int) -> float:
    """Return the learning rate of step t; TensorFlow rounds the rate of a schedule to float32."""
    given = config["learning_rate"]
    lr = schedules.rate(given, t - 1)
    if config.get("compat") == "tensorflow" and isinstance(given, dict):
        lr = float(np.float32(lr))
    decay = 0.0 if name == "Nadam" else config["decay"]  # Nadam's decay is for its momentum
    return lr / (1 + decay * (t - 1))


# ---- the decay of weights


def decay(step: Step, config: Mapping[str, Any], variable: str, lr: float) -> dict[str, float]:
    """Return the decay options of an update, if decay is not a term of the rule's gradient."""
    strength = config.get("weight_decay")
    if not strength or "weight_decay" in step.hypers or is_excluded(config, variable):
        return {}
    part = lr * float(strength)
    return {"decay": part} if config.get("cautious_weight_decay") else {"var_scale": 1 - part}


def is_excluded(config: Mapping[str, Any], variable: str) -> bool:
    """Return whether a variable is excluded from weight decay."""
    return any(re.search(p, variable) for p in config.get("exclude_from_weight_decay", ()))


def without_decay(step: Step) -> Step:
    """Return the step without weight decay; LAMB and LARS do not adapt such a variable's rate."""
    off = {"weight_decay": 0.0, "adapts": False}
    named = {*step.hypers, *step.rule.flags}
    return step._replace(hypers={**step.hypers, **{k: v for k, v in off.items() if k in named}})


# ---- clipping


def clip(
    step: Step, config: Mapping[str, Any], variables: Variables, grads: Pairs, asked: Asked,
    decays: Sequence[Mapping[str, float]],
) -> list[Limited]:  # fmt: skip
    """Return limited gradients; each is dense if the step needs a gradient of the whole.

    Repeated rows are summed first if their variable decays.
    """
    given = [grad for _, grad in grads]
    whole = [is_whole(step, variables[v]) for v, _ in grads]
    if any(isinstance(grad, Rows) and dense for grad, dense in zip(given, whole, strict=True)):
        made = copied(given, config, asked.scale, asked.norm)
        copies = zip(grads, made, whole, strict=True)
        return [
            (densified(grad, variables[v]) if dense else grad, "sum", 1.0)
            for (v, _), grad, dense in copies
        ]
    duplicates = ["sum" if d else step.duplicates for d in decays]
    return limited(given, config, asked.scale, duplicates, asked.norm)


def is_whole(step: Step, variable: np.ndarray) -> bool:
    """Return whether a step needs a gradient of the whole variable."""
    return step.whole == "tensors" or (step.whole == "vectors" and variable.ndim < 2)


# ---- the rule


def rule(
    step: Step, config: Mapping[str, Any], w: np.ndarray, slots: Mapping[str, np.ndarray],
    limited: Limited, options: dict[str, Any],
) -> tuple[np.ndarray, dict[str, np.ndarray]]:  # fmt: skip
    """Return a variable and its slots after the update by a limited gradient."""
    grad, duplicates, factor = limited
    x = w.reshape(1, -1) if step.whole == "vectors" and w.ndim < 2 else w
    grad = grad if isinstance(grad, Rows) else grad.reshape(x.shape)
    before = {slot: shaped(array, w, x) for slot, array in slots.items()}
    for (slot, value), operand in zip(step.slots.items(), step.rule.operands[1:], strict=False):
        if slot not in before:
            of_rows = operand in step.rule.row_slots
            before[slot] = first_slot(x, slot, value, config.get("storage"), of_rows)
    arrays = [x, *(before[slot] for slot in step.slots)]
    mode = config.get("sparse", "tensorflow")
    new = stepped(step, mode, arrays, grad, duplicates, {"grad_scale": factor, **options})
    w_new, *after = (shaped(array, x, w) for array in new)
    return w_new, {**before, **dict(zip(step.slots, after, strict=True))}


def shaped(array: np.ndarray, of: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return an array in the shape of `like` if it has a number for each element of `of`."""
    return array.reshape(like.shape) if array.shape == of.shape and not is_blocks(array) else array


def stepped(
    step: Step, mode: str, arrays: list[np.ndarray], grad: Gradient, duplicates: str,
    options: dict[str, Any],
) -> list[np.ndarray]:  # fmt: skip
    """Return a variable and its slots after a step.

    A step of some rows leaves the others unchanged in the "lazy" mode. In the "catch_up" mode, they
    end where a dense step with a gradient of zero takes them; in the "tensorflow" mode, where the
    rule for rows takes them.
    """
    if not isinstance(grad, Rows):
        return updated(step.rule, arrays, grad, step.hypers, **options)
    op = step.rule if mode == "catch_up" else step.rows or step.rule
    if mode != "tensorflow":
        op = op.lazy()
    new = updated(op, arrays, grad, step.hypers, duplicates=duplicates, **options)
    if mode == "catch_up":
        absent = np.setdiff1d(np.arange(len(arrays[0])), grad.indices)
        others = [array[absent] for array in arrays]
        zeros = np.zeros_like(others[0])
        decayed = options.get("var_scale", 1.0)
        moved = updated(step.rule, others, zeros, step.hypers, var_scale=decayed)
        for array, rows in zip(new, moved, strict=True):
            array[absent] = rows
    return new


# ---- the constraint


def constraint(
    variables: Variables, grads: Pairs, constraints: Constraints
) -> dict[str, np.ndarray]:
    """Apply the constraints to the variables that took a step."""
    bound = {v for v, _ in grads} & {*constraints}
    return {v: constraints[v](variables[v]) for v in bound}
