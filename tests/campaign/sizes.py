"""Arrays of more than 2^31 elements: a call of a large array is that of a small one.

Almost all elements are zeros that were never written, so that reading them takes no memory: the
system maps one page of zeros. Calls of rows write few others; dense calls are of 16 bits. One array
of its size is there at a time.
"""

from __future__ import annotations

import math

import numpy as np
from common.cases import assert_same_bits

import tfopt
from campaign.calls import one
from campaign.check import drawn

#: Elements of an array: on either side of what 32 bits count, with and without a sign.
SIZES = (2**31 - 1, 2**31, 2**31 + 1, 2**31 + 12_345, 2**32 + 7)
#: The most elements of arrays that take more memory than one of float16 that is only read.
MOST = 2**31 + 12_345
#: Bytes to leave for others while a dense call writes its array.
SPARE = 4 << 30


def _places(random: np.random.Generator, size: int, n: int = 40) -> np.ndarray:
    """Return distinct places, many of them where a 32-bit number would wrap, in order."""
    near = np.concatenate([edge + np.arange(-3, 4) for edge in (0, 2**31, 2**32, size)])
    some = random.integers(0, size, n)
    found = np.unique(np.concatenate([near, some]))
    return found[(found >= 0) & (found < size)]


def _available() -> int:
    """Return the bytes of memory that are free."""
    with open("/proc/meminfo") as file:
        lines = dict(line.split(":") for line in file)
    return int(lines["MemAvailable"].split()[0]) * 1024


def _rows(random: np.random.Generator, size: int) -> int:
    """Rows of a table."""
    width = one(random, (1, 3, 64))
    rows = min(size, MOST) // width + 1
    table, slot = (np.zeros((rows, width), np.float32) for _ in range(2))
    places = _places(random, rows)
    values = random.standard_normal((len(places), width)).astype(np.float32)
    small = [np.zeros((len(places), width), np.float32) for _ in range(2)]
    order = random.permutation(len(places))
    hypers = {"lr": 0.5, "momentum": 0.9, "use_nesterov": True}
    for (var, momentum), chosen in (((table, slot), places), (small, np.arange(len(places)))):
        for _ in range(2):
            tfopt.training_ops.apply_momentum(
                var, momentum, values, indices=chosen[order], **hypers
            )
    for large, expected in zip((table, slot), small, strict=True):
        assert_same_bits(large[places], expected, f"rows of {rows} times {width}")
        others = np.setdiff1d(np.clip(places + 50, 0, rows - 1), places)
        assert not large[others].any(), "other rows"
    return 4


def _norm(random: np.random.Generator, size: int) -> int:
    """Norms, of numbers that lie anywhere."""
    dtype = one(random, (np.float16, np.float32))
    size = size if dtype is np.float16 else min(size, MOST)
    array, places = np.zeros(size, dtype), _places(random, size)
    array[places] = random.integers(1, 9, len(places))
    expected = math.sqrt(sum(float(x) ** 2 for x in array[places]))
    found = float(tfopt.global_norm([array]))
    assert abs(found - expected) <= expected * 2**-10, (found, expected)
    return 1


def _dense(random: np.random.Generator, size: int) -> int:
    """A step of a variable of float16, which is written all over."""
    size = min(size, MOST)
    if _available() < SPARE + 2 * size:
        return 0
    places = _places(random, size)
    var, grad = np.zeros(size, np.float16), np.zeros(size, np.float16)
    grad[places] = random.integers(1, 9, len(places))
    tfopt.training_ops.apply_gradient_descent(var, grad, alpha=0.5)
    assert_same_bits(var[places], -grad[places] / np.float16(2), f"{size} elements")
    assert int(np.count_nonzero(var.view(np.uint16))) == len(places), "other elements"
    return 1


def _case(random: np.random.Generator) -> int:
    """Arrays beyond 2^31 or 2^32 elements: compares with a call on the nonzero elements only."""
    tfopt.threads.set_num_threads(int(random.integers(1, 4)))
    return int(one(random, (_rows, _rows, _norm, _dense))(random, one(random, SIZES)))


CHECK = drawn("sizes", _case)
