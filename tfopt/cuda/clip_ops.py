"""Clipping on a GPU, for :mod:`tfopt.clip_ops` and :mod:`tfopt.raw_ops`.

The results stay on the GPU and have the bits that the host computes with gradual underflow. Nothing
waits for the GPU, except when `nonfinite` requires the host to know a norm.
"""

from __future__ import annotations

import math
from ctypes import c_void_p
from typing import Any

from tfopt.clip_ops.scaling import check_policy, skips
from tfopt.clip_ops.validation import FLOATS, INTEGERS, Array, as_axes, as_limit, wrapped
from tfopt.core.backends import is_device_array
from tfopt.cuda.clip_validation import (
    Tensor,
    as_device_bound,
    as_device_limit,
    as_tensor,
    as_tensors,
    check_separate,
    results_for,
    scalar_for,
)
from tfopt.cuda.device_array import DeviceArray
from tfopt.cuda.library import load
from tfopt.cuda.norms import OWN, SHARED_BY_ALL, SKIPPED, TYPES, Norms, Slices
from tfopt.cuda.streams import in_order
from tfopt.cuda.validation import check_scalar, device_of
from tfopt.errors import InvalidArgumentError

__all__ = ["clip_by_global_norm", "clip_by_norm", "clip_by_value", "global_norm", "l2_loss"]


def _result(tensor: Tensor, out: Any) -> Tensor:
    (result,) = results_for([tensor], None if out is None else [out])
    assert result is not None
    if out is not None:
        check_separate([result.array], [tensor.array])
    return result


# ---- by value


def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, out: Any) -> Any:
    """Clip each element to a range; see :func:`~tfopt.clip_ops.clip_by_value`."""
    library = load()
    tensor = as_tensor(t, "t", FLOATS + INTEGERS)
    high = as_device_bound(clip_value_max, "clip_value_max", "Minimum", tensor.array)
    low = as_device_bound(clip_value_min, "clip_value_min", "Maximum", tensor.array)
    result = _result(tensor, out)
    bounds = [bound for bound in (low, high) if isinstance(bound, DeviceArray)]
    for bound in bounds:
        check_separate([result.array], [bound])
    arrays = [tensor.array, result.array, *bounds]
    device = device_of([("t", arrays[0]), ("out", arrays[1])] + [("a bound", b) for b in bounds],
                       library)  # fmt: skip
    with in_order(library, device, arrays) as stream:
        code = library.call["clamp"](
            device,
            stream,
            TYPES[tensor.array.dtype],
            result.array.address,
            tensor.array.address,
            tensor.array.size,
            *_host_or_device(low),
            *_host_or_device(high),
        )
    library.check(code)
    return wrapped(t, result.given, out)


def _host_or_device(bound: Array | DeviceArray) -> tuple[c_void_p | None, int | None]:
    """Return the addresses of a bound in host memory and on the GPU, one of them None."""
    if isinstance(bound, DeviceArray):
        return None, bound.address
    return c_void_p(bound.ctypes.data), None


# ---- by the norm of one tensor


def clip_by_norm(t: Any, clip_norm: Any, axes: Any, out: Any, nonfinite: str) -> Any:
    """Scale down slices whose norm exceeds a limit; see :func:`~tfopt.clip_ops.clip_by_norm`."""
    check_policy(nonfinite)
    library = load()
    tensor = as_tensor(t, "t", FLOATS)
    slices = Slices(tensor.array.shape, as_axes(axes, len(tensor.array.shape)))
    limit = as_device_limit(clip_norm, "clip_norm", tensor.array, slices.norms_shape)
    result = _result(tensor, out)
    arrays = [("t", tensor.array), ("out", result.array)]
    if isinstance(limit, DeviceArray):
        arrays.append(("clip_norm", limit))
    device = device_of(arrays, library)
    if tensor.array.size == 0:
        return wrapped(t, result.given, out)
    with (
        in_order(library, device, [array for _, array in arrays]) as stream,
        Norms.for_slices(library, device, stream, slices) as norms,
    ):
        policy = SKIPPED if nonfinite == "skip" else OWN
        norms.compute_slices(tensor.array, slices, limit, policy)
        _apply_policy(norms, nonfinite)
        if slices.n == 1:
            norms.scale([result.array], [tensor.array])
        else:
            norms.scale_slices(result.array, tensor.array, slices)
    return wrapped(t, result.given, out)


