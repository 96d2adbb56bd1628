"""
Three meanings of a sparse Adam step
====================================

One row of a table has a gradient in steps 1 to 5 and in step 40. In between, TensorFlow's step
goes on moving the row by its momentum, the lazy step leaves it alone, and ``"catch_up"`` takes the
missed steps when the row is needed: the row ends where TensorFlow's does, without being touched in
between.
"""

import matplotlib.pyplot as plt
import numpy as np

from tfopt import IndexedSlices
from tfopt.optimizers import Adam

STEPS = 60


def path(mode):
    """Return the weight of row 0 after each step."""
    table, optimizer, found = np.zeros((2, 1)), Adam(0.1, sparse=mode), [0.0]
    for t in range(1, STEPS):
        row = 0 if t <= 5 or t == 40 else 1
        optimizer.step(table, IndexedSlices(np.ones((1, 1)), np.array([row])))
        found.append(table[0, 0])
    optimizer.flush()
    found.append(table[0, 0])
    return found


figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
for mode, style in {"tensorflow": "k-", "lazy": "C3-", "catch_up": "C0.-"}.items():
    axis.plot(path(mode), style, label=f'sparse="{mode}"', linewidth=1.5, markersize=4)
axis.axvspan(5, 40, color="0.93", label="no gradient for this row")
axis.set(xlabel="step", ylabel="weight", title="A row without a gradient from step 6 to 39")
axis.legend()
plt.show()
