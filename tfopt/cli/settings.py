"""The settings of a fit from its options, and which of them a resumed fit must share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tfopt.cli.files import CommandError
from tfopt.cli.options import LOSS_OPTIONS

__all__ = ["CheckpointFlags", "Settings", "check_origin", "run_origin"]


class Settings(SimpleNamespace):
    """The settings that determine the weights, together with the data.

    Each is an attribute with the name of its option. The number of threads is none of them, since
    results do not depend on it. Penalties are added to the mean loss, l2 with half the squares; l2
    is None until the rows are counted, then 1 / rows, which is liblinear's C = 1.
    """

    #: Of solvers that fit no blocks, and of data that are not hashed; of losses of numbers; of
    #: weights that may be negative.
    blocks: int | str | None = None
    hash: int | None = None
    class_weight: str | None = None
    positive: bool = False

    @property
    def bias_feature(self) -> float | None:
        """The value of the constant feature that is added to all rows, or None."""
        return self.bias if self.bias is not None and self.bias > 0 else None

    @property
    def loss_options(self) -> dict[str, Any]:
        """The parameters of the loss that were given."""
        return {name: value for name, value in vars(self).items() if name in LOSS_OPTIONS}

    def replaced(self, **changes: Any) -> Settings:
        """Return the settings with some others."""
        return Settings(**{**vars(self), **changes})

    def as_dict(self) -> dict[str, Any]:
        """Return the settings for the model file."""
        return dict(vars(self))


@dataclass(frozen=True)
class CheckpointFlags:
    """How a run is saved, which does not affect the model.

    Attributes
    ----------
    path : str
        A file; on a cluster a folder, or its URL.
    every : int or None
        The number of blocks between saves, or of epochs on a cluster; None: do not save.
    resume : bool
        Whether to resume a saved run.
    wanted : bool
        Whether to resume, or to save at least on an interrupt.
    quiet : bool
        Whether to show no progress.
    """

    path: str
    every: int | None = None
    resume: bool = False
    wanted: bool = False
    quiet: bool = False


def run_origin(settings: Settings, fingerprints: dict[str, str]) -> dict[str, Any]:
    """Return the settings and data that a resumed run must share with the saved one."""
    return {"settings": json.loads(json.dumps(settings.as_dict())), "data": fingerprints}


def check_origin(name: str, saved: dict[str, Any], origin: dict[str, Any]) -> None:
    """Refuse a checkpoint of a run with other settings or data; `name` is for the message."""
    for key in {**saved["settings"], **origin["settings"]}:
        before, now = saved["settings"].get(key), origin["settings"].get(key)
        if before != now:
            raise CommandError(
                f"{name}: belongs to a run with other settings: {key} was {before} and is {now} now"
            )
    for part in ("train", "test"):
        if saved["data"].get(part) != origin["data"].get(part):
            raise CommandError(f"{name}: belongs to a run on other {part} data")
