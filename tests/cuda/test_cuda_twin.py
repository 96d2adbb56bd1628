"""Updates of arrays on a GPU equal the twin's with gradual underflow, bit for bit.

On machines without a GPU the kernels run on the host; see devices.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import (
    ELEMENTWISE,
    TRIED,
    arrays_for,
    assert_same_bits,
    hypers,
    numbers,
    ordinary_hypers,
)
from common.updates import update
from devices import DEVICE
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import tfopt
import tfopt_ref
from tfopt.rules import OPS, Rule, checks_of

KINDS = ("dense", "sequential", "sum")
DTYPES = ("float32", "float64", "float16", "bfloat16")

each_rule = pytest.mark.parametrize("rule", ELEMENTWISE, ids=lambda rule: rule.name)
each_dtype = pytest.mark.parametrize("dtype", DTYPES)


def dtype_of(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        return np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    return np.dtype(name)


def call(package: Any, rule: Rule, operands: Any, options: dict[str, Any]) -> None:
    update(package, rule.name, *operands, **options)


def compare(rule: Rule, values: list[np.ndarray], options: dict[str, Any], what: str = "") -> None:
    """Update copies on the device and on the host; compare the variable, the slots, the rest."""
    there = [DEVICE.to(value) for value in values]
    options_there = dict(options)
    if "indices" in options:
        options_there["indices"] = DEVICE.to(options["indices"])
    call(tfopt, rule, there, options_there)
    here = [value.copy() for value in values]
    tfopt_ref.set_flush_denormals(False)
    call(tfopt_ref, rule, here, options)
    for name, one, other in zip(rule.operands, there, here, strict=True):
        assert_same_bits(DEVICE.back(one), other, f"{what}{rule.name}: {name}")


@pytest.mark.counted
@each_rule
@each_dtype
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_bits(rule: Rule, dtype: str, kind: str, data: st.DataObject) -> None:
    stored = dtype_of(dtype)
    drawn = "float32" if dtype == "bfloat16" else dtype
    rows = kind != "dense"
    # small enough for Hypothesis, which gives up examples that take too many choices
    shape = data.draw(array_shapes(min_dims=int(rows), max_dims=3, min_side=0, max_side=6))
    if rows and "inner" in checks_of(rule).rows:
        shape = (shape[0], *(n or 1 for n in shape[1:]))
    options = data.draw(hypers(rule, "float64" if dtype == "float64" else "float32"))
    grad_shape = shape
    if rows:
        n = data.draw(st.integers(0, 8)) if shape[0] else 0
        index_dtype = data.draw(st.sampled_from([np.int32, np.int64]))
        each = st.integers(0, max(shape[0] - 1, 0))
        meaning = "sum" if rule.absent else kind
        options |= {"indices": data.draw(arrays(index_dtype, n, elements=each))}
        options["duplicates"] = meaning
        grad_shape = (n, *shape[1:])
    narrow = dtype == "float32" and data.draw(st.booleans())
    grad_dtype = np.dtype("float16") if narrow else stored
    with np.errstate(over="ignore", invalid="ignore"):
        values = [
            data.draw(numbers(drawn, s)).astype(stored) for s in [shape] * (len(rule.operands) - 1)
        ]
        grad = data.draw(numbers(drawn, grad_shape)).astype(grad_dtype)
    compare(rule, [*values, grad], options)
    TRIED[f"{rule.name} on {DEVICE.name}", dtype, kind, "contiguous"] += 1


@each_rule
@each_dtype
@pytest.mark.parametrize("size", [1, 3, 255, 4096, 4097, 20_001])
def test_sizes_around_blocks(rule: Rule, dtype: str, size: int) -> None:
    values = arrays_for(rule, (size,), dtype_of(dtype))
    compare(rule, values, ordinary_hypers(rule))


@each_rule
def test_arrays_that_are_not_aligned_to_packs(rule: Rule) -> None:
    values = arrays_for(rule, (5000,), "float32")
    there = [DEVICE.part(DEVICE.to(np.r_[np.float32(7), v, np.float32(7)]), slice(1, -1))
             for v in values]  # fmt: skip
    call(tfopt, rule, there, ordinary_hypers(rule))
    tfopt_ref.set_flush_denormals(False)
    call(tfopt_ref, rule, values, ordinary_hypers(rule))
    for name, one, other in zip(rule.operands, there, values, strict=True):
        assert_same_bits(DEVICE.back(one), other, name)


@each_rule
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("inner", [(), (1,), (2, 3), (40,), (300,), (5000,)])
@pytest.mark.parametrize("duplicates", ["sequential", "sum"])
def test_rows_that_repeat(rule: Rule, dtype: str, inner: Any, duplicates: str) -> None:
    """Many occurrences of few rows, more of them than a block has threads."""
    random = np.random.default_rng(0)
    n = 400 if np.prod(inner) < 100 else 40
    values = arrays_for(rule, (20, *inner), dtype_of(dtype))
    grad = random.standard_normal((n, *inner)).astype(dtype_of(dtype))
    meaning = "sum" if rule.absent else duplicates
    options = {"indices": random.integers(0, 20, n), "duplicates": meaning}
    compare(rule, [*values[:-1], grad], {**ordinary_hypers(rule), **options})


@each_rule
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_many(rule: Rule, dtype: str) -> None:
    """Lists of arrays: more than one launch holds, empty ones, some longer than a block."""
    random = np.random.default_rng(0)
    n = 31_800 // (8 * (len(rule.operands) + 1) + 4) + 100  # drivers.h says how many one holds
    sizes = random.integers(0, 9, n)
    sizes[[3, n // 2, -1]] = [9000, 4096, 5]
    ends = np.cumsum(sizes)
    columns = [
        [part.copy() for part in np.split(values, ends[:-1])]
        for values in arrays_for(rule, (int(ends[-1]),), dtype_of(dtype))
    ]
    there = [[DEVICE.to(a) for a in column] for column in columns]
    call(tfopt, rule, there, ordinary_hypers(rule))
    tfopt.set_flush_denormals(False)
    call(tfopt, rule, columns, ordinary_hypers(rule))
    for name, one, other in zip(rule.operands, there, columns, strict=True):
        assert_same_bits(np.concatenate([DEVICE.back(a) for a in one]), np.concatenate(other), name)


@pytest.mark.parametrize(
    "rule", [r for r in ELEMENTWISE if r.name in OPS], ids=lambda rule: rule.name
)
def test_raw_ops(rule: Rule) -> None:
    values = arrays_for(rule, (6,), "float32")
    named = dict(zip(rule.operands, [DEVICE.to(v) for v in values], strict=True))
    var = named["var"]
    for lock in (False, True):
        arguments = {**named, **ordinary_hypers(rule), "use_locking": lock}
        assert getattr(tfopt.raw_ops, f"ResourceApply{OPS[rule.name].name}")(**arguments) is None
        call(tfopt, rule, values, ordinary_hypers(rule))
    if OPS[rule.name].ref:
        assert getattr(tfopt.raw_ops, f"Apply{OPS[rule.name].name}")(**arguments) is var
        call(tfopt, rule, values, ordinary_hypers(rule))
    for name, value in zip(rule.operands, values, strict=True):
        assert_same_bits(DEVICE.back(named[name]), value, name)


def test_variables() -> None:
    array = DEVICE.to(np.ones(3, np.float32))
    variable = tfopt.Variable(array, name="weights")
    grad = DEVICE.to(np.ones(3, np.float32))
    tfopt.raw_ops.ResourceApplyGradientDescent(
        var=variable, alpha=0.5, delta=grad, use_locking=True
    )
    assert variable.value() is array
    np.testing.assert_array_equal(DEVICE.back(array), 0.5)
    assert tuple(variable.shape) == (3,)
    for refused in (
        variable.numpy,
        lambda: variable.assign_add(np.zeros(3)),
        lambda: np.asarray(variable),
        lambda: tfopt.Variable(array, dtype="float32"),
    ):
        with pytest.raises(tfopt.errors.InvalidTypeError, match="on a GPU"):
            refused()
    np.testing.assert_array_equal(DEVICE.back(array), 0.5)
    for bad, error in (
        (np.zeros(2), tfopt.InvalidArgumentError),
        (DEVICE.to(np.zeros(2, np.float32)), tfopt.InvalidArgumentError),
        (np.zeros(3, complex), tfopt.InvalidTypeError),
    ):
        with pytest.raises(error, match="cannot assign"):
            variable.assign(bad)
    np.testing.assert_array_equal(DEVICE.back(array), 0.5)
    assert variable.assign([1.0, 2, 3]) is variable
    assert DEVICE.back(array).tolist() == [1, 2, 3]
    variable.assign(DEVICE.to(np.full(3, 4, np.float32)))
    assert DEVICE.back(array).tolist() == [4, 4, 4]


def test_gradients_of_the_variable_itself() -> None:
    """A dense gradient may be the variable: an element's is read before it is written."""
    array = DEVICE.to(np.full(5, 4, np.float32))
    tfopt.training_ops.apply_gradient_descent(array, array, alpha=0.5)
    np.testing.assert_array_equal(DEVICE.back(array), 2)


