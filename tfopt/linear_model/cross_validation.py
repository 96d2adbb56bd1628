"""Estimators that choose their penalty by cross-validation."""

from __future__ import annotations

from typing import Any

from tfopt.linear_model.classifier import LinearClassifier
from tfopt.linear_model.literals import ClassifierLoss, RegressorLoss, Solver
from tfopt.linear_model.penalty_choice import PenaltyChoice
from tfopt.linear_model.predictions import LinearClassifierMixin, LinearRegressorMixin
from tfopt.linear_model.regressor import LinearRegressor

__all__ = ["LinearClassifierCV", "LinearRegressorCV", "SDCAClassifierCV", "SDCARegressorCV"]


class LinearClassifierCV(LinearClassifierMixin, PenaltyChoice):
    """`LinearClassifier` with a penalty that is chosen by cross-validation.

    In each fold the penalties form a path, from the strongest to the weakest, and each fit starts
    from the one before it.

    Parameters
    ----------
    loss : {"logistic", "hinge", "smooth_hinge", "squared_hinge", "multinomial"}, default="logistic"
    l2s : int or sequence of float, optional
        The values of l2 to choose from, or their number, between 1e4 and 1e-4. Without `l1s` it is
        10 by default, the inverses of the values of ``LogisticRegressionCV(Cs=10)``.
    l1s : int or sequence of float, optional
        The values of l1 to choose from, or their number, from the largest useful value down, as in
        ``LassoCV(alphas=100)``; see `sdca_path`. With `l2s`, all pairs are tried.
    l1, l2 : float, optional
        The penalty that is not chosen; 0 and 1 by default.
    eps : float, optional
        The smallest l1 as a share of the largest, 1e-3 by default, if `l1s` is a number.
    penalty_factor, positive, gamma, fit_intercept, class_weight
        See `LinearClassifier`.
    cv : int, splitter or iterable, optional
        As in scikit-learn: 5 stratified folds by default.
    scoring : str or callable, optional
        As in scikit-learn. The default is the negative mean loss, summed over the classes if each
        is separated from the rest; it is not `score`, the accuracy. It uses the sample weights, or
        those of scikit-learn's metadata routing if that is enabled. A score of NaN never wins.
    refit : bool, default=True
        Whether to fit to all samples with the best penalty; otherwise the coefficients are the mean
        of the folds' coefficients.
    solver, max_iter, max_time, tol, random_state
        See `LinearClassifier`; `max_time` applies to each fit. On the path the tolerance is 1e-4 by
        default; solutions are not refined beyond it.
    n_jobs : int, optional
        The number of folds that are fitted at a time.

    Attributes
    ----------
    l1s_, l2s_ : ndarray of float64, shape (n_values,)
        The penalties to choose from.
    l1_, l2_ : float
        The best penalties; if several are equally good, the strongest.
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
        If a penalty is given twice, or if all scores are NaN.
    ValueError
        As `LinearClassifier` does.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.linear_model import LinearClassifierCV
    >>> X = np.random.default_rng(0).standard_normal((100, 5))
    >>> model = LinearClassifierCV(l2s=[100.0, 1.0, 0.01]).fit(X, X[:, 0] > 0)
    >>> model.l2_, model.scores_.shape
    (0.01, (5, 3))
    """

    _kind = LinearClassifier
    _options = (
        *("penalty_factor", "positive"),
        *("gamma", "fit_intercept", "class_weight", "solver"),
        *("max_iter", "max_time", "tol", "random_state"),
    )

    def __init__(
        self,
        loss: ClassifierLoss = "logistic",
        *,
        l2s: Any = None,
        l1s: Any = None,
        l1: float | None = None,
        l2: float | None = None,
        eps: float | None = None,
        penalty_factor: Any = None,
        positive: bool = False,
        gamma: float = 1.0,
        fit_intercept: bool = True,
        class_weight: Any = None,
        cv: Any = None,
        scoring: Any = None,
        refit: bool = True,
        solver: Solver = "auto",
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
        self.eps = eps
        self.penalty_factor = penalty_factor
        self.positive = positive
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
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, **params: Any
    ) -> LinearClassifierCV:
        """Choose the penalty, and fit the model.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        y : array, shape (n_samples,)
        sample_weight : array, shape (n_samples,), optional
            Non-negative.
        groups : array, shape (n_samples,), optional
            The groups of the samples, for a `cv` that needs them, such as ``GroupKFold()``.
        **params
            With scikit-learn's metadata routing, the arguments of the splitter and the scorer.

        Returns
        -------
        LinearClassifierCV
        """
        with self._all_or_nothing():
            self._fit_cv(X, y, sample_weight, groups, params)
        return self


class LinearRegressorCV(LinearRegressorMixin, PenaltyChoice):
    """`LinearRegressor` with a penalty that is chosen by cross-validation.

    Parameters
    ----------
    loss, epsilon, quantile, power
        See `LinearRegressor`.
    l2s, l1s, l1, l2, eps, penalty_factor, positive, fit_intercept, refit, solver, max_iter
        See `LinearClassifierCV`.
    max_time, tol, n_jobs, random_state
        See `LinearClassifierCV`.
    cv : int, splitter or iterable, optional
        As in scikit-learn: 5 folds by default.
    scoring : str or callable, optional
        As in scikit-learn. The default is the negative weighted mean loss of each fold's samples.
        (It is not `score`, which is D².)

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
        If a penalty is given twice, or if all scores are NaN.
    ValueError
        As `LinearRegressor` does.

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

    _kind = LinearRegressor
    _options = (
        *("penalty_factor", "positive"),
        *("epsilon", "quantile", "power", "fit_intercept", "solver"),
        *("max_iter", "max_time", "tol", "random_state"),
    )

    def __init__(
        self,
        loss: RegressorLoss = "squared",
        *,
        l2s: Any = None,
        l1s: Any = None,
        l1: float | None = None,
        l2: float | None = None,
        eps: float | None = None,
        penalty_factor: Any = None,
        positive: bool = False,
        epsilon: float | None = None,
        quantile: float = 0.5,
        power: float = 1.5,
        fit_intercept: bool = True,
        cv: Any = None,
        scoring: Any = None,
        refit: bool = True,
        solver: Solver = "auto",
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
        self.eps = eps
        self.penalty_factor = penalty_factor
        self.positive = positive
        self.epsilon = epsilon
        self.quantile = quantile
        self.power = power
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
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        groups: Any = None,
        *,
        offset: Any = None,
        **params: Any,
    ) -> LinearRegressorCV:
        """Choose the penalty, and fit the model.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        y : array, shape (n_samples,)
        sample_weight : array, shape (n_samples,), optional
            Non-negative.
        groups : array, shape (n_samples,), optional
            The groups of the samples, for a `cv` that needs them, such as ``GroupKFold()``.
        offset : array, shape (n_samples,), or float, optional
            See `LinearRegressor.fit`; the penalty is then chosen by the loss.
        **params
            With scikit-learn's metadata routing, the arguments of the splitter and the scorer.

        Returns
        -------
        LinearRegressorCV
        """
        with self._all_or_nothing():
            self._fit_cv(X, y, sample_weight, groups, params, offset)
        return self


#: Earlier names, for old pickles.
SDCAClassifierCV = LinearClassifierCV
SDCARegressorCV = LinearRegressorCV
