"""Checks of options, features, labels and sample weights."""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from tfopt.errors import InvalidArgumentError, NotFiniteError
from tfopt.kernels.arrays import csr

__all__ = [
    "EachPenalty",
    "CheckedData",
    "check_count",
    "check_number",
    "check_offset",
    "check_total",
    "check_weights",
    "checked_sparse",
    "class_factors",
    "class_labels",
    "is_plain_matrix",
    "is_plain_vector",
    "without_offset",
]


def check_number(
    name: str, value: Any, low: float, *, open_end: bool = False, high: float = math.inf
) -> float:
    """Check that an option is a finite number of at least `low`, or above it, and below `high`."""
    is_number = type(value) in (float, int) or isinstance(value, numbers.Real)
    good = is_number and math.isfinite(value)
    if not good or value < low or (open_end and value == low) or value >= high:
        wanted = f"above {low:g}" if open_end else f"at least {low:g}"
        wanted += f" and below {high:g}" if high < math.inf else ""
        raise ValueError(f"{name} must be a finite number {wanted}, not {value!r}")
    return float(value)


def check_count(name: str, value: Any, low: int) -> int:
    """Check that an option is an integer of at least `low`."""
    if not (type(value) is int or isinstance(value, numbers.Integral)) or value < low:
        raise ValueError(f"{name} must be an integer of at least {low}, not {value!r}")
    return int(value)


def check_weights(sample_weight: Any, X: Any) -> np.ndarray:
    """Check sample weights, and return them as a new array."""
    if sample_weight is None:
        return np.ones(X.shape[0])
    if isinstance(sample_weight, numbers.Real):
        weights = np.full(X.shape[0], sample_weight, np.float64)
        check_array(weights, ensure_2d=False, input_name="sample_weight")
    else:
        weights = check_array(
            sample_weight, dtype=np.float64, ensure_2d=False, copy=True, input_name="sample_weight"
        )
        if weights.ndim != 1:
            raise ValueError(f"sample_weight must be one-dimensional, not {weights.ndim}")
        check_consistent_length(weights, X)
    if (weights < 0).any():
        raise ValueError("Negative values in data passed to `sample_weight`")
    with np.errstate(over="ignore"):
        check_total(float(weights.sum()))
    return weights


def check_offset(offset: Any, X: Any, n_scores: int = 1) -> np.ndarray | None:
    """Check an offset, a finite number for each sample and score; return None for None."""
    if offset is None:
        return None
    shape = (X.shape[0],) if n_scores == 1 else (X.shape[0], n_scores)
    if isinstance(offset, numbers.Real) and n_scores == 1:
        offset = np.full(X.shape[0], offset, np.float64)
    checked: np.ndarray = check_array(
        *(offset, False),
        dtype=np.float64,
        ensure_2d=False,
        ensure_min_samples=0,
        input_name="offset",
    )
    if checked.shape != shape:
        columns = f" and a column for each of {n_scores} classes" if n_scores > 1 else ""
        raise ValueError(
            f"offset must have a number for each of {X.shape[0]} samples{columns}, not the shape "
            f"{checked.shape}"
        )
    return checked


