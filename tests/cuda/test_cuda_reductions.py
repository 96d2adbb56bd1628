"""Rules that sum over rows or whole variables, on a GPU: the host's bits and the twin's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.cases import RULES, TRIED, WITH_ROWS, arrays_for, assert_same_bits, hypers, numbers
from common.cases import ordinary_hypers as ordinary
from common.updates import update
from devices import DEVICE
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from test_cuda_twin import DTYPES, dtype_of

import tfopt
import tfopt_ref
from tfopt.rules import Rule, checks_of

pytestmark = pytest.mark.usefixtures("gradual_underflow")

REDUCING = [rule for rule in RULES if rule.reduction]
OF_ROWS = [rule for rule in REDUCING if rule in WITH_ROWS]
OF_TENSORS = [rule for rule in REDUCING if rule not in WITH_ROWS]
SPAN = 65_536

each_rule = pytest.mark.parametrize("rule", REDUCING, ids=lambda rule: rule.name)
each_of_rows = pytest.mark.parametrize("rule", OF_ROWS, ids=lambda rule: rule.name)
each_of_tensors = pytest.mark.parametrize("rule", OF_TENSORS, ids=lambda rule: rule.name)
each_dtype = pytest.mark.parametrize("dtype", DTYPES)


def compare(rule: Rule, values: list[Any], options: dict[str, Any], twin: bool = True) -> None:
    """Update copies on the device, on the host and by the twin, and compare all arrays."""

    def copied(put: Any) -> list[Any]:
        return [[put(v) for v in value] if isinstance(value, list) else put(value)
                for value in values]  # fmt: skip

    there, here = copied(DEVICE.to), copied(np.array)
    moved = {"indices": DEVICE.to(options["indices"])} if "indices" in options else {}
    update(tfopt, rule.name, *there, **{**options, **moved})
    update(tfopt, rule.name, *here, **options)
    others = [("host", here)]
    if twin:
        others.append(("twin", copied(np.array)))
        update(tfopt_ref, rule.name, *others[-1][1], **options)
    for who, other in others:
        for name, one, expected in zip(rule.operands, there, other, strict=True):
            ones, more = (one, expected) if isinstance(one, list) else ([one], [expected])
            for k, (array, own) in enumerate(zip(ones, more, strict=True)):
                assert_same_bits(DEVICE.back(array), own, f"{rule.name} of the {who}: {name} {k}")


@pytest.mark.counted
@each_rule
@each_dtype
@given(data=st.data())
def test_bits(rule: Rule, dtype: str, data: st.DataObject) -> None:
    stored = dtype_of(dtype)
    drawn = "float32" if dtype == "bfloat16" else dtype
    shape = data.draw(array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=6))
    options = data.draw(hypers(rule, "float64" if dtype == "float64" else "float32"))
    narrow = dtype == "float32" and data.draw(st.booleans())
    with np.errstate(over="ignore", invalid="ignore"):
        values = [
            data.draw(numbers(drawn, rule.shape_of(name, shape))).astype(stored)
            for name in rule.operands[:-1]
        ]
        grad = data.draw(numbers(drawn, shape)).astype(np.dtype("float16") if narrow else stored)
    compare(rule, [*values, grad], options)
    TRIED[f"{rule.name} on {DEVICE.name}", dtype, "dense", "contiguous"] += 1


@each_rule
@each_dtype
@pytest.mark.parametrize(
    "size", [0, 1, 2, 3, 31, 33, 128, 255, 256, 257, 4095, 4097, SPAN - 1, SPAN, SPAN + 1, 200_001]
)
def test_sizes_around_lanes_and_spans(rule: Rule, dtype: str, size: int) -> None:
    """Of a variable, and of a row."""
    shape = (size,) if rule.reduction == "tensor" else (2, size)
    compare(rule, arrays_for(rule, shape, dtype_of(dtype)), ordinary(rule))


@each_rule
@pytest.mark.parametrize("grad_dtype", ["float16", "bfloat16"])
def test_narrow_gradients(rule: Rule, grad_dtype: str) -> None:
    *variables, grad = arrays_for(rule, (7, 300), "float32")
    compare(rule, [*variables, grad.astype(dtype_of(grad_dtype))], ordinary(rule))


@each_rule
@pytest.mark.parametrize("settings", [{"grad_scale": 0.3}, {"var_scale": 0.75}])
def test_scales(rule: Rule, settings: dict[str, float]) -> None:
    compare(rule, arrays_for(rule, (5, 70), "float32"), {**ordinary(rule), **settings})


@each_rule
def test_a_scale_on_the_device(rule: Rule) -> None:
    values = arrays_for(rule, (5, 70), "float32")
    there, scale = list(map(DEVICE.to, values)), np.float32(0.3)
    update(tfopt, rule.name, *there, **ordinary(rule), grad_scale=DEVICE.to(np.array(scale)))
    update(tfopt, rule.name, *values, **ordinary(rule), grad_scale=scale)
    for name, one, other in zip(rule.operands, there, values, strict=True):
        assert_same_bits(DEVICE.back(one), other, name)


@each_rule
def test_flags(rule: Rule) -> None:
    for flag, default in rule.flags.items():
        options = {**ordinary(rule), flag: not default}
        compare(rule, arrays_for(rule, (300,), "float32"), options)


@each_rule
@each_dtype
def test_many(rule: Rule, dtype: str) -> None:
    """More variables than a launch holds, empty ones, some of several spans, rows of all widths."""
    random = np.random.default_rng(0)
    shapes = [(int(random.integers(0, 9)), int(random.integers(0, 300))) for _ in range(150)]
    shapes[3], shapes[70], shapes[-1] = (2, SPAN + 5), (300, 1), (1, 3 * SPAN)
    each = [arrays_for(rule, shape, dtype_of(dtype), k) for k, shape in enumerate(shapes)]
    columns = [list(column) for column in zip(*each, strict=True)]
    compare(rule, columns, ordinary(rule), twin=False)


@each_of_tensors
def test_more_spans_than_lanes(rule: Rule) -> None:
    values = arrays_for(rule, (258 * SPAN + 3,), "float32")
    compare(rule, values, ordinary(rule), twin=False)


@each_rule
def test_arrays_that_are_not_aligned_to_packs(rule: Rule) -> None:
    values = arrays_for(rule, (6, 500), "float32")
    there = [
        DEVICE.part(DEVICE.to(np.concatenate([v[:1], v, v[:1]])), slice(1, -1)) for v in values
    ]
    update(tfopt, rule.name, *there, **ordinary(rule))
    update(tfopt, rule.name, *values, **ordinary(rule))
    for name, one, other in zip(rule.operands, there, values, strict=True):
        assert_same_bits(DEVICE.back(one), other, name)


# ---- some rows


@pytest.mark.counted
@each_of_rows
@each_dtype
@pytest.mark.parametrize("duplicates", ["sequential", "sum"])
@given(data=st.data())
def test_bits_of_rows(rule: Rule, dtype: str, duplicates: str, data: st.DataObject) -> None:
    stored = dtype_of(dtype)
    drawn = "float32" if dtype == "bfloat16" else dtype
    shape = data.draw(array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=6))
    if "inner" in checks_of(rule).rows:
        shape = (shape[0], *(n or 1 for n in shape[1:]))
    n = data.draw(st.integers(0, 8)) if shape[0] else 0
    options = data.draw(hypers(rule, "float64" if dtype == "float64" else "float32"))
    index_dtype = data.draw(st.sampled_from([np.int32, np.int64]))
    each = st.integers(0, max(shape[0] - 1, 0))
    options |= {"indices": data.draw(arrays(index_dtype, n, elements=each))}
    options["duplicates"] = duplicates
    with np.errstate(over="ignore", invalid="ignore"):
        values = [
            data.draw(numbers(drawn, rule.shape_of(name, shape))).astype(stored)
            for name in rule.operands[:-1]
        ]
        grad = data.draw(numbers(drawn, (n, *shape[1:]))).astype(stored)
    compare(rule, [*values, grad], options)
    TRIED[f"{rule.name} on {DEVICE.name}", dtype, duplicates, "contiguous"] += 1


@each_of_rows
@each_dtype
@pytest.mark.parametrize("inner", [(), (1,), (2,), (2, 3), (40,), (255,), (256,), (257,), (5000,)])
@pytest.mark.parametrize("duplicates", ["sequential", "sum"])
def test_rows_that_repeat(rule: Rule, dtype: str, inner: Any, duplicates: str) -> None:
    """Many occurrences of few rows, more of them than a block has threads."""
    random = np.random.default_rng(0)
    n = 400 if np.prod(inner) < 100 else 40
    *variables, _ = arrays_for(rule, (20, *inner), dtype_of(dtype))
    grad = random.standard_normal((n, *inner)).astype(dtype_of(dtype))
    options = {"indices": random.integers(0, 20, n), "duplicates": duplicates}
    compare(rule, [*variables, grad], {**ordinary(rule), **options})


@each_of_rows
@pytest.mark.parametrize("duplicates", ["sequential", "sum"])
def test_long_rows_that_repeat(rule: Rule, duplicates: str) -> None:
    random = np.random.default_rng(0)
    *variables, _ = arrays_for(rule, (3, SPAN + 7), "float32")
    grad = random.standard_normal((4, SPAN + 7)).astype("float32")
    options = {"indices": np.array([2, 0, 2, 2]), "duplicates": duplicates}
    compare(rule, [*variables, grad], {**ordinary(rule), **options})


@each_of_rows
@pytest.mark.parametrize("check", [True, False])
def test_rows_that_do_not_exist(rule: Rule, check: bool) -> None:
    """Checked, they are refused and nothing is written; unchecked, they are skipped."""
    *variables, _ = arrays_for(rule, (4, 3), "float32")
    grad = np.ones((5, 3), "float32")
    indices = np.array([1, 4, 3, -1, 1])
    there = [DEVICE.to(array) for array in (*variables, grad)]
    options = {**ordinary(rule), "check_indices": check}

    def call() -> None:
        update(tfopt, rule.name, *there, **options, indices=DEVICE.to(indices))

    if check:
        with pytest.raises(tfopt.errors.IndexOutOfRangeError, match="offset 1"):
            call()
    else:
        call()
        fits = [0, 2, 4]
        update(tfopt, rule.name, *variables, grad[fits], **ordinary(rule), indices=indices[fits])
    for name, one, other in zip(rule.operands, there, variables, strict=False):
        assert_same_bits(DEVICE.back(one), other, name)


@each_of_rows
def test_duplicates_can_be_an_error(rule: Rule) -> None:
    *variables, _ = arrays_for(rule, (4, 3), "float32")
    there = [DEVICE.to(array) for array in (*variables, np.ones((3, 3), "float32"))]
    with pytest.raises(tfopt.InvalidArgumentError, match="duplicates"):
        update(
            tfopt, rule.name, *there, **ordinary(rule), duplicates="error",
            indices=DEVICE.to(np.array([2, 0, 2])),
        )  # fmt: skip
    for name, one, other in zip(rule.operands, there, variables, strict=False):
        assert_same_bits(DEVICE.back(one), other, name)
