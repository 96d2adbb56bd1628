"""A federated server: each round is one step of an optimizer towards the mean of the clients.

Clients send a model and how many samples it has seen. Any optimizer of tfopt takes the step:
``SGD(1.0)`` replaces the model by the mean (FedAvg), ``SGD(1.0, momentum=0.9)`` is FedAvgM, and
`Adam`, `Yogi` and `Adagrad` are FedAdam, FedYogi and FedAdagrad.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

import tfopt
from tfopt import checkpoints

Arrays = dict[str, np.ndarray]


def split(state: Arrays) -> tuple[Arrays, Arrays]:
    """Return what has a mean, and whole numbers, which have none: torch's num_batches_tracked."""
    whole = {name for name, array in state.items() if array.dtype.kind in "iub"}
    return (
        {name: array for name, array in state.items() if name not in whole},
        {name: state[name] for name in state if name in whole},
    )


class Server:
    """The model of a federation.

    Parameters
    ----------
    state : dict of ndarray
        The model to begin with, which is copied.
    optimizer : tfopt.optimizers.Optimizer
    path : str, optional
        The file that has the last round. If it is there already, the server goes on from it, to
        the same bits as if it had never stopped.
    """

    def __init__(self, state: Arrays, optimizer: Any, path: str | None = None) -> None:
        self.model, self.counts = split({name: np.array(a) for name, a in state.items()})
        self.optimizer, self.path, self.round = optimizer, path, 0
        self._gradient = {name: np.empty_like(a) for name, a in self.model.items()}
        if path is not None and os.path.exists(path):
            saved = checkpoints.load(path)
            self.model, self.counts, self.round = (saved[k] for k in ("model", "counts", "round"))
            optimizer.load_state_dict(saved["optimizer"], self.model)

    @property
    def state(self) -> Arrays:
        """The model that the clients get next."""
        return {**self.model, **self.counts}

    def finish_round(self, replies: dict[str, tuple[int, Arrays]]) -> list[str]:
        """Take the step of a round; return the clients that were left out.

        Parameters
        ----------
        replies : dict of (int, dict of ndarray)
            How many samples a client has, and what became of the model there, by the client's name.

        Returns
        -------
        list of str
            Clients whose models have infinite or NaN elements. If all have, the round is an error,
            `tfopt.errors.NotFiniteError`, and the model stays as it was.
        """
        names = sorted(replies)  # whoever answers first, the round gives the same bits
        models, counts = zip(*(split(replies[name][1]) for name in names), strict=True)
        found = tfopt.weighted_mean(
            models, [replies[name][0] for name in names], base=self.model, out=self._gradient,
            nonfinite="skip",
        )  # fmt: skip
        self.optimizer.step(self.model, found.mean)
        kept = [c for c, bad in zip(counts, found.nonfinite, strict=True) if not bad]
        self.counts = {name: np.max([c[name] for c in kept], axis=0) for name in self.counts}
        self.round += 1
        if self.path is not None:
            run = {"model": self.model, "counts": self.counts, "round": self.round}
            checkpoints.save(self.path, {**run, "optimizer": self.optimizer.state_dict(self.model)})
        return [name for name, bad in zip(names, found.nonfinite, strict=True) if bad]
