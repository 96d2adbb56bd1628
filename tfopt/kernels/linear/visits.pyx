"""Stochastic dual coordinate ascent over rows in memory: plans and passes.

The epochs are in solver.pyx, the losses in losses.pxd. Threads share work by
examples, each computed separately, so results do not depend on the number of threads.
"""

from cython.parallel cimport parallel
from libc.math cimport fabs, fmin, sqrt
from libc.stdint cimport int64_t, uint8_t, uint64_t

import numpy as np

from tfopt.errors import InvalidArgumentError

from tfopt.kernels.arrays.csr cimport (
    check_length, extent, extent_of, index, refuse_outside, row_length,
)
from tfopt.kernels.linear.losses cimport loss_of, loss_t
from tfopt.kernels.platform.machine cimport (
    fp_enter, fp_leave, fp_state, omp_get_num_threads, omp_get_thread_num,
)
from tfopt.kernels.platform.floats cimport real
from tfopt.kernels.platform.runtime cimport (
    at_most, begin_share, dismiss_team, end_share, gather_team, team,
)
from tfopt.kernels.linear.plans cimport (
    find_awake, generator, n_buckets, shuffle_in_buckets, uniform,
)
from tfopt.kernels.linear.visits cimport add_features, example, predict

#: The names of the losses, in the order of the kernel's numbers; the first five are TensorFlow's.
LOSSES = (
    "logistic_loss", "squared_loss", "hinge_loss", "smooth_hinge_loss", "poisson_loss",
    "squared_hinge_loss", "squared_epsilon_insensitive_loss", "huber_loss", "quantile_loss",
    "epsilon_insensitive_loss", "gamma_loss", "tweedie_loss",
)

#: The dtype of an example, matching the struct: dual variable, label, weight and |x|^2 / l2.
EXAMPLE = np.dtype([("a", "f8"), ("y", "f8"), ("weight", "f8"), ("curvature", "f8")])

cdef enum:
    MOMENTS = 16        # shares of the rows with separate sums, and the rows that each has at least


cdef loss_t named_loss(str name, double parameter) except *:
    """A loss by name.

    Raises
    ------
    InvalidArgumentError
        If there is none.
    """
    cdef loss_t loss
    if name not in LOSSES:
        raise InvalidArgumentError(f"loss must be one of {', '.join(LOSSES)}, not {name!r}")
    loss = loss_of(LOSSES.index(name), parameter)
    if loss.value == NULL:
        raise NotImplementedError(f"the kernels have no formulas of {name}")
    return loss


# ---- plans

def shuffled(Py_ssize_t n, Py_ssize_t bucket, uint64_t seed, uint64_t epoch):
    """All n examples in random order: buckets of neighbours are shuffled, and examples within them.

    Buckets of 8 make an epoch faster if the rows do not fit in cache. The boundaries of the buckets
    are also random, so they differ between epochs.

    Returns
    -------
    ndarray of int64, shape (n,)
    """
    cdef Py_ssize_t most = <Py_ssize_t>1 << 60      # sums of such numbers do not overflow
    if not (0 <= n <= most and 1 <= bucket <= most):
        raise InvalidArgumentError(
            f"n must not be negative and bucket at least 1, not {n} and {bucket}"
        )
    cdef int64_t[::1] buckets = np.empty(n_buckets(n, bucket), np.int64)
    cdef int64_t[::1] plan = np.empty(n, np.int64)
    if n:
        with nogil:
            shuffle_in_buckets(n, bucket, seed, epoch, &buckets[0], &plan[0])
    return np.asarray(plan)


def awake(const uint8_t[::1] idle not None, uint64_t sweep):
    """The examples that a sweep visits: those that k visits left at a corner, in 1 of 2^k sweeps.

    Returns
    -------
    ndarray of int64
    """
    cdef Py_ssize_t n = idle.shape[0]
    cdef int64_t[::1] found = np.empty(n, np.int64)
    if n:
        with nogil:
            n = find_awake(&idle[0], n, sweep, &found[0])
    return np.asarray(found[:n])


def importance(const example[::1] examples not None, const double[::1] wx not None, str loss,
               double l2, double parameter=1):
    """The distance of each example from its optimum (Csiba, Qu and Richtarik, 2015), given x . w.

    Returns
    -------
    ndarray of float64, shape (n,)
        weight * sqrt(|x|^2 + l2 * gamma) * |a + phi'(wx)|.
    """
    cdef loss_t f = named_loss(loss, parameter)
    cdef Py_ssize_t i, n = examples.shape[0]
    cdef double[::1] p = np.zeros(n)
    cdef double residue
    check_length("wx", wx.shape[0], n)
    for i in range(n):
        if not examples[i].weight > 0:      # whose derivative may be infinite
            continue
        residue = fabs(examples[i].a + f.slope(wx[i], examples[i].y, f.parameter))
        p[i] = examples[i].weight * sqrt(l2 * (examples[i].curvature + f.gamma)) * residue
    return np.asarray(p)


