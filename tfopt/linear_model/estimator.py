"""The base class of the SDCA estimators: from checked samples to a fit in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from tfopt.errors import InvalidArgumentError
from tfopt.kernels.linear import visits
from tfopt.linear_model._blocks.fit import TargetEncoding
from tfopt.linear_model._fit.coordinates import RowSpace, pays
from tfopt.linear_model._fit.fit import FitResult, solve_all
from tfopt.linear_model._fit.newton_alone import solve_by_newton
from tfopt.linear_model._fit.penalty import scaled
from tfopt.linear_model._fit.plan import make_plan
from tfopt.linear_model._fit.problem import LastFit, Problem, Samples, as_rows, centering_shift
from tfopt.linear_model.fitted import SDCAResults
from tfopt.linear_model.inference import InferenceMixin
from tfopt.linear_model.parameters import CHOLESKY, INTERIOR, SOLVERS
from tfopt.linear_model.predictions import LinearModel
from tfopt.linear_model.validation import check_offset, check_total, without_offset

__all__ = ["SDCAEstimator"]


class SDCAEstimator(SDCAResults, InferenceMixin, LinearModel):
    """A linear model that is fitted by stochastic dual coordinate ascent."""

    def _last_fit(
        self,
        n_samples: int,
        n_problems: int,
        n_features: int,
        shift: np.ndarray | None,
        scale: np.ndarray | None = None,
    ) -> LastFit | None:
        """Return the last fit, if this fit is warm; refuse a last fit of another shape."""
        if not self._is_warm:
            return None
        w, bias = self._dense_coef(), np.atleast_1d(self.intercept_)
        things = "problems, one for each class,", "features"
        for last, now, what in zip(w.shape, (n_problems, n_features), things, strict=True):
            if last != now:
                raise InvalidArgumentError(
                    f"warm_start goes on from the last fit: it had {last} {what} and this one has "
                    f"{now}; set warm_start=False"
                )
        length = self.dual_coef_.shape[-1] if hasattr(self, "dual_coef_") else None
        if length != n_samples and (self._in_blocks or not self._phi.is_smooth):
            where = "in blocks" if self._in_blocks else f"with loss={self.loss!r}"
            reason = (
                "which were not kept: set keep_duals=True"
                if length is None
                else f"it had {length} samples and this one has {n_samples}: set warm_start=False"
            )
            raise InvalidArgumentError(
                f"warm_start {where} goes on from the dual variables of the last fit's samples, "
                + reason
            )
        if scale is not None:
            w = w / scale
        if shift is not None:
            bias = bias + (w * shift).sum(axis=1)
        has_duals = length == n_samples and not self._in_blocks  # blocks have their own
        return LastFit(w, bias, np.atleast_2d(self.dual_coef_) if has_duals else None)

    def _samples(
        self, X: Any, target: Callable[[int], np.ndarray], n_problems: int, weights: np.ndarray
    ) -> Samples:
        """Return the part of a fit that does not depend on the penalties."""
        most = SOLVERS[CHOLESKY].most_features
        if self.l1 == self._l2() == 0 and self._is_plain and X.shape[1] > most:
            raise InvalidArgumentError(
                f"without a penalty there may be at most {most} features, and X has {X.shape[1]}: "
                "set l2 above 0"
            )
        most = SOLVERS[INTERIOR].most_features
        where = "l2=0" if self._l2() == 0 else "" if self._is_plain else "penalties of each weight"
        if where and not self._phi.is_smooth and X.shape[1] > most:
            raise InvalidArgumentError(
                f"with loss={self.loss!r} and {where} there may be at most {most} features, and X "
                f"has {X.shape[1]}: set l2 above 0, positive=False and no penalty_factor"
            )
        if self.solver != "auto" and X.shape[1] > SOLVERS[self.solver].most_features:
            raise ValueError(
                f"solver={self.solver!r} forms matrices of n_features**2 numbers: X has "
                f"{X.shape[1]} features, and at most {SOLVERS[self.solver].most_features} are "
                f"allowed; set solver={self._other_solver(X.shape[1])!r}"
            )
        n_threads, scale, factor = self._n_threads(), None, self._factor(X.shape[1])
        if factor is not None and self._is_plain:
            scale, factor = 1 / np.sqrt(factor), None
            X = scaled(X, scale)
        samples = Samples(
            *(as_rows(X), X.shape, None, target, n_problems, weights),
            *(self._constant_intercept, n_threads),
            scale=scale,
            factor=factor,
        )
        if not self.fit_intercept or sparse.issparse(X):
            return samples
        moments = visits.moments(X, n_threads)
        samples.sum_of_squares = float(moments[1].sum())

        def is_factorized() -> bool:
            problem = self._problem_of(samples, 1)
            if not problem.is_penalized and problem.is_plain:
                return True
            asked = self._parameters()._replace(polish=False)
            plan = make_plan(problem, asked, n_problems, lambda: samples.mean_square)
            return plan.begins_with_steps and plan.forms_hessian

        shift = centering_shift(moments, len(X), is_factorized)
        if shift is None:
            return samples
        rows = as_rows(X - shift)
        return dataclasses.replace(samples, rows=rows, shift=shift, sum_of_squares=None)

    def _problem_of(self, samples: Samples, n_threads: int) -> Problem:
        """Return the objective of samples in memory."""
        problem = self._problem(samples.shape[1], n_threads, samples.rows)
        return problem._replace(
            factor=samples.factor,
            positive=bool(self.positive),
            has_offset=samples.offset is not None,
        )

    def _is_for_newton_alone(self, problem: Problem) -> bool:
        """Whether Newton's method should run alone: without a penalty, or with an offset."""
        if not problem.is_plain or problem.l1 > 0:
            return False
        is_asked = self.solver in ("auto", CHOLESKY) and problem.phi.is_likelihood
        few = problem.n_weights <= SOLVERS[CHOLESKY].most_features
        return not problem.is_penalized or (problem.has_offset and is_asked and few)

    def _solve(self, samples: Samples) -> None:
        """Fit to samples in memory."""
        fit = self._solved(samples)
        self._set_attributes(fit)
        self._warn_unconverged(fit.results)

    def _solved(self, samples: Samples) -> FitResult:
        """Solve the problem of each class, in parallel."""
        n, (n_samples, n_features) = samples.n_problems, samples.shape
        workers, n_threads = samples.workers_and_threads()
        problem = self._problem_of(samples, n_threads)
        if samples.squares_overflow(problem.l2 or 1.0):
            raise ValueError("the squares of X, divided by l2, overflow: scale the features")
        last = self._last_fit(n_samples, n, n_features, samples.shift, samples.scale)
        start, square = partial(samples.initial_point, problem, last), lambda: samples.mean_square
        duals, results = np.empty((n if self.keep_duals else 0, n_samples)), None
        with self._solver_options() as options:
            if self._is_for_newton_alone(problem):
                results = solve_by_newton(problem, start, n, options, duals)
            elif samples.offset is None and problem.has_few_rows and pays(problem, options, square):
                if samples.row_space is None:
                    samples.row_space = RowSpace(samples.rows, samples.n_threads)
                if (space := samples.row_space).is_exact:
                    results = space.solve_all(problem, start, n, options, square, workers, duals)
            if results is None:
                plan = make_plan(problem, options, n, square)
                results = solve_all(problem, start, n, options, plan, workers, duals)
        return FitResult(results, duals, samples.shift, (n_samples,), scale=samples.scale)

    def _several(self) -> tuple[float, ...] | None:
        """Return the values of the loss's parameter if there are several, else None."""
        return None

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, np.ndarray, np.ndarray]:
        """Check options and samples; return X, y and the samples' weights."""
        raise NotImplementedError

    def _without_offset(
        self, X: Any, y: np.ndarray, weights: np.ndarray, offset: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | float]:
        """Return targets and weights with the same minimum, and factors for the dual variables."""
        if (offset := check_offset(offset, X)) is None:
            return y, weights, 1.0
        phi = self._problem(0, 1).phi
        targets, weights, factor = without_offset(phi, y, weights, offset)
        check_total(float(weights.sum()))
        return targets, weights, factor

    def _encoded(self, X: Any, y: np.ndarray, weights: np.ndarray) -> Samples:
        """Return checked samples as the solvers take them."""
        raise NotImplementedError

    #: Whether the labels are classes.
    _has_classes: bool

    def _target_encoding(self, summary: dict[str, Any]) -> TargetEncoding:
        """Return the encoding of the labels, given a summary of all blocks."""
        raise NotImplementedError

    def _constant_intercept(self, y: np.ndarray, weights: np.ndarray) -> float:
        """Return the intercept of the constant model, or a guess of it."""
        raise NotImplementedError
