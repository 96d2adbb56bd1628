"""The files of --weight and --offset beside a LIBSVM file: one number for each of its rows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from tfopt.cli.data import Data
from tfopt.cli.files import CommandError, file_of
from tfopt.cli.read_options import ReadOptions
from tfopt.io.streams import open_binary

__all__ = ["RowNumbers", "read_numbers"]


def read_numbers(path: str, least: float = -math.inf) -> np.ndarray:
    """Return the finite numbers of a file, one on each line."""
    file, numbers = file_of(path), []
    with file.opened() as source, open_binary(source) as stream:
        for line, text in enumerate(stream, start=1):
            token = text.decode("utf-8", "replace").strip()
            try:
                value = float(token)
            except ValueError:
                value = math.nan
            if not least <= value < math.inf or value == -math.inf:
                what = f"is not a finite number of at least {least:g}"
                what = "is not a finite number" if least == -math.inf else what
                raise file.error(line, f"the value {what}", token[:40])
            numbers.append(value)
    return np.array(numbers, np.float64)


class RowNumbers:
    """Joins the numbers of files to the rows of blocks, in their order."""

    def __init__(self, options: ReadOptions) -> None:
        least = {"weight": 0.0, "offset": -math.inf}
        paths = {name: getattr(options, name) for name in least}
        self._paths = {name: path for name, path in paths.items() if path is not None}
        self._arrays = {name: read_numbers(path, least[name]) for name, path in self._paths.items()}
        self._at, self._name = 0, ""

    def joined(self, data: Data) -> Data:
        """Return the next rows with their numbers."""
        self._name = data.name
        rows = slice(self._at, self._at + data.labels.size)
        self._at = rows.stop
        self._check(lambda size: size >= rows.stop, "fewer")
        weights, offset = (
            self._arrays[name][rows] if name in self._arrays else None
            for name in ("weight", "offset")
        )
        return dataclasses.replace(data, weights=weights, offset=offset)

    def check_end(self) -> None:
        """Refuse numbers for which there are no rows."""
        self._check(lambda size: size == self._at, "more")

    def _check(self, fits: Callable[[int], bool], word: str) -> None:
        for name, array in self._arrays.items():
            if not fits(array.size):
                raise CommandError(
                    f"{self._paths[name]}: has {array.size} numbers, {word} than there are rows in "
                    f"{self._name}"
                )
