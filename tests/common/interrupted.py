"""Calls that are interrupted at any event, and the optimizers whose steps are."""

from __future__ import annotations

import _thread
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from common.step_cases import every_optimizer
from tfopt.optimizers import Adam

MAKERS = {
    **every_optimizer(),
    "catching up": lambda: Adam(0.5, sparse="catch_up"),
    "catching up, overridden": lambda: Late(0.5, sparse="catch_up"),
    "observed": lambda: observed(Adam(0.5)),
    "locked": lambda: Adam(0.5, use_locking=True),
    "clipped": lambda: Adam(0.5, global_clipnorm=0.5),
}
#: What is raised while a generator is closed is lost.
interrupting = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Late(Adam):
    """Steps one variable after another, of which rows catch up."""

    def _resource_apply_dense(self, grad: Any, handle: Any, apply_state: Any) -> None:
        super()._resource_apply_dense(grad, handle, apply_state)


def observed(optimizer: Any) -> Any:
    optimizer.observe = True
    return optimizer


def raising_at(event: int, step: Callable[[], Any]) -> bool:
    """Take a step in which the n-th call or return raises; return whether there was one."""
    left = event

    def profile(frame: Any, kind: str, argument: Any) -> None:
        nonlocal left
        left -= frame.f_code is not raising_at.__code__
        if left == 0:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        step()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return left <= 0


def wait_for_threads(before: int, event: int) -> None:
    """Wait until there are no more threads than before."""
    end = time.monotonic() + 60
    while _thread._count() > before:
        assert time.monotonic() < end, f"a thread is left by event {event}"
        time.sleep(1e-3)
