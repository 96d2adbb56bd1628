"""A linear model trained by SDCA on batches of examples that are known by their ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfopt_ref.autodiff.effects import computes, prepare_writes, writes
from tfopt_ref.errors import InvalidArgumentError, InvalidTypeError
from tfopt_ref.sdca_batches import Batch, SparseFeatureColumn, batch_of, rounds
from tfopt_ref.sdca_ops import SdcaResult, sdca_optimizer, sdca_shrink_l1
from tfopt_ref.variable import Variable

__all__ = ["SDCAModel", "SparseFeatureColumn"]

Array = np.ndarray[Any, Any]


class SDCAModel:
    """Linear models on examples that come in batches, again and again.

    Each example has an id, by which its dual variable is found when it comes again. Weights are
    passed as arrays, into which `update_weights` writes.
    """

    def __init__(
        self,
        sparse_features_weights: Sequence[Any],
        dense_features_weights: Sequence[Any],
        loss_type: str = "logistic_loss",
        symmetric_l1_regularization: float = 0.0,
        symmetric_l2_regularization: float = 1.0,
        num_loss_partitions: int = 1,
        adaptive: bool = True,
        dtype: Any = np.float32,
    ) -> None:
        self._sparse = _vectors(sparse_features_weights, "sparse_features_weights")
        self._dense = _vectors(dense_features_weights, "dense_features_weights")
        self._variables = [*sparse_features_weights, *dense_features_weights]
        self.loss_type = loss_type
        self.symmetric_l1_regularization = float(symmetric_l1_regularization)
        self.symmetric_l2_regularization = float(symmetric_l2_regularization)
        self.num_loss_partitions = num_loss_partitions
        self.adaptive = bool(adaptive)
        self._unshrunk_sparse = [np.zeros(w.shape, w.dtype) for w in self._sparse]
        self._unshrunk_dense = [np.zeros(w.shape, w.dtype) for w in self._dense]
        self.dtype = np.dtype(dtype)
        self._state: dict[tuple[int, int], np.ndarray] = {}  # of each fingerprint
        self._try_op()

    def _try_op(self) -> None:
        """Let the op refuse settings that it will refuse."""
        none = np.zeros(0)
        self._visit(
            Batch(
                np.zeros((0, 2), np.int64),
                none,
                none,
                [SparseFeatureColumn(none.astype(int), none.astype(int)) for _ in self._sparse],
                [np.zeros((0, w.size)) for w in self._dense],
            ),
            np.zeros((0, 4), self.dtype),
            [(none.astype(np.int64), w[:0]) for w in self._unshrunk_sparse],
            self._unshrunk_dense,
        )

    # ---- training

    @writes()
    def partial_fit(self, examples: Mapping[str, Any], seed: int | None = None) -> None:
        """Visit the examples of a batch; those of one id one after the other."""
        batch = batch_of(examples, self._sparse, self._dense, trains=True)
        ids = [tuple(fingerprint) for fingerprint in batch.fingerprints.tolist()]
        new = np.zeros(4, self.dtype)
        rows = {one: self._state.get(one, new) for one in ids}
        features = [np.unique(column.feature_indices) for column in batch.sparse]
        sparse = [(own, w[own]) for own, w in zip(features, self._unshrunk_sparse, strict=True)]
        dense = [w.copy() for w in self._unshrunk_dense]
        numbers = {one: k for k, one in enumerate(rows)}
        for chosen in rounds(np.array([numbers[one] for one in ids], np.int64)):
            state = np.array([rows[ids[i]] for i in chosen], self.dtype).reshape(-1, 4)
            result = self._visit(batch.rows(chosen), state, sparse, dense, seed)
            for i, row in zip(chosen, result.out_example_state_data, strict=True):
                rows[ids[i]] = row
            for (_, weights), delta in zip(sparse, result.out_delta_sparse_weights, strict=True):
                weights += delta
            for weights, delta in zip(dense, result.out_delta_dense_weights, strict=True):
                weights += delta
        self._state.update(rows)
        for slot, (own, weights) in zip(self._unshrunk_sparse, sparse, strict=True):
            slot[own] = weights
        for slot, weights in zip(self._unshrunk_dense, dense, strict=True):
            slot[...] = weights

    def _visit(
        self,
        batch: Batch,
        state: Array,
        sparse: list[tuple[Array, Array]],
        dense: list[Array],
        seed: int | None = None,
    ) -> SdcaResult:
        columns = batch.sparse
        values = [
            np.ones(len(c.feature_indices)) if c.feature_values is None else c.feature_values
            for c in columns
        ]
        return sdca_optimizer(
            [c.example_indices for c in columns],
            [c.feature_indices for c in columns],
            values,
            batch.dense,
            batch.weights,
            batch.labels,
            [ids for ids, _ in sparse],
            [weights for _, weights in sparse],
            dense,
            state,
            self.loss_type,
            self.symmetric_l1_regularization,
            self.symmetric_l2_regularization,
            self.num_loss_partitions,
            num_inner_iterations=1,
            adaptive=self.adaptive,
            seed=seed,
            dtype=self.dtype,
        )

    @writes()
    def update_weights(self) -> None:
        """Write the weights of the model into the arrays that were passed to the constructor."""
        prepare_writes(self._variables)
        unshrunk = [*self._unshrunk_sparse, *self._unshrunk_dense]
        for weights, slot in zip([*self._sparse, *self._dense], unshrunk, strict=True):
            weights[...] = slot
        if self.symmetric_l1_regularization > 0:
            sdca_shrink_l1(
                [*self._sparse, *self._dense],
                self.symmetric_l1_regularization,
                self.symmetric_l2_regularization,
            )

    # ---- what the weights say, as `update_weights` left them

    @computes
    def predictions(self, examples: Mapping[str, Any]) -> Array:
        """Return the prediction of each example, float64.

        A probability for "logistic_loss", a mean for "poisson_loss", the product of features and
        weights for the other losses. Neither labels nor ids are needed.
        """
        products = self._products(batch_of(examples, self._sparse, self._dense, trains=False))
        with np.errstate(over="ignore"):
            if self.loss_type == "logistic_loss":
                return np.asarray(1 / (1 + np.exp(-products)))
            if self.loss_type == "poisson_loss":
                return np.asarray(np.exp(products))
        return products

    def _products(self, batch: Batch) -> Array:
        n = len(batch.labels)
        total = np.zeros(n)
        for column, weights in zip(batch.sparse, self._sparse, strict=True):
            terms = weights[column.feature_indices].astype(np.float64)
            if column.feature_values is not None:
                terms *= column.feature_values
            total += np.bincount(column.example_indices, terms, n)
        for block, weights in zip(batch.dense, self._dense, strict=True):
            total += block.astype(np.float64) @ weights.astype(np.float64)
        return total

    @computes
    def unregularized_loss(self, examples: Mapping[str, Any]) -> float:
        """Return the mean loss of examples, each with its weight."""
        batch = batch_of(examples, self._sparse, self._dense, trains=True)
        losses = _losses(self.loss_type, self._products(batch), batch.labels)
        return float(np.sum(batch.weights * losses) / np.sum(batch.weights))

    @computes
    def regularized_loss(self, examples: Mapping[str, Any]) -> float:
        """Return what the model minimizes, over the sum of the examples' weights."""
        weights = batch_of(examples, self._sparse, self._dense, trains=True).weights
        l1, squares = self._norms()
        penalty = (
            self.symmetric_l1_regularization * l1 + self.symmetric_l2_regularization * squares / 2
        )
        return self.unregularized_loss(examples) + float(penalty / np.sum(weights))

    @computes
    def approximate_duality_gap(self) -> float:
        """Return the gap of all examples visited so far, over the sum of their weights.

        Approximate, because the losses are those at the visits. NaN if there have been none.
        """
        state = np.array(list(self._state.values()), np.float64).reshape(-1, 4)
        l1, squares = self._norms()
        total = (
            state[:, 1].sum()
            + state[:, 2].sum()
            + self.symmetric_l1_regularization * l1
            + self.symmetric_l2_regularization * squares
        )
        weights = state[:, 3].sum()
        return float(total / weights) if weights else float("nan")

    def _norms(self) -> tuple[float, float]:
        """Return the sum of the weights' magnitudes, and that of their squares."""
        joined = np.concatenate([*self._sparse, *self._dense]).astype(np.float64)
        return float(np.abs(joined).sum()), float(joined @ joined)

    # ---- configuration

    def get_config(self) -> dict[str, Any]:
        """Return the settings, as arguments of the constructor."""
        return {
            "loss_type": self.loss_type,
            "symmetric_l1_regularization": self.symmetric_l1_regularization,
            "symmetric_l2_regularization": self.symmetric_l2_regularization,
            "num_loss_partitions": self.num_loss_partitions,
            "adaptive": self.adaptive,
            "dtype": self.dtype.name,
        }


def _vectors(weights: Any, name: str) -> list[Array]:
    if not isinstance(weights, (list, tuple)):
        raise InvalidTypeError(f"{name} must be a list.")
    arrays = [w.numpy() if isinstance(w, Variable) else w for w in weights]
    for k, array in enumerate(arrays):
        if not isinstance(array, np.ndarray) or array.dtype not in (np.float32, np.float64):
            raise InvalidTypeError(f"{name}[{k}] must be an array of float32 or float64")
        if array.ndim != 1:
            raise InvalidArgumentError(f"{name}[{k}] must be a vector: {list(array.shape)}")
        if not array.flags.writeable:
            raise InvalidArgumentError(f"{name}[{k}] is read-only")
    return arrays


def _losses(loss: Any, products: Array, labels: Array) -> Array:
    signs = 2.0 * labels - 1
    if loss == "logistic_loss":
        return np.logaddexp(0, -signs * products)
    if loss == "squared_loss":
        return np.asarray((products - labels) ** 2 / 2)
    if loss == "poisson_loss":
        return np.asarray(np.exp(products) - labels * products)
    missing = np.maximum(0, 1 - signs * products)
    if loss == "hinge_loss":
        return missing
    return np.where(missing >= 1, missing - 0.5, missing**2 / 2)
