"""NumPy's functions of tensors, called with whatever they may be called with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfopt
from laws import numpy_calls
from tfopt.autodiff.ops import METHODS

LAW = numpy_calls.LAW


def test_every_function_of_the_tables_is_called() -> None:
    names = [name for group in LAW.factors["functions"] for name in numpy_calls._names(group)]
    assert sorted(names) == sorted(numpy_calls.FUNCTIONS) and len(names) > 280


# ---- what is not drawn


@pytest.mark.parametrize("name", ["median", "nanmedian", "quantile", "percentile"])
def test_operands_are_not_overwritten(name: str) -> None:
    function, q = getattr(np, name), (0.5,) if name[0] in "qp" else ()
    x = np.array([3.0, 1.0, 2.0])
    y = function(tfopt.constant(x), *q, overwrite_input=True)
    assert float(y) == function(x.copy(), *q)
    assert x.tolist() == [3.0, 1.0, 2.0]


def test_nan_to_num_makes_a_copy() -> None:
    x = tfopt.constant([np.nan, 1.0])
    assert np.nan_to_num(x, copy=False).tolist() == [0.0, 1.0] and np.isnan(x.numpy()[0])


@pytest.mark.parametrize("number", [2j, 2.0, 2, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_numbers_of_pythons_and_scalars(number: Any, dtype: Any) -> None:
    """Python's complex numbers know NumPy's float64 for a float, and make their own of it."""
    x, scalar = tfopt.constant(3.0, dtype), np.array(3.0, dtype)
    for call in (lambda x: number * x, lambda x: number + x, lambda x: x - number,
                 lambda x: number / x, lambda x: number - x):  # fmt: skip
        with tfopt.GradientTape() as tape:
            tape.watch(x)
            y = call(x)
        assert (y.dtype, complex(y)) == (call(scalar).dtype, complex(call(scalar)))
        grad = tape.gradient(y, x)
        assert grad is not None and grad.dtype == dtype


def test_an_index_of_many_arrays() -> None:
    """Each array that chooses is kept for the gradient, however many there are."""
    ndim = 30
    x = np.arange(2.0**3).reshape([2] * 3 + [1] * (ndim - 3))
    key = tuple(np.array([1, 0, 1]) if k < 3 else np.zeros(3, int) for k in range(ndim))
    tensor, indices = tfopt.constant(x), [np.repeat(k, 1000) for k in key]
    with tfopt.GradientTape() as tape:
        tape.watch(tensor)
        y = tensor[tuple(indices)]
    for k in indices:
        k[...] = 0  # of which the tape has a copy
    wanted = np.zeros(x.shape)
    np.add.at(wanted, key, 1000.0)
    np.testing.assert_array_equal(tape.gradient(y, tensor).numpy(), wanted)


def test_methods_are_the_functions() -> None:
    assert {"clip", "astype", "take", "diagonal", "trace", "std"} <= set(METHODS)
    x = tfopt.constant([[3.0, -1.0], [2.0, 5.0]])
    assert x.clip(0).tolist() == [[3, 0], [2, 5]] and x.clip(max=2).tolist() == [[2, -1], [2, 2]]
    assert x.diagonal(1).tolist() == [-1.0] and x.take([True, False], 1).tolist() == [
        [-1, 3],
        [5, 2],
    ]
