"""Complex variables, for rules that TensorFlow has for them; equal to the twin up to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import LAYOUTS, RULES, lay_out, ordinary_hypers, whole
from common.updates import update

import tfopt
import tfopt_ref
from tfopt.rules import Rule

TOLERANCE = {"complex64": 1e-5, "complex128": 1e-13}
COMPLEX = [rule for rule in RULES if rule.complex]
REAL = [rule for rule in RULES if not rule.complex]

each_rule = pytest.mark.parametrize("rule", COMPLEX, ids=lambda rule: rule.name)
each_dtype = pytest.mark.parametrize("dtype", TOLERANCE)


def complex_arrays(rule: Rule, shape: Any, dtype: str) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    parts = random.standard_normal((2, len(rule.operands), *shape))
    return list((parts[0] + 1j * parts[1]).astype(dtype))


def call(package: Any, rule: Rule, operands: list[np.ndarray], **options: Any) -> None:
    update(package, rule.name, *operands, **{**ordinary_hypers(rule), **options})


@each_rule
@each_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_values(rule: Rule, dtype: str, layout: str, sparse: bool) -> None:
    for shape in ((6,), (5, 3), (300, 2)):
        values = complex_arrays(rule, shape, dtype)
        options: dict[str, Any] = {"grad_scale": 0.5}
        if sparse:
            options["indices"] = np.array([1, 4, 1])
            values[-1] = values[-1][:3]
        for flag in rule.flags:
            options[flag] = sparse
        results = []
        for package in (tfopt, tfopt_ref):
            operands = [lay_out(v, layout) for v in values]
            call(package, rule, operands, **options)
            results.append(operands)
        for name, fast, ref in zip(rule.operands, *results, strict=True):
            np.testing.assert_allclose(
                whole(fast), whole(ref), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype], err_msg=name
            )
        assert not np.allclose(results[0][0], values[0])


@each_rule
@each_dtype
def test_threads_do_not_change_bits(rule: Rule, dtype: str) -> None:
    values = complex_arrays(rule, (70_001,), dtype)
    expected = None
    for threads in (1, 2, 3):
        tfopt.threads.set_num_threads(threads)
        operands = [v.copy() for v in values]
        call(tfopt, rule, operands)
        expected = expected or operands
        for a, b in zip(operands, expected, strict=True):
            assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("rule", REAL, ids=lambda rule: rule.name)
@each_dtype
def test_other_rules_refuse_them(rule: Rule, dtype: str) -> None:
    values = complex_arrays(rule, (3,), dtype)
    before = [v.tobytes() for v in values]
    with pytest.raises(tfopt.InvalidTypeError, match=r"float64, not complex"):
        call(tfopt, rule, values)
    assert [v.tobytes() for v in values] == before


def test_complex_hyperparameters_are_refused() -> None:
    var = np.ones(2, np.complex64)
    with pytest.raises(tfopt.InvalidTypeError, match="alpha must be a real number, not complex"):
        tfopt.training_ops.apply_gradient_descent(var, var.copy(), alpha=1j)


@each_dtype
def test_optimizers_take_them(dtype: str) -> None:
    var = np.ones((3, 1), dtype)
    rows = tfopt.IndexedSlices(np.array([[1j], [2], [1j]], dtype), [2, 0, 2])
    tfopt.optimizers.SGD(1.0, momentum=0.5).apply_gradients([(rows, var)])
    assert var.ravel().tolist() == [-1, 1, 1 - 2j]


@each_dtype
@pytest.mark.parametrize("centered", [False, True])
def test_rmsprop_and_nadam_are_optimizer_v2s(dtype: str, centered: bool) -> None:
    """Which squares complex numbers, and takes the principal root."""
    random = np.random.default_rng(2)
    w = (random.standard_normal(9) + 1j * random.standard_normal(9)).astype(dtype)
    x, ms, mg = w.copy(), np.zeros_like(w), np.zeros_like(w)
    y, m, v, product = w.copy(), np.zeros_like(w), np.zeros_like(w), 1.0
    z = w.copy()
    one = tfopt.optimizers.RMSprop(0.1, centered=centered)
    other = tfopt.optimizers.Nadam(0.1)
    for t in range(1, 4):
        g = (random.standard_normal(9) + 1j * random.standard_normal(9)).astype(dtype)
        one.step(w, g)
        ms, mg = 0.9 * ms + 0.1 * g * g, 0.9 * mg + 0.1 * g
        x = x - 0.1 * g / (np.sqrt(ms - mg * mg if centered else ms) + 1e-7)
        other.step(z, g)
        mu, after = (0.9 * (1 - 0.5 * 0.96 ** (0.004 * s)) for s in (t, t + 1))
        product *= mu
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        mean = (1 - mu) * g / (1 - product) + after * m / (1 - product * after)
        y = y - 0.1 * mean / (np.sqrt(v / (1 - 0.999**t)) + 1e-7)
    np.testing.assert_allclose(w, x, rtol=100 * TOLERANCE[dtype])
    # 0.96 is rounded to float32, as in TensorFlow
    np.testing.assert_allclose(z, y, rtol=max(100 * TOLERANCE[dtype], 1e-7))
