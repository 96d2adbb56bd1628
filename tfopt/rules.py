"""The table: one row per update rule.

Everything that can follow from a row does: the loops around a rule's step
(``kernels/steps.pyx.tp``), the validation of a call, the functions of :mod:`tfopt.training_ops`
with their signatures and docstrings, the property tests, the benchmarks and the tables of the
documentation.

The build reads this file on its own, so it imports nothing of the package.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

#: The element types every rule is compiled for.
DTYPES = ("float32", "float64")


class Rule(NamedTuple):
    """One update rule.

    ``scalars`` are what the step takes after the gradient: expressions of the hyperparameters,
    evaluated once per call in the variable's own type. ``flags`` (attributes of the call) and
    ``choices`` (conditions on hyperparameters) are constants inside the step: it is compiled once
    for every combination of them.
    """

    name: str  # of the step in kernels/rules.pxd; the public function is apply_<name>
    op: str  # TensorFlow's name: ApplyX, SparseApplyX, ResourceApplyX, ResourceSparseApplyX
    summary: str
    source: str
    slots: tuple[str, ...]
    hypers: tuple[str, ...]
    scalars: dict[str, str]
    flags: dict[str, bool] = {}  # name -> default
    choices: dict[str, str] = {}  # name -> condition
    rows: str | None = None  # the step of sparse rows, where its answers are not the dense step's
    grad: str = "grad"  # TensorFlow's name of the gradient

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the arrays of a call, in its order."""
        return ("var", *self.slots, self.grad)

    @property
    def constants(self) -> tuple[str, ...]:
        """Names of the step's compile-time constants; bit k of a variant's number is the k-th."""
        return (*self.flags, *self.choices)

    @property
    def variants(self) -> list[tuple[bool, ...]]:
        """Every combination of the constants, in the order of their number."""
        return [bits[::-1] for bits in product((False, True), repeat=len(self.constants))]

    @property
    def traffic(self) -> int:
        """Arrays read plus arrays written by one dense step."""
        return 2 * (1 + len(self.slots)) + 1


_FTRL_SCALARS = {
    "lr": "lr",
    "exponent": "-lr_power",
    "threshold": "l1 * lr if multiply_linear_by_lr else l1",
    "ridge": "2 * l2 * lr if multiply_linear_by_lr else 2 * l2",
}
_FTRL = "McMahan et al., Ad Click Prediction: a View from the Trenches, KDD 2013, algorithm 1"

RULES = (
    Rule(
        name="gradient_descent",
        op="GradientDescent",
        summary="Take a step of length `alpha` against the gradient.",
        source="Cauchy, Methode generale pour la resolution des systemes d'equations, 1847",
        slots=(),
        hypers=("alpha",),
        scalars={"alpha": "alpha"},
        grad="delta",
    ),
    Rule(
        name="momentum",
        op="Momentum",
        summary="Step along a decaying sum of gradients.",
        source="Polyak 1964; Nesterov 1983, in the form of Sutskever et al., ICML 2013",
        slots=("accum",),
        hypers=("lr", "momentum"),
        scalars={"lr": "lr", "momentum": "momentum"},
        flags={"use_nesterov": False},
    ),
    Rule(
        name="keras_momentum",
        op="KerasMomentum",
        summary="Step along a decaying sum of past steps, which already hold the learning rate.",
        source="Sutskever et al., On the importance of initialization and momentum, ICML 2013",
        slots=("accum",),
        hypers=("lr", "momentum"),
        scalars={"lr": "lr", "momentum": "momentum"},
        flags={"use_nesterov": False},
    ),
    Rule(
        name="adagrad",
        op="Adagrad",
        summary="Divide each element's step by the root of its sum of squared gradients.",
        source="Duchi, Hazan, Singer, Adaptive Subgradient Methods, JMLR 12, 2011",
        slots=("accum",),
        hypers=("lr",),
        scalars={"lr": "lr"},
        flags={"update_slots": True},
    ),
    Rule(
        name="adamax",
        op="AdaMax",
        summary="Step by the mean gradient over its decaying largest magnitude.",
        source="Kingma, Ba, Adam: A Method for Stochastic Optimization, ICLR 2015, algorithm 2",
        slots=("m", "v"),
        hypers=("beta1_power", "lr", "beta1", "beta2", "epsilon"),
        scalars={
            "step": "lr / (1 - beta1_power)",
            "beta1": "beta1",
            "one_minus_beta1": "1 - beta1",
            "beta2": "beta2",
            "epsilon": "epsilon",
        },
        rows="adamax_rows",
    ),
    Rule(
        name="ftrl",
        op="Ftrl",
        summary="Follow the proximally regularized leader.",
        source=_FTRL,
        slots=("accum", "linear"),
        hypers=("lr", "l1", "l2", "lr_power"),
        scalars=_FTRL_SCALARS,
        flags={"multiply_linear_by_lr": False},
        choices={"square_root": "lr_power == -0.5"},
        rows="ftrl_rows",
    ),
    Rule(
        name="ftrl_v2",
        op="FtrlV2",
        summary="Follow the proximally regularized leader, with shrinkage of the gradient.",
        source=_FTRL,
        slots=("accum", "linear"),
        hypers=("lr", "l1", "l2", "l2_shrinkage", "lr_power"),
        scalars={**_FTRL_SCALARS, "shrinkage": "2 * l2_shrinkage"},
        flags={"multiply_linear_by_lr": False},
        choices={"square_root": "lr_power == -0.5"},
        rows="ftrl_v2_rows",
    ),
)
