"""Changes made completely or not at all, some of them by Python functions."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeAlias

import numpy as np

from tfopt.kernels.update.checks import Call
from tfopt.kernels.update.commit import Undo, Write, carry_out

__all__ = ["Work", "Writes", "transact"]

Writes: TypeAlias = list[Call | Write]
#: A function that runs before the writes; it may append to them.
Work: TypeAlias = Callable[[Writes], None]


def transact(
    work: Iterable[Work],
    writes: Writes,
    kept: Iterable[np.ndarray],
    owners: Iterable[Any],
    launches: bool,
    moved: Undo | None = None,
) -> None:
    """Call functions, then carry out the writes; if anything raises, restore the old state.

    Parameters
    ----------
    work : iterable of callable
    writes : list of Call or Write
    kept : iterable of ndarray
        Arrays that the functions write to; they are copied, and restored if anything raises.
    owners : iterable of object
        Objects whose attributes the functions set; restored likewise.
    launches : bool
        Whether the functions write to GPU memory, which is not restored; Ctrl-C then waits for
        their end.
    moved : Undo, optional
        No longer restores the changes made before, once the writes have been carried out.
    """
    with _interrupts_held() if launches else nullcontext(), Undo(kept, owners) as undo:
        for function in work:
            function(writes)
        carry_out(writes, undo, moved)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Delay Ctrl-C until the end of a block, if it would interrupt it (in the main thread)."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    interrupts: list[Any] = []
    signal.signal(signal.SIGINT, lambda *interrupt: interrupts.append(interrupt))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if interrupts:
            handler(*interrupts[0])
