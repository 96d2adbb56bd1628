"""A stand-in for the package ``autograd``, so that its own tests run on tfopt's tape.

``autograd.numpy`` is NumPy itself; arrays of tensors are stacked. There is no forward mode: what
asks for it is checked backwards. It is a plugin of pytest's (``-p hips_shim``).
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np

import tfopt
from tfopt.core.nest import flatten, pack

TOLERANCE, STEP = 1e-6, 1e-6


def tensors_of(nest: Any) -> Any:
    """Return tensors as they are, and constants of anything else."""
    known = tfopt.Tensor
    leaves = [leaf if isinstance(leaf, known) else tfopt.constant(leaf) for leaf in flatten(nest)]
    return pack(nest, leaves)


def numbers(nest: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in flatten(nest)]


def make_vjp(function: Callable[..., Any], argnum: Any = 0) -> Callable[..., Any]:
    """Return what gives the way back and the value at arguments."""

    def at(*args: Any, **kwargs: Any) -> Any:
        places = argnum if isinstance(argnum, (tuple, builtins.list)) else (argnum,)
        given = builtins.list(args)
        for place in places:
            given[place] = tensors_of(args[place])
        watched = [leaf for place in places for leaf in flatten(given[place])]
        with tfopt.GradientTape(persistent=True) as tape:
            tape.watch([x for x in watched if x.dtype.kind in "fc"])
            made = function(*given, **kwargs)

        def back(upstream: Any) -> Any:
            pairs = [
                (y, g) for y, g in zip(flatten(made), flatten(upstream), strict=True)
                if isinstance(y, tfopt.Tensor) and y.dtype.kind in "fc"
            ]  # fmt: skip
            found = tape.gradient([y for y, _ in pairs], watched, [g for _, g in pairs], "zero")
            found = [tfopt.autodiff.numeric.densify(g) for g in found]
            grads = pack([given[place] for place in places], found)
            return grads if isinstance(argnum, (tuple, builtins.list)) else grads[0]

        return back, made

    return at


def value_and_grad(function: Callable[..., Any], argnum: Any = 0) -> Callable[..., Any]:
    def at(*args: Any, **kwargs: Any) -> Any:
        back, value = make_vjp(function, argnum)(*args, **kwargs)
        if np.size(value) != 1:
            raise TypeError("grad only applies to functions of one number")
        return value, back(np.ones(np.shape(value), value.dtype))

    return at


def grad(function: Callable[..., Any], argnum: Any = 0) -> Callable[..., Any]:
    return lambda *args, **kwargs: value_and_grad(function, argnum)(*args, **kwargs)[1]


def elementwise_grad(function: Callable[..., Any], argnum: Any = 0) -> Callable[..., Any]:
    def at(*args: Any, **kwargs: Any) -> Any:
        back, value = make_vjp(function, argnum)(*args, **kwargs)
        return back(np.ones(np.shape(value), value.dtype))

    return at


def drawn(like: np.ndarray, random: np.random.Generator) -> np.ndarray:
    made = random.standard_normal(like.shape)
    if like.dtype.kind == "c":
        made = made + 1j * random.standard_normal(like.shape)
    return made


def inner(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    return float(sum(np.sum(np.conj(x) * y).real for x, y in zip(a, b, strict=True)))


def check(function: Callable[..., Any], args: Any, order: int, random: Any) -> None:
    """Compare the way back with a difference along a random direction."""
    arrays = [np.asarray(leaf, None if np.asarray(leaf).dtype.kind in "fc" else float)
              for leaf in flatten(args)]  # fmt: skip

    def values(leaves: Any) -> list[np.ndarray]:
        return [np.array(y) for y in numbers(function(*pack(args, leaves)))]

    directions = [drawn(a, random) for a in arrays]
    ends = [values([tfopt.constant(a + s * STEP / 2 * d) for a, d in
                    zip(arrays, directions, strict=True)]) for s in (1, -1)]  # fmt: skip
    upstreams = [drawn(y, random) for y in ends[0]]
    slopes = [(a - b) / STEP for a, b in zip(*ends, strict=True)]
    places = tuple(range(len(args)))

    def gradients(inputs: Any, given: Any) -> Any:
        back, made = make_vjp(function, places)(*inputs)
        return back(pack(made, flatten(given)))

    found = numbers(gradients(pack(args, arrays), upstreams))
    assert [g.shape for g in found] == [a.shape for a in arrays]
    a, b = inner(upstreams, slopes), inner(found, directions)
    assert abs(a - b) < TOLERANCE or abs(a - b) / abs(a + b) < TOLERANCE, (a, b)
    if order > 1:
        inputs = builtins.list(pack(args, arrays))
        check(lambda *both: gradients(both[:-1], both[-1]), [*inputs, upstreams], order - 1, random)


def check_grads(function: Any, argnum: Any = 0, modes: Any = (), order: int = 2) -> Any:
    def at(*args: Any, **kwargs: Any) -> None:
        places = argnum if isinstance(argnum, (tuple, builtins.list)) else (argnum,)

        def of_chosen(*chosen: Any) -> Any:
            given = builtins.list(args)
            for place, value in zip(places, chosen, strict=True):
                given[place] = value
            return function(*given, **kwargs)

        with np.errstate(all="ignore"):
            check(of_chosen, [args[k] for k in places], order, np.random.default_rng(0))

    return at


def combo_check(function: Any, *args: Any, **kwargs: Any) -> Any:
    def at(*listed: Any, **named: Any) -> None:
        pairs = [[(name, value) for value in values] for name, values in named.items()]
        for each in product(*listed):
            for chosen in product(*pairs):
                check_grads(function, *args, **kwargs)(*each, **dict(chosen))

    return at


def check_equivalent(x: Any, y: Any) -> None:
    for a, b in zip(numbers(x), numbers(y), strict=True):
        np.testing.assert_allclose(a, b, 1e-6, 1e-6)


def stacked(value: Any, *args: Any, **kwargs: Any) -> Any:
    """Return ``np.array``, with tensors stacked."""
    if isinstance(value, (builtins.list, builtins.tuple)) and any(
        isinstance(leaf, tfopt.Tensor) for leaf in flatten(value)
    ):
        return np.stack([stacked(each) for each in value])
    return value if isinstance(value, tfopt.Tensor) else np.array(value, *args, **kwargs)


def module(name: str, **names: Any) -> ModuleType:
    made = sys.modules[name] = ModuleType(name)
    made.__dict__.update(names)
    return made


def of_numpy(name: str, source: ModuleType, **names: Any) -> ModuleType:
    known = {k: getattr(source, k) for k in dir(source) if not k.startswith("__")}
    return module(name, **{**known, **names})


util = module(
    "autograd.test_util",
    check_grads=check_grads,
    combo_check=combo_check,
    check_vjp=lambda f, x: check_grads(f, order=1)(x),
    check_equivalent=check_equivalent,
)
linalg = of_numpy("autograd.numpy.linalg", np.linalg)
fft = of_numpy("autograd.numpy.fft", np.fft)
random = of_numpy("autograd.numpy.random", np.random)
numpy = of_numpy("autograd.numpy", np, array=stacked, linalg=linalg, fft=fft, random=random)
numpy.__version__ = np.__version__
module("autograd", numpy=numpy, test_util=util, grad=grad, make_vjp=make_vjp,
       value_and_grad=value_and_grad, elementwise_grad=elementwise_grad, tuple=builtins.tuple,
       list=builtins.list, dict=builtins.dict, isinstance=isinstance).__path__ = []  # fmt: skip
