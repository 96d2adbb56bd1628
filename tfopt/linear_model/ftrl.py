"""Online linear models: FTRL-Proximal (follow the regularized leader)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from tfopt.linear_model.ftrl_base import FTRLEstimator, entries_of
from tfopt.linear_model.losses import LOSSES
from tfopt.linear_model.predictions import LinearClassifierMixin, LinearRegressorMixin
from tfopt.linear_model.validation import check_weights

__all__ = ["FTRLClassifier", "FTRLRegressor"]


class FTRLClassifier(LinearClassifierMixin, FTRLEstimator):
    """Online logistic regression by FTRL-Proximal [1]_.

    Each weight has its own learning rate, which decreases as its squared gradients add up, and is
    exactly 0 as long as l1 outweighs its gradients. More than two classes are learned
    one-versus-rest.

    Parameters
    ----------
    learning_rate : float, default=0.5
        The paper's alpha: with n the sum of its squared gradients, a weight's learning rate is
        alpha / (beta + sqrt(n)).
    beta : float, default=0.0
    initial_accumulator : float, default=0.1
        The initial value of the sums of squared gradients.
    l1, l2 : float, default=0.0
        Penalties on the scale of the sum of losses over all samples seen, ``l1 |w| + l2 w^2``, as
        TensorFlow has them. `ftrl_parameters` converts those of other programs.
    batch_size : int, default=32
        Samples whose gradients are summed for a step; 1 is the paper's algorithm.
    max_iter : int, default=10
        Epochs of `fit`; `partial_fit` makes one.
    n_hashes : int, optional
        The number of hashed features. Samples are then dicts from names to numbers or strings, as
        for `sklearn.feature_extraction.FeatureHasher`, or the rows of a sparse matrix with any
        number of columns, whose names are their numbers.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not penalized.
    shuffle : bool, default=True
        Whether `fit` shuffles the samples before each epoch.
    random_state : int, RandomState or None, default=0
    verbose : bool, default=False
        Whether `fit` shows a progress bar with the loss; needs tqdm.
    callback : callable, optional
        Called after each epoch of `fit` with a dict of its number ("iteration"), the number of
        samples seen so far ("samples") and `loss_` ("loss"). If it returns True, the fit ends.

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
    coef_ : ndarray of float64, shape (1, n_features) or (n_classes, n_features)
        Views of the state: `partial_fit` changes them in place.
    intercept_ : ndarray of float64, shape (1,) or (n_classes,)
    n_iter_ : int
        Epochs of `fit`, or calls of `partial_fit`.
    t_ : int
        Samples seen.
    loss_ : float
        The mean loss of the samples of the last epoch of `fit` or call of `partial_fit`, weighted
        and summed over the scores, each as it was predicted before its batch was learned.
    progressive_loss_ : float
        The same of all samples seen. If each came once, it is progressive validation: it estimates
        the loss on new samples.

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
        beta: float = 0.0,
        initial_accumulator: float = 0.1,
        l1: float = 0.0,
        l2: float = 0.0,
        batch_size: int = 32,
        max_iter: int = 10,
        n_hashes: int | None = None,
        fit_intercept: bool = True,
        shuffle: bool = True,
        random_state: Any = 0,
        verbose: bool = False,
        callback: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        self.learning_rate = learning_rate
        self.beta = beta
        self.initial_accumulator = initial_accumulator
        self.l1 = l1
        self.l2 = l2
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.n_hashes = n_hashes
        self.fit_intercept = fit_intercept
        self.shuffle = shuffle
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    @property
    def _kernel_loss(self) -> str:
        return "logistic_loss"

    def _targets(self, y: np.ndarray) -> np.ndarray:
        """Return 1 for the scores of a sample's class, else -1."""
        is_of_class = y[:, None] == self.classes_
        if np.count_nonzero(is_of_class) < y.size:
            unknown = np.setdiff1d(y, self.classes_)
            raise ValueError(f"y has labels that are not in classes: {unknown[:5].tolist()}")
        targets: np.ndarray = np.where(is_of_class, 1.0, -1.0)
        return targets[:, 1:].copy() if self.classes_.size == 2 else targets

    def _start(self, classes: Any, n_features: int) -> None:
        self.classes_ = np.unique(classes)
        if self.classes_.size < 2:
            raise ValueError(
                f"at least 2 classes are needed, got one class: {self.classes_.tolist()}"
            )
        self._reset(1 if self.classes_.size == 2 else self.classes_.size, n_features)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> FTRLClassifier:
        """Fit the model from scratch, in several epochs.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features), or dicts
        y : array, shape (n_samples,)
        sample_weight : array, shape (n_samples,), optional
        """
        with self._all_or_nothing():
            self._check_options()
            X, y = self._validate_features(X, reset=True, y=y)
            check_classification_targets(y)
            weights = check_weights(sample_weight, X)
            self._start(y, X.shape[1])
            self._learn_epochs(X, self._targets(y), weights)
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> FTRLClassifier:
        """Learn from more samples, in their order.

        If their numbers overflow, the batches before the one that does have been learned, and the
        error says how many samples these are; an error in the first call leaves nothing.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features), or dicts
        y : array, shape (n_samples,)
        classes : array, shape (n_classes,)
            All classes; required in the first call.
        sample_weight : array, shape (n_samples,), optional
        """
        with self._all_or_nothing():
            first = not hasattr(self, "classes_")
            self._check_options()
            X, y = self._validate_features(X, reset=first, y=y)
            weights = check_weights(sample_weight, X)
            if first:
                check_classification_targets(y)
                if classes is None:
                    raise ValueError("the first call of partial_fit needs classes")
                self._start(classes, X.shape[1])
            elif classes is not None and not np.array_equal(self.classes_, np.unique(classes)):
                raise ValueError(
                    f"classes is {classes!r}, but was {self.classes_!r} in the first call"
                )
            order = np.arange(X.shape[0])
            self._learn(entries_of(X), self._targets(y), weights, order, keeps=not first)
        return self


