"""Cosine schedules."""

from __future__ import annotations

import math
from typing import Any

from tfopt.errors import InvalidArgumentError
from tfopt.imports import imported
from tfopt.optimizers.schedules.schedule import Formula, Number, power
from tfopt.optimizers.settings import Setting, not_negative, optional, whole

__all__ = ["CosineDecay", "CosineDecayRestarts", "LinearCosineDecay", "NoisyLinearCosineDecay"]


def _wave(x: float) -> float:
    """Return half a period of a cosine, falling from 1 at x = 0 to 0 at x = 1."""
    return 0.5 * (1 + math.cos(math.pi * x))


class CosineDecay(Formula):
    """Cosine decay: half a period of a cosine, within `decay_steps` steps.

    The rate at step s is ``initial_learning_rate * ((1 - alpha) * c + alpha)``, where ``c =
    (1 + cos(pi * min(s, decay_steps) / decay_steps)) / 2``.

    Parameters
    ----------
    initial_learning_rate : float
    decay_steps : float
        Greater than 0.
    alpha : float, default 0.0
        The last learning rate as a fraction of the first.
    name : str, optional
        Ignored.
    warmup_target : float, optional
        The rate reached by a linear warm-up from `initial_learning_rate` in `warmup_steps` steps,
        at which the cosine begins.
    warmup_steps : float, default 0
        Requires `warmup_target`.

    Notes
    -----
    The TensorFlow class of the same name, with Keras 3's warm-up. For a warm-up before any other
    schedule see `LinearWarmup`.

    References
    ----------
    Loshchilov, Hutter: SGDR: Stochastic Gradient Descent with Warm Restarts, ICLR 2017.

    Examples
    --------
    >>> from tfopt.optimizers.schedules import CosineDecay
    >>> schedule = CosineDecay(0.1, 10, alpha=0.1)
    >>> [round(schedule(s), 4) for s in (0, 5, 10, 1000)]
    [0.1, 0.055, 0.01, 0.01]
    """

    initial_learning_rate = Number()
    decay_steps = Number(above=True)
    alpha = Number()
    warmup_steps = Number()
    warmup_target = Setting(optional(not_negative), default=None)

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: float,
        alpha: float = 0.0,
        name: str | None = None,
        warmup_target: float | None = None,
        warmup_steps: float = 0,
    ) -> None:
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = decay_steps
        self.alpha = alpha
        self.name = name
        self.warmup_target = warmup_target
        self.warmup_steps = warmup_steps

    def _check_settings(self) -> None:
        if self.warmup_target is None and vars(self).get("warmup_steps"):
            raise InvalidArgumentError("warmup_steps have no effect without a warmup_target")

    def _rate(self, s: float) -> float:
        first: float = self.initial_learning_rate
        target: float | None = self.warmup_target
        if target is None:
            target = first
        elif s < self.warmup_steps:
            return first + (target - first) * (s / self.warmup_steps)
        else:
            s -= self.warmup_steps
        c = _wave(min(s, self.decay_steps) / self.decay_steps)
        return target * ((1 - self.alpha) * c + self.alpha)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make a schedule like this one."""
        config = super().get_config()
        if self.warmup_target is None:
            del config["warmup_target"], config["warmup_steps"]
        return config


class CosineDecayRestarts(Formula):
    """Cosine decay with warm restarts.

    Period i lasts ``first_decay_steps * t_mul ** i`` steps. Within it the rate is
    ``initial_learning_rate * ((1 - alpha) * m_mul ** i * c + alpha)``, where c falls from 1 to 0
    as in `CosineDecay`.

    Parameters
    ----------
    initial_learning_rate : float
    first_decay_steps : float
        The length of the first period, greater than 0.
    t_mul : float, default 2.0
        Ratio of the lengths of successive periods, greater than 0. If it is less than 1, the
        periods end at step ``first_decay_steps / (1 - t_mul)``, and the learning rate is undefined
        from then on.
    m_mul : float, default 1.0
        Ratio of the initial rates of successive periods.
    alpha : float, default 0.0
        The lowest learning rate as a fraction of the first.
    name : str, optional
        Ignored.

    Notes
    -----
    The TensorFlow class of the same name. A step at which a period begins belongs to that period;
    in TensorFlow, which computes the period from a rounded logarithm, sometimes to the previous
    one.

    References
    ----------
    Loshchilov, Hutter: SGDR: Stochastic Gradient Descent with Warm Restarts, ICLR 2017.

    Examples
    --------
    >>> from tfopt.optimizers.schedules import CosineDecayRestarts
    >>> schedule = CosineDecayRestarts(0.1, 10, m_mul=0.5)
    >>> [round(schedule(s), 4) for s in (0, 5, 9, 10, 20, 29, 30)]
    [0.1, 0.05, 0.0024, 0.05, 0.025, 0.0003, 0.025]
    """

    initial_learning_rate = Number()
    first_decay_steps = Number(above=True)
    t_mul = Number(above=True)
    m_mul = Number()
    alpha = Number()

    def __init__(
        self,
        initial_learning_rate: float,
        first_decay_steps: float,
        t_mul: float = 2.0,
        m_mul: float = 1.0,
        alpha: float = 0.0,
        name: str | None = None,
    ) -> None:
        self.initial_learning_rate = initial_learning_rate
        self.first_decay_steps = first_decay_steps
        self.t_mul = t_mul
        self.m_mul = m_mul
        self.alpha = alpha
        self.name = name

    def _rate(self, s: float) -> float:
        i, f = self._period(s / self.first_decay_steps)
        c = power(self.m_mul, i) * _wave(f)
        return self.initial_learning_rate * ((1 - self.alpha) * c + self.alpha)

    def _period(self, f: float) -> tuple[int, float]:
        """Return the number of a period and its completed fraction, after f first periods."""
        t = self.t_mul
        if t == 1:
            i = math.floor(f)
            return i, f - i

        def start(i: int) -> float:
            return (1 - power(t, i)) / (1 - t)

        i = math.floor(math.log(1 - f * (1 - t)) / math.log(t))
        if f >= start(i + 1):  # rounding moved the quotient across the border
            i += 1
        elif f < start(i):
            i -= 1
        return i, (f - start(i)) / power(t, i)


class LinearCosineDecay(Formula):
    """Linear cosine decay: the product of a falling line and a cosine.

    The rate at step s is ``initial_learning_rate * ((alpha + 1 - p) * c + beta)``, where ``p =
    min(s, decay_steps) / decay_steps`` and ``c = (1 + cos(pi * 2 * num_periods * p)) / 2``.

    Parameters
    ----------
    initial_learning_rate : float
    decay_steps : float
        Greater than 0.
    num_periods : float, default 0.5
        How many periods of the cosine there are.
    alpha : float, default 0.0
        Added to the line.
    beta : float, default 0.001
        Added to the product, a fraction of `initial_learning_rate`.
    name : str, optional
        Ignored.

    Notes
    -----
    The TensorFlow class of the same name.

    References
    ----------
    Bello et al.: Neural Optimizer Search with Reinforcement Learning, ICML 2017.

    Examples
    --------
    >>> from tfopt.optimizers.schedules import LinearCosineDecay
    >>> schedule = LinearCosineDecay(0.1, 10)
    >>> [round(schedule(s), 4) for s in (0, 5, 10, 1000)]
    [0.1001, 0.0251, 0.0001, 0.0001]
    """

    initial_learning_rate = Number()
    decay_steps = Number(above=True)
    num_periods = Number()
    alpha = Number()
    beta = Number()

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: float,
        num_periods: float = 0.5,
        alpha: float = 0.0,
        beta: float = 0.001,
        name: str | None = None,
    ) -> None:
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = decay_steps
        self.num_periods = num_periods
        self.alpha = alpha
        self.beta = beta
        self.name = name

    def _rate(self, s: float) -> float:
        d, noise = self.decay_steps, self._noise(s)
        s = min(s, d)
        line = (d - s) / d + noise
        c = _wave(2 * self.num_periods * (s / d))
        return self.initial_learning_rate * ((self.alpha + line) * c + self.beta)

    def _noise(self, s: float) -> float:
        return 0.0


class NoisyLinearCosineDecay(LinearCosineDecay):
    """`LinearCosineDecay` with noise that decreases with the step.

    The rate at step s is ``initial_learning_rate * ((alpha + 1 - p + e) * c + beta)``, with p and c
    as in `LinearCosineDecay` and a normally distributed e of variance
    ``initial_variance / (1 + min(s, decay_steps)) ** variance_decay``.

    Parameters
    ----------
    initial_learning_rate : float
    decay_steps : float
        Greater than 0.
    initial_variance : float, default 1.0
    variance_decay : float, default 0.55
    num_periods : float, default 0.5
        How many periods of the cosine there are.
    alpha : float, default 0.0
        Added to the line.
    beta : float, default 0.001
        Added to the product, a fraction of `initial_learning_rate`.
    name : str, optional
        Ignored.
    seed : int, default 0
        At least 0. An addition to TensorFlow's arguments.

    Notes
    -----
    The TensorFlow class of the same name, except for the noise: TensorFlow draws it at each call;
    here it is determined by `seed` and the step, so resumed training continues as it would have
    without the interruption. At step s, e is its standard deviation times
    ``np.random.default_rng((seed, s)).standard_normal()``. With strong noise a rate can be
    negative, as in TensorFlow.

    References
    ----------
    Bello et al.: Neural Optimizer Search with Reinforcement Learning, ICML 2017.

    Examples
    --------
    >>> from tfopt.optimizers.schedules import NoisyLinearCosineDecay
    >>> schedule = NoisyLinearCosineDecay(0.1, 10, initial_variance=0.01, seed=1)
    >>> schedule(3) == schedule(3)
    True
    >>> NoisyLinearCosineDecay(0.1, 10, initial_variance=0)(5)
    0.0251
    """

    initial_variance = Number()
    variance_decay = Number()
    seed = Setting(whole(0))

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: float,
        initial_variance: float = 1.0,
        variance_decay: float = 0.55,
        num_periods: float = 0.5,
        alpha: float = 0.0,
        beta: float = 0.001,
        name: str | None = None,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(initial_learning_rate, decay_steps, num_periods, alpha, beta, name)
        self.initial_variance = initial_variance
        self.variance_decay = variance_decay
        self.seed = seed

    def _noise(self, s: float) -> float:
        # the seed must be a non-negative integer; steps in between share a whole step's noise
        draw: float = (
            imported("numpy.random").default_rng((self.seed, int(abs(s)))).standard_normal()
        )
        steps = min(s, self.decay_steps)
        return math.sqrt(self.initial_variance / power(1 + steps, self.variance_decay)) * draw
