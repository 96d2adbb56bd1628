"""Which steps a loss scale leaves out: those with a gradient that is not finite, wherever it is."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfopt

DTYPES = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
#: Those in which a norm that is taken anyway tells, and those in which it does not.
CLIPPING: tuple[dict[str, Any], ...] = (
    {},
    {"clipnorm": 1.0},
    {"global_clipnorm": 1.0},
    {"clipvalue": 1.0},
    {"clipvalue": 1.0, "global_clipnorm": 1.0},
    {"global_clipnorm": 1.0, "merge": "before"},
)


def laid_out(values: np.ndarray, layout: str) -> np.ndarray:
    """Return values in memory that is a run, has gaps, or has its axes swapped."""
    if layout == "run":
        return values
    if layout == "gaps":
        wide = np.zeros((*values.shape[:-1], 2 * values.shape[-1]), values.dtype)
        wide[..., ::2] = values
        return wide[..., ::2]
    return np.asfortranarray(values)


@given(data=st.data())
def test_one_element_decides(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    shape = data.draw(st.sampled_from([(1, 1), (3, 21), (2, 64), (5, 300)]))
    layout = data.draw(st.sampled_from(["run", "gaps", "swapped"]))
    size = int(np.prod(shape))
    bits = data.draw(st.integers(0, (1 << 8 * np.dtype(dtype).itemsize) - 1))
    special = data.draw(st.sampled_from([np.inf, -np.inf, np.nan, None]))
    own = np.dtype(dtype).type
    odd = np.array([bits], f"u{np.dtype(dtype).itemsize}").view(dtype)[0]
    odd = odd if special is None else own(special)
    values = np.zeros(size, dtype)
    values[data.draw(st.integers(0, size - 1))] = odd
    grad = laid_out(values.reshape(shape), layout)
    var = np.ones(shape, dtype if dtype is np.float64 else np.float32)
    other, before = np.ones(3, var.dtype), var.copy()
    opt = tfopt.optimizers.LossScaleOptimizer(
        tfopt.optimizers.SGD(0.5, **data.draw(st.sampled_from(CLIPPING))), 4.0
    )
    opt.apply_gradients([(np.ones(3, var.dtype), other), (grad, var)])
    finite = bool(np.isfinite(np.float64(odd)))
    assert int(opt.iterations) == finite
    assert float(opt.dynamic_scale) == (4.0 if finite else 2.0)
    if not finite:
        np.testing.assert_array_equal(var, before)
        np.testing.assert_array_equal(other, 1)


@pytest.mark.parametrize("clipping", CLIPPING, ids=str)
def test_rows_decide_too(clipping: dict[str, Any]) -> None:
    opt = tfopt.optimizers.LossScaleOptimizer(tfopt.optimizers.SGD(0.5, **clipping), 4.0)
    table = np.ones((3, 2))
    values = np.array([[1.0, 2.0], [np.nan, 1.0]])
    opt.apply_gradients([(tfopt.IndexedSlices(values, np.array([0, 2])), table)])
    assert (table == 1).all() and float(opt.dynamic_scale) == 2
    opt.apply_gradients([(tfopt.IndexedSlices(values[:1], np.array([0])), table)])
    assert (table[0] < 1).all() and (table[1:] == 1).all() and int(opt.iterations) == 1


@pytest.mark.parametrize("clipping", CLIPPING, ids=str)
def test_finite_numbers_whose_squares_overflow(clipping: dict[str, Any]) -> None:
    opt = tfopt.optimizers.LossScaleOptimizer(tfopt.optimizers.SGD(0.5, **clipping), 4.0)
    var = np.ones(4)
    opt.apply_gradients([(np.full(4, 1e300), var)])
    assert int(opt.iterations) == 1 and np.isfinite(var).all()


def test_a_step_that_was_left_out_is_as_if_it_had_not_been() -> None:
    opt = tfopt.optimizers.LossScaleOptimizer(tfopt.optimizers.Adam(0.1, global_clipnorm=1.0), 4.0)
    plain = tfopt.optimizers.LossScaleOptimizer(
        tfopt.optimizers.Adam(0.1, global_clipnorm=1.0), 2.0
    )
    one, two, grad = np.ones(3), np.ones(3), np.array([1.0, 2.0, 3.0])
    opt.apply_gradients([(np.array([1.0, np.inf, 3.0]), one)])
    for k in range(4):
        opt.apply_gradients([(grad + k, one)])
        plain.apply_gradients([(grad + k, two)])
    np.testing.assert_array_equal(one, two)
