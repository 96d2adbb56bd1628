"""The update rules, as formulas.

Each function takes the variable, its slots, the gradient and the hyperparameters, all of one
dtype, and returns the new variable and slots. The operations are written in the order of their
execution, and each rounds to that dtype. :func:`tfopt_ref.update.updated` has the parts that are
equal for all rules: rows, repeated rows, factors, numbers of 16 bits.

A docstring names TensorFlow's op in parentheses, if there is one, and gives the equation, in which
theta is the variable, g the gradient and ``<-`` an assignment; b1 and b2 are `beta1` and `beta2`,
and their powers at step t are `beta1_power` and `beta2_power`. Means that begin with 0 are too
small at first: ``mhat = m / (1 - b1^t)`` and ``vhat = v / (1 - b2^t)`` correct that, and
``lr_t = lr sqrt(1 - b2^t) / (1 - b1^t)`` has the same effect on the step.
"""

from __future__ import annotations

from functools import partial

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


def decayed(mean, beta, new):
    """Return beta mean + (1 - beta) new, or beta mean if new is None."""
    return mean * beta if new is None else mean * beta + new * (1 - beta)


def squared(grad):
    """Return the squares of a gradient; None for None."""
    return None if grad is None else grad * grad


# ---- gradient descent and momentum


@TrainingOp
def apply_gradient_descent(var, delta, *, alpha):
    """``theta <- theta - alpha g`` (ApplyGradientDescent)."""
    return (var - delta * alpha,)


@TrainingOp
def apply_proximal_gradient_descent(var, delta, *, alpha, l1, l2):
    """Take a gradient step, then shrink by l1 and scale by l2 (ApplyProximalGradientDescent).

    ``x = theta - alpha g; theta <- sign(x) max(|x| - alpha l1, 0) / (1 + alpha l2)``
    """
    x = var - delta * alpha
    if l1 > 0:
        x = shrink(x, alpha * l1)
    return (x / (1 + l2 * alpha),)


@TrainingOp
def apply_momentum(var, accum, grad, *, lr, momentum, use_nesterov=False):
    """Step along a decaying sum of gradients (ApplyMomentum).

    ``a <- mu a + g; theta <- theta - lr a``; Nesterov: ``theta <- theta - lr (g + mu a)``
    """
    accum = accum * momentum + grad
    if use_nesterov:
        return var - (grad * lr + accum * momentum * lr), accum
    return var - accum * lr, accum


@TrainingOp
def apply_keras_momentum(var, accum, grad, *, lr, momentum, use_nesterov=False):
    """Step along a decaying sum of past steps (ApplyKerasMomentum).

    ``a <- mu a - lr g; theta <- theta + a``; Nesterov: ``theta <- theta + (mu a - lr g)``
    """
    accum = accum * momentum - grad * lr
    if use_nesterov:
        return var + (accum * momentum - grad * lr), accum
    return var + accum, accum


@TrainingOp
def apply_lars(var, accum, grad, *, lr, momentum, trust, weight_decay, epsilon, adapts=True):
    """Momentum with a rate r proportional to the weights' norm over the gradient's norm.

    ``r = trust |theta| / (|g| + decay |theta| + eps)``
    ``a <- mu a + lr r (g + decay theta); theta <- theta - a``

    Norms are computed in double precision. Where one is 0 or NaN, r is 1.
    """
    weights, gradients, step = square_sum(var), square_sum(grad), lr
    if adapts and weights > 0 and gradients > 0:
        norm = np.sqrt(weights)
        divisor = np.sqrt(gradients) + wide(weight_decay) * norm + wide(epsilon)
        step = narrow(wide(lr) * (wide(trust) * norm / divisor), var.dtype)
    accum = accum * momentum + (grad + var * weight_decay) * step
    return var - accum, accum


# ---- the sum of squared gradients


@TrainingOp
def apply_adagrad(var, accum, grad, *, lr, update_slots=True):
    """``n <- n + g^2; theta <- theta - lr g / sqrt(n)`` (ApplyAdagrad)."""
    if update_slots:
        accum = accum + grad * grad
    return var - grad * lr * (1 / np.sqrt(accum)), accum


