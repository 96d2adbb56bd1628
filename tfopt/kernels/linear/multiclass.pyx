"""Epochs of stochastic dual coordinate ascent for several classes at once.

Eight one-versus-rest classes share each access to a row: the weights of a feature are in one cache
line, with a class in each lane. Except for rounding, a lane computes the same as the sequential
epoch of solver.pyx for its class. Lanes are independent, so the bits of a class depend neither on
the classes in other lanes nor on the thread.
"""

from libc.math cimport fabs, fmax, fmin
from libc.stdint cimport int64_t

import numpy as np

from tfopt.errors import InvalidArgumentError
from tfopt.kernels import cpu
from tfopt.kernels.arrays.csr cimport (
    check_length, extent, extent_of, index, once, refuse_outside, row_length, within,
)
from tfopt.kernels.linear.loss_formulas cimport (
    NEAR, exp_series, hinge_conjugate, hinge_step, hinge_value, logistic_root, logistic_value,
    squared_hinge_conjugate, squared_hinge_step, squared_hinge_value,
)
from tfopt.kernels.linear.losses cimport HINGE, LOGISTIC, SMOOTH_HINGE, SQUARED_HINGE, loss_t
from tfopt.kernels.platform.machine cimport fp_enter, fp_leave, fp_state, prefetch_line, raise_flag
from tfopt.kernels.platform.floats cimport real
from tfopt.kernels.platform.outer_products cimport tile_product_for, tile_product_t
from tfopt.kernels.linear.visits cimport AHEAD, named_loss, prefetch_row_of, shrunk, weight_of

#: The number of classes processed together.
LANES = 8

#: The dtype of a sample, matching the struct below.
SAMPLE = np.dtype([("weight", "f8"), ("curvature", "f8"), ("lane", "i8")])

cdef tile_product_t tile_product = tile_product_for(cpu.encode())

cdef enum:
    WIDE = 8            # LANES, and a tile's rows and columns
    PANEL = 128         # rows of a dense block whose products are summed in registers
    FEATURES_AHEAD = 16  # how many features ahead weights are prefetched

cdef struct sample:
    double weight
    double curvature    # |x|^2 / l2
    int64_t lane        # of the sample's class; -1 if its class is not among the lanes

#: The data shared by the visits of an epoch.
cdef struct ascent:
    int kind
    loss_t loss
    double l2
    double shrink
    double bias_curvature
    int n_lanes             # in unused lanes the label is 0, which changes nothing
    double[WIDE] bias
    double[WIDE] estimate


# ---- a row and the weights of all lanes

cdef inline void _dot_of(const real *x, const index *j, Py_ssize_t n, const double *v,
                         double shrink, bint shrinks, double *wx, extent *bounds) noexcept nogil:
    """wx += x . S(v), in eight sums that stay in registers; the caller's `shrinks` is constant."""
    cdef double s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0, value
    cdef const double *w
    cdef Py_ssize_t k, at
    for k in range(n):
        if k + FEATURES_AHEAD < n:
            prefetch_line(<const char *>(v + WIDE * <Py_ssize_t>j[k + FEATURES_AHEAD]))
        at = once(j + k)
        if not within(at, bounds.n_columns):
            raise_flag(&bounds.outside)
            return
        w = v + WIDE * at
        value = x[k]
        s0 += value * weight_of(w[0], shrink, shrinks)
        s1 += value * weight_of(w[1], shrink, shrinks)
        s2 += value * weight_of(w[2], shrink, shrinks)
        s3 += value * weight_of(w[3], shrink, shrinks)
        s4 += value * weight_of(w[4], shrink, shrinks)
        s5 += value * weight_of(w[5], shrink, shrinks)
        s6 += value * weight_of(w[6], shrink, shrinks)
        s7 += value * weight_of(w[7], shrink, shrinks)
    wx[0] += s0
    wx[1] += s1
    wx[2] += s2
    wx[3] += s3
    wx[4] += s4
    wx[5] += s5
    wx[6] += s6
    wx[7] += s7


cdef inline void _dot(const real *x, const index *j, Py_ssize_t n, const double *v,
                      double shrink, double *wx, extent *bounds) noexcept nogil:
    if shrink == 0:
        _dot_of(x, j, n, v, shrink, False, wx, bounds)
    else:
        _dot_of(x, j, n, v, shrink, True, wx, bounds)


cdef inline void _dense_dot(const real *x, Py_ssize_t n, const double *v, double shrink,
                            double *wx) noexcept nogil:
    """The same for a row of the dense block, whose weights are contiguous."""
    cdef Py_ssize_t k
    cdef int c
    for k in range(n):
        for c in range(WIDE):
            wx[c] += x[k] * shrunk(v[WIDE * k + c], shrink)


