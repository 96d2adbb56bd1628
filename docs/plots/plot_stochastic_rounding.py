"""
Steps that bfloat16 loses
=========================

Neighbouring bfloat16 numbers near 1 differ by 1/128 or 1/256. Steps of less than half of that are
lost by rounding to the nearest. Stochastic rounding rounds up or down at random, so that steps have
the right mean.
"""

import matplotlib.pyplot as plt
import ml_dtypes
import numpy as np

from tfopt.optimizers import SGD


def means(dtype, **arguments):
    """Return the mean of 1000 weights after each of 200 equal steps."""
    w, optimizer, found = np.ones(1000, dtype), SGD(2.0**-11, **arguments), []
    for _ in range(200):
        optimizer.step(w, np.ones_like(w))
        found.append(w.astype(np.float32).mean())
    return found


figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
axis.plot(means(np.float32), "0.75", linewidth=5, label="float32")
axis.plot(means(ml_dtypes.bfloat16), "C3", label="bfloat16, rounded to nearest")
axis.plot(means(ml_dtypes.bfloat16, stochastic_rounding=0), "C0", label="bfloat16, stochastic")
axis.set(xlabel="step", ylabel="mean weight")
axis.legend()
plt.show()
