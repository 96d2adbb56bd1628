"""An optimizer's state as a list of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.optimizers.state.slot_storage import check_blocks
from tfopt.optimizers.state.variables import dtype_of
from tfopt.variable import Variable

__all__ = ["fitting", "with_iterations"]


def fitting(name: str, params: Sequence[Variable], weights: Any) -> list[np.ndarray]:
    """Return weights as arrays of the parameters' dtypes; check their number and shapes."""
    arrays = [np.asarray(weight) for weight in weights]
    if len(arrays) != len(params):
        raise InvalidArgumentError(
            f"You called `set_weights(weights)` on optimizer {name} with a weight list of length "
            f"{len(arrays)}, but the optimizer was expecting {len(params)} weights. "
            f"Provided weights: {str(weights)[:50]}..."
        )
    for param, array in zip(params, arrays, strict=True):
        if param.shape != array.shape:
            raise InvalidArgumentError(
                f"Optimizer weight shape {param.shape} not compatible with provided weight shape "
                f"{array.shape}"
            )
        dtype = dtype_of(param)
        if array.dtype != dtype and "V" in (array.dtype.kind, dtype.kind):
            raise InvalidTypeError(f"{param.name} is stored as {dtype}, not {array.dtype}")
        check_blocks(param.name, array)
    with np.errstate(all="ignore"):
        return [array.astype(dtype_of(p)) for p, array in zip(params, arrays, strict=True)]


def with_iterations(params: Sequence[Variable], weights: Any) -> Any:
    """Return a list of weights; prepend a step count of 0 if it is missing, as in older lists."""
    return [np.array(0), *weights] if len(params) == len(weights) + 1 else weights
