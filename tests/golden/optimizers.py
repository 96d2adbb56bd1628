"""Optimizers on several variables at once, and the tolerances beside TensorFlow's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from golden.compare import RELATIVE, check_array
from golden.reasons import notes, reasons

import tfopt
from tfopt.rules import RULES
from tfopt_ref.algorithms import step_of
from tfopt_ref.training import first_state, train_step
from tfopt_ref.update import Rows

__all__ = ["REPLAYS", "Inputs", "check_states", "conditioning", "reasons_of", "replay"]

#: By variable: "first", "grads" of each step, and where the gradient is sparse "indices".
Inputs = Mapping[str, Mapping[str, np.ndarray]]
_WITH_POWER = ("ExponentialDecay", "PolynomialDecay")
_WITHOUT_ARITHMETIC = "PiecewiseConstantDecay"
_RULES = {f"apply_{rule.name}": rule for rule in RULES}


def replay(
    name: str, config: Mapping[str, Any], inputs: Inputs, dtype: str
) -> Iterator[dict[str, list[np.ndarray]]]:
    """Take the steps of an optimizer; yield each variable and its slots after each."""
    opt = getattr(tfopt.optimizers, name).from_config(config)
    variables = {v: np.array(given["first"], dtype) for v, given in inputs.items()}
    for step in range(len(next(iter(inputs.values()))["grads"])):
        pairs = []
        for v, given in inputs.items():
            grad = given["grads"][step].astype(dtype)
            if "indices" in given:
                grad = tfopt.IndexedSlices(grad, given["indices"][step])
            pairs.append((grad, variables[v]))
        opt.apply_gradients(pairs)
        yield {
            v: [variable, *(opt.get_slot(variable, s).numpy() for s in opt.get_slot_names())]
            for v, variable in variables.items()
        }


def replay_specified(
    name: str, config: Mapping[str, Any], inputs: Inputs, dtype: str
) -> Iterator[dict[str, list[np.ndarray]]]:
    """Yield what each variable and its slots are specified to be after each step."""
    made = getattr(tfopt.optimizers, name).from_config(config)
    optimizer, slots = tfopt.optimizers.serialize(made), made.get_slot_names()
    variables = {v: np.array(given["first"], dtype) for v, given in inputs.items()}
    state = first_state(optimizer)
    for step in range(len(next(iter(inputs.values()))["grads"])):
        pairs: list[tuple[str, Any]] = []
        for v, given in inputs.items():
            grad = given["grads"][step].astype(dtype)
            rows = "indices" in given
            pairs.append((v, Rows(grad, given["indices"][step]) if rows else grad))
        variables, state = train_step(optimizer, variables, state, pairs)
        yield {
            v: [variable, *(state["slots"][v][slot] for slot in slots)]
            for v, variable in variables.items()
        }


#: The packages' names, with what takes an optimizer's steps in each.
REPLAYS = {"tfopt": replay, "tfopt_ref": replay_specified}


def reasons_of(
    name: str, config: Mapping[str, Any], dtype: str, shape: tuple[int, ...], sparse: bool
) -> list[list[str]]:
    """Return for a variable and each slot why the bits may differ after many steps.

    Those of the rule; those of hyperparameters that TensorFlow computes at each step in the dtype
    of the variable, and tfopt in float64; those of a norm, whose sum of squares has no order, and
    of the factor made of it; and those of the values of the step before.
    """
    step = step_of(name, config, t=1, lr=0.5, kept=None)
    rule = _RULES[((step.rows if sparse else None) or step.rule).__name__]
    hypers = {hyper: step.hypers[hyper] for hyper in rule.hypers}
    flags = {flag: step.hypers.get(flag, default) for flag, default in rule.flags.items()}
    made_of = notes(rule, hypers, flags, sparse)
    found = reasons(rule, hypers, flags, dtype, shape, sparse)
    rounded = dict.fromkeys(("beta1_power", "beta2_power"), "beta ** step")
    rounded |= dict.fromkeys(
        ("mu", "mu_next", "mu_product", "mu_product_next"), "0.96 ** (schedule_decay * step)"
    )
    if dtype == "float32" and config["decay"]:
        rounded["lr"] = rounded["alpha"] = "decay in float64"
    if isinstance(config["learning_rate"], dict):
        schedule = config["learning_rate"]["class_name"]
        if schedule in _WITH_POWER or (dtype == "float32" and schedule != _WITHOUT_ARITHMETIC):
            rounded["lr"] = rounded["alpha"] = f"{schedule} in float64"
    if dtype == "float32" and config.get("beta"):
        rounded["l2"] = "beta in float64"
    for operand, known in made_of.items():
        found[operand] += [why for hyper, why in rounded.items() if f"hyper {hyper}" in known]
    if config.get("clipnorm") or config.get("global_clipnorm"):
        for operand, known in made_of.items():
            if f"operand {rule.operands[-1]}" in known:
                found[operand].append("norm")
    for _ in found:  # as long a chain as there can be
        for operand, known in made_of.items():
            sources = [o for o in found if f"operand {o}" in known and found[o] and o != operand]
            found[operand] += [f"{source} before" for source in sources if not found[operand]]
    return list(found.values())


def conditioning(config: Mapping[str, Any], dtype: str) -> float:
    """Return how many times as far as usual variables may be apart.

    Adam's and Nadam's first steps are divided by ``1 - beta_2 ** step``, which is so small that the
    rounding of the power counts: to the dtype in both, but TensorFlow rounds beta_2 before.
    """
    if "beta_2" not in config or config["name"] == "Adamax":
        return 1.0
    left = max(1 - config["beta_2"], float(np.finfo(dtype).eps))
    return max(1.0, 2 * float(np.finfo(dtype).eps) / left / RELATIVE[dtype])


def check_states(
    ours: list[np.ndarray],
    theirs: np.ndarray,
    scale: list[np.ndarray],
    found: list[list[str]],
    what: str,
) -> None:
    """Compare a variable and its slots, relative to the largest value an element has had."""
    for k, (own, tf) in enumerate(zip(ours, theirs, strict=True)):
        allowed = RELATIVE[tf.dtype.name] * scale[k] if found[k] else None
        check_array(own, tf, allowed, f"{what} {f'slot {k}' if k else 'variable'}", found[k])
