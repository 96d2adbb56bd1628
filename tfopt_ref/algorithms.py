"""The optimizers: which rule a step is, with which slots and hyperparameters.

Each function is an optimizer. It takes the number t of the step, the first of which is 1, the
learning rate of that step and the optimizer's own settings, and returns the step. Hyperparameters
are computed in double precision; a rule rounds them to the variable's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tfopt_ref import training_ops as rules
from tfopt_ref.norms import sum_of_squares
from tfopt_ref.training_op import TrainingOp

__all__ = [
    "ALGORITHMS",
    "OF_WHOLE_TENSORS",
    "OF_WHOLE_VECTORS",
    "Step",
    "adafactor",
    "adafactor_slots",
    "schedule_free_average",
]


_BASE: float = float(np.float32(0.96))  # as TensorFlow has it


class Step(NamedTuple):
    """A step of an optimizer.

    `slots` are the names and first values of the rule's slots, in its order. `rows` is the rule of
    a gradient of some rows, if it is another; `duplicates` says what rows named several times mean
    to it. `kept` is what the next step needs beside the slots.
    """

    rule: TrainingOp
    slots: dict[str, float]
    hypers: dict[str, Any]
    rows: TrainingOp | None = None
    duplicates: str = "sum"
    kept: float | None = None


def sgd(
    t: int, learning_rate: float, kept: Any, *, momentum: float = 0.0, nesterov: bool = False
) -> Step:
    """Descend, with momentum or without (Sutskever et al. 2013)."""
    if momentum == 0:
        hypers = {"alpha": learning_rate}
        return Step(rules.apply_gradient_descent, {}, hypers, duplicates="sequential")
    hypers = {"lr": learning_rate, "momentum": momentum, "use_nesterov": nesterov}
    return Step(rules.apply_keras_momentum, {"momentum": 0.0}, hypers)


def adam(
    t: int,
    learning_rate: float,
    kept: Any,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
    amsgrad: bool = False,
) -> Step:
    """Step by the mean gradient over the root of its mean square (Kingma, Ba 2015, section 2).

    In TensorFlow a gradient of some rows is one of the whole with zeros elsewhere.
    """
    hypers = {
        "lr": learning_rate,
        "beta1": beta_1,
        "beta2": beta_2,
        "beta1_power": beta_1**t,
        "beta2_power": beta_2**t,
        "epsilon": epsilon,
    }
    if amsgrad:  # Reddi, Kale, Kumar 2018
        slots = {"m": 0.0, "v": 0.0, "vhat": 0.0}
        dense, rows = rules.apply_adam_with_amsgrad, rules.apply_keras_adam_with_amsgrad
    else:
        slots = {"m": 0.0, "v": 0.0}
        dense, rows = rules.apply_adam, rules.apply_keras_adam
    return Step(dense, slots, hypers, rows)


def adamax(
    t: int,
    learning_rate: float,
    kept: Any,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
) -> Step:
    """Step by the mean gradient over its decaying maximum (Kingma, Ba 2015, section 7)."""
    hypers = {
        "lr": learning_rate,
        "beta1": beta_1,
        "beta2": beta_2,
        "beta1_power": beta_1**t,
        "epsilon": epsilon,
    }
    return Step(rules.apply_adamax, {"m": 0.0, "v": 0.0}, hypers)


def nadam(
    t: int,
    learning_rate: float,
    kept: float | None,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
    decay: float = 0.004,
) -> Step:
    """Step as Adam, by the mean gradient that the next step would take (Dozat 2016).

    The momentum of step t is mu(t); `kept` is the product of those of all steps before.
    """

    def mu(t: int) -> float:
        momentum: float = beta_1 * (1 - 0.5 * _BASE ** (decay * t))
        return momentum

    product = mu(t) if kept is None else kept * mu(t)
    hypers = {
        "lr": learning_rate,
        "beta1": beta_1,
        "beta2": beta_2,
        "beta2_power": beta_2**t,
        "mu": mu(t),
        "mu_next": mu(t + 1),
        "mu_product": product,
        "mu_product_next": product * mu(t + 1),
        "epsilon": epsilon,
    }
    return Step(rules.apply_nadam, {"m": 0.0, "v": 0.0}, hypers, kept=product)


def adagrad(
    t: int,
    learning_rate: float,
    kept: Any,
    *,
    initial_accumulator_value: float = 0.1,
    epsilon: float = 1e-7,
) -> Step:
    """Divide by the root of the sum of all squared gradients (Duchi et al. 2011)."""
    slots = {"accumulator": initial_accumulator_value}
    return Step(rules.apply_adagrad_v2, slots, {"lr": learning_rate, "epsilon": epsilon})


def adadelta(
    t: int, learning_rate: float, kept: Any, *, rho: float = 0.95, epsilon: float = 1e-7
) -> Step:
    """Scale by the root mean square of past steps over that of gradients (Zeiler 2012)."""
    hypers = {"lr": learning_rate, "rho": rho, "epsilon": epsilon}
    return Step(rules.apply_adadelta, {"accum_grad": 0.0, "accum_var": 0.0}, hypers)


def rmsprop(
    t: int,
    learning_rate: float,
    kept: Any,
    *,
    rho: float = 0.9,
    momentum: float = 0.0,
    epsilon: float = 1e-7,
    centered: bool = False,
) -> Step:
    """Divide by the root of the mean squared gradient (Tieleman, Hinton 2012).

    Centered, by its standard deviation (Graves 2013). With momentum epsilon is under the root.
    """
    mean = {"mg": 0.0} if centered else {}
    hypers = {"lr": learning_rate, "rho": rho, "epsilon": epsilon}
    if momentum > 0:
        rule = rules.apply_centered_rms_prop if centered else rules.apply_rms_prop
        slots = {**mean, "rms": 0.0, "momentum": 0.0}
        return Step(rule, slots, {**hypers, "momentum": momentum})
    rule = rules.apply_keras_centered_rms_prop if centered else rules.apply_keras_rms_prop
    return Step(rule, {**mean, "rms": 0.0}, hypers)


def ftrl(
    t: int,
    learning_rate: float,
    kept: Any,
    *,
    learning_rate_power: float = -0.5,
    initial_accumulator_value: float = 0.1,
    l1_regularization_strength: float = 0.0,
    l2_regularization_strength: float = 0.0,
    l2_shrinkage_regularization_strength: float = 0.0,
    beta: float = 0.0,
) -> Step:
    """Follow the regularized leader (McMahan et al. 2013); beta adds to the L2 strength."""
    slots = {"accumulator": initial_accumulator_value, "linear": 0.0}
    hypers = {
        "lr": learning_rate,
        "l1": l1_regularization_strength,
        "l2": l2_regularization_strength + beta / (2 * learning_rate),
        "lr_power": learning_rate_power,
    }
    if l2_shrinkage_regularization_strength > 0:
        shrinkage = {"l2_shrinkage": l2_shrinkage_regularization_strength}
        return Step(rules.apply_ftrl_v2, slots, {**hypers, **shrinkage})
    return Step(rules.apply_ftrl, slots, hypers)


def lion(
    t: int, learning_rate: float, kept: Any, *, beta_1: float = 0.9, beta_2: float = 0.99
) -> Step:
    """Step by the sign of a mean gradient (Chen et al. 2023, algorithm 2)."""
    hypers = {"lr": learning_rate, "beta1": beta_1, "beta2": beta_2}
    return Step(rules.apply_lion, {"m": 0.0}, hypers)


def signum(t: int, learning_rate: float, kept: Any, *, momentum: float = 0.9) -> Step:
    """Step by the sign of the mean gradient (Bernstein et al. 2018)."""
    return lion(t, learning_rate, kept, beta_1=momentum, beta_2=momentum)


def yogi(
    t: int,
    learning_rate: float,
    kept: Any,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-3,
    initial_accumulator_value: float = 1e-6,
) -> Step:
    """Step as Adam, by another mean square (Zaheer et al. 2018)."""
    hypers = adam(t, learning_rate, kept, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon).hypers
    return Step(rules.apply_yogi, {"m": 0.0, "v": initial_accumulator_value}, hypers)


def radam(
    t: int,
    learning_rate: float,
    kept: Any,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
) -> Step:
    """Step as Adam, once the mean square's variance is finite (Liu et al. 2020, algorithm 2)."""
    rectifier = 0.0
    if 1 - beta_2**t > 0:
        most = 2 / (1 - beta_2) - 1
        rho = most - 2 * t * beta_2**t / (1 - beta_2**t)
        if rho > 5:
            variance = (rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho)
            rectifier = math.sqrt(variance * (1 - beta_2**t))
    hypers = {
        "lr": learning_rate,
        "beta1": beta_1,
        "beta2": beta_2,
        "beta1_power": beta_1**t,
        "epsilon": epsilon,
        "rectifier": rectifier,
    }
    return Step(rules.apply_radam, {"m": 0.0, "v": 0.0}, hypers)


