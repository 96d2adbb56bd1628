"""Places in a Python or Cython source where a small change is a mutant.

A change is one of tokens: an operator, a constant, a sign, a term, an argument, a call or an
assignment that is left out. Only bodies of functions are changed, and neither messages of errors
and assertions nor what only prefetches memory or chooses how many threads there are.
"""

from __future__ import annotations

import io
import keyword
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from tokenize import NAME, NUMBER, OP, STRING, TokenInfo
from typing import NamedTuple

__all__ = ["Line", "Mutant", "lines_of", "mutants_of"]

SWAPS = {
    "+": ("-",),
    "-": ("+",),
    "*": ("/",),
    "/": ("*",),
    "//": ("*",),
    "%": ("*",),
    "**": ("*",),
    "<<": (">>",),
    ">>": ("<<",),
    "&": ("|",),
    "|": ("&",),
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "==": ("!=",),
    "!=": ("==",),
    "+=": ("-=",),
    "-=": ("+=",),
    "*=": ("/=",),
    "/=": ("*=",),
    "|=": ("&=",),
    "&=": ("|=",),
    "and": ("or",),
    "or": ("and",),
    "True": ("False",),
    "False": ("True",),
    "min": ("max",),
    "max": ("min",),
    "fmin": ("fmax",),
    "fmax": ("fmin",),
    "minimum": ("maximum",),
    "maximum": ("minimum",),
    "any": ("all",),
    "all": ("any",),
    "break": ("continue",),
    "continue": ("break",),
}
FUNCTIONS = {"min", "max", "fmin", "fmax", "minimum", "maximum", "any", "all"}
#: Operators that bind as tightly as a product does.
PRODUCTS = {"*", "/", "//", "%", "**", "@"}
LEFT_ALONE = {
    *("import", "from", "global", "nonlocal", "raise", "assert", "del", "pass", "include"),
    *("cimport", "ctypedef", "@", "...", "warnings", "print", "with", "try", "except", "else"),
    *("finally", "async", "match", "case", "class", "def", "cpdef"),
}
HEADERS = {"if", "elif", "while", "for"}
#: Changes here change nothing but the time a call takes.
PERFORMANCE = re.compile(r"\b(prefetch\w*|AHEAD|grain|MOVED|set_grain|gather_team)\b")
#: A choice among types that the compiler makes.
FUSED = re.compile(r"\bis (not )?(float|double|\w*complex|u?int\d+_t|long|str|bytes)\b")
#: Functions whose first two arguments may be exchanged.
SYMMETRIC = {
    *("min", "max", "fmin", "fmax", "isinstance", "zip", "equal", "same_shape", "overlap"),
    *("square", "samestat"),
}


class Line(NamedTuple):
    """A logical line of a function's body."""

    tokens: list[TokenInfo]
    start: int
    end: int
    indent: str
    function: str
    parameters: dict[str, list[str]]
    is_status: bool  # it returns 0: there was no exception


class Mutant(NamedTuple):
    """A change of a logical line: `new` instead of the text from `start` to `end`.

    Attributes
    ----------
    file : str
        Relative to the root of the checkout.
    line : int
        The number of the first line of the logical line, from 1.
    function : str
        Which function it is in.
    before, after : str
        The logical line, with single spaces.
    first, last : int
        Offsets of the logical line in the text of the file.
    region : tuple of int
        Offsets of the expression that is changed, if only this part can be written twice.
    """

    file: str
    line: int
    function: str
    before: str
    after: str
    first: int
    last: int
    start: int
    end: int
    new: str
    region: tuple[int, int] | None

    @property
    def key(self) -> str:
        """What names the mutant as long as its function and its line are the same."""
        return f"{self.file}::{self.function}: {self.before} -> {self.after}"


class _Text:
    """A source text: its tokens, and the offset of each."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self.tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))

    def at(self, place: tuple[int, int]) -> int:
        return self._starts[place[0] - 1] + place[1]


def lines_of(text: str) -> tuple[_Text, list[Line]]:
    """Return the logical lines of all functions' bodies."""
    source, lines, current = _Text(text), [], []
    scopes: list[tuple[int, str, str, dict[str, list[str]], bool]] = []
    ignored = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT)
    for token in source.tokens:
        if token.type in ignored:
            continue
        if token.type not in (tokenize.NEWLINE, tokenize.ENDMARKER):
            current.append(token)
            continue
        if not current:
            continue
        first, column = current[0], current[0].start[1]
        while scopes and scopes[-1][0] >= column:
            scopes.pop()
        kind, name = _scope(current)
        if kind:
            outer = f"{scopes[-1][2]}." if scopes and scopes[-1][2] else ""
            scopes.append((column, kind, outer + name, _parameters(current), _has_status(current)))
        elif scopes and scopes[-1][1] == "def":
            start, end = source.at(first.start), source.at(current[-1].end)
            _, _, name, parameters, has_status = scopes[-1]
            is_status = has_status and [token.string for token in current] == ["return", "0"]
            lines.append(Line(current, start, end, " " * column, name, parameters, is_status))
        current = []
    return source, lines


