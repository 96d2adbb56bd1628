# cython: language_level=3
"""A loss as a value: its functions, chosen by kind, and the terms of a certificate made of them."""

from libc.math cimport exp, expm1, fabs, fmax, fmin, log, log1p

from tfopt.kernels.linear.loss_formulas cimport (
    NEAR, gamma_above, gamma_apart, gamma_bend, gamma_conjugate, gamma_slope, gamma_step,
    hinge_bend, hinge_conjugate, hinge_slope, hinge_step, hinge_value, huber_bend,
    huber_conjugate, huber_slope, huber_step, huber_value, insensitive_conjugate,
    insensitive_slope, insensitive_step, insensitive_value, logistic_bend, logistic_conjugate,
    logistic_slope, logistic_step, logistic_value, no_bend, poisson_above, poisson_bend,
    poisson_conjugate, poisson_slope, poisson_step, poisson_value, quantile_conjugate,
    quantile_slope, quantile_step, quantile_value, squared_bend, squared_conjugate,
    squared_hinge_bend, squared_hinge_conjugate, squared_hinge_slope, squared_hinge_step,
    squared_hinge_value, squared_insensitive_bend, squared_insensitive_conjugate,
    squared_insensitive_slope, squared_insensitive_step, squared_insensitive_value,
    squared_slope, squared_step, squared_value,
)
from tfopt.kernels.linear.tweedie cimport (
    tweedie_above, tweedie_apart, tweedie_bend, tweedie_conjugate, tweedie_slope, tweedie_step,
    tweedie_tangent,
)

ctypedef double (*value_t)(double wx, double y, double gamma) noexcept nogil
ctypedef double (*conjugate_t)(double a, double y, double gamma) noexcept nogil
ctypedef double (*step_t)(double a, double y, double wx, double K, double gamma) noexcept nogil

cdef struct loss_t:
    value_t value
    value_t slope
    value_t bend        # the second derivative; 0 for a hinge that is not smooth
    conjugate_t conjugate
    step_t step
    double parameter    # gamma, epsilon, q or a power, if it has one
    double gamma        # the strong convexity of the conjugate, or what stands for it
    int kind


cdef enum:
    LOGISTIC, SQUARED, HINGE, SMOOTH_HINGE, POISSON, SQUARED_HINGE
    SQUARED_INSENSITIVE, HUBER, QUANTILE, INSENSITIVE, GAMMA, TWEEDIE
    EXACT = -1      # instead of a loss, for visits: its exact steps, and no gaps


cdef inline loss_t loss_of(int kind, double parameter) noexcept nogil:
    """A loss; the parameter is that of those that have one."""
    cdef loss_t loss
    loss.kind = kind
    loss.parameter = 0 if kind == HINGE else parameter
    loss.gamma = 1
    if kind == LOGISTIC:
        loss.value, loss.slope, loss.bend = logistic_value, logistic_slope, logistic_bend
        loss.conjugate, loss.step = logistic_conjugate, logistic_step
        loss.gamma = 4
    elif kind == SQUARED:
        loss.value, loss.slope, loss.bend = squared_value, squared_slope, squared_bend
        loss.conjugate, loss.step = squared_conjugate, squared_step
    elif kind == POISSON:
        loss.value, loss.slope, loss.bend = poisson_value, poisson_slope, poisson_bend
        loss.conjugate, loss.step = poisson_conjugate, poisson_step
    elif kind == SQUARED_HINGE:
        loss.value, loss.slope = squared_hinge_value, squared_hinge_slope
        loss.bend = squared_hinge_bend
        loss.conjugate, loss.step = squared_hinge_conjugate, squared_hinge_step
        loss.gamma = 0.5
    elif kind == SQUARED_INSENSITIVE:
        loss.value, loss.slope = squared_insensitive_value, squared_insensitive_slope
        loss.bend = squared_insensitive_bend
        loss.conjugate, loss.step = squared_insensitive_conjugate, squared_insensitive_step
        loss.gamma = 0.5
    elif kind == HUBER:
        loss.value, loss.slope, loss.bend = huber_value, huber_slope, huber_bend
        loss.conjugate, loss.step = huber_conjugate, huber_step
    elif kind == QUANTILE:
        loss.value, loss.slope, loss.bend = quantile_value, quantile_slope, no_bend
        loss.conjugate, loss.step = quantile_conjugate, quantile_step
        loss.gamma = 0
    elif kind == INSENSITIVE:
        loss.value, loss.slope, loss.bend = insensitive_value, insensitive_slope, no_bend
        loss.conjugate, loss.step = insensitive_conjugate, insensitive_step
        loss.gamma = 0
    elif kind == GAMMA:
        loss.value, loss.slope, loss.bend = gamma_above, gamma_slope, gamma_bend
        loss.conjugate, loss.step = gamma_conjugate, gamma_step
    elif kind == TWEEDIE:
        loss.value, loss.slope, loss.bend = tweedie_above, tweedie_slope, tweedie_bend
        loss.conjugate, loss.step = tweedie_conjugate, tweedie_step
    elif kind != HINGE and kind != SMOOTH_HINGE:
        loss.value = NULL       # there is none
    else:
        loss.value, loss.slope, loss.bend = hinge_value, hinge_slope, hinge_bend
        loss.conjugate, loss.step = hinge_conjugate, hinge_step
        loss.gamma = loss.parameter
    return loss


