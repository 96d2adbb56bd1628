"""The specification of tfopt's results, in NumPy expressions and plain loops.

For valid arguments the results are the same, bit for bit, but not fast. It imports nothing from
tfopt. These modules define a step of training; reading them takes an afternoon:

1. `arithmetic`: what operations mean where numbers are denormal or have 16 bits.
2. `training_op`: what a rule is made of.
3. `training_ops`: the rules, each with its equation. `reductions`: the sums that some of them need.
4. `update`: a rule applied to a variable or to some rows of it, repeated ones among them.
   `rounding` and `storage`: what it leaves in 16, 8 and 4 bits.
5. `norms`: how squares are added up, and by which factors a norm keeps a limit.
6. `clip_ops`: clipping by value and by norm, and its gradients.
7. `schedules`: learning rates as functions of the step.
8. `algorithms`: the optimizers, a table of rules, slots and hyperparameters.
9. `limits`: gradients clipped before a step.
10. `optimizer_step`: one step of an optimizer: rate, decay, clipping, rule, constraint.
11. `training`: `train_step`, with what wrappers do around it.

These define linear models, most of them by dual coordinate ascent:

12. `sdca_losses`: losses, their conjugates, and the best step of one dual variable.
13. `sdca`: visits to examples, one after another, and their order.
14. `fingerprint`: the fingerprints by which TensorFlow identifies examples.
15. `sdca_ops`: TensorFlow's ops.
16. `sdca_solver`: the visits of a whole fit.
17. `sdca_certificate`: a bound on the distance of the objective from its minimum.
18. `sdca_sums`: sums over rows, and their order.
19. `sdca_newton`: Newton's method.
20. `sdca_coordinate_descent`: coordinate descent for l1.
21. `sdca_interior_point`: interior points for losses with kinks.
22. `sdca_fit`: a fit.
23. `sdca_coordinates`: the same problem in coordinates of fewer rows than features.
24. `sdca_block_fit`: a fit of data that are divided into blocks.
25. `multinomial`: the logistic loss of several classes together.
26. `ftrl_stream`: learning from a stream instead, by FTRL-Proximal.
27. `sparse_rows`: or from batches of sparse rows, by any optimizer.

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
