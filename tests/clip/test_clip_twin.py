"""Clipping equals its twin bit for bit: every function, dtype and layout, on any threads."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from common.cases import LAYOUTS, TRIED, assert_same_bits, whole
from common.clip_cases import ALL_DTYPES, FLOATS, array_of, bits, laid_out, numbers, tensor
from common.specified import SPECIFIED
from hypothesis import given
from hypothesis import strategies as st

import tfopt
import tfopt_ref
from tfopt.kernels.reduce.norms import norm
from tfopt.kernels.update.clip import factor

each_float = pytest.mark.parametrize("dtype", FLOATS)
each_layout = pytest.mark.parametrize("layout", [*LAYOUTS, "read-only"])
PACKAGES = (tfopt, SPECIFIED)


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def compare(call: Any, make: Any, flush: bool, key: tuple[str, str, str, str]) -> None:
    """Call both packages, each with own arguments; compare the results and all of the memory."""
    results, memory = [], []
    for package in PACKAGES:
        package.set_flush_denormals(flush)
        arguments, arrays = make()
        results.append(call(package, *arguments))
        memory.append(arrays)
    for fast, ref in zip(*map(flattened, results), strict=True):
        assert fast.dtype == ref.dtype and fast.shape == ref.shape
        assert_same_bits(fast, ref, key[0])
    for fast, ref in zip(*memory, strict=True):
        assert_same_bits(whole(fast), whole(ref), f"{key[0]}: memory")
    TRIED[key] += 1


def flattened(result: Any) -> list[np.ndarray]:
    if isinstance(result, (list, tuple)):
        return [array for part in result if part is not None for array in flattened(part)]
    return [np.asarray(result)]


def limits() -> st.SearchStrategy[float]:
    odd = st.sampled_from([0.0, -1.0, np.inf, np.nan, 1e-310, 1e300, 1e-40])
    return st.one_of(st.floats(0.01, 20), st.floats(0, 1e300), odd)


OUTS = ("none", "in place", "other")


def out_of(kind: str, t: np.ndarray) -> np.ndarray | None:
    if kind == "in place" and t.flags.writeable:
        return t
    return None if kind == "none" else np.zeros_like(t, order="C")


@pytest.mark.counted
@pytest.mark.parametrize("dtype", ALL_DTYPES)
@each_layout
@given(data=st.data())
def test_clip_by_value(dtype: str, layout: str, data: st.DataObject) -> None:
    t = data.draw(tensor(dtype))

    def bound() -> Any:
        shape = data.draw(st.sampled_from([(), t.shape, t.shape[1:], (1,) * t.ndim]))
        return data.draw(tensor(dtype, shape)) if shape else array_of(draw_one(), dtype)

    def draw_one() -> Any:
        return data.draw(numbers(dtype))

    with np.errstate(all="ignore"):
        low, high = bound(), bound()
    kind = data.draw(st.sampled_from(OUTS))

    def make() -> Any:
        own = laid_out(t, layout)
        out = out_of(kind, own)
        return (own, out), [own] if out is None else [own, out]

    def call(package: Any, own: Any, out: Any) -> Any:
        return package.clip_by_value(own, low, high, out=out)

    compare(call, make, data.draw(st.booleans()), ("clip_by_value", dtype, kind, layout))


@pytest.mark.counted
@each_float
@each_layout
@given(data=st.data())
def test_clip_by_norm(dtype: str, layout: str, data: st.DataObject) -> None:
    t = data.draw(tensor(dtype))
    axes = data.draw(st.none() | st.sets(st.integers(0, t.ndim - 1)).map(sorted) if t.ndim else
                     st.none())  # fmt: skip
    shape = data.draw(st.sampled_from([(), (), t.shape, (1,) * t.ndim]))
    limit = np.reshape([data.draw(limits()) for _ in range(int(np.prod(shape)))], shape)
    policy = data.draw(st.sampled_from(["propagate", "skip"]))
    kind = data.draw(st.sampled_from(OUTS))

    def make() -> Any:
        own = laid_out(t, layout)
        out = out_of(kind, own)
        return (own, out), [own] if out is None else [own, out]

    def call(package: Any, own: Any, out: Any) -> Any:
        return package.clip_by_norm(own, limit, axes, out=out, nonfinite=policy)

    compare(call, make, data.draw(st.booleans()), ("clip_by_norm", dtype, kind, layout))


@pytest.mark.counted
@each_float
@each_layout
@given(data=st.data())
def test_clip_by_global_norm(dtype: str, layout: str, data: st.DataObject) -> None:
    tensors = data.draw(st.lists(tensor(dtype), max_size=4))
    limit, use_norm = data.draw(limits()), data.draw(st.none() | st.floats(0, 1e300))
    policy = data.draw(st.sampled_from(["propagate", "skip"]))
    kind = data.draw(st.sampled_from(OUTS))

    def make() -> Any:
        own = [laid_out(t, layout) for t in tensors]
        outs = [out_of(kind, t) for t in own]
        given_out = [None, *outs] if kind != "none" else None
        return ([None, *own], given_out), [*own, *(out for out in outs if out is not None)]

    def call(package: Any, own: Any, out: Any) -> Any:
        norm_too = package.global_norm(own), package.global_norm(own, dtype=np.float64)
        return package.clip_by_global_norm(
            own, limit, use_norm, out=out, nonfinite=policy
        ), norm_too

    compare(call, make, data.draw(st.booleans()), ("clip_by_global_norm", dtype, kind, layout))


@pytest.mark.counted
@each_float
@given(data=st.data())
def test_other_functions(dtype: str, data: st.DataObject) -> None:
    t = data.draw(tensor(dtype))
    limit = data.draw(limits())

    def make() -> Any:
        own = t.copy()
        return (own,), [own]

    def call(package: Any, own: Any) -> Any:
        return package.clip_by_average_norm(own, limit), package.raw_ops.L2Loss(t=own)

    compare(call, make, data.draw(st.booleans()), ("others", dtype, "none", "contiguous"))


@pytest.mark.counted
@each_float
@given(data=st.data())
def test_gradients(dtype: str, data: st.DataObject) -> None:
    t = data.draw(tensor(dtype))
    g = data.draw(tensor(dtype, t.shape))
    axes = data.draw(st.sampled_from([None, [], [t.ndim - 1]])) if t.ndim else None
    low, high = sorted(data.draw(st.tuples(*[st.floats(-4, 4, width=16)] * 2)))
    limit = data.draw(limits())

    def make() -> Any:
        return (g.copy(), t.copy()), []

    def call(package: Any, grad: Any, own: Any) -> Any:
        by_value = package.clip_grads.clip_by_value_grad(grad, own, low, high)
        return by_value, package.clip_grads.clip_by_norm_grad(grad, own, limit, axes)

    compare(call, make, data.draw(st.booleans()), ("gradients", dtype, "none", "contiguous"))


# ---- more elements than a span has


def spread(n: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Return numbers of very different magnitudes."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(n) * 2.0 ** random.integers(-10, 10, n)
    return array_of(values, dtype)


@each_float
@pytest.mark.parametrize("n", [255, 257, 65_536, 65_537, 70_001, 200_000, 17_000_000])
def test_long_sums(dtype: str, n: int) -> None:
    """Of one span and more, of more spans than there are lanes; on one thread and several."""
    if n > 10**6 and dtype != "float32":
        n = 300_000
    x = spread(n, dtype)
    expected = tfopt_ref.norms.norm([x])
    for threads in (1, 2, 3):
        tfopt.threads.set_num_threads(threads)
        assert norm([x]) == expected


@pytest.mark.parametrize("size", [1e-200, 1e200])
@pytest.mark.parametrize("n", [1, 2, 255, 257, 513, 65_537])
@pytest.mark.parametrize("largest", ["first", "middle", "last"])
def test_squares_that_no_double_holds(size: float, n: int, largest: str) -> None:
    """They are scaled by the largest element, wherever it is."""
    x = size * np.linspace(0.25, 0.5, n)[::-1].copy()
    x[{"first": 0, "middle": n // 2, "last": n - 1}[largest]] = -300 * size
    root, exponent = norm([x])
    assert (root, exponent) == tfopt_ref.norms.norm([x])
    assert np.ldexp(root, exponent) == pytest.approx(size * np.linalg.norm(x / size), rel=1e-12)
    slices = tfopt.clip_by_norm(np.stack([x, x]), 2.0, [1])
    assert_same_bits(slices, tfopt_ref.clip_by_norm(np.stack([x, x]), 2.0, [1]), "slices")


@each_float
@each_layout
def test_long_sums_of_any_layout(dtype: str, layout: str) -> None:
    x = spread(3 * 131 * 350, dtype).reshape(3, 131, 350)
    expected = tfopt_ref.norms.norm([x])
    for threads in (1, 2):
        tfopt.threads.set_num_threads(threads)
        assert norm([laid_out(x, layout)]) == expected


@each_float
def test_many_arrays(dtype: str) -> None:
    arrays = [spread(n, dtype, n) for n in (0, 1, 70_000, 3, 65_536, 1000, 140_000)]
    expected = tfopt_ref.norms.norm(arrays)
    for threads in (1, 2, 3):
        tfopt.threads.set_num_threads(threads)
        assert norm(arrays) == expected
        clipped, _ = tfopt.clip_by_global_norm(arrays, 2.5)
        theirs, _ = tfopt_ref.clip_by_global_norm(arrays, 2.5)
        for ours, other in zip(clipped, theirs, strict=True):
            assert_same_bits(ours, other, "clip_by_global_norm")


@each_float
@pytest.mark.parametrize("axes", [[0], [1], [2], [0, 2], [1, 2]])
def test_long_slices(dtype: str, axes: list[int]) -> None:
    shape = {(1,): (2, 70_000, 2), (1, 2): (2, 300, 300)}.get(tuple(axes), (70_000, 2, 3))
    x = spread(int(np.prod(shape)), dtype).reshape(shape)
    expected = tfopt_ref.clip_by_norm(x, 3.0, axes) if 70_000 not in shape[:1] else None
    for threads in (1, 2, 3):
        tfopt.threads.set_num_threads(threads)
        clipped = tfopt.clip_by_norm(x, 3.0, axes)
        expected = clipped if expected is None else expected
        assert_same_bits(clipped, expected, f"axes {axes}")


@given(
    root=st.floats(0) | st.just(np.nan),
    exponent=st.integers(-1021, 1021),
    limit=st.floats(0) | st.just(np.nan),
    single=st.booleans(),
)
def test_factors(root: float, exponent: int, limit: float, single: bool) -> None:
    exponent = exponent if np.isfinite(root) else 0
    dtype = np.float32 if single else np.float64
    ours = np.array(factor(root, exponent, limit, single))
    theirs = np.array(tfopt_ref.norms.factors(root, exponent, limit, dtype), np.float64)
    assert bits(ours) == bits(theirs)
