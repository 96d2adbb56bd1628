"""The locks that updates hold with ``use_locking``.

A variable can be reached in two ways: through a :class:`~tfopt.variable.Variable`, which has a
lock, and through the array it wraps, which has none and may be wrapped several times. To exclude
each other in all cases, updates also hold a lock chosen by the address at which the memory of the
array (of its base, for a view) begins. There is a fixed number of these locks, so nothing is stored
per array; arrays that share one by chance only wait for each other needlessly. Arrays whose base
addresses differ although their memory is shared, such as two results of ``numpy.frombuffer`` with
different offsets, do not exclude each other.

No lock outlives its holder: an interrupt (Ctrl-C) releases the locks already acquired
(:class:`~tfopt.kernels.platform.locking.Held`), and a forked child has its own locks, since the
threads that held its parent's locks do not exist there.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Any

import numpy as np

from tfopt.core.backends import backend_of, is_device_array
from tfopt.core.engine import Readable
from tfopt.errors import InvalidArgumentError
from tfopt.kernels.arrays.coerce import as_array, memory_address
from tfopt.kernels.platform.locking import Held

__all__ = ["ProcessLock", "locked"]


class ProcessLock:
    """A reentrant lock that is separate in each process.

    ``lock.here`` is the lock of this process, a :class:`threading.RLock`.
    """

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks: dict[int, Any] = {}  # by the number of forks that led to the process

    def __reduce__(self) -> Any:
        return ProcessLock, ()  # a copy has its own lock

    @property
    def here(self) -> Any:
        """The lock of this process."""
        lock = self._locks.get(_forks)
        return self._locks.setdefault(_forks, threading.RLock()) if lock is None else lock

    def held(self) -> Held:
        """Return a context that holds the lock, and that an interrupt cannot leave half entered."""
        return Held([self.here])


_forks = 0
_STRIPES = [ProcessLock() for _ in range(61)]  # a prime: addresses are multiples of 16


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


def _add_locks(value: Any, locks: dict[Any, None]) -> None:
    """Add the locks of an argument; none if it is not an array, which the update rejects."""
    if isinstance(value, Readable):
        locks[value.lock] = None
        value = value._array
    if type(value) is np.ndarray:
        locks[_stripe(memory_address(value))] = None
    elif not isinstance(value, np.ndarray) and is_device_array(value):
        locks[_stripe(backend_of(value).describe(value, "var").address)] = None
    else:
        with suppress(InvalidArgumentError):
            locks[_stripe(memory_address(as_array(value, "var")))] = None


def _stripe(address: int) -> Any:
    return _STRIPES[address // 16 % len(_STRIPES)].here


def locked(*variables: Any) -> Held:
    """Hold the locks of variables, each a Variable or an array.

    Parameters
    ----------
    *variables : Variable or ndarray
        In any order; duplicates are allowed.

    Returns
    -------
    context manager

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.core.locks import locked
    >>> weights = np.zeros(3)
    >>> with locked(weights):
    ...     weights += 1  # excludes updates with use_locking=True
    """
    locks: dict[Any, None] = {}
    for value in variables:
        _add_locks(value, locks)
    return Held(locks)
