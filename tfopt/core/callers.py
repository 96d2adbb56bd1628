"""Which line of a program of users is being carried out."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType

import numpy as np

__all__ = ["is_meant", "users_frame", "users_line"]

_LIBRARIES = Path(np.__file__).parents[1]
_NUMPY = str(_LIBRARIES / "numpy") + os.sep
_TFOPT = str(Path(__file__).parents[1]) + os.sep
#: What gradients pass on their way.
_GRADIENTS = tuple(
    _TFOPT + part for part in ("autodiff" + os.sep, "core" + os.sep, "indexed_slices.py")
)
#: The folders of this package, and of those that users call it through.
_FOLDERS = (_TFOPT, _NUMPY, str(_LIBRARIES / "scipy") + os.sep)


def users_frame() -> FrameType:
    """Return the innermost frame outside of this package and NumPy."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_FOLDERS):
        frame = frame.f_back
    return frame


def is_meant(depth: int) -> bool:
    """Whether an optimizer, say, asks for a value: this package, but for what gradients pass.

    `depth` is that of the innermost frame that may have asked.
    """
    frame = sys._getframe(1 + depth)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_NUMPY, *_GRADIENTS)):
        frame = frame.f_back
    return frame.f_code.co_filename.startswith(_TFOPT)


def users_line() -> tuple[str, int]:
    """Return the file and the number of the line that called into this package."""
    frame = users_frame()
    return frame.f_code.co_filename, frame.f_lineno
