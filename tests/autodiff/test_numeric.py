"""Gradients compared with finite differences: empty arrays, and messages of failures."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tfopt
from tfopt.autodiff import check_grads, compute_gradient

SIZES = (0, 1, 3)


@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_shapes_of_jacobians_of_all_sizes(dtype: Any) -> None:
    """(result's size, argument's size), whichever of them is 0; complex numbers count twice."""
    twice = 2 if dtype is np.complex64 else 1
    for m, k, n in itertools.product(SIZES, repeat=3):
        args = [np.ones((m, k), dtype), np.ones((k, n), dtype)]
        for found in compute_gradient(np.matmul, args):
            shapes = [matrix.shape for matrix in found]
            assert shapes == [(twice * m * n, twice * a.size) for a in args], (m, k, n)
            assert [matrix.dtype for matrix in found] == [a.real.dtype for a in args]


def test_a_failure_names_the_order_and_the_argument() -> None:
    without_second = tfopt.custom_gradient(
        lambda x: (x.numpy() ** 3, lambda g: g * 3 * x.numpy() ** 2)
    )
    args = [np.array([0.3, 2.0]), np.array([0.4, 1.0])]

    def f(a: Any, b: Any) -> Any:
        return a * without_second(b)

    tfopt.autodiff.set_conversion("ignore")
    try:
        check_grads(f, args, order=1)
        with pytest.raises(AssertionError, match="order 2 with respect to argument 1"):
            check_grads(f, args)
        wrong = tfopt.custom_gradient(lambda x: (x * 2.0, lambda g: g * 3.0))
        with pytest.raises(AssertionError, match="order 1 with respect to argument 0"):
            check_grads(lambda a, b: wrong(a) * b, args)
    finally:
        tfopt.autodiff.set_conversion("warn")


def test_a_tape_that_was_not_used() -> None:
    x = tfopt.constant(1.0)
    with pytest.raises(RuntimeError, match="has been entered, which it has not"):
        tfopt.GradientTape().gradient(x, x)
    with tfopt.GradientTape() as tape:
        tape.watch(x)
    tape.gradient(x, x)
    with pytest.raises(RuntimeError, match="can only be used to compute one set of gradients"):
        tape.gradient(x, x)
