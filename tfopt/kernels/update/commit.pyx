"""All writes of a step in one call that no signal can interrupt.

Python handles signals between bytecode instructions, never inside a compiled call, and any Python
code can raise an exception. So a step is prepared in Python as a list of updates (`Call`) and other
writes, with all the memory they need; then one call carries out the list. If Python code has to run
between two writes, an `Undo` restores what it changed.
"""

from cpython.exc cimport PyErr_Clear
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from tfopt.errors import InvalidArgumentError, InvalidTypeError

from tfopt.kernels.update.checks cimport Call, checked_numbers, numbers, scalars_into
from tfopt.kernels.platform.device_step cimport (
    UNCLIPPED, tfopt_clipping, tfopt_device_part, tfopt_device_step, tfopt_device_storage,
)
from tfopt.kernels.platform.dlpack cimport (
    BFLOAT, FLOAT, INTEGER, UNSIGNED, described, exchange,
)
from tfopt.kernels.platform.machine cimport fp_enter, fp_leave, fp_state, within
from tfopt.kernels.platform.step_types cimport MAX_DIMS, MAX_SCALARS, N_SCALES
from tfopt.kernels.arrays.aliasing cimport Occupied, same_shape
from tfopt.kernels.update.dense cimport refuse_changed, run_call, run_elements
from tfopt.kernels.update.row_owners cimport named_row
from tfopt.kernels.update.step_table cimport Kernel
from tfopt.kernels.update.work cimport work

import numpy as np

cimport tfopt.kernels.platform.numpy_api as cnp

cnp.import_array()

cdef extern from "Python.h":
    int PyDict_Update(PyObject *into, PyObject *values) noexcept


cdef class Write:
    """A write that cannot fail once the object has been created, or once it has begun."""

    cdef int check(self) except -1:
        """Check what can only be checked now, before anything begins."""
        return 0

    cdef int begin(self) except -1:
        """Do what can fail, before anything in host memory is written."""
        return 0

    cdef void carry_out(self) noexcept:
        pass


cdef class Count(Write):
    """Increment an int64 scalar."""

    def __cinit__(self, cnp.ndarray number not None):
        self.number = number
        self.at = _scalar_of(number)
        self.next()

    def next(self):
        """The number after the increment; if it is carried out again, this must be called before.

        Raises
        ------
        InvalidArgumentError
            If it would be too large.
        """
        if self.at[0] == 0x7FFFFFFFFFFFFFFF:
            raise InvalidArgumentError("the step count cannot grow: it is the largest int64")
        return self.at[0] + 1

    cdef void carry_out(self) noexcept:
        self.at[0] += 1


cdef int64_t *_scalar_of(cnp.ndarray number) except NULL:
    if not (cnp.PyArray_TYPE(number) == cnp.NPY_INT64 and cnp.PyArray_NDIM(number) == 0
            and cnp.PyArray_ISBEHAVED(number)):
        raise InvalidTypeError("a count must be a scalar of int64 in native byte order")
    return <int64_t *>cnp.PyArray_DATA(number)


cdef int _check_target(cnp.ndarray to) except -1:
    if not cnp.PyArray_ISWRITEABLE(to) or to.dtype.hasobject:
        raise InvalidTypeError(
            f"the target of an assignment must be a writable array of numbers, not {to.dtype}"
        )
    return 0


cdef class Assign(Write):
    """Copy an array's elements to another of its shape, dtype and byte order, however strided."""

    def __cinit__(self, cnp.ndarray to not None, cnp.ndarray values not None):
        _check_target(to)
        if to.dtype != values.dtype or (<object>to).shape != (<object>values).shape:
            raise InvalidTypeError(f"{values.dtype} of shape {(<object>values).shape} cannot be "
                                   f"copied to {to.dtype} of shape {(<object>to).shape}")
        self.to, self.values = to, values

    cdef void carry_out(self) noexcept:
        _copy(self.to, self.values)


