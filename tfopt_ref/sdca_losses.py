"""The losses of SDCA: each one's value, derivatives, conjugate and step of a dual variable.

In the symbols of Shalev-Shwartz and Zhang: x are an example's features, y is its label (-1 or 1 for
the losses of classification), wx the prediction and a the dual variable; `conjugate` is
``phi*(-a)``. A `step` returns the a' that maximizes ::

    -phi*(-a') - (a' - a) * wx - K / 2 * (a' - a)**2,    K = sigma * weight * |x|**2 / l2
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

#: How often a bracket is halved: it may be wide, and a root near 0 has many digits.
HALVINGS = 200
LARGEST = 709.0  # whose exponential is finite

__all__ = ["LOSSES", "Loss", "loss_named"]


class Loss(Protocol):
    """What SDCA must know of a loss."""

    #: The strong convexity of the conjugate, or what stands for it in adaptive sampling.
    gamma: float
    #: The ends of the dual variable's interval, and what it is for an interval of wx.
    corners: tuple[float, ...]

    def value(self, wx: float, y: float) -> float:
        """phi(wx)"""

    def slope(self, wx: float, y: float) -> float:
        """phi'(wx)"""

    def bend(self, wx: float, y: float) -> float:
        """phi''(wx), 0 for a hinge that is not smooth"""

    def conjugate(self, a: float, y: float) -> float:
        """``phi*(-a)``, which is infinite where a cannot be"""

    def gap(self, a: float, y: float, wx: float) -> float:
        """``phi(wx) + phi*(-a) + a * wx``, which is not negative but for rounding

        At a = 0 it is phi(wx) above its least value.
        """

    def step(self, a: float, y: float, wx: float, K: float) -> float:
        """The new a."""


class Difference:
    """The gap of Fenchel and Young as it is defined."""

    def gap(self: Any, a: float, y: float, wx: float) -> float:
        return float(self.value(wx, y) + self.conjugate(a, y) + a * wx)


class Distance(Difference):
    """A loss of y - wx"""

    def without_offset(self, y: float, offset: float) -> tuple[float, float]:
        """Another label y' and a factor with phi(wx + offset; y) = factor * phi(wx; y')

        But for a constant; and a' is to be multiplied by the factor. A class has no such label.
        """
        return y - offset, 1.0


class Squared(Distance):
    """phi(wx) = (wx - y)**2 / 2"""

    gamma = 1.0
    corners: tuple[float, ...] = ()

    def value(self, wx: float, y: float) -> float:
        return (wx - y) * (wx - y) / 2

    def slope(self, wx: float, y: float) -> float:
        return wx - y

    def bend(self, wx: float, y: float) -> float:
        return 1.0

    def conjugate(self, a: float, y: float) -> float:
        return a * (a / 2 - y)

    def step(self, a: float, y: float, wx: float, K: float) -> float:
        return a + (y - a - wx) / (1 + K)


class Hinge(Difference):
    """phi(wx) = max(0, 1 - y * wx), its corner smoothed to a parabola as wide as gamma"""

    corners: tuple[float, ...] = (-1.0, 0.0, 1.0)

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma

    def value(self, wx: float, y: float) -> float:
        u = 1 - y * wx
        if u <= 0:
            return 0.0
        return u - self.gamma / 2 if u >= self.gamma else u * u / (2 * self.gamma)

    def slope(self, wx: float, y: float) -> float:
        u = 1 - y * wx
        if u <= 0:
            return 0.0
        return -y if u >= self.gamma else -y * u / self.gamma

    def bend(self, wx: float, y: float) -> float:
        return 1 / self.gamma if 0 < 1 - y * wx < self.gamma else 0.0

    def conjugate(self, a: float, y: float) -> float:
        b = y * a
        return -b + self.gamma * b * b / 2 if 0 <= b <= 1 else math.inf

    def step(self, a: float, y: float, wx: float, K: float) -> float:
        b = y * a
        g = 1 - y * wx - self.gamma * b
        curvature = K + self.gamma
        if g == 0:
            return a
        if curvature == 0:
            return y if g > 0 else 0.0
        return y * min(max(b + g / curvature, 0.0), 1.0)


