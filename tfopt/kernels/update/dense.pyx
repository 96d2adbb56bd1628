"""The dense driver, and the entry point of both drivers: which thread steps which elements.

The variables of a dense call are concatenated and cut at multiples of a block. The cut does not
depend on the number of threads, and the arithmetic of an element does not depend on its position in
a run, so the results depend on neither.
"""

from libc.stdint cimport uint16_t
from libc.string cimport memcpy

from tfopt.errors import IndexOutOfRangeError

from tfopt.kernels.update.checks import dense_call
from tfopt.kernels.update.multi_tensor import many_call
from tfopt.kernels.update.sparse_checks import sparse_call

from tfopt.kernels.update.checks cimport Call
from tfopt.kernels.arrays.layout cimport halves_in_use, layout, run_blocks, run_layout
from tfopt.kernels.platform.machine cimport fp_enter, fp_leave, fp_state
from tfopt.kernels.update.sparse cimport run_sparse
from tfopt.kernels.platform.runtime cimport at_most, gather_team, run_team, share_of
from tfopt.kernels.platform.step_types cimport MAX_OPERANDS, MAX_SCALARS, N_SCALES
from tfopt.kernels.update.step_table cimport Kernel
from tfopt.kernels.update.whole_tensors cimport run_tensors
from tfopt.kernels.update.work cimport set_scale, tensor_at, work
from tfopt.kernels.update.whole_rows cimport grain_of_rows, run_rows


cdef inline Py_ssize_t _whole(const work *w, Py_ssize_t t, Py_ssize_t n) noexcept nogil:
    """Round a number of elements of a tensor up to whole grains, or to all."""
    cdef Py_ssize_t size = w.starts[t + 1] - w.starts[t]
    cdef Py_ssize_t grain = grain_of_rows(&w.tensors[t]) if w.by_rows else w.grain
    n = (n + grain - 1) // grain * grain
    return n if n < size else size


cdef inline bint _are_runs(const layout *axes) noexcept nogil:
    """Whether what is only rounded to 16 bits, and the results, are runs."""
    return (axes.ndim == 1 and axes.stride[0][0] == sizeof(uint16_t)
            and axes.stride[1][0] == sizeof(float))


cdef void run_elements(const work *w, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """Step elements start .. stop - 1 of the concatenated tensors."""
    cdef Py_ssize_t t = tensor_at(w, start), first, last, end
    cdef void *p[MAX_OPERANDS]
    cdef double[2 * (MAX_SCALARS + N_SCALES)] own
    cdef const double *h = <const double *>w.h
    cdef int k
    if w.own_scales:
        memcpy(own, w.h, sizeof(own))
        h = own
    while start < stop:
        end = w.starts[t + 1] if w.starts[t + 1] < stop else stop
        first, last = start - w.starts[t], end - w.starts[t]
        if first < last and (w.grain > 1 or w.by_rows):
            first, last = _whole(w, t, first), _whole(w, t, last)
        if first < last:
            if w.own_scales:
                set_scale(own, w.tensors[t].scale, w.itemsize)
            if w.by_rows:
                run_rows(w, &w.tensors[t], first // w.tensors[t].inner, last // w.tensors[t].inner,
                         h)
            elif w.tensors[t].axes == NULL:
                for k in range(w.n_operands):
                    p[k] = w.tensors[t].data[k] + first * w.itemsize
                w.step(p, last - first, h)
            elif w.step == NULL and _are_runs(w.tensors[t].axes):
                halves_in_use().narrow[w.tensors[t].axes.storage[0]](
                    <float *>w.tensors[t].data[1] + first, last - first,
                    <uint16_t *>w.tensors[t].data[0] + first)
            elif w.tensors[t].axes.blocked:
                run_blocks(w.tensors[t].axes, w.step, w.blocks, w.n_operands, not w.looks,
                           w.tensors[t].data, first, last, h)
            else:
                run_layout(w.tensors[t].axes, w.step, w.half, w.n_operands, not w.looks,
                           w.tensors[t].data, w.itemsize, first, last - first, h)
        start = end
        t += 1


cdef void _run_share(const void *call, int thread, int threads) noexcept nogil:
    cdef const work *w = <const work *>call
    cdef Py_ssize_t n = w.starts[w.n_tensors]
    cdef fp_state caller = fp_enter(w.flush)
    run_elements(w, share_of(n, thread, threads), share_of(n, thread + 1, threads))
    fp_leave(caller)


cdef void run_dense(const work *w) noexcept nogil:
    if w.first != NULL:
        run_tensors(w)
    else:
        run_team(at_most(gather_team(w.starts[w.n_tensors], w.n_operands), w.team), _run_share, w)


cdef void run_call(Call call) noexcept:
    """Carry out a checked call."""
    call.outside = 0
    with nogil:
        if call.w.index_size:
            run_sparse(&call.w)
        else:
            run_dense(&call.w)


cdef int refuse_changed(Call call) except -1:
    """Raise if an index was changed to one out of range after the checks; its row was skipped."""
    if call.outside:
        raise IndexOutOfRangeError(
            f"indices were changed while they were used: one was not in [0, {call.w.n_rows}). Give "
            "an array that no other thread writes to"
        )
    return 0


def run(Call call not None):
    """Carry out a checked call.

    Raises
    ------
    IndexOutOfRangeError
        If another thread changed an index to one out of range after the call was checked. The other
        rows have then been updated.
    """
    run_call(call)
    refuse_changed(call)


def apply(Kernel kernel not None, tuple arrays not None, tuple hypers not None, int flags,
          indices, grad_scale, var_scale=1.0):
    """Check a dense update, or a sparse one if there are `indices`, and carry it out.

    Lists of arrays are many variables, updated by one call.
    """
    if indices is not None:
        run(sparse_call(kernel, arrays, indices, hypers, flags, grad_scale, var_scale=var_scale))
    elif isinstance(arrays[0], (list, tuple)):
        run(many_call(kernel, arrays, hypers, flags, grad_scale, var_scale))
    else:
        run(dense_call(kernel, arrays, hypers, flags, grad_scale, var_scale))
