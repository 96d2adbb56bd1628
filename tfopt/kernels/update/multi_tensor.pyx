"""Many variables, one call.

A model can have thousands of small arrays, and checking each through Python would cost more than
the arithmetic. Ordinary arrays are checked through a few fields of NumPy's C structures; all others
go through the checks of a single call.
"""

from libc.stdlib cimport free, malloc

from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels.arrays.overlaps import overlapping

from tfopt.kernels.arrays.coerce cimport storage_of
from tfopt.kernels.update.checks cimport (
    Call, as_arrays, check_hypers, check_its_shape, check_operands, check_scales,
    contiguous_with_blocks, is_safe, lay_out, numbers, read_scalars, set_grain, set_scalars,
    set_sizes,
)
from tfopt.kernels.update.step_table cimport Kernel
from tfopt.kernels.update.whole_tensors cimport need_sums
from tfopt.kernels.update.work cimport tensor
from tfopt.kernels.arrays.layout cimport NATIVE
from tfopt.kernels.arrays.aliasing cimport (
    address_range, all_apart, check_itself, hold, overlap, same_rows, same_shape,
)

cimport tfopt.kernels.platform.numpy_api as cnp

cnp.import_array()


cdef int _set_arrays(Kernel kernel, list columns, Py_ssize_t n) except -1:
    """Convert to arrays; done before any check, since it may run any code."""
    cdef Py_ssize_t t
    cdef list column, arrays
    cdef bint plain
    for t in range(n):
        plain = True
        for column in columns:
            plain = plain and cnp.PyArray_CheckExact(column[t])
        if plain:
            continue
        try:
            arrays = as_arrays(kernel, tuple(_row(columns, t)))
        except InvalidArgumentError as error:
            raise type(error)(f"variable {t}: {error}") from None
        for column, a in zip(columns, arrays):
            column[t] = a
    return 0


cdef list _columns(Kernel kernel, tuple operands):
    """The arrays of each operand, in private lists."""
    cdef list columns = []
    if len(operands) != kernel.n_operands:
        raise InvalidArgumentError(
            f"{kernel.name} takes {kernel.n_operands} lists of arrays, not {len(operands)}"
        )
    for name, arrays in zip(kernel.operands, operands):
        if not isinstance(arrays, (list, tuple)):
            raise InvalidTypeError(
                f"{name} must be a list of arrays as var is, not {type(arrays).__name__}"
            )
        if len(arrays) != len(operands[0]):
            raise InvalidArgumentError(
                f"var lists {len(operands[0])} arrays, but {name} lists {len(arrays)}"
            )
        columns.append(list(arrays))
    return columns


cdef bint _set_plain(Kernel kernel, tensor *into, list columns, Py_ssize_t t,
                     cnp.dtype dtype) except -1:
    """Set a variable's addresses, if its arrays are contiguous and have exactly this dtype."""
    cdef cnp.ndarray var = None
    cdef int k, last = kernel.n_operands - 1
    cdef object a
    for k in range(last + 1):
        a = (<list>columns[k])[t]
        if not (cnp.PyArray_CheckExact(a)
                and (<cnp.ndarray>a).descr is dtype
                and cnp.PyArray_CHKFLAGS(
                    <cnp.ndarray>a, cnp.NPY_ARRAY_CARRAY if k < last else cnp.NPY_ARRAY_CARRAY_RO)):
            return False
        if k == 0:
            var = a
        elif not (same_rows(<cnp.ndarray>a, var) if kernel.n_whole <= k < last
                  else same_shape(<cnp.ndarray>a, var)):
            return False
        into.data[k] = <char *>cnp.PyArray_DATA(<cnp.ndarray>a)
    into.axes, into.walk = NULL, 0
    if kernel.by_rows or kernel.by_tensors:
        set_sizes(kernel, into, var)
    return True


cdef list _row(list columns, Py_ssize_t t):
    """The arrays of variable t. (Cython's comprehensions miscount references if memory is full.)"""
    cdef list arrays = []
    cdef list column
    for column in columns:
        arrays.append(column[t])
    return arrays


