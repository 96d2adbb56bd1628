"""Multinomial logistic regression by Newton's method.

With a row of weights W for each class and the intercepts b, it minimizes ::

    sum_i c_i * (logsumexp(z_i) - z_i[y_i]) + l2 / 2 * |W|**2,    z_i = W x_i + b

The dual variables of a sample are a_i = e[y_i] - q_i with probabilities q_i, and the dual is ::

    sum_i c_i * entropy(q_i) - l2 / 2 * |V|**2,    V = sum_i c_i * a_i x_i^T / l2

With intercepts, sum_i c_i * a_i = 0 is required. At the minimum q_i = softmax(z_i).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import kl_div

from tfopt.kernels.linear import second_order
from tfopt.linear_model._fit.certificate import Certificate
from tfopt.linear_model._fit.fit import Minimization
from tfopt.linear_model._fit.monitor import ConvergenceMonitor, SolverResult
from tfopt.linear_model._fit.multinomial_system import Multinomial, MultinomialSystem, is_small
from tfopt.linear_model._fit.newton import MIN_DECREASE, armijo_holds
from tfopt.linear_model._fit.plan import Plan
from tfopt.linear_model._fit.steps import Steps
from tfopt.linear_model._fit.work import CHEAP
from tfopt.linear_model.loss_record import weighted_sum
from tfopt.linear_model.parameters import CG, Parameters

__all__ = [
    "Multinomial",
    "MultinomialSteps",
    "Place",
    "feasible",
    "solve_multinomial",
    "with_best_intercepts",
]

#: The largest number of Newton steps for the intercepts only, and the tolerance of their gradient,
#: relative to the total weight.
INTERCEPT_STEPS, INTERCEPT_TOLERANCE = 20, 1e-12


class Place(NamedTuple):
    """A point: its weights, scores, losses and probabilities, and the losses' gradient."""

    theta: np.ndarray
    z: np.ndarray
    losses: float
    p: np.ndarray
    gradient: np.ndarray

    @classmethod
    def at(cls, problem: Multinomial, theta: np.ndarray, z: np.ndarray) -> Place:
        losses, p = problem.softmax(z)
        return cls(theta, z, losses, p, problem.gradient(problem.slopes(p)))


def solve_multinomial(
    problem: Multinomial, start: np.ndarray, options: Parameters, steps: MultinomialSteps
) -> tuple[SolverResult, np.ndarray]:
    """Minimize the objective.

    Parameters
    ----------
    problem : Multinomial
    start : ndarray, shape (n_classes, n_features + 1)
        Weights, and the intercepts as the last column.
    options : Parameters
    steps : MultinomialSteps

    Returns
    -------
    SolverResult
        The weights of its certificate have the shape of `start`.
    ndarray, shape (n_classes, n_samples)
        The dual variables.
    """
    solver, (how, polishes) = steps.solver, steps.facts()
    why = f"{problem.n_classes} classes as one problem, {problem.n_features} features; {how}"
    plan = Plan(solver, solver, f"{solver}: {why}", is_only=True, step_polishes=polishes)
    theta = start.copy()
    theta -= theta.mean(axis=0) * (problem.l1 == 0)
    if problem.intercept and not theta.any():
        with np.errstate(divide="ignore"):
            theta[:, -1] = np.maximum(np.log(problem.class_sums), -1e3)
        theta -= theta.mean(axis=0)
    minimization = Minimization(plan, steps, None, steps.keep_best, options, 1)
    minimization.begin_steps(0, theta, 0.0)
    minimization.run()
    return minimization.monitors[0].result(), steps.duals


class MultinomialSteps(Steps):
    """The steps of Newton's method for one problem, with number 0.

    Attributes
    ----------
    duals : ndarray, shape (n_classes, n_samples)
        The dual variables of the best certificate.
    """

    solver = CG

    def __init__(self, problem: Multinomial) -> None:
        self.problem, self._system = problem, MultinomialSystem(problem)
        self._place: Place | None = None
        self._q = self.duals = np.zeros((problem.n_classes, len(problem.codes)))

    def facts(self) -> tuple[str, bool]:
        """Return how a step is found, and whether it is cheap enough to polish a solution."""
        how = "the Hessian is formed" if is_small(self.problem) else "products with the Hessian"
        return how, is_small(self.problem, CHEAP)

    @property
    def active(self) -> Collection[int]:
        return () if self._place is None else (0,)

    def start(self, k: int, w: np.ndarray, bias: float) -> None:
        """Begin at weights whose last column is the intercepts."""
        self._place = Place.at(self.problem, w, self.problem.scores(w))

    def look(
        self, monitors: Sequence[ConvergenceMonitor]
    ) -> tuple[dict[int, Certificate], dict[int, Certificate]]:
        assert self._place is not None
        V = -self._place.gradient[:, :-1] / self.problem.l2
        estimate = _certificate(self.problem, self._place, V, 0.0)
        is_due = monitors[0].should_certify_step(estimate)
        return {0: estimate}, self.certify([0] if is_due else [])

    def certify(self, problems: Sequence[int]) -> dict[int, Certificate]:
        """Compute the duality gap at the best intercepts for the weights, and move there."""
        if not problems:
            return {}
        assert self._place is not None
        theta = self._place.theta
        place = Place.at(self.problem, theta, self.problem.scores(theta))
        self._place = with_best_intercepts(self.problem, place)
        point, self._q = certify(self.problem, self._place)
        return {0: point}

    def step(self, going: Mapping[int, Certificate]) -> list[int]:
        if not going:
            return []
        assert self._place is not None
        moved = newton_step(self.problem, self._system, going[0], self._place)
        if moved is None:
            return [0]
        self._place = moved
        return []

    def end(self, k: int) -> None:
        self._place = None

    def keep_best(self, k: int) -> None:
        """Keep the dual variables of the last certificate."""
        self.duals = -self._q
        self.duals[self.problem.codes, np.arange(self._q.shape[1])] += 1.0


