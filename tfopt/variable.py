"""An array with a name and a lock."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from tfopt.core.backends import backend_of, is_device_array
from tfopt.core.callers import of_sparse_product
from tfopt.core.copies import writable
from tfopt.core.effects import prepare_writes, use_variables, writes
from tfopt.core.engine import NAMED, Readable, no_array, tracing, used
from tfopt.core.locks import ProcessLock
from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels.arrays.coerce import of_torch
from tfopt.storage import BLOCKS

__all__ = ["Variable", "prepare_writes"]


_SERIALS = itertools.count()


@use_variables
class Variable(Readable):
    """An array that an optimizer updates in place.

    Parameters
    ----------
    initial_value : array_like
        An array, on the host or a GPU, is wrapped, not copied: it shares its memory with the
        variable. Anything else is converted to a new array.
    name : str, optional
        Used in messages and to name the optimizer's slots.
    dtype : dtype, optional
        The dtype of a value that is not an array; an array must already have it.
    constraint : callable, optional
        Called with the array after an optimizer's step; returns the value to assign, for example a
        projection.
    trainable : bool, default True
        Whether tapes watch the variable when it is read.

    Attributes
    ----------
    name : str
    lock : threading.RLock
        Held by updates with `use_locking`. Hold it to read a value while no such update changes
        it, and while computing with what was read: tensors and tapes share the variable's memory
        until it is written.

    Raises
    ------
    InvalidArgumentError
        If the array is read-only.
    InvalidTypeError
        If `dtype` differs from the array's, or the value is not numeric.

    Examples
    --------
    >>> import numpy as np
    >>> from tfopt import Variable
    >>> weights = np.zeros(3)
    >>> v = Variable(weights, name="weights")
    >>> v.assign_add([1, 2, 3])
    <Variable 'weights' shape=(3,) dtype=float64 [1. 2. 3.]>
    >>> weights
    array([1., 2., 3.])
    """

    __slots__ = ("_constraint", "_lock", "_serial", "name")

    def __init__(
        self,
        initial_value: Any,
        name: str | None = None,
        dtype: Any = None,
        constraint: Callable[[Any], Any] | None = None,
        trainable: bool = True,
    ) -> None:
        if is_device_array(initial_value):
            if dtype is not None:
                raise InvalidTypeError(
                    "dtype cannot be given for an array on a GPU; convert the array first"
                )
            self._array = initial_value
        else:
            self._array = _host_array(initial_value, dtype, name)
        self.name = "Variable" if name is None else name
        self._constraint = constraint
        self.trainable = trainable
        self._lock = ProcessLock()
        self._serial = next(_SERIALS)
        trace = tracing()
        if trace is not None:
            trace.create()
        if name is not None:
            serial = self._serial
            NAMED[serial] = weakref.ref(self, lambda _: NAMED.pop(serial, None))

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""
        return tuple(self._array.shape)

    @property
    def dtype(self) -> Any:
        """The array's NumPy dtype, also on a GPU."""
        array = self._array
        return array.dtype if isinstance(array, np.ndarray) else backend_of(self).dtype_of(array)

    @property
    def constraint(self) -> Callable[[Any], Any] | None:
        """The function that an optimizer applies to the value after each step."""
        return self._constraint

    @property
    def lock(self) -> Any:
        """A reentrant lock, held by updates with `use_locking`; a forked child has its own."""
        return self._lock.here

    @property
    def device(self) -> str:
        """The array's device: "cpu" or "gpu"."""
        return "cpu" if isinstance(self._array, np.ndarray) else "gpu"

    @property
    def __array_interface__(self) -> dict[str, Any]:
        array = self._array
        # the interface cannot describe bfloat16; in a trace, __array__ raises a better error
        if (
            not isinstance(array, np.ndarray)
            or array.dtype.kind == "V"
            or tracing() is not None
            or of_sparse_product(1)
        ):
            raise AttributeError("__array_interface__")
        self._converted("an array")
        return array.__array_interface__

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if isinstance(self._array, np.ndarray):
            raise AttributeError("__cuda_array_interface__")
        interface: dict[str, Any] = self._array.__cuda_array_interface__
        return interface

    def value(self) -> Any:
        """Return the array itself, on the host or a GPU.

        Tapes record computations with the variable, but not those with this array.

        Raises
        ------
        InvalidTypeError
            While a function is traced: its calls must read the variable each time.
        """
        self._refuse_trace()
        return self._array

    def numpy(self) -> np.ndarray:
        """Return the array itself, not a copy.

        Raises
        ------
        InvalidTypeError
            If the array is on a GPU, or a function is being traced.
        """
        if not isinstance(self._array, np.ndarray):
            raise InvalidTypeError(f"{self.name} is on a GPU; copy its value() to the host")
        self._refuse_trace()
        return self._array

    def _refuse_trace(self) -> None:
        if tracing() is not None:
            raise InvalidTypeError(
                f"cannot read the value of {self.name} while a function is being traced: it "
                "differs from call to call; use the variable itself"
            )

    @writes("self", returns="self")
    def assign(self, value: Any) -> Variable:
        """Write `value`, of the same shape, into the array.

        If the array is on a GPU, the value may be on the host, or a GPU array of the same library.

        Raises
        ------
        InvalidArgumentError
            If the shapes differ: values are not broadcast.
        InvalidTypeError
            If the dtype is of another kind.
        """
        if self.device == "cpu":
            self._array[...] = self._fitting(value)
            used(self)
            return self
        backend = backend_of(self)
        if is_device_array(value):
            self._check_shape(tuple(value.shape))
        else:
            value = self._fitting(value).astype(self.dtype)
        backend.write(self._array, value)
        return self

    @writes("self", returns="self")
    def assign_add(self, delta: Any) -> Variable:
        """Add `delta`, of the same shape, to the array."""
        array, delta = self.numpy(), self._fitting(delta)
        array += delta
        used(self)
        return self

    @writes("self", returns="self")
    def assign_sub(self, delta: Any) -> Variable:
        """Subtract `delta`, of the same shape, from the array."""
        array, delta = self.numpy(), self._fitting(delta)
        array -= delta
        used(self)
        return self

    @writes("self")
    def constrain(self) -> None:
        """Apply the constraint, if there is one, and assign its result."""
        if self.constraint is not None:
            self.assign(self.constraint(self._array))

    def _fitting(self, value: Any) -> np.ndarray:
        array, dtype = np.asarray(value), self.dtype
        self._check_shape(array.shape)
        if not np.can_cast(array.dtype, dtype, "same_kind"):
            raise InvalidTypeError(f"cannot assign {array.dtype} to {self.name} of dtype {dtype}")
        return array

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        if shape != self.shape:
            raise InvalidArgumentError(
                f"cannot assign shape {list(shape)} to {self.name} of shape {list(self.shape)}"
            )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self.shape and of_sparse_product(1):
            return no_array()
        return np.array(self.numpy(), dtype, copy=copy)

    def __reduce__(self) -> Any:
        parts = type(self), self._array, self.name, self._constraint, self.trainable
        return _again, parts

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("Scalar tensor has no `len()`")
        return self.shape[0]

    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __int__(self) -> int:
        return int(self.numpy())

    def __float__(self) -> float:
        self._converted("a float")
        return float(self.numpy())

    def __complex__(self) -> complex:
        self._converted("a complex number")
        return complex(self.numpy())

    def _in_place(self, other: Any) -> NoReturn:
        raise RuntimeError(
            "`variable += value` with `tf.Variable`s is not supported. Use "
            "`variable.assign_add(value)` to modify the variable or `out = variable + value` if "
            "you need to get a new output Tensor."
        )

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ifloordiv__ = _in_place
    __imod__ = __ipow__ = __imatmul__ = _in_place

    def __repr__(self) -> str:
        on_host = isinstance(self._array, np.ndarray)
        shown = "symbolic" if tracing() is not None else str(self._array) if on_host else "on a GPU"
        return f"<Variable {self.name!r} shape={self.shape} dtype={self.dtype} {shown}>"


def _host_array(value: Any, dtype: Any, name: str | None) -> np.ndarray:
    """Return an array unchanged; convert other values to a new array."""
    if isinstance(value, np.ndarray):
        if dtype is not None and value.dtype != dtype:
            raise InvalidTypeError(
                f"the array is {value.dtype}, not {np.dtype(dtype)}; convert it first"
            )
        if not value.flags.writeable:
            named = "" if name is None else f"{name}: "
            raise InvalidArgumentError(
                f"{named}a Variable cannot wrap a read-only array: pass a copy, np.array(x)"
            )
    if isinstance(value, np.ndarray):
        array = value
    else:
        shared = of_torch(value, name or "initial_value")
        array = np.array(value if shared is None else shared, dtype)
    is_number = array.dtype.kind in "fciub" or array.dtype.name == "bfloat16"
    if not is_number and array.dtype not in BLOCKS:
        raise InvalidTypeError(f"a Variable must hold numbers, not {array.dtype}")
    return array


def _again(cls: type[Variable], array: Any, name: str, *rest: Any) -> Variable:
    """Return a copied or unpickled Variable, which `get_variable_by_name` does not find."""
    variable = cls(writable(array), None, None, *rest)
    variable.name = name
    return variable
