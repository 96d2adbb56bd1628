"""Parses the command line by the table of options: help, refusals, defaults, settings."""

from __future__ import annotations

import argparse
import difflib
import itertools
import os
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import tfopt
from tfopt.cli.options import (
    CLASSIFICATION,
    CSV,
    HASHED,
    LIBSVM,
    LINES,
    MODELS,
    OPTIONS,
    PICTURES,
    STREAM_LOSSES,
    STREAMS,
    TABLES,
    Option,
)
from tfopt.cli.read_options import Base, ReadOptions
from tfopt.cli.settings import CheckpointFlags, Settings

__all__ = ["COMMANDS", "parse"]

_EXIT_CODES = """\
Exit codes: 0 done, 1 error (one line says file, line and reason), 2 usage error, 3 stopped above
--tol, 130 interrupted, 141 broken pipe."""
_FILES = """\
Files are LIBSVM text or tables (.csv, .tsv, .parquet), plain or compressed, URLs, or -."""
#: The default number of blocks on a cluster, which must not depend on its workers.
BLOCKS = 8
#: The endings of checkpoints of a stream.
CHECKPOINTS = (".npz", ".safetensors")
_DATASETS = Path(__file__).parent / "datasets"
#: The flags of training by the steps of an optimizer.
_STEPS = {
    *("--optimizer", "--set", "--schedule", "--schedule-set"),
    *("--warmup-steps", "--warmup-initial-learning-rate", "--holdout", "--valid", "--patience"),
    "--chunk-size",
}
_STEPS_ARE_AN_EXAMPLE = (
    "training by the steps of an optimizer is an example of Python now: docs/training_loops.md, "
    "docs/examples/linear_steps.py"
)
_WIDTH, _LEFT = 80, 22


class Command(NamedTuple):
    """A command: the module and function that run it, its line in the list, and its help."""

    run: str
    summary: str
    text: str


