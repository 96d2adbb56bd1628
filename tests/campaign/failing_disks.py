"""Saves whose system calls fail in turn leave the old file or the new one, and no others."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from campaign.check import Case, Check
from campaign.failing import Arms, build
from tfopt import checkpoints
from tfopt.linear_model import SDCAClassifier, load_model, save_model

CALLS = ("write", "pwrite", "fsync", "rename", "open", "ftruncate")
ERRORS = ("ENOSPC", "EIO", "EROFS", "EDQUOT", "EINTR")
KINDS = ("npz", "safetensors", "json")
#: More calls than a save makes.
MANY = 400


def _tree(version: int) -> dict[str, Any]:
    return {"version": version, "w": np.full(70_000, float(version))}


def _save(path: Path, version: int, model: SDCAClassifier) -> None:
    if path.suffix == ".json":
        model.coef_[0] = version
        save_model(path, model)
    else:
        checkpoints.save(path, _tree(version))


def _version(path: Path) -> int:
    if path.suffix == ".json":
        return int(load_model(path).coef_[0, 0])
    tree = checkpoints.load(path)
    assert (tree["w"] == tree["version"]).all()
    return int(tree["version"])


def _sweep(folder: Path, kind: str, call: str, number: int) -> int:
    """Let the first call fail, then the second, until none does; return how many did."""
    path, arms = folder / f"x.{kind}", Arms()
    model = SDCAClassifier().fit([[0.0], [1.0]], [0, 1])
    _save(path, 1, model)
    for at in range(MANY):
        before, others = path.read_bytes(), sorted(os.listdir(folder))
        error: Exception | None = None
        arms.arm(call, at, number)
        try:
            _save(path, 2 + at, model)
        except OSError as raised:
            error = raised
        failed = arms.disarm()
        if error is None:
            assert _version(path) == 2 + at  # it may have been tried again
        else:
            assert failed and error.errno == number, f"{call} {at}: {error!r}"
            assert path.read_bytes() == before or _version(path) == 2 + at, f"{call} {at}: torn"
        assert sorted(os.listdir(folder)) == others, f"{call} {at}: {os.listdir(folder)}"
        if not failed:
            return at
    raise AssertionError(f"more than {MANY} calls of {call}")


def _child(library: Path, kind: str, error: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "campaign.failing_disks", folder, kind, error],
            env={**os.environ, "LD_PRELOAD": str(library)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, f"{kind}, {error}: {done.stderr[-1500:]}"
    return int(done.stdout)


def _cases(seed: int) -> Iterator[Case]:
    folder = tempfile.TemporaryDirectory()
    library = build(Path(folder.name))
    if library is not None:
        for error in ERRORS:
            for kind in KINDS:
                yield partial(_child, library, kind, error)
    folder.cleanup()


CHECK = Check(_cases, "A save in which a write, sync, rename or open fails, for five reasons")

if __name__ == "__main__":
    counts = [_sweep(Path(sys.argv[1]), sys.argv[2], c, getattr(errno, sys.argv[3])) for c in CALLS]
    print(sum(counts))
