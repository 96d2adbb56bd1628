"""Estimators that choose their penalty by cross-validation."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils.parallel import Parallel, delayed

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model.evaluation import mean_losses
from tfopt.linear_model.paths import FoldFits, path_penalties
from tfopt.linear_model.predictions import LinearClassifierMixin, LinearModel, LinearRegressorMixin
from tfopt.linear_model.sdca_base import SDCAEstimator
from tfopt.linear_model.sdca_classifier import SDCAClassifier
from tfopt.linear_model.sdca_regressor import SDCARegressor
from tfopt.linear_model.validation import check_count, check_offset, checked_sparse

__all__ = ["LinearClassifierCV", "LinearRegressorCV", "SDCAClassifierCV", "SDCARegressorCV"]

#: What a refitted model says of its fit.
_FITTED = ("coef_", "intercept_", "objective_", "dual_gap_", "n_iter_", "history_", "solver_")


class _CrossValidation(LinearModel):
    """A linear model whose penalty is chosen by cross-validation."""

    #: The estimator of one penalty, and its options that are this estimator's.
    _kind: Callable[..., SDCAEstimator]
    _options: tuple[str, ...]

    def _estimator(self, **more: Any) -> SDCAEstimator:
        """Return an estimator of these options."""
        shared = {name: getattr(self, name) for name in self._options}
        return self._kind(self.loss, **shared, **more)

    def _penalties(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the penalties to choose from, the l1s and the l2s."""
        l2s = self.l2s
        if self.l1s is None and isinstance(l2s, numbers.Integral):
            l2s = np.logspace(4, -4, check_count("l2s", l2s, 1))
        if self.l1s is not None and isinstance(l2s, numbers.Integral):
            l2s = None
        l1, l2 = (self.l1, None) if self.l1s is None else (None, self.l2)
        return path_penalties(self.l1s, l2s, l1, l2)

    def _fit_cv(self, X: Any, y: Any, sample_weight: Any, groups: Any, offset: Any = None) -> None:
        """Find the scores of all penalties, and fit with the best one."""
        whole = self._estimator()
        X, y, weights = whole._checked(X, y, sample_weight)
        if y.ndim > 1:
            raise InvalidArgumentError(f"a penalty is chosen for one target, not {y.shape[1]}")
        X = checked_sparse(X, own=True)  # SciPy takes rows of it
        if (offset := check_offset(offset, X)) is not None and self.scoring is not None:
            raise InvalidArgumentError(
                f"scoring={self.scoring!r} would predict without the offset: leave scoring out, so "
                "that the penalty is chosen by the loss"
            )
        targets, masses, _ = whole._without_offset(X, y, weights, offset)
        l1s, l2s = self._penalties()
        splitter = check_cv(self.cv, y, classifier=is_classifier(self))
        folds = list(splitter.split(X, y, groups))
        scorer = None if self.scoring is None else check_scoring(whole, scoring=self.scoring)
        phi = whole._phi if whole._phi.is_joint else whole._objective(0, 1).phi
        weighted = sample_weight is not None and not callable(self.scoring)
        fold_fits = FoldFits(lambda: self._estimator(n_jobs=1), X, targets, masses, l1s, l2s)

        def scores_of(train: np.ndarray, test: np.ndarray) -> Any:
            fits = fold_fits.of(train, test)
            model = fits.model
            held_out = X[test], y[test], weights[test] if weighted else np.ones(len(test))
            more = {"sample_weight": held_out[2]} if weighted else {}
            scores, coefs, intercepts = np.empty(l1s.size), [], []
            for k in fits.order:
                fits.fit(k)
                if scorer is not None:
                    scores[k] = scorer(model, *held_out[:2], **more)
                coefs.append(model.coef_)
                intercepts.append(model.intercept_)
            classes = getattr(model, "classes_", None)
            if scorer is None:
                shape = len(coefs), -1
                points = np.array(coefs).reshape(*shape, X.shape[1]), np.reshape(intercepts, shape)
                known = None if offset is None else offset[test]
                scores[fits.order] = -mean_losses(*held_out, *points, phi, classes, known)
            return scores, fits.order, coefs, intercepts, classes

        parallel = Parallel(n_jobs=self.n_jobs, require="sharedmem")
        results = parallel(delayed(scores_of)(train, test) for train, test in folds)
        self.scores_ = np.array([scores for scores, *_ in results])
        order = results[0][1]
        means = self.scores_.mean(axis=0)[order]
        if np.isnan(means).all():
            raise InvalidArgumentError(
                f"scoring={self.scoring!r} is not a number for any penalty: it is not defined for "
                "some fold, of a single sample for instance; have fewer folds, or leave scoring out"
            )
        place = int(np.nanargmax(means))  # of equal ones, the strongest
        best = order[place]
        self.l1s_, self.l2s_ = l1s, l2s
        self.l1_, self.l2_ = float(l1s[best]), float(l2s[best])
        self.n_features_in_ = whole.n_features_in_
        if hasattr(whole, "feature_names_in_"):
            self.feature_names_in_ = whole.feature_names_in_
        if self.refit:
            whole.set_params(l1=self.l1_, l2=self.l2_, tol=self.tol, n_jobs=self.n_jobs)
            whole.fit(X, targets, masses)
            for name in (*_FITTED, "classes_"):
                if hasattr(whole, name):
                    setattr(self, name, getattr(whole, name))
            return
        classes = results[0][4]
        if any(not np.array_equal(classes, each) for *_, each in results):
            raise InvalidArgumentError(
                "refit=False takes the mean of the folds' coefficients, but not all folds have "
                "samples of all classes: set refit=True, or have fewer folds"
            )
        if classes is not None:
            self.classes_ = classes
        self.coef_ = np.mean([coefs[place] for _, _, coefs, *_ in results], axis=0)
        self.intercept_ = np.mean([biases[place] for *_, biases, _ in results], axis=0)


