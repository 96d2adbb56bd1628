"""LIBSVM files: ``label [qid:n] index:value index:value ... [# comment]``, a row on each line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from tfopt.errors import FileFormatError, InvalidArgumentError
from tfopt.imports import imported
from tfopt.io.libsvm_faults import find_fault
from tfopt.io.streams import Source, filled, name_of, open_binary
from tfopt.kernels.text.libsvm import parse, survey

__all__ = ["LibsvmData", "iter_libsvm", "read_libsvm"]

#: Bytes that are parsed at a time: enough to keep all threads busy.
BLOCK = 2**24
#: Bytes of a line, so that a file which is no text does not fill the memory.
MAX_LINE = 2**24
#: Indices are kept in 32 bits.
MAX_INDEX = 2**31 - 2


@dataclass(frozen=True)
class LibsvmData:
    """Rows of a LIBSVM file.

    Attributes
    ----------
    X : scipy.sparse.csr_matrix, shape (n_rows, n_features)
        Of float32 or float64; the indices of a row ascend.
    y : ndarray of float64, shape (n_rows,)
        The labels.
    query_ids : ndarray of int64, shape (n_rows,), or None
        Each row's ``qid``, or -1; None if no row has one.
    lines : ndarray of int64, shape (n_rows,)
        The number of each row's line, counted from 1.
    n_skipped : int
        How many lines were left out because they are malformed.
    zero_based : bool
        Whether the file counts features from 0.
    """

    X: Any
    y: np.ndarray
    query_ids: np.ndarray | None
    lines: np.ndarray
    n_skipped: int
    zero_based: bool


def read_libsvm(
    source: Source,
    *,
    n_features: int | None = None,
    zero_based: bool | Literal["auto"] = "auto",
    dtype: Any = np.float64,
    max_index: int = MAX_INDEX,
    on_bad_line: Literal["error", "skip"] = "error",
) -> LibsvmData:
    """Read a LIBSVM file, on all threads.

    Parameters
    ----------
    source : str, path or binary file object
        ``-`` is standard input; URLs need fsspec. What gzip, bzip2, xz or Zstandard has compressed
        is decompressed, with any name.
    n_features : int, optional
        How many columns `X` has; by default as many as the largest index needs, at least one.
    zero_based : bool or "auto", default="auto"
        Whether features are counted from 0, or from 1. "auto": from 0 if index 0 occurs.
    dtype : {float64, float32}, default=float64
        Of the values. Decimals are rounded to the nearest float64, as by ``float()``, and then to
        float32.
    max_index : int, default=2**31 - 2
        A larger index makes a line malformed: one that is mistyped must not claim all memory.
    on_bad_line : {"error", "skip"}, default="error"
        Whether a malformed line is an error, or left out and counted.

    Returns
    -------
    LibsvmData

    Raises
    ------
    FileFormatError
        If a line is malformed: the message names the file, the line, the column and the text; or
        if compressed data are damaged.
    OSError
        If the file cannot be read.
    InvalidArgumentError
        If an option does not fit.

    Notes
    -----
    Numbers must be finite and the indices of a row ascend. Blank lines, and what follows a ``#``,
    are ignored.

    Examples
    --------
    >>> import io
    >>> from tfopt.io import read_libsvm
    >>> data = read_libsvm(io.BytesIO(b"1 2:0.5\\n-1 1:1 3:2  # the second row\\n"))
    >>> data.X.toarray()
    array([[0. , 0.5, 0. ],
           [1. , 0. , 2. ]])
    >>> data.y
    array([ 1., -1.])
    """
    if zero_based not in (True, False, "auto"):
        raise InvalidArgumentError(f'zero_based must be True, False or "auto", not {zero_based!r}')
    if not 0 <= max_index <= MAX_INDEX:
        raise InvalidArgumentError(f"max_index must be from 0 to {MAX_INDEX}, not {max_index}")
    first_index, last_index = 0 if zero_based == "auto" else 1 - zero_based, max_index
    if n_features is not None:  # "auto" may find that features are counted from 1
        last_index = min(max_index, n_features - 1 + (zero_based is not True))
    blocks = _blocks(source, n_features, first_index, last_index, dtype, on_bad_line, BLOCK)
    whole = next(blocks)
    for block in blocks:
        whole.extend(block)
    labels, values, indices, lines = whole.labels, whole.values, whole.indices, whole.lines
    counted_from_0 = first_index == 0
    if zero_based == "auto" and indices.size:
        counted_from_0 = bool(indices.min() == 0)
        indices -= not counted_from_0
        if n_features is not None and indices.max() == n_features:
            row = np.searchsorted(whole.indptr, indices.argmax(), side="right") - 1
            raise FileFormatError(
                name_of(source), f"the index is above {n_features - 1}", int(lines[row])
            )
    return LibsvmData(
        _matrix(values, indices, whole.indptr, n_features),
        labels,
        whole.query_ids,
        lines,
        whole.n_skipped,
        counted_from_0,
    )


def iter_libsvm(
    source: Source,
    *,
    n_features: int,
    zero_based: bool = False,
    dtype: Any = np.float64,
    on_bad_line: Literal["error", "skip"] = "error",
    block_size: int = BLOCK,
) -> Iterator[LibsvmData]:
    """Read a LIBSVM file block by block, so that it need not fit in memory.

    Parameters
    ----------
    source, dtype, on_bad_line
        See `read_libsvm`.
    n_features : int
        How many columns each block's `X` has.
    zero_based : bool, default=False
        Whether features are counted from 0, or from 1.
    block_size : int, default=2**24
        About how many bytes of text are parsed at a time.

    Yields
    ------
    LibsvmData
        Some rows, in the file's order; none without any.

    Raises
    ------
    FileFormatError, OSError, InvalidArgumentError
        See `read_libsvm`.

    Examples
    --------
    >>> import io
    >>> from tfopt.io import iter_libsvm
    >>> text = io.BytesIO(b"1 1:1\\n0 2:1\\n" * 1000)
    >>> [block.X.shape for block in iter_libsvm(text, n_features=2, block_size=9000)]
    [(1500, 2), (500, 2)]
    """
    if zero_based not in (True, False):
        raise InvalidArgumentError(f"zero_based must be True or False, not {zero_based!r}")
    if block_size < 1:
        raise InvalidArgumentError(f"block_size must be at least 1, not {block_size}")
    limits = 1 - zero_based, n_features - zero_based
    for block in _blocks(source, n_features, *limits, dtype, on_bad_line, block_size):
        if block.labels.size:
            yield LibsvmData(
                _matrix(block.values, block.indices, block.indptr, n_features),
                block.labels,
                block.query_ids,
                block.lines,
                block.n_skipped,
                zero_based,
            )


class Survey(NamedTuple):
    """What the rows of a LIBSVM file have in common.

    Attributes
    ----------
    n_rows : int
    labels : dict of float to float
        The distinct ones, if they are of classes, with the sums of their rows' weights.
    n_values : int
    n_features : int
        As many as the largest index needs, at least one.
    zero_based : bool
    """

    n_rows: int
    labels: dict[float, float]
    n_values: int
    n_features: int
    zero_based: bool


def add_labels(totals: dict[Any, float], labels: np.ndarray, weights: np.ndarray | None) -> None:
    """Add the weights of rows, by default 1, to the sums of their labels."""
    distinct, codes = np.unique(labels, return_inverse=True)
    sums = np.bincount(codes, weights, minlength=distinct.size)
    for label, weight in zip(distinct, sums.tolist(), strict=True):
        totals[label] = totals.get(label, 0.0) + weight


def survey_libsvm(
    source: Source,
    *,
    zero_based: bool | Literal["auto"] = "auto",
    max_index: int = MAX_INDEX,
    has_classes: bool = True,
    weights: np.ndarray | None = None,
) -> Survey | None:
    """Return what `read_libsvm` would find, at the speed of memory: values are not read.

    None if a line is malformed; but its values, and its indices between the first and the last, may
    be so unnoticed. None, too, if there are fewer weights than rows.
    """
    labels: dict[float, float] = {}
    n_rows, n_values, least, largest = 0, 0, max_index, -1
    with open_binary(source) as stream:
        for text in _Texts(stream, name_of(source), BLOCK):
            found = survey(text, max_index)
            if found is None:
                return None
            n = found[0].size
            of_rows = None if weights is None else weights[n_rows : n_rows + n]
            if of_rows is not None and of_rows.size < n:
                return None
            if has_classes:
                add_labels(labels, found[0], of_rows)
            n_rows += n
            n_values += found[1]
            least, largest = min(least, found[2]), max(largest, found[3])
    counted_from_0 = least == 0 or not n_values if zero_based == "auto" else zero_based
    if n_values and least == 0 and not counted_from_0:
        return None
    n_features = max(largest + counted_from_0, 1)
    return Survey(n_rows, labels, n_values, n_features, counted_from_0)


@dataclass
class _Block:
    """What a part of a file holds, as arrays."""

    labels: np.ndarray
    values: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    lines: np.ndarray
    query_ids: np.ndarray | None
    n_skipped: int

    def extend(self, block: _Block) -> None:
        """Append the rows of another block, which is changed, too."""
        if self.query_ids is not None or block.query_ids is not None:
            self.query_ids = np.concatenate([_query_ids(self), _query_ids(block)])
        block.indptr += self.values.size
        self.indptr = _extended(self.indptr, block.indptr[1:])
        for name in ("labels", "values", "indices", "lines"):
            setattr(self, name, _extended(getattr(self, name), getattr(block, name)))
        self.n_skipped += block.n_skipped


def _extended(array: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Return two arrays in one, in the memory of the first, which is then no longer valid.

    To enlarge a large piece of memory moves none of its pages, where `concatenate` fills new ones.
    """
    size = array.size
    array = array if array.flags.owndata else array.copy()
    array.resize(size + more.size, refcheck=False)
    array[size:] = more
    return array


