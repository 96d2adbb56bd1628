"""Delimited text, and Vowpal Wabbit's, as blocks of rows of hashed features."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from tfopt.errors import FileFormatError, InvalidArgumentError
from tfopt.imports import imported
from tfopt.io.streams import Source, filled, name_of, open_binary
from tfopt.io.text_options import Columns, HashedText, fields_of
from tfopt.kernels.text.hashed_text import parse

__all__ = ["HashedBlock", "iter_hashed", "read_blocks"]

#: About so many bytes are parsed at a time: enough for all threads, and few for the caches.
BLOCK = 2**22
#: Bytes of a row, and of the first one, so that a file which is no text does not fill the memory.
MAX_ROW, MAX_FIRST = 2**24, 2**20
_BOM = b"\xef\xbb\xbf"
#: What the kernel's kinds of faults are, from 1.
_FAULTS = (
    "the row has {count} fields, and not {n_columns}",
    "something follows the closing quote",
    "the quote is not closed",
    "the value is not a finite number",
    "the label is not a finite number",
    "the weight is not a finite number from 0",
    "the product of two crossed features is not finite",
    "there is no | before the features",
    "only a label, an importance and a tag may be before the features",
)
_WHOLE_ROW = (1, 7, 8)


@dataclasses.dataclass(frozen=True)
class HashedBlock:
    """Some rows of a file.

    Attributes
    ----------
    X : scipy.sparse.csr_matrix, shape (n_rows, n_hashes)
        Of float32 or float64; the indices of a row ascend.
    y : ndarray of float64, shape (n_rows,), or None
        The labels; NaN where Vowpal Wabbit's text has none.
    sample_weight : ndarray of float64, shape (n_rows,), or None
    end : int
        Where the next block begins: `start` of a later call that goes on from there, in bytes of
        the text, which are those of the file unless it is compressed.
    n_bad : int
        How many rows were left out because they are malformed.
    """

    X: Any
    y: np.ndarray | None
    sample_weight: np.ndarray | None
    end: int
    n_bad: int


def iter_hashed(
    source: Source,
    n_hashes: int,
    *,
    format: Literal["delimited", "vw"] = "delimited",
    sep: str = "\t",
    label: int | str | None = 0,
    names: Any = None,
    numeric: Any = (),
    skip: Any = (),
    weight: int | str | None = None,
    crosses: Any = (),
    quotes: bool = True,
    dtype: Any = np.float64,
    start: int = 0,
    block_size: int = BLOCK,
    on_bad: Literal["raise", "skip"] = "raise",
) -> Iterator[HashedBlock]:
    """Read rows of categories and numbers as hashed features, block by block, on all threads.

    The rows are those that scikit-learn's ``FeatureHasher(n_hashes)`` makes of dicts from the names
    of columns to text or numbers; so a model that learned dicts is the model that learns the text.

    Parameters
    ----------
    source : str, path or binary file object
        As of `read_libsvm`: ``-``, URLs, and what is compressed.
    n_hashes : int
        How many columns `X` has, from 1 to 2**31 - 1; best a power of two.
    format : {"delimited", "vw"}, default="delimited"
        Rows of fields; or lines of Vowpal Wabbit: ``label [importance] [tag]|space a b:2 |other
        c``. Its options are `crosses` and those from `dtype` on.
    sep : str, default=tab
        The character between fields.
    label, weight : int or str, optional
        The columns of labels, which are numbers, and of the rows' weights; by number, from 0, or by
        name. None: there are none.
    names : "header", list of str, or None
        The names of the columns; "header": those in the first row. None: they are "0", "1", ...
    numeric, skip : list of int or str
        The columns of numbers, and those that are left out. All others have text.
    crosses : list of pairs
        Columns, or namespaces, whose pairs of features are features, too.
    quotes : bool, default=True
        Whether a field that begins with ``"`` ends at the next one that is not doubled.
    dtype : {float64, float32}, default=float64
        Of the values.
    start : int, default=0
        Where to begin: the `end` of a block.
    block_size : int, default=2**22
        About how many bytes of text are parsed at a time.
    on_bad : {"raise", "skip"}, default="raise"
        Whether a malformed row is an error, or left out and counted.

    Yields
    ------
    HashedBlock
        Some rows, in the file's order.

    Raises
    ------
    FileFormatError
        If a row is malformed: the message names the file, the line, the column and the text; or if
        compressed data are damaged.
    OSError
        If the file cannot be read.
    InvalidArgumentError
        If an option does not fit, or a column is not there.

    Notes
    -----
    A field v of a column c is the feature ``c=v`` of value 1, one of a numeric column the feature
    ``c`` of its value; the hash is MurmurHash3 of the bytes, which should be UTF-8, and its sign is
    that of the value. Empty fields are missing: they have no feature, and nor have numbers that are
    0. A feature v of a namespace s is ``s=v``, and without a namespace ``v``. Of two crossed
    features the text is that of both with ``*`` between, and the value their product.

    Within quotes ``""`` is a quote, and there may be `sep` and line ends; a quote must be closed
    within 8 MiB. Elsewhere quotes are as other characters. Lines end with LF or CRLF, the last one
    with or without; blank lines, and a byte order mark, are ignored.

    Examples
    --------
    >>> import io
    >>> from tfopt.io import iter_hashed
    >>> text = io.BytesIO(b"click,site,price\\n1,a,0.5\\n0,b,2\\n")
    >>> options = dict(sep=",", names="header", label="click", numeric=["price"])
    >>> for block in iter_hashed(text, 2**10, **options):
    ...     print(block.X.shape, block.X.nnz, block.y, block.end)
    (2, 1024) 4 [1. 0.] 31
    """
    if on_bad not in ("raise", "skip"):
        raise InvalidArgumentError(f'on_bad must be "raise" or "skip", not {on_bad!r}')
    reading = HashedText(
        n_hashes, format, sep, label, names, numeric, skip, weight, crosses, quotes
    )
    return read_blocks(source, reading, dtype, start, block_size, on_bad == "skip")


def read_blocks(
    source: Source,
    reading: HashedText,
    dtype: Any = np.float64,
    start: int = 0,
    block_size: int = BLOCK,
    skips: bool = False,
    needs_labels: bool = True,
) -> Iterator[HashedBlock]:
    """Do what `iter_hashed` does with its options in one record.

    Without `needs_labels`, there need be no column of labels.
    """
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise InvalidArgumentError(f"dtype must be float32 or float64, not {np.dtype(dtype)}")
    start, block_size = operator.index(start), operator.index(block_size)
    if start < 0 or block_size < 1:
        raise InvalidArgumentError(
            f"start must be at least 0 and block_size at least 1, not {start} and {block_size}"
        )
    single = np.dtype(dtype) == np.float32
    return _Reader(source, reading, single, start, block_size, skips, needs_labels)()


class _Reader:
    """The blocks of a file."""

    def __init__(
        self,
        source: Source,
        reading: HashedText,
        single: bool,
        start: int,
        block_size: int,
        skips: bool,
        needs_labels: bool,
    ) -> None:
        self._source, self._name = source, name_of(source)
        self._reading, self._single, self._skips = reading, single, skips
        self._needs_labels = needs_labels
        self._start, self._block_size = start, block_size
        #: Where the next row is, and the number of its line: of a file, from `start`.
        self._at, self._line = 0, 1

    def __call__(self) -> Iterator[HashedBlock]:
        with open_binary(self._source) as stream:
            origin = stream.tell() if stream.seekable() else None
            row = self._first_line(stream)
            columns, rest = self._columns(stream, row) if row else (None, row)
            if self._start:
                rest = self._go_to_start(stream, origin, rest)
            if columns is None:
                return
            try:
                yield from self._blocks(stream, columns, rest)
            except FileFormatError as error:
                if origin is None or not self._start or error.line is None:
                    raise
                lines = _lines_before(stream, origin, self._start)
                more = error.message, error.line + lines, error.column, error.token
                raise FileFormatError(self._name, *more) from None

    def _first_line(self, stream: Any) -> bytes:
        """Return the first line that is not blank, without a byte order mark."""
        row: bytes = stream.readline(MAX_FIRST)
        if row.startswith(_BOM):
            self._at, row = len(_BOM), row.removeprefix(_BOM)
        while row in (b"\n", b"\r\n"):
            self._at, self._line = self._at + len(row), self._line + 1
            row = stream.readline(MAX_FIRST)
        return row

    def _columns(self, stream: Any, row: bytes) -> tuple[Columns, bytes]:
        """Return the columns, and the bytes that have been read and are rows."""
        reading, fields = self._reading, list[bytes]()
        needed = not isinstance(reading.names, tuple) or not self._needs_labels
        if reading.format == "delimited" and needed:
            sep, first = reading.sep.encode(), None
            while True:
                text = row.removesuffix(b"\n").removesuffix(b"\r")
                first = fields_of(text, sep, reading.quotes)
                line = b"" if first is not None else stream.readline(MAX_FIRST)
                row += line
                if not line or len(row) >= MAX_FIRST:
                    break
            if first is None or len(row) >= MAX_FIRST:
                message = "the first row, which says how many columns there are, is malformed"
                raise FileFormatError(self._name, message, self._line)
            fields = first
        try:
            self._reading = reading = reading.of_file(fields, self._needs_labels)
            columns = reading.columns_of(fields)
        except InvalidArgumentError as error:
            raise FileFormatError(self._name, str(error)) from error
        if reading.names != "header":
            return columns, row
        self._at += len(row)
        self._line += row.count(b"\n")
        return columns, b""

    def _go_to_start(self, stream: Any, origin: int | None, rest: bytes) -> bytes:
        """Skip what is before `start`, which must be where a row begins."""
        wanted = self._start - self._at
        if wanted < 0:
            raise InvalidArgumentError(
                f"start={self._start} is before the rows, which begin at {self._at}"
            )
        if not wanted:
            return rest
        if origin is None:
            before = b""
            while wanted:
                piece = rest[:wanted] or stream.read(min(wanted, 2**20))
                rest, wanted, before = rest[len(piece) :], wanted - len(piece), piece[-1:]
                self._line += piece.count(b"\n")
                if not piece:
                    break
        else:
            stream.seek(origin + self._start - 1)
            before, rest, self._line = stream.read(1), b"", 1
        if not before:
            raise InvalidArgumentError(f"start={self._start} is behind the end of {self._name}")
        self._at = self._start
        if before != b"\n":
            rest = rest or stream.read(1)
            if rest:
                raise InvalidArgumentError(
                    f"no row of {self._name} begins at start={self._start}: it must be the end of "
                    "a block"
                )
        return rest

    def _blocks(self, stream: Any, columns: Columns, rest: bytes) -> Iterator[HashedBlock]:
        reading = self._reading
        buffer = bytearray(max(self._block_size, len(rest) + 1))
        buffer[: len(rest)] = rest
        n, ended = len(rest), False
        while not ended:
            n = filled(stream, self._name, self._line, buffer, n)
            ended = n < len(buffer)
            text = memoryview(buffer)[:n]
            *arrays, n_read, n_bad, fault = parse(
                text,
                ended,
                *columns,
                reading.n_hashes,
                ord(reading.sep),
                reading.quotes and reading.format != "vw",
                self._single,
                self._skips,
            )
            if fault is not None and not self._skips:
                raise self._error_at(text, fault, len(columns.names))
            if not n_read and not ended:
                if n > MAX_ROW:
                    message = f"the row is longer than {MAX_ROW} bytes"
                    raise FileFormatError(self._name, message, self._line)
                text.release()
                buffer = buffer + bytearray(len(buffer))
                continue
            self._at += n_read
            self._line += buffer.count(b"\n", 0, n_read)
            if arrays[0].size or n_bad:
                yield self._block(n_bad, *arrays)
            text.release()
            buffer[: n - n_read] = buffer[n_read:n]
            n -= n_read

    def _block(
        self,
        n_bad: int,
        labels: np.ndarray,
        weights: np.ndarray,
        values: np.ndarray,
        indices: np.ndarray,
        indptr: np.ndarray,
    ) -> HashedBlock:
        reading = self._reading
        if values.size <= np.iinfo(np.int32).max:
            indptr = indptr.astype(np.int32)  # as SciPy's own, so that nothing is converted later
        kind = imported("tfopt.io.hashed_rows").HashedRows
        X = kind((values, indices, indptr), (labels.size, reading.n_hashes))
        X.has_sorted_indices = True
        X.reading = reading
        is_vw = reading.format == "vw"
        y = labels if is_vw or reading.label is not None else None
        return HashedBlock(
            X, y, weights if is_vw or reading.weight is not None else None, self._at, n_bad
        )

    def _error_at(
        self, text: memoryview, fault: tuple[int, int, int, int], n_columns: int
    ) -> FileFormatError:
        what, at, length, count = fault
        before = bytes(text[:at])
        column = at - (before.rfind(b"\n") + 1) + 1
        message = _FAULTS[what - 1].format(count=count, n_columns=n_columns)
        token = None
        if what not in _WHOLE_ROW:
            token = bytes(text[at : at + min(length, 80)]).decode("utf-8", "replace")
        line = self._line + before.count(b"\n")
        return FileFormatError(self._name, message, line, column, token)


def _lines_before(stream: Any, origin: int, stop: int) -> int:
    """Return the number of lines that end before a place of a file."""
    stream.seek(origin)
    n = 0
    while stop > 0 and (piece := stream.read(min(stop, 2**20))):
        n += piece.count(b"\n")
        stop -= len(piece)
    return n
