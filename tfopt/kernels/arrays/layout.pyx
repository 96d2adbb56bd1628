"""Contiguous runs from arrays with any strides.

A step needs contiguous runs. The axes of the operands are sorted by their total strides and merged
where two axes form one longer axis in every operand; the remaining axes are traversed like an
odometer. An operand that is not contiguous along the innermost axis goes through a small buffer
that stays in L1: gathered, stepped, scattered. So does an operand stored in 16 bits: it is widened
when gathered, and rounded once when scattered; where all are, and steps of the instruction set in
use convert them, no buffer is needed. Blocks of codes: see blocks.pxi.
"""

from libc.math cimport NAN
from libc.stdint cimport int32_t, uint16_t, uint64_t
from libc.string cimport memcpy, memset

from cpython.pycapsule cimport PyCapsule_GetPointer

from tfopt.errors import InvalidArgumentError

from tfopt.kernels.platform.halves cimport (
    CODES, NOISES, NOISE_ROW, N_FORMATS, bfloat16_near, bfloat16_of, block_format, block_numbers,
    float16_of, float_of_bfloat16, float_of_float16, halves, noise_at, signed8, unit_of,
)
from tfopt.kernels.platform.machine cimport (
    fp_enter, fp_leave, fp_state, prefetch_row, prefetch_stream,
)
from tfopt.kernels.platform.runtime cimport flush_denormals
from tfopt.kernels.platform.step_types cimport (
    AHEAD, BFLOAT16_CHUNK, FLOAT16_CHUNK, MAX_DIMS, MAX_OPERANDS, MAX_SCALARS, N_SCALES,
    block_steps, half_step_t, step_t,
)

cimport tfopt.kernels.platform.numpy_api as cnp

cnp.import_array()

cdef enum:
    PIECE = 512     # doubles in a buffered piece: five operands fit in L1


cdef halves _table
cdef const halves *_halves = &_table


def use_halves(capsule):
    """Use the conversions of an instruction set."""
    global _table
    _table = (<const halves *>PyCapsule_GetPointer(capsule, b"tfopt.halves"))[0]
    add_dynamic_formats(_table.formats)


cdef const halves *halves_in_use() noexcept nogil:
    return _halves


cdef Py_ssize_t _reach(int axis, int n_operands, const cnp.npy_intp **strides) noexcept nogil:
    cdef Py_ssize_t total = 0
    cdef int k
    for k in range(n_operands):
        total += strides[k][axis] if strides[k][axis] >= 0 else -strides[k][axis]
    return total


cdef uint64_t _walk_along(const int *order, int n) noexcept nogil:
    """Name the order in which elements are visited: 0 is that of C.

    `order` has the axes longer than 1, innermost first. The name has 4 bits for each, its place
    among them. Longer orders than 15 axes have no name of their own.
    """
    cdef uint64_t walk = 0
    cdef bint as_in_c = True
    cdef int i, j, place
    for i in range(n - 1):
        as_in_c = as_in_c and order[i] > order[i + 1]
    if as_in_c:
        return 0
    if n > 15:
        return ANY_WALK
    for i in range(n):
        place = 0
        for j in range(n):
            place += order[j] < order[i]
        walk = walk << 4 | <uint64_t>place
    return walk << 4 | 1    # neither 0 nor ANY_WALK


cdef void merge_axes(layout *into, int n_operands, int ndim, const cnp.npy_intp *shape,
                     const cnp.npy_intp **strides, bint as_in_c) noexcept nogil:
    """Set the axes of operands, merged where possible, and the walk along them.

    They are in the order of C, or sorted by their total strides.
    """
    cdef int[MAX_DIMS] order
    cdef int n = 0, axis, at, k, last
    cdef bint merges
    for axis in range(ndim - 1, -1, -1):    # stable: the last axis stays innermost among equals
        if shape[axis] == 1:
            continue
        at = n
        while at > 0 and not as_in_c and (_reach(order[at - 1], n_operands, strides)
                                          > _reach(axis, n_operands, strides)):
            order[at] = order[at - 1]
            at -= 1
        order[at] = axis
        n += 1
    into.walk = _walk_along(order, n)
    into.n_written = n_operands - 1     # a gradient is only read
    into.blocked = into.clamps = into.rounds = False
    into.ndim = 0
    for at in range(n):
        axis = order[at]
        last = into.ndim - 1
        merges = last >= 0
        for k in range(n_operands):
            if not merges:
                break
            merges = strides[k][axis] == into.stride[k][last] * into.shape[last]
        if merges:
            into.shape[last] *= shape[axis]
            continue
        into.shape[into.ndim] = shape[axis]
        for k in range(n_operands):
            into.stride[k][into.ndim] = strides[k][axis]
        into.ndim += 1
    if into.ndim == 0:      # a single element
        into.ndim = into.shape[0] = 1
        for k in range(n_operands):
            into.stride[k][0] = 0


