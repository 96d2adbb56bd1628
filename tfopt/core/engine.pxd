"""The declarations that the engine's parts share."""

from cpython.object cimport PyObject

cdef class Key:
    cdef bint symbolic


cdef class Operand:
    pass


cdef class Tensor(Operand):
    cdef object a
    cdef object was
    cdef Key key
    cdef object __weakref__


cdef class Lease:
    cdef object array
    cdef list views
    cdef Py_ssize_t limit

    cdef bint add(self, Tensor tensor) except -1
    cdef list close(self)


cdef class Readable(Operand):
    cdef public object _array
    cdef public bint trainable
    cdef Tensor snapshot
    cdef list uncopied      # tensors for whose copies there was no memory
    cdef object __weakref__

    cdef Tensor current(self)
    cdef int before_write(self) except -1


cdef class Op:
    cdef readonly str name
    cdef readonly object fn
    cdef readonly object quick
    cdef readonly bint many
    cdef readonly tuple vjps
    cdef readonly tuple saves
    cdef readonly object joint
    cdef readonly bint sized
    cdef readonly bint views
    cdef readonly bint identity
    cdef readonly bint broadcasts
    cdef readonly bint elementwise
    cdef readonly str ones
    cdef readonly str infix
    cdef readonly bint infix_only
    cdef readonly bint out_by_name
    cdef readonly object expression
    cdef readonly str label
    cdef bint cut


cdef class Node:
    cdef readonly object op
    cdef readonly tuple ins
    cdef readonly tuple outs
    cdef readonly dict kw
    cdef public object where


cdef class Tape:
    cdef readonly list nodes
    cdef set known
    cdef readonly dict variables
    cdef bint watch_accessed

    cdef int saw(self, Readable variable, Tensor tensor) except -1


cdef class Trace:
    cdef readonly list nodes
    cdef set symbolic
    cdef readonly dict values
    cdef public bint may_create
    cdef public bint created
    cdef public bint changed

    cdef Tensor read(self, Readable variable)


cdef extern from *:
    """
    /* Of tensors that threads share: without the GIL, other threads may be writing these. */
    #ifdef Py_GIL_DISABLED
    #define tfopt_array(tensor) ((PyObject *)_Py_atomic_load_ptr_acquire(&(tensor)->a))
    #define tfopt_key(tensor) ((PyObject *)_Py_atomic_load_ptr_acquire(&(tensor)->key))
    #else
    #define tfopt_array(tensor) ((tensor)->a)
    #define tfopt_key(tensor) ((PyObject *)(tensor)->key)
    #endif
    """
    PyObject *tfopt_array(Tensor tensor)
    PyObject *tfopt_key(Tensor tensor)


cdef inline object array_of(Tensor tensor):
    """The tensor's array."""
    return <object>tfopt_array(tensor)


cdef inline bint has_key(Tensor tensor) noexcept:
    """Whether anybody has asked for the tensor's key."""
    return tfopt_key(tensor) != <PyObject *>None


cdef inline Key known_key(Tensor tensor):
    """The tensor's key, or None."""
    return <Key>tfopt_key(tensor)


cdef Tensor wrap(object value)
cdef Key key_of(Tensor tensor)
cdef Tensor read(Readable variable)
cdef bint differentiable(object value)
cdef bint is_recording() noexcept
cpdef object apply(Op op, tuple ins, dict kw=*)
cpdef int record(object op, tuple ins, tuple outs, dict kw=*) except -1
