"""Validation: from Python arguments to a call that cannot fail.

The same functions serve every rule, driven by its row of the table. They write nothing; when one
raises, no array has changed. They return a `Call`, which holds only addresses and sizes, so the
drivers need neither the GIL nor a way to report errors.
"""

cimport cython

import numpy as np

from libc.stdlib cimport calloc, free

from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.rules import LIMITS

from tfopt.kernels.arrays.coerce cimport (
    as_array, block_storage_of, read_scalar, refuse_layout, shape_of, storage_of,
)
from tfopt.kernels.arrays.layout cimport NATIVE, is_run, layout, merge_axes
from tfopt.kernels.platform.machine cimport fp_enter, fp_leave, fp_state
from tfopt.kernels.arrays.aliasing cimport (
    check_itself, hold, overlap, same_memory, same_rows, same_shape,
)
from tfopt.kernels.platform.runtime cimport flush_denormals
from tfopt.kernels.platform.step_types cimport (
    MAX_HYPERS, MAX_OPERANDS, MAX_SCALARS, N_SCALES, steps,
)
from tfopt.kernels.update.step_table cimport (
    COLUMNS, INDICES, INNER, Kernel, RANK, ROWS, called_steps, steps_of,
)
from tfopt.kernels.update.whole_rows cimport need_scratch
from tfopt.kernels.update.whole_tensors cimport need_sums
from tfopt.kernels.update.work cimport tensor

cimport tfopt.kernels.platform.numpy_api as cnp

cnp.import_array()

include "call.pxi"


# ---- one check

cdef bint _is_stored(cnp.ndarray slot, cnp.ndarray var) except -1:
    """Whether a slot is in a storage of its own, from which it is computed with as the variable."""
    cdef int typenum = cnp.PyArray_TYPE(slot)
    if cnp.PyArray_TYPE(var) != cnp.NPY_FLOAT32 and storage_of(var) <= NATIVE:
        return False
    return (typenum == cnp.NPY_FLOAT32 or storage_of(slot) > NATIVE
            or block_storage_of(slot) > NATIVE)


cdef int check_operand(Kernel kernel, cnp.ndarray a, str name, cnp.ndarray var,
                       bint written) except -1:
    """Check dtype and layout; `var` determines the dtype."""
    cdef int typenum = cnp.PyArray_TYPE(a)
    if a is var:
        if storage_of(a) < 0 or (cnp.PyArray_ISCOMPLEX(a) and not kernel.takes_complex):
            raise InvalidTypeError(f"{name} must be {kernel.rule.dtypes}, not {a.dtype}")
    elif typenum != cnp.PyArray_TYPE(var) and not (written and _is_stored(a, var)):
        if written or cnp.PyArray_TYPE(var) != cnp.NPY_FLOAT32 or storage_of(a) <= NATIVE:
            remedy = "" if written or cnp.PyArray_ISCOMPLEX(a) else (
                f"; astype('{var.dtype}') converts it"
            )
            raise InvalidTypeError(f"{name} must be {var.dtype} as var is, not {a.dtype}{remedy}")
    if written:
        if not cnp.PyArray_ISBEHAVED(a):
            refuse_layout(a, name, True)
    elif not (cnp.PyArray_ISALIGNED(a) and cnp.PyArray_ISNOTSWAPPED(a)):
        refuse_layout(a, name, False)
    return 0


cdef int check_shape(cnp.ndarray a, str name, cnp.ndarray var) except -1:
    cdef Py_ssize_t blocks = (cnp.PyArray_SIZE(var) + CODES - 1) // CODES
    if block_storage_of(a):
        if cnp.PyArray_NDIM(a) != 1 or cnp.PyArray_DIM(a, 0) != blocks:
            raise InvalidArgumentError(
                f"{name} must have the shape [{blocks}], a block for each {CODES} elements of var, "
                f"not {shape_of(a)}"
            )
    elif not same_shape(a, var):
        raise InvalidArgumentError(
            f"var and {name} do not have the same shape: "
            f"{shape_of(var)} {shape_of(a)}"
        )
    return 0


cdef int check_its_shape(Kernel kernel, int k, cnp.ndarray a, cnp.ndarray var) except -1:
    """Check the shape of operand k: that of the variable, or with one number for each row."""
    cdef str name = kernel.operands[k]
    if k < kernel.n_whole or k == kernel.n_operands - 1:
        return check_shape(a, name, var)
    if block_storage_of(a):
        raise InvalidTypeError(f"{name} has a number for each row, which is not stored in blocks")
    if not same_rows(a, var):
        raise InvalidArgumentError(
            f"{name} must have a number for each row of var: {shape_of(var)} {shape_of(a)}"
        )
    return 0


