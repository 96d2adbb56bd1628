"""Blocks where they lie: what runs on the workers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from distributed import get_worker
from scipy import sparse

from tfopt.dask.names import names_of
from tfopt.kernels.csr import check_csr, check_indices
from tfopt.linear_model.block_fit import Raw
from tfopt.linear_model.trees import fold

__all__ = ["Desk", "Holder", "LostError", "at", "check_sparse", "gathered", "load", "named", "step"]


class LostError(Exception):
    """A block is not where it was, or not as it was."""


class Holder:
    """A block on its worker, and how it was one round before.

    A round never changes a block but makes a new one. So a round that is asked for twice, because
    its answer was lost, gives the same answer.

    Parameters
    ----------
    raw : object
        The block as it begins.
    names : tuple of str, or None
        Of the features, if they have names.
    """

    def __init__(self, raw: Any, names: tuple[str, ...] | None = None) -> None:
        self.raw = raw
        self.names = names
        self._attempt = 0
        self._blocks: dict[int, Any] = {}

    def step(
        self,
        attempt: int,
        number: int,
        function: Callable[[Any, Any], tuple[Any, Any]],
        order: Any,
    ) -> Any:
        """Take a round, and return the answer.

        Parameters
        ----------
        attempt : int
            Of the fit; those before it have no say any more.
        number : int
            Of the round, from 1.
        function : callable
            From the block and the order to the next block and the answer.
        order : object

        Raises
        ------
        LostError
            If the block is not as the last round left it.
        """
        block = self.at(attempt, number - 1)
        moved, answer = function(block, order)
        if attempt < self._attempt:
            raise LostError("a later attempt has begun")
        self._attempt, self._blocks = attempt, {number - 1: block, number: moved}
        return answer

    def at(self, attempt: int, number: int) -> Any:
        """Return the block after a round of an attempt."""
        if number == 0:
            return self.raw
        if attempt != self._attempt or number not in self._blocks:
            raise LostError("the block was lost in the meantime")
        return self._blocks[number]


class Desk:
    """Where a worker is told rounds of its blocks: an actor, for a call takes less than a task.

    What is told and answered is pickled here, once for all workers, and is aligned afterwards.
    """

    def __init__(self) -> None:
        worker = get_worker()
        self._data = worker.data
        self._threads = ThreadPoolExecutor(worker.state.nthreads)

    def step(
        self, share: list[tuple[int, str, int]], attempt: int, told: bytes, n_places: int
    ) -> bytes:
        """Have blocks take a round; an error is an answer, too.

        Parameters
        ----------
        share : list of tuple
            Of each block its place in the sum, the key of its holder, and the round's number.
        attempt : int
        told : bytes
            The function and the order.
        n_places : int
            How many blocks take the round.

        Returns
        -------
        bytes
            Whether there is an answer; what `step` returns, or the error.
        """
        try:
            function, order = pickle.loads(told)
            taken = self._threads.map(
                lambda one: self._holder(one[1]).step(attempt, one[2], function, order), share
            )
            places = [(0, place) for place, _, _ in share]
            found = True, fold(dict(zip(places, taken, strict=True)), n_places)
        except Exception as error:
            return pickle.dumps((False, error))
        return pickle.dumps(found, protocol=5)

    def _holder(self, key: str) -> Holder:
        try:
            holder: Holder = self._data[key]
        except KeyError:
            raise LostError("the block is not where it was") from None
        return holder


def step(
    share: list[tuple[int, Holder, int]],
    attempt: int,
    function: Callable[[Any, Any], tuple[Any, Any]],
    order: Any,
    n_places: int,
) -> dict[tuple[int, int], Any]:
    """Have some blocks take a round, and return what is to be known of their answers' sum.

    Parameters
    ----------
    share : list of tuple
        Of each block its place in the sum, the block, and the round's number.
    attempt, function, order
        See `Holder.step`.
    n_places : int
        How many blocks take the round.
    """
    answers = {
        (0, place): holder.step(attempt, number, function, order) for place, holder, number in share
    }
    return fold(answers, n_places)


def gathered(parts: list[dict[tuple[int, int], Any]], n_places: int) -> dict[tuple[int, int], Any]:
    """Return what is to be known of the sum of some shares."""
    return fold({node: answer for part in parts for node, answer in part.items()}, n_places)


def at(
    holder: Holder, attempt: int, number: int, function: Callable[[Any, Any], Any], order: Any
) -> Any:
    """Return what a function makes of a block, as it is after a round, and an order."""
    return function(holder.at(attempt, number), order)


def named(share: list[tuple[int, Holder]]) -> dict[tuple[str, ...] | None, int]:
    """Return the names that some blocks' features have, each with the first block of it."""
    found: dict[tuple[str, ...] | None, int] = {}
    for number, holder in share:
        found.setdefault(holder.names, number)
    return found