cdef int _set_any(Kernel kernel, Call call, tensor *into, list columns, Py_ssize_t t) except -1:
    """Set a variable's addresses, if a call for it alone could update it."""
    cdef list variables = _row(columns, t)
    cdef cnp.ndarray grad
    cdef int k, last = kernel.n_operands - 1
    try:
        grad = check_operands(kernel, variables)
        for k in range(last):
            check_its_shape(kernel, k, variables[k], variables[0])
            check_itself(variables[k], <str>kernel.operands[k])
        check_its_shape(kernel, last, grad, variables[0])
        if (cnp.PyArray_TYPE(<cnp.ndarray>variables[0])
                != cnp.PyArray_TYPE(<cnp.ndarray>columns[0][0])):
            raise InvalidTypeError(
                f"var must be {columns[0][0].dtype}, the dtype of variable 0, "
                f"not {variables[0].dtype}"
            )
    except InvalidArgumentError as error:
        raise type(error)(f"variable {t}: {error}") from None
    columns[last][t] = grad = contiguous_with_blocks(kernel, variables, grad)
    lay_out(kernel, call, into, variables, grad, 0)
    return 0


cdef list _separate(Kernel kernel, list columns, const numbers *read):
    """Raise if variables overlap; return the positions of gradients that had to be copied.

    A gradient is copied if the update of another element would change it.
    """
    cdef int last = kernel.n_operands - 1
    cdef list spans = [], copied = []
    cdef char *low = NULL
    cdef char *high = NULL
    for k, column in enumerate(columns):
        for a in column:
            address_range(a, &low, &high)
            spans.append((<size_t>low, <size_t>high, k < last))
    for one, other in overlapping(spans):
        j, s = divmod(one, len(columns[0]))
        k, t = divmod(other, len(columns[0]))
        if not overlap(columns[j][s], columns[k][t]):
            continue
        if j < last and k < last:
            raise InvalidArgumentError(
                f"{kernel.operands[j]} of variable {s} and {kernel.operands[k]} of variable "
                f"{t} overlap in memory"
            )
        if j == last:       # of a gradient and a variable the latter comes first here
            j, s, k, t = k, t, j, s
        if s != t or not is_safe(kernel, columns[j][s], j, columns[k][t], read):
            copied.append(t)
    return copied


def many_call(Kernel kernel not None, tuple operands not None, tuple hypers not None, int flags,
              grad_scale, var_scale=1.0):
    """Check an update of many variables of one dtype, each operand a list of arrays."""
    cdef Call call = Call.__new__(Call)
    cdef list columns = _columns(kernel, operands)
    cdef numbers read
    cdef object faults = read_scalars(kernel, hypers, grad_scale, var_scale, &read)
    cdef Py_ssize_t t, n = len(columns[0])
    cdef int last = kernel.n_operands - 1
    cdef cnp.dtype plain = None
    cdef cnp.ndarray var
    cdef list arrays
    check_hypers(kernel, flags, &read, faults)
    _set_arrays(kernel, columns, n)
    call.held = hold(columns)
    call.w.tensors = <tensor *>malloc((n + 1) * sizeof(tensor))
    call.w.starts = <Py_ssize_t *>malloc((n + 1) * sizeof(Py_ssize_t))
    call.w.n_tensors = call.n_laid_out = 0
    if call.w.tensors == NULL or call.w.starts == NULL:
        raise MemoryError
    call.w.starts[0] = 0
    for t in range(n):
        if plain is None or not _set_plain(kernel, &call.w.tensors[t], columns, t, plain):
            _set_any(kernel, call, &call.w.tensors[t], columns, t)
            set_grain(call, &call.w.tensors[t])
        var = (<list>columns[0])[t]
        if t == 0 and storage_of(var) == NATIVE:
            plain = var.descr
        call.w.n_tensors = call.n_laid_out = t + 1
        call.w.starts[t + 1] = call.w.starts[t] + cnp.PyArray_SIZE(var)
    if n == 0:
        return call
    if not all_apart(columns):
        for t in _separate(kernel, columns, &read):
            columns[last][t] = columns[last][t].copy()
            free(call.w.tensors[t].axes)
            call.w.tensors[t].axes = NULL
            arrays = _row(columns, t)
            lay_out(kernel, call, &call.w.tensors[t], arrays, arrays.pop(), 0)
    check_scales(faults)
    call.w.step = set_scalars(kernel, call, &read, flags,
                              cnp.PyArray_TYPE(<cnp.ndarray>columns[0][0]), True).dense
    if call.w.first != NULL:
        need_sums(&call.w)
    call.arrays = columns
    return call
