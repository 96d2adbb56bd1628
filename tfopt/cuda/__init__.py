"""The rules on NVIDIA GPUs, for arrays that lie there.

Nothing has to be called: the functions of :mod:`tfopt.training_ops` and :mod:`tfopt.raw_ops` take
CuPy, Numba and torch arrays, and what else has a ``__cuda_array_interface__``, and update them
where they are. The library behind it is loaded when the first such array comes. This module tells
whether it can be.
"""

from __future__ import annotations

from tfopt.cuda.library import LibraryError, load

__all__ = ["is_available", "synchronize", "why_not"]


def is_available() -> bool:
    """Return whether arrays on a GPU can be updated.

    Examples
    --------
    >>> import tfopt.cuda
    >>> tfopt.cuda.is_available() or bool(tfopt.cuda.why_not())
    True
    """
    return why_not() is None


def why_not() -> str | None:
    """Return why arrays on a GPU cannot be updated, in one line; None if they can."""
    try:
        load()
    except LibraryError as error:
        return str(error)
    return None


def synchronize(device: int = 0) -> None:
    """Wait until a GPU has done all it was given.

    Parameters
    ----------
    device : int, default 0

    Raises
    ------
    tfopt.cuda.library.LibraryError
        If there is none, or something it was given has failed.
    """
    library = load()
    library.check(library.call["synchronize"](device))