@TrainingOp
def apply_adagrad_v2(var, accum, grad, *, lr, epsilon, update_slots=True):
    """``n <- n + g^2; theta <- theta - lr g / (sqrt(n) + eps)`` (ApplyAdagradV2)."""
    if update_slots:
        accum = accum + grad * grad
    return var - grad * lr / (np.sqrt(accum) + epsilon), accum


@partial(TrainingOp, row_slots=("accum",))
def apply_rowwise_adagrad(var, accum, grad, *, lr, epsilon, l2):
    """Adagrad with one number n for each row: the sum of the means of its squared gradients.

    ``u = g + l2 theta; n <- n + mean(u^2); theta <- theta - lr u / (sqrt(n) + eps)``

    The numbers of a row are computed in double precision, and rounded when they are stored or used.
    """
    g = grad + var * l2
    accum = narrow(wide(accum) + mean_square(g), g.dtype)
    step = narrow(wide(lr) / (np.sqrt(wide(accum)) + wide(epsilon)), g.dtype)
    return var - g * of_its_row(step, g), accum


@TrainingOp
def apply_proximal_adagrad(var, accum, grad, *, lr, l1, l2):
    """Take an Adagrad step, then shrink by l1 and scale by l2 (ApplyProximalAdagrad).

    ``n <- n + g^2``, then a proximal gradient step with ``alpha = lr / sqrt(n)``
    """
    accum = accum + grad * grad
    eta = lr * (1 / np.sqrt(accum))
    x = var - grad * eta
    if l1 > 0:
        x = shrink(x, eta * l1)
    return x / (1 + l2 * eta), accum


@TrainingOp
def apply_adagrad_da(
    var, gradient_accumulator, gradient_squared_accumulator, grad, *, lr, l1, l2, global_step
):
    """Compute the variable from the sums G and n at step t: dual averaging (ApplyAdagradDA).

    ``G <- G + g; n <- n + g^2; theta <- -lr sign(G) max(|G| - t l1, 0) / (t lr l2 + sqrt(n))``
    """
    ga, gg = gradient_accumulator + grad, gradient_squared_accumulator + grad * grad
    t = global_step.astype(np.float32).astype(ga.dtype)  # as TensorFlow converts it
    d = l2 * (t * lr) + np.sqrt(gg)
    if l1 > 0:
        return -lr * np.sign(ga) * maximum(abs(ga) - t * l1, ga.dtype.type(0)) / d, ga, gg
    return -(lr * ga) / d, ga, gg


@apply_adagrad_da.for_rows
def _adagrad_da_rows(
    var, gradient_accumulator, gradient_squared_accumulator, grad, *, lr, l1, l2, global_step
):
    """Divide by the step instead of multiplying by it, so that step 0 makes NaN."""
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


# ---- the mean of squared gradients


@TrainingOp
def apply_adadelta(var, accum, accum_update, grad, *, lr, rho, epsilon):
    """Scale each element's step u by the root mean square of its past steps (ApplyAdadelta).

    ``n <- rho n + (1-rho) g^2; u = g sqrt(d + eps) / sqrt(n + eps)``
    ``theta <- theta - lr u; d <- rho d + (1-rho) u^2``
    """
    accum = decayed(accum, rho, grad * grad)
    update = np.sqrt(accum_update + epsilon) * (1 / np.sqrt(accum + epsilon)) * grad
    return var - update * lr, accum, decayed(accum_update, rho, update * update)


@TrainingOp
def apply_rms_prop(var, ms, mom, grad, *, lr, rho, momentum, epsilon):
    """Divide by the root of the gradient's mean square n, with momentum (ApplyRMSProp).

    ``n <- n + (1-rho) (g^2 - n); a <- mu a + lr g / sqrt(n + eps); theta <- theta - a``
    """
    ms = ms + (grad * grad - ms) * (1 - rho)
    mom = mom * momentum + grad * lr / np.sqrt(ms + epsilon)
    return var - mom, ms, mom


