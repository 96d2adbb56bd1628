"""The sources of generated programs, for tracebacks and the notes of exceptions."""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["add_place", "annotate", "executed", "source_of"]

_NUMBERS = itertools.count(1)
#: The user's file and line behind each line of a program, by the name of the program's file.
_PLACES: dict[str, Sequence[tuple[str, int] | None]] = {}


def executed(
    source: str, title: str, scope: dict[str, Any], places: Sequence[tuple[str, int] | None]
) -> Callable[..., tuple[Any, ...]]:
    """Return the function that a source defines, whose lines tracebacks show as long as it lives.

    Parameters
    ----------
    source : str
        Defines ``program``.
    title : str
    scope : dict
        What its names mean.
    places : sequence of (str, int) or None
        The user's file and line behind each of its lines.
    """
    filename = f"<tfopt.function {title} {next(_NUMBERS)}>"
    exec(compile(source, filename, "exec"), scope)
    program: Callable[..., tuple[Any, ...]] = scope.pop("program")
    linecache.cache[filename] = len(source), None, source.splitlines(keepends=True), filename
    _PLACES[filename] = places
    weakref.finalize(program, _forget, filename).atexit = False
    return program


def _forget(filename: str) -> None:
    linecache.cache.pop(filename, None)
    _PLACES.pop(filename, None)


def source_of(program: Callable[..., Any]) -> str:
    """Return the source of a function that `executed` made."""
    return "".join(linecache.getlines(program.__code__.co_filename))


def annotate(error: BaseException) -> None:
    """Add the user's line that failed to an exception's notes, if it came from a program."""
    trace, place = error.__traceback__, None
    while trace is not None:
        places = _PLACES.get(trace.tb_frame.f_code.co_filename)
        if places is not None and 0 < trace.tb_lineno <= len(places):
            place = places[trace.tb_lineno - 1]
        trace = trace.tb_next
    add_place(error, place)


def add_place(error: BaseException, place: tuple[str, int] | None) -> None:
    """Add a user's line to an exception's notes."""
    if place is not None:
        filename, number = place
        line = linecache.getline(filename, number).strip()
        error.add_note(f'in the replay of a traced function, of File "{filename}", line {number}')
        if line:
            error.add_note(f"    {line}")