cdef object _read(object faults, object value, str name, double *into):
    """Read a number; return the errors of all numbers read so far, by name."""
    try:
        read_scalar(value, name, into)
    except InvalidArgumentError as error:
        faults = {} if faults is None else faults
        faults[name] = error
    return faults


cdef object read_scalars(Kernel kernel, tuple hypers, object grad_scale, object var_scale,
                         numbers *into):
    """Read all numbers of a call, before anything else is checked.

    A number's __float__ may run any code, which could invalidate earlier checks. Errors are kept
    and raised at their position in the order of checks.
    """
    cdef object faults = None
    cdef int k
    if len(hypers) != kernel.n_hypers:
        raise InvalidArgumentError(
            f"{kernel.name} takes {kernel.n_hypers} hyperparameters, not {len(hypers)}"
        )
    for k in range(kernel.n_hypers):
        faults = _read(faults, hypers[k], <str>kernel.hypers[k], &into.hypers[k])
    faults = _read(faults, grad_scale, "grad_scale", &into.scales[0])
    return _read(faults, var_scale, "var_scale", &into.scales[1])


cdef int _refuse_fault(object faults, str name) except -1:
    if faults is not None and name in faults:
        raise faults[name]
    return 0


cdef int check_scales(object faults) except -1:
    _refuse_fault(faults, "grad_scale")
    return _refuse_fault(faults, "var_scale")


cdef int _check_hyper(Kernel kernel, int k, int flags, bint dense, const numbers *read,
                      object faults) except -1:
    """Check that a hyperparameter is a scalar within its limit."""
    cdef int limit = kernel.limits[k]
    cdef const double *into = &read.hypers[k]
    cdef bint kept
    _refuse_fault(faults, <str>kernel.hypers[k])
    if limit == 0 or (dense and not kernel.limits_dense):
        return 0
    if limit == 1:
        kept = into[0] > 0
    elif limit == 2:
        kept = into[0] >= 0
    elif limit == 3:
        kept = into[0] <= 0
    else:
        kept = into[0] > 0 or (flags & 1 and into[0] == 0)
    if not kept:
        raise InvalidArgumentError(
            f"{kernel.hypers[k]} must be {LIMITS[limit - 1]}, not {into[0]}".replace(
                "the first flag", f"{[*kernel.rule.flags, ''][0]}"
            )
        )
    return 0


cdef int check_hypers(Kernel kernel, int flags, const numbers *read, object faults) except -1:
    """The hyperparameters of a dense call."""
    cdef int k
    for k in range(kernel.n_hypers):
        _check_hyper(kernel, k, flags, True, read, faults)
    return 0


cdef int _check_columns(str name, cnp.ndarray grad, cnp.ndarray var) except -1:
    cdef int axis
    if cnp.PyArray_NDIM(grad) != cnp.PyArray_NDIM(var):
        raise InvalidArgumentError(
            f"{name} must have the same number of dimensions as var: "
            f"{shape_of(var)} {shape_of(grad)}"
        )
    for axis in range(1, cnp.PyArray_NDIM(var)):
        if cnp.PyArray_DIM(var, axis) != cnp.PyArray_DIM(grad, axis):
            raise InvalidArgumentError(
                f"var and {name} must match in dimension {axis}: "
                f"{shape_of(var)} {shape_of(grad)}"
            )
    return 0


cdef Py_ssize_t row_size(cnp.ndarray var) noexcept:
    """The number of elements in a row."""
    cdef Py_ssize_t inner = 1
    cdef int axis
    for axis in range(1, cnp.PyArray_NDIM(var)):
        inner *= cnp.PyArray_DIM(var, axis)
    return inner


