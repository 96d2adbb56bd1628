"""The update rules as functions: one call is one step of one variable.

``apply_<rule>(var, *slots, grad, *, hyperparameters, indices=None, grad_scale=1.0)`` updates the
variable and its slots in place. With ``indices`` only the rows it names are updated, each with its
row of the gradient, and repeated indices one after another in their order.

The functions are made from the table in :mod:`tfopt.rules`, one per row.
"""

from __future__ import annotations

from collections.abc import Callable

from tfopt.kernels import kernels
from tfopt.kernels.training import apply
from tfopt.rules import RULES, Rule

__all__ = [f"apply_{rule.name}" for rule in RULES]


def _parameters(rule: Rule) -> str:
    """Return the signature of a rule's function, without the parentheses."""
    flags = [f"{flag}={default}" for flag, default in rule.flags.items()]
    return ", ".join(
        [*rule.operands, "*", *rule.hypers, *flags, "indices=None", "grad_scale=1.0"]
    )


def _docstring(rule: Rule) -> str:
    """Return a numpydoc docstring made from the row."""
    slots = f"{', '.join(rule.slots)} : ndarray, shape and dtype of var\n" if rule.slots else ""
    flags = "".join(f"{flag} : bool, default {on}\n" for flag, on in rule.flags.items())
    return f"""{rule.summary}

Parameters
----------
var : ndarray of float32 or float64, or an object that shares its memory
    Updated in place. Any strides; not read-only.
{slots + "    Updated in place." if slots else ""}
{rule.grad} : ndarray, dtype of var
    Shape of var; with indices, one row for each index.
{", ".join(rule.hypers)} : float
    Rounded to the dtype of var.
{flags}indices : ndarray of int32 or int64, shape (n,), optional
    The rows of var, along its first axis, to update. Repeated ones are applied in their order.
grad_scale : float, default 1.0
    Multiplies the gradient as it is read.

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
TensorFlow's ``ResourceApply{rule.op}`` and ``ResourceSparseApply{rule.op}``. {rule.source}.
The formula stands in :mod:`tfopt_ref.training_ops`, under the same name.
""".replace("\n\n\n", "\n").replace("\n\n" + rule.grad, "\n" + rule.grad)


def _function(rule: Rule) -> Callable[..., None]:
    """Return the rule's function.

    It is compiled from text: a real signature is checked and passed on three times faster than
    ``**kwargs``.
    """

    def pack(names: tuple[str, ...]) -> str:
        return f"({', '.join(names)},)"

    flags = " | ".join(f"({1 << k} if {flag} else 0)" for k, flag in enumerate(rule.flags))
    body = (
        f"apply(kernel, {pack(rule.operands)}, {pack(rule.hypers)}, {flags or 0}, "
        "indices, grad_scale)"
    )
    scope = {"apply": apply, "kernel": kernels[rule.name], "__name__": __name__}
    exec(f"def apply_{rule.name}({_parameters(rule)}):\n    {body}", scope)  # noqa: S102
    function: Callable[..., None] = scope[f"apply_{rule.name}"]  # type: ignore[assignment]
    function.__doc__ = _docstring(rule)
    return function


globals().update({f"apply_{rule.name}": _function(rule) for rule in RULES})
