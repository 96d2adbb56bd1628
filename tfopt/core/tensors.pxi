# Tensors of arrays, and variables' snapshots that share their memory.

@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Key:
    """Who a tensor is: tensors of one array may be several."""


cdef inline Key key_of(Tensor tensor):
    if tensor.key is None:
        tensor.key = Key.__new__(Key)
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
    tensor.a = value
    if lease is not None:
        lease.add(tensor)
    return tensor


cdef Lease _lease_of(object value):
    """The lease of an array that lies in a variable's memory, or None."""
    cdef PyObject *base
    cdef object owner
    if not cnp.PyArray_Check(value):
        return None
    base = cnp.PyArray_BASE(<cnp.ndarray>value)
    if base == NULL:
        return None
    owner = <object>base
    if cnp.PyArray_Check(owner):
        base = cnp.PyArray_BASE(<cnp.ndarray>owner)
        if base == NULL:
            return None
        owner = <object>base
    return <Lease>owner if type(owner) is Lease else None


def wrapped(value):
    """A tensor of an array, or of a NumPy scalar, that nobody will change."""
    return wrap(value)


def renamed(Tensor tensor not None):
    """Another tensor of the same array."""
    return wrap(tensor.a)


def raw(value):
    """A tensor's or a variable's array; anything else as it is."""
    if type(value) is Tensor:
        return (<Tensor>value).a
    if isinstance(value, Readable):
        return read(<Readable>value).a
    return value


def peek(Operand operand not None):
    """The array, for its shape and dtype, or where the value is known to be meant."""
    return _peek(operand)


def stable(Tensor tensor not None):
    """A tensor's array; a copy of what lies in a variable's memory."""
    return tensor.a if _lease_of(tensor.a) is None else np.array(tensor.a)


def fill(Tensor tensor not None, value):
    """Give a tensor of a trace the value that it has in some call."""
    tensor.a = value


def forget(Tensor tensor not None):
    """Let the value of a tensor of a trace go, all but its shape and dtype."""
    if cnp.PyArray_Check(tensor.a) and cnp.PyArray_NBYTES(<cnp.ndarray>tensor.a) > 1024:
        tensor.a = _dummy(tensor.a)


def placeholder(Tensor tensor not None):
    """Another tensor of the same shape and dtype."""
    return wrap(stable(tensor))


def tensor_kinds(tuple values not None):
    """The shapes and dtypes of tensors and arrays; None if there is something else."""
    cdef list kinds = []
    for value in values:
        array = (<Tensor>value).a if type(value) is Tensor else value
        if not cnp.PyArray_Check(array) and type(value) is not Tensor:
            return None
        kinds.append(array.shape)
        kinds.append(array.dtype)
    return tuple(kinds)


def key(Tensor tensor not None):
    """What recorders know a tensor by."""
    return key_of(tensor)


def zeros(Tensor like not None):
    """A tensor of zeros of another's shape and dtype."""
    return wrap(np.zeros(like.a.shape, like.a.dtype))


def is_differentiable(value):
    """Whether gradients exist for the dtype of an array, a tensor or a variable."""
    if isinstance(value, Readable):
        return differentiable((<Readable>value)._array)
    return differentiable((<Tensor>value).a if type(value) is Tensor else value)


@cython.final
@cython.freelist(16)
cdef class Lease:
    """The base of a snapshot's array, and of views of it: which tensors lie in a variable's memory.
    """

    cdef int add(self, Tensor tensor) except -1:
        if len(self.views) >= self.limit:
            views = []
            for ref in self.views:
                if ref() is not None:
                    views.append(ref)
            self.views = views
            self.limit = 2 * len(self.views) + 16
        self.views.append(weakref.ref(tensor))
        return 0


cdef class Readable(Operand):
    """What of a variable the engine knows: its array, and the snapshot of it that readers share."""

    cdef Tensor current(self):
        if self.snapshot is None:
            self.snapshot = _snapshot(self._array)
        return self.snapshot

    def _before_write(self):
        """Give copies to the tensors that lie in the array; the next read is another tensor."""
        if self.snapshot is None:
            return
        cdef Tensor tensor
        cdef Lease lease = (<object>self.snapshot.a).base
        cdef list views = lease.views
        self.snapshot = None    # dies here unless somebody holds it
        for ref in views:
            tensor = ref()
            if tensor is not None and _lease_of(tensor.a) is not None:
                tensor.a = np.array(tensor.a)
        lease.views = []

    def _converted(self, str how):
        """Tell of a variable that becomes something else while a tape would watch it."""
        cdef Tape tape
        if tfopt_recorders == NULL or not differentiable(self._array):
            return
        for recorder in <tuple>tfopt_recorders:
            if type(recorder) is Tape:
                tape = recorder
                if (tape.watch_accessed and self.trainable) or self in tape.variables:
                    _lost(how, True)
                    break

    def _read(self):
        """The variable's value now, as a tensor, which recorders see."""
        return read(self)


cdef Tensor _snapshot(object array):
    if not isinstance(array, np.ndarray):
        raise TypeError(
            "a variable on a GPU cannot be differentiated; copy its value() to the host"
        )
    cdef cnp.ndarray owner = array
    cdef Lease lease = Lease.__new__(Lease)
    cdef cnp.dtype descr = array.dtype
    lease.array = array
    lease.views = []
    lease.limit = 16
    Py_INCREF(descr)    # the reference is the new array's
    view = PyArray_NewFromDescr(&PyArray_Type, descr, owner.ndim, owner.shape, owner.strides,
                                owner.data, 0, NULL)
    Py_INCREF(lease)
    cnp.PyArray_SetBaseObject(view, lease)
    cnp.PyArray_UpdateFlags(view, cnp.NPY_ARRAY_C_CONTIGUOUS | cnp.NPY_ARRAY_F_CONTIGUOUS
                            | cnp.NPY_ARRAY_ALIGNED)
    return wrap(view)


cdef Tensor read(Readable variable):
    cdef Tensor tensor
    cdef tuple active
    if tfopt_watchers != NULL and variable.trainable:
        for watcher in <tuple>tfopt_watchers:
            (<dict>watcher)[variable] = None
    if tfopt_recorders == NULL:
        return variable.current()
    active = <tuple>tfopt_recorders
    if type(active[0]) is Trace:
        tensor = (<Trace>active[0]).read(variable)
    else:
        tensor = variable.current()
    for recorder in active:
        if type(recorder) is Tape:
            (<Tape>recorder).saw(variable, tensor)
    return tensor