def _blocks(
    source: Source,
    n_features: int | None,
    first_index: int,
    last_index: int,
    dtype: Any,
    on_bad_line: str,
    block_size: int,
) -> Iterator[_Block]:
    """Yield the rows of a file, part by part; at least one part."""
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise InvalidArgumentError(f"dtype must be float32 or float64, not {np.dtype(dtype)}")
    if on_bad_line not in ("error", "skip"):
        raise InvalidArgumentError(f'on_bad_line must be "error" or "skip", not {on_bad_line!r}')
    if n_features is not None and not 1 <= n_features <= MAX_INDEX + 1:
        raise InvalidArgumentError(f"n_features must be from 1 to {MAX_INDEX + 1}: {n_features}")
    single, skips = np.dtype(dtype) == np.float32, on_bad_line == "skip"
    with open_binary(source) as stream:
        texts = _Texts(stream, name_of(source), block_size)
        for text in texts:
            labels, values, indices, indptr, lines, query_ids, n_lines, fault, n_faults = parse(
                text, single, first_index, last_index, skips
            )
            if fault is not None and not skips:
                start, place = fault
                place += texts.line
                raise _error_at(texts.name, place, text[start:], first_index, last_index)
            lines += texts.line
            texts.line += n_lines
            yield _Block(labels, values, indices, indptr, lines, query_ids, n_faults)


