"""The flags of the commands, their defaults and their help."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import tfopt
from tfopt.cli.converters import count, non_negative, positive
from tfopt.cli.flags import (
    DATA_FORMAT,
    DEFAULT,
    Commands,
    add_loss,
    add_output,
    add_reading,
    add_seed,
    add_train,
)
from tfopt.cli.settings import FINISH, SdcaSettings

_EXIT_CODES = """\
Exit codes: 0 done, 1 refused (one line says file, line and reason), 2 wrong usage, 3 stopped before
the minimum was reached up to --tol, 130 interrupted, 141 the reader of the output went away. Output
files are whole or absent."""


#: The flags of training by the steps of an optimizer.
_STEPS = {
    *("--optimizer", "--set", "--learning-rate", "--schedule", "--schedule-set", "--batch-size"),
    *("--warmup-steps", "--warmup-initial-learning-rate", "--holdout", "--valid", "--patience"),
    "--chunk-size",
}
STEPS_ARE_AN_EXAMPLE = (
    "training by the steps of an optimizer is an example of Python now: docs/training_loops.md, "
    "docs/examples/linear_steps.py"
)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; help and wrong usage end in SystemExit.

    Parameters
    ----------
    argv : sequence of str, or None
        None means ``sys.argv[1:]``.

    Returns
    -------
    argparse.Namespace
        With `run`, module and function of the command; for "train" with `settings`.
    """
    parser: argparse.ArgumentParser = _Parser(
        prog="tfopt",
        description="Train linear models, and apply them.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tfopt {tfopt.__version__}")
    commands: Commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_Parser
    )
    add_train(commands, _add_command)
    _add_predict(commands)
    _add_cv(commands)
    _add_inspect(commands)
    _add_convert(commands)
    _add_info(commands)
    _add_selftest(commands)
    if "_ARGCOMPLETE" in os.environ:  # the shell asks how a line may go on
        import argcomplete

        argcomplete.autocomplete(parser)
    arguments, unknown = parser.parse_known_args(sys.argv[1:] if argv is None else argv)
    if unknown:
        _refuse_unknown(commands.choices[arguments.command], unknown)
    if arguments.command in FINISH:
        FINISH[arguments.command](commands.choices[arguments.command], arguments)
    return arguments


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, instead of the last line after the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def _refuse_unknown(command: argparse.ArgumentParser, unknown: list[str]) -> NoReturn:
    """Refuse arguments that a command does not have; name the flag that may be meant."""
    flags = [name for action in command._actions for name in action.option_strings]
    first = unknown[0].partition("=")[0]
    if first in _STEPS:
        command.error(f"{first}: {STEPS_ARE_AN_EXAMPLE}")
    initials = {f"--{''.join(part[:1] for part in f[2:].split('-'))}": f for f in flags}
    meant = [initials[first]] if first in initials else difflib.get_close_matches(first, flags, 1)
    hint = f"; did you mean {meant[0]}?" if first.startswith("-") and meant else ""
    command.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")


def _add_predict(commands: Commands) -> None:
    predict = _add_command(
        commands,
        "predict",
        "tfopt.cli.models:predict",
        "apply a model to data",
        f"""\
Print one number per row: for a logistic model the probability of the larger of the two
training labels, for a squared one the predicted value, for a hinge the margin. With more than
two classes: the label of the likeliest, then such a number for each, labels ascending. If the
labels in DATA are of the kind the model was trained on, scores are shown on standard error; they
need 8 bytes in memory for each number. Otherwise DATA are read and predicted block by block.

{DATA_FORMAT}
A row needs a label, which may be any number; in a table its column may be absent. Features are
counted from 0 or 1 as in the training data; those that training never saw are ignored.""",
    )
    predict.add_argument("model", metavar="MODEL", help="a model file of tfopt train")
    predict.add_argument("data", metavar="DATA", help="data to predict")
    predict.add_argument(
        "--output", metavar="FILE", help="where to write (default: standard output)"
    )
    what = predict.add_mutually_exclusive_group()
    what.add_argument("--labels", action="store_true", help="print the label alone (default: off)")
    what.add_argument(
        "--proba",
        action="store_true",
        help="print the probability of each class, labels ascending; the first line names them "
        "(default: off)",
    )
    what.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object: predictions, a row on each line, and scores (default: off)",
    )
    add_reading(predict, trains=False)
    predict.add_argument("--quiet", action="store_true", help="compute no scores (default: off)")


