"""The update rules, as formulas.

Each function takes the variable, its slots, the gradient and the hyperparameters, all of one
dtype, and returns the new variable and slots. The operations stand in the order in which they are
carried out, and each rounds to that dtype. :func:`tfopt_ref.update.updated` adds what is the same
for every rule: rows, repeated ones, factors, numbers of 16 bits.
"""

from __future__ import annotations

import numpy as np

from tfopt_ref.arithmetic import (
    maximum,
    maximum_or_nan,
    minimum,
    narrow,
    power,
    select,
    shrink,
    wide,
)
from tfopt_ref.reductions import mean_square, of_its_row, square_sum
from tfopt_ref.training_op import TrainingOp

__all__ = [
    "apply_adadelta",
    "apply_adagrad",
    "apply_adagrad_da",
    "apply_adagrad_v2",
    "apply_adam",
    "apply_adam_with_amsgrad",
    "apply_adamax",
    "apply_add_sign",
    "apply_ademamix",
    "apply_adopt",
    "apply_centered_rms_prop",
    "apply_ftrl",
    "apply_ftrl_v2",
    "apply_gradient_descent",
    "apply_keras_adam",
    "apply_keras_adam_with_amsgrad",
    "apply_keras_centered_rms_prop",
    "apply_keras_momentum",
    "apply_keras_rms_prop",
    "apply_lamb",
    "apply_lars",
    "apply_lion",
    "apply_momentum",
    "apply_moving_average",
    "apply_nadam",
    "apply_power_sign",
    "apply_proximal_adagrad",
    "apply_proximal_gradient_descent",
    "apply_radam",
    "apply_rms_prop",
    "apply_rowwise_adagrad",
    "apply_rowwise_adam",
    "apply_schedule_free_adam",
    "apply_schedule_free_sgd",
    "apply_yogi",
]


@TrainingOp
def apply_gradient_descent(var, delta, *, alpha):
    """Take a step of length alpha against the gradient."""
    return (var - delta * alpha,)


@TrainingOp
def apply_proximal_gradient_descent(var, delta, *, alpha, l1, l2):
    """Take a gradient step, then shrink by l1 and scale by l2."""
    x = var - delta * alpha
    if l1 > 0:
        x = shrink(x, alpha * l1)
    return (x / (1 + l2 * alpha),)


@TrainingOp
def apply_momentum(var, accum, grad, *, lr, momentum, use_nesterov=False):
    """Step along a decaying sum of gradients."""
    accum = accum * momentum + grad
    if use_nesterov:
        return var - (grad * lr + accum * momentum * lr), accum
    return var - accum * lr, accum


@TrainingOp
def apply_keras_momentum(var, accum, grad, *, lr, momentum, use_nesterov=False):
    """Step along a decaying sum of past steps, which already hold the learning rate."""
    accum = accum * momentum - grad * lr
    if use_nesterov:
        return var + (accum * momentum - grad * lr), accum
    return var + accum, accum


@TrainingOp
def apply_adagrad(var, accum, grad, *, lr, update_slots=True):
    """Divide each element's step by the root of its sum of squared gradients."""
    if update_slots:
        accum = accum + grad * grad
    return var - grad * lr * (1 / np.sqrt(accum)), accum


@TrainingOp
def apply_adagrad_v2(var, accum, grad, *, lr, epsilon, update_slots=True):
    """Adagrad with epsilon added to the root."""
    if update_slots:
        accum = accum + grad * grad
    return var - grad * lr / (np.sqrt(accum) + epsilon), accum


def _dual_average(ga, gg, t, lr, l1, l2):
    """Minimize ga * var + t * l1 * abs(var) + (t * l2 + sqrt(gg) / lr) / 2 * var ** 2."""
    d = l2 * (t * lr) + np.sqrt(gg)
    if l1 > 0:
        return -lr * np.sign(ga) * maximum(abs(ga) - t * l1, ga.dtype.type(0)) / d
    return -(lr * ga) / d


