"""Constants, and tensors that stop gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfopt.autodiff.operands import as_tensor, operand
from tfopt.core import engine
from tfopt.core.engine import CUT, Op, Tensor, apply
from tfopt.core.nest import flatten, pack

__all__ = ["Tensor", "constant", "stop_gradient"]


def constant(value: Any, dtype: Any = None, shape: Any = None) -> Tensor:
    """Return a tensor with a copy of a value.

    Parameters
    ----------
    value : array_like
        Python numbers get NumPy's dtypes: float64 and int64.
    dtype : dtype, optional
    shape : sequence of int, optional
        The value is reshaped to it, or repeated if it is a single element.

    Returns
    -------
    Tensor

    Raises
    ------
    ValueError
        If the value is not an array of numbers, or does not fit the shape.

    Notes
    -----
    TensorFlow's ``tf.constant``, except for the dtypes of Python numbers.

    Examples
    --------
    >>> import tfopt
    >>> tfopt.constant([1, 2], "float32") * 2
    <Tensor shape=(2,) dtype=float32 [2. 4.]>
    """
    if isinstance(value, engine.Operand):
        value = as_tensor(value)._value()
    array = np.array(operand(value), dtype)
    if array.dtype.kind == "O":
        as_tensor(value)
    if shape is not None:
        fits = array.size == 1 and tuple(shape) != array.shape
        array = np.full(shape, array.reshape(-1)[0]) if fits else array.reshape(shape)
    return engine.wrapped(array)


STOP = Op("StopGradient", lambda a: a, identity=True)
STOP.define(CUT)


def stop_gradient(input: Any, name: str | None = None) -> Any:
    """Return the same value, as a constant for gradients.

    Parameters
    ----------
    input : tensor, variable or array, or a nested structure of them
    name : str, optional
        Accepted as TensorFlow accepts it, and not used.

    Returns
    -------
    Tensor, or a structure of them

    Notes
    -----
    TensorFlow's ``tf.stop_gradient``.

    Examples
    --------
    >>> import tfopt
    >>> x = tfopt.constant(3.0)
    >>> with tfopt.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = tfopt.stop_gradient(x) * x
    >>> float(tape.gradient(y, x))
    3.0
    """
    return pack(input, [apply(STOP, (as_tensor(leaf),)) for leaf in flatten(input)])
