"""Stochastic dual coordinate ascent: TensorFlow's four ops for linear models.

`sdca_optimizer` implements both TensorFlow ops, ``SdcaOptimizer`` and ``SdcaOptimizerV2``, which
differ only in the spelling of `adaptive`. It is a pure function: its arguments are not changed.
"""

from __future__ import annotations

import operator
import zlib
from typing import Any, NamedTuple

import numpy as np

from tfopt.clip_ops.validation import Array
from tfopt.core.effects import computes, writes
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels.arrays.aliasing import certainly_apart, check_layouts
from tfopt.kernels.arrays.coerce import as_array
from tfopt.kernels.arrays.overlaps import overlapping, span_of
from tfopt.kernels.linear.solver import epoch
from tfopt.kernels.linear.visits import importance, predictions, sampled, shuffled, terms
from tfopt.kernels.tf_sdca.fingerprint import of_bytes, of_strings
from tfopt.sdca_ops.losses import LossName
from tfopt.sdca_ops.validation import (
    Examples,
    Groups,
    as_loss,
    as_order,
    as_partitions,
    as_penalties,
    pack,
)
from tfopt.variable import Variable

#: A batch with more entries (stored values plus elements of the dense block) than this does not fit
#: in cache, so neighbouring examples are visited together. (`LARGE` in
#: `linear_model._fit.row_visits` is the corresponding limit for the weights.)
CACHED = 2**20

__all__ = ["SdcaResult", "sdca_fprint", "sdca_optimizer", "sdca_shrink_l1"]


class SdcaResult(NamedTuple):
    """The result of `sdca_optimizer`.

    Parameters
    ----------
    out_example_state_data : ndarray, shape (n_examples, 4)
        For each visited example its new dual variable; its weighted loss at the given weights; the
        weighted conjugate loss at the dual variable before the visit; and its weight. Rows of other
        examples are unchanged.
    out_delta_sparse_weights, out_delta_dense_weights : list of ndarray
        The changes to add to each array of weights.
    """

    out_example_state_data: Array
    out_delta_sparse_weights: list[Array]
    out_delta_dense_weights: list[Array]


