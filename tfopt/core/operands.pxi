# NumPy's functions and Python's operators on tensors and variables.

ADD = Op("add", np.add, operator.add, infix="+")
SUBTRACT = Op("subtract", np.subtract, operator.sub, infix="-")
MULTIPLY = Op("multiply", np.multiply, operator.mul, infix="*", ones="ab")
DIVIDE = Op("divide", np.divide, operator.truediv, infix="/", ones="b")
FLOOR_DIVIDE = Op("floor_divide", np.floor_divide, operator.floordiv)
REMAINDER = Op("remainder", np.remainder, operator.mod)
POWER = Op("power", np.power, operator.pow, infix="**", infix_only=True)
MATMUL = Op("matmul", np.matmul, operator.matmul)
NEGATIVE = Op("negative", np.negative, operator.neg)
POSITIVE = Op("positive", np.positive, operator.pos)
ABSOLUTE = Op("absolute", np.absolute, operator.abs)
INVERT = Op("invert", np.invert, operator.invert)
AND = Op("bitwise_and", np.bitwise_and, operator.and_)
OR = Op("bitwise_or", np.bitwise_or, operator.or_)
XOR = Op("bitwise_xor", np.bitwise_xor, operator.xor)
EQUAL = Op("equal", np.equal, operator.eq)
NOT_EQUAL = Op("not_equal", np.not_equal, operator.ne)
LESS = Op("less", np.less, operator.lt)
LESS_EQUAL = Op("less_equal", np.less_equal, operator.le)
GREATER = Op("greater", np.greater, operator.gt)
GREATER_EQUAL = Op("greater_equal", np.greater_equal, operator.ge)

cdef Op _ADD = ADD, _SUBTRACT = SUBTRACT, _MULTIPLY = MULTIPLY, _DIVIDE = DIVIDE
cdef Op _FLOOR_DIVIDE = FLOOR_DIVIDE, _REMAINDER = REMAINDER, _POWER = POWER, _MATMUL = MATMUL
cdef Op _NEGATIVE = NEGATIVE, _POSITIVE = POSITIVE, _ABSOLUTE = ABSOLUTE, _INVERT = INVERT
cdef Op _AND = AND, _OR = OR, _XOR = XOR, _EQUAL = EQUAL, _NOT_EQUAL = NOT_EQUAL
cdef Op _LESS = LESS, _LESS_EQUAL = LESS_EQUAL, _GREATER = GREATER, _GREATER_EQUAL = GREATER_EQUAL

#: The operators' operations, by their ufuncs' names.
OPERATORS = {op.name: op for op in (
    ADD, SUBTRACT, MULTIPLY, DIVIDE, FLOOR_DIVIDE, REMAINDER, POWER, MATMUL, NEGATIVE, POSITIVE,
    ABSOLUTE, INVERT, AND, OR, XOR, EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL,
)}

cdef object _elements(object array, Py_ssize_t n):
    cdef list found = []
    cdef Py_ssize_t k
    for k in range(n):
        found.append(array[k])
    return iter(found)


#: Imported by the first of NumPy's functions that gets a tensor or a variable.
OPERATIONS = "tfopt.autodiff"

cdef dict _ufuncs = None
cdef dict _functions = None
cdef dict _methods = None
cdef object _other_ufunc = None
cdef object _other_function = None
cdef object _writes = None
cdef object _lost = None


def install(dict ufuncs not None, dict functions not None, dict methods not None, other_ufunc,
            other_function, writes, lost):
    """Set what NumPy's functions do to tensors.

    `ufuncs` are operations; `functions` and `methods` take NumPy's arguments. The others are for
    functions that are not in the tables. `writes` says whether a call has an `out`; `lost` reports
    a tensor that a tape records and that is converted to an array or a number.
    """
    global _ufuncs, _functions, _methods, _other_ufunc, _other_function, _writes, _lost
    _ufuncs, _functions, _methods = ufuncs, functions, methods
    _other_ufunc, _other_function, _writes, _lost = other_ufunc, other_function, writes, lost


cdef int _need_operations() except -1:
    """Load what installs them: a variable alone may have needed none so far."""
    if _methods is None:
        imported(OPERATIONS)
    return 0


cdef int _converted(Tensor tensor, str how) except -1:
    """Tell of a tensor that leaves the tapes that record it."""
    if tfopt_recorders == NULL or not has_key(tensor):
        return 0
    for recorder in <tuple>tfopt_recorders:
        if type(recorder) is Tape and known_key(tensor) in (<Tape>recorder).known:
            _lost(how)
            break
    return 0


cdef object _method(str name):
    _need_operations()
    return _methods[name]


cdef object _peek(Operand operand):
    """The array, for what is not its value."""
    return array_of(<Tensor>operand) if type(operand) is Tensor else (<Readable?>operand)._array


NO_OUT = (
    "a result of tensors cannot be written to an `out` or into another array, which would have no "
    "gradient: assign the result, or use numpy()"
)


