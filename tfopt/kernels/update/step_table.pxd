# cython: language_level=3
"""The drivers' view of a rule: pointers to its compiled loops.

A `steps` entry is for one rule, variant and element type. Besides it, a driver needs only the size
of an element; the table of entries comes from the module compiled for the instruction set in use
(kernels/__init__.py).
"""

from tfopt.kernels.platform.step_types cimport MAX_HYPERS, MAX_OPERANDS, steps

cdef enum:      # the checks of a call after those of hyperparameters and shapes
    RANK = MAX_HYPERS + MAX_OPERANDS
    INDICES
    COLUMNS
    ROWS
    INNER

cdef class Kernel:
    cdef readonly object rule
    cdef readonly str name
    cdef tuple operands, hypers
    cdef int n_operands, n_hypers, n_flags, first
    cdef int n_whole        # leading operands of the variable's shape; then those of rows
    cdef bint by_rows, by_tensors   # whether its step is one of whole rows, or variables
    cdef int n_sums, n_given        # sums; scalars before those that follow from sums
    cdef int[MAX_HYPERS] limits     # 1 + the position in tfopt.rules.LIMITS, 0: none
    cdef bint limits_dense, takes_complex
    cdef int n_checks, n_row_checks
    cdef int[MAX_HYPERS + MAX_OPERANDS + 8] checks, row_checks
    cdef int _code(self, str check) except -1

cdef const steps *steps_of(Kernel kernel, int flags, int type_) noexcept
cdef const steps *called_steps(Kernel kernel, int flags, int type_) noexcept
