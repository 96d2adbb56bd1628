"""The settings of a run and their defaults; quick to import, for `--help`."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

LOSSES = ("logistic", "squared")
SDCA_LOSSES = (*LOSSES, "hinge", "smooth_hinge", "squared_hinge", "poisson")
CLASSIFICATION = ("logistic", "hinge", "smooth_hinge", "squared_hinge")
#: Values of --schedule besides the library's schedules.
AUTO, CONSTANT = "auto", "constant"
SOLVERS = ("optimizer", "sdca")
#: The default number of blocks on a cluster, which must not depend on its workers.
BLOCKS = 8
#: Whether features count from 0; "auto": if index 0 occurs.
Base: TypeAlias = bool | Literal["auto"]
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_FORMATS = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".pq": "parquet"}


@dataclass(frozen=True)
class ReadOptions:
    """How files are read.

    Attributes
    ----------
    format : str
        "libsvm", "csv", "parquet", or "auto": by the suffix of each file.
    zero_based : bool or "auto"
        Whether LIBSVM files count features from 0. "auto": unless index 0 occurs, from 1.
    label, weight : str or None
        The columns of a table with the labels and the weights of rows.
    on_bad_line : {"error", "skip"}
    text_labels : bool
        Whether labels of a table may be text.
    """

    format: str = "auto"
    zero_based: Base = "auto"
    label: str | None = None
    weight: str | None = None
    on_bad_line: Literal["error", "skip"] = "error"
    text_labels: bool = True

    def format_of(self, path: str) -> str:
        """Return the format of a file."""
        stem, suffix = os.path.splitext(path.lower())
        if suffix in _COMPRESSED:
            suffix = os.path.splitext(stem)[1]
        return _FORMATS.get(suffix, "libsvm") if self.format == "auto" else self.format


@dataclass(frozen=True)
class Settings:
    """What determines the weights, together with the data.

    Threads are absent because results do not depend on their number.

    Attributes
    ----------
    learning_rate : float or None
        None if the schedule has its own rates.
    hyperparameters, schedule_arguments, warmup_arguments : dict
        The given arguments of constructors, by name; others have their defaults.
    schedule : str
    holdout : int or None
        One row of so many is for validation.
    patience : int or None
        After so many epochs without a smaller validation loss training ends.
    """

    optimizer: str = "adamax"
    loss: str = "logistic"
    l2: float = 0.0
    learning_rate: float | None = None
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    schedule: str = AUTO
    schedule_arguments: dict[str, Any] = field(default_factory=dict)
    warmup_arguments: dict[str, Any] = field(default_factory=dict)
    batch_size: int = 256
    epochs: int = 10
    seed: int = 0
    holdout: int | None = None
    patience: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the settings for the model file, which has `holdout` and `patience` if used."""
        facts = dataclasses.asdict(self)
        optional = ("holdout", "patience")
        return {k: v for k, v in facts.items() if k not in optional or v is not None}


@dataclass(frozen=True)
class SdcaSettings:
    """The same for `--solver sdca`. Penalties are for the mean loss, l2 for half the squares.

    Attributes
    ----------
    l2 : float or None
        None until the rows have been counted: then 1 over their number, liblinear's C = 1.
    bias : float or None
        The value of a feature of all rows whose weight is penalized, liblinear's -B; 0 or below:
        no bias. None: a bias that is not penalized.
    blocks : int or None
        The number of blocks of consecutive rows, here or on a cluster; None: no blocks. The blocks
        of a folder are its files.
    """

    solver: str = "sdca"
    loss: str = "logistic"
    l1: float = 0.0
    l2: float | None = None
    bias: float | None = None
    tol: float = 1e-4
    epochs: int = 1000
    seed: int = 0
    blocks: int | None = None

    @property
    def bias_feature(self) -> float | None:
        """The value of the constant feature that is added to all rows, or None."""
        return self.bias if self.bias is not None and self.bias > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """Return the settings for the model file."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class ClusterFlags:
    """The cluster for `--solver sdca`, which does not affect the model.

    Attributes
    ----------
    address : str or None
        The address of a Dask scheduler.
    workers : int or None
        Processes to start on this machine instead.
    """

    address: str | None = None
    workers: int | None = None


@dataclass(frozen=True)
class CheckpointFlags:
    """How a run is saved, which does not affect the model.

    Attributes
    ----------
    path : str
        A file; for a fit on a cluster a folder, or its URL.
    every : int or None
        The number of steps between saves, or of epochs on a cluster; None: do not save.
    resume : bool
        Whether to resume a saved run.
    wanted : bool
        Whether to save, if only on an interrupt, or resume.
    """

    path: str
    every: int | None = None
    resume: bool = False
    wanted: bool = False