@TrainingOp
def apply_adagrad_da(
    var,
    gradient_accumulator,
    gradient_squared_accumulator,
    grad,
    *,
    lr,
    l1,
    l2,
    global_step,
):
    """Adagrad by dual averaging: the variable is made anew of the summed gradients."""
    ga, gg = gradient_accumulator + grad, gradient_squared_accumulator + grad * grad
    t = global_step.astype(np.float32).astype(ga.dtype)  # TensorFlow's detour
    return _dual_average(ga, gg, t, lr, l1, l2), ga, gg


@apply_adagrad_da.for_rows
def _adagrad_da_rows(
    var, gradient_accumulator, gradient_squared_accumulator, grad, *, lr, l1, l2, global_step
):
    """Divide by the step instead of multiplying, so that step 0 makes NaN."""
    ga, gg = gradient_accumulator + grad, gradient_squared_accumulator + grad * grad
    t = global_step
    d = l2 + np.sqrt(gg) / (t * lr)
    if l1 > 0:
        return -np.sign(ga) * maximum(abs(ga) / t - l1, ga.dtype.type(0)) / d, ga, gg
    return -(ga / t) / d, ga, gg


@apply_adagrad_da.for_width1
def _adagrad_da_width1(
    var, gradient_accumulator, gradient_squared_accumulator, grad, *, lr, l1, l2, global_step
):
    """Compute in double precision, as TensorFlow does for rows of one element."""
    dtype = var.dtype
    g, lr, l1, l2, t = (wide(x) for x in (grad, lr, l1, l2, global_step))
    ga = narrow(wide(gradient_accumulator) + g, dtype)
    gg = narrow(wide(gradient_squared_accumulator) + g * g, dtype)
    d = t * l2 * lr + wide(np.sqrt(gg))
    a = wide(ga)
    if l1 > 0:
        return narrow(np.sign(-a) * lr * maximum(abs(a) - t * l1, 0.0) / d, dtype), ga, gg
    return narrow(-a * lr / d, dtype), ga, gg


@TrainingOp
def apply_proximal_adagrad(var, accum, grad, *, lr, l1, l2):
    """Take an Adagrad step of length eta, then shrink by l1 and scale by l2."""
    accum = accum + grad * grad
    eta = lr * (1 / np.sqrt(accum))
    x = var - grad * eta
    if l1 > 0:
        x = shrink(x, eta * l1)
    return x / (1 + l2 * eta), accum


@TrainingOp
def apply_adadelta(var, accum, accum_update, grad, *, lr, rho, epsilon):
    """Scale each element's step by the root mean square of its past steps."""
    accum = accum * rho + grad * grad * (1 - rho)
    update = np.sqrt(accum_update + epsilon) * (1 / np.sqrt(accum + epsilon)) * grad
    var = var - update * lr
    return var, accum, accum_update * rho + update * update * (1 - rho)


@TrainingOp
def apply_adam(
    var, m, v, grad, *, beta1_power, beta2_power, lr, beta1, beta2, epsilon, use_nesterov=False
):
    """Step by the mean gradient m over the root of its mean square v."""
    alpha = lr * np.sqrt(1 - beta2_power) / (1 - beta1_power)
    m = m + (grad - m) * (1 - beta1)
    v = v + (grad * grad - v) * (1 - beta2)
    direction = grad * (1 - beta1) + beta1 * m if use_nesterov else m
    return var - direction * alpha / (np.sqrt(v) + epsilon), m, v


@TrainingOp
def apply_adam_with_amsgrad(
    var, m, v, vhat, grad, *, beta1_power, beta2_power, lr, beta1, beta2, epsilon
):
    """Adam whose mean square is never taken smaller than it has been."""
    alpha = lr * np.sqrt(1 - beta2_power) / (1 - beta1_power)
    m = m + (grad - m) * (1 - beta1)
    v = v + (grad * grad - v) * (1 - beta2)
    vhat = maximum(vhat, v)
    return var - m * alpha / (np.sqrt(vhat) + epsilon), m, v, vhat


@TrainingOp
def apply_adamax(var, m, v, grad, *, beta1_power, lr, beta1, beta2, epsilon):
    """Step by the mean gradient m over its decaying largest magnitude v."""
    m = m + (grad - m) * (1 - beta1)
    v = maximum(beta2 * v, abs(grad))
    var = var - lr / (1 - beta1_power) * (m / (v + epsilon))
    return var, m, v


