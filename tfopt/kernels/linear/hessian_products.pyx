"""Losses, gradients and Hessian products, without forming the Hessian.

Rows are processed in shares with separate sums. Their number is determined by the data, so the
results do not depend on the number of threads.
"""

from cython.parallel cimport parallel

import numpy as np

from tfopt.kernels.arrays.csr cimport (
    check_length, extent, extent_of, index, once, refuse_outside, row_length, within,
)
from tfopt.kernels.linear.losses cimport loss_t, tangent_at
from tfopt.kernels.platform.machine cimport (
    fp_enter, fp_leave, fp_state, omp_get_num_threads, omp_get_thread_num, raise_flag,
)
from tfopt.kernels.platform.floats cimport real
from tfopt.kernels.platform.runtime cimport (
    at_most, begin_share, dismiss_team, end_share, gather_team, team,
)
from tfopt.kernels.linear.visits cimport add_features, example, named_loss, predict

cdef enum:
    MOST_SHARES = 8
    WORTH = 4       # entries per sum of a share, so that adding the sums costs little


def _shares(Py_ssize_t n_features, Py_ssize_t n_sums):
    """The number of shares with separate sums."""
    return max(1, min(MOST_SHARES, n_features // (WORTH * n_sums)))


cdef team _team(Py_ssize_t n_features, int threads, Py_ssize_t shares) noexcept:
    return at_most(at_most(gather_team(n_features, 1), threads), shares)


cdef void _product_share(const real[::1] data, const index[::1] indices, const index[::1] indptr,
                         const real[:, ::1] dense, const double[::1] bends, const double *s,
                         double[:, ::1] sums, extent *bounds, int thread,
                         int threads) noexcept nogil:
    cdef Py_ssize_t share, i, n = bends.shape[0], last = sums.shape[1] - 1
    cdef Py_ssize_t shares = sums.shape[0]
    cdef double factor
    cdef fp_state caller = fp_enter(False)
    for share in range(shares * thread // threads, shares * (thread + 1) // threads):
        for i in range(n * share // shares, n * (share + 1) // shares):
            if bends[i] == 0:
                continue
            factor = predict(data, indices, indptr, dense, i, s, 0, bounds) + s[last]
            factor *= bends[i]
            add_features(data, indices, indptr, dense, i, &sums[share, 0], factor, bounds)
            sums[share, last] += factor
    fp_leave(caller)


def product(const real[::1] data not None, const index[::1] indices not None,
            const index[::1] indptr not None, const real[:, ::1] dense not None,
            const double[::1] bends not None, const double[::1] s not None, int threads=0,
            Py_ssize_t shares=0):
    """The sum of bend * x (x . s), where x has an additional last feature of 1.

    `shares` is the number of shares of the rows; 0 derives it from the size of the data.

    Returns
    -------
    ndarray of float64, shape (n_weights + 1,)
    """
    cdef extent bounds = extent_of(data.shape[0], indices.shape[0], indptr.shape[0],
                                   dense.shape[0], dense.shape[1], s.shape[0] - 1)
    cdef Py_ssize_t n_features = data.shape[0] + dense.shape[0] * dense.shape[1]
    cdef double[:, ::1] sums = np.zeros((shares or _shares(n_features, s.shape[0]), s.shape[0]))
    cdef team t = _team(n_features, threads, sums.shape[0])
    check_length("bends", bends.shape[0], bounds.n_rows)
    with nogil, parallel(num_threads=t.size):
        begin_share(&t)
        _product_share(data, indices, indptr, dense, bends, &s[0], sums, &bounds,
                       omp_get_thread_num(), omp_get_num_threads())
        end_share(&t)
    dismiss_team(&t)
    refuse_outside(&bounds, data, indices, indptr, None)
    return np.add.reduce(np.asarray(sums), axis=0)


cdef inline void add_squares(const real[::1] data, const index[::1] indices,
                             const index[::1] indptr, const real[:, ::1] dense, Py_ssize_t i,
                             double *v, double factor, extent *bounds) noexcept nogil:
    """v += factor * x_i^2"""
    cdef Py_ssize_t k, at, start = 0, n = row_length(&indptr[0], i, &start, bounds)
    cdef double *tail = v + bounds.n_columns
    for k in range(start, start + n):
        at = once(&indices[k])
        if not within(at, bounds.n_columns):
            raise_flag(&bounds.outside)
            return
        v[at] += factor * data[k] * data[k]
    for k in range(dense.shape[1]):
        tail[k] += factor * dense[i, k] * dense[i, k]


cdef void _diagonal_share(const real[::1] data, const index[::1] indices,
                          const index[::1] indptr, const real[:, ::1] dense,
                          const double[::1] bends, double[:, ::1] sums, extent *bounds,
                          int thread, int threads) noexcept nogil:
    cdef Py_ssize_t share, i, n = bends.shape[0], last = sums.shape[1] - 1, shares = sums.shape[0]
    cdef fp_state caller = fp_enter(False)
    for share in range(shares * thread // threads, shares * (thread + 1) // threads):
        for i in range(n * share // shares, n * (share + 1) // shares):
            add_squares(data, indices, indptr, dense, i, &sums[share, 0], bends[i], bounds)
            sums[share, last] += bends[i]
    fp_leave(caller)


def diagonal(const real[::1] data not None, const index[::1] indices not None,
             const index[::1] indptr not None, const real[:, ::1] dense not None,
             const double[::1] bends not None, Py_ssize_t n_weights, int threads=0):
    """The sum of bend * x * x, where x has an additional last feature of 1.

    Returns
    -------
    ndarray of float64, shape (n_weights + 1,)
    """
    cdef extent bounds = extent_of(data.shape[0], indices.shape[0], indptr.shape[0],
                                   dense.shape[0], dense.shape[1], n_weights)
    cdef Py_ssize_t n_features = data.shape[0] + dense.shape[0] * dense.shape[1]
    cdef double[:, ::1] sums = np.zeros((_shares(n_features, n_weights + 1), n_weights + 1))
    cdef team t = _team(n_features, threads, sums.shape[0])
    check_length("bends", bends.shape[0], bounds.n_rows)
    with nogil, parallel(num_threads=t.size):
        begin_share(&t)
        _diagonal_share(data, indices, indptr, dense, bends, sums, &bounds, omp_get_thread_num(),
                        omp_get_num_threads())
        end_share(&t)
    dismiss_team(&t)
    refuse_outside(&bounds, data, indices, indptr, None)
    return np.add.reduce(np.asarray(sums), axis=0)


cdef inline void _add_both(const real[::1] data, const index[::1] indices,
                           const index[::1] indptr, const real[:, ::1] dense, Py_ssize_t i,
                           double *v, double slope, double bend, extent *bounds) noexcept nogil:
    """Add slope * x_i and bend * x_i^2.

    Those of sparse features are stored in pairs, so that both are in one cache line; those of dense
    features apart, so that they are vectors.
    """
    cdef Py_ssize_t k, j, start = 0, n = row_length(&indptr[0], i, &start, bounds)
    cdef Py_ssize_t width = dense.shape[1]
    cdef double x
    cdef double *gradient = v + 2 * bounds.n_columns
    cdef double *diagonal = gradient + width
    cdef const real *row
    for k in range(start, start + n):
        x, j = data[k], once(&indices[k])
        if not within(j, bounds.n_columns):
            raise_flag(&bounds.outside)
            return
        v[2 * j] += slope * x
        v[2 * j + 1] += bend * x * x
    if width == 0:
        return
    row = &dense[i, 0]
    for k in range(width):
        gradient[k] += slope * row[k]
    for k in range(width):
        diagonal[k] += bend * row[k] * row[k]


cdef void _tangent_share(const real[::1] data, const index[::1] indices, const index[::1] indptr,
                         const real[:, ::1] dense, const example[::1] examples, const double *w,
                         double bias, const loss_t *f, double[::1] wx, double[:, ::1] each,
                         double[:, ::1] sums, double[::1] losses, extent *bounds, int thread,
                         int threads) noexcept nogil:
    cdef Py_ssize_t share, i, n = examples.shape[0], last = sums.shape[1] - 2
    cdef Py_ssize_t shares = sums.shape[0]
    cdef double weight, above = 0, slope = 0, bend = 0
    cdef fp_state caller = fp_enter(False)
    for share in range(shares * thread // threads, shares * (thread + 1) // threads):
        for i in range(n * share // shares, n * (share + 1) // shares):
            wx[i] = predict(data, indices, indptr, dense, i, w, 0, bounds)
            weight = examples[i].weight
            if not weight > 0:
                continue
            tangent_at(f, wx[i] + bias, examples[i].y, &above, &slope, &bend)
            slope *= weight
            bend *= weight
            losses[share] += weight * above
            each[0, i], each[1, i] = slope, bend
            _add_both(data, indices, indptr, dense, i, &sums[share, 0], slope, bend, bounds)
            sums[share, last] += slope
            sums[share, last + 1] += bend
    fp_leave(caller)


def tangent(const real[::1] data not None, const index[::1] indices not None,
            const index[::1] indptr not None, const real[:, ::1] dense not None,
            const example[::1] examples not None, const double[::1] w not None, double bias,
            str loss, double parameter, int threads=0):
    """The losses at a point and their derivatives, in one pass over the rows.

    Rows must not repeat features, and have an additional last feature of 1.

    Returns
    -------
    losses : float
        The sum of weight * phi(x . w + bias), with phi relative to its minimum.
    wx : ndarray of float64, shape (n_examples,)
        x . w of each example.
    slopes, bends : ndarray of float64, shape (n_examples,)
        weight * phi' and weight * phi'' of each example.
    gradient, diagonal : ndarray of float64, shape (n_weights + 1,)
        The sums of slope * x and of bend * x * x.
    """
    cdef loss_t f = named_loss(loss, parameter)
    cdef Py_ssize_t n = examples.shape[0], last = w.shape[0]
    cdef extent bounds = extent_of(data.shape[0], indices.shape[0], indptr.shape[0],
                                   dense.shape[0], dense.shape[1], last)
    cdef Py_ssize_t n_features = data.shape[0] + dense.shape[0] * dense.shape[1]
    cdef double[:, ::1] sums = np.zeros((_shares(n_features, 2 * last + 2), 2 * last + 2))
    cdef double[:, ::1] each = np.zeros((2, n))
    cdef double[::1] wx = np.empty(n), losses = np.zeros(sums.shape[0])
    cdef const double *point = &w[0] if last else NULL
    cdef team t = _team(n_features, threads, sums.shape[0])
    check_length("examples", n, bounds.n_rows)
    with nogil, parallel(num_threads=t.size):
        begin_share(&t)
        _tangent_share(data, indices, indptr, dense, examples, point, bias, &f, wx, each, sums,
                       losses, &bounds, omp_get_thread_num(), omp_get_num_threads())
        end_share(&t)
    dismiss_team(&t)
    refuse_outside(&bounds, data, indices, indptr, None)
    slopes, bends = np.asarray(each)
    total, width = np.add.reduce(np.asarray(sums), axis=0), dense.shape[1]
    pairs, apart, ends = np.split(total, [2 * (last - width), 2 * last])
    gradient, diagonal = (
        np.concatenate((pairs[k::2], apart[k * width:(k + 1) * width], ends[k:k + 1]))
        for k in range(2)
    )
    return (float(np.add.reduce(np.asarray(losses))), np.asarray(wx), slopes, bends, gradient,
            diagonal)
