# Arrays over the memory of DLPack capsules, included by coerce.pyx: for libraries whose own
# conversion is slower.

# The capsule owns the description, which owns the memory.
cdef cnp.dtype _dtype_of(const described *d):
    cdef int typenum = -1
    if d.code == FLOAT and d.bits == 32:
        typenum = cnp.NPY_FLOAT32
    elif d.code == FLOAT and d.bits == 64:
        typenum = cnp.NPY_FLOAT64
    elif d.code == FLOAT and d.bits == 16:
        typenum = cnp.NPY_FLOAT16
    elif d.code == COMPLEX and d.bits == 64:
        typenum = cnp.NPY_COMPLEX64
    elif d.code == COMPLEX and d.bits == 128:
        typenum = cnp.NPY_COMPLEX128
    if typenum < 0 or d.lanes != 1 or d.device != HOST or d.ndim > MAX_DIMS:
        raise InvalidTypeError(
            f"no array of type {d.code} of {d.bits} bits, {d.lanes} at a time, on device {d.device}"
        )
    return cnp.PyArray_DescrFromType(typenum)


cdef cnp.ndarray _of_capsule(object capsule):
    cdef const described *d = <const described *>PyCapsule_GetPointer(capsule, b"dltensor")
    cdef cnp.dtype dtype = _dtype_of(d)
    cdef cnp.npy_intp shape[MAX_DIMS]
    cdef cnp.npy_intp strides[MAX_DIMS]
    cdef int axis
    for axis in range(d.ndim):
        shape[axis] = d.shape[axis]
        if d.strides != NULL:
            strides[axis] = d.strides[axis] * (d.bits // 8)
    Py_INCREF(dtype)
    cdef cnp.ndarray array = cnp.PyArray_NewFromDescr(
        &cnp.PyArray_Type, dtype, d.ndim, shape, NULL if d.strides == NULL else strides,
        <char *>d.data + d.byte_offset, 0, NULL,
    )
    Py_INCREF(capsule)
    cnp.PyArray_SetBaseObject(array, capsule)
    return array


def arrays_of(list capsules not None):
    """Read-only arrays of real or complex numbers in host memory.

    Parameters
    ----------
    capsules : list of PyCapsule
        Named "dltensor" and not used elsewhere; each lives as long as its array.

    Returns
    -------
    list of ndarray

    Raises
    ------
    InvalidTypeError
        If a capsule describes another kind of array.
    """
    cdef list arrays = []
    for capsule in capsules:
        arrays.append(_of_capsule(capsule))
    return arrays
