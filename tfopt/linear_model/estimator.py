"""The base class of the SDCA estimators: where fits start, and the fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from tfopt.errors import InvalidArgumentError, NotFiniteError
from tfopt.kernels.linear import visits
from tfopt.linear_model._blocks.execution import Executor, ThreadExecutor
from tfopt.linear_model._blocks.fit import (
    TargetEncoding,
    fit_blocks,
)
from tfopt.linear_model._blocks.input import BlockInput
from tfopt.linear_model._fit.coordinates import RowSpace, pays
from tfopt.linear_model._fit.fit import FitResult, solve_all
from tfopt.linear_model._fit.newton_alone import solve_by_newton
from tfopt.linear_model._fit.plan import make_plan
from tfopt.linear_model._fit.problem import (
    InitialPoint,
    Problem,
    TrainingData,
    WarmStart,
    as_rows,
    centering_shift,
    dual_point,
)
from tfopt.linear_model.fitted import SDCAResults
from tfopt.linear_model.inference import InferenceMixin
from tfopt.linear_model.parameters import CHOLESKY, SOLVERS, SDCAOptions
from tfopt.linear_model.predictions import LinearModel
from tfopt.linear_model.validation import check_offset, check_total

__all__ = ["SDCAEstimator"]


class SDCAEstimator(SDCAOptions, SDCAResults, InferenceMixin, LinearModel):
    """A linear model that is fitted by stochastic dual coordinate ascent."""

    def _validate(self, X: Any, y: Any, **options: Any) -> tuple[Any, np.ndarray]:
        self._check_options()
        checked: tuple[Any, np.ndarray] = self._validate_features(
            X, reset=True, y=y, order="C", **options
        )
        return checked

    def _initial_point(
        self, data: TrainingData, objective: Problem, last: WarmStart | None, k: int
    ) -> InitialPoint:
        """Return where the solver of a problem starts."""
        y = data.target(k)
        zeros = np.zeros(len(y))

        def curvature() -> np.ndarray:  # of visits, which need l2
            result: np.ndarray = data.squared_norms / objective.l2
            return result

        if last is None:
            bias = self._constant_intercept(y, data.weights)
            return InitialPoint(y, data.weights, curvature, zeros, bias)
        point = InitialPoint(y, data.weights, curvature, zeros, last.bias[k], last.w[k])
        duals = last.duals[k] if last.duals is not None else dual_point(objective, point)
        return point._replace(a=objective.phi.clip_duals(duals, y))

    def _warm_start(self, data: TrainingData) -> WarmStart | None:
        """Return the last fit, if this one goes on from there."""
        self._check_warm_start(data.X_shape[0], data.n_problems, data.X_shape[1])
        if not self._is_warm:
            return None
        bias = self._initial_intercepts([0.0] * data.n_problems, data.shift)
        duals = np.atleast_2d(self.dual_coef_) if self._has_duals_of(data.X_shape[0]) else None
        return WarmStart(self._dense_coef(), bias, duals)

    def _has_duals_of(self, n_examples: int) -> bool:
        """Whether the last fit has left dual variables of as many samples."""
        return hasattr(self, "dual_coef_") and self.dual_coef_.shape[-1] == n_examples

    def _check_warm_start(self, n_examples: int, n_problems: int, n_features: int) -> None:
        """Refuse a warm start from a fit of another shape."""
        if not self._is_warm:
            return
        last, now = self._dense_coef().shape, (n_problems, n_features)
        for k, what in enumerate(("problems, one for each class,", "features")):
            if last[k] != now[k]:
                raise InvalidArgumentError(
                    f"warm_start goes on from the last fit: it had {last[k]} {what} and this one "
                    f"has {now[k]}; set warm_start=False"
                )
        if not self._has_duals_of(n_examples) and (self._in_blocks or not self._phi.is_smooth):
            where = "in blocks" if self._in_blocks else f"with loss={self.loss!r}"
            length = self.dual_coef_.shape[-1] if hasattr(self, "dual_coef_") else None
            reason = (
                "which were not kept: set keep_duals=True"
                if length is None
                else f"it had {length} samples and this one has {n_examples}: set warm_start=False"
            )
            raise InvalidArgumentError(
                f"warm_start {where} goes on from the dual variables of the last fit's samples, "
                + reason
            )

    def _initial_intercepts(self, guesses: Sequence[float], shift: np.ndarray | None) -> np.ndarray:
        """Return the initial intercepts, given guesses and the centering shift."""
        if not self._is_warm:
            return np.array(guesses)
        biases: np.ndarray = np.atleast_1d(self.intercept_)
        return biases if shift is None else biases + (self._dense_coef() * shift).sum(axis=1)

    def _warm_start_weights(self) -> np.ndarray | None:
        """Return the weights of the last fit if this is a warm start, for each problem."""
        return self._dense_coef() if self._is_warm else None

    def _training_data(
        self, X: Any, target: Callable[[int], np.ndarray], n_problems: int, weights: np.ndarray
    ) -> TrainingData:
        """Return what all fits to the same samples need, whatever their penalties."""
        most = SOLVERS[CHOLESKY].most_features
        if self.l1 == self._l2() == 0 and X.shape[1] > most:
            raise InvalidArgumentError(
                f"without a penalty there may be at most {most} features, and X has {X.shape[1]}: "
                "set l2 above 0"
            )
        if self.solver != "auto" and X.shape[1] > SOLVERS[self.solver].most_features:
            raise ValueError(
                f"solver={self.solver!r} forms matrices of n_features**2 numbers: X has "
                f"{X.shape[1]} features, and at most {SOLVERS[self.solver].most_features} are "
                f"allowed; set solver={self._other_solver(X.shape[1])!r}"
            )
        n_threads = self._n_threads()
        data = TrainingData(as_rows(X), X.shape, None, target, n_problems, weights, n_threads)
        if not self.fit_intercept or sparse.issparse(X):
            return data
        moments = visits.moments(X, n_threads)
        data.sum_of_squares = float(moments[1].sum())

        def is_factorized() -> bool:
            objective = self._objective(X.shape[1], 1, data.rows)
            if not objective.is_penalized:
                return True
            asked = self._parameters()._replace(polish=False)
            plan = make_plan(objective, asked, n_problems, lambda: data.mean_square)
            return plan.begins_with_steps and plan.forms_hessian

        shift = centering_shift(moments, len(X), is_factorized)
        if shift is None:
            return data
        return dataclasses.replace(data, rows=as_rows(X - shift), shift=shift, sum_of_squares=None)

    def _solve(self, data: TrainingData) -> None:
        """Fit to samples in memory."""
        fit = self._solved(data)
        self._set_attributes(fit)
        self._warn_unconverged(fit.results)

    def _solved(self, data: TrainingData) -> FitResult:
        """Solve the problem of each class, in parallel."""
        workers, n_threads = data.workers_and_threads()
        objective = self._objective(data.X_shape[1], n_threads, data.rows)
        if data.squares_overflow(objective.l2 or 1.0):
            raise ValueError("the squares of X, divided by l2, overflow: scale the features")
        start = partial(self._initial_point, data, objective, self._warm_start(data))
        if not objective.is_penalized or data.offset is not None:
            return self._solved_by_newton(data, objective._replace(offset=data.offset), start)
        n, square = data.n_problems, lambda: data.mean_square
        with self._solver_options() as options:
            duals = np.empty((n if self.keep_duals else 0, data.X_shape[0]))
            results = None
            if objective.has_few_rows and pays(objective, options, square):
                data.row_space = space = data.row_space or RowSpace(data.rows, data.n_threads)
                if space.is_exact:
                    results = space.solve_all(objective, start, n, options, square, workers, duals)
            if results is None:
                plan = make_plan(objective, options, n, square)
                results = solve_all(objective, start, n, options, plan, workers, duals)
        return FitResult(results, duals, data.shift, (len(data.weights),))

    def _solved_by_newton(
        self, data: TrainingData, objective: Problem, start: Callable[[int], InitialPoint]
    ) -> FitResult:
        """Solve the problem of each class, one after the other."""
        with self._solver_options() as options:
            pairs = [
                solve_by_newton(objective, start(k), options, k) for k in range(data.n_problems)
            ]
        duals = np.array([a for _, a in pairs]) if self.keep_duals else np.empty((0, 0))
        return FitResult([result for result, _ in pairs], duals, data.shift, (len(data.weights),))

    def _solve_blocks(self, X: Any, y: np.ndarray, weights: np.ndarray) -> None:
        """Solve the problems in fixed blocks of samples."""
        ends = np.cumsum(self.num_loss_partitions)
        if ends.size == 0 or ends[-1] != len(y):
            raise ValueError(
                f"num_loss_partitions must add up to the number of samples, {len(y)}, not "
                f"{ends[-1] if ends.size else 0}"
            )
        starts = (ends - self.num_loss_partitions).tolist()
        self._check_warm_start(len(y), len(self._dense_coef()) if self._is_warm else 0, X.shape[1])
        duals = np.atleast_2d(self.dual_coef_) if self._is_warm else None
        blocks = [
            (X[i:j], y[i:j], weights[i:j], duals if duals is None else duals[:, i:j])
            for i, j in zip(starts, ends.tolist(), strict=True)
        ]
        with ThreadExecutor(min(self._n_threads(), len(blocks))) as executor:
            fit = self._fit_on(executor, BlockInput, blocks)
        self._warn_unconverged(fit.results)

    def _fit_on(
        self, executor: Executor, load: Callable[..., BlockInput], sources: list[tuple[Any, ...]]
    ) -> FitResult:
        """Solve the problems in blocks, which an executor loads from sources."""
        with self._solver_options() as options:
            executor.persist(load, sources)
            collect = executor.map if self.keep_duals else None
            fit = fit_blocks(self, executor, self._objective(0, 1), options, collect)
        if fit.duals is not None:
            fit = dataclasses.replace(fit, duals=np.concatenate(fit.duals, axis=-1))
        self._set_attributes(fit)
        return fit

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, np.ndarray, np.ndarray]:
        """Check options and samples; return X, y and the samples' weights."""
        raise NotImplementedError

    def _without_offset(
        self, X: Any, y: np.ndarray, weights: np.ndarray, offset: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | float]:
        """Return targets and weights that have the same minimum, and the factors of the duals."""
        if (offset := check_offset(offset, X)) is None:
            return y, weights, 1.0
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            targets, factor = self._objective(0, 1).phi.without_offset(y.T, offset)
            weights = weights * factor
        is_known = np.isfinite(targets).all() and np.isfinite(weights).all()
        if not is_known or self._phi.is_outside(targets).any() or (np.asarray(factor) == 0).any():
            raise NotFiniteError(
                "exp(offset) or y / exp(offset) is infinite, or 0 but for rounding: offset is the "
                "logarithm of an exposure; a number that all have in common is the intercept's"
            )
        check_total(float(weights.sum()))
        return targets.T, weights, factor

    def _encoded(self, X: Any, y: np.ndarray, weights: np.ndarray) -> TrainingData:
        """Return checked samples as the solvers take them."""
        raise NotImplementedError

    #: Whether the labels are classes.
    _has_classes: bool

    def _target_encoding(self, summary: dict[str, Any]) -> TargetEncoding:
        """Return how to encode the labels, given a summary of all blocks."""
        raise NotImplementedError

    def _constant_intercept(self, y: np.ndarray, weights: np.ndarray) -> float:
        """Return the intercept of the constant model, or a guess of it."""
        raise NotImplementedError
