"""Rows with many occurrences, which have blocks of their own, get the bits of the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import ELEMENTWISE, arrays_for, assert_same_bits, ordinary_hypers
from devices import DEVICE
from test_cuda_clipped_updates import Model
from test_cuda_twin import call, dtype_of, each_rule

import tfopt
from tfopt.rules import Rule

#: Up to 64 are few; the last ones take several tiles, of 32 rows or of 2048 numbers.
OCCURRENCES = (1, 63, 64, 65, 66, 1, 64, 128, 129, 2, 700, 65)
TYPES = ("float32", "float64", "float16", "bfloat16", "float32 by float16", "float32 by bfloat16")
ROWS = 40


def indices_of(occurrences: tuple[int, ...]) -> np.ndarray:
    """Return every third row as often as said, in any order."""
    listed = np.repeat(3 * np.arange(len(occurrences)), occurrences)
    return np.random.default_rng(1).permutation(listed)


def compare(rule: Rule, types: str, inner: Any, options: dict[str, Any], occurrences: Any) -> None:
    stored, _, narrow = types.partition(" by ")
    indices = indices_of(occurrences)
    values = arrays_for(rule, (ROWS, *inner), dtype_of(stored))[:-1]
    grad = np.random.default_rng(0).standard_normal((len(indices), *inner))
    values.append(grad.astype(dtype_of(narrow or stored)))
    if rule.absent:
        options = options | {"duplicates": "sum"}
    options = {**ordinary_hypers(rule), **options}
    there = [DEVICE.to(value) for value in values]
    call(tfopt, rule, there, options | {"indices": DEVICE.to(indices)})
    tfopt.set_flush_denormals(False)
    call(tfopt, rule, values, options | {"indices": indices})
    for name, one, other in zip(rule.operands, there, values, strict=True):
        assert_same_bits(DEVICE.back(one), other, f"{rule.name}: {name}")


@each_rule
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("duplicates", ["sequential", "sum"])
def test_many_occurrences(rule: Rule, types: str, duplicates: str) -> None:
    compare(rule, types, (5,), {"duplicates": duplicates}, OCCURRENCES)


@pytest.mark.parametrize(
    "rule", [r for r in ELEMENTWISE if r.name in ("adagrad", "keras_adam")], ids=lambda r: r.name
)
@pytest.mark.parametrize("inner", [(), (1,), (2,), (63,), (64,), (65,), (3, 50), (2100,)])
@pytest.mark.parametrize("duplicates", ["sequential", "sum"])
def test_widths(rule: Rule, inner: Any, duplicates: str) -> None:
    """A block has up to 64 columns of a row; the fewer, the more rows are in a tile."""
    occurrences = OCCURRENCES
    if np.prod(inner) <= 2:
        occurrences = (*OCCURRENCES, 5000)
    compare(rule, "float32", inner, {"duplicates": duplicates}, occurrences)


@pytest.mark.parametrize("n", [64, 65])
def test_nothing_but_one_row(n: int) -> None:
    rule = next(rule for rule in ELEMENTWISE if rule.name == "adagrad")
    compare(rule, "float32", (7,), {}, (n,))


def test_more_rows_than_blocks() -> None:
    """The blocks of one launch take several rows in turn, or several parts of a row."""
    rule = next(rule for rule in ELEMENTWISE if rule.name == "adagrad")
    compare(rule, "float32", (64 * 200 + 1,), {}, (65, 70, 97))


@pytest.mark.parametrize("check", [True, False])
def test_rows_that_do_not_exist(check: bool) -> None:
    """Checked, they are refused and nothing is written; unchecked, they are skipped."""
    listed = np.r_[np.repeat([1, 9, -1, 2], 100), 4]
    var = DEVICE.to(np.zeros((5, 3), np.float32))
    grad = DEVICE.to(np.ones((len(listed), 3), np.float32))
    options = {"alpha": 1.0, "indices": DEVICE.to(listed), "check_indices": check}
    if check:
        with pytest.raises(tfopt.errors.IndexOutOfRangeError, match="offset 100"):
            tfopt.training_ops.apply_gradient_descent(var, grad, **options)
    else:
        tfopt.training_ops.apply_gradient_descent(var, grad, **options)
    expected = [0, 0, 0, 0, 0] if check else [0, -100, -100, 0, -1]
    np.testing.assert_array_equal(DEVICE.back(var)[:, 2], expected)


def test_duplicates_that_are_an_error() -> None:
    var = DEVICE.to(np.zeros((5, 3), np.float32))
    grad = DEVICE.to(np.ones((300, 3), np.float32))
    indices = DEVICE.to(np.repeat([4, 1, 0], 100))
    with pytest.raises(tfopt.errors.InvalidArgumentError, match="duplicates"):
        tfopt.training_ops.apply_gradient_descent(
            var, grad, alpha=1.0, indices=indices, duplicates="error"
        )
    np.testing.assert_array_equal(DEVICE.back(var), 0)


@pytest.mark.parametrize("name", ["momentum", "keras_adam"])
@pytest.mark.parametrize("duplicates", ["sequential", "sum"])
@pytest.mark.parametrize("limits", [{"clipvalue": 0.4}, {"clipnorm": 9.0}], ids=", ".join)
def test_clipped(name: str, duplicates: str, limits: dict[str, float]) -> None:
    """Each gradient is clipped, or their sum."""
    rule = next(rule for rule in ELEMENTWISE if rule.name == name)
    tfopt.set_flush_denormals(False)
    model = Model(rule, "sum" if rule.absent else duplicates)
    indices = indices_of(OCCURRENCES)
    gradient = np.random.default_rng(2).standard_normal((len(indices), 6)).astype(np.float32)
    model.add_table(gradient, indices, ROWS)
    model.compare(**limits)
