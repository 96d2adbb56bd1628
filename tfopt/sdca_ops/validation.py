"""Validation of the arguments of the SDCA ops, and their conversion to rows."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels.arrays.coerce import as_array
from tfopt.kernels.linear.visits import EXAMPLE, squared_norms
from tfopt.kernels.tf_sdca.feature_groups import Places, count, fill, first_not_finite
from tfopt.sdca_ops.losses import LOSS_TYPES
from tfopt.variable import Variable

__all__ = ["Examples", "Groups", "as_loss", "as_order", "as_partitions", "as_penalties", "pack"]

Array: TypeAlias = np.ndarray[Any, Any]


class Groups(NamedTuple):
    """The feature and weight arguments of a call."""

    sparse_example_indices: Any
    sparse_feature_indices: Any
    sparse_feature_values: Any
    dense_features: Any
    sparse_indices: Any
    sparse_weights: Any
    dense_weights: Any


class Examples(NamedTuple):
    """Rows and examples in the kernel's layout, and the weights to update."""

    rows: tuple[Array, Array, Array, Array]
    examples: Array
    state: Array
    weights: list[Array]
    v: Array


# ---- attributes


def as_loss(loss_type: Any) -> str:
    """Check the name of a loss and return it."""
    if not isinstance(loss_type, str) or loss_type not in LOSS_TYPES:
        allowed = ", ".join(f'"{name}"' for name in LOSS_TYPES)
        raise InvalidArgumentError(
            f"Value for attr 'loss_type' of {loss_type!r} is not in the list of allowed values: "
            f"{allowed}"
        )
    return loss_type