def _scope(tokens: list[TokenInfo]) -> tuple[str, str]:
    """Return what a line begins (a function, or something else that is not changed), its name."""
    words = [token.string for token in tokens]
    if words[-1] != ":" or words[0] not in ("def", "cdef", "cpdef", "class", "async"):
        return "", ""
    if "(" in words and "class" not in words[:2] and "extern" not in words[:2]:
        return "def", words[words.index("(") - 1]
    return "other", words[1] if words[0] == "class" else words[-2]


def _has_status(tokens: list[TokenInfo]) -> bool:
    """Return whether a function is one of C whose result -1 stands for an exception."""
    words = [token.string for token in tokens]
    return words[:2] == ["cdef", "int"] and words[-4:] == ["except", "-", "1", ":"]


def _parameters(tokens: list[TokenInfo]) -> dict[str, list[str]]:
    """Return the parameters of a compiled function, by type."""
    found: dict[str, list[str]] = {}
    words = [token.string for token in tokens]
    if words[0] not in ("cdef", "cpdef") or "(" not in words:
        return found
    parts: list[list[str]] = [[]]
    depth = 0
    for word in words[words.index("(") + 1 :]:
        depth += (word in "([") - (word in ")]")
        if depth < 0:
            break
        if word == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(word)
    for part in parts:
        if len(part) > 1 and part[-1].isidentifier():
            found.setdefault(" ".join(part[:-1]), []).append(part[-1])
    return found


def mutants_of(path: Path, root: Path) -> list[Mutant]:
    """Return all mutants of a file."""
    text = path.read_text(encoding="utf-8")
    source, lines = lines_of(text)
    found = []
    for line in lines:
        found += _of_line(source, line, path.relative_to(root).as_posix(), path.suffix != ".py")
    unique = {mutant.key: mutant for mutant in reversed(found)}  # of equal ones the first
    return [mutant for mutant in found if unique[mutant.key] is mutant]


def _of_line(source: _Text, line: Line, file: str, compiled: bool) -> Iterator[Mutant]:
    text = source.text[line.start : line.end]
    word = line.tokens[0].string
    plain = line.tokens[0].type == STRING or word in LEFT_ALONE or PERFORMANCE.search(text)
    if plain or (compiled and word in HEADERS and FUSED.search(text)):
        return
    if line.is_status or (word == "cdef" and not is_declaration(line)):
        return
    normal = " ".join(text.split())
    for first, last in _regions(line, compiled):
        edits = _Edits(source, line, line.tokens[first:last], compiled)
        region = None
        if word in HEADERS:
            region = (
                source.at(line.tokens[first].start),
                source.at(line.tokens[last - 1].end),
            )
        for start, end, new in edits.found():
            after = text[: start - line.start] + new + text[end - line.start :]
            number = line.tokens[0].start[0]
            yield Mutant(
                *(file, number, line.function, normal, " ".join(after.split())),
                *(line.start, line.end, start, end, new, region),
            )
    if word not in HEADERS and word not in ("cdef", "return", "yield") and _can_go(line):
        number = line.tokens[0].start[0]
        places = (line.start, line.end, line.start, line.end)
        yield Mutant(file, number, line.function, normal, "pass", *places, "pass", None)


def _regions(line: Line, compiled: bool) -> Iterator[tuple[int, int]]:
    """Yield the ranges of tokens that are changed: each is written twice as a whole."""
    words = [token.string for token in line.tokens]
    if words[0] == "cdef":
        for _, first, last in declarators(line):
            if first < last:
                yield first, last
        return
    if words[0] not in HEADERS:
        first = 1 if words[0] in ("return", "yield") else 0
        if not compiled and ":" in words and "=" in words:  # an annotation
            colon, equal = words.index(":"), words.index("=")
            first = equal + 1 if colon < equal and not set(words[:colon]) & set("([{") else first
        if first < len(words):
            yield first, len(words)
        return
    last = len(words) - 1
    if words[last] != ":":
        return  # with a body in the same line
    first = 1
    if words[0] == "for":
        first = words.index("in") + 1
        if words[first : first + 2] == ["range", "("] and words[last - 1] == ")":
            yield from _arguments(line.tokens, first + 1, last - 1)
            return
        if compiled:
            return
    yield first, last


