"""Model files with bytes changed: refused by name, or the same predictions."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from campaign.calls import one
from campaign.check import Case, Check
from tfopt.errors import InvalidArgumentError
from tfopt.linear_model import FTRLClassifier, SDCAClassifier, load_model, save_model

X = np.random.default_rng(0).standard_normal((40, 3))


#: Models, and the rows that they are asked about.
MODELS: dict[str, tuple[Any, Any]] = {
    "plain": (SDCAClassifier().fit(X, X[:, 0] > 0), X),
    "hashed": (
        FTRLClassifier(n_hashes=64).fit([{"a": "b", "x": x} for x in X[:, 0]], X[:, 0] > 0),
        [{"a": "b", "x": x} for x in X[:, 1]],
    ),
}


def _edited(path: Path, data: bytes, expected: bytes, key: tuple[int, ...]) -> int:
    rows = MODELS[path.stem][1]
    random = np.random.default_rng(key)
    start = int(random.integers(0, len(data)))
    end = start + int(random.integers(1, 9))
    bit = bytearray(data[start:end])
    bit[0] ^= 1 << int(random.integers(8))
    new = one(random, (bytes(bit), random.bytes(end - start), b"", data[start:end] * 2, b"9" * 400))
    path.write_bytes(data[:start] + new + data[end:])
    try:
        model: Any = load_model(path)
    except (InvalidArgumentError, OSError):
        return 1
    if path.suffix == ".npz":  # whose numbers have checksums
        assert model.decision_function(rows).tobytes() == expected, f"{start}:{end} {new!r}"
    else:  # what is read may be another model, of other features, too
        is_hashed = getattr(model, "n_hashes", None) is not None
        model.decision_function(rows if is_hashed else np.zeros((1, model.n_features_in_)))
    return 1


def _cases(seed: int) -> Iterator[Case]:
    folder = tempfile.TemporaryDirectory()
    files = {}
    for name, (model, rows) in MODELS.items():
        for suffix in ("npz", "json"):
            path = Path(folder.name, f"{name}.{suffix}")
            save_model(path, model)
            files[path] = path.read_bytes(), model.decision_function(rows).tobytes()
    for number in count():
        for path, (data, expected) in files.items():
            yield partial(_edited, path, data, expected, (seed, number))


CHECK = Check(_cases, "A model file with changed bytes: is refused, or gives the same answers")
