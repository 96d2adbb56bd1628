"""Backends: the interface to libraries that compute with arrays in a device's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tfopt.core.engine import Readable
from tfopt.imports import imported

if TYPE_CHECKING:
    from tfopt.core.rule_steps import DenseBucket, RuleStep, SparseUpdate
    from tfopt.kernels.update.step_table import Kernel

__all__ = ["Backend", "Placement", "backend_of", "first_is_device_array", "is_device_array"]


class Placement(Protocol):
    """The location, shape and dtype of a device array."""

    @property
    def address(self) -> int:
        """The address of the first element."""

    @property
    def end(self) -> int:
        """The address past the last element."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""

    @property
    def size(self) -> int:
        """The number of elements."""

    @property
    def dtype(self) -> str:
        """The name of the dtype."""


class Backend(Protocol):
    """The interface of a backend, which computes with the arrays of one kind of device.

    Every method checks its arguments before anything is written, and raises the same exceptions as
    the functions for host arrays.
    """

    # ---- arrays

    def describe(self, value: Any, name: str) -> Placement:
        """Return the placement of an array; `name` is its name in error messages."""

    def dtype_of(self, value: Any) -> np.dtype[Any]:
        """Return the NumPy dtype of an array."""

    def filled_like(self, value: Any, host: np.ndarray) -> Any:
        """Return a new array on the device of `value`, with the elements of a host array."""

    def to_host(self, value: Any) -> np.ndarray:
        """Return a copy of an array in host memory."""

    def write(self, into: Any, value: Any) -> None:
        """Copy a host array, or one of the same library, into an array."""

    # ---- updates

    def apply(
        self,
        kernel: Kernel,
        operands: tuple[Any, ...],
        hypers: tuple[Any, ...],
        flags: int,
        indices: Any,
        duplicates: str,
        grad_scale: Any,
        var_scale: Any,
        check_range: bool,
    ) -> None:
        """Update a variable, some of its rows, or many variables given as lists."""

    def checked_updates(
        self,
        parts: Sequence[DenseBucket | SparseUpdate],
        steps: Sequence[RuleStep],
        grads: Sequence[Any],
    ) -> list[Any]:
        """Check the updates of the parts of an optimizer's step and return them."""

    def run_clipped(
        self,
        updates: Sequence[Any],
        clipvalue: float | None = None,
        clipnorm: float | None = None,
        global_clipnorm: float | None = None,
    ) -> None:
        """Run checked updates, clipping their gradients by value and then by norm."""

    # ---- clipping, as in tfopt.clip_ops and tfopt.raw_ops

    def clip_by_value(self, t: Any, clip_value_min: Any, clip_value_max: Any, out: Any) -> Any:
        """Clip each element to a range."""

    def clip_by_norm(self, t: Any, clip_norm: Any, axes: Any, out: Any, nonfinite: str) -> Any:
        """Scale down each slice whose norm exceeds a limit."""

    def global_norm(self, t_list: Any, out: Any) -> Any:
        """Return the norm of all elements of all tensors."""

    def clip_by_global_norm(
        self, t_list: Any, clip_norm: Any, use_norm: Any, out: Any, nonfinite: str
    ) -> tuple[list[Any], Any]:
        """Scale all tensors by a common factor."""

    def l2_loss(self, t: Any) -> Any:
        """Return half the sum of all squares."""


#: The attribute that identifies a device's arrays, and the module and class of its backend.
BACKENDS = [("__cuda_array_interface__", "tfopt.cuda.backend:CudaBackend")]
_loaded: dict[str, Backend] = {}


def is_device_array(value: Any) -> bool:
    """Return whether an array or a variable is in a device's memory; loads no backend."""
    if isinstance(value, Readable):
        value = value._array
    return not isinstance(value, np.ndarray) and _path_of(value) is not None


def first_is_device_array(value: Any) -> bool:
    """Return whether an array, or the first array of a list, is in a device's memory."""
    return is_device_array(_first(value))


def backend_of(value: Any) -> Backend:
    """Return the backend of a device array, a variable on a device, or the first of a list.

    Backends are imported on first use.

    Raises
    ------
    TypeError
        If no backend supports the array.
    """
    value = _first(value)
    path = _path_of(value._array if isinstance(value, Readable) else value)
    if path is None:
        raise TypeError(f"no backend supports arrays of type {type(value).__name__}")
    if path not in _loaded:
        module, _, name = path.partition(":")
        _loaded[path] = getattr(imported(module), name)()
    return _loaded[path]


def _first(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return value[0] if value else None
    return value


def _path_of(value: Any) -> str | None:
    """Return the module and class of an array's backend; None if it is not on a device."""
    for attribute, path in BACKENDS:
        try:
            if hasattr(value, attribute):
                return path
        except RuntimeError:  # a torch tensor that requires a gradient, or has another layout
            return path if getattr(value, "is_cuda", True) else None
    return None
