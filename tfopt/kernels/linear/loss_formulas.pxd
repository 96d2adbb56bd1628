# cython: language_level=3
"""The losses of SDCA: values, derivatives, conjugates and steps of the dual variables.

In the symbols of Shalev-Shwartz and Zhang: an example has the features x, the label y (-1 or 1 for
the losses of classification), the prediction wx and the dual variable a; `conjugate` is phi*(-a).
A step is the a' that maximizes

    -phi*(-a') - (a' - a) * wx - K / 2 * (a' - a)^2,    K = sigma * weight * |x|^2 / l2,

and is found for every wx and every K >= 0. Functions of a loss without a parameter are passed one,
too, so that all have one signature.
"""

from libc.math cimport INFINITY, exp, expm1, fabs, fmax, fmin, log, log1p


# ---- squared: (wx - y)^2 / 2

cdef inline double squared_value(double wx, double y, double gamma) noexcept nogil:
    return (wx - y) * (wx - y) / 2


cdef inline double squared_slope(double wx, double y, double gamma) noexcept nogil:
    return wx - y


cdef inline double squared_bend(double wx, double y, double gamma) noexcept nogil:
    return 1


cdef inline double squared_conjugate(double a, double y, double gamma) noexcept nogil:
    return a * (a / 2 - y)


cdef inline double squared_step(double a, double y, double wx, double K,
                                double gamma) noexcept nogil:
    return a + (y - a - wx) / (1 + K)


# ---- hinge: max(0, 1 - m), m = y * wx; with gamma > 0 the corner is a parabola of that width

cdef inline double hinge_value(double wx, double y, double gamma) noexcept nogil:
    cdef double u = 1 - y * wx
    if u <= 0:
        return 0
    return u - gamma / 2 if u >= gamma else u * u / (2 * gamma)


cdef inline double hinge_slope(double wx, double y, double gamma) noexcept nogil:
    cdef double u = 1 - y * wx
    if u <= 0:
        return 0
    return -y if u >= gamma else -y * u / gamma


cdef inline double hinge_bend(double wx, double y, double gamma) noexcept nogil:
    cdef double u = 1 - y * wx
    return 1 / gamma if 0 < u < gamma else 0


cdef inline double hinge_conjugate(double a, double y, double gamma) noexcept nogil:
    cdef double b = y * a
    return -b + gamma * b * b / 2 if 0 <= b <= 1 else INFINITY


cdef inline double hinge_step(double a, double y, double wx, double K,
                              double gamma) noexcept nogil:
    cdef double b = y * a, g = 1 - y * wx - gamma * b
    if g == 0:      # nothing to gain; and K + gamma may be 0
        return a
    return y * fmax(0, fmin(1, b + g / (K + gamma)))


# ---- squared hinge: max(0, 1 - m)^2, m = y * wx

cdef inline double squared_hinge_value(double wx, double y, double parameter) noexcept nogil:
    cdef double u = fmax(0, 1 - y * wx)
    return u * u


cdef inline double squared_hinge_slope(double wx, double y, double parameter) noexcept nogil:
    return -2 * y * fmax(0, 1 - y * wx)


cdef inline double squared_hinge_bend(double wx, double y, double parameter) noexcept nogil:
    return 2 if 1 - y * wx > 0 else 0


cdef inline double squared_hinge_conjugate(double a, double y, double parameter) noexcept nogil:
    cdef double b = y * a
    return -b + b * b / 4 if b >= 0 else INFINITY


cdef inline double squared_hinge_step(double a, double y, double wx, double K,
                                      double parameter) noexcept nogil:
    cdef double b = y * a
    return y * fmax(0, b + (1 - y * wx - b / 2) / (K + 0.5))


# ---- squared epsilon-insensitive: max(0, |wx - y| - epsilon)^2

cdef inline double beyond(double t, double epsilon) noexcept nogil:
    """sign(t) * max(|t| - epsilon, 0)"""
    return t - fmax(-epsilon, fmin(t, epsilon))


