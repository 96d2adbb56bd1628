"""Files that are replaced as a whole: whoever reads one sees the old or the new content."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["replacing"]


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Write a file under another name in its folder, then rename it.

    The content is on disk before the rename, and the rename before this returns. If the block
    fails, nothing is left of the new content; what a killed process has left, the next one that
    writes this file removes.

    Parameters
    ----------
    path : path-like
        A symbolic link is followed, so that the link stays.

    Yields
    ------
    file object
        Of bytes, empty, to be written.

    Raises
    ------
    OSError
        If something cannot be written; it names `path`.
    """
    target = Path(path).resolve()
    # short, so that it fits wherever the target's name does
    prefix = f".tfopt-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}-"
    temporary = target.parent / f"{prefix}{secrets.token_hex(4)}.tmp"
    try:
        _remove_leftovers(target.parent, prefix)
        try:
            with temporary.open("xb") as file:
                _lock(file)  # which says that its writer is alive
                yield file
                file.flush()
                os.fsync(file.fileno())
                temporary.replace(target)
        except BaseException:  # Ctrl-C too must leave nothing behind
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
            raise
        _sync(target.parent)
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk, say: the error does not know which file
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from error


def _remove_leftovers(folder: Path, prefix: str) -> None:
    for left in folder.glob(f"{prefix}*.tmp"):
        with contextlib.suppress(OSError), left.open("rb") as file:
            _lock(file)
            left.unlink()


def _lock(file: BinaryIO) -> None:
    """Lock a file until it is closed; refuse one that another process has locked."""
    fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def _sync(folder: Path) -> None:
    # the new name itself survives a power loss only once its folder is on disk
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
