"""Entries of a structure that share memory are refused, each time, and nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common.step_cases import every_optimizer, everything

import tfopt

Two = tuple[np.ndarray, np.ndarray]
SHARED: dict[str, tuple[Callable[[np.ndarray], Two], str]] = {
    "the same": (lambda w: (w, w), "are the same array"),
    "a view of all": (lambda w: (w, w[:]), "are the same array"),
    "transposed": (lambda w: (w[:3], w[:3].T), "overlap in memory"),
    "rows of both": (lambda w: (w[:3], w[2:]), "overlap in memory"),
    "a column and a row": (lambda w: (w[:, 1], w[1]), "overlap in memory"),
}
APART: dict[str, Callable[[np.ndarray], Two]] = {
    "rows": lambda w: (w[:2], w[2:]),
    "columns": lambda w: (w[:, :1], w[:, 1:]),
    "every second": lambda w: (w[::2], w[1::2]),
    "nothing": lambda w: (w, w[:0]),
}


def arrays() -> np.ndarray:
    return np.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize("how", SHARED)
@pytest.mark.parametrize("name", every_optimizer())
def test_what_shares_memory_is_refused(name: str, how: str) -> None:
    opt, whole = every_optimizer()[name](), arrays()
    split, message = SHARED[how]
    a, b = split(whole)
    params: dict[str, Any] = {"x": {"a": a}, "y": b}
    grads = {"x": {"a": np.ones_like(a)}, "y": np.ones_like(b)}
    before = everything(opt, {"w": whole})
    for _ in range(2):
        with pytest.raises(tfopt.InvalidArgumentError, match=f"x/a and y {message}"):
            opt.step(params, grads)
        assert everything(opt, {"w": whole}) == before
    alone = {"x": grads["x"], "y": None}
    opt.step(params, alone)
    with pytest.raises(tfopt.InvalidArgumentError, match=message):
        opt.step(params, grads)
    opt.step(params, alone)
    assert not np.array_equal(a, split(arrays())[0])


@pytest.mark.parametrize("how", APART)
def test_what_shares_an_array_but_no_element_is_stepped(how: str) -> None:
    opt, whole, expected = tfopt.optimizers.Adam(0.5), arrays(), arrays()
    for _ in range(3):
        a, b = APART[how](whole)
        opt.step([a, b], [np.ones_like(a), np.ones_like(b)])
    again = tfopt.optimizers.Adam(0.5)
    for _ in range(3):
        again.step([expected], [np.ones_like(expected)])
    np.testing.assert_array_equal(whole, expected)


def test_pairs_of_one_variable_are_updated_in_order_as_in_tensorflow() -> None:
    w, opt = np.zeros(2), tfopt.optimizers.SGD(1.0, momentum=0.5)
    opt.apply_gradients([(np.array([1.0, 2.0]), w), (np.array([3.0, 4.0]), w)])
    assert w.tolist() == [-(1 + 0.5 + 3), -(2 + 1 + 4)] and int(opt.iterations) == 1
