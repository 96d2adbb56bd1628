"""TensorFlow's training ops by TensorFlow's own names: ``ApplyAdam``, ``ResourceApplyAdam``, ...

Their arguments are TensorFlow's, by keyword as in ``tf.raw_ops``; what they do is what the rule's
function in :mod:`tfopt.training_ops` does. ``Apply*`` and ``SparseApply*``, in TensorFlow for
variables of its first version, return the variable they were given; ``Resource*`` return nothing.
All take Variables and arrays. ``SparseApply*`` and ``ResourceSparseApply*`` update the rows that
``indices`` names.

The functions are made from the table in :mod:`tfopt.rules`; but for `ClipByValue` and `L2Loss`,
which train nothing and return a new array, and the four of :mod:`tfopt.sdca_ops`.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from itertools import groupby, product
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tfopt import training_ops
from tfopt.autodiff import clipping
from tfopt.autodiff.clipping import is_recorded
from tfopt.autodiff.core import Op, apply
from tfopt.autodiff.effects import writes
from tfopt.clip_arguments import FLOATS, INTEGERS, Array, as_bound, as_tensor, device_backend
from tfopt.clip_ops import clip_by_value
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels.norms import sum_of_squares
from tfopt.rules import RULES, Rule
from tfopt.sdca_ops import sdca_fprint, sdca_optimizer, sdca_shrink_l1

Shape: TypeAlias = tuple[int | None, ...]


class _Op(NamedTuple):
    """One of a rule's four forms."""

    rule: Rule
    ref: bool
    sparse: bool

    @property
    def name(self) -> str:
        prefix = ("" if self.ref else "Resource") + ("Sparse" if self.sparse else "")
        return f"{prefix}Apply{self.rule.op}"

    @property
    def grad(self) -> str:
        return "grad" if self.sparse else self.rule.grad

    @property
    def inputs(self) -> tuple[str, ...]:
        """TensorFlow's inputs in its order; in sparse forms the indices follow the gradient."""
        if not self.sparse:
            return self.rule.inputs
        at = self.rule.inputs.index(self.rule.grad)
        return (*self.rule.inputs[:at], self.grad, "indices", *self.rule.inputs[at + 1 :])


_FORMS = (
    _Op(rule, ref, sparse)
    for ref, sparse, rule in product((True, False), (False, True), RULES)
    if rule.raw and rule.ref >= ref and rule.sparse >= sparse
)
_OPS = {op.name: op for op in _FORMS}

_SDCA = ("SdcaFprint", "SdcaOptimizer", "SdcaOptimizerV2", "SdcaShrinkL1")

__all__ = [*sorted([*_OPS, *_SDCA, "ClipByValue", "L2Loss"]), "infer_shapes"]


# ---- the ops


def _parameters(op: _Op) -> str:
    """Return the signature of an op's function, without the parentheses."""
    flags = [f"{flag}={default}" for flag, default in op.rule.flags.items()]
    return ", ".join(["*", *op.inputs, "use_locking=False", *flags, "name=None"])


def _describe(op: _Op, name: str) -> str:
    """Return what the docstring says of an input."""
    if name == "var":
        return "Variable or ndarray\n    Updated in place."
    if name in op.rule.slots:
        return "Variable or ndarray, shape and dtype of var\n    Updated in place."
    if name in op.rule.hypers:
        return "float\n    Rounded to the dtype of var."
    if name == "indices":
        return (
            "ndarray of int32 or int64, shape (n,)\n    The rows of var, along its first axis, to "
            "update; repeated ones one after another."
        )
    shape = "One row for each index." if op.sparse else "Shape of var."
    return f"ndarray, dtype of var\n    {shape}"


def _docstring(op: _Op) -> str:
    """Return a numpydoc docstring made from the row."""
    groups = groupby(op.inputs, lambda name: _describe(op, name))
    flags = [
        f"{flag} : bool, default {default}\n    As in ``apply_{op.rule.name}``."
        for flag, default in op.rule.flags.items()
    ]
    return _DOCSTRING.format(
        rule=op.rule,
        inputs="\n".join(f"{', '.join(names)} : {text}" for text, names in groups),
        flags="".join(f"\n{flag}" for flag in flags),
        returned="Variable or ndarray\n    `var`, the object given." if op.ref else "None",
    )


_DOCSTRING = """{rule.summary}

Parameters
----------
{inputs}
use_locking : bool, default False
    Hold the locks of the variable and its slots during the update: no other update that does so,
    and nobody who holds a Variable's `lock`, sees or changes them meanwhile.{flags}
name : str, optional
    Accepted as TensorFlow accepts it, and not used.

Returns
-------
{returned}

Raises
------
InvalidArgumentError
    Or one of its kinds, as :func:`tfopt.training_ops.apply_{rule.name}` does; nothing has been
    written.
TypeError
    If an argument is missing, unknown, or not given by keyword.

References
----------
{rule.source}.
"""


