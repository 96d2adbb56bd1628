"""Where the tests of the CUDA path put their arrays.

``TFOPT_TEST_DEVICE`` names one. ``host`` (the default) and ``host_torch`` need no GPU: the sources
are compiled for the host, and arrays of NumPy, or tensors of torch, are passed off as a GPU's.
``cupy`` and ``torch`` are those libraries on a GPU.
"""

from __future__ import annotations

import os
from itertools import cycle
from typing import Any

import numpy as np
import pytest

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


#: Streams of arrays: the legacy one, none, that of each thread, and others.
_STREAMS = cycle([1, None, 2, 0x7F10, 0x7F20])


class Host:
    name = "host"
    on_host = True

    def to(self, array: np.ndarray) -> Any:
        """Return a copy on the device, on the next of several streams."""
        return HostArray(array.copy(), next(_STREAMS))

    def back(self, array: Any) -> np.ndarray:
        """Return a copy on the host."""
        return array.array.copy()

    def part(self, array: Any, key: Any) -> Any:
        """Return a view of a part of an array on the device."""
        return HostArray(array.array[key], array.stream)

    def move(self, array: Any) -> None:
        """Move an array to another address."""
        array.array = array.array.copy()


class CuPy:
    name = "cupy"
    on_host = False

    def to(self, array: np.ndarray) -> Any:
        import cupy

        # of an array without axes CuPy passes the number on, and loses the sign of a zero
        return cupy.asarray(np.atleast_1d(array)).reshape(array.shape)

    def back(self, array: Any) -> np.ndarray:
        return array.get()

    def part(self, array: Any, key: Any) -> Any:
        return array[key]

    def move(self, array: Any) -> None:
        pytest.skip("CuPy's arrays stay where they are")


class Torch:
    name = "torch"
    on_host = False

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

    def move(self, array: Any) -> None:
        array.data = array.data.clone()

    def seen(self, tensor: Any) -> Any:
        """Return a tensor that torch has made, as one on the device."""
        return tensor


class HostTorch(Torch):
    """Torch's tensors in host memory, of a class that says it is on a GPU."""

    name = "host_torch"
    on_host = True
    kind: Any = None  #: The class of the tensors, once there is one.

    def __init__(self) -> None:
        if HostTorch.kind is None:
            HostTorch.kind = self._set_up()

    def _set_up(self) -> Any:
        """Return the class, and let torch take its tensors for a GPU's."""
        torch = pytest.importorskip("torch")

        class Tensor(torch.Tensor):
            is_cuda = True
            device = torch.device("cuda", 0)

            @property
            def __cuda_array_interface__(self) -> dict[str, Any]:
                if self.requires_grad:
                    raise RuntimeError("Can't get __cuda_array_interface__ on a Variable")
                return {}  # tfopt must not need it: torch's has no bfloat16

            def cpu(self) -> Any:
                return self.detach().clone().as_subclass(torch.Tensor)

            def numpy(self, *_: Any, **__: Any) -> Any:
                raise TypeError("can't convert cuda:0 device type tensor to numpy")

            __array__ = __dlpack__ = numpy

        streams = cycle([0, 2, 0x7F10])
        torch._C._cuda_getCurrentRawStream = lambda _: next(streams)
        torch.cuda.is_current_stream_capturing = lambda: False
        self._let_move(torch.Tensor, Tensor)
        return Tensor

    def to(self, array: np.ndarray) -> Any:
        import torch

        if array.dtype.name == "bfloat16":
            tensor = torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
        else:
            tensor = torch.from_numpy(array.copy())
        return tensor.as_subclass(self.kind)

    def seen(self, tensor: Any) -> Any:
        return tensor.as_subclass(self.kind)

    def _let_move(self, tensors: Any, kind: Any) -> None:
        """Let `to(device=...)` of torch's tensors move them onto the device, too."""
        to = tensors.to

        def move(tensor: Any, *args: Any, device: Any = None, **options: Any) -> Any:
            if getattr(device, "type", device) != "cuda":
                where = {} if device is None else {"device": device}
                return to(tensor, *args, **where, **options)
            return to(tensor, *args, **options).detach().clone().as_subclass(kind)

        tensors.to = move


DEVICES = {"host": Host, "host_torch": HostTorch, "cupy": CuPy, "torch": Torch}
DEVICE = DEVICES[os.environ.get("TFOPT_TEST_DEVICE", "host")]()
