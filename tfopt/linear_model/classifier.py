"""Classification by dual coordinate ascent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model.base import SDCAEstimator
from tfopt.linear_model.block_fit import Labels
from tfopt.linear_model.checks import check_total, check_weights
from tfopt.linear_model.predictions import LinearClassifier

__all__ = ["SDCAClassifier"]


class SDCAClassifier(LinearClassifier, SDCAEstimator):
    r"""Logistic regression and support vector machines, with a certificate.

    Two classes have one vector of weights. Of more, each has its own, which separates it from the
    rest (one-versus-rest): there is no multinomial loss, and `predict_proba` has each class's own
    probability, scaled to a sum of 1.

    Minimizes, over w and b,

    .. math:: \sum_i c_i\, \phi(y_i (x_i \cdot w + b)) + l_1 |w|_1 + \frac{l_2}{2} |w|_2^2

    by stochastic dual coordinate ascent [1]_ [2]_, or by Newton's method from there if the loss is
    smooth, l1 is 0 and that is faster. The minimum is no more than `dual_gap_` below
    `objective_`: that is proved by the dual variables in `dual_coef_`, not estimated.

    Parameters
    ----------
    loss : {"logistic", "hinge", "smooth_hinge"}, default="logistic"
    l1 : float, default=0.0
        Penalty on the scale of the *sum* of losses, as in TensorFlow. The smaller l2 is beside it,
        the more epochs a fit takes.
    l2 : float, optional
        Above 0, on the same scale: ``l2=1``, which is the default, is scikit-learn's ``C=1``.
    C : float, optional
        1 / l2, instead of it.
    gamma : float, default=1.0
        The width of the parabola that rounds a smooth hinge.
    fit_intercept : bool, default=True
        Whether to have a b, which is not penalized.
    class_weight : dict or "balanced", optional
        What the weights of a class's samples are multiplied by. "balanced" makes the sums of all
        classes' weights equal.
    adaptive : bool, default=False
        Visit samples in proportion to how far they are from their optimum [3]_.
    num_loss_partitions : int or sequence of int, optional
        Parts of the samples that are visited side by side. By default it follows from the size of
        the data; it never depends on the number of threads, for the result depends on it. A
        sequence has the number of rows of each part: the first rows are the first part, and so on,
        and they stay there; Newton's method has no part in it. The same blocks on a cluster give
        the same bits: see `tfopt.dask`.
    max_iter : int, default=1000
        Epochs and Newton steps.
    tol : float, optional
        The duality gap to stop at, as a share of the objective. By default it is 1e-4, from where
        small data are solved further as long as that takes about a millisecond: by Newton's method,
        or if visits converge fast, to the last digits, so that the result depends neither on the
        order of the samples nor on whether one of weight 2 is there twice. (But not if
        `num_loss_partitions` is a sequence.)
    n_jobs : int, optional
        Threads, in scikit-learn's way: None is 1, unless in a `joblib.parallel_config`, and -1 is
        all. There are never more than ``tfopt.threads.get_num_threads()``. The result is the same
        for any.
    random_state : int, RandomState or None, default=0
        Orders the visits.
    warm_start : bool, default=False
        Start from the dual variables of the last fit, which must have been to as many samples,
        features and classes: to the same samples in the same order, or little is won.
    verbose : bool, default=False
        Show a bar; needs tqdm.
    callback : callable, optional
        Called after each iteration with its record, as in `history_`: never twice at a time, but
        the iterations of several classes come in any order. If it returns True, the fit ends: each
        class at its next certificate, which is at the latest after one more iteration.

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
    coef_ : ndarray of float64, shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of float64, shape (1,) or (n_classes,)
    dual_coef_ : ndarray of float64, shape (1, n_samples) or (n_classes, n_samples)
        The dual variables, y times a number of [0, 1]; their weighted sum is 0 if there is an
        intercept.
    objective_, dual_gap_ : ndarray of float64, shape (1,) or (n_classes,)
        The minimum is between ``objective_ - dual_gap_`` and ``objective_``.
    n_iter_ : ndarray of int, shape (1,) or (n_classes,)
    history_ : list of list of dict
        Of each problem's iterations the problem's number (which is that of the row in `coef_`), the
        iteration's, the seconds since the start, the objective (NaN where it was not computed), the
        relative gap (an estimate where it is not certified) and whether it is.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        If X had names.

    Raises
    ------
    ValueError
        For an option out of its range, data that are not finite or do not fit, negative weights,
        or fewer than two classes with weight.
    NotFiniteError
        If numbers overflow, so that there is no finite result. It is a ValueError, too.
        Whatever `fit` raises, the last fit remains as it was.

    References
    ----------
    .. [1] Shalev-Shwartz, Zhang: Stochastic dual coordinate ascent methods for regularized loss
       minimization, 2013.
    .. [2] Ioannou, Mendler-Duenner, Parnell: SySCD: a system-aware parallel coordinate descent
       algorithm, 2019.
    .. [3] Csiba, Qu, Richtarik: Stochastic dual coordinate ascent with adaptive probabilities,
       2015.

    Examples
    --------
    >>> from tfopt.linear_model import SDCAClassifier
    >>> model = SDCAClassifier().fit([[0.0], [1.0], [2.0], [3.0]], ["no", "no", "yes", "yes"])
    >>> model.predict([[0.5], [2.5]])
    array(['no', 'yes'], dtype='<U3')
    >>> bool(model.dual_gap_[0] <= 1e-4 * model.objective_[0])
    True
    """

    _LOSSES = {
        "logistic": "logistic_loss",
        "hinge": "hinge_loss",
        "smooth_hinge": "smooth_hinge_loss",
    }

    def __init__(
        self,
        loss: str = "logistic",
        *,
        l1: float = 0.0,
        l2: float | None = None,
        C: float | None = None,
        gamma: float = 1.0,
        fit_intercept: bool = True,
        class_weight: Any = None,
        adaptive: bool = False,
        num_loss_partitions: int | Sequence[int] | None = None,
        max_iter: int = 1000,
        tol: float | None = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
        warm_start: bool = False,
        verbose: bool = False,
        callback: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        self.loss = loss
        self.l1 = l1
        self.l2 = l2
        self.C = C
        self.gamma = gamma
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.adaptive = adaptive
        self.num_loss_partitions = num_loss_partitions
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.callback = callback

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SDCAClassifier:
        """Find the weights.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
            float64 and float32, C-ordered or CSR, are read where they are; others are converted.
        y : array, shape (n_samples,)
        sample_weight : array, shape (n_samples,), optional
            Non-negative.

        Returns
        -------
        SDCAClassifier
        """
        with self._all_or_nothing():
            X, y = self._validate(X, y)
            check_classification_targets(y)
            weights = check_weights(sample_weight, X)
            if self._has_blocks:
                self._solve_blocks(X, y, weights)
                return self
            self.classes_ = np.unique(y)
            codes = np.searchsorted(self.classes_, y)  # return_inverse would sort
            of_classes = self._weights_of_classes(
                np.bincount(codes, weights, minlength=self.classes_.size)
            )
            if of_classes is not None:
                weights *= of_classes[codes]
            self._check_present(np.unique(codes[weights > 0]))
            targets = [np.where(codes == k, 1.0, -1.0) for k in self._positive]
            self._solve(X, targets, weights)
        return self

    def _weights_of_classes(self, sums: np.ndarray) -> np.ndarray | None:
        """Return what the weights of each class's samples are multiplied by, given their sums."""
        if self.class_weight is None:
            return None
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            present = sums > 0
            each = np.zeros(sums.size)
            each[present] = sums.sum() / (sums.size * sums[present])
            return each
        each = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_)
        with np.errstate(over="ignore", invalid="ignore"):
            total = float(np.sum(each * sums))
        if not (each >= 0).all() or not np.isfinite(each).all():
            raise InvalidArgumentError(
                "class_weight must have finite numbers of at least 0, not "
                f"{dict(zip(self.classes_.tolist(), each.tolist(), strict=True))}"
            )
        check_total(total)
        return np.asarray(each)

    def _check_present(self, present: np.ndarray) -> None:
        """Refuse a problem that has no minimum, given the numbers of the classes with weight."""
        if present.size < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of at least 2 classes with weight, got "
                f"one class: {self.classes_[present].tolist()}"
            )
        if present.size < self.classes_.size and self.fit_intercept:
            missing = np.setdiff1d(np.arange(self.classes_.size), present)
            raise ValueError(
                f"no sample of the class {self.classes_[missing[0]]!r} has weight: its best "
                "intercept would be minus infinity"
            )

    @property
    def _positive(self) -> tuple[int, ...]:
        """Of each problem, the number of the class that is separated from the rest."""
        return (1,) if self.classes_.size == 2 else tuple(range(self.classes_.size))

    _is_of_classes = True

    def _labels(self, found: dict[str, Any]) -> Labels:
        counts = found["counts"]
        self.classes_ = counts.classes
        weights = counts.sums[:, 1]
        check_total(float(weights.sum()))
        of_classes = self._weights_of_classes(weights)
        if of_classes is not None:
            weights = weights * of_classes
        self._check_present(np.flatnonzero(weights > 0))
        sides = [(weights[k], np.delete(weights, k).sum()) for k in self._positive]
        biases = tuple(self._log_odds(*pair) for pair in sides)
        return Labels(self.classes_, of_classes, self._positive, biases)

    def _bias_of(self, y: np.ndarray, weights: np.ndarray) -> float:
        return self._log_odds(weights[y > 0].sum(), weights[y < 0].sum())

    def _log_odds(self, positive: float, negative: float) -> float:
        if not self.fit_intercept or self.loss != "logistic":
            return 0.0
        return float(np.log(positive / negative))
