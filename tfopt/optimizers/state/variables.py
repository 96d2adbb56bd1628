"""Conversion of arguments to variables, and the identity of variables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tfopt.core.backends import backend_of, is_device_array
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels.arrays.aliasing import Occupied
from tfopt.kernels.arrays.coerce import as_array, of_torch, placement
from tfopt.variable import Variable

__all__ = ["any_overlap", "as_variable", "memory_of", "refuse_gpu", "sharing", "wide"]

#: How hard it may be to find out whether two arrays share an element; else they count as apart.
_MOST_WORK = 10_000


def as_variable(var: Any, name: str = "var") -> Variable:
    """Return a variable unchanged; wrap an array, or what shares memory with one, in a variable.

    `name` is its name in messages.
    """
    if isinstance(var, Variable):
        return var
    if isinstance(var, np.ndarray) or is_device_array(var):
        return _wrapping(var, name)
    array = of_torch(var, name)
    if array is None:
        try:
            array = as_array(var, name)
        except InvalidTypeError as error:
            raise InvalidTypeError(
                f"{error}, which cannot be updated: make an array of it once, as np.array does, "
                "and pass that"
            ) from None
    return _wrapping(array, name)


def _wrapping(array: Any, name: str) -> Variable:
    try:
        return Variable(array)
    except InvalidArgumentError as error:
        raise type(error)(f"{name}: {error}") from None


def refuse_gpu(variables: Iterable[Variable], name: str) -> None:
    """Raise if a variable is on a GPU, which what has this name does not support."""
    for variable in variables:
        if variable.device == "gpu":
            raise InvalidTypeError(
                f"{variable.name} is on a GPU, which {name} does not support: keep the variable "
                "in host memory"
            )


def memory_of(variable: Variable) -> tuple[Any, ...]:
    """Return a key of a variable: its memory address, shape, strides and dtype.

    So slots are found again even if a caller creates a new view or wraps an array at each step.
    """
    if variable.device == "gpu":
        there = backend_of(variable).describe(variable, variable.name)
        place = there.address if there.size else id(variable.value())
        return place, there.shape, there.dtype
    return placement(variable.numpy())


def any_overlap(variables: Iterable[Variable]) -> bool:
    """Whether the address ranges of any two nonempty variables overlap."""
    hosts: list[Variable] = []
    devices: list[Variable] = []
    for variable in variables:
        (hosts if variable.device == "cpu" else devices).append(variable)
    spans = sorted(span for span in map(_span, devices) if span is not None)
    overlap = any(low < end for (_, end), (low, _) in pairwise(spans))
    return overlap or not Occupied([variable.numpy() for variable in hosts]).apart


def sharing(variables: Sequence[Variable]) -> tuple[int, int] | None:
    """Return the positions of two variables that share an element, if there are any."""
    spans = [(*span, k) for k, variable in enumerate(variables) if (span := _span(variable))]
    open_spans: list[tuple[int, int, int]] = []
    for low, end, k in sorted(spans):
        open_spans = [each for each in open_spans if each[1] > low]
        for _, _, other in open_spans:
            if _share(variables[other], variables[k]):
                return min(other, k), max(other, k)
        open_spans.append((low, end, k))
    return None


def _share(a: Variable, b: Variable) -> bool:
    """Whether two variables whose addresses overlap have an element in common."""
    if "gpu" in (a.device, b.device):
        return a.device == b.device
    try:
        return np.shares_memory(a.numpy(), b.numpy(), max_work=_MOST_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return False


def _span(variable: Variable) -> tuple[int, int] | None:
    if variable.device == "gpu":
        there = backend_of(variable).describe(variable, variable.name)
        return (there.address, there.end) if there.size else None
    host = variable.numpy()
    return np.lib.array_utils.byte_bounds(host) if host.size else None


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype, but float32 for one of 16 bits."""
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype
