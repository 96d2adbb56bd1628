"""The losses of linear models: value, slope, conjugate, and the step of a dual variable.

In the notation of Shalev-Shwartz and Zhang, an example has the features x, the label y (-1 or 1 for
losses of classes), the prediction wx = x . w and the dual variable a. Three classes cover all
losses: `Quadratic` for piecewise linear or quadratic phi, `Logistic`, and `Tweedie` for counts and
amounts.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

__all__ = ["LOSSES", "Logistic", "Loss", "Quadratic", "Tweedie", "loss_named", "root"]


#: The exponential of a larger number overflows.
LARGEST = math.log(sys.float_info.max)


class Loss:
    """A convex function phi of wx, given y, and its conjugate phi*."""

    #: The strong convexity of phi*: phi is 1 / gamma-smooth. A substitute if phi is not smooth.
    gamma: float

    def value(self, wx: float, y: float) -> float:
        """phi(wx)"""
        raise NotImplementedError

    def slope(self, wx: float, y: float) -> float:
        """phi'(wx)"""
        raise NotImplementedError

    def conjugate(self, a: float, y: float) -> float:
        """``phi*(-a)``: the largest -a * z - phi(z), infinite outside the range of a"""
        raise NotImplementedError

    def gap(self, a: float, y: float, wx: float) -> float:
        """``phi(wx) + phi*(-a) + a * wx``, nonnegative by the Fenchel-Young inequality

        It is 0 if -a = phi'(wx). For a = 0 it is phi(wx) minus its least value.
        """
        return self.value(wx, y) + self.conjugate(a, y) + a * wx

    def step(self, a: float, y: float, wx: float, K: float) -> float:
        """The a' that maximizes ``-phi*(-a') - (a' - a) * wx - K / 2 * (a' - a)**2``

        The derivative is 0 if a' = -phi'(z), where z = wx + K * (a' - a) is the new prediction.
        """
        return -self.slope(root(lambda z: z - wx + K * (self.slope(z, y) + a), wx), y)


class Quadratic(Loss):
    """A loss with ``phi*(-a) = gamma / 2 * a**2 + epsilon * |a| - a * y``, for low <= a <= high.

    All else follows: phi(wx) is the largest ``-a * wx - phi*(-a)``. For losses of classes, low and
    high are the limits of y * a.
    """

    def __init__(
        self, gamma: float, epsilon: float = 0.0, *, low: float = -math.inf,
        high: float = math.inf, of_classes: bool = False,
    ) -> None:  # fmt: skip
        self.gamma, self.epsilon = gamma, epsilon
        self.low, self.high, self.of_classes = low, high, of_classes

    def limits(self, y: float) -> tuple[float, float]:
        """The interval of a."""
        return (-self.high, -self.low) if self.of_classes and y < 0 else (self.low, self.high)

    def value(self, wx: float, y: float) -> float:
        a = -self.slope(wx, y)
        return abs(a) * (abs(y - wx) - self.epsilon) - self.gamma / 2 * a * a

    def slope(self, wx: float, y: float) -> float:
        return -self.step(0.0, y, wx, 0.0)

    def conjugate(self, a: float, y: float) -> float:
        low, high = self.limits(y)
        if not low <= a <= high:
            return math.inf
        return self.gamma / 2 * a * a + self.epsilon * abs(a) - a * y

    def step(self, a: float, y: float, wx: float, K: float) -> float:
        """The best positive or the best negative a', clipped to the limits."""
        r = y - wx - self.gamma * a
        positive = max(a + ratio(r - self.epsilon, K + self.gamma), 0.0)
        negative = min(a + ratio(r + self.epsilon, K + self.gamma), 0.0)
        low, high = self.limits(y)
        return min(max(positive + negative, low), high)


class Logistic(Loss):
    """phi(wx) = log(1 + exp(-y * wx))"""

    gamma = 4.0

    def value(self, wx: float, y: float) -> float:
        return math.log1p(math.exp(-abs(y * wx))) + max(0.0, -y * wx)

    def slope(self, wx: float, y: float) -> float:
        e = math.exp(-abs(wx))
        return -y * (e if y * wx > 0 else 1) / (1 + e)

    def conjugate(self, a: float, y: float) -> float:
        b = y * a
        if not 0 <= b <= 1:
            return math.inf
        return (b * math.log(b) if b > 0 else 0.0) + ((1 - b) * math.log1p(-b) if b < 1 else 0.0)


