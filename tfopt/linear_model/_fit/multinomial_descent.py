"""Multinomial logistic regression with l1: proximal Newton steps of one class after another.

A step of a class minimizes its quadratic model and penalties while the other classes are fixed, as
coordinate descent does for two classes. With few features a step changes all classes at once. Dual
variables a = e[y] - q are scaled by a factor s to satisfy the bound of l1, if that gives a smaller
gap: q becomes (1 - s) * e[y] + s * q. (Friedman, Hastie, Tibshirani: Regularization paths for
generalized linear models via coordinate descent, 2010.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import kl_div

from tfopt.kernels.linear import visits
from tfopt.linear_model._fit.certificate import Certificate, scaled_gaps
from tfopt.linear_model._fit.coordinate_descent import PRECISION, STALLED
from tfopt.linear_model._fit.features import Features
from tfopt.linear_model._fit.monitor import ConvergenceMonitor
from tfopt.linear_model._fit.multinomial import (
    MultinomialSteps,
    Place,
    feasible,
    with_best_intercepts,
)
from tfopt.linear_model._fit.multinomial_system import (
    BETWEEN,
    Multinomial,
    whole_hessian,
    whole_work,
)
from tfopt.linear_model._fit.newton import MIN_DECREASE, armijo_holds, promised_decrease
from tfopt.linear_model._fit.penalty import Penalties
from tfopt.linear_model._fit.quadratic_model import QuadraticModel, minimize_model
from tfopt.linear_model._fit.rows import RowState
from tfopt.linear_model._fit.work import CHEAP, descent_work, hessian_work
from tfopt.linear_model.loss_record import weighted_sum
from tfopt.linear_model.parameters import DESCENT

__all__ = ["MultinomialDescent"]

#: The approximate number of cycles over the classes that one step of all classes saves, and the
#: largest number of its unknowns.
CYCLES, MOST_UNKNOWNS = 12, 2048


class MultinomialDescent(MultinomialSteps):
    """The steps for one problem, with number 0: of all classes at once, or of each in turn."""

    solver = DESCENT

    def __init__(self, problem: Multinomial) -> None:
        super().__init__(problem)
        self._binary = problem.of_a_class
        examples = np.zeros(len(problem.codes), visits.EXAMPLE)
        examples["weight"] = problem.weight
        self._state, features = RowState.initial(examples), Features(self._binary)
        factors = self._state.factors()
        self._models = [
            QuadraticModel(self._binary, features, factors) for _ in range(problem.n_classes)
        ]
        self._last_gap, self._nearness = math.inf, 1.0
        cycle = problem.n_classes * hessian_work(self._binary)
        self._is_small = whole_work(problem) <= CYCLES * cycle + BETWEEN
        self._is_small &= problem.n_classes * (problem.n_features + 1) <= MOST_UNKNOWNS

    def facts(self) -> tuple[str, bool]:
        if self._is_small:
            return "the Hessian is formed", whole_work(self.problem) <= CHEAP
        each = descent_work(self._binary, is_warm=True)
        return "one class after another", self.problem.n_classes * each <= CHEAP

    def look(
        self, monitors: Sequence[ConvergenceMonitor]
    ) -> tuple[dict[int, Certificate], dict[int, Certificate]]:
        assert self._place is not None
        estimate, _ = self._bounded(self._place, self._place.p, self._place.gradient)
        is_due = monitors[0].should_certify_step(estimate)
        return {0: estimate}, self.certify([0] if is_due else [])

    def certify(self, problems: Sequence[int]) -> dict[int, Certificate]:
        """Compute the duality gap at the best intercepts for the weights, and move there."""
        if not problems:
            return {}
        assert self._place is not None
        problem = self.problem
        self._place = place = with_best_intercepts(problem, self._place)
        q, gradient = place.p, place.gradient
        if problem.intercept and (q := feasible(problem, place.p)) is not place.p:
            gradient = problem.gradient(problem.slopes(q))
        point, self._q = self._bounded(place, q, gradient)
        return {0: point}

    def _bounded(
        self, place: Place, q: np.ndarray, gradient: np.ndarray
    ) -> tuple[Certificate, np.ndarray]:
        """Return the certificate of dual variables and their q, scaled if the gap is smaller."""
        problem, w = self.problem, place.theta[:, :-1].ravel()
        weights = self._binary._replace(n_weights=w.size)
        best, at = (math.inf, q), np.arange(q.shape[1])
        for apart, scale in scaled_gaps(weights, w, -gradient[:, :-1].ravel()):
            moved, gap = scale * q, apart
            moved[problem.codes, at] += 1 - scale
            if scale < 1 or q is not place.p:
                gap += weighted_sum(problem.weight, kl_div(moved, place.p).sum(axis=0))
            best = min(best, (gap, moved), key=lambda each: each[0])
        value = place.losses + weights.penalty(w)
        return Certificate(place.theta, 0.0, value, max(best[0], 0.0)), best[1]

    def step(self, going: Mapping[int, Certificate]) -> list[int]:
        if not going:
            return []
        point = going[0]
        tolerance = PRECISION * min(point.relative_gap, self._nearness) ** 2 * point.objective
        if self._is_small:
            promised = self._step_of_all(point, tolerance)
        else:
            n = self.problem.n_classes
            promised = sum(self._step_of_class(k, point, tolerance / n) for k in range(n))
        share = promised / point.objective if point.objective else 0.0
        self._nearness = min(point.relative_gap, math.sqrt(share), 1.0)
        assert self._place is not None
        place = self._place
        gradient = self.problem.gradient(self.problem.slopes(place.p))
        self._place = place._replace(gradient=gradient)
        falls, self._last_gap = point.gap <= STALLED * self._last_gap, point.gap
        return [] if falls or promised > MIN_DECREASE * point.objective else [0]

    def _step_of_class(self, k: int, point: Certificate, tolerance: float) -> float:
        """Move the weights of a class; return the predicted decrease, or 0 if the step failed."""
        assert self._place is not None
        problem, binary, place = self.problem, self._binary, self._place
        w, p = place.theta[k, :-1], place.p[k]
        state = self._state._replace(
            grad_pointwise=problem.slopes(place.p)[k],
            hess_pointwise=problem.weight * p * (1 - p),
        )
        left = self._models[k].gradient(state, w)
        left[:-1] += problem.l2 * w
        found, _ = self._models[k].step(state, w, left, tolerance)
        step, change = np.zeros_like(place.theta), np.zeros_like(place.z)
        step[k], change[k] = found, binary.predictions(found[:-1]) + float(found[-1])
        left[-1] = left[-1] if problem.intercept else 0.0
        return self._moved(point, step, change, promised_decrease(binary, w, left, found))

    def _step_of_all(self, point: Certificate, tolerance: float) -> float:
        """Move all weights by the whole Hessian; return the predicted decrease, or 0 on failure."""
        assert self._place is not None
        problem, theta = self.problem, self._place.theta
        left = self._place.gradient.copy()
        left[:, :-1] += problem.l2 * theta[:, :-1]
        has_penalty = np.ones_like(theta)
        has_penalty[:, -1] = 0.0
        each = Penalties.of(theta.size, problem.l1, problem.l2, has_penalty.ravel())
        new, gradient = theta.ravel().copy(), left.ravel().copy()
        minimize_model(whole_hessian(problem, self._place.p), gradient, new, each, tolerance)
        step = new.reshape(theta.shape) - theta
        sizes = each.sizes(theta.ravel()) - each.sizes(new)
        promised = float(np.add.reduce(sizes)) - weighted_sum(left.ravel(), step.ravel())
        return self._moved(point, step, problem.products(step), promised)

    def _moved(
        self, point: Certificate, step: np.ndarray, change: np.ndarray, promised: float
    ) -> float:
        """Take a step, halved until the objective falls; return the predicted decrease, or 0."""
        assert self._place is not None
        problem, place = self.problem, self._place
        before = place.losses + problem.penalty(place.theta)
        share, here = 1.0, point._replace(objective=before)
        while share * promised > MIN_DECREASE * before:
            theta, z = place.theta + share * step, place.z + share * change
            losses, p = problem.softmax(z)
            if armijo_holds(here, losses + problem.penalty(theta), share * promised):
                self._place = Place(theta, z, losses, p, place.gradient)
                return promised
            share /= 2
        return 0.0
