"""
Optimizers on the Rosenbrock function
=====================================

The Rosenbrock function has a curved valley whose floor is nearly flat. Gradient descent oscillates
across the valley or makes little progress along it; momentum, and rules that scale each coordinate,
follow the valley.
"""

import matplotlib.pyplot as plt
import numpy as np

from tfopt.optimizers import SGD, Adam, Adamax, Lion

OPTIMIZERS = {
    "SGD": SGD(1e-3),
    "SGD, momentum 0.9": SGD(4e-4, momentum=0.9),
    "Adam": Adam(0.1),
    "Adamax": Adamax(0.15),
    "Lion": Lion(0.02),
}


def gradient(w):
    """Return the gradient of (1 - x)**2 + 100 * (y - x**2)**2."""
    x, y = w
    return np.array([-2 * (1 - x) - 400 * x * (y - x**2), 200 * (y - x**2)])


x, y = np.meshgrid(np.linspace(-1.8, 1.6, 300), np.linspace(-0.8, 2.4, 300))
figure, axis = plt.subplots(figsize=(7, 5), layout="constrained")
height = np.log10((1 - x) ** 2 + 100 * (y - x**2) ** 2 + 1e-3)
axis.contourf(x, y, height, 30, cmap="Greys_r", alpha=0.7)
for name, optimizer in OPTIMIZERS.items():
    w = np.array([-0.9, 2.2])
    path = [w.copy()]
    for _ in range(400):
        optimizer.step(w, gradient(w))
        path.append(w.copy())
    axis.plot(*np.transpose(path), label=name, linewidth=1.6)
axis.plot(1, 1, "r*", markersize=14, label="minimum")
axis.set(title="400 steps", xlabel="x", ylabel="y", xlim=(-1.8, 1.6), ylim=(-0.8, 2.4))
axis.legend(fontsize=8, loc="lower left")
plt.show()