def adopt(
    t: int,
    learning_rate: float,
    kept: Any,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.9999,
    epsilon: float = 1e-6,
) -> Step:
    """Average quotients of gradients and the root mean square before (Taniguchi et al. 2024).

    In the first step, which has none, the limit is 0: the mean square becomes the squared gradient.
    """
    hypers = {
        "lr": learning_rate,
        "beta1": beta_1,
        "beta2": 0.0 if t == 1 else beta_2,
        "epsilon": epsilon,
        "limit": (t - 1) ** 0.25,
    }
    return Step(rules.apply_adopt, {"m": 0.0, "v": 0.0}, hypers)


def ademamix(
    t: int,
    learning_rate: float,
    kept: Any,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    beta_3: float = 0.9999,
    alpha: float = 5.0,
    epsilon: float = 1e-8,
    warmup_steps: float = 0,
) -> Step:
    """Step as Adam, by a fast and a slow mean gradient (Pagliardini et al. 2025, algorithm 1)."""
    share = 1.0 if t >= warmup_steps else t / warmup_steps
    hypers = {
        **adam(t, learning_rate, kept, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon).hypers,
        "alpha": alpha * share,
        "beta3": beta_3,
    }
    if share < 1 and 0 < beta_1 < beta_3 < 1:  # the inverse of the logarithm grows evenly
        log_1, log_3 = math.log(beta_1), math.log(beta_3)
        hypers["beta3"] = math.exp(log_1 * log_3 / ((1 - share) * log_3 + share * log_1))
    return Step(rules.apply_ademamix, {"m": 0.0, "slow": 0.0, "v": 0.0}, hypers)


