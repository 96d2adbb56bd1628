# cython: language_level=3, cdivision=True
"""The arithmetic of one element, one inline function per rule.

Names and order of operations are those of the rule's formula; each binary operation rounds to
`real`. The loops around these functions are generated from the table (steps.pyx.tp). A function
takes pointers to the variable and its slots, the gradient, scalars, and the row's constants, which
are compile-time constants of the loop and cost nothing inside it. A rule's scalars are those that
the function of its name takes, in this order; its other functions take what they need of them.

Two conventions keep a step fast and its bits correct. Literals are cast to `real`, because with a
bare `1` C would compute in double precision (to `number` via double, the only way to complex in
Cython). Choices are conditional expressions without `or` and `and`, whose branches would prevent
vectorization. tfopt/cuda/src/translate_rules.py translates these functions to CUDA, and rejects
constructs that it does not support.
"""

from libc.math cimport copysign, copysignf, exp, expf, fabs, fabsf, pow, powf, sqrt, sqrtf

from tfopt.kernels.platform.floats cimport real

cdef extern from "<complex.h>" nogil:
    float complex csqrtf(float complex x)
    double complex csqrt(double complex x)

ctypedef float complex floatcomplex
ctypedef double complex doublecomplex

ctypedef fused number:      # for the rules that TensorFlow also has for complex numbers
    float
    double
    floatcomplex
    doublecomplex


# ---- the machine's functions, of which CUDA has its own (cuda/machine.h)

cdef inline number root(number x) noexcept nogil:
    if number is float:
        return sqrtf(x)
    elif number is double:
        return sqrt(x)
    elif number is floatcomplex:
        return csqrtf(x)
    else:
        return csqrt(x)


cdef inline number kept(number x, number keep) noexcept nogil:
    # keep is real: a complex product would turn an infinite part of x into NaNs
    cdef number product
    if number is floatcomplex or number is doublecomplex:
        product.real = x.real * keep.real
        product.imag = x.imag * keep.real
        return product
    else:
        return x * keep


cdef inline real magnitude(real x) noexcept nogil:
    if real is float:
        return fabsf(x)
    else:
        return fabs(x)


cdef inline real signed_one(real x) noexcept nogil:
    if real is float:
        return copysignf(1, x)
    else:
        return copysign(1, x)


cdef inline real exponential(real x) noexcept nogil:
    if real is float:
        return expf(x)
    else:
        return exp(x)


cdef inline real power(real x, real exponent, bint square_root) noexcept nogil:
    if square_root:
        return root(x)
    # libm decodes denormals by integer operations, which flushing does not affect: a value
    # that compares equal to zero is made zero first.
    x = <real>0 if x == 0 else x
    if real is float:
        return powf(x, exponent)
    else:
        return pow(x, exponent)


# ---- the functions the formulas are made of

cdef inline real maximum(real a, real b) noexcept nogil:
    # a NaN in a stays, a NaN in b is ignored
    return b if a < b else a


cdef inline real minimum(real a, real b) noexcept nogil:
    return b if b < a else a


cdef inline real maximum_or_nan(real a, real b) noexcept nogil:
    cdef real larger = a if a > b else b
    return a if a != a else larger


cdef inline real sign(real x) noexcept nogil:
    # 1, -1, +0 for both zeros, NaN for NaN: adding zero keeps a NaN and clears the sign of a zero
    return signed_one(x) if magnitude(x) > 0 else x + <real>0


cdef inline real shrink(real x, real threshold) noexcept nogil:
    # toward zero by the threshold, but not past it
    return sign(x) * maximum(magnitude(x) - threshold, <real>0)


# ---- the rules, in the order of the table

cdef inline void gradient_descent(number *var, number g, number alpha) noexcept nogil:
    var[0] = var[0] - g * alpha


cdef inline void proximal_gradient_descent(real *var, real g, real alpha, real threshold,
                                           real divisor, bint shrinks) noexcept nogil:
    cdef real x = var[0] - g * alpha
    var[0] = (shrink(x, threshold) if shrinks else x) / divisor


