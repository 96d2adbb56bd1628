# Descriptions of arrays on a device, read in compiled code; included by commit.pyx.

cdef enum:
    NO_STREAM = 1       # of arrays that report none: the one that all others wait for


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


cdef int64_t _size(const described *it, int first=0) noexcept:
    """The number of elements along an axis and those after it."""
    cdef int64_t n = 1
    cdef int axis
    for axis in range(first, it.ndim):
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
    """A number for the type of an array's elements: bits are a multiple of 8, codes are below."""
    return it.bits | it.code if it.lanes == 1 else 0


cdef bint _of_interface(object array, described *into, int64_t *room, int64_t *stream) except -1:
    """Ask an array with `__cuda_array_interface__` where it is, and for its stream if it has one.

    Return False if compiled code cannot tell. There is room for the shape and strides.
    """
    cdef object interface = getattr(array, "__cuda_array_interface__", None)
    cdef object strides, own
    cdef str typestr
    cdef int axis
    if type(interface) is not dict:
        return False
    shape, typestr = interface["shape"], interface["typestr"]
    strides, own = interface.get("strides"), interface.get("stream")
    if type(shape) is not tuple or len(shape) > MAX_DIMS or len(typestr) != 3:
        return False
    into.ndim = <int>len(shape)
    into.code, into.bits, into.lanes = FLOAT, 8 * (ord(typestr[2]) - ord("0")), 1
    if typestr[1] in "iu":
        into.code = INTEGER if typestr[1] == "i" else UNSIGNED
    elif typestr[1] != "f":
        if str(array.dtype) != "bfloat16":
            return False
        into.code = BFLOAT
    if into.bits not in (8, 16, 32, 64):
        return False
    into.shape, into.strides = room, NULL
    for axis in range(into.ndim):
        room[axis] = shape[axis]
    if strides is not None:
        if len(strides) != into.ndim:
            return False
        into.strides = room + MAX_DIMS
        for axis in range(into.ndim):
            room[MAX_DIMS + axis] = <int64_t>strides[axis] // (into.bits // 8)
    into.data = <void *><size_t>interface["data"][0]
    if own:
        stream[0] = own
    return True


cdef int _set_storage(tfopt_device_storage *it, tuple how, int n_operands) except -1:
    """Note storage types of the operands of a rule, and the address of the tables of codes."""
    cdef tuple types
    cdef int k
    if len(how) != 2 or len(how[0]) != n_operands:
        raise InvalidArgumentError("each operand of a rule is stored in some way")
    types = how[0]
    for k in range(n_operands):
        it.storage[k] = types[k]
    it.dynamic = <void *><size_t>how[1]
    return 0