@apply_rms_prop.for_rows
def _rms_prop_rows(var, ms, mom, grad, *, lr, rho, momentum, epsilon):
    """Let the mean square decay, so that an infinite one stays infinite."""
    ms = decayed(ms, rho, grad * grad)
    mom = mom * momentum + 1 / np.sqrt(ms + epsilon) * lr * grad
    return var - mom, ms, mom


@TrainingOp
def apply_centered_rms_prop(var, mg, ms, mom, grad, *, lr, rho, momentum, epsilon):
    """Divide by the standard deviation, from the mean m and mean square n (ApplyCenteredRMSProp).

    ``n <- n + (1-rho) (g^2 - n); m <- m + (1-rho) (g - m)``
    ``a <- mu a + lr g / sqrt(n - m^2 + eps); theta <- theta - a``
    """
    ms = ms + (grad * grad - ms) * (1 - rho)
    mg = mg + (grad - mg) * (1 - rho)
    mom = mom * momentum + grad * lr / np.sqrt(ms - mg * mg + epsilon)
    return var - mom, mg, ms, mom


@apply_centered_rms_prop.for_rows
def _centered_rms_prop_rows(var, mg, ms, mom, grad, *, lr, rho, momentum, epsilon):
    """Let the means decay, so that infinite ones stay infinite."""
    ms, mg = decayed(ms, rho, grad * grad), decayed(mg, rho, grad)
    mom = mom * momentum + 1 / np.sqrt(ms + epsilon - mg * mg) * lr * grad
    return var - mom, mg, ms, mom


@partial(TrainingOp, absent=True)
def apply_keras_rms_prop(var, ms, grad, *, lr, rho, epsilon):
    """``n <- rho n + (1-rho) g^2; theta <- theta - lr g / (sqrt(n) + eps)``, as in Keras."""
    ms = decayed(ms, rho, squared(grad))
    if grad is None:
        return var, ms
    return var - lr * grad / (np.sqrt(ms) + epsilon), ms


@partial(TrainingOp, absent=True)
def apply_keras_centered_rms_prop(var, mg, ms, grad, *, lr, rho, epsilon):
    """The same by the standard deviation: ``m <- rho m + (1-rho) g``, and ``sqrt(n - m^2)``."""
    ms, mg = decayed(ms, rho, squared(grad)), decayed(mg, rho, grad)
    if grad is None:
        return var, mg, ms
    return var - lr * grad / (np.sqrt(ms - mg * mg) + epsilon), mg, ms


# ---- the mean gradient over the root of its mean square


@TrainingOp
def apply_adam(
    var, m, v, grad, *, beta1_power, beta2_power, lr, beta1, beta2, epsilon, use_nesterov=False
):
    """Step by the mean gradient m over the root of its mean square v (ApplyAdam).

    ``m <- m + (1-b1) (g - m); v <- v + (1-b2) (g^2 - v)``
    ``theta <- theta - lr_t m / (sqrt(v) + eps)``; Nesterov: ``(1-b1) g + b1 m`` in place of m
    """
    alpha = lr * np.sqrt(1 - beta2_power) / (1 - beta1_power)
    m = m + (grad - m) * (1 - beta1)
    v = v + (grad * grad - v) * (1 - beta2)
    direction = grad * (1 - beta1) + beta1 * m if use_nesterov else m
    return var - direction * alpha / (np.sqrt(v) + epsilon), m, v


@TrainingOp
def apply_adam_with_amsgrad(
    var, m, v, vhat, grad, *, beta1_power, beta2_power, lr, beta1, beta2, epsilon
):
    """Adam with ``vmax <- max(vmax, v)`` in place of v under the root (ApplyAdamWithAmsgrad)."""
    alpha = lr * np.sqrt(1 - beta2_power) / (1 - beta1_power)
    m = m + (grad - m) * (1 - beta1)
    v = v + (grad * grad - v) * (1 - beta2)
    vhat = maximum(vhat, v)
    return var - m * alpha / (np.sqrt(vhat) + epsilon), m, v, vhat


