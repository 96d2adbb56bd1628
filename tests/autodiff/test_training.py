"""Optimizers, clipping and update rules with tapes."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from common.updates import update
from differences import check_grads

import tfopt
import tfopt_ref
from tfopt.autodiff import check_grads as check_ours

T = np.random.default_rng(0).normal(size=(3, 4))
D = np.random.default_rng(1).normal(size=(3, 4))


# ---- minimize


def test_a_loss_and_its_tape() -> None:
    w, frozen = tfopt.Variable([3.0, -4.0]), tfopt.Variable(2.0, trainable=False)
    optimizer = tfopt.optimizers.SGD(0.25)
    with tfopt.GradientTape() as tape:
        loss = np.sum(w * w) * frozen
    assert int(optimizer.minimize(loss, [w], tape=tape)) == 1
    assert w.numpy().tolist() == [0, 0]


def test_a_function_that_returns_a_loss() -> None:
    w, optimizer = tfopt.Variable([3.0, -4.0]), tfopt.optimizers.SGD(0.25)
    optimizer.minimize(lambda: np.sum(w * w), [w])
    optimizer.minimize(lambda: np.sum(w * w), lambda: [w])
    optimizer.minimize(lambda: np.sum(w * w), w, grad_loss=np.array(0.0))
    assert w.numpy().tolist() == [0.75, -1] and int(optimizer.iterations) == 3


def test_variables_that_are_not_trainable_can_be_minimized() -> None:
    w = tfopt.Variable(3.0, trainable=False)
    tfopt.optimizers.SGD(0.5).minimize(lambda: w * w, [w])
    assert float(w) == 0


def test_losses_that_are_refused() -> None:
    w, optimizer = tfopt.Variable(3.0), tfopt.optimizers.SGD(0.5)
    with pytest.raises(tfopt.InvalidArgumentError, match="`tape` is required"):
        optimizer.minimize(w * w, [w])
    with tfopt.GradientTape() as tape:
        loss = tfopt.constant(1.0) * 2
    with pytest.raises(tfopt.InvalidArgumentError, match="No gradients provided"):
        optimizer.minimize(loss, [w], tape=tape)
    with pytest.raises(tfopt.InvalidTypeError, match="wrap the arrays"):
        optimizer.minimize(lambda: tfopt.constant(1.0), [np.ones(2)])
    assert float(w) == 3 and int(optimizer.iterations) == 0


def test_rows_reach_the_sparse_rules() -> None:
    """Only rows that were looked up take part in a step, also of Adamax with its slots."""
    table = tfopt.Variable(np.ones((5, 2)))
    optimizer = tfopt.optimizers.Adamax(0.1)
    with tfopt.GradientTape() as tape:
        loss = np.sum(np.take(table, [1, 3, 3], axis=0) ** 2)
    grad = tape.gradient(loss, table)
    assert isinstance(grad, tfopt.IndexedSlices)
    optimizer.apply_gradients([(grad, table)])
    assert (table.numpy()[[0, 2, 4]] == 1).all() and (table.numpy()[[1, 3]] < 1).all()
    assert optimizer.get_slot(table, "m").numpy()[[0, 2, 4]].any() == np.False_


def test_clipped_rows_of_a_tape() -> None:
    table = tfopt.Variable(np.ones((5, 2)))
    optimizer = tfopt.optimizers.SGD(1.0, global_clipnorm=1.0)
    optimizer.minimize(lambda: np.sum(np.take(table, [1, 2], axis=0)) * 100, [table])
    np.testing.assert_allclose(table.numpy()[[1, 2]], 0.5, rtol=1e-12)
    assert (table.numpy()[[0, 3, 4]] == 1).all()


def test_both_packages_train_alike() -> None:
    x, target = np.random.default_rng(2).normal(size=(2, 20, 3))

    def trained(package: ModuleType) -> list[np.ndarray]:
        w, b = package.Variable(np.eye(3)), package.Variable(np.zeros(3))
        slots = [[np.zeros(v.shape) for _ in "mv"] for v in (w, b)]
        usual = {"lr": 0.05, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-7}
        for step in range(1, 21):
            with package.GradientTape() as tape:
                loss = np.mean(np.abs(np.maximum(x @ w + b, 0) - target))
            for v, grad, own in zip((w, b), tape.gradient(loss, [w, b]), slots, strict=True):
                clipped = np.asarray(package.clip_by_norm(grad, 0.5))
                options = {"beta1_power": 0.9**step, **usual}
                update(package, "adamax", v.numpy(), *own, clipped, **options)
        return [w.numpy(), b.numpy()]

    for fast, ref in zip(trained(tfopt), trained(tfopt_ref), strict=True):
        np.testing.assert_allclose(fast, ref, 1e-10, 1e-12)


def test_slots_are_not_watched() -> None:
    w = tfopt.Variable(np.ones(2), name="watched")
    optimizer = tfopt.optimizers.Adam(0.1)
    optimizer.minimize(lambda: np.sum(w * w), [w])
    with tfopt.GradientTape() as tape:
        _ = optimizer.get_slot(w, "m") * w
    assert tape.watched_variables() == (w,)


def test_catching_up_does_not_change_tensors() -> None:
    table = tfopt.Variable(np.ones((6, 2)))
    optimizer = tfopt.optimizers.Adam(0.1, sparse="catch_up")
    for row in (4, 1):
        optimizer.minimize(lambda row=row: np.sum(np.take(table, [row], axis=0) ** 2), [table])
    read, known = table._read(), table.numpy().copy()
    optimizer.flush()
    assert (table.numpy() != known).any()
    np.testing.assert_array_equal(read.numpy(), known)


# ---- clipping


def clipped(impl: ModuleType, f: Any, *values: Any, upstream: Any = None) -> list[np.ndarray]:
    inputs = [impl.constant(value) for value in values]
    with impl.GradientTape() as tape:
        tape.watch(inputs)
        y = f(*inputs)
    assert isinstance(y, impl.Tensor)
    return [np.asarray(g) for g in tape.gradient(y, inputs, upstream)]


def test_the_registered_gradients(impl: ModuleType) -> None:
    registered = tfopt.clip_grads if impl is tfopt else tfopt_ref.clip_ops
    found = clipped(impl, impl.clip_by_value, T, -0.5, 0.5, upstream=D)
    for ours, theirs in zip(found, registered.clip_by_value_grad(D, T, -0.5, 0.5), strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-12, 1e-14)
    for limit, *axes in ((1.0,), (1.0, [1]), (100.0,), (0.5, [0, 1])):
        f = lambda t, c, axes=axes: impl.clip_by_norm(t, c, *axes)  # noqa: E731
        expected = registered.clip_by_norm_grad(D, T, limit, *axes)
        for ours, theirs in zip(clipped(impl, f, T, limit, upstream=D), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, 1e-11, 1e-13)


@pytest.mark.parametrize("limit", [1.0, 50.0])
def test_clipping_by_differences(impl: ModuleType, limit: float) -> None:
    args = [T, np.array([1.0, -2.0])]
    functions = [
        lambda a, b: impl.clip_by_norm(a, limit, axes=[1]) * np.sum(b),
        lambda a, b: impl.clip_by_norm(a, np.sum(b * b)),
        lambda a, b: impl.clip_by_value(a, -0.7, b[0]),
        lambda a, b: impl.global_norm([a, None, b]),
        lambda a, b: impl.clip_by_global_norm([a, b], limit)[0],
        lambda a, b: impl.clip_by_global_norm([a, b], limit)[1],
        lambda a, b: impl.clip_by_global_norm([a, b], b[0] * b[0] * limit)[0],
        lambda a, b: impl.clip_by_global_norm([a], limit, use_norm=np.sum(b * b) * 2)[0],
    ]
    for number, f in enumerate(functions):
        of_one_tensor = number < 3  # of which the specification has the first order
        check_grads(impl, f, args, order=1 if impl is tfopt_ref and of_one_tensor else 2)


def test_clipping_in_a_function() -> None:
    f = tfopt.function(lambda t: tfopt.clip_by_global_norm([t, t * 2], 1.0))
    for scale in (1.0, 0.01):
        (a, b), norm = f(tfopt.constant(T * scale))
        (c, d), expected = tfopt.clip_by_global_norm([T * scale, T * scale * 2], 1.0)
        for ours, theirs in zip((a, b, norm), (c, d, expected), strict=True):
            np.testing.assert_allclose(np.asarray(ours), theirs, 1e-14)


def test_arrays_stay_arrays(impl: ModuleType) -> None:
    with impl.GradientTape():
        assert isinstance(impl.clip_by_norm(T, 1.0), np.ndarray)
    assert isinstance(tfopt.clip_by_norm(tfopt.Variable(T), 1.0), np.ndarray)
    assert isinstance(impl.clip_by_norm(impl.constant(T), 1.0), impl.Tensor)


@pytest.mark.parametrize("limit", [0.0, 1.0])
@pytest.mark.parametrize("zeros", [0, 2])
def test_second_gradients_where_norms_are_zero(limit: float, zeros: int) -> None:
    """Slices of zeros are not scaled, or to zeros: nothing of theirs depends on anything."""
    x = T.copy()
    x[:zeros] = 0
    t = tfopt.constant(x)
    for clip in (
        lambda t: tfopt.clip_by_norm(t, limit, axes=[1]),
        lambda t: np.stack([tfopt.clip_by_norm(row, limit) for row in t]),
        lambda t: np.stack([tfopt.clip_by_global_norm([row], limit)[0][0] for row in t]),
    ):
        with tfopt.GradientTape() as outer:
            outer.watch(t)
            with tfopt.GradientTape() as inner:
                inner.watch(t)
                y = np.sum(clip(t) * np.arange(4.0))
            slope = inner.gradient(y, t)
            total = np.sum(slope * slope)
        bends = outer.gradient(total, t).numpy()
        assert np.isfinite(bends).all() and not bends[:zeros].any()


def test_clipping_by_the_average_norm_has_gradients() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        check_ours(tfopt.clip_by_average_norm, [T, np.array(0.05)])


def test_gradients_of_a_norm_in_float64_have_the_dtypes_of_the_tensors() -> None:
    check_ours(lambda t, u: tfopt.global_norm([t, u], dtype="f8"), [T, np.array(-0.5)])
    tensors = [tfopt.constant(x) for x in (np.float32([3, 0]), np.float16([4]), np.zeros(1))]
    with tfopt.GradientTape() as tape:
        tape.watch(tensors)
        norm = tfopt.global_norm(tensors, dtype=np.float64)
    assert norm.dtype == np.float64 and norm.numpy() == 5
    found = tape.gradient(norm, tensors)
    assert [(g.dtype, g.numpy().tolist()) for g in found] == [
        (np.float32, [np.float32(0.6), 0]), (np.float16, [np.float16(0.8)]), (np.float64, [0]),
    ]  # fmt: skip


def test_clipping_tensors_gives_the_bits_of_arrays() -> None:
    for f in (
        lambda t: tfopt.clip_by_value(t, -0.1, 0.2),
        lambda t: tfopt.clip_by_norm(t, 0.5),
        lambda t: tfopt.clip_by_global_norm([t], 0.5)[0][0],
        lambda t: tfopt.global_norm([t]),
    ):
        for array in (T, T.astype(np.float32)):
            made = f(tfopt.constant(array))
            assert isinstance(made, tfopt.Tensor) and made.dtype == array.dtype
            np.testing.assert_array_equal(made.numpy(), f(array))


def test_gradient_rows_are_clipped_as_rows() -> None:
    table = tfopt.Variable(np.ones((4, 2)))
    with tfopt.GradientTape() as outer:
        with tfopt.GradientTape() as tape:
            y = np.sum(np.take(table, [1, 1], axis=0) * 3.0)
        (clipped,), _ = tfopt.clip_by_global_norm([tape.gradient(y, table)], 1.0)
        assert isinstance(clipped, tfopt.IndexedSlices)
    np.testing.assert_allclose(np.linalg.norm(np.asarray(clipped.values)), 1.0)
    assert outer.watched_variables() == (table,)


# ---- update rules


def test_update_rules_in_a_function() -> None:
    w, m = tfopt.Variable(np.ones(2)), tfopt.Variable(np.zeros(2))

    @tfopt.function
    def step(x: Any) -> Any:
        tfopt.training_ops.apply_momentum(w, m, x * 2, lr=0.1, momentum=0.9)
        return w * 1

    first, second = step(tfopt.constant([1.0, 2.0])), step(tfopt.constant([0.0, 0.0]))
    assert np.asarray(first).round(12).tolist() == [0.8, 0.6]
    assert np.asarray(second).round(12).tolist() == [0.62, 0.24]
    assert step.trace_count == 1
