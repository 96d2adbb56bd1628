"""Ufuncs that are called with keywords: their values are NumPy's."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tfopt.autodiff.operands import array_operand as operand
from tfopt.autodiff.ops import CALLS, UFUNCS
from tfopt.autodiff.vjps.composed import with_gradients_of
from tfopt.core.engine import Op, apply


def _converted(op: Op, *inputs: Any, dtype: Any = None, casting: str = "same_kind",
               order: str = "K", subok: bool = True) -> Any:  # fmt: skip
    """Return what a ufunc gives for inputs that are converted before."""
    arrays = map(operand, inputs)
    return apply(op, tuple(x if dtype is None else x.astype(dtype) for x in arrays))


def _called(ufunc: np.ufunc, op: Op, *inputs: Any, **kwargs: Any) -> Any:
    return with_gradients_of(partial(_converted, op), ufunc, inputs, kwargs)


CALLS.update({ufunc: partial(_called, ufunc, op) for ufunc, op in UFUNCS.items()})
