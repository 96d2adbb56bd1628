# cython: language_level=3, cdivision=True
"""The arithmetic of one element, one inline function per rule.

Names and order of operations are those of the rule's formula; each binary operation rounds to
`real`. The loops around these functions are generated from the table (steps.pyx.tp). A function
takes pointers to the variable and its slots, the gradient, the row's scalars and the row's
constants, which are known when the loop is compiled and cost nothing inside it.

Two rules of writing keep a step fast and its bits right: literals are cast to `real` (a bare `1`
makes C compute in double), and choices are conditional expressions, without `or` and `and`, whose
branches would keep a loop from becoming vector code.
"""

from libc.math cimport fabs, fabsf, pow, powf, sqrt, sqrtf

ctypedef fused real:
    float
    double


# ---- the functions the formulas are made of

cdef inline real root(real x) noexcept nogil:
    if real is float:
        return sqrtf(x)
    else:
        return sqrt(x)


cdef inline real magnitude(real x) noexcept nogil:
    if real is float:
        return fabsf(x)
    else:
        return fabs(x)


cdef inline real maximum(real a, real b) noexcept nogil:
    # a NaN in a stays, a NaN in b is ignored
    return b if a < b else a


cdef inline real minimum(real a, real b) noexcept nogil:
    return b if b < a else a


cdef inline real maximum_or_nan(real a, real b) noexcept nogil:
    cdef real larger = a if a > b else b
    return a if a != a else larger


cdef inline real sign(real x) noexcept nogil:
    # 1, -1, +0 for both zeros, NaN for NaN
    return <real>1 if x > 0 else (<real>-1 if x < 0 else (x if x != x else <real>0))


cdef inline real power(real x, real exponent, bint square_root) noexcept nogil:
    if square_root:
        return root(x)
    # libm takes denormals apart by integer operations, which flushing does not reach: a value
    # that compares equal to zero is made zero first.
    x = <real>0 if x == 0 else x
    if real is float:
        return powf(x, exponent)
    else:
        return pow(x, exponent)


# ---- the rules, in the order of the table

cdef inline void gradient_descent(real *var, real g, real alpha) noexcept nogil:
    var[0] = var[0] - g * alpha


cdef inline void momentum(real *var, real *accum, real g, real lr, real momentum,
                          bint use_nesterov) noexcept nogil:
    accum[0] = accum[0] * momentum + g
    if use_nesterov:
        var[0] = var[0] - (g * lr + (accum[0] * momentum) * lr)
    else:
        var[0] = var[0] - accum[0] * lr


cdef inline void keras_momentum(real *var, real *accum, real g, real lr, real momentum,
                                bint use_nesterov) noexcept nogil:
    accum[0] = accum[0] * momentum - g * lr
    if use_nesterov:
        var[0] = var[0] + (accum[0] * momentum - g * lr)
    else:
        var[0] = var[0] + accum[0]


cdef inline void adagrad(real *var, real *accum, real g, real lr,
                         bint update_slots) noexcept nogil:
    if update_slots:
        accum[0] = accum[0] + g * g
    var[0] = var[0] - (g * lr) * (<real>1 / root(accum[0]))


cdef inline void adamax(real *var, real *m, real *v, real g, real step, real beta1,
                        real one_minus_beta1, real beta2, real epsilon) noexcept nogil:
    m[0] = m[0] + (g - m[0]) * one_minus_beta1
    v[0] = maximum(beta2 * v[0], magnitude(g))
    var[0] = var[0] - step * (m[0] / (v[0] + epsilon))


cdef inline void adamax_rows(real *var, real *m, real *v, real g, real step, real beta1,
                             real one_minus_beta1, real beta2, real epsilon) noexcept nogil:
    # Keras' sparse form: m overflows later than g - m does, and v takes a NaN from the gradient
    m[0] = m[0] * beta1 + g * one_minus_beta1
    v[0] = maximum_or_nan(v[0] * beta2, magnitude(g))
    var[0] = var[0] + -step * (m[0] / (v[0] + epsilon))


cdef inline real ftrl_linear(real var, real accum, real linear, real gs, real new_accum,
                             real lr, real exponent, bint multiply_linear_by_lr,
                             bint square_root) noexcept nogil:
    cdef real growth = power(new_accum, exponent, square_root) - power(accum, exponent, square_root)
    if multiply_linear_by_lr:
        return linear + (gs * lr - growth * var)
    return linear + (gs - (growth / lr) * var)


cdef inline real ftrl_curvature(real new_accum, real lr, real exponent, real ridge,
                                bint multiply_linear_by_lr, bint square_root) noexcept nogil:
    if multiply_linear_by_lr:
        return power(new_accum, exponent, square_root) + ridge
    return power(new_accum, exponent, square_root) / lr + ridge


cdef inline real ftrl_select(real linear, real y, real threshold) noexcept nogil:
    # 0 inside the threshold; also where linear is NaN
    return (threshold * sign(linear) - linear) / y if magnitude(linear) > threshold else <real>0


cdef inline real ftrl_clip(real linear, real y, real threshold) noexcept nogil:
    return (maximum(minimum(linear, threshold), -threshold) - linear) / y


cdef inline void ftrl_from(real *var, real *accum, real *linear, real g, real gs, real lr,
                           real exponent, real threshold, real ridge,
                           bint multiply_linear_by_lr, bint square_root,
                           bint clip) noexcept nogil:
    cdef real new_accum = accum[0] + g * g
    cdef real y = ftrl_curvature(new_accum, lr, exponent, ridge, multiply_linear_by_lr, square_root)
    linear[0] = ftrl_linear(var[0], accum[0], linear[0], gs, new_accum, lr, exponent,
                            multiply_linear_by_lr, square_root)
    if clip:
        var[0] = ftrl_clip(linear[0], y, threshold)
    else:
        var[0] = ftrl_select(linear[0], y, threshold)
    accum[0] = new_accum


cdef inline void ftrl(real *var, real *accum, real *linear, real g, real lr, real exponent,
                      real threshold, real ridge, bint multiply_linear_by_lr,
                      bint square_root) noexcept nogil:
    ftrl_from(var, accum, linear, g, g, lr, exponent, threshold, ridge,
              multiply_linear_by_lr, square_root, False)


cdef inline void ftrl_rows(real *var, real *accum, real *linear, real g, real lr, real exponent,
                           real threshold, real ridge, bint multiply_linear_by_lr,
                           bint square_root) noexcept nogil:
    ftrl_from(var, accum, linear, g, g, lr, exponent, threshold, ridge,
              multiply_linear_by_lr, square_root, True)


cdef inline void ftrl_v2(real *var, real *accum, real *linear, real g, real lr, real exponent,
                         real threshold, real ridge, real shrinkage, bint multiply_linear_by_lr,
                         bint square_root) noexcept nogil:
    ftrl_from(var, accum, linear, g, g + shrinkage * var[0], lr, exponent, threshold, ridge,
              multiply_linear_by_lr, square_root, False)


cdef inline void ftrl_v2_rows(real *var, real *accum, real *linear, real g, real lr, real exponent,
                              real threshold, real ridge, real shrinkage,
                              bint multiply_linear_by_lr, bint square_root) noexcept nogil:
    ftrl_from(var, accum, linear, g, g + shrinkage * var[0], lr, exponent, threshold, ridge,
              multiply_linear_by_lr, square_root, True)