cdef inline double squared_insensitive_value(double wx, double y, double epsilon) noexcept nogil:
    cdef double u = beyond(wx - y, epsilon)
    return u * u


cdef inline double squared_insensitive_slope(double wx, double y, double epsilon) noexcept nogil:
    return 2 * beyond(wx - y, epsilon)


cdef inline double squared_insensitive_bend(double wx, double y, double epsilon) noexcept nogil:
    return 2 if fabs(wx - y) >= epsilon else 0


cdef inline double squared_insensitive_conjugate(double a, double y,
                                                 double epsilon) noexcept nogil:
    return a * (a / 4 - y) + epsilon * fabs(a)


cdef inline double squared_insensitive_step(double a, double y, double wx, double K,
                                            double epsilon) noexcept nogil:
    return beyond(y - wx + K * a, epsilon) / (K + 0.5)


# ---- Huber: (wx - y)^2 / 2, and linear from |wx - y| = epsilon on

cdef inline double huber_value(double wx, double y, double epsilon) noexcept nogil:
    cdef double r = fabs(wx - y)
    return r * r / 2 if r <= epsilon else epsilon * (r - epsilon / 2)


cdef inline double huber_slope(double wx, double y, double epsilon) noexcept nogil:
    return fmax(-epsilon, fmin(wx - y, epsilon))


cdef inline double huber_bend(double wx, double y, double epsilon) noexcept nogil:
    return 1 if fabs(wx - y) <= epsilon else 0


cdef inline double huber_conjugate(double a, double y, double epsilon) noexcept nogil:
    return a * (a / 2 - y) if fabs(a) <= epsilon else INFINITY


cdef inline double huber_step(double a, double y, double wx, double K,
                              double epsilon) noexcept nogil:
    return fmax(-epsilon, fmin(a + (y - a - wx) / (1 + K), epsilon))


# ---- linear but for corners: with r = y - wx, high * (r - epsilon) or low * (r + epsilon) where
# one is positive, else 0. A quantile q has low = q - 1, high = q and epsilon = 0; the
# epsilon-insensitive loss max(0, |r| - epsilon) has -1 and 1.

cdef inline double cornered_value(double r, double low, double high,
                                  double epsilon) noexcept nogil:
    return (high if r > 0 else low) * beyond(r, epsilon)


cdef inline double cornered_slope(double r, double low, double high,
                                  double epsilon) noexcept nogil:
    return -high if r > epsilon else -low if r < -epsilon else 0


cdef inline double cornered_conjugate(double a, double y, double low, double high,
                                      double epsilon) noexcept nogil:
    return -a * y + epsilon * fabs(a) if low <= a <= high else INFINITY


cdef inline double cornered_step(double a, double r, double K, double low, double high,
                                 double epsilon) noexcept nogil:
    """Of either sign, or 0; K may be 0."""
    cdef double above = r - epsilon, below = r + epsilon
    if above + K * a > 0:
        return fmin(a + above / K, high)
    return fmax(a + below / K, low) if below + K * a < 0 else 0


cdef inline double quantile_value(double wx, double y, double q) noexcept nogil:
    return cornered_value(y - wx, q - 1, q, 0)


cdef inline double quantile_slope(double wx, double y, double q) noexcept nogil:
    return cornered_slope(y - wx, q - 1, q, 0)


cdef inline double quantile_conjugate(double a, double y, double q) noexcept nogil:
    return cornered_conjugate(a, y, q - 1, q, 0)


cdef inline double quantile_step(double a, double y, double wx, double K,
                                 double q) noexcept nogil:
    return cornered_step(a, y - wx, K, q - 1, q, 0)


cdef inline double insensitive_value(double wx, double y, double epsilon) noexcept nogil:
    return cornered_value(y - wx, -1, 1, epsilon)


cdef inline double insensitive_slope(double wx, double y, double epsilon) noexcept nogil:
    return cornered_slope(y - wx, -1, 1, epsilon)