class SquaredHinge(Difference):
    """phi(wx) = max(0, 1 - y * wx)**2"""

    gamma = 0.5
    corners: tuple[float, ...] = (0.0,)

    def value(self, wx: float, y: float) -> float:
        return max(0.0, 1 - y * wx) * max(0.0, 1 - y * wx)

    def slope(self, wx: float, y: float) -> float:
        return -2 * y * max(0.0, 1 - y * wx)

    def bend(self, wx: float, y: float) -> float:
        return 2.0 if 1 - y * wx > 0 else 0.0

    def conjugate(self, a: float, y: float) -> float:
        b = y * a
        return -b + b * b / 4 if b >= 0 else math.inf

    def step(self, a: float, y: float, wx: float, K: float) -> float:
        b = y * a
        return y * max(0.0, b + (1 - y * wx - b / 2) / (K + 0.5))


class SquaredInsensitive(Distance):
    """phi(wx) = max(0, |wx - y| - epsilon)**2"""

    gamma = 0.5
    corners: tuple[float, ...] = (0.0,)

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def value(self, wx: float, y: float) -> float:
        u = beyond(wx - y, self.epsilon)
        return u * u

    def slope(self, wx: float, y: float) -> float:
        return 2 * beyond(wx - y, self.epsilon)

    def bend(self, wx: float, y: float) -> float:
        return 2.0 if abs(wx - y) >= self.epsilon else 0.0

    def conjugate(self, a: float, y: float) -> float:
        return a * (a / 4 - y) + self.epsilon * abs(a)

    def step(self, a: float, y: float, wx: float, K: float) -> float:
        return beyond(y - wx + K * a, self.epsilon) / (K + 0.5)


class Huber(Distance):
    """phi(wx) = (wx - y)**2 / 2, and linear from |wx - y| = epsilon on"""

    gamma = 1.0

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon
        self.corners: tuple[float, ...] = (-epsilon, epsilon)

    def value(self, wx: float, y: float) -> float:
        r = abs(wx - y)
        return r * r / 2 if r <= self.epsilon else self.epsilon * (r - self.epsilon / 2)

    def slope(self, wx: float, y: float) -> float:
        return min(max(wx - y, -self.epsilon), self.epsilon)

    def bend(self, wx: float, y: float) -> float:
        return 1.0 if abs(wx - y) <= self.epsilon else 0.0

    def conjugate(self, a: float, y: float) -> float:
        return a * (a / 2 - y) if abs(a) <= self.epsilon else math.inf

    def step(self, a: float, y: float, wx: float, K: float) -> float:
        return min(max(a + (y - a - wx) / (1 + K), -self.epsilon), self.epsilon)


class Cornered(Distance):
    """phi(wx) = the largest of high * (r - epsilon), low * (r + epsilon) and 0, with r = y - wx"""

    gamma = 0.0

    def __init__(self, low: float, high: float, epsilon: float) -> None:
        self.low, self.high, self.epsilon = low, high, epsilon
        self.corners: tuple[float, ...] = (low, high)

    def value(self, wx: float, y: float) -> float:
        r = y - wx
        return max(self.high * (r - self.epsilon), self.low * (r + self.epsilon), 0.0)

    def slope(self, wx: float, y: float) -> float:
        r = y - wx
        return -self.high if r > self.epsilon else -self.low if r < -self.epsilon else 0.0

    def bend(self, wx: float, y: float) -> float:
        return 0.0

    def conjugate(self, a: float, y: float) -> float:
        return self.epsilon * abs(a) - a * y if self.low <= a <= self.high else math.inf

    def step(self, a: float, y: float, wx: float, K: float) -> float:
        """The best positive one, or the best negative one: at least one of them is 0."""
        r = y - wx
        if K == 0:
            return -self.slope(wx, y)
        positive = min(max(a + (r - self.epsilon) / K, 0.0), self.high)
        return positive + max(min(a + (r + self.epsilon) / K, 0.0), self.low)


class Quantile(Cornered):
    """phi(wx) = q * (y - wx) if that is positive, else (q - 1) * (y - wx)"""

    def __init__(self, q: float) -> None:
        super().__init__(q - 1, q, 0.0)


class Insensitive(Cornered):
    """phi(wx) = max(0, |wx - y| - epsilon)"""

    def __init__(self, epsilon: float) -> None:
        super().__init__(-1.0, 1.0, epsilon)
        self.corners = (-1.0, 0.0, 1.0)


