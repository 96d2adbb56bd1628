"""What the FTRL estimators share: the state, the kernel's calls and the epochs of a fit."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.feature_extraction import FeatureHasher
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from tfopt.core.copies import writable
from tfopt.errors import NotFiniteError
from tfopt.io import hash_features
from tfopt.kernels.stream.ftrl import learn
from tfopt.linear_model.predictions import LinearModel
from tfopt.linear_model.sdca_results import ProgressBar
from tfopt.linear_model.validation import (
    check_count,
    check_number,
    checked_sparse,
)

__all__ = ["FTRLEstimator", "entries_of"]


#: The values of a CSR matrix, their columns, and where each row's begin and end.
Entries = tuple[np.ndarray, np.ndarray, np.ndarray]


def entries_of(X: Any) -> Entries:
    """Return the values that are not 0."""
    if sparse.issparse(X):
        return X.data, X.indices, X.indptr.astype(X.indices.dtype, copy=False)
    # not by SciPy, which takes longer than to learn a row
    there, index = X != 0, np.int32 if X.size < 2**31 else np.int64
    n_rows, n_columns = X.shape
    if there.all():
        columns = np.tile(np.arange(n_columns, dtype=index), n_rows)
        return X.ravel(), columns, np.arange(0, X.size + 1, n_columns, dtype=index)
    indptr = np.zeros(n_rows + 1, index)
    np.cumsum(np.count_nonzero(there, axis=1), out=indptr[1:])
    return X[there], there.nonzero()[1].astype(index), indptr


class FTRLEstimator(LinearModel):
    """The base class: weights and the two slots of FTRL-Proximal, one row for each score.

    `_state` holds these three, with shape (n_features + 1, n_scores, 3); the intercept is last.
    """

    @property
    def _kernel_loss(self) -> str:
        """The loss, as the kernels name it."""
        raise NotImplementedError

    @property
    def loss_(self) -> float:
        """The mean loss of the samples of the last epoch or call, each before it was learned."""
        return self._mean_loss(0)

    @property
    def progressive_loss_(self) -> float:
        """The mean loss of all samples so far, each before it was learned."""
        return self._mean_loss(1)

    def _mean_loss(self, row: int) -> float:
        check_is_fitted(self)
        total, weight = self._losses[row]
        return float(total / weight) if weight else math.nan

    def _check_options(self) -> None:
        check_number("learning_rate", self.learning_rate, 0, open_end=True)
        check_number("initial_accumulator", self.initial_accumulator, 0)
        for name in ("beta", "l1", "l2"):
            check_number(name, getattr(self, name), 0)
        for name in ("batch_size", "max_iter"):
            check_count(name, getattr(self, name), 1)
        if self.n_hashes is not None:
            check_count("n_hashes", self.n_hashes, 1)

    def _validate_features(self, X: Any, reset: bool, **options: Any) -> Any:
        if self.n_hashes is not None and sparse.issparse(X):
            X = hash_features(checked_sparse(X).tocsr(), int(self.n_hashes))
        elif self.n_hashes is not None:
            X = FeatureHasher(int(self.n_hashes)).transform(X)
        return super()._validate_features(X, reset, **options)

    def _reset(self, n_scores: int, n_features: int) -> None:
        """Initialize the state."""
        self._state = np.zeros((n_features + 1, n_scores, 3))
        self._state[:, :, 1] = self.initial_accumulator
        self._losses = np.zeros((2, 2))  # the last epoch's and all: sums of losses and of weights
        self.n_iter_, self.t_, self._averaged = 0, 0, 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_state" in vars(self):  # which `partial_fit` writes
            self._state = writable(self._state)

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Restore all attributes if anything is raised, unless a piece of a stream is learned."""
        before = self.__dict__.copy()
        try:
            yield
        except BaseException:
            after = self.__dict__
            same_state = "_state" in before and before["_state"] is after["_state"]
            if not (same_state and before["t_"] != after["t_"]):
                after.clear()
                after.update(before)
            raise

    def _learn(
        self,
        entries: Entries,
        targets: np.ndarray,
        weights: np.ndarray,
        order: np.ndarray,
        *,
        keeps: bool = False,
    ) -> None:
        """Learn from samples in an order; it costs what their entries cost.

        Parameters
        ----------
        entries : tuple of ndarray
            The samples, by `entries_of`.
        targets : ndarray, shape (n_samples, n_scores)
        weights : ndarray, shape (n_samples,)
        order : ndarray of int
        keeps : bool
            Whether what is learned before an error stays.

        Raises
        ------
        NotFiniteError
            If the weights overflow. The batches before that have been learned.
        """
        coef, intercept = self._weights()
        losses = self._losses.copy()
        losses[0] = 0
        learned = learn(
            *entries,
            order,
            targets,
            weights,
            self._state,
            np.empty((0, self._state.shape[1])),
            losses,
            int(self.batch_size),
            self._kernel_loss,
            1.0,
            bool(self.fit_intercept),
            float(self.learning_rate),
            float(self.beta),
            float(self.l1),
            float(self.l2),
            0,
            self.__dict__,
            {
                "coef_": coef,
                "intercept_": intercept,
                "_losses": losses,
                "n_iter_": self.n_iter_ + 1,
            },
        )
        if learned < order.size:
            kept = f"; the {learned} samples before have been learned" if keeps else ""
            raise NotFiniteError(
                f"the weights are no longer finite after {learned} of {order.size} samples: "
                f"lower learning_rate={self.learning_rate:g} or scale the features{kept}"
            )

    def _learn_epochs(self, X: Any, targets: np.ndarray, weights: np.ndarray) -> None:
        """Learn from the samples in the epochs of `fit`."""
        entries = entries_of(X)
        with ProgressBar(self.verbose, self.max_iter) as progress:
            for order in self._orders(X.shape[0]):
                self._learn(entries, targets, weights, order)
                record = self._record()
                progress(record)
                if self._tell(record):
                    break

    def _record(self) -> dict[str, Any]:
        """Return what there is to tell of the last epoch."""
        return {"iteration": self.n_iter_, "samples": self.t_, "loss": self.loss_}

    def _tell(self, record: dict[str, Any]) -> bool:
        """Call the callback after an epoch, and return whether it ends the fit."""
        answer = self.callback(record) if self.callback is not None else None
        return answer is True or (isinstance(answer, np.bool_) and bool(answer))

    def _weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the coefficients and the intercepts, which are views of the state."""
        return self._state[:-1, :, 0].T, self._state[-1, :, 0]

    def _orders(self, n_samples: int) -> Iterator[np.ndarray]:
        """Yield the order of the samples in each epoch of `fit`."""
        random = check_random_state(self.random_state)
        in_order = np.arange(n_samples)
        for _ in range(self.max_iter):
            yield random.permutation(n_samples) if self.shuffle else in_order