cdef inline void momentum(number *var, number *accum, number g, number lr, number momentum,
                          bint use_nesterov) noexcept nogil:
    accum[0] = accum[0] * momentum + g
    if use_nesterov:
        var[0] = var[0] - (g * lr + (accum[0] * momentum) * lr)
    else:
        var[0] = var[0] - accum[0] * lr


cdef inline void keras_momentum(number *var, number *accum, number g, number lr, number momentum,
                                bint use_nesterov) noexcept nogil:
    accum[0] = accum[0] * momentum - g * lr
    if use_nesterov:
        var[0] = var[0] + (accum[0] * momentum - g * lr)
    else:
        var[0] = var[0] + accum[0]


cdef inline void adagrad(number *var, number *accum, number g, number lr,
                         bint update_slots) noexcept nogil:
    if update_slots:
        accum[0] = accum[0] + g * g
    var[0] = var[0] - (g * lr) * (<number><double>1 / root(accum[0]))


cdef inline void adagrad_v2(number *var, number *accum, number g, number lr, number epsilon,
                            bint update_slots) noexcept nogil:
    if update_slots:
        accum[0] = accum[0] + g * g
    var[0] = var[0] - (g * lr) / (root(accum[0]) + epsilon)


cdef inline void adagrad_da(real *var, real *ga, real *gg, real g, real t, real lr, real l1,
                            real l2, real threshold, real ridge, real t_lr,
                            bint shrinks) noexcept nogil:
    cdef real d
    ga[0] = ga[0] + g
    gg[0] = gg[0] + g * g
    d = ridge + root(gg[0])
    if shrinks:
        var[0] = (-lr * sign(ga[0]) * maximum(magnitude(ga[0]) - threshold, <real>0)) / d
    else:
        var[0] = -(lr * ga[0]) / d


cdef inline void adagrad_da_rows(real *var, real *ga, real *gg, real g, real t, real l1, real l2,
                                 real t_lr, bint shrinks) noexcept nogil:
    # TensorFlow's other parametrization: a step of 0 gives NaN
    cdef real d
    ga[0] = ga[0] + g
    gg[0] = gg[0] + g * g
    d = l2 + root(gg[0]) / t_lr
    if shrinks:
        var[0] = (-sign(ga[0]) * maximum(magnitude(ga[0]) / t - l1, <real>0)) / d
    else:
        var[0] = -(ga[0] / t) / d


cdef inline void adagrad_da_width1(real *var, real *ga, real *gg, real g, real t, real lr, real l1,
                                   real l2, bint shrinks) noexcept nogil:
    # TensorFlow computes rows of one element in double precision
    cdef double d, a
    ga[0] = <real>(<double>ga[0] + <double>g)
    gg[0] = <real>(<double>gg[0] + <double>g * <double>g)
    a = ga[0]
    d = <double>t * <double>l2 * <double>lr + <double>root(gg[0])
    if shrinks:
        a = sign(-a) * <double>lr * maximum(magnitude(a) - <double>t * <double>l1, <double>0) / d
    else:
        a = -a * <double>lr / d
    var[0] = <real>a


cdef inline void proximal_adagrad(real *var, real *accum, real g, real lr, real l1, real l2,
                                  bint shrinks) noexcept nogil:
    cdef real eta, x
    accum[0] = accum[0] + g * g
    eta = lr * (<real>1 / root(accum[0]))
    x = var[0] - g * eta
    var[0] = (shrink(x, eta * l1) if shrinks else x) / (<real>1 + l2 * eta)


cdef inline void adadelta(number *var, number *accum, number *accum_update, number g, number lr,
                          number rho, number one_minus_rho, number epsilon) noexcept nogil:
    cdef number update
    accum[0] = accum[0] * rho + (g * g) * one_minus_rho
    update = (root(accum_update[0] + epsilon) * (<number><double>1 / root(accum[0] + epsilon))) * g
    var[0] = var[0] - update * lr
    accum_update[0] = accum_update[0] * rho + (update * update) * one_minus_rho


