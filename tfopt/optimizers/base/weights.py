"""An optimizer's state as a list of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt.core.backends import backend_of
from tfopt.errors import InvalidArgumentError
from tfopt.variable import Variable

__all__ = ["dtype_of", "fitting", "wide", "with_iterations"]


def fitting(name: str, params: Sequence[Variable], weights: Any) -> list[np.ndarray]:
    """Return the arrays of a list, if they are as many as the weights and of their shapes."""
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
    with np.errstate(all="ignore"):
        return [array.astype(dtype_of(p)) for p, array in zip(params, arrays, strict=True)]


def dtype_of(variable: Variable) -> np.dtype[Any]:
    """Return a variable's dtype as NumPy's, wherever it is."""
    if variable.device == "gpu":
        return backend_of(variable).dtype_of(variable.value())
    dtype: np.dtype[Any] = variable.dtype
    return dtype


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype, float32 in place of those of 16 bits."""
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype


def with_iterations(params: Sequence[Variable], weights: Any) -> Any:
    """Return a list with a count of 0 in front if that is what it lacks, as older ones do."""
    return [np.array(0), *weights] if len(params) == len(weights) + 1 else weights