class _Texts:
    """The whole lines of a stream, about `block_size` bytes at a time; at least one text.

    The next text overwrites the one before.

    Attributes
    ----------
    line : int
        The number of the next text's first line. The consumer of the texts advances it.
    """

    def __init__(self, stream: Any, name: str, block_size: int) -> None:
        self.name, self.line = name, 1
        self._stream, self._block_size = stream, block_size

    def __iter__(self) -> Iterator[memoryview]:
        rest, buffer, ended = b"", bytearray(), False
        while not ended:
            length = max(self._block_size, min(2 * len(rest), MAX_LINE + 1))
            if len(buffer) != length:
                buffer = bytearray(length)
            memoryview(buffer)[: len(rest)] = rest
            n = filled(self._stream, self.name, self.line, buffer, len(rest))
            ended = n < len(buffer)
            stop = n if ended else buffer.rfind(b"\n", 0, n) + 1
            if not stop and n > MAX_LINE:
                message = f"the line is longer than {MAX_LINE} bytes"
                raise FileFormatError(self.name, message, self.line)
            rest = b"" if ended else bytes(buffer[stop:n])
            if stop or ended:
                yield memoryview(buffer)[:stop]


def _error_at(
    name: str, line: int, text: memoryview, first_index: int, last_index: int
) -> FileFormatError:
    """Return the error for the malformed line with which a text begins."""
    first = bytes(text[: MAX_LINE + 1]).split(b"\n", 1)[0]
    fault = find_fault(first, first_index, last_index)
    return FileFormatError(name, fault.message, line, fault.column, fault.token)


def _query_ids(block: _Block) -> np.ndarray:
    if block.query_ids is None:
        return np.full(block.labels.size, -1)
    return block.query_ids


def _matrix(
    values: np.ndarray, indices: np.ndarray, indptr: np.ndarray, n_features: int | None
) -> Any:
    sparse = imported("scipy.sparse")

    if n_features is None:
        n_features = int(indices.max()) + 1 if indices.size else 1
    if values.size <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)  # as SciPy's own, so that nothing is converted later
    matrix = sparse.csr_matrix((values, indices, indptr), (indptr.size - 1, n_features))
    matrix.has_sorted_indices = True
    return matrix
