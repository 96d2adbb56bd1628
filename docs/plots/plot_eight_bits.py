"""
Adam's slots in 8 and 4 bits
============================

``storage="8bit"`` keeps Adam's two means in a quarter of the bytes. The loss of a regression
follows that of float32 so closely that the curves are hard to tell apart.
"""

import matplotlib.pyplot as plt
import numpy as np

from tfopt.optimizers import Adam

random = np.random.default_rng(0)
X = random.standard_normal((256, 64), np.float32)
Y = np.tanh(X @ random.standard_normal((64, 64), np.float32) / 8)
FIRST = random.standard_normal((64, 64), np.float32) / 8


def losses(storage):
    """Return the losses, and the bytes of the slots."""
    w, optimizer, found = FIRST.copy(), Adam(0.003, storage=storage), []
    for _ in range(200):
        predicted = np.tanh(X @ w)
        error = predicted - Y
        found.append(np.mean(error**2))
        optimizer.step(w, X.T @ (error * (1 - predicted**2)) * np.float32(2 / Y.size))
    slots = [optimizer.get_slot(w, name) for name in ("m", "v")]
    return found, sum(slot.numpy().nbytes for slot in slots)


figure, (left, right) = plt.subplots(
    1, 2, figsize=(8, 3.6), width_ratios=[2, 1], layout="constrained"
)
for color, storage in zip(("k", "C0", "C1"), (None, "8bit", "4bit"), strict=True):
    curve, size = losses(storage)
    name = storage or "float32"
    left.semilogy(curve, color, linestyle="-" if storage is None else "--", label=name)
    right.bar(name, size / 1024, color=color)
left.set(xlabel="step", ylabel="mean squared error")
left.legend()
right.set_ylabel("KiB of slots")
plt.show()
