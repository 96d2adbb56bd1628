"""Changes of a checked call: its gradients, cautious decay, stochastic rounding."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc
from libc.string cimport memcpy

from tfopt.errors import InvalidArgumentError, InvalidTypeError

from tfopt.kernels.arrays.layout cimport BFLOAT16, halves_in_use, layout, merge_axes
from tfopt.kernels.platform.halves cimport key_with
from tfopt.kernels.update.checks cimport Call
from tfopt.kernels.platform.step_types cimport (
    MAX_DIMS, MAX_OPERANDS, MAX_SCALARS, N_SCALES, step_t,
)
from tfopt.kernels.update.whole_rows cimport need_scratch
from tfopt.kernels.update.work cimport set_scale, tensor

cimport tfopt.kernels.platform.numpy_api as cnp

cnp.import_array()


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
            it.axes.walk = it.walk
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


# ---- weight decay

cdef struct caution:
    # behind the scalars of a step that is followed by cautious weight decay
    step_t step
    int n_operands
    int itemsize
    double decay

cdef enum:
    PIECE = 512     # doubles: they stay in the first-level cache
    CAUTION = MAX_SCALARS + N_SCALES    # where it is, in doubles; that of absent rows is the second


cdef inline void _step_with(const caution *with_, char **p, Py_ssize_t n,
                            const double *h) noexcept nogil:
    """Step a run, piece by piece, and let it decay where that moved it towards zero."""
    cdef double[PIECE] before
    cdef char *at[MAX_OPERANDS]
    cdef Py_ssize_t done = 0, piece, size = with_.itemsize
    cdef int k
    while done < n:
        piece = min(n - done, PIECE * <Py_ssize_t>sizeof(double) // size)
        for k in range(with_.n_operands):
            at[k] = p[k] + done * size
        memcpy(before, at[0], piece * size)
        with_.step(<void **>at, piece, h)
        halves_in_use().decay[size == 8](at[0], before, piece, with_.decay)
        done += piece


cdef void step_cautiously(char **p, Py_ssize_t n, const double *h) noexcept nogil:
    _step_with(<const caution *>(h + CAUTION), p, n, h)


cdef void step_absent_cautiously(char **p, Py_ssize_t n, const double *h) noexcept nogil:
    _step_with(<const caution *>(h + CAUTION) + 1, p, n, h)


def set_cautious_decay(Call call not None, double decay):
    """Make a call subtract from the weights `decay` times what they were, where the step agrees.

    That is where it moves them towards zero, or not at all.
    """
    cdef caution *behind = <caution *>(<double *>call.w.h + CAUTION)
    cdef int k
    if call.complex_numbers or call.w.by_rows or call.w.first != NULL:
        raise InvalidTypeError(
            "cautious weight decay needs a rule without a reduction, and real variables"
        )
    if call.w.step != <step_t>step_cautiously:
        behind[0].step = call.w.step
        call.w.step = <step_t>step_cautiously
    if call.w.absent != NULL and call.w.absent != <step_t>step_absent_cautiously:
        behind[1].step = call.w.absent
        call.w.absent = <step_t>step_absent_cautiously
    for k in range(2):
        behind[k].n_operands, behind[k].itemsize = call.w.n_operands, <int>call.w.itemsize
        behind[k].decay = decay
    call.w.half = NULL
    call.w.blocks = NULL
    call.w.scatter, call.w.buckets = NULL, NULL


# ---- stochastic rounding

cdef list _operands_of(Call call, Py_ssize_t t):
    """The arrays of a variable."""
    cdef list found = []
    if isinstance(call.arrays, list):       # of many variables: a list for each operand
        for column in call.arrays:
            found.append(column[t])
    else:
        found.extend(call.arrays[0])
        found.append(call.arrays[1])
    return found


cdef int _add_indices(layout *axes, list operands, int skip_axes) except -1:
    """Have the axes also lead to the indices of the elements, in the order of C."""
    cdef const cnp.npy_intp *strides[MAX_OPERANDS + 1]
    cdef cnp.npy_intp index_stride[MAX_DIMS]
    cdef cnp.ndarray a = operands[0]
    cdef int k, axis, n = len(operands), ndim = cnp.PyArray_NDIM(a) - skip_axes
    cdef layout before = axes[0]
    cdef Py_ssize_t step = 1
    for axis in range(ndim - 1, -1, -1):
        index_stride[axis] = step
        step *= cnp.PyArray_DIM(a, skip_axes + axis)
    for k in range(n):
        strides[k] = cnp.PyArray_STRIDES(<cnp.ndarray>operands[k]) + skip_axes
    strides[n] = index_stride
    merge_axes(axes, n + 1, ndim, cnp.PyArray_DIMS(a) + skip_axes, strides, False)
    axes.n_written = before.n_written
    axes.clamps = before.clamps
    return 0


def set_rounding(Call call not None, uint64_t seed, int64_t step, list numbers not None):
    """Make a call round bfloat16 variables and slots stochastically.

    Parameters
    ----------
    call : Call
    seed, step : int
    numbers : list of int
        Of each variable. With the operand's place in the call they tell the arrays of a step apart.
    """
    cdef Py_ssize_t t
    cdef int k, n = call.w.n_operands
    cdef tensor *it
    cdef bint rounds
    cdef uint64_t key
    if len(numbers) != call.w.n_tensors:
        raise InvalidArgumentError(f"{len(numbers)} numbers for {call.w.n_tensors} variables")
    if call.w.by_rows or call.w.first != NULL:
        raise InvalidTypeError("steps of whole rows or variables round to the nearest only")
    for t in range(call.w.n_tensors):
        it = &call.w.tensors[t]
        rounds = False
        if it.axes != NULL:
            for k in range(n - 1):
                rounds = rounds or it.axes.storage[k] == BFLOAT16
        if not rounds:
            continue
        if not it.axes.rounds and not it.axes.blocked:
            _add_indices(it.axes, _operands_of(call, t), call.w.index_size != 0)
        it.axes.rounds = True
        it.data[n] = NULL
        key = it.axes.key = key_with(key_with(key_with(0, seed), step), numbers[t])
        for k in range(n - 1):
            it.axes.own_key[k] = <uint32_t>key_with(key, k + 1)
