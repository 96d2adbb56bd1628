"""Checkpoints: nested dictionaries of arrays and numbers as files that are whole or refused."""

from tfopt.checkpoints.files import load, save

__all__ = ["load", "save"]