cdef class AssignRows(Write):
    """Copy rows to given rows of an array."""

    def __cinit__(self, cnp.ndarray to not None, const int64_t[::1] rows not None,
                  cnp.ndarray values not None):
        cdef Py_ssize_t i
        _check_target(to)
        if (to.dtype != values.dtype or cnp.PyArray_NDIM(to) == 0
                or (rows.shape[0], *(<object>to).shape[1:]) != (<object>values).shape):
            raise InvalidTypeError("rows can be assigned only to rows of the same shape and dtype")
        for i in range(rows.shape[0]):
            if not 0 <= rows[i] < cnp.PyArray_DIM(to, 0):
                raise InvalidArgumentError(f"there is no row {rows[i]}")
        # a private copy of the rows
        self.to, self.rows, self.values = to, np.array(rows), values

    cdef void carry_out(self) noexcept:
        cdef char *to = <char *>cnp.PyArray_DATA(self.to)
        cdef const char *values = <const char *>cnp.PyArray_DATA(self.values)
        cdef const cnp.npy_intp *to_strides = cnp.PyArray_STRIDES(self.to)
        cdef const cnp.npy_intp *strides = cnp.PyArray_STRIDES(self.values)
        cdef Py_ssize_t i
        for i in range(self.rows.shape[0]):
            _copy_axis(to + self.rows[i] * to_strides[0], values + i * strides[0],
                       cnp.PyArray_NDIM(self.to) - 1, cnp.PyArray_DIMS(self.to) + 1,
                       to_strides + 1, strides + 1, cnp.PyArray_ITEMSIZE(self.to))


cdef void _copy(cnp.ndarray to, cnp.ndarray values) noexcept:
    if cnp.PyArray_SIZE(to) == 0:
        return
    if cnp.PyArray_IS_C_CONTIGUOUS(to) and cnp.PyArray_IS_C_CONTIGUOUS(values):
        memcpy(cnp.PyArray_DATA(to), cnp.PyArray_DATA(values), cnp.PyArray_NBYTES(to))
        return
    _copy_axis(<char *>cnp.PyArray_DATA(to), <const char *>cnp.PyArray_DATA(values),
               cnp.PyArray_NDIM(to), cnp.PyArray_DIMS(to), cnp.PyArray_STRIDES(to),
               cnp.PyArray_STRIDES(values), cnp.PyArray_ITEMSIZE(to))


cdef void _copy_axis(char *to, const char *values, int ndim, const cnp.npy_intp *shape,
                     const cnp.npy_intp *to_strides, const cnp.npy_intp *strides,
                     Py_ssize_t itemsize) noexcept:
    cdef Py_ssize_t i
    if ndim == 0:
        memcpy(to, values, itemsize)
        return
    if ndim == 1 and to_strides[0] == itemsize and strides[0] == itemsize:
        memcpy(to, values, shape[0] * itemsize)
        return
    for i in range(shape[0]):
        _copy_axis(to + i * to_strides[0], values + i * strides[0], ndim - 1, shape + 1,
                   to_strides + 1, strides + 1, itemsize)


cdef class RowsOf(Write):
    """Carry out a dense call for the rows that a sparse one updates, which comes before it.

    Parameters
    ----------
    call : Call
        Of one variable of the shape of the sparse one's, which is C-contiguous as all operands are.
    rows : Call
        A sparse call.
    """

    def __cinit__(self, Call call not None, Call rows not None):
        if call.w.index_size or call.w.by_rows or call.w.grain > 1 or not rows.w.index_size \
                or call.w.n_tensors != 1 or call.w.starts[1] != rows.w.n_rows * rows.w.inner:
            raise InvalidArgumentError(
                "the first call must be dense, of single elements, and the second one of rows of "
                "as many elements"
            )
        self.call, self.rows = call, rows

    cdef void carry_out(self) noexcept:
        cdef const work *w = &self.rows.w
        cdef Py_ssize_t i, row
        cdef fp_state caller
        if w.absent != NULL:        # which changes all rows
            run_call(self.call)
            return
        with nogil:
            caller = fp_enter(self.call.w.flush)
            for i in range(w.n_indices):
                row = named_row(w, i)
                if row >= 0:
                    run_elements(&self.call.w, row * w.inner, (row + 1) * w.inner)
            fp_leave(caller)