def _function(op: _Op) -> Callable[..., Any]:
    """Return an op's function, compiled from text as those of the rules are."""
    named = [*op.rule.hypers, *op.rule.flags, *(["indices"] if op.sparse else [])]
    given = ", ".join(["var", *op.rule.slots, op.grad, *(f"{name}={name}" for name in named)])
    lines = [
        f"def {op.name}({_parameters(op)}):",
        f"    update({given})",
        *(["    return var"] if op.ref else []),
    ]
    update_rule = getattr(training_ops, f"apply_{op.rule.name}")
    scope: dict[str, Any] = {"update": update_rule, "__name__": __name__}
    exec("\n".join(lines), scope)
    function = writes("var", *op.rule.slots, returns="var" if op.ref else None)(scope[op.name])
    function.__doc__ = _docstring(op)
    return function  # type: ignore[no-any-return]


globals().update({op.name: _function(op) for op in _OPS.values()})


# ---- ops that train nothing


def ClipByValue(
    *, t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None
) -> Any:
    """Clip each element to two bounds, as :func:`tfopt.clip_by_value` does.

    Parameters
    ----------
    t : array of floats or integers, or Variable
    clip_value_min, clip_value_max : array_like
        Scalars, or arrays of t's shape.
    name : str, optional
        Accepted as TensorFlow accepts it, and not used.

    Returns
    -------
    ndarray, shape and dtype of t
        A tensor, with a gradient, where :func:`tfopt.clip_by_value` returns one.

    Raises
    ------
    InvalidArgumentError
        If a bound has another shape, or as :func:`tfopt.clip_by_value` does.
    """
    if is_recorded(t, clip_value_min, clip_value_max):
        return apply(_CLIP_BY_VALUE, (t, clip_value_min, clip_value_max))
    if device_backend(t) is not None:
        return clip_by_value(t, clip_value_min, clip_value_max)
    array = as_tensor(t, "t", FLOATS + INTEGERS)
    high = as_bound(clip_value_max, "clip_value_max", "ClipByValue", array.dtype)
    low = as_bound(clip_value_min, "clip_value_min", "ClipByValue", array.dtype)
    if {low.shape, high.shape} - {(), array.shape}:
        raise InvalidArgumentError(
            "clip_value_min and clip_value_max must be either of the same shape as input, or a "
            f"scalar. input shape: {_text(array.shape)}clip_value_min shape: {_text(low.shape)}"
            f"clip_value_max shape: {_text(high.shape)}"
        )
    return clip_by_value(array, low, high)


def L2Loss(*, t: Any, name: str | None = None) -> Any:
    """Return half the sum of all squares.

    Parameters
    ----------
    t : array of floats, or Variable
    name : str, optional
        Accepted as TensorFlow accepts it, and not used.

    Returns
    -------
    NumPy scalar, dtype of t
        Summed in float64, in the order of norms, and rounded once. Of a :class:`tfopt.Tensor`, and
        of a Variable while a tape records, it is a tensor, which has a gradient.

    Raises
    ------
    InvalidTypeError
        If t is not of floats.

    Examples
    --------
    >>> from tfopt import raw_ops
    >>> float(raw_ops.L2Loss(t=[3.0, 4.0]))
    12.5
    """
    if is_recorded(t):
        return apply(_L2_LOSS, (t,))
    backend = device_backend(t)
    if backend is not None:
        return backend.l2_loss(t)
    array: Array = as_tensor(t, "t", FLOATS)
    with np.errstate(over="ignore", under="ignore"):
        return (np.float64(sum_of_squares(array)) / 2).astype(array.dtype)


_CLIP_BY_VALUE = Op(
    "ClipByValue", lambda t, low, high: ClipByValue(t=t, clip_value_min=low, clip_value_max=high)
)
_CLIP_BY_VALUE.define(*clipping.by_value)
_L2_LOSS = Op("L2Loss", lambda t: L2Loss(t=t))
_L2_LOSS.define((lambda g, y, t: g * t, "a"))


# ---- dual coordinate ascent


def _optimizer(name: str, flag: str) -> Callable[..., Any]:
    """Return one of the two ops of sdca_optimizer, which spell its `adaptive` differently."""
    inputs = list(inspect.signature(sdca_optimizer).parameters)
    inputs = inputs[: inputs.index("adaptive")]
    text = f"def {name}(*, {', '.join(inputs)}, {flag}=True, name=None):\n"
    text += f"    return optimize({', '.join(inputs)}, {flag})"
    scope: dict[str, Any] = {"optimize": sdca_optimizer, "__name__": __name__}
    exec(text, scope)
    function: Callable[..., Any] = scope[name]
    function.__doc__ = _OPTIMIZER.format(inputs=", ".join(inputs), flag=flag)
    return function


_OPTIMIZER = """Maximize the dual of a linear model, as :func:`tfopt.sdca_ops.sdca_optimizer` does.

Parameters
----------
{inputs}
    As there.
{flag} : bool, default True
    Its `adaptive`.
name : str, optional
    Accepted as TensorFlow accepts it, and not used.

Returns
-------
tfopt.sdca_ops.SdcaResult

Raises
------
InvalidArgumentError
    Or one of its kinds, as there.
TypeError
    If an argument is missing, unknown, or not given by keyword.
"""

