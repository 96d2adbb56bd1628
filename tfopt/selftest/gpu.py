"""The arrays of those cases that run on a GPU."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

import tfopt.cuda
from tfopt.errors import InvalidArgumentError
from tfopt.rules import RULES

__all__ = ["CASES", "to_gpu"]

#: The cases that a GPU computes with the bits of the host.
CASES = (
    *(rule.name for rule in RULES),
    "clip_by_value",
    "clip_by_norm",
    "clip_by_global_norm",
)
#: What copies an array to a GPU, by the name of its library.
_COPIES: dict[str, Callable[[Any, np.ndarray], Any]] = {
    "cupy": lambda cupy, array: cupy.asarray(array),
    "torch": lambda torch, array: torch.tensor(array, device="cuda"),
}


def to_gpu() -> Callable[[np.ndarray], Any]:
    """Return a function that copies an array to the GPU, by the library that there is for it.

    Raises
    ------
    InvalidArgumentError
        If there is no GPU that tfopt can use, or no such library.
    """
    why = tfopt.cuda.why_not()
    if why is not None:
        raise InvalidArgumentError(f"there is no GPU to test: {why}")
    for name, copy in _COPIES.items():
        library = importlib.import_module(name) if find_spec(name) is not None else None
        if library is not None and library.cuda.is_available():
            return partial(copy, library)
    raise InvalidArgumentError("there is no GPU to test with: that needs CuPy, or torch with CUDA")
