"""The parts of a table of figures: cells, grids, captions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from records import Record

__all__ = ["COMPARE", "LINEAR", "MEASURE", "MS", "US", "Cell", "Grid", "Table"]

MS, US = 1e3, 1e6

MEASURE = "python asv_bench/measure.py"
COMPARE = "python asv_bench/compare.py"
LINEAR = "python asv_bench/linear_table.py"


class Cell(NamedTuple):
    """A figure of a row, times a factor; with a format if three digits are not right."""

    row: str
    figure: str
    scale: float = 1.0
    format: str = ""


class Grid(NamedTuple):
    """The header, lines of words and figures, and rows that words come from."""

    head: list[str]
    lines: list[list[Cell | str]]
    also: Sequence[str] = ()


class Table(NamedTuple):
    """A table between the markers of its name, of rows of one record.

    Attributes
    ----------
    name, record : str
    command : str
        What measures its rows.
    what : str
        How its caption begins.
    grid : callable
        Makes the table of the record.
    rivals : tuple of str
        Libraries whose versions the caption gives.
    """

    name: str
    record: str
    command: str
    what: str
    grid: Callable[[Record], Grid]
    rivals: tuple[str, ...] = ()
