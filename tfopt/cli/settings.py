"""What the flags say: the settings of a run, their defaults, and which flags go together.

Quick to import, for `--help`.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfopt.cli.read_options import Base, ReadOptions

#: The losses; a test compares them with the library's.
CLASSIFICATION = ("logistic", "hinge", "smooth_hinge", "squared_hinge")
INSENSITIVE = ("epsilon_insensitive", "squared_epsilon_insensitive")
REGRESSION = ("squared", "poisson", "gamma", "huber", "quantile", *INSENSITIVE)
SDCA_LOSSES = (*CLASSIFICATION, *REGRESSION)
#: The flags that are parameters of losses, and their losses.
LOSS_FLAGS = {"epsilon": ("huber", *INSENSITIVE), "quantile": ("quantile",)}
#: The default number of blocks on a cluster, which must not depend on its workers.
BLOCKS = 8
_DATASETS = Path(__file__).parent / "datasets"
A9A = str(_DATASETS / "a9a.bz2")
PICTURES = (".png", ".svg", ".pdf")
#: The endings of model files; a name may also have none.
MODELS = (".npz", ".json", ".onnx")


@dataclass(frozen=True)
class SdcaSettings:
    """What determines the weights, together with the data.

    Threads are absent because results do not depend on their number. Penalties are for the mean
    loss, l2 for half the squares.

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
        A folder, or its URL.
    every : int or None
        The number of epochs between saves; None: do not save.
    resume : bool
        Whether to resume a saved run.
    wanted : bool
        Whether to save or resume.
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
    if arguments.plot and Path(arguments.plot).suffix.lower() not in PICTURES:
        parser.error(f"--plot needs a file name that ends in one of {', '.join(PICTURES)}")
    arguments.on_cluster = arguments.dask is not None or arguments.workers is not None
    arguments.checkpoints = _checkpoint_flags(parser, arguments)
    if arguments.data == arguments.test == "-":
        parser.error("DATA and --test cannot both be standard input")
    if arguments.test is None and arguments.data == A9A:
        arguments.test = str(_DATASETS / "a9a.t.bz2")
    _finish_reading(parser, arguments)
    arguments.settings = _sdca_settings(arguments)


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
    every, resume = arguments.checkpoint_every, arguments.resume
    given = [name for name in ("checkpoint_every", "resume", "checkpoint") if vars(arguments)[name]]
    path = arguments.checkpoint or f"{arguments.model.removesuffix('.npz')}.checkpoint"
    if given and not arguments.on_cluster:
        parser.error(f"{_option(given[0])} is for a fit on a cluster: --dask, --workers")
    if given == ["checkpoint"]:
        parser.error("--checkpoint needs --checkpoint-every or --resume")
    if given and os.path.realpath(path) == os.path.realpath(arguments.model):
        parser.error("--checkpoint and --model cannot be one file")
    return CheckpointFlags(path, every, resume, bool(given), arguments.quiet)


def _sdca_settings(arguments: argparse.Namespace) -> SdcaSettings:
    blocks = arguments.blocks
    return SdcaSettings(
        loss=arguments.loss,
        l1=arguments.l1,
        l2=arguments.l2,
        bias=arguments.bias,
        tol=arguments.tol,
        epochs=arguments.epochs,
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
