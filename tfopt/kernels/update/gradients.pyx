"""The gradients of a checked call: what they are, and how they are clipped as they are read."""

from libc.stdlib cimport calloc

from tfopt.errors import InvalidArgumentError

from tfopt.kernels.arrays.layout cimport layout
from tfopt.kernels.update.checks cimport Call, set_scale
from tfopt.kernels.update.whole_rows cimport need_scratch
from tfopt.kernels.update.work cimport tensor


cdef layout *_run(Py_ssize_t n, int n_operands, Py_ssize_t itemsize) except NULL:
    """Add a layout to a call of contiguous operands."""
    cdef layout *axes = <layout *>calloc(1, sizeof(layout))
    cdef int k
    if axes == NULL:
        raise MemoryError
    axes.ndim = 1
    axes.shape[0] = n
    for k in range(n_operands):
        axes.stride[k][0] = itemsize
    axes.n_written = n_operands - 1
    return axes


def gradients_of(Call call not None):
    """The gradients of a checked call, in a list."""
    if call.arrays is None:
        return []
    if isinstance(call.arrays, list):       # of many variables: a list for each operand
        return list(call.arrays[call.w.n_operands - 1])
    return [call.arrays[1]]


cdef int _check_numbers(Call call, list values) except -1:
    """Raise unless there is one number for each gradient of a call and the call is real."""
    if len(values) != call.w.n_tensors or call.complex_numbers:
        raise InvalidArgumentError(
            f"{len(values)} numbers for the gradients of {call.w.n_tensors} real variables"
        )
    return 0


def set_bounds(Call call not None, list bounds not None):
    """Make a call clamp its gradients as they are read: each to its bound and the negative."""
    cdef Py_ssize_t t, n
    cdef tensor *it
    _check_numbers(call, bounds)
    call.w.scatter, call.w.buckets = NULL, NULL     # which ignore the layout
    for t in range(call.w.n_tensors):
        it = &call.w.tensors[t]
        if it.axes == NULL:
            n = call.w.inner if call.w.index_size else call.w.starts[t + 1] - call.w.starts[t]
            it.axes = _run(n, call.w.n_operands, call.w.itemsize)
            if call.w.by_rows:
                need_scratch(&call.w, it)
        it.axes.clamps = True
        it.axes.bounds[0], it.axes.bounds[1] = -<double>bounds[t], bounds[t]


def set_scales(Call call not None, list scales not None):
    """Make a call multiply its gradients as they are read, each by its own number."""
    cdef Py_ssize_t t
    _check_numbers(call, scales)
    for t in range(call.w.n_tensors):
        call.w.tensors[t].scale = scales[t]
    if call.w.n_tensors == 1:
        set_scale(call.w.h, call.w.tensors[0].scale, call.w.itemsize)
    else:
        call.w.own_scales = True