def load(number: int, X: Any, y: Any, weight: Any, duals: Any, of_classes: bool) -> Holder:
    """Check a block, and hold it.

    Parameters
    ----------
    number : int
        Its place among the blocks.
    X : array, DataFrame or sparse matrix, shape (n_rows, n_features)
    y : array or Series, shape (n_rows,)
    weight : array or Series, shape (n_rows,), or None
    duals : ndarray or None
    of_classes : bool
        Whether y has classes, which need not be numbers.

    Raises
    ------
    ValueError
        It names the block and, if it is one, the row.
    """
    name = f"block {number}"
    try:
        names = names_of(X)
        X = _features(X)
        labels = np.asarray(y) if of_classes else np.asarray(y, np.float64)
        weights = np.ones(X.shape[0]) if weight is None else np.array(weight, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from error
    for what, values in (("y", labels), ("sample_weight", weights)):
        if values.shape != (X.shape[0],):
            raise ValueError(f"{name}: {what} has the shape {values.shape}, X has {X.shape}")
    _refuse(name, "X", _not_finite(X), "is not finite")
    if labels.dtype.kind == "O":
        missing = [label is None or label != label for label in labels]
        _refuse(name, "y", np.array(missing, bool), "is missing")
        _check_order(name, labels)
    if labels.dtype.kind == "f":
        _refuse(name, "y", ~np.isfinite(labels), "is not finite")
        if of_classes:
            _refuse(name, "y", labels != np.rint(labels), "is no class but a fraction")
    _refuse(name, "sample_weight", ~np.isfinite(weights), "is not finite")
    _refuse(name, "sample_weight", weights < 0, "is negative")
    return Holder(Raw(number, X, labels, weights, duals), names)


def _check_order(name: str, labels: np.ndarray) -> None:
    try:
        np.unique(labels)
    except TypeError as error:
        raise ValueError(f"{name}: y has labels of several kinds: {error}") from error


def _features(X: Any) -> Any:
    if sparse.issparse(X):
        check_sparse(X)  # before anything follows them
        X = sparse.csr_matrix(X)
        return X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    array = np.asarray(X)
    if array.ndim != 2:
        raise ValueError(f"X must have rows and columns, not the shape {array.shape}")
    kept = array.dtype in (np.float32, np.float64)
    return np.ascontiguousarray(array, None if kept else np.float64)


def check_sparse(X: Any) -> None:
    """Refuse a sparse matrix whose indices are not those of its rows and columns.

    Raises
    ------
    ValueError
        It names the array and the place.
    """
    if X.format in ("csr", "csc"):
        shape = X.shape if X.format == "csr" else X.shape[::-1]
        # a message has its arrays anywhere
        data, indices, indptr = (
            np.require(a, requirements="A") for a in (X.data, X.indices, X.indptr)
        )
        check_csr(data, indices, indptr, shape, "X")
    elif X.format == "coo":
        for k, what in enumerate(("row", "col")):
            indices = np.require(getattr(X, what), requirements="A")
            check_indices(indices, X.shape[k], f"X.{what}")


def _not_finite(X: Any) -> np.ndarray:
    """Return whether each row has a number that is not finite."""
    bad = np.zeros(X.shape[0], bool)
    if sparse.issparse(X):
        places = np.flatnonzero(~np.isfinite(X.data))
        bad[np.searchsorted(X.indptr, places, side="right") - 1] = True
    elif not np.isfinite(X.sum()):  # no array of flags unless there is something to be found
        bad[:] = ~np.isfinite(X).all(axis=1)
    return bad


def _refuse(name: str, what: str, bad: np.ndarray, why: str) -> None:
    if bad.any():
        raise ValueError(f"{name}, row {int(bad.argmax())}: {what} {why}")
