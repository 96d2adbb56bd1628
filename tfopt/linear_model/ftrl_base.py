"""The common parts of the FTRL estimators: state, kernel calls, epochs of a fit."""

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
from tfopt.errors import InvalidArgumentError, NotFiniteError
from tfopt.io import hash_features
from tfopt.io.hashed_rows import HashedRows
from tfopt.kernels.linear.ftrl import learn
from tfopt.linear_model.ftrl_stopping import check_stopping, held_out, improvement_of
from tfopt.linear_model.parameters import LossChoice
from tfopt.linear_model.predictions import LinearModel
from tfopt.linear_model.progress import ProgressBar
from tfopt.linear_model.validation import (
    check_count,
    check_number,
    checked_sparse,
)

__all__ = ["FTRLEstimator", "entries_of"]

#: The values of a CSR matrix, their columns, and the positions where rows begin and end.
Entries = tuple[np.ndarray, np.ndarray, np.ndarray]


def entries_of(X: Any) -> Entries:
    """Return the nonzero values of an array, or the stored values of a matrix."""
    if sparse.issparse(X):
        return X.data, X.indices, X.indptr.astype(X.indices.dtype, copy=False)
    # without SciPy, which takes longer than learning a row
    there, index = X != 0, np.int32 if X.size < 2**31 else np.int64
    n_rows, n_columns = X.shape
    if there.all():
        columns = np.tile(np.arange(n_columns, dtype=index), n_rows)
        return X.ravel(), columns, np.arange(0, X.size + 1, n_columns, dtype=index)
    indptr = np.zeros(n_rows + 1, index)
    np.cumsum(np.count_nonzero(there, axis=1), out=indptr[1:])
    return X[there], there.nonzero()[1].astype(index), indptr


def _hashed(X: Any, n_hashes: int) -> Any:
    """Return dicts, or a matrix with any number of columns, as rows of hashed features."""
    if isinstance(X, HashedRows):
        if X.shape[1] != n_hashes:
            raise InvalidArgumentError(
                f"X has features that were hashed to {X.shape[1]}, and the model has "
                f"n_hashes={n_hashes}"
            )
        return X.as_plain()
    if sparse.issparse(X):
        return hash_features(checked_sparse(X).tocsr(), n_hashes)
    return FeatureHasher(n_hashes).transform(X)


