"""Scans: the results of a reduction up to each element."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tfopt.autodiff.operands import array_operand as operand
from tfopt.autodiff.ops import ACCUMULATIONS
from tfopt.autodiff.vjps.arguments import axes_of
from tfopt.autodiff.vjps.composed import composed, constant_of, with_gradients_of


def _cumulative(function: Any, first: float, x: Any, axis: Any, dtype: Any,
                include_initial: Any) -> Any:  # fmt: skip
    x = np.atleast_1d(operand(x))
    axis = 0 if axis is None else axes_of(x, axis)[0]
    made = function(x, axis, dtype)
    if not include_initial:
        return made
    shape = [1 if k == axis else n for k, n in enumerate(made.shape)]
    start = np.full(shape, first, made.dtype)
    return np.concatenate([start, made], axis)


composed(np.cumulative_sum, functools.partial(_cumulative, np.cumsum, 0))
composed(np.cumulative_prod, functools.partial(_cumulative, np.cumprod, 1))


# ---- ufunc.accumulate


def _extremes(ufunc: np.ufunc, a: Any, axis: int, dtype: Any) -> Any:
    """Choose the first of equal elements, as a chain of ``np.maximum`` does."""
    a = a if dtype is None else a.astype(dtype)
    if not a.size:
        return a
    lanes = np.moveaxis(a, axis, -1)
    before = constant_of(ufunc.accumulate, lanes[..., :-1], -1)
    stays = before >= lanes[..., 1:] if ufunc is np.maximum else before <= lanes[..., 1:]
    places = np.where(stays, 0, np.arange(1, lanes.shape[-1]))
    places = np.concatenate([np.zeros((*lanes.shape[:-1], 1), int), places], -1)
    chosen = constant_of(np.maximum.accumulate, places, -1)
    return np.moveaxis(np.take_along_axis(lanes, chosen, -1), -1, axis)


def _accumulation(ufunc: np.ufunc, composition: Any) -> Any:
    def along(a: Any, axis: Any, dtype: Any) -> Any:
        return composition(a, axes_of(a, axis)[0], dtype)

    def accumulate(array: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Any:
        args = (operand(array), axis, dtype)
        name = f"{ufunc.__name__}.accumulate"
        return with_gradients_of(along, ufunc.accumulate, args, {}, name)

    return accumulate


for _ufunc, _composition in (
    (np.add, np.cumsum), (np.multiply, np.cumprod),
    (np.maximum, functools.partial(_extremes, np.maximum)),
    (np.minimum, functools.partial(_extremes, np.minimum)),
):  # fmt: skip
    ACCUMULATIONS[_ufunc] = _accumulation(_ufunc, _composition)
