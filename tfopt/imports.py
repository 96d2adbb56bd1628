"""Lazy imports that a fork cannot interrupt halfway.

Python locks a module while it is imported. If another thread forks meanwhile, the child has the
lock but not the thread that would release it, and waits for ever. So functions of this package
import by `imported`, for which forks wait. Forks also wait for modules of this package that a
user's thread imports by a statement.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from importlib import _bootstrap, import_module
from typing import Any

import numpy as np

__all__ = ["bfloat16", "imported"]

#: So long, in seconds, a fork waits for imports, and an import for a fork. Each of them ends
#: sooner, unless there is a lock that one thread has and the other one waits for.
PATIENCE = 10.0

_importing: dict[object, tuple[int, str]] = {}  # the threads that import, and modules' names
_forking = threading.RLock()  # held by a fork, and by a thread while it enters an import above


def imported(name: str) -> Any:
    """Return a module, imported if it has not been; no other thread forks meanwhile.

    Parameters
    ----------
    name : str
        The full name, such as "scipy.sparse".

    Raises
    ------
    ImportError
        If it cannot be imported.
    """
    token = object()
    # a fork that waits holds the lock; it waits for what is imported by an import, too
    entered = not _names(own=True) and _forking.acquire(timeout=PATIENCE)
    try:
        _importing[token] = threading.get_ident(), name
    finally:
        if entered:
            _forking.release()
    try:
        return import_module(name)
    finally:
        _importing.pop(token, None)


def bfloat16() -> np.dtype[Any]:
    """Return the dtype bfloat16, that of ml_dtypes.

    Raises
    ------
    ImportError
        If ml_dtypes is not installed.
    """
    dtype: np.dtype[Any] = np.dtype(imported("ml_dtypes").bfloat16)
    return dtype


def _names(own: bool) -> list[str]:
    """Return the names of modules that this thread, or that the others, are importing."""
    here = threading.get_ident()
    names = [name for thread, name in [*_importing.values()] if (thread == here) == own]
    locks = getattr(_bootstrap, "_module_locks", {})  # with what is imported by statements
    for name, lock in [*locks.items()]:
        thread = getattr(lock(), "owner", None)
        if name.partition(".")[0] == "tfopt" and thread and (thread == here) == own:
            names.append(name)
    return names


def _before_fork() -> None:
    end = time.monotonic() + PATIENCE
    _forking.acquire(timeout=PATIENCE)
    while (names := _names(own=False)) and time.monotonic() < end:
        for name in names:
            with suppress(Exception):  # which the other thread gets, too
                import_module(name)  # waits for the other thread
        time.sleep(0.0001)  # until it has left `imported`


def _after_fork() -> None:
    with suppress(RuntimeError):  # it has not been acquired
        _forking.release()


def _after_fork_in_child() -> None:
    global _forking
    _forking = threading.RLock()
    _importing.clear()  # its other threads are not here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
    )
