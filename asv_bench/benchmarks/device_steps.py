"""The host's time for a step of variables on a GPU; no GPU is needed.

The CUDA library is compiled for the host without its launches, and arrays of NumPy are passed off
as a GPU's. So all is timed that comes before and after the GPU's work.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from .common import Step, best_times, public, times

HERE = Path(__file__).parents[2] / "tests/cuda"


class Interface:
    """An array that looks like CuPy's."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.dtype, self.shape = array, array.dtype, array.shape
        self.__cuda_array_interface__ = {**array.__array_interface__, "stream": None}

    def __array_namespace__(self) -> Any:
        return Interface

    device = "host"

    @staticmethod
    def empty(shape: tuple[int, ...], *, dtype: Any, device: str) -> Interface:
        return Interface(np.empty(shape, dtype))

    def set(self, array: np.ndarray) -> None:
        self.array[...] = array


def _interfaces(n: int) -> list[Any]:
    return [Interface(np.ones(64, np.float32)) for _ in range(n)]


@cache
def _torch() -> Any:
    """Return torch, whose tensors say from now on that they are on a GPU."""
    try:
        torch = import_module("torch")
    except ImportError:
        raise NotImplementedError("torch is not installed") from None
    there = torch.device("cuda", 0)
    torch.Tensor.is_cuda = True
    torch.Tensor.device = property(lambda tensor: there)
    torch.Tensor.__cuda_array_interface__ = property(lambda tensor: {})
    torch.cuda.current_stream = lambda device: SimpleNamespace(cuda_stream=0)
    return torch


def _tensors(n: int) -> list[Any]:
    torch = _torch()
    return [torch.ones(64) for _ in range(n)]


ARRAYS: dict[str, Callable[[int], list[Any]]] = {"interface": _interfaces, "torch": _tensors}
LIMITS = {"none": {}, "clipnorm": {"clipnorm": 1.0}, "global_clipnorm": {"global_clipnorm": 1.0}}


def _use_library() -> None:
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        raise NotImplementedError("there is no C++ compiler")
    flags = {"TFOPT_CUDA_HOST_FLAGS": "-DTFOPT_WITHOUT_LAUNCHES"}
    done = subprocess.run(
        [sys.executable, "host_library.py"],
        cwd=HERE, env={**os.environ, **flags}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    os.environ["TFOPT_CUDA_LIBRARY"] = done.stdout.split()[-1]


def _step(arrays: str, limits: str, n: int) -> Step:
    make = ARRAYS[arrays]
    pairs = list(zip(make(n), make(n), strict=True))
    opt = public("optimizers.Adam")(**LIMITS[limits])
    opt.apply_gradients(pairs)
    return lambda: opt.apply_gradients(pairs)


def _interface(array: np.ndarray) -> Any:
    return Interface(array)


def _tensor(array: np.ndarray) -> Any:
    return _torch().from_numpy(array)


EACH: dict[str, Callable[[np.ndarray], Any]] = {"interface": _interface, "torch": _tensor}
SPARSE: dict[str, tuple[str, dict[str, Any]]] = {
    "Adam, lazy": ("Adam", {"sparse": "lazy"}),
    "Adam, tensorflow": ("Adam", {"sparse": "tensorflow"}),
    "Adagrad": ("Adagrad", {}),
    "Adam, lazy, global_clipnorm": ("Adam", {"sparse": "lazy", "global_clipnorm": 1.0}),
}


def _rows_step(arrays: str, which: str, n: int) -> Step:
    to, slices = EACH[arrays], public("indexed_slices.IndexedSlices")
    pairs = [
        (slices(to(np.ones((8, 16), np.float32)), to(np.arange(8))), to(np.ones((99, 16), "f4")))
        for _ in range(n)
    ]
    name, options = SPARSE[which]
    opt = public(f"optimizers.{name}")(**options)
    opt.apply_gradients(pairs)
    return lambda: opt.apply_gradients(pairs)


class HostPart:
    """Microseconds of the host for a step of Adam, and for each further variable of 64 elements."""

    params = (list(ARRAYS), list(LIMITS))
    param_names = ("arrays", "limits")
    unit = "us"
    timeout = 300

    def setup(self, arrays: str, limits: str) -> None:
        _use_library()
        self.calls = [times(100, _step(arrays, limits, 1)), times(1, _step(arrays, limits, 1000))]

    def track_one_variable(self, arrays: str, limits: str) -> float:
        one, _ = best_times(*self.calls, seconds=1.0)
        return one / 100 * 1e6

    def track_each_further_variable(self, arrays: str, limits: str) -> float:
        one, many = best_times(*self.calls, seconds=1.0)
        return (many - one / 100) / 999 * 1e6


class HostPartOfRows:
    """Microseconds of the host for a step of 8 rows of a table, and for each further table."""

    params = (list(EACH), list(SPARSE))
    param_names = ("arrays", "step")
    unit = "us"
    timeout = 300

    def setup(self, arrays: str, which: str) -> None:
        _use_library()
        self.calls = [times(100, _rows_step(arrays, which, 1)), _rows_step(arrays, which, 100)]

    def track_one_table(self, arrays: str, which: str) -> float:
        one, _ = best_times(*self.calls, seconds=1.0)
        return one / 100 * 1e6

    def track_each_further_table(self, arrays: str, which: str) -> float:
        one, many = best_times(*self.calls, seconds=1.0)
        return (many - one / 100) / 99 * 1e6