def _apply_policy(norms: Norms, nonfinite: str) -> None:
    """Apply the non-finite policy: raise or warn."""
    if nonfinite != "propagate":
        bad = norms.first_nonfinite()
        if bad is not None:
            skips(nonfinite, bad, calls=3)


# ---- by the norm of many tensors


def global_norm(t_list: Any, out: Any, dtype: Any = None) -> Any:
    """Return the norm of all elements, on the GPU; see :func:`tfopt.global_norm`."""
    library = load()
    tensors = [t for t in as_tensors(t_list, one_dtype=dtype is None) if t is not None]
    arrays = [t.array for t in tensors]
    result = scalar_for(tensors[0], out, dtype)
    device = device_of([("t_list", a) for a in arrays] + [("out", result.array)], library)
    with (
        in_order(library, device, [*arrays, result.array]) as stream,
        Norms.for_arrays(library, device, stream, arrays, own=False) as norms,
    ):
        norms.compute(arrays, math.inf, OWN, {})
        norms.write(result.array)
    return result.given if out is None else out


def clip_by_global_norm(
    t_list: Any, clip_norm: Any, use_norm: Any, out: Any, nonfinite: str
) -> tuple[list[Any], Any]:
    """Scale tensors by a common factor; see :func:`~tfopt.clip_ops.clip_by_global_norm`."""
    check_policy(nonfinite)
    library = load()
    tensors = as_tensors(t_list, one_dtype=use_norm is None)
    limit = as_limit(clip_norm, "clip_norm")
    limit = 0.0 if limit < 0 else limit
    results = results_for(tensors, out)
    arrays = [t.array for t in tensors if t is not None]
    outs = [r.array for r in results if r is not None]
    if out is not None:
        check_separate(outs, arrays)
    device = device_of([("t_list", a) for a in arrays] + [("out", a) for a in outs], library)
    known: float | DeviceArray | None = None
    value, others = use_norm, [*arrays, *outs]
    if use_norm is None:
        first = next(t for t in tensors if t is not None)
        norm = scalar_for(first, None)
        value = norm.given
        others.append(norm.array)
    elif is_device_array(use_norm):
        known = check_scalar(use_norm, "use_norm", device, library)
        others.append(known)
    else:
        known = as_limit(use_norm, "use_norm")
        if known < 0:
            raise InvalidArgumentError(f"use_norm must not be negative: {known}")
    with (
        in_order(library, device, others) as stream,
        Norms.for_arrays(library, device, stream, arrays, own=False) as norms,
    ):
        policy = SKIPPED if nonfinite == "skip" else SHARED_BY_ALL
        if known is None:
            norms.compute(arrays, limit, policy, {})
            norms.write(norm.array)
        else:
            norms.use_known(known, limit, policy)
        if limit != math.inf:
            _apply_policy(norms, nonfinite)
        _scale_by_type(norms, outs, arrays)
    if out is not None:
        return list(out), value
    given = [None if r is None else r.given for r in results]
    return [wrapped(t, r, None) for t, r in zip(t_list, given, strict=True)], value


def _scale_by_type(norms: Norms, outs: list[DeviceArray], arrays: list[DeviceArray]) -> None:
    for dtype in dict.fromkeys(array.dtype for array in arrays):
        positions = [k for k, array in enumerate(arrays) if array.dtype == dtype]
        norms.scale([outs[k] for k in positions], [arrays[k] for k in positions])


# ---- a sum


def l2_loss(t: Any) -> Any:
    """Return half the sum of all squares, on the GPU; see :func:`tfopt.raw_ops.L2Loss`."""
    library = load()
    tensor = as_tensor(t, "t", FLOATS)
    array, result = tensor.array, scalar_for(tensor, None)
    device = device_of([("t", array), ("the result", result.array)], library)
    slices = Slices(array.shape, tuple(range(len(array.shape))))
    with (
        in_order(library, device, [array, result.array]) as stream,
        Norms.for_slices(library, device, stream, slices) as norms,
    ):
        norms.compute_slices(array, slices, math.inf, OWN, rooted=False)
        norms.write(result.array, -1)
    return result.given
