"""Stochastic dual coordinate ascent: TensorFlow's four ops for linear models."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import numpy as np

from tfopt_ref import sdca
from tfopt_ref import sdca_checks as checks
from tfopt_ref.autodiff.effects import computes, writes
from tfopt_ref.autodiff.variable import Variable
from tfopt_ref.checks import as_array, check_itself, check_layout
from tfopt_ref.errors import InvalidArgumentError, InvalidTypeError
from tfopt_ref.fingerprint import fingerprint
from tfopt_ref.sdca_groups import Groups

#: More features than these are out of cache, and neighbouring examples are visited together.
CACHED = 2**20

__all__ = ["SdcaResult", "sdca_fprint", "sdca_optimizer", "sdca_shrink_l1"]


class SdcaResult(NamedTuple):
    """The new state of the examples, and what to add to each array of weights."""

    out_example_state_data: np.ndarray
    out_delta_sparse_weights: list[np.ndarray]
    out_delta_dense_weights: list[np.ndarray]


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
    loss_type: str,
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
    """Make as many visits as there are examples: maximize the dual over one's dual variable."""
    checks.check_loss(loss_type)
    checks.check_partitions(num_loss_partitions, "num_loss_partitions")
    checks.check_partitions(num_inner_iterations, "num_inner_iterations")
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise InvalidTypeError(f"dtype must be float32 or float64, not {dtype}")
    if num_threads is not None:
        checks.check_partitions(num_threads, "num_threads")
    l2, shrink = checks.penalties(l1, l2, dtype)
    groups = Groups(
        sparse_example_indices, sparse_feature_indices, sparse_feature_values, dense_features,
        sparse_indices, sparse_weights, dense_weights,
    )  # fmt: skip
    weights, rows = groups.weights_and_rows(example_weights, example_labels, dtype)
    examples, state = examples_of(
        example_weights, example_labels, example_state_data, loss_type, dtype
    )
    with np.errstate(over="ignore"):
        examples["curvature"] = sdca.squared_norms(rows[0], rows[2], rows[3]) / l2
    if not np.isfinite(examples["curvature"]).all():
        raise InvalidArgumentError("the squares of feature values are too large to be added")
    v = np.concatenate([w.ravel() for w in weights]).astype(np.float64)
    wx = sdca.predictions(*rows, v, shrink)
    if not np.isfinite(wx).all():
        raise InvalidArgumentError("the predictions are too large for float64")

    if order is not None:
        if seed is not None:
            raise InvalidArgumentError("pass either order or seed, not both")
        plan = checks.order_of(order, len(examples))
    else:
        number = zlib.crc32(examples["a"].tobytes()) if seed is None else checks.seed_of(seed)
        if adaptive:
            plan = sdca.sampled(sdca.importance(examples, wx, loss_type, l2), number, 0)
        else:
            bucket = 8 if rows[0].size + rows[3].size > CACHED else 1
            plan = sdca.shuffled(len(examples), bucket, number, 0)

    u, before = v.copy(), examples["a"].copy()
    sdca.epoch(*rows, plan, examples, before, u, loss_type, l2, shrink, float(num_loss_partitions))
    most = np.finfo(dtype).max
    primal, dual = sdca.terms(examples, before, wx, loss_type)
    with np.errstate(over="ignore", under="ignore"):
        for i in {*plan.tolist()}:
            a = np.clip(examples["a"][i], -most, most)
            state[i] = a, primal[i], dual[i], examples["weight"][i]
        deltas, start = [], 0
        for w in weights:
            delta = (u - v)[start : start + w.size] / num_loss_partitions
            deltas.append(delta.reshape(w.shape).astype(dtype))
            start += w.size
    return SdcaResult(state, deltas[: len(sparse_weights)], deltas[len(sparse_weights) :])


def examples_of(
    example_weights: Any, example_labels: Any, state: Any, loss: str, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """Return the examples, their labels as the loss has them, and a copy of the state."""
    c = checks.numbers(example_weights, "example_weights", dtype).ravel()
    y = checks.numbers(example_labels, "example_labels", dtype).ravel()
    given = checks.check_state(state, len(c))
    a = checks.numbers(given[:, 0], "the dual variables in example_state_data", dtype)
    checks.check_labels(y, loss)
    if loss not in ("squared_loss", "poisson_loss"):
        y = 2 * y - 1
    checks.check_duals(a, y, loss)
    examples = np.zeros(len(c), sdca.EXAMPLE)
    examples["a"], examples["y"], examples["weight"] = a, y, c
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return examples, given.astype(dtype)


@writes("weights")
def sdca_shrink_l1(weights: Any, l1: float, l2: float, name: str | None = None) -> None:
    """Set each weight t to ``sign(t) * max(|t| - l1 / l2, 0)``."""
    arrays = [
        w.numpy() if isinstance(w, Variable) else as_array(w, f"weights[{k}]")
        for k, w in enumerate(checks.members(weights, "weights"))
    ]
    checks.penalties(l1, l2, np.dtype(np.float64))
    for k, array in enumerate(arrays):
        if array.dtype.name not in ("float32", "float64"):
            raise InvalidTypeError(f"weights[{k}] must be float32 or float64, not {array.dtype}")
        checks.penalties(l1, l2, array.dtype)
        check_layout(array, "weights", written=True)
        check_itself(array, "weights")
        if any(np.shares_memory(array, other) for other in arrays[:k]):
            raise InvalidArgumentError("weights overlap in memory")
    for t in arrays:
        shrink = t.dtype.type(checks.penalties(l1, l2, t.dtype)[1])
        t[...] = np.copysign(np.maximum(abs(t) - shrink, 0), t)


@computes
def sdca_fprint(input: Any, name: str | None = None) -> np.ndarray:
    """Return the two halves of each string's fingerprint of 128 bits."""
    if not isinstance(input, (list, tuple)):
        array = np.asarray(input)
        if array.ndim != 1:
            raise InvalidArgumentError(
                f"Input must be a vector, got shape {checks.listed(array.shape)}"
            )
        input = array.tolist()
    rows = [fingerprint(encoded(string, i)) for i, string in enumerate(input)]
    return np.array(rows, np.int64).reshape(-1, 2)


def encoded(string: Any, i: int) -> bytes:
    """Return a string's bytes: of str, those of its UTF-8."""
    if isinstance(string, bytes):
        return string
    if not isinstance(string, str):
        raise InvalidTypeError(f"input must be strings, and input[{i}] is {type(string).__name__}")
    try:
        return string.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"input[{i}] has no UTF-8: {error}") from None
