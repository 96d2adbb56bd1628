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


#: What TensorFlow demands of some hyperparameters. A NaN fulfils none.
LIMITS = ("greater than 0", "at least 0", "at most 0", "greater than 0, or 0 with the first flag")

#: What TensorFlow checks of an update of rows, in the order most of its ops have.
_ROW_CHECKS = "slots rank hypers indices columns rows"


class Rule(NamedTuple):
    """One update rule.

    ``scalars`` are what the step takes after the gradient: expressions of the hyperparameters, and
    of scalars before them, evaluated once per call in the variable's own type; ``dense`` says for
    which kind of call. ``flags`` (attributes of the call) and
    ``choices`` (conditions on hyperparameters) are constants inside the step: it is compiled once
    for every combination of them.

    ``checks`` and ``row_checks`` are TensorFlow's checks of a dense call and of one for rows, in
    its order, so that of several faults the same one is reported: ``slots`` have the variable's
    shape, ``grad`` too, ``hypers`` are scalars and keep their limits, or one of them by its name;
    of rows, the variable has a ``rank`` of at least 1, ``indices`` one of 1, the gradient's
    ``columns`` are the variable's, it has as many ``rows`` as there are indices, and ``inner``,
    a row has at least one element.
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
    width1: str | None = None  # the step of rows of one element, where it is not that of others
    absent: str | None = None  # the step of the rows that a call for rows does not name, if any
    decays: dict[str, str] = {}  # slots which a step without a gradient multiplies, and by what
    grad: str = "grad"  # TensorFlow's name of the gradient
    limits: dict[str, str] = {}  # what hyperparameters must be, of those in LIMITS
    limited: str = "dense and rows"  # the calls the limits hold for, or "rows"
    checks: str = "hypers slots grad"
    row_checks: str = _ROW_CHECKS
    leading: int | None = None  # hyperparameters before the gradient in TensorFlow's order, or all
    ref: bool = True  # whether TensorFlow has ApplyX beside ResourceApplyX
    complex: bool = False  # whether it is there for complex numbers, too
    sparse: bool = True  # whether TensorFlow has the forms for rows, (Resource)SparseApplyX
    raw: bool = True  # whether TensorFlow has any of these ops: Keras makes some rules of others

    @property
    def dtypes(self) -> str:
        """The dtypes a variable may have, as a sentence lists them."""
        if self.complex:
            return "float16, bfloat16, float32, float64, complex64 or complex128"
        return "float16, bfloat16, float32 or float64"

    @property
    def steps(self) -> dict[str, str]:
        """The rule's steps by the kind of call they serve; a kind without its own has another's."""
        own = {
            "dense": self.name,
            "rows": self.rows,
            "width1": self.width1,
            "absent": self.absent,
        }
        return {kind: step for kind, step in own.items() if step}

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the arrays of a call, in its order."""
        return ("var", *self.slots, self.grad)

    def order(self, dense: bool) -> tuple[str, ...]:
        """Names of the checks of a call in their order, those of slots and hypers one by one."""
        groups = {"slots": self.slots, "hypers": self.hypers, "grad": (self.grad,)}
        words = (self.checks if dense else self.row_checks).split()
        return tuple(name for word in words for name in groups.get(word, (word,)))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs of TensorFlow's dense ops, in their order."""
        n = len(self.hypers) if self.leading is None else self.leading
        return ("var", *self.slots, *self.hypers[:n], self.grad, *self.hypers[n:])

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


class Form(NamedTuple):
    """One of TensorFlow's four ops for a rule.

    ``ref``: ApplyX and SparseApplyX return the variable, ResourceApplyX and ResourceSparseApplyX
    nothing; ``sparse``: it updates the rows that an input, the indices, names.
    """

    rule: Rule
    ref: bool
    sparse: bool

    @property
    def name(self) -> str:
        prefix = ("" if self.ref else "Resource") + ("Sparse" if self.sparse else "")
        return f"{prefix}Apply{self.rule.op}"

    @property
    def grad(self) -> str:
        return "grad" if self.sparse else self.rule.grad

    @property
    def inputs(self) -> tuple[str, ...]:
        """TensorFlow's inputs in its order; in sparse forms the indices follow the gradient."""
        if not self.sparse:
            return self.rule.inputs
        at = self.rule.inputs.index(self.rule.grad)
        return (*self.rule.inputs[:at], self.grad, "indices", *self.rule.inputs[at + 1 :])


