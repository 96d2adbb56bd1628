"""The step with l1: the minimum of a quadratic model and the penalties, by coordinate descent.

The model is minimized over the weights of a working set: the nonzero weights, and the weights that
violate the optimality conditions most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from tfopt.kernels.linear import coordinate_descent, second_order
from tfopt.linear_model._fit import rows
from tfopt.linear_model._fit.features import Features, working_set
from tfopt.linear_model._fit.penalty import Penalties
from tfopt.linear_model._fit.problem import Problem
from tfopt.linear_model._fit.rows import RowState
from tfopt.linear_model.loss_record import weighted_sum

__all__ = ["MOST_IN_MATRIX", "ModelMatrix", "QuadraticModel", "minimize_model", "without_intercept"]

#: The size of the first working set; later sets have at least twice as many features as there are
#: nonzero weights.
SMALLEST = 128
#: The matrix of the model is formed for working sets of at most the first size, and for sets of at
#: most the second size if a sweep over the matrix reads fewer values than one over the columns.
MOST_IN_MATRIX, LARGEST_MATRIX = 512, 2048
#: The largest number of sweeps for one step, by columns.
SWEEPS = 1000
#: The smallest number of sweeps before a linear system is solved, and the largest number of rounds
#: of sweeps and a system.
SWEEPS_BEFORE_SOLVING, ROUNDS = 20, 100
#: A curvature, computed as a difference, is rounding if it is below this share of the minuend.
CURVATURE_ROUNDING = 1e-12


class ModelMatrix(NamedTuple):
    """A quadratic model of the losses and the penalties, whose intercept is eliminated.

    Attributes
    ----------
    A : ndarray, shape (n_weights, n_weights)
    sums : ndarray, shape (n_weights,)
        The intercept's column.
    share : float
        1 / the intercept's curvature; 0 without an intercept.
    penalties : Penalties
    """

    A: np.ndarray
    sums: np.ndarray
    share: float
    penalties: Penalties

    @classmethod
    def of(cls, hessian: np.ndarray, penalties: Penalties, intercept: bool) -> ModelMatrix:
        """Return the model for a Hessian of the losses whose last row is the intercept's."""
        model = cls(*without_intercept(hessian, intercept), penalties)
        np.einsum("ii->i", model.A)[:] += penalties.l2
        return model

    def minimum(
        self, w: np.ndarray, gradient: np.ndarray, slope: float, tolerance: float
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the weights at the minimum, the model's gradient there, and the intercept's step.

        `gradient` is that of the losses and l2 at w, `slope` the derivative by the intercept.
        """
        new, left = w.copy(), gradient - self.sums * (self.share * slope)
        minimize_model(self.A, left, new, self.penalties, tolerance)
        return new, left, -self.share * (slope + weighted_sum(self.sums, new - w))


class QuadraticModel:
    """The quadratic models of one problem, and their working sets."""

    def __init__(self, problem: Problem, features: Features, factors: np.ndarray):
        self.problem, self.features, self.factors = problem, features, factors
        self.size, self.penalties = SMALLEST, problem.penalties
        self.working: np.ndarray  # that of the matrix
        self.matrix: ModelMatrix | None = None
        per_column = problem.n_features // problem.n_weights
        self.most_in_matrix = max(MOST_IN_MATRIX, min(per_column, LARGEST_MATRIX))

    def gradient(self, state: RowState, w: np.ndarray) -> np.ndarray:
        """Return the gradient of the losses; form the matrix if the model has all features."""
        n = w.size
        self.size = max(self.size, 2 * int(np.count_nonzero(w)))
        if self.size < n / 2 or n > self.most_in_matrix or self._is_known(np.arange(n)):
            return rows.gradient(self.problem, state, self.factors)
        gradient, H = rows.newton_system(self.problem, state)
        self.working = np.arange(n)
        self.matrix = ModelMatrix.of(H, self.penalties, self.problem.intercept)
        return gradient

    def _is_known(self, working: np.ndarray) -> bool:
        exact = self.problem.phi.is_quadratic
        return exact and self.matrix is not None and np.array_equal(working, self.working)

    def step(
        self, state: RowState, w: np.ndarray, gradient: np.ndarray, tolerance: float
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the step to the minimum of the model, given the gradient of losses and l2.

        The intercept is last. If the matrix has all features, return X^T of the weighted dual
        variables that the model predicts, too; otherwise None.
        """
        n = w.size
        working = working_set(w, gradient[:-1], self.penalties, self.size)
        descend = self._by_matrix if working.size <= self.most_in_matrix else self._by_columns
        new, left, bias_step = descend(
            state, working, w[working], gradient[working], float(gradient[-1]), tolerance
        )
        self.working = working
        step = np.zeros(n + 1)
        step[working] = new - w[working]
        step[-1] = bias_step
        if left is None or working.size < n:
            return step, None
        return step, self.penalties.l2 * new - left

    def _by_matrix(
        self,
        state: RowState,
        working: np.ndarray,
        w: np.ndarray,
        gradient: np.ndarray,
        slope: float,
        tolerance: float,
    ) -> tuple[np.ndarray, np.ndarray, float]:
        problem = self.problem
        if working.size < problem.n_weights and not self._is_known(working):
            _, H = second_order.newton_system(
                *self.features.rows(working),
                state.grad_pointwise,
                state.hess_pointwise,
                working.size,
                problem.threads,
            )
            some = self.penalties.taken(working)
            self.matrix = ModelMatrix.of(H, some, problem.intercept)
        assert self.matrix is not None
        return self.matrix.minimum(w, gradient, slope, tolerance)

    def _by_columns(
        self,
        state: RowState,
        working: np.ndarray,
        w: np.ndarray,
        gradient: np.ndarray,
        slope: float,
        tolerance: float,
    ) -> tuple[np.ndarray, None, float]:
        problem, bends = self.problem, state.hess_pointwise
        taken = self.features.take(working)
        if sparse.issparse(taken):
            sums, squares = taken.T @ bends, (taken**2).T @ bends
        else:  # without BLAS, whose number of threads would change the bits
            sums = np.einsum("ij,i->j", taken, bends)
            squares = np.einsum("ij,ij,i->j", taken, taken, bends)
        total = bends.sum()
        share = float(1 / total) if problem.intercept and total > 0 else 0.0
        penalties = self.penalties.taken(working)
        curvatures = _curvatures(squares - share * sums**2, squares) + penalties.l2
        first = -share * slope  # the step to the best intercept for the weights
        new, slopes = w.copy(), state.grad_pointwise + first * bends
        _, bias_step = coordinate_descent.descend_columns(
            *self.features.columns(working),
            bends,
            sums,
            curvatures,
            slopes,
            new,
            share,
            penalties.down,
            penalties.up,
            penalties.l2,
            tolerance,
            SWEEPS,
        )
        return new, None, first + bias_step


def without_intercept(H: np.ndarray, intercept: bool) -> tuple[np.ndarray, np.ndarray, float]:
    """Eliminate the intercept; return the matrix, the intercept's column and 1 / its diagonal.

    The last number is 0 without an intercept.
    """
    A, sums = H[:-1, :-1].copy(), H[-1, :-1].copy()
    diagonal = np.diagonal(A).copy()
    share = 1 / H[-1, -1] if intercept and H[-1, -1] > 0 else 0.0
    if share:
        A -= np.outer(sums, sums) * share
    np.einsum("ii->i", A)[:] = _curvatures(np.diagonal(A), diagonal)
    return A, sums, share


def _curvatures(left: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.where(left > CURVATURE_ROUNDING * whole, left, 0.0)


def minimize_model(
    A: np.ndarray, gradient: np.ndarray, w: np.ndarray, penalties: Penalties, tolerance: float
) -> None:
    """Minimize a model given by a matrix that includes l2; update w and the model's gradient.

    Sweeps find the signs of the weights, but then converge slowly if features are correlated. So a
    linear system for the nonzero weights follows. The step to its solution ends where the first
    weight would change its sign, which becomes 0; weights whose penalty has no corner may change
    their signs.
    """
    for _ in range(ROUNDS):
        n_active = int(np.count_nonzero(w))
        most = max(SWEEPS_BEFORE_SOLVING, n_active // 4)
        slopes = penalties.down, penalties.up
        if coordinate_descent.descend_matrix(A, gradient, w, *slopes, tolerance, most) < most:
            return
        active = np.flatnonzero(w)
        signs, before = np.sign(w[active]), w[active]
        step = -(gradient[active] + penalties.slopes(w)[active] * signs)
        if not second_order.solve(A[np.ix_(active, active)], step):
            continue
        has_corner = (penalties.down + penalties.up)[active] > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            crossings = np.where(has_corner & (step * signs < 0), -before / step, np.inf)
        first = int(np.argmin(crossings)) if crossings.size else 0
        share = min(1.0, float(crossings[first])) if crossings.size else 1.0
        moved = share * step
        if share < 1:
            moved[first] = -before[first]
        beyond = has_corner & ((before + moved) * signs < 0)  # by rounding
        moved[beyond] = -before[beyond]
        w[active] += moved
        gradient += np.sum(A[active] * moved[:, None], axis=0)
