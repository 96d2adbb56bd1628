"""Checkpoints: the speed of writing them, relative to a plain write of the same bytes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np

from .common import best_times, filled, public

ELEMENTS = 1 << 27


class Checkpoints:
    """Two arrays of 512 MB, written and synced."""

    params = (["npz", "safetensors"],)
    param_names = ("suffix",)
    unit = "share"
    timeout = 600

    def setup(self, suffix: str) -> None:
        self.save = public("checkpoints.save")
        self.folder = tempfile.TemporaryDirectory(dir=os.environ.get("TFOPT_BENCH_DISK"))
        self.tree = {name: filled(ELEMENTS, seed=k) for k, name in enumerate("mv")}

    def teardown(self, suffix: str) -> None:
        self.folder.cleanup()

    def track_share_of_plain_write(self, suffix: str) -> float:
        path = Path(self.folder.name)
        arrays = list(self.tree.values())
        plain, ours = best_times(
            lambda: _write(path / "plain", arrays),
            lambda: self.save(path / f"x.{suffix}", self.tree),
        )
        return plain / ours


def _write(path: Path, arrays: list[np.ndarray]) -> None:
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb", buffering=0) as file:
        for array in arrays:
            data = memoryview(array).cast("B")
            for start in range(0, len(data), 1 << 24):
                file.write(data[start : start + (1 << 24)])
        os.fsync(file.fileno())
    temporary.replace(path)
