"""A step that has been checked, and how it is carried out whole or not at all.

What a step writes is one list of updates and other writes, which one compiled call carries out:
nothing in it can fail, and no signal interrupts it. What has to run in Python (a constraint, a
method that a subclass overrides) runs before it; what that changes is copied first, and put back if
it raises or is interrupted.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeAlias

import numpy as np

from tfopt.kernels.calls import Call
from tfopt.kernels.commit import Undo, Write, carry_out
from tfopt.variable import prepare_writes

__all__ = ["Commit", "Work", "Writes"]

Writes: TypeAlias = list[Call | Write]
#: What a step does in Python; it may add to the step's writes.
Work: TypeAlias = Callable[[Writes], None]


class Commit:
    """A step that has been checked.

    Parameters
    ----------
    writes : list of Call or Write
        Carried out by one call, last of all.
    variables : iterable of Variable or array
        Those that are written to.

    Attributes
    ----------
    work : list of callable
        What has to run in Python before the writes, to which each may add some.
    kept : list of ndarray
        What the work writes to: copied, and put back if anything raises.
    owners : list of object
        Whose attributes the work sets, likewise.
    after : list of callable
        What looks at the step when it has been taken.
    steps : bool
        Whether it takes a step, at which optimizers count and not only gather gradients.
    launches : bool
        Whether the work writes to a GPU's memory, which is not put back: Ctrl-C waits for its end.
    """

    __slots__ = ("after", "kept", "launches", "owners", "steps", "variables", "work", "writes")

    def __init__(self, writes: Writes, variables: Iterable[Any] = (), steps: bool = True) -> None:
        self.writes = writes
        self.variables = list(variables)
        self.steps = steps
        self.work: list[Work] = []
        self.kept: list[np.ndarray] = []
        self.owners: list[Any] = []
        self.after: list[Callable[[], None]] = []
        self.launches = False

    def __call__(self, moved: Undo | None = None) -> None:
        """Carry it out; `moved` then need not put back what has been done before it."""
        prepare_writes(self.variables)
        if self.work:
            with _interrupts_held() if self.launches else nullcontext():
                self._work(moved)
        else:
            carry_out(self.writes, moved)
        for look in self.after:
            look()

    def _work(self, moved: Undo | None) -> None:
        with Undo(self.kept, self.owners) as undo:
            for work in self.work:
                work(self.writes)
            carry_out(self.writes, undo, moved)

    def join(self, other: Commit) -> None:
        """Take over what another one does, to do it after this one's work and writes."""
        self.writes += other.writes
        self.variables += other.variables
        self.work += other.work
        self.kept += other.kept
        self.owners += other.owners
        self.after += other.after
        self.launches |= other.launches


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Have Ctrl-C wait for the end of a block, where it would interrupt it: in the main thread."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came: list[Any] = []
    signal.signal(signal.SIGINT, lambda *interrupt: came.append(interrupt))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(*came[0])
