"""Checkpoints of fits where fsspec reaches, when writing there fails."""

from __future__ import annotations

import itertools
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import fsspec
import numpy as np
import pytest
from common.dask_cluster import ROWS, blocks, data
from distributed import Client
from fsspec.implementations.memory import MemoryFileSystem
from sklearn.exceptions import ConvergenceWarning

from tfopt import linear_model
from tfopt.dask import FTRLClassifier, SDCAClassifier

#: With l1, so that what the blocks know is needed: steps of Newton's method would do without.
OPTIONS: dict[str, Any] = {"tol": 1e-9, "max_iter": 5, "l1": 1.0}
FOLDER = "memory://saved/here"


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client(processes=False, n_workers=1, dashboard_address=":0") as client:
        yield client


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    yield
    MemoryFileSystem.store.clear()


def fitted(model: Any, **options: Any) -> list[bytes]:
    """Fit a model, and return its bits."""
    rows = data("logistic")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        in_blocks = isinstance(model, (SDCAClassifier, FTRLClassifier))
        model.fit(*(blocks(*rows) if in_blocks else rows), **options)
    return [np.asarray(of).tobytes() for of in (model.coef_, model.intercept_)]


def fail(patches: pytest.MonkeyPatch, name: str, number: int) -> None:
    """Have one call of a method of the store write half of the file, and fail."""
    plain, numbers, lock = getattr(MemoryFileSystem, name), itertools.count(1), threading.Lock()

    def called(store: Any, source: str, target: str, **options: Any) -> None:
        with lock:
            fails = next(numbers) == number
        if fails and name == "put_file":
            store.pipe_file(target, b"half")
        if fails:
            raise OSError("the store is full")
        time.sleep(0.02)  # so that other blocks are being written when one fails
        plain(store, source, target, **options)

    patches.setattr(MemoryFileSystem, name, called)


@pytest.mark.parametrize("number", [1, len(ROWS), len(ROWS) + 1])
@pytest.mark.parametrize("name", ["put_file", "mv"])
def test_a_checkpoint_outlasts_another_fit_that_fails(
    client: Client, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    """While it writes a block, or the manifest, after as many epochs."""
    saved = {"checkpoint": FOLDER, "checkpoint_every": 2}
    fitted(SDCAClassifier(**OPTIONS | {"max_iter": 3}, **saved))
    with monkeypatch.context() as patches, pytest.raises(OSError, match="the store is full"):
        fail(patches, name, number)
        fitted(SDCAClassifier(**OPTIONS, l2=3.0, **saved))
    names = fsspec.filesystem("memory").ls("/saved/here", detail=False)
    assert all(name.endswith(".npz") for name in names)  # no half ones
    told: list[int] = []
    model = SDCAClassifier(**OPTIONS, callback=lambda record: told.append(record["iteration"]))
    whole = linear_model.SDCAClassifier(**OPTIONS, num_loss_partitions=ROWS)
    assert fitted(model, resume=FOLDER) == fitted(whole)
    assert told[0] == 3


@pytest.mark.parametrize("name", ["put_file", "mv"])
def test_a_streams_checkpoint_outlasts_another(
    client: Client, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    whole = fitted(FTRLClassifier(max_iter=3))
    fitted(FTRLClassifier(max_iter=2, checkpoint=FOLDER))
    with monkeypatch.context() as patches, pytest.raises(OSError, match="the store is full"):
        fail(patches, name, 1)
        fitted(FTRLClassifier(max_iter=1, l1=1.0, checkpoint=FOLDER))
    assert fitted(FTRLClassifier(max_iter=3), resume=FOLDER) == whole
    assert fsspec.filesystem("memory").ls("/saved/here", detail=False) == [
        "/saved/here/manifest.npz"
    ]
