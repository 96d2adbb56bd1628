"""Losses of linear models by their definitions, counted from the least they can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tfopt.linear_model import SDCAClassifier, SDCARegressor

__all__ = [
    "CORNERED",
    "DEFINITIONS",
    "FEW",
    "FEW_SMOOTH",
    "LOSSES",
    "SMOOTH",
    "conjugate",
    "estimator",
    "least",
    "parameter_of",
    "phi",
    "targets",
]

Function = Callable[[np.ndarray, np.ndarray, Any], np.ndarray]


class Definition(NamedTuple):
    """phi(z; y), phi*(-a) and where it is finite, given the parameter; and what y is.

    The option is that of the estimators that is the parameter.
    """

    phi: Function
    conjugate: Function
    is_finite: Function
    labels: str = "classes"
    option: str | None = None


def entropy(t: np.ndarray) -> np.ndarray:
    return np.where(t > 0, t * np.log(np.where(t > 0, t, 1)), 0)


def missing(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.maximum(1 - y * z, 0)


def tweedie(z: np.ndarray, y: np.ndarray, p: Any) -> np.ndarray:
    """e^((2 - p) z) / (2 - p) + y e^((1 - p) z) / (p - 1), above where z is log(y)."""
    s = z - np.log(np.where(y > 0, y, 1))
    above = np.expm1((2 - p) * s) / (2 - p) + np.expm1((1 - p) * s) / (p - 1)
    return np.where(y > 0, y ** (2 - p) * above, np.exp((2 - p) * z) / (2 - p))


def tweedie_conjugate(a: np.ndarray, y: np.ndarray, p: Any) -> np.ndarray:
    """The largest -a * z - phi(z), where the slope is -a, found by halving a bracket."""
    low, high = np.full_like(a, -2000.0), np.full_like(a, 2000.0)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(100):
            z = low + (high - low) / 2
            above = np.exp((2 - p) * z) - y * np.exp((1 - p) * z) + a > 0
            low, high = np.where(above, low, z), np.where(above, z, high)
        found = -a * high - tweedie(high, y, p)
    return np.where(y > 0, found, (entropy(-a) + a) / (2 - p))


def is_share(a: np.ndarray, y: np.ndarray, _: Any) -> np.ndarray:
    return (y * a >= 0) & (y * a <= 1)


DEFINITIONS = {
    "logistic": Definition(
        lambda z, y, _: np.logaddexp(0, -y * z),
        lambda a, y, _: entropy(y * a) + entropy(1 - y * a),
        is_share,
    ),
    "hinge": Definition(lambda z, y, _: missing(z, y), lambda a, y, _: -y * a, is_share),
    "smooth_hinge": Definition(
        lambda z, y, gamma: np.where(
            missing(z, y) >= gamma, missing(z, y) - gamma / 2, missing(z, y) ** 2 / (2 * gamma)
        ),
        lambda a, y, gamma: -y * a + gamma * a * a / 2,
        is_share,
        option="gamma",
    ),
    "squared_hinge": Definition(
        lambda z, y, _: missing(z, y) ** 2,
        lambda a, y, _: -y * a + a * a / 4,
        lambda a, y, _: y * a >= 0,
    ),
    "squared": Definition(
        lambda z, y, _: (z - y) ** 2 / 2,
        lambda a, y, _: a * a / 2 - a * y,
        lambda a, y, _: np.isfinite(a),
        "numbers",
    ),
    "poisson": Definition(
        lambda z, y, _: np.exp(z) - y * z + entropy(y) - y,
        lambda a, y, _: entropy(y - a) - (y - a) - entropy(y) + y,
        lambda a, y, _: a <= y,
        "counts",
    ),
    "gamma": Definition(
        lambda z, y, _: y * np.exp(-z) + z - 1 - np.log(y),
        lambda a, y, _: entropy(1 + a) - (1 + a) * (1 + np.log(y)) + 1 + np.log(y),
        lambda a, y, _: a >= -1,
        "amounts",
    ),
}
DEFINITIONS |= {
    "tweedie": Definition(
        tweedie, tweedie_conjugate, lambda a, y, _: (y > 0) | (a <= 0), "counts", "power"
    ),
    "huber": Definition(
        lambda z, y, epsilon: np.where(
            np.abs(z - y) <= epsilon, (z - y) ** 2 / 2, epsilon * (np.abs(z - y) - epsilon / 2)
        ),
        lambda a, y, _: a * a / 2 - a * y,
        lambda a, y, epsilon: np.abs(a) <= epsilon,
        "numbers",
        "epsilon",
    ),
    "squared_epsilon_insensitive": Definition(
        lambda z, y, epsilon: np.maximum(np.abs(z - y) - epsilon, 0) ** 2,
        lambda a, y, epsilon: a * a / 4 - a * y + epsilon * np.abs(a),
        lambda a, y, _: np.isfinite(a),
        "numbers",
        "epsilon",
    ),
    "epsilon_insensitive": Definition(
        lambda z, y, epsilon: np.maximum(np.abs(z - y) - epsilon, 0),
        lambda a, y, epsilon: -a * y + epsilon * np.abs(a),
        lambda a, y, _: np.abs(a) <= 1,
        "numbers",
        "epsilon",
    ),
    "quantile": Definition(
        lambda z, y, q: np.maximum(q * (y - z), (q - 1) * (y - z)),
        lambda a, y, _: -a * y,
        lambda a, y, q: (q - 1 <= a) & (a <= q),
        "numbers",
        "quantile",
    ),
}
LOSSES = tuple(DEFINITIONS)
CORNERED = ("hinge", "quantile", "epsilon_insensitive")
SMOOTH = tuple(loss for loss in LOSSES if loss not in CORNERED)
#: For tests that take long, those that differ in more than a formula.
FEW = ("logistic", "hinge", "smooth_hinge", "squared", "poisson", "huber")
FEW_SMOOTH = tuple(loss for loss in FEW if loss in SMOOTH)


def phi(loss: str, z: np.ndarray, y: np.ndarray, parameter: Any) -> np.ndarray:
    return DEFINITIONS[loss].phi(z, y, parameter)


def conjugate(loss: str, a: np.ndarray, y: np.ndarray, parameter: Any) -> np.ndarray:
    """phi*(-a)"""
    assert DEFINITIONS[loss].is_finite(a, y, parameter).all()
    return DEFINITIONS[loss].conjugate(a, y, parameter)


def least(loss: str, y: np.ndarray) -> np.ndarray:
    """Return the least the loss can be, from which `phi` counts."""
    return y - entropy(y) if loss == "poisson" else np.zeros_like(y)


def parameter_of(loss: str, share: float) -> float:
    """Return the parameter of a loss for a number between 0 and 1: a power is between 1 and 2."""
    return 1 + share if loss.startswith("tweedie") else share


def estimator(loss: str, parameter: float | None = None, **options: Any) -> Any:
    """Return an estimator with a loss, and the parameter if it has one."""
    option = DEFINITIONS[loss].option
    if option is not None and parameter is not None:
        options[option] = parameter_of(loss, parameter)
    kind = SDCAClassifier if DEFINITIONS[loss].labels == "classes" else SDCARegressor
    return kind(loss, **options)


def targets(loss: str, z: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return labels for the predictions z: -1 and 1, counts, amounts, or themselves."""
    return {
        "classes": lambda: np.sign(z),
        "counts": lambda: random.poisson(np.exp(np.clip(z / 3, -3, 3))).astype(float),
        "amounts": lambda: random.gamma(2.0, np.exp(np.clip(z / 3, -3, 3)) / 2) + 1e-3,
        "numbers": lambda: z,
    }[DEFINITIONS[loss].labels]()