cdef class Operand:
    """What tensors and variables have in common: NumPy's operators, methods and functions."""

    def __array_ufunc__(self, ufunc, str method, *inputs, **kwargs):
        _need_operations()
        if method == "__call__" and not kwargs:
            op = _ufuncs.get(ufunc)
            if op is not None and len(inputs) == len((<Op>op).vjps):
                if len(inputs) == 2:
                    return _binary(<Op>op, inputs[0], inputs[1])
                if len(inputs) == 1:
                    return _unary(<Op>op, inputs[0])
        return _other_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function, types, args, kwargs):
        _need_operations()
        if ((kwargs and kwargs.get("out") is not None)
                or (len(args) > 1 and _writes(function, args))):
            raise TypeError(NO_OUT)
        handler = _functions.get(function)
        if handler is not None:
            return handler(*args, **kwargs)
        return _other_function(function, args, kwargs)

    def __getattr__(self, str name):
        method = None
        if not name.startswith("__"):   # NumPy's protocols, which are asked for often
            _need_operations()
            method = _methods.get(name)
        if method is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return method.__get__(self)

    @property
    def shape(self):
        """The array's shape."""
        return _peek(self).shape

    @property
    def dtype(self):
        """The array's dtype."""
        return _peek(self).dtype

    @property
    def ndim(self):
        """The number of axes."""
        return _peek(self).ndim

    @property
    def size(self):
        """The number of elements."""
        return _peek(self).size

    @property
    def nbytes(self):
        """The bytes that the elements take."""
        return _peek(self).nbytes

    @property
    def T(self):
        """The value with its axes in reverse order."""
        return _method("transpose")(self)

    @property
    def mT(self):
        """The value with its last two axes swapped."""
        return _method("swapaxes")(self, -1, -2)

    @property
    def real(self):
        """The real part."""
        return _method("real")(self)

    @property
    def imag(self):
        """The imaginary part."""
        return _method("imag")(self)

    @property
    def itemsize(self):
        """The bytes that one element takes."""
        return _peek(self).itemsize

    def searchsorted(self, v, side="left", sorter=None):
        """Find where elements of v would be inserted to keep the order: see np.searchsorted."""
        return np.searchsorted(self, v, side, sorter)

    def __contains__(self, value):
        return bool(np.any(np.equal(self, value)))

    def __setitem__(self, index, value):
        raise TypeError(
            f"{type(self).__name__!r} object does not support item assignment: " + (
                "tensors do not change. Use np.where, or concatenate parts"
                if type(self) is Tensor else
                "tapes would not see it. Assign a whole value, variable.assign(value), or write "
                "into its array while no tape records, variable.numpy()[index] = value"
            )
        )

    def __dir__(self):
        _need_operations()
        return [*object.__dir__(self), *_methods]

    def __getitem__(self, index):
        return _method("__getitem__")(self, index)

    def __iter__(self):
        return _elements(self, len(self))

    def __hash__(self):
        return <Py_hash_t>(<size_t><void *>self >> 4)

    def __add__(self, other):
        return _binary(_ADD, self, other)

    def __radd__(self, other):
        return _binary(_ADD, other, self)

    def __sub__(self, other):
        return _binary(_SUBTRACT, self, other)

    def __rsub__(self, other):
        return _binary(_SUBTRACT, other, self)

    def __mul__(self, other):
        return _product(_MULTIPLY, self, other)

    def __rmul__(self, other):
        return _product(_MULTIPLY, other, self)

    def __truediv__(self, other):
        return _binary(_DIVIDE, self, other)

    def __rtruediv__(self, other):
        return _binary(_DIVIDE, other, self)

    def __floordiv__(self, other):
        return _binary(_FLOOR_DIVIDE, self, other)

    def __rfloordiv__(self, other):
        return _binary(_FLOOR_DIVIDE, other, self)

    def __mod__(self, other):
        return _binary(_REMAINDER, self, other)

    def __rmod__(self, other):
        return _binary(_REMAINDER, other, self)

    def __divmod__(self, other):
        return np.divmod(self, other)

    def __rdivmod__(self, other):
        return np.divmod(other, self)

    def __round__(self, ndigits=None):
        return np.round(self, ndigits or 0)

    def __pow__(self, other, modulus):
        return NotImplemented if modulus is not None else _binary(_POWER, self, other)

    def __rpow__(self, other, modulus):
        return NotImplemented if modulus is not None else _binary(_POWER, other, self)

    def __matmul__(self, other):
        return _product(_MATMUL, self, other)

    def __rmatmul__(self, other):
        return _product(_MATMUL, other, self)

    def __and__(self, other):
        return _binary(_AND, self, other)

    def __rand__(self, other):
        return _binary(_AND, other, self)

    def __or__(self, other):
        return _binary(_OR, self, other)

    def __ror__(self, other):
        return _binary(_OR, other, self)

    def __xor__(self, other):
        return _binary(_XOR, self, other)

    def __rxor__(self, other):
        return _binary(_XOR, other, self)

    def __neg__(self):
        return _unary(_NEGATIVE, self)

    def __pos__(self):
        return _unary(_POSITIVE, self)

    def __abs__(self):
        return _unary(_ABSOLUTE, self)

    def __invert__(self):
        return _unary(_INVERT, self)

    def __eq__(self, other):
        return _binary(_EQUAL, self, other)

    def __ne__(self, other):
        return _binary(_NOT_EQUAL, self, other)

    def __lt__(self, other):
        return _binary(_LESS, self, other)

    def __le__(self, other):
        return _binary(_LESS_EQUAL, self, other)

    def __gt__(self, other):
        return _binary(_GREATER, self, other)

    def __ge__(self, other):
        return _binary(_GREATER_EQUAL, self, other)
