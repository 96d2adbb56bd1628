"""Shape inference for TensorFlow's training ops."""

from __future__ import annotations

import operator
from typing import Any, TypeAlias

from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.rules import FORMS

__all__ = ["Shape", "infer_shapes", "text_of"]

Shape: TypeAlias = tuple[int | None, ...]

_FORMS = {form.name: form for form in FORMS}


def text_of(shape: Shape | None) -> str:
    """Return a shape as TensorFlow's messages have it."""
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
        raise InvalidArgumentError(f"{name} has a negative dimension: {text_of(shape)}")
    return shape


def _with_rank(name: str, shape: Shape | None, rank: int) -> None:
    if shape is not None and len(shape) != rank:
        raise InvalidArgumentError(
            f"{name} must be rank {rank} but is rank {len(shape)}: {text_of(shape)}"
        )


def _merge(var: Shape | None, name: str, other: Shape | None) -> Shape | None:
    """Return what two descriptions of one shape say together."""
    if var is None or other is None:
        return other if var is None else var
    both = f"var {text_of(var)} and {name} {text_of(other)}"
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
    """Infer the shape of an op's result.

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
    if op not in _FORMS:
        raise InvalidArgumentError(f"{op!r} is not one of TensorFlow's training ops")
    form = _FORMS[op]
    if shapes.keys() != {*form.inputs}:
        raise InvalidTypeError(
            f"{op} takes {', '.join(form.inputs)}, not {', '.join(shapes) or 'nothing'}"
        )
    given = {name: _as_shape(name, shapes[name]) for name in form.inputs}
    var = given["var"]
    for slot in form.rule.slots:
        var = _merge(var, slot, given[slot])
    for hyper in form.rule.hypers:
        _with_rank(hyper, given[hyper], 0)
    grad = given[form.grad]
    if form.sparse:
        grad = _rows(given["indices"], grad)
    var = _merge(var, form.grad, grad)
    return var if form.ref else None


def _rows(indices: Shape | None, grad: Shape | None) -> Shape | None:
    """Return the shape of a variable whose rows a sparse gradient updates."""
    _with_rank("indices", indices, 1)
    if grad is None:
        return None
    if not grad:
        raise InvalidArgumentError("grad must not be a scalar")
    if indices is not None and None not in (grad[0], indices[0]) and grad[0] != indices[0]:
        raise InvalidArgumentError(
            f"the first dimensions of indices {text_of(indices)} and grad {text_of(grad)} must be "
            "equal"
        )
    return (None, *grad[1:])
