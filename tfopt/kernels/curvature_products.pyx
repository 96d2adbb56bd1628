"""The second derivatives of a loss times a vector, without the matrix; and their diagonal.

Rows are taken in shares whose number follows from the data, each with sums of its own, so the
results do not depend on the number of threads.
"""

from cython.parallel cimport parallel

import numpy as np

from tfopt.kernels.machine cimport (
    fp_enter, fp_leave, fp_state, omp_get_num_threads, omp_get_thread_num,
)
from tfopt.kernels.rules cimport real
from tfopt.kernels.runtime cimport team_size
from tfopt.kernels.sdca cimport add_features, index, predict

cdef enum:
    MOST_SHARES = 8
    WORTH = 4       # entries for each of a share's sums, so that adding these up is little work


def _shares(Py_ssize_t n_features, Py_ssize_t n_sums):
    """How many shares have sums of their own."""
    return max(1, min(MOST_SHARES, n_features // (WORTH * n_sums)))


cdef int _team(Py_ssize_t n_features, int threads, Py_ssize_t shares):
    cdef int team = team_size(n_features, 1)
    if 0 < threads < team:
        team = threads
    return min(team, shares)


cdef void _product_share(const real[::1] data, const index[::1] indices, const index[::1] indptr,
                         const real[:, ::1] dense, const double[::1] bends, const double *s,
                         double[:, ::1] sums, int thread, int threads) noexcept nogil:
    cdef Py_ssize_t share, i, n = bends.shape[0], last = sums.shape[1] - 1
    cdef Py_ssize_t shares = sums.shape[0]
    cdef double factor
    cdef fp_state caller = fp_enter(False)
    for share in range(shares * thread // threads, shares * (thread + 1) // threads):
        for i in range(n * share // shares, n * (share + 1) // shares):
            if bends[i] == 0:
                continue
            factor = predict(data, indices, indptr, dense, i, s, last, 0) + s[last]
            factor *= bends[i]
            add_features(data, indices, indptr, dense, i, &sums[share, 0], last, factor)
            sums[share, last] += factor
    fp_leave(caller)


def product(const real[::1] data not None, const index[::1] indices not None,
            const index[::1] indptr not None, const real[:, ::1] dense not None,
            const double[::1] bends not None, const double[::1] s not None, int threads=0):
    """The sum of bend * x (x . s), x with a last feature of 1 added.

    Returns
    -------
    ndarray of float64, shape (n_weights + 1,)
    """
    cdef Py_ssize_t n_features = data.shape[0] + dense.shape[0] * dense.shape[1]
    cdef double[:, ::1] sums = np.zeros((_shares(n_features, s.shape[0]), s.shape[0]))
    cdef int team = _team(n_features, threads, sums.shape[0])
    with nogil, parallel(num_threads=team):
        _product_share(data, indices, indptr, dense, bends, &s[0], sums, omp_get_thread_num(),
                       omp_get_num_threads())
    return np.add.reduce(np.asarray(sums), axis=0)


cdef void _diagonal_share(const real[::1] data, const index[::1] indices,
                          const index[::1] indptr, const real[:, ::1] dense,
                          const double[::1] bends, double[:, ::1] sums, int thread,
                          int threads) noexcept nogil:
    cdef Py_ssize_t share, i, k, n = bends.shape[0], width = dense.shape[1]
    cdef Py_ssize_t last = sums.shape[1] - 1, first = last - width, shares = sums.shape[0]
    cdef double x
    cdef fp_state caller = fp_enter(False)
    for share in range(shares * thread // threads, shares * (thread + 1) // threads):
        for i in range(n * share // shares, n * (share + 1) // shares):
            for k in range(indptr[i], indptr[i + 1]):
                x = data[k]
                sums[share, indices[k]] += bends[i] * x * x
            for k in range(width):
                x = dense[i, k]
                sums[share, first + k] += bends[i] * x * x
            sums[share, last] += bends[i]
    fp_leave(caller)


def diagonal(const real[::1] data not None, const index[::1] indices not None,
             const index[::1] indptr not None, const real[:, ::1] dense not None,
             const double[::1] bends not None, Py_ssize_t n_weights, int threads=0):
    """The sum of bend * x * x, x with a last feature of 1 added, which it has once at most.

    Returns
    -------
    ndarray of float64, shape (n_weights + 1,)
    """
    cdef Py_ssize_t n_features = data.shape[0] + dense.shape[0] * dense.shape[1]
    cdef double[:, ::1] sums = np.zeros((_shares(n_features, n_weights + 1), n_weights + 1))
    cdef int team = _team(n_features, threads, sums.shape[0])
    with nogil, parallel(num_threads=team):
        _diagonal_share(data, indices, indptr, dense, bends, sums, omp_get_thread_num(),
                        omp_get_num_threads())
    return np.add.reduce(np.asarray(sums), axis=0)