@computes
def sdca_optimizer(
    sparse_example_indices: Any,
    sparse_feature_indices: Any,
    sparse_feature_values: Any,
    dense_features: Any,
    example_weights: Any,
    example_labels: Any,
    sparse_indices: Any,
    sparse_weights: Any,
    dense_weights: Any,
    example_state_data: Any,
    loss_type: LossName,
    l1: float,
    l2: float,
    num_loss_partitions: int,
    num_inner_iterations: int,
    adaptive: bool = True,
    name: str | None = None,
    *,
    seed: int | None = None,
    order: Any = None,
    dtype: Any = np.float32,
    num_threads: int | None = None,
) -> SdcaResult:
    """Run one epoch of stochastic dual coordinate ascent.

    Each visit maximizes the dual objective over the dual variable of one example; there are as many
    visits as examples. The model minimizes
    ``sum(weight * loss(x . w)) + l1 * |w|_1 + l2 / 2 * |w|^2`` over w (sums, not means). The arrays
    of weights hold v, the weights before :func:`sdca_shrink_l1` turns them into w; if all dual
    variables are 0, v must be 0, too.

    Parameters
    ----------
    sparse_example_indices, sparse_feature_indices : list of int arrays, shape (n_entries,)
        For each group of sparse features: the example and the feature id of each entry, with
        examples ascending.
    sparse_feature_values : list of float arrays, shape (n_entries,)
        The values of the first groups; those of the remaining groups are 1.
    dense_features : list of float arrays, shape (n_examples, width)
    example_weights, example_labels : float arrays of n_examples elements
        Labels are 0 or 1 for classification losses, and at least 0 for "poisson_loss".
    sparse_indices : list of int arrays
        For each group of sparse features: the ids of its weights.
    sparse_weights, dense_weights : list of float arrays or Variables
        One element for each id, and one for each column of a group of dense features.
    example_state_data : float array, shape (n_examples, 4)
        Zeros, or the result of the previous call. Only the first column is read.
    loss_type : {"logistic_loss", "squared_loss", "hinge_loss", "smooth_hinge_loss", \
"poisson_loss"}
    l1, l2 : float
        l1 at least 0, l2 greater than 0.
    num_loss_partitions : int
        The number of calls, with disjoint examples and the same weights, whose deltas are added
        (Ma et al., 2015).
    num_inner_iterations : int
        At least 1. Has no effect, as in TensorFlow.
    adaptive : bool, default True
        Sample examples in proportion to their distance from the optimum, some several times and
        others not at all. False visits each example once.
    name : str, optional
        Accepted for compatibility with TensorFlow and ignored.
    seed : int, optional
        From 0 to 2**64 - 1; determines the order of the visits. By default the order is derived
        from the dual variables: it changes from epoch to epoch but is reproducible.
    order : int array, optional
        The examples to visit, in order, instead of those that `adaptive` selects.
    dtype : {float32, float64}
        The dtype of the results. Arguments are rounded to it; computation is in float64.
    num_threads : int, optional
        At most the limit set by :func:`tfopt.threads.set_num_threads`, which is the default. The
        result does not depend on it; the visits themselves run on one thread.

    Returns
    -------
    SdcaResult
        A named tuple of new arrays: the state, and the deltas of both lists of weights.

    Raises
    ------
    InvalidArgumentError
        If shapes do not match, examples do not ascend, an id has no weight or occurs twice, a
        number is not finite, a weight is negative, a label or dual variable is invalid for the
        loss, or a setting is out of range.
    InvalidTypeError
        If an argument has the wrong type or dtype.

    References
    ----------
    TensorFlow's ``SdcaOptimizerV2`` (tensorflow/core/kernels/sdca_ops.cc). Shalev-Shwartz, Zhang:
    Stochastic dual coordinate ascent methods for regularized loss minimization, JMLR 2013, and
    Accelerated proximal stochastic dual coordinate ascent, ICML 2014. Ma et al.: Adding vs.
    averaging in distributed primal-dual optimization, ICML 2015. Csiba, Qu, Richtarik: Stochastic
    dual coordinate ascent with adaptive probabilities, ICML 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.sdca_ops import sdca_optimizer
    >>> result = sdca_optimizer(
    ...     [], [], [], [np.eye(2)], [1, 1], [10, -5], [], [], [np.zeros(2)], np.zeros((2, 4)),
    ...     loss_type="squared_loss", l1=0, l2=1, num_loss_partitions=1, num_inner_iterations=1)
    >>> result.out_delta_dense_weights
    [array([ 5. , -2.5], dtype=float32)]
    """
    loss = as_loss(loss_type)
    sigma = as_partitions(num_loss_partitions, "num_loss_partitions")
    as_partitions(num_inner_iterations, "num_inner_iterations")
    stored = np.dtype(dtype)
    if stored not in (np.float32, np.float64):
        raise InvalidTypeError(f"dtype must be float32 or float64, not {stored}")
    threads = 0 if num_threads is None else as_partitions(num_threads, "num_threads")
    rounded_l2, shrink = as_penalties(l1, l2, stored)
    groups = Groups(
        sparse_example_indices, sparse_feature_indices, sparse_feature_values, dense_features,
        sparse_indices, sparse_weights, dense_weights,
    )  # fmt: skip
    packed = pack(
        groups, example_weights, example_labels, example_state_data, loss, rounded_l2, stored
    )
    wx = predictions(*packed.rows, packed.v, shrink, threads)
    if not np.isfinite(wx).all():
        raise InvalidArgumentError("the predictions are too large for float64")
    plan = _plan(packed, wx, loss, rounded_l2, seed, order, adaptive)
    u, before = packed.v.copy(), packed.examples["a"].copy()
    epoch(
        *packed.rows,
        plan,
        packed.examples,
        u,
        replicas=np.zeros((0, u.size)),
        before=before,
        idle=np.zeros(0, np.uint8),
        loss=loss,
        parameter=1.0,
        l2=rounded_l2,
        shrink=shrink,
        bias=0.0,
        bias_curvature=0.0,
        sigma=float(sigma),
        merges=1,
        threads=1,
        exact=True,
    )
    visited = np.zeros(len(before), bool)
    visited[plan] = True
    columns = [packed.examples["a"], *terms(packed.examples, before, wx, loss)]
    _write(packed.state, [*columns, packed.examples["weight"]], visited)
    deltas = _split((u - packed.v) / sigma, packed.weights)
    n_sparse = len(sparse_weights)
    return SdcaResult(packed.state, deltas[:n_sparse], deltas[n_sparse:])


def _plan(
    packed: Examples, wx: Array, loss: str, l2: float, seed: Any, order: Any, adaptive: bool
) -> Array:
    """Return the examples to visit, in order."""
    n = len(packed.examples)
    if order is not None:
        if seed is not None:
            raise InvalidArgumentError("pass either order or seed, not both")
        return as_order(order, n)
    number = zlib.crc32(packed.examples["a"].tobytes()) if seed is None else _seed(seed)
    if adaptive:
        return sampled(importance(packed.examples, wx, loss, l2), number, 0)
    data, _, _, dense = packed.rows
    return shuffled(n, 8 if data.size + dense.size > CACHED else 1, number, 0)


