"""Ufuncs called with keywords, with NumPy's values."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tfopt.autodiff.backward import cast
from tfopt.autodiff.operands import array_operand as operand
from tfopt.autodiff.ops import CALLS, UFUNCS
from tfopt.autodiff.vjps.composed import with_gradients_of
from tfopt.core.engine import Op, apply


def _converted(
    ufunc: np.ufunc, op: Op, *inputs: Any, dtype: Any = None, casting: Any = "same_kind",
    order: str = "K", subok: bool = True, **others: Any,
) -> Any:  # fmt: skip
    """Apply a ufunc to inputs that are converted first, as its loop converts them."""
    if others:
        raise LookupError(f"no gradient of {ufunc.__name__} with these arguments: {[*others]}")
    arrays = [operand(x) for x in inputs]
    if dtype is None:
        return apply(op, tuple(arrays))
    results = (None,) * ufunc.nout
    taken = ufunc.resolve_dtypes(
        (*(x.dtype for x in arrays), *results),
        signature=(*(None for _ in arrays), *(np.dtype(dtype) for _ in results)),
        casting=casting,
    )
    return apply(op, tuple(map(cast, arrays, taken)))


def _called(ufunc: np.ufunc, op: Op, *inputs: Any, **kwargs: Any) -> Any:
    return with_gradients_of(partial(_converted, ufunc, op), ufunc, inputs, kwargs)


CALLS.update({ufunc: partial(_called, ufunc, op) for ufunc, op in UFUNCS.items()})
