"""The specification of tfopt's results, in NumPy expressions and plain loops.

For valid arguments the results are the same, bit for bit, but they take longer. The package imports
nothing from tfopt. These modules define a step of training; reading them takes an afternoon:

1. `arithmetic`: operations on denormal numbers and on numbers of 16 bits.
2. `training_op`: the parts of a rule.
3. `training_ops`: the rules, each with its equation. `reductions`: the sums that some of them need.
4. `update`: a rule applied to a variable or to some of its rows, which may be repeated.
   `rounding` and `storage`: results in 16, 8 and 4 bits. `bags`: pooled rows, and their gradient.
5. `norms`: the sum of squares, and the factors with which a norm keeps a limit.
6. `clip_ops`: clipping by value and by norm, and its gradients.
   `means`: the weighted mean of several arrays.
7. `schedules`: learning rates as functions of the step.
8. `algorithms`: the optimizers, a table of rules, slots and hyperparameters.
9. `limits`: gradients clipped before a step.
10. `optimizer_step`: one step of an optimizer: rate, decay, clipping, rule, constraint.
11. `training`: `train_step`, with the wrappers of optimizers.

These define linear models:

12. `losses`: the losses, their conjugates, and the best step of one dual variable.
13. `linear`: the problem, its dual, and the duality gap, which proves a solution of any method.
14. `sdca`: dual coordinate ascent: the order of visits, a visit, and the changes of partitions.
15. `sdca_ops`: TensorFlow's ops.
16. `ftrl`: learning from a stream by FTRL-Proximal.
    `hashed_text`: rows of text as sparse rows of a stream, by hashes.
17. `sparse_rows`: learning from batches of sparse rows by any optimizer.

`autodiff` defines gradients of NumPy functions.
"""

from tfopt_ref import autodiff, clip_ops, sdca_ops, training_ops
from tfopt_ref.arithmetic import get_flush_denormals, set_flush_denormals
from tfopt_ref.autodiff import (
    GradientTape,
    IndexedSlices,
    Tensor,
    Variable,
    constant,
    custom_gradient,
    stop_gradient,
)  # fmt: skip
from tfopt_ref.autodiff.vjps.clipping import (
    clip_by_average_norm,
    clip_by_global_norm,
    clip_by_norm,
    clip_by_value,
    global_norm,
)  # fmt: skip

__all__ = [
    "GradientTape", "IndexedSlices", "Tensor", "Variable", "autodiff", "clip_by_average_norm",
    "clip_by_global_norm", "clip_by_norm", "clip_by_value", "clip_ops", "constant",
    "custom_gradient", "get_flush_denormals", "global_norm", "sdca_ops", "set_flush_denormals",
    "stop_gradient", "training_ops",
]  # fmt: skip
