"""The problem to minimize: samples, loss and penalties; initial points, and samples of rows."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from tfopt.kernels.arrays import csr
from tfopt.kernels.linear import second_order, visits
from tfopt.linear_model._fit.penalty import Penalties, scaled
from tfopt.linear_model.loss_record import PointwiseLoss
from tfopt.linear_model.validation import checked_sparse

if TYPE_CHECKING:
    from tfopt.linear_model._fit.coordinates import RowSpace

__all__ = [
    "InitialPoint",
    "NO_ROWS",
    "Problem",
    "Rows",
    "Samples",
    "LastFit",
    "as_rows",
    "centering_shift",
    "dual_point",
    "rows_at",
    "sample_rows",
    "sampled",
]

#: Features as the kernels take them: data, indices, indptr, dense.
Rows: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
NO_ROWS: Rows = np.zeros(0), np.zeros(0, np.int32), np.zeros(1, np.int32), np.zeros((0, 0))


def as_rows(X: Any) -> Rows:
    """Return an array or a CSR matrix as data, indices, indptr and a dense block, without copies.

    Matrices with duplicate entries, or with index arrays of two dtypes, are copied nevertheless.
    """
    if not sparse.issparse(X):
        return np.zeros(0, X.dtype), np.zeros(0, np.int32), np.zeros(len(X) + 1, np.int32), X
    # arrays from a message may be misaligned
    indices, indptr = (np.require(part, requirements="A") for part in (X.indices, X.indptr))
    if not csr.ascends(indices, indptr.astype(np.int64)):
        X = checked_sparse(X, own=True).copy()
        X.sum_duplicates()
        indices, indptr = X.indices, X.indptr
    if indices.dtype != indptr.dtype or indices.dtype not in (np.int32, np.int64):
        indices, indptr = indices.astype(np.int64), indptr.astype(np.int64)
    return X.data, indices, indptr, np.zeros((X.shape[0], 0), X.dtype)


class Problem(NamedTuple):
    """The primal objective: sum of weight * phi(x . w + b; y) + l1 * |w|_1 + l2 / 2 * |w|**2.

    Labels and sample weights are passed to its methods, so that several classes can share the rows.
    Losses phi are shifted to a minimum of 0: the Poisson loss is half the deviance.

    Attributes
    ----------
    rows : tuple of ndarray
        The features, as the kernels take them: data, indices, indptr, dense.
    n_weights : int
    phi : PointwiseLoss
        The loss as functions of arrays, and its properties that solvers need.
    l1, l2 : float
    intercept : bool
        Whether there is an intercept b, which is not penalized; otherwise b = 0.
    threads : int
        The largest number of threads; 0: the number of `tfopt.threads`.
    has_offset : bool
        Whether a number is added to x . w + b of each example; the states of rows have the numbers.
    factor : ndarray, shape (n_weights,), or None
        The factors of l1 and l2 for each weight; None: all 1.
    positive : bool
        Whether weights must be nonnegative. Only solvers that take each weight's penalty support
        `factor` and `positive`.
    """

    rows: Rows
    n_weights: int
    phi: PointwiseLoss
    l1: float
    l2: float
    intercept: bool
    threads: int
    has_offset: bool = False
    factor: np.ndarray | None = None
    positive: bool = False

    @property
    def loss(self) -> tuple[str, float]:
        """The loss as the kernels take it: their name for it, and its parameter."""
        return self.phi.kernel, self.phi.parameter

    @property
    def n_features(self) -> int:
        """The number of stored values, over all examples."""
        return int(self.rows[0].size + self.rows[3].size)

    @property
    def has_few_rows(self) -> bool:
        """Whether there are fewer dense rows than features."""
        n, m = self.rows[3].shape
        return bool(0 < n < m)

    @property
    def is_penalized(self) -> bool:
        return self.l1 > 0 or self.l2 > 0

    @property
    def is_plain(self) -> bool:
        """Whether all weights have the same penalty, on both sides of 0."""
        return self.factor is None and not self.positive

    @property
    def penalties(self) -> Penalties:
        """The penalty of each weight."""
        return Penalties.of(self.n_weights, self.l1, self.l2, self.factor, self.positive)

    @property
    def shrink(self) -> float:
        return self.l1 / self.l2

    def shrunk(self, v: np.ndarray) -> np.ndarray:
        """Return the soft-thresholded v: sign(v) * max(|v| - shrink, 0), the primal weights."""
        inside = np.clip(v, -self.shrink, self.shrink) if self.l1 else -0.0  # so that no w is -0
        w: np.ndarray = v - inside
        return w

    def weights_of(self, examples: np.ndarray) -> np.ndarray:
        """Return the unshrunk weights v = sum of weight * a * x / l2 of the dual variables a."""
        v = np.zeros(self.n_weights)
        visits.weights_of(*self.rows, examples, v, self.l2)
        return v

    def predictions(self, w: np.ndarray) -> np.ndarray:
        """Return x . w for each example."""
        return visits.predictions(*self.rows, w, 0.0, self.threads)

    def gaps(
        self, examples: np.ndarray, a: np.ndarray, wx: np.ndarray, bias: float
    ) -> tuple[float, float]:
        """Return the sum of the losses, and the sum of their Fenchel-Young gaps to duals a."""
        return second_order.gaps(examples, a, wx, bias, *self.loss, self.threads)

    def derivatives(
        self, examples: np.ndarray, wx: np.ndarray, bias: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the weighted phi' and phi'' of each example."""
        return second_order.derivatives(examples, wx, bias, *self.loss, self.threads)

    def penalized(self, hessian: np.ndarray) -> np.ndarray:
        """Return the Hessian of losses and l2; without an intercept its row is that of I."""
        H = hessian.copy()
        np.einsum("ii->i", H)[: self.n_weights] += self.l2
        if not self.intercept:
            H[-1] = H[:, -1] = 0
            H[-1, -1] = 1
        return H

    def penalty(self, w: np.ndarray) -> float:
        """Return l1 * |w|_1 + l2 / 2 * |w|**2, or the sum of each weight's."""
        if not self.is_plain:
            return self.penalties.value(w)
        l1 = self.l1 * np.add.reduce(np.abs(w)) if self.l1 > 0 else 0.0
        l2 = self.l2 / 2 * np.add.reduce(np.square(w)) if self.l2 > 0 else 0.0
        return float(l1 + l2)


