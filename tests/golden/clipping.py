"""Calls of clipping that TensorFlow answers too: as functions of a package, ours or TensorFlow's.

A call takes a package and arrays. `Tensors` makes a package of TensorFlow that takes arrays and
returns arrays.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

__all__ = ["CALLS", "DIFFERENCES", "Call", "Difference", "Tensors", "check_close", "drawn", "flat"]

INF, NAN = float("inf"), float("nan")
SHAPES = ((), (1,), (5,), (4, 5), (2, 3, 4), (0,), (3, 0), (70,))


class Call(NamedTuple):
    """A function of a package and arrays; what is drawn for it."""

    name: str
    function: Callable[..., Any]
    draw: Callable[[np.random.Generator, str], list[np.ndarray]]
    dtypes: tuple[str, ...] = ("float32", "float64", "float16")


def _tensor(random: np.random.Generator, dtype: str, shape: Any = None) -> np.ndarray:
    shape = SHAPES[random.integers(len(SHAPES))] if shape is None else shape
    with np.errstate(over="ignore"):
        values = random.standard_normal(shape) * 10.0 ** random.integers(-1, 2)
        return np.asarray(values).astype(dtype)


def _bounds(random: np.random.Generator, dtype: str) -> list[np.ndarray]:
    """Return a tensor and two bounds, with now and then a NaN or an infinity."""
    t = _tensor(random, dtype)
    bounds = []
    for _ in range(2):
        shape = [(), t.shape, t.shape[1:], tuple(random.choice([1, n]) for n in t.shape)]
        bounds.append(_tensor(random, dtype, shape[random.integers(4)]))
    for array in (t, *bounds):
        if array.size and array.dtype.kind == "f" and random.uniform() < 0.3:
            array.flat[random.integers(array.size)] = random.choice([INF, -INF, NAN, -0.0])
    return [t, *bounds]


def _limited(random: np.random.Generator, dtype: str) -> list[np.ndarray]:
    limit = random.choice([0.1, 1.0, 3.0, 50.0])  # times an element still a float16
    return [_tensor(random, dtype), np.asarray(limit, dtype)]


def _with_axes(random: np.random.Generator, dtype: str) -> list[np.ndarray]:
    t, limit = _limited(random, dtype)
    chosen = random.permutation(t.ndim)[: random.integers(t.ndim + 1)]
    signed = chosen - t.ndim * random.integers(0, 2, chosen.size)
    return [t, limit, signed.astype(np.int64)]


def _several(random: np.random.Generator, dtype: str) -> list[np.ndarray]:
    _, limit = _limited(random, dtype)
    return [limit, *(_tensor(random, dtype) for _ in range(random.integers(4)))]


def _and_gradient(
    draw: Callable[[np.random.Generator, str], list[np.ndarray]],
) -> Callable[[np.random.Generator, str], list[np.ndarray]]:
    """Return what draws a tensor's gradient first. Nothing is NaN, for there the rules differ."""

    def both(random: np.random.Generator, dtype: str) -> list[np.ndarray]:
        t, *others = (np.nan_to_num(a, nan=0.5, posinf=3, neginf=-3) if a.dtype.kind == "f" else a
                      for a in draw(random, dtype))  # fmt: skip
        return [_tensor(random, dtype, t.shape), t, *others]

    return both


def _ordered(draw: Callable[..., list[np.ndarray]]) -> Callable[..., list[np.ndarray]]:
    def scalars(random: np.random.Generator, dtype: str) -> list[np.ndarray]:
        t, *_ = draw(random, dtype)
        return [t, *np.sort(random.standard_normal(2)).astype(dtype)]

    return scalars


INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
CALLS = (
    Call("clip_by_value", lambda m, t, low, high: m.clip_by_value(t, low, high), _bounds,
         ("float32", "float64", "float16", *INTEGERS)),
    Call("ClipByValue", lambda m, t, low, high: m.raw_ops.ClipByValue(
        t=t, clip_value_min=low, clip_value_max=high), _ordered(_bounds)),
    Call("L2Loss", lambda m, t: m.raw_ops.L2Loss(t=t), lambda r, d: [_tensor(r, d) / 10]),
    Call("clip_by_norm", lambda m, t, limit: m.clip_by_norm(t, limit), _limited),
    Call("clip_by_norm along axes", lambda m, t, limit, axes: m.clip_by_norm(t, limit, axes),
         _with_axes),
    Call("global_norm", lambda m, _, *tensors: m.linalg.global_norm(tensors), _several),
    Call("clip_by_global_norm", lambda m, limit, *tensors: m.clip_by_global_norm(tensors, limit),
         _several),
    Call("clip_by_average_norm", lambda m, t, limit: m.clip_by_average_norm(t, limit), _limited,
         ("float32",)),
    Call("clip_by_value_grad", lambda m, *a: m.clip_grads.clip_by_value_grad(*a),
         _and_gradient(_bounds), ("float32", "float64")),
    Call("clip_by_norm_grad", lambda m, *a: m.clip_grads.clip_by_norm_grad(*a),
         _and_gradient(_with_axes), ("float32", "float64")),
)  # fmt: skip


def drawn(call: Call, dtype: str, cases: int) -> Iterator[list[np.ndarray]]:
    """Yield the arguments of so many cases."""
    for number in range(cases):
        random = np.random.default_rng(zlib.crc32(f"{call.name} {dtype} {number}".encode()))
        yield [np.asarray(a) for a in call.draw(random, dtype)]


def flat(answer: Any) -> list[np.ndarray]:
    """Return an answer as a list of arrays."""
    if isinstance(answer, (list, tuple)):
        return [array for part in answer for array in flat(part)]
    return [np.asarray(answer)]


#: What TensorFlow's own roundings amount to, relative to an array's largest element.
TOLERANCE = {"float16": 2e-2, "float32": 4e-6, "float64": 1e-14}


def check_close(ours: list[np.ndarray], theirs: list[np.ndarray], name: str) -> None:
    """Compare two answers: choices bit for bit, but for the NaN; what is computed, closely."""
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, name
        if name in ("clip_by_value", "ClipByValue"):
            np.testing.assert_array_equal(a, b)
            assert a.dtype.kind != "f" or (np.signbit(a) == np.signbit(b))[~np.isnan(a)].all()
            continue
        scale = np.abs(b.astype(float)).max() if b.size else 0.0
        if name.endswith("_grad"):  # sums of products that may cancel
            scale = max(scale, 10.0)
        atol = TOLERANCE[a.dtype.name] * (scale if np.isfinite(scale) else 1)
        np.testing.assert_allclose(a.astype(float), b.astype(float), rtol=1e-3, atol=atol)


class Tensors:
    """TensorFlow as a package whose functions take and return arrays."""

    def __init__(self, tf: Any) -> None:
        self.tf, self.linalg, self.raw_ops, self.clip_grads = tf, self, self, self

    def _constants(self, values: Any) -> Any:
        return [self.tf.constant(value) for value in values]

    def clip_by_value(self, *args: Any) -> Any:
        given = [arg if isinstance(arg, int) else self.tf.constant(arg) for arg in args]
        return self.tf.clip_by_value(*given).numpy()

    def ClipByValue(self, **kwargs: Any) -> Any:
        return self.tf.raw_ops.ClipByValue(**kwargs).numpy()

    def L2Loss(self, t: Any) -> Any:
        return self.tf.raw_ops.L2Loss(t=t).numpy()

    def clip_by_norm(self, t: Any, limit: Any, axes: Any = None) -> Any:
        return self.tf.clip_by_norm(*self._constants((t, limit)), axes).numpy()

    def global_norm(self, tensors: Any) -> Any:
        return self.tf.linalg.global_norm(self._constants(tensors)).numpy()

    def clip_by_global_norm(self, tensors: Any, limit: Any, use_norm: Any = None) -> Any:
        use_norm = None if use_norm is None else self.tf.constant(use_norm)
        clipped, norm = self.tf.clip_by_global_norm(self._constants(tensors), limit, use_norm)
        return [t.numpy() for t in clipped], norm.numpy()

    def clip_by_average_norm(self, t: Any, limit: Any) -> Any:
        return self.tf.compat.v1.clip_by_average_norm(t, limit).numpy()

    def clip_by_value_grad(self, grad: Any, *args: Any) -> Any:
        return self._gradients(self.tf.clip_by_value, grad, args, ())

    def clip_by_norm_grad(self, grad: Any, t: Any, limit: Any, axes: Any) -> Any:
        return self._gradients(self.tf.clip_by_norm, grad, (t, limit), (axes,))

    def _gradients(self, function: Any, grad: Any, sources: Any, others: Any) -> Any:
        sources = self._constants(sources)
        with self.tf.GradientTape() as tape:
            for source in sources:
                tape.watch(source)
            result = function(*sources, *others)
        zero = self.tf.UnconnectedGradients.ZERO
        found = tape.gradient(result, sources, self.tf.constant(grad), unconnected_gradients=zero)
        return [gradient.numpy() for gradient in found]


