"""The sweep that names spans of addresses which overlap, against comparing each with each."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tfopt.kernels.arrays.aliasing import Occupied, certainly_apart
from tfopt.kernels.arrays.overlaps import overlapping, span_of

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9), st.booleans()), max_size=20)


@given(SPANS)
def test_pairs_are_those_of_which_one_is_written(drawn: list[tuple[int, int, bool]]) -> None:
    spans = [(low, low + size, written) for low, size, written in drawn]
    expected = {
        frozenset((j, k))
        for k, (low, high, written) in enumerate(spans)
        for j, (begin, end, other) in enumerate(spans[:k])
        if max(low, begin) < min(high, end) and (written or other)
    }
    pairs = list(overlapping(spans))
    assert {frozenset(pair) for pair in pairs} == expected
    assert len(pairs) == len(expected)
    assert all(spans[j][0] <= spans[k][0] for j, k in pairs)


@given(SPANS)
def test_arrays_are_certainly_apart_only_without_pairs(drawn: list[tuple[int, int, bool]]) -> None:
    memory = np.zeros(400, np.uint8)  # spans that begin 16 bytes apart are told from each other
    arrays = [memory[low * 8 : low * 8 + size] for low, size, _ in drawn]
    pairs = list(overlapping((*span_of(array), True) for array in arrays))
    assert Occupied(arrays).apart == (not pairs)
    if certainly_apart(arrays, arrays):
        assert not pairs
    elif len(arrays) <= 12:
        assert pairs