class FTRLEstimator(LossChoice, LinearModel):
    """The base class, with the weights and the two slots of FTRL-Proximal for each score.

    `_state` holds these three numbers, with shape (n_features + 1, n_scores, 3); the intercept is
    last. The averages of the weights after `_averaged` steps follow from `_averages`. `_means` are
    the averages after their first access, and None if `coef_` and `intercept_` are views.
    """

    _state: np.ndarray
    _averages: np.ndarray | None = None
    _averaged = 0

    @property
    def loss_(self) -> float:
        """The mean loss of the samples of the last epoch or call, before each was learned."""
        return self._mean_loss(0)

    @property
    def progressive_loss_(self) -> float:
        """The mean loss of all samples so far, before each was learned."""
        return self._mean_loss(1)

    def _mean_loss(self, row: int) -> float:
        check_is_fitted(self)
        total, weight = self._losses[row]
        return float(total / weight) if weight else math.nan

    def _check_options(self) -> None:
        self._check_loss()
        check_number("learning_rate", self.learning_rate, 0, open_end=True)
        check_number("initial_accumulator", self.initial_accumulator, 0)
        for name in ("beta", "l1", "l2"):
            check_number(name, getattr(self, name), 0)
        for name in ("batch_size", "max_iter"):
            check_count(name, getattr(self, name), 1)
        if self.n_hashes is not None:
            check_count("n_hashes", self.n_hashes, 1)
        check_count("average", self.average, 0)
        check_stopping(self)

    def _check_stream(self) -> None:
        """Refuse options that `partial_fit` does not support."""
        self._check_options()
        if "coef_" in vars(self) and "_state" not in vars(self):
            raise InvalidArgumentError(
                "the model was loaded from a file, which has its coefficients and not the sums "
                "that go on with them: pickle a model that is to learn more"
            )
        if self.early_stopping:
            raise ValueError("early_stopping=True needs fit: partial_fit takes one epoch")

    def _validate_features(self, X: Any, reset: bool, **options: Any) -> Any:
        if reset:
            self.reading_ = getattr(X, "reading", None)
        if self.n_hashes is not None:
            X = _hashed(X, int(self.n_hashes))
        return super()._validate_features(X, reset, **options)

    @property
    def _is_warm(self) -> bool:
        return bool(self.warm_start and "_state" in vars(self))

    def _start_fit(self, n_scores: int, n_features: int) -> None:
        """Initialize the state, or copy the state of the last fit."""
        if not self._is_warm:
            self._reset(n_scores, n_features)
            return
        last = self._state.shape[0] - 1
        if last != n_features:
            raise InvalidArgumentError(
                f"warm_start goes on from the last fit: it had {last} features and this one has "
                f"{n_features}; set warm_start=False"
            )
        self._state, self.n_iter_ = self._state.copy(), 0
        if self._averages is not None:
            self._averages = self._averages.copy()

    def _reset(self, n_scores: int, n_features: int) -> None:
        """Initialize the state."""
        self._state = np.zeros((n_features + 1, n_scores, 3))
        self._state[:, :, 1] = self.initial_accumulator
        self._losses = np.zeros((2, 2))  # last epoch, all: sums of losses and of weights
        self.n_iter_, self.t_, self._averaged, self._averages = 0, 0, 0, None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(type(self)().get_params())  # of an older version some may be missing
        super().__setstate__(state)
        for name in ("_state", "_averages"):
            if name in vars(self):  # `partial_fit` writes to it
                setattr(self, name, writable(getattr(self, name)))

    def __getattr__(self, name: str) -> Any:
        """Compute averages of weights on their first access."""
        means = vars(self).get("_means")
        if means is None or name not in ("coef_", "intercept_"):
            return object.__getattribute__(self, name)  # raises the error again
        if name not in means:
            means.update(zip(("coef_", "intercept_"), self._weights(), strict=True))
        return means[name]

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Restore all attributes after an exception, unless a piece of a stream is learned."""
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
        offset: np.ndarray | None,
        *,
        keeps: bool = False,
    ) -> None:
        """Learn from samples in an order; the time depends on the number of their entries only.

        Parameters
        ----------
        entries : tuple of ndarray
            The samples, by `entries_of`.
        targets : ndarray, shape (n_samples, n_scores)
        weights : ndarray, shape (n_samples,)
        order : ndarray of int
        offset : ndarray, shape (n_samples,), or None
        keeps : bool
            Whether batches before an error stay learned.

        Raises
        ------
        NotFiniteError
            If the weights overflow. The batches before have been learned.
        """
        losses = self._losses.copy()
        losses[0] = 0
        averages = self._averages if self.average else None
        changes: dict[str, Any] = {}
        if self.average:
            if averages is None:
                averages = np.zeros(self._state.shape[:2])
            changes["_means"] = {}
            # for another thread, which computes them until then
            self._means: dict[str, np.ndarray] | None = {}
            for name in ("coef_", "intercept_"):
                self.__dict__.pop(name, None)
        else:
            changes["_means"] = None
            changes["coef_"], changes["intercept_"] = self._views()
        changes |= {"_losses": losses, "_averages": averages, "n_iter_": self.n_iter_ + 1}
        learned = learn(
            *entries,
            order,
            targets,
            weights,
            np.empty(0) if offset is None else offset,
            self._state,
            np.empty((0, self._state.shape[1])) if averages is None else averages,
            losses,
            int(self.batch_size),
            self._phi.kernel,
            self._parameter(),
            bool(self.fit_intercept),
            float(self.learning_rate),
            float(self.beta),
            float(self.l1),
            float(self.l2),
            int(self.average),
            self.__dict__,
            changes,
        )
        if learned < order.size:
            kept = f"; the {learned} samples before have been learned" if keeps else ""
            raise NotFiniteError(
                f"the weights are no longer finite after {learned} of {order.size} samples: "
                f"lower learning_rate={self.learning_rate:g} or scale the features{kept}"
            )

    def _learn_epochs(
        self,
        X: Any,
        y: np.ndarray,
        targets: np.ndarray,
        weights: np.ndarray,
        given: np.ndarray,
        offset: np.ndarray | None,
    ) -> None:
        """Learn from the samples in the epochs of `fit`.

        Parameters
        ----------
        X : array or CSR matrix, shape (n_samples, n_features)
        y : ndarray, shape (n_samples,)
        targets : ndarray, shape (n_samples, n_scores)
        weights : ndarray, shape (n_samples,)
        given : ndarray, shape (n_samples,)
            The sample weights without class weights, for validation.
        offset : ndarray, shape (n_samples,), or None
        """
        samples, held = np.arange(X.shape[0]), None
        if self.early_stopping:
            samples, held = held_out(self, y, given)
        random = check_random_state(self.random_state)
        entries, improvement = entries_of(X), improvement_of(self)
        with ProgressBar(self.verbose, self.max_iter) as progress:
            for _ in range(self.max_iter):
                order = random.permutation(samples) if self.shuffle else samples
                self._learn(entries, targets, weights, order, offset)
                record = self._record()
                if held is not None:
                    known = None if offset is None else offset[held]
                    rows = X[held], y[held], given[held]
                    record["score"] = self._plain_model().score(*rows, offset=known)
                progress(record)
                if self._tell(record) or (improvement and improvement.has_ended(record)):
                    return
        if improvement:
            improvement.warn(self.max_iter)

    def _plain_model(self) -> Any:
        """Return a model with the same weights, for features that are checked and hashed."""
        model = type(self).__new__(type(self))
        model.__dict__.update(vars(self), n_hashes=None)
        model.__dict__.pop("feature_names_in_", None)
        return model

    def _record(self) -> dict[str, Any]:
        """Return the record of the last epoch for the callback."""
        return {"iteration": self.n_iter_, "samples": self.t_, "loss": self.loss_}

    def _tell(self, record: dict[str, Any]) -> bool:
        """Call the callback after an epoch; return whether it ends the fit."""
        answer = self.callback(record) if self.callback is not None else None
        return answer is True or (isinstance(answer, np.bool_) and bool(answer))

    def _views(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the coefficients and intercepts after the last step, as views of the state."""
        return self._shaped(self._state[:, :, 0])

    def _weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the coefficients and intercepts, averaged if any steps are averaged."""
        if self._averages is None or not self._averaged:
            return self._views()
        return self._shaped(self._state[:, :, 0] - self._averages / self._averaged)

    def _shaped(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Split weights of shape (n_features + 1, n_scores) into coefficients and intercepts."""
        return weights[:-1].T, weights[-1]
