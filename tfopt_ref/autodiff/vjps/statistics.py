"""Averages with weights, and correlations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tfopt_ref.autodiff.vjps.derived import array, derived
from tfopt_ref.autodiff.vjps.elementwise import conj

__all__: list[str] = []


@derived(np.average)
def _average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False
) -> Any:
    weights = np.ones(a.shape) if weights is None else array(weights)
    if np.shape(weights) != np.shape(a):
        axes = normalize_axis_tuple(axis, a.ndim)
        weights = np.transpose(weights, np.argsort(axes))
        weights = np.expand_dims(weights, tuple(i for i in range(a.ndim) if i not in axes))
    total = np.sum(np.broadcast_to(weights, a.shape), axis, keepdims=keepdims)
    value = np.sum(a * weights, axis, keepdims=keepdims) / total
    return (value, total) if returned else value


@derived(np.cov)
def _cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None,
    fweights: Any = None, aweights: Any = None, *, dtype: Any = None,
) -> Any:  # fmt: skip
    rows = np.atleast_2d(m)
    rows = rows.T if not rowvar and np.ndim(m) == 2 else rows
    if y is not None:
        rows = np.concatenate([rows, _rows(y, rowvar)])
    rows = rows if dtype is None else rows.astype(dtype)
    weights = np.ones(rows.shape[1]) if fweights is None else fweights
    weights = weights if aweights is None else weights * aweights
    total = np.sum(weights)
    deviations = rows - np.average(rows, axis=1, weights=weights)[:, None]
    lost = (0 if bias else 1) if ddof is None else ddof
    lost = lost if aweights is None else lost * np.sum(weights * aweights) / total
    return np.squeeze((deviations * weights) @ conj(deviations).T / (total - lost))


def _rows(m: Any, rowvar: bool) -> Any:
    m = np.atleast_2d(m)
    return m if rowvar or m.shape[0] == 1 else m.T


@derived(np.corrcoef)
def _corrcoef(x: Any, y: Any = None, rowvar: bool = True, *others: Any, dtype: Any = None) -> Any:
    c = _cov(x, y, rowvar, dtype=dtype)
    if not c.shape:
        return c / c
    deviations = np.sqrt(np.real(np.diag(c)))
    value = c / (deviations[:, None] * deviations)
    if np.iscomplexobj(value):
        return np.clip(value.real, -1, 1) + 1j * np.clip(value.imag, -1, 1)
    return np.clip(value, -1, 1)