@partial(TrainingOp, absent=True)
def apply_keras_adam(var, m, v, grad, *, beta1_power, beta2_power, lr, beta1, beta2, epsilon):
    """Adam for rows as in Keras; rows without a gradient move by their remaining m.

    ``m <- b1 m + (1-b1) g; v <- b2 v + (1-b2) g^2; theta <- theta - lr_t m / (sqrt(v) + eps)``
    """
    m, v = decayed(m, beta1, grad), decayed(v, beta2, squared(grad))
    alpha = lr * (np.sqrt(1 - beta2_power) / (1 - beta1_power))
    return var - alpha * m / (np.sqrt(v) + epsilon), m, v


@partial(TrainingOp, absent=True)
def apply_keras_adam_with_amsgrad(
    var, m, v, vhat, grad, *, beta1_power, beta2_power, lr, beta1, beta2, epsilon
):
    """The same with ``vmax <- max(vmax, v)`` in place of v under the root; vmax takes NaNs."""
    m, v = decayed(m, beta1, grad), decayed(v, beta2, squared(grad))
    vhat = maximum_or_nan(vhat, v)
    alpha = lr * (np.sqrt(1 - beta2_power) / (1 - beta1_power))
    return var - alpha * m / (np.sqrt(vhat) + epsilon), m, v, vhat


@TrainingOp
def apply_adamax(var, m, v, grad, *, beta1_power, lr, beta1, beta2, epsilon):
    """Step by the mean gradient m over its decaying largest magnitude v (ApplyAdaMax).

    ``m <- m + (1-b1) (g - m); v <- max(b2 v, |g|); theta <- theta - lr mhat / (v + eps)``
    """
    m = m + (grad - m) * (1 - beta1)
    v = maximum(beta2 * v, abs(grad))
    var = var - lr / (1 - beta1_power) * (m / (v + epsilon))
    return var, m, v


@apply_adamax.for_rows
def _adamax_rows(var, m, v, grad, *, beta1_power, lr, beta1, beta2, epsilon):
    """The sparse form of Keras: m overflows later than grad - m does, and v takes NaNs."""
    m = decayed(m, beta1, grad)
    v = maximum_or_nan(v * beta2, abs(grad))
    var = var + -(lr / (1 - beta1_power)) * (m / (v + epsilon))
    return var, m, v


@partial(TrainingOp, absent=True)
def apply_nadam(
    var, m, v, grad, *, lr, beta1, beta2, beta2_power, mu, mu_next, mu_product, mu_product_next,
    epsilon,
):  # fmt: skip
    """Adam with the mean gradient u of the next step; M(t) is the product of mu(1) ... mu(t).

    ``u = (1 - mu(t)) g / (1 - M(t)) + mu(t+1) m / (1 - M(t+1))``
    ``theta <- theta - lr u / (sqrt(vhat) + eps)``
    """
    m, v = decayed(m, beta1, grad), decayed(v, beta2, squared(grad))
    if grad is None:
        return var, m, v
    u = (1 - mu) * (grad / (1 - mu_product)) + mu_next * (m / (1 - mu_product_next))
    return var - lr * u / (np.sqrt(v / (1 - beta2_power)) + epsilon), m, v


@TrainingOp
def apply_yogi(var, m, v, grad, *, beta1_power, beta2_power, lr, beta1, beta2, epsilon):
    """Adam with ``v <- v + (1-b2) sign(g^2 - v) g^2``."""
    square = grad * grad
    m = decayed(m, beta1, grad)
    v = v + np.sign(square - v) * square * (1 - beta2)
    alpha = lr * np.sqrt(1 - beta2_power) / (1 - beta1_power)
    return var - m * alpha / (np.sqrt(v) + epsilon), m, v


@TrainingOp
def apply_radam(var, m, v, grad, *, beta1_power, lr, beta1, beta2, epsilon, rectifier):
    """Adam times a rectifier r; if r is 0, the mean gradient only.

    ``theta <- theta - lr r mhat / (sqrt(v) + eps)``, or, if r is 0, ``theta - lr mhat``
    """
    m, v = decayed(m, beta1, grad), decayed(v, beta2, grad * grad)
    if rectifier > 0:
        return var - m * (lr * rectifier / (1 - beta1_power)) / (np.sqrt(v) + epsilon), m, v
    return var - m * (lr / (1 - beta1_power)), m, v


