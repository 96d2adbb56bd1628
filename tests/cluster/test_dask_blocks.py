"""Blocks that do not fit together, or not to the model, and which of several is named."""

from __future__ import annotations

import contextlib
import gc
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from distributed import Client
from scipy import sparse

from tfopt import linear_model
from tfopt.dask import (
    FTRLClassifier,
    FTRLRegressor,
    SDCAClassifier,
    SDCARegressor,
    read_libsvm,
)

random = np.random.default_rng(0)
X = random.standard_normal((80, 4))
y = X[:, 0] > 0
FRAME = pd.DataFrame(X, columns=list("abcd"))
kinds = pytest.mark.parametrize("kind", [SDCAClassifier, FTRLClassifier])


def parts(data: Any, size: int = 20) -> list[Any]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client(
        processes=False, n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as client:
        yield client


def keys(client: Client) -> set[str]:
    async def there(dask_scheduler: Any) -> set[str]:
        return {str(key) for key in dask_scheduler.tasks}

    found: set[str] = client.run_on_scheduler(there)
    return found


@contextlib.contextmanager
def nothing_left(client: Client) -> Iterator[None]:
    """Demand that a block leaves no tasks on the cluster, once it had time to forget."""
    gc.freeze()  # to search what is there already takes seconds, and what it holds is not asked for
    before, end = keys(client), time.monotonic() + 10
    yield
    gc.collect()
    while not keys(client) <= before:
        assert time.monotonic() < end
        time.sleep(0.01)


# ---- names of features


@kinds
def test_names_are_those_of_lists_of_frames_and_of_frames(client: Client, kind: type) -> None:
    import dask.dataframe as dd

    fitted = kind().fit(parts(FRAME), parts(y))
    assert fitted.feature_names_in_.tolist() == list("abcd")
    frames = dd.from_pandas(FRAME, npartitions=4), dd.from_pandas(pd.Series(y), npartitions=4)
    again = kind().fit(*frames)
    assert again.feature_names_in_.tolist() == list("abcd")
    expected = fitted.predict(FRAME)
    np.testing.assert_array_equal(again.predict(frames[0]).compute(), expected)
    np.testing.assert_array_equal(
        np.concatenate(client.compute(fitted.predict(parts(FRAME)), sync=True)), expected
    )
    assert fitted.score(parts(FRAME), parts(y)) == np.mean(expected == y)
    fitted.fit(parts(X), parts(y))
    assert not hasattr(fitted, "feature_names_in_")


@kinds
def test_other_columns_are_refused_as_in_memory(client: Client, kind: type) -> None:
    import dask.dataframe as dd

    fitted = kind().fit(parts(FRAME), parts(y))
    alone = linear_model.SDCAClassifier().fit(FRAME, y)
    for columns in ("dcba", "abc", "abcx"):
        other = FRAME.reindex(columns=list(columns), fill_value=0.0)
        with pytest.raises(ValueError) as expected:
            alone.predict(other)
        table = dd.from_pandas(other, npartitions=4)
        asked: list[tuple[Callable[..., Any], Any]] = [
            (fitted.predict, other),
            (lambda rows: client.compute(fitted.predict(rows), sync=True), parts(other)),
            (fitted.predict, table),
            (lambda rows: fitted.score(rows, parts(y)), parts(other)),
        ]
        for ask, rows in asked:
            with pytest.raises(ValueError) as error:
                ask(rows)
            assert str(error.value) == str(expected.value)


@kinds
def test_blocks_with_other_columns_are_refused(client: Client, kind: type) -> None:
    model = kind().fit(parts(X), parts(y))
    before = model.coef_.copy()
    blocks = parts(FRAME)
    blocks[2] = blocks[2][list("abdc")]
    blocks[3] = blocks[3][list("dcba")]
    message = {
        SDCAClassifier: "number 2 is 'd' in block 2, but 'c' in block 0",
        FTRLClassifier: "block 2: The feature names should match",
    }[kind]
    with nothing_left(client), pytest.raises(ValueError, match=message):
        model.fit(blocks, parts(y))
    np.testing.assert_array_equal(model.coef_, before)


def test_blocks_with_and_without_names_are_refused(client: Client) -> None:
    for with_names, without in ((0, 3), (3, 0)):
        blocks = parts(FRAME if without else X)
        blocks[3] = parts(X if without else FRAME)[3]
        message = f"block {with_names} has feature names, but block {without} has none"
        with pytest.raises(ValueError, match=message):
            SDCAClassifier().fit(blocks, parts(y))


# ---- which block is named, and what for


def test_of_several_bad_blocks_the_first_is_named(client: Client) -> None:
    for bad in ({1, 3}, {0, 1, 2, 3}, {2, 3}):
        blocks = parts(X.copy())
        for number in bad:
            blocks[number][number + 5, 1] = np.nan
        message = f"^block {min(bad)}, row {min(bad) + 5}: X is not finite"
        with nothing_left(client), pytest.raises(ValueError, match=message):
            SDCAClassifier().fit(blocks, parts(y))


@pytest.mark.parametrize(
    ("value", "message"),
    [(np.inf, "is not finite"), (np.nan, "is not finite"), (-1.0, "is negative")],
)
def test_what_is_wrong_with_a_weight(client: Client, value: float, message: str) -> None:
    weights = np.ones(80)
    weights[47] = value
    with pytest.raises(ValueError, match=f"^block 2, row 7: sample_weight {message}"):
        SDCARegressor().fit(parts(X), parts(X[:, 0]), parts(weights))


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (None, "^block 2, row 7: y is missing"),
        (np.nan, "^block 2, row 7: y is missing"),
        (3, "^block 2: y has labels of several kinds"),
    ],
)
def test_labels_that_have_no_order(client: Client, label: Any, message: str) -> None:
    labels = np.where(y, "yes", "no").astype(object)
    labels[47] = label
    with pytest.raises(ValueError, match=message):
        SDCAClassifier().fit(parts(X), parts(labels))


