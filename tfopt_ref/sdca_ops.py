"""Stochastic dual coordinate ascent: TensorFlow's ops for linear models.

The features of a call come in groups. A sparse group has lists of the entries' examples, ascending,
of their ids and of their values (all 1 if there are none), and the ids to which its weights belong.
A dense group has a matrix, with a weight for each column.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tfopt_ref import sdca
from tfopt_ref.linear import Problem, dot, row
from tfopt_ref.losses import loss_named

#: With more features, neighbouring examples are visited together, since weights exceed the cache.
CACHED = 2**20

__all__ = ["SdcaResult", "sdca_optimizer", "sdca_shrink_l1"]

Arrays = Sequence[Any]


class SdcaResult(NamedTuple):
    """The new state of the examples, and the changes of each array of weights."""

    out_example_state_data: np.ndarray
    out_delta_sparse_weights: list[np.ndarray]
    out_delta_dense_weights: list[np.ndarray]


def sdca_optimizer(
    sparse_example_indices: Arrays, sparse_feature_indices: Arrays, sparse_feature_values: Arrays,
    dense_features: Arrays, example_weights: Any, example_labels: Any, sparse_indices: Arrays,
    sparse_weights: Arrays, dense_weights: Arrays, example_state_data: Any, loss_type: str,
    l1: float, l2: float, num_loss_partitions: int, num_inner_iterations: int,
    adaptive: bool = True, *, seed: int | None = None, order: Any = None, dtype: Any = np.float32,
) -> SdcaResult:  # fmt: skip
    """Make as many visits as there are examples; each maximizes the dual over a dual variable.

    `num_inner_iterations` is ignored. Without a seed, one is made from the dual variables.
    """
    real: Any = np.dtype(dtype).type
    weights = [np.asarray(w).astype(real) for w in (*sparse_weights, *dense_weights)]
    v = np.concatenate([w.ravel() for w in weights]).astype(np.float64)
    y, c = (np.asarray(each).astype(real).ravel() for each in (example_labels, example_weights))
    if loss_type not in ("squared_loss", "poisson_loss"):
        y = 2 * y - 1
    n, a = y.size, np.asarray(example_state_data)[:, 0].astype(real).astype(np.float64)
    groups = sparse_example_indices, sparse_feature_indices, sparse_feature_values, sparse_indices
    dense = np.hstack([np.zeros((n, 0)), *(np.asarray(x).astype(real) for x in dense_features)])
    x = [row(*entries, each, v.size) for entries, each in zip(
        sparse_entries(n, *groups, real), dense, strict=True
    )]  # fmt: skip
    with np.errstate(over="ignore", under="ignore"):
        l2, shrink = float(real(l2)), float(real(l1) / real(l2))
    problem = Problem(x, y, c, loss_named(loss_type), shrink * l2, l2)
    wx = [dot(each, v, shrink) for each in x]

    number = zlib.crc32(a.tobytes()) if seed is None else seed
    if order is not None:
        plan = np.asarray(order, np.int64).tolist()
    elif adaptive:
        plan = sdca.sampled(sdca.importance(problem, a, wx), number, 0)
    else:
        bucket = 8 if sum(len(part) for each in x for part in each) > CACHED else 1
        plan = sdca.shuffled(n, bucket, number, 0)
    u, before = v.copy(), a.copy()
    for i in plan:
        before[i] = a[i]
        sdca.visit(problem, [i], a, u, sigma=float(num_loss_partitions))

    most, phi = float(np.finfo(real).max), problem.phi
    state = np.asarray(example_state_data).astype(real)
    with np.errstate(all="ignore"):
        for i in {*plan}:
            given, label = float(c[i]), float(y[i])
            primal = given * phi.value(wx[i], label) if given > 0 else 0.0
            dual = given * phi.conjugate(float(before[i]), label) if given > 0 else 0.0
            state[i] = min(max(a[i], -most), most), primal, dual, given
        places = np.cumsum([w.size for w in weights])[:-1]
        parts = np.split((u - v) / num_loss_partitions, places)
        deltas = [p.reshape(w.shape).astype(real) for p, w in zip(parts, weights, strict=True)]
    return SdcaResult(state, deltas[: len(sparse_weights)], deltas[len(sparse_weights) :])


def sparse_entries(
    n: int, examples: Arrays, ids: Arrays, values: Arrays, listed: Arrays, real: Any
) -> list[tuple[list[int], list[Any]]]:
    """Return the indices of weights and the values of each example's sparse features."""
    entries: list[tuple[list[int], list[Any]]] = [([], []) for _ in range(n)]
    offset = 0
    for j, known in enumerate(listed):
        flat = [np.ravel(array).tolist() for array in (known, examples[j], ids[j])]
        place = {feature: offset + k for k, feature in enumerate(flat[0])}
        given = np.ravel(values[j]) if j < len(values) else np.ones(len(flat[1]))
        for i, feature, value in zip(flat[1], flat[2], given.astype(real), strict=True):
            entries[i][0].append(place[feature])
            entries[i][1].append(value)
        offset += len(place)
    return entries


def sdca_shrink_l1(weights: Arrays, l1: float, l2: float) -> list[np.ndarray]:
    """Return the weights with ``sign(t) * max(|t| - l1 / l2, 0)`` in place of each t."""
    shrunk = []
    for t in weights:
        real = t.dtype.type
        shrunk.append(np.copysign(np.maximum(abs(t) - real(l1) / real(l2), 0), t))
    return shrunk