cdef bint is_run(const layout *axes, int n_operands, Py_ssize_t itemsize) noexcept nogil:
    """Whether the whole layout is one contiguous run in every operand."""
    cdef int k
    if axes.ndim > 1:
        return False
    for k in range(n_operands):
        if axes.storage[k] != NATIVE:
            return False
        if axes.stride[k][0] != itemsize and axes.shape[0] != 1:
            return False
    return True


cdef struct pair:
    double real, imag

ctypedef fused item:
    char
    uint16_t
    float
    double
    pair


cdef void _copy(item *to, Py_ssize_t apart, const item *source, Py_ssize_t stride,
                Py_ssize_t n) noexcept nogil:
    """Copy n elements; those of the copy and of the source are so many bytes apart."""
    cdef char *into = <char *>to
    cdef const char *at = <const char *>source
    cdef Py_ssize_t _, i, size = sizeof(item)
    for _ in range(n >> 2):     # the speed of a loop of one would depend on where its code begins
        memcpy(into, at, size)
        memcpy(into + apart, at + stride, size)
        memcpy(into + 2 * apart, at + 2 * stride, size)
        memcpy(into + 3 * apart, at + 3 * stride, size)
        into += 4 * apart
        at += 4 * stride
    for i in range(n & 3):
        memcpy(into + i * apart, at + i * stride, size)


cdef void _copy_any(char *to, Py_ssize_t apart, const char *source, Py_ssize_t stride,
                    Py_ssize_t n, Py_ssize_t itemsize) noexcept nogil:
    if itemsize == 4:
        _copy(<float *>to, apart, <const float *>source, stride, n)
    elif itemsize == 8:
        _copy(<double *>to, apart, <const double *>source, stride, n)
    elif itemsize == 16:
        _copy(<pair *>to, apart, <const pair *>source, stride, n)
    elif itemsize == 2:
        _copy(<uint16_t *>to, apart, <const uint16_t *>source, stride, n)
    else:
        _copy(to, apart, source, stride, n)


cdef void gather(char *to, const char *source, Py_ssize_t stride, Py_ssize_t n,
                 Py_ssize_t itemsize, int storage) noexcept nogil:
    """Gather n elements, `stride` bytes apart, into a contiguous run in computation type."""
    cdef float *floats = <float *>to
    cdef Py_ssize_t i
    if storage == NATIVE and stride == itemsize:
        memcpy(to, source, n * itemsize)
    elif storage != NATIVE and stride == 2:
        _halves.widen[storage](<const uint16_t *>source, n, floats)
    elif storage == FLOAT16:
        for i in range(n):
            floats[i] = float_of_float16((<const uint16_t *>(source + i * stride))[0])
    elif storage == BFLOAT16:
        for i in range(n):
            floats[i] = float_of_bfloat16((<const uint16_t *>(source + i * stride))[0])
    else:
        _copy_any(to, itemsize, source, stride, n, itemsize)


cdef void clamp(void *run, Py_ssize_t n, bint is_double, const double *bounds) noexcept nogil:
    """Clamp a run to two bounds, neither of them NaN; NaN elements stay NaN."""
    _halves.clamp[is_double](run, n, bounds, run)


cdef const uint16_t *_noise(const layout *axes, Py_ssize_t first, Py_ssize_t index_stride,
                            Py_ssize_t n, uint16_t *into) noexcept nogil:
    """The noise of a run for each operand that is written, in rows of NOISE_ROW.

    The indices of its elements begin with `first` and are `index_stride` apart.
    """
    cdef Py_ssize_t i
    cdef int k
    if index_stride == 1:
        _halves.noise(axes.key, axes.own_key, axes.n_written, first, n, into)
        return into + (first & 1)
    for k in range(axes.n_written):
        for i in range(n):
            into[k * NOISE_ROW + i] = noise_at(axes.key, axes.own_key[k], first + i * index_stride)
    return into


cdef void _round(char *to, Py_ssize_t stride, const float *floats, Py_ssize_t n,
                 const uint16_t *noise) noexcept nogil:
    """Round a run stochastically."""
    cdef Py_ssize_t i
    if stride == 2:
        _halves.round(floats, n, noise, <uint16_t *>to)
        return
    for i in range(n):
        (<uint16_t *>(to + i * stride))[0] = bfloat16_near(floats[i], noise[i])


cdef void scatter(char *to, Py_ssize_t stride, const char *source, Py_ssize_t n,
                  Py_ssize_t itemsize, int storage) noexcept nogil:
    """The inverse of `gather`; a number that is stored in 16 bits is rounded."""
    cdef const float *floats = <const float *>source
    cdef Py_ssize_t i
    if storage != NATIVE and stride == 2:
        _halves.narrow[storage](floats, n, <uint16_t *>to)
    elif storage == FLOAT16:
        for i in range(n):
            (<uint16_t *>(to + i * stride))[0] = float16_of(floats[i])
    elif storage == BFLOAT16:
        for i in range(n):
            (<uint16_t *>(to + i * stride))[0] = bfloat16_of(floats[i])
    else:
        _copy_any(to, stride, source, itemsize, n, itemsize)