SdcaOptimizer = _optimizer("SdcaOptimizer", "adaptative")
SdcaOptimizerV2 = _optimizer("SdcaOptimizerV2", "adaptive")


def SdcaShrinkL1(*, weights: Any, l1: Any, l2: Any, name: str | None = None) -> None:
    """Move each weight by l1 / l2 towards 0, as :func:`tfopt.sdca_ops.sdca_shrink_l1` does.

    Parameters
    ----------
    weights : list of float arrays or Variables
        Changed in place.
    l1, l2 : float
    name : str, optional
        Accepted as TensorFlow accepts it, and not used.

    Raises
    ------
    InvalidArgumentError
        As there; nothing has been written.
    """
    sdca_shrink_l1(weights, l1, l2)


def SdcaFprint(*, input: Any, name: str | None = None) -> Any:
    """Return the fingerprint of each string, as :func:`tfopt.sdca_ops.sdca_fprint` does.

    Parameters
    ----------
    input : list or array of bytes or str, shape (n,)
    name : str, optional
        Accepted as TensorFlow accepts it, and not used.

    Returns
    -------
    ndarray of int64, shape (n, 2)

    Raises
    ------
    InvalidArgumentError
        As there.
    """
    return sdca_fprint(input)


# ---- shapes of the training ops


def _text(shape: Shape | None) -> str:
    if shape is None:
        return "unknown"
    return "[" + ",".join("?" if n is None else str(n) for n in shape) + "]"


def _as_shape(name: str, value: Any) -> Shape | None:
    if value is None:
        return None
    try:
        shape = tuple(None if n is None else operator.index(n) for n in value)
    except TypeError:
        raise InvalidTypeError(
            f"{name} must be a shape, a tuple of integers and None, or None, not {value!r}"
        ) from None
    if any(n is not None and n < 0 for n in shape):
        raise InvalidArgumentError(f"{name} has a negative dimension: {_text(shape)}")
    return shape


def _with_rank(name: str, shape: Shape | None, rank: int) -> None:
    if shape is not None and len(shape) != rank:
        raise InvalidArgumentError(
            f"{name} must be rank {rank} but is rank {len(shape)}: {_text(shape)}"
        )


def _merge(var: Shape | None, name: str, other: Shape | None) -> Shape | None:
    """Return what two descriptions of one shape say together."""
    if var is None or other is None:
        return other if var is None else var
    both = f"var {_text(var)} and {name} {_text(other)}"
    if len(var) != len(other):
        raise InvalidArgumentError(
            f"{both} must be of equal rank, but are {len(var)} and {len(other)}"
        )
    for axis, (m, n) in enumerate(zip(var, other, strict=True)):
        if m is not None and n is not None and m != n:
            raise InvalidArgumentError(
                f"dimension {axis} of {both} must be equal, but are {m} and {n}"
            )
    return tuple(n if m is None else m for m, n in zip(var, other, strict=True))


def infer_shapes(op: str, /, **shapes: Shape | None) -> Shape | None:
    """Return what is known of the shape of an op's result before it is computed.

    Parameters
    ----------
    op : str
        The op's name.
    **shapes : tuple of int or None, or None
        The shape of each input, by its name; a dimension that is None is unknown, and so is all of
        a shape that is None.

    Returns
    -------
    tuple of int or None, or None
        The shape of `var`, with what the other inputs tell of it; None if nothing is known, and
        for `Resource*` ops, which have no result.

    Raises
    ------
    InvalidArgumentError
        If there is no such op, or no inputs of these shapes could be right.
    InvalidTypeError
        If an input is missing, or not one of the op's, or no shape.

    Examples
    --------
    >>> from tfopt.raw_ops import infer_shapes
    >>> infer_shapes("ApplyMomentum", var=(None, 3), accum=None, lr=(), grad=(2, 3), momentum=())
    (2, 3)
    """
    if op not in _OPS:
        raise InvalidArgumentError(f"{op!r} is none of TensorFlow's training ops")
    known = _OPS[op]
    if shapes.keys() != {*known.inputs}:
        raise InvalidTypeError(
            f"{op} takes {', '.join(known.inputs)}, not {', '.join(shapes) or 'nothing'}"
        )
    given = {name: _as_shape(name, shapes[name]) for name in known.inputs}
    var = given["var"]
    for slot in known.rule.slots:
        var = _merge(var, slot, given[slot])
    for hyper in known.rule.hypers:
        _with_rank(hyper, given[hyper], 0)
    grad = given[known.grad]
    if known.sparse:
        grad = _rows(given["indices"], grad)
    var = _merge(var, known.grad, grad)
    return var if known.ref else None


def _rows(indices: Shape | None, grad: Shape | None) -> Shape | None:
    """Return the shape of a variable whose rows a sparse gradient updates."""
    _with_rank("indices", indices, 1)
    if grad is None:
        return None
    if not grad:
        raise InvalidArgumentError("grad must not be a scalar")
    if indices is not None and None not in (grad[0], indices[0]) and grad[0] != indices[0]:
        raise InvalidArgumentError(
            f"the first dimensions of indices {_text(indices)} and grad {_text(grad)} must be equal"
        )
    return (None, *grad[1:])
