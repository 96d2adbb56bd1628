"""The locks of an update that is asked to hold them (``use_locking``).

A variable has two names: the :class:`~tfopt.variable.Variable`, which has a lock of its own, and
the array it wraps, which has none and may be wrapped again. Two updates exclude each other whatever
names they use, because beside the locks of Variables they hold one that follows from where the
array's memory begins, its views' included: one of a fixed number, so that nothing is kept for each
array. Arrays that share one of these by chance wait for each other needlessly, no more. Arrays that
reach one memory by different beginnings, such as two of ``numpy.frombuffer`` with different
offsets, are not seen to share it.

No lock outlives its holder: an interrupt (Ctrl-C) releases what has been taken
(:class:`~tfopt.kernels.locking.Held`), and a forked child has locks of its own, since nobody is
left there to release those that other threads of its parent held.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfopt.core.backends import backend_of, is_device_array
from tfopt.core.engine import Readable
from tfopt.kernels.arguments import memory_address
from tfopt.kernels.locking import Held

__all__ = ["ProcessLock", "locked"]


class ProcessLock:
    """A reentrant lock, another one in each process.

    ``lock.here`` is that of this process, a :class:`threading.RLock`.
    """

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks: dict[int, Any] = {}  # by how many forks the process comes from the first one

    def __reduce__(self) -> Any:
        return ProcessLock, ()  # a copy's own

    @property
    def here(self) -> Any:
        """The lock of this process."""
        found = self._locks.get(_forks)
        return self._locks.setdefault(_forks, threading.RLock()) if found is None else found


_forks = 0
_STRIPES = [ProcessLock() for _ in range(61)]  # a prime: addresses are multiples of 16


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


def _locks(value: Any) -> Iterator[Any]:
    """Yield an argument's locks; none for one without memory, which the update will refuse."""
    if isinstance(value, Readable):
        yield value.lock
        value = value._array
    if not isinstance(value, np.ndarray) and is_device_array(value):
        yield _stripe(backend_of(value).describe(value, "var").address)
    elif isinstance(value, np.ndarray) or hasattr(value, "__array_interface__"):
        yield _stripe(memory_address(np.asarray(value)))


def _stripe(address: int) -> Any:
    return _STRIPES[address // 16 % len(_STRIPES)].here


def locked(*variables: Any) -> Held:
    """Hold the locks of variables, each a Variable or an array.

    Parameters
    ----------
    *variables : Variable or ndarray
        In any order; several may be one.

    Returns
    -------
    context manager

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.core.locks import locked
    >>> weights = np.zeros(3)
    >>> with locked(weights):
    ...     weights += 1  # no update with use_locking=True meanwhile
    """
    return Held(dict.fromkeys(lock for value in variables for lock in _locks(value)))