cdef int _check_rows(int check, str name, cnp.ndarray grad, cnp.ndarray ids,
                     cnp.ndarray var) except -1:
    """One of the checks of sparse calls."""
    if check == RANK and cnp.PyArray_NDIM(var) == 0:
        raise InvalidArgumentError("var must be at least 1 dimensional")
    if check == INDICES and cnp.PyArray_NDIM(ids) != 1:
        raise InvalidArgumentError(f"indices must be one-dimensional: {shape_of(ids)}")
    if check == COLUMNS:
        _check_columns(name, grad, var)
    if check == ROWS and cnp.PyArray_DIM(grad, 0) != cnp.PyArray_DIM(ids, 0):
        raise InvalidArgumentError(
            f"{name} must be the same size as indices in the first dimension: "
            f"{cnp.PyArray_DIM(grad, 0)} {cnp.PyArray_DIM(ids, 0)}"
        )
    if check == INNER and row_size(var) == 0:
        raise InvalidArgumentError(f"the rows of var must not be empty: {shape_of(var)}")
    return 0


cdef int check_in_order(Kernel kernel, list variables, cnp.ndarray grad, cnp.ndarray ids,
                        int flags, const numbers *read, object faults) except -1:
    """Run the checks of a dense (no ids) or sparse call, in the order of the rule's row."""
    cdef bint dense = ids is None
    cdef int last = kernel.n_operands - 1
    cdef int i, k
    for i in range(kernel.n_checks if dense else kernel.n_row_checks):
        k = kernel.checks[i] if dense else kernel.row_checks[i]
        if k < MAX_HYPERS:
            _check_hyper(kernel, k, flags, dense, read, faults)
        elif k < RANK:
            k -= MAX_HYPERS
            check_its_shape(kernel, k, variables[k] if k < last else grad, variables[0])
        else:
            _check_rows(k, <str>kernel.operands[last], grad, ids, variables[0])
    return check_scales(faults)


cdef cnp.ndarray contiguous_with_blocks(Kernel kernel, list variables, cnp.ndarray grad):
    """The gradient, contiguous if a slot is stored in blocks; then the others must be."""
    cdef int k
    cdef bint blocked = False
    for k in range(len(variables)):
        blocked = blocked or block_storage_of(variables[k])
    if not blocked:
        return grad
    for k in range(len(variables)):
        if not cnp.PyArray_IS_C_CONTIGUOUS(<cnp.ndarray>variables[k]):
            raise InvalidArgumentError(
                f"{kernel.operands[k]} must be C-contiguous, as a slot is stored in blocks"
            )
    return cnp.PyArray_GETCONTIGUOUS(grad)


# ---- memory that must not be shared

cdef bint is_safe(Kernel kernel, cnp.ndarray a, int k, cnp.ndarray grad,
                  const numbers *read) noexcept:
    """Whether a dense step may read the gradient from the memory of operand k.

    A step reads an element's gradient before it writes the element of a slot, or of the variable
    unless that is scaled first. A step of a row, or of a variable, begins with its sums.
    """
    return (same_memory(a, grad) and (k > 0 or read.scales[1] == 1)
            and not (kernel.by_rows or kernel.by_tensors))


cdef cnp.ndarray separate(Kernel kernel, list variables, cnp.ndarray grad, bint sparse,
                          const numbers *read):
    """Raise if variables overlap; return the gradient, copied if a step would change it."""
    cdef int k, j
    for k in range(kernel.n_operands - 1):
        check_itself(variables[k], <str>kernel.operands[k])
        for j in range(k):
            if overlap(variables[j], variables[k]):
                raise InvalidArgumentError(
                    f"{kernel.operands[j]} and {kernel.operands[k]} overlap in memory"
                )
    for k in range(kernel.n_operands - 1):
        if overlap(variables[k], grad) and (
                sparse or not is_safe(kernel, variables[k], k, grad, read)):
            return grad.copy()
    return grad


# ---- calls

def checked_hypers(Kernel kernel not None, tuple arguments not None, cnp.ndarray ids,
                   tuple hypers not None, int flags):
    """The hyperparameters as floats, after the checks of a call, for other backends.

    Of the arrays and the indices, None in a dense call, only the shapes are looked at.
    """
    cdef numbers read
    cdef object faults = read_scalars(kernel, hypers, 1.0, 1.0, &read)
    cdef list variables = as_arrays(kernel, arguments)
    cdef cnp.ndarray grad = variables.pop()
    cdef list checked = []
    cdef int k
    check_in_order(kernel, variables, grad, ids, flags, &read, faults)
    for k in range(kernel.n_hypers):
        checked.append(read.hypers[k])
    return tuple(checked)


cdef tuple _values(tuple names, dict values):
    cdef list found = []
    for name in names:
        found.append(values[name])
    return tuple(found)


