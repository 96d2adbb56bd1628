"""What changes variables: at once, or, in a function that is being traced, at each call of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from tfopt.autodiff.core import tracing

__all__ = ["effect", "postpone"]

Method = TypeVar("Method", bound=Callable[..., Any])


def effect(method: Method) -> Method:
    """Let a trace write the calls of a method down, which then returns its `self`."""

    @functools.wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tracing() is None:
            return method(self, *args, **kwargs)
        return postpone(wrapped, (self, *args), kwargs)

    return wrapped  # type: ignore[return-value]


def postpone(method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Write a call down for the replays, and return the first of its arguments."""
    from tfopt.autodiff.program import Effect  # which needs the functions of the table
    from tfopt.autodiff.trace import add_effect

    add_effect(Effect(method, args, kwargs))
    return args[0]
