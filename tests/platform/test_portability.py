"""Other systems: no module needs what only POSIX has, nor does anything that NumPy suffices for."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfopt
import tfopt_ref
from tfopt import checkpoints
from tfopt.core import atomic_write
from tfopt.core.atomic_write import replacing

#: Modules of the standard library that Windows lacks.
POSIX = (
    *("fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"),
    *("_posixshmem", "_posixsubprocess", "_scproxy", "crypt", "nis", "ossaudiodev", "spwd"),
)
#: Of `os`, what Windows lacks and a package like this one might use.
OS_NAMES = (
    *("O_CLOEXEC", "O_DIRECT", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC", "WNOHANG"),
    *("chown", "chroot", "fchdir", "fchmod", "fchown", "fdatasync", "fork", "forkpty", "lchown"),
    *("getegid", "geteuid", "getgid", "getgroups", "getloadavg", "getpgid", "getuid", "killpg"),
    *("mkfifo", "mknod", "nice", "openpty", "posix_fadvise", "posix_fallocate", "posix_spawn"),
    *("pread", "preadv", "pwrite", "pwritev", "readv", "register_at_fork", "sched_getaffinity"),
    *("sched_setaffinity", "sched_yield", "sendfile", "setsid", "statvfs", "sync", "sysconf"),
    *("uname", "wait", "wait3", "wait4", "writev", "copy_file_range", "memfd_create"),
)


def unguarded(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that are imported, but for those in a `try` that survives their lack."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Try):
            caught = [ast.unparse(handler.type) for handler in node.handlers if handler.type]
            kept = [part for part in ast.iter_child_nodes(node) if part not in node.body]
            if not any("ImportError" in name for name in caught):
                kept += node.body
            for part in kept:
                yield from unguarded(ast.Module([part], []))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""
        else:
            yield from unguarded(node)


def test_unguarded_imports_are_found() -> None:
    source = """
import fcntl
def f():
    from pwd import getpwnam
try:
    import resource
    if True:
        import tty
except (OSError, ImportError):
    import grp
try:
    import termios
except OSError:
    pass
"""
    assert [*unguarded(ast.parse(source))] == ["fcntl", "pwd", "grp", "termios"]


@pytest.mark.parametrize("package", [tfopt, tfopt_ref])
def test_no_module_needs_posix(package: Any) -> None:
    paths = [*Path(package.__file__).parent.rglob("*.py")]
    assert paths
    for path in paths:
        imported = {name.split(".")[0] for name in unguarded(ast.parse(path.read_text("utf-8")))}
        assert not imported & {*POSIX}, path


PROGRAM = """
import asyncio, concurrent.futures.process, importlib, multiprocessing, os, pkgutil, signal, ssl
import shutil, subprocess, sys, tempfile
import numpy, numpy.testing

folder, posix, names = sys.argv[1], sys.argv[2].split(), sys.argv[3].split()
for name in posix:
    sys.modules[name] = None
for name in names:
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGUSR1"):
    delattr(signal, name)

class OnlyNumPy:
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if root not in {"numpy", "tfopt", "tfopt_ref", *sys.stdlib_module_names}:
            if "cython" not in root:
                raise ModuleNotFoundError(f"{name} is hidden", name=root)

sys.meta_path.insert(0, OnlyNumPy())
import tfopt, tfopt_ref
hidden, imported = set(), 0
for package in (tfopt, tfopt_ref):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
            imported += 1
        except ImportError as error:
            hidden.add(error.name)
print(imported, *sorted(filter(None, hidden)))

import numpy as np
from tfopt import checkpoints, cli, selftest
path = os.path.join(folder, "x.npz")
for k in range(2):
    checkpoints.save(path, {"w": np.full(10, k)})
assert checkpoints.load(path)["w"].tolist() == [1] * 10
assert os.listdir(folder) == ["x.npz"]
var = tfopt.Variable(np.ones(3))
optimizer = tfopt.optimizers.Adam(0.1)
optimizer.apply_gradients([(np.ones(3), var)])
assert selftest.digests(["adam", "clip_by_norm"]).items() <= selftest.recorded().items()
assert cli.main(["info", "--json"]) == 0
"""


#: What modules of extras import.
HIDDEN = {"dask", "distributed", "fsspec", "pyarrow", "scipy", "sklearn", "torch", "tqdm"}


def test_numpy_suffices_on_a_system_that_is_not_posix(tmp_path: Path) -> None:
    run = [sys.executable, "-c", PROGRAM, str(tmp_path), " ".join(POSIX), " ".join(OS_NAMES)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    count, *hidden = done.stdout.splitlines()[0].split()
    assert int(count) > 150
    assert {*hidden} <= HIDDEN


# ---- files on Windows


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no locks, no folders to sync, and no open file renamed or removed."""
    monkeypatch.setattr(atomic_write, "fcntl", None)
    for name in ("O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "fchmod", "fchown"):
        monkeypatch.delattr(os, name)
    rename, remove = os.replace, os.unlink

    def closed(path: str) -> None:
        targets = []
        for entry in os.listdir("/proc/self/fd"):
            if os.path.exists(f"/proc/self/fd/{entry}"):
                targets.append(os.readlink(f"/proc/self/fd/{entry}"))
        if os.path.realpath(path) in targets:
            raise PermissionError(13, "The process cannot access the file", path)

    def replacing_closed(old: str, new: str) -> None:
        closed(old)
        closed(new)
        rename(old, new)

    def removing_closed(path: str, **options: Any) -> None:
        closed(path)
        remove(path, **options)

    monkeypatch.setattr(os, "replace", replacing_closed)
    monkeypatch.setattr(os, "unlink", removing_closed)


needs_proc = pytest.mark.skipif(
    not os.path.exists("/proc/self/fd"), reason="nothing tells which files are open"
)


@needs_proc
def test_a_file_is_closed_before_it_is_renamed(tmp_path: Path, windows: None) -> None:
    path = tmp_path / "x.npz"
    for k in range(2):
        checkpoints.save(path, {"w": np.full(1000, k)})
        assert (checkpoints.load(path)["w"] == k).all()
    with pytest.raises(KeyError), replacing(path) as file:
        file.write(b"half")
        raise KeyError
    assert [*tmp_path.iterdir()] == [path]


@needs_proc
def test_files_left_behind_are_known_by_their_age(tmp_path: Path, windows: None) -> None:
    path = tmp_path / "x"
    with replacing(path) as file:
        file.write(b"slow")
        with replacing(path) as other:  # to which the first file looks as if it were left behind
            other.write(b"quick")
        (left,) = (each for each in tmp_path.iterdir() if each != path)
    assert path.read_bytes() == b"slow"
    left.write_bytes(b"half")
    with replacing(path):
        pass
    assert left.exists()
    os.utime(left, (0, 0))
    with replacing(path):
        pass
    assert [*tmp_path.iterdir()] == [path]
