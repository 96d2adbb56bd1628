"""Checkpoints of models that learn from one block after another on a cluster."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from tfopt.checkpoints.folder import MANIFEST, Folder
from tfopt.linear_model.ftrl_stopping import Improvement

__all__ = ["StreamFitCheckpoints"]


class StreamFitCheckpoints:
    """The checkpoints of a model that learns from one block after another.

    Parameters
    ----------
    path : str or None
        None: no checkpoints are saved.
    every : int
        Epochs from one checkpoint to the next.
    resume : str or None
        The folder of a checkpoint to resume from.
    identity : dict
        Options and data that a resumed fit must share with the saved one.
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
            Not fitted, or the state from which a warm start begins.
        random : RandomState
        classes : ndarray or None
            Those of all blocks; a checkpoint does not store their dtype.
        improvement : Improvement or None
            The rule that ends the epochs; it is resumed, too.
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