class InitialPoint(NamedTuple):
    """Labels and weights of a problem, and its initial dual variables and intercept.

    Attributes
    ----------
    y, weight : ndarray, shape (n_examples,)
    curvature : callable
        Returns |x|**2 / l2 of each example; only visits need it.
    a : ndarray, shape (n_examples,)
        The dual variables.
    bias : float
        An estimate of the intercept.
    w : ndarray, shape (n_weights,), optional
        The weights of an earlier solution that is assumed to be near.
    offset : ndarray, shape (n_examples,), optional
        The numbers added to predictions.
    """

    y: np.ndarray
    weight: np.ndarray
    curvature: Callable[[], np.ndarray]
    a: np.ndarray
    bias: float
    w: np.ndarray | None = None
    offset: np.ndarray | None = None

    def examples(self) -> np.ndarray:
        """Return an array of EXAMPLE, without the curvature."""
        examples = np.zeros(len(self.y), visits.EXAMPLE)
        for name in ("a", "y", "weight"):
            examples[name] = getattr(self, name)
        return examples


class LastFit(NamedTuple):
    """An earlier fit that is assumed to be near, for features scaled and shifted as in `Samples`.

    Attributes
    ----------
    w : ndarray, shape (n_problems, n_features)
    bias : ndarray, shape (n_problems,)
    duals : ndarray, shape (n_problems, n_samples), or None
        The dual variables, if they are known and belong to the same samples.
    """

    w: np.ndarray
    bias: np.ndarray
    duals: np.ndarray | None


def dual_point(problem: Problem, initial: InitialPoint) -> np.ndarray:
    """Return the dual variables that belong to weights: the negative derivatives of the losses."""
    assert initial.w is not None
    examples = initial.examples()
    with np.errstate(over="ignore"):
        wx = problem.predictions(initial.w)
        wx = wx if initial.offset is None else wx + initial.offset
        slopes, _ = problem.derivatives(examples, wx, initial.bias)
    weight = initial.weight
    duals: np.ndarray = np.divide(-slopes, weight, out=np.zeros_like(weight), where=weight > 0)
    duals[~np.isfinite(duals)] = 0.0
    return duals


#: The largest rounding error of a Hessian that is not centered, as a share of the squared mean.
MEAN_ROUNDING = 1e-8