def as_partitions(value: Any, name: str) -> int:
    """Check that a value is an int32 of at least 1 and return it."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidTypeError(f"Expected int for argument '{name}' not {value!r}.") from None
    if number < 1:
        raise InvalidArgumentError(
            f"Value for attr '{name}' of {number} must be at least minimum 1"
        )
    if number >= 2**31:
        raise InvalidArgumentError(f"Attr {name} has value {number} out of range for an int32")
    return number


def as_penalties(l1: Any, l2: Any, dtype: Any) -> tuple[float, float]:
    """Return l2 and l1 / l2, rounded to a dtype as in TensorFlow."""
    numbers = []
    for name, value in (("l1", l1), ("l2", l2)):
        try:
            if isinstance(value, (str, bytes)):
                raise TypeError
            number = float(value)
        except (TypeError, ValueError):
            raise InvalidTypeError(f"Expected float for argument '{name}' not {value!r}.") from None
        except OverflowError:
            number = math.inf
        with np.errstate(over="ignore", under="ignore"):
            numbers.append(dtype.type(number))
    rounded_l1, rounded_l2 = numbers
    if not (np.isfinite(rounded_l1) and rounded_l1 >= 0):
        raise InvalidArgumentError(f"l1 must be a number that is at least 0, not {l1}")
    if not (np.isfinite(rounded_l2) and rounded_l2 > 0):
        raise InvalidArgumentError(
            f"l2 must be a number greater than 0, not {l2}: the dual problem requires it"
        )
    with np.errstate(over="ignore", under="ignore"):
        return float(rounded_l2), float(rounded_l1 / rounded_l2)


def as_order(order: Any, n: int) -> Array:
    """Return the indices of the examples to visit."""
    indices = np.asarray(order)
    if indices.ndim != 1:
        raise InvalidArgumentError(f"order must be a vector, got shape {_listed(indices.shape)}")
    if indices.size and indices.dtype.kind not in "iu":
        raise InvalidTypeError(f"order must be integers, not {indices.dtype}")
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < n:
        raise InvalidArgumentError(f"order must contain examples from 0 to {n - 1}")
    return np.ascontiguousarray(indices, np.int64)


# ---- arrays


def _listed(shape: Any) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


def _as_array(value: Any, name: str) -> Array:
    if isinstance(value, Variable):
        value = value.numpy()
    if isinstance(value, (bool, int, float, list, tuple, np.generic)):
        try:
            return np.asarray(value)
        except ValueError as error:
            raise InvalidArgumentError(f"{name}: {error}") from None
    return as_array(value, name)


def _numbers(value: Any, name: str, dtype: Any) -> Array:
    """Convert to a dtype, without a copy if possible, and check that all values are finite."""
    values = _as_array(value, name)
    if values.dtype.kind not in "fiu" and values.size:
        raise InvalidTypeError(f"{name} must be real numbers, not {values.dtype}")
    with np.errstate(over="ignore", under="ignore"):
        array = np.ascontiguousarray(values, dtype).reshape(values.shape)
    at = first_not_finite(array.reshape(-1))
    if at >= 0:
        raise InvalidArgumentError(f"{name} must be finite, but element {at} is {values.flat[at]}")
    return array


def _integers(value: Any, name: str) -> Array:
    """Return a vector of int64; int32 stays int32."""
    array = _as_array(value, name)
    if array.size and (array.dtype.kind not in "iu" or array.dtype == np.uint64):
        raise InvalidTypeError(f"{name} must be integers that fit in int64, not {array.dtype}")
    dtype = np.int32 if array.dtype == np.int32 else np.int64
    return np.ascontiguousarray(array, dtype).reshape(-1)


def _members(value: Any, name: str) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise InvalidTypeError(f"{name} must be a list of arrays, not {type(value).__name__}")
    return list(value)


def _check_lengths(names: Sequence[str], lists: Sequence[Sequence[Any]]) -> None:
    for name, other in zip(names, lists, strict=True):
        if len(other) != len(lists[0]):
            raise InvalidArgumentError(f"{len(lists[0])} {names[0]}, but {len(other)} {name}")


# ---- a call


def pack(
    groups: Groups,
    example_weights: Any,
    example_labels: Any,
    example_state_data: Any,
    loss: str,
    l2: float,
    dtype: Any,
) -> Examples:
    """Check all arrays of a call and return them as rows, examples and one vector of weights."""
    lists = Groups(
        *(_members(value, name) for name, value in zip(Groups._fields, groups, strict=True))
    )
    if not lists.sparse_example_indices and not lists.dense_features:
        raise InvalidArgumentError("Requires at least one feature to train.")
    sparse = [name for name in Groups._fields if name.startswith("sparse") and "val" not in name]
    _check_lengths(sparse, [getattr(lists, name) for name in sparse])
    _check_lengths(["dense_features", "dense_weights"], [lists.dense_features, lists.dense_weights])
    if len(lists.sparse_feature_values) > len(lists.sparse_example_indices):
        raise InvalidArgumentError(
            f"{len(lists.sparse_feature_values)} sparse_feature_values for "
            f"{len(lists.sparse_example_indices)} sparse features"
        )
    c = _numbers(example_weights, "example_weights", dtype).reshape(-1)
    y = _numbers(example_labels, "example_labels", dtype).reshape(-1)
    if y.size != c.size:
        raise InvalidArgumentError(f"Expected {c.size} example labels but got {y.size}")
    if (c < 0).any():
        raise InvalidArgumentError(f"example_weights must not be negative: {c[c < 0][0]}")
    weights = [
        _numbers(member, f"{name}[{j}]", dtype)
        for name in ("sparse_weights", "dense_weights")
        for j, member in enumerate(getattr(lists, name))
    ]
    dense = _dense(lists, c.size, weights, dtype)
    rows = (*_sparse(lists, c.size, weights, dtype), dense)
    examples = np.zeros(c.size, EXAMPLE)
    state = _state(example_state_data, c.size, dtype)
    examples["a"], examples["weight"] = state[:, 0], c
    examples["y"] = _labels(y, loss)
    _check_duals(examples, loss)
    norms = squared_norms(rows[0], rows[2], rows[3])
    with np.errstate(over="ignore"):
        examples["curvature"] = norms / l2
    if not np.isfinite(examples["curvature"]).all():
        raise InvalidArgumentError("the sum of squared feature values overflows")
    v = np.concatenate([w.reshape(-1) for w in weights], dtype=np.float64, casting="same_kind")
    return Examples(rows, examples, state, weights, v)


def _dense(lists: Groups, n: int, weights: list[Array], dtype: Any) -> Array:
    """Return the dense features of all groups side by side."""
    blocks = []
    dense_weights = weights[len(lists.sparse_weights) :]
    for k, (member, w) in enumerate(zip(lists.dense_features, dense_weights, strict=True)):
        block = _numbers(member, f"dense_features[{k}]", dtype)
        if block.ndim != 2:
            raise InvalidArgumentError(
                f"Dense features at index {k} must be rank 2 but is rank {block.ndim}"
            )
        rows, width = block.shape
        if rows != n:
            raise InvalidArgumentError(f"dense_features[{k}] has {rows} rows for {n} examples")
        if width > w.size or width == 0:
            raise InvalidArgumentError(f"More dense features than we have parameters for: {width}")
        if width < w.size:
            raise InvalidArgumentError(
                f"dense_features[{k}] has {width} columns, but dense_weights[{k}] has {w.size} "
                "elements"
            )
        blocks.append(block)
    if not blocks:
        return np.zeros((n, 0), dtype)
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)


def _sparse(lists: Groups, n: int, weights: list[Array], dtype: Any) -> tuple[Array, Array, Array]:
    """Return the sparse features of all groups as the rows of a CSR matrix."""
    entries = []
    counts = np.zeros(n, np.int64)
    for j in range(len(lists.sparse_example_indices)):
        entry = _entries(lists, j, weights[j].size, dtype)
        fault = count(entry[0], counts)
        if fault >= 0:
            raise InvalidArgumentError(
                f"sparse_example_indices[{j}] must ascend within 0 to {n - 1}, but element "
                f"{fault} is {entry[0][fault]}"
            )
        entries.append(entry)
    total, n_places = int(counts.sum()), sum(w.size for w in weights)
    index = np.int32 if max(total, n_places) < 2**31 else np.int64
    indptr = np.zeros(n + 1, index)
    np.cumsum(counts, out=indptr[1:])
    data, indices, ends = np.empty(total, dtype), np.empty(total, index), indptr[:-1].astype(int)
    offset = 0
    for w, (example_indices, ids, values, places) in zip(weights, entries, strict=False):
        seen = np.full(w.size, -1)
        fault, repeated = fill(
            data, indices, ends, example_indices, ids, values, places, offset, seen
        )
        if repeated:
            raise InvalidArgumentError(
                f"Duplicate index in sparse vector: {ids[fault]} of example "
                f"{example_indices[fault]}"
            )
        if fault >= 0:
            raise InvalidArgumentError(
                f"Found sparse feature indices out of valid range: {ids[fault]}"
            )
        offset += w.size
    return data, indices, indptr


def _entries(
    lists: Groups, j: int, n_weights: int, dtype: Any
) -> tuple[Array, Array, Array | None, Places]:
    """Return a group's examples, ids and values, and the positions of its weights."""
    example_indices = _integers(lists.sparse_example_indices[j], f"sparse_example_indices[{j}]")
    ids = _integers(lists.sparse_feature_indices[j], f"sparse_feature_indices[{j}]")
    if ids.size != example_indices.size:
        raise InvalidArgumentError(
            "Found mismatched example_indices and feature_indices: "
            f"{example_indices.size} vs {ids.size}"
        )
    if ids.dtype != example_indices.dtype:
        ids, example_indices = ids.astype(np.int64), example_indices.astype(np.int64)
    values = None
    if j < len(lists.sparse_feature_values):
        values = _numbers(lists.sparse_feature_values[j], f"sparse_feature_values[{j}]", dtype)
        values = values.reshape(-1)
        if values.size != ids.size:
            raise InvalidArgumentError(
                f"sparse_feature_values[{j}] has {values.size} elements for {ids.size} indices"
            )
    listed = _integers(lists.sparse_indices[j], f"sparse_indices[{j}]").astype(np.int64)
    if listed.size != n_weights:
        raise InvalidArgumentError(
            f"sparse_indices[{j}] has {listed.size} elements, but sparse_weights[{j}] has "
            f"{n_weights}"
        )
    places = Places(listed)
    if places.repeated >= 0:
        raise InvalidArgumentError(f"sparse_indices[{j}] contains {listed[places.repeated]} twice")
    return example_indices, ids, values, places