class LinearClassifierCV(LinearClassifierMixin, _CrossValidation):
    """`LinearClassifier` with a penalty that is chosen by cross-validation.

    In each fold the penalties form a path, from the strongest to the weakest, and each fit starts
    from the one before it.

    Parameters
    ----------
    loss : {"logistic", "hinge", "smooth_hinge", "squared_hinge", "multinomial"}, default="logistic"
    l2s : int or sequence of float, default=10
        The values of l2 to choose from, or how many of them between 1e4 and 1e-4: those of
        ``LogisticRegressionCV(Cs=10)`` are their inverses.
    l1s : sequence of float, optional
        The values of l1 to choose from instead.
    l1 : float, default=0.0
        The l1 penalty, unless there are `l1s`.
    l2 : float, default=1.0
        The l2 penalty, if there are `l1s`.
    gamma, fit_intercept, class_weight
        See `LinearClassifier`.
    cv : int, splitter or iterable, optional
        As in scikit-learn: 5 stratified folds by default.
    scoring : str or callable, optional
        As in scikit-learn. By default minus the mean of the loss, summed over the classes where
        each is separated from the rest: so it is not `score`, the accuracy. Sample weights count
        in it, unless it is a callable.
    refit : bool, default=True
        Whether to fit to all samples with the best penalty; otherwise the coefficients are the mean
        of those of the folds.
    solver, max_iter, max_time, tol, random_state
        See `LinearClassifier`; `max_time` is that of each fit. On the path the tolerance is 1e-4 by
        default, and obeyed to the letter.
    n_jobs : int, optional
        The number of folds that are fitted at a time.

    Attributes
    ----------
    l1s_, l2s_ : ndarray of float64, shape (n_values,)
        The penalties to choose from.
    l1_, l2_ : float
        The best ones; of equally good ones the strongest.
    scores_ : ndarray of float64, shape (n_folds, n_values)
    classes_, coef_, intercept_
        See `LinearClassifier`.
    objective_, dual_gap_, n_iter_, history_, solver_
        See `LinearClassifier`; with ``refit=True``.
    n_features_in_, feature_names_in_
        See `LinearClassifier`.

    Raises
    ------
    InvalidArgumentError
        If there are both `l1s` and a sequence of `l2s`.
    ValueError
        As of `LinearClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.linear_model import LinearClassifierCV
    >>> X = np.random.default_rng(0).standard_normal((100, 5))
    >>> model = LinearClassifierCV(l2s=[100.0, 1.0, 0.01]).fit(X, X[:, 0] > 0)
    >>> model.l2_, model.scores_.shape
    (0.01, (5, 3))
    """

    _kind = SDCAClassifier
    _options = (
        *("gamma", "fit_intercept", "class_weight", "solver"),
        *("max_iter", "max_time", "tol", "random_state"),
    )

    def __init__(
        self,
        loss: str = "logistic",
        *,
        l2s: Any = 10,
        l1s: Any = None,
        l1: float = 0.0,
        l2: float = 1.0,
        gamma: float = 1.0,
        fit_intercept: bool = True,
        class_weight: Any = None,
        cv: Any = None,
        scoring: Any = None,
        refit: bool = True,
        solver: str = "auto",
        max_iter: int = 1000,
        max_time: float | None = None,
        tol: float | None = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
    ) -> None:
        self.loss = loss
        self.l2s = l2s
        self.l1s = l1s
        self.l1 = l1
        self.l2 = l2
        self.gamma = gamma
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.solver = solver
        self.max_iter = max_iter
        self.max_time = max_time
        self.tol = tol
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> LinearClassifierCV:
        """Choose the penalty, and fit the model.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        y : array, shape (n_samples,)
        sample_weight : array, shape (n_samples,), optional
            Non-negative.
        groups : array, shape (n_samples,), optional
            Those of the samples, for a `cv` that asks for them, as ``GroupKFold()`` does.

        Returns
        -------
        LinearClassifierCV
        """
        with self._all_or_nothing():
            self._fit_cv(X, y, sample_weight, groups)
        return self


