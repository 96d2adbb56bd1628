"""Numbers at the ends of their ranges, against exact rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from common.cases import assert_same_bits
from common.compared_steps import compare
from common.optimizer_arguments import RULES
from common.training_plans import Run, drawn_plan
from common.updates import update

import tfopt
import tfopt_ref
from campaign.calls import one
from campaign.check import drawn
from tfopt import optimizers, storage

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
#: Of each 16-bit format: its dtype, the bits of its significands, and its least exponent.
HALVES = {"float16": (np.dtype(np.float16), 11, -14), "bfloat16": (BFLOAT16, 8, -126)}


def exact(number: Any) -> Fraction:
    """Return a finite number as a quotient of integers."""
    return Fraction(float(number))


def rounded(x: Fraction, digits: int, least: int) -> Fraction:
    """Return the nearest multiple of the unit in the last place of x, of two the even one."""
    if x == 0:
        return x
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    exponent -= abs(x) < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, least) - digits + 1)
    return round(x / unit) * unit  # Python rounds half to even


def _floats(random: np.random.Generator, n: int) -> np.ndarray:
    """Return finite float32 numbers of random bits, and middles between 16-bit ones."""
    some = random.integers(0, 2**32, n, np.uint32).view(np.float32)
    some = np.where(np.isfinite(some), some, np.float32(1))
    dtype, _, _ = HALVES[one(random, [*HALVES])]
    low = random.integers(0, 2**15 - 1, n).astype(np.uint16)
    halves = [(low + k).view(dtype).astype(np.float64) for k in (0, 1)]
    with np.errstate(all="ignore"):
        middle = ((halves[0] + halves[1]) / 2).astype(np.float32)
    kept = np.isfinite(middle) & (random.random(n) < 0.5)
    return np.where(kept, middle, some) * random.choice(np.array([-1, 1], np.float32), n)


def _halves(random: np.random.Generator) -> int:
    """A float32 number stored in 16 bits."""
    tfopt.set_flush_denormals(False)
    name = one(random, [*HALVES])
    dtype, digits, least = HALVES[name]
    values = _floats(random, 100)
    w = np.zeros(values.shape, np.float32)
    optimizer = optimizers.SGD(1.0, 0.5, storage={"momentum": name})
    optimizer.apply_gradients([(-values, w)])
    stored = optimizer.get_slot(w, "momentum").numpy()
    assert stored.dtype == dtype
    largest = exact(ml_dtypes.finfo(dtype).max)
    for value, got in zip(values.tolist(), stored.astype(np.float64).tolist(), strict=True):
        nearest = rounded(Fraction(value), digits, least)
        want = math.copysign(math.inf if abs(nearest) > largest else float(abs(nearest)), value)
        assert got == want and math.copysign(1, got) == math.copysign(1, want), (name, value, got)
    return len(values)


#: The numbers that codes stand for, in units.
TABLES = {
    storage.SIGNED8: np.arange(-127, 128.0),
    storage.POSITIVE8: np.outer(2.0 ** np.arange(-15, 1), 1 + np.arange(16) / 16).ravel()[1:],
    storage.SIGNED4: np.concatenate([[0.0], *(s * 2.0 ** np.arange(-6, 1) for s in (-1, 1))]),
    storage.POSITIVE4: 2.0 ** np.arange(-15, 1),
    **{of: storage.dynamic_map(of) for of in (storage.DYNAMIC8, storage.POSITIVE_DYNAMIC8)},
}
#: Of these either neighbour of a number may be its code; of the others, the nearest.
EITHER = (storage.POSITIVE8, storage.SIGNED4, storage.POSITIVE4)


def _codes(random: np.random.Generator) -> int:
    """Numbers in a block of codes: each a nearest one, but for the rounding of a quotient."""
    dtype = one(random, storage.BLOCKS)
    values = (random.standard_normal(256) * 10.0 ** random.uniform(-30, 30)).astype(np.float32)
    values *= (10.0 ** random.uniform(-4, 0, 256)).astype(np.float32)
    positive = dtype not in (storage.SIGNED8, storage.SIGNED4, storage.DYNAMIC8)
    values = np.abs(values) if positive else values
    block = storage.quantize(values, dtype)
    units = [exact(unit) for unit in np.ravel(block[dtype.names[0]])]
    allowed = [exact(x) for x in np.unique(TABLES[dtype])]
    decoded = storage.dequantize(block, (256,))
    for k, (value, got) in enumerate(zip(values.tolist(), decoded.tolist(), strict=True)):
        unit = units[k * len(units) // 256]
        quotient = Fraction(value) / unit
        code = Fraction(got) / unit
        slack = max(abs(quotient), abs(code)) / 2**20  # both are rounded
        if dtype in EITHER:
            below = max((x for x in allowed if x <= quotient + slack), default=allowed[0])
            above = min((x for x in allowed if x >= quotient - slack), default=allowed[-1])
            assert below - slack <= code <= above + slack, (dtype, value, got)
            assert min(abs(code - x) for x in (below, above)) <= slack, (dtype, value, got)
        else:
            nearest = min(abs(quotient - x) for x in allowed)
            assert abs(code - quotient) <= nearest + slack, (dtype, value, got)
    return 256


def _norms(random: np.random.Generator) -> int:
    """A norm of numbers from the smallest to the largest, against its square."""
    tfopt.set_flush_denormals(False)
    dtype = one(random, (np.float32, np.float64))
    info, n = np.finfo(dtype), int(random.integers(1, 200))
    least, most = math.log2(info.smallest_subnormal), math.log2(info.max)
    middle, spread = random.uniform(least, most - 6), one(random, (0, 3, 40))
    powers = np.clip(middle + random.uniform(-spread, spread, n), least, most - 6)
    values = (random.choice([-1.0, 1.0], n) * np.exp2(powers)).astype(dtype)
    square = sum((exact(x) ** 2 for x in values), Fraction(0))
    norm = exact(tfopt.global_norm([values]))
    digits = 20 if dtype is np.float32 else 48
    # of a denormal number the last place is as large as the smallest
    slack = norm / 2**digits + exact(info.smallest_subnormal)
    assert max(Fraction(0), norm - slack) ** 2 <= square <= (norm + slack) ** 2, (values, norm)
    limit = float(norm) * one(random, (0.5, 1.0, 2.0, 1e-3))
    clipped = tfopt.clip_by_norm(values, limit)
    if exact(limit) ** 2 >= square:
        assert clipped.tobytes() == values.tobytes()
    allowed = max(exact(limit), Fraction(0)) * (1 + Fraction(1, 2 ** (digits - 1)))
    allowed += n * exact(info.smallest_subnormal)
    assert sum((exact(x) ** 2 for x in clipped), Fraction(0)) <= allowed**2, (values, limit)
    return 2


def _counts(random: np.random.Generator) -> int:
    """Steps beyond 2^31 and 2^53: counted exactly, and those of powers that have vanished."""
    count = one(random, (2**31, 2**32, 2**53, 2**62)) + int(random.integers(-3, 4))
    w, g = random.standard_normal(9), random.standard_normal(9)
    expected = [w.copy(), np.zeros(9), np.zeros(9)]
    optimizer = optimizers.Adam(0.5, epsilon=1e-3)
    optimizer.iterations = tfopt.Variable(np.array(count))
    for k in range(3):
        optimizer.apply_gradients([(g, w)])
        update(
            tfopt_ref, "adam", *expected, g, beta1_power=0.0, beta2_power=0.0, lr=0.5, beta1=0.9,
            beta2=0.999, epsilon=1e-3,
        )  # fmt: skip
        assert int(optimizer.iterations) == count + k + 1
        assert_same_bits(w, expected[0], f"step {count + k}")
    state = optimizer.state_dict([w])
    other, copy = optimizers.Adam(0.5, epsilon=1e-3), w.copy()
    other.load_state_dict(state, [copy])
    assert int(other.iterations) == count + 3
    for dtype in (np.float32, np.float64):
        arrays = [np.abs(random.standard_normal(9)).astype(dtype) for _ in range(4)]
        hypers = {"lr": 0.1, "l1": 0.01, "l2": 0.1, "global_step": count}
        same = [array.copy() for array in arrays]
        update(tfopt, "adagrad_da", *arrays, **hypers)
        update(tfopt_ref, "adagrad_da", *same, **hypers)
        for ours, theirs in zip(arrays, same, strict=True):
            assert_same_bits(ours, theirs, f"adagrad_da at {count}")
    return 5


def _late_steps(random: np.random.Generator) -> int:
    """Steps of any optimizer after 2^31 or 2^53, against the specification."""
    plan = drawn_plan(one(random, RULES), "alone", int(random.integers(2**32)))
    run = Run(plan)
    count = one(random, (2**31, 2**32, 2**53, 2**62)) - int(random.integers(0, 4))
    run.optimizer.iterations.assign(count)
    run.state["iterations"] = count
    late = "sparse catch_up" in plan.tried
    for number, pairs in enumerate(plan.steps):
        try:
            run.step(pairs)
        except tfopt.InvalidArgumentError as error:  # a schedule has vanished, and 0 is no rate
            assert "learning_rate must be finite and greater than 0, not 0.0" in str(error)
            return number
        if late:
            run.optimizer.flush()
        for name, ours, theirs in run.compared():
            compare(f"{plan.config}: {name} after step {count + number}", ours, theirs, late)
    return len(plan.steps)


def _payload(random: np.random.Generator, dtype: Any, n: int) -> np.ndarray:
    """Return NaN of any payload and sign, quiet and signaling, and other numbers."""
    dtype = np.dtype(dtype)
    bits = np.dtype(f"u{dtype.itemsize}")
    digits = int(ml_dtypes.finfo(dtype).nmant)
    numbers = random.standard_normal(n).astype(dtype)
    low = random.integers(1, 2**digits, n, bits) >> random.integers(0, digits, n, bits)
    exponents = ((1 << (8 * dtype.itemsize - 1 - digits)) - 1) << digits
    signs = random.integers(0, 2, n, bits) << bits.type(8 * dtype.itemsize - 1)
    nan = (np.maximum(low, 1) | bits.type(exponents) | signs).view(dtype)
    assert np.isnan(nan).all()
    return np.where(random.random(n) < 0.3, nan, numbers).astype(dtype)


def _payloads(random: np.random.Generator) -> int:
    """NaN of any payload stays NaN, in every format, and no other number becomes one."""
    n = int(random.integers(1, 700))
    values = _payload(random, np.float32, n)
    nan = np.isnan(values)
    for name, (dtype, _, _) in HALVES.items():
        w = np.zeros(n, np.float32)
        optimizer = optimizers.Mirror(optimizers.SGD(1.0, 0.5, storage={"momentum": name}), name)
        optimizer.apply_gradients([(values, w)])
        stored = optimizer.get_slot(w, "momentum").numpy()
        for array in (w, stored, optimizer.mirror(w)):
            assert (np.isnan(array) == nan).all(), (name, values)
        halves, grad = np.zeros(n, dtype), _payload(random, dtype, n)
        optimizers.SGD(1.0, 0.5).apply_gradients([(grad, halves)])
        assert (np.isnan(halves) == np.isnan(grad)).all(), (name, grad)
    for dtype in storage.BLOCKS:
        block = storage.quantize(np.abs(values), dtype)
        units = block[dtype.names[0]].reshape(len(block), -1)
        decoded = storage.dequantize(block, (n,))
        parts = units.shape[1]
        for k, unit in enumerate(np.ravel(units)):
            each = slice(k * 256 // parts, (k + 1) * 256 // parts)
            assert np.isnan(unit) == nan[each].any() == np.isnan(decoded[each]).any()
    for dtype in (np.float32, np.float64):
        array = _payload(random, dtype, n)
        clipped = tfopt.clip_by_value(array, -0.5, 0.5)
        assert (np.isnan(clipped) == np.isnan(array)).all()
        assert np.isnan(tfopt.global_norm([array])) == np.isnan(array).any()
        assert np.isnan(tfopt.clip_by_norm(array, 1e9)).any() == np.isnan(array).any()
    return 12


def _floating_state() -> None:
    """The caller's floating-point state is its own: gradual underflow, as NumPy has it."""
    for dtype in (np.float32, np.float64):
        tiny = np.full(3, np.finfo(dtype).tiny)
        assert (tiny / 2 > 0).all() and ((tiny / 2) * 2 == tiny).all(), "denormals are flushed"


def _case(random: np.random.Generator) -> int:
    """Numbers at the ends of their ranges: 16 to 4 bits, norms, counts, NaN; exact arithmetic."""
    tried = one(random, (_halves, _codes, _norms, _counts, _late_steps, _payloads))(random)
    tfopt.set_flush_denormals(True)
    tfopt.training_ops.apply_gradient_descent(np.ones(9), np.ones(9), alpha=1.0)
    _floating_state()
    return tried


CHECK = drawn("extremes", _case)
