"""The table of the command line's options, from which parser, help and settings are made.

It is quick to import, for the sake of `--help`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfopt.cli.converters import (
    class_weights,
    count,
    count_or,
    non_negative,
    number,
    numbers,
    pair,
    positive,
    power,
    separator,
    share,
)

__all__ = [
    "CERTIFIED",
    "CLASSIFICATION",
    "FILES",
    "HASHED",
    "LINES",
    "LOSSES",
    "LOSS_OPTIONS",
    "MODELS",
    "OPTIONS",
    "PICTURES",
    "STREAMS",
    "STREAM_LOSSES",
    "Option",
]

#: The losses; a test compares them, and their options below, with the library's records.
JOINT = ("multinomial",)
CLASSIFICATION = ("logistic", *JOINT, "hinge", "smooth_hinge", "squared_hinge")
INSENSITIVE = ("epsilon_insensitive", "squared_epsilon_insensitive")
LOSSES = (
    *(*CLASSIFICATION, "squared", "poisson", "gamma", "tweedie", "huber", "quantile"),
    *INSENSITIVE,
)
#: The endings of pictures, and of model files, whose names may also have none.
PICTURES = (".png", ".svg", ".pdf")
MODELS = (".npz", ".json", ".onnx")
#: The solvers that prove how far the minimum is; "auto" chooses among the others.
CERTIFIED = ("auto", "sdca", "newton-cholesky", "newton-cg", "cd", "interior-point")
#: The solver that learns rows as they are read, and its losses.
STREAMS = ("ftrl",)
STREAM_LOSSES = tuple(loss for loss in LOSSES if loss not in JOINT)
#: The solvers whose fits can be saved, "auto" on a cluster.
SAVED = ("auto", *STREAMS)
#: What says that the files of a folder are the blocks.
FILES = "files"
FORMATS = ("libsvm", "csv", "parquet", "vw")
TABLES, CSV, LIBSVM, LINES = ("csv", "parquet"), ("csv",), ("libsvm",), ("csv", "vw")
HASHED = (*LIBSVM, *LINES)


@dataclass(frozen=True)
class Option:
    """An option of one command or several.

    Attributes
    ----------
    flag : str
        A positional argument has no hyphens.
    help : str
    convert : callable or None
        Converts the text of a value, and refuses others; None: the option has no value.
    metavar : str
        The value's name in the help.
    default : Any
        None: the option is absent, unless `shown` names a default.
    of_streams : Any
        The default with --solver ftrl, if it differs.
    shown : str
        The default in words, for help.
    choices : tuple of str
        The accepted values; () for all that `convert` accepts.
    commands : tuple of str
    group : str
        The heading in the help.
    solvers, losses, formats : tuple of str
        The solvers, losses or formats of DATA that accept it; () for all.
    setting : bool
        Whether the model file stores it as a setting of the fit, under its name.
    repeats : bool
        Whether it may be given several times; the values form a tuple.
    apart : str
        Options of a command with the same word here exclude each other.
    together : str
        Neighbours with the same word here share one paragraph of the help.
    """

    flag: str
    help: str
    convert: Callable[[str], Any] | None = str
    metavar: str = ""
    default: Any = None
    of_streams: Any = None
    shown: str = ""
    choices: tuple[str, ...] = ()
    commands: tuple[str, ...] = ("train",)
    group: str = ""
    solvers: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    setting: bool = False
    repeats: bool = False
    apart: str = ""
    together: str = ""

    @property
    def name(self) -> str:
        """The name of the parsed value."""
        name = self.flag.lstrip("-").replace("-", "_")
        return name.lower() if self.is_positional else name

    @property
    def is_positional(self) -> bool:
        return not self.flag.startswith("-")


def _rows(group: str, commands: tuple[str, ...], *rows: Option) -> tuple[Option, ...]:
    """Return the rows of one heading, of the same commands."""
    return tuple(Option(**{**vars(row), "group": group, "commands": commands}) for row in rows)


_TRAIN, _CV, _FITS, _READS = ("train",), ("cv",), ("train", "cv"), ("train", "cv", "predict")

OPTIONS = (
    # what is read
    *_rows(
        "data", _TRAIN,
        Option("DATA", "a file, or a folder of files", default="a9a", shown="the bundled a9a"),
        Option("--test", "test data, which are scored", metavar="FILE", shown="a9a's, or none"),
    ),
    *_rows("data", _CV, Option("DATA", "a file")),
    *_rows("data", ("predict", "inspect"), Option("MODEL", "a model file of tfopt train")),
    *_rows("data", ("convert",), Option("MODEL", "a model file"), Option("OUT", "its new name")),
    *_rows("data", ("predict",), Option("DATA", "the rows to predict, with labels or without")),
    *_rows(
        "data", _READS,
        Option("--format", "of the files", choices=("auto", *FORMATS), default="auto",
               shown="by suffix"),
        Option("--label", "column of the labels", metavar="COL", formats=TABLES),
        Option("--weight", "the weights of rows: a column; of LIBSVM a file", metavar="COL"),
        Option("--offset", "what is added to w·x: a column; of LIBSVM a file", metavar="COL"),
        Option("--sep", "what is between fields of CSV, or tab", separator, "CHARACTER",
               shown="by suffix", formats=CSV),
    ),
    *_rows(
        "data", _FITS,
        Option("--drop", "a column to leave out", metavar="COL", formats=TABLES,
               together="columns", repeats=True),
        Option("--categorical", "one of text, even if of numbers",
               metavar="COL", formats=TABLES, together="columns", repeats=True),
        Option("--missing", "another text of missing values; all are repeatable", metavar="TEXT",
               formats=CSV, together="columns", repeats=True),
        Option("--scale", "give numbers mean 0 and deviation 1, as ftrl does", None,
               solvers=CERTIFIED, formats=TABLES),
    ),
    *_rows(
        "data", _FITS,
        Option("--zero-based", "whether LIBSVM counts from 0",
               choices=("auto", "yes", "no"), default="auto", shown="if 0 occurs",
               formats=LIBSVM),
    ),
    *_rows(
        "data", _READS,
        Option("--on-bad-line", "of bad lines",
               choices=("error", "skip"), default="error"),
    ),
    # what is minimized
    *_rows(
        "fit", _FITS,
        Option("--loss", "", choices=LOSSES, default="logistic",
               setting=True),
        Option("--gamma", "of smooth_hinge", positive, "X", shown="1", together="widths",
               losses=("smooth_hinge",), setting=True),
        Option("--epsilon", "of huber, insensitive", non_negative, "X",
               shown="1.35, 0.1", together="widths", losses=("huber", *INSENSITIVE), setting=True),
        Option("--quantile", "of quantile: share below", share, "Q", shown="0.5",
               together="shares", losses=("quantile",), setting=True),
        Option("--power", "of tweedie", power, "P", shown="1.5", together="shares",
               losses=("tweedie",), setting=True),
        Option("--class-weight", "balanced, or LABEL=W,...", class_weights, "W",
               losses=CLASSIFICATION, setting=True),
    ),
    *_rows(
        "fit", _TRAIN,
        Option("--solver", "", choices=(*CERTIFIED, *STREAMS),
               default="auto", setting=True),
    ),
    *_rows(
        "fit", _FITS,
        Option("--l1", "penalty on the absolute weights", non_negative, "X", 0.0,
               together="weights", setting=True),
        Option("--positive", "no weight below 0", None, together="weights", apart="cluster",
               solvers=("auto", "cd", "interior-point"), setting=True),
    ),
    *_rows(
        "fit", _TRAIN,
        Option("--l2", "penalty on the squared weights, halved", non_negative, "X",
               of_streams=0.0, shown="1 / rows; ftrl 0", setting=True),
        Option("--bias", "value of a feature for a penalized bias; -1: no bias", number, "X",
               solvers=CERTIFIED, setting=True),
    ),
    *_rows(
        "fit", _CV,
        Option("--l2", "penalties to choose from, of the squared weights, halved", numbers,
               "X,...", shown="those of --C", apart="penalty"),
        Option("--C", "the same as liblinear has them, 1 / (l2 * rows)", numbers, "X,...",
               shown="0.001,0.01,...,1000", apart="penalty"),
        Option("--folds", "parts of the data", count(2), "K", 5),
    ),
    *_rows(
        "fit", _FITS,
        Option("--tol", "relative duality gap to stop at", positive, "X", 1e-4,
               solvers=CERTIFIED, setting=True),
        Option("--epochs", "the most iterations; ftrl: passes", count(1), "N", 1000,
               of_streams=1, shown="1000; ftrl 1", setting=True),
        Option("--seed", "of the order of rows", count(0), "N", 0,
               together="runs", solvers=CERTIFIED, setting=True),
        Option("--threads", "of the kernels", count(1, 4096), "N", together="runs",
               shown="the CPUs"),
    ),
    *_rows(
        "fit", _TRAIN,
        Option("--learning-rate", "of ftrl", positive, "X", 0.5, together="ftrl",
               solvers=STREAMS, setting=True),
        Option("--beta", "its delay", non_negative, "X", 0.0, together="ftrl",
               solvers=STREAMS, setting=True),
        Option("--batch-size", "rows of a step", count(1), "N", 32, together="ftrl",
               solvers=STREAMS, setting=True),
        Option("--hash", "hash to N features", count(1, 2**31 - 1), "N",
               together="hash", solvers=STREAMS, formats=HASHED, setting=True),
        Option("--numeric", "numbers", metavar="COL", together="hash",
               solvers=STREAMS, formats=CSV, repeats=True),
        Option("--cross", "a cross", pair, "A,B", together="hash",
               solvers=STREAMS, formats=LINES, repeats=True),
        Option("--no-header", "columns 0, 1, ...", None, together="hash",
               solvers=STREAMS, formats=CSV),
    ),
    *_rows(
        "cluster", _TRAIN,
        Option("--dask", "fit on the cluster at tcp://host:port", metavar="ADDRESS",
               apart="cluster", solvers=("auto",)),
        Option("--workers", "fit on N processes that are started for it", count(1, 4096), "N",
               apart="cluster", solvers=("auto",)),
        Option("--blocks", "of rows, fitted side by side", count_or(FILES), "N|files",
               shown="8 on a cluster, else 1", setting=True, solvers=("auto",)),
        Option("--checkpoint-every", "save after every N epochs; ftrl: N blocks", count(1), "N",
               shown="never", solvers=SAVED),
        Option("--checkpoint", "where: a folder or URL; ftrl: a file", metavar="PATH",
               shown="by --model", solvers=SAVED),
        Option("--resume", "go on from there, if it is there", None, solvers=SAVED),
    ),
    # what is written
    *_rows(
        "output", _TRAIN,
        Option("--model", f"model file to write ({', '.join(MODELS)})", metavar="OUT",
               shown="none"),
        Option("--plot", f"draw the gaps ({', '.join(PICTURES)})",
               metavar="PICTURE",
               solvers=CERTIFIED),
        Option("--json", "print one JSON object instead of text", None, together="text"),
        Option("--quiet", "show no progress", None, together="text"),
    ),
    *_rows(
        "output", _CV,
        Option("--model", "fit the best penalty to all rows, and write the model", metavar="OUT"),
        Option("--json", "print one JSON object instead of text", None, together="text"),
        Option("--quiet", "show no progress", None, together="text"),
    ),
    *_rows(
        "output", ("predict",),
        Option("--output", "where to write", metavar="FILE", shown="standard output"),
        Option("--labels", "print the label alone", None, apart="what"),
        Option("--proba", "print the probability of each class, after a line of labels", None,
               apart="what"),
        Option("--json", "print one JSON object: predictions and scores", None, apart="what"),
        Option("--quiet", "compute no scores", None),
    ),
    *_rows("output", ("inspect",),
           Option("--top", "the number of weights to show", count(0), "N", 20)),
    *_rows("output", ("selftest",), Option("--gpu", "test what a GPU does", None)),
    *_rows("output", ("inspect", "info", "selftest"),
           Option("--json", "print one JSON object", None)),
)  # fmt: skip
#: The parameters of losses.
LOSS_OPTIONS = {
    row.name: row
    for row in OPTIONS
    if row.setting and row.losses and not {*CLASSIFICATION} <= {*row.losses}
}