def schedule_free_sgd(
    t: int,
    learning_rate: float,
    kept: float | None,
    *,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
) -> Step:
    """Average the iterates by their squared learning rates (Defazio et al. 2024, algorithm 1).

    `kept` is the sum of those of all steps before.
    """
    total = (kept or 0.0) + learning_rate * learning_rate
    hypers = {
        "lr": learning_rate,
        "beta": momentum,
        "share": learning_rate * learning_rate / total if total > 0 else 0.0,
        "weight_decay": weight_decay,
    }
    return Step(rules.apply_schedule_free_sgd, {"offset": 0.0}, hypers, kept=total)


def schedule_free_adamw(
    t: int,
    learning_rate: float,
    kept: float | None,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.0,
) -> Step:
    """Average the iterates of AdamW without its mean gradient (Defazio et al. 2024)."""
    plain = schedule_free_sgd(t, learning_rate, kept, weight_decay=weight_decay)
    hypers = {name: value for name, value in plain.hypers.items() if name != "beta"}
    hypers |= {"beta1": beta_1, "beta2": beta_2, "beta2_power": beta_2**t, "epsilon": epsilon}
    slots = {"offset": 0.0, "v": 0.0}
    return Step(rules.apply_schedule_free_adam, slots, hypers, kept=plain.kept)


def schedule_free_average(y: np.ndarray, offset: np.ndarray, beta: float) -> np.ndarray:
    """Return the average x of iterates z = y + offset, where y = (1 - beta) z + beta x."""
    return y - (1 / beta - 1) * offset


def rowwise_adagrad(
    t: int,
    learning_rate: float,
    kept: Any,
    *,
    initial_accumulator_value: float = 0.0,
    epsilon: float = 1e-8,
    l2: float = 0.0,
) -> Step:
    """Divide a row's step by the root of the sum of its mean squares (Mudigere et al. 2022)."""
    hypers = {"lr": learning_rate, "epsilon": epsilon, "l2": l2}
    return Step(rules.apply_rowwise_adagrad, {"accumulator": initial_accumulator_value}, hypers)