def _arguments(tokens: list[TokenInfo], opening: int, closing: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the arguments between two parentheses."""
    depth, first = 0, opening + 1
    for k in range(opening + 1, closing):
        depth += (tokens[k].string in "([{") - (tokens[k].string in ")]}")
        if tokens[k].string == "," and depth == 0:
            yield first, k
            first = k + 1
    if first < closing:
        yield first, closing


def is_declaration(line: Line) -> bool:
    """Return whether the line declares variables of C, with values."""
    words = [token.string for token in line.tokens]
    constant = "const" in words and "*" not in words[: words.index("=")] if "=" in words else True
    return words[0] == "cdef" and words[-1] != ":" and not constant


def declarators(line: Line) -> list[tuple[tuple[int, int], int, int]]:
    """Return of each declared variable the range of its declarator, and that of its value.

    The first begins after the type.
    """
    words = [token.string for token in line.tokens]
    depth, k = 0, 1
    while k < len(words):  # the end of the type
        depth += (words[k] in "([{") - (words[k] in ")]}")
        following = words[k + 1] if k + 1 < len(words) else ","
        if depth == 0 and words[k].isidentifier() and following in (",", "="):
            break
        k += 1
    while words[k - 1] == "*":
        k -= 1
    found = []
    for first, last in _arguments(line.tokens, k - 1, len(words)):
        equal = next((j for j in range(first, last) if words[j] == "="), last)
        found.append(((first, equal), equal + 1, last))
    return found


def _can_go(line: Line) -> bool:
    """Return whether the line is a call, or an assignment without which all names are bound."""
    words = [token.string for token in line.tokens]
    depth = 0
    for k, word in enumerate(words):
        depth += (word in "([{") - (word in ")]}")
        if depth == 0 and word in ("+=", "-=", "*=", "/=", "|=", "&=", "<<=", ">>="):
            return True
        if depth == 0 and word == "=":
            return any(word in ".[" for word in words[:k]) and ":" not in words[:1]
    return words[-1] == ")" and words[0] not in ("return", "yield", "await", "cdef")


class _Edits:
    """The changes of a range of tokens."""

    def __init__(self, source: _Text, line: Line, tokens: list[TokenInfo], compiled: bool) -> None:
        self._source, self._line, self._compiled = source, line, compiled
        self._tokens = tokens
        self._words = [token.string for token in tokens]
        self._casts = {*self._find_casts()} if compiled else set()

    def found(self) -> Iterator[tuple[int, int, str]]:
        """Yield where a text begins and ends, and what it is changed to."""
        if self._line.tokens[0].string in ("if", "elif", "while") and not self._compares():
            yield self._at(0), self._end(len(self._words) - 1), f"not ({self._whole()})"
        for k, token in enumerate(self._tokens):
            if k in self._casts or token.type not in (OP, NAME, NUMBER):
                continue
            yield from self._swapped(k)
            yield from self._left_out(k)
            yield from self._renamed(k)
            if token.type == NUMBER and not self._points(k):
                for new in _other_numbers(token.string):
                    yield self._at(k), self._end(k), new
            if token.string == "(":
                yield from self._exchanged(k)

    def _at(self, k: int) -> int:
        return self._source.at(self._tokens[k].start)

    def _end(self, k: int) -> int:
        return self._source.at(self._tokens[k].end)

    def _whole(self) -> str:
        return self._source.text[self._at(0) : self._end(len(self._words) - 1)]

    def _compares(self) -> bool:
        return any(word in {"<", ">", "<=", ">=", "==", "!=", "in", "is"} for word in self._words)

    def _is_operand(self, k: int) -> bool:
        """Whether an operand ends with this token."""
        if k < 0 or k in self._casts:
            return False
        token = self._tokens[k]
        if token.type == NAME:
            constant = token.string in ("None", "True", "False")
            return constant or not keyword.iskeyword(token.string)
        return token.type in (NUMBER, STRING) or token.string in ")]}"

    def _find_casts(self) -> Iterator[int]:
        """Yield the tokens of casts, as in ``<double *>x``."""
        k = 0
        while k < len(self._words):
            if self._words[k] == "<" and not (k and self._ends_operand(k - 1)):
                while self._words[k] != ">":
                    yield k
                    k += 1
                yield k
            k += 1

    def _ends_operand(self, k: int) -> bool:
        token = self._tokens[k]
        if token.type == NAME:
            return not keyword.iskeyword(token.string)
        return token.type == NUMBER or token.string in ")]"

    def _points(self, k: int) -> bool:
        """Whether a number is all of an index, as in ``var[0]``."""
        return self._compiled and self._words[k - 1 : k + 2] == ["[", "0", "]"]

    def _swapped(self, k: int) -> Iterator[tuple[int, int, str]]:
        token, word = self._tokens[k], self._words[k]
        following = self._words[k + 1] if k + 1 < len(self._words) else ""
        if word == "not" and following != "in":
            yield self._at(k), self._at(k + 1), ""
            return
        if word == "is":
            yes = following == "not"
            if not self._compiled or self._words[k + 1 + yes] == "None":
                yield self._at(k), self._end(k + yes), "is" if yes else "is not"
            return
        if word == "in" and "for" not in self._words:
            yes = k > 0 and self._words[k - 1] == "not"
            yield (self._at(k - 1) if yes else self._at(k)), self._end(k), "in" if yes else "not in"
            return
        if word not in SWAPS or self._words[max(k - 2, 0) : k] == ["strict", "="]:
            return
        if word in FUNCTIONS and following != "(":
            return
        if token.type == OP and word[-1] != "=" and not self._is_operand(k - 1):
            if word == "-":
                yield self._at(k), self._end(k), ""
            return  # a sign, an address, or arguments unpacked
        if word in "+*" and self._joins(k):
            return
        for new in SWAPS[word]:
            yield self._at(k), self._end(k), new

    def _joins(self, k: int) -> bool:
        """Whether texts or lists are joined, and numbers are not."""
        around = [self._tokens[k - 1], *self._tokens[k + 1 : k + 2]]
        return any(token.type == STRING or token.string in ("[", "]") for token in around) and (
            not self._compiled
        )

    def _operand(self, k: int, products: bool) -> int:
        """Return the end of the operand that begins at a token; of the product, if so wanted."""
        n = len(self._words)
        while k < n:
            while k < n and (k in self._casts or self._words[k] in ("-", "&", "*", "not", "+")):
                k += 1
            if k < n and self._words[k] not in ("(", "[", "{"):
                k += 1
            while k < n and self._words[k] in ("(", "[", ".", "{"):
                if self._words[k] == ".":
                    k += 2
                    continue
                k = self._closing(k) + 1
            if not (products and k < n and self._words[k] in PRODUCTS):
                break
            k += 1
        return k

    def _closing(self, k: int) -> int:
        """Return the bracket that closes the one at a token."""
        depth = 0
        for j in range(k, len(self._words)):
            depth += (self._words[j] in "([{") - (self._words[j] in ")]}")
            if depth == 0:
                return j
        return len(self._words) - 1

    def _left_out(self, k: int) -> Iterator[tuple[int, int, str]]:
        """A term or factor after an operator."""
        word = self._words[k]
        binary = word in ("+", "-", "*", "/") and self._tokens[k].type == OP
        if not binary or not self._is_operand(k - 1) or k + 1 >= len(self._words):
            return
        if not self._joins(k):
            last = self._operand(k + 1, word in "+-") - 1
            yield self._at(k), self._end(last), ""

    def _renamed(self, k: int) -> Iterator[tuple[int, int, str]]:
        """A parameter instead of another one of the same type."""
        word = self._words[k]
        attribute = k and self._words[k - 1] == "."
        for names in self._line.parameters.values():
            if word in names and len(names) > 1 and not attribute:
                yield self._at(k), self._end(k), names[(names.index(word) + 1) % len(names)]

    def _exchanged(self, k: int) -> Iterator[tuple[int, int, str]]:
        """The first two arguments of a call."""
        if not k or not self._is_operand(k - 1) or self._words[k - 1] in SYMMETRIC:
            return
        closing = self._closing(k)
        parts = [*_arguments(self._tokens, k, closing)][:2]
        if len(parts) < 2 or any(first >= last for first, last in parts):
            return
        words = {word for first, last in parts for word in self._words[first:last]}
        texts = any(
            token.type == STRING for first, last in parts for token in self._tokens[first:last]
        )
        if texts or words & {"=", "*", "**", "for", "lambda"}:
            return
        (first, middle), (second, last) = parts
        text = self._source.text
        one, other = (
            text[self._at(a) : self._end(b - 1)] for a, b in ((first, middle), (second, last))
        )
        between = text[self._end(middle - 1) : self._at(second)]
        if " ".join(one.split()) != " ".join(other.split()):
            yield self._at(first), self._end(last - 1), f"{other}{between}{one}"


def _other_numbers(text: str) -> tuple[str, ...]:
    """Return numbers near to one."""
    if re.fullmatch(r"\d+", text):
        return (str(int(text) + 1), *((str(int(text) - 1),) if int(text) else ()))
    if re.fullmatch(r"[\d.]+(e-?\d+)?", text):
        return (f"(2 * {text})" if float(text) else "1.0",)
    return ()
