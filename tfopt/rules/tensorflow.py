"""TensorFlow's ops for the rules: their inputs, and their checks in order."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from .rule import Rule
from .table import RULES

__all__ = ["FORMS", "LIMITS", "OPS", "Checks", "Form", "TensorFlowOp", "checks_of"]

#: TensorFlow's limits on some hyperparameters. NaN satisfies none of them.
LIMITS = ("greater than 0", "at least 0", "at most 0", "greater than 0, or 0 with the first flag")


class Checks(NamedTuple):
    """The checks of a call, in TensorFlow's order; the first violation is reported.

    ``dense`` lists the checks of a dense call, ``rows`` those of a sparse call:

    - ``slots``, ``grad``: they have the variable's shape;
    - ``hypers``, or the name of one: scalars within their limits;
    - ``rank``: the variable has at least one dimension;
    - ``indices``: they are one-dimensional;
    - ``columns``: the gradient's rows have the shape of the variable's rows;
    - ``rows``: the gradient has as many rows as there are indices;
    - ``inner``: rows have at least one element.
    """

    dense: str = "hypers slots grad"  #: the checks of a dense call, in order
    rows: str = "slots rank hypers indices columns rows"  #: the checks of a sparse call, in order
    limits: dict[str, str] = {}  #: hyperparameter -> one of LIMITS
    limited: str = "dense and rows"  #: the calls to which the limits apply, or "rows"

    def order(self, rule: Rule, dense: bool) -> tuple[str, ...]:
        """Return the names of a call's checks in order, with slots and hypers one by one."""
        groups = {"slots": rule.slots, "hypers": rule.hypers, "grad": (rule.grad,)}
        words = (self.dense if dense else self.rows).split()
        return tuple(name for word in words for name in groups.get(word, (word,)))


class TensorFlowOp(NamedTuple):
    """TensorFlow's ops for a rule: ApplyX, SparseApplyX, ResourceApplyX, ResourceSparseApplyX."""

    rule: Rule  #: the rule that the ops compute
    name: str  #: X
    checks: Checks = Checks()  #: what a call is checked for
    leading: int | None = None  #: number of hyperparameters before the gradient; None: all
    ref: bool = True  #: whether there is ApplyX in addition to ResourceApplyX
    sparse: bool = True  #: whether there are sparse forms, (Resource)SparseApplyX

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs of the dense forms, in TensorFlow's order."""
        rule = self.rule
        n = len(rule.hypers) if self.leading is None else self.leading
        return ("var", *rule.slots, *rule.hypers[:n], rule.grad, *rule.hypers[n:])


class Form(NamedTuple):
    """One of the four forms of TensorFlow's ops for a rule.

    ``ref``: ApplyX and SparseApplyX return the variable, ResourceApplyX and ResourceSparseApplyX
    nothing; ``sparse``: it updates the rows listed in the input ``indices``.
    """

    op: TensorFlowOp  #: the ops of which this is one
    ref: bool  #: whether it returns the variable
    sparse: bool  #: whether it updates the rows listed in the input ``indices``

    @property
    def rule(self) -> Rule:
        """The rule of the op."""
        return self.op.rule

    @property
    def name(self) -> str:
        """TensorFlow's name of the op."""
        prefix = ("" if self.ref else "Resource") + ("Sparse" if self.sparse else "")
        return f"{prefix}Apply{self.op.name}"

    @property
    def grad(self) -> str:
        """TensorFlow's name of the gradient."""
        return "grad" if self.sparse else self.rule.grad

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs in TensorFlow's order; indices follow the gradient."""
        if not self.sparse:
            return self.op.inputs
        at = self.op.inputs.index(self.rule.grad)
        return (*self.op.inputs[:at], self.grad, "indices", *self.op.inputs[at + 1 :])


_RULES = {rule.name: rule for rule in RULES}
#: The default checks, and that rows are not empty.
_NOT_EMPTY = Checks(rows="slots rank hypers indices columns rows inner")
_MOMENTUM = Checks(
    dense="lr slots grad momentum", rows="slots rank lr indices columns rows momentum"
)
_RMS_PROP = Checks(rows="hypers slots rank indices columns rows")
_ADAGRAD_DA = Checks(dense="slots grad hypers", rows="slots rank indices hypers columns rows inner")
_FTRL = Checks(
    dense="slots grad hypers",
    rows="slots rank indices hypers columns rows inner",
    limits={
        "lr": "greater than 0, or 0 with the first flag",
        "l1": "at least 0",
        "l2": "at least 0",
        "lr_power": "at most 0",
    },
    limited="rows",
)
_FTRL_V2 = Checks(
    dense="slots grad lr l1 l2 lr_power l2_shrinkage",
    rows="slots rank indices lr l1 l2 lr_power columns rows inner l2_shrinkage",
    limits={**_FTRL.limits, "l2_shrinkage": "at least 0"},
    limited="rows",
)
_PROXIMAL_ADAGRAD = Checks(
    dense="slots hypers grad",
    rows=_NOT_EMPTY.rows,
    limits={"lr": "greater than 0", "l1": "at least 0", "l2": "at least 0"},
)

_OPS = (
    TensorFlowOp(_RULES["gradient_descent"], "GradientDescent", sparse=False),
    TensorFlowOp(_RULES["proximal_gradient_descent"], "ProximalGradientDescent", _NOT_EMPTY),
    TensorFlowOp(_RULES["momentum"], "Momentum", _MOMENTUM, leading=1),
    TensorFlowOp(_RULES["keras_momentum"], "KerasMomentum", _MOMENTUM, leading=1, ref=False),
    TensorFlowOp(_RULES["adagrad"], "Adagrad", _NOT_EMPTY),
    TensorFlowOp(_RULES["adagrad_v2"], "AdagradV2", _NOT_EMPTY),
    TensorFlowOp(_RULES["adagrad_da"], "AdagradDA", _ADAGRAD_DA, leading=0),
    TensorFlowOp(_RULES["proximal_adagrad"], "ProximalAdagrad", _PROXIMAL_ADAGRAD),
    TensorFlowOp(_RULES["adadelta"], "Adadelta"),
    TensorFlowOp(_RULES["adam"], "Adam", sparse=False),
    TensorFlowOp(_RULES["adam_with_amsgrad"], "AdamWithAmsgrad", ref=False, sparse=False),
    TensorFlowOp(_RULES["adamax"], "AdaMax", sparse=False),
    TensorFlowOp(_RULES["rms_prop"], "RMSProp", _RMS_PROP),
    TensorFlowOp(_RULES["centered_rms_prop"], "CenteredRMSProp", _RMS_PROP),
    TensorFlowOp(_RULES["ftrl"], "Ftrl", _FTRL, leading=0),
    TensorFlowOp(_RULES["ftrl_v2"], "FtrlV2", _FTRL_V2, leading=0),
    TensorFlowOp(_RULES["add_sign"], "AddSign", sparse=False),
    TensorFlowOp(_RULES["power_sign"], "PowerSign", sparse=False),
)

#: TensorFlow's ops by name of the rule. Rules that Keras composes of other ops have none.
OPS = {op.rule.name: op for op in _OPS}

#: Every op of TensorFlow for a rule.
FORMS = tuple(
    Form(op, ref, sparse)
    for ref, sparse, op in product((True, False), (False, True), _OPS)
    if op.ref >= ref and op.sparse >= sparse
)


def checks_of(rule: Rule) -> Checks:
    """Return the checks of a rule's calls."""
    return OPS[rule.name].checks if rule.name in OPS else Checks()