class FTRLRegressor(LinearRegressorMixin, FTRLEstimator):
    """Online least squares or Poisson regression by FTRL-Proximal.

    Parameters
    ----------
    loss : {"squared", "poisson"}, default="squared"
        (x . w + b - y)^2 / 2; for counts e^(x . w + b) - y * (x . w + b).
    learning_rate, beta, initial_accumulator, l1, l2, batch_size, max_iter
        See `FTRLClassifier`; the default learning rate suits targets of about size 1.
    n_hashes, fit_intercept, shuffle, random_state, verbose, callback
        See `FTRLClassifier`.

    Attributes
    ----------
    coef_ : ndarray of float64, shape (n_features,)
    intercept_ : ndarray of float64, shape (1,)
    n_iter_, t_ : int
    loss_, progressive_loss_ : float
        See `FTRLClassifier`.

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
        beta: float = 0.0,
        initial_accumulator: float = 0.1,
        l1: float = 0.0,
        l2: float = 0.0,
        batch_size: int = 32,
        max_iter: int = 10,
        n_hashes: int | None = None,
        fit_intercept: bool = True,
        shuffle: bool = True,
        random_state: Any = 0,
        verbose: bool = False,
        callback: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        self.loss = loss
        self.learning_rate = learning_rate
        self.beta = beta
        self.initial_accumulator = initial_accumulator
        self.l1 = l1
        self.l2 = l2
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.n_hashes = n_hashes
        self.fit_intercept = fit_intercept
        self.shuffle = shuffle
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    @property
    def _kernel_loss(self) -> str:
        return LOSSES[self.loss].kernel

    def _checked(self, X: Any, y: Any, reset: bool) -> tuple[Any, np.ndarray]:
        self._check_options()
        if self.loss not in ("squared", "poisson"):
            raise ValueError(f"loss must be 'squared' or 'poisson', not {self.loss!r}")
        X, y = self._validate_features(X, reset=reset, y=y, y_numeric=True)
        phi = LOSSES[self.loss]
        if phi.is_outside(y).any():
            raise ValueError(f"loss={self.loss!r} needs {phi.domain} targets")
        return X, y.astype(np.float64)[:, None]

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> FTRLRegressor:
        """Fit the model from scratch, in several epochs.

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
            self._learn_epochs(X, y, weights)
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> FTRLRegressor:
        """Learn from more samples, in their order.

        If their numbers overflow, the batches before the one that does have been learned, and the
        error says how many samples these are; an error in the first call leaves nothing.

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
            self._learn(entries_of(X), y, weights, np.arange(X.shape[0]), keeps=not first)
        return self

    def _weights(self) -> tuple[np.ndarray, np.ndarray]:
        coef, intercept = super()._weights()
        return coef[0], intercept
