"""
Resuming an interrupted run
===========================

The parameters and the states of the optimizer and of the random generator are all that has to be
saved. The weights of the resumed run have the same bits as those of an uninterrupted one.
"""

import copy

import matplotlib.pyplot as plt
import numpy as np

from tfopt.optimizers import Adam
from tfopt.optimizers.schedules import CosineDecay

TRUTH = np.linspace(-1, 1, 50)


def run(params, optimizer, random, steps):
    """Take steps, and return the losses."""
    losses = []
    for _ in range(steps):
        X = random.standard_normal((16, 50))
        error = X @ (params["w"] - TRUTH) + 0.1 * random.standard_normal(16)
        losses.append(np.mean(error**2))
        optimizer.step(params, {"w": 2 * X.T @ error / 16})
    return losses


params, optimizer = {"w": np.zeros(50)}, Adam(CosineDecay(0.1, 200))
random = np.random.default_rng(0)
first = run(params, optimizer, random, 100)
saved = {
    "weights": {name: array.copy() for name, array in params.items()},
    "optimizer": copy.deepcopy(optimizer.state_dict(params)),
    "random": random.bit_generator.state,
}
rest = run(params, optimizer, random, 100)

# In another process, later:
again, other, generator = saved["weights"], Adam(), np.random.default_rng()
other.load_state_dict(saved["optimizer"], again)
generator.bit_generator.state = saved["random"]
resumed = run(again, other, generator, 100)
assert again["w"].tobytes() == params["w"].tobytes()

figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
axis.semilogy(range(200), first + rest, "0.75", linewidth=4, label="without interruption")
axis.semilogy(range(100), first, "C0", linewidth=1.2, label="until the interruption")
axis.semilogy(range(100, 200), resumed, "C3", linewidth=1.2, label="resumed")
axis.axvline(100, color="k", linestyle=":")
axis.set(xlabel="step", ylabel="loss of a batch")
axis.legend()
plt.show()
