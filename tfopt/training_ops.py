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

import functools
from collections.abc import Callable
from typing import Any

from tfopt.autodiff.core import plain
from tfopt.autodiff.effects import writes
from tfopt.core.backends import backend_of, first_is_device_array
from tfopt.kernels import kernels
from tfopt.kernels.training import apply, run
from tfopt.room import Room
from tfopt.rows import check_duplicates, rows_call
from tfopt.rules import RULES, Rule

__all__ = [f"apply_{rule.name}" for rule in RULES]


#: What all functions take beside the rule's own, and what it is if nothing is said.
_OPTIONS = {
    "indices": None,
    "duplicates": "",
    "grad_scale": 1.0,
    "var_scale": 1.0,
    "check_indices": True,
}


def _parameters(rule: Rule) -> str:
    """Return the signature of a rule's function, without the parentheses."""
    options = {**rule.flags, **_OPTIONS, "duplicates": _duplicates(rule)}
    given = [f"{name}={default!r}" for name, default in options.items()]
    return ", ".join([*rule.operands, "*", *rule.hypers, *given])


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


def _pieces(rule: Rule) -> tuple[str, str, str, str, str]:
    """Return what the text of a rule's functions is made of.

    The tuples of operands and of hyperparameters, the flags as a number, when the kernel is called
    at once, and its call.
    """
    operands, hypers = (f"({', '.join(names)},)" for names in (rule.operands, rule.hypers))
    flags = " | ".join(f"({1 << k} if {flag} else 0)" for k, flag in enumerate(rule.flags)) or "0"
    at_once = "indices is None" + ("" if rule.absent else " or duplicates == 'sequential'")
    call = f"apply(kernel, operands, {hypers}, {flags}, indices, grad_scale, var_scale)"
    return operands, hypers, flags, at_once, call


def _function(rule: Rule) -> Callable[..., None]:
    """Return the rule's function.

    It is compiled from text, because Python checks and passes on a real signature faster than
    ``**kwargs``. Plain arrays that nobody records go to the kernel at once; for all others it is
    one more function, whose writes pass the gate, and which is made when it is first called:
    most programs use few rules.
    """
    operands, _, _, _, call = _pieces(rule)
    usual = f"duplicates == {_duplicates(rule)!r}"  # which says nothing of a dense gradient
    soon = f"{usual} and indices is None" if rule.absent else usual
    options = (*rule.hypers, *rule.flags, *_OPTIONS)
    lines = [
        f"def apply_{rule.name}({_parameters(rule)}):",
        f"    operands = {operands}",
        f"    if plain(operands) and {soon}:",
        f"        {call}",
        "    else:",
        f"        careful()(*operands, {', '.join(f'{each}={each}' for each in options)})",
    ]
    careful = functools.cache(functools.partial(_careful, rule))
    function = _executed(rule, lines, {"careful": careful, "plain": plain})
    function.__doc__ = _docstring(rule)
    return function


def _careful(rule: Rule) -> Callable[..., None]:
    """Return the function that does what plain arrays do not need."""
    operands, hypers, flags, at_once, call = _pieces(rule)
    lines = [
        f"def apply_{rule.name}({_parameters(rule)}):",
        f"    operands = {operands}",
        "    check_duplicates(duplicates)",
        "    if first_is_device_array(var):",
        f"        backend_of(var).apply(kernel, operands, {hypers}, {flags}, indices, duplicates,",
        "                              grad_scale, var_scale, check_indices)",
        f"    elif {at_once}:",
        f"        {call}",
        "    else:",
        f"        run(rows_call(kernel, operands, indices, {hypers}, {flags}, duplicates,",
        "                      grad_scale, Room(), var_scale=var_scale))",
    ]
    names: dict[str, Any] = {
        "backend_of": backend_of,
        "check_duplicates": check_duplicates,
        "first_is_device_array": first_is_device_array,
        "run": run,
        "Room": Room,
        "rows_call": rows_call,
    }
    return writes("var", *rule.slots)(_executed(rule, lines, names))


def _executed(rule: Rule, lines: list[str], names: dict[str, Any]) -> Callable[..., None]:
    """Return the rule's function of some text."""
    scope = {"apply": apply, "kernel": kernels[rule.name], "__name__": __name__, **names}
    exec("\n".join(lines), scope)
    function: Callable[..., None] = scope[f"apply_{rule.name}"]
    return function


globals().update({f"apply_{rule.name}": _function(rule) for rule in RULES})
