"""Weight decay only where the step agrees with it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common.step_cases import ARGUMENTS, Overridden
from hypothesis import given
from hypothesis import strategies as st

import tfopt
from tfopt import IndexedSlices, optimizers
from tfopt.errors import InvalidArgumentError, InvalidTypeError

DECAYING = [
    name
    for name in ARGUMENTS
    if getattr(getattr(optimizers, name), "_by_elements", False)
    and name not in ("Ftrl", "ScheduleFreeAdamW", "ScheduleFreeSGD")
]
each_optimizer = pytest.mark.parametrize("name", DECAYING)


def made(name: str, **options: Any) -> Any:
    return getattr(optimizers, name)(**{**ARGUMENTS[name], **options})


@each_optimizer
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(seed=st.integers(0, 2**32))
def test_weights_decay_where_the_step_moves_them_towards_zero(
    name: str, dtype: Any, seed: int
) -> None:
    """As the paper says: x - lr (u + wd x) where u x >= 0, else x - lr u."""
    random = np.random.default_rng(seed)
    w = random.standard_normal(600).astype(dtype)
    w[random.random(600) < 0.1] = 0
    v = w.copy()
    cautious = made(name, learning_rate=0.5, weight_decay=0.25, cautious_weight_decay=True)
    plain = made(name, learning_rate=0.5, weight_decay=0.0)
    for _ in range(3):
        g = random.standard_normal(600).astype(dtype) * (random.random(600) < 0.8)
        before = w.copy()
        cautious.apply_gradients([(g, w)])
        v[...] = before
        plain.apply_gradients([(g, v)])
        agrees = (before - v) * before >= 0
        expected = np.where(agrees & (before != 0), v - dtype(0.125) * before, v)
        assert w.tobytes() == expected.tobytes()
        if name in ("SGD", "Signum", "Lion", "Adagrad"):
            assert 0 < agrees[before != 0].mean() < 1


@pytest.mark.parametrize("shape", [(5000,), (40, 1), (40, 33)])
@pytest.mark.parametrize("summed", [True, False])
def test_rows_decay_once_however_often_they_occur(shape: Any, summed: bool) -> None:
    """Rows of one element, which are stepped many at a time, and longer ones."""
    random = np.random.default_rng(0)
    w = random.standard_normal(shape).astype(np.float32)
    ids = random.integers(0, shape[0], 30) if summed else random.permutation(shape[0])[:30]
    values = random.standard_normal((30, *shape[1:])).astype(np.float32)
    options: dict[str, Any] = {"weight_decay": 0.5, "cautious_weight_decay": True}
    by_rows, whole = w.copy(), w.copy()
    optimizers.SGD(0.25, **options).apply_gradients([(IndexedSlices(values, ids), by_rows)])
    grad = np.zeros(shape, np.float32)
    np.add.at(grad, ids, values)
    optimizers.SGD(0.25, **options).apply_gradients([(grad, whole)])
    there = np.isin(np.arange(shape[0]), ids)
    assert by_rows[there].tobytes() == whole[there].tobytes()
    assert by_rows[~there].tobytes() == w[~there].tobytes()


def test_many_scattered_rows_of_one_element_decay() -> None:
    random = np.random.default_rng(0)
    w, n = random.standard_normal(1 << 21).astype(np.float32), 1 << 17
    ids, values = random.permutation(w.size)[:n], random.standard_normal(n).astype(np.float32)
    options: dict[str, Any] = {"weight_decay": 0.5, "cautious_weight_decay": True}
    by_rows, whole = w.copy(), w[ids]
    optimizers.Adagrad(0.25, **options).apply_gradients([(IndexedSlices(values, ids), by_rows)])
    optimizers.Adagrad(0.25, **options).apply_gradients([(values, whole)])
    assert by_rows[ids].tobytes() == whole.tobytes()


def test_16_bits_are_rounded_once() -> None:
    w = np.ones(40, ml_dtypes.bfloat16)
    opt = optimizers.SGD(2.0**-9, weight_decay=1.0, cautious_weight_decay=True)
    opt.apply_gradients([(np.ones_like(w), w)])
    assert (w == 1 - 2.0**-8).all()  # either alone would have been lost


def test_excluded_variables_do_not_decay() -> None:
    w, b = np.ones(3), tfopt.Variable(np.ones(3), "bias")
    opt = optimizers.SGD(0.5, weight_decay=0.5, cautious_weight_decay=True)
    opt.exclude_from_weight_decay(var_names=["bias"])
    for _ in range(2):
        opt.apply_gradients([(np.zeros(3), w), (np.zeros(3), b)])
    assert (w == 0.5625).all() and (b.numpy() == 1).all()


@pytest.mark.parametrize("observe", [False, True])
def test_changes_while_steps_are_repeated_count(observe: bool) -> None:
    w, opt = np.ones(3), optimizers.SGD(0.5, weight_decay=0.5, cautious_weight_decay=True)
    opt.observe = observe
    for decay, expected in ((0.5, 0.75), (0.5, 0.5625), (0.0, 0.5625), (1.0, 0.28125)):
        if not decay:
            with pytest.raises(InvalidArgumentError, match="needs a weight_decay above 0"):
                opt.weight_decay = 0.0
        opt.cautious_weight_decay = False
        opt.weight_decay = decay
        opt.cautious_weight_decay = bool(decay)
        opt.apply_gradients([(np.zeros(3), w)])
        assert (w == expected).all()
    w[...] = -1
    opt.apply_gradients([(np.ones(3), w)])  # away from zero
    assert (w == -1.5).all()


def test_what_cannot_decay_so_is_refused() -> None:
    refused: list[tuple[Any, str]] = [
        (lambda: optimizers.Adam(cautious_weight_decay=True), "needs a weight_decay above 0"),
        (lambda: made("ScheduleFreeSGD", weight_decay=0.1, cautious_weight_decay=True), "gradient"),
        (
            lambda: made("Adam", weight_decay=0.1, cautious_weight_decay=True, sparse="catch_up"),
            "ex",
        ),
        (lambda: Overridden(weight_decay=0.1, cautious_weight_decay=True), "overridden method"),
        (
            lambda: made("RowwiseAdagrad", weight_decay=0.1, cautious_weight_decay=True),
            "a rule with a reduction excludes cautious_weight_decay",
        ),
    ]
    for make, message in refused:
        with pytest.raises(InvalidArgumentError, match=message):
            make()
    w = np.ones(3, np.complex64)
    opt = optimizers.SGD(0.5, weight_decay=0.5, cautious_weight_decay=True)
    with pytest.raises(InvalidTypeError, match="is for real variables"):
        opt.apply_gradients([(w.copy(), w)])
    assert (w == 1).all() and int(opt.iterations) == 0


def test_denormal_weights_are_flushed_whether_or_not_they_decay() -> None:
    """As by any other arithmetic, in rows without a gradient, too."""
    tiny = np.float32(1e-45)
    w = np.array([[1, 1], [-tiny, tiny]], np.float32)
    opt = tfopt.optimizers.Nadam(0.5, weight_decay=0.25, cautious_weight_decay=True)
    opt.apply_gradients([(tfopt.IndexedSlices(np.ones((1, 2), np.float32), [0]), w)])
    assert w[1].tobytes() == np.array([-0.0, 0.0], np.float32).tobytes()
