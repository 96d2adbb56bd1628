"""The penalties of a path or a search: given values, or a grid that falls from the largest one."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.kernels.linear import visits
from tfopt.linear_model._fit.penalty import Penalties
from tfopt.linear_model._fit.problem import Samples
from tfopt.linear_model.constant_model import Counts
from tfopt.linear_model.estimator import SDCAEstimator
from tfopt.linear_model.loss_record import PointwiseLoss, weighted_sum
from tfopt.linear_model.validation import check_count, check_number

__all__ = ["largest_l1", "path_penalties"]

#: The smallest l1 of a grid, as a share of the largest.
SHARE = 1e-3


def path_penalties(
    l1s: Any, l2s: Any, l1: Any, l2: Any, eps: Any, largest: Callable[[], float]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the penalties of a path: all pairs of the values of both.

    Parameters
    ----------
    l1s, l2s : int, sequence of float or None
        The values, or their number: l1 falls from the largest useful value, l2 from 1e4 to 1e-4.
    l1, l2 : float or None
        The penalty without a list of values; 0 and 1 by default.
    eps : float or None
        The smallest l1 as a share of the largest, if `l1s` is a number.
    largest : callable
        Returns the largest useful l1.

    Returns
    -------
    l1s, l2s : ndarray, shape (n_values,)

    Raises
    ------
    InvalidArgumentError
        If no values are given, if a penalty is given twice, and for values out of range.
    ValueError
        For numbers of values that are not positive.
    """
    if l1s is None and l2s is None:
        raise InvalidArgumentError(
            "a path needs the values of a penalty: give l1s or l2s, or both for all pairs"
        )
    values = []
    for name, given, other, default in (("l1", l1s, l1, 0.0), ("l2", l2s, l2, 1.0)):
        if given is not None and other is not None:
            raise InvalidArgumentError(
                f"{name}s has the values of {name}: do not give {name} as well"
            )
        counts = isinstance(given, numbers.Integral)
        if name == "l1" and eps is not None and not counts:
            raise InvalidArgumentError(
                "eps is the smallest l1 as a share of the largest: give the number of values as "
                "l1s, or leave eps out"
            )
        if counts:
            check_count(f"{name}s", given, 1)
            end = SHARE if eps is None else check_number("eps", eps, 0, open_end=True, high=1)
            top = largest() or 1.0 if name == "l1" else 1e4
            given = np.geomspace(top, top * end if name == "l1" else 1e-4, int(given))
        values.append(_checked(name, given, default if other is None else other))
    first, second = values
    if first.min() == second.min() == 0:
        raise InvalidArgumentError(
            "l1 and l2 are both 0 in a path, which has penalties: give l2 above 0, or l1s above 0"
        )
    return np.repeat(first, second.size), np.tile(second, first.size)


def _checked(name: str, values: Any, other: float) -> np.ndarray:
    """Return the given values of a penalty, or its only value."""
    if values is None:
        return np.array([other], np.float64)
    array = np.array(values, np.float64)
    if array.ndim != 1 or array.size == 0:
        raise InvalidArgumentError(
            f"{name}s must be a number of values, or a sequence of at least one, not of shape "
            f"{array.shape}"
        )
    for value in array.tolist():
        check_number(f"each of {name}s", value, 0, open_end=name == "l2")
    return array


def largest_l1(model: SDCAEstimator, data: Samples) -> float:
    """Return an l1 with which all weights are 0, for any l2.

    For smooth losses it is the smallest one; for others, the dual variables are not unique.

    Raises
    ------
    InvalidArgumentError
        If a feature has no penalty, so that its weight is not 0 for any l1.
    """
    problem = model._problem_of(data, data.n_threads)._replace(l2=1.0)
    factor, scale = model._factor(data.shape[1]), 1.0 if data.scale is None else data.scale
    factors = np.ones(data.shape[1]) if factor is None else factor
    if not factors.all():
        raise InvalidArgumentError(
            "with a factor of 0 in penalty_factor the largest useful l1 is not known: give the "
            "values as l1s, not how many"
        )
    slopes = Penalties.of(factors.size, 1.0, 0.0, factors, model.positive)
    largest = 0.0
    for k in range(data.n_problems):
        examples = np.zeros(data.shape[0], visits.EXAMPLE)
        examples["y"], examples["weight"] = y, w = data.target(k), data.weights
        examples["a"] = _duals_of_constant(problem.phi, y, w, problem.intercept)
        reaches = slopes.reaches(problem.weights_of(examples) / scale)
        largest = max(largest, float(reaches.max(initial=0)))
    return largest


def _duals_of_constant(
    phi: PointwiseLoss, y: np.ndarray, weights: np.ndarray, intercept: bool
) -> np.ndarray:
    """Return the negative derivatives of the losses of the model without features."""
    best = Counts.of(y, weights[None]).best_constant(phi) if intercept else 0.0
    corners = phi.corners(y)
    if not corners:
        return -phi.gradient(np.full(y.shape, best), y)
    a, free = np.zeros(y.size), np.zeros(y.size)
    for place, low, high in corners:
        a += np.where(place > best, high, low)
        free += np.where(place == best, high - low, 0.0)
    room = weighted_sum(weights, free)
    share = -weighted_sum(weights, a) / room if intercept and room else 0.5
    duals: np.ndarray = a + np.clip(share, 0.0, 1.0) * free
    return duals
