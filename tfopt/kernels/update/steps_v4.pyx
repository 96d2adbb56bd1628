# cython: language_level=3, cdivision=True
"""The steps of v3, with conversions, steps of 16 and 8 bits and a sum, that AVX-512 makes faster.

The others are bound by memory or by division, so wider registers would gain nothing.
"""
from cpython.pycapsule cimport PyCapsule_GetPointer

from tfopt.kernels.reduce.lane_sums cimport add_squares, lanes_t, sums
from tfopt.kernels.update import steps_v3

include "half_steps_v4.pxi"
include "block_steps.pxi"
include "conversions.pxi"

capsule = steps_v3.capsule
sums_capsule = steps_v3.sums_capsule

set_half_steps(<steps *>PyCapsule_GetPointer(capsule, b"tfopt.steps"))
set_block_steps(<steps *>PyCapsule_GetPointer(capsule, b"tfopt.steps"))


cdef void _add_squares(const float *x, Py_ssize_t n, double scale, double *lanes) noexcept nogil:
    add_squares(x, n, scale, lanes)

(<sums *>PyCapsule_GetPointer(sums_capsule, b"tfopt.sums")).squares[0] = <lanes_t>_add_squares
