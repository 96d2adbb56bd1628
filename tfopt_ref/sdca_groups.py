"""The features of SDCA's ops, which come in groups, as rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt_ref import sdca
from tfopt_ref import sdca_checks as checks
from tfopt_ref.errors import InvalidArgumentError

__all__ = ["Groups"]


class Groups:
    """The features and weights of a call."""

    def __init__(self, *lists: Any) -> None:
        names = (
            "sparse_example_indices", "sparse_feature_indices", "sparse_feature_values",
            "dense_features", "sparse_indices", "sparse_weights", "dense_weights",
        )  # fmt: skip
        given = {k: checks.members(value, k) for k, value in zip(names, lists, strict=True)}
        self.example_indices = given["sparse_example_indices"]
        self.feature_ids = given["sparse_feature_indices"]
        self.values = given["sparse_feature_values"]
        self.dense = given["dense_features"]
        self.listed = given["sparse_indices"]
        self.sparse_weights = given["sparse_weights"]
        self.dense_weights = given["dense_weights"]
        if not self.example_indices and not self.dense:
            raise InvalidArgumentError("Requires at least one feature to train.")
        first = len(self.example_indices)
        for k in ("sparse_feature_indices", "sparse_indices", "sparse_weights"):
            if len(given[k]) != first:
                raise InvalidArgumentError(
                    f"{first} sparse_example_indices, but {len(given[k])} {k}"
                )
        if len(self.dense_weights) != len(self.dense):
            raise InvalidArgumentError(
                f"{len(self.dense)} dense_features, but {len(self.dense_weights)} dense_weights"
            )
        if len(self.values) > first:
            raise InvalidArgumentError(
                f"{len(self.values)} sparse_feature_values for {first} sparse features"
            )

    def weights_and_rows(
        self, example_weights: Any, example_labels: Any, dtype: np.dtype
    ) -> tuple[list[np.ndarray], sdca.Rows]:
        """Return each array of weights, and all features as rows."""
        c = checks.numbers(example_weights, "example_weights", dtype)
        y = checks.numbers(example_labels, "example_labels", dtype)
        if y.size != c.size:
            raise InvalidArgumentError(f"Expected {c.size} example labels but got {y.size}")
        for weight in c.flat:
            if weight < 0:
                raise InvalidArgumentError(f"example_weights must not be negative: {weight}")
        sparse = [
            checks.numbers(w, f"sparse_weights[{j}]", dtype)
            for j, w in enumerate(self.sparse_weights)
        ]
        dense = [
            checks.numbers(w, f"dense_weights[{k}]", dtype)
            for k, w in enumerate(self.dense_weights)
        ]
        block = self.dense_block(c.size, dense, dtype)
        return [*sparse, *dense], (*self.sparse_rows(c.size, sparse, dtype), block)

    def dense_block(self, n: int, weights: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
        """Return the dense features of all groups side by side."""
        joined = np.zeros((n, 0), dtype)
        for k, w in enumerate(weights):
            block = checks.numbers(self.dense[k], f"dense_features[{k}]", dtype)
            if block.ndim != 2:
                raise InvalidArgumentError(
                    f"Dense features at index {k} must be rank 2 but is rank {block.ndim}"
                )
            rows, width = block.shape
            if rows != n:
                raise InvalidArgumentError(f"dense_features[{k}] has {rows} rows for {n} examples")
            if width > w.size or width == 0:
                raise InvalidArgumentError(
                    f"More dense features than we have parameters for: {width}"
                )
            if width < w.size:
                raise InvalidArgumentError(
                    f"dense_features[{k}] has {width} columns, "
                    f"but dense_weights[{k}] {w.size} elements"
                )
            joined = np.hstack([joined, block])
        return joined

    def sparse_rows(
        self, n: int, weights: list[np.ndarray], dtype: np.dtype
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the sparse features of all groups as the rows of a CSR matrix."""
        rows: list[list[tuple[int, float]]] = [[] for _ in range(n)]
        offset = 0
        for j, w in enumerate(weights):
            for i, place, value in self.entries(j, n, w.size, dtype):
                rows[i].append((offset + place, value))
            offset += w.size
        indptr = np.cumsum([0, *map(len, rows)])
        entries = [entry for row in rows for entry in row]
        data = np.array([value for _, value in entries], dtype)
        return data, np.array([place for place, _ in entries], np.int64), indptr

    def entries(
        self, j: int, n: int, n_weights: int, dtype: np.dtype
    ) -> list[tuple[int, int, float]]:
        """Return example, place of the weight and value of each entry of a group."""
        example_indices = checks.integers(self.example_indices[j], f"sparse_example_indices[{j}]")
        ids = checks.integers(self.feature_ids[j], f"sparse_feature_indices[{j}]")
        if len(ids) != len(example_indices):
            raise InvalidArgumentError(
                "Found mismatched example_indices and feature_indices: "
                f"{len(example_indices)} vs {len(ids)}"
            )
        values = np.ones(len(ids))
        if j < len(self.values):
            values = checks.numbers(self.values[j], f"sparse_feature_values[{j}]", dtype).ravel()
        if len(values) != len(ids):
            raise InvalidArgumentError(
                f"sparse_feature_values[{j}] has {len(values)} elements for {len(ids)} indices"
            )
        listed = checks.integers(self.listed[j], f"sparse_indices[{j}]")
        if len(listed) != n_weights:
            raise InvalidArgumentError(
                f"sparse_indices[{j}] has {len(listed)} elements, "
                f"but sparse_weights[{j}] {n_weights}"
            )
        places: dict[int, int] = {}
        for place, i in enumerate(listed):
            if i in places:
                raise InvalidArgumentError(f"sparse_indices[{j}] has {i} twice")
            places[i] = place
        last = 0
        for k, i in enumerate(example_indices):
            if not last <= i < n:
                raise InvalidArgumentError(
                    f"sparse_example_indices[{j}] must ascend from 0 to {n - 1} at most, and "
                    f"number {k} is {i}"
                )
            last = i
        seen = set()
        for i, feature in zip(example_indices, ids, strict=True):
            if feature not in places:
                raise InvalidArgumentError(
                    f"Found sparse feature indices out of valid range: {feature}"
                )
            if (i, feature) in seen:
                raise InvalidArgumentError(
                    f"Duplicate index in sparse vector: {feature} of example {i}"
                )
            seen.add((i, feature))
        return [
            (i, places[feature], float(value))
            for i, feature, value in zip(example_indices, ids, values, strict=True)
        ]