class Difference(NamedTuple):
    """A call with another answer than TensorFlow's, on purpose, and both first elements."""

    name: str
    function: Callable[[Any], Any]
    ours: Any  # the number, or the name of an error
    theirs: Any


def _f(*values: float) -> np.ndarray:
    return np.float32(values)


DIFFERENCES = (
    Difference("squares that overflow", lambda m: m.clip_by_norm(_f(1e20, 1e20), 1.0),
               0.7071067690849304, 0.0),
    Difference("a norm whose squares overflow", lambda m: m.global_norm([_f(1e20, 1e20)]),
               1.414213581995256e20, INF),
    Difference("a norm whose squares vanish", lambda m: m.global_norm([_f(1e-23, 1e-23)]),
               1.4142135062115972e-23, 0.0),
    Difference("squares of float16", lambda m: m.clip_by_norm(np.float16([300, 400]), 1.0),
               0.60009765625, 0.0),
    Difference("a limit of 0 for zeros", lambda m: m.clip_by_norm(_f(0, 0), 0.0), 0.0, NAN),
    Difference("an infinite limit", lambda m: m.clip_by_norm(_f(3, 4), INF), 3.0, NAN),
    Difference("a limit times an element that overflows",
               lambda m: m.clip_by_norm(_f(1e15, 0), np.float32(1e30)), 999999986991104.0, INF),
    Difference("a global limit of 0 for zeros",
               lambda m: m.clip_by_global_norm([_f(0, 0)], 0.0)[0], 0.0, NAN),
    Difference("an infinite global limit",
               lambda m: m.clip_by_global_norm([_f(3, 4)], INF)[0], 3.0, NAN),
    Difference("a negative global limit",
               lambda m: m.clip_by_global_norm([_f(3, 4)], -1.0)[0], 0.0, 3.0),
    Difference("an unclipped last bit",
               lambda m: m.clip_by_global_norm([np.float64([0.1, 0.2, 0.3])], 49.0)[0],
               0.1, 0.09999999999999999),
    Difference("a negative use_norm",
               lambda m: m.clip_by_global_norm([_f(3, 4)], 1.0, np.float32(-10))[0],
               "InvalidArgumentError", -0.30000001192092896),
    Difference("a bound out of range", lambda m: m.clip_by_value(np.uint8([1]), 0, 300),
               "InvalidArgumentError", 1),
    Difference("a NaN bound of the fused op", lambda m: m.raw_ops.ClipByValue(
        t=_f(1), clip_value_min=np.float32(0), clip_value_max=np.float32(NAN)), NAN, 1.0),
    Difference("the average norm of float64",
               lambda m: m.clip_by_average_norm(np.float64([3, 4]), 1.0),
        1.2000000000000002,
               "InvalidArgumentError"),
    Difference("the gradient of a NaN", lambda m: m.clip_grads.clip_by_value_grad(
        _f(1), _f(NAN), np.float32(0), np.float32(1)), 1.0, 0.0),
    Difference("the gradient of zeros with a limit of 0", lambda m: m.clip_grads.clip_by_norm_grad(
        _f(1), _f(0), np.float32(0), None), 0.0, NAN),
)  # fmt: skip
