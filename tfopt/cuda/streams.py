"""The order of what runs on several streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tfopt.cuda.arrays import DeviceArray
from tfopt.cuda.library import Library

__all__ = ["in_order"]


@contextmanager
def in_order(library: Library, device: int, arrays: Sequence[DeviceArray]) -> Iterator[int]:
    """Give the first array's stream; the others' are waited for, and wait in their turn."""
    stream = arrays[0].stream
    others = {array.stream for array in arrays if array.size} - {stream}
    for other in others:
        library.check(library.call["follow"](device, stream, other))
    try:
        yield stream
    finally:  # also after an error that has come up behind something queued
        for other in others:
            library.check(library.call["follow"](device, other, stream))
