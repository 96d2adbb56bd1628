"""The errors of refused calls. A refused call has changed nothing."""

from __future__ import annotations

__all__ = [
    "CheckpointError",
    "GradientLostWarning",
    "IndexOutOfRangeError",
    "InvalidArgumentError",
    "InvalidTypeError",
    "NotFiniteError",
]


class InvalidArgumentError(ValueError):
    """An argument's value, shape or layout does not fit (TensorFlow's InvalidArgumentError)."""


class InvalidTypeError(InvalidArgumentError, TypeError):
    """An argument is of the wrong Python type or has the wrong dtype."""


class IndexOutOfRangeError(InvalidArgumentError, IndexError):
    """An index of a sparse update names no row of the variable."""


class CheckpointError(InvalidArgumentError):
    """A file is no checkpoint of tfopt's, or a damaged one."""


class GradientLostWarning(UserWarning):
    """A tensor that a tape records became an array or a number, where its gradient ends."""


class NotFiniteError(InvalidArgumentError, ArithmeticError):
    """Numbers overflow on the way to a result, which would be infinite or NaN."""
