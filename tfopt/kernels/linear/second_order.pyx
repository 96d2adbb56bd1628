"""Primal objective, its derivatives and the Newton system, from predictions.

All sums are taken over blocks of fixed size, so they do not depend on the number of threads.
"""

from cython.parallel cimport parallel
from libc.math cimport INFINITY

from math import fsum

import numpy as np

from tfopt.kernels import cpu
from tfopt.kernels.arrays.csr cimport (
    check_length, extent, extent_of, index, once, refuse_outside, row_length, within,
)
from tfopt.kernels.linear.cholesky cimport factorize, substitute
from tfopt.kernels.linear.losses cimport apart, height, loss_t, tangent_at
from tfopt.kernels.platform.machine cimport (
    fp_enter, fp_leave, fp_state, omp_get_num_threads, omp_get_thread_num, raise_flag,
)
from tfopt.kernels.platform.floats cimport real
from tfopt.kernels.platform.outer_products cimport TILE, outer_products_for, outer_products_t
from tfopt.kernels.platform.runtime cimport (
    at_most, begin_share, dismiss_team, end_share, gather_team, team,
)
from tfopt.kernels.linear.visits cimport add, example, named_loss

cdef outer_products_t outer_products = outer_products_for(cpu.encode())

cdef enum:
    BLOCK = 512     # examples summed together
    PANEL = 128     # rows whose outer products are summed in registers
    HEIGHT = 129    # of a panel's tiles; a power of 2 would put them all in one set of the cache
    SHARES = 8      # parts of the examples with separate Hessians
    COSTLY = 16     # visiting this many features takes as long as an exponential and a logarithm


