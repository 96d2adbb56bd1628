"""Updates of arrays of 16, 8 and 4 bits, which are converted piece by piece, beside float32."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from .common import RULES, best_times, hyper, operands, public, step, times

#: Elements, and steps per measurement; the small ones on one thread.
SIZES = {
    "2^12 on one thread": (1 << 12, 200),
    "2^16 on one thread": (1 << 16, 20),
    "2^20": (1 << 20, 2),
    "2^24": (1 << 24, 1),
}


def _dtype(name: str) -> np.dtype:
    if name != "bfloat16":
        return np.dtype(name)
    if find_spec("ml_dtypes") is None:
        raise NotImplementedError("ml_dtypes is not installed")
    return np.dtype(import_module("ml_dtypes").bfloat16)


class Halves:
    """The time of a step with all arrays in 16 bits relative to one in float32."""

    params = (
        ["gradient_descent", "momentum", "adamax", "adam", "rms_prop"],
        ["float16", "bfloat16"],
        list(SIZES),
    )
    param_names = ("rule", "dtype", "elements")
    unit = "times"

    def setup(self, rule: str, dtype: str, elements: str) -> None:
        kind = _dtype(dtype)
        size, number = SIZES[elements]
        if elements.endswith("one thread"):
            public("threads.set_num_threads")(1)
        single = operands(rule, size)
        self.single = times(number, step(rule, single))
        self.half = times(number, step(rule, [array.astype(kind) for array in single]))

    def track_ratio_to_float32(self, rule: str, dtype: str, elements: str) -> float:
        half, single = best_times(self.half, self.single)
        return half / single


class Rows:
    """The time of a step of rows, all in cache and on one thread, relative to one in float32."""

    params = (
        ["gradient_descent", "adagrad", "adamax", "adam"],
        ["float16", "bfloat16"],
        [1, 4, 8, 16, 24, 31, 40, 100],
    )
    param_names = ("rule", "dtype", "width")
    unit = "times"

    def setup(self, rule: str, dtype: str, width: int) -> None:
        kind = _dtype(dtype)
        public("threads.set_num_threads")(1)
        rows = 8192 // width
        ids = np.random.default_rng(0).permutation(rows)
        single = operands(rule, (rows, width))
        self.single = times(20, step(rule, single, indices=ids))
        narrow = [array.astype(kind) for array in single]
        self.half = times(20, step(rule, narrow, indices=ids))

    def track_ratio_to_float32(self, rule: str, dtype: str, width: int) -> float:
        half, single = best_times(self.half, self.single)
        return half / single


class Gradients:
    """The time of a step of float32 variables with a gradient of 16 bits, or clamped, or both.

    Relative to one with a gradient of float32, which is not clamped.
    """

    params = (
        ["gradient_descent", "momentum", "adamax", "adam"],
        ["float32, clamped", "float16", "float16, clamped", "bfloat16", "bfloat16, clamped"],
        list(SIZES),
    )
    param_names = ("rule", "gradient", "elements")
    unit = "times"

    def setup(self, rule: str, gradient: str, elements: str) -> None:
        size, number = SIZES[elements]
        if elements.endswith("one thread"):
            public("threads.set_num_threads")(1)
        dtype, _, clamped = gradient.partition(", ")
        call, run = public("kernels.update.checks.dense_call"), public("kernels.update.dense.run")
        kernel = public("kernels.kernels")[rule]
        single = operands(rule, size)
        own = [*(array.copy() for array in single[:-1]), single[-1].astype(_dtype(dtype))]
        hypers = tuple(hyper(name) for name in RULES[rule].hypers)
        plain, other = (call(kernel, tuple(arrays), hypers, 0, 1.0) for arrays in (single, own))
        if clamped:
            public("kernels.update.adjustments.set_bounds")(other, [0.5])
        self.single = times(number, lambda: run(plain))
        self.other = times(number, lambda: run(other))

    def track_ratio_to_float32(self, rule: str, gradient: str, elements: str) -> float:
        other, single = best_times(self.other, self.single)
        return other / single


class EightBits:
    """Steps of float32 variables whose slots are blocks of 8-bit codes."""

    params = (
        ["momentum", "lion", "adam"],
        ["2^16 on one thread", "2^20 on one thread", "2^20", "2^24"],
    )
    param_names = ("rule", "elements")
    unit = "times"
    bits = 8

    def setup(self, rule: str, elements: str) -> None:
        quantize = public("storage.quantize")
        codes = {
            sign: public(f"storage.{sign.upper()}{self.bits}") for sign in ("signed", "positive")
        }
        size, number = (SIZES | {"2^20 on one thread": (1 << 20, 2)})[elements]
        if elements.endswith("one thread"):
            public("threads.set_num_threads")(1)
        single = operands(rule, size)
        row = RULES[rule]
        stored = [
            quantize(single[1 + k], codes[row.codes[slot]]) for k, slot in enumerate(row.slots)
        ]
        self.single = times(number, step(rule, single))
        self.coded = times(number, step(rule, [single[0].copy(), *stored, single[-1]]))

    def track_ratio_to_float32(self, rule: str, elements: str) -> float:
        coded, single = best_times(self.coded, self.single)
        return coded / single


class FourBits(EightBits):
    """Steps of float32 variables whose slots are blocks of 4-bit codes."""

    bits = 4


class EightBitsElsewhere:
    """Steps of Adam with 8-bit states in other libraries: their time by ours, on one thread."""

    params = (["bitsandbytes", "torchao"], ["2^16", "2^20"])
    param_names = ("library", "elements")
    unit = "times"
    timeout = 600  # torchao compiles its step

    def setup(self, library: str, elements: str) -> None:
        if find_spec("torch") is None or find_spec(library) is None:
            raise NotImplementedError(f"{library} is not installed")
        torch = import_module("torch")
        public("threads.set_num_threads")(1)
        torch.set_num_threads(1)
        grad = np.random.default_rng(0).standard_normal(1 << int(elements[2:])).astype(np.float32)
        weight = torch.zeros(grad.size, requires_grad=True)
        weight.grad = torch.from_numpy(grad)
        theirs = import_module(f"{library}.optim").Adam8bit([weight])
        w, ours = np.zeros_like(grad), public("optimizers.Adam")(storage="8bit")
        self.theirs, self.ours = theirs.step, lambda: ours.step(w, grad)
        for call in (self.theirs, self.ours):
            call()

    def track_speedup(self, library: str, elements: str) -> float:
        theirs, ours = best_times(self.theirs, self.ours)
        return theirs / ours


class StochasticRounding:
    """Steps of Adam with all arrays in bfloat16, rounded stochastically."""

    params = ["2^16 on one thread", "2^20", "2^24"]
    param_names = ("elements",)
    unit = "times"

    def setup(self, elements: str) -> None:
        if find_spec("ml_dtypes") is None:
            raise NotImplementedError("ml_dtypes is not installed")
        size, number = SIZES[elements]
        if elements.endswith("one thread"):
            public("threads.set_num_threads")(1)
        brains = import_module("ml_dtypes").bfloat16
        adam, single = public("optimizers.Adam"), np.ones(size, np.float32)
        nearest, drawn = single.astype(brains), single.astype(brains)

        def steps(optimizer: Any, w: np.ndarray) -> Callable[[], object]:
            pairs = [(np.full_like(w, 1e-3), w)]
            return lambda: optimizer.apply_gradients(pairs)

        self.single = times(number, steps(adam(), single))
        self.nearest = times(number, steps(adam(), nearest))
        self.drawn = times(number, steps(adam(stochastic_rounding=0), drawn))

    def track_ratio_to_float32(self, elements: str) -> float:
        drawn, single = best_times(self.drawn, self.single)
        return drawn / single

    def track_ratio_to_nearest(self, elements: str) -> float:
        drawn, nearest = best_times(self.drawn, self.nearest)
        return drawn / nearest


class Mirrored:
    """Steps of Adam in float32 that also write a copy in bfloat16."""

    params = ["2^20", "2^24"]
    param_names = ("elements",)
    unit = "times"

    def setup(self, elements: str) -> None:
        if find_spec("ml_dtypes") is None:
            raise NotImplementedError("ml_dtypes is not installed")
        size, number = SIZES[elements]
        mirrored = public("optimizers.Mirror")(public("optimizers.Adam")())
        grad, var = np.full(size, 1e-3, np.float32), np.ones(size, np.float32)
        mirrored.apply_gradients([(grad, var)])
        # of the same arrays: where others lie in memory makes more of a difference than a mirror
        plain = mirrored.optimizer
        self.plain = times(number, lambda: plain.apply_gradients([(grad, var)]))
        self.mirrored = times(number, lambda: mirrored.apply_gradients([(grad, var)]))

    def track_ratio_to_a_plain_step(self, elements: str) -> float:
        mirrored, plain = best_times(self.mirrored, self.plain)
        return mirrored / plain
