"""Reductions that leave NaN out: it gets the gradient 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.autodiff.vjps.composed import composed
from tfopt.autodiff.vjps.reductions import mask_of
from tfopt.autodiff.vjps.statistics import std, var

_UNSET: Any = np._NoValue


def _without(a: Any, fill: float) -> Any:
    return np.where(np.isnan(a), fill, a)


def _known(a: Any, where: Any) -> Any:
    return np.logical_and(~np.isnan(a), mask_of(where))


@composed(np.nansum)
def nansum(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = False,
           initial: Any = 0, where: Any = True) -> Any:  # fmt: skip
    """Sum what is no NaN."""
    return np.sum(_without(a, 0), axis, dtype, None, keepdims, initial, where)


@composed(np.nanprod)
def nanprod(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = False,
            initial: Any = 1, where: Any = True) -> Any:  # fmt: skip
    """Multiply what is no NaN."""
    return np.prod(_without(a, 1), axis, dtype, None, keepdims, initial, where)


@composed(np.nancumsum)
def nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
    """Sum what is no NaN up to each element."""
    return np.cumsum(_without(a, 0), axis, dtype)


@composed(np.nancumprod)
def nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
    """Multiply what is no NaN up to each element."""
    return np.cumprod(_without(a, 1), axis, dtype)


@composed(np.nanmax)
def nanmax(a: Any, axis: Any = None, out: None = None, keepdims: Any = False,
           initial: Any = -np.inf, where: Any = True) -> Any:  # fmt: skip
    """Return the largest that is no NaN."""
    return np.max(_without(a, -np.inf), axis, None, keepdims, initial, where)


@composed(np.nanmin)
def nanmin(a: Any, axis: Any = None, out: None = None, keepdims: Any = False,
           initial: Any = np.inf, where: Any = True) -> Any:  # fmt: skip
    """Return the smallest that is no NaN."""
    return np.min(_without(a, np.inf), axis, None, keepdims, initial, where)


@composed(np.nanmean)
def nanmean(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = False,
            *, where: Any = True) -> Any:  # fmt: skip
    """Average what is no NaN."""
    return np.mean(_without(a, 0), axis, dtype, None, keepdims, where=_known(a, where))


@composed(np.nanvar)
def nanvar(a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: float = 0,
           keepdims: Any = False, *, where: Any = True, mean: Any = _UNSET,
           correction: Any = _UNSET) -> Any:  # fmt: skip
    """Return the variance of what is no NaN."""
    return var(_without(a, 0), axis, dtype, None, ddof, keepdims, where=_known(a, where),
               mean=mean, correction=correction)  # fmt: skip


@composed(np.nanstd)
def nanstd(a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: float = 0,
           keepdims: Any = False, *, where: Any = True, mean: Any = _UNSET,
           correction: Any = _UNSET) -> Any:  # fmt: skip
    """Return the standard deviation of what is no NaN."""
    return std(_without(a, 0), axis, dtype, None, ddof, keepdims, where=_known(a, where),
               mean=mean, correction=correction)  # fmt: skip
