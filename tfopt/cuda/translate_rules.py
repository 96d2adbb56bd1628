"""The formulas of kernels/rules.pxd in CUDA C++, so that both processors have them from one text.

They are plain expressions, hence Python's own parser reads them once their types are out of its
way: a cast ``<real>x`` is read as ``real ** x``, which binds as tightly. What the formulas do not
use is refused; who needs more of Cython there teaches it to `_Writer`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

__all__ = ["FIRST", "cuda_rules"]

#: The line of rules.pxd after which everything is translated: what comes before is the machine's,
#: and CUDA has its own in machine.h.
FIRST = "# ---- the functions the formulas are made of\n"

_HEADER = """/* Generated from kernels/rules.pxd by tfopt/cuda/translate_rules.py; edit those. */
#pragma once

#include "machine.h"

namespace rules {
"""
_FUNCTION = re.compile(
    r"^cdef inline (\w+) (\w+)\(([^)]*)\) noexcept nogil:\n((?:(?: .*)?\n)+)", re.MULTILINE
)
_DECLARED = re.compile(r"^( +)cdef (\w+) (.*)$", re.MULTILINE)
_CAST = re.compile(r"<(real|number|double)>")
_TYPES = {"bint": "bool"}
_NAMES = {True: "true", False: "false"}
_OPERATORS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/",
    ast.Lt: "<", ast.Gt: ">", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip


def cuda_rules(source: str) -> str:
    """Return the header with the functions of rules.pxd.

    Raises
    ------
    ValueError
        If one of them uses something of Cython that has no translation here.
    """
    text = source[source.index(FIRST) + len(FIRST) :]
    functions = list(_FUNCTION.finditer(text))
    if len(functions) != text.count("cdef inline"):
        raise ValueError("rules.pxd has a function whose first line is not like the others'")
    return "\n".join([_HEADER, *(_function(*match.groups()) for match in functions), "}"]) + "\n"


def _function(returned: str, name: str, parameters: str, body: str) -> str:
    """Return a function in C++, as a template of the type that it is written for."""
    typed = [_parameter(each) for each in parameters.split(",")]
    fused = "number" if re.search(r"\bnumber\b", parameters) else "real"
    try:
        lines = [*_Writer().block(_parsed(body), 1)]
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{name} of rules.pxd: {error}") from error
    head = f"template <class {fused}>\nBOTH {returned} {name}({', '.join(typed)}) {{"
    return "\n".join([head, *lines, "}\n"])


def _parameter(text: str) -> str:
    type_, name = text.split(maxsplit=1)
    return f"{_TYPES.get(type_, type_)} {name}"


def _parsed(body: str) -> list[ast.stmt]:
    """Return a function's statements; declarations are annotations of what they declare."""

    def annotated(match: re.Match[str]) -> str:
        indent, type_, rest = match.groups()
        if "=" in rest:
            name, value = rest.split("=", maxsplit=1)
            return f"{indent}{name.strip()}: {type_} = {value}"
        return "\n".join(f"{indent}{name.strip()}: {type_}" for name in rest.split(","))

    text = _CAST.sub(r"\1 ** ", _DECLARED.sub(annotated, body))
    (block,) = ast.parse(f"if True:\n{text}").body
    assert isinstance(block, ast.If)
    return block.body


class _Writer:
    """Writes Python's syntax trees as C++."""

    def block(self, statements: Sequence[ast.stmt], depth: int) -> Iterator[str]:
        for statement in statements:
            for line in self.statement(statement):
                yield "    " * depth + line

    def statement(self, node: ast.stmt) -> Iterator[str]:
        match node:
            case ast.AnnAssign(target=target, annotation=type_, value=None):
                yield f"{self.of(type_)} {self.of(target)};"
            case ast.AnnAssign(target=target, annotation=type_, value=value):
                yield f"const {self.of(type_)} {self.of(target)} = {self.of(value)};"
            case ast.Assign(targets=[target], value=value):
                yield f"{self.of(target)} = {self.of(value)};"
            case ast.Return(value=value):
                yield f"return {self.of(value)};"
            case ast.Expr(value=ast.Call() as call):
                yield f"{self.of(call)};"
            case ast.If(test=test, body=body, orelse=orelse):
                yield f"if ({self.of(test)}) {{"
                yield from self.block(body, 1)
                if orelse:
                    yield "} else {"
                    yield from self.block(orelse, 1)
                yield "}"
            case _:
                raise ValueError(f"no C++ is known for {ast.unparse(node)!r}")

    def of(self, node: ast.expr | None) -> str:
        """Return an expression; where the order of operations shows, it is in parentheses."""
        match node:
            case ast.Name(id=name):
                return name
            case ast.Constant(value=bool(value)):
                return _NAMES[value]
            case ast.Constant(value=int(value)):
                return str(value)
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=0)):
                return f"*{name}"
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return f"{name}({', '.join(map(self.of, args))})"
            case ast.BinOp(left=ast.Name(id=type_), op=ast.Pow(), right=operand):
                return f"{type_}({self.of(operand)})"
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return f"-{self.part(operand)}"
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return f"{self.part(left)} {_OPERATORS[type(op)]} {self.part(right)}"
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
                return f"{self.part(left)} {_OPERATORS[type(op)]} {self.part(right)}"
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return f"{self.part(test)} ? {self.part(body)} : {self.part(orelse)}"
        raise ValueError(f"no C++ is known for {node and ast.unparse(node)!r}")

    def part(self, node: ast.expr) -> str:
        """Return an operand."""
        whole = self.of(node)
        simple = isinstance(node, (ast.Name, ast.Constant, ast.Subscript, ast.Call))
        cast = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)
        return whole if simple or cast else f"({whole})"
