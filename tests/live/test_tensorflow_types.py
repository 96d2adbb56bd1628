"""Both packages against TensorFlow in the types whose bits are not compared.

Numbers of 16 bits: TensorFlow rounds every operation, tfopt the whole step, so some units in the
last place are allowed. Complex ones: multiplication and division have several right orders.
"""

from __future__ import annotations

from types import ModuleType

import ml_dtypes
import numpy as np
import pytest
from common.updates import update
from golden.samples import settings
from golden.with_tensorflow import apply, has_sparse, required_tensorflow

from tfopt.rules import OPS, RULES, Rule

tf = required_tensorflow()

#: The error allowed, relative to the larger of the old and the new magnitude.
TOLERANCE = {"float16": 2**-7, "bfloat16": 2**-4, "complex64": 1e-5, "complex128": 1e-12}
ONLY_WIDE = ("proximal_gradient_descent", "proximal_adagrad", "adagrad_da")


def has_kernel(rule: Rule, dtype: str, sparse: bool) -> bool:
    """Whether TensorFlow has the op for the type, on a CPU."""
    if dtype.startswith("complex"):
        return rule.complex
    if dtype == "bfloat16" and (rule.name == "adamax" or (sparse and "rms_prop" in rule.name)):
        return False
    return rule.name not in ONLY_WIDE


CASES = [
    pytest.param(rule, dtype, sparse, id=f"{rule.name}-{dtype}-{'sparse' if sparse else 'dense'}")
    for rule in RULES
    if rule.name in OPS
    for dtype in TOLERANCE
    for sparse in (False, True)[: 1 + has_sparse(rule)]
    if has_kernel(rule, dtype, sparse)
]


@pytest.mark.parametrize(("rule", "dtype", "sparse"), CASES)
def test_step(impl: ModuleType, rule: Rule, dtype: str, sparse: bool) -> None:
    random = np.random.default_rng(0)
    type_ = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)

    def values(shape: tuple[int, ...]) -> np.ndarray:
        real = random.uniform(0.5, 2, shape)
        if dtype.startswith("complex"):
            return (real + 1j * random.uniform(-1, 1, shape)).astype(type_)
        return real.astype(type_)

    indices = np.array([4, 0, 2]) if sparse else None
    for setting in settings(rule)[:2]:
        hypers, flags = dict(setting["hypers"]), setting["flags"]
        old = [values((6, 4)) for _ in rule.operands[:-1]]
        if "mg" in rule.slots:  # far from where ms - mg * mg cancels, or is negative
            old[1] = (old[1] * type_.type(0.125)).astype(type_)
            hypers["rho"] = 0.9
        grad = values((3, 4) if sparse else (6, 4))
        theirs = apply(rule, old, grad, hypers, flags, indices)
        ours = [np.array(array) for array in old]
        update(impl, rule.name, *ours, grad, **hypers, **flags, indices=indices)
        for name, before, own, tf_s in zip(rule.operands, old, ours, theirs, strict=False):
            wide = np.complex128 if dtype.startswith("complex") else np.float64
            scale = np.maximum(np.abs(before.astype(wide)), np.abs(tf_s.astype(wide)))
            error = np.abs(own.astype(wide) - tf_s.astype(wide))
            assert (error <= TOLERANCE[dtype] * scale).all(), (name, setting)