@apply_adamax.for_rows
def _adamax_rows(var, m, v, grad, *, beta1_power, lr, beta1, beta2, epsilon):
    """Keras' sparse form: m overflows later than grad - m does, and v takes NaNs."""
    m = m * beta1 + grad * (1 - beta1)
    v = maximum_or_nan(v * beta2, abs(grad))
    var = var + -(lr / (1 - beta1_power)) * (m / (v + epsilon))
    return var, m, v


@TrainingOp
def apply_rms_prop(var, ms, mom, grad, *, lr, rho, momentum, epsilon):
    """Divide by the root of the gradient's mean square ms, with momentum."""
    ms = ms + (grad * grad - ms) * (1 - rho)
    mom = mom * momentum + grad * lr / np.sqrt(ms + epsilon)
    return var - mom, ms, mom


@apply_rms_prop.for_rows
def _rms_prop_rows(var, ms, mom, grad, *, lr, rho, momentum, epsilon):
    """Let ms decay, so that an infinite one stays infinite."""
    ms = ms * rho + grad * grad * (1 - rho)
    mom = mom * momentum + 1 / np.sqrt(ms + epsilon) * lr * grad
    return var - mom, ms, mom


@TrainingOp
def apply_centered_rms_prop(var, mg, ms, mom, grad, *, lr, rho, momentum, epsilon):
    """Divide by the gradient's standard deviation, of mean mg and mean square ms."""
    ms = ms + (grad * grad - ms) * (1 - rho)
    mg = mg + (grad - mg) * (1 - rho)
    mom = mom * momentum + grad * lr / np.sqrt(ms - mg * mg + epsilon)
    return var - mom, mg, ms, mom


@apply_centered_rms_prop.for_rows
def _centered_rms_prop_rows(var, mg, ms, mom, grad, *, lr, rho, momentum, epsilon):
    ms = ms * rho + grad * grad * (1 - rho)
    mg = mg * rho + grad * (1 - rho)
    mom = mom * momentum + 1 / np.sqrt(ms + epsilon - mg * mg) * lr * grad
    return var - mom, mg, ms, mom


def _ftrl(var, accum, linear, grad, shrunk, finish, *, lr, l1, l2, lr_power, multiply_linear_by_lr):
    """Return the new var, accum and linear; `finish` makes var of linear, the threshold and y."""
    new_accum = accum + grad * grad
    new, old = power(new_accum, -lr_power), power(accum, -lr_power)
    if multiply_linear_by_lr:
        linear = linear + (shrunk * lr - (new - old) * var)
        return finish(linear, l1 * lr, new + 2 * l2 * lr), new_accum, linear
    linear = linear + (shrunk - (new - old) / lr * var)
    return finish(linear, l1, new / lr + 2 * l2), new_accum, linear


def _soft_threshold(linear, l1, y):
    """Minimize linear * var + l1 * abs(var) + y / 2 * var ** 2; 0 for a NaN in linear."""
    return select(abs(linear) > l1, (l1 * np.sign(linear) - linear) / y, linear.dtype.type(0))


def _clip_to_threshold(linear, l1, y):
    """Minimize the same by clipping, in which a NaN stays, and so does 0 / 0."""
    return (maximum(minimum(linear, l1), -l1) - linear) / y


@TrainingOp
def apply_ftrl(var, accum, linear, grad, *, lr, l1, l2, lr_power, multiply_linear_by_lr=False):
    """Follow the proximally regularized leader."""
    hypers = {"lr": lr, "l1": l1, "l2": l2, "lr_power": lr_power}
    flag = {"multiply_linear_by_lr": multiply_linear_by_lr}
    return _ftrl(var, accum, linear, grad, grad, _soft_threshold, **hypers, **flag)


@apply_ftrl.for_rows
def _ftrl_rows(var, accum, linear, grad, **hypers):
    return _ftrl(var, accum, linear, grad, grad, _clip_to_threshold, **hypers)


