"""The specification's functions by the names that tfopt has for them, for tests of numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

import tfopt
import tfopt_ref
from tfopt_ref import clip_ops, sdca_ops

__all__ = ["SPECIFIED"]


def _array(t: Any) -> Any:
    """Return an array; of Python's numbers, one of 32 bits, as TensorFlow has them."""
    if t is None or hasattr(t, "dtype"):
        return t
    array = np.asarray(t)
    return array.astype({"f": np.float32, "i": np.int32}[array.dtype.kind])


def _written(out: Any, result: Any) -> Any:
    """Return results, in the given output arrays if there are any."""
    if out is None:
        return result
    if isinstance(out, list):
        return [_written(array, part) for array, part in zip(out, result, strict=True)]
    out[...] = result
    return out


def _clip_by_value(
    t: Any, clip_value_min: Any, clip_value_max: Any, name: Any = None, *, out: Any = None
) -> Any:
    return _written(out, clip_ops.clip_by_value(_array(t), clip_value_min, clip_value_max))


def _clip_by_norm(
    t: Any, clip_norm: Any, axes: Any = None, name: Any = None, *, out: Any = None, **more: Any
) -> Any:
    return _written(out, clip_ops.clip_by_norm(_array(t), clip_norm, axes, **more))


def _clip_by_global_norm(
    t_list: Any,
    clip_norm: Any,
    use_norm: Any = None,
    name: Any = None,
    *,
    out: Any = None,
    **more: Any,
) -> Any:
    given = [_array(t) for t in t_list]
    clipped, norm = clip_ops.clip_by_global_norm(given, clip_norm, use_norm, **more)
    return _written(out, clipped), norm


def _global_norm(t_list: Any, **more: Any) -> Any:
    return clip_ops.global_norm([_array(t) for t in t_list], **more)


def _l2_loss(t: Any) -> Any:
    return clip_ops.l2_loss(_array(t))


def _sdca_optimizer(*args: Any, adaptative: bool = True, **options: Any) -> Any:
    if len(args) < 16:
        options = {"adaptive": adaptative, **options}
    return sdca_ops.sdca_optimizer(*args, **options)


def _sdca_shrink_l1(weights: Any, l1: float, l2: float) -> None:
    for array, shrunk in zip(weights, sdca_ops.sdca_shrink_l1(weights, l1, l2), strict=True):
        array[...] = shrunk


#: Of arrays: what is to be an array is one.
SPECIFIED = SimpleNamespace(
    __name__="tfopt_ref",
    set_flush_denormals=tfopt_ref.set_flush_denormals,
    **{
        **{name: getattr(clip_ops, name) for name in tfopt.clip_ops.__all__},
        "clip_by_value": _clip_by_value,
        "clip_by_norm": _clip_by_norm,
        "clip_by_global_norm": _clip_by_global_norm,
        "global_norm": _global_norm,
    },
    linalg=SimpleNamespace(global_norm=_global_norm),
    clip_grads=clip_ops,
    sdca_ops=SimpleNamespace(
        sdca_optimizer=_sdca_optimizer,
        sdca_shrink_l1=_sdca_shrink_l1,
    ),
    raw_ops=SimpleNamespace(
        ClipByValue=_clip_by_value,
        L2Loss=_l2_loss,
        SdcaOptimizer=_sdca_optimizer,
        SdcaOptimizerV2=_sdca_optimizer,
        SdcaShrinkL1=_sdca_shrink_l1,
    ),
)
