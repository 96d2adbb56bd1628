"""Files that are replaced as a whole: several writers, modes, and names that are refused."""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfopt import checkpoints
from tfopt.core import atomic_write
from tfopt.core.atomic_write import replacing
from tfopt.errors import CheckpointError, InvalidArgumentError


def write(path: Path, content: bytes = b"new") -> None:
    with replacing(path) as file:
        file.write(content)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ---- Ctrl-C


def interrupted(call: Callable[[], object], number: int) -> bool:
    """Make a call that is interrupted before the n-th instruction of Python's; return whether."""
    left = number

    def trace(frame: Any, kind: str, argument: object) -> Any:
        nonlocal left
        if Path(frame.f_code.co_filename).name not in ("atomic_write.py", "contextlib.py"):
            return None
        frame.f_trace_opcodes = True
        left -= kind == "opcode"
        if left == 0 and kind == "opcode":
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 asks before it traces, and of any frame
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of files that got no name
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_before_any_instruction_leaves_one_file(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # which takes most of the time
    path, number, found = tmp_path / "x", 1, set()
    path.write_bytes(b"old")
    while interrupted(lambda: write(path), number):
        assert list(tmp_path.iterdir()) == [path], f"instruction {number}"
        found.add(path.read_bytes())
        path.write_bytes(b"old")
        number += 1
    assert number > 200 and found == {b"old", b"new"}


# ---- several writers


def test_a_file_without_its_lock_yet_may_be_removed_by_another_writer(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """Which does so between the two calls that make and lock it, twice."""
    locks, others = atomic_write._locks, [b"first", b"second"]

    def late(descriptor: int) -> bool:
        if others:
            content = others.pop()
            write(tmp_path / "x", content)
        return locks(descriptor)

    monkeypatch.setattr(atomic_write, "_locks", late)
    write(tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == b"new" and others == []
    assert list(tmp_path.iterdir()) == [tmp_path / "x"]


def test_threads_and_processes_that_write_one_file(tmp_path: Path) -> None:
    path, failed = tmp_path / "x.npz", []

    def save() -> None:
        try:
            for k in range(25):
                checkpoints.save(path, {"w": np.full(9, k)})
        except OSError as error:
            failed.append(error)

    child = os.fork()
    if child == 0:
        save()
        os._exit(len(failed))
    writers = [threading.Thread(target=save) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert failed == []
    assert len(set(checkpoints.load(path)["w"])) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_is_alive_keeps_its_file(tmp_path: Path) -> None:
    with replacing(tmp_path / "x") as file:
        file.write(b"slow")
        write(tmp_path / "x", b"quick")
        assert len(list(tmp_path.iterdir())) == 2
    assert (tmp_path / "x").read_bytes() == b"slow"
    assert list(tmp_path.iterdir()) == [tmp_path / "x"]


# ---- whose errors


def test_errors_of_the_block_name_what_they_named(tmp_path: Path) -> None:
    for missing, message in [
        (lambda: (tmp_path / "other").read_bytes(), "No such file or directory: .*other'"),
        (lambda: (_ for _ in ()).throw(BrokenPipeError(32, "Broken pipe")), "^.Errno 32. Bro"),
        (lambda: (_ for _ in ()).throw(TimeoutError("slow")), "^slow$"),
    ]:
        with pytest.raises(OSError, match=message), replacing(tmp_path / "x"):
            missing()
    assert list(tmp_path.iterdir()) == []


# ---- modes


@pytest.mark.parametrize("old", [0o600, 0o640, 0o444, 0o777])
def test_the_mode_of_a_file_is_kept(tmp_path: Path, old: int) -> None:
    path = tmp_path / "x"
    write(path)
    path.chmod(old)
    (tmp_path / "link").symlink_to(path)
    with replacing(tmp_path / "link") as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == old  # nobody sees more meanwhile
    assert mode(path) == old and path.read_bytes() == b""


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o007])
def test_a_new_file_has_the_mode_of_new_files(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path / "x")
    finally:
        os.umask(before)
    assert mode(tmp_path / "x") == 0o666 & ~umask


@pytest.mark.skipif(os.geteuid() != 0, reason="nobody but root gives files away")
def test_root_leaves_a_file_to_its_owner(tmp_path: Path) -> None:
    write(tmp_path / "x")
    os.chown(tmp_path / "x", 65534, 65533)
    write(tmp_path / "x")
    found = (tmp_path / "x").stat()
    assert (found.st_uid, found.st_gid) == (65534, 65533)


def test_others_keep_at_least_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not give a file away may give it to another group of theirs."""
    write(tmp_path / "x")
    real, given = os.fstat, []

    def of_another(descriptor: int) -> os.stat_result:
        found = real(descriptor)
        return os.stat_result((*found[:4], found.st_uid + 1, found.st_gid + 1, *found[6:]))

    def chown(descriptor: int, owner: int, group: int) -> None:
        if owner != -1:
            raise PermissionError(1, "Operation not permitted")
        given.append(group)

    with monkeypatch.context() as patch:
        patch.setattr(atomic_write.os, "fstat", of_another)
        patch.setattr(atomic_write.os, "fchown", chown)
        patch.setattr(atomic_write, "_is", lambda *_: True)
        write(tmp_path / "x")
    assert given == [(tmp_path / "x").stat().st_gid]


# ---- what is no file


def loop(path: Path) -> None:
    path.symlink_to(path.name)


PLACES: dict[str, tuple[Callable[[Path], Any], type[Exception], str]] = {
    "loop": (loop, OSError, os.strerror(errno.ELOOP)),
    "pipe": (os.mkfifo, FileExistsError, "Not a regular file"),
    "folder": (os.mkdir, IsADirectoryError, "Is a directory"),
}


@pytest.mark.parametrize("which", PLACES)
def test_what_is_no_file_stays(tmp_path: Path, which: str) -> None:
    make, kind, message = PLACES[which]
    make(path := tmp_path / "x.npz")
    before = path.lstat()
    with pytest.raises(kind, match=rf"{message}.*x\.npz"):
        checkpoints.save(path, {"w": np.ones(2)})
    with pytest.raises((OSError, CheckpointError), match=rf"x\.npz.*{message}|{message}.*x\.npz"):
        checkpoints.load(path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.lstat() == before


def test_a_file_is_on_disk_before_its_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, rename = os.fsync, os.replace

    def syncing(descriptor: int) -> None:
        sync(descriptor)
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")

    def renaming(old: str, new: str) -> None:
        rename(old, new)
        done.append("name")

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "replace", renaming)
    checkpoints.save(tmp_path / "x.npz", {"w": np.ones(2)})
    assert [*dict.fromkeys(done)] == ["file", "name", "folder"]


def test_a_name_with_a_nul_character(tmp_path: Path) -> None:
    for function in (lambda name: checkpoints.save(name, {}), checkpoints.load):
        with pytest.raises(InvalidArgumentError, match="cannot contain a NUL character"):
            function(f"{tmp_path}/a\0.npz")


def test_a_new_folder_is_synced_with_those_that_it_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else all that is saved in it could be lost with its name."""
    synced: list[str] = []
    monkeypatch.setattr(atomic_write, "_sync", synced.append)
    root = os.path.realpath(tmp_path)
    for _ in range(2):
        atomic_write.make_folder(str(tmp_path / "a/b/c"))
        assert (tmp_path / "a/b/c").is_dir()
        assert synced == [root, f"{root}/a", f"{root}/a/b"]
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        atomic_write.make_folder(str(tmp_path / "file"))
