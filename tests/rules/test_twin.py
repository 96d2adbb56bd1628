"""The fast package equals its twin bit for bit: every rule, dtype, kind of call and layout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from common.cases import (
    DTYPES,
    LAYOUTS,
    RULES,
    TRIED,
    WITH_ROWS,
    arrays_for,
    assert_same_bits,
    hypers,
    lay_out,
    numbers,
    ordinary_hypers,
    whole,
)
from common.updates import update
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import tfopt
import tfopt_ref
from tfopt.rules import Rule, checks_of

KINDS = ("dense", "sparse")
GRADIENTS = (*LAYOUTS, "read-only", "broadcast")

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
each_dtype = pytest.mark.parametrize("dtype", DTYPES)
each_call = pytest.mark.parametrize(
    ("rule", "kind"),
    [
        pytest.param(rule, kind, id=f"{kind}-{rule.name}")
        for rule in RULES
        for kind in (KINDS if rule in WITH_ROWS else KINDS[:1])
    ],
)
each_kind = pytest.mark.parametrize("kind", KINDS)


def call(package: Any, rule: Rule, operands: list[np.ndarray], options: dict[str, Any]) -> None:
    update(package, rule.name, *operands, **options)


def gradient(values: np.ndarray, layout: str) -> np.ndarray:
    if layout == "read-only":
        values = values.copy()
        values.flags.writeable = False
        return values
    if layout == "broadcast":
        return np.broadcast_to(values.flat[0], values.shape) if values.size else values
    return lay_out(values, layout)


@pytest.mark.counted
@pytest.mark.sampled_whole
@each_call
@each_dtype
@settings(max_examples=2 * settings.default.max_examples)
@given(data=st.data())
def test_bits(rule: Rule, dtype: str, kind: str, data: st.DataObject) -> None:
    """In every layout, and nothing between the elements is touched."""
    least = 1 if kind == "sparse" else 0
    shape = data.draw(array_shapes(min_dims=least, max_dims=3, min_side=0, max_side=5))
    if kind == "sparse" and "inner" in checks_of(rule).rows:
        shape = (shape[0], *(n or 1 for n in shape[1:]))  # TensorFlow refuses empty rows
    options = data.draw(hypers(rule, dtype))
    grad_shape = shape
    if kind == "sparse":
        n = data.draw(st.integers(0, 6)) if shape[0] else 0
        index_dtype = data.draw(st.sampled_from([np.int32, np.int64]))
        rows = st.integers(0, max(shape[0] - 1, 0))
        options["indices"] = data.draw(arrays(index_dtype, n, elements=rows))
        grad_shape = (n, *shape[1:])
    *variables, grad = (
        data.draw(numbers(dtype, s))
        for s in [*(rule.shape_of(name, shape) for name in rule.operands[:-1]), grad_shape]
    )
    grad = gradient(grad, data.draw(st.sampled_from(GRADIENTS)))
    flush = data.draw(st.booleans())
    for package in (tfopt, tfopt_ref):
        package.set_flush_denormals(flush)
    expected = [value.copy() for value in variables]
    call(tfopt_ref, rule, [*expected, grad.copy()], options)
    before = whole(grad).copy()
    for layout in LAYOUTS:
        operands = [lay_out(value, layout) for value in variables]
        call(tfopt, rule, [*operands, grad], options)
        for name, fast, ref in zip(rule.operands, operands, expected, strict=False):
            assert_same_bits(whole(fast), whole(lay_out(ref, layout)), f"{layout}: {name}")
        assert_same_bits(whole(grad), before, f"{layout}: the gradient")
        TRIED[rule.name, dtype, kind, layout] += 1


@each_rule
@pytest.mark.parametrize("layout", LAYOUTS)
def test_threads_share_arrays_of_any_layout(rule: Rule, layout: str) -> None:
    """Each begins anywhere in them."""
    values = arrays_for(rule, (50, 36, 40), "float32")
    operands = [lay_out(value, layout) for value in values]
    for threads, arrays_ in ((1, values), (3, operands)):
        tfopt.threads.set_num_threads(threads)
        call(tfopt, rule, arrays_, ordinary_hypers(rule))
    for name, got, want in zip(rule.operands, operands, values, strict=True):
        assert_same_bits(whole(got), whole(lay_out(want, layout)), f"{layout}: {name}")


@each_call
@each_dtype
@pytest.mark.parametrize("width", [1, 3, 40, 70_000])
def test_threads_do_not_change_bits(rule: Rule, dtype: str, kind: str, width: int) -> None:
    """Enough work for several threads: 70 000 elements, rows of any width, many repeats."""
    rows = 70_000 // width if kind == "dense" else max(2, 30_000 // width)
    values = arrays_for(rule, (rows, width), dtype)
    options: dict[str, Any] = ordinary_hypers(rule)
    if kind == "sparse":
        random = np.random.default_rng(1)
        n = max(3, 40_000 // width)
        options["indices"] = (rows * random.random(n) ** 3).astype(np.int64)
        values[-1] = random.standard_normal((n, width)).astype(dtype)
    expected = None
    for threads in (1, 2, 3):
        tfopt.threads.set_num_threads(threads)
        operands = [v.copy() for v in values]
        call(tfopt, rule, operands, options)
        expected = expected or operands
        for name, got, want in zip(rule.operands, operands, expected, strict=True):
            assert_same_bits(got, want, f"{rule.name}, {threads} threads: {name}")
    if kind == "dense" or len(options["indices"]) < 2000:
        reference = [v.copy() for v in values]
        call(tfopt_ref, rule, reference, options)
        for name, got, want in zip(rule.operands, expected, reference, strict=True):
            assert_same_bits(got, want, f"{rule.name}: {name}")


@pytest.mark.parametrize("rule", WITH_ROWS, ids=lambda rule: rule.name)
@each_dtype
def test_place_in_a_run_does_not_change_bits(rule: Rule, dtype: str) -> None:
    """Vector body or scalar tail: element k of any run of any length is computed alike."""
    values = arrays_for(rule, 64, dtype)
    full = [v.copy() for v in values]
    call(tfopt, rule, full, ordinary_hypers(rule))
    for length in range(1, 40):
        for start in (0, 1, 3):
            part = [v[start : start + length].copy() for v in values]
            call(tfopt, rule, part, ordinary_hypers(rule))
            for name, got, want in zip(rule.operands, part, full, strict=True):
                assert_same_bits(got, want[start : start + length], f"{rule.name}: {name}")


@pytest.mark.parametrize("rule", [r for r in RULES if "lr_power" in r.hypers], ids=lambda r: r.name)
@each_dtype
@each_kind
@pytest.mark.parametrize("lr_power", [-0.75, -0.3, -1.0, 0.0])
def test_powers_agree_to_four_ulp(rule: Rule, dtype: str, kind: str, lr_power: float) -> None:
    """With another power than a root, both go through pow, which may differ by 4 ULP."""
    values = arrays_for(rule, (50, 20), dtype)
    options: dict[str, Any] = {**ordinary_hypers(rule), "lr_power": lr_power}
    if kind == "sparse":
        options["indices"] = np.arange(50)
    var, accum, linear, grad = (v.astype(np.float64) for v in values)
    results = []
    for package in (tfopt, tfopt_ref):
        operands = [v.copy() for v in values]
        call(package, rule, operands, options)
        results.append([o.astype(np.float64) for o in operands])
    (fast_var, fast_accum, fast_linear, _), (ref_var, ref_accum, ref_linear, _) = results
    assert_same_bits(fast_accum, ref_accum, "accum")
    eps, lr = float(np.finfo(dtype).eps), options["lr"]
    power = (accum + grad**2) ** -lr_power
    slack = 4 * eps * 2 * power * np.abs(var) / lr + 4 * eps * (np.abs(linear) + np.abs(grad))
    assert (np.abs(fast_linear - ref_linear) <= slack).all()
    y = power / lr + 2 * options["l2"]
    assert (np.abs(fast_var - ref_var) <= slack / y + 8 * eps * np.abs(ref_var)).all()


@pytest.mark.parametrize("rule", [r for r in RULES if "logbase" in r.hypers], ids=lambda r: r.name)
@each_dtype
@each_kind
@pytest.mark.parametrize("logbase", [1.0, -2.5, 0.3])
def test_exponentials_agree_to_four_ulp(rule: Rule, dtype: str, kind: str, logbase: float) -> None:
    values = arrays_for(rule, (50, 20), dtype)
    options: dict[str, Any] = {**ordinary_hypers(rule), "logbase": logbase}
    if kind == "sparse":
        options["indices"] = np.arange(50)
    results = []
    for package in (tfopt, tfopt_ref):
        operands = [v.copy() for v in values]
        call(package, rule, operands, options)
        results.append(operands)
    (fast_var, fast_m, _), (ref_var, ref_m, _) = results
    assert_same_bits(fast_m, ref_m, "m")
    eps = float(np.finfo(dtype).eps)
    step = np.abs(ref_var - values[0])
    assert (np.abs(fast_var - ref_var) <= 5 * eps * step + eps * np.abs(ref_var)).all()
    assert (fast_var != values[0]).any()


def test_rows_equal_the_dense_step_where_the_table_has_one_step() -> None:
    for rule in (r for r in WITH_ROWS if r.rows is None):
        for dtype in DTYPES:
            dense = arrays_for(rule, (9, 5), dtype)
            rows = [v.copy() for v in dense]
            call(tfopt, rule, dense, ordinary_hypers(rule))
            call(tfopt, rule, rows, {**ordinary_hypers(rule), "indices": np.arange(9)})
            for name, got, want in zip(rule.operands, rows, dense, strict=True):
                assert_same_bits(got, want, f"{rule.name}: {name}")


def test_flushing_is_the_default_and_gradual_underflow_a_choice(impl: Any) -> None:
    tiny = float(np.finfo(np.float32).tiny)
    for flush, expected in ((True, 0.0), (False, tiny / 4)):
        impl.set_flush_denormals(flush)
        assert impl.get_flush_denormals() is flush
        var = np.array([tiny / 4], np.float32)
        update(impl, "gradient_descent", var, np.zeros(1, np.float32), alpha=1.0)
        assert var[0] == np.float32(expected)


def test_a_denormal_maximum_of_amsgrad_is_flushed_as_any_other_number(impl: Any) -> None:
    """It is compared and kept, and no arithmetic of the formula would flush it."""
    tiny = float(np.finfo(np.float32).tiny)
    rule = next(r for r in RULES if r.name == "adam_with_amsgrad")
    for flush, expected in ((True, 0.0), (False, tiny / 4)):
        impl.set_flush_denormals(flush)
        var, m, v, vhat, grad = (np.zeros(1, np.float32) for _ in rule.operands)
        vhat[0] = tiny / 4
        call(impl, rule, [var, m, v, vhat, grad], ordinary_hypers(rule))
        assert vhat[0] == np.float32(expected)


def test_a_product_just_below_the_normal_range_is_flushed(impl: Any) -> None:
    """Rounded to full precision it is denormal; gradual underflow alone would round it up."""
    tiny, below_one = np.finfo(np.float32).tiny, np.nextafter(np.float32(1), np.float32(0))
    var = np.zeros(1, np.float32)
    delta = np.array([-tiny], np.float32)
    update(impl, "gradient_descent", var, delta, alpha=float(below_one))
    assert var[0] == 0 and math.copysign(1, var[0]) == 1
