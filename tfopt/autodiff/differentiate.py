"""Gradients of a tape's record: of sums of targets, and of each element."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.autodiff.backward import added, as_gradient, backward
from tfopt.autodiff.operands import as_tensor
from tfopt.core import engine
from tfopt.core.engine import Readable, Tape, Tensor
from tfopt.indexed_slices import densify

__all__ = ["dense", "gradients", "gradients_of_columns", "gradients_of_elements", "zeros_like"]


def gradients(record: Tape, targets: list[Any], sources: list[Any], seeds: list[Any]) -> list[Any]:
    """Return the gradient of the sum of targets for each source: a tensor, rows or None.

    Parameters
    ----------
    record : Tape
    targets, sources : list of Tensor or Variable
    seeds : list
        The upstream gradient of each target; None or missing: ones.

    Raises
    ------
    TypeError
        If a target is something else.
    """
    raw = not engine.recorders()
    grads: dict[Any, Any] = {}
    direct: dict[int, Any] = {}  # of variables that are targets: they stand for themselves
    for k, target in enumerate(targets):
        if not isinstance(target, (Tensor, Readable)):
            raise TypeError(
                f"target {k} must be a Tensor or a Variable, not {type(target).__name__}: compute "
                "it from some by functions of NumPy, or give what computes it a gradient "
                "(tfopt.custom_gradient)"
            )
        if not engine.is_differentiable(target):
            continue
        seed = _seed(target, seeds[k] if k < len(seeds) else None, raw)
        if isinstance(target, Tensor):
            key = engine.key(target)
            grads[key] = seed if key not in grads else grads[key] + seed
        else:
            direct[id(target)] = seed if id(target) not in direct else direct[id(target)] + seed
    keys_of_sources = [_keys(record, source) for source in sources]
    wanted = {key for keys in keys_of_sources for key in keys if record.knows_key(key)}
    with np.errstate(all="ignore"):
        backward(record.nodes, grads, wanted)
        return [
            as_gradient(_total([direct.get(id(source)), *(grads.get(key) for key in keys)]))
            for source, keys in zip(sources, keys_of_sources, strict=True)
        ]


def _seed(target: Any, upstream: Any, raw: bool) -> Any:
    """Return an upstream gradient of the target's shape and dtype."""
    if upstream is None:
        ones = np.ones(target.shape, target.dtype)
        return ones if raw else engine.wrapped(ones)
    seed: Any = as_tensor(upstream)
    if seed.dtype != target.dtype:
        seed = seed.astype(target.dtype)
    if seed.shape != target.shape:
        seed = np.broadcast_to(seed, target.shape)
    return engine.raw(seed) if raw else seed


def _keys(record: Tape, source: Any) -> list[Any]:
    """Return the keys of a tensor, or of all values a variable had."""
    if isinstance(source, Tensor):
        return [engine.key(source)]
    return record.variables.get(source, [])


def _total(parts: list[Any]) -> Any:
    total = None
    for part in parts:
        if part is not None:
            total = part if total is None else added(total, part)
    return total


def zeros_like(source: Any) -> Tensor:
    """Return zeros of a source's shape and dtype."""
    return engine.wrapped(np.zeros(source.shape, source.dtype))


def gradients_of_elements(record: Tape, target: Any, sources: list[Any]) -> list[list[Any]]:
    """Return the gradients of each element of a target.

    An empty target is differentiated with an empty seed, which shows what it depends on.
    """
    n = int(np.prod(target.shape))
    rows = []
    for k in range(max(n, 1)):
        seed = np.zeros(n, target.dtype)
        seed[k : k + 1] = 1
        rows.append(gradients(record, [target], sources, [seed.reshape(target.shape)]))
    return rows


def gradients_of_columns(record: Tape, target: Any, source: Any) -> list[Any]:
    """Return the gradient of each column of a target whose first axis is that of the examples."""
    n = int(np.prod(target.shape[1:]))
    columns = []
    for k in range(n):
        seed = np.zeros((target.shape[0], n), target.dtype)
        seed[:, k] = 1
        columns += gradients(record, [target], [source], [seed.reshape(target.shape)])
    return columns


def dense(grads: list[Any], source: Any) -> list[Any]:
    """Return the gradients of a source as tensors of its shape."""
    return [zeros_like(source) if g is None else densify(g) for g in grads]
