"""Rules of clipping: by value, by one norm, and by the norm of many tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.autodiff.backward import kept
from tfopt.clip_grads import clip_by_norm_grad
from tfopt.clip_ops.by_global_norm import BY_GLOBAL_NORM, GLOBAL_NORM
from tfopt.clip_ops.by_norm import BY_NORM
from tfopt.clip_ops.by_value import BY_VALUE
from tfopt.core.engine import Tensor
from tfopt.indexed_slices import densify

__all__ = ["by_value"]


# ---- by value


def _chosen(t: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """Return where the larger bound is the result, and where the smaller one is."""
    above = t > high
    below = np.where(above, high, t) < low
    return above & ~below, below


def _to_t(g: Any, y: Any, *inputs: Any) -> Any:
    above, below = _chosen(*inputs)
    return kept(g, ~(above | below))


#: To the tensor and to the two bounds: to the one that was chosen.
by_value = (
    (_to_t, "abc"),
    (lambda g, y, *inputs: kept(g, _chosen(*inputs)[1]), "abc"),
    (lambda g, y, *inputs: kept(g, _chosen(*inputs)[0]), "abc"),
)


# ---- by the norm of one tensor


def _parts(t: Any, limit: Any, axes: Any) -> tuple[Any, Any, Any]:
    """Return the norms, the tensor divided by them, and where it was scaled."""
    norms = np.sqrt(np.sum(t * t, axis=axes, keepdims=True))
    unit = t / np.where(norms == 0, 1, norms)
    return norms, unit, norms >= np.maximum(limit, 0)


def _norm_t(g: Any, y: Any, t: Any, limit: Any, axes: Any = None, nonfinite: str = "") -> Any:
    """Take what points along the tensor away, and scale as it was scaled."""
    if not isinstance(t, Tensor):
        return clip_by_norm_grad(g, t, limit, axes)[0]
    norms, unit, clipped = _parts(t, limit, axes)
    along = np.sum(unit * g, axis=axes, keepdims=True)
    factor = np.where(norms == 0, 0, np.maximum(limit, 0) / np.where(norms == 0, 1, norms))
    return np.where(clipped, factor * (g - unit * along), g)


def _norm_limit(g: Any, y: Any, t: Any, limit: Any, axes: Any = None, nonfinite: str = "") -> Any:
    _, unit, clipped = _parts(t, limit, axes)
    return np.where(clipped & (np.asarray(limit >= 0)), unit * g, 0)


by_norm = ((_norm_t, "ab"), (_norm_limit, "ab"))


# ---- by the norm of many


def of_global_norm(g: Any, y: Any, ins: Any, kw: Any, need: Any) -> list[Any]:
    """Return the gradients of the norm of many tensors: along them, and 0 where it is 0."""
    scale = np.where(y == 0, 0, g / np.where(y == 0, 1, y))
    made = [x * scale if wanted else None for x, wanted in zip(ins, need, strict=True)]
    if "dtype" not in kw:
        return made
    each = zip(made, ins, strict=True)
    return [None if grad is None else grad.astype(x.dtype) for grad, x in each]


def by_global_norm(g: Any, y: Any, ins: Any, kw: Any, need: Any) -> list[Any]:
    """Return the gradients of tensors scaled together, of the limit, and of the norm if given.

    `ins` are the tensors, the limit, and the norm or None; `y` the scaled tensors and the norm.
    """
    *tensors, limit, given = ins
    norm = y[-1] if given is None else given
    upstream = [densify(each) for each in g[:-1]]
    limit = np.maximum(limit, 0)
    clipped = norm >= limit
    safe = np.where(norm == 0, 1, norm)
    factor = np.where(clipped, np.where(norm == 0, 0, limit / safe), 1)
    along = sum(np.sum(u * t) for u, t in zip(upstream, tensors, strict=True) if u is not None)
    to_limit = np.where(clipped, along / safe, 0)
    to_norm = -to_limit * limit / safe
    if g[-1] is not None:
        to_norm = to_norm + g[-1]
    made = []
    for t, u, wanted in zip(tensors, upstream, need[:-2], strict=True):
        grad = None if u is None else u * factor
        if given is None and wanted:
            by_norm = t * (to_norm / safe)
            grad = by_norm if grad is None else grad + by_norm
        made.append(grad)
    return [*made, to_limit, to_norm]


BY_VALUE.define(*by_value)
BY_NORM.define(*by_norm)
GLOBAL_NORM.define_jointly(of_global_norm, "*y")
BY_GLOBAL_NORM.define_jointly(by_global_norm, "*y")