cdef class Attributes(Write):
    """Set existing attributes of an object, and its `_version` to another one, if it has one."""

    def __cinit__(self, owner, dict values not None):
        self.attributes = owner.__dict__
        if "_version" in self.attributes:
            values = {**values, "_version": object()}
        for name in values:
            if name not in self.attributes:
                raise AttributeError(name)
        self.values = values

    cdef void carry_out(self) noexcept:
        PyDict_Update(<PyObject *>self.attributes, <PyObject *>self.values)


cdef class Mark(Write):
    """Set elements of an int64 array to a number."""

    def __cinit__(self, int64_t[::1] into not None, const int64_t[::1] places not None,
                  int64_t number):
        self.into, self.places, self.number = into, places, number

    cdef void carry_out(self) noexcept:
        cdef Py_ssize_t i
        for i in range(self.places.shape[0]):
            if within(self.places[i], self.into.shape[0]):
                self.into[self.places[i]] = self.number


cdef class Meanwhile:
    """A block in which arrays hold other values; theirs are restored even after an exception.

    A generator with a `yield` would be left by Python code, which a signal can interrupt.

    Parameters
    ----------
    make : callable
        Returns two lists of writes, for the beginning of the block and for its end.
    prepare : callable
        Called before either list is carried out.
    """

    def __init__(self, make, prepare):
        self.make, self.prepare = make, prepare

    def __enter__(self):
        if self.last is not None:
            raise InvalidArgumentError("this block is being used: make another one")
        first, last = self.make()
        self.prepare()
        carry_out(first)
        self.last = last

    def __exit__(self, *_):
        self.prepare()
        carry_out(self.last)
        self.last = None


cdef class Undo:
    """A block that restores arrays and attributes if it raises before `carry_out`.

    Parameters
    ----------
    arrays : iterable of ndarray
        Copied here.
    owners : iterable of object
        Objects whose attributes are restored.

    Attributes
    ----------
    done : bool
        Whether its `carry_out` has made all writes.
    """

    def __init__(self, arrays, owners=()):
        self.kept = []
        for array in arrays:
            if not isinstance(array, cnp.ndarray) or array.dtype.hasobject:
                raise InvalidTypeError(
                    f"only arrays of numbers can be put back, not {type(array).__name__}"
                )
            self.kept.append((array, np.array(array, order="C", subok=False)))
        self.attributes = []
        for owner in owners:
            self.attributes.append((owner.__dict__, dict(owner.__dict__)))
        self.done = False

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if self.done or kind is None:
            return
        for array, copy in self.kept:
            # a read-only array was not written; one of another shape has been replaced
            if cnp.PyArray_ISWRITEABLE(<cnp.ndarray>array) and same_shape(array, copy):
                _copy(array, copy)
        for attributes, before in self.attributes:
            attributes.clear()
            attributes.update(before)


cdef class Prepared:
    """The writes of a step, and the variables that they change.

    Parameters
    ----------
    writes : list of Call or Write
    variables : iterable of Variable or array
    counts : bool
        Whether optimizers count it as a step.
    """

    def __cinit__(self, list writes not None, variables=(), bint counts=True):
        self.writes, self.variables, self.counts = writes, list(variables), counts


def carry_out(list writes not None, Undo undo=None, Undo outer=None):
    """Carry out updates and other writes, in order, after what a device has to queue for them.

    Parameters
    ----------
    writes : list of Call or Write
    undo, outer : Undo, optional
        Marked as done, so that they restore nothing.
    """
    for write in writes:
        if not isinstance(write, (Call, Write)):
            raise InvalidTypeError(
                f"{type(write).__name__} is not an assignment, a count or a call"
            )
    for write in writes:
        if isinstance(write, Write):
            (<Write>write).check()
    for write in writes:
        if isinstance(write, Write):
            (<Write>write).begin()
    for write in writes:
        if isinstance(write, Call):
            run_call(<Call>write)
        else:
            (<Write>write).carry_out()
    if undo is not None:
        undo.done = True
    if outer is not None:
        outer.done = True
    for write in writes:
        if isinstance(write, Call):
            refuse_changed(<Call>write)


include "described_arrays.pxi"
include "launches.pxi"
