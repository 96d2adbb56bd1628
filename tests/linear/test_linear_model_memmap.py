"""Rows in files that are larger than memory: the estimators read them where they are."""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import tfopt
from tfopt.linear_model import FTRLClassifier, SDCAClassifier, SDCARegressor

ROOM = 8  # MiB to compute in, of the 34 to 55 that the files have

#: Rows, features, and non-zeros of a row.
WIDE, NARROW = (8_000, 20_000, 600), (15_000, 300, 200)

MODELS: dict[str, tuple[Any, str, tuple[int, int, int]]] = {
    "logistic": (SDCAClassifier(max_iter=3), "float64", WIDE),
    "partitions": (SDCAClassifier("hinge", max_iter=3, num_loss_partitions=2), "float32", WIDE),
    "l1": (SDCARegressor(l1=1.0, solver="sdca", max_iter=3, fit_intercept=False), "float32", WIDE),
    "adaptive": (SDCAClassifier("smooth_hinge", max_iter=2, adaptive=True), "float64", WIDE),
    "newton": (SDCAClassifier(l2=1e-3, tol=1e-9, max_iter=3), "float64", NARROW),
    "stream": (FTRLClassifier(max_iter=1), "float32", WIDE),
}


def fit_within(room: int, folder: Path, model: Any, shape: Any, arrays: Any) -> None:
    """Fit a model to mapped files in so much memory, and write what it finds to another."""
    import resource  # which not every system has

    os.chdir(folder)
    warnings.simplefilter("ignore")
    X = sparse.csr_matrix(tuple(np.memmap(*a, "r") for a in arrays), shape=shape, copy=False)
    y = np.load("y.npy")
    tfopt.threads.set_num_threads(1)  # for others have stacks
    few = sparse.csr_matrix(np.eye(4))
    type(model)().fit(few, [0, 1, 0, 1]).predict(few)  # imports what else it needs
    used = int(re.search(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text())[1])
    limit = used * 2**10 + room * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))  # of all but what files back
    model.fit(X, y)
    Path("answers").write_bytes(model.coef_.tobytes() + model.predict(X).tobytes())


def write(folder: Path, dtype: str, n_rows: int, n_features: int, in_a_row: int) -> Any:
    """Write the arrays of a matrix to files of their names, and return the matrix."""
    random = np.random.default_rng(0)
    step = n_features // in_a_row
    first = random.integers(step, size=(n_rows, 1))
    arrays = {
        "data": random.standard_normal(n_rows * in_a_row).astype(dtype),
        "indices": (first + np.arange(0, in_a_row * step, step)).astype(np.int32).ravel(),
        "indptr": np.arange(0, n_rows * in_a_row + 1, in_a_row, dtype=np.int32),
    }
    for name, array in arrays.items():
        array.tofile(folder / name)
    return sparse.csr_matrix(tuple(arrays.values()), shape=(n_rows, n_features))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits memory but not mapped files")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_no_copy_of_the_files_is_made(tmp_path: Path, name: str) -> None:
    model, dtype, shape = MODELS[name]
    X = write(tmp_path, dtype, *shape)
    y = np.sign(X[:, :50] @ np.ones(50) + 0.1)
    np.save(tmp_path / "y.npy", y)
    assert X.data.nbytes + X.indices.nbytes > 4 * ROOM * 2**20
    arrays = [("data", dtype), ("indices", "int32"), ("indptr", "int32")]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tfopt.linear_model"])  # takes longer than to fit
    told = ROOM, tmp_path, model, X.shape, arrays
    process = context.Process(target=fit_within, args=told)
    process.start()
    process.join(60)
    assert process.exitcode == 0
    model.fit(X, y)
    answers = model.coef_.tobytes() + model.predict(X).tobytes()
    assert (tmp_path / "answers").read_bytes() == answers