cdef inline void adam(number *var, number *m, number *v, number g, number alpha, number beta1,
                      number one_minus_beta1, number one_minus_beta2, number epsilon,
                      bint use_nesterov) noexcept nogil:
    cdef number direction
    m[0] = m[0] + (g - m[0]) * one_minus_beta1
    v[0] = v[0] + (g * g - v[0]) * one_minus_beta2
    direction = g * one_minus_beta1 + beta1 * m[0] if use_nesterov else m[0]
    var[0] = var[0] - (direction * alpha) / (root(v[0]) + epsilon)


cdef inline void adam_with_amsgrad(real *var, real *m, real *v, real *vhat, real g, real alpha,
                                   real beta1, real one_minus_beta1, real one_minus_beta2,
                                   real epsilon, real zero) noexcept nogil:
    m[0] = m[0] + (g - m[0]) * one_minus_beta1
    v[0] = v[0] + (g * g - v[0]) * one_minus_beta2
    # Operands of arithmetic are flushed, but not those that are only compared and kept: hence the
    # zero, which must be hidden from the compiler.
    vhat[0] = maximum(vhat[0] - zero, v[0])
    var[0] = var[0] - (m[0] * alpha) / (root(vhat[0]) + epsilon)


cdef inline void adamax(real *var, real *m, real *v, real g, real step, real beta1,
                        real one_minus_beta1, real beta2, real epsilon) noexcept nogil:
    m[0] = m[0] + (g - m[0]) * one_minus_beta1
    v[0] = maximum(beta2 * v[0], magnitude(g))
    var[0] = var[0] - step * (m[0] / (v[0] + epsilon))


cdef inline void adamax_rows(real *var, real *m, real *v, real g, real step, real beta1,
                             real one_minus_beta1, real beta2, real epsilon) noexcept nogil:
    # Keras's sparse form: m overflows later than g - m does, and v propagates a NaN of the gradient
    m[0] = m[0] * beta1 + g * one_minus_beta1
    v[0] = maximum_or_nan(v[0] * beta2, magnitude(g))
    var[0] = var[0] + -step * (m[0] / (v[0] + epsilon))


cdef inline void rms_prop(number *var, number *ms, number *mom, number g, number lr, number rho,
                          number one_minus_rho, number momentum, number epsilon) noexcept nogil:
    ms[0] = ms[0] + (g * g - ms[0]) * one_minus_rho
    mom[0] = mom[0] * momentum + (g * lr) / root(ms[0] + epsilon)
    var[0] = var[0] - mom[0]


cdef inline void rms_prop_rows(number *var, number *ms, number *mom, number g, number lr,
                               number rho, number one_minus_rho, number momentum,
                               number epsilon) noexcept nogil:
    # ms stays infinite where ms - ms would be NaN
    ms[0] = ms[0] * rho + (g * g) * one_minus_rho
    mom[0] = mom[0] * momentum + ((<number><double>1 / root(ms[0] + epsilon)) * lr) * g
    var[0] = var[0] - mom[0]


cdef inline void centered_rms_prop(number *var, number *mg, number *ms, number *mom, number g,
                                   number lr, number rho, number one_minus_rho, number momentum,
                                   number epsilon) noexcept nogil:
    ms[0] = ms[0] + (g * g - ms[0]) * one_minus_rho
    mg[0] = mg[0] + (g - mg[0]) * one_minus_rho
    mom[0] = mom[0] * momentum + (g * lr) / root((ms[0] - mg[0] * mg[0]) + epsilon)
    var[0] = var[0] - mom[0]


