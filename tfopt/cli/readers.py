"""Files of labelled rows, LIBSVM's and tables: read as a whole, in blocks, or cut into parts."""

from __future__ import annotations

import contextlib
import dataclasses
import io as streams
import itertools
from collections.abc import Iterator

from tfopt import io
from tfopt.cli.data import Data, Layout
from tfopt.cli.files import CommandError, File, file_of
from tfopt.cli.settings import ReadOptions
from tfopt.errors import FileFormatError
from tfopt.io.libsvm import MAX_LINE
from tfopt.io.streams import open_binary

__all__ = ["cut", "read_blocks", "read_data"]

#: Weights are kept for every index up to the largest, 8 bytes each: a typing error in one index
#: must not claim all memory. The widest set on the LIBSVM page has 54.7 million features.
MAX_INDEX = 2**27


def read_data(file: str | File, options: ReadOptions, like: Layout | None = None) -> Data:
    """Read a file, or a part of one, into memory: plain or compressed.

    Parameters
    ----------
    file : str or File
        ``-`` is standard input.
    options : ReadOptions
    like : Layout, optional
        Of the training data: where features are counted from, which columns and classes there are.

    Returns
    -------
    Data
        At least one row, unless it is a part; all numbers finite; indices ascending within a row.

    Raises
    ------
    CommandError
        The message names the file, the line, the column and the text.
    """
    file = file_of(file) if isinstance(file, str) else file
    if options.format_of(file.path) != "libsvm":
        from tfopt.cli.tables import read_table  # loaded if needed only

        if like is not None and like.columns is None:
            raise CommandError(f"{file.name}: is a table, and the training data are not")
        data = read_table(file, options, None if like is None else like.columns)
    else:
        if like is not None and like.columns is not None:
            raise CommandError(f"{file.name}: is not a table, as the training data are")
        with _errors_of(file), file.opened() as source:
            read = io.read_libsvm(
                source,
                zero_based=options.zero_based if like is None else like.zero_based,
                max_index=MAX_INDEX,
                on_bad_line=options.on_bad_line,
            )
        data = Data(read.X, read.y, read.zero_based, read.lines, file, read.n_skipped)
    if not data.labels.size and file.is_whole:
        raise CommandError(f"{file.name}: no data rows")
    return data


def read_blocks(path: str, options: ReadOptions, like: Layout) -> Iterator[Data]:
    """Read a file block by block, at least one, so that it need not fit in memory."""
    file, empty = file_of(path), True
    for data in _blocks(file, options, like):
        empty = False
        yield data
    if empty:
        raise CommandError(f"{file.name}: no data rows")


def _blocks(file: File, options: ReadOptions, like: Layout) -> Iterator[Data]:
    zero_based = like.zero_based
    if options.format_of(file.path) != "libsvm":
        from tfopt.cli.tables import iter_table  # loaded if needed only

        if like.columns is None:
            raise CommandError(f"{file.name}: is a table, and the model has no column names")
        yield from iter_table(file, options, like.columns)
        return
    with _errors_of(file), file.opened() as source:
        for read in io.iter_libsvm(
            source,
            n_features=MAX_INDEX + zero_based,
            zero_based=zero_based,
            on_bad_line=options.on_bad_line,
        ):
            yield Data(read.X, read.y, zero_based, read.lines, file, read.n_skipped)


def cut(path: str, options: ReadOptions, size: int) -> list[File]:
    """Cut a local file into parts of about `size` bytes, each of whole rows."""
    whole = file_of(path)
    refusal = f"{whole.name}: --chunk-size needs an uncompressed file of this machine"
    if path == "-" or "://" in path:
        raise CommandError(refusal)
    if options.format_of(path) != "libsvm":
        from tfopt.cli.tables import cut_table  # loaded if needed only

        return cut_table(whole, options, size)
    ends = [0]
    with _errors_of(whole), open_binary(path) as stream:
        if not isinstance(stream, streams.BufferedReader):
            raise CommandError(refusal)
        length = stream.seek(0, streams.SEEK_END)
        while ends[-1] < length:
            stream.seek(min(ends[-1] + size, length) - 1)
            stream.readline(MAX_LINE + 1)  # the reader refuses a longer one
            ends.append(stream.tell())
    if not length:
        raise CommandError(f"{path}: no data rows")
    return [
        dataclasses.replace(whole, start=start, stop=stop, n_before=None if start else 0)
        for start, stop in itertools.pairwise(ends)
    ]


@contextlib.contextmanager
def _errors_of(file: File) -> Iterator[None]:
    """Convert errors of a file to one line."""
    try:
        yield
    except FileFormatError as error:
        if error.line is not None:
            raise file.error(error.line, error.message, error.token, error.column) from error
        raise CommandError(f"{file.name}: {error.message}") from error
    except (BrokenPipeError, ModuleNotFoundError):
        raise
    except (OSError, ImportError) as error:  # of a compression that this Python has not
        reason = getattr(error, "strerror", None) or error
        raise CommandError(f"{file.name}: {reason}") from error