@TrainingOp
def apply_ftrl_v2(
    var, accum, linear, grad, *, lr, l1, l2, l2_shrinkage, lr_power, multiply_linear_by_lr=False
):
    """Follow the proximally regularized leader, with shrinkage of the gradient."""
    shrunk = grad + 2 * l2_shrinkage * var
    hypers = {"lr": lr, "l1": l1, "l2": l2, "lr_power": lr_power}
    flag = {"multiply_linear_by_lr": multiply_linear_by_lr}
    return _ftrl(var, accum, linear, grad, shrunk, _soft_threshold, **hypers, **flag)


@apply_ftrl_v2.for_rows
def _ftrl_v2_rows(var, accum, linear, grad, *, l2_shrinkage, **hypers):
    shrunk = grad + 2 * l2_shrinkage * var
    return _ftrl(var, accum, linear, grad, shrunk, _clip_to_threshold, **hypers)


@TrainingOp
def apply_add_sign(var, m, grad, *, lr, alpha, sign_decay, beta):
    """Lengthen the step where gradient and mean gradient m agree, shorten it elsewhere."""
    m = m * beta + grad * (1 - beta)
    agreement = np.sign(grad) * np.sign(m)
    return var - lr * (alpha + sign_decay * agreement) * grad, m


@TrainingOp
def apply_power_sign(var, m, grad, *, lr, logbase, sign_decay, beta):
    """Multiply the step where gradient and mean gradient m agree, divide it elsewhere."""
    m = m * beta + grad * (1 - beta)
    agreement = np.sign(grad) * np.sign(m)
    return var - lr * np.exp(logbase * sign_decay * agreement) * grad, m


@TrainingOp
def apply_lion(var, m, grad, *, lr, beta1, beta2):
    """Step by the sign of a mean of the gradient and its decaying mean m."""
    step = lr * np.sign(m * beta1 + grad * (1 - beta1))
    return var - step, m * beta2 + grad * (1 - beta2)


@TrainingOp
def apply_yogi(var, m, v, grad, *, beta1_power, beta2_power, lr, beta1, beta2, epsilon):
    """Adam whose mean square v moves towards the squared gradient by a share of the latter."""
    square = grad * grad
    m = m * beta1 + grad * (1 - beta1)
    v = v + np.sign(square - v) * square * (1 - beta2)
    alpha = lr * np.sqrt(1 - beta2_power) / (1 - beta1_power)
    return var - m * alpha / (np.sqrt(v) + epsilon), m, v


@TrainingOp
def apply_radam(var, m, v, grad, *, beta1_power, lr, beta1, beta2, epsilon, rectifier):
    """Adam times the rectifier; without one, the mean gradient m alone."""
    m, v = m * beta1 + grad * (1 - beta1), v * beta2 + grad * grad * (1 - beta2)
    if rectifier > 0:
        return var - m * (lr * rectifier / (1 - beta1_power)) / (np.sqrt(v) + epsilon), m, v
    return var - m * (lr / (1 - beta1_power)), m, v


@TrainingOp
def apply_adopt(var, m, v, grad, *, lr, beta1, beta2, epsilon, limit):
    """Average gradients divided by the root of the mean square v of those before."""
    scaled = grad / maximum(np.sqrt(v), epsilon)
    m = m * beta1 + maximum(minimum(scaled, limit), -limit) * (1 - beta1)
    return var - m * lr, m, v * beta2 + grad * grad * (1 - beta2)


@TrainingOp
def apply_ademamix(
    var, m, slow, v, grad, *, beta1_power, beta2_power, lr, beta1, beta2, beta3, alpha, epsilon
):
    """Adam by the mean gradient m, corrected for its start, and alpha times a slow one."""
    m, slow = m * beta1 + grad * (1 - beta1), slow * beta3 + grad * (1 - beta3)
    v = v * beta2 + grad * grad * (1 - beta2)
    root = np.sqrt(1 - beta2_power)
    step = m * (lr * root / (1 - beta1_power)) + slow * (lr * root * alpha)
    return var - step / (np.sqrt(v) + epsilon * root), m, slow, v


