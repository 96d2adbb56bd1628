"""The errors of refused calls. A refused call has changed nothing."""

from __future__ import annotations

__all__ = ["CheckpointError", "IndexOutOfRangeError", "InvalidArgumentError", "InvalidTypeError"]


class InvalidArgumentError(ValueError):
    """An argument's value, shape or layout does not fit (TensorFlow's InvalidArgumentError)."""


class InvalidTypeError(InvalidArgumentError, TypeError):
    """An argument is of the wrong Python type or has the wrong dtype."""


class IndexOutOfRangeError(InvalidArgumentError, IndexError):
    """An index of a sparse update names no row of the variable."""


class CheckpointError(InvalidArgumentError):
    """A file is no checkpoint of tfopt's, or a damaged one."""
