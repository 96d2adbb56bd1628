"""Multinomial logistic regression by Newton's method with conjugate gradients.

Over the weights W, a row for each class, and the intercepts b it minimizes ::

    sum_i c_i * (logsumexp(z_i) - z_i[y_i]) + l2 / 2 * |W|**2,    z_i = W x_i + b

The dual variables of a sample are a_i = e[y_i] - q_i with probabilities q_i, and the dual is ::

    sum_i c_i * entropy(q_i) - l2 / 2 * |V|**2,    V = sum_i c_i * a_i x_i^T / l2

where an intercept demands that sum_i c_i * a_i = 0. At the minimum q_i = softmax(z_i).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import kl_div, logsumexp

from tfopt.kernels.sdca import hessian_products, multiclass, second_order
from tfopt.linear_model._solver.certificate import Certificate
from tfopt.linear_model._solver.costs import CHEAP, NEWTON_SOLVERS, Costs
from tfopt.linear_model._solver.monitor import ConvergenceMonitor, SolverOptions, SolverResult
from tfopt.linear_model._solver.newton import MIN_DECREASE, armijo_holds, conjugate_gradients
from tfopt.linear_model._solver.objective import Rows
from tfopt.linear_model._solver.reductions import weighted_sum

__all__ = ["Multinomial", "solve_multinomial"]

LANES = multiclass.LANES
#: The most Newton steps for the intercepts alone, and the change that ends them.
INTERCEPT_STEPS, INTERCEPT_TOLERANCE = 20, 1e-12
#: About how many nanoseconds a value of a row takes in a Newton step.
STEP = 20.0


class Multinomial(NamedTuple):
    """The objective.

    Attributes
    ----------
    rows : tuple of ndarray
        The features, as the kernels take them.
    codes : ndarray of int, shape (n_samples,)
        The number of each sample's class.
    n_classes : int
    weight : ndarray, shape (n_samples,)
    n_features : int
    l2 : float
    intercept : bool
    threads : int
    """

    rows: Rows
    codes: np.ndarray
    n_classes: int
    weight: np.ndarray
    n_features: int
    l2: float
    intercept: bool
    threads: int

    def scores(self, theta: np.ndarray) -> np.ndarray:
        """Return W x + b, shape (n_samples, n_classes); theta is W with b as its last column."""
        z = np.empty((len(self.weight), len(theta)))
        for first in range(0, len(theta), LANES):
            lanes = theta[first : first + LANES, :-1]
            w = np.zeros((self.n_features, LANES))
            w[:, : len(lanes)] = lanes.T
            z[:, first : first + LANES] = multiclass.predictions(*self.rows, w)[:, : len(lanes)]
        z += theta[:, -1]
        return z

    def gradient(self, factors: np.ndarray) -> np.ndarray:
        """Return the sum of the samples' factors times x and 1, shape (n_classes, n_features + 1).

        The last column is 0 without an intercept.
        """
        result = np.zeros((factors.shape[1], self.n_features + 1))
        for first in range(0, len(result), LANES):
            lanes = factors[:, first : first + LANES]
            group = np.zeros((len(factors), LANES))
            group[:, : lanes.shape[1]] = lanes
            sums = multiclass.weights_of(*self.rows, group, self.n_features)
            result[first : first + LANES, :-1] = sums.T[: lanes.shape[1]]
        if self.intercept:
            result[:, -1] = factors.sum(axis=0)
        return result

    def losses(self, z: np.ndarray) -> float:
        """Return the sum of the losses."""
        with np.errstate(over="ignore"):
            each = logsumexp(z, axis=1) - z[np.arange(len(z)), self.codes]
            return weighted_sum(self.weight, each)

    def penalty(self, theta: np.ndarray) -> float:
        """Return l2 / 2 * |W|**2."""
        with np.errstate(over="ignore"):
            return float(self.l2 / 2 * np.square(theta[:, :-1]).sum())

    def probabilities(self, z: np.ndarray) -> np.ndarray:
        """Return softmax(z)."""
        p: np.ndarray = np.exp(z - logsumexp(z, axis=1, keepdims=True))
        return p

    @property
    def class_sums(self) -> np.ndarray:
        """The total weight of each class."""
        return np.bincount(self.codes, self.weight, minlength=self.n_classes)


def solve_multinomial(
    problem: Multinomial, start: np.ndarray, options: SolverOptions
) -> tuple[SolverResult, np.ndarray]:
    """Minimize the objective.

    Parameters
    ----------
    problem : Multinomial
    start : ndarray, shape (n_classes, n_features + 1)
        Weights, and the intercepts as the last column.
    options : SolverOptions

    Returns
    -------
    SolverResult
        The weights of its certificate are of this shape, too.
    ndarray, shape (n_classes, n_samples)
        The dual variables.
    """
    size = problem.rows[0].size + problem.rows[3].size
    options = options._replace(solver=NEWTON_SOLVERS[1])
    polishes = STEP * size * problem.n_classes <= CHEAP
    costs = Costs(math.inf, forms_hessian=False, step_polishes=polishes)
    monitor = ConvergenceMonitor(options, costs, 0)
    theta, duals = start - start.mean(axis=0), np.zeros((problem.n_classes, len(problem.codes)))
    while True:
        theta, z = with_best_intercepts(problem, theta)
        p = problem.probabilities(z)
        point, q = certify(problem, theta, z, p)
        monitor.update_newton(point)
        if monitor.best is point:
            duals = -q.T
            duals[problem.codes, np.arange(len(q))] += 1.0
        if monitor.is_done:
            break
        moved = newton_step(problem, point, z, p)
        if moved is None:
            monitor.end_newton()
            break
        theta = moved
    return monitor.result(), duals


def with_best_intercepts(problem: Multinomial, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights with the best intercepts for them, of sum 0, and the scores there."""
    z = problem.scores(theta)
    if not problem.intercept:
        return theta, z
    sums, weight = problem.class_sums, problem.weight
    for _ in range(INTERCEPT_STEPS):
        p = problem.probabilities(z)
        mean = _column_sums(weight, p)
        residual = mean - sums
        if np.abs(residual).max() <= INTERCEPT_TOLERANCE * sums.sum():
            break
        H = np.diag(mean) - np.einsum("i,ij,ik->jk", weight, p, p)
        H += sums.sum() / problem.n_classes**2  # what all intercepts have in common is free
        step = -residual
        if not second_order.solve(H, step):
            break
        step *= min(1.0, 4.0 / max(np.abs(step).max(), 1e-300))
        share, promised = 1.0, -weighted_sum(residual, step)
        most = problem.losses(z)
        while problem.losses(z + share * step) > most - 1e-4 * share * promised and share > 1e-8:
            share /= 2
        if share <= 1e-8:
            break
        theta = theta.copy()
        theta[:, -1] += share * step
        z = z + share * step
    theta = theta.copy()
    z = z - theta[:, -1].mean()
    theta[:, -1] -= theta[:, -1].mean()
    return theta, z