@TrainingOp
def apply_schedule_free_sgd(var, offset, grad, *, lr, beta, share, weight_decay):
    """Step from z, and mix it into its average x by a share; var y is between them.

    The offset is z - y, which says where x is: y = (1 - beta) z + beta x.
    """
    u = grad + var * weight_decay
    new = var + offset * share - u * (lr * (1 - beta * (1 - share)))
    return new, (offset - u * (lr * beta)) * (1 - share)


@TrainingOp
def apply_schedule_free_adam(
    var, offset, v, grad, *, lr, beta1, beta2, beta2_power, epsilon, share, weight_decay
):
    """As Schedule-Free SGD, by the gradient over the root of its mean square v."""
    v = v * beta2 + grad * grad * (1 - beta2)
    u = grad / (np.sqrt(v) * (1 / np.sqrt(1 - beta2_power)) + epsilon) + var * weight_decay
    new = var + offset * share - u * (lr * (1 - beta1 * (1 - share)))
    return new, (offset - u * (lr * beta1)) * (1 - share), v


@TrainingOp
def apply_rowwise_adagrad(var, accum, grad, *, lr, epsilon, l2):
    """Divide a row's step by the root of the sum of its gradients' mean squares.

    The numbers of a row are computed in double precision, and rounded when they are stored or used.
    """
    g = grad + var * l2
    accum = narrow(wide(accum) + mean_square(g), g.dtype)
    step = narrow(wide(lr) / (np.sqrt(wide(accum)) + wide(epsilon)), g.dtype)
    return var - g * of_its_row(step, g), accum


apply_rowwise_adagrad.with_row_slots("accum")


@TrainingOp
def apply_rowwise_adam(var, m, v, grad, *, beta1_power, beta2_power, lr, beta1, beta2, epsilon):
    """Adam whose mean square v is one of a row, and of the means of its squares.

    The numbers of a row are computed in double precision, and rounded when they are stored or used.
    """
    m = m * beta1 + grad * (1 - beta1)
    v = narrow(wide(v) * wide(beta2) + mean_square(grad) * wide(1 - beta2), grad.dtype)
    alpha, correction = lr / (1 - beta1_power), 1 - beta2_power
    root = np.sqrt(wide(v) / wide(correction))
    step = narrow(wide(alpha) / (root + wide(epsilon)), grad.dtype)
    return var - m * of_its_row(step, m), m, v


apply_rowwise_adam.with_row_slots("v")


@TrainingOp
def apply_lamb(
    var,
    m,
    v,
    grad,
    *,
    beta1_power,
    beta2_power,
    lr,
    beta1,
    beta2,
    epsilon,
    weight_decay,
    adapts=True,
):
    """Adam whose update u, with the weights' decay, gets the norm of the weights.

    Norms are computed in double precision. Where one is 0 or NaN, u is taken as it is.
    """
    m = m * beta1 + grad * (1 - beta1)
    v = v * beta2 + grad * grad * (1 - beta2)
    unbias, root_scale = 1 / (1 - beta1_power), 1 / np.sqrt(1 - beta2_power)
    u = m * unbias / (np.sqrt(v) * root_scale + epsilon) + var * weight_decay
    weights, updates, step = square_sum(var), square_sum(u), lr
    if adapts and weights > 0 and updates > 0:
        step = narrow(wide(lr) * (np.sqrt(weights) / np.sqrt(updates)), var.dtype)
    return var - step * u, m, v


@TrainingOp
def apply_lars(var, accum, grad, *, lr, momentum, trust, weight_decay, epsilon, adapts=True):
    """Momentum by a rate that is a share of the weights' norm over the gradient's.

    Norms are computed in double precision. Where one is 0 or NaN, the rate is that of others.
    """
    weights, gradients, step = square_sum(var), square_sum(grad), lr
    if adapts and weights > 0 and gradients > 0:
        norm = np.sqrt(weights)
        divisor = np.sqrt(gradients) + wide(weight_decay) * norm + wide(epsilon)
        step = narrow(wide(lr) * (wide(trust) * norm / divisor), var.dtype)
    accum = accum * momentum + (grad + var * weight_decay) * step
    return var - accum, accum


@TrainingOp
def apply_moving_average(var, value, *, momentum):
    """Keep the decaying mean var of value, as of weights from step to step."""
    return (var * momentum + value * (1 - momentum),)


