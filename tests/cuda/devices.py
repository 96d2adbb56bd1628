"""Where the tests of the CUDA path put their arrays.

``TFOPT_TEST_DEVICE`` names one: ``host`` (the default; the sources compiled for the host, and
NumPy's memory passed off as a GPU's), ``cupy`` or ``torch``, which need a GPU.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

__all__ = ["DEVICE", "HostArray"]


class Namespace:
    """What the array API standard has to make an array like another."""

    @staticmethod
    def empty(shape: Any, *, dtype: Any, device: Any) -> HostArray:
        assert device == "host"
        return HostArray(np.full(shape, 7).astype(dtype))


class HostArray:
    """A NumPy array that looks like one on a GPU."""

    device = "host"

    def __init__(self, array: np.ndarray, stream: int | None = None) -> None:
        self.array, self.stream = array, stream

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def read_only(self) -> bool:
        return not self.array.flags.writeable

    def get(self) -> np.ndarray:
        return self.array.copy()

    def set(self, array: np.ndarray) -> None:
        assert array.dtype == self.dtype and array.shape == self.shape
        self.array[...] = array

    def __setitem__(self, key: Any, value: HostArray) -> None:
        self.array[key] = value.array

    def __array_namespace__(self) -> Any:
        return Namespace

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.array.shape,
            "typestr": self.array.dtype.str,
            # libraries for GPUs give empty arrays no memory
            "data": (self.array.ctypes.data if self.array.size else 0, self.read_only),
            "strides": None if self.array.flags.c_contiguous else self.array.strides,
            "version": 3,
            "stream": self.stream,
        }


class Host:
    name = "host"

    def to(self, array: np.ndarray) -> Any:
        """Return a copy on the device."""
        return HostArray(array.copy())

    def back(self, array: Any) -> np.ndarray:
        """Return a copy on the host."""
        return array.array.copy()

    def part(self, array: Any, key: Any) -> Any:
        """Return a view of a part of an array on the device."""
        return HostArray(array.array[key])


class CuPy:
    name = "cupy"

    def to(self, array: np.ndarray) -> Any:
        import cupy

        return cupy.asarray(array)

    def back(self, array: Any) -> np.ndarray:
        return array.get()

    def part(self, array: Any, key: Any) -> Any:
        return array[key]


class Torch:
    name = "torch"

    def to(self, array: np.ndarray) -> Any:
        import torch

        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.view(np.int16).copy()).cuda().view(torch.bfloat16)
        return torch.from_numpy(array.copy()).cuda()

    def back(self, array: Any) -> np.ndarray:
        import torch

        if array.dtype == torch.bfloat16:
            import ml_dtypes

            return array.view(torch.int16).cpu().numpy().view(ml_dtypes.bfloat16)
        return array.cpu().numpy()

    def part(self, array: Any, key: Any) -> Any:
        return array[key]


DEVICE = {"host": Host, "cupy": CuPy, "torch": Torch}[os.environ.get("TFOPT_TEST_DEVICE", "host")]()
