"""Clipping of arrays on a GPU equals the twin's with gradual underflow, bit for bit.

On machines without a GPU the kernels run on the host; see devices.py.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from common.clip_cases import ALL_DTYPES, FLOATS, INTEGERS, array_of, numbers, tensor
from common.specified import SPECIFIED
from devices import DEVICE
from hypothesis import given
from hypothesis import strategies as st

import tfopt
import tfopt_ref
from tfopt.cuda.library import load
from tfopt.kernels.reduce.norms import norm

OUTS = ("none", "in place", "other")
NAN, INF = float("nan"), float("inf")

each_float = pytest.mark.parametrize("dtype", FLOATS)
each_out = pytest.mark.parametrize("kind", OUTS)


@pytest.fixture(autouse=True)
def _no_warnings(gradual_underflow):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def there(value: Any, shifted: bool = False) -> Any:
    """Return arguments with their arrays on the device; shifted by an element, if asked for."""
    if isinstance(value, (list, tuple)):
        return [there(each, shifted) for each in value]
    if not isinstance(value, np.ndarray):
        return value
    if not shifted:
        return DEVICE.to(value)
    long = np.zeros(value.size + 1, value.dtype)
    long[1:] = value.ravel()
    # DEVICE.part of a flat array is one-dimensional, and so has to be what is shifted
    return DEVICE.part(DEVICE.to(long), slice(1, None)) if value.ndim == 1 else DEVICE.to(value)


def back(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [back(each) for each in value]
    return value if value is None or isinstance(value, (float, int)) else DEVICE.back(value)


def flattened(result: Any) -> list[np.ndarray]:
    if isinstance(result, (list, tuple)):
        return [array for part in result if part is not None for array in flattened(part)]
    return [np.asarray(result)]


def assert_same(one: Any, other: Any, what: str) -> None:
    for a, b in zip(flattened(one), flattened(other), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, what
        assert_same_bits(np.atleast_1d(a), np.atleast_1d(b), what)


def compare(call: Any, arrays: Any, kind: str, shifted: bool = False) -> None:
    """Call with arrays on the device and, the twin, on the host; compare results and arguments."""

    def outs_like(own: Any) -> Any:
        if isinstance(own, list):
            return [outs_like(each) for each in own]
        return None if own is None else np.zeros_like(own)

    here = [None if a is None else a.copy() for a in arrays]
    far = there(arrays, shifted)
    outs: tuple[Any, Any] = {
        "none": lambda: (None, None),
        "in place": lambda: (far, here),
        "other": lambda: (there(outs_like(here)), outs_like(here)),
    }[kind]()
    theirs = call(SPECIFIED, here, outs[1])
    ours = call(tfopt, far, outs[0])
    assert_same(back(ours), theirs, kind)
    assert_same(back(far), here, f"{kind}: arguments")
    if kind == "other":
        assert_same(back(outs[0]), outs[1], f"{kind}: out")


def limits() -> st.SearchStrategy[float]:
    odd = st.sampled_from([0.0, -1.0, INF, NAN, 1e-310, 1e300, 1e-40])
    return st.one_of(st.floats(0.01, 20), st.floats(0, 1e300), odd)


# ---- each function, with any numbers


@pytest.mark.parametrize("dtype", ALL_DTYPES)
@each_out
@given(data=st.data())
def test_clip_by_value(dtype: str, kind: str, data: st.DataObject) -> None:
    if DEVICE.name == "torch" and dtype in ("uint16", "uint32", "uint64"):
        pytest.skip("torch has next to nothing of this type")
    t = data.draw(tensor(dtype))
    with np.errstate(all="ignore"):
        low, high = (
            data.draw(tensor(dtype, t.shape))
            if data.draw(st.booleans())
            else array_of(data.draw(numbers(dtype)), dtype)
            for _ in range(2)
        )

    def call(package: Any, own: Any, out: Any) -> Any:
        bounds = [DEVICE.to(b) if package is tfopt and b.ndim else b for b in (low, high)]
        return package.clip_by_value(own[0], *bounds, out=None if out is None else out[0])

    compare(call, [t], kind)


@each_float
@each_out
@given(data=st.data())
def test_clip_by_norm(dtype: str, kind: str, data: st.DataObject) -> None:
    t = data.draw(tensor(dtype))
    axes = data.draw(st.none() | st.sets(st.integers(0, t.ndim - 1)).map(sorted) if t.ndim else
                     st.none())  # fmt: skip
    reduced = range(t.ndim) if axes is None else axes
    shape = tuple(1 if axis in reduced else n for axis, n in enumerate(t.shape))
    limit: Any = data.draw(limits())
    if data.draw(st.booleans()):
        several = [data.draw(limits()) for _ in range(int(np.prod(shape)))]
        with np.errstate(all="ignore"):
            limit = array_of(np.reshape(several, shape), dtype)
    policy = data.draw(st.sampled_from(["propagate", "skip"]))

    def call(package: Any, own: Any, out: Any) -> Any:
        each = there(limit) if package is tfopt else limit
        out = None if out is None else out[0]
        return package.clip_by_norm(own[0], each, axes, out=out, nonfinite=policy)

    compare(call, [t], kind)


@each_float
@each_out
@given(data=st.data())
def test_clip_by_global_norm(dtype: str, kind: str, data: st.DataObject) -> None:
    tensors = [data.draw(tensor(dtype)), *data.draw(st.lists(tensor(dtype), max_size=3)), None]
    limit = data.draw(limits())
    known = data.draw(st.none() | st.floats(0, 1e300))
    on_device = data.draw(st.booleans())
    policy = data.draw(st.sampled_from(["propagate", "skip"]))

    def call(package: Any, own: Any, out: Any) -> Any:
        use = known
        if package is tfopt and known is not None and on_device:
            use = DEVICE.to(np.array(known))
        before = package.global_norm(own)
        clipped, value = package.clip_by_global_norm(own, limit, use, out=out, nonfinite=policy)
        return clipped, before, None if known is not None else value

    compare(call, tensors, kind)


@each_float
@given(data=st.data())
def test_other_functions(dtype: str, data: st.DataObject) -> None:
    t, limit = data.draw(tensor(dtype)), data.draw(limits())

    def call(package: Any, own: Any, out: Any) -> Any:
        return package.clip_by_average_norm(own[0], limit), package.raw_ops.L2Loss(t=own[0])

    compare(call, [t], "none")


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_the_fused_op(dtype: str) -> None:
    t = np.arange(-4, 5).astype(dtype)
    low, high = np.full(9, -2, dtype), 3 * np.ones(9, dtype)
    for bounds in ((low, high), (low[0], high[0])):
        names = {"clip_value_min": bounds[0], "clip_value_max": bounds[1]}
        far = {name: DEVICE.to(b) if b.ndim else b for name, b in names.items()}
        ours = tfopt.raw_ops.ClipByValue(t=DEVICE.to(t), **far)
        assert_same(back(ours), SPECIFIED.raw_ops.ClipByValue(t=t, **names), dtype)


# ---- sizes around spans, lanes, blocks and packs


def spread(n: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Return numbers of very different magnitudes."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(n) * 2.0 ** random.integers(-10, 10, n)
    return array_of(values, dtype)


@each_float
@pytest.mark.parametrize("n", [1, 255, 257, 4096, 4099, 65_536, 65_537, 200_000])
def test_long_arrays(dtype: str, n: int) -> None:
    def call(package: Any, own: Any, out: Any) -> Any:
        clipped = package.clip_by_norm(own[0], 2.5), package.clip_by_global_norm(own, 0.5)
        wide = package.global_norm([*own, own[0]], dtype=np.float64)
        return package.global_norm(own), wide, package.raw_ops.L2Loss(t=own[0]), clipped

    compare(call, [spread(n, dtype)], "none", shifted=n % 2 == 1)


def test_more_spans_than_lanes() -> None:
    x = spread(17_000_000, "float32")
    expected = np.float32(norm([x])[0])
    far = DEVICE.to(x)
    assert_same(back(tfopt.global_norm([far])), expected, "a list")
    (part,) = back([tfopt.clip_by_norm(far, float(expected) / 2)])
    assert_same(part, tfopt.clip_by_norm(x, float(expected) / 2), "one array")


@each_float
@pytest.mark.parametrize("scale", [1.0, 1e300, 1e-300])
def test_many_arrays(dtype: str, scale: float) -> None:
    """More than one launch holds, some longer than a span, and empty ones."""
    if scale != 1 and dtype != "float64":
        return
    sizes = [0, 1, 70_000, 3, 65_536, 1000, 140_000, *range(50), *[2] * 3100, 0]
    arrays = [spread(n, dtype, n) for n in sizes]
    arrays = [array_of(a.astype(float) * scale, dtype) for a in arrays]
    clipped, value = tfopt.clip_by_global_norm(there(arrays), 2.5 * scale)
    theirs, expected = tfopt.clip_by_global_norm(arrays, 2.5 * scale)
    assert_same(back([clipped, value]), [theirs, expected], dtype)


@each_float
@pytest.mark.parametrize("axes", [[0], [1], [2], [0, 2], [1, 2], []])
@pytest.mark.parametrize("scale", [1.0, 1e-300])
def test_long_slices(dtype: str, axes: list[int], scale: float) -> None:
    if scale != 1 and dtype != "float64":
        return
    shape = {(1,): (2, 70_000, 2), (1, 2): (2, 300, 300), (): (3, 70, 5)}.get(
        tuple(axes), (70_000, 2, 3)
    )
    x = array_of(spread(int(np.prod(shape)), dtype).astype(float) * scale, dtype).reshape(shape)
    clipped = tfopt.clip_by_norm(DEVICE.to(x), 3.0 * scale, axes)
    assert_same(back(clipped), tfopt.clip_by_norm(x, 3.0 * scale, axes), f"axes {axes}")


def test_many_axes() -> None:
    x = spread(2**11, "float64").reshape((2,) * 11)
    axes = [0, 2, 3, 6, 8, 10]
    clipped = tfopt.clip_by_norm(DEVICE.to(x), 3.0, axes)
    assert_same(back(clipped), tfopt_ref.clip_by_norm(x, 3.0, axes), "alternating")
    too_many = DEVICE.to(np.ones((2,) * 17, np.float32))
    with pytest.raises(tfopt.errors.InvalidArgumentError, match="at most 16 times"):
        tfopt.clip_by_norm(too_many, 3.0, list(range(0, 17, 2)))


def parts_of(powers: Any) -> list[float]:
    """Return numbers whose squares' sum is twice a sum of powers of two, given by exponents."""
    return [2.0 ** -(m // 2) for m in powers for _ in range(2 - m % 2)]


@each_float
def test_losses_beside_ties(dtype: str) -> None:
    """A double is rounded once, to float16 at least: not to float first, and then up or down."""
    for powers in (
        [0, 11],  # a tie of float16, to the even number below; more, and less than a float tells
        [0, 11, 29],
        [0, 10, 11],  # one to the even number above
        [0, 10, *range(12, 30)],
        [0, 8],  # of bfloat16, which NumPy rounds by way of float
        [0, 8, 29],
        [0, 7, *range(9, 30)],
        [25],  # the least of float16, and its half, and more
        [26],
        [26, 29],
    ):
        t = array_of(parts_of(powers), dtype)
        expected = SPECIFIED.raw_ops.L2Loss(t=t)
        assert_same(back(tfopt.raw_ops.L2Loss(t=DEVICE.to(t))), expected, f"{powers}")


@each_float
def test_norms_that_the_dtype_cannot_hold(dtype: str) -> None:
    top = {"float16": 65504, "bfloat16": 3.3895e38, "float32": 3.4028235e38}.get(dtype, 1.7e308)
    for n in (1, 2):
        t = array_of([top] * n, dtype)
        assert_same(
            back(tfopt.global_norm([DEVICE.to(t)])), tfopt_ref.global_norm([t]), f"{n} of {top}"
        )


# ---- what else goes in and comes out


def test_slices_and_variables() -> None:
    values = np.float32([[-3, 0], [4, 9]])
    slices = tfopt.IndexedSlices(DEVICE.to(values), np.array([2, 6]), (10, 2))
    assert repr(slices).startswith("IndexedSlices(values of shape (2, 2)")
    variable = tfopt.Variable(DEVICE.to(values))
    for given_one, clip in (
        (given_one, clip)
        for given_one in (slices, variable)
        for clip in (
            lambda t: tfopt.clip_by_value(t, 1, 2),
            lambda t: tfopt.clip_by_norm(t, 1),
            lambda t: tfopt.clip_by_global_norm([None, t], 1)[0][1],
        )
    ):
        clipped = clip(given_one)
        if given_one is slices:
            assert clipped.indices is slices.indices
            assert clipped.dense_shape is slices.dense_shape
            clipped = clipped.values
        assert_same(back(clipped), clip(values), "clipped")
    assert tfopt.clip_by_norm(slices, 1, out=slices) is slices
    assert tfopt.clip_by_norm(variable, 1, out=variable) is variable
    expected = tfopt.clip_by_norm(values, 1)
    assert_same(back([slices.values, variable.value()]), [expected, expected], "in place")


def test_out_is_returned() -> None:
    t, other, number = (DEVICE.to(np.ones(s, np.float32)) for s in ((4,), (4,), ()))
    assert tfopt.clip_by_value(t, 0, 0.5, out=other) is other
    assert tfopt.clip_by_norm(t, 0.5, out=t) is t
    assert tfopt.global_norm([t], out=number) is number
    assert float(back(number)) == 0.5
    clipped, _ = tfopt.clip_by_global_norm([t, None], 0.25, out=[other, None])
    assert clipped[0] is other and clipped[1] is None
    np.testing.assert_array_equal(back(other), 0.125)


def test_use_norm() -> None:
    arrays = [np.float32([3, 4]), np.float64([1]), np.float16([2])]
    expected, _ = tfopt.clip_by_global_norm(arrays, 1.0, use_norm=10)
    number = DEVICE.to(np.array(10.0))
    for known in (10, np.float32(10), number):
        clipped, value = tfopt.clip_by_global_norm(there(arrays), 1.0, use_norm=known)
        assert value is known
        assert_same(back(clipped), expected, "known")
    negative, _ = tfopt.clip_by_global_norm(there(arrays), 1.0, DEVICE.to(np.array(-10.0)))
    assert all(np.isnan(a).all() for a in back(negative))


@each_float
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_policies(dtype: str, bad: float) -> None:
    values = array_of([[3, 4], [bad, 1], [0, 2]], dtype)
    calls = {
        "all": lambda t, how: tfopt.clip_by_norm(t, 1.0, out=t, nonfinite=how),
        "rows": lambda t, how: tfopt.clip_by_norm(t, 1.0, [1], out=t, nonfinite=how),
        "list": lambda t, how: tfopt.clip_by_global_norm([t], 1.0, out=[t], nonfinite=how),
    }
    for name, call in calls.items():
        far = DEVICE.to(values)
        with pytest.raises(tfopt.errors.InvalidArgumentError, match="the norm is"):
            call(far, "raise")
        assert_same(back(far), values, "nothing is written")
        here = values.copy()
        with pytest.warns(RuntimeWarning, match="the norm is .*: not clipped") as caught:
            call(far, "skip")
        assert caught[0].filename == __file__
        call(here, "skip")
        assert_same(back(far), here, f"{name}: skip")
        far, here = DEVICE.to(values), values.copy()
        call(far, "propagate")
        call(here, "propagate")
        assert_same(back(far), here, f"{name}: propagate")


def test_only_policies_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """With "propagate" nothing is read back."""
    waits = []
    ask = load().call["bad_norm"]
    monkeypatch.setitem(load().call, "bad_norm", lambda *a: waits.append(a) or ask(*a))
    t = DEVICE.to(np.ones((2, 2), np.float32))
    for how, expected in (("propagate", 0), ("skip", 3)):
        tfopt.clip_by_norm(t, 1.0, nonfinite=how)
        tfopt.clip_by_norm(t, 1.0, [0], nonfinite=how)
        tfopt.clip_by_global_norm([t], 1.0, nonfinite=how)
        tfopt.global_norm([t])
        assert len(waits) == expected


def test_a_capture_cannot_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(load().call, "bad_norm", lambda *a: -3)
    t = DEVICE.to(np.full(2, 9, np.float32))
    with pytest.raises(tfopt.errors.InvalidArgumentError, match="graph is captured"):
        tfopt.clip_by_norm(t, 1.0, out=t, nonfinite="skip")
    np.testing.assert_array_equal(back(t), 9)


def test_every_type_has_its_number() -> None:
    """The table in norms.py is the one in clip.cu."""
    for dtype in (*INTEGERS, *FLOATS):
        t = array_of([1, 2, 3], dtype)
        ours = back(tfopt.clip_by_value(there([t])[0], array_of(2, dtype), array_of(2, dtype)))
        assert_same(ours, array_of([2, 2, 2], dtype), dtype)
