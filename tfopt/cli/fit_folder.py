"""`tfopt train --dask --checkpoint-every`, `--resume`: where a fit on a cluster is, in a folder."""

from __future__ import annotations

import os
from typing import Any

from tfopt.cli.checkpoints import check_same, origin
from tfopt.cli.console import printable
from tfopt.cli.errors import CommandError
from tfopt.cli.rows import Rows
from tfopt.cli.settings import CheckpointFlags, SdcaSettings
from tfopt.dask.files import MANIFEST, Folder
from tfopt.errors import CheckpointError

__all__ = ["FitFolder", "remove"]

_NAME = "run.npz"


class FitFolder:
    """The checkpoints of an estimator, and beside them of which run they are.

    Parameters
    ----------
    flags : CheckpointFlags
    settings : SdcaSettings
    train : Rows

    Attributes
    ----------
    path : str
        The same for the workers, wherever they run.
    every : int or None
        Epochs from one checkpoint to the next.
    """

    def __init__(self, flags: CheckpointFlags, settings: SdcaSettings, train: Rows) -> None:
        self.path = _everywhere(flags.path)
        self.every = flags.every
        self._resume, self._folder = flags.resume, Folder(self.path)
        self._origin = origin(settings, {"train": train})

    def begin(self) -> str | None:
        """Return the folder to go on from, if that is wanted and there is a checkpoint in it.

        Otherwise, if this run is to be saved, the one that was goes.

        Raises
        ------
        CommandError
            If what is there is of a run with other settings or data, or of no run at all.
        """
        saved = self._saved() if self._folder.has(MANIFEST) else None
        if self._resume and saved:
            check_same(printable(self.path), saved, self._origin)
            return self.path
        if self.every is not None:
            self._folder.make()
            _clear(self._folder)
            self._folder.save(_NAME, self._origin)
        return None

    def _saved(self) -> dict[str, Any]:
        """Return what the run was that was saved here."""
        try:
            tree: dict[str, Any] = self._folder.load(_NAME)
        except CheckpointError as error:
            raise CommandError(f"{printable(self.path)}: is not a run of tfopt train") from error
        return tree


def remove(path: str) -> None:
    """Remove what was saved, if there is anything, and the folder, if nothing else is in it."""
    folder = Folder(_everywhere(path))
    if folder.has(_NAME):
        _clear(folder)
        folder.remove_if_empty()


def _everywhere(path: str) -> str:
    """Return a name of the folder that does not depend on where a process runs."""
    return path if "://" in path else os.path.abspath(path)


def _clear(folder: Folder) -> None:
    # the manifest first, for it must not name what is not there; and last what tells whose it is
    for prefix in (MANIFEST, "epoch-", _NAME):
        folder.keep_only(set(), prefix)
