"""Files that hold many mutants, of which one is carried out: the one whose number is in a page.

The page is a file in memory that all processes share whose environment names it. It begins with the
number of the mutant that is carried out, and then has a byte for each mutant, which is set where
the mutant's line has been reached.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterable
from pathlib import Path

from campaign.mutants.sites import Mutant, _Text, declarators, lines_of

__all__ = ["FIRST", "HEADER", "MODULE", "SIZE", "VARIABLE", "Page", "with_mutants"]

VARIABLE = "TFOPT_MUTANTS"
#: The page: its size, and where the bytes of the mutants begin. Before these are two numbers of 32
#: bits, the mutant that is carried out and whether a fork is one of a server.
SIZE, FIRST = 65536, 8

HEADER = f"""#pragma once
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned char tfopt_nothing[{SIZE}];
static volatile unsigned char *tfopt_page = tfopt_nothing;

__attribute__((constructor, unused)) static void tfopt_map(void) {{
    const char *name = getenv("{VARIABLE}");
    int file = name ? open(name, O_RDWR) : -1;
    if (file < 0) return;
    void *page = mmap(0, {SIZE}, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) tfopt_page = page;
    close(file);
}}
static inline int tfopt_mutated(int number) {{
    tfopt_page[{FIRST} + number] = 1;
    return *(volatile int *)tfopt_page == number;
}}
static inline int tfopt_served(void) {{ return ((volatile int *)tfopt_page)[1]; }}
"""

MODULE = f"""import mmap
import os

_name = os.environ.get("{VARIABLE}")
if _name:
    with open(_name, "r+b") as _file:
        _page = memoryview(mmap.mmap(_file.fileno(), {SIZE}))
else:
    _page = memoryview(bytearray({SIZE}))
_chosen = _page[:4].cast("i")


def mutated(number):
    _page[{FIRST} + number] = 1
    return _chosen[0] == number
"""

EXTERN = """
cdef extern from "mutants.h" nogil:
    bint tfopt_mutated(int number) noexcept
    int tfopt_served() noexcept

"""
IMPORT = "from tfopt_mutants import mutated as tfopt_mutated\n"


class Page:
    """The page of a server."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(SIZE))
        self.path = path
        with path.open("r+b") as file:
            self._page = memoryview(mmap.mmap(file.fileno(), SIZE))
        self._numbers = self._page[:FIRST].cast("i")
        os.environ[VARIABLE] = str(path)

    def choose(self, number: int, served: bool = False) -> None:
        """Carry out a mutant, or none (0)."""
        self._numbers[0], self._numbers[1] = number, served

    @property
    def chosen(self) -> int:
        """The mutant that is carried out."""
        return self._numbers[0]

    def reached(self) -> list[int]:
        """Return the mutants whose lines have been reached, and forget them."""
        flags = bytes(self._page[FIRST:])
        self._page[FIRST:] = bytes(SIZE - FIRST)
        return [number for number, flag in enumerate(flags) if flag]


def with_mutants(text: str, numbered: Iterable[tuple[int, Mutant]], compiled: bool) -> str:
    """Return a source text in which each mutant is carried out if its number is chosen."""
    by_line: dict[int, list[tuple[int, Mutant]]] = {}
    for number, mutant in numbered:
        by_line.setdefault(mutant.first, []).append((number, mutant))
    source, lines = lines_of(text)
    parts, at = [], 0
    for line in lines:
        mutants = by_line.get(line.start)
        if not mutants:
            continue
        parts.append(text[at : line.start])
        word = line.tokens[0].string
        if word == "cdef":
            parts.append(_declared(source, line, mutants))
        elif mutants[0][1].region is not None:
            parts.append(_chosen_parts(text, line.start, line.end, mutants))
        else:
            parts.append(_chosen_lines(text[line.start : line.end], line.indent, mutants))
        at = line.end
    parts.append(text[at:])
    return _with_opening("".join(parts), compiled)


def _changed(text: str, start: int, mutant: Mutant) -> str:
    """Return a part of the source, which begins at an offset, as the mutant has it."""
    return text[: mutant.start - start] + mutant.new + text[mutant.end - start :]


def _chosen_lines(text: str, indent: str, mutants: list[tuple[int, Mutant]]) -> str:
    start = mutants[0][1].first
    return _branches(
        indent, text, [(number, _changed(text, start, mutant)) for number, mutant in mutants]
    )


def _branches(indent: str, text: str, changed: list[tuple[int, str]]) -> str:
    lines = [
        f"{'elif' if k else 'if'} tfopt_mutated({number}):\n{indent}    {new}"
        for k, (number, new) in enumerate(changed)
    ]
    return f"\n{indent}".join([*lines, f"else:\n{indent}    {text}"])


def _chosen_parts(text: str, start: int, end: int, mutants: list[tuple[int, Mutant]]) -> str:
    """The line with conditional expressions instead of what is changed."""
    parts, at = [], start
    regions = sorted({mutant.region for _, mutant in mutants if mutant.region})
    for first, last in regions:
        original = text[first:last]
        choices = [
            f"({_changed(original, first, mutant)}) if tfopt_mutated({number}) else"
            for number, mutant in mutants
            if mutant.region == (first, last)
        ]
        parts += [text[at:first], f"({' '.join(choices)} ({original}))"]
        at = last
    return "".join([*parts, text[at:end]])


def _declared(source: _Text, line, mutants: list[tuple[int, Mutant]]) -> str:
    """A declaration without values, and assignments of these."""
    text, tokens = source.text, line.tokens
    parts = declarators(line)
    prefix = text[line.start : source.at(tokens[parts[0][0][0]].start)]
    names, assigned = [], []
    for (first, middle), value, last in parts:
        names.append(text[source.at(tokens[first].start) : source.at(tokens[middle - 1].end)])
        if value >= last:
            continue
        name = tokens[middle - 1].string
        start, end = source.at(tokens[value].start), source.at(tokens[last - 1].end)
        original = text[start:end]
        changed = [
            (number, f"{name} = {_changed(original, start, mutant)}")
            for number, mutant in mutants
            if start <= mutant.start and mutant.end <= end
        ]
        plain = f"{name} = {original}"
        assigned.append(_branches(line.indent, plain, changed) if changed else plain)
    return f"\n{line.indent}".join([prefix + ", ".join(names), *assigned])


def _with_opening(text: str, compiled: bool) -> str:
    """The text with what declares the choice, after the docstring and future imports."""
    opening = re.match(
        r'(\s*#[^\n]*\n)*(\s*("""(.|\n)*?"""|"[^"\n]*")\s*\n)?(\s*#[^\n]*\n)*'
        r"(\s*from __future__ import [^\n]*\n)*",
        text,
    )
    at = opening.end() if opening else 0
    return text[:at] + (EXTERN if compiled else IMPORT) + text[at:]