cdef inline void centered_rms_prop_rows(number *var, number *mg, number *ms, number *mom, number g,
                                        number lr, number rho, number one_minus_rho,
                                        number momentum, number epsilon) noexcept nogil:
    ms[0] = ms[0] * rho + (g * g) * one_minus_rho
    mg[0] = mg[0] * rho + g * one_minus_rho
    mom[0] = mom[0] * momentum \
        + ((<number><double>1 / root((ms[0] + epsilon) - mg[0] * mg[0])) * lr) * g
    var[0] = var[0] - mom[0]


# Shared by the four forms of FTRL: `gs` is the gradient, with shrinkage in the second version;
# rows clip linear to the threshold, a dense update selects.

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
    cdef real grown = power(new_accum, exponent, square_root)
    cdef real growth = grown - power(accum[0], exponent, square_root)
    cdef real y
    if multiply_linear_by_lr:
        y = grown + ridge
        linear[0] = linear[0] + (gs * lr - growth * var[0])
    else:
        y = grown / lr + ridge
        linear[0] = linear[0] + (gs - (growth / lr) * var[0])
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


cdef inline void add_sign(real *var, real *m, real g, real lr, real alpha, real sign_decay,
                          real beta, real one_minus_beta) noexcept nogil:
    m[0] = m[0] * beta + g * one_minus_beta
    var[0] = var[0] - (lr * (alpha + sign_decay * (sign(g) * sign(m[0])))) * g


cdef inline void power_sign(real *var, real *m, real g, real exponent, real agreeing, real neither,
                            real opposed, real beta, real one_minus_beta) noexcept nogil:
    # exp takes three values, and NaN
    cdef real s, step
    m[0] = m[0] * beta + g * one_minus_beta
    s = sign(g) * sign(m[0])
    step = agreeing if s > 0 else neither
    step = opposed if s < 0 else step
    step = s if s != s else step
    var[0] = var[0] - step * g


cdef inline void lion(real *var, real *m, real g, real lr, real beta1, real one_minus_beta1,
                      real beta2, real one_minus_beta2) noexcept nogil:
    var[0] = var[0] - lr * sign(m[0] * beta1 + g * one_minus_beta1)
    m[0] = m[0] * beta2 + g * one_minus_beta2


cdef inline void yogi(real *var, real *m, real *v, real g, real alpha, real beta1,
                      real one_minus_beta1, real one_minus_beta2, real epsilon) noexcept nogil:
    cdef real square = g * g
    m[0] = m[0] * beta1 + g * one_minus_beta1
    v[0] = v[0] + (sign(square - v[0]) * square) * one_minus_beta2
    var[0] = var[0] - (m[0] * alpha) / (root(v[0]) + epsilon)


cdef inline void radam(real *var, real *m, real *v, real g, real alpha, real beta1,
                       real one_minus_beta1, real beta2, real one_minus_beta2, real epsilon,
                       real rectifier) noexcept nogil:
    m[0] = m[0] * beta1 + g * one_minus_beta1
    v[0] = v[0] * beta2 + (g * g) * one_minus_beta2
    var[0] = var[0] - (m[0] * alpha) / (root(v[0]) + epsilon if rectifier > 0 else <real>1)


cdef inline void adopt(real *var, real *m, real *v, real g, real lr, real beta1,
                       real one_minus_beta1, real beta2, real one_minus_beta2, real epsilon,
                       real limit) noexcept nogil:
    cdef real scaled = g / maximum(root(v[0]), epsilon)
    m[0] = m[0] * beta1 + maximum(minimum(scaled, limit), -limit) * one_minus_beta1
    v[0] = v[0] * beta2 + (g * g) * one_minus_beta2
    var[0] = var[0] - m[0] * lr


cdef inline void ademamix(real *var, real *m, real *slow, real *v, real g, real root_scale,
                          real fast_step, real slow_step, real beta1, real one_minus_beta1,
                          real beta2, real one_minus_beta2, real beta3, real one_minus_beta3,
                          real offset) noexcept nogil:
    m[0] = m[0] * beta1 + g * one_minus_beta1
    slow[0] = slow[0] * beta3 + g * one_minus_beta3
    v[0] = v[0] * beta2 + (g * g) * one_minus_beta2
    var[0] = var[0] - (m[0] * fast_step + slow[0] * slow_step) / (root(v[0]) + offset)


