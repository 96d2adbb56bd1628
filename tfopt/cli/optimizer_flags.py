"""The flags of `tfopt train` that follow from the constructors of optimizers and schedules.

The parser knows all of them, so that one which does not belong to the chosen optimizer can be told
from one that does not exist; the help explains those of the chosen one.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tfopt.cli.constructors import Argument
from tfopt.cli.converters import numbers, whole
from tfopt.cli.optimizers import OPTIMIZERS, SCHEDULES, SHARED, WARMUP
from tfopt.cli.settings import AUTO, CONSTANT

__all__ = ["WARMUP_NAME", "OptimizerFlags", "one_of"]

_SHORT = {"l1_regularization_strength": "--l1"}
WARMUP_NAME = "a warm-up"
#: By kind and name of a class: what its constructor takes.
_TAKEN: dict[str, Mapping[str, list[Argument]]] = {
    "optimizer": OPTIMIZERS,
    "schedule": {AUTO: [], CONSTANT: [], **SCHEDULES},
    "warmup": {WARMUP_NAME: WARMUP},
}
_SCHEDULE_HELP = f"""\
how the learning rate changes. {AUTO}: linearly to 0 over the epochs, but with --decay or ftrl not
at all, for they lower it themselves; {CONSTANT}: not at all; by the step, from --learning-rate on:
{", ".join(SCHEDULES)} (default: %(default)s)"""
_METAVARS: dict[Any, str] = {whole: "N", numbers: "X,X,..."}
_WIDTH = 78


class _Flag(NamedTuple):
    option: str
    dest: str


class OptimizerFlags:
    """The flags that follow from constructors, in a parser.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        With all its other flags.
    argv : sequence of str
        Says what the help is to explain.
    """

    def __init__(self, parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
        self._parser = parser
        self._flags: dict[tuple[str, str], _Flag] = {}  # by kind and name of the argument
        asked = _asked(argv)
        shared = parser.add_argument_group("options of every optimizer")
        for one in SHARED:
            without = [name for name, taken in OPTIMIZERS.items() if one.name not in _names(taken)]
            note = f"; not of {', '.join(without)}" if without else ""
            self._add(shared, "optimizer", one, _explained(one, note))
        self._add_table("optimizer", asked["optimizer"])
        schedules = parser.add_argument_group("learning rate schedules")
        schedules.add_argument(
            "--schedule",
            metavar="NAME",
            type=one_of(_TAKEN["schedule"]),
            choices=_TAKEN["schedule"],
            default=AUTO,
            help=_SCHEDULE_HELP,
        )
        for one in WARMUP:
            optional = dataclasses.replace(one, default="no warm-up") if one.required else one
            note = "; of a warm-up before the schedule"
            self._add(schedules, "warmup", one, _explained(optional, note))
        self._add_table("schedule", asked["schedule"])

    def _add_table(self, kind: str, asked: str | None) -> None:
        """Add what is not shared, and explain what the asked class takes, or list all of it."""
        own = {
            name: [one for one in taken if (kind, one.name) not in self._flags]
            for name, taken in _TAKEN[kind].items()
        }
        group = self._parser.add_argument_group(f"options of {asked or f'one {kind} alone'}")
        for one in own.get(asked or "", ()):
            self._add(group, kind, one, _explained(one))
        for taken in own.values():
            for one in taken:
                if (kind, one.name) not in self._flags:
                    self._add(group, kind, one, argparse.SUPPRESS)
        if asked is None:
            rows = "\n".join(self._rows(kind, own))
            group.description = f"explained by --{kind} NAME --help\n\n{rows}"
        elif not own[asked]:
            group.description = "none"

    def _rows(self, kind: str, table: Mapping[str, list[Argument]]) -> list[str]:
        def shown(one: Argument) -> str:
            option = self._flags[kind, one.name].option
            plain = one.required or one.convert is None
            return option if plain else f"{option}\xa0{_default(one)}"  # on one line

        width = 2 + max(map(len, table))
        return [
            textwrap.fill(
                "  ".join(map(shown, taken)),
                _WIDTH,
                initial_indent=name.ljust(width),
                subsequent_indent=" " * width,
                break_on_hyphens=False,
            ).replace("\xa0", " ")
            for name, taken in table.items()
            if taken
        ]

    def _add(self, group: Any, kind: str, one: Argument, explained: str) -> None:
        words = one.name.replace("_", "-")
        if kind == "warmup":
            words = f"warmup-{words.removeprefix('warmup-')}"
        dest = f"{kind} {one.name}"  # which no other flag has
        options: dict[str, Any] = {"dest": dest, "default": argparse.SUPPRESS, "help": explained}
        if one.convert is None:
            options["action"] = argparse.BooleanOptionalAction
        else:
            metavar = None if one.choices else _METAVARS.get(one.convert, "X")
            options |= {"type": one.convert, "metavar": metavar, "choices": one.choices or None}
        short = [_SHORT[one.name]] if one.name in _SHORT else []
        try:
            added = group.add_argument(*short, f"--{words}", **options)
        except argparse.ArgumentError:  # an optimizer or the command itself has one of this name
            added = group.add_argument(f"--{kind}-{words}", **options)
        self._flags[kind, one.name] = _Flag(added.option_strings[0], dest)

    def given(self, arguments: argparse.Namespace, kind: str) -> dict[str, Any]:
        """Return what was given to classes of a kind, by the names of constructors' arguments."""
        return {
            name: getattr(arguments, flag.dest)
            for (of, name), flag in self._flags.items()
            if of == kind and hasattr(arguments, flag.dest)
        }

    def option(self, kind: str, name: str) -> str:
        """Return the flag of a constructor's argument."""
        return self._flags[kind, name].option

    def collect(self, arguments: argparse.Namespace, kind: str, chosen: str) -> dict[str, Any]:
        """Return what was given to the chosen class, by the names of its constructor's arguments.

        What another class takes, or what is missing, is wrong usage.
        """
        taken = _TAKEN[kind][chosen]
        given = self.given(arguments, kind)
        for name in given:
            if name not in _names(taken):
                takers = [other for other, its in _TAKEN[kind].items() if name in _names(its)]
                self._parser.error(
                    f"{self._flags[kind, name].option} is for {', '.join(takers)}; "
                    f"{chosen} takes {self._listed(kind, taken) or 'no such option'}"
                )
        missing = [one for one in taken if one.required and one.name not in given]
        if missing and (given or kind != "warmup"):
            self._parser.error(f"{chosen} needs {self._listed(kind, missing)}")
        return given

    def _listed(self, kind: str, taken: list[Argument]) -> str:
        return ", ".join(self._flags[kind, one.name].option for one in taken)

    def in_flags(self, message: str, *kinds: str) -> str:
        """Return a message of constructors of some kinds with flags for their arguments' names."""
        options = {name: flag.option for (of, name), flag in self._flags.items() if of in kinds}
        return re.sub(r"`?\b(\w+)\b`?", lambda found: options.get(found[1], found[0]), message)


def one_of(names: Iterable[str]) -> Callable[[str], str]:
    """Return a converter that also takes names as Python and TensorFlow write them."""
    known = {_squeezed(name): name for name in names}
    return lambda text: known.get(_squeezed(text), text)


def _squeezed(name: str) -> str:
    return re.sub("[-_]", "", name).lower()


def _asked(argv: Sequence[str]) -> dict[str, str | None]:
    """Return the optimizer and the schedule that a command line names, wherever it does."""
    glance = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for kind in ("optimizer", "schedule"):
        glance.add_argument(f"--{kind}", nargs="?", type=one_of(_TAKEN[kind]))
    found = vars(glance.parse_known_args(argv)[0])
    return {kind: name if name in _TAKEN[kind] else None for kind, name in found.items()}


def _names(arguments: list[Argument]) -> set[str]:
    return {one.name for one in arguments}


def _default(one: Argument) -> str:
    if one.default is None:
        return "none"
    return f"{one.default:g}" if isinstance(one.default, float) else str(one.default)


def _explained(one: Argument, note: str = "") -> str:
    default = "required" if one.required else f"default: {_default(one)}"
    return f"{one.meaning}{note} ({default})".lstrip("; ").replace("`", "").replace("%", "%%")