COMMANDS = {
    "train": Command(
        "tfopt.cli.train:run",
        "fit a model and score it",
        f"""\
Fit a linear model. {_FILES}""",
    ),
    "predict": Command(
        "tfopt.cli.predict:run",
        "apply a model to data",
        f"""\
Print a number for each row: a probability (logistic), a margin (hinge) or a value; of more than two
classes the likeliest label, and a number for each. Known labels are scored on standard error.
{_FILES}""",
    ),
    "cv": Command(
        "tfopt.cli.cv:run",
        "choose the penalty by cross-validation",
        f"""\
Fit every penalty of a list on all folds of the data but one, and score it on that one, for each
fold in turn, from the largest penalty down. The best has the smallest mean loss. {_FILES}""",
    ),
    "inspect": Command(
        "tfopt.cli.models:inspect",
        "show what is in a model file",
        "Show a model's loss, classes and settings, and its largest weights: by the names of "
        "columns, or the numbers of features as the training data count them.",
    ),
    "convert": Command(
        "tfopt.cli.models:convert",
        "convert a model file to JSON, to ONNX, or back",
        "Write a model file in another form, by the ending of OUT: .npz, .json or .onnx. No bit is "
        "lost between the first two. The last is for ONNX runtimes, takes float32, cannot be "
        "converted back, and needs skl2onnx.",
    ),
    "info": Command(
        "tfopt.cli.info:run",
        "show versions and the state of the kernels",
        "Show versions, the instruction set in use, threads, OpenMP and CUDA.",
    ),
    "selftest": Command(
        "tfopt.cli.selftest:run",
        "compare what the kernels compute with recorded digests",
        "Run every rule, clipping, SDCA's visits and every storage on numbers that are the same "
        "everywhere, on 1, 3 and all threads, and compare SHA-256 digests of the results with "
        "recorded ones, in about ten seconds. The exit code is 1 if a digest differs. TFOPT_CPU "
        "chooses the instruction set.",
    ),
}


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; help and wrong usage end in SystemExit.

    Parameters
    ----------
    argv : sequence of str, or None
        None means ``sys.argv[1:]``.

    Returns
    -------
    argparse.Namespace
        The options by name, and `run`, the command's module and function. Commands that read data
        have `reading`, those that fit have `settings`.
    """
    parser = _Parser(prog="tfopt", text="Fit linear models, and apply them.", rows=())
    parser.add_argument("--version", action="version", version=f"tfopt {tfopt.__version__}")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_Parser
    )
    for name, command in COMMANDS.items():
        rows = [row for row in OPTIONS if name in row.commands]
        added = commands.add_parser(name, help=command.summary, text=command.text, rows=rows)
        added.set_defaults(run=command.run)
    if "_ARGCOMPLETE" in os.environ:  # the shell asks how a line may go on
        import argcomplete

        argcomplete.autocomplete(parser)
    arguments, unknown = parser.parse_known_args(sys.argv[1:] if argv is None else argv)
    own = commands.choices[arguments.command]
    if unknown:
        own.refuse_unknown(unknown)
    _finish(own, arguments)
    return arguments


class _Parser(argparse.ArgumentParser):
    """A parser of rows of the table, with short help, whose errors are one line."""

    def __init__(self, *, text: str, rows: Sequence[Option], **options: Any) -> None:
        super().__init__(**options)
        self.text, self.rows = text, rows
        apart: dict[str, Any] = {}
        for row in rows:
            to = self
            if row.apart:
                if row.apart not in apart:
                    apart[row.apart] = self.add_mutually_exclusive_group()
                to = apart[row.apart]
            _add(to, row)

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        hint = _meant(wrong[1], re.findall(r"[\w-]+", wrong[2])) if wrong else ""
        if wrong and not hint and message.startswith("argument --solver"):
            hint = f"; {_STEPS_ARE_AN_EXAMPLE}"
        self.exit(2, f"{self.prog}: error: {message}{hint} (see {self.prog} --help)\n")

    def refuse_unknown(self, unknown: list[str]) -> NoReturn:
        """Refuse arguments that the command does not have; suggest a similar flag."""
        first = unknown[0].partition("=")[0]
        if first in _STEPS:
            self.error(f"{first}: {_STEPS_ARE_AN_EXAMPLE}")
        flags = [name for action in self._actions for name in action.option_strings]
        initials = {f"--{''.join(part[:1] for part in f[2:].split('-'))}": f for f in flags}
        hint = _meant(first, flags) if first.startswith("-") else ""
        if first in initials:
            hint = f"; did you mean {initials[first]}?"
        self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")

    def format_help(self) -> str:
        left = [row for row in self.rows if row.is_positional]
        lines = [f"usage: {self.prog} {' '.join(_place(row) for row in left)} [OPTION]..."]
        if not self.rows:
            lines[0] = f"usage: {self.prog} [--version] COMMAND ..."
        lines += [*_wrapped(self.text), *[""] * (not self.rows)]
        if not self.rows:
            lines += [f"  {name:<10}{each.summary}" for name, each in COMMANDS.items()]
            lines += ["", f"{self.prog} COMMAND --help lists its options.", *_wrapped(_EXIT_CODES)]
        rows = sorted(self.rows, key=lambda row: _GROUPS.index(row.group))
        group = ""
        for _, each in itertools.groupby(rows, lambda row: row.together or row.flag):
            together = [*each]
            if together[0].group != group:
                group = together[0].group
                lines.append(f"{group}:")
            lines += _help_of(together)
        return "\n".join(lines) + "\n"


_GROUPS = [*dict.fromkeys(row.group for row in OPTIONS)]


def _place(row: Option) -> str:
    return f"[{row.flag}]" if row.default is not None else row.flag


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), _WIDTH)


def _help_of(rows: list[Option]) -> list[str]:
    """Return the lines of help about options that are told together."""
    flags = (f"{row.flag} {'' if row.choices else row.metavar}".rstrip() for row in rows)
    return textwrap.wrap(
        "; ".join(map(_text_of, rows)),
        _WIDTH,
        break_on_hyphens=False,
        initial_indent=f"  {', '.join(flags)} ".ljust(_LEFT),
        subsequent_indent=" " * _LEFT,
    )


def _text_of(row: Option) -> str:
    text = ": ".join(filter(None, [row.help, ", ".join(row.choices)]))
    default = row.shown or ("" if row.default is None else f"{row.default}")
    return f"{text} [{default}]" if default else text


def _meant(word: str, known: Sequence[str]) -> str:
    meant = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {meant[0]}?" if meant else ""


def _add(parser: Any, row: Option) -> None:
    """Add an option; what is not given is None."""
    options: dict[str, Any] = {"help": row.help.replace("%", "%%"), "default": None}
    if row.is_positional:
        options |= {"metavar": row.flag, "nargs": "?"} if row.default else {"metavar": row.flag}
        parser.add_argument(row.name, type=row.convert, **options)
    elif row.convert is None:
        parser.add_argument(row.flag, dest=row.name, action="store_const", const=True, **options)
    else:
        options |= {"choices": row.choices} if row.choices else {"metavar": row.metavar}
        options |= {"action": "append"} if row.repeats else {}
        parser.add_argument(row.flag, dest=row.name, type=row.convert, **options)


# ---- which options go together


def _finish(parser: _Parser, arguments: argparse.Namespace) -> None:
    """Refuse options that do not apply, set defaults, and gather the settings."""
    rows = {row.name: row for row in parser.rows}
    if "loss" in rows and "solver" not in rows:
        arguments.solver = "auto"
    if "data" in rows:
        for name in ("solver", "loss", "format"):
            if name in rows and getattr(arguments, name) is None:
                setattr(arguments, name, rows[name].default)
        if arguments.data is None:
            arguments.data = str(_DATASETS / "a9a.bz2")
            arguments.test = arguments.test or str(_DATASETS / "a9a.t.bz2")
        arguments.reading = _reading(arguments)
    for name, row in rows.items():
        reason = _reason_against(row, arguments)
        if getattr(arguments, name) is None:
            value = False if row.convert is None else _default(row, arguments)
            setattr(arguments, name, None if reason else value)
        elif reason:
            parser.error(f"{row.flag} {reason}")
    if "loss" in rows:
        arguments.settings = _settings(arguments)
    for check in _CHECKS.get(arguments.command, ()):
        check(parser, arguments)


_KINDS = {
    TABLES: "tables (.csv, .tsv, .parquet, or --format)",
    CSV: "CSV files",
    LIBSVM: "LIBSVM files",
    LINES: "CSV files and text of Vowpal Wabbit",
    HASHED: "LIBSVM and CSV files, and text of Vowpal Wabbit",
}


def _default(row: Option, arguments: argparse.Namespace) -> Any:
    is_stream = getattr(arguments, "solver", "") in STREAMS
    return row.of_streams if is_stream and row.of_streams is not None else row.default


def _reason_against(row: Option, arguments: argparse.Namespace) -> str:
    """Return why an option does not apply; "" if it does."""
    solver, loss = getattr(arguments, "solver", ""), getattr(arguments, "loss", "")
    if solver and row.solvers and solver not in row.solvers:
        return f"works with --solver {' or '.join(row.solvers)} alone"
    if loss and row.losses and loss not in row.losses:
        return f"is for --loss {' or '.join(row.losses)}"
    if row.formats and arguments.reading.format_of(arguments.data) not in row.formats:
        return f"is for {_KINDS[row.formats]}"
    return ""


def _settings(arguments: argparse.Namespace) -> Settings:
    """Return the settings of a fit; those that the command has no option for have defaults."""
    settings = {}
    for row in (row for row in OPTIONS if row.setting and not _reason_against(row, arguments)):
        is_own = arguments.command in row.commands
        value = getattr(arguments, row.name) if is_own else _default(row, arguments)
        if value is not False and (value is not None or not row.losses):
            settings[row.name] = value
    return Settings(**settings)


def _reading(arguments: argparse.Namespace) -> ReadOptions:
    bases: dict[str | None, Base] = {"yes": True, "no": False}
    return ReadOptions(
        format=arguments.format,
        zero_based=bases.get(getattr(arguments, "zero_based", None), "auto"),
        label=arguments.label,
        weight=arguments.weight,
        offset=arguments.offset,
        separator=arguments.sep,
        # steps of one length suit columns of one spread
        scale=bool(getattr(arguments, "scale", None))
        or getattr(arguments, "solver", "") in STREAMS,
        **{
            name: tuple(getattr(arguments, name, None) or ())
            for name in ("drop", "categorical", "missing")
        },
        on_bad_line=arguments.on_bad_line or "error",
        has_classes=getattr(arguments, "loss", "logistic") in CLASSIFICATION,
        hashes=getattr(arguments, "hash", None),
        numeric=tuple(getattr(arguments, "numeric", None) or ()),
        crosses=tuple(getattr(arguments, "cross", None) or ()),
        has_header=not getattr(arguments, "no_header", None),
    )


def _check_columns(parser: _Parser, arguments: argparse.Namespace) -> None:
    given = {name: getattr(arguments, name) for name in ("label", "weight", "offset")}
    for one, other in itertools.combinations(given, 2):
        if given[one] is not None and given[one] == given[other]:
            parser.error(f"--{one} and --{other} cannot be one column")


def _check_cv(parser: _Parser, arguments: argparse.Namespace) -> None:
    if arguments.offset is not None and arguments.loss in CLASSIFICATION:
        parser.error("--offset of cv is for the losses of numbers, not of classes")


def _check_model(parser: _Parser, arguments: argparse.Namespace) -> None:
    """Refuse the name of a model file whose ending says nothing, before any work."""
    flag = "OUT" if arguments.command == "convert" else "--model"
    path = arguments.out if arguments.command == "convert" else arguments.model
    if os.path.splitext((path or "").lower())[1] not in ("", *MODELS):
        parser.error(f"{flag} needs a file name that ends in one of {', '.join(MODELS)}")


def _check_hash(parser: _Parser, arguments: argparse.Namespace) -> None:
    """Refuse options that do not go with text that is hashed, or only with it."""
    format_ = arguments.reading.format_of(arguments.data)
    if arguments.hash is None:
        for name in ("numeric", "cross", "no_header"):
            if getattr(arguments, name):
                parser.error(f"--{name.replace('_', '-')} needs --hash")
    elif format_ in LINES:
        for name in ("categorical", "missing", "offset", *(("weight",) if format_ == "vw" else ())):
            if getattr(arguments, name):
                parser.error(f"--{name} does not go with --hash")
        if format_ == "csv" and arguments.label is None:
            parser.error("--hash needs --label, the column of the labels")
    if format_ == "vw" and arguments.hash is None:
        parser.error("text of Vowpal Wabbit needs --solver ftrl --hash N")


def _check_train(parser: _Parser, arguments: argparse.Namespace) -> None:
    if arguments.plot and Path(arguments.plot).suffix.lower() not in PICTURES:
        parser.error(f"--plot needs a file name that ends in one of {', '.join(PICTURES)}")
    if arguments.positive and arguments.settings.bias_feature is not None:
        parser.error("--positive does not go with --bias, whose weight may be negative")
    if arguments.data == arguments.test == "-":
        parser.error("DATA and --test cannot both be standard input")
    arguments.on_cluster = arguments.dask is not None or arguments.workers is not None
    if arguments.on_cluster and arguments.blocks is None:
        arguments.settings = arguments.settings.replaced(blocks=BLOCKS)
    is_libsvm = arguments.reading.format_of(arguments.data) == "libsvm"
    if arguments.offset is not None and is_libsvm and arguments.test:
        parser.error("--offset of a LIBSVM file does not go with --test: its rows have none")
    is_stream = arguments.solver in STREAMS
    if is_stream and arguments.loss not in STREAM_LOSSES:
        parser.error(f"--loss {arguments.loss} does not work with --solver {arguments.solver}")
    given = [name for name in ("checkpoint_every", "resume", "checkpoint") if vars(arguments)[name]]
    ending = ".checkpoint.npz" if is_stream else ".checkpoint"
    model = arguments.model or ""
    path = arguments.checkpoint or f"{model.removesuffix('.npz')}{ending}"
    if given and not (arguments.on_cluster or is_stream):
        flag = given[0].replace("_", "-")
        parser.error(f"--{flag} is for --solver ftrl, and for clusters: --dask, --workers")
    if is_stream and Path(path).suffix.lower() not in CHECKPOINTS:
        parser.error(f"--checkpoint needs a name that ends in {' or '.join(CHECKPOINTS)}")
    if given == ["checkpoint"] and not is_stream:
        parser.error("--checkpoint needs --checkpoint-every or --resume")
    if given and not model:
        parser.error(f"--{given[0].replace('_', '-')} needs --model, which the run is to write")
    if given and os.path.realpath(path) == os.path.realpath(model):
        parser.error("--checkpoint and --model cannot be one file")
    arguments.checkpoints = CheckpointFlags(
        path, arguments.checkpoint_every, arguments.resume, bool(given), arguments.quiet
    )


_Check = Callable[[_Parser, argparse.Namespace], None]
_CHECKS: dict[str, tuple[_Check, ...]] = {
    "train": (_check_columns, _check_model, _check_hash, _check_train),
    "cv": (_check_columns, _check_cv, _check_model),
    "predict": (_check_columns,),
    "convert": (_check_model,),
}
