"""Exceptions and warnings. A call that raises one of these errors has changed nothing."""

from __future__ import annotations

from typing import Any

from tfopt.printable import printable

__all__ = [
    "CheckpointError",
    "FileFormatError",
    "GradientLostWarning",
    "IndexOutOfRangeError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidTypeError",
    "NotFiniteError",
    "RetracingWarning",
]


class InvalidArgumentError(ValueError):
    """An argument has an invalid value, shape or layout (TensorFlow's InvalidArgumentError)."""


class InvalidTypeError(InvalidArgumentError, TypeError):
    """An argument is of the wrong Python type or has the wrong dtype."""


class IndexOutOfRangeError(InvalidArgumentError, IndexError):
    """An index of a sparse update is out of range."""


class InternalError(RuntimeError):
    """A fault of this package, not of its caller: please report it."""


class CheckpointError(InvalidArgumentError):
    """A file is not a tfopt checkpoint, or is damaged."""


class FileFormatError(InvalidArgumentError):
    """A data file is malformed, or its compressed data are damaged.

    Parameters
    ----------
    name : str
        The file, as the caller named it.
    message : str
        What is wrong.
    line : int, optional
        Where, counted from 1.
    column : int, optional
        Where in the line, counted from 1 in bytes.
    token : str, optional
        The text that is wrong.
    """

    def __init__(
        self,
        name: str,
        message: str,
        line: int | None = None,
        column: int | None = None,
        token: str | None = None,
    ) -> None:
        self.name, self.message = name, message
        self.line, self.column, self.token = line, column, token
        place = "".join(f":{number}" for number in (line, column) if number is not None)
        text = "" if token is None else f" '{printable(token)}'"
        super().__init__(f"{printable(name)}{place}: {message}{text}")

    def __reduce__(self) -> Any:
        return type(self), (self.name, self.message, self.line, self.column, self.token)


class GradientLostWarning(UserWarning):
    """A recorded tensor was converted to an array or a number, which cuts its gradient off."""


class RetracingWarning(UserWarning):
    """A traced function is traced anew for each Python number that it is called with."""


class NotFiniteError(InvalidArgumentError, ArithmeticError):
    """An intermediate result overflowed, so that the result would be infinite or NaN."""


def __dir__() -> list[str]:
    return __all__
