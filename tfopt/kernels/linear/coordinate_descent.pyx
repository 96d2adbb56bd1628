"""Cyclic coordinate descent on quadratic models of the losses, with penalties of each weight.

The model of the objective at weights w0, for all w, is

    q . (w - w0) + (w - w0) . A (w - w0) / 2 + up . max(w, 0) + down . max(-w, 0)

where A = X^T D X + l2, D the curvatures of the losses, and q their gradient, that of l2 included.
Each weight has slopes up and down of its own, and l2: both slopes are l1, and a weight that may not
be negative has an infinite one downwards.
The intercept follows the weights: it takes its best value for them. One function has the matrix A,
of features that are few; the other one the columns of X.
"""

from tfopt.kernels.arrays.csr cimport (
    check_length, extent, extent_of, index, once, refuse_outside, row_length, within,
)
from tfopt.kernels.platform.machine cimport fp_enter, fp_leave, fp_state, raise_flag
from tfopt.kernels.linear.visits cimport predict
from tfopt.kernels.platform.floats cimport real

cdef enum:
    FULL_EVERY = 5      # sweeps from one over all features to the next; others skip zero weights


cdef inline double minimum(double w, double gradient, double curvature, double down,
                           double up) noexcept nogil:
    """The weight that minimizes the model along its coordinate: a soft threshold."""
    cdef double z = w * curvature - gradient
    if curvature <= 0 or -down <= z <= up:
        return 0
    return (z - up if z > 0 else z + down) / curvature


def descend_matrix(const double[:, ::1] A not None, double[::1] gradient not None,
                   double[::1] w not None, const double[::1] down not None,
                   const double[::1] up not None, double tolerance, Py_ssize_t max_sweeps):
    """Sweep over the weights until a sweep lowers the model by no more than half the tolerance.

    Updates w, and the gradient of the model without the slopes.

    Returns
    -------
    int
        The number of sweeps.
    """
    cdef Py_ssize_t j, k, n = w.shape[0], sweep = 0
    cdef double moved, step, found
    cdef fp_state caller
    check_length("gradient", gradient.shape[0], n)
    check_length("A", A.shape[0], n)
    check_length("a row of A", A.shape[1], n)
    check_length("down", down.shape[0], n)
    check_length("up", up.shape[0], n)
    with nogil:
        caller = fp_enter(False)
        while sweep < max_sweeps:
            sweep += 1
            moved = 0
            for j in range(n):
                found = minimum(w[j], gradient[j], A[j, j], down[j], up[j])
                step = found - w[j]
                if step != 0:
                    w[j] = found
                    for k in range(n):
                        gradient[k] += A[j, k] * step
                    moved += A[j, j] * step * step
            if not moved > tolerance:
                break
        fp_leave(caller)
    return sweep


def descend_columns(const real[::1] data not None, const index[::1] indices not None,
                    const index[::1] indptr not None, const real[:, ::1] dense not None,
                    const double[::1] bends not None, const double[::1] sums not None,
                    const double[::1] curvatures not None, double[::1] slopes not None,
                    double[::1] w not None, double share, const double[::1] down not None,
                    const double[::1] up not None, const double[::1] l2 not None,
                    double tolerance, Py_ssize_t max_sweeps):
    """Sweep over the weights as `descend_matrix` does; most sweeps skip weights that are 0.

    Parameters
    ----------
    data, indices, indptr, dense
        The columns of X, as rows of a CSR matrix or of a dense block.
    bends : ndarray of float64, shape (n_samples,)
        D.
    sums : ndarray of float64, shape (n_features,)
        For each feature the sum of bend * x.
    curvatures : ndarray of float64, shape (n_features,)
        The diagonal of A.
    slopes : ndarray of float64, shape (n_samples,)
        The derivatives of the losses' models, but for the intercept's share; updated.
    w : ndarray of float64, shape (n_features,)
        Updated.
    share : float
        1 / the sum of bends; 0 without an intercept.
    down, up, l2 : ndarray of float64, shape (n_features,)

    Returns
    -------
    n_sweeps : int
    bias_step : float
        By how much the intercept changes.
    """
    cdef Py_ssize_t j, k, i, start, length, n = w.shape[0], n_samples = slopes.shape[0], sweep = 0
    cdef Py_ssize_t width = dense.shape[1]
    cdef double moved, step, found, gradient, bias_step = 0
    cdef const double *at = &slopes[0] if n_samples else NULL
    cdef bint full
    cdef extent bounds = extent_of(data.shape[0], indices.shape[0], indptr.shape[0],
                                   dense.shape[0], width, n_samples)
    cdef fp_state caller
    check_length("w", n, bounds.n_rows)
    check_length("sums", sums.shape[0], n)
    check_length("curvatures", curvatures.shape[0], n)
    check_length("bends", bends.shape[0], n_samples)
    check_length("down", down.shape[0], n)
    check_length("up", up.shape[0], n)
    check_length("l2", l2.shape[0], n)
    with nogil:
        caller = fp_enter(False)
        while sweep < max_sweeps and not bounds.outside:
            full = sweep % FULL_EVERY == 0
            sweep += 1
            moved = 0
            for j in range(n):
                if w[j] == 0 and not full:
                    continue
                gradient = predict(data, indices, indptr, dense, j, at, 0, &bounds)
                gradient += sums[j] * bias_step + l2[j] * w[j]
                found = minimum(w[j], gradient, curvatures[j], down[j], up[j])
                step = found - w[j]
                if step == 0 or bounds.outside:
                    continue
                w[j] = found
                bias_step -= share * sums[j] * step
                start = 0
                length = row_length(&indptr[0], j, &start, &bounds)
                for k in range(start, start + length):
                    i = once(&indices[k])
                    if not within(i, bounds.n_columns):
                        raise_flag(&bounds.outside)
                        break
                    slopes[i] += bends[i] * (data[k] * step)
                for k in range(width):
                    i = bounds.n_columns + k
                    slopes[i] += bends[i] * (dense[j, k] * step)
                moved += curvatures[j] * step * step
            if full and not moved > tolerance:
                break
        fp_leave(caller)
    refuse_outside(&bounds, data, indices, indptr, None)
    return sweep, bias_step
