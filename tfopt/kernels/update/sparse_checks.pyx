"""Validation of sparse updates: their indices, and the memory to sum their gradients."""

import math

import numpy as np

from libc.math cimport INFINITY
from libc.stdlib cimport free

from tfopt.errors import IndexOutOfRangeError, InvalidArgumentError, InvalidTypeError

from tfopt.kernels.arrays.coerce cimport as_array, block_storage_of, refuse_layout
from tfopt.kernels.update.checks cimport (
    Call, as_arrays, check_in_order, check_operands, lay_out, numbers, read_scalars, row_size,
    separate, set_scalars,
)
from tfopt.kernels.arrays.csr cimport first_outside
from tfopt.kernels.arrays.aliasing cimport hold, overlap
from tfopt.kernels.platform.runtime cimport BLOCK, team_size
from tfopt.kernels.platform.step_types cimport steps
from tfopt.kernels.update.step_table cimport Kernel
from tfopt.kernels.update.row_buckets cimport bucket_bytes, set_buckets, worth_dividing
from tfopt.kernels.update.segment_sum cimport own_bytes

cimport tfopt.kernels.platform.numpy_api as cnp

cnp.import_array()

cdef enum:
    MOST_OWN_BYTES = 1 << 28    # limit for a thread's sums; beyond it they share one array


cdef int _check_range(cnp.ndarray indices, Py_ssize_t rows) except -1:
    cdef Py_ssize_t bad = first_outside(
        <const char *>cnp.PyArray_DATA(indices), cnp.PyArray_STRIDE(indices, 0),
        cnp.PyArray_ITEMSIZE(indices) == 8, cnp.PyArray_DIM(indices, 0), rows)
    if bad >= 0:
        raise IndexOutOfRangeError(
            f"Index {indices[bad]} at offset {bad} in indices is out of range [0, {rows})"
        )
    return 0


cdef int _check_indices(cnp.ndarray ids) except -1:
    """Check the type and layout of indices."""
    if ids.descr.kind != c"i" or cnp.PyArray_ITEMSIZE(ids) not in (4, 8):
        raise InvalidTypeError(f"indices must be int32 or int64, not {ids.dtype}")
    if not (cnp.PyArray_ISALIGNED(ids) and cnp.PyArray_ISNOTSWAPPED(ids)):
        refuse_layout(ids, "indices", False)
    return 0


cdef int _set_rows(Kernel kernel, Call call, const steps *rule, list variables, cnp.ndarray grad,
                   cnp.ndarray ids) except -1:
    """Set the addresses of the operands' rows and of the indices."""
    cdef int k, last = kernel.n_operands - 1
    call.w.index_size = cnp.PyArray_ITEMSIZE(ids)
    call.w.index_stride = cnp.PyArray_STRIDE(ids, 0)
    call.w.indices = <const char *>cnp.PyArray_DATA(ids)
    call.w.n_indices = cnp.PyArray_DIM(ids, 0)
    for k in range(last):
        call.w.row_stride[k] = cnp.PyArray_STRIDE(variables[k], 0)
    call.w.row_stride[last] = cnp.PyArray_STRIDE(grad, 0)
    free(call.one.axes)
    call.one.axes = NULL
    lay_out(kernel, call, &call.one, variables, grad, 1)
    call.w.scatter = rule.scatter if call.w.inner == 1 and call.one.axes == NULL else NULL
    call.arrays = (variables, grad, ids)
    return 0


def sparse_call(Kernel kernel not None, tuple arguments not None, indices, tuple hypers not None,
                int flags, grad_scale, bint lazy=False, workspace=None, var_scale=1.0,
                double bound=float("inf"), double scale=1.0):
    """Check a sparse update; a lazy one does not change the other rows.

    With a workspace, the gradients of equal indices are summed, clamped to a bound and scaled
    before: by the call if it can (`Call.sums`), or else here, in the workspace.
    """
    return _checked(kernel, arguments, indices, hypers, flags, grad_scale, lazy, workspace,
                    var_scale, bound, scale, None)


