# Where the elements of an operand are, included by layout.pyx: what it occupies, and whether two
# operands are the same elements in the same order.

cdef inline Py_ssize_t _width(const layout *axes, int k, Py_ssize_t itemsize) noexcept nogil:
    return itemsize if axes == NULL or axes.storage[k] == NATIVE else 2


cdef void extent(const layout *axes, int k, const char *data, Py_ssize_t n, Py_ssize_t itemsize,
                 size_t *low, size_t *high) noexcept nogil:
    """Set the range of addresses of the n elements of operand k."""
    cdef Py_ssize_t reach
    cdef int axis
    low[0] = high[0] = <size_t>data
    if n == 0:
        return
    if axes != NULL and axes.storage[k] >= SIGNED8:
        high[0] += (n + CODES - 1) // CODES * _format(axes.storage[k]).bytes
        return
    if axes == NULL or axes.blocked:
        high[0] += n * _width(axes, k, itemsize)
        return
    high[0] += _width(axes, k, itemsize)
    for axis in range(axes.ndim):
        reach = (axes.shape[axis] - 1) * axes.stride[k][axis]
        if reach < 0:
            low[0] += reach
        else:
            high[0] += reach


cdef bint same_elements(const layout *a, int j, const layout *b, int k, Py_ssize_t n,
                        Py_ssize_t itemsize) noexcept nogil:
    """Whether operands j and k at one address are the same n elements, in the same order.

    The layouts have the same walk. Axes may be merged in one of them alone; False if neither of two
    merged axes is made of the other.
    """
    cdef Py_ssize_t left, right, stride_left, stride_right
    cdef int axis = 0, other = 0
    cdef int storage = NATIVE if a == NULL else a.storage[j]
    if storage != (NATIVE if b == NULL else b.storage[k]):
        return False
    if storage >= SIGNED8 or n == 0:
        return True
    left, stride_left = n, _width(a, j, itemsize)
    if a != NULL and not a.blocked:
        left, stride_left = a.shape[0], a.stride[j][0]
    right, stride_right = n, _width(b, k, itemsize)
    if b != NULL and not b.blocked:
        right, stride_right = b.shape[0], b.stride[k][0]
    while True:
        if stride_left != stride_right and left > 1 and right > 1:
            return False
        if left == right:
            axis += 1
            other += 1
            if a == NULL or a.blocked or axis == a.ndim:
                return b == NULL or b.blocked or other == b.ndim
            if b == NULL or b.blocked or other == b.ndim:
                return False
            left, stride_left = a.shape[axis], a.stride[j][axis]
            right, stride_right = b.shape[other], b.stride[k][other]
        elif left < right:
            if right % left or a == NULL or a.blocked or axis + 1 == a.ndim:
                return False
            right //= left
            stride_right *= left
            axis += 1
            left, stride_left = a.shape[axis], a.stride[j][axis]
        else:
            if left % right or b == NULL or b.blocked or other + 1 == b.ndim:
                return False
            left //= right
            stride_left *= right
            other += 1
            right, stride_right = b.shape[other], b.stride[k][other]
