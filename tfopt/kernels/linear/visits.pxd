# cython: language_level=3
"""Stochastic dual coordinate ascent: examples, and products with their features.

An example's features are a row of a CSR matrix and a row of a dense block; their weights are in one
vector, the block's at its end. The vector holds v = sum of weight * a * x / l2, unshrunk; a
prediction is x . S(v), with S(v) = sign(v) * max(|v| - shrink, 0) and shrink = l1 / l2.
"""

from tfopt.kernels.arrays.csr cimport extent, index, once, row_length, within
from tfopt.kernels.linear.losses cimport loss_t
from tfopt.kernels.platform.machine cimport prefetch_line, raise_flag
from tfopt.kernels.platform.floats cimport real

#: An example without its features. 32 bytes, so that it never spans two cache lines.
cdef struct example:
    double a            # the dual variable
    double y            # the label; -1 or 1 for classification losses
    double weight
    double curvature    # |x|^2 / l2

cdef enum:
    AHEAD = 4           # how many visits ahead a row is prefetched
    LONGEST = 6         # an example rests for less than 2^LONGEST sweeps

cdef loss_t named_loss(str name, double parameter) except *


cdef inline double shrunk(double v, double shrink) noexcept nogil:
    cdef double inside = v if v < shrink else shrink
    inside = inside if inside > -shrink else -shrink
    return v - inside


cdef inline double weight_of(double v, double shrink, bint shrinks) noexcept nogil:
    """S(v), where the caller knows whether it is v."""
    return shrunk(v, shrink) if shrinks else v


cdef inline double _dot_of(const real *x, const index *j, Py_ssize_t n, const double *v,
                           double shrink, bint shrinks, extent *bounds) noexcept nogil:
    """x . S(v), in four sums, because the additions of one sum depend on each other."""
    cdef double s0 = 0, s1 = 0, s2 = 0, s3 = 0
    cdef Py_ssize_t k, fours = n - n % 4, j0, j1, j2, j3, stop = bounds.n_columns
    for k in range(0, fours, 4):
        j0, j1, j2, j3 = once(j + k), once(j + k + 1), once(j + k + 2), once(j + k + 3)
        if not (within(j0, stop) and within(j1, stop) and within(j2, stop) and within(j3, stop)):
            raise_flag(&bounds.outside)
            return 0
        s0 += x[k] * weight_of(v[j0], shrink, shrinks)
        s1 += x[k + 1] * weight_of(v[j1], shrink, shrinks)
        s2 += x[k + 2] * weight_of(v[j2], shrink, shrinks)
        s3 += x[k + 3] * weight_of(v[j3], shrink, shrinks)
    for k in range(fours, n):
        j0 = once(j + k)
        if not within(j0, stop):
            raise_flag(&bounds.outside)
            return 0
        s0 += x[k] * weight_of(v[j0], shrink, shrinks)
    return (s0 + s1) + (s2 + s3)


cdef inline double dot(const real *x, const index *j, Py_ssize_t n, const double *v,
                       double shrink, extent *bounds) noexcept nogil:
    """x . S(v), by a loop of its own without shrinkage."""
    if shrink == 0:
        return _dot_of(x, j, n, v, shrink, False, bounds)
    return _dot_of(x, j, n, v, shrink, True, bounds)


cdef inline void add(const real *x, const index *j, Py_ssize_t n, double *v, double factor,
                     extent *bounds) noexcept nogil:
    """v += factor * x"""
    cdef Py_ssize_t k, at
    for k in range(n):
        at = once(j + k)
        if not within(at, bounds.n_columns):
            raise_flag(&bounds.outside)
            return
        v[at] += factor * x[k]


cdef inline double dense_dot(const real *x, Py_ssize_t n, const double *v,
                             double shrink) noexcept nogil:
    cdef double s0 = 0, s1 = 0, s2 = 0, s3 = 0
    cdef Py_ssize_t k, fours = n - n % 4
    for k in range(0, fours, 4):
        s0 += x[k] * shrunk(v[k], shrink)
        s1 += x[k + 1] * shrunk(v[k + 1], shrink)
        s2 += x[k + 2] * shrunk(v[k + 2], shrink)
        s3 += x[k + 3] * shrunk(v[k + 3], shrink)
    for k in range(fours, n):
        s0 += x[k] * shrunk(v[k], shrink)
    return (s0 + s1) + (s2 + s3)


cdef inline double predict(const real[::1] data, const index[::1] indices,
                           const index[::1] indptr, const real[:, ::1] dense, Py_ssize_t i,
                           const double *v, double shrink, extent *bounds) noexcept nogil:
    """x_i . S(v)"""
    cdef Py_ssize_t start = 0, n = row_length(&indptr[0], i, &start, bounds)
    cdef Py_ssize_t width = dense.shape[1]
    cdef double wx
    if n < 0:
        return 0
    wx = dot(&data[start], &indices[start], n, v, shrink, bounds) if n > 0 else 0
    if width > 0:
        wx += dense_dot(&dense[i, 0], width, v + bounds.n_columns, shrink)
    return wx


cdef inline void add_features(const real[::1] data, const index[::1] indices,
                              const index[::1] indptr, const real[:, ::1] dense, Py_ssize_t i,
                              double *v, double factor, extent *bounds) noexcept nogil:
    """v += factor * x_i"""
    cdef Py_ssize_t start = 0, n = row_length(&indptr[0], i, &start, bounds), k
    cdef double *tail = v + bounds.n_columns
    if n < 0:
        return
    if n > 0:
        add(&data[start], &indices[start], n, v, factor, bounds)
    for k in range(dense.shape[1]):
        tail[k] += factor * dense[i, k]


cdef inline void prefetch(const char *start, const char *end) noexcept nogil:
    while start < end:
        prefetch_line(start)
        start += 64


cdef inline void prefetch_row_of(const real *data, const index *indices, const index *indptr,
                                 const real *dense, Py_ssize_t width, Py_ssize_t i,
                                 extent *bounds) noexcept nogil:
    """Prefetch a row, since the hardware cannot predict random order."""
    cdef Py_ssize_t start = 0, n = row_length(indptr, i, &start, bounds)
    if n < 0:
        return
    prefetch(<const char *>&data[start], <const char *>&data[start + n])
    prefetch(<const char *>&indices[start], <const char *>&indices[start + n])
    prefetch(<const char *>&dense[i * width], <const char *>&dense[(i + 1) * width])