cdef inline void _add(const real *x, const index *j, Py_ssize_t n, double *v,
                      const double *factor, extent *bounds) noexcept nogil:
    """v += factor * x"""
    cdef double f0 = factor[0], f1 = factor[1], f2 = factor[2], f3 = factor[3]
    cdef double f4 = factor[4], f5 = factor[5], f6 = factor[6], f7 = factor[7], value
    cdef double *w
    cdef Py_ssize_t k, at
    for k in range(n):
        at = once(j + k)
        if not within(at, bounds.n_columns):
            raise_flag(&bounds.outside)
            return
        w = v + WIDE * at
        value = x[k]
        w[0] += f0 * value
        w[1] += f1 * value
        w[2] += f2 * value
        w[3] += f3 * value
        w[4] += f4 * value
        w[5] += f5 * value
        w[6] += f6 * value
        w[7] += f7 * value


cdef inline void _dense_add(const real *x, Py_ssize_t n, double *v,
                            const double *factor) noexcept nogil:
    cdef Py_ssize_t k
    cdef int c
    for k in range(n):
        for c in range(WIDE):
            v[WIDE * k + c] += factor[c] * x[k]


# ---- steps of all lanes

cdef inline void _logistic(double *b, double *t, const double *y, const double *wx, double K,
                           double *gap) noexcept nogil:
    """Each lane's new b = y * a and t = logit(b), as by logistic_near in sdca_solver.pyx."""
    cdef double[WIDE] old, moved, residue
    cdef double m, h, v, h1, d, q
    cdef int c
    for c in range(WIDE):
        h = t[c] + y[c] * wx[c]
        q = b[c] * (1 - b[c])
        v = K * q
        h1 = 1 + v
        d = -h * h1 / fmax(h1 * h1 - h * v * (1 - 2 * b[c]) / 2, h1 * h1 / 2)
        gap[c] = fmin(h * h * q / 2, fabs(h))
        old[c] = b[c]
        residue[c] = h
        moved[c] = d
    for c in range(WIDE):
        b[c] = old[c] / (old[c] + (1 - old[c]) * exp_series(-moved[c]))
        t[c] += moved[c] if fabs(residue[c]) <= NEAR else 0
    for c in range(WIDE):
        if not (fabs(residue[c]) <= NEAR):  # or b was 0 or 1
            m = y[c] * wx[c]
            if not 0 < old[c] < 1:
                gap[c] = logistic_value(wx[c], y[c], 0) + old[c] * m
            b[c] = logistic_root(old[c], m, K, &t[c])


cdef inline void _hinge(double *b, const double *y, const double *wx, double K, double gamma,
                        double *gap) noexcept nogil:
    cdef double a
    cdef int c
    for c in range(WIDE):
        a = y[c] * b[c]
        gap[c] = hinge_value(wx[c], y[c], gamma) + hinge_conjugate(a, y[c], gamma) + a * wx[c]
        b[c] = y[c] * hinge_step(a, y[c], wx[c], K, gamma)


cdef inline void _squared_hinge(double *b, const double *y, const double *wx, double K,
                                double *gap) noexcept nogil:
    cdef double a
    cdef int c
    for c in range(WIDE):
        a = y[c] * b[c]
        gap[c] = squared_hinge_value(wx[c], y[c], 0)
        gap[c] += squared_hinge_conjugate(a, y[c], 0) + a * wx[c]
        b[c] = y[c] * squared_hinge_step(a, y[c], wx[c], K, 0)


cdef inline void _visit(const real *x, const index *j, Py_ssize_t n, const real *z,
                        Py_ssize_t width, const sample *s, double *b, double *t, double *v,
                        double *tail, ascent *own, extent *bounds) noexcept nogil:
    """Visit one sample in all lanes."""
    cdef double[WIDE] wx, y, old, gap, factor
    cdef double K = s.weight * (s.curvature + own.bias_curvature), change, any_change = 0
    cdef int c
    for c in range(WIDE):
        wx[c] = own.bias[c]
        y[c] = 1 if c == s.lane else -1 if c < own.n_lanes else 0
        old[c] = b[c]
    _dot(x, j, n, v, own.shrink, wx, bounds)
    if bounds.outside:
        return
    if width > 0:
        _dense_dot(z, width, tail, own.shrink, wx)
    if own.kind == LOGISTIC:
        _logistic(b, t, y, wx, K, gap)
    elif own.kind == SQUARED_HINGE:
        _squared_hinge(b, y, wx, K, gap)
    else:
        _hinge(b, y, wx, K, own.loss.parameter, gap)
    for c in range(WIDE):
        own.estimate[c] += s.weight * gap[c]
        change = s.weight * (y[c] * (b[c] - old[c]))
        factor[c] = change / own.l2
        own.bias[c] += change * own.bias_curvature
        any_change += fabs(change)
    if any_change != 0:
        _add(x, j, n, v, factor, bounds)
        if width > 0:
            _dense_add(z, width, tail, factor)


