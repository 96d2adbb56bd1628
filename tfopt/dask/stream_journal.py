"""Checkpoints of a model that goes from block to block: what it knows after an epoch."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from tfopt.dask.files import MANIFEST, Folder

__all__ = ["StreamJournal"]


class StreamJournal:
    """A folder, or what fsspec makes look like one, with the last checkpoint of a fit.

    Parameters
    ----------
    path : str or None
        None keeps no journal.
    every : int
        Epochs from one checkpoint to the next.
    resume : str or None
        The folder of a checkpoint to go on from.
    about : dict
        What a fit that is taken up must have been of.
    """

    def __init__(self, path: str | None, every: int, resume: str | None, about: dict[str, Any]):
        self.path, self.every, self.resume, self.about = path, every, resume, about

    def begin(
        self, model: Any, random: np.random.RandomState, classes: np.ndarray | None
    ) -> tuple[int, Any]:
        """Return how many epochs are over, and the model and the generator as they were then.

        Parameters
        ----------
        model : FTRLEstimator
            That has seen nothing.
        random : RandomState
        classes : ndarray or None
            Of all blocks; a checkpoint does not tell their dtype.
        """
        if self.resume is None:
            return 0, (model, random)
        manifest = Folder(self.resume).manifest(self.about)
        vars(model).update(manifest["model"])
        if classes is not None:
            model.classes_ = classes
        if manifest["names"] is not None:
            model.feature_names_in_ = np.array(manifest["names"], object)
        random = copy.deepcopy(random)  # it may be that of everybody
        random.set_state(manifest["random"])
        return manifest["epoch"], (model, random)

    def after(self, number: int, model: Any, random: np.random.RandomState) -> None:
        """Take note that an epoch is over."""
        if self.path is None or number % self.every:
            return
        apart = {*model.get_params(), "classes_", "feature_names_in_"}
        names = getattr(model, "feature_names_in_", None)
        folder = Folder(self.path)
        folder.make()
        folder.save(
            MANIFEST,
            {
                "about": self.about,
                "epoch": number,
                "model": {name: of for name, of in vars(model).items() if name not in apart},
                "names": None if names is None else names.tolist(),
                "random": random.get_state(legacy=False),
            },
        )
