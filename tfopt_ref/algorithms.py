"""The optimizers: the rule of a step, its slots and its hyperparameters.

`ALGORITHMS` is the table: each entry is a step, or a function that returns one. The parameters of a
function are those that it needs of: the number t of the step, counted from 1, its learning rate lr,
the number kept by the last step, and the optimizer's settings. Hyperparameters are computed in
double precision; a rule rounds them to the variable's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

from tfopt_ref import training_ops as rules
from tfopt_ref.arithmetic import computed
from tfopt_ref.norms import sum_of_squares
from tfopt_ref.training_op import TrainingOp


class Step(NamedTuple):
    """A step of an optimizer.

    `slots` are the names of the rule's slots, in its order, with their first values or the names of
    settings that have these. `hypers` are the hyperparameters with a formula of their own. `rows`
    is the rule for a gradient of some rows, if it differs; `duplicates` is its treatment of
    repeated rows. `whole` are the variables that need a gradient of the whole: "tensors", whose
    norms it uses, or "vectors", which it treats as a row. `kept` is the number that the next step
    needs in addition to the slots.
    """

    rule: TrainingOp
    slots: dict[str, Any]
    hypers: dict[str, Any] = {}
    rows: TrainingOp | None = None
    duplicates: str = "sum"
    whole: str | None = None
    kept: float | None = None


def step_of(name: str, config: Mapping[str, Any], t: int, lr: float, kept: float | None) -> Step:
    """Return an optimizer's step with the values of its slots and hyperparameters.

    A hyperparameter without a formula of its own is the learning rate, `beta_1` or `beta_2`, a
    power of these, or the setting of its name.
    """
    given: dict[str, Any] = {"weight_decay": 0.0, **config, "t": t, "lr": lr, "kept": kept}
    for k in ("1", "2") if "beta_2" in config else ():
        given |= {f"beta{k}": given[f"beta_{k}"], f"beta{k}_power": given[f"beta_{k}"] ** t}
    row = ALGORITHMS[name]
    step = row if isinstance(row, Step) else row(**arguments_of(row, given))
    given |= step.hypers
    names = [*step.rule.hypers, *(flag for flag in step.rule.flags if flag in given)]
    slots = {k: given[v] if isinstance(v, str) else v for k, v in step.slots.items()}
    return step._replace(slots=slots, hypers={name: given[name] for name in names})


def arguments_of(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the function's parameters."""
    return {name: given[name] for name in signature(function).parameters}


def sgd(lr, momentum, nesterov):
    """Descend, with momentum or without (Sutskever et al. 2013)."""
    if momentum == 0:
        return Step(rules.apply_gradient_descent, {}, {"alpha": lr}, duplicates="sequential")
    return Step(rules.apply_keras_momentum, {"momentum": 0}, {"use_nesterov": nesterov})


def adam(amsgrad):
    """Step by the mean gradient over the root of its mean square (Kingma, Ba 2015, section 2).

    AMSGrad uses the largest mean square so far (Reddi, Kale, Kumar 2018). In TensorFlow a gradient
    of some rows is a gradient of the whole with zeros elsewhere.
    """
    if amsgrad:
        dense, rows = rules.apply_adam_with_amsgrad, rules.apply_keras_adam_with_amsgrad
        return Step(dense, {"m": 0, "v": 0, "vhat": 0}, rows=rows)
    return Step(rules.apply_adam, {"m": 0, "v": 0}, rows=rules.apply_keras_adam)


def nadam(t, kept, beta_1, decay):
    """Step as Adam, by the mean gradient that the next step would take (Dozat 2016).

    The momentum of step t is mu(t); the product of the momenta of all steps is kept.
    """
    base = float(np.float32(0.96))  # as TensorFlow has it

    def mu(t):
        return beta_1 * (1 - 0.5 * base ** (decay * t))

    product = mu(t) if kept is None else kept * mu(t)
    hypers = {"mu": mu(t), "mu_next": mu(t + 1)}
    hypers |= {"mu_product": product, "mu_product_next": product * mu(t + 1)}
    return Step(rules.apply_nadam, {"m": 0, "v": 0}, hypers, kept=product)


def rmsprop(momentum, centered):
    """Divide by the root of the mean squared gradient (Tieleman, Hinton 2012).

    If centered, divide by its standard deviation (Graves 2013). With momentum, epsilon is under the
    root.
    """
    slots = {"mg": 0, "rms": 0} if centered else {"rms": 0}
    if momentum > 0:
        rule = rules.apply_centered_rms_prop if centered else rules.apply_rms_prop
        return Step(rule, {**slots, "momentum": 0})
    rule = rules.apply_keras_centered_rms_prop if centered else rules.apply_keras_rms_prop
    return Step(rule, slots)


