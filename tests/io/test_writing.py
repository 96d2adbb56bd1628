"""Files written past the page cache have the right bytes on every file system."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfopt.checkpoints import writing
from tfopt.checkpoints.writing import Writer

PAGE = 4096
pwrite = os.pwrite


def refusing(descriptor: int, data: Any, start: int) -> int:
    """Write as a file system without direct writes."""
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
        raise OSError(errno.EINVAL, "Invalid argument")
    return pwrite(descriptor, data, start)


def halving(descriptor: int, data: Any, start: int) -> int:
    """Write less than there is."""
    return pwrite(descriptor, data[: max(1, len(data) // 2)], start)


SYSTEMS: dict[str, dict[str, Any]] = {
    "direct": {},
    "without the flag": {"_DIRECT": 0},
    "refusing": {"pwrite": refusing},
    "halving": {"pwrite": halving},
    "Windows": {"fcntl": None, "pwrite": None},
}


@pytest.fixture(params=SYSTEMS)
def system(request: Any, monkeypatch: Any) -> str:
    """Have buffers of one page, on different systems."""
    monkeypatch.setattr(writing, "_SIZE", PAGE)
    for name, value in SYSTEMS[request.param].items():
        if name == "pwrite" and value is None:
            monkeypatch.delattr(os, name)
        else:
            monkeypatch.setattr(os if name == "pwrite" else writing, name, value)
    return request.param


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.sampled_from([0, 1, 100, PAGE - 1, PAGE, PAGE + 1, 5 * PAGE + 7]), max_size=6)
)
def test_the_file_has_the_bytes(tmp_path_factory: Any, system: str, sizes: list[int]) -> None:
    path = tmp_path_factory.mktemp("written") / "file"
    parts = [bytes((k + place) % 251 for place in range(size)) for k, size in enumerate(sizes)]
    with path.open("wb") as file, Writer(file) as writer:
        for k, part in enumerate(parts):
            changing = bytearray(part)
            writer.write(memoryview(changing) if k % 2 else part)
            changing[:] = bytes(len(part))  # it has been taken by then
    assert path.read_bytes() == b"".join(parts)


def test_a_system_that_fails_is_heard(tmp_path: Path, system: str, monkeypatch: Any) -> None:
    def full(descriptor: int, data: Any, start: int) -> int:
        if start >= 2 * PAGE:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(descriptor, data, start)

    monkeypatch.setattr(writing, "_write_at", full)
    for size in (2 * PAGE + 1, 3 * PAGE, 50 * PAGE):
        with (
            (tmp_path / "file").open("wb") as file,
            pytest.raises(OSError, match="No space left"),
            Writer(file) as writer,
        ):
            writer.write(bytes(size))


def test_an_error_in_the_block_ends_it(tmp_path: Path, system: str) -> None:
    with (tmp_path / "file").open("wb") as file, pytest.raises(KeyError), Writer(file) as writer:
        writer.write(bytes(9 * PAGE + 5))
        raise KeyError
    assert (tmp_path / "file").stat().st_size <= 9 * PAGE
