"""The losses of training with slots and weights in fewer bytes, as a plot and a table.

``python docs/examples/fewer_bytes.py`` trains three small models with each storage, and writes
docs/fewer_bytes.json, docs/fewer_bytes.png and the table of docs/fewer_bytes.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from sklearn.datasets import load_digits, load_svmlight_file

import tfopt.cli
from tfopt.optimizers import Adam

DOCS = Path(__file__).parent.parent
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT32 = np.dtype(np.float32)
#: For each storage the dtype of the weights, and arguments of the optimizer.
STORAGES: dict[str, tuple[np.dtype[Any], dict[str, Any]]] = {
    "float32": (FLOAT32, {}),
    "8-bit slots": (FLOAT32, {"storage": "8bit"}),
    "4-bit slots": (FLOAT32, {"storage": "4bit"}),
    "bfloat16, to nearest": (BFLOAT16, {}),
    "bfloat16, stochastic": (BFLOAT16, {"stochastic_rounding": 0}),
}
LEARNING_RATE = 1e-4  # so small that many steps are lost when they are rounded to the nearest

Weights = dict[str, np.ndarray]
#: First weights; makes the batches of an epoch; the loss and its gradients; what is evaluated.
Task = tuple[Weights, Callable[[int], Iterator[Any]], Callable[..., Any], Any]


def perceptron(X: np.ndarray, Y: np.ndarray, hidden: int, batch: int) -> Task:
    """Return a network of one hidden layer that tells classes apart."""
    random = np.random.default_rng(0)
    sizes = X.shape[1], hidden, Y.shape[1]
    weights = {
        f"W{k}": random.normal(0, sizes[k] ** -0.5, sizes[k : k + 2]).astype(np.float32)
        for k in range(2)
    }
    weights["b"] = np.zeros(hidden, np.float32)

    def batches(epoch: int) -> Iterator[Any]:
        order = np.random.default_rng(epoch).permutation(len(X))
        for start in range(0, len(X) - batch + 1, batch):
            yield X[order[start : start + batch]], Y[order[start : start + batch]]

    def loss(weights: Weights, data: Any, gradients: bool = True) -> tuple[float, Weights]:
        x, y = data
        h = np.maximum(x @ weights["W0"] + weights["b"], 0)
        z = h @ weights["W1"]
        z -= z.max(axis=1, keepdims=True)
        p = np.exp(z)
        p /= p.sum(axis=1, keepdims=True)
        value = -float(np.log((p * y).sum(axis=1) + 1e-30).mean())
        if not gradients:
            return value, {}
        e = (p - y) / np.float32(len(x))
        dh = (e @ weights["W1"].T) * (h > 0)
        return value, {"W0": x.T @ dh, "W1": h.T @ e, "b": dh.sum(axis=0)}

    return weights, batches, loss, (X, Y)


def digits() -> Task:
    """Return handwritten digits, of 8 x 8 pixels."""
    X, labels = load_digits(return_X_y=True)
    return perceptron((X / 16).astype(np.float32), np.eye(10, dtype=np.float32)[labels], 128, 32)


def incomes() -> Task:
    """Return a9a: whether persons earn more than 50 000 dollars a year."""
    file = Path(tfopt.cli.__file__).parent / "datasets/a9a.bz2"
    X, labels = load_svmlight_file(str(file), n_features=123)
    classes = np.eye(2, dtype=np.float32)[(labels > 0).astype(int)]
    return perceptron(X.toarray().astype(np.float32), classes, 64, 128)


def skip_gram(words: int = 1000, width: int = 32, pairs: int = 40_000) -> Task:
    """Return a skip-gram model with negative samples, of words that belong to topics."""
    random = np.random.default_rng(0)
    topics = random.integers(0, 20, words)
    by_topic = [np.flatnonzero(topics == k) for k in range(20)]
    center = (random.zipf(1.3, pairs) - 1) % words
    context = np.array([random.choice(by_topic[topics[w]]) for w in center])
    negative = random.integers(0, words, (pairs, 4))
    weights = {
        name: random.normal(0, 0.1, (words, width)).astype(np.float32) for name in ("in", "out")
    }

    def batches(epoch: int) -> Iterator[Any]:
        order = np.random.default_rng(epoch).permutation(pairs)
        for rows in np.split(order, range(500, pairs, 500)):
            yield center[rows], context[rows], negative[rows]

    def loss(weights: Weights, data: Any, gradients: bool = True) -> tuple[float, Weights]:
        c, o, n = data
        others = np.concatenate([o[:, None], n], axis=1)
        v, u = weights["in"][c], weights["out"][others]
        sign = np.float32([1, -1, -1, -1, -1])
        z = np.einsum("nd,nkd->nk", v, u) * sign
        value = float(np.logaddexp(0, -z).sum(axis=1).mean())
        if not gradients:
            return value, {}
        e = -sign / (1 + np.exp(z)) / np.float32(len(c))
        into, out = np.zeros_like(weights["in"]), np.zeros_like(weights["out"])
        np.add.at(into, c, np.einsum("nk,nkd->nd", e, u))
        np.add.at(out, others, e[..., None] * v[:, None])
        return value, {"in": into, "out": out}

    return weights, batches, loss, (center, context, negative)


TASKS: dict[str, tuple[Callable[[], Task], int]] = {
    "digits": (digits, 100),
    "skip-gram": (skip_gram, 100),
    "a9a": (incomes, 30),
}


def train(task: Task, storage: str, epochs: int) -> list[float]:
    """Return the loss of all data before training and after each epoch."""
    first, batches, loss, data = task
    dtype, arguments = STORAGES[storage]
    weights = {name: w.astype(dtype) for name, w in first.items()}
    optimizer = Adam(LEARNING_RATE, **arguments)

    def wide() -> Weights:
        return {name: w.astype(np.float32) for name, w in weights.items()}

    losses = [loss(wide(), data, False)[0]]
    for epoch in range(epochs):
        for batch in batches(epoch):
            _, grads = loss(wide(), batch)
            optimizer.step(weights, {name: g.astype(dtype) for name, g in grads.items()})
        losses.append(loss(wide(), data, False)[0])
    return losses


def measured(epochs: int | None = None) -> dict[str, dict[str, list[float]]]:
    """Return the losses of each task and storage; of fewer epochs, if they are given."""
    results = {}
    for name, (make, usual) in TASKS.items():
        task = make()
        results[name] = {storage: train(task, storage, epochs or usual) for storage in STORAGES}
    return results


def table(results: dict[str, dict[str, list[float]]]) -> str:
    """Return the last losses, and those relative to float32's, as a table."""
    lines = [f"| | {' | '.join(STORAGES)} |", "| --- |" + " --- |" * len(STORAGES)]
    for name, losses in results.items():
        base = losses["float32"][-1]
        cells = [f"{losses[s][-1]:.4f} ({losses[s][-1] / base:.3f})" for s in STORAGES]
        lines.append(f"| {name}, {len(losses['float32']) - 1} epochs | {' | '.join(cells)} |")
    return "\n".join(lines)


