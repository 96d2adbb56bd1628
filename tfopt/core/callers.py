"""The frames of the user's program, by the names of modules."""

from __future__ import annotations

import sys
from types import FrameType

__all__ = [
    "called_module",
    "is_meant",
    "of_sparse_product",
    "stacklevel",
    "users_frame",
    "users_line",
]

#: This package, and the libraries through which users may call it.
_NOT_THE_USERS = ("tfopt.", "numpy.", "scipy.")
#: The parts of this package that record and compute gradients, and the library that calls them.
_GRADIENTS = ("tfopt.autodiff.", "tfopt.core.", "tfopt.indexed_slices.", "numpy.")


def _innermost(skipped: tuple[str, ...], depth: int) -> tuple[FrameType, int]:
    """Return the innermost frame that is not of some packages, and how far out it is.

    `depth` is how far out the first frame is, from the function that calls this one.
    """
    frame, level = sys._getframe(1 + depth), depth
    while frame.f_back is not None and _module_of(frame).startswith(skipped):
        frame, level = frame.f_back, level + 1
    return frame, level


def _module_of(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return f"{name}."


def users_frame() -> FrameType:
    """Return the innermost frame outside this package, NumPy and SciPy."""
    return _innermost(_NOT_THE_USERS, 1)[0]


def called_module() -> str:
    """Return the name of the module, with a dot behind it, that the user's frame has called."""
    frame = called = sys._getframe(1)
    while frame.f_back is not None and _module_of(frame).startswith(_NOT_THE_USERS):
        called, frame = frame, frame.f_back
    return _module_of(called)


def users_line() -> tuple[str, int]:
    """Return the file name and line number of the call into this package."""
    frame = users_frame()
    return frame.f_code.co_filename, frame.f_lineno


def stacklevel() -> int:
    """Return the `stacklevel` with which the caller's warning points to the user's code."""
    return _innermost(_NOT_THE_USERS, 1)[1]


def is_meant(depth: int) -> bool:
    """Return whether this package itself, for example an optimizer, asks for a tensor's value.

    The parts that record and compute gradients do not count. `depth` is the depth of the innermost
    frame that may have asked.
    """
    return _module_of(_innermost(_GRADIENTS, depth + 1)[0]).startswith("tfopt.")


#: What multiplies sparse matrices in SciPy, by its versions.
_PRODUCTS = ("_matmul_dispatch", "_mul_dispatch")


def of_sparse_product(depth: int) -> bool:
    """Return whether a product of SciPy's sparse matrices asks its other operand for an array.

    If that has none, SciPy lets it multiply. `depth` is as in `is_meant`.
    """
    frame = sys._getframe(1 + depth)
    return frame.f_code.co_name in _PRODUCTS and _module_of(frame).startswith("scipy.sparse.")
