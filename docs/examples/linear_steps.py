"""A linear model by mini-batches: rows of a sparse matrix, with any optimizer.

``python docs/examples/linear_steps.py adam`` trains on a9a, and prints the loss of its test rows.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.datasets import load_svmlight_file
from sklearn.metrics import log_loss

import tfopt.cli
from tfopt import SparseRows, Variable, optimizers

#: Optimizers, and first learning rates that suit a9a.
RATES = {
    "Adadelta": 3.0, "Adagrad": 0.2, "Adam": 0.01, "AdamW": 0.01, "Adamax": 0.05,
    "AdEMAMix": 0.003, "ADOPT": 0.03, "Ftrl": 0.1, "Lion": 0.003, "Nadam": 0.01,
    "RAdam": 0.02, "RMSprop": 0.005, "SGD": 1.0, "Signum": 0.003, "Yogi": 0.01,
}  # fmt: skip


def train(
    X: Any,
    y: np.ndarray,
    optimizer: Any,
    *,
    loss: str = "logistic",
    l2: float = 0.0,
    counts: np.ndarray | None = None,
    batch_size: int = 256,
    epochs: int = 10,
    seed: int = 0,
    is_lowered: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights and the bias that minimize the mean loss plus l2 / 2 times the squares.

    `X` is a CSR matrix, `y` has labels 0 and 1, or numbers for ``loss="squared"``; `counts` is how
    often each row counts. The learning rate is lowered to 0 over the epochs if `is_lowered`.
    """
    n_rows, n_features = X.shape
    w, b = np.zeros(n_features), np.zeros(1)
    weights, bias = Variable(w, name="weights"), Variable(b, name="bias")  # they share the memory
    rows, shuffle, rate = SparseRows(X), np.random.default_rng(seed), optimizer.learning_rate
    # The gradient of the penalty, l2·w, has no zeros to leave out. So that gradients stay sparse,
    # each entry of X carries its share of its feature's penalty: right on average over batches.
    share = l2 * n_rows / np.maximum(np.bincount(X.indices, minlength=n_features), 1)
    for epoch in range(epochs):
        if is_lowered:
            optimizer.learning_rate = rate * (1 - epoch / epochs)
        order = shuffle.permutation(n_rows)
        for start in range(0, n_rows, batch_size):
            chosen = order[start : start + batch_size]
            batch = rows.take(chosen)
            optimizer.catch_up(weights, batch.columns)  # with sparse="catch_up": perhaps behind
            margins = batch.dot(w) + b
            predictions = expit(margins) if loss == "logistic" else margins
            residuals = (predictions - y[chosen]) / chosen.size
            if counts is not None:
                residuals *= counts[chosen]
            # a feature of many rows is in the gradient as often; the optimizer sums these entries
            gradient = batch.gradient(residuals)
            if l2:
                gradient.values += share[batch.columns] * w[batch.columns] / chosen.size
            total = residuals.sum(keepdims=True)
            optimizer.apply_gradients([(gradient, weights), (total, bias)])
    optimizer.flush()
    return w, b


def a9a(part: str = "a9a") -> tuple[Any, np.ndarray]:
    """Return rows of a9a, or of its test split, "a9a.t", and whether persons earn much."""
    file = Path(tfopt.cli.__file__).parent / f"datasets/{part}.bz2"
    X, labels = load_svmlight_file(str(file), n_features=123)
    return X, (labels > 0).astype(float)


def loss_on_a9a(name: str) -> float:
    """Train an optimizer on a9a, and return the mean loss of its test rows."""
    optimizer = getattr(optimizers, name)(RATES[name])
    # FTRL lowers the rate of each weight by itself
    w, b = train(*a9a(), optimizer, is_lowered=name != "Ftrl")
    X, y = a9a("a9a.t")
    return float(log_loss(y, expit(X @ w + b)))


def main() -> None:
    """Train the optimizer of the first argument."""
    names = {name.lower(): name for name in RATES}
    name = names[(sys.argv[1:] or ["adam"])[0].lower()]
    print(f"{name}: test log-loss {loss_on_a9a(name):.4f}; the minimum is near 0.3241")


if __name__ == "__main__":
    main()