_FTRL_SCALARS = {
    "lr": "lr",
    "exponent": "-lr_power",
    "threshold": "l1 * lr if multiply_linear_by_lr else l1",
    "ridge": "2 * l2 * lr if multiply_linear_by_lr else 2 * l2",
}
_ADAM_SCALARS = {
    "alpha": "lr * rules.root(1 - beta2_power) / (1 - beta1_power)",
    "beta1": "beta1",
    "one_minus_beta1": "1 - beta1",
    "one_minus_beta2": "1 - beta2",
    "epsilon": "epsilon",
}
#: TensorFlow's sparse Adam, which is made of other ops, associates the step's length differently.
_KERAS_ADAM_SCALARS = {
    "alpha": "lr * (rules.root(1 - beta2_power) / (1 - beta1_power))",
    "beta1": "beta1",
    "one_minus_beta1": "1 - beta1",
    "beta2": "beta2",
    "one_minus_beta2": "1 - beta2",
    "epsilon": "epsilon",
}
_KERAS_RMS_SCALARS = {
    "lr": "lr",
    "rho": "rho",
    "one_minus_rho": "1 - rho",
    "epsilon": "epsilon",
}
_RMS_SCALARS = {
    "lr": "lr",
    "rho": "rho",
    "one_minus_rho": "1 - rho",
    "momentum": "momentum",
    "epsilon": "epsilon",
}
_DUCHI = "Duchi, Hazan, Singer, Adaptive Subgradient Methods, JMLR 12, 2011"
_FOBOS = "Duchi, Singer, Efficient Online and Batch Learning Using Forward Backward Splitting, 2009"
_SUTSKEVER = "Sutskever et al., On the importance of initialization and momentum, ICML 2013"
_FTRL_LIMITS = {
    "lr": "greater than 0, or 0 with the first flag",
    "l1": "at least 0",
    "l2": "at least 0",
    "lr_power": "at most 0",
}
_FTRL = "McMahan et al., Ad Click Prediction: a View from the Trenches, KDD 2013, algorithm 1"
_TIELEMAN = "Tieleman, Hinton, Lecture 6.5: RMSProp, 2012"
_BELLO = (
    "Bello, Zoph, Vasudevan, Le, Neural Optimizer Search with Reinforcement Learning, ICML 2017"
)

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
        sparse=False,
        complex=True,
    ),
    Rule(
        name="proximal_gradient_descent",
        op="ProximalGradientDescent",
        summary="Take a gradient step, then shrink by `l1` and scale by `l2`.",
        source=_FOBOS,
        slots=(),
        hypers=("alpha", "l1", "l2"),
        scalars={"alpha": "alpha", "threshold": "alpha * l1", "divisor": "1 + l2 * alpha"},
        choices={"shrinks": "l1 > 0"},
        grad="delta",
        row_checks=_ROW_CHECKS + " inner",
    ),
    Rule(
        name="momentum",
        op="Momentum",
        summary="Step along a decaying sum of gradients.",
        source="Polyak 1964; Nesterov 1983, in the form of " + _SUTSKEVER,
        slots=("accum",),
        hypers=("lr", "momentum"),
        scalars={"lr": "lr", "momentum": "momentum"},
        flags={"use_nesterov": False},
        leading=1,
        complex=True,
        checks="lr slots grad momentum",
        row_checks="slots rank lr indices columns rows momentum",
    ),
    Rule(
        name="keras_momentum",
        op="KerasMomentum",
        summary="Step along a decaying sum of past steps, which already hold the learning rate.",
        source=_SUTSKEVER,
        slots=("accum",),
        hypers=("lr", "momentum"),
        decays={"accum": "momentum"},
        scalars={"lr": "lr", "momentum": "momentum"},
        flags={"use_nesterov": False},
        leading=1,
        ref=False,
        complex=True,
        checks="lr slots grad momentum",
        row_checks="slots rank lr indices columns rows momentum",
    ),
    Rule(
        name="adagrad",
        op="Adagrad",
        summary="Divide each element's step by the root of its sum of squared gradients.",
        source=_DUCHI,
        slots=("accum",),
        hypers=("lr",),
        scalars={"lr": "lr"},
        flags={"update_slots": True},
        complex=True,
        row_checks=_ROW_CHECKS + " inner",
    ),
    Rule(
        name="adagrad_v2",
        op="AdagradV2",
        summary="Adagrad with `epsilon` added to the root.",
        source=_DUCHI,
        slots=("accum",),
        hypers=("lr", "epsilon"),
        scalars={"lr": "lr", "epsilon": "epsilon"},
        flags={"update_slots": True},
        complex=True,
        row_checks=_ROW_CHECKS + " inner",
    ),
    Rule(
        name="adagrad_da",
        op="AdagradDA",
        summary="Adagrad by dual averaging: the variable is made anew of the summed gradients.",
        source=_DUCHI + "; Xiao, Dual Averaging Methods, JMLR 11, 2010",
        slots=("gradient_accumulator", "gradient_squared_accumulator"),
        hypers=("lr", "l1", "l2", "global_step"),
        scalars={
            "t": "<float>global_step if dense else global_step",
            "lr": "lr",
            "l1": "l1",
            "l2": "l2",
            "threshold": "t * l1",
            "ridge": "l2 * (t * lr)",
            "t_lr": "t * lr",
        },
        choices={"shrinks": "l1 > 0"},
        rows="adagrad_da_rows",
        width1="adagrad_da_width1",
        leading=0,
        checks="slots grad hypers",
        row_checks="slots rank indices hypers columns rows inner",
    ),
    Rule(
        name="proximal_adagrad",
        op="ProximalAdagrad",
        summary="Take an Adagrad step, then shrink by `l1` and scale by `l2`, element by element.",
        source=f"{_FOBOS}; {_DUCHI}",
        slots=("accum",),
        hypers=("lr", "l1", "l2"),
        scalars={"lr": "lr", "l1": "l1", "l2": "l2"},
        choices={"shrinks": "l1 > 0"},
        limits={"lr": "greater than 0", "l1": "at least 0", "l2": "at least 0"},
        checks="slots hypers grad",
        row_checks=_ROW_CHECKS + " inner",
    ),
    Rule(
        name="adadelta",
        op="Adadelta",
        summary="Scale each element's step by the root mean square of its past steps.",
        source="Zeiler, ADADELTA: An Adaptive Learning Rate Method, 2012, algorithm 1",
        slots=("accum", "accum_update"),
        hypers=("lr", "rho", "epsilon"),
        decays={"accum": "rho", "accum_update": "rho"},
        scalars={"lr": "lr", "rho": "rho", "one_minus_rho": "1 - rho", "epsilon": "epsilon"},
        complex=True,
    ),
    Rule(
        name="adam",
        op="Adam",
        summary="Step by the mean gradient over the root of its mean square.",
        source="Kingma, Ba, Adam, ICLR 2015, section 2; Dozat, Nesterov Momentum into Adam, 2016",
        slots=("m", "v"),
        hypers=("beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon"),
        decays={"m": "beta1", "v": "beta2"},
        scalars=_ADAM_SCALARS,
        flags={"use_nesterov": False},
        sparse=False,
        complex=True,
    ),
    Rule(
        name="adam_with_amsgrad",
        op="AdamWithAmsgrad",
        summary="Adam whose mean square is never taken smaller than it has been.",
        source="Reddi, Kale, Kumar, On the Convergence of Adam and Beyond, ICLR 2018",
        slots=("m", "v", "vhat"),
        hypers=("beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon"),
        decays={"m": "beta1", "v": "beta2"},
        scalars={**_ADAM_SCALARS, "zero": "0"},
        ref=False,
        sparse=False,
    ),
    Rule(
        name="adamax",
        op="AdaMax",
        summary="Step by the mean gradient over its decaying largest magnitude.",
        source="Kingma, Ba, Adam: A Method for Stochastic Optimization, ICLR 2015, algorithm 2",
        slots=("m", "v"),
        hypers=("beta1_power", "lr", "beta1", "beta2", "epsilon"),
        decays={"m": "beta1", "v": "beta2"},
        scalars={
            "step": "lr / (1 - beta1_power)",
            "beta1": "beta1",
            "one_minus_beta1": "1 - beta1",
            "beta2": "beta2",
            "epsilon": "epsilon",
        },
        rows="adamax_rows",
        sparse=False,
    ),
    Rule(
        name="rms_prop",
        op="RMSProp",
        summary="Divide by the root of the gradient's mean square, with momentum.",
        source=_TIELEMAN,
        slots=("ms", "mom"),
        hypers=("lr", "rho", "momentum", "epsilon"),
        decays={"ms": "rho", "mom": "momentum"},
        scalars=_RMS_SCALARS,
        rows="rms_prop_rows",
        complex=True,
        row_checks="hypers slots rank indices columns rows",
    ),
    Rule(
        name="centered_rms_prop",
        op="CenteredRMSProp",
        summary="Divide by the gradient's standard deviation, with momentum.",
        source=_TIELEMAN + "; Graves, Generating Sequences with Recurrent Neural Networks, 2013",
        slots=("mg", "ms", "mom"),
        hypers=("lr", "rho", "momentum", "epsilon"),
        decays={"mg": "rho", "ms": "rho", "mom": "momentum"},
        scalars=_RMS_SCALARS,
        rows="centered_rms_prop_rows",
        complex=True,
        row_checks="hypers slots rank indices columns rows",
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
        limits=_FTRL_LIMITS,
        limited="rows",
        leading=0,
        checks="slots grad hypers",
        row_checks="slots rank indices hypers columns rows inner",
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
        limits={**_FTRL_LIMITS, "l2_shrinkage": "at least 0"},
        limited="rows",
        leading=0,
        checks="slots grad lr l1 l2 lr_power l2_shrinkage",
        row_checks="slots rank indices lr l1 l2 lr_power columns rows inner l2_shrinkage",
    ),
    Rule(
        name="add_sign",
        op="AddSign",
        summary="Lengthen the step where gradient and mean gradient agree, shorten it elsewhere.",
        source=_BELLO,
        slots=("m",),
        hypers=("lr", "alpha", "sign_decay", "beta"),
        scalars={
            "lr": "lr",
            "alpha": "alpha",
            "sign_decay": "sign_decay",
            "beta": "beta",
            "one_minus_beta": "1 - beta",
        },
        sparse=False,
    ),
    Rule(
        name="power_sign",
        op="PowerSign",
        summary="Multiply the step where gradient and mean gradient agree, divide it elsewhere.",
        source=_BELLO,
        slots=("m",),
        hypers=("lr", "logbase", "sign_decay", "beta"),
        scalars={
            "exponent": "logbase * sign_decay",
            "agreeing": "lr * rules.exponential(exponent)",
            "neither": "lr * rules.exponential(exponent * 0)",
            "opposed": "lr * rules.exponential(-exponent)",
            "beta": "beta",
            "one_minus_beta": "1 - beta",
        },
        sparse=False,
    ),
    Rule(
        name="lion",
        op="Lion",
        summary="Step by the sign of a mean of the gradient and its decaying mean.",
        source="Chen et al., Symbolic Discovery of Optimization Algorithms, 2023, algorithm 2",
        slots=("m",),
        hypers=("lr", "beta1", "beta2"),
        decays={"m": "beta2"},
        scalars={
            "lr": "lr",
            "beta1": "beta1",
            "one_minus_beta1": "1 - beta1",
            "beta2": "beta2",
            "one_minus_beta2": "1 - beta2",
        },
        ref=False,
        sparse=False,
        raw=False,
    ),
    Rule(
        name="moving_average",
        op="MovingAverage",
        summary="Keep the decaying mean `var` of `value`, as of weights from step to step.",
        source="Polyak, Juditsky, Acceleration of Stochastic Approximation by Averaging, 1992",
        slots=(),
        hypers=("momentum",),
        scalars={"momentum": "momentum", "one_minus_momentum": "1 - momentum"},
        grad="value",
        ref=False,
        sparse=False,
        complex=True,
        raw=False,
    ),
    Rule(
        name="keras_adam",
        op="KerasAdam",
        summary="Adam; a step for rows lets the means of all others decay, and moves them, too.",
        source="Kingma, Ba, Adam, ICLR 2015, section 2",
        slots=("m", "v"),
        hypers=("beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon"),
        scalars=_KERAS_ADAM_SCALARS,
        absent="keras_adam_absent",
        ref=False,
        sparse=False,
        raw=False,
    ),
    Rule(
        name="keras_adam_with_amsgrad",
        op="KerasAdamWithAmsgrad",
        summary="AMSGrad; a step for rows lets the means of all other rows decay, and moves them.",
        source="Reddi, Kale, Kumar, On the Convergence of Adam and Beyond, ICLR 2018",
        slots=("m", "v", "vhat"),
        hypers=("beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon"),
        scalars=_KERAS_ADAM_SCALARS,
        absent="keras_adam_with_amsgrad_absent",
        ref=False,
        sparse=False,
        raw=False,
    ),
    Rule(
        name="nadam",
        op="Nadam",
        summary="Adam with Nesterov's momentum; a step for rows lets the means of all rows decay.",
        source="Dozat, Incorporating Nesterov Momentum into Adam, ICLR workshop 2016",
        slots=("m", "v"),
        hypers=(
            "lr",
            "beta1",
            "beta2",
            "beta2_power",
            "mu",
            "mu_next",
            "mu_product",
            "mu_product_next",
            "epsilon",
        ),
        decays={"m": "beta1", "v": "beta2"},
        scalars={
            "lr": "lr",
            "beta1": "beta1",
            "one_minus_beta1": "1 - beta1",
            "beta2": "beta2",
            "one_minus_beta2": "1 - beta2",
            "one_minus_beta2_power": "1 - beta2_power",
            "one_minus_mu": "1 - mu",
            "mu_next": "mu_next",
            "one_minus_mu_product": "1 - mu_product",
            "one_minus_mu_product_next": "1 - mu_product_next",
            "epsilon": "epsilon",
        },
        absent="nadam_absent",
        ref=False,
        sparse=False,
        raw=False,
    ),
    Rule(
        name="keras_rms_prop",
        op="KerasRMSProp",
        summary="RMSProp without momentum, `epsilon` after the root; all rows' mean squares decay.",
        source=_TIELEMAN,
        slots=("ms",),
        hypers=("lr", "rho", "epsilon"),
        decays={"ms": "rho"},
        scalars=_KERAS_RMS_SCALARS,
        absent="keras_rms_prop_absent",
        ref=False,
        sparse=False,
        raw=False,
    ),
    Rule(
        name="keras_centered_rms_prop",
        op="KerasCenteredRMSProp",
        summary="Centered RMSProp without momentum, `epsilon` after the root; all means decay.",
        source=_TIELEMAN + "; Graves, Generating Sequences with Recurrent Neural Networks, 2013",
        slots=("mg", "ms"),
        hypers=("lr", "rho", "epsilon"),
        decays={"mg": "rho", "ms": "rho"},
        scalars=_KERAS_RMS_SCALARS,
        absent="keras_centered_rms_prop_absent",
        ref=False,
        sparse=False,
        raw=False,
    ),
)

#: Every op that TensorFlow has for a rule.
FORMS = tuple(
    Form(rule, ref, sparse)
    for ref, sparse, rule in product((True, False), (False, True), RULES)
    if rule.raw and rule.ref >= ref and rule.sparse >= sparse
)