def _certificate(problem: Multinomial, place: Place, V: np.ndarray, gap: float) -> Certificate:
    """Return the certificate of dual variables with the weights V, given the samples' gaps."""
    with np.errstate(over="ignore", invalid="ignore"):
        gap += problem.l2 / 2 * float(np.square(place.theta[:, :-1] - V).sum())
        value = place.losses + problem.penalty(place.theta)
    return Certificate(place.theta, 0.0, value, max(gap, 0.0))


def with_best_intercepts(problem: Multinomial, place: Place) -> Place:
    """Return a point with the best intercepts for its weights, of sum 0."""
    if not problem.intercept:
        return place
    theta, z, losses, p, _ = place
    sums, weight, residual = problem.class_sums, problem.weight, place.gradient[:, -1]
    for _ in range(INTERCEPT_STEPS):
        if np.abs(residual).max() <= INTERCEPT_TOLERANCE * sums.sum():
            break
        H = np.diag(_class_sums(weight, p)) - np.einsum("ji,ki->jk", weight * p, p)
        H += sums.sum() / problem.n_classes**2  # a shift of all intercepts has no curvature
        step = -residual
        if not second_order.solve(H, step):
            break
        step *= min(1.0, 4.0 / max(np.abs(step).max(), 1e-300))
        share, promised = 1.0, -weighted_sum(residual, step)
        while share > 1e-8:
            there = z + share * step[:, None]
            value, after = problem.softmax(there)
            if value <= losses - 1e-4 * share * promised:
                break
            share /= 2
        if share <= 1e-8:
            break
        theta = theta.copy()
        theta[:, -1] += share * step
        z, losses, p = there, value, after
        residual = _class_sums(weight, p) - sums
    if theta is place.theta:
        return place
    theta[:, -1] -= theta[:, -1].mean()
    return Place.at(problem, theta, problem.scores(theta))


def certify(problem: Multinomial, place: Place) -> tuple[Certificate, np.ndarray]:
    """Return the duality gap of weights and of the dual variables of their probabilities.

    The gap is a sum of nonnegative terms: the weighted relative entropies of the dual variables'
    probabilities q and softmax(z), and l2 / 2 * |W - V|**2.

    Returns
    -------
    Certificate
    ndarray, shape (n_classes, n_samples)
        The probabilities q.
    """
    p = place.p
    q = feasible(problem, p) if problem.intercept else p
    gap, gradient = 0.0, place.gradient
    if q is not p:
        gradient = problem.gradient(problem.slopes(q))
        with np.errstate(over="ignore", invalid="ignore"):
            gap = weighted_sum(problem.weight, kl_div(q, p).sum(axis=0))
    return _certificate(problem, place, -gradient[:, :-1] / problem.l2, gap), q


def feasible(problem: Multinomial, p: np.ndarray) -> np.ndarray:
    """Return probabilities near p whose weighted sum is the weight of each class.

    They are (1 - t) * p + t * m with the same m for all samples. t is twice the smallest number for
    which m has no negative entry, at most 1.
    """
    sums = problem.class_sums
    residual = sums - _class_sums(problem.weight, p)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = min(2 * float(np.max(np.where(residual < 0, -residual / (sums - residual), 0.0))), 1.0)
    if t == 0:
        return p
    m = np.maximum(sums + residual * (1 - t) / t, 0.0)
    q: np.ndarray = (1 - t) * p + t * (m / m.sum())[:, None]
    return q


def _class_sums(weight: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Return the weighted sums of rows, without BLAS; see `weighted_sum`."""
    return np.asarray(np.add.reduce(weight * p, axis=1))


def newton_step(
    problem: Multinomial, system: MultinomialSystem, point: Certificate, place: Place
) -> Place | None:
    """Return the point after a Newton step with a line search; None if the search fails."""
    gradient = place.gradient.copy()
    gradient[:, :-1] += problem.l2 * place.theta[:, :-1]
    step = system.direction(gradient, place.p)
    step -= step.mean(axis=0)  # the losses do not depend on it: the weights of classes sum to 0
    promised = -float(np.sum(gradient * step))
    z_step, share = problem.products(step), 1.0
    while True:
        theta, z = place.theta + share * step, place.z + share * z_step
        losses, p = problem.softmax(z)
        if armijo_holds(point, losses + problem.penalty(theta), share * promised):
            return Place(theta, z, losses, p, problem.gradient(problem.slopes(p)))
        if not share * promised > MIN_DECREASE * point.objective:
            return None
        share /= 2