class Logistic(Difference):
    """phi(wx) = log(1 + exp(-y * wx))"""

    gamma = 4.0
    corners: tuple[float, ...] = ()

    def value(self, wx: float, y: float) -> float:
        m = y * wx
        return math.log1p(math.exp(-abs(m))) + max(0.0, -m)

    def slope(self, wx: float, y: float) -> float:
        return -y * sigmoid(-y * wx)

    def bend(self, wx: float, y: float) -> float:
        return sigmoid(wx) * sigmoid(-wx)

    def conjugate(self, a: float, y: float) -> float:
        b = y * a
        if not 0 <= b <= 1:
            return math.inf
        return (b * math.log(b) if b > 0 else 0.0) + ((1 - b) * math.log1p(-b) if b < 1 else 0.0)

    def step(self, a: float, y: float, wx: float, K: float) -> float:
        """With a' = y * sigmoid(t): t is the root of h(t) = t + m + K * (sigmoid(t) - b).

        h increases, and a bracket of its root is halved until it is no wider than rounding.
        """
        b, m = y * a, y * wx
        low, high = -m - K * (1 - b), -m + K * b
        for _ in range(HALVINGS):
            t = low + (high - low) / 2
            if t + m + K * (sigmoid(t) - b) > 0:
                high = t
            else:
                low = t
        return y * sigmoid(high)


class Poisson:
    """phi(wx) = exp(wx) - y * wx"""

    gamma = 1.0
    corners: tuple[float, ...] = ()

    def value(self, wx: float, y: float) -> float:
        return exp(wx) - y * wx

    def slope(self, wx: float, y: float) -> float:
        return exp(wx) - y

    def bend(self, wx: float, y: float) -> float:
        return exp(wx)

    def conjugate(self, a: float, y: float) -> float:
        r = y - a
        if r <= 0:
            return 0.0 if r == 0 else math.inf
        return r * (math.log(r) - 1)

    def gap(self, a: float, y: float, wx: float) -> float:
        """With r = y - a and t = wx - log(r): r * (exp(t) - 1 - t), for of large counts nothing is
        left of differences but rounding."""
        r = y - a
        if r <= 0:
            return exp(wx) if r == 0 else math.inf
        t = wx - math.log(r)
        return exp(wx) - r * (1 + t) if t > 1 else r * (math.expm1(t) - t)

    def step(self, a: float, y: float, wx: float, K: float) -> float:
        """With a' = y - exp(x): x + K * exp(x) = z, z = wx + K * (y - a)."""
        x = logarithm(K, wx + K * (y - a))
        return y - math.exp(min(x, LARGEST))

    def without_offset(self, y: float, offset: float) -> tuple[float, float]:
        return y / math.exp(offset), math.exp(offset)


class Gamma:
    """phi(wx) = y * exp(-wx) + wx - 1 - log(y), at least 0: half the unit deviance

    At the distance s = log(y) - wx it is exp(s) - 1 - s, a Poisson loss of one count.
    """

    gamma = 1.0
    corners: tuple[float, ...] = ()

    def value(self, wx: float, y: float) -> float:
        return self.gap(0.0, y, wx)

    def slope(self, wx: float, y: float) -> float:
        s = math.log(y) - wx
        return -math.expm1(s) if s < 1 else 1 - exp(s)

    def bend(self, wx: float, y: float) -> float:
        return exp(math.log(y) - wx)

    def conjugate(self, a: float, y: float) -> float:
        b = 1 + a
        if b < 0:
            return math.inf
        return (b * math.log(b) if b > 0 else 0.0) - a * (1 + math.log(y))

    def gap(self, a: float, y: float, wx: float) -> float:
        return Poisson().gap(-a, 1.0, math.log(y) - wx)

    def step(self, a: float, y: float, wx: float, K: float) -> float:
        """With a' = exp(x) - 1: x + K * exp(x) = z, z = log(y) - wx + K * (1 + a)."""
        x = logarithm(K, math.log(y) - wx + K * (1 + a))
        return math.exp(min(x, LARGEST)) - 1

    def without_offset(self, y: float, offset: float) -> tuple[float, float]:
        return y / math.exp(offset), 1.0