def without_offset(
    phi: Any, y: np.ndarray, weights: np.ndarray, offset: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray | float]:
    """Return targets and weights with the same minimum, and factors for the dual variables."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        targets, factor = phi.without_offset(y.T, offset)
        weights = weights * factor
    is_known = np.isfinite(targets).all() and np.isfinite(weights).all()
    if not is_known or phi.is_outside(targets).any() or (np.asarray(factor) == 0).any():
        raise NotFiniteError(
            "exp(offset) or y / exp(offset) is infinite, or 0 but for rounding: offset is the "
            "logarithm of an exposure; a number that all have in common is the intercept's"
        )
    return targets.T, weights, factor


def check_total(total: float) -> None:
    """Refuse sample weights that are all 0, or whose sum overflows."""
    if total == 0:
        raise ValueError("sample_weight must not be zero for all samples")
    if not math.isfinite(total):
        raise NotFiniteError("the sum of all samples' weights overflows: scale sample_weight")


def checked_sparse(X: Any, name: str = "X", own: bool = False) -> Any:
    """Refuse a sparse matrix with indices out of bounds before they are used.

    SciPy would read outside of arrays if another thread changed indices after their check. So a
    matrix that SciPy will convert, or any matrix if `own` is True, is returned with a private copy
    of its indices. Kernels check the indices that they read.
    """
    if not sparse.issparse(X) or X.format not in ("csr", "csc", "coo"):
        return X
    own = own or X.format != "csr"
    names = ("row", "col") if X.format == "coo" else ("indices", "indptr")
    # arrays from a message may be misaligned
    parts = [np.require(getattr(X, part), requirements="A") for part in names]
    if own:
        parts = [part.copy() for part in parts]
    if X.format == "coo":
        for part, stop, which in zip(parts, X.shape, names, strict=True):
            csr.check_indices(part, stop, f"{name}.{which}")
        return _kind_of(X)((X.data, tuple(parts)), X.shape)
    shape = X.shape if X.format == "csr" else X.shape[::-1]
    indices, indptr = parts
    csr.check_csr(X.data, indices, indptr, shape, name)
    if not own:
        return X
    return _kind_of(X)((X.data, indices, indptr), X.shape)


def _kind_of(X: Any) -> Any:
    """Return SciPy's class for the format of a matrix or an array."""
    arrays = {"csr": sparse.csr_array, "csc": sparse.csc_array, "coo": sparse.coo_array}
    matrices = {"csr": sparse.csr_matrix, "csc": sparse.csc_matrix, "coo": sparse.coo_matrix}
    return (arrays if isinstance(X, sparse.sparray) else matrices)[X.format]


def is_plain_matrix(X: Any) -> bool:
    """Return whether scikit-learn's validation would return X, with checked arrays, unchanged.

    That validation takes much longer than learning from a few samples. The answer is False for
    everything that it might convert, refuse or warn about.
    """
    if type(X) is np.ndarray:
        values = X
        is_ordered = X.flags.c_contiguous
    elif type(X) is sparse.csr_matrix or type(X) is sparse.csr_array:
        values = X.data
        is_ordered = True
    else:
        return False
    return (
        is_ordered
        and (X.dtype == np.float64 or X.dtype == np.float32)
        and X.ndim == 2
        and min(X.shape) > 0
        and _has_finite_sum(values)
    )


def is_plain_vector(y: Any, n_samples: int) -> bool:
    """Return whether scikit-learn's validation would return labels unchanged."""
    return (
        type(y) is np.ndarray
        and y.shape == (n_samples,)
        and (y.dtype.kind in "biuU" or (y.dtype.kind == "f" and _has_finite_sum(y)))
    )


def class_labels(y: np.ndarray) -> np.ndarray:
    """Return the distinct labels, ascending; refuse labels that are not classes.

    scikit-learn's check takes longer than many fits, so it is called only if it could refuse the
    labels or warn that there are many.
    """
    if y.dtype.kind not in "biufU":
        check_classification_targets(y)
        return np.unique(y)
    labels = _distinct(y)
    with np.errstate(invalid="ignore"):
        are_whole = y.dtype.kind != "f" or (labels == labels.astype(np.int64)).all()
    if not are_whole or 2 * labels.size > y.size:
        check_classification_targets(y)
    return labels


def _distinct(y: np.ndarray) -> np.ndarray:
    """Return the distinct labels, ascending; two classes are found without sorting."""
    if y.dtype.kind != "U" and y.size:
        low, high = y.min(), y.max()
        if ((y == low) | (y == high)).all():
            return np.array([low, high] if low < high else [low], y.dtype)
    return np.unique(y)


def _has_finite_sum(values: np.ndarray) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(values.sum())


