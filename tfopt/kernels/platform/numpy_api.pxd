# cython: language_level=3
"""The part of NumPy's C API that the kernels use.

`cimport numpy` would declare all of it in each module: a third of a second of its translation, and
the look-up of twenty types when it is imported.

A module that uses more than an array's fields calls import_array() first, or reads the address 0:
Cython adds that call for `cimport numpy` alone. And it must be `cimport ... .numpy_api as cnp`, for
Cython does not see that a module depends on what `from ... cimport ... as` names.
"""

from cpython.object cimport PyObject, PyTypeObject

cdef extern from "numpy/arrayobject.h":
    int import_array "_import_array"() except -1

    ctypedef signed long npy_intp   # whatever its size: C knows it

    enum:
        NPY_BOOL
        NPY_INT8
        NPY_INT16
        NPY_INT32
        NPY_INT64
        NPY_UINT8
        NPY_UINT16
        NPY_UINT32
        NPY_FLOAT16
        NPY_FLOAT32
        NPY_FLOAT64
        NPY_COMPLEX64
        NPY_COMPLEX128
        NPY_STRING
        NPY_VOID

    enum:
        NPY_ARRAY_C_CONTIGUOUS
        NPY_ARRAY_F_CONTIGUOUS
        NPY_ARRAY_ALIGNED
        NPY_ARRAY_CARRAY
        NPY_ARRAY_CARRAY_RO

    ctypedef struct PyArray_Descr:
        pass

    ctypedef class numpy.dtype [object PyArray_Descr, check_size ignore]:
        cdef char kind
        cdef int type_num

    ctypedef class numpy.ndarray [object PyArrayObject, check_size ignore]:
        @property
        cdef inline dtype descr(self):
            return <dtype><void *>PyArray_DESCR(self)

        @property
        cdef inline int ndim(self) noexcept nogil:
            return PyArray_NDIM(self)

        @property
        cdef inline npy_intp *shape(self) noexcept nogil:
            return PyArray_DIMS(self)

        @property
        cdef inline npy_intp *strides(self) noexcept nogil:
            return PyArray_STRIDES(self)

        @property
        cdef inline npy_intp size(self) noexcept nogil:
            return PyArray_SIZE(self)

        @property
        cdef inline char *data(self) noexcept nogil:
            return PyArray_BYTES(self)

    PyTypeObject PyArray_Type
    bint PyArray_Check(object)
    bint PyArray_CheckExact(object)

    # what an array is
    PyArray_Descr *PyArray_DESCR(ndarray) nogil     # borrowed
    PyObject *PyArray_BASE(ndarray) nogil           # borrowed
    int PyArray_NDIM(ndarray) nogil
    int PyArray_TYPE(ndarray) nogil
    npy_intp *PyArray_DIMS(ndarray) nogil
    npy_intp *PyArray_STRIDES(ndarray) nogil
    npy_intp PyArray_DIM(ndarray, size_t) nogil
    npy_intp PyArray_STRIDE(ndarray, size_t) nogil
    npy_intp PyArray_SIZE(ndarray) nogil
    npy_intp PyArray_NBYTES(ndarray) nogil
    npy_intp PyArray_ITEMSIZE(ndarray) nogil
    void *PyArray_DATA(ndarray) nogil
    char *PyArray_BYTES(ndarray) nogil
    bint PyArray_CHKFLAGS(ndarray, int flags) nogil
    bint PyArray_IS_C_CONTIGUOUS(ndarray) nogil
    bint PyArray_IS_F_CONTIGUOUS(ndarray) nogil
    bint PyArray_ISWRITEABLE(ndarray) nogil
    bint PyArray_ISALIGNED(ndarray) nogil
    bint PyArray_ISNOTSWAPPED(ndarray) nogil
    bint PyArray_ISBEHAVED(ndarray) nogil
    bint PyArray_ISCARRAY(ndarray) nogil
    bint PyArray_ISCARRAY_RO(ndarray) nogil
    bint PyArray_ISINTEGER(ndarray) nogil
    bint PyArray_ISCOMPLEX(ndarray) nogil
    bint PyArray_SAMESHAPE(ndarray, ndarray) nogil

    # what its numbers are
    bint PyTypeNum_ISSIGNED(int) nogil
    bint PyTypeNum_ISFLOAT(int) nogil
    bint PyTypeNum_ISCOMPLEX(int) nogil
    bint PyTypeNum_ISUSERDEF(int) nogil
    unsigned char PyArray_EquivTypenums(int, int)
    dtype PyArray_DescrFromType(int)

    # new arrays
    object PyArray_ZEROS(int ndim, npy_intp *shape, int typenum, int fortran)
    object PyArray_EMPTY(int ndim, npy_intp *shape, int typenum, int fortran)
    ndarray PyArray_GETCONTIGUOUS(ndarray)
    object PyArray_NewFromDescr(
        PyTypeObject *subtype, dtype descr, int ndim, const npy_intp *shape,
        const npy_intp *strides, void *data, int flags, PyObject *obj
    )       # takes the reference to descr
    int PyArray_SetBaseObject(ndarray, object base) except -1   # takes the reference to base
    void PyArray_UpdateFlags(ndarray, int flags)
