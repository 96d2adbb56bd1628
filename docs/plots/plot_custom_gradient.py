"""
A custom gradient
=================

The gradient of ``round`` is 0 almost everywhere, which is of no use for training. A custom gradient
passes the upstream gradient through as if nothing had been rounded (a straight-through estimator),
so that an optimizer can train weights on a grid.
"""

import matplotlib.pyplot as plt
import numpy as np

import tfopt
from tfopt.optimizers import Adam


@tfopt.custom_gradient
def on_grid(x):
    """Round to quarters; the gradient passes."""
    return np.round(4 * x) / 4, lambda upstream: upstream


random = np.random.default_rng(0)
X = random.standard_normal((200, 6))
truth = np.array([1.5, -0.75, 0.25, 0.0, -1.25, 0.5])
y = X @ truth

w, optimizer = tfopt.Variable(np.zeros(6)), Adam(0.05)
hidden, visible = [], []
for _ in range(120):
    with tfopt.GradientTape() as tape:
        loss = np.mean((X @ on_grid(w) - y) ** 2)
    optimizer.minimize(loss, [w], tape=tape)
    hidden.append(w.numpy().copy())
    visible.append(on_grid(w).numpy())

figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
for k in range(6):
    axis.plot(np.array(hidden)[:, k], f"C{k}", alpha=0.4)
    axis.step(range(120), np.array(visible)[:, k], f"C{k}")
axis.set(xlabel="step", ylabel="weight", title="Hidden weights, and those on the grid")
axis.grid(axis="y", alpha=0.3)
plt.show()
