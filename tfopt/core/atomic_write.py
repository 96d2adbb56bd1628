"""Atomic replacement of files: readers see either the old or the new content."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO

from tfopt.errors import InvalidArgumentError

try:
    import fcntl
except ImportError:  # Windows, where an open file can be neither renamed nor removed
    fcntl = None  # type: ignore[assignment]

__all__ = ["make_folder", "naming", "replacing", "target_of"]

#: Without locks, a temporary file that was not changed for so many seconds has no live writer.
_OLD = 86_400


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Write to a temporary file in the same folder, then rename it to `path`.

    The content is on disk before the rename, and the rename before this returns. If the block
    raises, the temporary file is removed; files left behind by a killed process are removed by the
    next write to the same path. Of several concurrent writers the last to finish wins.

    Parameters
    ----------
    path : path-like
        A symbolic link is followed and kept. The mode of an existing file is preserved, and, where
        the system permits, its owner and group.

    Yields
    ------
    file object
        An empty binary file, open for writing.

    Raises
    ------
    OSError
        If the file cannot be created or renamed; the error names `path`. Errors raised in the block
        are not changed.
    InvalidArgumentError
        If `path` contains a NUL character.
    """
    with naming(path):
        target = target_of(path)
        folder, name = os.path.split(target)
        # short, so that it is a valid name wherever the target's is
        prefix = f".tfopt-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}-"
        _remove_leftovers(folder, prefix)
    created: list[str] = []
    try:
        with naming(path):
            opened = _created(os.path.join(folder, prefix), target, created)
        with opened as file:
            yield file
            with naming(path):
                file.flush()
                os.fsync(file.fileno())
                if fcntl is not None:
                    os.replace(created[-1], target)
        if fcntl is None:  # the file has to be closed first
            with naming(path):
                os.replace(created[-1], target)
    except BaseException:  # including Ctrl-C
        for temporary in created:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        raise
    with naming(path):
        _sync(folder)


def make_folder(path: str) -> None:
    """Create a folder, and those that it is in, if they do not exist; they are on disk then.

    Raises
    ------
    OSError
        If there is something else, or the folder cannot be created.
    """
    missing, folder = [], os.path.realpath(path)
    while not os.path.isdir(folder):
        folder, name = os.path.split(folder)
        missing.append(name)
    os.makedirs(path, exist_ok=True)
    for name in reversed(missing):
        _sync(folder)
        folder = os.path.join(folder, name)


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add a file name to OSErrors raised in the block: that of a full disk, say, has none."""
    try:
        yield
    except OSError as error:
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from error


def target_of(path: str | os.PathLike[str]) -> str:
    """Return the real path of a file, existing or not.

    Raises
    ------
    OSError
        If it is a folder, a pipe or a device, or the path has a cycle of symbolic links.
    InvalidArgumentError
        If it contains a NUL character.
    """
    name = os.fspath(path)
    if "\0" in name:
        raise InvalidArgumentError(f"a file name cannot contain a NUL character: {name!r}")
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(name).st_mode  # raises for a cycle of symbolic links
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not stat.S_ISREG(mode):
            raise FileExistsError(errno.EEXIST, "Not a regular file", name)
    return os.path.realpath(name)


def _created(start: str, target: str, names: list[str]) -> BinaryIO:
    """Create a locked file, and append its name before that. The lock shows a live writer.

    If another process removes the file before it is locked, another one is created.
    """
    try:
        replaced = os.stat(target)
    except FileNotFoundError:
        replaced = None
    while True:
        names.append(f"{start}{secrets.token_hex(4)}.tmp")
        # a file object, not a descriptor: it is closed if Ctrl-C comes before it has a name here
        opener = partial(os.open, mode=0o666 if replaced is None else 0o600)
        try:
            file = open(names[-1], "xb", opener=opener)  # noqa: SIM115
        except OSError:
            names.pop()  # that of another file, perhaps
            raise
        try:
            if _locks(file.fileno()) and _is(file.fileno(), names[-1]):
                if replaced is not None:
                    _copy_permissions(file.fileno(), replaced)
                return file
        except BaseException:
            file.close()
            raise
        file.close()


def _is(descriptor: int, name: str) -> bool:
    """Return whether a name still refers to an open file."""
    try:
        return os.path.samestat(os.stat(name), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _copy_permissions(descriptor: int, source: os.stat_result) -> None:
    """Copy owner, group and permissions from another file, as far as the system permits."""
    if not hasattr(os, "fchown"):  # Windows
        return
    created = os.fstat(descriptor)
    if (created.st_uid, created.st_gid) != (source.st_uid, source.st_gid):
        for owner in (source.st_uid, -1):
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, owner, source.st_gid)
                break
    mode = source.st_mode & 0o777
    if created.st_mode & 0o777 != mode:
        os.fchmod(descriptor, mode)


def _remove_leftovers(folder: str, prefix: str) -> None:
    left = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        left = [e.path for e in entries if e.name.startswith(prefix) and e.name.endswith(".tmp")]
    for path in left:
        with contextlib.suppress(OSError):
            if fcntl is None:
                if time.time() - os.stat(path).st_mtime > _OLD:
                    os.unlink(path)
                continue
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                # another file may have this name by now
                if _locks(descriptor) and _is(descriptor, path):
                    os.unlink(path)
            finally:
                os.close(descriptor)


def _locks(descriptor: int) -> bool:
    """Try to lock a file until it is closed; return whether that succeeded."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync(folder: str) -> None:
    # a rename survives a power loss only once the folder is on disk
    if not hasattr(os, "O_DIRECTORY"):  # Windows opens no folders
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
