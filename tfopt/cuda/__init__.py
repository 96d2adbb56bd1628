"""Support for arrays on NVIDIA GPUs.

Nothing in this module has to be called: the functions of :mod:`tfopt.training_ops`,
:mod:`tfopt.raw_ops` and :mod:`tfopt.clip_ops` accept CuPy, Numba and torch arrays, and any other
object with a ``__cuda_array_interface__``. The CUDA library is loaded when the first such array is
used. This module tells whether it can be loaded.
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
    """Return the reason why arrays on a GPU cannot be updated, as one line; None if they can."""
    try:
        load()
    except LibraryError as error:
        return str(error)
    return None


def synchronize(device: int = 0) -> None:
    """Wait until a GPU has finished all queued work.

    Parameters
    ----------
    device : int, default 0

    Raises
    ------
    tfopt.cuda.library.LibraryError
        If there is no GPU, or queued work has failed.
    """
    library = load()
    library.check(library.call["synchronize"](device))


def __dir__() -> list[str]:
    return __all__
