"""What the flags say: the settings of a run, their defaults, and which flags go together.

Quick to import, for `--help`.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfopt.cli.optimizers import (
    AUTO,
    OPTIMIZERS,
    SCHEDULES,
    collect,
    default_learning_rate,
    make_optimizer,
    takes_learning_rate,
)
from tfopt.cli.read_options import Base, ReadOptions
from tfopt.errors import InvalidArgumentError, InvalidTypeError

#: The losses of --solver optimizer, and of sdca; a test compares them with the library's.
LOSSES = ("logistic", "squared")
CLASSIFICATION = ("logistic", "hinge", "smooth_hinge", "squared_hinge")
INSENSITIVE = ("epsilon_insensitive", "squared_epsilon_insensitive")
REGRESSION = ("squared", "poisson", "gamma", "huber", "quantile", *INSENSITIVE)
SDCA_LOSSES = (*CLASSIFICATION, *REGRESSION)
#: The flags that are parameters of losses, and their losses.
LOSS_FLAGS = {"epsilon": ("huber", *INSENSITIVE), "quantile": ("quantile",)}
SOLVERS = ("optimizer", "sdca")
#: The default number of blocks on a cluster, which must not depend on its workers.
BLOCKS = 8
_DATASETS = Path(__file__).parent / "datasets"
A9A = str(_DATASETS / "a9a.bz2")
CHECKPOINTS = (".npz", ".safetensors")
PICTURES = (".png", ".svg", ".pdf")
#: The endings of model files; a name may also have none.
MODELS = (".npz", ".json", ".onnx")
#: What one solver alone takes.
_ONLY = {
    "optimizer": (
        *("optimizer", "set", "learning_rate", "schedule", "schedule_set", "warmup_steps"),
        *("warmup_initial_learning_rate", "batch_size", "holdout", "valid", "patience"),
        "chunk_size",
    ),
    "sdca": ("bias", "tol", "dask", "workers", "blocks", "epsilon", "quantile"),
}


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
    chunk_size : int or None
        The data are read again in each epoch, so many bytes at a time; None: they are in memory.
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
    chunk_size: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the settings for the model file, which has the last three if they are used."""
        optional = ("holdout", "patience", "chunk_size")
        facts = dataclasses.asdict(self)
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
    epsilon: float | None = None
    quantile: float | None = None

    @property
    def bias_feature(self) -> float | None:
        """The value of the constant feature that is added to all rows, or None."""
        return self.bias if self.bias is not None and self.bias > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """Return the settings for the model file, which has parameters of the loss if given."""
        facts = dataclasses.asdict(self)
        return {k: v for k, v in facts.items() if k not in LOSS_FLAGS or v is not None}


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
    quiet : bool
        Whether not to say that there is no saved run.
    """

    path: str
    every: int | None = None
    resume: bool = False
    wanted: bool = False
    quiet: bool = False


def given_parameters(arguments: Any) -> dict[str, float]:
    """Return the parameters of the loss that were given."""
    given = {name: getattr(arguments, name) for name in LOSS_FLAGS}
    return {name: value for name, value in given.items() if value is not None}


# ---- which flags go together


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _finish_train(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Set defaults that depend on other flags, and refuse combinations that do not go together."""
    _check_model(parser, "--model", arguments.model)
    for solver, names in _ONLY.items():
        given = [name for name in names if getattr(arguments, name) is not None]
        if given and arguments.solver != solver:
            parser.error(f"{_option(given[0])} works with --solver {solver} alone")
    if arguments.plot and Path(arguments.plot).suffix.lower() not in PICTURES:
        parser.error(f"--plot needs a file name that ends in one of {', '.join(PICTURES)}")
    arguments.on_cluster = arguments.dask is not None or arguments.workers is not None
    arguments.checkpoints = _checkpoint_flags(parser, arguments)
    if [arguments.data, arguments.test, arguments.valid].count("-") > 1:
        parser.error("DATA, --test and --valid cannot both be standard input")
    if arguments.test is None and arguments.data == A9A:
        arguments.test = str(_DATASETS / "a9a.t.bz2")
    _finish_reading(parser, arguments)
    if arguments.solver == "sdca":
        arguments.settings = _sdca_settings(parser, arguments)
    else:
        try:
            arguments.settings = _steps_settings(parser, arguments)
        except (InvalidArgumentError, InvalidTypeError) as error:
            parser.error(str(error))


def _check_model(parser: argparse.ArgumentParser, flag: str, path: str) -> None:
    """Refuse the name of a model file whose ending says nothing, before any work."""
    if os.path.splitext(path.lower())[1] not in ("", *MODELS):
        parser.error(f"{flag} needs a file name that ends in one of {', '.join(MODELS)}")