class Tweedie:
    """phi(wx) = y * exp(-m * wx) / m + exp(k * wx) / k above its least value, k = 2 - p, m = p - 1

    Half the unit deviance of a Tweedie distribution of the power p, which is between 1 and 2.
    """

    gamma = 1.0
    corners: tuple[float, ...] = ()

    def __init__(self, power: float) -> None:
        self.k, self.m = 2 - power, power - 1

    def value(self, wx: float, y: float) -> float:
        return self.gap(0.0, y, wx)

    def slope(self, wx: float, y: float) -> float:
        t = math.log(y) - wx if y > 0 else -math.inf
        if abs(t) < 1:  # without cancellation
            return -exp(self.k * wx) * math.expm1(t)
        return exp(self.k * wx) - y * exp(-self.m * wx)

    def bend(self, wx: float, y: float) -> float:
        return self.k * exp(self.k * wx) + self.m * y * exp(-self.m * wx)

    def conjugate(self, a: float, y: float) -> float:
        if y == 0:
            return Poisson().conjugate(a, 0.0) / self.k
        z = self.root(0.0, -a, y)
        return -a * z - self.value(z, y)

    def gap(self, a: float, y: float, wx: float) -> float:
        """phi(wx) above its tangent with the slope -a, which touches it at z

        Of exp(t) that is exp(t) * (exp(d) - 1 - d), at the distance d.
        """
        if y == 0:
            return Poisson().gap(a, 0.0, self.k * wx) / self.k
        z = math.log(y) if a == 0 else self.root(0.0, -a, y)
        rises, falls = self.k * (wx - z), -self.m * (wx - z)
        parts = (
            Poisson().gap(-exp(self.k * z), 0.0, self.k * z + rises) / self.k,
            y * Poisson().gap(-exp(-self.m * z), 0.0, -self.m * z + falls) / self.m,
        )
        return sum(parts)

    def step(self, a: float, y: float, wx: float, K: float) -> float:
        """With a' = -phi'(z): z + K * phi'(z) = wx - K * a."""
        if y == 0:
            return Poisson().step(a, 0.0, self.k * wx, self.k * K)
        z = self.root(1.0, wx - K * a, y, K)
        return -self.slope(z, y)

    def root(self, share: float, level: float, y: float, K: float = 1.0) -> float:
        """Return the z where share * z + K * phi'(z), which increases, is level."""
        low, high = -1.0, 1.0
        while share * low + K * self.slope(low, y) > level:
            low *= 2
        while share * high + K * self.slope(high, y) < level:
            high *= 2
        for _ in range(HALVINGS):
            z = low + (high - low) / 2
            low, high = (low, z) if share * z + K * self.slope(z, y) > level else (z, high)
        return high

    def without_offset(self, y: float, offset: float) -> tuple[float, float]:
        return y / math.exp(offset), math.exp(self.k * offset)


def logarithm(K: float, z: float) -> float:
    """Return the root of x + K * exp(x) = z, which increases, by halving a bracket."""
    low, high = min(z, 0.0) - K * math.exp(min(z, 0.0)), z
    for _ in range(HALVINGS):
        x = low + (high - low) / 2
        if x + K * math.exp(min(x, LARGEST)) > z:
            high = x
        else:
            low = x
    return high


def beyond(t: float, epsilon: float) -> float:
    """Return sign(t) * max(|t| - epsilon, 0)."""
    return t - max(min(t, epsilon), -epsilon)


def sigmoid(t: float) -> float:
    """Return 1 / (1 + exp(-t)), whose exponential may not overflow."""
    e = math.exp(-abs(t))
    return (1 if t >= 0 else e) / (1 + e)


def exp(t: float) -> float:
    return math.exp(t) if t < 709.78 else math.inf


#: By TensorFlow's names, and others like them; a parameter is 1, as TensorFlow's is, if it can be.
LOSSES: dict[str, Loss] = {
    "logistic_loss": Logistic(),
    "squared_loss": Squared(),
    "hinge_loss": Hinge(gamma=0.0),
    "smooth_hinge_loss": Hinge(gamma=1.0),
    "poisson_loss": Poisson(),
    "squared_hinge_loss": SquaredHinge(),
    "squared_epsilon_insensitive_loss": SquaredInsensitive(epsilon=1.0),
    "huber_loss": Huber(epsilon=1.0),
    "quantile_loss": Quantile(q=1.0),
    "epsilon_insensitive_loss": Insensitive(epsilon=1.0),
    "gamma_loss": Gamma(),
    "tweedie_loss": Tweedie(power=1.5),
}
#: The losses with a parameter.
PARAMETRIC: dict[str, Callable[[float], Loss]] = {
    "smooth_hinge_loss": Hinge,
    "squared_epsilon_insensitive_loss": SquaredInsensitive,
    "huber_loss": Huber,
    "quantile_loss": Quantile,
    "epsilon_insensitive_loss": Insensitive,
    "tweedie_loss": Tweedie,
}


def loss_named(loss: str, parameter: float) -> Loss:
    """Return a loss by its name; one without a parameter ignores it."""
    return PARAMETRIC[loss](parameter) if loss in PARAMETRIC else LOSSES[loss]