cdef inline double insensitive_conjugate(double a, double y, double epsilon) noexcept nogil:
    return cornered_conjugate(a, y, -1, 1, epsilon)


cdef inline double insensitive_step(double a, double y, double wx, double K,
                                    double epsilon) noexcept nogil:
    return cornered_step(a, y - wx, K, -1, 1, epsilon)


cdef inline double no_bend(double wx, double y, double parameter) noexcept nogil:
    return 0


# ---- logistic: log(1 + e^-m), m = y * wx

cdef extern from *:
    """
    #define NEAR 0.7        /* residue up to which one Halley step is enough for a visit */
    """
    const double NEAR


cdef inline double logistic_value(double wx, double y, double gamma) noexcept nogil:
    cdef double m = y * wx
    return log1p(exp(-fabs(m))) + fmax(0, -m)


cdef inline double logistic_slope(double wx, double y, double gamma) noexcept nogil:
    cdef double m = y * wx, e = exp(-fabs(m))
    return -y * (e if m > 0 else 1) / (1 + e)


cdef inline double logistic_bend(double wx, double y, double gamma) noexcept nogil:
    cdef double p = 0, r = 0
    sigmoid(wx, &p, &r)
    return p * r


cdef inline double logistic_conjugate(double a, double y, double gamma) noexcept nogil:
    cdef double b = y * a
    if b < 0 or b > 1:
        return INFINITY
    return (b * log(b) if b > 0 else 0) + ((1 - b) * log1p(-b) if b < 1 else 0)


cdef inline double exp_near_0(double d) noexcept nogil:
    """e^d for |d| < 1e-4."""
    return 1 + d * (1 + d / 2 * (1 + d / 3))


cdef inline double exp_series(double d) noexcept nogil:
    """e^d for |d| <= 1.4, to rounding: the Taylor series of d / 4, which can be vectorized."""
    cdef double q = d / 4, e
    e = 1 + q * (1 + q * (1.0 / 2 + q * (1.0 / 6 + q * (1.0 / 24 + q * (1.0 / 120 + q * (
        1.0 / 720 + q * (1.0 / 5040 + q * (1.0 / 40320 + q * (1.0 / 362880 + q * (
            1.0 / 3628800 + q * (1.0 / 39916800)))))))))))
    e = e * e
    return e * e


cdef inline void sigmoid(double t, double *p, double *r) noexcept nogil:
    """p = 1 / (1 + e^-t) and r = 1 - p, both without cancellation."""
    cdef double e = exp(-fabs(t)), larger = 1 / (1 + e)
    p[0] = larger if t >= 0 else e * larger
    r[0] = e * larger if t >= 0 else larger


cdef inline double logistic_root(double b, double m, double K, double *t) noexcept nogil:
    """The new b = sigmoid(t), t the root of h(t) = t + m + K * (sigmoid(t) - b); t is set, too.

    Halley's method from t = logit(b), where h can be computed without an exponential. It can cycle
    around the root, so a step is replaced by a bisection if it leaves the bracket or is longer than
    half the one before the last.
    """
    cdef double low = -m - K * (1 - b), high = -m + K * b
    cdef double h, v, h1, p = 0, r = 0, d = 0, last = INFINITY, before = INFINITY
    cdef bint bisects
    cdef int _
    if 0 < b < 1:
        p, r = b, 1 - b
        h = t[0] + m
    else:
        t[0] = fmax(low, fmin(high, 0))
        sigmoid(t[0], &p, &r)
        h = t[0] + m + K * (p - b)
    for _ in range(200):
        if h > 0:
            high = fmin(high, t[0])
        else:
            low = fmax(low, t[0])
        v = K * p * r
        h1 = 1 + v
        d = -h * h1 / fmax(h1 * h1 - h * v * (r - p) / 2, h1 * h1 / 2)
        bisects = not (low <= t[0] + d <= high) or fabs(d) > before / 2
        if bisects:
            d = low + (high - low) / 2 - t[0]
        elif fabs(d) < 1e-4:        # the error is O(d^3)
            break
        before, last = last, fabs(d)
        t[0] += d
        sigmoid(t[0], &p, &r)
        h = t[0] + m + K * (p - b)
    t[0] += d
    return p / (p + r * exp_near_0(-d))