def ftrl(
    lr, learning_rate_power, l1_regularization_strength, l2_regularization_strength,
    l2_shrinkage_regularization_strength, beta,
):  # fmt: skip
    """Follow the regularized leader (McMahan et al. 2013); beta adds to the L2 strength."""
    hypers = {
        "l1": l1_regularization_strength,
        "l2": l2_regularization_strength + beta / (2 * lr),
        "l2_shrinkage": l2_shrinkage_regularization_strength,
        "lr_power": learning_rate_power,
    }
    rule = rules.apply_ftrl_v2 if hypers["l2_shrinkage"] > 0 else rules.apply_ftrl
    return Step(rule, {"accumulator": "initial_accumulator_value", "linear": 0}, hypers)


def signum(momentum):
    """Step by the sign of the mean gradient (Bernstein et al. 2018): Lion with equal betas."""
    return Step(rules.apply_lion, {"m": 0}, {"beta1": momentum, "beta2": momentum})


def radam(t, beta_2):
    """Step as Adam, once the mean square's variance is finite (Liu et al. 2020, algorithm 2)."""
    rectifier = 0.0
    if 1 - beta_2**t > 0:
        most = 2 / (1 - beta_2) - 1
        rho = most - 2 * t * beta_2**t / (1 - beta_2**t)
        if rho > 5:
            variance = (rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho)
            rectifier = math.sqrt(variance * (1 - beta_2**t))
    return Step(rules.apply_radam, {"m": 0, "v": 0}, {"rectifier": rectifier})


def adopt(t, beta_2):
    """Average quotients of gradients and the previous root mean square (Taniguchi et al. 2024).

    The first step has no mean square: its limit is 0, and the squared gradient becomes the mean
    square.
    """
    hypers = {"beta2": 0.0 if t == 1 else beta_2, "limit": (t - 1) ** 0.25}
    return Step(rules.apply_adopt, {"m": 0, "v": 0}, hypers)


def ademamix(t, beta_1, beta_3, alpha, warmup_steps):
    """Step as Adam, by a fast and a slow mean gradient (Pagliardini et al. 2025, algorithm 1)."""
    share = 1.0 if t >= warmup_steps else t / warmup_steps
    hypers = {"alpha": alpha * share, "beta3": beta_3}
    if share < 1 and 0 < beta_1 < beta_3 < 1:  # the inverse of the logarithm grows evenly
        log_1, log_3 = math.log(beta_1), math.log(beta_3)
        hypers["beta3"] = math.exp(log_1 * log_3 / ((1 - share) * log_3 + share * log_1))
    return Step(rules.apply_ademamix, {"m": 0, "slow": 0, "v": 0}, hypers)


def schedule_free_sgd(lr, kept, momentum):
    """Average the iterates by their squared learning rates (Defazio et al. 2024, algorithm 1)."""
    total, share = averaged(lr, kept)
    hypers = {"beta": momentum, "share": share}
    return Step(rules.apply_schedule_free_sgd, {"offset": 0}, hypers, kept=total)


def schedule_free_adamw(lr, kept):
    """Average the iterates of AdamW without its mean gradient (Defazio et al. 2024)."""
    total, share = averaged(lr, kept)
    slots = {"offset": 0, "v": 0}
    return Step(rules.apply_schedule_free_adam, slots, {"share": share}, kept=total)


def averaged(lr, kept):
    """Return the sum of the squared rates of all steps, to keep, and this step's share of it."""
    total = (kept or 0.0) + lr * lr
    return total, lr * lr / total if total > 0 else 0.0


def schedule_free_average(y: np.ndarray, offset: np.ndarray, beta: float) -> np.ndarray:
    """Return the average x of iterates z = y + offset, where y = (1 - beta) z + beta x."""
    return y - (1 / beta - 1) * offset


