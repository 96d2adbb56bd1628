"""The flags of `tfopt train`, and those that several commands have."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

from tfopt.cli.converters import count, non_negative, number, positive, share, size
from tfopt.cli.optimizers import (
    AUTO,
    CONSTANT,
    OPTIMIZERS,
    SCHEDULES,
    default_learning_rate,
    name_of,
    setting,
)
from tfopt.cli.settings import (
    A9A,
    BLOCKS,
    CHECKPOINTS,
    LOSSES,
    MODELS,
    PICTURES,
    SDCA_LOSSES,
    SOLVERS,
    SdcaSettings,
    Settings,
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
    add("--loss", choices=SDCA_LOSSES, default=Settings.loss, help=DEFAULT)
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
        default=Settings.seed,
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
Train a linear model by mini-batches and score it. Without arguments: on the a9a data
that come with tfopt, with their official test split.

{DATA_FORMAT}

The mean of a loss over the rows, plus l2/2 times the sum of the squared weights, is made
small. The bias is not penalised. With margin = weights·x + bias:
  logistic  log(1 + exp(margin)) - y·margin, y = 1 for the larger of the two labels, else 0
  squared   (margin - label)² / 2
With --solver sdca it is made as small as it can be, up to --tol, and the gap is printed that bounds
how far it is from the minimum: dual coordinate ascent, and Newton's method where that is faster.
Then there are these losses, too:
  hinge         max(0, 1 - margin) for the larger label, max(0, 1 + margin) for the other
  smooth_hinge  the same with a rounded corner
  squared_hinge the square of the hinge
  poisson       exp(margin) - label·margin
  gamma         label·exp(-margin) + margin, for positive labels
  huber         (margin - label)² / 2, and linear beyond a distance of --epsilon
  quantile      Q·(label - margin) if that is positive, else (Q - 1)·(label - margin)
  epsilon_insensitive
                by how much |margin - label| is above --epsilon
  squared_epsilon_insensitive
                the square of that
More than two classes are separated one from the rest, with weights and a bias for each.
With --solver sdca DATA may be a folder, or its URL as fsspec has them (s3://bucket/day): each file
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
        help="training data; sdca: or a folder of them (default: the bundled a9a)",
    )
    add(
        "--test",
        metavar="FILE",
        help="test data; features that training never saw are ignored "
        "(default: a9a's test split without DATA, else none)",
    )
    add_reading(train)
    add(
        "--solver",
        choices=SOLVERS,
        default="optimizer",
        help=f"mini-batch steps of an optimizer, or the minimum ({DEFAULT})",
    )
    add_loss(train)
    add(
        "--l1",
        metavar="X",
        type=non_negative,
        help="penalty on the absolute weights, which makes some of them 0, of --solver sdca and of "
        "ftrl, whose l1_regularization_strength it is (default: 0)",
    )
    add(
        "--l2",
        metavar="X",
        type=non_negative,
        help="penalty on the squared weights; joins the gradient for every optimizer, ftrl "
        f"included, whose own l2 would fade as steps add up (default: {Settings.l2}; sdca: "
        "1 / rows, which is liblinear's C = 1)",
    )
    add(
        "--epochs",
        metavar="N",
        type=count(1),
        help=f"passes over the training data (default: {Settings.epochs}; sdca: at most "
        f"{SdcaSettings.epochs})",
    )
    add_seed(train)
    _add_steps(train.add_argument_group("--solver optimizer"))
    _add_sdca(train.add_argument_group("--solver sdca"))
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
        help="save the run after every N steps (sdca, on a cluster: epochs), so that --resume can "
        "go on from there (default: never)",
    )
    add(
        "--checkpoint",
        metavar="FILE",
        help=f"where: a name that ends in {' or '.join(CHECKPOINTS)}; on a cluster a folder that "
        "its workers can write to, or a URL. An interrupt saves the run there, too; a run that is "
        "done removes it (default: the model's name with .checkpoint.npz, or .checkpoint on a "
        "cluster, if --checkpoint-every or --resume is there)",
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
        help="draw the loss after each epoch, or, of sdca, the gap after each iteration "
        f"({', '.join(PICTURES)}; default: no picture)",
    )
    add_output(train, "scores, settings, history, versions")


def _add_steps(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--optimizer",
        metavar="NAME",
        type=name_of(OPTIMIZERS),
        choices=OPTIMIZERS,
        help=f"{', '.join(OPTIMIZERS)} (default: {Settings.optimizer})",
    )
    add(
        "--set",
        metavar="NAME=VALUE",
        type=setting,
        action="append",
        help="an argument of the optimizer's constructor, as beta_1=0.8 or clipnorm=1; may be "
        "repeated. `tfopt info NAME` lists those of an optimizer (default: the optimizer's)",
    )
    rates = "; ".join(
        f"{loss}: " + ", ".join(f"{o} {default_learning_rate(o, loss):g}" for o in OPTIMIZERS)
        for loss in LOSSES
    )
    add("--learning-rate", metavar="X", type=positive, help=f"step size (default: {rates})")
    add(
        "--schedule",
        metavar="NAME",
        type=name_of({AUTO: str, CONSTANT: str, **SCHEDULES}),
        choices=(AUTO, CONSTANT, *SCHEDULES),
        help="how the learning rate changes. auto: linearly to 0 over the epochs, but with decay "
        "or ftrl not at all, for they lower it themselves; constant: not at all; by the step, from "
        f"--learning-rate on: {', '.join(SCHEDULES)} (default: {AUTO})",
    )
    add(
        "--schedule-set",
        metavar="NAME=VALUE",
        type=setting,
        action="append",
        help="an argument of the schedule's constructor, as decay_steps=1280 (default: the "
        "schedule's)",
    )
    add(
        "--warmup-steps",
        metavar="N",
        type=count(1),
        help="a linear warm-up before the schedule (default: no warm-up)",
    )
    add(
        "--warmup-initial-learning-rate",
        metavar="X",
        type=non_negative,
        help="where the warm-up begins (default: 0)",
    )
    add(
        "--batch-size",
        metavar="N",
        type=count(1),
        help=f"rows per step (default: {Settings.batch_size})",
    )
    add(
        "--holdout",
        metavar="N",
        type=count(2),
        help="keep every N-th row of DATA for validation (default: none)",
    )
    add("--valid", metavar="FILE", help="validation data (default: none)")
    add(
        "--chunk-size",
        metavar="SIZE",
        type=size,
        help="read DATA again in each epoch, about so many bytes at a time (256MB, say), instead "
        "of keeping them in memory: parts in random order, the rows of each shuffled (default: all "
        "in memory)",
    )
    add(
        "--patience",
        metavar="N",
        type=count(1),
        help="end after N epochs without a smaller validation loss, and keep the weights of the "
        "best epoch (default: all epochs, and the last weights)",
    )


def _add_sdca(group: argparse._ArgumentGroup) -> None:
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
        help=f"how far above the minimum is near enough, as a share (default: {SdcaSettings.tol})",
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
