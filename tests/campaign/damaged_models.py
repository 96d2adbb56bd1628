"""Model files with bytes changed: refused by name, or the same predictions."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

from campaign.calls import one
from campaign.check import Case, Check
from tfopt.errors import InvalidArgumentError
from tfopt.linear_model import SDCAClassifier, load_model, save_model

X = np.random.default_rng(0).standard_normal((40, 3))


def _edited(path: Path, data: bytes, expected: bytes, key: tuple[int, ...]) -> int:
    random = np.random.default_rng(key)
    start = int(random.integers(0, len(data)))
    end = start + int(random.integers(1, 9))
    bit = bytearray(data[start:end])
    bit[0] ^= 1 << int(random.integers(8))
    new = one(random, (bytes(bit), random.bytes(end - start), b"", data[start:end] * 2, b"9" * 400))
    path.write_bytes(data[:start] + new + data[end:])
    try:
        model = load_model(path)
    except (InvalidArgumentError, OSError):
        return 1
    if path.suffix == ".npz":  # whose numbers have checksums
        assert model.decision_function(X).tobytes() == expected, f"{start}:{end} {new!r}"
    else:  # what is read may be another model, of other features, too
        model.decision_function(np.zeros((1, model.n_features_in_)))
    return 1


def _cases(seed: int) -> Iterator[Case]:
    folder = tempfile.TemporaryDirectory()
    model = SDCAClassifier().fit(X, X[:, 0] > 0)
    expected = model.decision_function(X).tobytes()
    files = {}
    for suffix in ("npz", "json"):
        path = Path(folder.name, f"model.{suffix}")
        save_model(path, model)
        files[path] = path.read_bytes()
    for number in count():
        for path, data in files.items():
            yield partial(_edited, path, data, expected, (seed, number))


CHECK = Check(_cases, "A model file with changed bytes: is refused, or gives the same answers")