def in_page(page: str, results: dict[str, dict[str, list[float]]]) -> str:
    """Return a page with the table between its markers."""
    between = f"<!-- losses -->\n{table(results)}\n<!-- end of losses -->"
    return re.sub(r"<!-- losses -->.*<!-- end of losses -->", between, page, flags=re.DOTALL)


def plot(results: dict[str, dict[str, list[float]]], path: Path) -> None:
    """Draw the losses of all tasks side by side."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(results), figsize=(9, 2.8), layout="constrained")
    styles = {"float32": "k-", "8-bit slots": "C0--", "4-bit slots": "C1--"}
    styles |= {"bfloat16, to nearest": "C3-", "bfloat16, stochastic": "C2-"}
    for axis, (name, losses) in zip(axes, results.items(), strict=True):
        for storage, values in losses.items():
            axis.plot(values, styles[storage], label=storage, linewidth=1.2)
        axis.set(title=name, xlabel="epoch", yscale="log")
    axes[0].set_ylabel("loss")
    axes[0].legend(fontsize=7)
    figure.savefig(path, dpi=80)


def main() -> None:
    """Train everything, and write the results."""
    results = measured()
    rounded = {
        name: {storage: [round(x, 6) for x in values] for storage, values in losses.items()}
        for name, losses in results.items()
    }
    (DOCS / "fewer_bytes.json").write_text(json.dumps(rounded, indent=1) + "\n")
    plot(rounded, DOCS / "fewer_bytes.png")
    page = DOCS / "fewer_bytes.md"
    page.write_text(in_page(page.read_text(), rounded))
    print(table(rounded))


if __name__ == "__main__":
    main()
