"""Routes and sums of rows, for any ids.

Here no cluster is up: its threads would draw from the generator that Hypothesis seeds and watches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tfopt import IndexedSlices
from tfopt.dask import UniformRows
from tfopt.dask.steps.gradient_sums import block_gradients, finish, sum_parts
from tfopt.dask.table.shard import partition_edges, route


@given(st.integers(1, 60), st.data())
def test_ids_are_routed_and_put_back(rows: int, data: Any) -> None:
    shards = data.draw(st.integers(1, rows))
    ids = np.array(data.draw(st.lists(st.integers(0, rows - 1), max_size=40)), np.int64)
    edges = partition_edges(rows, shards)
    assert edges[0] == 0 and edges[-1] == rows and (np.diff(edges) > 0).all()
    places = route(ids, edges)
    assert len(places) == shards
    assert sorted(np.concatenate(places)) == list(range(ids.size))
    for k, own in enumerate(places):
        assert (np.diff(own) > 0).all()  # in the order they come in
        assert ((edges[k] <= ids[own]) & (ids[own] < edges[k + 1])).all()


@given(st.integers(0, 5000), st.integers(0, 2000), st.integers(1, 4), st.integers(0, 2**64 - 1))
def test_random_rows_do_not_depend_on_the_parts(
    start: int, count: int, width: int, seed: int
) -> None:
    rows = UniformRows(-2, 3, seed)
    cut = start + count // 3
    whole = rows(start, start + count, width)
    parts = [rows(start, cut, width), rows(cut, start + count, width)]
    assert whole.shape == (count, width)
    assert np.array_equal(whole, np.concatenate(parts))
    assert ((whole >= -2) & (whole < 3)).all()


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=6), st.data())
def test_rows_are_summed_as_dense_gradients_are(ids: list[list[int]], data: Any) -> None:
    """Of whole numbers, so that no order matters."""
    parts, dense = [], np.zeros((10, 2), np.float32)
    for number, own in enumerate(ids):
        whole = data.draw(st.lists(st.integers(-99, 99), min_size=len(own), max_size=len(own)))
        values = np.repeat(np.float32(whole)[:, None], 2, 1).reshape(len(own), 2)
        rows = IndexedSlices(values, np.array(own, np.int64), (10, 2))
        np.add.at(dense, own, values)
        parts.append(block_gradients((lambda _, b: (1, (b,)), [], ()), rows, number))
    loss, (rows,) = finish(sum_parts(parts), 1)
    assert loss == len(ids) and len(set(rows.indices)) == len(rows.indices)
    assert np.array_equal(np.asarray(rows), dense)
