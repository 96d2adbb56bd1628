"""
A path of penalties, and cross-validation
=========================================

With a strong l1 penalty all weights are 0. As the penalty decreases, features enter the model one
after another. Cross-validation selects the penalty.
"""

import matplotlib.pyplot as plt
import numpy as np

from tfopt.linear_model import LinearRegressorCV, sdca_path

random = np.random.default_rng(0)
X = random.standard_normal((120, 30))
truth = np.concatenate([[3.0, -2.0, 1.5, 1.0, -0.5], np.zeros(25)])
y = X @ truth + 2 * random.standard_normal(120)
l1s = np.logspace(2.7, 0, 40)

path = sdca_path(X, y, "squared", l1s=l1s, l2=0.0)
search = LinearRegressorCV("squared", l1s=l1s, l2=0.0, cv=5).fit(X, y)

figure, (top, bottom) = plt.subplots(2, 1, figsize=(7, 6), sharex=True, layout="constrained")
for k, weights in enumerate(path.coefs[:, 0].T):
    top.semilogx(path.l1s, weights, color=f"C{k}" if k < 5 else "0.8", zorder=2 if k < 5 else 1)
top.set_ylabel("weight (gray: 0 in truth)")
scores = np.mean(search.scores_, axis=0)
bottom.semilogx(search.l1s_, scores, ".-")
bottom.set(xlabel="l1", ylabel="mean score of 5 folds")
for axis in (top, bottom):
    axis.axvline(search.l1_, color="k", linestyle=":", label=f"chosen: {search.l1_:.1f}")
bottom.legend()
bottom.invert_xaxis()
plt.show()