class Tweedie(Loss):
    """phi(wx) = exp(k * wx) / k + y * exp(-m * wx) / m,   k = 2 - p, m = p - 1

    It is half the deviance of a distribution with the power p, from 1 to 2, and the mean exp(wx).
    In the limit, the second term is -y * wx for p = 1 (Poisson), and the first term is wx for p = 2
    (Gamma). Poisson is defined as in TensorFlow; the others are minus their least value, at log(y).
    """

    gamma = 1.0

    def __init__(self, p: float) -> None:
        self.k, self.m = 2 - p, p - 1

    def step(self, a: float, y: float, wx: float, K: float) -> float:
        """As for any loss, but kept finite: for a tiny K, up to an exponential of exp(709)."""
        z = root(lambda z: z - wx + K * (self.slope(z, y) + a), wx) if K > 0 else wx
        z = min(z, 709 / self.k) if self.k > 0 else z
        z = max(z, (log(y) - 709) / self.m) if self.m > 0 else z
        return -self.slope(z, y)

    def exponentials(self, y: float) -> list[tuple[float, float]]:
        """The terms exp(c + r * wx), as pairs of c and r."""
        rises = [(-math.log(self.k), self.k)] if self.k > 0 else []
        falls = [(math.log(y) - math.log(self.m), -self.m)] if self.m > 0 and y > 0 else []
        return rises + falls

    def linear(self, y: float) -> float:
        """The factor of wx."""
        return 1.0 if self.k == 0 else -y if self.m == 0 else 0.0

    def value(self, wx: float, y: float) -> float:
        return exp(wx) - y * wx if self.m == 0 else self.gap(0.0, y, wx)

    def slope(self, wx: float, y: float) -> float:
        """exp(k * wx) - y * exp(-m * wx), without cancellation for wx near log(y)"""
        if self.m == 0 or log(y) - wx > 1:
            return exp(self.k * wx) - (y if self.m == 0 else exp(log(y) - self.m * wx))
        return -exp(self.k * wx) * math.expm1(log(y) - wx)

    def tangent(self, a: float, y: float) -> float:
        """The z with phi'(z) = -a; infinite if -a is only a limit of phi', NaN if there is none."""
        if self.m == 0:
            return log(y - a)
        if self.k == 0:
            return math.log(y) - log(1 + a)
        return log(-a) / self.k if y == 0 else root(lambda z: self.slope(z, y) + a, math.log(y))

    def conjugate(self, a: float, y: float) -> float:
        return math.inf if math.isnan(self.tangent(a, y)) else (
            self.above_least(a, y) - (0.0 if self.m == 0 else self.above_least(0.0, y))
        )  # fmt: skip

    def above_least(self, a: float, y: float) -> float:
        """-a * z - phi(z) at the tangent z, before phi is shifted by its least value"""
        z, b = self.tangent(a, y), a + self.linear(y)
        return (-b * z if b != 0 else 0.0) - sum(exp(c + r * z) for c, r in self.exponentials(y))

    def gap(self, a: float, y: float, wx: float) -> float:
        """phi(wx) minus its tangent with the slope -a, by its exponentials, without cancellation"""
        z = self.tangent(a, y)
        if math.isnan(z):
            return math.inf
        return sum(above_tangent(c, r, wx, z) for c, r in self.exponentials(y))


def above_tangent(c: float, r: float, wx: float, z: float) -> float:
    """Return exp(c + r * wx) minus the tangent of this function at z."""
    height, start, d = exp(c + r * wx), exp(c + r * z), r * (wx - z)
    if start == 0:
        return height
    return height - start * (1 + d) if d > 1 else start * (math.expm1(d) - d)


def root(f: Callable[[float], float], near: float) -> float:
    """Return the root of an increasing f: halve a bracket until its ends are neighbours."""
    low, high, width = near, near, 1.0
    while f(low) > 0:
        low, width = low - width, 2 * width
    while f(high) < 0:
        high, width = high + width, 2 * width
    while low < (z := low + (high - low) / 2) < high:
        low, high = (low, z) if f(z) > 0 else (z, high)
    return high


def ratio(t: float, C: float) -> float:
    """Return t / C; for C = 0, it is infinite, or 0 if t = 0."""
    return t / C if C > 0 else math.copysign(math.inf, t) if t != 0 else 0.0


def exp(t: float) -> float:
    """Return the exponential, or infinity if it overflows."""
    return math.exp(t) if t <= LARGEST else math.inf


def log(t: float) -> float:
    return math.log(t) if t > 0 else -math.inf if t == 0 else math.nan


#: The losses by TensorFlow's names and similar ones, as functions of their parameter.
LOSSES: dict[str, Callable[[float], Loss]] = {
    "logistic_loss": lambda _: Logistic(),
    "squared_loss": lambda _: Quadratic(1.0),
    "hinge_loss": lambda _: Quadratic(0.0, low=0.0, high=1.0, of_classes=True),
    "smooth_hinge_loss": lambda gamma: Quadratic(gamma, low=0.0, high=1.0, of_classes=True),
    "squared_hinge_loss": lambda _: Quadratic(0.5, low=0.0, of_classes=True),
    "squared_epsilon_insensitive_loss": lambda epsilon: Quadratic(0.5, epsilon),
    "huber_loss": lambda epsilon: Quadratic(1.0, low=-epsilon, high=epsilon),
    "quantile_loss": lambda q: Quadratic(0.0, low=q - 1, high=q),
    "epsilon_insensitive_loss": lambda epsilon: Quadratic(0.0, epsilon, low=-1.0, high=1.0),
    "poisson_loss": lambda _: Tweedie(1.0),
    "gamma_loss": lambda _: Tweedie(2.0),
    "tweedie_loss": Tweedie,
}


def loss_named(name: str, parameter: float = 1.0) -> Loss:
    """Return a loss by its name; a loss without a parameter ignores `parameter`."""
    return LOSSES[name](parameter)
