"""Every rule: values as NumPy's, gradients as differences, first and second order, both alike."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from differences import check_grads
from vjp_cases import CASES, SPECIFIED, A, Case, in_both

import tfopt
import tfopt_ref
from tfopt_ref.autodiff.ops import Op
from tfopt_ref.autodiff.tensor import TABLE


def leaves(value: Any) -> list[np.ndarray]:
    parts = value if isinstance(value, (list, tuple)) else [value]
    return [np.asarray(part) for part in parts]


@pytest.mark.sampled_whole
@in_both(CASES)
def test_against_differences(impl: ModuleType, case: Case) -> None:
    tensors = [impl.constant(x) for x in case.args]
    for ours, numpys in zip(
        leaves(case.function(*tensors)), leaves(case.function(*case.args)), strict=True
    ):
        assert ours.shape == numpys.shape and ours.dtype == numpys.dtype
        np.testing.assert_allclose(ours, numpys, 1e-14, 1e-14)
    check_grads(impl, case.function, case.args)


@pytest.mark.parametrize("case", SPECIFIED, ids=lambda case: case.name)
def test_both_alike(case: Case) -> None:
    found = []
    for package in (tfopt, tfopt_ref):
        inputs = [package.constant(x) for x in case.args]
        with package.GradientTape() as tape:
            tape.watch(inputs)
            y = case.function(*inputs)
        seeds = [np.cos(np.arange(part.size)).reshape(part.shape) for part in leaves(y)]
        found.append(tape.gradient(y, inputs, seeds if isinstance(y, (list, tuple)) else seeds[0]))
    for fast, ref in zip(*found, strict=True):
        assert type(fast).__name__ == type(ref).__name__  # IndexedSlices in both, or in neither
        np.testing.assert_allclose(np.asarray(fast), np.asarray(ref), 1e-12, 1e-13)


@in_both(CASES)
def test_in_float32(impl: ModuleType, case: Case) -> None:
    """Gradients have the dtype of what they are gradients of."""
    inputs = [impl.constant(x, np.float32) for x in case.args]
    with impl.GradientTape() as tape:
        tape.watch(inputs)
        y = case.function(*inputs)
    for grad in tape.gradient(y, inputs, None, "zero"):
        assert grad.dtype == np.float32


@pytest.mark.parametrize("function", [np.fmax, np.fmin])
def test_nan_gets_no_gradient(impl: ModuleType, function: Any) -> None:
    a, b = impl.constant([1.0, np.nan, 2.0]), impl.constant([np.nan, 1.0, 2.0])
    with impl.GradientTape() as tape:
        tape.watch([a, b])
        y = function(a, b)
    of_a, of_b = tape.gradient(y, [a, b])
    assert list(of_a) == [1, 0, 1] and list(of_b) == [0, 1, 0]


def test_no_rule_is_without_a_case() -> None:
    seen: set[str] = set()
    for case in CASES:
        inputs = [tfopt_ref.constant(x) for x in case.args]
        with tfopt_ref.GradientTape() as tape:
            tape.watch(inputs)
            case.function(*inputs)
        seen.update(node.type for node in tape._nodes)
    has_rules = {op.name for op in TABLE.values() if isinstance(op, Op) and any(op.rules)}
    without = {"angle", "densify"}  # of complex numbers, of rows: see conventions, test_tape
    assert has_rules - seen - without == set()


def test_a_function_without_a_rule_fails_when_it_is_differentiated(impl: ModuleType) -> None:
    x = impl.constant(A)
    with impl.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = np.sort_complex(x).real
        z = x * 2.0
    np.testing.assert_array_equal(np.asarray(y), np.sort_complex(A).real)
    with pytest.raises(LookupError, match="sort_complex"):
        tape.gradient(y, x)
    assert np.asarray(tape.gradient(z, x)).tolist() == np.full((3, 4), 2.0).tolist()


def test_segments_without_a_rule_are_found_by_name(impl: ModuleType) -> None:
    y = np.maximum.reduceat(impl.constant(A), indices=[0, 2])
    np.testing.assert_array_equal(np.asarray(y), np.maximum.reduceat(A, [0, 2]))


def test_so_does_a_call_that_no_rule_covers(impl: ModuleType) -> None:
    x = impl.constant(A)
    with impl.GradientTape() as tape:
        tape.watch(x)
        y = np.pad(x, 1, mode="maximum")
    np.testing.assert_array_equal(np.asarray(y), np.pad(A, 1, mode="maximum"))
    with pytest.raises(LookupError, match="pad"):
        tape.gradient(y, x)
