"""Checkpoints of fits to blocks, for any executor."""

from __future__ import annotations

import numbers
import secrets
from typing import Any

from tfopt.checkpoints.folder import MANIFEST, Folder
from tfopt.errors import CheckpointError
from tfopt.linear_model._blocks.ascent import BlockVisits
from tfopt.linear_model._blocks.blocks import BlockState
from tfopt.linear_model._fit.fit import Minimization
from tfopt.linear_model.parameters import Parameters
from tfopt.linear_model.validation import check_count

__all__ = ["BlockFitCheckpoints", "checkpoints_of", "folder_of"]

#: The number of the files' layout.
LAYOUT = 4
#: The parameters that a resumed fit may change: they affect how and where the minimum is found, but
#: not the minimum. (The seed is compared separately.)
_FREE = {
    *("max_iter", "max_time", "tol", "random_state", "warm_start", "verbose", "callback"),
    *("checkpoint", "checkpoint_every", "n_jobs", "keep_duals"),
    *("solver", "adaptive", "num_loss_partitions"),  # these do not apply to blocks
}


class BlockFitCheckpoints:
    """The checkpoints of a fit to blocks, in a folder or a place that fsspec can open as one.

    For each checkpoint, the workers write their blocks under new names; then the client replaces
    the manifest that lists the names. So an interrupted save leaves the last checkpoint intact.

    Parameters
    ----------
    path : str or None
        None: no checkpoints are saved.
    every : int
        The number of iterations from one checkpoint to the next.
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
        """Resume from a checkpoint if `resume` is set."""
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
        """Save a checkpoint after an iteration if one is due."""
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


def checkpoints_of(
    estimator: Any, path: str | None, every: int, resume: str | None, options: Parameters
) -> tuple[BlockFitCheckpoints, Parameters]:
    """Return the checkpoints of a fit, and its parameters with the seed of a resumed checkpoint.

    Raises
    ------
    CheckpointError
        If there is no checkpoint to resume from.
    """
    if path is not None:
        check_count("checkpoint_every", every, 1)
    if resume is not None and not isinstance(estimator.random_state, numbers.Integral):
        options = options._replace(seed=_saved_seed(resume))
    checkpoints = BlockFitCheckpoints(path, every, resume, options)
    given = estimator.get_params(deep=False)
    checkpoints.identity = {
        name: _storable(value) for name, value in given.items() if name not in _FREE
    }
    return checkpoints, options


def _storable(value: Any) -> Any:
    """Return an option as checkpoints store it: class weights have the text of labels as keys."""
    if isinstance(value, dict):
        return sorted([str(label), float(factor)] for label, factor in value.items())
    return value


def folder_of(path: str | None, value: float) -> str | None:
    """Return the subfolder for a fit with one of several values of a parameter."""
    return None if path is None else f"{path}/{value:g}"


def _saved_seed(path: str) -> int:
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
