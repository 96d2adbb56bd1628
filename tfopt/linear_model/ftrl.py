"""Online linear models: FTRL-Proximal (follow the regularized leader)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model.ftrl_base import FTRLEstimator, entries_of
from tfopt.linear_model.literals import BinaryLoss, RegressorLoss
from tfopt.linear_model.losses import classification_losses, regression_losses
from tfopt.linear_model.predictions import LinearClassifierMixin, LinearRegressorMixin
from tfopt.linear_model.signatures import keep_parameters
from tfopt.linear_model.validation import check_offset, check_weights, class_factors

__all__ = ["FTRLClassifier", "FTRLRegressor"]


class FTRLClassifier(LinearClassifierMixin, FTRLEstimator):
    """Online logistic regression and support vector machines by FTRL-Proximal [1]_.

    Each weight has its own learning rate, which decreases as its squared gradients add up. A weight
    is exactly 0 as long as l1 outweighs its gradients. More than two classes are learned
    one-versus-rest.

    Parameters
    ----------
    loss : {"logistic", "hinge", "smooth_hinge", "squared_hinge"}, default="logistic"
        As in `LinearClassifier`. Only "logistic" has probabilities.
    learning_rate : float, default=0.5
        The paper's alpha. The learning rate of a weight is alpha / (beta + sqrt(n)), where n is the
        sum of its squared gradients.
    beta : float, default=0.0
    initial_accumulator : float, default=0.1
        The initial value of the sums of squared gradients.
    l1, l2 : float, default=0.0
        Penalties on the scale of the sum of losses over all samples seen, ``l1 |w| + l2 w^2``, as
        in TensorFlow. `ftrl_parameters` converts the penalties of other programs.
    gamma : float, default=1.0
        The width of the quadratic part of the smooth hinge; other losses do not use it.
    batch_size : int, default=32
        The number of samples whose gradients are summed for a step; 1 is the paper's algorithm.
    max_iter : int, default=10
        The largest number of epochs of `fit`; `partial_fit` makes one epoch.
    n_hashes : int, optional
        The number of hashed features. Samples are then dicts from names to numbers or strings, as
        in `sklearn.feature_extraction.FeatureHasher`; rows read by `tfopt.io.iter_hashed`; or a
        sparse matrix with any number of columns, whose names are their numbers.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not penalized.
    class_weight : dict or "balanced", optional
        Factors of the sample weights of each class. "balanced" makes the total weights of all
        classes equal; only `fit` supports it, since it has all samples.
    average : bool or int, default=False
        Whether `coef_` and `intercept_` are averages of the weights after each step, which vary
        less. An integer is the number of samples before the averages begin. They are computed on
        access, by a pass over all weights.
    early_stopping : bool, default=False
        Whether `fit` holds out samples, drawn by `random_state` and stratified by class, and ends
        when their `score` no longer improves.
    validation_fraction : float, default=0.1
        The share of held-out samples; only used with `early_stopping`.
    n_iter_no_change : int, default=5
        `fit` ends after this many successive epochs without an improvement by `tol`; only used with
        `tol` or `early_stopping`.
    tol : float, optional
        The smallest improvement: of the score of the held-out samples or, without `early_stopping`,
        of `loss_`. The default is 1e-3 with `early_stopping`; otherwise all epochs are made.
    shuffle : bool, default=True
        Whether `fit` shuffles the samples before each epoch.
    random_state : int, RandomState or None, default=0
    warm_start : bool, default=False
        Whether `fit` continues from the state of the last fit, with its sums and averages, instead
        of 0. Features and classes must be the same.
    verbose : bool, default=False
        Whether `fit` shows a progress bar with the loss; needs tqdm.
    callback : callable, optional
        Called after each epoch of `fit` with a dict: the number of the epoch ("iteration"), the
        number of samples seen so far ("samples"), `loss_` ("loss") and, with `early_stopping`, the
        score of the held-out samples ("score"). If it returns True, the fit ends.

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
    coef_ : ndarray of float64, shape (1, n_features) or (n_classes, n_features)
        Without `average`, a view of the state, which `partial_fit` changes in place.
    intercept_ : ndarray of float64, shape (1,) or (n_classes,)
    n_iter_ : int
        The number of epochs of `fit`, or of calls of `partial_fit`.
    t_ : int
        The number of samples seen.
    loss_ : float
        The weighted mean loss of the samples of the last epoch of `fit` or call of `partial_fit`,
        summed over the scores. Each sample was predicted before its batch was learned, without
        averages.
    progressive_loss_ : float
        The same for all samples seen. If each came once, it estimates the loss on new samples
        (progressive validation).

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

    _LOSSES = {name: phi for name, phi in classification_losses().items() if not phi.is_joint}
    _PARAMETERS = {"gamma": 1.0}

    classes_: np.ndarray

    def __init__(
        self,
        loss: BinaryLoss = "logistic",
        *,
        learning_rate: float = 0.5,
        beta: float = 0.0,
        initial_accumulator: float = 0.1,
        l1: float = 0.0,
        l2: float = 0.0,
        gamma: float = 1.0,
        batch_size: int = 32,
        max_iter: int = 10,
        n_hashes: int | None = None,
        fit_intercept: bool = True,
        class_weight: Any = None,
        average: bool | int = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        tol: float | None = None,
        shuffle: bool = True,
        random_state: Any = 0,
        warm_start: bool = False,
        verbose: bool = False,
        callback: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        keep_parameters(self, locals())

    def _encoded(
        self, y: np.ndarray, weights: np.ndarray, in_fit: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return targets, 1 for the score of a sample's class and else -1, and the sample weights.

        The weights are multiplied by the factors of the classes.
        """
        is_of_class = y[:, None] == self.classes_
        if np.count_nonzero(is_of_class) < y.size:
            unknown = np.setdiff1d(y, self.classes_)
            raise ValueError(f"y has labels that are not in classes: {unknown[:5].tolist()}")
        if self.class_weight is not None:
            # a piece of a stream may have only samples whose factor is 0
            codes, n_classes = is_of_class.argmax(axis=1), self.classes_.size
            sums = np.bincount(codes, weights, n_classes) if in_fit else np.ones(n_classes)
            factors = class_factors(self.class_weight, self.classes_, sums)
            weights = weights if factors is None else weights * factors[codes]
        targets: np.ndarray = np.where(is_of_class, 1.0, -1.0)
        return targets[:, 1:].copy() if self.classes_.size == 2 else targets, weights

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None
    ) -> FTRLClassifier:
        """Fit the model in several epochs, from scratch or, with `warm_start`, from the last fit.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features), or dicts
        y : array, shape (n_samples,)
        sample_weight : array, shape (n_samples,), optional
        offset : array, shape (n_samples,), or float, optional
            A known number that is added to x . w + b of each sample; for two classes, the logarithm
            of its odds. Pass it to `predict`, too.
        """
        with self._all_or_nothing():
            self._check_options()
            X, y = self._validate_features(X, reset=True, y=y)
            check_classification_targets(y)
            given = check_weights(sample_weight, X)
            last = "last fit: set warm_start=False" if self._is_warm else None
            self._set_classes(np.unique(y), last)
            self._start_fit(self._n_scores, X.shape[1])
            encoded = self._encoded(y, given, in_fit=True)
            self._learn_epochs(X, y, *encoded, given, self._checked_offset(offset, X))
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, offset: Any = None
    ) -> FTRLClassifier:
        """Learn from more samples, in their order.

        If weights overflow, the batches before have been learned, and the error has their number of
        samples. An error in the first call leaves the estimator unfitted.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features), or dicts
        y : array, shape (n_samples,)
        classes : array, shape (n_classes,)
            All classes; required in the first call.
        sample_weight : array, shape (n_samples,), optional
        offset : array, shape (n_samples,), or float, optional
            A known number that is added to x . w + b of each sample; for two classes, the logarithm
            of its odds. Pass it to `predict`, too.
        """
        with self._all_or_nothing():
            first = "_state" not in vars(self)
            self._check_stream()
            if isinstance(self.class_weight, str):
                raise ValueError(
                    f"class_weight={self.class_weight!r} needs all samples, and so fit: give "
                    "partial_fit a dict, as of sklearn.utils.class_weight.compute_class_weight"
                )
            X, y = self._validate_features(X, reset=first, y=y)
            weights = check_weights(sample_weight, X)
            if first:
                check_classification_targets(y)
                if classes is None:
                    raise ValueError("the first call of partial_fit needs classes")
            if classes is not None:
                self._set_classes(np.unique(classes), None if first else "first call")
            if first:
                self._reset(self._n_scores, X.shape[1])
            targets, weights = self._encoded(y, weights, in_fit=False)
            known, order = self._checked_offset(offset, X), np.arange(X.shape[0])
            self._learn(entries_of(X), targets, weights, order, known, keeps=not first)
        return self

    def _checked_offset(self, offset: Any, X: Any) -> np.ndarray | None:
        if offset is not None and self._n_scores > 1:
            raise InvalidArgumentError(
                f"an offset needs two classes, but there are {self._n_scores}"
            )
        return check_offset(offset, X)

    @property
    def _n_scores(self) -> int:
        return 1 if self.classes_.size == 2 else int(self.classes_.size)

    def _set_classes(self, classes: np.ndarray, last: str | None) -> None:
        """Set the classes, or check that they equal those of the last call, whose name is given."""
        if last is not None and not np.array_equal(self.classes_, classes):
            raise ValueError(
                f"the classes are {classes.tolist()}, but were {self.classes_.tolist()} in the "
                f"{last}"
            )
        if classes.size < 2:
            raise ValueError(f"at least 2 classes are needed, got one class: {classes.tolist()}")
        self.classes_ = classes


class FTRLRegressor(LinearRegressorMixin, FTRLEstimator):
    """Online regression of the mean, of counts or of a quantile by FTRL-Proximal.

    Parameters
    ----------
    loss : str, default="squared"
        A loss of `LinearRegressor`; "poisson" is e^z - y z, where z = x . w + b.
    learning_rate, beta, initial_accumulator, l1, l2, batch_size, max_iter
        See `FTRLClassifier`; the default learning rate suits targets of about size 1.
    epsilon, quantile, power
        The parameters of a loss: see `LinearRegressor`.
    n_hashes, fit_intercept, average, early_stopping, validation_fraction, n_iter_no_change, tol
        See `FTRLClassifier`.
    shuffle, random_state, warm_start, verbose, callback
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

    _LOSSES = regression_losses()
    _PARAMETERS = {"epsilon": None, "quantile": 0.5, "power": 1.5}

    def __init__(
        self,
        loss: RegressorLoss = "squared",
        *,
        learning_rate: float = 0.5,
        beta: float = 0.0,
        initial_accumulator: float = 0.1,
        l1: float = 0.0,
        l2: float = 0.0,
        epsilon: float | None = None,
        quantile: float = 0.5,
        power: float = 1.5,
        batch_size: int = 32,
        max_iter: int = 10,
        n_hashes: int | None = None,
        fit_intercept: bool = True,
        average: bool | int = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        tol: float | None = None,
        shuffle: bool = True,
        random_state: Any = 0,
        warm_start: bool = False,
        verbose: bool = False,
        callback: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        keep_parameters(self, locals())

    def _checked(self, X: Any, y: Any, reset: bool) -> tuple[Any, np.ndarray]:
        X, y = self._validate_features(X, reset=reset, y=y, y_numeric=True)
        if self._phi.is_outside(y).any():
            raise ValueError(f"loss={self.loss!r} needs {self._phi.domain} targets")
        return X, y.astype(np.float64)

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None
    ) -> FTRLRegressor:
        """Fit the model in several epochs, from scratch or, with `warm_start`, from the last fit.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features), or dicts
        y : array, shape (n_samples,)
        sample_weight : array, shape (n_samples,), optional
        offset : array, shape (n_samples,), or float, optional
            A known number that is added to x . w + b of each sample; for counts, the logarithm of
            the exposure. Pass it to `predict`, too.
        """
        with self._all_or_nothing():
            self._check_options()
            X, y = self._checked(X, y, reset=True)
            weights = check_weights(sample_weight, X)
            self._start_fit(1, X.shape[1])
            self._learn_epochs(X, y, y[:, None], weights, weights, check_offset(offset, X))
        return self

    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None
    ) -> FTRLRegressor:
        """Learn from more samples, in their order.

        See `FTRLClassifier.partial_fit`.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features), or dicts
        y : array, shape (n_samples,)
        sample_weight : array, shape (n_samples,), optional
        offset : array, shape (n_samples,), or float, optional
            A known number that is added to x . w + b of each sample; for counts, the logarithm of
            the exposure. Pass it to `predict`, too.
        """
        with self._all_or_nothing():
            first = "_state" not in vars(self)
            self._check_stream()
            X, y = self._checked(X, y, reset=first)
            weights = check_weights(sample_weight, X)
            if first:
                self._reset(1, X.shape[1])
            known, order = check_offset(offset, X), np.arange(X.shape[0])
            self._learn(entries_of(X), y[:, None], weights, order, known, keeps=not first)
        return self

    def _shaped(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        coef, intercept = super()._shaped(weights)
        return coef[0], intercept