#: The steps by the names of tfopt's classes. For the decay of weights, see `optimizer_step`.
ALGORITHMS: dict[str, Step | Callable[..., Step]] = {
    "ADOPT": adopt,
    "AdEMAMix": ademamix,
    # Scale by the root mean square of past steps over that of gradients (Zeiler 2012).
    "Adadelta": Step(rules.apply_adadelta, {"accum_grad": 0, "accum_var": 0}),
    # Divide by the root of the sum of all squared gradients (Duchi et al. 2011).
    "Adagrad": Step(rules.apply_adagrad_v2, {"accumulator": "initial_accumulator_value"}),
    "Adam": adam,
    # Step as Adam, with one mean square for each row (Zhang et al. 2025, algorithm 1).
    "AdamMini": Step(rules.apply_rowwise_adam, {"m": 0, "v": 0}, whole="vectors"),
    "AdamW": adam,
    # Step by the mean gradient over its decaying maximum (Kingma, Ba 2015, section 7).
    "Adamax": Step(rules.apply_adamax, {"m": 0, "v": 0}),
    "Ftrl": ftrl,
    # Give Adam's update of a variable the norm of its weights (You et al. 2020, algorithm 2).
    "LAMB": Step(rules.apply_lamb, {"m": 0, "v": 0}, whole="tensors"),
    # Step by a share of the weights' norm over the gradient's (You et al. 2017, algorithm 1).
    "LARS": Step(rules.apply_lars, {"momentum": 0}, whole="tensors"),
    # Step by the sign of a mean gradient (Chen et al. 2023, algorithm 2).
    "Lion": Step(rules.apply_lion, {"m": 0}),
    "Nadam": nadam,
    "RAdam": radam,
    "RMSprop": rmsprop,
    # Divide a row's step by the root of the sum of its mean squares (Mudigere et al. 2022).
    "RowwiseAdagrad": Step(
        rules.apply_rowwise_adagrad, {"accumulator": "initial_accumulator_value"}
    ),
    "RowwiseAdam": Step(rules.apply_rowwise_adam, {"m": 0, "v": 0}),
    "SGD": sgd,
    "ScheduleFreeAdamW": schedule_free_adamw,
    "ScheduleFreeSGD": schedule_free_sgd,
    "Signum": signum,
    # Step as Adam, with additive changes of the mean square (Zaheer et al. 2018).
    "Yogi": Step(rules.apply_yogi, {"m": 0, "v": "initial_accumulator_value"}),
}


# ---- Adafactor, whose steps are of tensors, not of elements


def adafactor_step(
    config: Mapping[str, Any], w: np.ndarray, slots: Mapping[str, np.ndarray] | None,
    grad: np.ndarray, t: int, lr: float,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:  # fmt: skip
    """Return a variable and its slots after a step.

    The slots are means of rows and columns, or of elements.
    """
    shape = w.shape
    shapes = {"v": shape} if w.ndim < 2 else {"r": shape[:-1], "c": (*shape[:-2], shape[-1])}
    slots = slots or {slot: np.zeros(shape, w.dtype) for slot, shape in shapes.items()}
    given = {"weight_decay": 0.0, **config, "w": w, "slots": slots, "g": grad, "t": t, "lr": lr}
    new: tuple[np.ndarray, dict[str, np.ndarray]] = adafactor(**arguments_of(adafactor, given))
    return new


def adafactor(
    w, slots, g, t, lr, beta_2_decay, epsilon_1, epsilon_2, clip_threshold, relative_step,
    weight_decay,
):  # fmt: skip
    """Return the variable and the slots after a step (Shazeer, Stern 2018, algorithms 4 and 5).

    Means are computed by NumPy for arrays in C order.
    """
    if not w.size:
        return w, dict(slots)
    real = computed(w.dtype).type
    x, g = w.astype(real, order="C"), g.astype(real, order="C")
    taken = real(t**beta_2_decay)  # 1 - beta_2 of this step
    with np.errstate(all="ignore"):
        square = g * g + real(epsilon_1)
        fresh = {"v": square}
        if w.ndim > 1:
            fresh = {"r": square.mean(axis=-1), "c": square.mean(axis=-2)}
        means = {k: (1 - taken) * slots[k].astype(real) + taken * new for k, new in fresh.items()}
        if w.ndim > 1:
            share = means["r"] / means["r"].mean(axis=-1, keepdims=True)
            product = share[..., np.newaxis] * means["c"][..., np.newaxis, :]
            root = np.sqrt(np.maximum(product, np.finfo(real).tiny))  # the product may underflow
        else:
            root = np.sqrt(means["v"])
        if weight_decay > 0:  # decoupled: the decay does not depend on the gradient
            x = real(1 - lr * weight_decay) * x
        u = g / root
        u = u / real(max(1.0, _rms(u) / clip_threshold))
        rho = min(lr, t**-0.5) if relative_step else lr
        x = x - real(max(epsilon_2, _rms(x)) * rho) * u
        return x.astype(w.dtype), {k: mean.astype(w.dtype) for k, mean in means.items()}


def _rms(x: np.ndarray) -> float:
    return math.sqrt(sum_of_squares(x) / x.size)