def centering_shift(
    moments: np.ndarray, n: int, is_factorized: Callable[[], bool]
) -> np.ndarray | None:
    """Return the feature means if dense features should be centered, else None.

    The moments are sums over n samples.

    With an unpenalized intercept, centering does not change the minimum, but coordinate ascent
    converges slowly if the means are large beside the standard deviations. CSR matrices are not
    centered, to keep them sparse. If Hessians with the intercept are factorized, or coordinate
    descent eliminates it, centering only reduces rounding errors: if enough digits remain without
    it, X is neither centered nor copied.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean, square = moments / n
        squared_mean = np.square(mean)
        variance = square - squared_mean
        if not squared_mean.sum() > variance.sum():
            return None
        keeps_digits = (MEAN_ROUNDING * squared_mean <= variance).all()
    return None if keeps_digits and is_factorized() else np.asarray(mean)


#: The golden ratio's share of 2**32: its multiples are spread evenly.
GOLDEN = 0x9E3779B1


def sample_rows(n_rows: int, size: int) -> np.ndarray:
    """Return the numbers of rows, one from each of `size` ranges.

    The position in a range varies, since data may be periodic.
    """
    k = np.arange(size)
    return k * (n_rows // size) + (k * GOLDEN % 2**32 * (n_rows // size) >> 32)


def sampled(
    problem: Problem, initial: InitialPoint, size: int
) -> tuple[Problem, InitialPoint] | None:
    """Return the problem for a sample of the rows.

    Returns
    -------
    tuple or None
        The problem, with penalties multiplied by the sample's share of the weight, and the initial
        point. None if all labels in the sample are equal.
    """
    at = sample_rows(len(initial.y), size)
    y, weight = initial.y[at], initial.weight[at]
    labels = y[weight > 0]
    if labels.size == 0 or labels.min() == labels.max():
        return None
    share = float(weight.sum() / initial.weight.sum())
    return problem._replace(rows=rows_at(problem, at), l2=share * problem.l2), initial._replace(
        y=y, weight=weight, curvature=lambda: initial.curvature()[at], a=initial.a[at]
    )


def rows_at(problem: Problem, at: np.ndarray) -> Rows:
    """Return some of the rows."""
    data, indices, indptr, dense = problem.rows
    if not data.size:
        return as_rows(dense[at])
    taken = csr.take(data, indices, indptr.astype(np.int64), at, problem.n_weights)
    return as_rows(sparse.csr_array(taken, (at.size, problem.n_weights)))


@dataclasses.dataclass
class Samples:
    """The samples as the solvers take them, for any penalties.

    Attributes
    ----------
    rows : tuple of ndarray
        The features, times `scale` and minus `shift`.
    shape : tuple of int
    shift : ndarray, shape (n_features,), or None
    target : callable
        Returns the labels of a problem, given its number. Labels are made when they are needed:
        those of many classes would take more memory than the rows.
    n_problems : int
    weights : ndarray, shape (n_samples,)
    intercept : callable
        Returns the intercept of the constant model, or a guess of it, given labels and weights.
    n_threads : int
        The largest number of threads.
    sum_of_squares : float or None
        The sum of the features' squares, if it is known already.
    offset : ndarray, shape (n_samples, n_problems), or None
        The numbers added to the scores, for a loss that cannot put them into its targets.
    row_space : RowSpace or None
        The coordinates of the rows for all penalties, once they have been needed.
    scale, factor : ndarray, shape (n_features,), or None
        The scale of features with which all weights have the same penalty; if there is none, the
        factor of each weight's penalty.
    """

    rows: Rows
    shape: tuple[int, int]
    shift: np.ndarray | None
    target: Callable[[int], np.ndarray]
    n_problems: int
    weights: np.ndarray
    intercept: Callable[[np.ndarray, np.ndarray], float]
    n_threads: int
    sum_of_squares: float | None = None
    offset: np.ndarray | None = None
    row_space: RowSpace | None = None
    scale: np.ndarray | None = None
    factor: np.ndarray | None = None

    def moved(self, X: Any) -> Any:
        """Return other features with the same scale and shift."""
        X = X if self.scale is None else scaled(X, self.scale)
        return X if self.shift is None else X - self.shift

    def initial_point(self, problem: Problem, last: LastFit | None, k: int) -> InitialPoint:
        """Return the initial point of a problem: at the weights 0, or at the last fit."""
        y, zeros = self.target(k), np.zeros(self.shape[0])
        offset = None if self.offset is None else self.offset[:, k]

        def curvature() -> np.ndarray:
            result: np.ndarray = self.squared_norms / problem.l2
            return result

        if last is None:
            bias = self.intercept(y, self.weights)
            return InitialPoint(y, self.weights, curvature, zeros, bias, None, offset)
        point = InitialPoint(y, self.weights, curvature, zeros, last.bias[k], last.w[k], offset)
        duals = last.duals[k] if last.duals is not None else dual_point(problem, point)
        return point._replace(a=problem.phi.clip_duals(duals, y))

    def workers_and_threads(self) -> tuple[int, int]:
        """Return the number of problems to solve at a time, and the number of threads for each."""
        workers = min(self.n_threads, self.n_problems)
        return workers, max(1, self.n_threads // workers)

    @functools.cached_property
    def squared_norms(self) -> np.ndarray:
        """The squared norms of the rows; only visits need them."""
        return visits.squared_norms(self.rows[0], self.rows[2], self.rows[3])

    @property
    def mean_square(self) -> float:
        """The mean of `squared_norms`."""
        if self.sum_of_squares is None:
            return float(self.squared_norms.mean())
        return self.sum_of_squares / self.shape[0]

    def squares_overflow(self, l2: float) -> bool:
        """Whether the squared norm of a row divided by l2 is infinite."""
        largest = min(l2, 1.0) * sys.float_info.max
        if self.sum_of_squares is not None and self.sum_of_squares <= largest:
            return False
        return not self.squared_norms.max(initial=0) <= largest