def _seed(seed: Any) -> int:
    try:
        number = operator.index(seed)
    except TypeError:
        raise InvalidTypeError(f"seed must be an integer, not {seed!r}") from None
    if not 0 <= number < 2**64:
        raise InvalidArgumentError(f"seed must be from 0 to 2**64 - 1, not {number}")
    return number


def _write(state: Array, columns: list[Array], visited: Array) -> None:
    """Write the columns of the examples that were visited."""
    most = np.finfo(state.dtype).max
    columns[0] = np.clip(columns[0], -most, most)  # the state must stay valid
    with np.errstate(over="ignore", under="ignore"):
        for k, column in enumerate(columns):
            np.copyto(state[:, k], column, casting="same_kind", where=visited)


def _split(delta: Array, weights: list[Array]) -> list[Array]:
    """Split a vector into arrays with the shapes and dtypes of the weights."""
    ends = np.cumsum([w.size for w in weights])
    with np.errstate(over="ignore", under="ignore"):
        return [
            delta[end - w.size : end].reshape(w.shape).astype(w.dtype)
            for w, end in zip(weights, ends, strict=True)
        ]


@writes("weights")
def sdca_shrink_l1(weights: Any, l1: float, l2: float, name: str | None = None) -> None:
    """Soft-threshold weights in place: move each by at most l1 / l2 towards 0.

    Parameters
    ----------
    weights : list of float arrays or Variables
        float32 or float64; changed in place.
    l1, l2 : float
        l1 at least 0, l2 greater than 0.
    name : str, optional
        Accepted for compatibility with TensorFlow and ignored.

    Raises
    ------
    InvalidArgumentError
        If l1 or l2 is out of range, or an array is read-only or shares memory with another. Nothing
        has been written.
    InvalidTypeError
        If `weights` is not a list of float arrays.

    References
    ----------
    TensorFlow's ``SdcaShrinkL1`` (tensorflow/core/kernels/sdca_ops.cc).

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.sdca_ops import sdca_shrink_l1
    >>> weights = np.array([1.0, -0.25, -3.0])
    >>> sdca_shrink_l1([weights], l1=1, l2=2)
    >>> weights
    array([ 0.5, -0. , -2.5])
    """
    if not isinstance(weights, (list, tuple)):
        raise InvalidTypeError(f"weights must be a list of arrays, not {type(weights).__name__}")
    arrays = [
        w.numpy() if isinstance(w, Variable) else as_array(w, f"weights[{k}]")
        for k, w in enumerate(weights)
    ]
    for k, array in enumerate(arrays):
        if array.dtype.name not in ("float32", "float64"):
            raise InvalidTypeError(f"weights[{k}] must be float32 or float64, not {array.dtype}")
    shrinks = [array.dtype.type(as_penalties(l1, l2, array.dtype)[1]) for array in arrays]
    as_penalties(l1, l2, np.dtype(np.float64))
    check_layouts(arrays, "weights", True)
    if not certainly_apart(arrays, arrays) and any(
        np.shares_memory(arrays[j], arrays[k])
        for j, k in overlapping((*span_of(array), True) for array in arrays)
    ):
        raise InvalidArgumentError("weights overlap in memory")
    for array, shrink in zip(arrays, shrinks, strict=True):
        magnitude = np.maximum(np.abs(array) - shrink, array.dtype.type(0))
        np.copysign(magnitude, array, out=array)


@computes
def sdca_fprint(input: Any, name: str | None = None) -> Array:
    """Return the 128-bit fingerprint of each string, by which TensorFlow identifies examples.

    Parameters
    ----------
    input : list or array of bytes or str, shape (n,)
        A str is encoded as UTF-8.
    name : str, optional
        Accepted for compatibility with TensorFlow and ignored.

    Returns
    -------
    ndarray of int64, shape (n, 2)
        The two halves of each fingerprint.

    Raises
    ------
    InvalidArgumentError
        If `input` is not a vector, or a str cannot be encoded as UTF-8.
    InvalidTypeError
        If `input` contains anything but strings.

    References
    ----------
    TensorFlow's ``SdcaFprint`` (tensorflow/core/kernels/sdca_ops.cc); FarmHash's Fingerprint128.

    Examples
    --------
    >>> from tfopt.sdca_ops import sdca_fprint
    >>> sdca_fprint(["abc", b"very looooooong string"])
    array([[ 4143508125394299908, -6879828354153669051],
           [ 5849691694103072671, -4874542629849009556]])
    """
    if isinstance(input, (list, tuple)):
        return of_strings(list(input))
    array = np.asarray(input)
    if array.ndim != 1:
        shape = ",".join(map(str, array.shape))
        raise InvalidArgumentError(f"Input must be a vector, got shape [{shape}]")
    if array.dtype.kind == "S":
        return of_bytes(array)
    return of_strings(array.tolist())


def __dir__() -> list[str]:
    return __all__
