# Tensors: immutable arrays with an identity.

@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Key:
    """The identity of a tensor: several tensors may have the same array."""


cdef inline Key key_of(Tensor tensor):
    return known_key(tensor) if has_key(tensor) else _new_key(tensor)


cdef Key _new_key(Tensor tensor):
    with cython.critical_section(tensor):
        if tensor.key is None:
            tfopt_share_key(tensor, Key.__new__(Key))
    return tensor.key


cdef bint differentiable(object value):
    """Whether gradients exist for an array's dtype."""
    cdef int kind
    if cnp.PyArray_Check(value):
        kind = cnp.PyArray_TYPE(<cnp.ndarray>value)
        return (cnp.PyTypeNum_ISFLOAT(kind) or cnp.PyTypeNum_ISCOMPLEX(kind)
                or (cnp.PyTypeNum_ISUSERDEF(kind) and value.dtype.name == "bfloat16"))
    return isinstance(value, _inexact) or type(value).__name__ == "bfloat16"


cdef Tensor wrap(object value):
    """A tensor of an array that nobody will change."""
    cdef Tensor tensor = Tensor.__new__(Tensor)
    cdef Lease lease = _lease_of(value)
    if not cnp.PyArray_Check(value) and not isinstance(value, np.generic):
        value = np.asarray(value)   # of an array of objects, NumPy returns what is in it
    tensor.a = value
    if lease is not None and not lease.add(tensor):
        tensor.a = np.array(value)
    return tensor


def wrapped(value):
    """A tensor of an array, or of a NumPy scalar, that nobody will change."""
    return wrap(value)


def renamed(Tensor tensor not None):
    """Another tensor of the same array."""
    return wrap(array_of(tensor))


def raw(value):
    """A tensor's or a variable's array; anything else as it is."""
    if type(value) is Tensor:
        return array_of(<Tensor>value)
    if isinstance(value, Readable):
        return array_of(read(<Readable>value))
    return value


def peek(Operand operand not None):
    """The array, for its shape and dtype, or where the value is known to be meant."""
    return _peek(operand)


def stable(Tensor tensor not None):
    """A tensor's array; a copy of what lies in a variable's memory."""
    array = array_of(tensor)
    return array if _lease_of(array) is None else np.array(array)


def fill(Tensor tensor not None, value):
    """Give a tensor of a trace the value that it has in some call."""
    tensor.a = value


def forget(Tensor tensor not None):
    """Let the value of a tensor of a trace go, all but its shape and dtype."""
    array = array_of(tensor)
    if (cnp.PyArray_Check(array) and cnp.PyArray_NBYTES(<cnp.ndarray>array) > 1024
            and _has_numbers(array)):
        tensor.a = _dummy(array)


def placeholder(Tensor tensor not None):
    """Another tensor of the same shape and dtype."""
    return wrap(stable(tensor))


def tensor_kinds(tuple values not None):
    """The shapes and dtypes of tensors and arrays; None if there is something else."""
    cdef list kinds = []
    for value in values:
        array = array_of(<Tensor>value) if type(value) is Tensor else value
        if not cnp.PyArray_Check(array) and type(value) is not Tensor:
            return None
        kinds.append(array.shape)
        kinds.append(array.dtype)
    return tuple(kinds)


def key(Tensor tensor not None):
    """The key by which recorders identify a tensor."""
    return key_of(tensor)


def zeros(Tensor like not None):
    """A tensor of zeros of another's shape and dtype."""
    return wrap(np.zeros(like.a.shape, like.a.dtype))


def is_differentiable(value):
    """Whether gradients exist for the dtype of an array, a tensor or a variable."""
    if isinstance(value, Readable):
        return differentiable((<Readable>value)._array)
    return differentiable(array_of(<Tensor>value) if type(value) is Tensor else value)


@cython.final
@cython.no_gc
cdef class Tensor(Operand):
    """An immutable array whose operations can be recorded.

    NumPy's functions, operators and methods accept tensors and return tensors.

    Parameters
    ----------
    value : array_like
        Copied.
    dtype : dtype, optional

    See Also
    --------
    tfopt.constant : makes tensors, too.

    Examples
    --------
    >>> import numpy as np
    >>> import tfopt
    >>> x = tfopt.Tensor([1.0, 4.0])
    >>> np.sqrt(x) + 1
    <Tensor shape=(2,) dtype=float64 [2. 3.]>
    """

    def __init__(self, value, dtype=None):
        refuse_masked(value)
        self.a = np.array(value, dtype)

    def numpy(self):
        """Return the array, read-only.

        Raises
        ------
        AttributeError
            If the tensor is symbolic: a function is being traced, and the value is not known yet.
        """
        _refuse_symbolic(self, AttributeError, "a symbolic Tensor has no numpy()")
        array = array_of(self)
        if _lease_of(array) is not None:
            return np.array(array)
        array = np.asarray(array).view()
        array.flags.writeable = False
        return array

    def numpy_like(self):
        """The shape and the dtype."""
        array = array_of(self)
        return array.shape, array.dtype

    def item(self, *index):
        """Return one element as a Python number."""
        return self._value().item(*index)

    def tolist(self):
        """Return the elements as nested lists of Python numbers."""
        return self._value().tolist()

    def tobytes(self, order="C"):
        """Return the bytes of the elements."""
        return self._value().tobytes(order)

    def _value(self):
        _refuse_symbolic(
            self, TypeError, "Using a symbolic Tensor as a Python value is not allowed"
        )
        return array_of(self)

    def __array__(self, dtype=None, copy=None):
        if array_of(self).ndim and of_sparse_product(0):
            return no_array()
        _refuse_symbolic(self, NotImplementedError,
                         "Cannot convert a symbolic Tensor to a NumPy array")
        _converted(self, "an array")
        return np.array(self.numpy(), dtype, copy=copy)

    def __len__(self):
        if array_of(self).ndim == 0:
            raise TypeError("Scalar tensor has no `len()`")
        return array_of(self).shape[0]

    def __iter__(self):
        if array_of(self).ndim == 0:
            raise TypeError("Cannot iterate over a scalar tensor.")
        return _elements(self, array_of(self).shape[0])

    def __bool__(self):
        _refuse_symbolic(self, TypeError,
                         "Using a symbolic Tensor as a Python `bool` is not allowed")
        return bool(array_of(self))

    def __float__(self):
        value = self._value()
        _converted(self, "a float")
        return float(value)

    def __int__(self):
        return int(self._value())

    def __complex__(self):
        value = self._value()
        _converted(self, "a complex number")
        return complex(value)

    def __index__(self):
        return operator.index(self._value())

    def __format__(self, str spec):
        return format(self._value().item() if array_of(self).ndim == 0 else str(self), spec)

    def __reduce__(self):
        return Tensor, (self.numpy(),)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __repr__(self):
        trace = tracing()
        array = array_of(self)
        shown = "symbolic" if trace is not None and trace.is_symbolic(self) else str(array)
        return f"<Tensor shape={array.shape} dtype={array.dtype} {shown}>"


cdef int _refuse_symbolic(Tensor tensor, error, str message) except -1:
    if has_key(tensor) and known_key(tensor).symbolic:
        _refuse_leaked(tensor)
        if tracing().is_symbolic(tensor):
            raise error(
                f"{message}: the function is being traced, and the value is known at each call "
                "alone. Use np.where for a choice, return the tensor, or leave the function "
                "untraced"
            )
    return 0
