# cython: language_level=3
"""Shared by epochs and rounds over blocks: visits of examples, and the damping of merges."""

from libc.stdint cimport int64_t, uint8_t

from tfopt.kernels.arrays.csr cimport extent, index
from tfopt.kernels.linear.losses cimport loss_t
from tfopt.kernels.platform.floats cimport real
from tfopt.kernels.linear.visits cimport example, shrunk

#: A partition's bias, and the sum of the gaps it met; padded to a cache line.
cdef struct partition:
    double bias
    double estimate
    double[6] room

#: E and the sum of the E_p / sigma^2, and E without shrinkage.
cdef struct excess:
    double joint
    double own
    double bound

cdef void visit_examples(const real *data, const index *indices, const index *indptr,
                         const real *dense, Py_ssize_t width, const int64_t *plan, Py_ssize_t n,
                         example *examples, bint planned, double *before, uint8_t *idle,
                         double *u, partition *own, int kind, const loss_t *loss, double l2,
                         double shrink, double bias_curvature, double sigma,
                         extent *bounds) noexcept nogil

#: The visits of sequential epochs, which the compiler makes faster of what is constant in them.
cdef void visit_alone(const real *data, const index *indices, const index *indptr,
                      const real *dense, Py_ssize_t width, const int64_t *plan, Py_ssize_t n,
                      example *examples, double *before, uint8_t *idle, double *v, partition *own,
                      int kind, const loss_t *loss, double l2, double shrink,
                      double bias_curvature, double sigma, extent *bounds) noexcept nogil

cdef double kept_share(const excess *sums, int n_partitions, double *sigma) noexcept nogil


cdef inline double bregman(double v, double d, double shrink) noexcept nogil:
    """The change of S(v)^2 / 2 beyond first order, caused by a change d."""
    cdef double s, moved
    if shrink == 0:
        return d * d / 2
    s = shrunk(v, shrink)
    moved = shrunk(v + d, shrink) - s
    return moved * moved / 2 + s * (moved - d)