cdef void _gaps_share(const example[::1] examples, const double[::1] a, const double[::1] wx,
                      double bias, const loss_t *f, double[:, ::1] sums, int thread,
                      int threads) noexcept nogil:
    cdef Py_ssize_t b, i, n = examples.shape[0], blocks = sums.shape[1]
    cdef double z, each, losses, gap
    cdef fp_state caller = fp_enter(False)
    for b in range(blocks * thread // threads, blocks * (thread + 1) // threads):
        losses = gap = 0
        for i in range(b * BLOCK, min(n, (b + 1) * BLOCK)):
            if examples[i].weight > 0:
                z = wx[i] + bias
                each = height(f, z, examples[i].y)
                losses += examples[i].weight * each
                each = apart(f, each, a[i], examples[i].y, z)
                gap += examples[i].weight * (0 if each < 0 else each)   # NaN stays NaN
        sums[0, b], sums[1, b] = losses, gap
    fp_leave(caller)


cdef double _sum(const double[::1] terms) except? -1:
    """The sum of non-negative terms, rounded once."""
    cdef Py_ssize_t k
    cdef list numbers = [0.0] * terms.shape[0]
    for k in range(terms.shape[0]):
        numbers[k] = terms[k]
    try:
        return fsum(numbers)
    except OverflowError:
        return INFINITY


def gaps(const example[::1] examples not None, const double[::1] a not None,
         const double[::1] wx not None, double bias, str loss, double parameter, int threads=0):
    """The losses at predictions, and the Fenchel-Young gaps to dual variables a.

    Returns
    -------
    losses, gap : float
        Sums of weight * phi(wx + bias), phi above its least value, and of weight *
        (phi(wx + bias) + phi*(-a) + a * (wx + bias)), no term of which is negative.
    """
    cdef loss_t f = named_loss(loss, parameter)
    cdef Py_ssize_t n = examples.shape[0]
    cdef double[:, ::1] sums = np.empty((2, (n + BLOCK - 1) // BLOCK))
    cdef team t = at_most(gather_team(n * COSTLY, 1), threads)
    check_length("a", a.shape[0], n)
    check_length("wx", wx.shape[0], n)
    with nogil, parallel(num_threads=t.size):
        begin_share(&t)
        _gaps_share(examples, a, wx, bias, &f, sums, omp_get_thread_num(), omp_get_num_threads())
        end_share(&t)
    dismiss_team(&t)
    return _sum(sums[0]), _sum(sums[1])


cdef void _tangents_share(const example[::1] examples, const double[::1] wx, double bias,
                          const loss_t *f, const double[::1] change, double[:, ::1] each,
                          double[:, ::1] sums, int thread, int threads) noexcept nogil:
    cdef Py_ssize_t b, i, n = examples.shape[0], blocks = sums.shape[1]
    cdef bint stepped = change.shape[0] > 0
    cdef double weight, z, predicted, losses, gap, above = 0, slope = 0, bend = 0
    cdef fp_state caller = fp_enter(False)
    for b in range(blocks * thread // threads, blocks * (thread + 1) // threads):
        losses = gap = 0
        for i in range(b * BLOCK, min(n, (b + 1) * BLOCK)):
            weight, z = examples[i].weight, wx[i] + bias
            if not weight > 0:
                if stepped:
                    each[2, i] = examples[i].a
                continue
            tangent_at(f, z, examples[i].y, &above, &slope, &bend)
            losses += weight * above
            if stepped:
                predicted = (each[0, i] + each[1, i] * change[i]) / weight
                each[2, i] = -predicted
                if bend > 0:
                    gap += weight * (slope - predicted) * (slope - predicted) / (2 * bend)
                elif slope != predicted:
                    above = apart(f, above, -predicted, examples[i].y, z)
                    gap += weight * (0 if above < 0 else above)     # NaN stays NaN
            each[0, i], each[1, i] = weight * slope, weight * bend
            losses += 0 * each[0, i] + 0 * each[1, i]       # NaN if they are not finite
        sums[0, b], sums[1, b] = losses, gap
    fp_leave(caller)


def tangents(const example[::1] examples not None, const double[::1] wx not None, double bias,
             str loss, double parameter, last=None, int threads=0):
    """The losses at predictions and their derivatives, and how far a Newton step led.

    Parameters
    ----------
    last : tuple of ndarray, optional
        Where the step started from: slopes and bends, and by how much wx + bias has changed.

    Returns
    -------
    losses : float
        The sum of weight * phi(wx + bias), phi above its least value; NaN if one of these or of
        the derivatives is infinite.
    slopes, bends : ndarray of float64, shape (n_examples,)
        weight * phi' and weight * phi'' of each example.
    duals : ndarray of float64, shape (n_examples,) or (0,)
        Of the step: minus the derivatives that the tangents of phi' predict.
    gap : float
        An estimate of their Fenchel-Young gaps, for small errors of the prediction; infinite
        without a step.
    """
    cdef loss_t f = named_loss(loss, parameter)
    cdef Py_ssize_t n = examples.shape[0]
    cdef double[:, ::1] each = np.zeros((3 if last is not None else 2, n))
    cdef double[:, ::1] sums = np.empty((2, (n + BLOCK - 1) // BLOCK))
    cdef const double[::1] change = np.zeros(0)
    cdef team t = at_most(gather_team(n * COSTLY, 1), threads)
    check_length("wx", wx.shape[0], n)
    if last is not None:
        each_of = np.asarray(each)
        each_of[0], each_of[1], change = last
        check_length("change", change.shape[0], n)
    with nogil, parallel(num_threads=t.size):
        begin_share(&t)
        _tangents_share(examples, wx, bias, &f, change, each, sums, omp_get_thread_num(),
                        omp_get_num_threads())
        end_share(&t)
    dismiss_team(&t)
    slopes, bends, *duals = np.asarray(each)
    return (_sum(sums[0]), slopes, bends, *(duals or [np.zeros(0)]),
            _sum(sums[1]) if last is not None else INFINITY)


cdef void _derivatives_share(const example[::1] examples, const double[::1] wx, double bias,
                             const loss_t *f, double[::1] slopes, double[::1] bends, int thread,
                             int threads) noexcept nogil:
    cdef Py_ssize_t i, n = examples.shape[0]
    cdef fp_state caller = fp_enter(False)
    for i in range(n * thread // threads, n * (thread + 1) // threads):
        if examples[i].weight > 0:
            slopes[i] = examples[i].weight * f.slope(wx[i] + bias, examples[i].y, f.parameter)
            bends[i] = examples[i].weight * f.bend(wx[i] + bias, examples[i].y, f.parameter)
    fp_leave(caller)


def derivatives(const example[::1] examples not None, const double[::1] wx not None, double bias,
                str loss, double parameter, int threads=0):
    """phi' and phi'' of each example at its prediction, each times its weight.

    Returns
    -------
    slopes, bends : ndarray of float64, shape (n_examples,)
    """
    cdef loss_t f = named_loss(loss, parameter)
    cdef Py_ssize_t n = examples.shape[0]
    cdef double[::1] slopes = np.zeros(n), bends = np.zeros(n)
    cdef team t = at_most(gather_team(n * COSTLY, 1), threads)
    check_length("wx", wx.shape[0], n)
    with nogil, parallel(num_threads=t.size):
        begin_share(&t)
        _derivatives_share(examples, wx, bias, &f, slopes, bends, omp_get_thread_num(),
                           omp_get_num_threads())
        end_share(&t)
    dismiss_team(&t)
    return np.asarray(slopes), np.asarray(bends)


cdef inline void _pack(const real *x, Py_ssize_t width, double slope, double bend, double *plain,
                       double *scaled) noexcept nogil:
    """Add a row to a panel: its features and 1, and bend times these and the slope."""
    cdef Py_ssize_t k = 0, j
    while k + TILE <= width:
        for j in range(TILE):
            plain[j] = x[k + j]
        for j in range(TILE):
            scaled[j] = bend * x[k + j]
        k += TILE
        plain += HEIGHT * TILE
        scaled += HEIGHT * TILE
    for j in range(width - k):
        plain[j] = x[k + j]
        scaled[j] = bend * x[k + j]
    j = width - k
    plain[j], scaled[j] = 1, bend
    if j + 1 == TILE:
        scaled += HEIGHT * TILE
        j = -1
    scaled[j + 1] = slope


cdef void _add_dense_pairs(const real[:, ::1] dense, const double[::1] slopes,
                           const double[::1] bends, Py_ssize_t low, Py_ssize_t high,
                           double[::1] panel, double[:, ::1] sums) noexcept nogil:
    """Each pair of dense features, and of a last one of 1; rows are packed in panels of PANEL."""
    cdef Py_ssize_t i = low, rows, n = dense.shape[1] + 1, n_sums = sums.shape[1]
    cdef double *A = &sums[n_sums - n, n_sums - n]
    cdef double *plain = &panel[0]
    cdef double *scaled = plain + (n + TILE - 1) // TILE * TILE * HEIGHT
    cdef const real *x
    cdef const char *next
    cdef const char *end
    while i < high:
        rows = 0
        while rows < PANEL and i < high:
            if slopes[i] != 0 or bends[i] != 0:
                _pack(&dense[i, 0], n - 1, slopes[i], bends[i], plain + rows * TILE,
                      scaled + rows * TILE)
                rows += 1
            i += 1
        x = &dense[0, 0]
        next = <const char *>(x + i * (n - 1))
        end = <const char *>(x + min(i + PANEL, high) * (n - 1))
        outer_products(A, n_sums, n, scaled, plain, rows, HEIGHT, next, end)


cdef void _system_share(const real[::1] data, const index[::1] indices, const index[::1] indptr,
                        const real[:, ::1] dense, const double[::1] slopes,
                        const double[::1] bends, double[:, :, ::1] sums, double[:, ::1] panels,
                        extent *bounds, int thread, int threads) noexcept nogil:
    """The gradient and each pair of a row's features, for each of a thread's shares.

    The intercept is last; the gradient is in an additional row.
    """
    cdef Py_ssize_t s, i, j, low, high, n = bends.shape[0], width = dense.shape[1]
    cdef Py_ssize_t last = sums.shape[2] - 1, first = last - width
    cdef Py_ssize_t start = 0, stop, at, shares = sums.shape[0]
    cdef double factor
    cdef fp_state caller = fp_enter(False)
    for s in range(shares * thread // threads, shares * (thread + 1) // threads):
        low, high = n * s // shares, n * (s + 1) // shares
        for i in range(low, high):
            if slopes[i] == 0 and bends[i] == 0:
                continue
            stop = row_length(&indptr[0], i, &start, bounds)
            if stop < 0:
                break
            stop += start
            for j in range(start, stop):
                factor = bends[i] * data[j]
                at = once(&indices[j])
                if not within(at, bounds.n_columns):
                    raise_flag(&bounds.outside)
                    break
                add(&data[start], &indices[start], j + 1 - start, &sums[s, at, 0], factor, bounds)
                sums[s, last, at] += factor
                sums[s, last + 1, at] += slopes[i] * data[j]
            if start < stop:
                for j in range(width):
                    add(&data[start], &indices[start], stop - start, &sums[s, first + j, 0],
                        bends[i] * dense[i, j], bounds)
            if width == 0:
                sums[s, last, last] += bends[i]
                sums[s, last + 1, last] += slopes[i]
        if width > 0:
            _add_dense_pairs(dense, slopes, bends, low, high, panels[thread], sums[s])
    fp_leave(caller)


def newton_system(const real[::1] data not None, const index[::1] indices not None,
                  const index[::1] indptr not None, const real[:, ::1] dense not None,
                  const double[::1] slopes not None, const double[::1] bends not None,
                  Py_ssize_t n_weights, int threads=0):
    """The sums of slope * x and of bend * x x^T, x with a last feature of 1 added.

    A row has a feature once at most.

    Returns
    -------
    gradient : ndarray of float64, shape (n_weights + 1,)
    hessian : ndarray of float64, shape (n_weights + 1, n_weights + 1)
    """
    cdef extent bounds = extent_of(data.shape[0], indices.shape[0], indptr.shape[0],
                                   dense.shape[0], dense.shape[1], n_weights)
    cdef Py_ssize_t tiles = 2 * (dense.shape[1] // TILE + 1) + 1 if dense.shape[1] else 0
    cdef Py_ssize_t shares = max(1, min(SHARES, bounds.n_rows // (4 * (n_weights + 1))))
    cdef double[:, :, ::1] sums = np.zeros((shares, n_weights + 2, n_weights + 1))
    cdef Py_ssize_t features = data.shape[0] + dense.shape[0] * dense.shape[1]
    cdef team t = at_most(at_most(gather_team(4 * features, 1), threads), shares)
    cdef double[:, ::1] panels = np.zeros((t.size, tiles * HEIGHT * TILE))
    cdef double[:, ::1] total, hessian
    cdef Py_ssize_t i, j
    check_length("slopes", slopes.shape[0], bounds.n_rows)
    check_length("bends", bends.shape[0], bounds.n_rows)
    with nogil, parallel(num_threads=t.size):
        begin_share(&t)
        _system_share(data, indices, indptr, dense, slopes, bends, sums, panels, &bounds,
                      omp_get_thread_num(), omp_get_num_threads())
        end_share(&t)
    dismiss_team(&t)
    refuse_outside(&bounds, data, indices, indptr, None)
    total = np.add.reduce(np.asarray(sums), axis=0)
    hessian = np.empty((n_weights + 1, n_weights + 1))
    for i in range(n_weights + 1):
        hessian[i, i] = total[i, i]
        for j in range(i):
            hessian[i, j] = hessian[j, i] = total[i, j] + total[j, i]
    return np.array(total[n_weights + 1]), np.asarray(hessian)


def solve(double[:, ::1] A not None, double[::1] b not None, bint is_factor=False,
          double least_pivot=1e-14):
    """Solve A x = b for positive definite A by Cholesky's factorization; overwrites b by x.

    Overwrites A, too: with `is_factor` it is what an earlier call has left.

    Parameters
    ----------
    A : memoryview, shape (n, n)
    b : memoryview, shape (n,)
    is_factor : bool, optional
    least_pivot : float, optional
        Of each diagonal entry, the share that its pivot must exceed. It is 0 where next steps
        correct what rounding does to this one, as those of the interior-point method do.

    Returns
    -------
    bool
        Whether A was positive definite, but for rounding; if not, b is not the solution.
    """
    cdef Py_ssize_t n = b.shape[0]
    cdef double[::1] least
    cdef bint solved = True
    check_length("A", A.shape[0], n)
    check_length("a row of A", A.shape[1], n)
    if n == 0:
        return True
    least = least_pivot * np.diagonal(A)
    with nogil:
        if not is_factor:
            solved = factorize(&A[0, 0], n, n, &least[0])
        if solved:
            substitute(&A[0, 0], n, n, &b[0])
    return solved
