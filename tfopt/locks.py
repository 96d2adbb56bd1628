"""The locks of an update that is asked to hold them (``use_locking``).

A variable has two names: the :class:`~tfopt.variable.Variable`, which has a lock of its own, and
the array it wraps, which has none and may be wrapped again. Two updates exclude each other whatever
names they use, because beside the locks of Variables they hold one that follows from where the
array's memory begins, its views' included: one of a fixed number, so that nothing is kept for each
array. Arrays that share one of these by chance wait for each other needlessly, no more. Arrays that
reach one memory by different beginnings, such as two of ``numpy.frombuffer`` with different
offsets, are not seen to share it.

An order of the locks would not prevent a deadlock: whoever holds ``variable.lock`` and then updates
has begun in an order of their own. So an update waits for one lock only while it holds none of the
others it has taken.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from tfopt.devices import on_gpu
from tfopt.kernels.arguments import memory_address
from tfopt.variable import Variable

__all__ = ["locked"]


class _Lock(Protocol):
    """A reentrant lock, whose class :mod:`threading` does not name."""

    def acquire(self, blocking: bool = ...) -> bool: ...
    def release(self) -> None: ...


_STRIPES: list[_Lock] = []


def _renew() -> None:
    """Make the locks, also in a forked child, where nobody is left to release those held."""
    _STRIPES[:] = [threading.RLock() for _ in range(61)]  # a prime: addresses are multiples of 16


_renew()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def _locks(value: Any) -> Iterator[_Lock]:
    """Yield an argument's locks; none for one without memory, which the update will refuse."""
    if isinstance(value, Variable):
        yield value.lock
        value = value.value()
    if not isinstance(value, np.ndarray) and on_gpu(value):
        from tfopt.cuda.arrays import as_device_array

        yield _STRIPES[as_device_array(value, "var").address // 16 % len(_STRIPES)]
        return
    if not isinstance(value, np.ndarray) and not hasattr(value, "__array_interface__"):
        return
    yield _STRIPES[memory_address(np.asarray(value)) // 16 % len(_STRIPES)]


def _acquire(locks: list[_Lock]) -> None:
    while True:
        locks[0].acquire()
        for k, lock in enumerate(locks):
            if k and not lock.acquire(blocking=False):
                break
        else:
            return
        for taken in locks[:k]:
            taken.release()
        locks = [lock, *locks[:k], *locks[k + 1 :]]  # wait for the one that was not free


@contextmanager
def locked(*variables: Any) -> Iterator[None]:
    """Hold the locks of variables, each a Variable or an array.

    Parameters
    ----------
    *variables : Variable or ndarray
        In any order; several may be one.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt.locks import locked
    >>> weights = np.zeros(3)
    >>> with locked(weights):
    ...     weights += 1  # no update with use_locking=True meanwhile
    """
    locks = list(dict.fromkeys(lock for value in variables for lock in _locks(value)))
    if locks:
        _acquire(locks)
    try:
        yield
    finally:
        for lock in locks:
            lock.release()
