"""Checkpoints: nested dictionaries of arrays and numbers as files that are whole or refused."""

from tfopt.checkpoints.files import load, opened, save
from tfopt.checkpoints.stored import Stored

__all__ = ["Stored", "load", "opened", "save"]
