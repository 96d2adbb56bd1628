"""Lines of generated programs: how an operation is written, and what is left out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tfopt.autodiff.vjps import elementwise, indexing, reductions, shapes
from tfopt.core import engine
from tfopt.core.engine import Node, Op, Tensor

__all__ = [
    "SPECIAL",
    "array_of",
    "is_elementwise",
    "is_times_one",
    "keyword",
    "takes_arrays",
    "uniform",
]

#: Of a node, its arguments as they are written, its keywords, and what names a constant.
Line = Callable[[Node, list[str], dict[str, Any], Callable[[Any], str]], "str | None"]


def _is_literal(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_literal, value))
    return value is None or type(value) in (bool, int, str)


def keyword(value: Any, constant: Callable[[Any], str]) -> str:
    """Return how a keyword's value is written: by itself, or as a constant."""
    return repr(value) if _is_literal(value) else constant(value)


def is_elementwise(op: Any) -> bool:
    """Whether an operation is a ufunc of single elements."""
    return type(op) is Op and isinstance(op.fn, np.ufunc) and op.fn is not np.matmul


def takes_arrays(node: Node, value: float) -> bool:
    """Whether an operation gives the same for an array of no dimension as for a number."""
    out = node.outs[0]
    return (
        is_elementwise(node.op) and node.op is not engine.POWER and not node.kw
        and bool(out.shape) and out.dtype.char in "fd" and abs(value) < 1e30
        and all(x.dtype == out.dtype for x in node.ins if isinstance(x, Tensor))
    )  # fmt: skip


def array_of(x: Any) -> Any:
    """Return the array of a tensor; anything else as it is."""
    return engine.peek(x) if isinstance(x, Tensor) else x


def is_times_one(op: Any, ins: Sequence[Any], out: Tensor, symbolic: Any) -> bool:
    """Whether a product, or a quotient, by ones gives its other operand."""
    if op not in (engine.MULTIPLY, engine.DIVIDE):
        return False
    for k in (1, 0) if op is engine.MULTIPLY else (1,):
        x, y = ins[k], ins[1 - k]
        if symbolic(x) or not symbolic(y):
            continue
        array = np.asarray(array_of(x))
        same = y.numpy_like() == out.numpy_like()
        if same and array.size and array.dtype.kind in "iuf" and bool((array == 1).all()):
            return True
    return False


def uniform(array: np.ndarray, shape: tuple[int, ...], others: Iterable[Any]) -> np.ndarray:
    """Return one element in the place of an array of equal ones that another operand covers."""
    covered = any(np.shape(array_of(x)) == shape for x in others)
    if array.ndim and array.size and covered:
        parts = np.ascontiguousarray(array).view(np.uint8).reshape(-1, array.itemsize)
        if bool((parts == parts[0]).all()):  # bit by bit: 0.0 and -0.0 are not the same
            return np.array(array.flat[0])
    return array


def _reduce(function: str) -> Line:
    def line(node: Node, args: list[str], kw: dict[str, Any], constant: Any) -> str:
        keep = ", None, None, True" if kw.get("keepdims") else ""
        return f"{function}({args[0]}, {keyword(kw.get('axis'), constant)}{keep})"

    return line


def _mean(node: Node, args: list[str], kw: dict[str, Any], constant: Any) -> str | None:
    x = node.ins[0]
    if x.dtype.char not in "fdFD":
        return None
    total = _reduce("add_reduce")(node, args, kw, constant)
    return f"{total} / {int(reductions.count(x, kw.get('axis')))}"


def _where(node: Node, args: list[str], kw: dict[str, Any], constant: Any) -> str | None:
    condition, a, _ = node.ins
    fits = isinstance(condition, Tensor) and isinstance(a, Tensor)
    if fits and args[2] == "0" and condition.shape == a.shape == node.outs[0].shape:
        return f"kept({args[1]}, {args[0]})"
    return None


def _slice(node: Node, args: list[str], kw: dict[str, Any], constant: Any) -> str | None:
    return f"{args[0]}[{kw['key']!r}]" if type(kw["key"]) is int else None


def _reshape(node: Node, args: list[str], kw: dict[str, Any], constant: Any) -> str:
    return f"{args[0]}.reshape({keyword(kw['shape'], constant)})"


def _transpose(node: Node, args: list[str], kw: dict[str, Any], constant: Any) -> str:
    return f"{args[0]}.transpose({keyword(kw['axes'], constant)})" if kw else f"{args[0]}.T"


def _gather(node: Node, args: list[str], kw: dict[str, Any], constant: Any) -> str:
    return f"{args[0]}.take({args[1]}, 0)"


SPECIAL: dict[Any, Line] = {
    reductions.SUM: _reduce("add_reduce"),
    reductions.MAX: _reduce("maximum_reduce"),
    reductions.MIN: _reduce("minimum_reduce"),
    reductions.MEAN: _mean,
    shapes.RESHAPE: _reshape,
    shapes.TRANSPOSE: _transpose,
    indexing.GATHER: _gather,
    indexing.SLICE: _slice,
    elementwise.WHERE: _where,
}
