/* The arithmetic of one element, one function per rule: the names, the arguments and the order of
 * operations of kernels/rules.pxd. Here, too, each operation rounds to `real`: the compiler is told
 * not to contract a product and a sum (-fmad=false, -ffp-contract=off).
 */
#pragma once

#include "shim.h"

namespace rules {

/* ---- the functions the formulas are made of */

BOTH float root(float x) { return sqrtf(x); }
BOTH double root(double x) { return sqrt(x); }
BOTH float magnitude(float x) { return fabsf(x); }
BOTH double magnitude(double x) { return fabs(x); }

#ifdef TFOPT_NO_POWER /* to look at everything else in the compiler's output */
template <class real> BOTH real power(real x, real, bool) { return root(x); }
#else
BOTH float power(float x, float y, bool square_root) { return square_root ? root(x) : powf(x, y); }
BOTH double power(double x, double y, bool square_root) {
    return square_root ? root(x) : pow(x, y);
}
#endif

template <class real> BOTH real maximum(real a, real b) {
    return a < b ? b : a; /* a NaN in a stays, a NaN in b is ignored */
}

template <class real> BOTH real minimum(real a, real b) { return b < a ? b : a; }

template <class real> BOTH real maximum_or_nan(real a, real b) {
    return a != a ? a : a > b ? a : b;
}

template <class real> BOTH real sign(real x) {
    return x > 0 ? real(1) : x < 0 ? real(-1) : x != x ? x : real(0);
}

template <class real> BOTH real shrink(real x, real threshold) {
    return sign(x) * maximum(magnitude(x) - threshold, real(0));
}

/* ---- the rules, in the order of the table */

template <class real> BOTH void gradient_descent(real *var, real g, real alpha) {
    *var = *var - g * alpha;
}

template <class real>
BOTH void proximal_gradient_descent(real *var, real g, real alpha, real threshold, real divisor,
                                    bool shrinks) {
    const real x = *var - g * alpha;
    *var = (shrinks ? shrink(x, threshold) : x) / divisor;
}

template <class real>
BOTH void momentum(real *var, real *accum, real g, real lr, real momentum, bool use_nesterov) {
    *accum = *accum * momentum + g;
    if (use_nesterov)
        *var = *var - (g * lr + (*accum * momentum) * lr);
    else
        *var = *var - *accum * lr;
}

template <class real>
BOTH void keras_momentum(real *var, real *accum, real g, real lr, real momentum,
                         bool use_nesterov) {
    *accum = *accum * momentum - g * lr;
    if (use_nesterov)
        *var = *var + (*accum * momentum - g * lr);
    else
        *var = *var + *accum;
}

template <class real>
BOTH void adagrad(real *var, real *accum, real g, real lr, bool update_slots) {
    if (update_slots)
        *accum = *accum + g * g;
    *var = *var - (g * lr) * (real(1) / root(*accum));
}

template <class real>
BOTH void adagrad_v2(real *var, real *accum, real g, real lr, real epsilon, bool update_slots) {
    if (update_slots)
        *accum = *accum + g * g;
    *var = *var - (g * lr) / (root(*accum) + epsilon);
}

template <class real>
BOTH void adagrad_da(real *var, real *ga, real *gg, real g, real t, real lr, real l1, real l2,
                     real threshold, real ridge, real t_lr, bool shrinks) {
    *ga = *ga + g;
    *gg = *gg + g * g;
    const real d = ridge + root(*gg);
    if (shrinks)
        *var = (-lr * sign(*ga) * maximum(magnitude(*ga) - threshold, real(0))) / d;
    else
        *var = -(lr * *ga) / d;
}

template <class real>
BOTH void adagrad_da_rows(real *var, real *ga, real *gg, real g, real t, real lr, real l1, real l2,
                          real threshold, real ridge, real t_lr, bool shrinks) {
    *ga = *ga + g;
    *gg = *gg + g * g;
    const real d = l2 + root(*gg) / t_lr;
    if (shrinks)
        *var = (-sign(*ga) * maximum(magnitude(*ga) / t - l1, real(0))) / d;
    else
        *var = -(*ga / t) / d;
}

template <class real>
BOTH void adagrad_da_width1(real *var, real *ga, real *gg, real g, real t, real lr, real l1,
                            real l2, real threshold, real ridge, real t_lr, bool shrinks) {
    *ga = real(double(*ga) + double(g));
    *gg = real(double(*gg) + double(g) * double(g));
    double a = *ga;
    const double d = double(t) * double(l2) * double(lr) + double(root(*gg));
    if (shrinks)
        a = sign(-a) * double(lr) * maximum(magnitude(a) - double(t) * double(l1), 0.0) / d;
    else
        a = -a * double(lr) / d;
    *var = real(a);
}

template <class real>
BOTH void proximal_adagrad(real *var, real *accum, real g, real lr, real l1, real l2,
                           bool shrinks) {
    *accum = *accum + g * g;
    const real eta = lr * (real(1) / root(*accum));
    const real x = *var - g * eta;
    *var = (shrinks ? shrink(x, eta * l1) : x) / (real(1) + l2 * eta);
}

template <class real>
BOTH void adadelta(real *var, real *accum, real *accum_update, real g, real lr, real rho,
                   real one_minus_rho, real epsilon) {
    *accum = *accum * rho + (g * g) * one_minus_rho;
    const real update =
        (root(*accum_update + epsilon) * (real(1) / root(*accum + epsilon))) * g;
    *var = *var - update * lr;
    *accum_update = *accum_update * rho + (update * update) * one_minus_rho;
}

template <class real>
BOTH void adam(real *var, real *m, real *v, real g, real alpha, real beta1, real one_minus_beta1,
               real one_minus_beta2, real epsilon, bool use_nesterov) {
    *m = *m + (g - *m) * one_minus_beta1;
    *v = *v + (g * g - *v) * one_minus_beta2;
    const real direction = use_nesterov ? g * one_minus_beta1 + beta1 * *m : *m;
    *var = *var - (direction * alpha) / (root(*v) + epsilon);
}

template <class real>
BOTH void adam_with_amsgrad(real *var, real *m, real *v, real *vhat, real g, real alpha, real beta1,
                            real one_minus_beta1, real one_minus_beta2, real epsilon, real zero) {
    *m = *m + (g - *m) * one_minus_beta1;
    *v = *v + (g * g - *v) * one_minus_beta2;
    *vhat = maximum(*vhat - zero, *v);
    *var = *var - (*m * alpha) / (root(*vhat) + epsilon);
}

template <class real>
BOTH void adamax(real *var, real *m, real *v, real g, real step, real beta1, real one_minus_beta1,
                 real beta2, real epsilon) {
    *m = *m + (g - *m) * one_minus_beta1;
    *v = maximum(beta2 * *v, magnitude(g));
    *var = *var - step * (*m / (*v + epsilon));
}

template <class real>
BOTH void adamax_rows(real *var, real *m, real *v, real g, real step, real beta1,
                      real one_minus_beta1, real beta2, real epsilon) {
    *m = *m * beta1 + g * one_minus_beta1;
    *v = maximum_or_nan(*v * beta2, magnitude(g));
    *var = *var + -step * (*m / (*v + epsilon));
}

template <class real>
BOTH void rms_prop(real *var, real *ms, real *mom, real g, real lr, real rho, real one_minus_rho,
                   real momentum, real epsilon) {
    *ms = *ms + (g * g - *ms) * one_minus_rho;
    *mom = *mom * momentum + (g * lr) / root(*ms + epsilon);
    *var = *var - *mom;
}

template <class real>
BOTH void rms_prop_rows(real *var, real *ms, real *mom, real g, real lr, real rho,
                        real one_minus_rho, real momentum, real epsilon) {
    *ms = *ms * rho + (g * g) * one_minus_rho;
    *mom = *mom * momentum + ((real(1) / root(*ms + epsilon)) * lr) * g;
    *var = *var - *mom;
}

template <class real>
BOTH void centered_rms_prop(real *var, real *mg, real *ms, real *mom, real g, real lr, real rho,
                            real one_minus_rho, real momentum, real epsilon) {
    *ms = *ms + (g * g - *ms) * one_minus_rho;
    *mg = *mg + (g - *mg) * one_minus_rho;
    *mom = *mom * momentum + (g * lr) / root((*ms - *mg * *mg) + epsilon);
    *var = *var - *mom;
}

template <class real>
BOTH void centered_rms_prop_rows(real *var, real *mg, real *ms, real *mom, real g, real lr,
                                 real rho, real one_minus_rho, real momentum, real epsilon) {
    *ms = *ms * rho + (g * g) * one_minus_rho;
    *mg = *mg * rho + g * one_minus_rho;
    *mom = *mom * momentum + ((real(1) / root((*ms + epsilon) - *mg * *mg)) * lr) * g;
    *var = *var - *mom;
}

/* What the four forms of FTRL share: `gs` is the gradient, with shrinkage in the second version;
 * rows clip linear to the threshold, a dense update selects. */
template <class real>
BOTH void ftrl_from(real *var, real *accum, real *linear, real g, real gs, real lr, real exponent,
                    real threshold, real ridge, bool multiply_linear_by_lr, bool square_root,
                    bool clip) {
    const real new_accum = *accum + g * g;
    const real grown = power(new_accum, exponent, square_root);
    const real growth = grown - power(*accum, exponent, square_root);
    const real y = multiply_linear_by_lr ? grown + ridge : grown / lr + ridge;
    const real l = multiply_linear_by_lr ? *linear + (gs * lr - growth * *var)
                                         : *linear + (gs - (growth / lr) * *var);
    if (clip)
        *var = (maximum(minimum(l, threshold), -threshold) - l) / y;
    else
        *var = magnitude(l) > threshold ? (threshold * sign(l) - l) / y : real(0);
    *linear = l;
    *accum = new_accum;
}

template <class real>
BOTH void ftrl(real *var, real *accum, real *linear, real g, real lr, real exponent, real threshold,
               real ridge, bool multiply_linear_by_lr, bool square_root) {
    ftrl_from(var, accum, linear, g, g, lr, exponent, threshold, ridge, multiply_linear_by_lr,
              square_root, false);
}

template <class real>
BOTH void ftrl_rows(real *var, real *accum, real *linear, real g, real lr, real exponent,
                    real threshold, real ridge, bool multiply_linear_by_lr, bool square_root) {
    ftrl_from(var, accum, linear, g, g, lr, exponent, threshold, ridge, multiply_linear_by_lr,
              square_root, true);
}

template <class real>
BOTH void ftrl_v2(real *var, real *accum, real *linear, real g, real lr, real exponent,
                  real threshold, real ridge, real shrinkage, bool multiply_linear_by_lr,
                  bool square_root) {
    ftrl_from(var, accum, linear, g, g + shrinkage * *var, lr, exponent, threshold, ridge,
              multiply_linear_by_lr, square_root, false);
}

template <class real>
BOTH void ftrl_v2_rows(real *var, real *accum, real *linear, real g, real lr, real exponent,
                       real threshold, real ridge, real shrinkage, bool multiply_linear_by_lr,
                       bool square_root) {
    ftrl_from(var, accum, linear, g, g + shrinkage * *var, lr, exponent, threshold, ridge,
              multiply_linear_by_lr, square_root, true);
}

template <class real>
BOTH void add_sign(real *var, real *m, real g, real lr, real alpha, real sign_decay, real beta,
                   real one_minus_beta) {
    *m = *m * beta + g * one_minus_beta;
    *var = *var - (lr * (alpha + sign_decay * (sign(g) * sign(*m)))) * g;
}

template <class real>
BOTH void power_sign(real *var, real *m, real g, real exponent, real agreeing, real neither,
                     real opposed, real beta, real one_minus_beta) {
    *m = *m * beta + g * one_minus_beta;
    const real s = sign(g) * sign(*m);
    *var = *var - (s > 0 ? agreeing : s < 0 ? opposed : s != s ? s : neither) * g;
}

template <class real>
BOTH void lion(real *var, real *m, real g, real lr, real beta1, real one_minus_beta1, real beta2,
               real one_minus_beta2) {
    *var = *var - lr * sign(*m * beta1 + g * one_minus_beta1);
    *m = *m * beta2 + g * one_minus_beta2;
}

template <class real>
BOTH void moving_average(real *var, real value, real momentum, real one_minus_momentum) {
    *var = *var * momentum + value * one_minus_momentum;
}

/* ---- Keras' own */

template <class real>
BOTH void keras_adam(real *var, real *m, real *v, real g, real alpha, real beta1,
                     real one_minus_beta1, real beta2, real one_minus_beta2, real epsilon) {
    *m = *m * beta1 + g * one_minus_beta1;
    *v = *v * beta2 + (g * g) * one_minus_beta2;
    *var = *var - (alpha * *m) / (root(*v) + epsilon);
}

template <class real>
BOTH void keras_adam_absent(real *var, real *m, real *v, real alpha, real beta1,
                            real one_minus_beta1, real beta2, real one_minus_beta2, real epsilon) {
    *m = *m * beta1;
    *v = *v * beta2;
    *var = *var - (alpha * *m) / (root(*v) + epsilon);
}

template <class real>
BOTH void keras_adam_with_amsgrad(real *var, real *m, real *v, real *vhat, real g, real alpha,
                                  real beta1, real one_minus_beta1, real beta2,
                                  real one_minus_beta2, real epsilon) {
    *m = *m * beta1 + g * one_minus_beta1;
    *v = *v * beta2 + (g * g) * one_minus_beta2;
    *vhat = maximum_or_nan(*vhat, *v);
    *var = *var - (alpha * *m) / (root(*vhat) + epsilon);
}

template <class real>
BOTH void keras_adam_with_amsgrad_absent(real *var, real *m, real *v, real *vhat, real alpha,
                                         real beta1, real one_minus_beta1, real beta2,
                                         real one_minus_beta2, real epsilon) {
    *m = *m * beta1;
    *v = *v * beta2;
    *vhat = maximum_or_nan(*vhat, *v);
    *var = *var - (alpha * *m) / (root(*vhat) + epsilon);
}

template <class real>
BOTH void nadam(real *var, real *m, real *v, real g, real lr, real beta1, real one_minus_beta1,
                real beta2, real one_minus_beta2, real one_minus_beta2_power, real one_minus_mu,
                real mu_next, real one_minus_mu_product, real one_minus_mu_product_next,
                real epsilon) {
    *m = *m * beta1 + g * one_minus_beta1;
    *v = *v * beta2 + (g * g) * one_minus_beta2;
    real direction = one_minus_mu * (g / one_minus_mu_product);
    direction = direction + mu_next * (*m / one_minus_mu_product_next);
    *var = *var - (lr * direction) / (root(*v / one_minus_beta2_power) + epsilon);
}

template <class real>
BOTH void nadam_absent(real *var, real *m, real *v, real lr, real beta1, real one_minus_beta1,
                       real beta2, real one_minus_beta2, real one_minus_beta2_power,
                       real one_minus_mu, real mu_next, real one_minus_mu_product,
                       real one_minus_mu_product_next, real epsilon) {
    *m = *m * beta1;
    *v = *v * beta2;
}

template <class real>
BOTH void keras_rms_prop(real *var, real *ms, real g, real lr, real rho, real one_minus_rho,
                         real epsilon) {
    *ms = *ms * rho + (g * g) * one_minus_rho;
    *var = *var - (lr * g) / (root(*ms) + epsilon);
}

template <class real>
BOTH void keras_rms_prop_absent(real *var, real *ms, real lr, real rho, real one_minus_rho,
                                real epsilon) {
    *ms = *ms * rho;
}

template <class real>
BOTH void keras_centered_rms_prop(real *var, real *mg, real *ms, real g, real lr, real rho,
                                  real one_minus_rho, real epsilon) {
    *ms = *ms * rho + (g * g) * one_minus_rho;
    *mg = *mg * rho + g * one_minus_rho;
    *var = *var - (lr * g) / (root(*ms - *mg * *mg) + epsilon);
}

template <class real>
BOTH void keras_centered_rms_prop_absent(real *var, real *mg, real *ms, real lr, real rho,
                                         real one_minus_rho, real epsilon) {
    *ms = *ms * rho;
    *mg = *mg * rho;
}

} // namespace rules
