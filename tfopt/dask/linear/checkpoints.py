"""Checkpoints of fits on a cluster."""

from __future__ import annotations

import copy
import secrets
from typing import Any

import numpy as np

from tfopt.dask.folder import MANIFEST, Folder
from tfopt.errors import CheckpointError
from tfopt.linear_model._blocks.ascent import BlockVisits
from tfopt.linear_model._blocks.blocks import BlockState
from tfopt.linear_model._fit.fit import Minimization
from tfopt.linear_model.ftrl_stopping import Improvement
from tfopt.linear_model.parameters import Parameters

__all__ = ["BlockFitCheckpoints", "StreamFitCheckpoints", "saved_seed"]

#: The number of the files' layout.
LAYOUT = 4


class BlockFitCheckpoints:
    """The checkpoints of a fit to blocks, in a folder or what fsspec makes look like one.

    Each worker writes its blocks, under new names for each checkpoint; then the client replaces the
    manifest, which lists them. So an interrupted save leaves the last checkpoint intact.

    Parameters
    ----------
    path : str or None
        None: no checkpoints are saved.
    every : int
        Iterations from one checkpoint to the next.
    resume : str or None
        The folder of a checkpoint to resume from.
    options : Parameters
    """

    def __init__(self, path: str | None, every: int, resume: str | None, options: Parameters):
        self.path, self.every, self.resume, self.options = path, every, resume, options
        self.identity: dict[str, Any] = {}
        self.reached = 0

    def start(
        self, minimization: Minimization, visits: BlockVisits, totals: list[list[float]]
    ) -> None:
        """Resume from a checkpoint, if asked to."""
        self._minimization, self._visits = minimization, visits
        executor, first = visits.design.executor, visits.ascents[0]
        self.identity |= {
            "layout": LAYOUT,
            "seed": self.options.seed,
            "blocks": executor.n_blocks,
            "problems": len(visits.ascents),
            "label_totals": totals,
            "features": first.v.size,
            "curvature": first.bias_curvature,
        }
        if self.resume is None:
            return
        manifest = Folder(self.resume).manifest(self.identity)
        minimization.restore(manifest["minimization"])
        visits.restore(manifest["ascents"])
        executor.map_reduce(restore, (self.resume, manifest["set"]))
        self.reached = max(self.reached, minimization.n_iter)

    def after_iteration(self, number: int) -> None:
        """Save a checkpoint after an iteration, if it is time."""
        self.reached = max(self.reached, number)
        if self.path is None or number % self.every:
            return
        # unique: the last checkpoint stays intact until the manifest lists this one
        folder, name = Folder(self.path), f"epoch-{number:06d}-{secrets.token_hex(4)}"
        folder.make()
        design = self._visits.design
        design.round(save, (self.path, name), range(len(self._visits.ascents)))
        manifest = {
            "about": self.identity,
            "set": name,
            "minimization": self._minimization.state(),
            "ascents": self._visits.state(),
        }
        folder.save(MANIFEST, manifest)
        folder.keep_only({_name(name, k) for k in range(design.executor.n_blocks)}, "epoch-")
        self.resume = self.path


def saved_seed(path: str) -> int:
    """Return the seed of the fit that saved a checkpoint.

    Raises
    ------
    CheckpointError
        If there is none.
    """
    try:
        return int(Folder(path).load(MANIFEST)["about"]["seed"])
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: is not a checkpoint of this kind of fit") from error


def save(block: BlockState, request: tuple[str, str]) -> tuple[BlockState, None]:
    """Write the current state of a block."""
    path, name = request
    tree = [
        {"a": state.a, "best": state.best, "interior": state.interior} for state in block.states
    ]
    Folder(path).save(_name(name, block.number), {"lanes": tree})
    return block, None


def restore(block: BlockState, request: tuple[str, str]) -> tuple[BlockState, None]:
    """Read the state of a block."""
    path, name = request
    saved = Folder(path).load(_name(name, block.number))["lanes"]
    states = {}
    for k, (state, saved_state) in enumerate(zip(block.states, saved, strict=True)):
        if saved_state["a"].shape != state.a.shape:
            raise CheckpointError(
                f"{path}: block {block.number} had {saved_state['a'].size} rows, now {state.a.size}"
            )
        states[k] = state._replace(
            a=saved_state["a"],
            best=saved_state["best"],
            certified=saved_state["best"],
            interior=saved_state.get("interior", state.interior),
        )
    return block.with_states(states), None


def _name(name: str, number: int) -> str:
    return f"{name}.block-{number:06d}.npz"


class StreamFitCheckpoints:
    """The checkpoints of a model that learns from block after block.

    Parameters
    ----------
    path : str or None
        None: no checkpoints are saved.
    every : int
        Epochs from one checkpoint to the next.
    resume : str or None
        The folder of a checkpoint to resume from.
    identity : dict
        Options and data that a resumed fit must have in common with the saved one.
    """

    def __init__(self, path: str | None, every: int, resume: str | None, identity: dict[str, Any]):
        self.path, self.every, self.resume, self.identity = path, every, resume, identity

    def start(
        self,
        model: Any,
        random: np.random.RandomState,
        classes: np.ndarray | None,
        improvement: Improvement | None,
    ) -> tuple[int, Any]:
        """Return the number of finished epochs, and the model and generator after them.

        Parameters
        ----------
        model : FTRLEstimator
            Not fitted, or where a warm start begins.
        random : RandomState
        classes : ndarray or None
            Those of all blocks; a checkpoint does not store their dtype.
        improvement : Improvement or None
            What ends the epochs; it goes on, too.
        """
        if self.resume is None:
            return 0, (model, random)
        manifest = Folder(self.resume).manifest(self.identity)
        vars(model).update(manifest["model"])
        if classes is not None:
            model.classes_ = classes
        if manifest["names"] is not None:
            model.feature_names_in_ = np.array(manifest["names"], object)
        if improvement is not None:
            improvement.least, improvement.without = manifest["improvement"]
        random = copy.deepcopy(random)  # it may be shared
        random.set_state(manifest["random"])
        return manifest["epoch"], (model, random)

    def after_epoch(
        self,
        number: int,
        model: Any,
        random: np.random.RandomState,
        improvement: Improvement | None,
    ) -> None:
        """Save a checkpoint after an epoch, if it is time."""
        if self.path is None or number % self.every:
            return
        apart = {*model.get_params(), "classes_", "feature_names_in_"}
        names = getattr(model, "feature_names_in_", None)
        folder = Folder(self.path)
        folder.make()
        folder.save(
            MANIFEST,
            {
                "about": self.identity,
                "epoch": number,
                "model": {name: of for name, of in vars(model).items() if name not in apart},
                "names": None if names is None else names.tolist(),
                "improvement": improvement and [improvement.least, improvement.without],
                "random": random.get_state(legacy=False),
            },
        )
