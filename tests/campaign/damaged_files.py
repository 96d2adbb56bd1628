"""Checkpoints with any bit flipped, cut at any length, or edited anywhere."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

from campaign.calls import one
from campaign.check import Case, Check
from tfopt import checkpoints
from tfopt.errors import CheckpointError
from tfopt.optimizers import Adam

SUFFIXES = ("npz", "safetensors")


def _saved(path: Path) -> bytes:
    """Save an optimizer's state, with a slot of 8-bit codes, and return the bytes of the file."""
    optimizer = Adam(0.5, storage={"m": "8bit"})
    variables = {"w": np.linspace(-1, 1, 4096, dtype=np.float32), "b": np.ones(3)}
    optimizer.step(variables, {name: np.ones_like(w) for name, w in variables.items()})
    small = {key: part for key, part in optimizer.state_dict(variables).items() if key != "slots"}
    checkpoints.save(path, {"state": small, "b": variables["b"], "text": "größe"})
    return path.read_bytes()


def _refused(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        loaded = checkpoints.load(path)
    except CheckpointError:
        return
    raise AssertionError(f"a damaged {path.suffix} file was loaded: {str(loaded)[:200]}")


def _flipped(path: Path, data: bytes, byte: int) -> int:
    for bit in range(8):
        changed = bytearray(data)
        changed[byte] ^= 1 << bit
        _refused(path, bytes(changed))
    return 8


def _edited(path: Path, data: bytes, key: tuple[int, ...]) -> int:
    """Overwrite, remove, double or exchange some bytes."""
    random = np.random.default_rng(key)
    for _ in range(20):
        start, stop = sorted(random.integers(0, len(data) + 1, 2).tolist())
        middle = data[start : min(stop, start + int(random.integers(1, 64)))]
        end = start + len(middle)
        new = one(
            random,
            (random.bytes(len(middle)), b"", middle * 2, bytes(len(middle)), middle[::-1]),
        )
        changed = data[:start] + new + data[end:]
        if changed != data:
            _refused(path, changed)
    return 20


def _cases(seed: int) -> Iterator[Case]:
    folder = tempfile.TemporaryDirectory()
    files = {Path(folder.name, f"x.{suffix}"): b"" for suffix in SUFFIXES}
    for path in files:
        files[path] = _saved(path)
    longest = max(map(len, files.values()))
    for place in range(longest):
        for path, data in files.items():
            if place < len(data):
                yield partial(_flipped, path, data, place)
                yield partial(_refused, path, data[:place])
    for number in count():
        for path, data in files.items():
            yield partial(_edited, path, data, (seed, number))


CHECK = Check(_cases, "A checkpoint with any bit flipped, cut at any length, or edited: is refused")