cdef void _visits(const real *data, const index *indices, const index *indptr, const real *dense,
                  Py_ssize_t width, const int64_t *plan, Py_ssize_t n, const sample *samples,
                  double *b, double *t, double *v, ascent *own, extent *bounds) noexcept nogil:
    cdef Py_ssize_t e, i, start = 0, length
    cdef double *tail = v + WIDE * bounds.n_columns
    cdef double[WIDE] unused
    cdef bint logistic = own.kind == LOGISTIC
    cdef fp_state caller = fp_enter(False)
    for e in range(n):
        if e + 2 * AHEAD < n:
            i = plan[e + 2 * AHEAD]
            prefetch_line(<const char *>&samples[i])
            prefetch_line(<const char *>&indptr[i])
            prefetch_line(<const char *>&b[WIDE * i])
            if logistic:
                prefetch_line(<const char *>&t[WIDE * i])
            prefetch_row_of(data, indices, indptr, dense, width, once(&plan[e + AHEAD]), bounds)
        i = once(&plan[e])
        length = row_length(indptr, i, &start, bounds)
        if length < 0:
            break
        _visit(&data[start], &indices[start], length, &dense[i * width], width, &samples[i],
               &b[WIDE * i], &t[WIDE * i] if logistic else unused, v, tail, own, bounds)
        if bounds.outside:
            break
    fp_leave(caller)


cdef int _check_lanes(str name, Py_ssize_t length, Py_ssize_t width,
                      Py_ssize_t expected) except -1:
    check_length(name, length, expected)
    check_length(f"a row of {name}", width, WIDE)
    return 0


def epoch(const real[::1] data not None, const index[::1] indices not None,
          const index[::1] indptr not None, const real[:, ::1] dense not None,
          const int64_t[::1] plan not None, const sample[::1] samples not None,
          double[:, ::1] b not None, double[:, ::1] t not None, double[:, ::1] v not None,
          double[::1] bias not None, int n_lanes, str loss, double parameter, double l2,
          double shrink, double bias_curvature):
    """Visit the samples of a plan, in all lanes, one after another.

    Parameters
    ----------
    data, indices, indptr
        The rows, as those of a CSR matrix.
    dense : memoryview, shape (n_samples, width)
        More features, whose weights are the last ones.
    plan
        Numbers of samples.
    samples : memoryview of SAMPLE
    b, t : memoryview, shape (n_samples, LANES)
        The dual variables, each times its label, and their logits, which the logistic loss alone
        uses; changed.
    v : memoryview, shape (n_weights, LANES)
        The unshrunk weights that belong to them; changed.
    bias : memoryview, shape (LANES,)
        What is added to each prediction; changed, as in `sdca_solver.epoch`.
    n_lanes : int
        How many there are classes in; b and t of the others must be 0.
    loss : str
        One of classification.
    parameter : float
        That of the loss, if it has one: see losses.pxd.
    l2, shrink, bias_curvature : float

    Returns
    -------
    ndarray of float64, shape (LANES,)
        The sums of the gaps met at the visits.
    """
    cdef ascent own
    cdef Py_ssize_t n = plan.shape[0], width = dense.shape[1], n_v = v.shape[0]
    cdef extent bounds = extent_of(data.shape[0], indices.shape[0], indptr.shape[0],
                                   dense.shape[0], width, n_v)
    cdef int c
    own.loss = named_loss(loss, parameter)
    own.kind = own.loss.kind
    if own.kind not in (LOGISTIC, SQUARED_HINGE, HINGE, SMOOTH_HINGE):
        raise InvalidArgumentError(f"{loss} is not a loss of classes")
    check_length("samples", samples.shape[0], bounds.n_rows)
    check_length("bias", bias.shape[0], WIDE)
    _check_lanes("b", b.shape[0], b.shape[1], bounds.n_rows)
    _check_lanes("t", t.shape[0], t.shape[1], bounds.n_rows if own.kind == LOGISTIC else t.shape[0])
    _check_lanes("v", n_v, v.shape[1], n_v)
    own.l2, own.shrink, own.bias_curvature, own.n_lanes = l2, shrink, bias_curvature, n_lanes
    for c in range(WIDE):
        own.bias[c], own.estimate[c] = bias[c], 0
    if n:
        with nogil:
            _visits(&data[0] if data.shape[0] else NULL,
                    &indices[0] if indices.shape[0] else NULL, &indptr[0],
                    &dense[0, 0] if width and bounds.n_rows else NULL, width, &plan[0], n,
                    &samples[0] if bounds.n_rows else NULL, &b[0, 0] if bounds.n_rows else NULL,
                    &t[0, 0] if t.shape[0] else NULL, &v[0, 0] if n_v else NULL, &own, &bounds)
        refuse_outside(&bounds, data, indices, indptr, plan)
    for c in range(WIDE):
        bias[c] = own.bias[c]
    return np.array(<double[:WIDE]>own.estimate)


