"""Processes killed while they save: the file is an old one or a new one, whole."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from time import sleep

import numpy as np

from campaign.check import Case, Check
from tfopt import checkpoints
from tfopt.linear_model import SDCAClassifier, load_model, save_model

X = np.random.default_rng(0).standard_normal((40, 3))


def _saving(path: Path, first: int) -> None:
    """Save one version after another until killed; the number tells all of a version's contents."""
    model = SDCAClassifier().fit(X, X[:, 0] > 0)
    for version in count(first):
        if path.suffix == ".json":
            model.coef_[0] = version
            save_model(path, model)
        else:
            array = np.full(5000 + version % 7, float(version))
            checkpoints.save(path, {"version": version, "w": array})


def _version(path: Path) -> int:
    """Return the version in a file, of which all must be there."""
    if path.suffix == ".json":
        first, *others = load_model(path).coef_[0].tolist()
        assert others == [first, first]
        return int(first)
    tree = checkpoints.load(path)
    version: int = tree["version"]
    assert tree["w"].shape == (5000 + version % 7,) and (tree["w"] == version).all()
    return version


def _killed(path: Path, key: tuple[int, ...]) -> int:
    random = np.random.default_rng(key)
    before = _version(path)
    child = os.fork()
    if child == 0:
        try:
            _saving(path, before + 1)
        finally:
            os._exit(1)
    sleep(float(10 ** random.uniform(-3.5, -1)))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    after = _version(path)
    assert after >= before
    if path.suffix != ".json" and random.random() < 0.1:
        # a save that is not killed clears up after those that were
        checkpoints.save(path, {"version": after, "w": np.full(5000 + after % 7, float(after))})
        left = [other.name for other in path.parent.glob(f"*{path.suffix}") if other != path]
        assert not left, left
    return 1


def _cases(seed: int) -> Iterator[Case]:
    folder = tempfile.TemporaryDirectory()
    paths = [Path(folder.name, f"x.{suffix}") for suffix in ("npz", "safetensors", "json")]
    model = SDCAClassifier().fit(X, X[:, 0] > 0)
    model.coef_[0] = 0
    save_model(paths[2], model)
    for path in paths[:2]:
        checkpoints.save(path, {"version": 0, "w": np.zeros(5000)})
    for number in count():
        for path in paths:
            yield partial(_killed, path, (seed, number))


CHECK = Check(_cases, "SIGKILL while checkpoints and models are saved again and again")
