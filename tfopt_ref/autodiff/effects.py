"""What changes variables: done at once, or, in a function that is being traced, at each call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from tfopt_ref.autodiff.tensor import STATE

__all__ = ["effect"]

F = TypeVar("F", bound=Callable[..., Any])


def effect(method: F) -> F:
    """Say that a method changes variables: a trace writes it down, and returns its `self`."""

    @functools.wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if STATE.recorders and STATE.recorders[0].scope is not None:
            return STATE.recorders[0].take_effect(method, args, kwargs)
        return method(*args, **kwargs)

    return wrapped  # type: ignore[return-value]
