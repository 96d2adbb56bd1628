"""A linear model trained by SDCA on batches of examples that are identified by ids."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfopt.core.effects import computes, prepare_writes, writes
from tfopt.core.locks import ProcessLock
from tfopt.errors import CheckpointError, InvalidArgumentError, InvalidTypeError
from tfopt.kernels.linear.visits import EXAMPLE, terms
from tfopt.kernels.tf_sdca.fingerprint_table import FingerprintTable
from tfopt.sdca_model.batches import Batch, SparseFeatureColumn, batch_of, rounds
from tfopt.sdca_model.files import check_same, save_model, saved_model
from tfopt.sdca_ops import SdcaResult, sdca_optimizer, sdca_shrink_l1
from tfopt.sdca_ops.losses import LOSS_TYPES, LossName
from tfopt.variable import Variable

__all__ = ["SDCAModel", "SparseFeatureColumn"]

Array = np.ndarray[Any, Any]


class SDCAModel:
    """A linear model trained on batches of examples that may recur.

    Each example has an id, which identifies its dual variable when the example recurs. Threads may
    share a model: its methods exclude each other.

    Parameters
    ----------
    sparse_features_weights, dense_features_weights : list of float arrays or Variables
        One vector for each group of sparse features, with an element for each feature id, and one
        for each group of dense features, with an element for each column. `update_weights` writes
        the weights of the model to them; their initial contents have no effect.
    loss_type : str
        As in :func:`~tfopt.sdca_ops.sdca_optimizer`.
    symmetric_l1_regularization, symmetric_l2_regularization : float
        The model minimizes ``sum(weight * loss) + l1 * |w|_1 + l2 / 2 * |w|^2``; l2 is positive.
    num_loss_partitions : int, default 1
        The number of models, trained on disjoint examples, whose changes are added.
    adaptive : bool, default True
        Sample examples of a batch in proportion to their distance from the optimum.
    dtype : {float32, float64}
        The dtype of dual variables, to which features are also converted.

    Raises
    ------
    InvalidArgumentError
        If a setting is out of range, or there are no weights.
    InvalidTypeError
        If the weights are not lists of float32 or float64 vectors.

    References
    ----------
    TensorFlow's ``SDCAModel``, on which its estimators' ``LinearSDCA`` is built.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.sdca_model import SDCAModel
    >>> weights = np.zeros(2)
    >>> model = SDCAModel([], [weights], "squared_loss", adaptive=False)
    >>> batch = {
    ...     "example_ids": ["a", "b"],
    ...     "example_labels": [10, -5],
    ...     "dense_features": [np.eye(2)],
    ... }
    >>> for _ in range(3):
    ...     model.partial_fit(batch)
    >>> model.update_weights()
    >>> weights
    array([ 5. , -2.5])
    >>> model.predictions(batch)
    array([ 5. , -2.5])
    >>> abs(model.approximate_duality_gap()) < 1e-6
    True
    """

    def __init__(
        self,
        sparse_features_weights: Sequence[Any],
        dense_features_weights: Sequence[Any],
        loss_type: LossName = "logistic_loss",
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
        self._table = FingerprintTable()
        self._state: Array = np.zeros((8, 4), dtype)  # rows are numbered by the table
        self._lock = ProcessLock()
        self._try_op()

    def _try_op(self) -> None:
        """Check the settings by calling the op without examples."""
        none = np.zeros(0)
        self._visit(
            Batch(
                np.zeros((0, 2), np.int64),
                none,
                none,
                [SparseFeatureColumn(none.astype(int), none.astype(int)) for _ in self._sparse],
                [np.zeros((0, w.size)) for w in self._dense],
            ),
            self._state[:0],
            [(none.astype(np.int64), w[:0]) for w in self._unshrunk_sparse],
            self._unshrunk_dense,
        )

    # ---- training

    @writes()
    def partial_fit(self, examples: Mapping[str, Any], seed: int | None = None) -> None:
        """Visit the examples of a batch.

        Parameters
        ----------
        examples : mapping
            ``example_ids``: strings; ``example_labels``; ``example_weights``, ones by default;
            ``sparse_features``: a list of :class:`SparseFeatureColumn` or tuples like it;
            ``dense_features``: a list of arrays of shape (n, width). Examples with the same id are
            visited one after the other.
        seed : int, optional
            As in :func:`~tfopt.sdca_ops.sdca_optimizer`.

        Raises
        ------
        InvalidArgumentError
            As in the op; also if a feature id has no weight, or a key is missing or unknown.
            Nothing has changed.
        InvalidTypeError
            If ids are not strings.
        """
        batch = batch_of(examples, self._sparse, self._dense, trains=True)
        with self._lock.held():
            self._fit_batch(batch, seed)

    def _fit_batch(self, batch: Batch, seed: int | None) -> None:
        first, local = _distinct(batch.fingerprints)
        known = self._table.find(batch.fingerprints[first])
        state = np.where((known >= 0)[:, None], self._state[known], 0).astype(self._state.dtype)
        ids = [np.unique(column.feature_indices) for column in batch.sparse]
        # on copies, which replace the current values only if everything succeeds
        sparse = [(column, w[column]) for column, w in zip(ids, self._unshrunk_sparse, strict=True)]
        dense = [w.copy() for w in self._unshrunk_dense]
        for chosen in rounds(local):
            part = batch if len(chosen) == len(local) else batch.rows(chosen)
            result = self._visit(part, state[local[chosen]], sparse, dense, seed)
            state[local[chosen]] = result.out_example_state_data
            for (_, weights), delta in zip(sparse, result.out_delta_sparse_weights, strict=True):
                weights += delta
            for weights, delta in zip(dense, result.out_delta_dense_weights, strict=True):
                weights += delta
        numbers = self._table.add(batch.fingerprints[first])
        self._reserve()
        self._state[numbers] = state
        for slot, (column, weights) in zip(self._unshrunk_sparse, sparse, strict=True):
            slot[column] = weights
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
            dtype=self._state.dtype,
        )

    def _reserve(self) -> None:
        while len(self._state) < len(self._table):
            self._state = np.concatenate([self._state, np.zeros_like(self._state)])

    @writes()
    def update_weights(self) -> None:
        """Write the weights of the model into the arrays that were passed to the constructor."""
        with self._lock.held():
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

    # ---- evaluation of the weights as of the last `update_weights`

    @computes
    def predictions(self, examples: Mapping[str, Any]) -> Array:
        """Return the prediction for each example, in float64.

        A probability for "logistic_loss", a mean for "poisson_loss", the linear predictor for the
        other losses. Neither labels nor ids are needed.
        """
        products = self._products(batch_of(examples, self._sparse, self._dense, trains=False))
        with np.errstate(over="ignore"):
            return LOSS_TYPES[self.loss_type].mean(products)

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
        """Return the weighted mean loss of examples."""
        batch = batch_of(examples, self._sparse, self._dense, trains=True)
        seen = np.zeros(len(batch.labels), EXAMPLE)
        seen["y"], seen["weight"] = batch.labels, batch.weights
        if LOSS_TYPES[self.loss_type].has_classes:
            seen["y"] = 2 * seen["y"] - 1
        losses, _ = terms(seen, np.zeros(len(seen)), self._products(batch), self.loss_type)
        return float(np.sum(losses) / np.sum(seen["weight"]))

    @computes
    def regularized_loss(self, examples: Mapping[str, Any]) -> float:
        """Return the objective of the model, divided by the sum of the examples' weights."""
        weights = batch_of(examples, self._sparse, self._dense, trains=True).weights
        l1, squares = self._norms()
        penalty = (
            self.symmetric_l1_regularization * l1 + self.symmetric_l2_regularization * squares / 2
        )
        return self.unregularized_loss(examples) + float(penalty / np.sum(weights))

    @computes
    def approximate_duality_gap(self) -> float:
        """Return the duality gap of all examples visited so far, over the sum of their weights.

        It is approximate, because each loss was computed when the example was visited. NaN before
        the first visit.
        """
        with self._lock.held():
            state = self._state[: len(self._table)].astype(np.float64)
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
        """Return the sums of the weights' magnitudes and of their squares."""
        joined = np.concatenate([*self._sparse, *self._dense]).astype(np.float64)
        return float(np.abs(joined).sum()), float(joined @ joined)

    # ---- configuration and files

    def get_config(self) -> dict[str, Any]:
        """Return the settings, as arguments of the constructor."""
        return {
            "loss_type": self.loss_type,
            "symmetric_l1_regularization": self.symmetric_l1_regularization,
            "symmetric_l2_regularization": self.symmetric_l2_regularization,
            "num_loss_partitions": self.num_loss_partitions,
            "adaptive": self.adaptive,
            "dtype": self._state.dtype.name,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file, as :func:`tfopt.checkpoints.save` does.

        Parameters
        ----------
        path : path-like
            Must end in ``.npz`` or ``.safetensors``. An existing file is replaced only when the new
            one is complete.

        Raises
        ------
        InvalidArgumentError
            If the name has another extension.
        OSError
            If the file cannot be written; an existing file is unchanged.
        """
        with self._lock.held():
            parts = {
                "config": self.get_config(),
                "fingerprints": self._table.fingerprints,
                "state": self._state[: len(self._table)],
                "sparse": self._unshrunk_sparse,
                "dense": self._unshrunk_dense,
            }
            save_model(path, parts)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        sparse_features_weights: Sequence[Any],
        dense_features_weights: Sequence[Any],
    ) -> SDCAModel:
        """Return a model with the state of a file, and write its weights to the arrays.

        Raises
        ------
        CheckpointError
            If the file is damaged or does not contain an SDCAModel.
        InvalidArgumentError
            If the shapes or dtypes of the arrays differ from the saved ones.
        OSError
            If the file cannot be read.
        """
        saved = saved_model(path)
        arguments = {"sparse": sparse_features_weights, "dense": dense_features_weights}
        for kind, weights in arguments.items():
            check_same(kind, _vectors(weights, f"{kind}_features_weights"), saved[kind])
        try:
            model = cls(sparse_features_weights, dense_features_weights, **saved["config"])
        except (InvalidArgumentError, TypeError) as error:
            raise CheckpointError(f"{os.fspath(path)!r} has an invalid setting: {error}") from error
        slots = [*model._unshrunk_sparse, *model._unshrunk_dense]
        for slot, value in zip(slots, [*saved["sparse"], *saved["dense"]], strict=True):
            slot[...] = value
        model._table.add(saved["fingerprints"])
        model._reserve()
        model._state[: len(saved["state"])] = saved["state"]
        model.update_weights()
        return model


def _vectors(weights: Any, name: str) -> list[Array]:
    if not isinstance(weights, (list, tuple)):
        raise InvalidTypeError(f"{name} must be a list.")
    arrays = [w.numpy() if isinstance(w, Variable) else w for w in weights]
    for k, array in enumerate(arrays):
        if not isinstance(array, np.ndarray) or array.dtype not in (np.float32, np.float64):
            raise InvalidTypeError(f"{name}[{k}] must be an array of float32 or float64")
        if array.ndim != 1:
            raise InvalidArgumentError(
                f"{name}[{k}] must be a vector, not of shape {list(array.shape)}"
            )
        if not array.flags.writeable:
            raise InvalidArgumentError(f"{name}[{k}] is read-only")
    return arrays


def _distinct(fingerprints: Array) -> tuple[Array, Array]:
    """Return the first row of each distinct fingerprint, and the fingerprint number of each row."""
    _, first, inverse = np.unique(fingerprints, axis=0, return_index=True, return_inverse=True)
    return first, inverse.reshape(-1)


def __dir__() -> list[str]:
    return __all__