def certify(
    problem: Multinomial, theta: np.ndarray, z: np.ndarray, p: np.ndarray
) -> tuple[Certificate, np.ndarray]:
    """Return the duality gap of weights and of the dual variables of their probabilities.

    The gap is a sum of terms that are not negative: the samples' relative entropies of the dual
    variables' probabilities q and softmax(z), and the distance of W and V.

    Returns
    -------
    Certificate
    ndarray, shape (n_samples, n_classes)
        The probabilities q.
    """
    q = feasible(problem, p) if problem.intercept else p
    factors = -q * problem.weight[:, None]
    factors[np.arange(len(q)), problem.codes] += problem.weight
    V = problem.gradient(factors)[:, :-1] / problem.l2
    with np.errstate(over="ignore", invalid="ignore"):
        gap = weighted_sum(problem.weight, kl_div(q, p).sum(axis=1)) if q is not p else 0.0
        gap += problem.l2 / 2 * float(np.square(theta[:, :-1] - V).sum())
    value = problem.losses(z) + problem.penalty(theta)
    return Certificate(theta, 0.0, value, max(gap, 0.0)), q


def feasible(problem: Multinomial, p: np.ndarray) -> np.ndarray:
    """Return probabilities near p whose weighted sum is the weight of each class.

    These are (1 - t) * p + t * m with the same m for all samples, and the least t, doubled, for
    which m has no negative entry.
    """
    sums = problem.class_sums
    residual = sums - _column_sums(problem.weight, p)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = min(2 * float(np.max(np.where(residual < 0, -residual / (sums - residual), 0.0))), 1.0)
    if t == 0:
        return p
    m = np.maximum(sums + residual * (1 - t) / t, 0.0)
    q: np.ndarray = (1 - t) * p + t * (m / m.sum())
    return q


def _column_sums(weight: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Return the weighted sums of columns, without BLAS; see `weighted_sum`."""
    sums: np.ndarray = np.einsum("i,ij->j", weight, p)
    return sums


def newton_step(
    problem: Multinomial, point: Certificate, z: np.ndarray, p: np.ndarray
) -> np.ndarray | None:
    """Return the weights after a Newton step with a line search; None if no step is good."""
    theta, weight = point.w, problem.weight[:, None]
    factors = weight * p
    factors[np.arange(len(p)), problem.codes] -= problem.weight
    gradient = problem.gradient(factors)
    gradient[:, :-1] += problem.l2 * theta[:, :-1]
    step = newton_direction(problem, gradient, p)
    step -= step.mean(axis=0)  # which the losses do not see: at the minimum classes sum up to 0
    promised = -float(np.sum(gradient * step))
    z_step, share = problem.scores(step), 1.0
    while True:
        there = theta + share * step
        value = problem.losses(z + share * z_step) + problem.penalty(there)
        if armijo_holds(point, value, share * promised):
            return there
        if not share * promised > MIN_DECREASE * point.objective:
            return None
        share /= 2


def newton_direction(problem: Multinomial, gradient: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Solve H s = -gradient approximately; H has no curvature along intercepts that are the same.

    Its diagonal is the preconditioner.
    """
    weight = problem.weight[:, None]
    penalty = np.full(problem.n_features + 1, problem.l2)
    penalty[-1] = 0.0
    bends = weight * p * (1 - p)
    diagonal = penalty + np.array(
        [
            hessian_products.diagonal(*problem.rows, bend, problem.n_features, problem.threads)
            for bend in np.ascontiguousarray(bends.T)
        ]
    )

    def product(_: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        s = vectors.reshape(gradient.shape)
        u = problem.scores(s) * p
        u -= p * u.sum(axis=1, keepdims=True)
        u *= weight
        Hs: np.ndarray = problem.gradient(u) + penalty * s
        return Hs.reshape(1, -1)

    step = conjugate_gradients(product, diagonal.reshape(1, -1), gradient.reshape(1, -1))
    return step.reshape(gradient.shape)
