"""Generated programs as Python sees them: their sources, and what is said when one fails."""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tfopt.errors import InvalidArgumentError

__all__ = ["Resized", "add_place", "annotate", "executed", "refuse_resized", "source_of"]

_NUMBERS = itertools.count(1)
#: The file and line of a user behind each line of a program, by the name of its file.
_PLACES: dict[str, Sequence[tuple[str, int] | None]] = {}


class Resized(Exception):
    """A result whose size depends on values has another one than in the trace.

    Parameters
    ----------
    number : int
        Which of the trace's.
    arrays : tuple of ndarray
        The result.
    """

    def __init__(self, number: int, arrays: tuple[Any, ...]) -> None:
        super().__init__(number)
        self.kind = number, tuple((x.shape, x.dtype) for x in arrays)


def refuse_resized(label: str) -> NoReturn:
    """Refuse a size that only a gradient's computation knows, and that is another than before."""
    raise InvalidArgumentError(
        f"the result of {label}, in the gradient of a function that is traced, has another size "
        "than when the gradient was traced, since its values decide it. Take the gradient inside "
        "of the function, or leave the function untraced"
    )


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
        The file and line of a user behind each of its lines.
    """
    filename = f"<tfopt.function {title} {next(_NUMBERS)}>"
    exec(compile(source, filename, "exec"), scope)
    made: Callable[..., tuple[Any, ...]] = scope.pop("program")
    linecache.cache[filename] = len(source), None, source.splitlines(keepends=True), filename
    _PLACES[filename] = places
    weakref.finalize(made, _forget, filename).atexit = False
    return made


def _forget(filename: str) -> None:
    linecache.cache.pop(filename, None)
    _PLACES.pop(filename, None)


def source_of(program: Callable[..., Any]) -> str:
    """Return the source of a function that `executed` made."""
    return "".join(linecache.getlines(program.__code__.co_filename))


def annotate(error: BaseException) -> None:
    """Say in an exception's notes which line of a user's failed, if it came from a program."""
    trace, found = error.__traceback__, None
    while trace is not None:
        places = _PLACES.get(trace.tb_frame.f_code.co_filename)
        if places is not None and 0 < trace.tb_lineno <= len(places):
            found = places[trace.tb_lineno - 1]
        trace = trace.tb_next
    add_place(error, found)


def add_place(error: BaseException, place: tuple[str, int] | None) -> None:
    """Add a line of a user's to an exception's notes."""
    if place is not None:
        filename, number = place
        line = linecache.getline(filename, number).strip()
        error.add_note(f'in the replay of a traced function, of File "{filename}", line {number}')
        if line:
            error.add_note(f"    {line}")
