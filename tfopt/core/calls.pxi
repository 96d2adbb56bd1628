# Carrying operations out.

cdef int _refuse_leaked(Tensor tensor) except -1:
    """Refuse a tensor of a trace that is over."""
    if has_key(tensor) and known_key(tensor).symbolic and tracing() is None:
        raise TypeError(
            f"a symbolic Tensor of shape {array_of(tensor).shape} is out of scope and cannot be "
            "used here. Use return values, explicit Python locals or variables to access it."
        )
    return 0


def refuse_masked(value):
    """Refuse a masked array, whose mask would be dropped."""
    if cnp.PyArray_Check(value) and not cnp.PyArray_CheckExact(value) \
            and isinstance(value, np.ma.MaskedArray):
        raise InvalidTypeError(
            "a masked array cannot become a tensor, which has no mask: pass the numbers, "
            "array.filled(0), and the mask, np.ma.getmaskarray(array), and use np.where"
        )


cdef object _operand(object value):
    """What an operator can be applied to, or NotImplemented."""
    if type(value) is Tensor:
        _refuse_leaked(<Tensor>value)
        return value
    if type(value) is float or type(value) is int:
        return value
    if isinstance(value, Readable):
        return read(<Readable>value)
    if cnp.PyArray_Check(value):
        refuse_masked(value)
        return value
    if isinstance(value, _number):
        return value
    _need_operations()
    return convert(value)


#: Makes an operand of a list or of slices; set by the module of the functions.
convert = None


def set_convert(function):
    """Set what makes operands of other values than tensors, arrays and numbers."""
    global convert
    convert = function


#: Multiplies by a sparse matrix of SciPy's, or returns NotImplemented.
sparse_product = None


def set_sparse_product(function):
    """Set what multiplies a tensor and a sparse matrix: `*` is a product of matrices alone."""
    global sparse_product
    sparse_product = function


def no_array():
    """What stands for an operand that is no array: SciPy lets it multiply."""
    return np.empty((), object)


cdef object _product(Op op, object x, object y):
    """A product, also with a sparse matrix."""
    result = _binary(op, x, y)
    return sparse_product(x, y, op is _MATMUL) if result is NotImplemented else result


cdef object _binary(Op op, object x, object y):
    cdef Tensor result
    x = _operand(x)
    y = _operand(y)
    if x is NotImplemented or y is NotImplemented:
        return NotImplemented
    result = wrap(op.quick(array_of(<Tensor>x) if type(x) is Tensor else x,
                           array_of(<Tensor>y) if type(y) is Tensor else y))
    if tfopt_recorders != NULL:
        record(op, (x, y), (result,))
    return result


cdef object _unary(Op op, object x):
    cdef Tensor result
    x = _operand(x)
    if x is NotImplemented:
        return x
    result = wrap(op.quick(array_of(<Tensor>x) if type(x) is Tensor else x))
    if tfopt_recorders != NULL:
        record(op, (x,), (result,))
    return result


cdef tuple _read_all(tuple ins):
    cdef list values = []
    for x in ins:
        values.append(read(<Readable>x) if isinstance(x, Readable) else x)
    return tuple(values)


cdef tuple _wrap_all(tuple arrays):
    cdef list tensors = []
    for x in arrays:
        tensors.append(wrap(x))
    return tuple(tensors)


cpdef object apply(Op op, tuple ins, dict kw=None):
    """Carry an operation out, and record it.

    `ins` are tensors, variables, arrays and constants.
    """
    cdef Py_ssize_t k
    cdef list arrays = []
    cdef tuple outs
    cdef object value, made
    if op.views and cnp.PyArray_Check(ins[0]):  # its owner may write into what the result shows
        ins = (np.array(ins[0]), *ins[1:])
    for value in ins:
        if type(value) is Tensor:
            _refuse_leaked(<Tensor>value)
            arrays.append(array_of(<Tensor>value))
        elif isinstance(value, Readable):
            ins = _read_all(ins)
            arrays = []
            for value in ins:
                arrays.append(array_of(<Tensor>value) if type(value) is Tensor else value)
            break
        else:
            arrays.append(value)
    if kw:
        made = op.fn(*arrays, **kw)
    elif len(arrays) == 1:
        made = op.quick(arrays[0])
    elif len(arrays) == 2:
        made = op.quick(arrays[0], arrays[1])
    else:
        made = op.fn(*arrays)
    if type(made) is tuple:
        outs = _wrap_all(<tuple>made)
    else:
        outs = (wrap(made),)
    if tfopt_recorders != NULL:
        record(op, ins, outs, kw)
    return outs if type(made) is tuple else outs[0]


def replayed(program, variables, tensors):
    """The tensors that a program of arrays makes of tensors, variables and arrays."""
    cdef list arrays = [variables], made = []
    for x in tensors:
        arrays.append(raw(x))
    for y in program(*arrays):
        made.append(wrap(y))
    return made