# ---- the terms of certificates

cdef inline double height(const loss_t *f, double wx, double y) noexcept nogil:
    """phi(wx) relative to its minimum, which is 0 except for the Poisson loss."""
    if f.kind == SQUARED:       # without a call
        return squared_value(wx, y, 0)
    return poisson_above(wx, y) if f.kind == POISSON else f.value(wx, y, f.parameter)


cdef inline void tangent_at(const loss_t *f, double wx, double y, double *above, double *slope,
                            double *bend) noexcept nogil:
    """`height`, and the first and second derivatives, to the same bits: each function once."""
    cdef double e, m, larger
    if f.kind == LOGISTIC:
        m = y * wx      # y is -1 or 1
        e = exp(-fabs(m))
        larger = 1 / (1 + e)
        above[0] = log1p(e) + fmax(0, -m)
        slope[0] = -y * (e if m > 0 else 1) / (1 + e)
        bend[0] = larger * (e * larger)
    elif f.kind == POISSON:
        above[0] = poisson_above(wx, y)
        bend[0] = exp(wx)
        slope[0] = bend[0] - y
    elif f.kind == GAMMA:
        m = log(y) - wx
        e, slope[0] = exp(m), -expm1(m)
        above[0] = e - (1 + m) if m > 1 else -slope[0] - m
        bend[0] = e
    elif f.kind == TWEEDIE:
        tweedie_tangent(wx, y, f.parameter, above, slope, bend)
    elif f.kind == SQUARED:
        above[0], slope[0] = squared_value(wx, y, 0), squared_slope(wx, y, 0)
        bend[0] = squared_bend(wx, y, 0)
    else:
        above[0] = f.value(wx, y, f.parameter)
        slope[0], bend[0] = f.slope(wx, y, f.parameter), f.bend(wx, y, f.parameter)


cdef inline double slope_at(const loss_t *f, double wx, double y, double *value) noexcept nogil:
    """The derivative of a loss, and the loss."""
    cdef double slope = 0, bend = 0
    if f.kind == LOGISTIC:      # with one exponential
        tangent_at(f, wx, y, value, &slope, &bend)
        return slope
    value[0] = f.value(wx, y, f.parameter)
    return f.slope(wx, y, f.parameter)


cdef inline double apart(const loss_t *f, double height, double a, double y,
                         double wx) noexcept nogil:
    """phi(wx) + phi*(-a) + a * wx, non-negative (Fenchel-Young) except for rounding."""
    if f.kind == POISSON:
        return poisson_above(wx, y - a)
    if f.kind == GAMMA:
        return gamma_apart(wx, y, a)
    if f.kind == TWEEDIE:
        return tweedie_apart(wx, y, a, f.parameter)
    if f.kind == SQUARED:
        return height + squared_conjugate(a, y, 0) + a * wx
    return height + f.conjugate(a, y, f.parameter) + a * wx


# ---- visits

cdef inline double logistic_near(double a, double y, double wx, double K,
                                 const loss_t *loss, double *gap) noexcept nogil:
    """The step from where an example was at its last visit: near the end, Halley's first will do.

    The next visit corrects the remaining error; at the optimum the step is exact.
    """
    cdef double b = y * a, m = y * wx, v, h, h1, d
    if 0 < b < 1:
        h = log(b / (1 - b)) + m
        v = K * b * (1 - b)
        gap[0] = fmin(h * h * b * (1 - b) / 2, fabs(h))
        if fabs(h) <= NEAR:
            h1 = 1 + v
            d = -h * h1 / fmax(h1 * h1 - h * v * (1 - 2 * b) / 2, h1 * h1 / 2)
            return y * b / (b + (1 - b) * exp(-d))
    else:
        gap[0] = loss.value(wx, y, 0) + b * m
    return loss.step(a, y, wx, K, 0)


cdef inline double ascend(int kind, const loss_t *loss, double a, double y, double wx, double K,
                          double *gap) noexcept nogil:
    """The new a, and the example's gap before the visit: phi(wx) + phi*(-a) + a wx."""
    cdef double residue
    if kind == EXACT:
        gap[0] = 0
        return loss.step(a, y, wx, K, loss.parameter)
    if kind == LOGISTIC:
        return logistic_near(a, y, wx, K, loss, gap)
    if kind == SQUARED:
        residue = wx - y + a
        gap[0] = residue * residue / 2
        return a - residue / (1 + K)
    if kind == HINGE or kind == SMOOTH_HINGE:
        gap[0] = hinge_value(wx, y, loss.parameter) + hinge_conjugate(a, y, loss.parameter) + a * wx
        return hinge_step(a, y, wx, K, loss.parameter)
    gap[0] = loss.value(wx, y, loss.parameter) + loss.conjugate(a, y, loss.parameter) + a * wx
    return loss.step(a, y, wx, K, loss.parameter)


cdef inline bint is_corner(int kind, double a, double parameter) noexcept nogil:
    """Whether a is an end of its interval, or a value that it has for an interval of wx."""
    if kind == HINGE or kind == SMOOTH_HINGE or kind == INSENSITIVE:
        return a == 0 or fabs(a) == 1
    if kind == SQUARED_HINGE or kind == SQUARED_INSENSITIVE:
        return a == 0
    if kind == HUBER:
        return fabs(a) == parameter
    return kind == QUANTILE and (a == parameter or a == parameter - 1)
