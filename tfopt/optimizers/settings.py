"""Attributes that are checked on assignment, and their checks."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

import numpy as np

from tfopt.core.known_attributes import KnownAttributes
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.optimizers.arguments import constructors_of

__all__ = [
    "CheckedAttribute",
    "HasSettings",
    "Hook",
    "Setting",
    "choice",
    "configuration",
    "constant",
    "elements",
    "finite",
    "flag",
    "floating",
    "function",
    "functions",
    "is_variable",
    "not_negative",
    "optional",
    "positive",
    "refuse_class",
    "refuse_variable",
    "text",
    "whole",
]

T = TypeVar("T")
_NOTHING: Any = object()


class CheckedAttribute(Generic[T]):
    """An attribute, of type T, whose values are checked on assignment.

    It has no ``__set__``, which would make it a data descriptor and slow down every read: the
    owner's ``__setattr__`` calls `assign`.

    Attributes
    ----------
    binds : bool
        Whether a bound step depends on it, so that assigning it changes the owner's `_version`;
        false if each step reads it anew.
    usual : object
        The value that a configuration leaves out.
    initial : object
        The value before the first assignment, if there is one.
    """

    binds = True
    usual: Any = _NOTHING
    initial: Any = _NOTHING

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, owner: None, cls: type | None = None) -> Self: ...
    @overload
    def __get__(self, owner: object, cls: type | None = None) -> T: ...
    def __get__(self, owner: Any, cls: type | None = None) -> Any:
        if owner is None:
            return self
        if self.initial is _NOTHING:
            raise AttributeError(f"{type(owner).__name__} has no {self.name} yet")
        return self.initial

    if TYPE_CHECKING:

        def __set__(self, owner: object, value: T) -> None: ...

    def assign(self, owner: Any, value: Any) -> None:
        """Check a value and set the attribute of an owner to it."""
        raise NotImplementedError

    def in_config(self, owner: Any) -> dict[str, Any]:
        """Return the entry of a configuration, if there is one, for the value of an owner."""
        value = getattr(owner, self.name)
        return {} if value == self.usual else {self.name: value}


class Setting(CheckedAttribute[T]):
    """An attribute that holds the assigned value after conversion by a function.

    Parameters
    ----------
    checked : callable
        Gets the attribute's name and the value; returns what to store, or raises.
    default : object, optional
        The value before the first assignment, which configurations leave out.
    once : bool
        Whether only the constructor may set it.
    """

    def __init__(
        self,
        checked: Callable[[str, Any], T] = lambda name, value: value,
        default: Any = _NOTHING,
        once: bool = False,
    ) -> None:
        self._checked, self._once = checked, once
        self.usual = self.initial = default

    def assign(self, owner: Any, value: Any) -> None:
        """Check a value and set the attribute of an owner to it."""
        current = owner.__dict__.get(self.name, _NOTHING)
        if self._once and current is not _NOTHING:
            how = "; assign a value to it" if is_variable(current) else ": make another one"
            raise InvalidArgumentError(
                f"{self.name} of {type(owner).__name__} cannot be replaced{how}"
            )
        owner.__dict__[self.name] = self._checked(self.name, value)


class Hook(Setting[T]):
    """Functions that steps call, which a configuration cannot hold."""

    def in_config(self, owner: Any) -> dict[str, Any]:
        """Return no entry of a configuration."""
        return {}


def configuration(owner: Any) -> dict[str, Any]:
    """Return the settings that are constructor arguments, those of base classes first."""
    arguments = {name for own in constructors_of(type(owner)) for name in own}
    config: dict[str, Any] = {}
    for cls in reversed(type(owner).__mro__):
        for name, setting in vars(cls).items():
            if isinstance(setting, CheckedAttribute) and name in arguments:
                config |= setting.in_config(owner)
    return config


# ---- checks


def is_variable(value: Any) -> bool:
    """Return whether a value is a variable of this or another library: it has `assign`."""
    return hasattr(value, "assign")


def refuse_variable(name: str, value: Any) -> None:
    """Raise if a value that is read only once is a variable."""
    if is_variable(value):
        raise InvalidTypeError(
            f"{name} must be a number, not a variable, because it is read only once: pass "
            f"float(variable), and set {name} again to change it"
        )


def refuse_class(name: str, value: Any) -> None:
    """Raise if a value is a class where one of its objects is expected."""
    if isinstance(value, type):
        raise InvalidTypeError(
            f"{name} must not be the class {value.__name__}: call it, {value.__name__}(...)"
        )


def number(name: str, value: Any) -> float:
    """Return a real number as a Python int or float."""
    if type(value) is int or type(value) is float:
        return value
    kind = getattr(getattr(value, "dtype", None), "kind", "f")  # torch's dtypes have none
    is_one = getattr(value, "shape", ()) == () and not isinstance(value, (str, bytes, bool))
    try:
        if is_one and kind not in "bcmMSU":
            return int(value) if kind in "iu" else float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        pass
    raise InvalidTypeError(f"{name} must be a number, not {value!r}")


def floating(name: str, value: Any) -> float:
    """Return a real number as a float: infinity if it is too large for one."""
    try:
        return float(number(name, value))
    except OverflowError:
        return math.inf


def finite(name: str, value: Any) -> float:
    """Return a finite real number as a Python int or float."""
    real = number(name, value)
    if not -sys.float_info.max <= real <= sys.float_info.max:  # an int may also be too large
        raise InvalidArgumentError(f"{name} must be finite, not {real}")
    return real


def constant(name: str, value: Any) -> float:
    """Return a finite number; raise for variables, because it is read only once."""
    refuse_variable(name, value)
    return finite(name, value)


def not_negative(name: str, value: Any) -> float:
    """Return a finite number of at least 0."""
    real = constant(name, value)
    if real < 0:
        raise InvalidArgumentError(f"{name} must be finite and at least 0, not {real}")
    return real


def positive(name: str, value: Any) -> float:
    """Return a finite number greater than 0."""
    real = constant(name, value)
    if real <= 0:
        raise InvalidArgumentError(f"{name} must be finite and greater than 0, not {real}")
    return real


def whole(least: int, most: int | None = None) -> Callable[[str, Any], int]:
    """Return the check of an integer between two numbers."""

    def checked(name: str, value: Any) -> int:
        refuse_variable(name, value)
        try:
            integer = operator.index(_NOTHING if isinstance(value, bool) else value)
        except TypeError:
            raise InvalidTypeError(f"{name} must be an integer, not {value!r}") from None
        if integer < least or (most is not None and integer > most):
            bounds = f"at least {least}" if most is None else f"between {least} and {most}"
            raise InvalidArgumentError(f"{name} must be {bounds}, not {integer}")
        return integer

    return checked


def optional(check: Callable[[str, Any], T]) -> Callable[[str, Any], T | None]:
    """Return a check that accepts None, or what another check accepts."""
    return lambda name, value: None if value is None else check(name, value)


def elements(name: str, value: Any, kind: str) -> list[Any]:
    """Return the elements of a list, or of what else holds some, but text."""
    try:
        if not isinstance(value, (str, bytes)):
            return [*iter(value)]
    except TypeError:
        pass
    raise InvalidTypeError(f"{name} must be a list of {kind}, not {value!r}")


def flag(name: str, value: Any) -> bool:
    """Return a truth value as a bool; 0 and 1 are some."""
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise InvalidTypeError(f"{name} must be True or False, not {value!r}")


def choice(*values: T) -> Callable[[str, Any], T]:
    """Return the check of one of a few strings, or None if that is among them."""
    shown = " or ".join("None" if value is None else f'"{value}"' for value in values)

    def checked(name: str, value: Any) -> T:
        if (value is None or isinstance(value, str)) and value in values:
            return value
        raise InvalidArgumentError(f"{name} must be {shown}, not {value!r}")

    return checked


def text(name: str, value: Any) -> str:
    """Return a string unchanged."""
    if not isinstance(value, str):
        raise InvalidTypeError(f"{name} must be a string, not {value!r}")
    return value


def function(name: str, value: Any) -> Any:
    """Return a function, or None, unchanged."""
    refuse_class(name, value)
    if value is not None and not callable(value):
        raise InvalidTypeError(f"{name} must be a function or None, not {value!r}")
    return value


def functions(name: str, value: Any) -> list[Any]:
    """Return a list of functions, an empty one for None."""
    listed = [] if value is None else elements(name, value, "functions")
    for each in listed:
        refuse_class(name, each)
        if not callable(each):
            raise InvalidTypeError(f"{name} must be a list of functions, not one of {each!r}")
    return listed


class HasSettings(KnownAttributes):
    """Base class of objects with checked attributes, which refuse unknown ones."""

    if not TYPE_CHECKING:  # a type checker would then let any attribute be set

        def __setattr__(self, name, value):
            # checked attributes have no __set__, so that reading them is as fast as reading others
            declared = getattr(type(self), name, None)
            if not isinstance(declared, CheckedAttribute):
                super().__setattr__(name, value)
                return
            before = vars(self).get(name, _NOTHING)
            declared.assign(self, value)
            try:
                self._check_settings()
            except BaseException:
                if before is _NOTHING:
                    del vars(self)[name]
                else:
                    vars(self)[name] = before
                raise
            if declared.binds and "_version" in vars(self):
                vars(self)["_version"] = object()

    def _check_settings(self) -> None:
        """Raise unless settings that are valid each go together; those not yet set are left out."""
