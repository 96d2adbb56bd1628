"""The engine: tensors, variables' snapshots, and the record of what was done to them.

(A) Who knows whom. A tape knows nodes, nodes know tensors, tensors know nothing but an array and a
    key, which is who they are: so there are no cycles, and what nobody can ask for is freed.
(B) Every thread has its own recorders, in C's thread-local storage, because each operation asks for
    them. The tuple is replaced, never changed.
(C) Of what a node's gradients do not read, the node keeps shape and dtype alone: an array with
    strides of 0 over one NaN (a "ghost"), so that a rule that reads what it has not asked for
    shows.
(D) Reading a variable gives a snapshot, which shares its memory. The snapshot's array has a `Lease`
    as its base, which NumPy hands on to all views of it; before the variable is written, those
    tensors over its memory that are still alive are given copies.
"""

import operator
import weakref

import numpy as np

from tfopt.core.callers import users_line

cimport cython
cimport numpy as cnp
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF, Py_XINCREF
from libc.string cimport memset

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
    """
    PyObject *tfopt_recorders
    PyObject *tfopt_watchers
    PyObject *tfopt_overrides

cdef extern from "numpy/arrayobject.h":
    object PyArray_NewFromDescr(PyTypeObject *subtype, cnp.dtype descr, int nd,
                                const cnp.npy_intp *dims, const cnp.npy_intp *strides, void *data,
                                int flags, PyObject *obj)
    ctypedef struct PyTypeObject:
        pass
    PyTypeObject PyArray_Type

cdef object _inexact = np.inexact
cdef object _number = (bool, int, float, complex, np.generic)

CUT = object()      # in the place of a rule: no gradient passes here, and that is right

#: What users have registered for operations without rules, and the names that have rules.
REGISTERED = {}
RULED = set()
#: The variables that were given a name.
NAMED = weakref.WeakSet()

#: Arrays of at most this many bytes are kept rather than their shapes: it is faster.
cdef Py_ssize_t _small = 16384
cdef enum:
    OUTPUT = 62     # the bit of a node's output in what its gradients read


def set_small(Py_ssize_t nbytes):
    """Set what arrays are small enough to be kept; return what it was. Tests keep none."""
    global _small
    before = _small
    _small = nbytes
    return before


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
    """Let others record what this thread does."""
    _set(&tfopt_recorders, value or None)


def watchers():
    """The dicts that get the trainable variables this thread reads or assigns."""
    return _get(tfopt_watchers) or ()


def set_watchers(tuple value not None):
    """Let other dicts get them."""
    _set(&tfopt_watchers, value or None)


def overrides():
    """The gradients that take the place of operations' own, by the operations' names."""
    return _get(tfopt_overrides) or {}


def set_overrides(dict value not None):
    """Let others take their place."""
    _set(&tfopt_overrides, value or None)


# One unit for the compiler, since these know one another, in files of one subject each.
include "tensors.pxi"
include "nodes.pxi"
include "recorders.pxi"
include "calls.pxi"
include "operands.pxi"
