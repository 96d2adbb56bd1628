"""
Coordinate ascent in partitions
===============================

Dual coordinate ascent can visit partitions of the rows in parallel; a round ends by adding up
their changes. The fit approaches the same minimum, with the same kind of certificate; only the
number of rounds grows with the number of partitions.
"""

import matplotlib.pyplot as plt
import numpy as np

from tfopt.linear_model import LinearClassifier

random = np.random.default_rng(0)
X = random.standard_normal((4000, 20))
y = X @ random.standard_normal(20) + 2 * random.standard_normal(4000) > 0

figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
for partitions in (1, 2, 4, 8):
    model = LinearClassifier(l2=20.0, solver="sdca", tol=1e-6, num_loss_partitions=partitions)
    model.fit(X, y)
    gaps = [record["gap"] for record in model.history_[0]]
    axis.semilogy(range(1, len(gaps) + 1), gaps, ".-", label=f"partitions: {partitions}")
axis.set(xlabel="round", ylabel="duality gap")
axis.legend()
plt.show()
