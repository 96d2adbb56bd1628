"""The workers' part of FTRL: learn from one block after another, and pass the model on."""

from __future__ import annotations

import copy
import itertools
import numbers
import pickle
from typing import Any

import dask
import numpy as np
from dask.utils import parse_bytes

from tfopt.dask.cluster import gathered
from tfopt.io.libsvm import add_labels
from tfopt.linear_model.validation import checked_sparse

__all__ = ["epoch", "label_totals", "load_block", "summarize_labels"]


def epoch(client: Any, state: Any, held: list[Any], classes: np.ndarray | None) -> Any:
    """Return the state after all blocks to the client: a lost worker costs at most an epoch."""
    links = []
    try:
        for part in _parts(state):
            links.append(client.submit(bytes, part, pure=False))
        links.append(client.submit(_joined, [*links], pure=False))
        for number, block in enumerate(held):
            before = links[-1]
            links.append(client.submit(_learn_block, before, block, number, classes, pure=False))
        return client.sync(gathered, client, links[-1:])[0]
    finally:  # an error's traceback would keep them alive
        for future in links:
            future.release()


def _parts(state: Any) -> list[bytes]:
    """Return a state in parts so small that Dask does not warn of them.

    They are part of tasks, unlike scattered data, so that the client can send them again.
    """
    limit = parse_bytes(dask.config.get("distributed.admin.large-graph-warning-threshold"))
    pickled, size = pickle.dumps(state), max(1, limit // 2)
    return [pickled[start : start + size] for start in range(0, len(pickled), size)]


def _joined(parts: list[bytes]) -> Any:
    return pickle.loads(b"".join(parts))


def load_block(number: int, X: Any, y: Any, weight: Any, offset: Any) -> tuple[Any, ...]:
    """Return a block in memory, after checking its sparse matrices."""
    try:
        X = checked_sparse(X)
    except ValueError as error:
        raise ValueError(f"block {number}: {error}") from error
    if isinstance(offset, numbers.Real):
        offset = np.full(len(y), offset, np.float64)
    return X, *(None if values is None else np.asarray(values) for values in (y, weight, offset))


def summarize_labels(block: tuple[Any, ...], of_classes: bool) -> tuple[int, dict[Any, float]]:
    """Return the number of samples, and the weight of each label."""
    _, y, weight, _ = block
    if not of_classes:
        return len(y), {}
    totals: dict[Any, float] = {}
    add_labels(totals, y, weight)
    return len(y), totals


def label_totals(sums: list[dict[Any, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels of all blocks, ascending, and their weights."""
    totals: dict[Any, float] = {}
    for label, weight in itertools.chain.from_iterable(each.items() for each in sums):
        totals[label] = totals.get(label, 0.0) + weight
    labels = np.unique([*totals])
    return labels, np.array([totals[label] for label in labels])


def _learn_block(
    state: tuple[Any, Any], block: tuple[Any, ...], number: int, classes: np.ndarray | None
) -> tuple[Any, Any]:
    """Return the model after one more block, and the random generator."""
    model, random = copy.deepcopy(state)  # another attempt may start from the same state
    X, *of_rows = block
    if model.shuffle:
        order = random.permutation(len(of_rows[0]))
        X = _reordered(X, order)
        of_rows = [None if values is None else values[order] for values in of_rows]
    y, weight, offset = of_rows
    classes_option = {} if classes is None else {"classes": classes}
    try:
        model.partial_fit(X, y, sample_weight=weight, offset=offset, **classes_option)
    except ValueError as error:
        raise ValueError(f"block {number}: {error}") from error
    return model, random


def _reordered(X: Any, order: np.ndarray) -> Any:
    if hasattr(X, "iloc"):
        return X.iloc[order]
    return X[order] if hasattr(X, "shape") else [X[k] for k in order]