def broken(form: str, what: str) -> Any:
    matrix = sparse.random(20, 4, 0.5, form, random_state=0)
    if form == "coo":
        matrix.row, matrix.col = matrix.row.copy(), matrix.col.copy()
        (matrix.row if what == "indptr" else matrix.col)[-1] = 10**6
    elif what == "negative":
        matrix.indices[0] = -5
    else:
        getattr(matrix, what)[-1] = 10**6
    return matrix


@kinds
@pytest.mark.parametrize(
    ("form", "what"),
    [("csr", "indices"), ("csr", "indptr"), ("csc", "negative"), ("coo", "indices")],
)
def test_a_broken_matrix_is_refused_and_kills_nobody(
    client: Client, kind: type, form: str, what: str
) -> None:
    blocks = [sparse.csr_matrix(part) for part in parts(X)]
    blocks[2] = broken(form, what)
    with nothing_left(client), pytest.raises(ValueError, match=r"^block 2: X\.\w+"):
        kind().fit(blocks, parts(y))
    assert len(client.nthreads()) == 2


# ---- a fit that is refused


EMPTY = [X[:0]] * 2
WEIGHTLESS = "sample_weight must not be zero for all samples"
NO_ROWS = "Found array with 0 sample"
NO_SAMPLES = "all blocks are empty: a fit needs samples"
ONE_CLASS = "at least 2 classes"


def assert_same(model: Any, before: dict[str, Any]) -> None:
    assert vars(model).keys() == before.keys()
    assert [name for name in before if vars(model)[name] is not before[name]] == []


def interrupt(_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("kind", [SDCAClassifier, SDCARegressor, FTRLClassifier, FTRLRegressor])
def test_a_refused_fit_leaves_the_last_one(client: Client, kind: type) -> None:
    of_classes, in_turns = kind.__name__.endswith("Classifier"), kind.__name__.startswith("FTRL")
    targets = y if of_classes else X[:, 0]
    model = kind().fit(parts(FRAME, 40), parts(targets, 40))
    before, bits = vars(model).copy(), model.coef_.tobytes()
    rows, others = parts(X, 40), np.where(y, "yes", "no") if of_classes else targets
    refused: list[tuple[Any, Any, Any, str]] = [
        (rows, parts(others, 40), parts(np.zeros(80), 40), WEIGHTLESS),
        (EMPTY, [others[:0]] * 2, None, NO_ROWS if in_turns else NO_SAMPLES),
        ([], [], None, "there are no blocks"),
    ]
    if of_classes:
        refused.append((rows, parts(np.full(80, "yes"), 40), None, ONE_CLASS))
    with nothing_left(client):
        for *data, message in refused:
            with pytest.raises(ValueError, match=message):
                model.fit(*data)
            assert_same(model, before)
        if not in_turns:
            before["callback"] = model.callback = interrupt
            with pytest.raises(KeyboardInterrupt):
                model.fit(rows, parts(others, 40))
            assert_same(model, before)
    assert model.coef_.tobytes() == bits


# ---- a checkpoint's seed


@pytest.mark.parametrize("state", [None, np.random.RandomState(3)])
def test_a_seed_that_is_not_given_is_that_of_the_checkpoint(
    client: Client, tmp_path: Path, state: Any
) -> None:
    options = {"l1": 1.0, "tol": 1e-14, "random_state": state}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = SDCAClassifier(max_iter=6, checkpoint=str(tmp_path), checkpoint_every=4, **options)
        whole.fit(parts(X), parts(y))
        rest = SDCAClassifier(max_iter=6, **options).fit(parts(X), parts(y), resume=str(tmp_path))
    np.testing.assert_array_equal(rest.coef_, whole.coef_)


# ---- what workers log


def test_workers_log_no_line_for_each_round(client: Client, caplog: Any) -> None:
    with caplog.at_level(logging.INFO, "distributed.worker"):
        client.run(round, 1.0)
        SDCAClassifier().fit(parts(X), parts(y))
    lines = [record.getMessage() for record in caplog.records]
    assert any("'round'" in line for line in lines)
    assert not any("run_round" in line for line in lines)


# ---- folders of files


def test_a_folder_of_files_is_read_as_on_the_command_line(client: Client, tmp_path: Path) -> None:
    (tmp_path / "sub" / "_temporary").mkdir(parents=True)
    for name in ("a", "sub/b"):
        (tmp_path / name).write_text("1 1:1\n-1 2:1\n")
    for name in ("_SUCCESS", ".a.crc", "sub/_temporary/c", "sub/.d"):
        (tmp_path / name).write_bytes(b"\x00\x01crc")
    blocks, labels = read_libsvm(str(tmp_path), n_features=3)
    assert len(blocks) == 2 and blocks[1].compute().shape == (2, 3)
    assert SDCAClassifier().fit(blocks, labels).score(blocks, labels) == 1
    (tmp_path / "a").write_text("1 1:1\n1 3:1 2:1\n")
    with pytest.raises(ValueError, match=r"/a:2:7: the indices are not in ascending order '2:1'"):
        SDCAClassifier().fit(*read_libsvm(str(tmp_path), n_features=3))
    (tmp_path / "a").write_text("1 5:1\n")
    with pytest.raises(ValueError, match=r"/a:1:3: the index is above 3 '5:1'"):
        SDCAClassifier().fit(*read_libsvm(str(tmp_path), n_features=3))
    (tmp_path / "a").write_text("")
    assert read_libsvm(str(tmp_path), n_features=3)[0][0].compute().shape == (0, 3)