def _finish_cv(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    if arguments.model:
        _check_model(parser, "--model", arguments.model)
    _finish_reading(parser, arguments)


def _finish_convert(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    _check_model(parser, "OUT", arguments.output)


def _finish_reading(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    bases: dict[str, Base] = {"auto": "auto", "yes": True, "no": False}
    options = ReadOptions(
        format=arguments.format,
        zero_based=bases[getattr(arguments, "zero_based", "auto")],
        label=arguments.label,
        weight=getattr(arguments, "weight", None),
        on_bad_line=arguments.on_bad_line,
        has_classes=getattr(arguments, "loss", "logistic") in CLASSIFICATION,
    )
    for flag, losses in LOSS_FLAGS.items():
        if getattr(arguments, flag, None) is not None and arguments.loss not in losses:
            parser.error(f"{_option(flag)} is for --loss {' or '.join(losses)}")
    is_table = options.format_of(arguments.data) != "libsvm"
    for flag, applies in (("label", is_table), ("weight", is_table), ("zero_based", not is_table)):
        if not applies and getattr(arguments, flag, None) not in (None, "auto"):
            kind = "tables (.csv, .tsv, .parquet, or --format)" if not is_table else "LIBSVM files"
            parser.error(f"{_option(flag)} is for {kind}")
    if options.label is not None and options.label == options.weight:
        parser.error("--label and --weight cannot be one column")
    arguments.reading = options


def _checkpoint_flags(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace
) -> CheckpointFlags:
    on_cluster = arguments.on_cluster
    ending = "" if on_cluster else ".npz"
    path = arguments.checkpoint or f"{arguments.model.removesuffix('.npz')}.checkpoint{ending}"
    every, resume = arguments.checkpoint_every, arguments.resume
    wanted = every is not None or resume or arguments.checkpoint is not None
    flags = CheckpointFlags(path, every, resume, wanted, arguments.quiet)
    if not on_cluster and Path(path).suffix.lower() not in CHECKPOINTS:
        parser.error(f"--checkpoint needs a name that ends in {' or '.join(CHECKPOINTS)}")
    if wanted and arguments.solver == "sdca" and not on_cluster:
        given = [
            name for name in ("checkpoint_every", "resume", "checkpoint") if vars(arguments)[name]
        ]
        parser.error(
            f"{_option(given[0])} is for --solver optimizer; --solver sdca has it on a cluster"
        )
    if on_cluster and wanted and every is None and not resume:
        parser.error("--checkpoint on a cluster needs --checkpoint-every or --resume")
    if wanted and os.path.realpath(path) == os.path.realpath(arguments.model):
        parser.error("--checkpoint and --model cannot be one file")
    return flags


def _steps_settings(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> Settings:
    """Return the settings of steps; refuse what the constructors or the first step would."""
    optimizer = arguments.optimizer or Settings.optimizer
    schedule = arguments.schedule or Settings.schedule
    given, schedule_given = arguments.set or [], arguments.schedule_set or []
    steps, start = arguments.warmup_steps, arguments.warmup_initial_learning_rate
    rate, holdout = arguments.learning_rate, arguments.holdout
    warmup_flag = "--warmup-initial-learning-rate" if steps is None else "--warmup-steps"
    has_own_rate = not takes_learning_rate(schedule)
    for is_refused, reason in [
        (
            arguments.loss not in LOSSES,
            f"--loss {arguments.loss} works with --solver sdca alone",
        ),
        (
            arguments.l1 is not None and optimizer != "ftrl",
            "--l1 works with --optimizer ftrl or --solver sdca alone",
        ),
        (
            schedule_given and schedule not in SCHEDULES,
            f"--schedule-set does not go with --schedule {schedule}",
        ),
        (
            (steps or start) is not None and schedule == AUTO,
            f"{warmup_flag} needs a --schedule to follow it, constant for instance",
        ),
        (
            start is not None and steps is None,
            "--warmup-initial-learning-rate needs --warmup-steps",
        ),
        (
            rate is not None and has_own_rate,
            f"--learning-rate does not go with {schedule}, which has its own",
        ),
        (
            arguments.patience is not None and holdout is None and arguments.valid is None,
            "--patience needs --holdout or --valid",
        ),
        (
            holdout is not None and arguments.valid is not None,
            "--holdout and --valid do not go together",
        ),
        (
            holdout is not None and arguments.chunk_size is not None,
            "--holdout and --chunk-size do not go together: name a file with --valid",
        ),
    ]:
        if is_refused:
            parser.error(reason)
    if arguments.l1 is not None:
        given = [*given, ("l1_regularization_strength", arguments.l1)]
    if rate is None and not has_own_rate:
        rate = default_learning_rate(optimizer, arguments.loss)
    warmup = {"warmup_steps": steps and float(steps), "initial_learning_rate": start}
    settings = Settings(
        optimizer=optimizer,
        loss=arguments.loss,
        l2=Settings.l2 if arguments.l2 is None else arguments.l2,
        learning_rate=rate,
        hyperparameters=collect(OPTIMIZERS[optimizer], given, "--set"),
        schedule=schedule,
        schedule_arguments=collect(SCHEDULES[schedule], schedule_given, "--schedule-set")
        if schedule in SCHEDULES
        else {},
        warmup_arguments={k: v for k, v in warmup.items() if v is not None},
        batch_size=arguments.batch_size or Settings.batch_size,
        epochs=arguments.epochs or Settings.epochs,
        seed=arguments.seed,
        holdout=arguments.holdout,
        patience=arguments.patience,
        chunk_size=arguments.chunk_size,
    )
    made = make_optimizer(settings)
    try:
        type(made).learning_rate.at(made, 0)
    except (InvalidArgumentError, InvalidTypeError) as error:
        parser.error(f"at the first step {error}")
    return settings


def _sdca_settings(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> SdcaSettings:
    if arguments.l2 == 0:
        parser.error("--solver sdca needs --l2 above 0")
    blocks = arguments.blocks
    return SdcaSettings(
        loss=arguments.loss,
        l1=SdcaSettings.l1 if arguments.l1 is None else arguments.l1,
        l2=arguments.l2,
        bias=arguments.bias,
        tol=SdcaSettings.tol if arguments.tol is None else arguments.tol,
        epochs=arguments.epochs or SdcaSettings.epochs,
        seed=arguments.seed,
        blocks=BLOCKS if blocks is None and arguments.on_cluster else blocks,
        epsilon=arguments.epsilon,
        quantile=arguments.quantile,
    )


FINISH = {
    "train": _finish_train,
    "cv": _finish_cv,
    "predict": _finish_reading,
    "convert": _finish_convert,
}