cdef int checked_numbers(Kernel kernel, dict hypers, dict flags, grad_scale, var_scale,
                         numbers *read) except -1:
    """Read the numbers of a call and check them; return its flags."""
    cdef int bits = 0, bit = 1
    cdef object faults = read_scalars(kernel, _values(kernel.hypers, hypers), grad_scale,
                                      var_scale, read)
    for flag in kernel.rule.flags:
        bits += bit * bool(flags[flag])
        bit *= 2
    check_hypers(kernel, bits, read, faults)
    check_scales(faults)
    return bits


cdef int scalars_into(Kernel kernel, const numbers *read, int flags, bint double_precision,
                      bint dense, double *into) except -1:
    """Compute the numbers of a step for another backend, and return its flags and choices.

    They are computed with gradual underflow in the type of the step, float32 or float64.
    """
    cdef double[MAX_SCALARS + N_SCALES] h
    cdef float *single = <float *>h
    cdef int k, constants = flags
    check_flags(kernel, flags)
    cdef const steps *rule = steps_of(kernel, flags, double_precision)
    cdef fp_state caller = fp_enter(0)
    if rule.choose != NULL:
        constants += rule.choose(read.hypers)
    rule += 4 * (constants - flags)
    rule.scalars(read.hypers, read.scales, dense, h)
    fp_leave(caller)
    for k in range(kernel.n_given):
        into[k] = h[k] if double_precision else single[k]
    return constants


def step_arguments(Kernel kernel not None, tuple hypers not None, int flags, grad_scale,
                   var_scale, bint double_precision, bint dense):
    """The arguments of a step besides arrays, for other backends.

    Returns
    -------
    constants : int
        Bit k is the row's k-th flag or choice.
    scalars : tuple of float
        The gradient's scale and the variable's, then the row's scalars: computed with gradual
        underflow in the type of the step, float32 or float64.
    """
    cdef numbers read
    cdef double[MAX_SCALARS + N_SCALES] found
    cdef int k
    cdef list scalars = []
    faults = read_scalars(kernel, hypers, grad_scale, var_scale, &read)
    if faults is not None:
        raise next(iter(faults.values()))
    cdef int constants = scalars_into(kernel, &read, flags, double_precision, dense, found)
    for k in range(kernel.n_given):
        scalars.append(found[k])
    return constants, tuple(scalars)


cdef list as_arrays(Kernel kernel, tuple arguments):
    """The operands as arrays, the gradient last; before any check, since this may run any code."""
    cdef list arrays = []
    cdef int k, last = kernel.n_operands - 1
    cdef object argument
    if len(arguments) != last + 1:
        raise InvalidArgumentError(
            f"{kernel.name} takes {last + 1} arrays, not {len(arguments)}"
        )
    for k in range(last + 1):
        argument = arguments[k]
        if k == last and isinstance(argument, np.generic):  # the result of arithmetic on 0-d arrays
            argument = np.asarray(argument)
        arrays.append(as_array(argument, <str>kernel.operands[k]))
    return arrays


cdef cnp.ndarray check_operands(Kernel kernel, list arrays):
    """Pop the gradient from the list, leaving the variable and its slots."""
    cdef int k, last = kernel.n_operands - 1
    for k in range(last + 1):
        check_operand(kernel, arrays[k], <str>kernel.operands[k], arrays[0], k < last)
    return arrays.pop()


def dense_call(Kernel kernel not None, tuple arguments not None, tuple hypers not None,
               int flags, grad_scale, var_scale=1.0):
    """Check a dense update of one variable."""
    cdef Call call = Call.__new__(Call)
    cdef numbers read
    cdef object faults = read_scalars(kernel, hypers, grad_scale, var_scale, &read)
    cdef list variables = as_arrays(kernel, arguments)
    cdef cnp.ndarray grad = check_operands(kernel, variables)
    cdef cnp.ndarray var = variables[0]
    call.held = hold((variables, grad))
    check_in_order(kernel, variables, grad, None, flags, &read, faults)
    grad = contiguous_with_blocks(kernel, variables, grad)
    call.w.step = set_scalars(kernel, call, &read, flags, cnp.PyArray_TYPE(var), True).dense
    grad = separate(kernel, variables, grad, False, &read)
    lay_out(kernel, call, &call.one, variables, grad, 0)
    set_grain(call, &call.one)
    call.one_start[0] = 0
    call.one_start[1] = cnp.PyArray_SIZE(var)
    if call.w.first != NULL:
        need_sums(&call.w)
    call.arrays = (variables, grad)
    return call
