"""Regression by stochastic dual coordinate ascent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfopt.errors import InvalidArgumentError, NotFiniteError
from tfopt.linear_model._blocks.fit import TargetEncoding
from tfopt.linear_model._fit.fit import FitResult
from tfopt.linear_model._fit.least_squares import paths_of_targets, residuals
from tfopt.linear_model._fit.plan import make_plan
from tfopt.linear_model._fit.problem import Samples
from tfopt.linear_model.block_fits import fit_partitions
from tfopt.linear_model.estimator import SDCAEstimator
from tfopt.linear_model.literals import RegressorLoss, Solver
from tfopt.linear_model.loss_record import weighted_sum
from tfopt.linear_model.losses import regression_losses
from tfopt.linear_model.parameters import CHOLESKY
from tfopt.linear_model.predictions import LinearRegressorMixin
from tfopt.linear_model.quantiles import QuantilesMixin
from tfopt.linear_model.signatures import keep_parameters
from tfopt.linear_model.validation import check_total, check_weights

__all__ = ["LinearRegressor", "SDCARegressor"]


class LinearRegressor(QuantilesMixin, LinearRegressorMixin, SDCAEstimator):
    r"""Linear regression of the mean, of counts or of a quantile, with a certified duality gap.

    Minimizes, over w and b,

    .. math:: \sum_i c_i\, \phi(x_i \cdot w + b; y_i) + l_1 |w|_1 + \frac{l_2}{2} |w|_2^2

    as `LinearClassifier` does, which describes the other parameters and attributes.

    Parameters
    ----------
    loss : str, default="squared"
        The loss as a function of r = y - z, where z is the prediction:

        - "squared": :math:`r^2 / 2`;
        - "poisson", for counts: half the deviance, :math:`e^z - y z + y \log y - y`;
        - "gamma", for positive amounts: half the deviance, :math:`y e^{-z} + z - 1 - \log y`;
        - "tweedie", for amounts with many zeros: half the deviance of a Tweedie distribution with
          the power p, :math:`e^{(2-p) z} / (2-p) + y e^{(1-p) z} / (p-1) - y^{2-p} /
          ((p-1)(2-p))`;
        - "huber": :math:`r^2 / 2`, but :math:`\epsilon (|r| - \epsilon / 2)` where
          :math:`|r| > \epsilon` [1]_. Epsilon is in the units of y: unlike in `HuberRegressor`, no
          scale is estimated;
        - "quantile": :math:`q\, r` if r is positive, else :math:`(q - 1)\, r` [2]_;
        - "epsilon_insensitive": :math:`\max(0, |r| - \epsilon)`, the loss of liblinear's ``-s 13``
          and of `LinearSVR` [3]_;
        - "squared_epsilon_insensitive": :math:`\max(0, |r| - \epsilon)^2`, the loss of ``-s 11``.
    l1, l2 : float
        By default 0 and 1, on the scale of the sum of losses. ``Ridge(alpha)`` is ``l2=alpha``;
        ``ElasticNet(alpha, l1_ratio)`` is ``l1 = alpha * l1_ratio * n_samples`` and ``l2 = alpha *
        (1 - l1_ratio) * n_samples``; ``LinearRegression`` is ``l2 = 0``, which without l1 requires
        "squared", "poisson", "gamma" or "tweedie", and linearly independent features;
        ``Lasso(alpha)`` is ``l1 = alpha * n_samples`` and ``l2 = 0``;
        ``PoissonRegressor(alpha)``, ``GammaRegressor(alpha)`` and ``TweedieRegressor(power=p,
        alpha=alpha)`` are ``l2 = alpha * sum(sample_weight)``.
    C, penalty_factor, positive
        See `LinearClassifier`.
    epsilon : float, optional
        The distance from the label beyond which "huber" is linear: above 0, by default 1.35. For
        "epsilon_insensitive" and its square, the distance up to which they are 0, by default 0.1.
        Other losses do not use it.
    quantile : float or sequence of float, default=0.5
        The q of "quantile", between 0 and 1; other losses do not use it. For several values, in
        ascending order, separate models are fitted: `coef_` and the other attributes have a row for
        each, and `predict` returns a column for each.
    power : float, default=1.5
        The p of "tweedie", between 1, the power of "poisson", and 2, the power of "gamma".
    fit_intercept, solver, adaptive, num_loss_partitions, max_iter, max_time, tol, n_jobs
        See `LinearClassifier`. "quantile" and "epsilon_insensitive" are piecewise linear like the
        hinge, so the same solvers apply.
    random_state, warm_start, keep_duals, verbose, callback
        See `LinearClassifier`.

    Attributes
    ----------
    coef_ : ndarray of float64, shape (n_features,)
        If y has several columns, (n_targets, n_features); the other attributes then have an entry
        for each target, too.
    intercept_ : float
    dual_coef_ : ndarray of float64, shape (n_samples,)
    objective_, dual_gap_ : float
        The minimum is between ``objective_ - dual_gap_`` and ``objective_``. Losses are
        nonnegative, so the objective is, too, and `tol` is a share of it.
    n_iter_ : ndarray of int, shape (1,)
    history_ : list of list of dict
        A single list.
    solver_ : list of str
        A single name.

    Raises
    ------
    ValueError
        If an option is out of its range, data are not finite or their shapes do not match, or
        weights are negative; for "poisson" and "tweedie", if targets are negative or, with an
        intercept, all 0; for "gamma", if targets are not positive.
    NotFiniteError
        If numbers overflow, so that no result is finite.

    References
    ----------
    .. [1] Huber: Robust estimation of a location parameter, 1964.
    .. [2] Koenker, Bassett: Regression quantiles, 1978.
    .. [3] Ho, Lin: Large-scale linear support vector regression, 2012.

    Examples
    --------
    >>> from tfopt.linear_model import LinearRegressor
    >>> model = LinearRegressor(l2=1e-3).fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    >>> model.predict([[4.0]]).round(1)
    array([9.])
    >>> model = LinearRegressor("quantile", quantile=0.9).fit([[0.0]] * 11, range(11))
    >>> round(float(model.intercept_), 6)
    9.0
    """

    _LOSSES = regression_losses()
    _PARAMETERS = {"epsilon": None, "quantile": 0.5, "power": 1.5}

    def __init__(
        self,
        loss: RegressorLoss = "squared",
        *,
        l1: float = 0.0,
        l2: float | None = None,
        C: float | None = None,
        penalty_factor: Sequence[float] | None = None,
        positive: bool = False,
        epsilon: float | None = None,
        quantile: float | Sequence[float] = 0.5,
        power: float = 1.5,
        fit_intercept: bool = True,
        solver: Solver = "auto",
        adaptive: bool = False,
        num_loss_partitions: int | Sequence[int] | None = None,
        max_iter: int = 1000,
        max_time: float | None = None,
        tol: float | None = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
        warm_start: bool = False,
        keep_duals: bool = True,
        verbose: bool = False,
        callback: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        keep_parameters(self, locals())

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None
    ) -> LinearRegressor:
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
            float64 and float32, C-ordered or CSR, are not copied; others are converted.
        y : array, shape (n_samples,) or, for ``loss="squared"``, (n_samples, n_targets)
        sample_weight : array, shape (n_samples,), optional
            Non-negative.
        offset : array, shape (n_samples,), or float, optional
            A known number that is added to x . w + b of each sample; for counts, the logarithm of
            the exposure. Pass it to `predict`, too.

        Returns
        -------
        LinearRegressor
        """
        with self._all_or_nothing():
            if (values := self._several()) is not None:
                self._fit_several(
                    values, lambda model, _: model.fit(X, y, sample_weight, offset=offset)
                )
                return self
            X, y, weights = self._checked(X, y, sample_weight)
            y, weights, factor = self._without_offset(X, y, weights, offset)
            scales = np.ndim(factor) > 0
            last = getattr(self, "dual_coef_", None) if scales and self._is_warm else None
            if last is not None and last.shape[-1] == len(weights):
                self.dual_coef_ = last / factor
            if self._has_blocks:
                fit_partitions(self, X, y, weights)
            else:
                self._solve(self._encoded(X, y, weights))
            if scales and self.keep_duals:
                self.dual_coef_ *= factor
        return self

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, np.ndarray, np.ndarray]:
        shape = (y if hasattr(y, "ndim") else np.asarray(y)).shape
        n_targets = shape[1] if len(shape) == 2 else 1
        if n_targets > 1 and not (self._phi.is_quadratic and not self._in_blocks):
            what = f"loss={self.loss!r}" if not self._in_blocks else "a fit in blocks"
            raise InvalidArgumentError(
                f"{what} has one target, and y has {n_targets} columns: fit a model for each, as "
                "sklearn.multioutput.MultiOutputRegressor does"
            )
        self._check_options()
        X, y = self._validate_features(
            *(X, True), y=y, order="C", y_numeric=True, multi_output=n_targets > 1
        )
        y, self._has_targets = y.astype(np.float64), n_targets > 1
        weights = check_weights(sample_weight, X)
        if self._phi.is_outside(y).any():
            raise ValueError(f"loss={self.loss!r} needs {self._phi.domain} targets")
        return X, y, weights

    def _encoded(self, X: Any, y: np.ndarray, weights: np.ndarray) -> Samples:
        """Return the samples for the solvers."""
        targets = np.ascontiguousarray(np.atleast_2d(y.T))
        with np.errstate(over="ignore"):
            for each in targets:
                squares = weighted_sum(weights, np.square(each))
                self._check_sums(weighted_sum(weights, each), squares)
        return self._samples(X, lambda k: targets[k], len(targets), weights)

    def _solved(self, samples: Samples) -> FitResult:
        together = self._has_targets and (self.l1 > 0 or self._l2() > 0)
        return (self._solved_together(samples) if together else None) or super()._solved(samples)

    def _solved_together(self, samples: Samples) -> FitResult | None:
        """Solve for several targets by one factorization, if it applies to all of them."""
        _, n_threads = samples.workers_and_threads()
        problem = self._problem_of(samples, n_threads)
        plan = make_plan(problem, self._parameters(), samples.n_problems)
        if (
            plan.solver != CHOLESKY
            or self.num_loss_partitions is not None
            or samples.squares_overflow(problem.l2)
        ):
            return None
        n = samples.n_problems
        points = [samples.initial_point(problem, None, k) for k in range(n)]
        with self._solver_options(seed=0) as options:  # the seed is not used
            paths = paths_of_targets(problem, points, plan)
            results = [path.solve(0.0, problem.l2, options) for path in paths]
        solved = [result for result in results if result is not None]
        if len(solved) < n:
            return None
        duals = np.empty((0, samples.shape[0]))
        if self.keep_duals:
            duals = residuals(problem, points, [result.certificate for result in solved])
        return FitResult(solved, duals, samples.shift, samples.shape[:1], scale=samples.scale)

    def _check_sums(self, weighted: float, squares: float) -> None:
        """Refuse targets without a minimum, given their weighted sum and sum of squares."""
        is_log = self._phi.link == "log"
        if is_log and self.fit_intercept and not weighted > 0:
            raise ValueError(
                "all targets with weight are 0: the best intercept would be minus infinity"
            )
        if not math.isfinite(weighted if is_log else squares):
            raise NotFiniteError("the losses of the targets overflow: scale y or sample_weight")

    def _set_attributes(self, fit: FitResult) -> None:
        super()._set_attributes(fit)
        if self._has_targets:
            return
        for name in ("coef_", "intercept_", "dual_coef_", "objective_", "dual_gap_"):
            if hasattr(self, name):
                setattr(self, name, getattr(self, name)[0])

    _has_classes = False
    #: Whether y has several columns.
    _has_targets = False

    def _target_encoding(self, summary: dict[str, Any]) -> TargetEncoding:
        weight, weighted, squares = summary["targets"].tolist()
        check_total(weight)
        self._check_sums(weighted, squares)
        return TargetEncoding(None, None, (0,), (self._initial_intercept(weight, weighted),))

    def _constant_intercept(self, y: np.ndarray, weights: np.ndarray) -> float:
        return self._initial_intercept(weights.sum(), weighted_sum(weights, y))

    def _initial_intercept(self, weight: float, weighted: float) -> float:
        if not self.fit_intercept:
            return 0.0
        return self._phi.initial_intercept(float(weighted / weight))


#: An earlier name, for old pickles.
SDCARegressor = LinearRegressor
