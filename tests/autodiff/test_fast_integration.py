"""Optimizers, clipping and update rules with tensors and tapes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import tfopt
from tfopt.autodiff import check_grads

X, LOW, HIGH = np.random.default_rng(1).normal(size=(4, 3)), np.array(-0.5), np.array([0.3, 2, 0.1])


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (lambda t, low, high: tfopt.clip_by_value(t, low, high), (X, LOW, HIGH)),
        (lambda t, c: tfopt.clip_by_norm(t, c), (X, np.array(0.5))),
        (lambda t, c: tfopt.clip_by_norm(t, c), (X, np.array(50.0))),
        (lambda t, c: tfopt.clip_by_norm(t, c, axes=[1]), (X, np.array(1.2))),
        (lambda t, u: tfopt.global_norm([t, None, u]), (X, LOW)),
        (lambda t, u: tfopt.global_norm([t, u], dtype="f8"), (X, LOW)),
        (lambda t, u, c: tfopt.clip_by_global_norm([t, u], c), (X, HIGH, np.array(1.0))),
        (lambda t, u: tfopt.clip_by_global_norm([t, None, u], 9.0)[0][::2], (X, HIGH)),
        (lambda t, c, n: tfopt.clip_by_global_norm([t], c, n)[0], (X, np.array(1.0), 2 - LOW)),
    ],
)  # fmt: skip
def test_clipping_has_gradients(function: Any, args: Any) -> None:
    check_grads(function, args)


def test_gradients_of_a_norm_in_float64_have_the_dtypes_of_the_tensors() -> None:
    tensors = [tfopt.constant(x) for x in (np.float32([3, 0]), np.float16([4]), np.zeros(1))]
    with tfopt.GradientTape() as tape:
        tape.watch(tensors)
        norm = tfopt.global_norm(tensors, dtype=np.float64)
    assert norm.dtype == np.float64 and norm.numpy() == 5
    found = tape.gradient(norm, tensors)
    assert [(g.dtype, g.numpy().tolist()) for g in found] == [
        (np.float32, [np.float32(0.6), 0]), (np.float16, [np.float16(0.8)]), (np.float64, [0]),
    ]  # fmt: skip


@pytest.mark.parametrize("limit", [0.0, 1.0])
@pytest.mark.parametrize("zeros", [0, 2])
def test_second_gradients_where_norms_are_zero(limit: float, zeros: int) -> None:
    """Slices of zeros are not scaled, or to zeros: nothing of theirs depends on anything."""
    x = X.copy()
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
                y = np.sum(clip(t) * np.arange(3.0))
            slope = inner.gradient(y, t)
            total = np.sum(slope * slope)
        bends = outer.gradient(total, t).numpy()
        assert np.isfinite(bends).all() and not bends[:zeros].any()


def test_clipping_by_the_average_norm_has_gradients() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        check_grads(tfopt.clip_by_average_norm, [X, np.array(0.05)])


def test_clipping_tensors_gives_the_bits_of_arrays() -> None:
    for f in (
        lambda t: tfopt.clip_by_value(t, -0.1, 0.2),
        lambda t: tfopt.clip_by_norm(t, 0.5),
        lambda t: tfopt.clip_by_global_norm([t], 0.5)[0][0],
        lambda t: tfopt.global_norm([t]),
    ):
        for array in (X, X.astype(np.float32)):
            made = f(tfopt.constant(array))
            assert isinstance(made, tfopt.Tensor) and made.dtype == array.dtype
            np.testing.assert_array_equal(made.numpy(), f(array))


def test_a_variable_is_clipped_on_a_tape_and_without() -> None:
    v = tfopt.Variable(np.array([3.0, 4.0]))
    assert isinstance(tfopt.clip_by_norm(v, 1.0), np.ndarray)
    with tfopt.GradientTape() as tape:
        y = tfopt.clip_by_value(v, 0.0, 3.5)
    assert tape.gradient(y, v).tolist() == [1, 0]


def test_gradient_rows_are_clipped_as_rows() -> None:
    table = tfopt.Variable(np.ones((4, 2)))
    with tfopt.GradientTape() as outer:
        with tfopt.GradientTape() as tape:
            y = np.sum(np.take(table, [1, 1], axis=0) * 3.0)
        (clipped,), _ = tfopt.clip_by_global_norm([tape.gradient(y, table)], 1.0)
        assert isinstance(clipped, tfopt.IndexedSlices)
    np.testing.assert_allclose(np.linalg.norm(np.asarray(clipped.values)), 1.0)
    assert outer.watched_variables() == (table,)


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adamax", "Adagrad", "RMSprop", "Ftrl"])
def test_minimize_takes_a_function_or_a_tensor(name: str) -> None:
    results = []
    for way in ("function", "tensor", "gradients"):
        w = tfopt.Variable(np.array([3.0, -4.0]))
        optimizer = getattr(tfopt.optimizers, name)(0.1)

        def loss(w: Any = w) -> Any:
            return np.sum(w * w)

        for _ in range(3):
            if way == "function":
                optimizer.minimize(loss, [w])
            elif way == "tensor":
                with tfopt.GradientTape() as tape:
                    value = loss()
                optimizer.minimize(value, lambda w=w: [w], tape=tape)
            else:
                optimizer.apply_gradients([(2 * w.numpy(), w)])
        results.append(w.numpy())
    np.testing.assert_array_equal(results[0], results[2])
    np.testing.assert_array_equal(results[1], results[2])


def test_grad_loss_is_carried_back() -> None:
    w = tfopt.Variable(np.array([3.0, -4.0]))
    tfopt.optimizers.SGD(0.5).minimize(lambda: w * 1.0, w, grad_loss=np.array([2.0, 4.0]))
    assert w.numpy().tolist() == [2.0, -6.0]


def test_refused_losses() -> None:
    optimizer, w = tfopt.optimizers.SGD(0.1), np.ones(2)
    with pytest.raises(tfopt.InvalidArgumentError, match="`tape` is required"):
        optimizer.minimize(tfopt.constant(1.0), [w])
    with pytest.raises(tfopt.InvalidTypeError, match="wrap the arrays"):
        optimizer.minimize(lambda: tfopt.constant(1.0), [w])
    with pytest.raises(tfopt.InvalidArgumentError, match="No gradients provided"):
        optimizer.minimize(lambda: tfopt.constant(1.0), [tfopt.Variable(w)])
    assert int(optimizer.iterations) == 0


def test_slots_are_not_watched() -> None:
    w = tfopt.Variable(np.ones(2), name="watched")
    optimizer = tfopt.optimizers.Adam(0.1)
    optimizer.minimize(lambda: np.sum(w * w), [w])
    with tfopt.GradientTape() as tape:
        _ = optimizer.get_slot(w, "m") * w
    assert tape.watched_variables() == (w,)


def test_sparse_gradients_reach_the_sparse_kernels() -> None:
    table = tfopt.Variable(np.ones((6, 2)))
    optimizer = tfopt.optimizers.Adam(0.1, sparse="lazy")
    optimizer.minimize(lambda: np.sum(np.take(table, [4, 1, 4], axis=0) ** 2), [table])
    changed = (table.numpy() != 1).any(axis=1)
    assert changed.tolist() == [False, True, False, False, True, False]


def test_catching_up_does_not_change_tensors() -> None:
    table = tfopt.Variable(np.ones((6, 2)))
    optimizer = tfopt.optimizers.Adam(0.1, sparse="catch_up")
    for row in (4, 1):
        optimizer.minimize(lambda row=row: np.sum(np.take(table, [row], axis=0) ** 2), [table])
    read, known = table._read(), table.numpy().copy()
    optimizer.flush()
    assert (table.numpy() != known).any()
    np.testing.assert_array_equal(read.numpy(), known)
