"""Objects that refuse to set a misspelt public attribute.

An object knows the attributes that its class declares in its body, by an annotation or in
``__slots__``, and all that were set while its constructors ran. Names with an underscore are free.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from tfopt.imports import imported
from tfopt.names import hint

__all__ = ["KnownAttributes", "declares", "did_you_mean"]

#: What may set any attribute: of the object they are called for, and of one that they have made.
_INITIALIZERS = {"__init__", "__setstate__"}
_MAKERS = {"__new__", "__copy__", "__deepcopy__"}


class KnownAttributes:
    """Base class of objects that refuse to set public attributes that they do not know."""

    if not TYPE_CHECKING:  # a type checker would then let any attribute be set

        def __setattr__(self, name, value):
            known = name.startswith("_") or name in vars(self) or declares(type(self), name)
            if not known and not _is_being_made(self):
                raise AttributeError(
                    f"{type(self).__name__} has no attribute {name!r} to set"
                    f"{did_you_mean(name, self._settable())}"
                )
            super().__setattr__(name, value)

    def _settable(self) -> Iterator[str]:
        """Yield the public attributes that are not methods, and can be set."""
        yield from (name for name in vars(self) if not name.startswith("_"))
        for base in type(self).__mro__:
            yield from (name for name in _annotated(base) if not name.startswith("_"))
            for name, value in vars(base).items():
                fixed = isinstance(value, property) and value.fset is None
                method = callable(value) or isinstance(value, (classmethod, staticmethod))
                if not (name.startswith("_") or fixed or method):
                    yield name


def declares(cls: type, name: str) -> bool:
    """Whether a class or one of its bases has an attribute or annotates it."""
    return any(name in vars(base) or name in _annotated(base) for base in cls.__mro__)


def _annotated(cls: type) -> Any:
    if sys.version_info >= (3, 14):
        library = imported("annotationlib")
        return library.get_annotations(cls, format=library.Format.FORWARDREF)
    return vars(cls).get("__annotations__", {})


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the end of an error about an unknown name."""
    known = sorted(set(names))
    says = hint(name, known)
    if says:
        return f"; {says}"
    return f"; it has {', '.join(known)}" if known else ""


def _is_being_made(owner: Any) -> bool:
    """Whether a constructor of an object, or what else makes one, is running."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_name in _INITIALIZERS and code.co_argcount:
            if frame.f_locals.get(code.co_varnames[0]) is owner:  # self
                return True
        elif code.co_name in _MAKERS and any(each is owner for each in frame.f_locals.values()):
            return True
        frame = frame.f_back
    return False
