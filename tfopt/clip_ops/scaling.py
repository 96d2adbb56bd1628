"""The parts of clipping by norm: norms of slices, scaling, the non-finite policy."""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal, get_args
from weakref import ref

import numpy as np

from tfopt.clip_ops.validation import Array, computed
from tfopt.errors import InvalidArgumentError
from tfopt.kernels.arrays.aliasing import in_place
from tfopt.kernels.reduce.norms import slice_norms
from tfopt.kernels.update.clip import factors, scale_call, scale_each_call
from tfopt.kernels.update.dense import run

__all__ = [
    "Nonfinite",
    "by_type",
    "check_policy",
    "norms_of_slices",
    "rounded",
    "scale",
    "scale_slices",
    "skips",
]


Nonfinite = Literal["propagate", "raise", "skip"]


def check_policy(nonfinite: Any) -> None:
    """Raise if `nonfinite` is not one of the accepted policies."""
    if nonfinite not in get_args(Nonfinite):
        raise InvalidArgumentError(
            f'nonfinite must be "propagate", "raise" or "skip", not {nonfinite!r}'
        )


def skips(nonfinite: str, value: float, calls: int = 1) -> bool:
    """Apply the non-finite policy: raise, or warn and return True to skip."""
    if nonfinite == "raise":
        raise InvalidArgumentError(f"the norm is {value}")
    if nonfinite == "skip":
        warnings.warn(f"the norm is {value}: not clipped", RuntimeWarning, stacklevel=3 + calls)
    return nonfinite == "skip"


def norms_of_slices(array: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Return the norms over some axes, kept with length 1, as roots and exponents."""
    outer = [axis for axis in range(array.ndim) if axis not in axes]
    shape = [1 if axis in axes else n for axis, n in enumerate(array.shape)]
    roots, exponents = np.zeros(math.prod(shape)), np.zeros(math.prod(shape), np.int64)
    slice_norms(array.transpose(*outer, *axes), len(outer), roots, exponents)
    return roots.reshape(shape), exponents.reshape(shape)


def scale_slices(
    result: Array, array: Array, axes: tuple[int, ...], limits: Array, nonfinite: str
) -> None:
    """Clip each slice along some axes to its limit."""
    roots, exponents = norms_of_slices(array, axes)
    bad = ~np.isfinite(roots)
    if bad.any() and skips(nonfinite, float(roots[bad][0]), 2):
        limits = np.where(bad, math.inf, limits)
    roots, exponents, limits = np.broadcast_arrays(roots, exponents, limits)
    first, second = np.empty((2, limits.size), computed(array.dtype))
    factors(roots.ravel(), exponents.ravel(), limits.ravel(), first, second)
    first, second = (np.broadcast_to(x.reshape(limits.shape), array.shape) for x in (first, second))
    run(scale_each_call(result, array, first, second))


def scale(outs: list[Array], arrays: list[Array], first: float, second: float) -> None:
    """Multiply arrays of one computation type by a factor; if it is 1, copy those not in place."""
    if first == 1:
        for out, array in zip(outs, arrays, strict=True):
            if not in_place(out, array):
                held = ref(out), ref(array)  # so that no thread resizes them meanwhile
                np.copyto(out, array)
                del held
    elif arrays:
        single = computed(arrays[0].dtype) is np.float32
        run(scale_call(outs, arrays, first, second, single))


def rounded(root: float, exponent: int, dtype: np.dtype[Any]) -> Any:
    """Return ``root * 2**exponent`` as a NumPy scalar of a dtype."""
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(np.float64(root), exponent).astype(dtype)


def by_type(
    outs: list[Array], arrays: list[Array], one_dtype: bool
) -> list[tuple[bool, tuple[list[Array], list[Array]]]]:
    """Group arrays by whether they are computed in float32."""
    if one_dtype and arrays:
        return [(computed(arrays[0].dtype) is np.float32, (outs, arrays))]
    parts: dict[bool, tuple[list[Array], list[Array]]] = {True: ([], []), False: ([], [])}
    for out, array in zip(outs, arrays, strict=True):
        chosen = parts[computed(array.dtype) is np.float32]
        chosen[0].append(out)
        chosen[1].append(array)
    return list(parts.items())