# ---- products of all rows, for certificates and the multinomial loss

cdef inline void _dense_product(const real *x, Py_ssize_t across, Py_ssize_t along,
                                Py_ssize_t n, Py_ssize_t length, const double *right,
                                double *tile, double *result) noexcept nogil:
    """result += X right, where n rows of X are at most WIDE: so are those of the result, anyway.

    Float64 is taken where it is.
    """
    cdef Py_ssize_t i, k
    if real is double and n == WIDE:
        tile_product(result, x, across, along, right, length)
        return
    for k in range(length):
        for i in range(n):
            tile[WIDE * k + i] = x[along * k + across * i]
    tile_product(result, tile, 1, WIDE, right, length)


def predictions(const real[::1] data not None, const index[::1] indices not None,
                const index[::1] indptr not None, const real[:, ::1] dense not None,
                const double[:, ::1] w not None):
    """x . w of each sample and lane.

    Returns
    -------
    ndarray of float64, shape (n_samples, LANES)
    """
    cdef Py_ssize_t i, width = dense.shape[1], n_w = w.shape[0], start = 0, length
    cdef extent bounds = extent_of(data.shape[0], indices.shape[0], indptr.shape[0],
                                   dense.shape[0], width, n_w)
    cdef double[:, ::1] wx = np.zeros((bounds.n_rows + WIDE, WIDE))
    cdef double[::1] tile = np.zeros(WIDE * width + 1)
    cdef const double *first = &w[0, 0] if n_w else NULL
    cdef fp_state caller
    _check_lanes("w", n_w, w.shape[1], n_w)
    with nogil:
        caller = fp_enter(False)
        for i in range(bounds.n_rows):
            length = row_length(&indptr[0], i, &start, &bounds)
            if length > 0:
                _dot(&data[start], &indices[start], length, first, 0.0, &wx[i, 0], &bounds)
        i = 0
        while width > 0 and i < bounds.n_rows:
            _dense_product(&dense[i, 0], width, 1, min(WIDE, bounds.n_rows - i), width,
                           first + WIDE * bounds.n_columns, &tile[0], &wx[i, 0])
            i += WIDE
        fp_leave(caller)
    refuse_outside(&bounds, data, indices, indptr, None)
    return np.asarray(wx)[:bounds.n_rows]


def weights_of(const real[::1] data not None, const index[::1] indices not None,
               const index[::1] indptr not None, const real[:, ::1] dense not None,
               const double[:, ::1] factors not None, Py_ssize_t n_weights):
    """The sum of factor * x in each lane.

    Returns
    -------
    ndarray of float64, shape (n_weights, LANES)
    """
    cdef Py_ssize_t i, k, width = dense.shape[1], start = 0, length
    cdef extent bounds = extent_of(data.shape[0], indices.shape[0], indptr.shape[0],
                                   dense.shape[0], width, n_weights)
    cdef double[:, ::1] v = np.zeros((n_weights + WIDE, WIDE))
    cdef double[::1] tile = np.zeros(WIDE * PANEL)
    cdef double *first = &v[0, 0]
    cdef fp_state caller
    _check_lanes("factors", factors.shape[0], factors.shape[1], bounds.n_rows)
    with nogil:
        caller = fp_enter(False)
        for i in range(bounds.n_rows):
            length = row_length(&indptr[0], i, &start, &bounds)
            if length > 0:
                _add(&data[start], &indices[start], length, first, &factors[i, 0], &bounds)
        i = 0
        while i < bounds.n_rows:
            length = min(PANEL, bounds.n_rows - i)
            k = 0
            while k < width:
                _dense_product(&dense[i, k], 1, width, min(WIDE, width - k), length,
                               &factors[i, 0], &tile[0], first + WIDE * (bounds.n_columns + k))
                k += WIDE
            i += PANEL
        fp_leave(caller)
    refuse_outside(&bounds, data, indices, indptr, None)
    return np.asarray(v)[:n_weights]
