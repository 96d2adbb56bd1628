"""Checkpoint files: written as a whole, and checked as a whole before anything is made of them."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tfopt.checkpoints import npz, safetensors
from tfopt.checkpoints.entries import (
    AT_ONCE,
    Entry,
    described,
    empty,
    is_sound,
    pieces,
)
from tfopt.checkpoints.framing import MOST_TEXT, Framing, Reader, exactly, has_too_many
from tfopt.checkpoints.stored import Stored, fill
from tfopt.checkpoints.tree import dumps, pack, unpack
from tfopt.checkpoints.writing import Writer
from tfopt.core.atomic_write import naming, replacing, target_of
from tfopt.errors import CheckpointError, InvalidArgumentError

__all__ = ["load", "opened", "save"]

_FORMAT, _VERSION = "tfopt checkpoint", 1
_FORMATS: dict[str, tuple[Callable[[bytes, Sequence[Entry]], Framing], Reader]] = {
    ".npz": (npz.Npz, npz.read_text),
    ".safetensors": (safetensors.Safetensors, safetensors.read_text),
}
_LEAST = {".npz": 256, ".safetensors": 64}  # bytes that a file has beside those of an array


class _Opened(NamedTuple):
    file: BinaryIO
    size: int
    framing: Framing
    entries: Sequence[Entry]
    document: Any


def save(path: str | os.PathLike[str], tree: Any) -> None:
    """Write arrays and numbers into a file.

    The arrays are written from where they are, without a copy of them in memory. Nothing may
    change them meanwhile.

    Parameters
    ----------
    path : path-like
        It ends in ``.safetensors`` or ``.npz``. What was there stays whole until all of the new
        file is on disk, then it is replaced at once.
    tree : dict, list, array, Variable, number, str or None
        Nested as you like; the keys are strings. Tuples come back as lists.

    Raises
    ------
    InvalidArgumentError
        If the name ends in something else or has a NUL character; if the tree is nested more than
        100 deep, or has more than a million numbers, strings, lists and dictionaries beside its
        arrays (and one more for each 32 bytes of the file).
    InvalidTypeError
        If something in it is none of these.
    OSError
        If the file cannot be written, on a full disk for instance; it names `path`. What was there
        is as it was. So is what is no file: a folder, a pipe, a device.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from tfopt import checkpoints
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoints.save(f"{folder}/all.npz", {"w": np.ones(2), "epoch": 3})
    ...     checkpoints.load(f"{folder}/all.npz")
    {'w': array([1., 1.]), 'epoch': 3}
    """
    make, _ = _format_of(path)
    document, arrays = pack(tree)
    entries = [described(name, array) for name, array in arrays.items()]
    text = dumps({"format": _FORMAT, "version": _VERSION, "tree": document, "arrays": entries})
    framing = make(text, entries)
    header = framing.opening()
    if len(header) > MOST_TEXT or has_too_many(header, _length(framing, entries)):
        raise InvalidArgumentError(
            "there are too many numbers, strings, lists and dictionaries beside the arrays: make "
            "arrays of them"
        )
    with replacing(path) as file, naming(path), Writer(file) as writer:
        writer.write(framing.opening())
        crcs = []
        for k, array in enumerate(arrays.values()):
            writer.write(framing.before(k))
            crc = framing.seed(k)
            for part in pieces(array, AT_ONCE):
                crc = zlib.crc32(part, crc)
                writer.write(part)
            crcs.append(crc)
            writer.write(framing.after(k, crc))
        writer.write(framing.closing(crcs))


def load(path: str | os.PathLike[str]) -> Any:
    """Return what a file holds, after all of it has been checked.

    Parameters
    ----------
    path : path-like
        A file that `save` wrote.

    Returns
    -------
    dict, list, array, number, str or None
        As it was given to `save`; the arrays are new ones.

    Raises
    ------
    CheckpointError
        If the file is damaged, cut short, none of tfopt's, or one that `save` would have refused.
        No memory has been taken for sizes that it declares but does not have.
    InvalidArgumentError
        If the name ends in neither ``.safetensors`` nor ``.npz``.
    OSError
        If it cannot be read.
    """
    with _opened(path) as (file, size, framing, entries, document):
        arrays = {}

        def new(entry: Entry) -> Iterator[memoryview]:
            arrays[entry.name], parts = empty(entry)
            return parts

        _check(file, size, framing, entries, new)
        return unpack(document, arrays)


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Check a file, then have its arrays read to where they are to be.

    For arrays that are there already: no memory is taken for others.

    Parameters
    ----------
    path : path-like
        A file that `save` wrote.

    Yields
    ------
    dict, list, Stored, number, str or None
        As it was given to `save`, with a :class:`Stored` in place of each array, which can be read
        while the file is open. `Optimizer.load_state_dict` takes them as arrays.

    Raises
    ------
    CheckpointError, InvalidArgumentError, OSError
        As `load` does. All of the file has been checked before the block begins.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from tfopt import checkpoints
    >>> w = np.zeros(2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoints.save(f"{folder}/all.npz", {"w": np.ones(2), "epoch": 3})
    ...     with checkpoints.opened(f"{folder}/all.npz") as tree:
    ...         tree["w"].read_into(w)
    >>> w
    array([1., 1.])
    """
    with _opened(path) as (file, size, framing, entries, document):
        buffer = memoryview(bytearray(AT_ONCE))

        def passing(entry: Entry) -> Iterator[memoryview]:
            for start in range(0, entry.nbytes, AT_ONCE):
                yield buffer[: min(AT_ONCE, entry.nbytes - start)]

        arrays = _check(file, size, framing, entries, passing)
        yield unpack(document, arrays)


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[_Opened]:
    make, read_text = _format_of(path)
    target_of(path)  # which refuses a pipe, whose end may never come
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            text = read_text(file, size)
            document, entries = _parsed(text, size, _LEAST[Path(path).suffix.lower()])
            yield _Opened(file, size, make(text, entries), entries, document)
    except CheckpointError as error:
        raise CheckpointError(f"{os.fspath(path)}: {error}") from error


