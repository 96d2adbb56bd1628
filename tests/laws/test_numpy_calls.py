"""NumPy's functions of tensors, called with every combination of their arguments."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.special

import tfopt
from laws import called, numpy_calls
from laws.called import agrees, made
from tfopt.autodiff.ops import METHODS

LAW = numpy_calls.LAW


def test_every_function_of_the_tables_is_called() -> None:
    names = [name for group in LAW.factors["functions"] for name in numpy_calls._names(group)]
    assert sorted(names) == sorted(numpy_calls.FUNCTIONS) and len(names) > 280


#: NumPy asks no list of keys what to do, but sorts it as numbers, which a trace has not.
NOT_TRACED = "np.lexsort"


@pytest.mark.parametrize("how", ["gradient", "twice", "traced"])
@pytest.mark.parametrize("name", numpy_calls.FUNCTIONS)
def test_every_function_has_values_and_gradients(name: str, how: str) -> None:
    """Forward, backward, of second order, in a trace; with arguments that are likely to fit."""
    before, wanted = called.BY_FUNCTION.copy(), {f"values, {how}"}
    if name not in numpy_calls.WHOLE:
        wanted.add(f"gradients, {how}")
    if (name, how) == (NOT_TRACED, "traced"):
        wanted = {"not traced, traced"}
    for seed in range(400):
        text = numpy_calls.ordinary(name, how, seed)
        exec(f"{numpy_calls.HEAD}\n{text}", {"scipy": scipy})
        tried = called.BY_FUNCTION - before
        if all(tried[name, kind] >= 2 for kind in wanted):
            break
    assert all(tried[name, kind] >= 2 for kind in wanted), tried


#: Calls that once differed from NumPy's, and the dtypes and shapes of their operands.
DIFFERED: dict[str, Any] = {
    "x.astype(bool)": ["complex128(2, 3)"],
    "x.conj()": ["bool(3,)"],
    "np.interp(x, [0.1, 1.5], [1.0, 3.0], period=-2.0)": ["float64(3,)"],
    "x.mean(axis=[True, True])": ["float64(2, 3)"],
    "x.mean(axis=True)": ["float64(3,)"],
    "x.var(correction=1)": ["float64(3,)"],
    "x.copy(subok=True)": ["float64(3,)"],
    "np.append(x, y, axis=z)": ["float64(3,)", "float64(3,)", "int64()"],
    "np.astype(x, y)": ["float64(3,)", "int64()"],
    "np.bincount(x, weights=y)": ["bool(3,)", "float64(3,)"],
    "np.choose(x, [y, z], mode='clip')": ["int64(2, 3)", "bool(2, 3)", "bfloat16(2, 3)"],
    "np.clip(x, 2, y)": ["float64(2, 3)", "float64(2, 3)"],
    "np.clip(x, y, 0.5)": ["float64(2, 3)", "float64(3,)"],
    "np.concatenate([x, 1j], axis=None)": ["float32(3,)"],
    "np.corrcoef(x, y=[1, 0])": ["bfloat16(0, 4)"],
    "np.fft.ifft(x, None, y)": ["complex64(1, 3)", "int64()"],
    "np.fft.ifft(x, None, -1, y)": ["float64(3,)", "int64(2,)"],
    "np.flip(x, axis=y)": ["float64(2, 3)", "int64()"],
    "np.full_like(x, y, shape=())": ["float64(3,)", "float64(1,)"],
    "np.full_like(x, y, shape=3)": ["float32(1, 3)", "float32(1, 3)"],
    "np.gradient(x, edge_order=1e-3)": ["float64(5,)"],
    "np.linalg.vector_norm(x, ord=[0])": ["complex128(0,)"],
    "np.partition(x, 1, axis=True)": ["float64(2, 3)"],
    "np.quantile(x, y, keepdims=1)": ["bfloat16(0,)", "bfloat16(0,)"],
    "np.rot90(x, y)": ["float64(2, 3)", "int64(1,)"],
    "np.select([x > 0, x > 1], [x, 2], default=2)": ["bfloat16(3,)"],
    "np.size(x, axis=y)": ["float64(2, 3)", "int64()"],
    "np.take(x, 0, axis=np.int64(1))": ["float64(2, 3)"],
    "np.trapezoid(x, axis=y)": ["float64(3,)", "int64()"],
    "np.var(x, mean=1j)": ["float64(3,)"],
    "np.var(x, where=None)": ["float64(0,)"],
    "scipy.special.huber(x, y)": ["uint8(3,)", "float64(3,)"],
    "scipy.special.jv(x, y)": ["uint8(3,)", "float64(3,)"],
    "scipy.special.iv(x, y)": ["uint8(3,)", "float64(3,)"],
    "scipy.special.xlog1py(x, 2)": ["float64(3,)"],
    "scipy.special.xlogy(x, 0.5)": ["float64(3,)"],
}


@pytest.mark.parametrize("how", ["gradient", "twice", "traced"])
@pytest.mark.parametrize("text", DIFFERED)
def test_calls_that_differed(text: str, how: str) -> None:
    names, operands = "xyz"[: len(DIFFERED[text])], []
    for seed, operand in enumerate(DIFFERED[text]):
        dtype, _, shape = operand.partition("(")
        values = "ties" if dtype[0] in "uic" else "positive"
        operands.append(made(dtype, eval(f"({shape}"), "C", values, seed))
    call = eval(f"lambda {', '.join(names)}: {text}", {"np": np, "scipy": scipy})
    call.text = text
    agrees(call, operands, how)


# ---- functions of functions

SHAPES = ["(3,)", "(2, 3)", "()", "(0,)", "(3, 0)"]
CONDITIONS = [
    "[x < 0]", "[x < 0, x > 1]", "x < 0", "[True]", "[False, True]", "[[True, False, True]]",
    "[[True, False]]", "[]", "True", "[x > 5, x > 6]", "np.array([[True, False, True]])",
    "[x < 0, True]", "(x < 0,)", "[x[0] < 0]",
]  # fmt: skip
CHOICES = [
    "[np.square]", "[np.square, 2.0]", "[np.square, np.exp, 1]", "[lambda t: t * 3, -1]", "[]",
    "(np.square, 3)", "[1, 2]", "[lambda t: np.sum(t), 1.5]", "[lambda t, k: t * k, 1.0]",
]  # fmt: skip
LANES = [
    "np.sum", "np.cumsum", "lambda v: v[0]", "lambda v: np.outer(v, v)", "np.argmax",
    "lambda v: 3.0", "lambda v: [v[0], v[0]]", "lambda v, k: v * k",
]  # fmt: skip
AXES = ["0", "-1", "1", "7", "np.int64(0)", "(0,)", "True", "None", "0.5"]


@pytest.mark.parametrize("how", ["gradient", "traced"])
@pytest.mark.parametrize("function", ["np.piecewise", "np.apply_along_axis"])
def test_functions_of_functions(function: str, how: str) -> None:
    pairs = [f"x, {c}, {f}" for c, f in product(CONDITIONS, CHOICES)]
    if function == "np.apply_along_axis":
        pairs = [f"{f}, {axis}, x" for f, axis in product(LANES, AXES)]
    before = called.TRIED.copy()
    for pair, further, shape in product(pairs, ["", ", 2.0", ", k=2.0"], SHAPES):
        text = f"{function}({pair}{further})"
        call = eval(f"lambda x: {text}", {"np": np})
        call.text = text
        agrees(call, [made("float64", eval(shape), "C", "apart", 1)], how)
    tried = called.TRIED - before
    assert tried["raised"] > 500 < 5 * tried["values"] and tried["gradients"] > 100, tried


# ---- what is not drawn


@pytest.mark.parametrize("name", ["median", "nanmedian", "quantile", "percentile"])
def test_operands_are_not_overwritten(name: str) -> None:
    function, q = getattr(np, name), (0.5,) if name[0] in "qp" else ()
    x = np.array([3.0, 1.0, 2.0])
    y = function(tfopt.constant(x), *q, overwrite_input=True)
    assert float(y) == function(x.copy(), *q)
    assert x.tolist() == [3.0, 1.0, 2.0]


def test_nan_to_num_makes_a_copy() -> None:
    x = tfopt.constant([np.nan, 1.0])
    assert np.nan_to_num(x, copy=False).tolist() == [0.0, 1.0] and np.isnan(x.numpy()[0])


@pytest.mark.parametrize("number", [2j, 2.0, 2, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_numbers_of_pythons_and_scalars(number: Any, dtype: Any) -> None:
    """Python's complex numbers know NumPy's float64 for a float, and make their own of it."""
    x, scalar = tfopt.constant(3.0, dtype), np.array(3.0, dtype)
    for call in (lambda x: number * x, lambda x: number + x, lambda x: x - number,
                 lambda x: number / x, lambda x: number - x):  # fmt: skip
        with tfopt.GradientTape() as tape:
            tape.watch(x)
            y = call(x)
        assert (y.dtype, complex(y)) == (call(scalar).dtype, complex(call(scalar)))
        grad = tape.gradient(y, x)
        assert grad is not None and grad.dtype == dtype


def test_an_index_of_many_arrays() -> None:
    """Each array that chooses is kept for the gradient, however many there are."""
    ndim = 30
    x = np.arange(2.0**3).reshape([2] * 3 + [1] * (ndim - 3))
    key = tuple(np.array([1, 0, 1]) if k < 3 else np.zeros(3, int) for k in range(ndim))
    tensor, indices = tfopt.constant(x), [np.repeat(k, 1000) for k in key]
    with tfopt.GradientTape() as tape:
        tape.watch(tensor)
        y = tensor[tuple(indices)]
    for k in indices:
        k[...] = 0  # of which the tape has a copy
    wanted = np.zeros(x.shape)
    np.add.at(wanted, key, 1000.0)
    np.testing.assert_array_equal(tape.gradient(y, tensor).numpy(), wanted)


def test_methods_are_the_functions() -> None:
    assert {"clip", "astype", "take", "diagonal", "trace", "std"} <= set(METHODS)
    x = tfopt.constant([[3.0, -1.0], [2.0, 5.0]])
    assert x.clip(0).tolist() == [[3, 0], [2, 5]] and x.clip(max=2).tolist() == [[2, -1], [2, 2]]
    assert x.diagonal(1).tolist() == [-1.0] and x.take([True, False], 1).tolist() == [
        [-1, 3],
        [5, 2],
    ]
