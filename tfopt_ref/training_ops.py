"""The update rules, as formulas.

Each function takes the variable, its slots, the gradient and the hyperparameters, all of one
dtype, and returns the new variable and slots. The operations stand in the order in which they are
carried out, and each rounds to that dtype. :class:`~tfopt_ref.training_op.TrainingOp` adds what is
the same for every rule: checks, rows, writing in place.
"""

from __future__ import annotations

import numpy as np

from tfopt_ref.arithmetic import maximum, maximum_or_nan, minimum, power, select
from tfopt_ref.training_op import TrainingOp

__all__ = [
    "apply_adagrad",
    "apply_adamax",
    "apply_ftrl",
    "apply_ftrl_v2",
    "apply_gradient_descent",
    "apply_keras_momentum",
    "apply_momentum",
]


@TrainingOp
def apply_gradient_descent(var, delta, *, alpha):
    """Take a step of length alpha against the gradient."""
    return (var - delta * alpha,)


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


def _ftrl(var, accum, linear, grad, shrunk, *, lr, l1, l2, lr_power, multiply_linear_by_lr):
    """Return the new accum and linear, and what the variable is made of: threshold and y."""
    new_accum = accum + grad * grad
    new, old = power(new_accum, -lr_power), power(accum, -lr_power)
    if multiply_linear_by_lr:
        linear = linear + (shrunk * lr - (new - old) * var)
        return new_accum, linear, l1 * lr, new + 2 * l2 * lr
    linear = linear + (shrunk - (new - old) / lr * var)
    return new_accum, linear, l1, new / lr + 2 * l2


def _soft_threshold(linear, l1, y):
    """Minimize linear * var + l1 * abs(var) + y / 2 * var ** 2; 0 for a NaN in linear."""
    return select(abs(linear) > l1, (l1 * np.sign(linear) - linear) / y, linear.dtype.type(0))


def _clip_to_threshold(linear, l1, y):
    """Minimize the same by clipping, in which a NaN stays, and so does 0 / 0."""
    return (maximum(minimum(linear, l1), -l1) - linear) / y


@TrainingOp
def apply_ftrl(var, accum, linear, grad, *, lr, l1, l2, lr_power, multiply_linear_by_lr=False):
    """Follow the proximally regularized leader."""
    accum, linear, l1, y = _ftrl(
        var, accum, linear, grad, grad, lr=lr, l1=l1, l2=l2, lr_power=lr_power,
        multiply_linear_by_lr=multiply_linear_by_lr,
    )  # fmt: skip
    return _soft_threshold(linear, l1, y), accum, linear


@apply_ftrl.for_rows
def _ftrl_rows(var, accum, linear, grad, *, lr, l1, l2, lr_power, multiply_linear_by_lr=False):
    accum, linear, l1, y = _ftrl(
        var, accum, linear, grad, grad, lr=lr, l1=l1, l2=l2, lr_power=lr_power,
        multiply_linear_by_lr=multiply_linear_by_lr,
    )  # fmt: skip
    return _clip_to_threshold(linear, l1, y), accum, linear


@TrainingOp
def apply_ftrl_v2(
    var, accum, linear, grad, *, lr, l1, l2, l2_shrinkage, lr_power, multiply_linear_by_lr=False
):
    """Follow the proximally regularized leader, with shrinkage of the gradient."""
    shrunk = grad + 2 * l2_shrinkage * var
    accum, linear, l1, y = _ftrl(
        var, accum, linear, grad, shrunk, lr=lr, l1=l1, l2=l2, lr_power=lr_power,
        multiply_linear_by_lr=multiply_linear_by_lr,
    )  # fmt: skip
    return _soft_threshold(linear, l1, y), accum, linear


@apply_ftrl_v2.for_rows
def _ftrl_v2_rows(
    var, accum, linear, grad, *, lr, l1, l2, l2_shrinkage, lr_power, multiply_linear_by_lr=False
):
    shrunk = grad + 2 * l2_shrinkage * var
    accum, linear, l1, y = _ftrl(
        var, accum, linear, grad, shrunk, lr=lr, l1=l1, l2=l2, lr_power=lr_power,
        multiply_linear_by_lr=multiply_linear_by_lr,
    )  # fmt: skip
    return _clip_to_threshold(linear, l1, y), accum, linear
