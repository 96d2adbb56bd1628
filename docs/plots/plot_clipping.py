"""
Clipping the gradients of outliers
==================================

A few batches of a regression have an outlier of 1000 times the usual error. Without clipping, one
of them moves the weights far away; ``global_clipnorm`` limits the length of each step.
"""

import matplotlib.pyplot as plt
import numpy as np

from tfopt.optimizers import SGD

X = np.random.default_rng(0).standard_normal((300, 32, 5))
TRUTH = np.arange(5.0)


def distances(**clipping):
    """Return the distance from the true weights, and the norm of the gradient, for each step."""
    w, optimizer, found = np.zeros(5), SGD(0.03, **clipping), []
    optimizer.observe = True
    for t, batch in enumerate(X):
        error = batch @ (w - TRUTH)
        if t % 100 == 60:
            error[0] += 1000  # a wrong label
        optimizer.step(w, 2 * batch.T @ error / len(batch))
        found.append((np.linalg.norm(w - TRUTH), optimizer.last_step.gradient_norm))
    return np.transpose(found)


figure, (top, bottom) = plt.subplots(2, 1, figsize=(7, 5), sharex=True, layout="constrained")
for name, arguments in {
    "none": {},
    "global_clipnorm=5": {"global_clipnorm": 5.0},
    "clipvalue=2": {"clipvalue": 2.0},
}.items():
    distance, norm = distances(**arguments)
    top.semilogy(norm, label=name)
    bottom.plot(distance, label=name)
top.set_ylabel("norm of the gradient")
bottom.set(ylabel="distance from the truth", xlabel="step")
bottom.legend()
plt.show()
