"""
Averaging instead of decaying
=============================

With a constant learning rate and noisy gradients, SGD fluctuates around the minimum. With a
decaying rate it converges, but the number of steps has to be known in advance. Averages of the
weights converge without this.
"""

import matplotlib.pyplot as plt
import numpy as np

from tfopt.optimizers import SGD, ScheduleFreeSGD, WeightAverage, schedules

STEPS = 600
CURVATURE = np.array([1.0, 0.3])


def distances(optimizer):
    """Return the distance from the minimum, of 200 runs; of averages, where there are any."""
    w, random, found = np.full((200, 2), 4.0), np.random.default_rng(0), []
    for _ in range(STEPS):
        optimizer.step(w, CURVATURE * w + random.normal(0, 1, w.shape))
        if hasattr(optimizer, "averaged"):
            with optimizer.averaged():
                found.append(np.sqrt(np.mean(w**2)))
        else:
            found.append(np.sqrt(np.mean(w**2)))
    return found


figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
for name, optimizer in {
    "SGD, constant": SGD(0.3),
    "SGD, cosine": SGD(schedules.CosineDecay(0.3, STEPS)),
    "SGD, average of weights": WeightAverage(SGD(0.3), momentum=0.98),
    "Schedule-Free SGD": ScheduleFreeSGD(0.3),
}.items():
    axis.semilogy(distances(optimizer), label=name, linewidth=1.2)
axis.set(xlabel="step", ylabel="distance from the minimum")
axis.legend()
plt.show()
