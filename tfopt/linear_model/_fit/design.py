"""The design matrix as the solver sees it, with rows in memory.

For rows in blocks on an executor, see `_blocks.design`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tfopt.kernels.linear import multiclass
from tfopt.linear_model._fit import rows
from tfopt.linear_model._fit.features import Features
from tfopt.linear_model._fit.plan import Plan
from tfopt.linear_model._fit.problem import Problem
from tfopt.linear_model._fit.rows import Linearization, RowState

__all__ = [
    "Design",
    "GapSums",
    "LaneDesign",
    "MemoryDesign",
    "NewtonSystem",
    "Point",
    "RowFunction",
    "Tangents",
    "aligned_zeros",
]

#: Weights and an intercept.
Point = tuple[np.ndarray, float]
#: The sum of the losses and the examples' part of the gap, and the unshrunk weights of the
#: projected dual variables, if there is an intercept.
GapSums = tuple[np.ndarray, np.ndarray | None]
#: A function of the rows of a problem; its answers for blocks of rows are added up.
RowFunction = Callable[[Problem, RowState], tuple[RowState, Any]]
#: The gradient of the losses, and their Hessian or its diagonal; the intercept is last.
NewtonSystem = tuple[np.ndarray, np.ndarray]


class Tangents(NamedTuple):
    """The sum of the losses at a point, and the gap of a Newton step's dual variables.

    See `rows.tangents`.
    """

    losses: float
    step_gap: float


class Design(Protocol):
    """The rows X of several problems, with the predictions and dual variables of each.

    Each method handles a batch of problems: it takes and returns a dict by the problems' numbers.
    """

    plan: Plan

    def predict(
        self, points: Mapping[int, tuple[np.ndarray, Sequence[float]]]
    ) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Compute x . w, and choose the visits' dual variables for certification.

        The points are weights w, and the intercepts for `intercept_derivatives`. Return
        `rows.dual_residual`, and these derivatives.
        """

    def intercept_derivatives(self, biases: Mapping[int, Sequence[float]]) -> dict[int, np.ndarray]:
        """Return the derivatives of the sum of the losses by the intercept; see `rows`."""

    def gaps(
        self,
        biases_and_residuals: Mapping[int, tuple[float, np.ndarray | None]],
        weights: Mapping[int, np.ndarray] | None = None,
    ) -> dict[int, GapSums]:
        """Project the dual variables, and return the sums of a certificate.

        Without an intercept, `weights` are the points to predict at before that.
        """

    def tangents(
        self, points: Mapping[int, Point], after_steps: bool = False
    ) -> dict[int, Tangents]:
        """Move to points and return the losses there; see `rows.tangents`."""

    def newton_systems(
        self, problems: Iterable[int], near: Container[int] = ()
    ) -> dict[int, NewtonSystem]:
        """Return the derivatives of the losses at the last tangents.

        For problems that are `near` the minimum, the last Hessian may be used again.
        """

    def hessians_of(self, features: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Return the Hessians there by some of the weights, and by the intercept."""

    def hessian_products(self, vectors: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Return products of the Hessians there and vectors."""

    def tangent_gaps(self, biases: Mapping[int, float]) -> dict[int, tuple[float, np.ndarray]]:
        """Choose the negative derivatives of the losses at the last tangents for certification.

        Return the examples' part of the gaps, and the unshrunk weights of these dual variables.
        """

    def step_gaps(self, biases: Mapping[int, float]) -> dict[int, float]:
        """Choose the dual variables of the last Newton steps for certification; see `rows`."""

    def apply(self, requests: Mapping[int, RowFunction]) -> dict[int, Any]:
        """Apply functions of the problem and the state of the rows; return their answers."""

    def keep_best(self, k: int) -> None:
        """Keep the dual variables of a problem's last certificate, which is the best so far."""


class MemoryDesign(Design):
    """Rows in memory.

    Parameters
    ----------
    problem : Problem
    examples : sequence of ndarray of EXAMPLE
        The examples of each problem.
    plan : Plan
    current_duals : callable
        Returns the current dual variables of a problem's visits.

    Attributes
    ----------
    states : list of RowState
    linearizations : dict of Linearization
        The linearizations at the last tangents, unless Hessians are formed.
    """

    def __init__(
        self,
        problem: Problem,
        examples: Sequence[np.ndarray],
        plan: Plan,
        current_duals: Callable[[int], np.ndarray],
    ) -> None:
        self.problem, self.plan = problem, plan
        self.states = [RowState.initial(each) for each in examples]
        self._current_duals = current_duals
        self.linearizations: dict[int, Linearization] = {}
        self._formed: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def predict(
        self, points: Mapping[int, tuple[np.ndarray, Sequence[float]]]
    ) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        self._predict({k: w for k, (w, _) in points.items()})
        derivatives = self.intercept_derivatives({k: biases for k, (_, biases) in points.items()})
        residuals = (rows.dual_residual(self.problem, self.states[k]) for k in points)
        return {
            k: (residual, derivatives[k])
            for k, residual in zip(points, residuals, strict=True)
            if residual is not None
        }

    def _predict(self, weights: Mapping[int, np.ndarray]) -> None:
        for k, wx in self._predictions(weights).items():
            state = self.states[k]._replace(a=self._current_duals(k))
            self.states[k] = rows.predicted(self.problem, state, wx)

    def intercept_derivatives(self, biases: Mapping[int, Sequence[float]]) -> dict[int, np.ndarray]:
        return {
            k: rows.intercept_derivatives(self.problem, self.states[k], at)
            for k, at in biases.items()
        }

    def gaps(
        self,
        biases_and_residuals: Mapping[int, tuple[float, np.ndarray | None]],
        weights: Mapping[int, np.ndarray] | None = None,
    ) -> dict[int, GapSums]:
        if weights is not None:
            self._predict(weights)
        sums = {}
        for k, (bias, residual) in biases_and_residuals.items():
            self.states[k] = rows.projected(self.problem, self.states[k], residual)
            sums[k] = rows.gap_sums(self.problem, self.states[k], bias)
        if not self.problem.intercept:
            return {k: (pair, None) for k, pair in sums.items()}
        weights_of_duals = self._weights_of(list(sums))
        return {k: (pair, weights_of_duals[k]) for k, pair in sums.items()}

    def tangents(
        self, points: Mapping[int, Point], after_steps: bool = False
    ) -> dict[int, Tangents]:
        if not self.plan.forms_hessian:  # with the sums of derivatives, in one pass
            self.linearizations |= self.linearize(points)
            return {k: Tangents(self.linearizations[k].losses, np.inf) for k in points}
        found = {}
        for k, (w, bias) in points.items():
            self.states[k], *sums = rows.tangents(
                self.problem, self.states[k], w, bias, after_steps
            )
            found[k] = Tangents(*sums)
        return found

    def linearize(self, points: Mapping[int, Point]) -> dict[int, Linearization]:
        """Move to points and return the losses and their derivatives there."""
        linearizations = {}
        for k, (w, bias) in points.items():
            self.states[k], linearizations[k] = rows.linearize(
                self.problem, self.states[k], w, bias
            )
        return linearizations

    def newton_systems(
        self, problems: Iterable[int], near: Container[int] = ()
    ) -> dict[int, NewtonSystem]:
        if self.plan.forms_hessian:
            return {k: self._newton_system(k, k in near) for k in problems}
        found = {k: self.linearizations[k] for k in problems}
        return {k: (each.gradient, each.hessian) for k, each in found.items()}

    def _newton_system(self, k: int, is_near: bool) -> NewtonSystem:
        """Return the gradient and a new Hessian or, near the minimum, the last one again.

        A step with the last Hessian predicts derivatives from the second derivatives in it.
        """
        state = self.states[k]
        bends, hessian = self._formed.pop(k, (None, None))
        if is_near and bends is not None and hessian is not None:
            gradient = rows.gradient(self.problem, state, state.factors())
            self.states[k] = state._replace(hess_pointwise=bends)
            return gradient, hessian
        gradient, hessian = rows.newton_system(self.problem, state)
        if self.plan.reuses_hessian:
            self._formed[k] = state.hess_pointwise, hessian
        return gradient, hessian

    def hessians_of(self, features: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        columns = Features(self.problem)
        return {
            k: rows.newton_system(
                self.problem._replace(rows=columns.rows(chosen), n_weights=chosen.size),
                self.states[k],
            )[1]
            for k, chosen in features.items()
        }

    def hessian_products(self, vectors: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        return {
            k: rows.hessian_product(self.problem, self.states[k], s) for k, s in vectors.items()
        }

    def tangent_gaps(self, biases: Mapping[int, float]) -> dict[int, tuple[float, np.ndarray]]:
        states, residual = self.states, rows.tangent_residual
        return self.projected_tangent_gaps(
            {k: (bias, residual(self.problem, states[k])) for k, bias in biases.items()}
        )

    def projected_tangent_gaps(
        self, requests: Mapping[int, tuple[float, np.ndarray | None]]
    ) -> dict[int, tuple[float, np.ndarray]]:
        """Return `tangent_gaps`, given the `rows.tangent_residual` of all rows, too."""
        gaps = {}
        for k, (bias, residual) in requests.items():
            self.states[k], gaps[k] = rows.certified_tangents(
                self.problem, self.states[k], bias, residual
            )
        weights = self._weights_of(list(gaps))
        return {k: (gap, weights[k]) for k, gap in gaps.items()}

    def step_gaps(self, biases: Mapping[int, float]) -> dict[int, float]:
        gaps = {}
        for k, bias in biases.items():
            self.states[k], gaps[k] = rows.certified_step(self.problem, self.states[k], bias)
        return gaps

    def apply(self, requests: Mapping[int, RowFunction]) -> dict[int, Any]:
        answers = {}
        for k, request in requests.items():
            self.states[k], answers[k] = request(self.problem, self.states[k])
        return answers

    def keep_best(self, k: int) -> None:
        state = self.states[k]
        self.states[k] = state._replace(best=state.certified.copy())

    def _predictions(self, weights: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        return {k: self.problem.predictions(w) for k, w in weights.items()}

    def _weights_of(self, problems: Sequence[int]) -> dict[int, np.ndarray]:
        """Return the unshrunk weights of the dual variables that are being certified."""
        states = {k: self.states[k] for k in problems}
        return {
            k: self.problem.weights_of(state.examples_with(state.certified))
            for k, state in states.items()
        }


class LaneDesign(MemoryDesign):
    """Rows in memory; products with several vectors are computed together."""

    def _predictions(self, weights: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        lanes = aligned_zeros((self.problem.n_weights, multiclass.LANES))
        for k, w in weights.items():
            lanes[:, k] = w
        wx = multiclass.predictions(*self.problem.rows, lanes)
        return {k: wx[:, k].copy() for k in weights}

    def _weights_of(self, problems: Sequence[int]) -> dict[int, np.ndarray]:
        problem, weight = self.problem, self.states[0].examples["weight"]
        factors = np.zeros((len(weight), multiclass.LANES))
        for k in problems:
            factors[:, k] = weight * self.states[k].certified / problem.l2
        v = multiclass.weights_of(*problem.rows, factors, problem.n_weights)
        return {k: v[:, k].copy() for k in problems}


def aligned_zeros(shape: tuple[int, int]) -> np.ndarray:
    """Return zeros whose rows, of LANES numbers, are aligned to cache lines."""
    size = shape[0] * shape[1]
    buffer = np.zeros(size + multiclass.LANES)
    start = -(buffer.ctypes.data // buffer.itemsize) % multiclass.LANES
    zeros: np.ndarray = buffer[start : start + size].reshape(shape)
    return zeros
