# cython: boundscheck=True
"""The engine: tensors, snapshots of variables, and the record of operations on them.

(A) References. A tape refers to nodes, nodes to tensors, tensors only to an array and a key, their
    identity. So there are no cycles, and what can no longer be asked for is freed.
(B) Each thread has its own recorders, in C's thread-local storage, because every operation looks at
    them. The tuple is replaced, never changed.
(C) A node keeps only the values that its rules read. Of others it keeps shape and dtype: an array
    with strides of 0 over one NaN (a "ghost"), so that a rule that reads what it did not ask for
    is noticed.
(D) Reading a variable returns a snapshot, which shares the variable's memory. The base of its array
    is a `Lease`, which NumPy passes on to all views of it. Before the variable is written, tensors
    that lie in its memory and are still alive get copies.
(E) Threads that read a variable share its snapshot. So what of tensors can change is read and set
    atomically, and an array that a tensor had lives as long as the tensor: without the GIL, another
    thread may be about to use it.
(F) What functions of NumPy, rules and users return is looked at here, before C relies on it: any
    number of results, of any class. So nothing that Python code returns can end the process.
"""

import operator
import weakref

import numpy as np

from tfopt.core.callers import of_sparse_product, users_line
from tfopt.imports import imported
from tfopt.core.nest import flatten, pack
from tfopt.errors import InternalError, InvalidTypeError

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF, Py_XINCREF
from libc.string cimport memset

cimport tfopt.kernels.platform.numpy_api as cnp

cnp.import_array()

cdef extern from *:
    """
    #if defined(_MSC_VER)
    #define TFOPT_OF_THREAD __declspec(thread)
    #else
    #define TFOPT_OF_THREAD __thread
    #endif
    static TFOPT_OF_THREAD PyObject *tfopt_recorders = NULL;
    static TFOPT_OF_THREAD PyObject *tfopt_watchers = NULL;
    static TFOPT_OF_THREAD PyObject *tfopt_overrides = NULL;

    #ifdef Py_GIL_DISABLED
    #define FREE_THREADED 1
    #else
    #define FREE_THREADED 0
    #endif

    /* Set an attribute that other threads read without a lock. */
    static void tfopt_share(PyObject **at, PyObject *value) {
        PyObject *before = *at;
        Py_INCREF(value);
    #ifdef Py_GIL_DISABLED
        _Py_atomic_store_ptr_release(at, value);
    #else
        *at = value;
    #endif
        Py_DECREF(before);
    }
    #define tfopt_share_array(tensor, array) tfopt_share(&(tensor)->a, array)
    #define tfopt_share_key(tensor, new) \
        tfopt_share((PyObject **)&(tensor)->key, (PyObject *)(new))
    """
    bint FREE_THREADED
    void tfopt_share_array(Tensor tensor, object array)
    void tfopt_share_key(Tensor tensor, Key key)
    PyObject *tfopt_recorders
    PyObject *tfopt_watchers
    PyObject *tfopt_overrides

cdef object _inexact = np.inexact
cdef object _may_share_memory = np.may_share_memory
cdef object _number = (bool, int, float, complex, np.generic)

cdef set _unchanging = {bool, int, float, complex, str, slice}

CUT = object()      # instead of a rule: no gradient passes, which is no error

#: What users have registered for operations without rules, and the names that have rules.
REGISTERED = {}
RULED = set()
#: Weak references to the variables that were given a name, by their serial numbers.
NAMED = {}

cdef enum:
    SMALL = 16384   # arrays of at most as many bytes are kept whole: ghosts would take longer
    OUTPUT = 62     # the bit of a node's output in what its gradients read


# ---- this thread's state


cdef object _get(PyObject *state):
    return <object>state if state != NULL else None


cdef void _set(PyObject **state, object value):
    cdef PyObject *old = state[0]
    if value is None:
        state[0] = NULL
    else:
        state[0] = <PyObject *>value
        Py_XINCREF(state[0])
    Py_XDECREF(old)


cdef bint is_recording() noexcept:
    return tfopt_recorders != NULL


def recorders():
    """The recorders of this thread, the outermost first."""
    return _get(tfopt_recorders) or ()


def set_recorders(tuple value not None):
    """Set the recorders of this thread."""
    _set(&tfopt_recorders, value or None)


def watchers():
    """The dicts that collect the trainable variables that this thread reads or assigns."""
    return _get(tfopt_watchers) or ()


def set_watchers(tuple value not None):
    """Set the dicts that collect variables."""
    _set(&tfopt_watchers, value or None)


def overrides():
    """What replaces operations' gradients, by the operations' names."""
    return _get(tfopt_overrides) or {}


def set_overrides(dict value not None):
    """Set what replaces operations' gradients."""
    _set(&tfopt_overrides, value or None)


# One compilation unit, since these call one another in C, in a file for each subject.
include "tensors.pxi"
include "snapshots.pxi"
include "ops.pxi"
include "nodes.pxi"
include "recorders.pxi"
include "calls.pxi"
include "operands.pxi"
