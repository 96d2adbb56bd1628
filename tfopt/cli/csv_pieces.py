"""CSV files in pieces of whole rows, parsed by pyarrow."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import types

from tfopt.cli.files import File
from tfopt.io.streams import open_binary

__all__ = ["MISSING", "Piece", "csv_header", "csv_pieces", "line_of"]

#: About so many bytes become columns together, and are parsed together.
SIZE, IN_CACHE = 2**22, 2**18
#: The texts of missing values: those of pandas that do not begin as numbers do, which would make
#: each number a sixth slower to parse.
MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "<NA>", "N/A", "NA", "NULL", "NaN", "None"),
    *("n/a", "nan", "null"),
)


class Piece(NamedTuple):
    """Some rows of a table.

    Attributes
    ----------
    columns : list of pyarrow.Array
        Those that were asked for.
    numbers : ndarray of int64, shape (rows,)
        The number of each row in the file, counted from 1 at the header.
    malformed : list of tuple
        For each row with more or fewer fields than the header: its number, its count of fields,
        and the header's.
    """

    columns: list[Any]
    numbers: np.ndarray
    malformed: list[tuple[int, int, int]]


def csv_header(stream: Any, separator: str) -> list[str]:
    """Read the header of a CSV file, and return the names of its columns."""
    record = line = stream.readline()
    while line and (record.count(b'"') % 2 or not record.strip()):
        line = stream.readline()
        record += line
    text = record.decode("utf-8-sig").lstrip("\r\n")
    return next(csv.reader(io.StringIO(text, newline=""), delimiter=separator), [])


def csv_pieces(
    stream: Any,
    separator: str,
    n_columns: int,
    chosen: Sequence[int],
    as_text: Sequence[int],
    missing: Sequence[str],
) -> Iterator[Piece]:
    """Yield the rows of an open CSV file after its header.

    Parameters
    ----------
    stream : binary file
    separator : str
    n_columns : int
    chosen, as_text : sequence of int
        The columns to read, and those of them to read as text.
    missing : sequence of str
        The texts of missing values, besides `MISSING`.
    """
    names = [str(k) for k in range(n_columns)]
    malformed: list[Any] = []

    def skip(row: Any) -> str:
        malformed.append(row)
        return "skip"

    parsing = arrow_csv.ParseOptions(
        delimiter=separator,
        newlines_in_values=True,
        invalid_row_handler=skip,
    )
    others = [k for k in range(n_columns) if k not in chosen]
    text = pa.dictionary(pa.int32(), pa.string())
    fixed = {names[k]: text for k in as_text} | {names[k]: pa.binary() for k in others}
    reading = arrow_csv.ReadOptions(column_names=names, use_threads=False, block_size=IN_CACHE)

    def read(block: memoryview, types: dict[str, Any]) -> Any:
        converting = arrow_csv.ConvertOptions(
            include_columns=[names[k] for k in (*chosen, *others)],
            column_types=types | fixed,
            null_values=[*MISSING, *missing],
            strings_can_be_null=True,
            auto_dict_encode=True,
            auto_dict_max_cardinality=2**31 - 1,
        )
        malformed.clear()
        return arrow_csv.read_csv(pa.BufferReader(block), reading, parsing, converting)

    first, known = (
        2,
        dict[str, Any](),
    )  # after the header; the columns that were numbers just before
    for block in _blocks(stream):
        try:  # to find out again what they are takes 6 % of the time
            table = read(block, known)
        except pa.ArrowInvalid:
            table = read(block, {})
        known = {field.name: field.type for field in table.schema if types.is_float64(field.type)}
        numbers = np.arange(first, first + table.num_rows + len(malformed))
        at = np.array([row.number - 1 for row in malformed], np.intp)
        found = [(first + row.number - 1, row.actual_columns, n_columns) for row in malformed]
        first += len(numbers)
        for kind in table.schema.types[: len(chosen)]:
            if types.is_dictionary(kind) and types.is_binary(kind.value_type):
                raise UnicodeError
        numbers = np.delete(numbers, at)
        filled = _filled(table)
        if filled is not None:
            table, numbers = table.filter(pa.array(filled)), numbers[filled]
        columns = [column.combine_chunks() for column in table.unify_dictionaries().columns]
        yield Piece(columns[: len(chosen)], numbers, found)


def _filled(table: Any) -> np.ndarray | None:
    """Return which rows have a value in some field; None: all of them."""
    filled = np.zeros(table.num_rows, bool)
    for column in table.columns:
        if not column.null_count:
            return None
        filled |= column.is_valid().to_numpy()
    return None if filled.all() else filled


def _blocks(stream: Any) -> Iterator[memoryview]:
    """Yield the bytes of a file in blocks of whole rows, which are overwritten afterwards."""
    buffer, n, more = bytearray(SIZE), 0, 1
    while more:
        view = memoryview(buffer)
        while n < len(buffer) and (more := stream.readinto(view[n:])):
            n += more
        end = _end_of_rows(buffer, n) if more else n
        if end:
            yield view[:end]
            buffer[: n - end] = buffer[end:n]
            n -= end
        elif more:
            buffer = buffer + bytearray(len(buffer))  # a row is longer


def _end_of_rows(block: bytearray, n: int) -> int:
    """Return where the last row ends that is whole; line ends within quotes do not end rows."""
    n_quotes, end = block.count(b'"', 0, n), n
    while (at := block.rfind(b"\n", 0, end)) >= 0:
        n_quotes -= block.count(b'"', at, end)
        if n_quotes % 2 == 0:
            return at + 1
        end = at
    return 0


def line_of(file: File, number: int, separator: str) -> int:
    """Return the line at which a row of a CSV file begins, given its number in `Piece`."""
    if file.path == "-":  # it cannot be read again
        return number
    with file.opened() as source, open_binary(source) as stream:
        text = io.TextIOWrapper(stream, "utf-8", errors="replace", newline="")
        reader = csv.reader(text, delimiter=separator)
        line = 1
        with contextlib.suppress(csv.Error):  # of fields that are longer than Python's limit
            for row in reader:
                number -= bool(row)  # blank lines are no rows
                if not number:
                    break
                line = reader.line_num + 1
        text.detach()
    return line
