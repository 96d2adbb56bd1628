"""The steps of `tfopt train` are those of a plain loop over slices of a shuffled matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import expit

from tfopt import IndexedSlices, Variable, optimizers
from tfopt.cli.checkpoints import RunState
from tfopt.cli.settings import Settings
from tfopt.cli.train import Examples, train_epochs

OPTIMIZERS: dict[str, Any] = {
    "sums": lambda: optimizers.Adamax(0.5),
    "one after another": lambda: optimizers.SGD(0.5),
    "all rows": lambda: optimizers.Adam(0.5),
    "late": lambda: optimizers.Adam(0.5, sparse="catch_up"),
    "clipped": lambda: optimizers.Adagrad(0.5, clipvalue=0.05),
    "clipped after": lambda: optimizers.Ftrl(0.5, clipnorm=0.1),
    "clipped before": lambda: optimizers.RMSprop(0.5, global_clipnorm=0.1, merge="before"),
    "decayed": lambda: optimizers.SGD(0.5, weight_decay=0.1),
}


def plain_loop(
    X: sparse.csr_matrix, y: np.ndarray, counts: np.ndarray, optimizer: Any, settings: Settings
) -> list[np.ndarray]:
    n, m = X.shape
    w, b = np.zeros(m), np.zeros(1)
    weights, bias = Variable(w, name="weights"), Variable(b, name="bias")
    share = settings.l2 * n / np.maximum(np.bincount(X.indices, minlength=m), 1)
    shuffle = np.random.default_rng(settings.seed)
    for _ in range(settings.epochs):
        order = shuffle.permutation(n)
        for start in range(0, n, settings.batch_size):
            chosen = order[start : start + settings.batch_size]
            size, values, columns = chosen.size, [], []
            optimizer.flush()
            residuals = np.empty(size)
            for k, i in enumerate(chosen):
                entries = slice(X.indptr[i], X.indptr[i + 1])
                margin = 0.0
                for x, column in zip(X.data[entries], X.indices[entries], strict=True):
                    margin += x * w[column]
                residuals[k] = margin + b[0]
            target = y[chosen]
            residuals = (expit(residuals) if settings.loss == "logistic" else residuals) - target
            residuals = residuals / size * counts[chosen]
            for k, i in enumerate(chosen):
                entries = slice(X.indptr[i], X.indptr[i + 1])
                for x, column in zip(X.data[entries], X.indices[entries], strict=True):
                    values.append(x * residuals[k] + share[column] * w[column] / size)
                    columns.append(column)
            slices = IndexedSlices(np.array(values, float), np.array(columns, np.int32))
            pairs = [(slices, weights), (residuals.sum(keepdims=True), bias)]
            optimizer.apply_gradients(pairs)
    optimizer.flush()
    return [w, b]


@pytest.mark.parametrize("name", OPTIMIZERS)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 12),
    m=st.integers(1, 8),
    batch_size=st.integers(1, 14),
    l2=st.sampled_from([0.0, 0.1]),
    loss=st.sampled_from(["logistic", "squared"]),
    is_weighted=st.booleans(),
)
def test_steps_are_those_of_a_plain_loop(
    name: str, seed: int, n: int, m: int, batch_size: int, l2: float, loss: str, is_weighted: bool
) -> None:
    random = np.random.default_rng(seed)
    X = sparse.random(n, m, 0.5, "csr", random_state=random, data_rvs=random.standard_normal)
    if X.nnz > 1:  # columns may come twice in a row
        X.indices[1] = X.indices[0]
    y = random.integers(0, 2, n).astype(float)
    counts = random.uniform(0.5, 2, n) if is_weighted else np.ones(n)
    settings = Settings(
        loss=loss, l2=l2, batch_size=batch_size, epochs=2, seed=seed, schedule="constant"
    )
    expected = plain_loop(X, y, counts, OPTIMIZERS[name](), settings)
    run = RunState(np.zeros(m), np.zeros(1), {})
    given_counts = counts if is_weighted else None
    examples = Examples((n,), m, lambda numbers: iter([(X, y, given_counts)]))
    for _ in train_epochs(examples, OPTIMIZERS[name](), settings, run, lambda rows: None):
        pass
    for found, known in zip([run.weights, run.bias], expected, strict=True):
        assert found.tobytes() == known.tobytes()
