"""Two towers: pooled rows of two large tables, trained so that what belongs together scores high.

A user is a bag of ids, such as what was bought before, and so is an item. The mean of a bag's rows
goes through a layer; the product of both towers is the score. In a batch the items of the other
users are the examples of what does not belong.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tfopt
from tfopt.optimizers import Adagrad, Adam
from tfopt.scipy.special import log_softmax

Bag = tuple[np.ndarray, np.ndarray]  # ids, and where each bag begins in them


class TwoTowers:
    """The tables and layers of both towers, and their optimizers.

    Parameters
    ----------
    rows : dict of int
        How many rows the tables "users" and "items" have.
    width : int
    optimizer : tfopt.optimizers.Optimizer, optional
        Of the tables. By default `Adagrad`, whose sums begin with 0, since the gradients of rows
        are small; `RowwiseAdagrad` has one number for each row.
    seed : int
    """

    def __init__(
        self, rows: dict[str, int], width: int = 64, optimizer: Any = None, seed: int = 0
    ) -> None:
        random = np.random.default_rng(seed)
        scale = np.float32(width**-0.5)
        self.tables = {
            name: scale * random.standard_normal((n, width), np.float32) for name, n in rows.items()
        }
        self.layers = {
            name: tfopt.Variable(scale * random.standard_normal((width, width), np.float32))
            for name in rows
        }
        adagrad = Adagrad(0.05, initial_accumulator_value=0.0, epsilon=1e-10)
        self.optimizer = adagrad if optimizer is None else optimizer
        self.dense = Adam(0.001)
        self._slopes = tfopt.function(self._traced)

    def _bags(self, name: str, bag: Bag) -> tfopt.Bags:
        return tfopt.Bags(*bag, len(self.tables[name]), "mean")

    def _tower(self, name: str, pooled: Any) -> Any:
        return np.tanh(pooled @ self.layers[name])

    def _traced(self, pooled: dict[str, Any]) -> Any:
        """Return the loss of a batch, and its gradients by what was pooled and by the layers."""
        with tfopt.GradientTape() as tape:
            tape.watch(pooled)
            users, items = (self._tower(name, pooled[name]) for name in ("users", "items"))
            scores = log_softmax(users @ items.T, axis=1)
            loss = -np.mean(np.diagonal(scores))
        return loss, *tape.gradient(loss, [pooled, self.layers])

    def step(self, batch: dict[str, Bag]) -> float:
        """Learn that each user belongs to the item in the same place; return the loss."""
        bags = {name: self._bags(name, bag) for name, bag in batch.items()}
        pooled = {name: bags[name].lookup(self.tables[name]) for name in bags}
        loss, of_pooled, of_layers = self._slopes(pooled)
        # a gradient of the table has the distinct rows of a batch alone
        of_rows = {name: bags[name].gradient(of_pooled[name]) for name in bags}
        self.optimizer.step(self.tables, of_rows)
        self.dense.step(self.layers, of_layers)
        return float(loss)

    def score(self, users: Bag, items: Bag) -> np.ndarray:
        """Return a score for each user and each item."""
        both = {"users": users, "items": items}
        towers = [
            self._tower(name, self._bags(name, bag).lookup(self.tables[name]))
            for name, bag in both.items()
        ]
        return np.asarray(towers[0] @ towers[1].T)
