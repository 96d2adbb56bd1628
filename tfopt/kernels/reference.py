"""The formulas of :mod:`tfopt_ref` as steps that the drivers call, for TFOPT_BACKEND=reference.

Checks, plans and drivers work as ever, and ask a formula for what a run of elements becomes. No
other file of tfopt imports the specification, and this one is imported in that mode alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    byref,
    c_byte,
    c_char_p,
    c_double,
    c_int,
    c_ssize_t,
    c_void_p,
    py_object,
    pythonapi,
)
from typing import Any

import numpy as np

from tfopt.rules import Rule
from tfopt_ref import training_ops, update
from tfopt_ref.arithmetic import get_flush_denormals, set_flush_denormals
from tfopt_ref.training_op import TrainingOp

__all__ = ["ReferenceBackend"]

#: The types that each entry of the table has steps for, in this order.
_DTYPES = [np.dtype(name) for name in ("float32", "float64", "complex64", "complex128")]
_SCALES = 2  # in front of the hyperparameters: the gradient's, the variable's
_INFOS = [np.finfo(np.float32), np.finfo(np.float64)]  # computed once, while there are denormals

_Step = CFUNCTYPE(None, POINTER(c_void_p), c_ssize_t, c_void_p)
_Scalars = CFUNCTYPE(None, POINTER(c_double), POINTER(c_double), c_int, c_void_p)


class _Steps(Structure):
    """The struct of kernels/platform/step_types.pxd: C functions, null where there is none.

    Where there is none for 16-bit types, their numbers come as float32.
    """

    _fields_ = [
        ("dense", c_void_p),
        ("half", c_void_p * 2),
        ("rows", c_void_p),
        ("half_rows", c_void_p * 2),
        ("width1", c_void_p),
        ("absent", c_void_p),
        ("scatter", c_void_p),
        ("scalars", c_void_p),
        ("choose", c_void_p),
        ("blocks", c_void_p),
        ("blocks_storage", c_int * 5),
        ("first", c_void_p),  # of sums over variables, which come whole instead
        ("reduce", c_void_p),
    ]


class ReferenceBackend:
    """A table of steps made of the formulas.

    Parameters
    ----------
    rules : iterable of Rule
        The rows of the table, in its order.

    Attributes
    ----------
    capsule : PyCapsule
        The table; to be used no longer than this object is kept.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._functions: list[Any] = []  # that C calls
        entries = [entry for rule in rules for entry in self._entries(rule)]
        self._table = (_Steps * len(entries))(*entries)
        self._name = c_char_p(b"tfopt.steps")
        pythonapi.PyCapsule_New.restype = py_object
        pythonapi.PyCapsule_New.argtypes = [c_void_p, c_char_p, c_void_p]
        self.capsule = pythonapi.PyCapsule_New(byref(self._table), self._name, None)

    def _entries(self, rule: Rule) -> Iterator[_Steps]:
        """Yield the steps of a rule's variants: of each combination of flags, for each type."""
        op: TrainingOp = getattr(training_ops, f"apply_{rule.name}")
        for constants in rule.variants:
            flags = dict(zip(op.flags, constants, strict=False))  # then come tfopt's own choices
            for dtype in _DTYPES:
                yield self._steps(op, flags, dtype)

    def _steps(self, op: TrainingOp, flags: dict[str, bool], dtype: np.dtype[Any]) -> _Steps:
        n = len(op.hypers)

        def keep_hypers(hypers: Any, scales: Any, dense: int, into: int) -> None:
            _view(into, _SCALES + n, dtype)[:] = scales[:_SCALES] + hypers[:n]

        def step_of(formula: Callable[..., Any], absent: bool = False) -> int | None:
            def step(p: Any, size: int, h: int) -> None:
                *variables, grad = (
                    _view(p[k], 1 if name in op.row_slots else size, dtype)
                    for k, name in enumerate(op.operands)
                )
                if op.row_slots:  # a whole row
                    named = zip(op.operands, variables, strict=False)
                    variables = [x if name in op.row_slots else x[np.newaxis] for name, x in named]
                    grad = grad[np.newaxis]
                grad_scale, var_scale, *hypers = _view(h, _SCALES + n, dtype)
                _follow_the_processor()
                with np.errstate(all="ignore"):
                    own = None if absent else grad
                    options = dict(zip(op.hypers, hypers, strict=True)) | flags
                    update.step(formula, variables, own, options, (grad_scale, var_scale.real))

            return self._address(_Step(step))

        return _Steps(
            dense=step_of(op.dense),
            rows=step_of(op.rows),
            width1=step_of(op.width1),
            absent=step_of(op.dense, absent=True) if op.absent else None,
            scalars=self._address(_Scalars(keep_hypers)),
        )

    def _address(self, function: Any) -> int | None:
        self._functions.append(function)
        return c_void_p.from_buffer(function).value


def _view(address: int, n: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Return n elements in memory as an array."""
    buffer = (c_byte * (n * dtype.itemsize)).from_address(address)
    return np.ndarray((n,), dtype, memoryview(buffer))


def _follow_the_processor() -> None:
    """Model denormals as the processor treats them in the driver that calls."""
    flushes = sys.float_info.min * _HALF == 0
    if flushes != get_flush_denormals():
        set_flush_denormals(flushes)


_HALF = 0.5
