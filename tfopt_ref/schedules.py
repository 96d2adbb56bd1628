"""Learning rates that change with the step: formulas in float64.

In each of them `s` is the step, counted from 0. The other arguments have the names of a schedule's
configuration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def exponential_decay(
    s: float, *, initial_learning_rate: float, decay_steps: float, decay_rate: float,
    staircase: bool = False,
) -> Any:  # fmt: skip
    """Return lr r^(s/d); on a staircase, s/d is rounded down."""
    return initial_learning_rate * decay_rate ** periods(s, decay_steps, staircase)


def inverse_time_decay(
    s: float, *, initial_learning_rate: float, decay_steps: float, decay_rate: float,
    staircase: bool = False,
) -> Any:  # fmt: skip
    """Return lr / (1 + r s/d); on a staircase, s/d is rounded down."""
    return initial_learning_rate / (1 + decay_rate * periods(s, decay_steps, staircase))


def periods(s: float, decay_steps: float, staircase: bool) -> Any:
    """Return s/d, rounded down on a staircase."""
    return np.floor(s / decay_steps) if staircase else s / decay_steps


def piecewise_constant_decay(
    s: float, *, boundaries: Sequence[float], values: Sequence[float]
) -> Any:
    """Return the value of the first boundary that is at least s, or else the last value."""
    return values[sum(boundary < s for boundary in boundaries)]


def polynomial_decay(
    s: float, *, initial_learning_rate: float, decay_steps: float,
    end_learning_rate: float = 0.0001, power: float = 1.0, cycle: bool = False,
) -> Any:  # fmt: skip
    """Return (lr - end) (1 - s/d)^power + end.

    s is at most d; with `cycle`, d becomes its first multiple that is at least s instead.
    """
    d = decay_steps * np.maximum(1, np.ceil(s / decay_steps)) if cycle else decay_steps
    left = np.maximum(1 - np.minimum(s, d) / d, 0)
    return (initial_learning_rate - end_learning_rate) * left**power + end_learning_rate


def cosine_decay(
    s: float, *, initial_learning_rate: float, decay_steps: float, alpha: float = 0.0,
    warmup_target: float | None = None, warmup_steps: float = 0,
) -> Any:  # fmt: skip
    """Return lr ((1 - alpha) wave(s/d) + alpha) (Loshchilov, Hutter 2017).

    With a target, the rate first rises to it linearly in the warm-up steps; then the cosine begins.
    """
    peak = initial_learning_rate
    if warmup_target is not None:
        if s < warmup_steps:
            return peak + (warmup_target - peak) * (s / warmup_steps)
        s, peak = s - warmup_steps, warmup_target
    return peak * ((1 - alpha) * wave(np.minimum(s, decay_steps) / decay_steps) + alpha)


def cosine_decay_restarts(
    s: float, *, initial_learning_rate: float, first_decay_steps: float, t_mul: float = 2.0,
    m_mul: float = 1.0, alpha: float = 0.0,
) -> Any:  # fmt: skip
    """Return lr ((1 - alpha) m^i wave(f) + alpha) after the part f of period i.

    Period i is t^i times as long as the first (Loshchilov, Hutter 2017).
    """
    elapsed = s / first_decay_steps

    def begin(i: Any) -> Any:
        """Return 1 + t + ... + t^(i - 1): the begin of period i, in lengths of the first period."""
        return i if t_mul == 1 else (1 - t_mul**i) / (1 - t_mul)

    if t_mul == 1:
        i = np.floor(elapsed)
    else:
        i = np.floor(np.log(1 - elapsed * (1 - t_mul)) / np.log(t_mul))
    i = i + 1 if elapsed >= begin(i + 1) else i - 1 if elapsed < begin(i) else i  # log was rounded
    part = (elapsed - begin(i)) / t_mul**i
    return initial_learning_rate * ((1 - alpha) * (m_mul**i * wave(part)) + alpha)


def linear_cosine_decay(
    s: float, *, initial_learning_rate: float, decay_steps: float, num_periods: float = 0.5,
    alpha: float = 0.0, beta: float = 0.001, noise: float = 0.0,
) -> Any:  # fmt: skip
    """Return lr ((alpha + (d - s)/d + noise) wave(2 n s/d) + beta) (Bello et al. 2017)."""
    s = np.minimum(s, decay_steps)
    line = alpha + ((decay_steps - s) / decay_steps + noise)
    return initial_learning_rate * (line * wave(2 * num_periods * (s / decay_steps)) + beta)


def noisy_linear_cosine_decay(
    s: float, *, decay_steps: float, initial_variance: float = 1.0, variance_decay: float = 0.55,
    seed: int = 0, **others: float,
) -> Any:  # fmt: skip
    """Return `linear_cosine_decay` with noise of variance v / (1 + s)^r.

    The noise is the first standard normal number of NumPy's default generator for (seed, s).
    """
    noise = np.random.default_rng((seed, int(abs(s)))).standard_normal()
    noise *= np.sqrt(initial_variance / (1 + np.minimum(s, decay_steps)) ** variance_decay)
    return linear_cosine_decay(s, decay_steps=decay_steps, noise=noise, **others)


def linear_warmup(
    s: float, *, schedule: Any, warmup_steps: float, initial_learning_rate: float = 0.0
) -> Any:
    """Rise linearly to the start of a schedule, then return the schedule (Goyal et al. 2017)."""
    if s >= warmup_steps:
        return rate(schedule, s - warmup_steps)
    rise = rate(schedule, 0) - initial_learning_rate
    return rise * (s / warmup_steps) + initial_learning_rate


def join(s: float, *, schedules: Sequence[Any], boundaries: Sequence[float]) -> Any:
    """Return the rate of the last schedule whose boundary is reached, counted from there."""
    begun = sum(boundary <= s for boundary in boundaries)
    return rate(schedules[begun], s - boundaries[begun - 1] if begun else s)


def wave(x: Any) -> float:
    """Return (1 + cos(pi x)) / 2, which falls from 1 at 0 to 0 at 1."""
    angle = math.pi * x
    return 0.5 * (1 + (math.cos(angle) if math.isfinite(angle) else math.nan))


SCHEDULES: dict[str, Callable[..., Any]] = {
    "CosineDecay": cosine_decay,
    "CosineDecayRestarts": cosine_decay_restarts,
    "ExponentialDecay": exponential_decay,
    "InverseTimeDecay": inverse_time_decay,
    "Join": join,
    "LinearCosineDecay": linear_cosine_decay,
    "LinearWarmup": linear_warmup,
    "NoisyLinearCosineDecay": noisy_linear_cosine_decay,
    "PiecewiseConstantDecay": piecewise_constant_decay,
    "PolynomialDecay": polynomial_decay,
}


def rate(schedule: Any, step: float) -> float:
    """Return the learning rate of a step.

    Parameters
    ----------
    schedule : float, callable or dict
        A constant, a function of the step, or a schedule's "class_name" and "config".
    step : float
        The step, counted from 0.
    """
    if not isinstance(schedule, dict):
        return float(schedule(step) if callable(schedule) else schedule)
    arguments = {key: value for key, value in schedule["config"].items() if key != "name"}
    with np.errstate(all="ignore"):
        return float(SCHEDULES[schedule["class_name"]](np.float64(step), **arguments))
