"""The rows of an interior-point method for losses with a corner, linear on both sides of it.

Such a loss is the largest a * (y - z) of dual variables a in an interval, z the prediction. A point
has how far a is from the ends of the interval, `upper` and `lower`, and two parts of
y - z = above - below. On the central path upper * above = lower * below = mu for each row.
All sums are taken over blocks of fixed size, so they do not depend on the number of threads.
"""

from cython.parallel cimport parallel

import numpy as np

from tfopt.kernels.arrays.csr cimport check_length
from tfopt.kernels.platform.machine cimport (
    fp_enter, fp_leave, fp_state, omp_get_num_threads, omp_get_thread_num,
)
from tfopt.kernels.platform.runtime cimport team_size

cdef enum:
    WEIGHT, DUAL, UPPER, LOWER, ABOVE, BELOW, DUAL_STEP, ABOVE_STEP, BELOW_STEP, N_FIELDS
    BLOCK = 512     # rows summed together
    COSTLY = 16     # a row takes as long as visiting this many features
    N_SUMS = 4

#: The rows of the array `fields`.
FIELDS = (
    "weight", "dual", "upper", "lower", "above", "below", "dual_step", "above_step", "below_step",
)

cdef enum:
    ADVANCE, PREDICT, CORRECT


cdef struct phase:
    int kind
    double share        # of the last step, to be taken
    double bias         # the change of the intercept
    double target       # of the products: sigma * mu


cdef inline void _advance(double **f, Py_ssize_t i, double share, double *curvature,
                          double *pull) noexcept nogil:
    """Take a share of the last step."""
    cdef double step = share * f[DUAL_STEP][i], bend
    f[DUAL][i] += step
    f[UPPER][i] -= step
    f[LOWER][i] += step
    f[ABOVE][i] += share * f[ABOVE_STEP][i]
    f[BELOW][i] += share * f[BELOW_STEP][i]
    bend = 1 / (f[ABOVE][i] / f[UPPER][i] + f[BELOW][i] / f[LOWER][i])
    curvature[0] = f[WEIGHT][i] * bend
    pull[0] = f[WEIGHT][i] * (f[DUAL][i] + bend * (f[ABOVE][i] - f[BELOW][i]))


cdef inline void _set_step(double **f, Py_ssize_t i, double change, double target,
                           bint corrects, double *curvature, double *pull,
                           double *sums) noexcept nogil:
    """The step of a row, given that of its prediction.

    The corrector aims at products of `target`, less those of the predictor's steps, which follow
    from the dual variable's.
    """
    cdef double weight = f[WEIGHT][i], up = f[UPPER][i], low = f[LOWER][i]
    cdef double above = f[ABOVE][i], below = f[BELOW][i]
    cdef double p = above / up, n = below / low, bend = 1 / (p + n)
    cdef double a, first = 0, second = 0, up_step, low_step, longest
    if corrects:
        a = f[DUAL_STEP][i]
        first = (target + a * (p * a - above)) / up
        second = (target + a * (n * a + below)) / low
    a = bend * (above - below - first + second - change)
    up_step, low_step = first - above + p * a, second - below - n * a
    f[DUAL_STEP][i] = a
    if corrects:
        f[ABOVE_STEP][i], f[BELOW_STEP][i] = up_step, low_step
    else:
        curvature[0] = weight * bend * (1 / low - 1 / up)
        pull[0] = weight * bend * a * ((n * a + below) / low - (p * a - above) / up)
    longest = a / up if a > 0 else -a / low
    if longest > sums[0]:
        sums[0] = longest
    if -up_step > sums[0] * above:
        sums[0] = -up_step / above
    if -low_step > sums[0] * below:
        sums[0] = -low_step / below
    sums[1] += weight * (up_step * up - above * a + low_step * low + below * a)
    sums[2] += weight * a * (low_step - up_step)
    sums[3] += weight * (up_step * (f[DUAL][i] + up) - low_step * (f[DUAL][i] - low))


