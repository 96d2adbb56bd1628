"""Linear models that learn from a stream: follow the regularized leader."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.feature_extraction import FeatureHasher
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets

from tfopt import training_ops
from tfopt.errors import NotFiniteError
from tfopt.linear_model.checks import check_count, check_number, check_weights
from tfopt.linear_model.predictions import PIECE, LinearClassifier, LinearModel, LinearRegressor

__all__ = ["FTRLClassifier", "FTRLRegressor"]


def _occurring(indices: np.ndarray) -> np.ndarray:
    """Return the distinct indices, in order, with little memory: they may be in a file."""
    found = indices[:0]
    for start in range(0, indices.size, PIECE):
        found = np.union1d(found, indices[start : start + PIECE])
    return found


class FTRLEstimator(LinearModel):
    """Weights, one row for each score, and the two slots of FTRL-Proximal for each weight.

    `_state` has these three, of shape (3, n_scores, n_features + 1): the last is the intercept's.
    """

    def _slopes(self, scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return d loss / d score of each sample and score."""
        raise NotImplementedError

    def _check_options(self) -> None:
        check_number("learning_rate", self.learning_rate, 0, open_end=True)
        check_number("initial_accumulator", self.initial_accumulator, 0)
        for name in ("l1", "l2"):
            check_number(name, getattr(self, name), 0)
        for name in ("batch_size", "max_iter"):
            check_count(name, getattr(self, name), 1)
        if self.n_hashes is not None:
            check_count("n_hashes", self.n_hashes, 1)

    def _features(self, X: Any, reset: bool, **options: Any) -> Any:
        if self.n_hashes is not None:
            X = FeatureHasher(int(self.n_hashes)).transform(X)
        return super()._features(X, reset, **options)

    def _reset(self, n_scores: int, n_features: int) -> None:
        """Forget everything."""
        self._state = np.zeros((3, n_scores, n_features + 1))
        self._state[1] = self.initial_accumulator
        self.n_iter_, self.t_ = 0, 0

    def _learn(
        self, X: Any, targets: np.ndarray, weights: np.ndarray, orders: list[np.ndarray]
    ) -> None:
        """Take the samples in one order after another.

        Nothing changes before all are taken, and then only of the features that occur.

        Parameters
        ----------
        X : array or CSR matrix, shape (n_samples, n_features)
        targets : ndarray, shape (n_samples, n_scores)
        weights : ndarray, shape (n_samples,)
        orders : list of ndarray of int
        """
        X = sparse.csr_matrix(X)
        occurring = _occurring(X.indices)
        columns = np.append(occurring, X.shape[1])
        before = self._state[:, :, columns]
        state = before.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            for order in orders:
                for start in range(0, order.size, self.batch_size):
                    batch = order[start : start + self.batch_size]
                    rows = X[batch]
                    rows.indices = np.searchsorted(occurring, rows.indices).astype(np.int32)
                    rows.resize(batch.size, occurring.size)
                    self._take(state, rows, targets[batch], weights[batch])
        if not np.isfinite(state).all():
            raise NotFiniteError(
                f"the weights are no longer finite: lower learning_rate={self.learning_rate:g} "
                "or scale the features"
            )
        try:
            self._state[:, :, columns] = state
            self.coef_, self.intercept_ = self._weights()
            self.t_ += sum(order.size for order in orders)
            self.n_iter_ += len(orders)
        except BaseException:
            self._state[:, :, columns] = before
            raise

    def _weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the coefficients and the intercepts, which no later step changes."""
        return self._state[0, :, :-1].copy(), self._state[0, :, -1].copy()

    def _take(self, state: np.ndarray, rows: Any, targets: np.ndarray, weights: np.ndarray) -> None:
        """Take a batch of samples."""
        w = state[0]
        scores = rows @ w[:, :-1].T + w[:, -1]
        slopes = self._slopes(scores, targets) * weights[:, None]
        columns = np.unique(rows.indices).astype(np.int64)
        for slots, gradient, slope in zip(
            state.transpose(1, 0, 2), (rows.T @ slopes).T, slopes.T, strict=True
        ):
            self._step(slots, columns, gradient[columns], self.l1, self.l2)
            if self.fit_intercept:
                last = np.array([w.shape[1] - 1])
                self._step(slots, last, slope.sum(keepdims=True), 0.0, 0.0)

    def _step(
        self, slots: np.ndarray, columns: np.ndarray, gradient: np.ndarray, l1: float, l2: float
    ) -> None:
        w, accumulator, linear = slots
        training_ops.apply_ftrl(
            w,
            accumulator,
            linear,
            gradient,
            indices=columns,
            lr=self.learning_rate,
            l1=l1,
            l2=l2,
            lr_power=-0.5,
        )

    def _orders(self, n_samples: int) -> list[np.ndarray]:
        """Return the order of each epoch of `fit`."""
        random = check_random_state(self.random_state)
        if not self.shuffle:
            return [np.arange(n_samples)] * self.max_iter
        return [random.permutation(n_samples) for _ in range(self.max_iter)]


class FTRLClassifier(LinearClassifier, FTRLEstimator):
    """Logistic regression from a stream of samples, by FTRL-Proximal [1]_.

    Each weight has a learning rate of its own, which falls as its gradients add up, and is exactly
    0 while they do not exceed l1. More than two classes are separated one from the rest.

    Parameters
    ----------
    learning_rate : float, default=0.5
    initial_accumulator : float, default=0.1
        What the squares of the gradients are added to.
    l1, l2 : float, default=0.0
        Penalties on the scale of the sum of losses over all samples seen.
    batch_size : int, default=32
        Samples whose gradients are added up for a step; 1 is the paper's algorithm.
    max_iter : int, default=10
        Epochs of `fit`; `partial_fit` makes one.
    n_hashes : int, optional
        Samples are dicts from names to numbers or strings, and each name (with its string) is
        hashed to one of so many features: `sklearn.feature_extraction.FeatureHasher`.
    fit_intercept : bool, default=True
        Whether to have an intercept, which is not penalized.
    shuffle : bool, default=True
        Whether `fit` shuffles the samples before each epoch.
    random_state : int, RandomState or None, default=0

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
    coef_ : ndarray of float64, shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of float64, shape (1,) or (n_classes,)
    n_iter_ : int
        Epochs of `fit`, or calls of `partial_fit`.
    t_ : int
        Samples seen.

    References
    ----------
    .. [1] McMahan et al.: Ad click prediction: a view from the trenches, 2013.

    Examples
    --------
    >>> from tfopt.linear_model import FTRLClassifier
    >>> model = FTRLClassifier(n_hashes=64)
    >>> days = [{"sky": "grey", "wind": 3.0}, {"sky": "blue", "wind": 1.0}]
    >>> for _ in range(20):
    ...     model = model.partial_fit(days, ["rain", "dry"], classes=["dry", "rain"])
    >>> model.predict([{"sky": "blue"}])
    array(['dry'], dtype='<U4')
    """

    def __init__(
        self,
        *,
        learning_rate: float = 0.5,
        initial_accumulator: float = 0.1,
        l1: float = 0.0,
        l2: float = 0.0,
        batch_size: int = 32,
        max_iter: int = 10,
        n_hashes: int | None = None,
        fit_intercept: bool = True,
        shuffle: bool = True,
        random_state: Any = 0,
    ) -> None:
        self.learning_rate = learning_rate
        self.initial_accumulator = initial_accumulator
        self.l1 = l1
        self.l2 = l2
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.n_hashes = n_hashes
        self.fit_intercept = fit_intercept
        self.shuffle = shuffle
        self.random_state = random_state

    def _slopes(self, scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
        slopes: np.ndarray = expit(scores) - targets
        return slopes

    def _targets(self, y: np.ndarray) -> np.ndarray:
        """Return 1 where a sample is of a score's class, else 0."""
        unknown = np.setdiff1d(y, self.classes_)
        if unknown.size:
            raise ValueError(f"y has labels that are not in classes: {unknown[:5].tolist()}")
        classes = self.classes_[1:] if self.classes_.size == 2 else self.classes_
        targets: np.ndarray = (y[:, None] == classes).astype(np.float64)
        return targets

    def _start(self, classes: Any, n_features: int) -> None:
        self.classes_ = np.unique(classes)
        if self.classes_.size < 2:
            raise ValueError(
                f"at least 2 classes are needed, got one class: {self.classes_.tolist()}"
            )
        self._reset(1 if self.classes_.size == 2 else self.classes_.size, n_features)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> FTRLClassifier:
        """Learn anew from all samples, several times over.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features), or dicts
        y : array, shape (n_samples,)
        sample_weight : array, shape (n_samples,), optional
        """
        with self._all_or_nothing():
            self._check_options()
            X, y = self._features(X, reset=True, y=y)
            check_classification_targets(y)
            weights = check_weights(sample_weight, X)
            self._start(y, X.shape[1])
            self._learn(X, self._targets(y), weights, self._orders(X.shape[0]))
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> FTRLClassifier:
        """Learn from more samples, in the order given.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features), or dicts
        y : array, shape (n_samples,)
        classes : array, shape (n_classes,)
            All there will be; needed in the first call.
        sample_weight : array, shape (n_samples,), optional
        """
        with self._all_or_nothing():
            first = not hasattr(self, "classes_")
            self._check_options()
            X, y = self._features(X, reset=first, y=y)
            check_classification_targets(y)
            weights = check_weights(sample_weight, X)
            if first:
                if classes is None:
                    raise ValueError("the first call of partial_fit needs classes")
                self._start(classes, X.shape[1])
            elif classes is not None and not np.array_equal(self.classes_, np.unique(classes)):
                raise ValueError(
                    f"classes is {classes!r}, but was {self.classes_!r} in the first call"
                )
            self._learn(X, self._targets(y), weights, [np.arange(X.shape[0])])
        return self