include "half_runs.pxi"


cdef void _run_axis(const layout *axes, step_t step, const half_step_t *half, int n_operands,
                    bint writes, char **at, Py_ssize_t itemsize, Py_ssize_t n,
                    const void *h) noexcept nogil:
    """Step n elements along the innermost axis, from the addresses `at`."""
    cdef double[MAX_OPERANDS][PIECE] buffer
    cdef void *p[MAX_OPERANDS]
    cdef bint buffered[MAX_OPERANDS]
    cdef bint direct = True
    cdef uint16_t[(MAX_OPERANDS - 1) * NOISE_ROW] memory
    cdef const uint16_t *noise = NULL
    cdef Py_ssize_t done = 0, piece, stride
    cdef int k, n_written = axes.n_written if writes else 0
    cdef half_run narrow
    for k in range(n_operands):
        p[k] = at[k]
        buffered[k] = axes.storage[k] != NATIVE or axes.stride[k][0] != itemsize
        direct = direct and not buffered[k]
    if direct and not axes.clamps:
        step(p, n, h)
        return
    if begin_halves(&narrow, axes, half, n_operands, <const float *>h):
        _run_halves(&narrow, at, n)
        return
    while done < n:
        piece = PIECE * <Py_ssize_t>sizeof(double) // itemsize
        if piece > n - done:
            piece = n - done
        if axes.rounds and writes:
            piece = min(piece, <Py_ssize_t>NOISES)
            stride = axes.stride[n_operands][0]
            noise = _noise(axes, <Py_ssize_t>at[n_operands] + done * stride, stride, piece, memory)
        for k in range(n_operands):
            stride = axes.stride[k][0]
            p[k] = at[k] + done * stride
            if buffered[k]:
                p[k] = buffer[k]
                if k or not axes.overwrites:
                    gather(<char *>p[k], at[k] + done * stride, stride, piece, itemsize,
                           axes.storage[k])
        if axes.clamps:     # from where it is, or in the buffer
            _halves.clamp[itemsize == 8](p[n_operands - 1], piece, axes.bounds,
                                         buffer[n_operands - 1])
            p[n_operands - 1] = buffer[n_operands - 1]
        if step == NULL:        # to store numbers otherwise is all there is to do
            p[0] = p[1]
        else:
            step(p, piece, h)
        for k in range(n_written):
            stride = axes.stride[k][0]
            if axes.rounds and axes.storage[k] == BFLOAT16:
                _round(at[k] + done * stride, stride, <float *>p[k], piece, noise + k * NOISE_ROW)
            elif buffered[k]:
                scatter(at[k] + done * stride, stride, <char *>p[k], piece, itemsize,
                        axes.storage[k])
        done += piece


cdef void run_layout(const layout *axes, step_t step, const half_step_t *half, int n_operands,
                     bint writes, char **data, Py_ssize_t itemsize, Py_ssize_t start,
                     Py_ssize_t count, const void *h) noexcept nogil:
    """Step elements start .. start + count - 1, in the order of the layout.

    A step that does not write only looks: nothing is stored, whatever it does in the buffer.
    """
    cdef Py_ssize_t index[MAX_DIMS]
    cdef char *at[MAX_OPERANDS + 1]
    cdef Py_ssize_t rest = start, n
    cdef int axis, k, n_addresses = n_operands + axes.rounds
    for k in range(n_addresses):
        at[k] = data[k]
    for axis in range(axes.ndim):
        index[axis] = rest
        if axis < axes.ndim - 1:    # rows of one axis need no division
            index[axis] = rest % axes.shape[axis]
            rest //= axes.shape[axis]
        for k in range(n_addresses):
            at[k] += index[axis] * axes.stride[k][axis]
    while count > 0:
        n = axes.shape[0] - index[0]
        if n > count:
            n = count
        _run_axis(axes, step, half, n_operands, writes, at, itemsize, n, h)
        count -= n
        if count == 0:
            return
        # the run ended at the end of the innermost axis: back to its start, and carry
        for k in range(n_addresses):
            at[k] -= index[0] * axes.stride[k][0]
        index[0] = 0
        for axis in range(1, axes.ndim):
            index[axis] += 1
            for k in range(n_addresses):
                at[k] += axes.stride[k][axis]
            if index[axis] < axes.shape[axis]:
                break
            for k in range(n_addresses):
                at[k] -= axes.shape[axis] * axes.stride[k][axis]
            index[axis] = 0

include "blocks.pxi"
include "extents.pxi"