def class_factors(class_weight: Any, classes: np.ndarray, sums: np.ndarray) -> np.ndarray | None:
    """Return the factors of the option `class_weight`, or None if there are none.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
    classes : ndarray, shape (n_classes,)
    sums : ndarray, shape (n_classes,)
        The total weight of each class.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str) and class_weight == "balanced":
        present = sums > 0
        each = np.zeros(sums.size)
        each[present] = sums.sum() / (present.sum() * sums[present])
        return each
    each = compute_class_weight(class_weight, classes=classes, y=classes)
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(np.sum(each * sums))
    if not (each >= 0).all() or not np.isfinite(each).all():
        raise InvalidArgumentError(
            "class_weight must have finite numbers of at least 0, not "
            f"{dict(zip(classes.tolist(), each.tolist(), strict=True))}"
        )
    check_total(total)
    return np.asarray(each)


class CheckedData:
    """A model that checks its features, and whose changes are all or nothing."""

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Restore all attributes after any exception, including an interrupt."""
        before = self.__dict__.copy()
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _validate_features(self, X: Any, reset: bool, **options: Any) -> Any:
        """Return X as an array or a CSR matrix, and y if the options have it."""
        X = checked_sparse(X)
        has_labels = "y" in options
        if is_plain_matrix(X) and (not has_labels or is_plain_vector(options["y"], X.shape[0])):
            if reset:
                self.n_features_in_ = X.shape[1]
                self.__dict__.pop("feature_names_in_", None)
            # coefficients that were set by hand have no number of features
            n_features = getattr(self, "n_features_in_", X.shape[1])
            if not hasattr(self, "feature_names_in_") and X.shape[1] == n_features:
                return (X, options["y"]) if has_labels else X
        return validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32], **options
        )


class EachPenalty:
    """An estimator whose weights may have separate penalties."""

    penalty_factor: Any = None
    positive: Any = False
    loss: Any
    l1: Any
    solver: Any
    adaptive: Any
    num_loss_partitions: Any
    _in_blocks: Any
    _l2: Any
    _phi: Any

    def _check_factor(self, solvers: list[str]) -> None:
        """Refuse factors out of range, and separate penalties for solvers without them."""
        if not isinstance(self.positive, (bool, np.bool_)):
            raise InvalidArgumentError(f"positive must be True or False, not {self.positive!r}")
        factor = self._factors
        if factor is not None:
            if factor.ndim != 1 or not (np.isfinite(factor).all() and (factor >= 0).all()):
                raise InvalidArgumentError(
                    "penalty_factor must have a finite number for each feature, none below 0, and "
                    f"not be {self.penalty_factor!r}"
                )
            if self.l1 == self._l2() == 0:
                raise InvalidArgumentError(
                    "penalty_factor multiplies l1 and l2, which are both 0: set one above 0"
                )
        if factor is None and not self.positive:
            return
        if self._in_blocks:
            raise InvalidArgumentError(
                "penalty_factor and positive do not apply to fits in blocks: set "
                "num_loss_partitions to a number or None"
            )
        if self._is_plain:
            return
        able = ["auto", *solvers]
        reasons = {
            f"one problem for each class, not loss={self.loss!r}": not self._phi.is_joint,
            f"solver={' or '.join(map(repr, able))}": self.solver in able,
            "num_loss_partitions=None and adaptive=False": self.num_loss_partitions is None
            and not self.adaptive,
        }
        if missing := [what for what, holds in reasons.items() if not holds]:
            raise InvalidArgumentError(
                "positive=True, a factor of 0 in penalty_factor, and any factors beside l1 need "
                + ", ".join(missing)
            )

    @property
    def _factors(self) -> np.ndarray | None:
        """The factors of the penalties, unless all are 1."""
        if self.penalty_factor is None:
            return None
        try:
            factor = np.array(self.penalty_factor, np.float64)
        except (TypeError, ValueError):
            factor = np.array(np.nan)
        return None if factor.ndim == 1 and (factor == 1).all() else factor

    def _factor(self, n_features: int) -> np.ndarray | None:
        """Return the penalty factors for this number of features."""
        if self.penalty_factor is not None and len(self.penalty_factor) != n_features:
            raise InvalidArgumentError(
                f"penalty_factor has {len(self.penalty_factor)} numbers, and X has {n_features} "
                "features: give one for each"
            )
        return self._factors

    @property
    def _is_plain(self) -> bool:
        """Whether all weights have the same penalty once the features are scaled for it."""
        factor = self._factors
        return not self.positive and (factor is None or (self.l1 == 0 and bool(factor.all())))