@TrainingOp
def apply_keras_adam(var, m, v, grad, *, beta1_power, beta2_power, lr, beta1, beta2, epsilon):
    """Step by the mean gradient m over the root of its mean square v."""
    m, v = m * beta1 + grad * (1 - beta1), v * beta2 + grad * grad * (1 - beta2)
    alpha = lr * (np.sqrt(1 - beta2_power) / (1 - beta1_power))
    return var - alpha * m / (np.sqrt(v) + epsilon), m, v


@apply_keras_adam.for_absent
def _keras_adam_absent(var, m, v, *, beta1_power, beta2_power, lr, beta1, beta2, epsilon):
    """Let the means decay, and move by what is left of them."""
    m, v = m * beta1, v * beta2
    alpha = lr * (np.sqrt(1 - beta2_power) / (1 - beta1_power))
    return var - alpha * m / (np.sqrt(v) + epsilon), m, v


@TrainingOp
def apply_keras_adam_with_amsgrad(
    var, m, v, vhat, grad, *, beta1_power, beta2_power, lr, beta1, beta2, epsilon
):
    """Adam whose mean square is never taken smaller than it has been; vhat takes NaNs."""
    m, v = m * beta1 + grad * (1 - beta1), v * beta2 + grad * grad * (1 - beta2)
    vhat = maximum_or_nan(vhat, v)
    alpha = lr * (np.sqrt(1 - beta2_power) / (1 - beta1_power))
    return var - alpha * m / (np.sqrt(vhat) + epsilon), m, v, vhat


@apply_keras_adam_with_amsgrad.for_absent
def _keras_adam_with_amsgrad_absent(
    var, m, v, vhat, *, beta1_power, beta2_power, lr, beta1, beta2, epsilon
):
    """Let the means decay, and move by what is left of them."""
    m, v = m * beta1, v * beta2
    vhat = maximum_or_nan(vhat, v)
    alpha = lr * (np.sqrt(1 - beta2_power) / (1 - beta1_power))
    return var - alpha * m / (np.sqrt(vhat) + epsilon), m, v, vhat


@TrainingOp
def apply_nadam(
    var,
    m,
    v,
    grad,
    *,
    lr,
    beta1,
    beta2,
    beta2_power,
    mu,
    mu_next,
    mu_product,
    mu_product_next,
    epsilon,
):
    """Adam by the mean gradient of the step to come; mu_t and mu_(t+1) are mu and mu_next."""
    m, v = m * beta1 + grad * (1 - beta1), v * beta2 + grad * grad * (1 - beta2)
    m_bar = (1 - mu) * (grad / (1 - mu_product)) + mu_next * (m / (1 - mu_product_next))
    return var - lr * m_bar / (np.sqrt(v / (1 - beta2_power)) + epsilon), m, v


@apply_nadam.for_absent
def _nadam_absent(var, m, v, *, beta1, beta2, **hypers):
    """Let the means decay."""
    return var, m * beta1, v * beta2


@TrainingOp
def apply_keras_rms_prop(var, ms, grad, *, lr, rho, epsilon):
    """Divide by the root of the gradient's mean square ms, and epsilon added to it."""
    ms = ms * rho + grad * grad * (1 - rho)
    return var - lr * grad / (np.sqrt(ms) + epsilon), ms


@apply_keras_rms_prop.for_absent
def _keras_rms_prop_absent(var, ms, *, lr, rho, epsilon):
    """Let the mean square decay."""
    return var, ms * rho


@TrainingOp
def apply_keras_centered_rms_prop(var, mg, ms, grad, *, lr, rho, epsilon):
    """Divide by the gradient's standard deviation, of mean mg and mean square ms."""
    ms, mg = ms * rho + grad * grad * (1 - rho), mg * rho + grad * (1 - rho)
    return var - lr * grad / (np.sqrt(ms - mg * mg) + epsilon), mg, ms


@apply_keras_centered_rms_prop.for_absent
def _keras_centered_rms_prop_absent(var, mg, ms, *, lr, rho, epsilon):
    """Let the means decay."""
    return var, mg * rho, ms * rho
