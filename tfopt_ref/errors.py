"""The errors of refused calls."""

__all__ = [
    "GradientLostWarning",
    "IndexOutOfRangeError",
    "InvalidArgumentError",
    "InvalidTypeError",
]


class InvalidArgumentError(ValueError):
    """An argument's value, shape or layout does not fit."""


class InvalidTypeError(InvalidArgumentError, TypeError):
    """An argument is of the wrong Python type or has the wrong dtype."""


class IndexOutOfRangeError(InvalidArgumentError, IndexError):
    """An index of a sparse update names no row of the variable."""


class GradientLostWarning(UserWarning):
    """A tensor that a tape records became an array or a number, where its gradient ends."""
