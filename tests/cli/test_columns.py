"""Columns of a table as a CSR matrix, entry by entry SciPy's."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from tfopt.cli.columns import PIECE, filled_rows, matrix_of
from tfopt.cli.files import File
from tfopt.cli.read_options import ReadOptions
from tfopt.cli.tables import read_table
from tfopt.linear_model.stored_model import Columns

random = np.random.default_rng(0)


@pytest.mark.parametrize("n", [0, 1, PIECE, 2 * PIECE + 5])
@pytest.mark.parametrize("zeros", [0.0, 0.01, 0.9, 1.0])
@pytest.mark.parametrize("bad", [0.0, 0.3])
def test_a_matrix_is_scipys(n: int, zeros: float, bad: float) -> None:
    X = random.standard_normal((n, 4)) * (random.uniform(size=(n, 4)) >= zeros)
    X[X < -2] = -0.0
    good = random.uniform(size=n) >= bad
    columns = [X[:, k] if k else X[:, k].astype(np.float32) for k in range(4)]
    X[:, 0] = columns[0]
    found, expected = matrix_of(columns, good), sparse.csr_matrix(X[good])
    assert found.shape == expected.shape and found.has_canonical_format
    for part in ("data", "indices", "indptr"):
        one, two = getattr(found, part), getattr(expected, part)
        assert one.dtype == two.dtype and one.tobytes() == two.tobytes()


def test_rows_without_a_value_are_not_filled() -> None:
    frame = pd.DataFrame(
        {
            "a": [1.0, np.nan, np.nan, np.nan, 5.0],
            "b": ["x", None, "y", None, None],
            "c": 5 * [None],
        }
    )
    assert filled_rows(frame).tolist() == [True, False, True, False, True]
    assert filled_rows(frame[["c"]]).tolist() == [False] * 5
    assert filled_rows(frame[:0]).tolist() == []


def test_columns_of_float32_keep_their_values(tmp_path) -> None:
    path = str(tmp_path / "t.parquet")
    frame = pd.DataFrame({name: random.standard_normal(50).astype("f") for name in ("y", "a", "b")})
    frame.to_parquet(path)
    options = ReadOptions(label="y", weight=None)
    for like in (None, Columns(("a", "b"), "y", None)):
        data = read_table(File(path, path), options, like)
        assert data.labels.dtype == data.features.dtype == np.float64
        assert (data.labels == frame["y"]).all()
        assert (data.features.toarray() == frame[["a", "b"]]).all(axis=None)
