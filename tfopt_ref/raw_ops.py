"""TensorFlow's training ops by TensorFlow's own names, with its arguments in its order.

Each is the rule of :mod:`tfopt_ref.training_ops` by another name. `use_locking` and `name` are
accepted and change nothing: the twin is not for updates from several threads.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt_ref import training_ops as rules
from tfopt_ref.autodiff.effects import writes
from tfopt_ref.autodiff.vjps.clipping import BY_VALUE, recorded
from tfopt_ref.clip_checks import FLOATS, INTEGERS, as_bound, as_tensor
from tfopt_ref.clip_ops import clip_by_value
from tfopt_ref.errors import InvalidArgumentError
from tfopt_ref.norms import sum_of_squares
from tfopt_ref.sdca_ops import SdcaResult, sdca_fprint, sdca_optimizer, sdca_shrink_l1
from tfopt_ref.training_op import TrainingOp

#: TensorFlow's inputs; those in brackets are the sparse forms', which not every rule has.
_INPUTS = {
    "GradientDescent": (rules.apply_gradient_descent, "var alpha delta"),
    "ProximalGradientDescent": (
        rules.apply_proximal_gradient_descent,
        "var alpha l1 l2 delta [indices]",
    ),
    "Adadelta": (
        rules.apply_adadelta,
        "var accum accum_update lr rho epsilon grad [indices]",
    ),
    "Adagrad": (rules.apply_adagrad, "var accum lr grad [indices]"),
    "AdagradV2": (rules.apply_adagrad_v2, "var accum lr epsilon grad [indices]"),
    "AdagradDA": (
        rules.apply_adagrad_da,
        "var gradient_accumulator gradient_squared_accumulator grad [indices] lr l1 l2 global_step",
    ),
    "ProximalAdagrad": (rules.apply_proximal_adagrad, "var accum lr l1 l2 grad [indices]"),
    "Ftrl": (rules.apply_ftrl, "var accum linear grad [indices] lr l1 l2 lr_power"),
    "FtrlV2": (
        rules.apply_ftrl_v2,
        "var accum linear grad [indices] lr l1 l2 l2_shrinkage lr_power",
    ),
    "Momentum": (rules.apply_momentum, "var accum lr grad [indices] momentum"),
    "KerasMomentum": (rules.apply_keras_momentum, "var accum lr grad [indices] momentum"),
    "Adam": (
        rules.apply_adam,
        "var m v beta1_power beta2_power lr beta1 beta2 epsilon grad",
    ),
    "AdamWithAmsgrad": (
        rules.apply_adam_with_amsgrad,
        "var m v vhat beta1_power beta2_power lr beta1 beta2 epsilon grad",
    ),
    "AdaMax": (rules.apply_adamax, "var m v beta1_power lr beta1 beta2 epsilon grad"),
    "RMSProp": (rules.apply_rms_prop, "var ms mom lr rho momentum epsilon grad [indices]"),
    "CenteredRMSProp": (
        rules.apply_centered_rms_prop,
        "var mg ms mom lr rho momentum epsilon grad [indices]",
    ),
    "AddSign": (rules.apply_add_sign, "var m lr alpha sign_decay beta grad"),
    "PowerSign": (rules.apply_power_sign, "var m lr logbase sign_decay beta grad"),
}
_NO_REF = ("KerasMomentum", "AdamWithAmsgrad")


class _RawOp:
    """A rule with TensorFlow's inputs, in TensorFlow's order."""

    def __init__(self, name: str, rule: TrainingOp, inputs: list[str]) -> None:
        self.name, self.rule, self.inputs = name, rule, inputs
        self.returns_var = not name.startswith("Resource")
        self.sparse = "indices" in inputs
        self.grad = "delta" if "delta" in inputs else "grad"
        self.slots = list(rule.operands[1:-1])
        flags = {flag: rule.__signature__.parameters[flag].default for flag in rule.flags}
        defaults = {"use_locking": False, **flags, "name": None}
        self.signature = inspect.Signature(
            [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in inputs]
            + [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
                for name, default in defaults.items()
            ]
        )

    def function(self) -> Callable[..., Any]:
        """Return the op as a function with its signature."""

        def call(*args: Any, **kwargs: Any) -> Any:
            given = self.signature.bind(*args, **kwargs).arguments
            options = [*self.rule.hypers, *self.rule.flags, "indices"]
            self.rule(
                given["var"],
                *(given[slot] for slot in self.slots),
                given[self.grad],
                **{option: given[option] for option in options if option in given},
            )
            return given["var"] if self.returns_var else None

        call.__name__ = call.__qualname__ = self.name
        call.__doc__ = f"{self.rule.__doc__}\n\n``{self.name}{self.signature}``"
        call.__signature__ = self.signature  # type: ignore[attr-defined]
        return writes("var", *self.slots, returns="var" if self.returns_var else None)(call)


def _forms() -> dict[str, _RawOp]:
    """Return every form of every rule by its name."""
    forms = {}
    for op, (rule, inputs) in _INPUTS.items():
        dense = inputs.replace("[indices]", "").split()
        sparse = inputs.replace("[indices]", "indices").replace("delta", "grad").split()
        for prefix in ("Resource",) if op in _NO_REF else ("", "Resource"):
            name = f"{prefix}Apply{op}"
            forms[name] = _RawOp(name, rule, dense)
            if "indices" in sparse:
                name = f"{prefix}SparseApply{op}"
                forms[name] = _RawOp(name, rule, sparse)
    return forms


_OPS = _forms()
globals().update({name: op.function() for name, op in _OPS.items()})

_SDCA = ("SdcaFprint", "SdcaOptimizer", "SdcaOptimizerV2", "SdcaShrinkL1")

__all__ = sorted([*_OPS, *_SDCA, "ClipByValue", "L2Loss"])


# ---- ops that train nothing


@recorded(*BY_VALUE)
def ClipByValue(
    *, t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None
) -> Any:
    """Clip each element to two bounds, scalars or of t's shape."""
    array = as_tensor(t, "t", FLOATS + INTEGERS)
    high = as_bound(clip_value_max, "clip_value_max", "ClipByValue", array.dtype)
    low = as_bound(clip_value_min, "clip_value_min", "ClipByValue", array.dtype)
    if {low.shape, high.shape} - {(), array.shape}:
        raise InvalidArgumentError(
            "clip_value_min and clip_value_max must be either of the same shape as input, or a "
            f"scalar. input shape: {_text(array.shape)}clip_value_min shape: {_text(low.shape)}"
            f"clip_value_max shape: {_text(high.shape)}"
        )
    return clip_by_value(array, low, high)


