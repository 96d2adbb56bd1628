"""Variables of 16 bits: computed in float32, rounded once; equal to the twin in every bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common.cases import LAYOUTS, RULES, WITH_ROWS, arrays_for, lay_out, ordinary_hypers, whole
from common.updates import update
from hypothesis import given
from hypothesis import strategies as st

import tfopt
import tfopt_ref
from tfopt.kernels import kernels
from tfopt.kernels.update.adjustments import set_bounds, set_rounding
from tfopt.kernels.update.dense import run
from tfopt.kernels.update.sparse_checks import sparse_call
from tfopt.rules import Rule

NARROW = (np.float16, ml_dtypes.bfloat16)
EVERY_BIT_PATTERN = np.arange(1 << 16, dtype=np.uint16)

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
each_dtype = pytest.mark.parametrize("dtype", NARROW, ids=lambda dtype: dtype.__name__)


def assert_same(a: np.ndarray, b: np.ndarray, what: str) -> None:
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    with np.errstate(all="ignore"):
        nan = np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
    bits = f"u{a.itemsize}"
    same = (a.view(bits) == b.view(bits)) | nan
    assert same.all(), f"{what}: {a[~same][:3]} is not {b[~same][:3]}"


@each_dtype
@pytest.mark.parametrize("flush", [True, False])
def test_every_value_is_widened_and_rounded_back(impl: Any, dtype: Any, flush: bool) -> None:
    """A step of nothing keeps all values, but bfloat16's denormals, which are float32's too."""
    impl.set_flush_denormals(flush)
    var = EVERY_BIT_PATTERN.view(dtype).copy()
    update(impl, "gradient_descent", var, np.zeros_like(var), alpha=0.0)
    expected = EVERY_BIT_PATTERN.view(dtype).copy()
    if flush and dtype is ml_dtypes.bfloat16:
        denormal = (EVERY_BIT_PATTERN & 0x7FFF) < 0x0080
        expected.view(np.uint16)[denormal] &= 0x8000
    assert_same(var, expected, "var")


@each_dtype
def test_sums_are_rounded_to_nearest_even(impl: Any, dtype: Any) -> None:
    """Against NumPy's and ml_dtypes' conversions: ties, both ends of the range, all else."""
    random = np.random.default_rng(0)
    a = random.choice(EVERY_BIT_PATTERN, 100_000).view(dtype)
    b = random.choice(EVERY_BIT_PATTERN, 100_000).view(dtype)
    impl.set_flush_denormals(False)
    var = a.copy()
    update(impl, "gradient_descent", var, b, alpha=-1.0)
    with np.errstate(all="ignore"):
        expected = (a.astype(np.float32) + b.astype(np.float32)).astype(dtype)
    assert_same(var, expected, "var")


@pytest.mark.sampled_whole
@pytest.mark.parametrize(
    ("rule", "kind"),
    [(rule, "dense") for rule in RULES] + [(rule, "sparse") for rule in WITH_ROWS],
    ids=lambda value: getattr(value, "name", value),
)
@each_dtype
@given(data=st.data())
def test_bits(rule: Rule, dtype: Any, kind: str, data: st.DataObject) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    shape = data.draw(
        st.sampled_from([(), (7,), (600,), (3, 5), (4, 1), (0, 2), (2, 3, 4), (4, 70)])
    )
    layout = data.draw(st.sampled_from(sorted(LAYOUTS)))
    options: dict[str, Any] = {**ordinary_hypers(rule), "grad_scale": random.choice([1.0, 0.3])}
    grad_shape = shape
    if kind == "sparse":
        shape = shape or (5,)
        n = int(random.integers(0, 9)) if shape[0] else 0
        options["indices"] = random.integers(0, max(shape[0], 1), n)
        grad_shape = (n, *shape[1:])
    flush = data.draw(st.booleans())
    widths = [dtype] * len(rule.operands)
    if data.draw(st.booleans()):  # a float32 variable with a gradient of 16 bits
        widths[:-1] = [np.float32] * len(rule.operands[:-1])
    values = []
    shapes = [*(rule.shape_of(name, shape) for name in rule.operands[:-1]), grad_shape]
    for width, wanted in zip(widths, shapes, strict=True):
        patterns = random.choice(EVERY_BIT_PATTERN, wanted)
        usual = random.standard_normal(wanted)
        with np.errstate(all="ignore"):
            odd = np.asarray(patterns).view(dtype).astype(np.float64)
            values.append(np.where(random.random(wanted) < 0.5, odd, usual).astype(width))
    results = []
    for package in (tfopt, tfopt_ref):
        package.set_flush_denormals(flush)
        operands = [lay_out(v, layout) for v in values]
        update(package, rule.name, *operands, **options)
        results.append(operands)
    for name, fast, ref in zip(rule.operands, *results, strict=True):
        assert_same(whole(fast), whole(ref), f"{rule.name}: {name}")


@pytest.mark.parametrize("rule", WITH_ROWS, ids=lambda rule: rule.name)
@pytest.mark.parametrize("width", [1, 7, 8, 16, 31, 33, 100])
@each_dtype
def test_many_rows_of_which_some_occur_again(rule: Rule, dtype: Any, width: int) -> None:
    """Parts of rows are stepped together, as far as the rows are distinct."""
    random = np.random.default_rng(width)
    indices = np.concatenate(
        [random.permutation(150), random.integers(0, 150, 30), [3, 4, 3, 3], np.arange(40, 0, -1)]
    )
    shapes = [*(rule.shape_of(name, (150, width)) for name in rule.operands[:-1])]
    shapes.append((indices.size, width))
    values = [np.abs(random.standard_normal(shape)).astype(dtype) for shape in shapes]
    results = []
    for package in (tfopt, tfopt_ref):
        operands = [v.copy() for v in values]
        update(package, rule.name, *operands, **ordinary_hypers(rule), indices=indices)
        results.append(operands)
    for name, fast, ref in zip(rule.operands, *results, strict=True):
        assert_same(fast, ref, f"{rule.name}: {name}")


@pytest.mark.parametrize("bound", [None, 0.25, 0.3])
@pytest.mark.parametrize("rounds", [False, True])
@pytest.mark.parametrize("width", [1, 3, 8, 31, 33, 100])
@each_dtype
def test_rows_stepped_together_are_those_stepped_alone(
    dtype: Any, width: int, rounds: bool, bound: float | None
) -> None:
    """Whether clamped, to a number of 16 bits or another one, and whether rounded at random."""
    random = np.random.default_rng(width)
    indices = np.concatenate([random.permutation(50), random.integers(0, 50, 30)])
    values = random.standard_normal((3, 50, width)).astype(dtype)
    grad = random.standard_normal((indices.size, width)).astype(dtype)
    hypers = (0.9, 0.1, 0.9, 0.999, 1e-7)
    together, alone = ([a.copy() for a in np.abs(values)] for _ in range(2))

    def run_rows(arrays: list[np.ndarray], rows: slice) -> None:
        call = sparse_call(
            kernels["adamax"], (*arrays, grad[rows]), indices[rows], hypers, 0, 1.0, lazy=True
        )
        if rounds:
            set_rounding(call, 5, 1, [0])
        if bound is not None:
            set_bounds(call, [bound])
        run(call)

    run_rows(together, slice(None))
    for k in range(indices.size):
        run_rows(alone, slice(k, k + 1))
    for a, b in zip(together, alone, strict=True):
        assert_same(a, b, "together and alone")


@each_dtype
@pytest.mark.parametrize("bits", [0x7FFFFFFF, 0xFFFFFFFF, 0x7FC0FFFF])
@pytest.mark.parametrize("scale", [False, True])
def test_a_nan_of_any_payload_stays_one(impl: Any, dtype: Any, bits: int, scale: bool) -> None:
    """Rounded as if it were a number, the first would become -0 and the second 0."""
    nan = float(np.array([bits], np.uint32).view(np.float32)[0])
    var = np.ones(100, dtype)
    options = {"alpha": 0.5, "grad_scale": nan} if scale else {"alpha": nan}
    update(impl, "gradient_descent", var, np.ones(100, dtype), **options)
    assert np.isnan(var.astype(np.float32)).all()


@each_rule
@each_dtype
def test_threads_do_not_change_bits(rule: Rule, dtype: Any) -> None:
    values = [v.astype(dtype) for v in arrays_for(rule, 70_000, np.float32)]
    expected = None
    for threads in (1, 2, 3):
        tfopt.threads.set_num_threads(threads)
        operands = [v.copy() for v in values]
        getattr(tfopt.training_ops, f"apply_{rule.name}")(*operands, **ordinary_hypers(rule))
        expected = expected or operands
        for name, a, b in zip(rule.operands, operands, expected, strict=True):
            assert_same(a, b, f"{threads} threads: {name}")


@each_dtype
def test_small_steps_are_not_lost_within_an_update(impl: Any, dtype: Any) -> None:
    """TensorFlow rounds each operation to 16 bits; here beta2 * v is rounded with the step."""
    m, v = np.zeros(1, dtype), np.ones(1, dtype)
    update(impl, "adamax", np.ones(1, dtype), m, v, np.zeros(1, dtype),
        beta1_power=0.9, lr=0.1, beta1=0.9, beta2=0.999, epsilon=1e-7,
    )  # fmt: skip
    assert float(v[0]) == float(np.float32(0.999).astype(dtype))


@each_dtype
def test_optimizers_take_them(dtype: Any) -> None:
    var, full = np.ones((4, 2), dtype), np.ones((4, 2), np.float32)
    optimizer = tfopt.optimizers.Adamax(0.5)
    rows = tfopt.IndexedSlices(np.ones((3, 2), dtype), [1, 3, 1])
    for _ in range(2):
        optimizer.apply_gradients([(np.ones((4, 2), dtype), var), (rows, full)])
    assert optimizer.get_slot(var, "m").dtype == dtype
    assert (np.abs(var.astype(float)) < 1e-2).all()
    assert full[0].tolist() == [1, 1] and (full[1] < 0.1).all()
    wrapped = tfopt.Variable(np.ones(3, dtype))
    tfopt.training_ops.apply_gradient_descent(wrapped, np.ones(3, dtype), alpha=1.0)
    assert wrapped.numpy().astype(float).tolist() == [0, 0, 0]
    assert float(rows.sum_duplicates().values[0, 0]) == 2


def test_refusals() -> None:
    var = np.ones(3, np.float16)
    for grad in (np.ones(3, np.float32), np.ones(3, ml_dtypes.bfloat16)):
        with pytest.raises(tfopt.InvalidTypeError, match="must be float16 as var is, not"):
            tfopt.training_ops.apply_gradient_descent(var, grad, alpha=1.0)
    with pytest.raises(
        tfopt.InvalidTypeError, match="accum must be float64 as var is, not float16"
    ):
        tfopt.training_ops.apply_momentum(np.ones(3), var, np.ones(3), lr=0.1, momentum=0.9)
    assert var.tolist() == [1] * 3