@pytest.mark.parametrize("check", [True, False])
def test_rows_that_do_not_exist(check: bool) -> None:
    """Checked, they are refused and nothing is written; unchecked, they are skipped."""
    var = DEVICE.to(np.zeros((4, 2), np.float32))
    grad = DEVICE.to(np.ones((5, 2), np.float32))
    indices = DEVICE.to(np.array([1, 4, 3, -1, 1]))
    options = {"alpha": 1.0, "indices": indices, "check_indices": check}
    if check:
        with pytest.raises(tfopt.errors.IndexOutOfRangeError, match="offset 1"):
            tfopt.training_ops.apply_gradient_descent(var, grad, **options)
        np.testing.assert_array_equal(DEVICE.back(var), 0)
    else:
        tfopt.training_ops.apply_gradient_descent(var, grad, **options)
        np.testing.assert_array_equal(DEVICE.back(var)[:, 0], [0, -2, 0, -1])


def test_duplicates_can_be_an_error() -> None:
    var = DEVICE.to(np.zeros((4, 2), np.float32))
    grad = DEVICE.to(np.ones((3, 2), np.float32))
    for ids, fits in (([2, 0, 2], False), ([2, 0, 1], True)):
        options = {"alpha": 1.0, "indices": DEVICE.to(np.array(ids)), "duplicates": "error"}
        if fits:
            tfopt.training_ops.apply_gradient_descent(var, grad, **options)
        else:
            with pytest.raises(tfopt.errors.InvalidArgumentError, match="duplicates"):
                tfopt.training_ops.apply_gradient_descent(var, grad, **options)
            np.testing.assert_array_equal(DEVICE.back(var), 0)
    np.testing.assert_array_equal(DEVICE.back(var)[:, 0], [-1, -1, -1, 0])
