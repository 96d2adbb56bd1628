"""Who computes with an array that is not in the host's memory."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tfopt.core.engine import Readable

if TYPE_CHECKING:
    from tfopt.kernels.calls import Kernel
    from tfopt.optimizers.execution.rule_steps import Steps
    from tfopt.optimizers.execution.step_plan import Dense, Rows

__all__ = ["Backend", "Placement", "backend_of", "first_is_device_array", "is_device_array"]


class Placement(Protocol):
    """Where a device array lies, and what it is an array of."""

    @property
    def address(self) -> int:
        """Of the first element."""

    @property
    def end(self) -> int:
        """The address after the last element."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    @property
    def size(self) -> int:
        """The number of elements."""

    @property
    def dtype(self) -> str:
        """The name of its dtype."""


class Backend(Protocol):
    """What the package asks of those who compute with arrays of one kind of device.

    Every method checks its arguments before anything is written, and raises what the functions for
    arrays in the host's memory raise.
    """

    # ---- arrays

    def describe(self, value: Any, name: str) -> Placement:
        """Return where an array lies; `name` is what an error calls it."""

    def dtype_of(self, value: Any) -> np.dtype[Any]:
        """Return NumPy's dtype of an array."""

    def filled_like(self, value: Any, host: np.ndarray) -> Any:
        """Return a new array beside `value`, with the elements of a host array."""

    def to_host(self, value: Any) -> np.ndarray:
        """Return a copy of an array in the host's memory."""

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
        self, parts: Sequence[Dense | Rows], grads: Sequence[Any], steps: Steps
    ) -> list[Any]:
        """Return the updates of the parts of an optimizer's step, checked."""

    def run_clipped(
        self,
        updates: Sequence[Any],
        clipvalue: float | None = None,
        clipnorm: float | None = None,
        global_clipnorm: float | None = None,
    ) -> None:
        """Run checked updates, their gradients clipped to bounds and then by norms."""

    # ---- clipping, as in tfopt.clip_ops and tfopt.raw_ops

    def clip_by_value(self, t: Any, clip_value_min: Any, clip_value_max: Any, out: Any) -> Any:
        """Clip each element to two bounds."""

    def clip_by_norm(self, t: Any, clip_norm: Any, axes: Any, out: Any, nonfinite: str) -> Any:
        """Scale each slice whose norm is above a limit."""

    def global_norm(self, t_list: Any, out: Any) -> Any:
        """Return the norm of all elements of all tensors."""

    def clip_by_global_norm(
        self, t_list: Any, clip_norm: Any, use_norm: Any, out: Any, nonfinite: str
    ) -> tuple[list[Any], Any]:
        """Scale tensors by one factor."""

    def l2_loss(self, t: Any) -> Any:
        """Return half the sum of all squares."""


#: The attribute that tells a device's arrays, and the module and class of its backend.
BACKENDS = [("__cuda_array_interface__", "tfopt.cuda.backend:CudaBackend")]
_loaded: dict[str, Backend] = {}


def is_device_array(value: Any) -> bool:
    """Return whether an array, or that of a variable, is in a device's memory; loads no backend."""
    if isinstance(value, Readable):
        value = value._array
    return not isinstance(value, np.ndarray) and _path_of(value) is not None


def first_is_device_array(value: Any) -> bool:
    """Return whether an array, or the first of a list, is in a device's memory."""
    return is_device_array(_first(value))


def backend_of(value: Any) -> Backend:
    """Return the backend of a device array, a variable on a device, or the first of a list.

    It is imported when its first array comes.

    Raises
    ------
    TypeError
        If it is no device's array.
    """
    value = _first(value)
    path = _path_of(value._array if isinstance(value, Readable) else value)
    if path is None:
        raise TypeError(f"no backend computes with a {type(value).__name__}")
    if path not in _loaded:
        module, _, name = path.partition(":")
        _loaded[path] = getattr(importlib.import_module(module), name)()
    return _loaded[path]


def _first(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return value[0] if value else None
    return value


def _path_of(value: Any) -> str | None:
    """Return where the backend of an array is defined; None if it is no device's."""
    for attribute, path in BACKENDS:
        try:
            if hasattr(value, attribute):
                return path
        except RuntimeError:  # of a torch tensor that is there but requires a gradient
            return path
    return None