@TrainingOp
def apply_adopt(var, m, v, grad, *, lr, beta1, beta2, epsilon, limit):
    """Average gradients divided by the root of the mean square of earlier ones.

    ``m <- b1 m + (1-b1) clip(g / max(sqrt(v), eps), -limit, limit); theta <- theta - lr m``, then
    ``v <- b2 v + (1-b2) g^2``
    """
    scaled = grad / maximum(np.sqrt(v), epsilon)
    m = decayed(m, beta1, maximum(minimum(scaled, limit), -limit))
    return var - m * lr, m, decayed(v, beta2, grad * grad)


@TrainingOp
def apply_ademamix(
    var, m, slow, v, grad, *, beta1_power, beta2_power, lr, beta1, beta2, beta3, alpha, epsilon
):
    """Adam with a fast mean gradient m and a slow one s.

    ``s <- b3 s + (1-b3) g; theta <- theta - lr (mhat + alpha s) / (sqrt(vhat) + eps)``
    """
    m, slow = decayed(m, beta1, grad), decayed(slow, beta3, grad)
    v = decayed(v, beta2, grad * grad)
    root = np.sqrt(1 - beta2_power)
    step = m * (lr * root / (1 - beta1_power)) + slow * (lr * root * alpha)
    return var - step / (np.sqrt(v) + epsilon * root), m, slow, v


@partial(TrainingOp, row_slots=("v",))
def apply_rowwise_adam(var, m, v, grad, *, beta1_power, beta2_power, lr, beta1, beta2, epsilon):
    """Adam with one mean square v for each row, from the means of its squared gradients.

    ``v <- b2 v + (1-b2) mean(g^2); theta <- theta - lr mhat / (sqrt(vhat) + eps)``

    The numbers of a row are computed in double precision, and rounded when they are stored or used.
    """
    m = decayed(m, beta1, grad)
    v = narrow(wide(v) * wide(beta2) + mean_square(grad) * wide(1 - beta2), grad.dtype)
    alpha, correction = lr / (1 - beta1_power), 1 - beta2_power
    root = np.sqrt(wide(v) / wide(correction))
    step = narrow(wide(alpha) / (root + wide(epsilon)), grad.dtype)
    return var - m * of_its_row(step, m), m, v


@TrainingOp
def apply_lamb(
    var, m, v, grad, *, beta1_power, beta2_power, lr, beta1, beta2, epsilon, weight_decay,
    adapts=True,
):  # fmt: skip
    """Scale Adam's step u, which includes the weight decay, to the norm of the weights.

    ``u = mhat / (sqrt(vhat) + eps) + decay theta; theta <- theta - lr u |theta| / |u|``

    Norms are computed in double precision. If one is 0 or NaN, u is not scaled.
    """
    m, v = decayed(m, beta1, grad), decayed(v, beta2, grad * grad)
    unbias, root_scale = 1 / (1 - beta1_power), 1 / np.sqrt(1 - beta2_power)
    u = m * unbias / (np.sqrt(v) * root_scale + epsilon) + var * weight_decay
    weights, updates, step = square_sum(var), square_sum(u), lr
    if adapts and weights > 0 and updates > 0:
        step = narrow(wide(lr) * (np.sqrt(weights) / np.sqrt(updates)), var.dtype)
    return var - step * u, m, v


# ---- follow the regularized leader


def _ftrl(
    finish, var, accum, linear, grad, lr, l1, l2, lr_power, multiply_linear_by_lr, l2_shrinkage=None
):
    """Return the new var, accum and linear; `finish` computes var from linear, threshold and y."""
    shrunk = grad if l2_shrinkage is None else grad + 2 * l2_shrinkage * var
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
    """Minimize the same by clipping, which keeps NaNs, including that of 0 / 0."""
    return (maximum(minimum(linear, l1), -l1) - linear) / y


