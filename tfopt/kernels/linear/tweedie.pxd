# cython: language_level=3
"""The loss of a Tweedie distribution of power p, between those of Poisson (1) and Gamma (2).

With k = 2 - p and m = p - 1 it is e^(k wx) / k + y e^(-m wx) / m relative to its minimum, half the
unit deviance: y^k (E(k s) / k + E(-m s) / m), with s = wx - log(y) and E(t) = e^t - 1 - t. The dual
variable is minus a slope, y^k (e^(-m s) - e^(k s)), whose s is found by Newton's method.
"""

from libc.math cimport INFINITY, exp, expm1, fabs, fmax, fmin, log, log1p

from tfopt.kernels.linear.loss_formulas cimport poisson_above, poisson_conjugate, poisson_step


cdef inline double past_root(double s, double k, double level) noexcept nogil:
    """Newton's step for log(e^(k s) - e^((k - 1) s)) = level, whose left side is concave."""
    return (k * s + log(-expm1(-s)) - level) / (k + 1 / expm1(s))


cdef inline double tweedie_distance(double a, double log_y, double p,
                                    double guess) noexcept nogil:
    """The s whose slope is -a, for y > 0.

    For a < 0 it is the root of log(e^(k s) - e^(-m s)) = log(-a / y^k): from the left, steps do not
    pass it, and one from a guess on the right leads there. For a > 0 that is so with k and m
    exchanged and -s.
    """
    cdef double k = 2 - p if a < 0 else p - 1, s, d, level
    cdef int _
    if a == 0:
        return 0
    level = log(fabs(a)) - (2 - p) * log_y
    s = fmax(1 / (exp(-level) + k), level / k)
    guess = guess if a < 0 else -guess
    if guess > s:
        s = fmax(s, guess - past_root(guess, k, level))
    for _ in range(50):
        d = past_root(s, k, level)
        s -= d
        if fabs(d) <= 1e-9 * s:         # the error is O(d^2)
            break
    return s if a < 0 else -s


cdef inline double risen(double scale, double start, double t) noexcept nogil:
    """e^(start + t) above its tangent at the start, where it is the scale."""
    if t > 1:
        return exp(start + t) - scale * (1 + t)
    return scale * (expm1(t) - t)


cdef inline double tweedie_apart(double wx, double y, double a, double p) noexcept nogil:
    """phi + phi*(-a) + a * wx, without cancellation: phi above its tangent of slope -a."""
    cdef double k = 2 - p, m = p - 1, z, d, level
    if y == 0:
        return poisson_above(k * wx, -a) / k
    level = log(y)
    z = level + tweedie_distance(a, level, p, wx - level)
    d = wx - z
    level -= m * z
    return risen(exp(k * z), k * z, k * d) / k + risen(exp(level), level, -m * d) / m


cdef inline double height_above(double wx, double log_y, double p) noexcept nogil:
    """phi relative to its minimum."""
    cdef double k = 2 - p, m = p - 1, d = wx - log_y, start = k * log_y, scale = exp(start)
    return risen(scale, start, k * d) / k + risen(scale, start, -m * d) / m


cdef inline double tweedie_above(double wx, double y, double p) noexcept nogil:
    return exp((2 - p) * wx) / (2 - p) if y == 0 else height_above(wx, log(y), p)


cdef inline double slope_of(double scale, double log_y, double wx, double p) noexcept nogil:
    """e^(k wx) - y e^(-m wx), given the first term: the ratio of both may overflow."""
    return -scale * expm1(log_y - wx) if log_y - wx < 700 else -exp(log_y - (p - 1) * wx)


cdef inline double bend_of(double scale, double log_y, double wx, double p) noexcept nogil:
    if log_y - wx < 700:
        return scale * (2 - p + (p - 1) * exp(log_y - wx))
    return (p - 1) * exp(log_y - (p - 1) * wx)


cdef inline void tweedie_tangent(double wx, double y, double p, double *above, double *slope,
                                 double *bend) noexcept nogil:
    """The value above the minimum and the derivatives, to the bits that they have one by one."""
    cdef double scale = exp((2 - p) * wx), log_y = log(y)
    above[0] = scale / (2 - p) if y == 0 else height_above(wx, log_y, p)
    slope[0], bend[0] = slope_of(scale, log_y, wx, p), bend_of(scale, log_y, wx, p)


cdef inline double tweedie_slope(double wx, double y, double p) noexcept nogil:
    return slope_of(exp((2 - p) * wx), log(y), wx, p)


cdef inline double tweedie_bend(double wx, double y, double p) noexcept nogil:
    return bend_of(exp((2 - p) * wx), log(y), wx, p)


cdef inline double tweedie_conjugate(double a, double y, double p) noexcept nogil:
    cdef double z
    if y == 0:
        return poisson_conjugate(a, 0, 0) / (2 - p)
    z = log(y) + tweedie_distance(a, log(y), p, 0)
    return -a * z - tweedie_above(z, y, p)


cdef inline double tweedie_step(double a, double y, double wx, double K, double p) noexcept nogil:
    """The new a is minus the slope at s, the root of s + c (e^(k s) - e^(-m s)) = r, c = K y^k.

    Newton's method with bisection from the right: s is at most r, and c (e^(k s) - 1) is, too.
    """
    cdef double k = 2 - p, m = p - 1, scale, c, r, s, d, h, low = 0, high, sign = 1
    cdef int _
    if y == 0:
        return poisson_step(a, 0, k * wx, k * K, 0)
    scale = exp(k * log(y))
    c, r = K * scale, wx - K * a - log(y)
    if r < 0:
        sign, r, k, m = -1, -r, m, k
    s = high = fmin(fmin(r, log1p(r / c) / k), (709 - fmax(log(scale), 0)) / k)     # is finite
    for _ in range(100):
        h = -exp(k * s) * expm1(-s)
        if s + c * h > r:
            high = s
        else:
            low = s
        d = (s + c * h - r) / (1 + c * (k * exp(k * s) + m * exp(-m * s)))
        if not low <= s - d <= high:
            d = s - low - (high - low) / 2
        s -= d
        if fabs(d) <= 1e-9 * s:
            break
    return sign * scale * exp(k * s) * expm1(-s)
