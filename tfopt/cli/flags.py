"""The flags of `tfopt train`, and those that several commands have."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

from tfopt.cli.converters import count, non_negative, number, positive, share
from tfopt.cli.settings import (
    A9A,
    BLOCKS,
    MODELS,
    PICTURES,
    SDCA_LOSSES,
    SdcaSettings,
)

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
AddCommand: TypeAlias = Callable[[Commands, str, str, str, str], argparse.ArgumentParser]

DATA_FORMAT = """\
Data are LIBSVM text, one row per line: label index:value index:value ...
Indices ascend within a row; comments (#), blank lines and qid are ignored. Names that end in .csv,
.tsv or .parquet are tables with named columns: --label says which one has the labels, all others
are features and must be numbers. Files may be compressed with gzip, bzip2, xz or Zstandard; - is
standard input. URLs are read with fsspec."""
DEFAULT = "default: %(default)s"


# ---- flags of several commands


def add_loss(command: argparse.ArgumentParser) -> None:
    """Add the loss and its parameters."""
    add = command.add_argument
    add("--loss", choices=SDCA_LOSSES, default=SdcaSettings.loss, help=DEFAULT)
    add(
        "--epsilon",
        metavar="X",
        type=non_negative,
        help="the distance from the label beyond which huber is linear (default: 1.35), or up to "
        "which epsilon_insensitive and its square are 0 (default: 0.1)",
    )
    add(
        "--quantile",
        metavar="Q",
        type=share,
        help="of --loss quantile, which part of the labels is to be below (default: 0.5)",
    )


def add_reading(parser: argparse.ArgumentParser, *, trains: bool = True) -> None:
    """Add the flags that say how data are read, to train on them or to predict them."""
    add = parser.add_argument_group("data").add_argument
    add(
        "--format",
        choices=("auto", "libsvm", "csv", "parquet"),
        default="auto",
        help=f"of the data files; auto: by their suffix, else libsvm ({DEFAULT})",
    )
    add("--label", metavar="COLUMN", help="the labels' column of a table (default: the model's)")
    add("--weight", metavar="COLUMN", help="the column of a table with weights (default: none)")
    if trains:
        add(
            "--zero-based",
            choices=("auto", "yes", "no"),
            default="auto",
            help="whether features of LIBSVM files are counted from 0; auto: only if index 0 "
            f"occurs in DATA. The answer holds for the test data and is kept in the model "
            f"({DEFAULT})",
        )
    add(
        "--on-bad-line",
        choices=("error", "skip"),
        default="error",
        help=f"whether a malformed line is an error, or left out and counted ({DEFAULT})",
    )


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Add the flags --seed and --threads."""
    parser.add_argument(
        "--seed",
        metavar="N",
        type=count(0),
        default=SdcaSettings.seed,
        help="of the order of the rows; the same seed gives the same result, byte for byte, "
        f"for any number of threads ({DEFAULT})",
    )
    parser.add_argument(
        "--threads",
        metavar="N",
        type=count(1, 4096),
        help="threads of the kernels (default: the CPUs this process may use)",
    )


def add_output(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the flags --json, which prints `what`, and --quiet."""
    parser.add_argument(
        "--json",
        action="store_true",
        help=f"print one JSON object instead of text: {what} (default: off)",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress (default: off)")


# ---- train


def add_train(commands: Commands, add_command: AddCommand) -> None:
    """Add the command `tfopt train`."""
    train = add_command(
        commands,
        "train",
        "tfopt.cli.train:run",
        "train a model and score it",
        f"""\
Fit a linear model and score it. Without arguments: on the a9a data that come with tfopt,
with their official test split.

{DATA_FORMAT}

The mean of a loss over the rows, plus l2/2 times the sum of the squared weights and l1 times that
of the absolute ones, is made as small as it can be, up to --tol; the gap is printed that bounds how
far it is from the minimum. The bias is not penalised. With margin = weights·x + bias the losses
are:
  logistic      log(1 + exp(margin)) - y·margin, y = 1 for the larger of two labels, else 0
  hinge         max(0, 1 - margin) for the larger label, max(0, 1 + margin) for the other
  smooth_hinge  the same with a rounded corner
  squared_hinge the square of the hinge
  squared       (margin - label)² / 2
  poisson       exp(margin) - label·margin
  gamma         label·exp(-margin) + margin, for positive labels
  huber         (margin - label)² / 2, and linear beyond a distance of --epsilon
  quantile      Q·(label - margin) if that is positive, else (Q - 1)·(label - margin)
  epsilon_insensitive
                by how much |margin - label| is above --epsilon
  squared_epsilon_insensitive
                the square of that
More than two classes are separated one from the rest, with weights and a bias for each.
DATA may be a folder, or its URL as fsspec has them (s3://bucket/day): each file
is a block, which on a cluster is read by the worker that is to hold it. Hidden files (.* and _*)
are left out.
Scores: accuracy, log-loss and AUC (classification; no AUC of a folder); RMSE, MAE and R2
(regression).""",
    )
    add = train.add_argument
    add(
        "data",
        metavar="DATA",
        nargs="?",
        default=A9A,
        help="training data, or a folder of them (default: the bundled a9a)",
    )
    add(
        "--test",
        metavar="FILE",
        help="test data; features that training never saw are ignored "
        "(default: a9a's test split without DATA, else none)",
    )
    add_reading(train)
    add("--solver", choices=("sdca",), default="sdca", help=argparse.SUPPRESS)
    add_loss(train)
    add(
        "--l1",
        metavar="X",
        type=non_negative,
        default=SdcaSettings.l1,
        help=f"penalty on the absolute weights, which makes some of them 0 ({DEFAULT})",
    )
    add(
        "--l2",
        metavar="X",
        type=positive,
        help="penalty on the squared weights (default: 1 / rows, which is liblinear's C = 1)",
    )
    add(
        "--epochs",
        metavar="N",
        type=count(1),
        default=SdcaSettings.epochs,
        help=f"the most iterations ({DEFAULT})",
    )
    add_seed(train)
    _add_fit(train.add_argument_group("fit"))
    add(
        "--model",
        metavar="OUT",
        default="model.npz",
        help=f"the model file to write, of {', '.join(MODELS)}; one that is there is replaced "
        f"({DEFAULT})",
    )
    add(
        "--checkpoint-every",
        metavar="N",
        type=count(1),
        help="on a cluster: save the run after every N epochs, so that --resume can go on from "
        "there (default: never)",
    )
    add(
        "--checkpoint",
        metavar="FOLDER",
        help="where: a folder that all workers can write to, or a URL; a run that is done removes "
        "it (default: the model's name with .checkpoint)",
    )
    add(
        "--resume",
        action="store_true",
        help="go on where the run that was saved has been, and write the model file that it would "
        "have written; without one, begin (default: begin anew)",
    )
    add(
        "--plot",
        metavar="PICTURE",
        help=f"draw the gap after each iteration ({', '.join(PICTURES)}; default: no picture)",
    )
    add_output(train, "scores, settings, history, versions")


def _add_fit(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--bias",
        metavar="X",
        type=number,
        help="the bias is the weight of a feature of this value, penalized as the others are, as "
        "with liblinear's -B; 0 or below: there is none (default: a bias without penalty)",
    )
    add(
        "--tol",
        metavar="X",
        type=positive,
        default=SdcaSettings.tol,
        help=f"relative duality gap to stop at ({DEFAULT})",
    )
    where = group.add_mutually_exclusive_group()
    where.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="fit on the Dask cluster of the scheduler at tcp://host:port "
        "(default: on this machine)",
    )
    where.add_argument(
        "--workers",
        metavar="N",
        type=count(1, 4096),
        help="fit on a Dask cluster of N processes of this machine, which are started for it "
        "(default: in this process)",
    )
    add(
        "--blocks",
        metavar="N",
        type=count(1),
        help="fit so many blocks of consecutive rows side by side. The model file depends on "
        "them, and not on where they are: it is the same without a cluster, and for any number of "
        f"workers (default: {BLOCKS} with --dask or --workers, else all rows are one; the files of "
        "a folder are its blocks)",
    )
