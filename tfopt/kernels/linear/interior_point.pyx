"""The rows of an interior-point method for losses with a corner, linear on both sides of it.

Such a loss is the largest a * (y - z) of dual variables a in an interval, z the prediction. A point
has how far a is from the ends of the interval, `upper` and `lower`, and two parts of
y - z = above - below. On the central path upper * above = lower * below = mu for each row.
A loss with several corners is a sum of such losses: then a row here is a corner of a row.
All sums are taken over blocks of fixed size, so they do not depend on the number of threads.
"""

from cython.parallel cimport parallel
from libc.string cimport memset

import numpy as np

from tfopt.kernels import cpu

from tfopt.kernels.arrays.csr cimport check_length
from tfopt.kernels.linear.cholesky cimport factorize, substitute
from tfopt.kernels.platform.machine cimport (
    fp_enter, fp_leave, fp_state, omp_get_num_threads, omp_get_thread_num,
)
from tfopt.kernels.platform.outer_products cimport TILE, outer_products_for, outer_products_t
from tfopt.kernels.platform.runtime cimport (
    at_most, begin_share, dismiss_team, end_share, gather_team, team,
)

cdef outer_products_t outer_products = outer_products_for(cpu.encode())

cdef enum:
    WEIGHT, DUAL, UPPER, LOWER, ABOVE, BELOW, DUAL_STEP, ABOVE_STEP, BELOW_STEP, N_FIELDS
    BLOCK = 512     # rows summed together
    COSTLY = 16     # a row takes as long as visiting this many features
    N_SUMS = 4
    PANEL = 128     # rows whose outer products are summed in registers
    HEIGHT = 129    # of a panel's tiles; a power of 2 would put them all in one set of the cache

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
    cdef double by_up = 1 / up, by_low = 1 / low, p = above * by_up, n = below * by_low
    cdef double bend = 1 / (p + n), a, first = 0, second = 0, up_step, low_step, longest
    if corrects:
        a = f[DUAL_STEP][i]
        first = (target + a * (p * a - above)) * by_up
        second = (target + a * (n * a + below)) * by_low
    a = bend * (above - below - first + second - change)
    up_step, low_step = first - above + p * a, second - below - n * a
    f[DUAL_STEP][i] = a
    if corrects:
        f[ABOVE_STEP][i], f[BELOW_STEP][i] = up_step, low_step
    else:
        curvature[0] = weight * bend * (by_low - by_up)
        pull[0] = weight * bend * a * ((n * a + below) * by_low - (p * a - above) * by_up)
    longest = a * by_up if a * by_up > -a * by_low else -a * by_low     # without a branch
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
    cdef double *curvature = nowhere, *pull = nowhere + 1
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
    cdef team t = at_most(gather_team(n * COSTLY, 1), threads)
    check_length("fields", fields.shape[0], N_FIELDS)
    if now.kind != ADVANCE:
        check_length("changes", changes.shape[0], n)
    if n:
        with nogil, parallel(num_threads=t.size):
            begin_share(&t)
            _share(&now, fields, changes, answers, sums, omp_get_thread_num(),
                   omp_get_num_threads())
            end_share(&t)
        dismiss_team(&t)
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


# ---- all of a step, of few dense rows

cdef inline double _dot(const double *x, const double *v, Py_ssize_t n) noexcept nogil:
    cdef double s0 = 0, s1 = 0, s2 = 0, s3 = 0
    cdef Py_ssize_t k, fours = n - n % 4
    for k in range(0, fours, 4):
        s0 += x[k] * v[k]
        s1 += x[k + 1] * v[k + 1]
        s2 += x[k + 2] * v[k + 2]
        s3 += x[k + 3] * v[k + 3]
    for k in range(fours, n):
        s0 += x[k] * v[k]
    return (s0 + s1) + (s2 + s3)