@TrainingOp
def apply_ftrl(var, accum, linear, grad, *, lr, l1, l2, lr_power, multiply_linear_by_lr=False):
    """Minimize the sum of all losses' tangents and the regularization (ApplyFtrl).

    ``s = ((n + g^2)^-p - n^-p) / lr; z <- z + g - s theta; n <- n + g^2``, where p is `lr_power`
    ``theta <- (l1 sign(z) - z) / (n^-p / lr + 2 l2)``, or 0 if ``|z| <= l1``
    """
    hypers = lr, l1, l2, lr_power, multiply_linear_by_lr
    return _ftrl(_soft_threshold, var, accum, linear, grad, *hypers)


@TrainingOp
def apply_ftrl_v2(
    var, accum, linear, grad, *, lr, l1, l2, l2_shrinkage, lr_power, multiply_linear_by_lr=False
):
    """The same with ``z <- z + (g + 2 l2_shrinkage theta) - s theta`` (ApplyFtrlV2)."""
    hypers = lr, l1, l2, lr_power, multiply_linear_by_lr, l2_shrinkage
    return _ftrl(_soft_threshold, var, accum, linear, grad, *hypers)


for _op in (apply_ftrl, apply_ftrl_v2):
    _op.for_rows(partial(_ftrl, _clip_to_threshold))


# ---- signs


@TrainingOp
def apply_add_sign(var, m, grad, *, lr, alpha, sign_decay, beta):
    """Lengthen the step where gradient and mean gradient m agree (ApplyAddSign).

    ``m <- b m + (1-b) g; theta <- theta - lr (alpha + sign_decay sign(g) sign(m)) g``
    """
    m = decayed(m, beta, grad)
    agreement = np.sign(grad) * np.sign(m)
    return var - lr * (alpha + sign_decay * agreement) * grad, m


@TrainingOp
def apply_power_sign(var, m, grad, *, lr, logbase, sign_decay, beta):
    """Multiply the step where gradient and mean gradient m agree (ApplyPowerSign).

    ``m <- b m + (1-b) g; theta <- theta - lr exp(logbase sign_decay sign(g) sign(m)) g``
    """
    m = decayed(m, beta, grad)
    agreement = np.sign(grad) * np.sign(m)
    return var - lr * np.exp(logbase * sign_decay * agreement) * grad, m


@TrainingOp
def apply_lion(var, m, grad, *, lr, beta1, beta2):
    """``theta <- theta - lr sign(b1 m + (1-b1) g)``, then ``m <- b2 m + (1-b2) g``."""
    return var - lr * np.sign(decayed(m, beta1, grad)), decayed(m, beta2, grad)


# ---- means of weights


@TrainingOp
def apply_moving_average(var, value, *, momentum):
    """``theta <- mu theta + (1-mu) value``, the decaying mean of weights from step to step."""
    return (decayed(var, momentum, value),)


@TrainingOp
def apply_schedule_free_sgd(var, offset, grad, *, lr, beta, share, weight_decay):
    """Step from z, and mix it into its average x by a share c; the variable y is between them.

    ``z <- z - lr (g + decay y); x <- (1-c) x + c z; y <- (1-b) z + b x``; the offset is z - y.
    """
    u = grad + var * weight_decay
    new = var + offset * share - u * (lr * (1 - beta * (1 - share)))
    return new, (offset - u * (lr * beta)) * (1 - share)


@TrainingOp
def apply_schedule_free_adam(
    var, offset, v, grad, *, lr, beta1, beta2, beta2_power, epsilon, share, weight_decay
):
    """The same with ``z <- z - lr (g / (sqrt(vhat) + eps) + decay y)``, and b1 for b."""
    v = decayed(v, beta2, grad * grad)
    u = grad / (np.sqrt(v) * (1 / np.sqrt(1 - beta2_power)) + epsilon) + var * weight_decay
    new = var + offset * share - u * (lr * (1 - beta1 * (1 - share)))
    return new, (offset - u * (lr * beta1)) * (1 - share), v
