"""The places of slots: memory, files of a folder, or arrays that a function returns."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from tempfile import TemporaryFile
from typing import Any, TypeAlias

import numpy as np

from tfopt.core.line_alignment import empty_at_a_line
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.variable import Variable

__all__ = ["Allocate", "Files", "allocated", "as_allocate", "moved"]

#: A function of the names of a variable and a slot, a shape and a dtype.
Allocate: TypeAlias = Callable[[str, str, tuple[int, ...], np.dtype[Any]], np.ndarray]


class Files:
    """Arrays in files of a folder, mapped into memory; a file vanishes with its array.

    Parameters
    ----------
    folder : path-like
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.path.abspath(os.fspath(folder))

    def __call__(
        self, variable_name: str, slot_name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> np.ndarray:
        """Return an array of zeros in a new file."""
        size = math.prod(shape) * dtype.itemsize
        if size == 0:
            return np.empty(shape, dtype)
        os.makedirs(self.folder, exist_ok=True)
        with TemporaryFile(dir=self.folder) as file:
            file.truncate(size)
            if hasattr(os, "posix_fallocate"):  # else a full disk ends the process at a write
                os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, dtype, "r+", shape=shape)


def as_allocate(where: Any) -> Allocate | None:
    """Return a function that allocates slots; None stands for memory, a path for `Files`."""
    if where is None or callable(where):
        return where  # type: ignore[no-any-return]
    if isinstance(where, (str, os.PathLike)):
        return Files(where)
    raise InvalidTypeError(
        f"slots are allocated in a folder or by a function, not by a {type(where).__name__}"
    )


def allocated(
    allocate: Allocate | None,
    variable_name: str,
    slot_name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
) -> np.ndarray:
    """Return an array for a slot; check one that a function returns."""
    if allocate is None:
        return empty_at_a_line(shape, dtype)
    array = allocate(variable_name, slot_name, shape, dtype)
    what = f"the array allocated for the slot {slot_name} of {variable_name}"
    if not isinstance(array, np.ndarray):
        raise InvalidTypeError(f"{what} must be a numpy.ndarray, not {type(array).__name__}")
    if array.dtype != dtype:
        raise InvalidTypeError(f"{what} must have dtype {dtype}, not {array.dtype}")
    if array.shape != shape:
        raise InvalidArgumentError(f"{what} must have shape {shape}, not {array.shape}")
    flags = array.flags
    if not (flags.c_contiguous and flags.writeable and flags.aligned):
        raise InvalidArgumentError(f"{what} must be writable, aligned and C-contiguous")
    return array


def moved(
    allocate: Allocate | None, variable_name: str, slot_name: str, slot: Variable
) -> np.ndarray:
    """Return the array of a slot elsewhere."""
    array = slot.numpy()
    new = allocated(allocate, variable_name, slot_name, array.shape, array.dtype)
    new[...] = array
    return new