cdef void _accumulate(const double[::1] p, double[::1] ends, int64_t[::1] guide) noexcept nogil:
    """Cumulative sums of p, and the first beyond each n-th of their total.

    Indexed search (Chen and Asau, 1974): from there, a sum is found in two steps on average.
    """
    cdef Py_ssize_t i, k = 0, n = p.shape[0]
    cdef double total = 0
    for i in range(n):
        total += fmin(p[i], 1e290)      # an infinite one leaves almost nothing to the others
        ends[i] = total
    if total == 0:
        for i in range(n):
            ends[i] = i + 1
        total = n
    for i in range(n):
        while k < n - 1 and ends[k] <= i * (total / n):
            k += 1
        guide[i] = k


cdef Py_ssize_t _draw(const double[::1] ends, const int64_t[::1] guide,
                      uint64_t *state) noexcept nogil:
    """The first whose cumulative sum exceeds a random fraction of the total."""
    cdef Py_ssize_t n = ends.shape[0], k
    cdef double part = uniform(state), at = part * ends[n - 1]
    k = guide[<Py_ssize_t>(part * n)]
    while k > 0 and ends[k - 1] > at:   # by rounding
        k -= 1
    while k < n - 1 and ends[k] <= at:
        k += 1
    return k


def sampled(const double[::1] p not None, uint64_t seed, uint64_t epoch):
    """A plan with as many visits as examples, drawn in proportion to p.

    An example drawn k times before is accepted with probability 0.1^k. After as many rejections as
    examples, the plan is completed with examples not drawn, in order of decreasing p. If all p are
    0, all examples are equally likely.

    Returns
    -------
    ndarray of int64, shape (n,)
    """
    cdef Py_ssize_t n = p.shape[0], k, drawn = 0, rejected = 0
    cdef uint64_t state = generator(seed, epoch)
    cdef double[::1] ends = np.empty(n), chance = np.ones(n)
    cdef int64_t[::1] guide = np.empty(n, np.int64), plan = np.empty(n, np.int64)
    with nogil:
        _accumulate(p, ends, guide)
        while drawn < n and rejected < n:
            k = _draw(ends, guide, &state)
            if chance[k] < 1 and uniform(&state) >= chance[k]:
                rejected += 1
                continue
            chance[k] *= 0.1
            plan[drawn] = k
            drawn += 1
    if drawn < n:
        left = np.flatnonzero(np.asarray(chance) == 1)
        falling = left[np.argsort(-np.asarray(p)[left], kind="stable")]
        np.asarray(plan)[drawn:] = falling[:n - drawn]
    return np.asarray(plan)


# ---- passes over the rows

def weights_of(const real[::1] data not None, const index[::1] indices not None,
               const index[::1] indptr not None, const real[:, ::1] dense not None,
               const example[::1] examples not None, double[::1] v not None, double l2):
    """Write to v the unshrunk weights given by the dual variables."""
    cdef extent bounds = extent_of(data.shape[0], indices.shape[0], indptr.shape[0],
                                   dense.shape[0], dense.shape[1], v.shape[0])
    cdef Py_ssize_t i
    cdef double *first = &v[0] if v.shape[0] else NULL
    cdef fp_state caller
    check_length("examples", examples.shape[0], bounds.n_rows)
    v[:] = 0
    with nogil:
        caller = fp_enter(False)
        for i in range(examples.shape[0]):
            add_features(data, indices, indptr, dense, i, first,
                         examples[i].weight * examples[i].a / l2, &bounds)
        fp_leave(caller)
    refuse_outside(&bounds, data, indices, indptr, None)


cdef void _squares(const real[::1] data, const index[::1] indptr, const real[:, ::1] dense,
                   double[::1] norms, extent *bounds) noexcept nogil:
    cdef Py_ssize_t i, k, start = 0, n
    cdef double s
    for i in range(norms.shape[0]):
        s = 0
        n = row_length(&indptr[0], i, &start, bounds)
        for k in range(start, start + n):
            s += <double>data[k] * data[k]
        for k in range(dense.shape[1]):
            s += <double>dense[i, k] * dense[i, k]
        norms[i] = s


