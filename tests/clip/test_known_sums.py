"""Norms of arrays whose sums of squares have been computed before."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tfopt
from tfopt.kernels.reduce.norms import norm, span_sums

SIZES = (0, 1, 300, 65_536, 65_537, 200_000)


def arrays(seed: int, scale: float = 1.0) -> list[Any]:
    random = np.random.default_rng(seed)
    dtypes = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
    made = [(random.standard_normal(n) * scale).astype(d) for n in SIZES for d in dtypes]
    return [*made, random.standard_normal((300, 4)).T, np.float32(random.random((3, 4))[::-1, ::2])]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e200])
def test_known_sums_make_the_same_norm(threads: int, scale: float) -> None:
    tfopt.threads.set_num_threads(threads)
    with np.errstate(all="ignore"):
        found = arrays(threads, scale)
    finite = [a for a in found if np.isfinite(a.astype(np.float64)).all()]
    for given in (found, finite, [a for a in finite if a.dtype == np.float64]):
        expected = norm(given)
        for every in (1, 2, 3):
            known = [span_sums(a)[0] if k % every == 0 else None for k, a in enumerate(given)]
            assert np.array_equal(norm(given, None, known), expected, equal_nan=True)


def test_known_sums_are_not_computed() -> None:
    a, b = np.array([3.0]), np.array([4.0])
    known = [span_sums(a)[0], None]
    a[0] = 100.0
    assert norm([a, b], None, known) == (5.0, 0)


@pytest.mark.parametrize(
    "known", [[], [None], [np.ones(2), None], [np.ones(1, "f4"), None], [1, 2]]
)
def test_wrong_sums_are_refused(known: Any) -> None:
    with pytest.raises((tfopt.InvalidArgumentError, TypeError, ValueError)):
        norm([np.ones(3), np.ones(3)], None, known)