class FTRLRegressor(LinearRegressor, FTRLEstimator):
    """Least squares or Poisson regression from a stream of samples, by FTRL-Proximal.

    Parameters
    ----------
    loss : {"squared", "poisson"}, default="squared"
        (x . w + b - y)^2 / 2; for counts e^(x . w + b) - y * (x . w + b).
    learning_rate, initial_accumulator, l1, l2, batch_size, max_iter
        See `FTRLClassifier`; the learning rate is that of targets about as large as 1.
    n_hashes, fit_intercept, shuffle, random_state
        See `FTRLClassifier`.

    Attributes
    ----------
    coef_ : ndarray of float64, shape (n_features,)
    intercept_ : ndarray of float64, shape (1,)
    n_iter_, t_ : int

    Examples
    --------
    >>> from tfopt.linear_model import FTRLRegressor
    >>> model = FTRLRegressor(max_iter=200).fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    >>> model.predict([[4.0]]).round(1)
    array([9.])
    """

    def __init__(
        self,
        loss: str = "squared",
        *,
        learning_rate: float = 0.5,
        initial_accumulator: float = 0.1,
        l1: float = 0.0,
        l2: float = 0.0,
        batch_size: int = 32,
        max_iter: int = 10,
        n_hashes: int | None = None,
        fit_intercept: bool = True,
        shuffle: bool = True,
        random_state: Any = 0,
    ) -> None:
        self.loss = loss
        self.learning_rate = learning_rate
        self.initial_accumulator = initial_accumulator
        self.l1 = l1
        self.l2 = l2
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.n_hashes = n_hashes
        self.fit_intercept = fit_intercept
        self.shuffle = shuffle
        self.random_state = random_state

    def _slopes(self, scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
        if self.loss == "squared":
            slopes: np.ndarray = scores - targets
            return slopes
        with np.errstate(over="ignore"):
            slopes = np.exp(scores) - targets
        return slopes

    def _checked(self, X: Any, y: Any, reset: bool) -> tuple[Any, np.ndarray]:
        self._check_options()
        if self.loss not in ("squared", "poisson"):
            raise ValueError(f"loss must be 'squared' or 'poisson', not {self.loss!r}")
        X, y = self._features(X, reset=reset, y=y, y_numeric=True)
        if self.loss == "poisson" and (y < 0).any():
            raise ValueError("loss='poisson' needs non-negative targets")
        return X, y.astype(np.float64)[:, None]

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> FTRLRegressor:
        """Learn anew from all samples, several times over.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features), or dicts
        y : array, shape (n_samples,)
        sample_weight : array, shape (n_samples,), optional
        """
        with self._all_or_nothing():
            X, y = self._checked(X, y, reset=True)
            weights = check_weights(sample_weight, X)
            self._reset(1, X.shape[1])
            self._learn(X, y, weights, self._orders(X.shape[0]))
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> FTRLRegressor:
        """Learn from more samples, in the order given.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features), or dicts
        y : array, shape (n_samples,)
        sample_weight : array, shape (n_samples,), optional
        """
        with self._all_or_nothing():
            first = not hasattr(self, "coef_")
            X, y = self._checked(X, y, reset=first)
            weights = check_weights(sample_weight, X)
            if first:
                self._reset(1, X.shape[1])
            self._learn(X, y, weights, [np.arange(X.shape[0])])
        return self

    def _weights(self) -> tuple[np.ndarray, np.ndarray]:
        coef, intercept = super()._weights()
        return coef[0], intercept
