"""Where tfopt answers otherwise than TensorFlow, on purpose: one example of each.

The order of operations in some sparse kernels is the dense kernel's here, so that a row is stepped
as a variable is (module `reasons` has the list). The other differences are explained below.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["DIFFERENCES", "Difference"]

_FTRL = {"lr": 0.1, "l1": 0.0, "l2": 0.0, "lr_power": -0.5, "multiply_linear_by_lr": False}


class Difference(NamedTuple):
    """A step of a variable of so many equal elements, and the two answers for its last element."""

    name: str
    rule: str
    options: dict[str, Any]
    old: list[float]  # the variable and its slots
    grad: float
    ours: list[float]
    theirs: list[float]
    sparse: bool = True
    elements: int = 1
    dtype: str = "float64"

    def arrays(self) -> tuple[list[np.ndarray], np.ndarray, np.ndarray | None]:
        """Return the variable and slots, the gradient, and the indices."""
        state = [np.full(self.elements, value, self.dtype) for value in self.old]
        indices = np.arange(self.elements) if self.sparse else None
        return state, np.full(self.elements, self.grad, self.dtype), indices


DIFFERENCES = (
    Difference(
        "order of sparse nesterov momentum", "momentum",
        {"lr": 0.1, "momentum": 0.9, "use_nesterov": True},
        [1.0, 0.2], 1.0,
        ours=[0.7938, 1.18],
        theirs=[0.7938000000000001, 1.18],
    ),
    Difference(
        "order of sparse adagrad, rows of one element", "adagrad",
        {"lr": 0.1, "update_slots": True},
        [1.0, 0.1], 0.3,
        ours=[0.9311752798388314, 0.19],
        theirs=[0.9311752798388315, 0.19],
    ),
    Difference(
        "order of sparse ftrl, rows of one element", "ftrl", _FTRL,
        [1.0, 0.1, 0.5], 0.2,
        ours=[-0.032237124067213595, 0.14, 0.12062027339443776],
        theirs=[-0.03223712406721358, 0.14, 0.1206202733944377],
    ),
    Difference(
        "order of sparse ftrl_v2, rows of one element", "ftrl_v2", {**_FTRL, "l2_shrinkage": 0.1},
        [1.0, 0.1, 0.5], 0.5,
        ours=[0.2626404950403072, 0.35, -1.553802122931236],
        theirs=[0.2626404950403072, 0.35, -1.5538021229312362],
    ),
    Difference(
        "precision of sparse proximal descent, rows of one element", "proximal_gradient_descent",
        {"alpha": 0.1, "l1": 0.05, "l2": 0.02},
        [0.3], 0.4,
        ours=[0.25449106097221375],
        theirs=[0.25449103116989136],
        dtype="float32",
    ),
    Difference(
        "precision of sparse proximal adagrad, rows of one element", "proximal_adagrad",
        {"lr": 0.1, "l1": 0.05, "l2": 0.02},
        [0.3, 0.1], 0.5,
        ours=[0.20633549988269806, 0.3499999940395355],
        theirs=[0.20633551478385925, 0.3499999940395355],
        dtype="float32",
    ),
    # A denormal counts as zero. TensorFlow forgets this in a power of one of the elements that are
    # left over after the last full vector, so its answer depends on the element's place; with three
    # elements, all are left over. tfopt's is the one TensorFlow gives in full vectors.
    Difference(
        "power of a negative denormal", "ftrl", {**_FTRL, "lr": 1.0, "lr_power": -0.75},
        [1.0, -1e-310, 0.0], 0.0,
        ours=[0.0, 0.0, 0.0],
        theirs=[0.0, 0.0, np.nan],
        sparse=False, elements=3,
    ),
)  # fmt: skip
