"""
Learning rates over time
========================

A schedule is a function of the step count. It can be passed as the first argument of any optimizer.
"""

import matplotlib.pyplot as plt

from tfopt.optimizers.schedules import (
    CosineDecay,
    CosineDecayRestarts,
    ExponentialDecay,
    LinearWarmup,
    PiecewiseConstantDecay,
    PolynomialDecay,
)

SCHEDULES = {
    "warm-up, then cosine": LinearWarmup(CosineDecay(1.0, 900), 100),
    "cosine with restarts": CosineDecayRestarts(1.0, 250, t_mul=2.0, m_mul=0.7),
    "exponential": ExponentialDecay(1.0, 300, 0.5),
    "exponential, staircase": ExponentialDecay(1.0, 200, 0.5, staircase=True),
    "piecewise constant": PiecewiseConstantDecay([300, 700], [1.0, 0.3, 0.1]),
    "polynomial": PolynomialDecay(1.0, 1000, end_learning_rate=0.0, power=2.0),
}

figure, axes = plt.subplots(2, 3, figsize=(9, 4.5), sharex=True, sharey=True, layout="constrained")
for axis, (name, schedule) in zip(axes.flat, SCHEDULES.items(), strict=True):
    axis.plot([float(schedule(t)) for t in range(1000)])
    axis.set_title(name, fontsize=10)
for axis in axes[1]:
    axis.set_xlabel("step")
for axis in axes[:, 0]:
    axis.set_ylabel("learning rate")
plt.show()