def shared_rows_call(Kernel kernel not None, tuple arguments not None,
                     const Py_ssize_t[::1] at not None, indices, tuple hypers not None, int flags,
                     grad_scale, bint lazy, workspace, var_scale, bint exact):
    """Check a sparse update in which index i has row ``at[i]`` of a contiguous gradient.

    Nothing else writes to the gradient. Its rows are summed by index first, with denormals. The
    sums are stepped as they are if it is `exact`, else as gradients of indices that may be equal.
    Only calls that sum can take such rows: None is returned instead of another one.
    """
    cdef Call call = _checked(kernel, arguments, indices, hypers, flags, grad_scale, lazy,
                              workspace, var_scale, INFINITY, 1, at)
    if call is not None:
        call.summed.exact = exact
    return call


cdef Call _checked(Kernel kernel, tuple arguments, indices, tuple hypers, int flags, grad_scale,
                   bint lazy, workspace, var_scale, double bound, double scale,
                   const Py_ssize_t[::1] at):
    cdef Call call = Call.__new__(Call)
    cdef int k, last = kernel.n_operands - 1
    cdef numbers read
    cdef object faults = read_scalars(kernel, hypers, grad_scale, var_scale, &read)
    cdef list variables = as_arrays(kernel, arguments)
    cdef cnp.ndarray ids = as_array(indices, "indices")
    cdef cnp.ndarray given = check_operands(kernel, variables)
    cdef cnp.ndarray grad = given if at is None else _spread(given, at.shape[0])
    cdef cnp.ndarray var = variables[0]
    cdef const steps *rule
    cdef bint everywhere
    call.held = hold((variables, grad, ids))
    if kernel.by_tensors:
        raise InvalidArgumentError(
            f"{kernel.name} needs the gradient of all elements of a variable, of which it computes "
            "the norm, not of some rows: give an array"
        )
    for k in range(1, last):
        if block_storage_of(variables[k]):
            raise InvalidTypeError(
                f"{kernel.operands[k]} is stored in blocks of codes, which only dense gradients "
                "can update"
            )
    _check_indices(ids)
    check_in_order(kernel, variables, grad, ids, flags, &read, faults)
    rule = set_scalars(kernel, call, &read, flags, cnp.PyArray_TYPE(var), False)
    call.w.n_rows = cnp.PyArray_DIM(var, 0)
    _check_range(ids, call.w.n_rows)
    grad = separate(kernel, variables, grad, True, &read)
    for k in range(last):
        if overlap(variables[k], ids):
            raise InvalidArgumentError(f"{kernel.operands[k]} and indices overlap in memory")
    call.w.inner = row_size(var)
    call.w.step = rule.width1 if call.w.inner == 1 else rule.rows
    if call.w.inner == 1 and rule.width1 != rule.rows:
        call.w.half = NULL
    everywhere = rule.absent != NULL and not lazy
    _set_rows(kernel, call, rule, variables, grad, ids)
    if at is not None:
        if everywhere or call.w.inner == 1 or workspace is None \
                or cnp.PyArray_DIM(given, 0) > 0xFFFFFFFF \
                or not _sum_on_the_way(call, var, workspace, bound, scale):
            return None
        _share_rows(call, given, at)
        return call
    if workspace is not None and (
            everywhere or not _sum_on_the_way(call, var, workspace, bound, scale)):
        grad, ids = _summed(grad, ids, workspace, bound, scale, everywhere)
        _set_rows(kernel, call, rule, variables, grad, ids)
    if everywhere:
        zeros = np.zeros((<object>grad).shape[1:], grad.dtype)
        call.w.absent = rule.absent
        call.w.zeros = <char *>cnp.PyArray_DATA(<cnp.ndarray>zeros)
        call.arrays += (zeros,)
    elif worth_dividing(&call.w):
        _divide_rows(call, workspace)
    return call