def _text(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


@recorded(lambda g, y, t, name=None: g * t)
def L2Loss(*, t: Any, name: str | None = None) -> Any:
    """Return half the sum of all squares, summed in float64 and rounded once."""
    array = as_tensor(t, "t", FLOATS)
    with np.errstate(over="ignore", under="ignore"):
        return (sum_of_squares(array) / 2).astype(array.dtype)


# ---- dual coordinate ascent


def _optimizer(op: str, flag: str) -> Callable[..., SdcaResult]:
    """Return one of the two ops of sdca_optimizer, which spell its `adaptive` differently."""
    inputs = list(inspect.signature(sdca_optimizer).parameters)
    inputs = inputs[: inputs.index("adaptive")]
    defaults = {flag: True, "name": None}
    signature = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in inputs]
        + [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
            for name, default in defaults.items()
        ]
    )

    def call(*args: Any, **kwargs: Any) -> SdcaResult:
        given = defaults | signature.bind(*args, **kwargs).arguments
        return sdca_optimizer(**{name: given[name] for name in inputs}, adaptive=bool(given[flag]))

    call.__name__ = call.__qualname__ = op
    call.__doc__ = f"{sdca_optimizer.__doc__}\n\n``{op}{signature}``"
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


SdcaOptimizer = _optimizer("SdcaOptimizer", "adaptative")
SdcaOptimizerV2 = _optimizer("SdcaOptimizerV2", "adaptive")


def SdcaShrinkL1(*, weights: Any, l1: Any, l2: Any, name: str | None = None) -> None:
    """Set each weight t to sign(t) * max(|t| - l1 / l2, 0), in place."""
    sdca_shrink_l1(weights, l1, l2)


def SdcaFprint(*, input: Any, name: str | None = None) -> np.ndarray:
    """Return the two halves of each string's fingerprint."""
    return sdca_fprint(input)
