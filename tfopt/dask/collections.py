"""Data on a cluster as blocks: chunks of an array's rows, partitions of a frame, lists as given."""

from __future__ import annotations

from typing import Any

import dask

__all__ = ["blocks_of", "is_collection"]


def is_collection(X: Any) -> bool:
    """Return whether something is data in blocks: a Dask collection, or a list of blocks."""
    return dask.is_dask_collection(X) or _is_list(X)


def _is_list(X: Any) -> bool:
    return isinstance(X, (list, tuple)) and all(
        hasattr(block, "shape") or hasattr(block, "key") for block in X
    )


def blocks_of(X: Any, y: Any, sample_weight: Any) -> list[tuple[Any, Any, Any]]:
    """Return the X, y and weights of each block, most of them still to be computed.

    Parameters
    ----------
    X : dask array or DataFrame, shape (n_samples, n_features), or sequence
    y : dask array or Series, shape (n_samples,), or sequence
    sample_weight : as y, or None

    Raises
    ------
    TypeError
        If X is not in blocks.
    ValueError
        If the blocks of y or the weights are not as many.
    """
    if not is_collection(X):
        raise TypeError(
            "X must be a dask array, a dask dataframe or a list of blocks, not "
            f"{type(X).__name__}: data in memory are for tfopt.linear_model"
        )
    features = _listed(X)
    columns = [features]
    for name, values in (("y", y), ("sample_weight", sample_weight)):
        if values is None and name == "sample_weight":
            columns.append([None] * len(features))
            continue
        blocks = _listed(_aligned(X, values))
        if len(blocks) != len(features):
            raise ValueError(f"X has {len(features)} blocks, but {name} has {len(blocks)}")
        columns.append(blocks)
    if not features:
        raise ValueError("there are no blocks")
    return list(zip(*columns, strict=True))


def _aligned(X: Any, values: Any) -> Any:
    """Return values in the chunks of X's rows, if both are arrays of known sizes."""
    both = hasattr(X, "chunks") and hasattr(values, "chunks")
    if both and X.shape[0] == values.shape[0] and X.chunks[0] != values.chunks[0]:
        return values.rechunk((X.chunks[0],))
    return values


def _listed(values: Any) -> list[Any]:
    if isinstance(values, (list, tuple)):
        return list(values)
    if hasattr(values, "chunks"):
        if values.ndim == 2 and len(values.chunks[1]) > 1:
            values = values.rechunk({1: -1})
        return list(values.to_delayed().ravel())
    if hasattr(values, "to_delayed"):
        return list(values.to_delayed())
    raise TypeError(f"y and sample_weight must be in blocks as X is, not {type(values).__name__}")