cdef cnp.ndarray _spread(cnp.ndarray grad, Py_ssize_t n):
    """An array of n rows of a gradient's shape and dtype, whose numbers do not matter."""
    if cnp.PyArray_SIZE(grad) == 0 or not cnp.PyArray_ISCARRAY_RO(grad):
        raise InvalidArgumentError("rows that indices share must be contiguous, and not empty")
    cdef object shape = (<object>grad).shape, strides = (<object>grad).strides
    # np.broadcast_to takes half as long as a small step
    return np.ndarray((n, *shape[1:]), grad.dtype, grad, 0, (0, *strides[1:]))


cdef int _share_rows(Call call, cnp.ndarray grad, const Py_ssize_t[::1] at) except -1:
    """Let the indices of a call that sums have these rows of a gradient."""
    cdef int last = call.w.n_operands - 1
    call.one.data[last] = <char *>cnp.PyArray_DATA(grad)
    call.w.row_stride[last] = cnp.PyArray_STRIDE(grad, 0)
    call.summed.at, call.summed.n_terms = &at[0], cnp.PyArray_DIM(grad, 0)
    call.arrays += (grad, at.base)
    return 0


cdef cnp.ndarray _memory(workspace, str name, tuple shape):
    """An array of bytes, which a workspace keeps."""
    cdef cnp.ndarray memory
    if workspace is None:
        return np.empty(shape, np.uint8)
    memory = workspace.array(name, shape, np.uint8)
    if cnp.PyArray_NBYTES(memory) < math.prod(shape) or not cnp.PyArray_ISCARRAY(memory):
        raise InvalidArgumentError("a workspace gave other memory than it was asked for")
    return memory


cdef int _divide_rows(Call call, workspace) except -1:
    """Make a call step its rows neighbourhood by neighbourhood."""
    memory = _memory(workspace, "buckets", (bucket_bytes(call.w.n_indices, call.w.itemsize),))
    call.w.buckets = &call.divided
    set_buckets(&call.w, <char *>cnp.PyArray_DATA(memory))
    call.arrays += (memory,)
    return 0


cdef tuple _summed(cnp.ndarray grad, cnp.ndarray ids, workspace, double bound, double scale,
                   bint ascending):
    """The sums of the gradients of equal indices, and these indices."""
    sums, distinct = workspace.summed(grad, ids, bound, scale, ascending)
    if (<object>sums).shape != (len(distinct), *(<object>grad).shape[1:]):
        raise InvalidArgumentError("a workspace gave other memory than it was asked for")
    return sums, distinct


cdef bint _sum_on_the_way(Call call, cnp.ndarray var, workspace, double bound, double scale) \
        except -1:
    """Make a call sum the gradients of equal indices, if its rows are runs that fit in cache."""
    cdef Py_ssize_t n = call.w.n_indices
    cdef cnp.ndarray own
    if cnp.PyArray_TYPE(var) not in (cnp.NPY_FLOAT32, cnp.NPY_FLOAT64):
        return 0
    if call.one.axes != NULL or not 0 < call.w.inner <= BLOCK or not 0 < n < 0xFFFFFFFF:
        return 0
    if call.w.inner == 1 and call.w.scatter == NULL:    # of rules from elsewhere
        return 0
    call.summed.at, call.summed.exact = NULL, False
    call.summed.team = team_size(n * call.w.inner, call.w.n_operands)
    call.summed.most = min(n, call.w.n_rows)
    call.summed.own_bytes = own_bytes(n, call.summed.most, call.w.inner, call.w.itemsize)
    if call.summed.own_bytes > MOST_OWN_BYTES:
        return 0
    own = _memory(workspace, "own", (call.summed.team, call.summed.own_bytes))
    call.summed.own = <char *>cnp.PyArray_DATA(own)
    call.summed.bound, call.summed.scale = bound, scale
    call.w.summing = &call.summed
    call.arrays += (own,)
    return 1