cdef void _share(const phase *now, double[:, ::1] fields, const double[::1] changes,
                 double[:, ::1] answers, double[:, ::1] sums, int thread,
                 int threads) noexcept nogil:
    cdef Py_ssize_t b, i, k, n = fields.shape[1], blocks = sums.shape[0]
    cdef double *f[N_FIELDS]
    cdef double nowhere[2]
    cdef double *curvature = nowhere
    cdef double *pull = nowhere + 1
    cdef fp_state caller = fp_enter(False)
    for k in range(N_FIELDS):
        f[k] = &fields[k, 0]
    for b in range(blocks * thread // threads, blocks * (thread + 1) // threads):
        for i in range(b * BLOCK, min(n, (b + 1) * BLOCK)):
            if not f[WEIGHT][i] > 0:
                continue
            if now.kind != CORRECT:
                curvature, pull = &answers[0, i], &answers[1, i]
            if now.kind == ADVANCE:
                _advance(f, i, now.share, curvature, pull)
            else:
                _set_step(f, i, changes[i] + now.bias, now.target, now.kind == CORRECT, curvature,
                          pull, &sums[b, 0])
    fp_leave(caller)


cdef _run(phase now, double[:, ::1] fields, const double[::1] changes, int threads):
    """Return the numbers of the rows, and the sums."""
    cdef Py_ssize_t n = fields.shape[1]
    cdef double[:, ::1] answers = np.zeros((2, n if now.kind != CORRECT else 0))
    cdef double[:, ::1] sums = np.zeros(((n + BLOCK - 1) // BLOCK, N_SUMS))
    cdef int team = team_size(n * COSTLY, 1)
    check_length("fields", fields.shape[0], N_FIELDS)
    if now.kind != ADVANCE:
        check_length("changes", changes.shape[0], n)
    if n:
        with nogil, parallel(num_threads=threads if 0 < threads < team else team):
            _share(&now, fields, changes, answers, sums, omp_get_thread_num(),
                   omp_get_num_threads())
    parts = np.asarray(sums)
    total = np.add.reduce(parts, axis=0)
    total[0] = np.maximum.reduce(parts[:, 0], initial=0)
    return np.asarray(answers), total


def advance(double[:, ::1] fields not None, double share, int threads=0):
    """Take a share of the last step of rows with weight.

    Returns
    -------
    ndarray of float64, shape (2, n_rows)
        For each row, weight * D with D = 1 / (above / upper + below / lower), its curvature in the
        Newton system, and weight * (dual + D * (above - below)), what it contributes to its right
        side.
    """
    cdef phase now = phase(ADVANCE, share, 0, 0)
    return _run(now, fields, None, threads)[0]


def predict(double[:, ::1] fields not None, const double[::1] changes not None, double bias,
            int threads=0):
    """The step to products of 0, given the changes of the predictions and of the intercept.

    Of the step only that of the dual variables is kept.

    Returns
    -------
    pulls : ndarray of float64, shape (2, n_rows)
        For each row what the corrector adds to its contribution to the right side: a number to be
        multiplied by the products that it aims at, and another for the predictor's own products.
    sums : ndarray of float64, shape (4,)
        The largest ratio by which a variable would become 0, which is 1 / the longest step; the
        first and the second derivative / 2 of the weighted sum of products along the step, and the
        derivative of the losses.
    """
    cdef phase now = phase(PREDICT, 0, bias, 0)
    return _run(now, fields, changes, threads)


def correct(double[:, ::1] fields not None, const double[::1] changes not None, double bias,
            double target, int threads=0):
    """The step to products of `target`, which replaces that of `predict`.

    Returns
    -------
    ndarray of float64, shape (4,)
        See `predict`.
    """
    cdef phase now = phase(CORRECT, 0, bias, target)
    return _run(now, fields, changes, threads)[1]


def substitute(const double[:, ::1] U not None, double[::1] b not None):
    """Solve U^T U x = b for an upper triangular U, as `second_order.solve` leaves it.

    Overwrites b by x.
    """
    cdef Py_ssize_t i, j, n = b.shape[0]
    cdef double s
    check_length("U", U.shape[0], n)
    check_length("a row of U", U.shape[1], n)
    for i in range(n):
        b[i] /= U[i, i]
        for j in range(i + 1, n):
            b[j] -= U[i, j] * b[i]
    for i in range(n - 1, -1, -1):
        s = b[i]
        for j in range(i + 1, n):
            s -= U[i, j] * b[j]
        b[i] = s / U[i, i]