def _format_of(path: str | os.PathLike[str]) -> Any:
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise InvalidArgumentError(
            f"a checkpoint's name ends in {' or '.join(_FORMATS)}, not {Path(path).name!r}"
        )
    return _FORMATS[suffix]


def _parsed(text: bytes, size: int, least: int) -> tuple[Any, list[Entry]]:
    if has_too_many(text, size):
        raise CheckpointError("its header has too many parts")
    try:
        header = json.loads(text)
        if header["format"] != _FORMAT:
            raise CheckpointError("it is not one of tfopt's")
        if header["version"] != _VERSION:
            raise CheckpointError(
                f"its version is {header['version']}, this tfopt reads {_VERSION}"
            )
        entries = [Entry(name, dtype, tuple(shape)) for name, dtype, shape in header["arrays"]]
        tree = header["tree"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError("its header is damaged") from error
    if not all(map(is_sound, entries)):
        raise CheckpointError("its header is damaged")
    declared = sum(entry.nbytes + least for entry in entries)
    if declared > size:
        raise CheckpointError(f"it has {size} bytes instead of more than {declared}")
    return tree, entries


def _check(
    file: BinaryIO,
    size: int,
    framing: Framing,
    entries: Sequence[Entry],
    memory: Callable[[Entry], Iterator[memoryview]],
) -> dict[str, Stored]:
    """Read the arrays into memory that is given for each; refuse what would be written otherwise.

    Return where they are.
    """
    expected = _length(framing, entries)
    if size != expected:
        raise CheckpointError(f"it has {size} bytes instead of {expected}")
    file.seek(0)
    _expect(file, framing.opening(), "header")
    stored, crcs = {}, []
    for k, entry in enumerate(entries):
        _expect(file, framing.before(k), entry.name)
        start = file.tell()
        crcs.append(fill(file, memory(entry), framing.seed(k)))
        _expect(file, framing.after(k, crcs[-1]), entry.name)
        stored[entry.name] = Stored(file, entry, start, framing.seed(k), crcs[-1])
    _expect(file, framing.closing(crcs), "checksums")
    return stored


def _length(framing: Framing, entries: Sequence[Entry]) -> int:
    """Return how many bytes a file has."""
    last = len(framing.closing([0] * len(entries)))
    around = (
        len(framing.before(k)) + len(framing.after(k, 0)) + entry.nbytes
        for k, entry in enumerate(entries)
    )
    return len(framing.opening()) + sum(around) + last


def _expect(file: BinaryIO, expected: bytes, what: str) -> None:
    if exactly(file, len(expected)) != expected:
        raise CheckpointError(f"{what}: it is damaged")
