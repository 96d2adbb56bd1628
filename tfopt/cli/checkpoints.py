"""`tfopt train --checkpoint-every`, `--resume`: where a training run is, in a file or a folder."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np

from tfopt import checkpoints
from tfopt.cli.files import CommandError
from tfopt.cli.settings import SdcaSettings, Settings
from tfopt.errors import InvalidArgumentError
from tfopt.optimizers import Optimizer

__all__ = ["Checkpoints", "RunState", "check_origin", "run_origin"]

_FORMAT = "tfopt training run"


@dataclasses.dataclass
class RunState:
    """Where a training run is: what the steps to come depend on, beside the optimizer.

    Attributes
    ----------
    weights, bias : ndarray of float64
        Updated in place.
    history : dict
        "train", perhaps "valid" and "test": the mean loss after each epoch.
    epoch : int
        Epochs that are done.
    row : int
        Rows of the next epoch that are done.
    shuffle : dict or None
        The state of the generator that draws the order of that epoch; None before the first.
    seconds : float
        Spent in training.
    best : dict or None
        With --patience: "epoch", "loss", "weights" and "bias" of the smallest validation loss.
    """

    weights: np.ndarray
    bias: np.ndarray
    history: dict[str, list[float]]
    epoch: int = 0
    row: int = 0
    shuffle: Any = None
    seconds: float = 0.0
    best: dict[str, Any] | None = None

    @property
    def variables(self) -> dict[str, np.ndarray]:
        """The variables by their names in a checkpoint."""
        return {"weights": self.weights, "bias": self.bias}


class Checkpoints:
    """A file that a run of steps is saved in, and taken up from.

    Parameters
    ----------
    path : str
    every : int or None
        After so many steps a run is saved; None: not at all.
    origin : dict
        See `run_origin`.
    """

    def __init__(self, path: str, every: int | None, origin: dict[str, Any]) -> None:
        self._path, self._every, self._origin = path, every, origin

    def after_step(self, run: RunState, optimizer: Optimizer) -> None:
        """Save the run, if it is time."""
        if self._every is not None and int(optimizer.iterations) % self._every == 0:
            self.save(run, optimizer)

    def save(self, run: RunState, optimizer: Optimizer) -> None:
        """Save the run, between two steps."""
        progress = dataclasses.asdict(run) | {"weights": run.weights, "bias": run.bias}
        state = {"run": progress, "optimizer": optimizer.state_dict(run.variables)}
        checkpoints.save(self._path, {"format": _FORMAT, **self._origin, **state})

    def resume(self, run: RunState, optimizer: Optimizer) -> bool:
        """Restore a saved run; return whether there is one.

        A CommandError says that it has other settings or data, or that the file is damaged.
        """
        try:
            tree = checkpoints.load(self._path)
        except FileNotFoundError:
            return False
        except InvalidArgumentError as error:
            raise CommandError(str(error)) from error
        if not isinstance(tree, dict) or tree.get("format") != _FORMAT:
            raise CommandError(f"{self._path}: is not a checkpoint of tfopt train")
        check_origin(self._path, tree, self._origin)
        saved = tree["run"]
        optimizer.load_state_dict(tree["optimizer"], run.variables)
        for key, array in run.variables.items():
            array[...] = saved[key]
        for key in ("history", "epoch", "row", "shuffle", "seconds"):
            setattr(run, key, saved[key])
        run.best = saved.get("best")
        return True


def run_origin(settings: Settings | SdcaSettings, fingerprints: dict[str, str]) -> dict[str, Any]:
    """Return what a resumed run must have in common with the saved one: settings and data."""
    return {"settings": json.loads(json.dumps(settings.as_dict())), "data": fingerprints}


def check_origin(name: str, saved: dict[str, Any], origin: dict[str, Any]) -> None:
    """Refuse a checkpoint, of this name, of a run with other settings or data."""
    for key in {**saved["settings"], **origin["settings"]}:
        before, now = saved["settings"].get(key), origin["settings"].get(key)
        if before != now:
            raise CommandError(
                f"{name}: belongs to a run with other settings: {key} was {before} and is {now} now"
            )
    for part in ("train", "valid", "test"):
        if saved["data"].get(part) != origin["data"].get(part):
            raise CommandError(f"{name}: belongs to a run on other {part} data")