class LinearRegressorCV(LinearRegressorMixin, _CrossValidation):
    """`LinearRegressor` with a penalty that is chosen by cross-validation.

    Parameters
    ----------
    loss, epsilon, quantile
        See `LinearRegressor`.
    l2s, l1s, l1, l2, fit_intercept, refit, solver, max_iter, max_time, tol, n_jobs, random_state
        See `LinearClassifierCV`.
    cv : int, splitter or iterable, optional
        As in scikit-learn: 5 folds by default.
    scoring : str or callable, optional
        As in scikit-learn. By default minus the mean of the loss, which is of each fold's samples
        with their weights. (So it is not `score`, which is R².)

    Attributes
    ----------
    l1s_, l2s_, l1_, l2_, scores_
        See `LinearClassifierCV`.
    coef_, intercept_
        See `LinearRegressor`.
    objective_, dual_gap_, n_iter_, history_, solver_
        See `LinearRegressor`; with ``refit=True``.

    Raises
    ------
    InvalidArgumentError
        If there are both `l1s` and a sequence of `l2s`.
    ValueError
        As of `LinearRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.linear_model import LinearRegressorCV
    >>> random = np.random.default_rng(0)
    >>> X = random.standard_normal((100, 5))
    >>> model = LinearRegressorCV(l1s=[100.0, 10.0, 1.0]).fit(X, 3 * X[:, 0])
    >>> model.l1_, round(model.coef_[0], 1)
    (1.0, np.float64(3.0))
    """

    _kind = SDCARegressor
    _options = (
        *("epsilon", "quantile", "fit_intercept", "solver"),
        *("max_iter", "max_time", "tol", "random_state"),
    )

    def __init__(
        self,
        loss: str = "squared",
        *,
        l2s: Any = 10,
        l1s: Any = None,
        l1: float = 0.0,
        l2: float = 1.0,
        epsilon: float | None = None,
        quantile: float = 0.5,
        fit_intercept: bool = True,
        cv: Any = None,
        scoring: Any = None,
        refit: bool = True,
        solver: str = "auto",
        max_iter: int = 1000,
        max_time: float | None = None,
        tol: float | None = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
    ) -> None:
        self.loss = loss
        self.l2s = l2s
        self.l1s = l1s
        self.l1 = l1
        self.l2 = l2
        self.epsilon = epsilon
        self.quantile = quantile
        self.fit_intercept = fit_intercept
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.solver = solver
        self.max_iter = max_iter
        self.max_time = max_time
        self.tol = tol
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, *, offset: Any = None
    ) -> LinearRegressorCV:
        """Choose the penalty, and fit the model.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        y : array, shape (n_samples,)
        sample_weight : array, shape (n_samples,), optional
            Non-negative.
        groups : array, shape (n_samples,), optional
            Those of the samples, for a `cv` that asks for them, as ``GroupKFold()`` does.
        offset : array, shape (n_samples,), or float, optional
            See `LinearRegressor.fit`; the penalty is then chosen by the loss.

        Returns
        -------
        LinearRegressorCV
        """
        with self._all_or_nothing():
            self._fit_cv(X, y, sample_weight, groups, offset)
        return self


#: Earlier names, which pickles have.
SDCAClassifierCV = LinearClassifierCV
SDCARegressorCV = LinearRegressorCV
