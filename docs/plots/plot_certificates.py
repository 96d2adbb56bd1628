"""
Duality gaps of three solvers
=============================

The minimum of the objective lies between ``objective_ - dual_gap_`` and ``objective_``. The
duality gap bounds the distance from the minimum, for every solver and in every iteration.
"""

import matplotlib.pyplot as plt
import numpy as np

from tfopt.linear_model import LinearClassifier

random = np.random.default_rng(0)
X = random.standard_normal((2000, 50)) * np.logspace(0, -1, 50)
y = X @ random.standard_normal(50) + random.standard_normal(2000) > 0

figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
for solver in ("sdca", "newton-cg", "newton-cholesky"):
    model = LinearClassifier(l2=1.0, solver=solver, tol=1e-10).fit(X, y)
    records = model.history_[0]
    gaps = [record["gap"] for record in records]
    (line,) = axis.semilogy(range(1, len(gaps) + 1), gaps, linewidth=1, label=solver)
    certified = [(r["iteration"], r["gap"]) for r in records if r["certified"]]
    axis.semilogy(*np.transpose(certified), "o", color=line.get_color())
axis.axhline(1e-4, color="0.6", linestyle=":", label="the default tol")
axis.set(xlabel="iteration", ylabel="gap, relative (dots: certified)", title="To the minimum")
axis.legend()
plt.show()
