"""Batches of examples, and their conversion from mappings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.sdca_ops import sdca_fprint

__all__ = ["Batch", "SparseFeatureColumn", "batch_of", "rounds"]

Array = np.ndarray[Any, Any]


class SparseFeatureColumn(NamedTuple):
    """A group of sparse features.

    Parameters
    ----------
    example_indices, feature_indices : int array, shape (n_entries,)
        The example and the feature id of each entry, examples ascending.
    feature_values : float array, shape (n_entries,), optional
        Ones by default.
    """

    example_indices: Any
    feature_indices: Any
    feature_values: Any = None


class Batch(NamedTuple):
    """Examples in the form that the op takes."""

    fingerprints: Array
    labels: Array
    weights: Array
    sparse: list[SparseFeatureColumn]
    dense: list[Array]

    def rows(self, chosen: Array) -> Batch:
        """Return some of the examples, selected by ascending indices."""
        new_number = np.full(len(self.labels), -1, np.int64)
        new_number[chosen] = np.arange(len(chosen))
        columns = []
        for column in self.sparse:
            numbers = new_number[column.example_indices]
            kept = numbers >= 0
            columns.append(
                SparseFeatureColumn(
                    numbers[kept],
                    column.feature_indices[kept],
                    None if column.feature_values is None else column.feature_values[kept],
                )
            )
        dense = [block[chosen] for block in self.dense]
        return Batch(
            self.fingerprints[chosen], self.labels[chosen], self.weights[chosen], columns, dense
        )


def batch_of(
    examples: Mapping[str, Any],
    sparse_weights: list[Array],
    dense_weights: list[Array],
    trains: bool,
) -> Batch:
    """Check examples against the weights of a model and return them as a batch.

    Labels and ids are needed only for training.
    """
    unknown = set(examples) - {
        "example_ids", "example_labels", "example_weights", "sparse_features", "dense_features"
    }  # fmt: skip
    if unknown:
        raise InvalidArgumentError(f"examples has unknown keys: {sorted(unknown)}")
    sparse = [
        _column(column, k, weights.size)
        for k, (column, weights) in enumerate(_paired(examples, "sparse_features", sparse_weights))
    ]
    dense = []
    for k, (block, weights) in enumerate(_paired(examples, "dense_features", dense_weights)):
        block = np.asarray(block)
        if block.ndim != 2 or block.shape[1] != weights.size:
            raise InvalidArgumentError(
                f"dense_features[{k}] must have {weights.size} columns: {list(block.shape)}"
            )
        dense.append(block)
    if not trains:
        n = _number_of_examples(examples, sparse, dense)
        return Batch(np.zeros((n, 2), np.int64), np.zeros(n), np.ones(n), sparse, dense)
    for key in ("example_ids", "example_labels"):
        if key not in examples:
            raise InvalidArgumentError(f"{key} must be specified.")
    prints = sdca_fprint(examples["example_ids"])
    labels = np.asarray(examples["example_labels"])
    weights = np.asarray(examples.get("example_weights", np.ones(len(prints))))
    for name, array in (("example_labels", labels), ("example_weights", weights)):
        if array.shape != (len(prints),):
            raise InvalidArgumentError(
                f"{name} must be a vector with an element for each of {len(prints)} example_ids, "
                f"not of shape {list(array.shape)}"
            )
    for k, column in enumerate(sparse):
        _check_numbers(column.example_indices, len(prints), f"sparse_features[{k}]")
    return Batch(prints, labels, weights, sparse, dense)


def _paired(examples: Mapping[str, Any], key: str, weights: list[Array]) -> Any:
    groups = examples.get(key, [])
    if not isinstance(groups, (list, tuple)):
        raise InvalidTypeError(f"{key} must be a list.")
    if len(groups) != len(weights):
        raise InvalidArgumentError(f"{key} must have {len(weights)} groups, not {len(groups)}")
    return zip(groups, weights, strict=True)


def _column(column: Any, k: int, n_weights: int) -> SparseFeatureColumn:
    indices, ids, values = SparseFeatureColumn(*column)
    indices, ids = np.asarray(indices), np.asarray(ids)
    for array in (indices, ids):
        if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
            raise InvalidTypeError(f"sparse_features[{k}] must contain vectors of integers")
    if len(indices) != len(ids):
        raise InvalidArgumentError(
            f"sparse_features[{k}] has {len(indices)} example_indices, but {len(ids)} "
            "feature_indices"
        )
    if values is not None:
        values = np.asarray(values)
        if values.shape != ids.shape:
            raise InvalidArgumentError(
                f"sparse_features[{k}] has {len(ids)} feature_indices, but feature_values of shape "
                f"{list(values.shape)}"
            )
    _check_numbers(ids, n_weights, f"feature_indices of sparse_features[{k}]")
    return SparseFeatureColumn(indices.astype(np.int64), ids.astype(np.int64), values)


def _check_numbers(numbers: Array, n: int, name: str) -> None:
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < n):
        raise InvalidArgumentError(f"{name} are out of range [0, {n})")


def _number_of_examples(
    examples: Mapping[str, Any], sparse: list[SparseFeatureColumn], dense: list[Array]
) -> int:
    """Infer the number of examples from any entry of the mapping."""
    for key in ("example_ids", "example_labels", "example_weights"):
        if key in examples:
            return len(examples[key])
    if dense:
        return len(dense[0])
    return max((int(c.example_indices.max()) + 1 for c in sparse if len(c[0])), default=0)


def rounds(local: Array) -> list[Array]:
    """Split the rows into the fewest parts in which no id occurs twice."""
    order = np.argsort(local, kind="stable")
    ordered = local[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else order
    lengths = np.diff(np.r_[starts, len(ordered)])
    occurrence = np.empty(len(local), np.int64)
    occurrence[order] = np.arange(len(ordered)) - np.repeat(starts, lengths)
    return [np.flatnonzero(occurrence == k) for k in range(int(lengths.max(initial=0)))]
