"""Another thread writes to a sparse matrix while it is used: an error or a result, never a crash.

SciPy checks nothing, and NumPy checks before it reads, so that neither may be given the index
arrays of a user. Each call is tried in a process of its own, on every format of SciPy that has such
arrays.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from tfopt import Bags, IndexedSlices, SparseRows, linear_model
from tfopt.io import hash_features
from tfopt.optimizers import SGD

#: How long each call is repeated while the other thread writes.
SECONDS = 0.25

GOOD = sparse.random(2000, 40, 0.1, "csr", random_state=0)
Y = (GOOD @ np.random.default_rng(0).standard_normal(40) > 0).astype(int)
Call = Callable[[Any], object]


def fit(kind: Any, **options: Any) -> Callable[[], Call]:
    return lambda: lambda X: kind(**options).fit(X, Y)


def predict(kind: Any, sparsify: bool = False, **options: Any) -> Callable[[], Call]:
    def prepared() -> Call:
        model = kind(**options).fit(GOOD, Y)
        return (model.sparsify() if sparsify else model).predict

    return prepared


def gradient() -> Call:
    weights, optimizer = np.ones(GOOD.shape), SGD(0.1)
    return lambda X: optimizer.apply_gradients([(X, weights)])


def rows() -> Call:
    return lambda X: (SparseRows(X).dot(np.ones(40)), SparseRows(X).gradient(np.ones(2000)))


def bags() -> Call:
    def pooled(X: Any) -> object:
        made = Bags(X.indices, X.indptr, 40, include_last_offset=True)
        return made.lookup(np.ones((40, 2))), made.gradient(np.ones((2000, 2)))

    return pooled


def slices() -> Call:
    return lambda X: np.asarray(IndexedSlices(np.ones(X.indices.size), X.indices, (40,)))


SOME: dict[str, Any] = {"max_iter": 20, "tol": 1e-2}
#: What prepares a call, by name: for any format, and for CSR alone.
CALLS: dict[str, Callable[[], Call]] = {
    "gradient": gradient,
    "fit with hashes": fit(linear_model.FTRLClassifier, n_hashes=16, max_iter=1),
    "fit by cd": fit(linear_model.SDCAClassifier, l1=2.0, solver="cd"),
    "fit of a sample": fit(linear_model.SDCAClassifier, solver="newton-cholesky"),
    "predict sparsified": predict(linear_model.SDCAClassifier, sparsify=True),
}
CSR_CALLS = {
    "SparseRows": rows,
    "Bags": bags,
    "hash_features": lambda: lambda X: hash_features(X, 16),
}
CSR_CALLS["slices"] = slices
for _name in linear_model.__all__:
    if hasattr(_kind := getattr(linear_model, _name), "fit"):
        _options = {"max_iter": 2} if _name.startswith("FTRL") else SOME
        CALLS[f"{_name}.fit"] = fit(_kind, **_options)
        CALLS[f"{_name}.predict"] = predict(_kind, **_options)


def race(prepare: Callable[[], Call], form: str) -> None:
    """Call a function, while another thread makes the indices of its argument wrong and right."""
    warnings.simplefilter("ignore")
    sys.setswitchinterval(1e-5)
    call, X = prepare(), GOOD.copy().asformat(form)
    names = ("row", "col") if form == "coo" else ("indptr", "indices")
    parts = [getattr(X, name) for name in names]
    kept = [part.copy() for part in parts]

    def change() -> None:
        for part, value in zip(parts, (2**30, 10**6), strict=True):
            part[...] = value
        for part, right in zip(parts, kept, strict=True):
            part[...] = right

    def loop(function: Callable[[], object]) -> None:
        while time.perf_counter() < end:
            with contextlib.suppress(ValueError, TypeError, IndexError):
                function()

    call(X)
    end = time.perf_counter() + SECONDS
    thread = threading.Thread(target=loop, args=(change,))
    thread.start()
    loop(lambda: call(X))
    thread.join()


@pytest.mark.parametrize(
    ("name", "form"),
    [
        *((name, "csr") for name in (*CALLS, *CSR_CALLS)),
        # which each of them converts in the same way first
        *((name, form) for name in [*CALLS][::4] for form in ("csc", "coo")),
    ],
)
def test_a_matrix_that_another_thread_writes_to(name: str, form: str) -> None:
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.alarm(60)
            race({**CALLS, **CSR_CALLS}[name], form)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status == 0, "a crash" if os.WIFSIGNALED(status) else "an error"
