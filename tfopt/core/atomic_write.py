"""Files that are replaced as a whole: whoever reads one sees the old or the new content."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from typing import BinaryIO

from tfopt.errors import InvalidArgumentError

__all__ = ["naming", "replacing", "target_of"]


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Write a file under another name in its folder, then rename it.

    The content is on disk before the rename, and the rename before this returns. If the block
    fails, nothing is left of the new content; what a killed process has left, the next one that
    writes this file removes. Of several that write it at once the last to end wins.

    Parameters
    ----------
    path : path-like
        A symbolic link is followed, so that the link stays. A file that is there passes on its
        mode and, where the system permits it, its owner and its group.

    Yields
    ------
    file object
        Of bytes, empty, to be written.

    Raises
    ------
    OSError
        If the file cannot be made, or given its name; it names `path`. Errors of the block pass as
        they are.
    InvalidArgumentError
        If `path` has a NUL character.
    """
    with naming(path):
        target = target_of(path)
        folder, name = os.path.split(target)
        # short, so that it fits wherever the target's name does
        prefix = f".tfopt-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}-"
        _remove_leftovers(folder, prefix)
        temporary, descriptor = _created(os.path.join(folder, prefix), target)
    try:
        with open(descriptor, "wb") as file:
            yield file
            with naming(path):
                file.flush()
                os.fsync(descriptor)
                os.replace(temporary, target)
    except BaseException:  # Ctrl-C too must leave nothing behind
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    with naming(path):
        _sync(folder)


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Have the system's errors in a block name a file: those of a full disk, say, do not."""
    try:
        yield
    except OSError as error:
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from error


def target_of(path: str | os.PathLike[str]) -> str:
    """Return the file that a path leads to, whether it is there or not.

    Raises
    ------
    OSError
        If it leads to a folder, a pipe or a device, or round in a circle of symbolic links.
    InvalidArgumentError
        If it has a NUL character.
    """
    name = os.fspath(path)
    if "\0" in name:
        raise InvalidArgumentError(f"the name of a file cannot have a NUL character: {name!r}")
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(name).st_mode  # which also notices links that go round in a circle
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not stat.S_ISREG(mode):
            raise FileExistsError(errno.EEXIST, "Not a regular file", name)
    return os.path.realpath(name)


def _created(start: str, target: str) -> tuple[str, int]:
    """Make a file that is locked, which says that its writer is alive; return name and descriptor.

    What another one removes, before it is locked, is made anew under another name.
    """
    try:
        there = os.stat(target)
    except FileNotFoundError:
        there = None
    while True:
        name = f"{start}{secrets.token_hex(4)}.tmp"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o666 if there is None else 0o600)
        try:
            if _locks(descriptor) and _is(descriptor, name):
                if there is not None:
                    _make_alike(descriptor, there)
                return name, descriptor
        except BaseException:
            os.close(descriptor)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise
        os.close(descriptor)


def _is(descriptor: int, name: str) -> bool:
    """Return whether a name still leads to an open file."""
    try:
        return os.path.samestat(os.stat(name), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _make_alike(descriptor: int, there: os.stat_result) -> None:
    """Give a file the owner, the group and the permissions of another, as far as one may."""
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) != (there.st_uid, there.st_gid):
        for owner in (there.st_uid, -1):
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, owner, there.st_gid)
                break
    mode = there.st_mode & 0o777
    if own.st_mode & 0o777 != mode:
        os.fchmod(descriptor, mode)


def _remove_leftovers(folder: str, prefix: str) -> None:
    left = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        left = [e.path for e in entries if e.name.startswith(prefix) and e.name.endswith(".tmp")]
    for path in left:
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                # its name may be that of another file by now, if its writer was quick
                if _locks(descriptor) and _is(descriptor, path):
                    os.unlink(path)
            finally:
                os.close(descriptor)


def _locks(descriptor: int) -> bool:
    """Lock a file until it is closed; return whether nobody else had."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync(folder: str) -> None:
    # the new name itself survives a power loss only once its folder is on disk
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
