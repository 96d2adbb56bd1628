"""The signatures of estimators: parameters as attributes, some shared with other classes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Mapping
from typing import Any, TypeVar

__all__ = ["keep_parameters", "parameters_of"]

_C = TypeVar("_C", bound=type)


def keep_parameters(estimator: Any, given: Mapping[str, Any]) -> None:
    """Set an estimator's attributes to the `locals()` of its `__init__`."""
    vars(estimator).update({k: v for k, v in given.items() if k not in ("self", "__class__")})


def parameters_of(other: type, without: Container[str] = (), **more: Any) -> Callable[[_C], _C]:
    """Give a class of estimators the parameters of another class, except some, and more by keyword.

    Order, defaults and annotations are those of the other class.
    """
    of_other = inspect.signature(other.__init__).parameters  # type: ignore[misc]
    kept = [each for name, each in of_other.items() if name not in without]
    own = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in more.items()
    ]
    signature = inspect.Signature([*kept, *own])

    def decorated(cls: _C) -> _C:
        def __init__(self: Any, *args: Any, **options: Any) -> None:
            given = signature.bind(self, *args, **options)
            given.apply_defaults()
            keep_parameters(self, given.arguments)

        __init__.__signature__ = signature  # type: ignore[attr-defined]
        __init__.__qualname__ = f"{cls.__qualname__}.__init__"
        cls.__init__ = __init__  # type: ignore[misc]
        return cls

    return decorated
