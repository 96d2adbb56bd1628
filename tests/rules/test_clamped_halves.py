"""Gradients of 16-bit numbers clamped as they are read, against clamping them in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from ml_dtypes import bfloat16

from tfopt.kernels import kernels
from tfopt.kernels.update.adjustments import set_bounds
from tfopt.kernels.update.checks import dense_call
from tfopt.kernels.update.dense import run
from tfopt.kernels.update.sparse_checks import sparse_call

SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 6e-8, -6e-8, 0.25, -0.25]


def operands(n: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(n)
    var, grad = random.standard_normal((2, n)).astype(dtype)
    some = min(n, len(SPECIAL))
    grad[:some] = SPECIAL[:some]
    return var, grad


@pytest.mark.parametrize("bound", [0.0, 6e-8, 0.25, 0.3, 1e5, np.inf])  # 0.3 has no 16-bit number
@pytest.mark.parametrize("n", [1, 15, 16, 33, 64, 1500])
@pytest.mark.parametrize("dtype", [np.float16, bfloat16])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_clamped_step_is_that_of_float32_rounded_once(
    n: int, bound: float, dtype: Any, sparse: bool
) -> None:
    var, grad = operands(n, dtype)
    kept = grad.copy()
    clamped = np.clip(grad.astype(np.float32), np.float32(-bound), np.float32(bound))
    expected = (var.astype(np.float32) - clamped * np.float32(0.5)).astype(dtype)
    arguments = kernels["gradient_descent"], (var, grad)
    if sparse:
        rows = var[None], grad[None]
        call = sparse_call(arguments[0], rows, np.array([0]), (0.5,), 0, 1.0)
    else:
        call = dense_call(*arguments, (0.5,), 0, 1.0)
    set_bounds(call, [bound])
    run(call)
    finite = ~np.isnan(expected.astype(np.float32))
    assert_same_bits(var[finite], expected[finite], "var")
    assert np.isnan(var[~finite].astype(np.float32)).all()
    assert_same_bits(grad, kept, "grad")
