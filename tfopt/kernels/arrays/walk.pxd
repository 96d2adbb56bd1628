# cython: language_level=3
"""A walk through the elements of an array along its axes, innermost first, like an odometer."""

from tfopt.kernels.platform.step_types cimport MAX_DIMS

cdef struct walk:
    int ndim
    const Py_ssize_t *shape
    const Py_ssize_t *stride        # in bytes
    Py_ssize_t[MAX_DIMS] index
    char *at                        # the address of the element


cdef inline void begin_walk(walk *w, int ndim, const Py_ssize_t *shape, const Py_ssize_t *stride,
                            const char *data, Py_ssize_t start) noexcept nogil:
    """Begin with element `start` of those from an address on."""
    cdef int axis
    w.ndim, w.shape, w.stride, w.at = ndim, shape, stride, <char *>data
    for axis in range(ndim):
        w.index[axis] = start
        if axis < ndim - 1:     # one axis needs no division
            w.index[axis] = start % shape[axis]
            start //= shape[axis]
        w.at += w.index[axis] * stride[axis]


cdef inline Py_ssize_t ahead(const walk *w) noexcept nogil:
    """How many elements there are until the end of the innermost axis."""
    return w.shape[0] - w.index[0]


cdef inline void go(walk *w, Py_ssize_t n) noexcept nogil:
    """Go n elements on, at most to the end of the innermost axis."""
    cdef int axis = 0
    w.index[0] += n
    w.at += n * w.stride[0]
    while w.index[axis] == w.shape[axis] and axis + 1 < w.ndim:     # carry
        w.at += w.stride[axis + 1] - w.index[axis] * w.stride[axis]
        w.index[axis] = 0
        axis += 1
        w.index[axis] += 1
