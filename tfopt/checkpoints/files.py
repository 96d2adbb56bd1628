"""Checkpoint files: written as a whole, and checked as a whole before anything is made of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tfopt.atomic import replacing
from tfopt.checkpoints import npz, safetensors
from tfopt.checkpoints.entries import STORED, Entry, checksum, described, empty, pieces
from tfopt.checkpoints.framing import Framing, Reader, exactly
from tfopt.checkpoints.tree import dumps, is_name, pack, unpack
from tfopt.errors import CheckpointError, InvalidArgumentError

__all__ = ["load", "read", "save", "writer"]

_FORMAT, _VERSION = "tfopt checkpoint", 1
_FORMATS: dict[str, tuple[Callable[[bytes, Sequence[Entry]], Framing], Reader]] = {
    ".npz": (npz.Npz, npz.read_text),
    ".safetensors": (safetensors.Safetensors, safetensors.read_text),
}
_SMALL = 1 << 18  # bytes whose checksum takes no longer than handing it to a thread


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
        If the name ends in something else.
    InvalidTypeError
        If something in it is none of these.
    OSError
        If the file cannot be written, on a full disk for instance; it names `path`. What was there
        is as it was.

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
    write = writer(path, tree)
    with replacing(path) as file:
        write(file)


def writer(path: str | os.PathLike[str], tree: Any) -> Callable[[BinaryIO], None]:
    """Check what `save` is given; return what writes it into a file, from beginning to end."""
    make, _ = _format_of(path)
    document, arrays = pack(tree)
    entries = [described(name, array) for name, array in arrays.items()]
    text = dumps({"format": _FORMAT, "version": _VERSION, "tree": document, "arrays": entries})
    framing = make(text, entries)

    def write(file: BinaryIO) -> None:
        with ThreadPoolExecutor(1) as thread:
            file.write(framing.opening())
            crcs = []
            for k, (entry, array) in enumerate(zip(entries, arrays.values(), strict=True)):
                sum_up = partial(checksum, pieces(array), framing.seed(k))
                crc: Future[int] | None = thread.submit(sum_up) if entry.nbytes > _SMALL else None
                file.write(framing.before(k))
                file.writelines(pieces(array))
                crcs.append(sum_up() if crc is None else crc.result())
                file.write(framing.after(k, crcs[-1]))
            file.write(framing.closing(crcs))

    return write


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
        If the file is damaged, cut short, or none of tfopt's. No memory has been taken for sizes
        that it declares but does not have.
    InvalidArgumentError
        If the name ends in neither ``.safetensors`` nor ``.npz``.
    OSError
        If it cannot be read.
    """
    _format_of(path)
    with open(path, "rb") as file:
        return read(file, os.fstat(file.fileno()).st_size, path)


def read(file: BinaryIO, size: int, path: str | os.PathLike[str]) -> Any:
    """Return what an open file of so many bytes holds, as `load` does."""
    make, read_text = _format_of(path)
    try:
        text = read_text(file, size)
        document, entries = _parsed(text, size)
        arrays = _read(file, size, make(text, entries), entries)
        return unpack(document, arrays)
    except CheckpointError as error:
        raise CheckpointError(f"{os.fspath(path)}: {error}") from error


def _format_of(path: str | os.PathLike[str]) -> Any:
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise InvalidArgumentError(
            f"a checkpoint's name ends in {' or '.join(_FORMATS)}, not {Path(path).name!r}"
        )
    return _FORMATS[suffix]


def _parsed(text: bytes, size: int) -> tuple[Any, list[Entry]]:
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
    sound = all(
        is_name(entry.name)
        and entry.dtype in STORED
        and all(type(length) is int and length >= 0 for length in entry.shape)
        for entry in entries
    )
    if not sound:
        raise CheckpointError("its header is damaged")
    declared = sum(entry.nbytes for entry in entries)
    if declared > size:
        raise CheckpointError(f"it has {size} bytes instead of more than {declared}")
    return tree, entries


def _read(
    file: BinaryIO, size: int, framing: Framing, entries: Sequence[Entry]
) -> dict[str, np.ndarray]:
    """Read the arrays; whatever is not as it would be written is refused."""
    last = len(framing.closing([0] * len(entries)))
    around = (
        len(framing.before(k)) + len(framing.after(k, 0)) + entry.nbytes
        for k, entry in enumerate(entries)
    )
    expected = len(framing.opening()) + sum(around) + last
    if size != expected:
        raise CheckpointError(f"it has {size} bytes instead of {expected}")
    file.seek(0)
    _expect(file, framing.opening(), "header")
    arrays, crcs = {}, []
    for k, entry in enumerate(entries):
        _expect(file, framing.before(k), entry.name)
        arrays[entry.name], parts = empty(entry)
        crc = framing.seed(k)
        for part in parts:
            if file.readinto(part) != len(part):  # type: ignore[attr-defined]
                raise CheckpointError("it is cut short")
            crc = checksum(iter([part]), crc)
        crcs.append(crc)
        _expect(file, framing.after(k, crc), entry.name)
    _expect(file, framing.closing(crcs), "checksums")
    return arrays


def _expect(file: BinaryIO, expected: bytes, what: str) -> None:
    if exactly(file, len(expected)) != expected:
        raise CheckpointError(f"{what}: it is damaged")
