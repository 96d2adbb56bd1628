"""Tensors that become arrays or numbers while a tape records them: there the gradient ends."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np

from tfopt_ref.errors import GradientLostWarning, InvalidArgumentError, InvalidTypeError

__all__ = ["lost", "set_conversion"]

_SETTING = {"mode": "warn"}
_NUMPY, _TWIN = str(Path(np.__file__).parent), str(Path(__file__).parents[1])


def set_conversion(mode: str) -> str:
    """Set what happens then: "warn", "error" or "ignore". Return what it was."""
    if mode not in ("warn", "error", "ignore"):
        raise InvalidArgumentError(f"mode must be one of warn, error, ignore, not {mode!r}")
    before, _SETTING["mode"] = _SETTING["mode"], mode
    return before


def lost(what: str) -> None:
    """Report that a tensor has become something else, unless the twin itself asked for that."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_NUMPY):
        frame = frame.f_back
    if _SETTING["mode"] == "ignore" or frame.f_code.co_filename.startswith(_TWIN):
        return
    message = (
        f"a tensor that a tape records becomes {what}, and what is computed from that has no "
        "gradient. Use NumPy's functions on tensors (np.stack for a list of them); if it is meant, "
        "say so: x.numpy()"
    )
    if _SETTING["mode"] == "error":
        raise InvalidTypeError(message)
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    filename, module = frame.f_code.co_filename, frame.f_globals.get("__name__", "")
    warnings.warn_explicit(message, GradientLostWarning, filename, frame.f_lineno, module, registry)