cdef inline void schedule_free_sgd(real *var, real *offset, real g, real step, real offset_step,
                                   real share, real one_minus_share,
                                   real weight_decay) noexcept nogil:
    cdef real u = g + var[0] * weight_decay
    var[0] = var[0] + offset[0] * share - u * step
    offset[0] = (offset[0] - u * offset_step) * one_minus_share


cdef inline void schedule_free_adam(real *var, real *offset, real *v, real g, real step,
                                    real offset_step, real beta2, real one_minus_beta2,
                                    real root_scale, real epsilon, real share,
                                    real one_minus_share, real weight_decay) noexcept nogil:
    v[0] = v[0] * beta2 + (g * g) * one_minus_beta2
    schedule_free_sgd(var, offset, g / (root(v[0]) * root_scale + epsilon), step, offset_step,
                      share, one_minus_share, weight_decay)


cdef inline void moving_average(number *var, number value, number momentum,
                                number one_minus_momentum) noexcept nogil:
    var[0] = var[0] * momentum + value * one_minus_momentum


# ---- Keras's rules, which let the slots of absent rows decay

cdef inline void keras_adam(real *var, real *m, real *v, real g, real alpha, real beta1,
                            real one_minus_beta1, real beta2, real one_minus_beta2,
                            real epsilon) noexcept nogil:
    m[0] = m[0] * beta1 + g * one_minus_beta1
    v[0] = v[0] * beta2 + (g * g) * one_minus_beta2
    var[0] = var[0] - (alpha * m[0]) / (root(v[0]) + epsilon)


cdef inline void keras_adam_absent(real *var, real *m, real *v, real alpha, real beta1, real beta2,
                                   real epsilon) noexcept nogil:
    m[0] = m[0] * beta1
    v[0] = v[0] * beta2
    var[0] = var[0] - (alpha * m[0]) / (root(v[0]) + epsilon)


cdef inline void keras_adam_with_amsgrad(real *var, real *m, real *v, real *vhat, real g,
                                         real alpha, real beta1, real one_minus_beta1, real beta2,
                                         real one_minus_beta2, real epsilon,
                                         real zero) noexcept nogil:
    m[0] = m[0] * beta1 + g * one_minus_beta1
    v[0] = v[0] * beta2 + (g * g) * one_minus_beta2
    vhat[0] = maximum_or_nan(vhat[0] - zero, v[0])
    var[0] = var[0] - (alpha * m[0]) / (root(vhat[0]) + epsilon)


cdef inline void keras_adam_with_amsgrad_absent(real *var, real *m, real *v, real *vhat,
                                                real alpha, real beta1, real beta2, real epsilon,
                                                real zero) noexcept nogil:
    m[0] = m[0] * beta1
    v[0] = v[0] * beta2
    vhat[0] = maximum_or_nan(vhat[0] - zero, v[0])
    var[0] = var[0] - (alpha * m[0]) / (root(vhat[0]) + epsilon)


cdef inline void nadam(number *var, number *m, number *v, number g, number lr, number beta1,
                       number one_minus_beta1, number beta2, number one_minus_beta2,
                       number one_minus_beta2_power, number one_minus_mu, number mu_next,
                       number one_minus_mu_product, number one_minus_mu_product_next,
                       number epsilon) noexcept nogil:
    cdef number direction
    m[0] = m[0] * beta1 + g * one_minus_beta1
    v[0] = v[0] * beta2 + (g * g) * one_minus_beta2
    direction = one_minus_mu * (g / one_minus_mu_product)
    direction = direction + mu_next * (m[0] / one_minus_mu_product_next)
    var[0] = var[0] - (lr * direction) / (root(v[0] / one_minus_beta2_power) + epsilon)


cdef inline void nadam_absent(number *var, number *m, number *v, number beta1,
                              number beta2) noexcept nogil:
    m[0] = m[0] * beta1
    v[0] = v[0] * beta2


