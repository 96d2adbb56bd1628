"""Fits along a path of penalties, each started from the one before it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.parallel import Parallel, delayed

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model._fit.fit import FitResult
from tfopt.linear_model._fit.least_squares import LeastSquares, paths_of_targets
from tfopt.linear_model._fit.monitor import SolverResult
from tfopt.linear_model._fit.newton_path import NewtonPath
from tfopt.linear_model._fit.plan import make_plan
from tfopt.linear_model._fit.problem import as_rows
from tfopt.linear_model._fit.quadratic_model import MOST_IN_MATRIX
from tfopt.linear_model._fit.work import descent_work, hessian_work
from tfopt.linear_model.classifier import SDCAClassifier
from tfopt.linear_model.estimator import SDCAEstimator
from tfopt.linear_model.literals import LossName
from tfopt.linear_model.parameters import CHOLESKY, DEFAULT_TOL, DESCENT, Parameters
from tfopt.linear_model.penalties import largest_l1, path_penalties
from tfopt.linear_model.regressor import SDCARegressor

__all__ = ["FoldFits", "SDCAPath", "WarmFits", "sdca_path"]


@dataclasses.dataclass(frozen=True)
class SDCAPath:
    """Solutions along a path of penalties, in the order in which the penalties were given.

    Attributes
    ----------
    l1s, l2s : ndarray of float64, shape (n_values,)
        The penalties.
    coefs : ndarray of float64, shape (n_values, n_problems, n_features)
        There is a problem for each class, but only one for two classes and for regression. (The
        multinomial loss is one problem of all classes; its objective is repeated for each class.)
    intercepts : ndarray of float64, shape (n_values, n_problems)
    objectives, dual_gaps : ndarray of float64, shape (n_values, n_problems)
        The minimum is between ``objectives - dual_gaps`` and ``objectives``.
    n_iters : ndarray of int, shape (n_values, n_problems)
    """

    l1s: np.ndarray
    l2s: np.ndarray
    coefs: np.ndarray
    intercepts: np.ndarray
    objectives: np.ndarray
    dual_gaps: np.ndarray
    n_iters: np.ndarray


class WarmFits:
    """Fits of an estimator to the same samples, from the strongest penalty to the weakest.

    Parameters
    ----------
    model : SDCAEstimator
        The estimator, which is refitted for each pair of penalties.
    X, y, sample_weight
        As in its `fit`; they are checked and prepared once.
    l1s, l2s : ndarray, shape (n_values,)
    offset
        As in its `fit`.

    Attributes
    ----------
    order : list of int
        The indices of the penalties in the order of the fits.
    """

    def __init__(
        self,
        model: SDCAEstimator,
        X: Any,
        y: Any,
        sample_weight: Any,
        l1s: np.ndarray,
        l2s: np.ndarray,
        offset: Any = None,
    ) -> None:
        model.set_params(warm_start=True, C=None)
        if model.tol is None:  # polishing does not help the fit with the next penalty
            model.set_params(tol=DEFAULT_TOL)
        self.model, self.l1s, self.l2s = model, l1s, l2s
        self.order: list[int] = np.lexsort((-l1s, -l2s)).tolist()
        self._set_penalties(self.order[0])
        X, y, weights = model._checked(X, y, sample_weight)
        self._samples = X, *model._without_offset(X, y, weights, offset)[:2]
        self.data = model._encoded(*self._samples)
        self._paths = self._made_paths()
        self._fold: np.ndarray | None = None

    def _made_paths(self) -> list[LeastSquares] | list[NewtonPath]:
        """Return a path for each problem if making them is cheap, else no paths."""
        model, data = self.model, self.data
        _, n_threads = data.workers_and_threads()
        problem = model._problem_of(data, n_threads)
        squared = problem.phi.is_quadratic
        if squared and self.l1s.any():
            plan = make_plan(problem, Parameters(DESCENT))
            applies = not (model.adaptive or model.num_loss_partitions is not None)
            applies = applies and model.solver in ("auto", DESCENT)
            applies = applies and problem.n_weights <= MOST_IN_MATRIX
            work = self.l1s.size * descent_work(problem, is_warm=True)
            applies = applies and hessian_work(problem) <= work
        else:
            plan = make_plan(problem, model._parameters(), data.n_problems)
            applies = plan.solver == CHOLESKY
            applies = applies and not self.l1s.any() and not model._phi.is_joint
        if not applies or problem.phi.is_linear_far or not problem.is_plain:
            return []
        if data.squares_overflow(self.l2s.min() or 1.0):
            raise ValueError("the squares of X, divided by l2, overflow: scale the features")
        model.keep_duals = False  # they are never used
        points = [data.initial_point(problem, None, k) for k in range(data.n_problems)]
        if squared:
            return paths_of_targets(problem, points, plan)
        return [NewtonPath(problem, point, plan, k) for k, point in enumerate(points)]

    def without(self, test: np.ndarray, train: np.ndarray) -> WarmFits:
        """Return fits to the samples `train`, which are all samples except `test`."""
        fits, (X, y, weights), (path,) = copy.copy(self), self._samples, self._paths
        held = self.data.moved(X[test])
        assert isinstance(path, LeastSquares)
        fits.model, fits._fold = copy.copy(self.model), train
        fits._paths = [path.without(as_rows(held), y[test], weights[test])]
        return fits

    def fit(self, k: int) -> None:
        """Fit the model with the penalties at this index."""
        self._set_penalties(k)
        self.model._l2()
        fit = self._path_fit()
        if fit is None:
            if self._fold is not None:
                X, y, weights = (part[self._fold] for part in self._samples)
                self.data, self._fold = self.model._encoded(X, y, weights), None
            fit = self.model._solved(self.data)
        self.model._set_attributes(fit)
        self.model._warn_unconverged(fit.results)

    def _set_penalties(self, k: int) -> None:
        self.model.l1, self.model.l2 = float(self.l1s[k]), float(self.l2s[k])

    def _path_fit(self) -> FitResult | None:
        """Continue the paths, if there are any; return a fit if all of them succeed."""
        if not self._paths:
            return None
        with self.model._solver_options(seed=0) as options:  # the seed is not used
            results = self._solve_paths(options)
        solved = [result for result in results if result is not None]
        if len(solved) < len(results):
            self._paths = []
            return None
        data = self.data
        return FitResult(solved, np.empty((0, 0)), data.shift, data.shape[:1], scale=data.scale)

    def _solve_paths(self, options: Parameters) -> list[SolverResult | None]:
        """Return the next solution of each path; None for a path that fails."""
        penalties, (workers, _) = (self.model.l1, self.model.l2), self.data.workers_and_threads()
        if workers == 1:
            return [path.solve(*penalties, options) for path in self._paths]
        parallel = Parallel(n_jobs=workers, require="sharedmem")
        return list(parallel(delayed(path.solve)(*penalties, options) for path in self._paths))


class FoldFits:
    """Fits to all samples except a fold's, by subtraction of the fold's sums if possible.

    Parameters
    ----------
    new_model : callable
        Returns an SDCAEstimator.
    X, y, weights
        The checked samples.
    l1s, l2s : ndarray, shape (n_values,)
    """

    def __init__(
        self,
        new_model: Callable[[], SDCAEstimator],
        X: Any,
        y: np.ndarray,
        weights: np.ndarray,
        l1s: np.ndarray,
        l2s: np.ndarray,
    ) -> None:
        self._new_model, self._samples, self._penalties = new_model, (X, y, weights), (l1s, l2s)
        self._all: WarmFits | None = None
        if (model := new_model())._phi.is_quadratic:
            fits = WarmFits(model, X, y, weights, l1s, l2s)
            self._all = fits if fits._paths else None

    def of(self, train: np.ndarray, test: np.ndarray) -> WarmFits:
        """Return fits to the samples `train`."""
        X, y, weights = self._samples
        times = np.bincount(np.concatenate([train, test]), minlength=len(y))
        if self._all is None or (times != 1).any() or not weights[train].any():
            return WarmFits(self._new_model(), X[train], y[train], weights[train], *self._penalties)
        return self._all.without(test, train)


def sdca_path(
    X: Any,
    y: Any,
    loss: LossName = "logistic",
    *,
    l2s: Any = None,
    l1s: Any = None,
    l1: float | None = None,
    l2: float | None = None,
    eps: float | None = None,
    sample_weight: Any = None,
    offset: Any = None,
    **options: Any,
) -> SDCAPath:
    """Fit `SDCAClassifier` or `SDCARegressor` for each value of a penalty.

    The samples are prepared once, and each fit starts from the last, the strongest penalty first.

    Parameters
    ----------
    X : array or sparse matrix, shape (n_samples, n_features)
    y : array, shape (n_samples,)
    loss : str, default="logistic"
        A loss of `SDCAClassifier` or `SDCARegressor`.
    l2s, l1s : int or sequence of float, optional
        The values of a penalty, in any order, or their number. l1 then falls from the smallest
        value with which all weights are 0, as in `lasso_path` (for losses with corners it may be a
        little larger); l2 falls from 1e4 to 1e-4. With both, there is a fit for each pair: for each
        l1, in order, all of l2.
    l1, l2 : float, optional
        The other penalty; 0 and 1 by default, as in the estimators.
    eps : float, optional
        The smallest l1 as a share of the largest, 1e-3 by default, if `l1s` is a number.
    sample_weight : array, shape (n_samples,), optional
        Non-negative.
    offset : array, shape (n_samples,), or float, optional
        See `SDCARegressor.fit`.
    **options
        Further options of the estimator. `tol` is 1e-4 by default; solutions are not refined beyond
        it.

    Returns
    -------
    SDCAPath

    Raises
    ------
    InvalidArgumentError
        Without `l2s` and `l1s`, if a penalty is given twice, and for fixed blocks.
    ValueError
        As `SDCAClassifier` and `SDCARegressor` do.

    Notes
    -----
    Like `sklearn.linear_model.enet_path`, but for all losses and with an intercept.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.linear_model import sdca_path
    >>> X = np.random.default_rng(0).standard_normal((100, 5))
    >>> path = sdca_path(X, X[:, 0] + X[:, 1] > 0, l1s=[30.0, 10.0, 1.0])
    >>> (path.coefs[:, 0] != 0).sum(axis=1)
    array([1, 2, 4])
    >>> bool((path.dual_gaps <= 1e-4 * path.objectives).all())
    True
    >>> grid = sdca_path(X, X[:, 0], "squared", l1s=4, l2=0.0, eps=0.01)
    >>> (grid.coefs[:, 0] != 0).sum(axis=1)
    array([0, 1, 1, 1])
    """
    kind = SDCARegressor if loss in SDCARegressor._LOSSES else SDCAClassifier
    if options.get("C") is not None:
        raise InvalidArgumentError("C is 1 / l2: give l2s, or l2 beside l1s")
    model = kind(**{**options, "loss": loss})
    if model._has_blocks:
        raise InvalidArgumentError("num_loss_partitions must be a number: a path has no blocks")

    def largest() -> float:
        rows, targets, masses = model._checked(X, y, sample_weight)
        targets, masses, _ = model._without_offset(rows, targets, masses, offset)
        return largest_l1(model, model._encoded(rows, targets, masses))

    penalties = path_penalties(l1s, l2s, l1, l2, eps, largest)
    fits = WarmFits(model, X, y, sample_weight, *penalties, offset)
    n, problems = len(fits.order), fits.data.n_problems
    coefs = np.empty((n, problems, fits.data.shape[1]))
    intercepts, objectives, dual_gaps = np.empty((3, n, problems))
    n_iters = np.empty((n, problems), np.int64)
    for k in fits.order:
        fits.fit(k)
        coefs[k], intercepts[k], n_iters[k] = model.coef_, model.intercept_, model.n_iter_
        objectives[k], dual_gaps[k] = model.objective_, model.dual_gap_
    return SDCAPath(*penalties, coefs, intercepts, objectives, dual_gaps, n_iters)
