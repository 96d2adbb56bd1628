"""The update rules as functions: one call is one step of one variable.

``apply_<rule>(var, *slots, grad, *, hyperparameters, indices=None, ...)`` updates the variable and
its slots in place. With ``indices`` only the rows it names are updated, each with its row of the
gradient, and repeated indices one after another in their order, unless ``duplicates`` says
otherwise. Lists in the place of arrays, all of one length, are many variables of one dtype: one
call updates them all, much faster than a call for each.

Arrays on a GPU, CuPy's, Numba's or torch's, are updated there (:mod:`tfopt.cuda`).

The functions are made from the table in :mod:`tfopt.rules`, one per row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt.autodiff.core import tracing
from tfopt.autodiff.effects import postpone
from tfopt.devices import apply_on_gpu, on_gpu
from tfopt.kernels import kernels
from tfopt.kernels.training import apply, run
from tfopt.room import Room
from tfopt.rows import rows_call
from tfopt.rules import RULES, Rule
from tfopt.variable import prepare_writes

__all__ = [f"apply_{rule.name}" for rule in RULES]


def _parameters(rule: Rule) -> str:
    """Return the signature of a rule's function, without the parentheses."""
    flags = [f"{flag}={default}" for flag, default in rule.flags.items()]
    return ", ".join(
        [
            *rule.operands,
            "*",
            *rule.hypers,
            *flags,
            "indices=None",
            f'duplicates="{_duplicates(rule)}"',
            "grad_scale=1.0",
            "var_scale=1.0",
            "check_indices=True",
        ]
    )


def _duplicates(rule: Rule) -> str:
    """Return what repeated indices mean if nothing is said."""
    return "sum" if rule.absent else "sequential"


def _docstring(rule: Rule) -> str:
    """Return a numpydoc docstring made from the row."""
    slots = [f"{', '.join(rule.slots)} : ndarray, shape and dtype of var"] if rule.slots else []
    parameters = {
        "var : ndarray of floats, or an object that shares its memory": (
            "Updated in place. Any strides; not read-only. float16 and bfloat16 (ml_dtypes) are "
            "computed\n    in float32 and rounded once, float32 and float64 in their own precision."
            "\n    Or a list of variables; then slots and gradients are lists, too."
        ),
        **dict.fromkeys(slots, "Updated in place."),
        f"{rule.grad} : ndarray, dtype of var": (
            "Shape of var; with indices, one row for each index. That of a float32 variable may "
            "be\n    float16 or bfloat16."
        ),
        f"{', '.join(rule.hypers)} : float": "Rounded to the dtype of the computation.",
        **{f"{flag} : bool, default {on}": _FLAGS[flag] for flag, on in rule.flags.items()},
        "indices : ndarray of int32 or int64, shape (n,), optional": (
            "The rows of var, along its first axis, to update."
        ),
        _DUPLICATES[rule.absent is None][0]: _DUPLICATES[rule.absent is None][1],
        "grad_scale : float, default 1.0": (
            "Multiplies the gradient as it is read. On a GPU it may be an array of no dimension "
            "there."
        ),
        "var_scale : float, default 1.0": (
            "Multiplies the variable, or its rows that take a step, before the step: ``1 - lr * "
            "decay``\n    is decoupled weight decay."
        ),
        "check_indices : bool, default True": (
            "On a GPU, False spares the wait until the indices have been checked; those that name "
            "no row\n    are skipped. In the host's memory they are always checked."
        ),
    }
    listed = [f"{name}\n    {text}" for name, text in parameters.items()]
    if rule.raw:
        origin = f"TensorFlow's op ``ResourceApply{rule.op}``;"
    elif rule.absent:
        origin = (
            "What Keras' optimizer makes of TensorFlow's other ops. With `indices`, the slots\n"
            "of all other rows decay;"
        )
    else:
        origin = "Not one of TensorFlow's ops;"
    return _DOCSTRING.format(rule=rule, parameters="\n".join(listed), origin=origin)


#: Of rules that touch all rows in a step for some, and of the others.
_DUPLICATES = (
    (
        'duplicates : {"sum", "error"}',
        "What an index that occurs several times means: one update by the sum of its rows, added "
        "in\n    order; or a refusal.",
    ),
    (
        'duplicates : {"sequential", "sum", "error"}',
        "What an index that occurs several times means: one update after another, in order; "
        "one\n    update by the sum of its rows, added in order; or a refusal.",
    ),
)
_FLAGS = {
    "use_nesterov": "Look ahead along the momentum.",
    "update_slots": "False leaves the slots as they are.",
    "multiply_linear_by_lr": "The linear slot holds its sum times the learning rate.",
}
_DOCSTRING = """{rule.summary}

Parameters
----------
{parameters}

Raises
------
InvalidArgumentError
    If shapes differ, a hyperparameter is no scalar, a variable is read-only, or two overlap.
InvalidTypeError
    If an argument is no array, or of another dtype.
IndexOutOfRangeError
    If an index names no row. As with every error, nothing has been written.

Notes
-----
{origin} its formula is the function of the same name in
:mod:`tfopt_ref.training_ops`.

References
----------
{rule.source}.
"""


def _function(rule: Rule) -> Callable[..., None]:
    """Return the rule's function.

    It is compiled from text, because Python checks and passes on a real signature faster than
    ``**kwargs``.
    """

    def pack(names: tuple[str, ...]) -> str:
        return f"({', '.join(names)},)"

    flags = " | ".join(f"({1 << k} if {flag} else 0)" for k, flag in enumerate(rule.flags))
    operands, hypers = pack(rule.operands), pack(rule.hypers)
    options = (*rule.hypers, *rule.flags, "indices", "duplicates", "grad_scale", "check_indices")
    later = f"dict({', '.join(f'{option}={option}' for option in options)})"
    lines = [
        f"def apply_{rule.name}({_parameters(rule)}):",
        "    if type(var) is not ndarray:",
        "        if tracing() is not None:",
        f"            return postpone(apply_{rule.name}, {operands}, {later})",
        f"        prepare_writes({operands})",
        "    if type(var) is not ndarray and on_gpu(var):",
        f"        apply_on_gpu(kernel, {operands}, {hypers}, {flags or 0}, indices, duplicates,",
        "                     grad_scale, var_scale, check_indices)",
        "    elif indices is None"
        + ("" if rule.absent else " or duplicates == 'sequential'")
        + ":",
        f"        apply(kernel, {operands}, {hypers}, {flags or 0}, indices, grad_scale,",
        "              var_scale)",
        "    else:",
        f"        run(rows_call(kernel, {operands}, indices, {hypers}, {flags or 0}, duplicates,",
        "                      grad_scale, Room(), var_scale=var_scale))",
    ]
    scope: dict[str, Any] = {
        "apply": apply,
        "apply_on_gpu": apply_on_gpu,
        "ndarray": np.ndarray,
        "on_gpu": on_gpu,
        "postpone": postpone,
        "tracing": tracing,
        "prepare_writes": prepare_writes,
        "run": run,
        "Room": Room,
        "rows_call": rows_call,
        "kernel": kernels[rule.name],
        "__name__": __name__,
    }
    exec("\n".join(lines), scope)
    function: Callable[..., None] = scope[f"apply_{rule.name}"]
    function.__doc__ = _docstring(rule)
    return function


globals().update({f"apply_{rule.name}": _function(rule) for rule in RULES})
