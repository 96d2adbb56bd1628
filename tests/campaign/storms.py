"""SIGINT at a random moment of any call: all is as before or as after it, and works on.

The handler is that of Ctrl-C, and the signal a timer's, so that it comes at any instruction: within
kernels, in what other threads do meanwhile, and in what is done when a call is left.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from campaign.calls import one
from campaign.check import drawn
from campaign.interrupted_calls import TARGETS, Target


class Timer:
    """Raises SIGINT, as Ctrl-C does, within a call, and nowhere else."""

    def __init__(self) -> None:
        self._armed = False
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGALRM, self._handle)

    def _handle(self, *_: Any) -> None:
        if self._armed:
            self._armed = False
            signal.raise_signal(signal.SIGINT)

    def interrupts(self, call: Callable[[], Any], seconds: float) -> bool:
        """Carry out a call that is interrupted after some time; return whether it was."""
        try:
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, seconds)
            call()
            self._armed = False
        except KeyboardInterrupt:
            return True
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        return False


def storm(make: Callable[[], Target], random: np.random.Generator, times: int = 20) -> int:
    """Interrupt a call at random moments; return how many interruptions there were."""
    timer, came = Timer(), 0
    target = make()
    before, start = target.state(), perf_counter()
    target.call()
    took = perf_counter() - start
    after = target.state()
    target = make()
    for _ in range(times):
        came += timer.interrupts(target.call, float(random.uniform(0, 1.2) * took + 2e-6))
        found = target.state()
        assert found in (before, after), "neither as before the call nor as after it"
        if found == after:
            target = make()
    target.call()
    assert target.state() == after, "another result after interruptions"
    return came


def _case(random: np.random.Generator) -> int:
    """SIGINT at a random moment of a step, fit, load, save or gradient: all is done, or nothing."""
    what = one(random, TARGETS)
    with tempfile.TemporaryDirectory() as folder:
        try:
            return storm(what(random, Path(folder)), random)
        except AssertionError as error:
            raise AssertionError(f"{what.__name__}: {error}") from error


CHECK = drawn("storms", _case)