cdef inline void keras_rms_prop(number *var, number *ms, number g, number lr, number rho,
                                number one_minus_rho, number epsilon) noexcept nogil:
    ms[0] = ms[0] * rho + (g * g) * one_minus_rho
    var[0] = var[0] - (lr * g) / (root(ms[0]) + epsilon)


cdef inline void keras_rms_prop_absent(number *var, number *ms, number rho) noexcept nogil:
    ms[0] = ms[0] * rho


cdef inline void keras_centered_rms_prop(number *var, number *mg, number *ms, number g, number lr,
                                         number rho, number one_minus_rho,
                                         number epsilon) noexcept nogil:
    ms[0] = ms[0] * rho + (g * g) * one_minus_rho
    mg[0] = mg[0] * rho + g * one_minus_rho
    var[0] = var[0] - (lr * g) / (root(ms[0] - mg[0] * mg[0]) + epsilon)


cdef inline void keras_centered_rms_prop_absent(number *var, number *mg, number *ms,
                                                number rho) noexcept nogil:
    ms[0] = ms[0] * rho
    mg[0] = mg[0] * rho


# ---- the rules with a reduction, whose first steps add an element's terms to sums

cdef inline void add_square(real x, double *squares) noexcept nogil:
    squares[0] = squares[0] + <double>x * <double>x


cdef inline void rowwise_adagrad_first(real var, real g, real l2,
                                       double *squares) noexcept nogil:
    add_square(g + var * l2, squares)


cdef inline void rowwise_adagrad(real *var, real g, real lr, real epsilon, real l2,
                                 real step) noexcept nogil:
    var[0] = var[0] - (g + var[0] * l2) * step


cdef inline void rowwise_adam_first(real var, real m, real g, double *squares) noexcept nogil:
    add_square(g, squares)


cdef inline void rowwise_adam(real *var, real *m, real g, real alpha, real beta1,
                              real one_minus_beta1, real beta2, real one_minus_beta2,
                              real correction, real epsilon, real step) noexcept nogil:
    m[0] = m[0] * beta1 + g * one_minus_beta1
    var[0] = var[0] - m[0] * step


cdef inline real lamb_update(real var, real m, real v, real unbias, real root_scale, real epsilon,
                             real weight_decay) noexcept nogil:
    return (m * unbias) / (root(v) * root_scale + epsilon) + var * weight_decay


cdef inline void lamb_first(real var, real m, real v, real g, real unbias, real beta1,
                            real one_minus_beta1, real beta2, real one_minus_beta2,
                            real root_scale, real epsilon, real weight_decay, double *weights,
                            double *updates) noexcept nogil:
    cdef real new_m = m * beta1 + g * one_minus_beta1
    cdef real new_v = v * beta2 + (g * g) * one_minus_beta2
    add_square(var, weights)
    add_square(lamb_update(var, new_m, new_v, unbias, root_scale, epsilon, weight_decay), updates)


cdef inline void lamb(real *var, real *m, real *v, real g, real lr, real unbias, real beta1,
                      real one_minus_beta1, real beta2, real one_minus_beta2, real root_scale,
                      real epsilon, real weight_decay, real step) noexcept nogil:
    m[0] = m[0] * beta1 + g * one_minus_beta1
    v[0] = v[0] * beta2 + (g * g) * one_minus_beta2
    var[0] = var[0] - step * lamb_update(var[0], m[0], v[0], unbias, root_scale, epsilon,
                                         weight_decay)


cdef inline void lars_first(real var, real accum, real g, double *weights,
                            double *gradients) noexcept nogil:
    add_square(var, weights)
    add_square(g, gradients)


cdef inline void lars(real *var, real *accum, real g, real lr, real momentum, real trust,
                      real weight_decay, real epsilon, real step) noexcept nogil:
    accum[0] = accum[0] * momentum + (g + var[0] * weight_decay) * step
    var[0] = var[0] - accum[0]
