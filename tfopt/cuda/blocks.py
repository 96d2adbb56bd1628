"""Blocks of codes (`tfopt.storage`) in a GPU's memory: the bytes of an array of any library."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Blocks"]


class Blocks:
    """Blocks of codes on a GPU, whose libraries have no structured dtypes.

    Parameters
    ----------
    array : array
        Their bytes, a contiguous uint8 array with one axis.
    dtype : dtype
        Of blocks, as in `tfopt.storage`.
    """

    def __init__(self, array: Any, dtype: np.dtype[Any]) -> None:
        self.array, self.dtype = array, dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of blocks."""
        return (self.array.shape[0] // self.dtype.itemsize,)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        interface: dict[str, Any] = self.array.__cuda_array_interface__
        return interface
