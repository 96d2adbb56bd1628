"""Writing past the page cache, while the next bytes are checksummed and buffered.

Writing a large file through the cache spends most of its time on allocating pages and evicts other
data; a checkpoint is seldom read soon.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections import deque
from typing import BinaryIO, Self

from tfopt.core.worker_threads import Answer, WorkerThreads

try:
    import fcntl
except ImportError:  # Windows, which has no direct writes to switch on either
    fcntl = None  # type: ignore[assignment]

__all__ = ["Writer"]

_SIZE = 1 << 22  # bytes per write, at multiples of it, since direct writes must be aligned
_COUNT = 3  # buffers: one is being written, one waits, one is being filled
_DIRECT = getattr(os, "O_DIRECT", 0)  # not every system has it


class Writer:
    """Writes to an empty file in a separate thread.

    After the `with` block ends without an exception, everything has been written, though not synced
    to disk. If Ctrl-C interrupts the wait for the thread, the thread may still write to this file,
    but to no file that is opened later.

    Parameters
    ----------
    file : file object
        Must have a file descriptor.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._thread = WorkerThreads(1)
        self._target = _Target(file.fileno())
        self._waiting: deque[Answer] = deque()  # for buffers that may not have been written yet
        self._buffers: list[memoryview] = []
        self._turn = 0  # index of the buffer being filled
        self._filled = 0  # bytes in that buffer
        self._start = 0  # their offset in the file

    def __enter__(self) -> Self:
        return self

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes; the caller may change them once this returns.

        Raises
        ------
        OSError
            If earlier bytes could not be written.
        """
        rest = memoryview(data)
        while len(rest):
            buffer = self._buffer()
            part = rest[: _SIZE - self._filled]
            buffer[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            rest = rest[len(part) :]
            if self._filled == _SIZE:
                self._hand_over(buffer)

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                while self._waiting:
                    self._waiting.popleft().result()
                self._target.leave_direct()
                if self._filled:
                    self._target.store(self._buffer()[: self._filled], self._start)
        finally:
            self._thread.__exit__()
            self._target.close()

    def _buffer(self) -> memoryview:
        """Return the current buffer, once its previous contents have been written."""
        if self._turn == len(self._buffers):
            self._buffers.append(memoryview(mmap.mmap(-1, _SIZE)))  # page-aligned
        if len(self._waiting) == _COUNT:
            self._waiting.popleft().result()
        return self._buffers[self._turn]

    def _hand_over(self, buffer: memoryview) -> None:
        self._waiting.append(self._thread.submit(self._target.store, buffer, self._start))
        self._turn = (self._turn + 1) % _COUNT
        self._start += _SIZE
        self._filled = 0


class _Target:
    """A descriptor of a file of its own: while a thread may write to it, its number stays taken."""

    _descriptor = -1

    def __init__(self, descriptor: int) -> None:
        self._descriptor = os.dup(descriptor)
        self._is_direct = _set_direct(self._descriptor, True)

    def close(self) -> None:
        """Close the descriptor, if that has not been done."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    __del__ = close

    def store(self, data: memoryview, start: int) -> None:
        """Write all bytes at an offset."""
        while len(data):
            try:
                count = _write_at(self._descriptor, data, start)
            except OSError as error:
                if not self._is_direct or error.errno != errno.EINVAL:
                    raise
                count = 0  # this file system does not support direct writes after all
            data, start = data[count:], start + count
            if len(data):  # the rest is not aligned for direct writes
                self.leave_direct()

    def leave_direct(self) -> None:
        """Write through the page cache from now on."""
        if self._is_direct:
            self._is_direct = _set_direct(self._descriptor, False)


def _write_at(descriptor: int, data: memoryview, start: int) -> int:
    """Write bytes at an offset, maybe not all; return how many."""
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, data, start)
    os.lseek(descriptor, start, os.SEEK_SET)
    return os.write(descriptor, data)


def _set_direct(descriptor: int, on: bool) -> bool:
    """Switch writing past the page cache on or off; return whether it is on."""
    if not _DIRECT or fcntl is None:
        return False
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | _DIRECT if on else flags & ~_DIRECT)
    except OSError:
        return False
    return on