cdef inline double logistic_step(double a, double y, double wx, double K,
                                 double gamma) noexcept nogil:
    cdef double b = y * a, t = log(b / (1 - b)) if 0 < b < 1 else 0
    return y * logistic_root(b, y * wx, K, &t)


# ---- Poisson: e^wx - y * wx

cdef inline double poisson_value(double wx, double y, double gamma) noexcept nogil:
    return exp(wx) - y * wx


cdef inline double poisson_slope(double wx, double y, double gamma) noexcept nogil:
    return exp(wx) - y


cdef inline double poisson_bend(double wx, double y, double gamma) noexcept nogil:
    return exp(wx)


cdef inline double poisson_conjugate(double a, double y, double gamma) noexcept nogil:
    cdef double r = y - a
    if r <= 0:
        return 0 if r == 0 else INFINITY
    return r * (log(r) - 1)


cdef inline double poisson_above(double wx, double r) noexcept nogil:
    """e^wx - r * wx relative to its minimum r - r log(r), without cancellation for large counts."""
    cdef double t
    if r <= 0:
        return exp(wx) if r == 0 else INFINITY
    t = wx - log(r)
    return exp(wx) - r * (1 + t) if t > 1 else r * (expm1(t) - t)


cdef inline double poisson_step(double a, double y, double wx, double K,
                                double gamma) noexcept nogil:
    """The new a is y - e^x, x the root of x + K * e^x = z, z = wx + K * (y - a).

    Newton's method. It converges slowly from far on the right, where a step from far on the left
    leads because the curve is flat there: so it starts from the old x = log(y - a) only if that is
    near. Otherwise it starts from z, if K * e^z <= e; or from u + log(u) < z + log(K), u = K * e^x,
    which holds for u = s - log(s), s = z + log(K), almost with equality.
    """
    cdef double r = y - a, e = r, z = wx + K * r, s
    cdef double x = log(r), d = (x + K * r - z) / (1 + K * r)
    cdef int _
    if fabs(d) < 0.5:
        x -= d
    else:
        s = z + log(K)
        x = z if s <= 1 else log(s - log(s)) - log(K)
    for _ in range(50):
        if x > 709:         # K is tiny, and e^x overflows
            return y - exp(709)
        e = exp(x)
        d = (x + K * e - z) / (1 + K * e)
        if fabs(d) < 1e-8:          # the error is O(d^2)
            break
        x -= d
    return y - e * exp_near_0(-d)


# ---- Gamma: y * e^-wx + wx, relative to its minimum; in s = log(y) - wx it is a Poisson loss of 1

cdef inline double gamma_above(double wx, double y, double parameter) noexcept nogil:
    return poisson_above(log(y) - wx, 1)


cdef inline double gamma_slope(double wx, double y, double parameter) noexcept nogil:
    return -expm1(log(y) - wx)


cdef inline double gamma_bend(double wx, double y, double parameter) noexcept nogil:
    return exp(log(y) - wx)


cdef inline double gamma_conjugate(double a, double y, double parameter) noexcept nogil:
    cdef double b = 1 + a, least = 1 + log(y)
    if b <= 0:
        return least if b == 0 else INFINITY
    return b * (log(b) - log(y) - 1) + least


cdef inline double gamma_apart(double wx, double y, double a) noexcept nogil:
    """phi + phi*(-a) + a * wx, without cancellation."""
    return poisson_above(log(y) - wx, 1 + a)


cdef inline double gamma_step(double a, double y, double wx, double K,
                              double parameter) noexcept nogil:
    return -poisson_step(-a, 1, log(y) - wx, K, 0)
