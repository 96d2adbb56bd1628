# Written by tests/test_stubs.py from the table.
from typing import Any, SupportsFloat, TypeAlias

from numpy import signedinteger
from numpy.typing import NDArray

from tfopt.variable import Variable

__all__ = [
    "apply_adagrad",
    "apply_adamax",
    "apply_ftrl",
    "apply_ftrl_v2",
    "apply_gradient_descent",
    "apply_keras_momentum",
    "apply_momentum",
]

_Array: TypeAlias = NDArray[Any] | Variable

def apply_gradient_descent(
    var: _Array,
    delta: _Array,
    *,
    alpha: SupportsFloat,
    indices: NDArray[signedinteger] | None = ...,
    grad_scale: SupportsFloat = ...,
) -> None: ...
def apply_momentum(
    var: _Array,
    accum: _Array,
    grad: _Array,
    *,
    lr: SupportsFloat,
    momentum: SupportsFloat,
    use_nesterov: bool = ...,
    indices: NDArray[signedinteger] | None = ...,
    grad_scale: SupportsFloat = ...,
) -> None: ...
def apply_keras_momentum(
    var: _Array,
    accum: _Array,
    grad: _Array,
    *,
    lr: SupportsFloat,
    momentum: SupportsFloat,
    use_nesterov: bool = ...,
    indices: NDArray[signedinteger] | None = ...,
    grad_scale: SupportsFloat = ...,
) -> None: ...
def apply_adagrad(
    var: _Array,
    accum: _Array,
    grad: _Array,
    *,
    lr: SupportsFloat,
    update_slots: bool = ...,
    indices: NDArray[signedinteger] | None = ...,
    grad_scale: SupportsFloat = ...,
) -> None: ...
def apply_adamax(
    var: _Array,
    m: _Array,
    v: _Array,
    grad: _Array,
    *,
    beta1_power: SupportsFloat,
    lr: SupportsFloat,
    beta1: SupportsFloat,
    beta2: SupportsFloat,
    epsilon: SupportsFloat,
    indices: NDArray[signedinteger] | None = ...,
    grad_scale: SupportsFloat = ...,
) -> None: ...
def apply_ftrl(
    var: _Array,
    accum: _Array,
    linear: _Array,
    grad: _Array,
    *,
    lr: SupportsFloat,
    l1: SupportsFloat,
    l2: SupportsFloat,
    lr_power: SupportsFloat,
    multiply_linear_by_lr: bool = ...,
    indices: NDArray[signedinteger] | None = ...,
    grad_scale: SupportsFloat = ...,
) -> None: ...
def apply_ftrl_v2(
    var: _Array,
    accum: _Array,
    linear: _Array,
    grad: _Array,
    *,
    lr: SupportsFloat,
    l1: SupportsFloat,
    l2: SupportsFloat,
    l2_shrinkage: SupportsFloat,
    lr_power: SupportsFloat,
    multiply_linear_by_lr: bool = ...,
    indices: NDArray[signedinteger] | None = ...,
    grad_scale: SupportsFloat = ...,
) -> None: ...
