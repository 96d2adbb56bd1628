# Nodes: the records of operations.

@cython.final
@cython.freelist(256)
cdef class Node:
    """An operation that was carried out, with its inputs and outputs.

    Parameters
    ----------
    op : Op, or an object with a method ``grad(node, upstreams, need)``
    ins, outs : tuple
    kw : dict or None

    Attributes
    ----------
    where : tuple of (str, int) or None
        The user's file and line, if the operation was traced.
    """

    def __init__(self, op, tuple ins not None, tuple outs not None, dict kw=None):
        self.op, self.ins, self.outs, self.kw = op, ins, outs, kw


cdef object _ghost(object value):
    """The same with no more of the value than shape and dtype."""
    cdef cnp.ndarray array
    cdef Tensor tensor, other
    cdef object found = array_of(<Tensor>value) if type(value) is Tensor else value
    cdef object ghost
    if not cnp.PyArray_Check(found):
        return value
    array = found
    if cnp.PyArray_NBYTES(array) <= SMALL or not _has_numbers(array):
        return value
    ghost = _dummy(array)
    if type(value) is not Tensor:
        return ghost
    tensor = value
    other = Tensor.__new__(Tensor)
    other.key = key_of(tensor)
    other.a = ghost
    return other


cdef bint _has_numbers(cnp.ndarray array) except -1:
    """Whether elements are numbers, which any bits are, and no larger than a ghost's only one."""
    return array.descr.kind in b"biufc" or differentiable(array)


cdef tuple _ghosts(tuple values):
    cdef list ghosts = []
    for value in values:
        ghosts.append(_ghost(value))
    return tuple(ghosts)


cdef unsigned char[64] _nothing     # in every floating type a NaN
memset(_nothing, 0xff, sizeof(_nothing))


cdef object _dummy(cnp.ndarray array):
    cdef cnp.npy_intp[64] strides
    cdef cnp.dtype descr = (<object>array).dtype
    cdef int k
    for k in range(array.ndim):
        strides[k] = 0
    Py_INCREF(descr)
    return cnp.PyArray_NewFromDescr(&cnp.PyArray_Type, descr, array.ndim, array.shape, strides,
                                    _nothing, cnp.NPY_ARRAY_ALIGNED, NULL)


cpdef object owned(object value):
    """The same, with copies of containers and arrays, which their owners may change."""
    cdef list parts
    cdef bint same = True
    kind = type(value)
    if value is None or kind is Tensor or kind in _unchanging:
        return value
    if kind is tuple or kind is list:
        parts = []
        for part in value:
            kept = owned(part)
            same = same and kept is part
            parts.append(kept)
        if kind is list:
            return parts
        return value if same else tuple(parts)
    if kind is dict:
        return {name: owned(part) for name, part in value.items()}
    if isinstance(value, (list, tuple, dict)):
        return pack(value, list(map(owned, flatten(value))))
    if cnp.PyArray_Check(value):
        return np.array(value, subok=True)
    # what has the function's protocol answers for itself, as tensors, variables and slices do
    if hasattr(value, "__array__") and not hasattr(value, "__array_function__") \
            and not isinstance(value, (type, np.generic)):
        return np.array(value)
    return value


cdef inline long long _bit(Py_ssize_t place) noexcept:
    """The bit of an input; those beyond the last bit share it."""
    return 1LL << (place if place < OUTPUT - 1 else OUTPUT - 1)


cpdef int record(object op, tuple ins, tuple outs, dict kw=None) except -1:
    """Report an operation to all recorders of this thread.

    `ins` are tensors and constants; of an operation that is no Op everything is kept.
    """
    cdef tuple active
    cdef long long need = 0
    cdef Tensor x, y
    cdef Node node
    cdef Tape tape
    cdef list takers
    cdef Py_ssize_t k
    cdef bint traced
    if tfopt_recorders == NULL or not outs:
        return 0
    active = <tuple>tfopt_recorders
    takers = None
    traced = type(active[0]) is Trace
    for recorder in active:
        if type(recorder) is Tape:
            tape = recorder
            wanted = False
            for k in range(len(ins)):
                value = ins[k]
                if type(value) is Tensor and has_key(<Tensor>value):
                    if known_key(<Tensor>value) in tape.known:
                        need |= _bit(k)
                        wanted = True
            if wanted:
                if takers is None:
                    takers = [tape]
                else:
                    takers.append(tape)
    if takers is None and not traced:
        return 0
    if tfopt_overrides != NULL:
        op = _overridden(op)
    if type(op) is Op and (<Op>op).cut:
        if not traced:
            return 0
        takers = None
    if traced and type(op) is Op:
        _assert_facts(<Op>op, ins, outs)    # before arrays are copied
    if traced or type(op) is not Op or ((<Op>op).vjps is None and (<Op>op).joint is None):
        node = Node.__new__(Node)
        node.op, node.ins, node.outs, node.kw = op, owned(ins), outs, owned(kw)
    else:
        node = _spare_node(op, ins, outs, kw, need)
    if traced:
        (<Trace>active[0]).add(node)
    if takers is not None:
        for taker in takers:
            tape = taker
            tape.nodes.append(node)
            for value in outs:
                y = value
                if differentiable(array_of(y)):
                    tape.known.add(key_of(y))
                elif _has_objects(array_of(y)):
                    _lost("an array of objects", False, OF_OBJECTS)
    return 1


#: What to do about it.
OF_OBJECTS = "Convert what has the dtype object first: astype(float)"


cdef bint _has_objects(object value) except -1:
    return cnp.PyArray_Check(value) and (<cnp.ndarray>value).descr.kind == b"O"


cdef Node _spare_node(Op op, tuple ins, tuple outs, dict kw, long long need):
    """A node that keeps only what the gradients of the inputs in `need` read."""
    cdef Node node = Node.__new__(Node)
    cdef long long reads = 0, bit
    cdef Py_ssize_t k, n = len(ins)
    cdef object value
    if op.joint is not None:
        reads = op.saves[0]
    elif op.vjps is not None:
        for k in range(min(n, <Py_ssize_t>len(op.saves))):
            if need & _bit(k):
                reads |= <long long>op.saves[k]
    kept = None
    for k in range(n):
        value = ins[k]
        value = owned(value) if reads & _bit(k) else _ghost(value)
        if value is not ins[k]:
            kept = list(ins) if kept is None else kept
            kept[k] = value
    node.op, node.kw = op, owned(kw)
    node.ins = ins if kept is None else tuple(kept)
    if reads & (1LL << OUTPUT):
        node.outs = outs
    else:
        node.outs = _ghosts(outs)
    return node


cdef object _overridden(object op):
    """What a gradient override map makes of an operation."""
    chosen = (<dict>tfopt_overrides).get(op.name)
    return op if chosen is None else chosen(op)
