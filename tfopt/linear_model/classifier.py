"""Classification by stochastic dual coordinate ascent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model._blocks.fit import TargetEncoding
from tfopt.linear_model._fit.fit import FitResult
from tfopt.linear_model._fit.multinomial import (
    Multinomial,
    MultinomialSteps,
    solve_multinomial,
)
from tfopt.linear_model._fit.multinomial_descent import MultinomialDescent
from tfopt.linear_model._fit.problem import Samples
from tfopt.linear_model.block_fits import fit_partitions
from tfopt.linear_model.estimator import SDCAEstimator
from tfopt.linear_model.literals import ClassifierLoss, Solver
from tfopt.linear_model.losses import classification_losses
from tfopt.linear_model.parameters import CG, CHOLESKY, DESCENT, SOLVERS
from tfopt.linear_model.predictions import LinearClassifierMixin
from tfopt.linear_model.signatures import keep_parameters
from tfopt.linear_model.validation import (
    check_offset,
    check_total,
    check_weights,
    class_factors,
    class_labels,
)

__all__ = ["LinearClassifier", "SDCAClassifier"]


class LinearClassifier(LinearClassifierMixin, SDCAEstimator):
    r"""Logistic regression and support vector machines with a certified duality gap.

    More than two classes are fitted one-versus-rest, each with its own weights, and `predict_proba`
    scales the classes' probabilities to a sum of 1. Only ``loss="multinomial"`` fits all classes as
    one problem, as scikit-learn's `LogisticRegression` does.

    Minimizes, over w and b,

    .. math:: \sum_i c_i\, \phi(y_i (x_i \cdot w + b)) + l_1 |w|_1 + \frac{l_2}{2} |w|_2^2

    by stochastic dual coordinate ascent [1]_ [2]_, or if that is faster, by Newton's method or, for
    the hinge loss, an interior-point method. The minimum is at most `dual_gap_` below `objective_`:
    the dual variables in `dual_coef_` prove it.

    Parameters
    ----------
    loss : {"logistic", "hinge", "smooth_hinge", "squared_hinge", "multinomial"}, default="logistic"
        "hinge" is max(0, 1 - y z), and "squared_hinge" its square, as in liblinear's ``-s 2``.
        "multinomial" is the cross-entropy of the softmax of all classes' scores, minimized by
        Newton's method, with l1 by coordinate descent; for two classes it is "logistic".
    l1 : float, default=0.0
        Penalty on the scale of the *sum* of losses, as in TensorFlow. The smaller the ratio of l2
        to l1, the more epochs a fit takes.
    l2 : float, optional
        Penalty on the same scale, by default 1; a larger one is stronger. l2 = 0 requires l1 above
        0, and for the hinge loss at most 5000 features. Without any penalty, it requires the
        logistic loss, at most 5000 features, which must be linearly independent, and classes that
        no hyperplane separates.
    C : float, optional
        1 / l2, as an alternative to l2: a larger one is a weaker penalty, as in scikit-learn's
        ``LogisticRegression(C)``.
    penalty_factor : sequence of float, optional
        A factor of l1 and l2 for each feature, as in glmnet's ``penalty.factor`` (but not
        rescaled). A factor of 0 leaves a weight unpenalized. With l1 = 0 and no factor of 0, every
        loss and solver accepts factors, with a scaled copy of X. Otherwise they need coordinate
        descent with a smooth loss, or the interior-point method with the hinge loss. Not for fixed
        blocks.
    positive : bool, default=False
        Whether weights must be nonnegative, as in scikit-learn's ``Lasso(positive=True)``. It
        applies to all losses except "multinomial", with the same solvers as `penalty_factor`; l1
        and l2 may both be 0.
    gamma : float, default=1.0
        The width of the quadratic part of the smooth hinge; other losses do not use it.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not penalized.
    class_weight : dict or "balanced", optional
        Factors of the sample weights of each class. "balanced" makes the total weights of all
        classes equal.
    solver : {"auto", "sdca", "newton-cholesky", "newton-cg", "cd", "interior-point"}
        "sdca" uses dual coordinate ascent only. Newton's method, with its linear systems solved by
        Cholesky factorization or by conjugate gradients, needs l1 = 0; coordinate descent ("cd")
        takes any l1. Neither takes the hinge loss: use "interior-point" for it. "auto", the
        default, uses the solver that is expected to reach `tol` with the least work; if that is
        uncertain, it first runs a few epochs of dual coordinate ascent and then decides. `history_`
        has the reasons. Fixed blocks need "auto".
    adaptive : bool, default=False
        Sample with probabilities proportional to the dual residuals [3]_.
    num_loss_partitions : int or sequence of int, optional
        The number of partitions of the samples that are visited in parallel. The result depends on
        it, so the default depends on the size of the data, never on the number of threads. A
        sequence gives the sizes of fixed blocks of consecutive rows instead. The same blocks on a
        cluster give the same bits; see `tfopt.dask`.
    max_iter : int, default=1000
        The largest number of epochs and steps.
    max_time : float, optional
        The largest time of the solver, in seconds. After that, a fit ends with the next
        certificate, at most one iteration later, and with a warning if the gap is above tol.
    tol : float, optional
        The duality gap to stop at, relative to the objective. The default is 1e-4; then small
        problems are solved further, to the last digits, if that takes about a millisecond. Their
        results do not depend on the order of the samples, and a sample of weight 2 counts as two
        equal samples. (This does not apply if `num_loss_partitions` is a sequence.)
    n_jobs : int, optional
        The number of threads, as in scikit-learn: None means 1 unless `joblib.parallel_config` sets
        another number, and -1 means all. ``tfopt.threads.get_num_threads()`` is an upper limit. The
        result does not depend on it.
    random_state : int, RandomState or None, default=0
        The seed of the order of visits.
    warm_start : bool, default=False
        Start from the last fit, which must have had the same numbers of features and classes:
        Newton's method starts from its weights, coordinate ascent from its dual variables. The
        penalties may differ. For other samples, or with ``keep_duals=False``, the dual variables
        are computed from the weights; the hinge loss and fixed blocks need the same samples in the
        same order.
    keep_duals : bool, default=True
        Whether to keep `dual_coef_`, which has a number for each sample and class.
    verbose : bool, default=False
        Show a progress bar, and the reason why each solver begins or takes over; needs tqdm.
    callback : callable, optional
        Called after each iteration with its record, as in `history_`. Calls do not overlap, but
        those of several classes are interleaved. If it returns True, the fit ends: each class stops
        at its next certificate, after at most one more iteration.

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
        The classes of the samples with positive weight; other samples are ignored.
    coef_ : ndarray of float64, shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of float64, shape (1,) or (n_classes,)
    dual_coef_ : ndarray of float64, shape (1, n_samples) or (n_classes, n_samples)
        The dual variables: y times a number in [0, 1], or at least 0 for the squared hinge. With an
        intercept their weighted sum is 0. For the multinomial loss, they are 1 for the class of the
        sample and 0 for others, minus a probability. Absent with ``keep_duals=False``.
    objective_, dual_gap_ : ndarray of float64, shape (1,) or (n_classes,)
        The minimum is between ``objective_ - dual_gap_`` and ``objective_``.
    n_iter_ : ndarray of int, shape (1,) or (n_classes,)
    history_ : list of list of dict
        For each problem and iteration: the number of the problem (its row in `coef_`) and of the
        iteration, the solver, the seconds since the start, the objective (NaN if it was not
        computed), the relative gap (an estimate unless certified), whether it is certified, and
        the reason why this solver takes the iteration.
    solver_ : list of str
        The solver of each problem's last iteration.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        The feature names, if X had some.

    Raises
    ------
    ValueError
        If an option is out of its range, data are not finite or their shapes do not match, weights
        are negative, or fewer than two classes have positive weight.
    NotFiniteError
        If numbers overflow, so that no result is finite. It is a ValueError, too.
        If `fit` raises, the last fit is unchanged.

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
    >>> from tfopt.linear_model import LinearClassifier
    >>> model = LinearClassifier().fit([[0.0], [1.0], [2.0], [3.0]], ["no", "no", "yes", "yes"])
    >>> model.predict([[0.5], [2.5]])
    array(['no', 'yes'], dtype='<U3')
    >>> bool(model.dual_gap_[0] <= 1e-4 * model.objective_[0])
    True
    """

    _LOSSES = classification_losses()
    _PARAMETERS = {"gamma": 1.0}

    def __init__(
        self,
        loss: ClassifierLoss = "logistic",
        *,
        l1: float = 0.0,
        l2: float | None = None,
        C: float | None = None,
        penalty_factor: Sequence[float] | None = None,
        positive: bool = False,
        gamma: float = 1.0,
        fit_intercept: bool = True,
        class_weight: Any = None,
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
    ) -> LinearClassifier:
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
            float64 and float32, C-ordered or CSR, are not copied; others are converted.
        y : array, shape (n_samples,)
        sample_weight : array, shape (n_samples,), optional
            Non-negative.
        offset : array, shape (n_samples,) or (n_samples, n_classes), or float, optional
            A known number that is added to x . w + b of each sample, the logarithm of its odds;
            with more than two classes, one for each class. Pass it to `predict`, too. It needs a
            smooth loss, samples in memory, and Newton's method or coordinate descent.

        Returns
        -------
        LinearClassifier
        """
        with self._all_or_nothing():
            X, y, weights = self._checked(X, y, sample_weight)
            if offset is not None:
                self._check_offset()
            elif self._has_blocks:
                fit_partitions(self, X, y, weights)
                return self
            samples = self._encoded(X, y, weights)
            known = check_offset(offset, X, samples.n_problems)
            samples.offset = None if known is None else known.reshape(len(known), -1)
            self._solve(samples)
        return self

    def _check_offset(self) -> None:
        """Refuse an offset with options of epochs or blocks, which do not support it."""
        solvers = ["auto", *(name for name, needs in SOLVERS.items() if needs.takes_offset)]
        if self._phi.is_likelihood and self.l1 == 0 and self._is_plain:
            solvers.append(CHOLESKY)
        if self._is_multinomial:
            solvers = ["auto", DESCENT, CG]
        reasons = {
            "a smooth loss": self._phi.is_smooth,
            f"solver={' or '.join(map(repr, solvers))}": self.solver in solvers,
            "num_loss_partitions=None and adaptive=False": self.num_loss_partitions is None
            and not self.adaptive,
        }
        missing = [what for what, holds in reasons.items() if not holds]
        if missing:
            raise InvalidArgumentError(f"an offset of a classifier needs {', '.join(missing)}")

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, np.ndarray, np.ndarray]:
        self._check_options()
        X, y = self._validate_features(X, reset=True, y=y, order="C")
        self.classes_ = class_labels(y)
        return X, y, check_weights(sample_weight, X)

    def _encoded(self, X: Any, y: np.ndarray, weights: np.ndarray) -> Samples:
        """Return the samples for the solvers, with labels of each class against the rest."""
        n_classes = self.classes_.size
        if n_classes == 2:
            codes = (y == self.classes_[1]).astype(np.intp)
        else:
            codes = np.searchsorted(self.classes_, y)  # return_inverse would sort
        sums = np.bincount(codes, weights, minlength=n_classes)
        class_weights = class_factors(self.class_weight, self.classes_, sums)
        if class_weights is not None:
            weights = weights * class_weights[codes]
            sums = np.bincount(codes, weights, minlength=n_classes)
        positive = self._positive_classes(sums)

        def target(k: int) -> np.ndarray:
            return np.where(codes == positive[k], 1.0, -1.0)

        return self._samples(X, target, len(positive), weights)

    @property
    def _is_multinomial(self) -> bool:
        """Whether all classes are one problem."""
        return self._phi.is_joint and self.classes_.size > 2

    def _check_multinomial(self) -> None:
        """Refuse options that do not apply to the multinomial loss of more than two classes."""
        if not self._is_multinomial:
            return
        for name, value, good in (
            ("l2", self.l2, self.l2 != 0 or self.l1 > 0),
            ("solver", self.solver, self.solver == "auto" or SOLVERS[self.solver].is_joint),
            ("adaptive", self.adaptive, not self.adaptive),
            ("num_loss_partitions", self.num_loss_partitions, self.num_loss_partitions is None),
        ):
            if not good or self._in_blocks:
                where = "in blocks" if good else f"with {name}={value!r}"
                raise InvalidArgumentError(
                    "loss='multinomial' is solved by steps of all samples at once, and not "
                    f"{where}: set loss='logistic', which separates each class from the rest"
                )

    def _solved(self, samples: Samples) -> FitResult:
        if not self._is_multinomial:
            return super()._solved(samples)
        n, (n_samples, n_features) = samples.n_problems, samples.shape
        codes = np.zeros(n_samples, np.int64)
        for k in range(n):
            codes[samples.target(k) > 0] = k
        problem = Multinomial(
            *(samples.rows, codes, n, samples.weights, n_features),
            *(self._l2(), bool(self.fit_intercept), samples.n_threads),
            None if samples.offset is None else np.ascontiguousarray(samples.offset.T),
            float(self.l1),
        )
        last = self._last_fit(n_samples, n, n_features, samples.shift, samples.scale)
        start = np.zeros((n, n_features + 1))
        if last is not None:
            start[:, :-1], start[:, -1] = last.w, last.bias if self.fit_intercept else 0.0
        with self._solver_options() as options:
            descends = problem.l1 > 0 or options.solver == DESCENT
            steps = (MultinomialDescent if descends else MultinomialSteps)(problem)
            result, duals = solve_multinomial(problem, start, options, steps)
        return FitResult([result], duals, samples.shift, (n_samples,), scale=samples.scale)

    def _set_attributes(self, fit: FitResult) -> None:
        plain = dataclasses.replace(fit, shift=None, scale=None)
        super()._set_attributes(plain if self._is_multinomial else fit)
        if self._is_multinomial:
            theta = fit.results[0].certificate.w
            self.coef_, self.intercept_ = theta[:, :-1].copy(), theta[:, -1].copy()
            if fit.shift is not None:
                self.intercept_ -= (self.coef_ * fit.shift).sum(axis=1)
                self.intercept_ -= self.intercept_.mean()
            if fit.scale is not None:
                self.coef_ *= fit.scale

    def _positive_classes(self, sums: np.ndarray) -> tuple[int, ...]:
        """Return the index of the class that each problem separates from the rest.

        `sums` are the total weights of the classes so far; classes without weight are left out.
        """
        present = np.flatnonzero(sums > 0)
        self.classes_ = self.classes_[present]
        if present.size < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of at least 2 classes with weight, got "
                f"one class: {self.classes_.tolist()}"
            )
        self._check_multinomial()
        return tuple(present[-1:] if present.size == 2 else present)

    _has_classes = True

    def _target_encoding(self, summary: dict[str, Any]) -> TargetEncoding:
        counts = summary["counts"]
        self.classes_ = counts.classes
        weights = counts.sums[:, 1]
        check_total(float(weights.sum()))
        class_weights = class_factors(self.class_weight, self.classes_, weights)
        if class_weights is not None:
            weights = weights * class_weights
        positive = self._positive_classes(weights)
        sides = [(weights[k], np.delete(weights, k).sum()) for k in positive]
        biases = tuple(self._log_odds(*pair) for pair in sides)
        return TargetEncoding(counts.classes, class_weights, positive, biases)

    def _constant_intercept(self, y: np.ndarray, weights: np.ndarray) -> float:
        if (weights == 1).all():
            n_positive = np.count_nonzero(y > 0)
            return self._log_odds(float(n_positive), float(len(y) - n_positive))
        return self._log_odds(weights[y > 0].sum(), weights[y < 0].sum())

    def _log_odds(self, positive: float, negative: float) -> float:
        if not self.fit_intercept or self._phi.link is None:
            return 0.0
        return float(np.log(positive / negative))


#: An earlier name, for old pickles.
SDCAClassifier = LinearClassifier
