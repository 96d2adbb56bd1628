# What libraries of arrays on a device tell about one in compiled code; in commit.pyx.


cdef bint _is_in_order(const described *it) noexcept:
    """Whether an array's elements lie in C order, one after the other."""
    cdef int64_t expected = 1
    cdef int axis
    if it.strides == NULL:
        return True
    for axis in range(it.ndim - 1, -1, -1):
        if it.shape[axis] == 0:
            return True
    for axis in range(it.ndim - 1, -1, -1):
        if it.shape[axis] != 1 and it.strides[axis] != expected:
            return False
        expected *= it.shape[axis]
    return True


cdef int64_t _size(const described *it) noexcept:
    cdef int64_t n = 1
    cdef int axis
    for axis in range(it.ndim):
        n *= it.shape[axis]
    return n


cdef exchange *_exchange_of(object array) except? NULL:
    """The functions by which an array's library describes its arrays, NULL if it has none."""
    capsule = getattr(type(array), "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return NULL
    cdef exchange *found = <exchange *>PyCapsule_GetPointer(capsule, b"dlpack_exchange_api")
    return found if found.major == 1 and found.describe != NULL else NULL


cdef uint8_t _type(const described *it) noexcept:
    """A number for the type of an array's elements."""
    return <uint8_t>(it.bits + (1 if it.code == BFLOAT else 0)) if it.lanes == 1 else 0
