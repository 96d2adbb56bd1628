"""Conversion of tensors to arrays or numbers, which lose their gradients."""

from __future__ import annotations

import warnings
from typing import Any

from tfopt.core import engine
from tfopt.core.callers import called_module, is_meant, users_frame
from tfopt.errors import GradientLostWarning, InvalidArgumentError, InvalidTypeError

__all__ = ["is_recorded", "lost", "set_conversion"]

_MODES = ("warn", "error", "ignore")
_mode = ["warn"]


def set_conversion(mode: str) -> str:
    """Set what happens when a tensor that a tape records is converted to an array or a number.

    ``np.asarray(x)``, ``np.array([x, y])``, NumPy's functions of a list of tensors
    (``np.mean([x, y])``), ``float(x)``, ``math.exp(x)`` and SciPy's functions compute with values
    that no tape sees, so gradients end there. ``x.numpy()``, ``x.item()`` and ``x.tolist()`` are
    explicit about it, and never reported.

    Parameters
    ----------
    mode : {"warn", "error", "ignore"}
        A `GradientLostWarning` once for each line of your code; an exception; or nothing. The mode
        is that of the whole process, initially "warn".

    Returns
    -------
    str
        The previous mode.

    Raises
    ------
    InvalidArgumentError
        If the mode is unknown.
    InvalidTypeError
        By the conversion, if the mode is "error".

    Examples
    --------
    >>> import numpy as np
    >>> import tfopt
    >>> before = tfopt.autodiff.set_conversion("error")
    >>> x = tfopt.constant(2.0)
    >>> with tfopt.GradientTape() as tape:
    ...     tape.watch(x)
    ...     value = x.numpy()   # meant
    ...     y = np.mean([x, x])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tfopt.errors.InvalidTypeError: a tensor that a tape records becomes an array, ...
    >>> tfopt.autodiff.set_conversion(before)
    'error'
    """
    if mode not in _MODES:
        raise InvalidArgumentError(f"mode must be one of {', '.join(_MODES)}, not {mode!r}")
    before, _mode[0] = _mode[0], mode
    return before


def is_recorded(value: Any) -> bool:
    """Return whether a tape of this thread watches a value."""
    tapes = [r for r in engine.recorders() if isinstance(r, engine.Tape)]
    if isinstance(value, engine.Tensor):
        return any(tape.knows(value) for tape in tapes)
    return isinstance(value, engine.Readable) and any(value in tape.variables for tape in tapes)


#: What to do instead of converting a tensor.
_INSTEAD = (
    "Use NumPy's functions on tensors (np.stack for a list of them); if it is meant, say so: "
    "x.numpy()"
)


#: The same where a module does that, by its name.
_INSTEAD_OF = {
    "numpy.lib._index_tricks_impl.": (
        "Of tensors, np.hstack does what np.r_ does, and np.column_stack what np.c_ does"
    ),
    "scipy.": (
        "tfopt.scipy has gradients of these: special.logsumexp, softmax and log_softmax, "
        "linalg.solve_triangular, cho_solve and expm, and stats.norm.logpdf. If it is meant, say "
        "so: x.numpy()"
    ),
}


def _instead() -> str:
    """Return what to do instead of what the user's line has called."""
    module = called_module()
    return next((s for name, s in _INSTEAD_OF.items() if module.startswith(name)), _INSTEAD)


def lost(what: str, method: bool = False, instead: str = "") -> None:
    """Report that a tensor was converted to `what`, by a method in Python or in C.

    Raises
    ------
    InvalidTypeError
        If the mode is "error".
    """
    if _mode[0] == "ignore" or is_meant(2 if method else 1):
        return
    message = (
        f"a tensor that a tape records becomes {what}, and what is computed from that has no "
        f"gradient. {instead or _instead()}"
    )
    if _mode[0] == "error":
        raise InvalidTypeError(message)
    frame = users_frame()
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__", "<unknown>")
    warnings.warn_explicit(
        message, GradientLostWarning, frame.f_code.co_filename, frame.f_lineno, module, registry
    )