def _state(value: Any, n: int, dtype: Any) -> Array:
    state = _as_array(value, "example_state_data")
    if state.ndim != 2:
        raise InvalidArgumentError(f"example_state_data must be rank 2 but is rank {state.ndim}")
    if state.shape != (n, 4):
        raise InvalidArgumentError(
            f"Expected shape [{n},4] for example_state_data, got {_listed(state.shape)}"
        )
    _numbers(state[:, 0], "the dual variables in example_state_data", dtype)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return state.astype(dtype)


def _labels(y: Array, loss: str) -> Array:
    """Return labels in the kernel's encoding: -1 and 1 for classification losses."""
    known = LOSS_TYPES[loss]
    if not known.has_classes:
        if (y < known.least).any():
            raise InvalidArgumentError(
                "Only non-negative labels can be used with the Poisson log loss. "
                f"Found example with label: {y[y < known.least][0]:g}"
            )
        return y
    wrong = (y != 0) & (y != 1)
    if wrong.any():
        raise InvalidArgumentError(
            "Only labels of 0.0 or 1.0 are supported right now. "
            f"Found example with label: {y[wrong][0]:g}"
        )
    return 2 * y - 1


def _check_duals(examples: Array, loss: str) -> None:
    """Raise if a dual variable is outside the domain of the conjugate loss."""
    a, y = examples["a"], examples["y"]
    wrong = LOSS_TYPES[loss].is_outside(a, y)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise InvalidArgumentError(
            f"example_state_data[{i},0] is {a[i]:g}, outside the domain of the dual variable of "
            f"{loss} for an example with the label {max(y[i], 0):g}"
        )
