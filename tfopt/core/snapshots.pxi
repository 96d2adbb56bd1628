# Variables' values as tensors that share the variables' memory.

@cython.final
@cython.freelist(16)
cdef class Lease:
    """The base of a snapshot's array, and of views of it: which tensors lie in a variable's memory.
    """

    cdef bint add(self, Tensor tensor) except -1:
        """Add a tensor, unless the variable has been written since: it must have a copy."""
        cdef object view = weakref.ref(tensor)
        with cython.critical_section(self):
            if self.views is None:
                return False
            if len(self.views) >= self.limit:
                views = []
                for ref in self.views:
                    if ref() is not None:
                        views.append(ref)
                self.views = views
                self.limit = 2 * len(self.views) + 16
            self.views.append(view)
        return True

    cdef list close(self):
        """The tensors, of which there will be no more."""
        cdef list views
        with cython.critical_section(self):
            views, self.views = self.views, None
        return views


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


cdef int _give_copies(list views) except -1:
    """Give tensors that lie in a variable's memory arrays of their own."""
    cdef Tensor tensor
    if views is None:
        return 0
    for ref in views:
        tensor = ref()
        if tensor is not None and _lease_of(tensor.a) is not None:
            if FREE_THREADED:
                tensor.was = tensor.a
            tfopt_share_array(tensor, np.array(tensor.a))
    return 0


cdef class Readable(Operand):
    """The engine's view of a variable: its array, and the snapshot of it that readers share."""

    cdef Tensor current(self):
        cdef Tensor tensor
        with cython.critical_section(self):
            if self.snapshot is None:
                self.snapshot = _snapshot(self._array)
            tensor = self.snapshot
        return tensor

    cdef int before_write(self) except -1:
        """Give copies to the tensors that lie in the array; the next read is another tensor."""
        cdef Lease lease
        cdef list early, late = None
        with cython.critical_section(self):
            early = self.uncopied
            if self.snapshot is None and early is None:
                return 0
            if self.snapshot is not None:
                lease = _lease_of(self.snapshot.a)
                self.snapshot = None    # dies here unless somebody holds it
                late = lease.close()
            self.uncopied = None
        try:
            _give_copies(early)
            _give_copies(late)
        except BaseException:   # there is no memory for them, and so no write
            if early is not None and late is not None:
                late.extend(early)
            self.uncopied = early if late is None else late
            raise
        return 0

    def _converted(self, str how):
        """Report a variable that is converted while a tape would watch it."""
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
            "variables on a GPU cannot be differentiated: copy the variable's value() to the host"
        )
    cdef cnp.ndarray owner = array
    cdef Lease lease = Lease.__new__(Lease)
    cdef cnp.dtype descr = array.dtype
    lease.array = array
    lease.views = []
    lease.limit = 16
    Py_INCREF(descr)    # the reference is the new array's
    view = cnp.PyArray_NewFromDescr(&cnp.PyArray_Type, descr, owner.ndim, owner.shape,
                                    owner.strides, owner.data, 0, NULL)
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


def prepare_writes(operands):
    """Prepare variables for writes: tensors that share their memory are given copies."""
    for operand in operands:
        if isinstance(operand, Readable):
            (<Readable>operand).before_write()
        elif isinstance(operand, (list, tuple)):
            prepare_writes(operand)