cdef void _system(const double[:, ::1] X, const double *curvatures, const double *pulls,
                  double *panel, double *A) noexcept nogil:
    """The lower triangle of the sum of curvature * x x^T, x with a last 1, and of pull * x."""
    cdef Py_ssize_t i, j, k, t, r, low, rows, n = X.shape[1] + 1
    cdef double *plain
    cdef double *scaled
    cdef double *left = panel + (n + TILE - 1) // TILE * TILE * HEIGHT
    cdef const double *x
    memset(A, 0, (n + 1) * n * sizeof(double))
    for t in range((X.shape[0] + PANEL - 1) // PANEL):
        low = t * PANEL
        rows = min(<Py_ssize_t>PANEL, X.shape[0] - low)
        for r in range(rows):
            i = low + r
            x = &X[i, 0]
            plain, scaled = panel + r * TILE, left + r * TILE
            k = 0
            while k < n - 1:
                for j in range(min(<Py_ssize_t>TILE, n - 1 - k)):
                    plain[j] = x[k + j]
                    scaled[j] = curvatures[i] * x[k + j]
                plain += HEIGHT * TILE
                scaled += HEIGHT * TILE
                k += TILE
            k = n - 1
            panel[(k // TILE * HEIGHT + r) * TILE + k % TILE] = 1
            left[(k // TILE * HEIGHT + r) * TILE + k % TILE] = curvatures[i]
            left[(n // TILE * HEIGHT + r) * TILE + n % TILE] = pulls[i]
        outer_products(A, n, n, left, panel, rows, HEIGHT, NULL, NULL)


cdef bint _step(const double[:, ::1] X, double **f, double *u, double l2, bint intercept,
                double share, double products, double total, double *rows, double *panel,
                double *A, double *v, double *sums, Py_ssize_t n_corners) noexcept nogil:
    """Compute a step; see `step`. u becomes that of the weights and the intercept."""
    cdef Py_ssize_t i, j, k, c, n_rows = X.shape[0], n = n_rows * n_corners, m = X.shape[1]
    cdef Py_ssize_t width = m + 1, size = width if intercept else m
    cdef double *curvatures = rows, *pulls = rows + n
    cdef double reached, length, target, change, curvature, pull
    cdef const double *x
    memset(rows, 0, 2 * n * sizeof(double))
    memset(v, 0, 2 * width * sizeof(double))
    memset(sums, 0, N_SUMS * sizeof(double))
    for i in range(n):
        if f[WEIGHT][i] > 0:
            _advance(f, i, share, curvatures + i, pulls + i)
    for i in range(n_rows, n):      # the corners of a row have its features
        curvatures[i % n_rows] += curvatures[i]
        pulls[i % n_rows] += pulls[i]
    _system(X, curvatures, pulls, panel, A)
    for j in range(width):
        u[j] = A[width * width + j] - (l2 * u[j] if j < m else 0)
        for k in range(j + 1, width):
            A[j * width + k] = A[k * width + j]
    for j in range(m):
        A[j * width + j] += l2
    if not intercept:
        u[m] = 0
    if not factorize(A, size, width, NULL):     # what rounding does, the next steps correct
        return False
    substitute(A, size, width, u)
    for i in range(n_rows):
        x = &X[i, 0]
        change, curvature, pull = _dot(x, u, m) + u[m], 0, 0
        for c in range(n_corners):
            k = c * n_rows + i
            if f[WEIGHT][k] > 0:
                _set_step(f, k, change, 0, False, curvatures + k, pulls + k, sums)
                curvature, pull = curvature + curvatures[k], pull + pulls[k]
        for j in range(m):
            v[j] += curvature * x[j]
        for j in range(m):
            v[width + j] += pull * x[j]
        v[m], v[width + m] = v[m] + curvature, v[width + m] + pull
    length = 1 / sums[0] if sums[0] > 1 else 1
    reached = (products + length * (sums[1] + length * sums[2])) / products
    target = reached * reached * reached * products / (2 * total)
    for j in range(size):
        v[j] = target * v[j] + v[width + j]
    substitute(A, size, width, v)
    for j in range(size):
        u[j] += v[j]
    memset(sums, 0, N_SUMS * sizeof(double))
    for i in range(n_rows):
        change = _dot(&X[i, 0], u, m) + u[m]
        for k in range(n_corners):
            if f[WEIGHT][k * n_rows + i] > 0:
                _set_step(f, k * n_rows + i, change, target, True, NULL, NULL, sums)
    return True


def step(const double[:, ::1] X not None, double[:, ::1] fields not None,
         double[::1] u not None, double l2, bint intercept, double share, double products,
         double total):
    """All of a step of few dense rows, on one thread: `advance`, `predict` and `correct`.

    Parameters
    ----------
    X : ndarray of float64, shape (n_rows, n_weights)
    fields : ndarray of float64, shape (9, n_corners * n_rows)
        The first corners of all rows come first.
    u : ndarray of float64, shape (n_weights + 1,)
        The weights and the intercept; becomes their step.
    l2 : float
    intercept : bool
    share : float
        Of the last step, to be taken.
    products, total : float
        The weighted sum of products, and that of the weights.

    Returns
    -------
    ndarray of float64, shape (4,), or None
        See `predict`; None if the matrix is not positive definite, but for rounding.
    """
    cdef Py_ssize_t k, n = X.shape[0], width = X.shape[1] + 1, n_corners = 1
    cdef Py_ssize_t tiles = (width + TILE - 1) // TILE + (width + TILE) // TILE
    cdef double[::1] rows = np.empty(2 * fields.shape[1]), panel = np.zeros(tiles * TILE * HEIGHT)
    cdef double[::1] A = np.empty((width + 1) * width), v = np.empty(2 * width)
    cdef double[::1] sums = np.empty(N_SUMS)
    cdef double *f[N_FIELDS]
    cdef bint solved
    cdef fp_state caller
    check_length("fields", fields.shape[0], N_FIELDS)
    if n:
        n_corners = max(1, fields.shape[1] // n)
    check_length("a row of fields", fields.shape[1], n_corners * n)
    check_length("u", u.shape[0], width)
    if n == 0 or width == 1:
        return None
    for k in range(N_FIELDS):
        f[k] = &fields[k, 0]
    with nogil:
        caller = fp_enter(False)
        solved = _step(X, f, &u[0], l2, intercept, share, products, total, &rows[0], &panel[0],
                       &A[0], &v[0], &sums[0], n_corners)
        fp_leave(caller)
    return np.asarray(sums) if solved else None
