"""Why the bits of an answer may differ from TensorFlow's.

The reasons are looked up, not chosen case by case: running a rule's formula on arrays that keep
notes tells which operations each of its results has gone through, and those that TensorFlow
approximates are known. The one table of exceptions, `OTHER_ORDER`, holds the kernels of TensorFlow
that carry out the same formula in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import tfopt_ref
from tfopt.rules import Rule

__all__ = ["OTHER_ORDER", "notes", "reasons"]

#: Operations that round correctly everywhere, or are exact.
_CORRECT = {
    "absolute", "add", "bitwise_or", "divide", "equal", "greater", "less", "multiply", "negative",
    "not_equal", "sign", "sqrt", "subtract",
}  # fmt: skip
_VECTOR = 8  # float32 elements that TensorFlow's approximate 1 / sqrt takes at a time


class Order(NamedTuple):
    """A sparse kernel of TensorFlow's whose operations come in another order than in its dense one.

    Ours step a row as they step a dense variable.
    """

    theirs: str
    operands: tuple[str, ...]
    applies: Callable[[Mapping[str, bool], int], bool]  # to the flags and the length of a row


_POWERS = Order(
    "pow for sqrt, and linear + grad first", ("var", "linear"), lambda flags, inner: inner == 1
)
_IN_DOUBLE = Order(
    "in double precision, rounded at the end",
    ("var",),
    lambda flags, inner: inner == 1,
)
OTHER_ORDER = {
    "momentum": Order(
        "accum * (lr * momentum)", ("var",), lambda flags, inner: flags["use_nesterov"]
    ),
    "adagrad": Order("grad * lr / sqrt(accum)", ("var",), lambda flags, inner: inner == 1),
    "proximal_gradient_descent": _IN_DOUBLE,
    "proximal_adagrad": _IN_DOUBLE,
    "ftrl": _POWERS,
    "ftrl_v2": _POWERS,
}


class _Noting(np.ndarray):
    """An array that keeps the names of the operations and operands it was made by."""

    notes: frozenset[str] = frozenset()
    is_root = False

    @classmethod
    def of(cls, value: Any, notes: set[str]) -> Any:
        made = np.asarray(value).view(cls)
        made.notes = frozenset(notes)
        return made

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [x.view(np.ndarray) if isinstance(x, _Noting) else x for x in inputs]
        of_root = ufunc is np.divide and getattr(inputs[1], "is_root", False)
        name = "rsqrt" if of_root and np.all(plain[0] == 1) else ufunc.__name__
        known = {note for x in inputs if isinstance(x, _Noting) for note in x.notes}
        result = _Noting.of(getattr(ufunc, method)(*plain, **kwargs), known | {name})
        result.is_root = ufunc is np.sqrt
        return result

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        known = {note for x in args if isinstance(x, _Noting) for note in x.notes}
        return _Noting.of(super().__array_function__(function, types, args, kwargs), known)


@cache
def _notes(
    name: str, sparse: bool, hypers: tuple[tuple[str, float], ...], flags: tuple[Any, ...]
) -> dict[str, frozenset[str]]:
    op = getattr(tfopt_ref.training_ops, f"apply_{name}")
    operands = [_Noting.of(0.5, {f"operand {operand}"}) for operand in op.operands]
    values = {hyper: _Noting.of(value, {f"hyper {hyper}"}) for hyper, value in hypers}
    flush = tfopt_ref.get_flush_denormals()
    tfopt_ref.set_flush_denormals(False)  # flushing has operations of its own
    try:
        with np.errstate(all="ignore"):
            results = (op.rows if sparse else op.dense)(*operands, **values, **dict(flags))
    finally:
        tfopt_ref.set_flush_denormals(flush)
    return {name: result.notes for name, result in zip(op.operands, results, strict=False)}


def notes(
    rule: Rule, hypers: Mapping[str, float], flags: Mapping[str, bool], sparse: bool
) -> dict[str, frozenset[str]]:
    """Return for the variable and each slot what its new value is made of.

    That is the names of operations, where rsqrt is 1 / sqrt, and "operand ..." and "hyper ...".
    """
    return _notes(rule.name, sparse, tuple(hypers.items()), tuple(flags.items()))


def reasons(
    rule: Rule,
    hypers: Mapping[str, float],
    flags: Mapping[str, bool],
    dtype: str,
    shape: tuple[int, ...],
    sparse: bool,
) -> dict[str, list[str]]:
    """Return for the variable and each slot why the bits may differ; empty if they must not."""
    inner = int(np.prod(shape[1:] if sparse else shape))
    order = OTHER_ORDER.get(rule.name) if sparse else None
    found = {}
    for operand, known in notes(rule, hypers, flags, sparse).items():
        operations = {note for note in known if " " not in note}
        found[operand] = sorted(operations - _CORRECT - {"rsqrt"})
        if "rsqrt" in operations and dtype == "float32" and inner >= _VECTOR:
            found[operand].append("rsqrt")
        if order and operand in order.operands and order.applies(flags, inner):
            found[operand].append(order.theirs)
    return found