def rowwise_adam(
    t: int,
    learning_rate: float,
    kept: Any,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-8,
) -> Step:
    """Step as Adam, with one mean square for each row (Zhang et al. 2025, algorithm 1)."""
    step = adam(t, learning_rate, kept, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon)
    return Step(rules.apply_rowwise_adam, {"m": 0.0, "v": 0.0}, step.hypers)


def lamb(
    t: int,
    learning_rate: float,
    kept: Any,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-6,
    weight_decay: float = 0.0,
) -> Step:
    """Give Adam's update of a variable the norm of its weights (You et al. 2020, algorithm 2)."""
    step = adam(t, learning_rate, kept, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon)
    hypers = {**step.hypers, "weight_decay": weight_decay}
    return Step(rules.apply_lamb, {"m": 0.0, "v": 0.0}, hypers)


def lars(
    t: int,
    learning_rate: float,
    kept: Any,
    *,
    momentum: float = 0.9,
    trust: float = 0.001,
    epsilon: float = 0.0,
    weight_decay: float = 0.0,
) -> Step:
    """Step by a share of the weights' norm over the gradient's (You et al. 2017, algorithm 1)."""
    hypers = {
        "lr": learning_rate,
        "momentum": momentum,
        "trust": trust,
        "weight_decay": weight_decay,
        "epsilon": epsilon,
    }
    return Step(rules.apply_lars, {"momentum": 0.0}, hypers)


#: By the names of tfopt's classes. Decay of weights is not the algorithm's: see `training`.
ALGORITHMS: dict[str, Callable[..., Step]] = {
    "ADOPT": adopt,
    "AdEMAMix": ademamix,
    "Adadelta": adadelta,
    "Adagrad": adagrad,
    "Adam": adam,
    "AdamMini": rowwise_adam,
    "AdamW": adam,
    "Adamax": adamax,
    "Ftrl": ftrl,
    "LAMB": lamb,
    "LARS": lars,
    "Lion": lion,
    "Nadam": nadam,
    "RAdam": radam,
    "RMSprop": rmsprop,
    "RowwiseAdagrad": rowwise_adagrad,
    "RowwiseAdam": rowwise_adam,
    "SGD": sgd,
    "ScheduleFreeAdamW": schedule_free_adamw,
    "ScheduleFreeSGD": schedule_free_sgd,
    "Signum": signum,
    "Yogi": yogi,
}

#: Those to which a vector is a row, not its elements.
OF_WHOLE_VECTORS = ("AdamMini",)
#: Those that need norms of whole variables.
OF_WHOLE_TENSORS = ("LAMB", "LARS")


# ---- whose steps are of tensors, not of elements


def adafactor_slots(shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of Adafactor's slots: means of rows and columns, or of each element."""
    if len(shape) < 2:
        return {"v": shape}
    return {"r": shape[:-1], "c": (*shape[:-2], shape[-1])}


def adafactor(
    w: np.ndarray,
    slots: Mapping[str, np.ndarray],
    g: np.ndarray,
    *,
    t: int,
    learning_rate: float,
    beta_2_decay: float = -0.8,
    epsilon_1: float = 1e-30,
    epsilon_2: float = 1e-3,
    clip_threshold: float = 1.0,
    relative_step: bool = True,
    weight_decay: float = 0.0,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the variable and the slots after a step (Shazeer, Stern 2018, algorithms 4 and 5).

    The means are NumPy's of arrays in the order of C.
    """
    if not w.size:
        return w, dict(slots)
    real = np.dtype(np.float32 if w.dtype.itemsize == 2 else w.dtype).type
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
        if weight_decay > 0:  # decoupled: what shrinks does not depend on the gradient
            x = real(1 - learning_rate * weight_decay) * x
        u = g / root
        u = u / real(max(1.0, _rms(u) / clip_threshold))
        rho = min(learning_rate, t**-0.5) if relative_step else learning_rate
        x = x - real(max(epsilon_2, _rms(x)) * rho) * u
        return x.astype(w.dtype), {k: mean.astype(w.dtype) for k, mean in means.items()}


def _rms(x: np.ndarray) -> float:
    return math.sqrt(sum_of_squares(x) / x.size)