def _add_cv(commands: Commands) -> None:
    cv = _add_command(
        commands,
        "cv",
        "tfopt.cli.sdca:cross_validate",
        "choose the penalty by cross-validation",
        f"""\
Fit every penalty of a list on all folds of the data but one, and score it on that one, for each
fold in turn. All fits are certified up to --tol (as in tfopt train), and each begins
where the one with the next larger penalty ended. The table has the mean over the folds of the loss,
its standard error, and the scores; the best has the smallest loss.

{DATA_FORMAT}""",
    )
    cv.add_argument("data", metavar="DATA", help="a file")
    add_reading(cv)
    add = cv.add_argument
    add("--folds", metavar="K", type=count(2), default=5, help=DEFAULT)
    add_loss(cv)
    penalty = cv.add_mutually_exclusive_group()
    penalty.add_argument(
        "--l2",
        metavar="X,...",
        type=_positives,
        help="penalties on the squared weights, for the mean loss (default: those of --C)",
    )
    penalty.add_argument(
        "--C",
        metavar="X,...",
        type=_positives,
        help="the same as liblinear has them: l2 is 1 / (C * rows) "
        "(default: 0.001,0.01,0.1,1,10,100,1000)",
    )
    add("--l1", metavar="X", type=non_negative, default=0.0, help=f"as in train ({DEFAULT})")
    add("--tol", metavar="X", type=positive, default=SdcaSettings.tol, help=DEFAULT)
    add("--epochs", metavar="N", type=count(1), default=SdcaSettings.epochs, help=DEFAULT)
    add_seed(cv)
    add(
        "--model",
        metavar="OUT",
        help="fit the best penalty on all rows, and write the model file that tfopt train "
        "would write (default: none)",
    )
    add_output(cv, "the table, the best, settings, versions")


def _positives(text: str) -> list[float]:
    """Return distinct positive numbers, separated by commas, in ascending order."""
    return sorted({positive(part) for part in text.split(",")})


_positives.__name__ = "list of numbers"  # argparse's word for it


def _add_inspect(commands: Commands) -> None:
    inspect = _add_command(
        commands,
        "inspect",
        "tfopt.cli.models:inspect",
        "show what is in a model file",
        "Show a model's loss, classes and settings, and its largest weights: by the names of\n"
        "columns, or the numbers of features as the training data count them.",
    )
    inspect.add_argument("model", metavar="MODEL", help="a model file of tfopt train")
    inspect.add_argument(
        "--top", metavar="N", type=count(0), default=20, help=f"how many weights ({DEFAULT})"
    )
    inspect.add_argument("--json", action="store_true", help="print one JSON object (default: off)")


def _add_convert(commands: Commands) -> None:
    convert = _add_command(
        commands,
        "convert",
        "tfopt.cli.models:convert",
        "convert a model file to JSON, to ONNX, or back",
        "Write a model file in another form, by the ending of OUT: as JSON (.json), or as an\n"
        ".npz. No bit is lost: converted back, a file is the same, byte for byte. All commands\n"
        "read both. With .onnx a graph for ONNX is written, which takes float32, predicts labels\n"
        "and probabilities, or values, and cannot be converted back; it needs skl2onnx.",
    )
    convert.add_argument("model", metavar="MODEL", help="a model file")
    convert.add_argument("output", metavar="OUT", help="the file to write")


def _add_info(commands: Commands) -> None:
    info = _add_command(
        commands,
        "info",
        "tfopt.cli.info:run",
        "show versions and the state of the kernels",
        "Show versions, the instruction set in use, threads, OpenMP and CUDA.",
    )
    info.add_argument("--json", action="store_true", help="print a JSON object (default: off)")


def _add_selftest(commands: Commands) -> None:
    selftest = _add_command(
        commands,
        "selftest",
        "tfopt.cli.selftest:run",
        "compare what the kernels compute with recorded digests",
        """\
Run every rule, clipping, SDCA's visits and every storage on numbers that are the same everywhere,
on 1, 3 and all threads, and compare SHA-256 digests of the results with those that the package
comes with. That takes about ten seconds. The exit code is 1 if a digest differs: then results are
not those of other machines. TFOPT_CPU chooses the instruction set.

With --gpu, the rules and clipping that a GPU does are run there, on arrays of CuPy or torch, and
must have the same digests. Without a GPU that is an error, which says why there is none.""",
    )
    selftest.add_argument("--gpu", action="store_true", help="test the GPU (default: off)")
    selftest.add_argument("--json", action="store_true", help="print a JSON object (default: off)")


def _add_command(
    commands: Commands, name: str, run: str, summary: str, description: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    return command
