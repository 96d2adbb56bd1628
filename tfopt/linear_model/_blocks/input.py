"""The data of a block: conversion, checks and feature names."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from scipy import sparse

from tfopt.errors import InvalidArgumentError
from tfopt.linear_model.loss_record import PointwiseLoss
from tfopt.linear_model.validation import check_offset, checked_sparse, without_offset

__all__ = [
    "BlockInput",
    "FirstBlocks",
    "common_feature_names",
    "load_block",
    "set_feature_names",
]


@dataclasses.dataclass(frozen=True)
class BlockInput:
    """The data of a block.

    Attributes
    ----------
    number : int
    X : array or CSR matrix, shape (n_rows, n_features)
    y, weight : ndarray, shape (n_rows,)
    duals : ndarray, shape (n_problems, n_rows), or None
        The initial dual variables.
    names : tuple of str, or None
        The names of the features, if they have any.
    factor : ndarray, shape (n_rows,), or float
        With an offset, the factor that converts dual variables of y to those of the targets.
    """

    number: int
    X: Any
    y: np.ndarray
    weight: np.ndarray
    duals: np.ndarray | None = None
    names: tuple[str, ...] | None = None
    factor: np.ndarray | float = 1.0


def load_block(
    number: int, X: Any, y: Any, weight: Any, offset: Any, duals: Any, phi: PointwiseLoss
) -> BlockInput:
    """Convert and check the data of a block.

    Parameters
    ----------
    number : int
        Its position among the blocks.
    X : array, DataFrame or sparse matrix, shape (n_rows, n_features)
    y : array or Series, shape (n_rows,)
    weight : array or Series, shape (n_rows,), or None
    offset : array or Series, shape (n_rows,), or float, or None
        Only for regression; it is absorbed by the targets and weights.
    duals : ndarray or None
    phi : PointwiseLoss
        For classification, labels need not be numbers.

    Raises
    ------
    ValueError
        The message names the block and, if possible, the row.
    """
    name, of_classes = f"block {number}", phi.is_classification
    try:
        names = _feature_names(X)
        X = _as_features(X)
        labels = np.asarray(y) if of_classes else np.asarray(y, np.float64)
        weights = np.ones(X.shape[0]) if weight is None else np.array(weight, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from error
    for what, values in (("y", labels), ("sample_weight", weights)):
        if values.shape != (X.shape[0],):
            raise ValueError(f"{name}: {what} has the shape {values.shape}, X has {X.shape}")
    _refuse_rows(name, "X", _not_finite(X), "is not finite")
    if labels.dtype.kind == "O":
        missing = [label is None or label != label for label in labels]
        _refuse_rows(name, "y", np.array(missing, bool), "is missing")
        _check_order(name, labels)
    if labels.dtype.kind == "f":
        _refuse_rows(name, "y", ~np.isfinite(labels), "is not finite")
        if of_classes:
            _refuse_rows(name, "y", labels != np.rint(labels), "is no class but a fraction")
    _refuse_rows(name, "sample_weight", ~np.isfinite(weights), "is not finite")
    _refuse_rows(name, "sample_weight", weights < 0, "is negative")
    if duals is not None and duals.shape[1] != X.shape[0]:
        raise ValueError(
            f"{name}: warm_start goes on from the last fit: the block had {duals.shape[1]} samples "
            f"and has {X.shape[0]} now; set warm_start=False"
        )
    outside = np.zeros(0, bool) if of_classes else phi.is_outside(labels)
    if outside.any():
        raise ValueError(
            f"{name}, row {int(outside.argmax())}: loss={phi.name!r} needs {phi.domain} targets"
        )
    factor: np.ndarray | float = 1.0
    if offset is not None:
        try:
            if of_classes:
                raise InvalidArgumentError("an offset of classes is not for blocks: use fit")
            known = check_offset(offset, X)
            assert known is not None
            labels, weights, factor = without_offset(phi, labels, weights, known)
        except ValueError as error:
            raise type(error)(f"{name}: {error}") from error
    if duals is not None and np.ndim(factor):
        duals = duals / factor
    return BlockInput(number, X, labels, weights, duals, names, factor)


def _check_order(name: str, labels: np.ndarray) -> None:
    try:
        np.unique(labels)
    except TypeError as error:
        raise ValueError(f"{name}: y has labels of several kinds: {error}") from error


def _as_features(X: Any) -> Any:
    if sparse.issparse(X):
        X = sparse.csr_matrix(checked_sparse(X))
        return X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    array = np.asarray(X)
    if array.ndim != 2:
        raise ValueError(f"X must have rows and columns, not the shape {array.shape}")
    kept = array.dtype in (np.float32, np.float64)
    return np.ascontiguousarray(array, None if kept else np.float64)


def _not_finite(X: Any) -> np.ndarray:
    """Return a mask of the rows that have a number that is not finite."""
    bad = np.zeros(X.shape[0], bool)
    if sparse.issparse(X):
        places = np.flatnonzero(~np.isfinite(X.data))
        bad[np.searchsorted(X.indptr, places, side="right") - 1] = True
    elif not np.isfinite(X.sum()):  # saves an array of flags in the usual case
        bad[:] = ~np.isfinite(X).all(axis=1)
    return bad


def _refuse_rows(name: str, what: str, bad: np.ndarray, why: str) -> None:
    if bad.any():
        raise ValueError(f"{name}, row {int(bad.argmax())}: {what} {why}")


def _feature_names(X: Any) -> tuple[str, ...] | None:
    """Return the column names of a data frame if all are strings, else None."""
    names = tuple(getattr(X, "columns", ()))
    return names if names and all(isinstance(name, str) for name in names) else None


@dataclasses.dataclass(frozen=True)
class FirstBlocks:
    """The lists of feature names (or None) that occur in blocks, each with its first block."""

    by_names: dict[tuple[str, ...] | None, int]

    def __add__(self, other: FirstBlocks) -> FirstBlocks:
        return FirstBlocks(
            {
                names: min(part.get(names, number) for part in (self.by_names, other.by_names))
                for names, number in (self.by_names | other.by_names).items()
            }
        )


def common_feature_names(first_blocks: FirstBlocks) -> tuple[str, ...] | None:
    """Return the feature names, which must be equal in all blocks.

    Raises
    ------
    ValueError
        If they differ; the message names the blocks and a feature.
    """
    (first, names), *others = sorted(
        (number, names) for names, number in first_blocks.by_names.items()
    )
    if not others:
        return names
    other, differing = others[0]
    if names is None or differing is None:
        with_names, without = (other, first) if names is None else (first, other)
        raise ValueError(f"block {with_names} has feature names, but block {without} has none")
    if len(names) != len(differing):
        raise ValueError(
            f"block {other} has {len(differing)} features, but block {first} has {len(names)}"
        )
    place = next(k for k, pair in enumerate(zip(names, differing, strict=True)) if len({*pair}) > 1)
    raise ValueError(
        f"the names of features must be the same, in the same order, in all blocks: number {place} "
        f"is {differing[place]!r} in block {other}, but {names[place]!r} in block {first}"
    )


def set_feature_names(model: Any, names: tuple[str, ...] | None) -> None:
    """Set `feature_names_in_` of a fitted model, or delete it if there are no names."""
    if names is not None:
        model.feature_names_in_ = np.array(names, object)
    elif hasattr(model, "feature_names_in_"):
        del model.feature_names_in_