def squared_norms(const real[::1] data not None, const index[::1] indptr not None,
                  const real[:, ::1] dense not None):
    """|x|^2 of each example.

    Returns
    -------
    ndarray of float64, shape (n_examples,)
    """
    cdef extent bounds = extent_of(data.shape[0], data.shape[0], indptr.shape[0], dense.shape[0],
                                   dense.shape[1], dense.shape[1])
    cdef double[::1] norms = np.empty(bounds.n_rows)
    cdef fp_state caller
    with nogil:
        caller = fp_enter(False)
        _squares(data, indptr, dense, norms, &bounds)
        fp_leave(caller)
    if bounds.outside:  # columns are not used
        refuse_outside(&bounds, data, np.zeros(data.shape[0], np.int32), indptr, None)
    return np.asarray(norms)


cdef void _moments_share(const real[:, ::1] X, double[:, :, ::1] sums, int thread,
                         int threads) noexcept nogil:
    cdef Py_ssize_t share, i, k, n = X.shape[0], shares = sums.shape[0]
    cdef double x
    cdef fp_state caller = fp_enter(False)
    for share in range(shares * thread // threads, shares * (thread + 1) // threads):
        for i in range(n * share // shares, n * (share + 1) // shares):
            for k in range(X.shape[1]):
                x = X[i, k]
                sums[share, 0, k] += x
                sums[share, 1, k] += x * x
    fp_leave(caller)


def moments(const real[:, ::1] X not None, int threads=0):
    """The sum of each column, and that of its squares, in one pass.

    Returns
    -------
    ndarray of float64, shape (2, n_columns)
    """
    cdef Py_ssize_t shares = max(1, min(MOMENTS, X.shape[0] // MOMENTS))
    cdef double[:, :, ::1] sums = np.zeros((shares, 2, X.shape[1]))
    cdef team t = at_most(at_most(gather_team(X.shape[0] * X.shape[1], 1), threads), shares)
    if X.shape[1]:
        with nogil, parallel(num_threads=t.size):
            begin_share(&t)
            _moments_share(X, sums, omp_get_thread_num(), omp_get_num_threads())
            end_share(&t)
        dismiss_team(&t)
    return np.add.reduce(np.asarray(sums), axis=0)


cdef void _predict_share(const real[::1] data, const index[::1] indices,
                         const index[::1] indptr, const real[:, ::1] dense, const double *v,
                         double shrink, double[::1] wx, extent *bounds, int thread,
                         int threads) noexcept nogil:
    cdef Py_ssize_t i, n = wx.shape[0]
    cdef fp_state caller = fp_enter(False)
    for i in range(n * thread // threads, n * (thread + 1) // threads):
        wx[i] = predict(data, indices, indptr, dense, i, v, shrink, bounds)
    fp_leave(caller)


def predictions(const real[::1] data not None, const index[::1] indices not None,
                const index[::1] indptr not None, const real[:, ::1] dense not None,
                const double[::1] v not None, double shrink, int threads=0):
    """x . S(v) of each example.

    Returns
    -------
    ndarray of float64, shape (n_examples,)
    """
    cdef extent bounds = extent_of(data.shape[0], indices.shape[0], indptr.shape[0],
                                   dense.shape[0], dense.shape[1], v.shape[0])
    cdef double[::1] wx = np.empty(bounds.n_rows)
    cdef const double *first = &v[0] if v.shape[0] else NULL
    cdef Py_ssize_t features = data.shape[0] + dense.shape[0] * dense.shape[1]
    cdef team t = at_most(gather_team(features, 1), threads)
    with nogil, parallel(num_threads=t.size):
        begin_share(&t)
        _predict_share(data, indices, indptr, dense, first, shrink, wx, &bounds,
                       omp_get_thread_num(), omp_get_num_threads())
        end_share(&t)
    dismiss_team(&t)
    refuse_outside(&bounds, data, indices, indptr, None)
    return np.asarray(wx)


def terms(const example[::1] examples not None, const double[::1] before not None,
          const double[::1] wx not None, str loss):
    """The terms of each example in the primal at a prediction, and in the dual at `before`.

    Returns
    -------
    primal, dual : ndarray of float64, shape (n_examples,)
        weight * phi(wx) and weight * phi*(-before); 0 for an example without weight.
    """
    cdef loss_t f = named_loss(loss, 1)
    cdef Py_ssize_t i, n = examples.shape[0]
    cdef double[::1] primal = np.zeros(n), dual = np.zeros(n)
    check_length("before", before.shape[0], n)
    check_length("wx", wx.shape[0], n)
    for i in range(n):
        if examples[i].weight > 0:
            primal[i] = examples[i].weight * f.value(wx[i], examples[i].y, f.parameter)
            dual[i] = examples[i].weight * f.conjugate(before[i], examples[i].y, f.parameter)
    return np.asarray(primal), np.asarray(dual)
