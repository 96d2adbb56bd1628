"""The thread that writes checkpoints: what Ctrl-C leaves of it."""

from __future__ import annotations

import _thread
import os
from pathlib import Path

import pytest
from common.interrupted import interrupting, raising_at, wait_for_threads

from tfopt.checkpoints import writing

SIZE = 3 * writing._SIZE + 5


@interrupting
def test_ctrl_c_leaves_no_thread(tmp_path: Path) -> None:
    """Wherever it comes in Python's code; and the next file is written."""
    data, before, event = os.urandom(SIZE), _thread._count(), 0

    def write() -> None:
        with open(tmp_path / "x", "wb", buffering=0) as file, writing.Writer(file) as writer:
            writer.write(data)

    while raising_at(event := event + 1, write):
        wait_for_threads(before, event)
    assert event > 50
    assert (tmp_path / "x").read_bytes() == data


def test_a_late_thread_writes_to_no_other_file(tmp_path: Path) -> None:
    """If Ctrl-C comes twice, a thread may go on when its file is closed, and another is opened."""
    with open(tmp_path / "x", "wb", buffering=0) as file:
        target = writing.Writer(file)._target
    with open(tmp_path / "y", "wb", buffering=0):
        target.store(memoryview(b"late"), 0)
    assert (tmp_path / "x").read_bytes() == b"late"
    assert (tmp_path / "y").read_bytes() == b""
    descriptor = target._descriptor
    del target
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_an_error_of_the_thread_is_raised(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with (
        open(tmp_path / "x", "rb") as file,
        pytest.raises(OSError, match="Bad file descriptor"),
        writing.Writer(file) as writer,  # type: ignore[arg-type]
    ):
        writer.write(bytes(SIZE))
