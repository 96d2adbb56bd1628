"""Checkpoints: files with nested dictionaries of arrays and numbers, written atomically."""

from tfopt.checkpoints.files import load, opened, save
from tfopt.checkpoints.stored import Stored

__all__ = ["Stored", "load", "opened", "save"]


def __dir__() -> list[str]:
    return __all__
