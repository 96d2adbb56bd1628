"""Checkpoints of a fit on a cluster: each worker writes its blocks, then the client says so."""

from __future__ import annotations

import dataclasses
import secrets
from typing import Any

from tfopt.dask.files import MANIFEST, Folder
from tfopt.errors import CheckpointError
from tfopt.linear_model.block_solver import Climb
from tfopt.linear_model.blocks import Block, Order, settled
from tfopt.linear_model.executors import Executor
from tfopt.linear_model.search import Settings

__all__ = ["FolderJournal", "seed_of"]


class FolderJournal:
    """A folder, or what fsspec makes look like one, with the last checkpoint of a fit.

    Blocks are written under names of their own for each checkpoint; the manifest, which names
    them, last and at once. So a fit that ends in the middle of it leaves the checkpoint before.

    Parameters
    ----------
    path : str or None
        None keeps no journal.
    every : int
        Epochs from one checkpoint to the next.
    resume : str or None
        The folder of a checkpoint to go on from.
    settings : Settings
    """

    def __init__(self, path: str | None, every: int, resume: str | None, settings: Settings):
        self.path, self.every, self.resume, self.settings = path, every, resume, settings
        self.about: dict[str, Any] = {}
        self.reached = 0

    def begin(self, executor: Executor, climbs: list[Climb]) -> int:
        """Take a fit up where it was, and return the number of its next epoch."""
        self._executor, self._climbs = executor, climbs
        first = climbs[0]
        self.about |= {
            "seed": self.settings.seed,
            "blocks": executor.n_blocks,
            "problems": len(climbs),
            "features": first.v.size,
            "curvature": first.bias_curvature,
        }
        if self.resume is None:
            return 1
        manifest = Folder(self.resume).manifest(self.about)
        for one, saved in zip(climbs, manifest["problems"], strict=True):
            one.restore(saved)
        executor.ask(restore, (self.resume, manifest["set"]))
        epoch = int(manifest["epoch"])
        self.reached = max(self.reached, epoch)
        return epoch + 1

    def after(self, number: int) -> None:
        """Take note that an epoch is over."""
        self.reached = max(self.reached, number)
        if self.path is None or number % self.every:
            return
        # a name that no other fit gives: what is there stays whole until the manifest names this
        folder, name = Folder(self.path), f"epoch-{number:06d}-{secrets.token_hex(4)}"
        folder.make()
        everyone = range(self._executor.n_blocks)
        orders = {k: one.order(everyone) for k, one in enumerate(self._climbs)}
        self._executor.ask(save, (self.path, name, orders))
        manifest = {
            "about": self.about,
            "epoch": number,
            "set": name,
            "problems": [one.state() for one in self._climbs],
        }
        folder.save(MANIFEST, manifest)
        folder.keep_only({_name(name, k) for k in everyone}, "epoch-")
        self.resume = self.path


def seed_of(path: str) -> int:
    """Return the seed of the fit that a checkpoint is of.

    Raises
    ------
    CheckpointError
        If there is none.
    """
    try:
        return int(Folder(path).load(MANIFEST)["about"]["seed"])
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: is not a checkpoint of this kind of fit") from error


def save(block: Block, told: tuple[str, str, dict[int, Order]]) -> tuple[Block, None]:
    """Write a block, as it is once it knows what was kept."""
    path, name, orders = told
    block = block.with_lanes({k: settled(block, k, order) for k, order in orders.items()})
    tree = [{"a": lane.a, "best": lane.best} for lane in block.lanes]
    Folder(path).save(_name(name, block.number), {"lanes": tree})
    return block, None


def restore(block: Block, told: tuple[str, str]) -> tuple[Block, None]:
    """Read what was written of a block."""
    path, name = told
    saved = Folder(path).load(_name(name, block.number))["lanes"]
    lanes = {}
    for k, (lane, own) in enumerate(zip(block.lanes, saved, strict=True)):
        if own["a"].shape != lane.a.shape:
            raise CheckpointError(
                f"{path}: block {block.number} had {own['a'].size} rows, now {lane.a.size}"
            )
        lanes[k] = dataclasses.replace(lane, a=own["a"], best=own["best"], seen=own["best"])
    return block.with_lanes(lanes), None


def _name(name: str, number: int) -> str:
    return f"{name}.block-{number:06d}.npz"
