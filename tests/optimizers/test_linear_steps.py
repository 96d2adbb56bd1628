"""The example of a linear model by mini-batches: its steps are those of a plain loop, and learn."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import expit

from tfopt import IndexedSlices, Variable, optimizers
from tfopt.optimizers.base.averaged import Averaged
from tfopt.optimizers.base.rule_optimizer import RuleOptimizer

pytest.importorskip("sklearn")
EXAMPLE = Path(__file__).parents[2] / "docs/examples/linear_steps.py"


def _example() -> Any:
    spec = importlib.util.spec_from_file_location("linear_steps", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


example = _example()
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
    X: sparse.csr_matrix,
    y: np.ndarray,
    optimizer: Any,
    *,
    loss: str,
    l2: float,
    counts: np.ndarray | None,
    batch_size: int,
    epochs: int,
    seed: int,
) -> list[np.ndarray]:
    n, m = X.shape
    w, b = np.zeros(m), np.zeros(1)
    weights, bias = Variable(w, name="weights"), Variable(b, name="bias")
    share = l2 * n / np.maximum(np.bincount(X.indices, minlength=m), 1)
    counts = np.ones(n) if counts is None else counts
    shuffle = np.random.default_rng(seed)
    for _ in range(epochs):
        order = shuffle.permutation(n)
        for start in range(0, n, batch_size):
            chosen = order[start : start + batch_size]
            size, values, columns = chosen.size, [], []
            optimizer.flush()
            residuals = np.empty(size)
            for k, i in enumerate(chosen):
                entries = slice(X.indptr[i], X.indptr[i + 1])
                margin = 0.0
                for x, column in zip(X.data[entries], X.indices[entries], strict=True):
                    margin += x * w[column]
                residuals[k] = margin + b[0]
            residuals = (expit(residuals) if loss == "logistic" else residuals) - y[chosen]
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
    counts = random.uniform(0.5, 2, n) if is_weighted else None
    settings = {"loss": loss, "l2": l2, "batch_size": batch_size, "epochs": 2, "seed": seed}
    found = example.train(X, y, OPTIMIZERS[name](), counts=counts, **settings)
    expected = plain_loop(X, y, OPTIMIZERS[name](), counts=counts, **settings)
    for ours, known in zip(found, expected, strict=True):
        assert ours.tobytes() == known.tobytes()


def test_it_has_a_rate_for_every_optimizer_of_elements() -> None:
    classes = filter(inspect.isclass, map(vars(optimizers).get, optimizers.__all__))
    rules = (cls for cls in classes if issubclass(cls, RuleOptimizer) and cls is not RuleOptimizer)
    names = {cls.__name__ for cls in rules if cls._by_elements and not issubclass(cls, Averaged)}
    assert {*example.RATES} == names


# The minimum has the log-loss 0.3241; a constant prediction 0.5467.
@pytest.mark.parametrize("name", example.RATES)
def test_every_optimizer_comes_near_the_minimum_of_a9a(name: str) -> None:
    # ADOPT's beta_2 remembers 10 000 steps, more than these epochs have
    assert example.loss_on_a9a(name) <= 0.3241 * (1.01 if name == "ADOPT" else 1.005)


@pytest.mark.parametrize("name", ["Adamax", "Ftrl", "SGD"])
def test_the_penalty_is_that_of_ridge_regression(name: str) -> None:
    random = np.random.default_rng(5)
    X = random.normal(size=(400, 3))
    y = X @ [1.0, -2.0, 0.5] + 3 + random.normal(scale=0.1, size=400)
    settings = {"loss": "squared", "l2": 0.5, "batch_size": 100, "epochs": 400}
    optimizer = getattr(optimizers, name)(0.2)
    w, _ = example.train(sparse.csr_matrix(X), y, optimizer, is_lowered=name != "Ftrl", **settings)
    centred = X - X.mean(0)
    ridge = np.linalg.solve(centred.T @ centred / 400 + 0.5 * np.eye(3), centred.T @ y / 400)
    np.testing.assert_allclose(w, ridge, atol=0.02)
