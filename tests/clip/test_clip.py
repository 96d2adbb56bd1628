"""Results of clipping in both packages: cases, exactness, policies, results in place."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common.clip_cases import ALL_DTYPES, FLOATS, array_of, bits

import tfopt

T = [[-3.0, 0.0, 0.0], [4.0, 0.0, 3.0]]
NAN, INF = math.nan, math.inf

each_float = pytest.mark.parametrize("dtype", FLOATS)


def close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


# ---- by value


@pytest.mark.parametrize(
    ("t", "low", "high", "expected"),
    [
        ([[-5.0, 2, 3], [4, 5, 6]], -4.4, 4.4, np.float32([[-4.4, 2, 3], [4, 4.4, 4.4]])),
        ([1, 2, 3], 2, 2, np.int32([2, 2, 2])),
        ([0.0, 2, 5], 3, 1, np.float32([3, 3, 3])),
        ([NAN, INF, -INF], -4, 4, np.float32([NAN, 4, -4])),
        ([1.0, NAN], -4, NAN, np.float32([NAN, NAN])),
        ([1.0, NAN], NAN, 4, np.float32([NAN, NAN])),
        ([-0.0, 0.0], 0.0, 0.0, np.float32([-0.0, 0.0])),
        ([[-1.0, 0, 10]] * 2, [[2], [1]], 100, np.float32([[2, 2, 10], [1, 1, 10]])),
        (np.zeros((7, 0)), 0, 1, np.zeros((7, 0))),
        (np.zeros((7, 0)), np.zeros((7, 0)), np.zeros(1), np.zeros((7, 0))),
        (np.float64(3), 0.1, 0.2, np.float64(0.2)),
        (np.float32([1]), 0, np.int64([0]), np.float32([0])),
        (np.uint8([7, 200]), 8, np.int64(100), np.uint8([8, 100])),
    ],
)
def test_by_value(either: Any, t: Any, low: Any, high: Any, expected: np.ndarray) -> None:
    result = either.clip_by_value(t, low, high, name="ignored")
    assert result.dtype == expected.dtype and result.shape == expected.shape
    assert bits(result) == bits(expected)


@pytest.mark.parametrize("dtype", ALL_DTYPES)
@pytest.mark.parametrize("place", [np.s_[:, ::2], np.s_[::-1, ::-1], np.s_[:, 3], np.s_[::2]])
def test_by_value_in_place_of_any_stride(either: Any, dtype: str, place: Any) -> None:
    whole = array_of(np.arange(40).reshape(4, 10), dtype)
    inside, others = whole[place], whole.copy()
    expected = array_of(np.clip(np.arange(40).reshape(4, 10)[place], 5, 20), dtype)
    others[place] = expected
    assert either.clip_by_value(inside, 5, 20, out=inside) is inside
    assert bits(whole) == bits(others)


def test_slices_keep_their_indices() -> None:
    slices = tfopt.IndexedSlices(np.float32([[-3, 0], [4, 9]]), np.array([2, 6]), (10, 2))
    for clipped in (
        tfopt.clip_by_value(slices, 1, 2),
        tfopt.clip_by_norm(slices, 1),
        tfopt.clip_by_global_norm([slices], 1)[0][0],
    ):
        assert clipped.indices is slices.indices and clipped.dense_shape is slices.dense_shape
    close(tfopt.clip_by_value(slices, 1, 2).values, [[1, 1], [2, 2]])


def test_variables() -> None:
    variable = tfopt.Variable(np.float32([3, 4]))
    close(tfopt.clip_by_norm(variable, tfopt.Variable(1.0)), [0.6, 0.8])
    close(tfopt.clip_by_value(variable, tfopt.Variable(np.float32(3.5)), 9), [3.5, 4])
    assert tfopt.global_norm([variable]) == 5
    assert tfopt.clip_by_norm(variable, 2.5, out=variable) is variable
    close(variable.numpy(), [1.5, 2])


# ---- by norm


@pytest.mark.parametrize(
    ("t", "limit", "axes", "expected"),
    [
        ([[-3.0, 0, 0], [4, 0, 0]], 4, None, [[-2.4, 0, 0], [3.2, 0, 0]]),
        ([[-3.0, 0, 0], [4, 0, 0]], 5, None, [[-3, 0, 0], [4, 0, 0]]),
        (T, 4, [0], [[-2.4, 0, 0], [3.2, 0, 3]]),
        (T, 4, [1], [[-3, 0, 0], [3.2, 0, 2.4]]),
        (T, 4, -1, [[-3, 0, 0], [3.2, 0, 2.4]]),
        (T, 4, -2, [[-2.4, 0, 0], [3.2, 0, 3]]),
        (T, 4, True, [[-3, 0, 0], [3.2, 0, 2.4]]),
        (T, 4, np.array([[0], [1]]), [[-2.057983, 0, 0], [2.7439775, 0, 2.057983]]),
        (T, 4, None, [[-2.057983, 0, 0], [2.7439775, 0, 2.057983]]),
        (T, 3.5, [], [[-3, 0, 0], [3.5, 0, 3]]),
        ([0.0, 0], 1, None, [0, 0]),
        ([3.0, 4], -1, None, [0, 0]),
        ([3.0, 4], True, None, [0.6, 0.8]),
        (-3.0, 1, None, -1),
        ([3.0, 4], [1, 2], None, [0.6, 1.6]),
        ([[3.0, 4], [6, 8]], [[1], [2]], [1], [[0.6, 0.8], [1.2, 1.6]]),
        ([1.0, INF, -2], 1, None, [0, NAN, -0.0]),
        ([1.0, NAN, -2], 1, None, [NAN, NAN, NAN]),
        ([3.0, 4], NAN, None, [NAN, NAN]),
        (np.zeros((2, 0, 3)), 1, [1], np.zeros((2, 0, 3))),
        (np.zeros((2, 0, 3)), 1, [0], np.zeros((2, 0, 3))),
        (np.float64([3, 4]), np.float32(0.1), None, [0.06000000089406967, 0.0800000011920929]),
    ],
)
def test_by_norm(either: Any, t: Any, limit: Any, axes: Any, expected: Any) -> None:
    result = either.clip_by_norm(t, limit, axes, name="ignored")
    assert result.shape == np.shape(expected)
    close(result, expected)


@pytest.mark.parametrize(
    ("t", "limit", "expected"),
    [
        (np.float32([1e20, 1e20]), 1, [math.sqrt(0.5)] * 2),
        (np.float32([1e-30, 1e-30]), 1e-31, [1e-31 * math.sqrt(0.5)] * 2),
        (np.float32([3e38, 3e38]), 1, [math.sqrt(0.5)] * 2),
        (np.float64([1e200, -1e200]), 2, [math.sqrt(2), -math.sqrt(2)]),
        (np.float64([1.5e308, 1.5e308]), 1, [math.sqrt(0.5)] * 2),
        (np.float64([3e-200, 4e-200]), 1e-200, [6e-201, 8e-201]),
        (np.float64([1e308] * 100), 1e-290, [1e-291] * 100),
        (np.float64([1e-290]), 1e300, [1e-290]),
        (np.float32([1e38, 0]), 1e-30, [1e-30, 0]),
        (np.float32([2.0**126, 2.0**110]), 1.0, [1, 2.0**-16]),  # 2^-126, less what rounding adds
    ],
)
def test_squares_neither_overflow_nor_vanish(
    either: Any, t: np.ndarray, limit: float, expected: Any
) -> None:
    close(either.clip_by_norm(t, limit), expected)
    close(either.clip_by_norm(t[None], limit, [1])[0], expected)
    close(either.clip_by_global_norm([t], limit)[0][0], expected)


def test_denormals_on_request(either: Any) -> None:
    tiny = np.float64([3e-310, 4e-310])
    assert either.global_norm([tiny]) == 0
    either.set_flush_denormals(False)
    assert either.global_norm([tiny]) == pytest.approx(5e-310, rel=1e-10)
    close(either.clip_by_norm(tiny, 1e-310), [6e-311, 8e-311])


@each_float
@pytest.mark.parametrize("limit", [5.0, 1e9, INF])
def test_unclipped_arrays_keep_their_bits(either: Any, dtype: str, limit: float) -> None:
    """A negative zero, a denormal and either whose product with a limit is rounded."""
    t = array_of([[3.0, 0.1], [-0.0, 1e-40]], dtype)
    assert bits(either.clip_by_norm(t, limit)) == bits(t)
    assert bits(either.clip_by_norm(t, limit, [0])) == bits(t)
    assert bits(either.clip_by_global_norm([t], limit)[0][0]) == bits(t)
    assert bits(either.clip_by_value(t, -limit, limit)) == bits(t)


@each_float
def test_clipping_again_changes_nothing_but_rounding(either: Any, dtype: str) -> None:
    t = array_of(np.linspace(-2, 3, 50), dtype)
    once = either.clip_by_norm(t, 1.0)
    twice = either.clip_by_norm(once, 1.0)
    rtol = 0.01 if once.itemsize == 2 else 1e-6
    np.testing.assert_allclose(twice.astype(float), once.astype(float), rtol=rtol)


# ---- by global norm


def test_global_norm(either: Any) -> None:
    value = either.global_norm([np.float32([[-2, 0, 0], [4, 0, 0]]), None, [1.0, -2.0], 0.0])
    assert value == 5 and value.dtype == np.float32 and value.shape == ()
    assert either.linalg.global_norm is either.global_norm
    for nothing in ([], (), [None, None]):
        value = either.global_norm(nothing)
        assert value == 0 and value.dtype == np.float32
    assert either.global_norm([np.zeros((0, 3), np.float16), np.float16([3, 4])]) == 5


@pytest.mark.parametrize("narrow", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_a_global_norm_of_another_dtype_is_rounded_once(either: Any, narrow: Any) -> None:
    """Of 16 bits it is exact, whichever dtypes the tensors have; a root is rounded once."""
    tensors = [np.array([99.8, 3.0, 1.0]).astype(narrow), np.float64([0.25, -2.5])]
    exact = np.sqrt(sum(np.sum(t.astype(np.float64) ** 2) for t in tensors))
    for dtype in (np.float64, "float32", np.float16):
        value = either.global_norm(tensors, dtype=dtype)
        assert value.dtype == dtype and value == exact.astype(dtype)
    assert either.global_norm([], dtype=np.float64).dtype == np.float64


@pytest.mark.parametrize(
    ("tensors", "limit", "expected", "norm"),
    [
        ([[-2.0, 4], [1, -2.0]], 4, [[-1.6, 3.2], [0.8, -1.6]], 5),
        (([-2.0, 4], None, [1, -2.0], None), 6, [[-2, 4], None, [1, -2], None], 5),
        ([[3.0, 4]], 0, [[0, 0]], 5),
        ([[3.0, 4]], -1, [[0, 0]], 5),
        ([[0.0, 0]], 0, [[0, 0]], 0),
        ([[1.0, INF], [2.0]], 4, [[NAN, NAN], [NAN]], INF),
        ([[1.0, NAN], [2.0]], 4, [[NAN, NAN], [NAN]], NAN),
        ([[1.0, INF], [2.0]], INF, [[1, INF], [2]], INF),
        ([[3.0, 4]], NAN, [[NAN, NAN]], 5),
        ([], 4, [], 0),
        ([[1e20, 1e20]], 1, [[math.sqrt(0.5)] * 2], 1e20 * math.sqrt(2)),
        ([[3e38, 3e38]], 1, [[math.sqrt(0.5)] * 2], INF),
        ([np.float16([300, 400])], 1, [[0.6001, 0.8]], 500),
        ([np.float16([65504] * 4)], 1, [[0.5] * 4], INF),
    ],
)
def test_by_global_norm(
    either: Any, tensors: Any, limit: float, expected: Any, norm: float
) -> None:
    clipped, value = either.clip_by_global_norm(tensors, limit, name="ignored")
    assert isinstance(clipped, list) and len(clipped) == len(expected)
    for ours, theirs in zip(clipped, expected, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            np.testing.assert_allclose(ours.astype(float), theirs, rtol=1e-3 * (ours.itemsize < 4)
                                       + 1e-6)  # fmt: skip
    np.testing.assert_allclose(float(value), norm, rtol=1e-6)


def test_use_norm() -> None:
    for use_norm in (10, 10.0, np.float64(10), np.array(10.0), tfopt.Variable(10.0)):
        (clipped,), value = tfopt.clip_by_global_norm([[3.0, 4]], 1, use_norm=use_norm)
        close(clipped, [0.3, 0.4])
        assert value is use_norm
    mixed = [np.float32([3]), np.float64([4]), np.float16([5])]
    clipped, _ = tfopt.clip_by_global_norm(mixed, 1, use_norm=2.0)
    assert [float(a[0]) for a in clipped] == [1.5, 2, 2.5]
    assert [a.dtype for a in clipped] == [t.dtype for t in mixed]


def test_the_derivative_by_the_limit_is_one_sided_at_0() -> None:
    """Of a limit that grows from 0, the result does; below, it is as if it were 0."""
    t, upstream = np.array([[3.0, 4.0], [0.0, 0.0]]), np.array([[1.0, 2.0], [1.0, 1.0]])
    for limit, expected in ((4.0, 2.2), (0.0, 2.2), (-1.0, 0.0), (6.0, 0.0)):
        _, to_limit = tfopt.clip_grads.clip_by_norm_grad(upstream, t, limit)
        assert to_limit == pytest.approx(expected), limit


@pytest.mark.parametrize("low", [(2,), (1,), (1, 2), (3, 1), (3, 2), ()])
def test_a_gradient_by_a_broadcast_bound_is_summed(low: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    t, upstream = random.standard_normal((2, 3, 2))
    bound = random.uniform(-0.5, 0.5, low)
    whole = tfopt.clip_grads.clip_by_value_grad(
        upstream, t, np.broadcast_to(bound, (3, 2)).copy(), 9
    )
    _, found, _ = tfopt.clip_grads.clip_by_value_grad(upstream, t, bound, 9)
    wide = whole[1].reshape((3, 2))
    axes = tuple(k for k, n in enumerate((1,) * (2 - len(low)) + low) if n == 1)
    close(found, wide.sum(axes, keepdims=True).reshape(low))


def test_by_average_norm() -> None:
    t = np.float32([[-3, 0, 0], [4, 0, 0]])
    cases = ((t, 0.8, [[-2.88, 0, 0], [3.84, 0, 0]]), (t, 0.9, t), (np.zeros(3), 0, np.zeros(3)),
             (3.0, 0.1, 0.1), (t, INF, t))  # fmt: skip
    for given, limit, expected in cases:
        with pytest.warns(DeprecationWarning, match="Please use clip_by_norm"):
            close(tfopt.clip_by_average_norm(given, limit), expected)
    slices = tfopt.IndexedSlices(np.float32([[3], [3], [8]]), [1, 1, 2], (3, 1))
    with pytest.warns(DeprecationWarning):
        close(tfopt.clip_by_average_norm(slices, 1), [[0], [1.8], [2.4]])
    first = tfopt.IndexedSlices(np.float32([[8], [3], [3]]), [0, 1, 1], (2, 1))
    with pytest.warns(DeprecationWarning):
        close(tfopt.clip_by_average_norm(first, 1), [[1.6], [1.2]])


# ---- what is not finite


@pytest.mark.parametrize("bad", [INF, -INF, NAN])
def test_skip(bad: float) -> None:
    t = np.float32([[1, bad], [3, 4]])
    with pytest.warns(RuntimeWarning, match=f"the norm is {abs(bad)}: not clipped"):
        assert bits(tfopt.clip_by_norm(t, 1, nonfinite="skip")) == bits(t)
    with pytest.warns(RuntimeWarning, match="not clipped"):
        close(tfopt.clip_by_norm(t, 1, [1], nonfinite="skip"), [[1, bad], [0.6, 0.8]])
    with pytest.warns(RuntimeWarning, match="not clipped") as caught:
        (clipped,), norm = tfopt.clip_by_global_norm([t], 1, nonfinite="skip")
    assert caught[0].filename == __file__
    assert bits(clipped) == bits(t) and not np.isfinite(norm)


@pytest.mark.parametrize("bad", [INF, NAN])
def test_raise(bad: float) -> None:
    t = np.float32([[1, bad], [3, 4]])
    before = t.copy()
    for call in (
        lambda: tfopt.clip_by_norm(t, 1, nonfinite="raise", out=t),
        lambda: tfopt.clip_by_norm(t, 1, [1], nonfinite="raise", out=t),
        lambda: tfopt.clip_by_global_norm([t], 1, nonfinite="raise", out=[t]),
        lambda: tfopt.clip_by_global_norm([t], 1, bad, nonfinite="raise", out=[t]),
    ):
        with pytest.raises(tfopt.InvalidArgumentError, match=f"the norm is {bad}"):
            call()
    assert bits(t) == bits(before)
    finite = np.float32([3, 4])
    close(tfopt.clip_by_norm(finite, 1, nonfinite="raise"), [0.6, 0.8])


# ---- results


def test_results_are_written_where_they_are_wanted() -> None:
    t, out = np.float32([3, 4]), np.zeros(2, np.float32)
    assert tfopt.clip_by_norm(t, 1, out=out) is out
    close(out, [0.6, 0.8])
    assert tfopt.clip_by_value(t, 0, 3.5, out=out) is out
    close(out, [3, 3.5])
    assert tfopt.clip_by_norm(t, 100, out=out) is out
    close(out, [3, 4])
    norm = np.zeros((), np.float32)
    assert tfopt.global_norm([t], out=norm) is norm and norm == 5
    wide = np.zeros(())
    assert tfopt.global_norm([t / 3], out=wide, dtype=np.float64) is wide
    assert wide == np.sqrt(np.sum((t / 3).astype(np.float64) ** 2)) != np.float32(wide)
    with pytest.warns(DeprecationWarning):
        assert tfopt.clip_by_average_norm(t, 0.5, out=out) is out
    close(out, [0.6, 0.8])
    slices = tfopt.IndexedSlices(np.float32([[3, 4]]), [1])
    outs = [out, None, slices]
    clipped, norm = tfopt.clip_by_global_norm([t, None, slices], 1, out=outs)
    assert clipped == outs and clipped[0] is out and clipped[2] is slices
    close(slices.values, np.float32([[3, 4]]) / math.sqrt(50))


def test_results_without_out_are_new() -> None:
    t = np.float32([3, 4])
    for result in (
        tfopt.clip_by_value(t, 0, 9),
        tfopt.clip_by_norm(t, 9),
        tfopt.clip_by_global_norm([t], 9)[0][0],
    ):
        assert not np.shares_memory(result, t)


def test_a_bound_that_lies_in_the_result() -> None:
    t = np.float32([5, 1, 3])
    tfopt.clip_by_value(t, t[::-1], 4, out=t)
    close(t, [4, 1, 5])


def test_unclipped_in_place_writes_nothing() -> None:
    """Not even the same values: the memory may be read-only to others at that moment."""
    t = np.float32([3, 4])
    t.flags.writeable = False
    with pytest.raises(tfopt.InvalidArgumentError, match="read-only"):
        tfopt.clip_by_norm(t, 9, out=t)


# ---- exactness


def exact_norm(x: np.ndarray) -> float:
    """Return the norm, rounded once: squares of float32 are exact in float64, fsum is in all."""
    return math.sqrt(math.fsum(np.square(x.astype(np.float64)).tolist()))


@pytest.mark.parametrize("n", [1000, 100_000, 2_000_000])
@pytest.mark.parametrize("kind", ["constant", "normal", "uniform", "wide"])
def test_the_norm_is_right_to_one_ulp(n: int, kind: str) -> None:
    random = np.random.default_rng(n)
    x = {
        "constant": lambda: np.full(n, 0.1),
        "normal": lambda: random.standard_normal(n),
        "uniform": lambda: random.uniform(0, 1, n),
        "wide": lambda: random.standard_normal(n) * 2.0 ** random.integers(-60, 60, n),
    }[kind]().astype(np.float32)
    exact = exact_norm(x)
    assert abs(float(tfopt.global_norm([x])) - exact) <= np.spacing(np.float32(exact))
    root, _ = tfopt.kernels.reduce.norms.norm([x])
    assert abs(root - exact) <= 2**-44 * exact  # chains of at most 256 additions


def test_l2_loss(either: Any) -> None:
    assert either.raw_ops.L2Loss(t=[3.0, 4.0]) == np.float32(12.5)
    assert either.raw_ops.L2Loss(t=np.float16([300, 1])) == np.float16(45000.5)
    assert either.raw_ops.L2Loss(t=np.zeros((0, 2))) == 0
    close(either.raw_ops.ClipByValue(t=[1.0, 5], clip_value_min=2, clip_value_max=[3, 4]), [2, 4])
