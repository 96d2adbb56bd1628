"""SDCA on a cluster: the bits of the fit without one, through losses, checkpoints and bad data."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from common.dask_cluster import (
    ROWS,
    Dies,
    addresses,
    blocks,
    data,
    kill_one,
    processes,
    start,
    tasks,
)
from common.linear_losses import DEFINITIONS
from distributed import Client
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from tfopt import linear_model
from tfopt.dask import SDCAClassifier, SDCARegressor, read_libsvm
from tfopt.dask.linear.executor import DaskExecutor
from tfopt.errors import CheckpointError
from tfopt.linear_model._blocks.execution import WorkerLostError

FITTED = ("coef_", "intercept_", "objective_", "dual_gap_", "n_iter_", "dual_coef_")
#: Far from the end, but with certificates on the way.
OPTIONS: dict[str, Any] = {"tol": 1e-12, "max_iter": 4, "random_state": 5}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with processes(2) as client:
        yield client


def pair(loss: str, **options: Any) -> tuple[Any, Any]:
    """Return an estimator for a cluster, and the one it is to equal."""
    kind = "SDCAClassifier" if DEFINITIONS[loss].labels == "classes" else "SDCARegressor"
    ours = {"SDCARegressor": SDCARegressor, "SDCAClassifier": SDCAClassifier}[kind]
    there = getattr(linear_model, kind)
    return ours(loss, **options), there(loss, num_loss_partitions=ROWS, **options)


def fitted(model: Any, *arguments: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*arguments, **options)


def bits(model: Any) -> dict[str, bytes]:
    return {name: np.asarray(getattr(model, name)).tobytes() for name in FITTED}


@pytest.mark.parametrize(
    ("loss", "l1"),
    [*((loss, 0.0) for loss in DEFINITIONS), ("logistic", 2.0), ("hinge", 2.0), ("squared", 2.0)],
)
def test_bits_are_those_of_the_fit_without_a_cluster(client: Client, loss: str, l1: float) -> None:
    X, y, weight = data(loss)
    ours, theirs = pair(loss, l1=l1, fit_intercept=l1 == 0, **OPTIONS)
    fitted(ours, *blocks(X, y, weight))
    fitted(theirs, X, y, weight)
    assert bits(ours) == bits(theirs)
    gaps = [[record["gap"] for record in model.history_[0]] for model in (ours, theirs)]
    np.testing.assert_array_equal(*gaps)
    assert ours.n_features_in_ == 7


@pytest.mark.parametrize("n_workers", [1, 4])
def test_the_number_of_workers_changes_no_bits(n_workers: int) -> None:
    X, y, weight = data("hinge")
    ours, theirs = pair("hinge", class_weight="balanced", **OPTIONS | {"max_iter": 1})
    expected = bits(fitted(theirs, X, y, weight))
    with processes(n_workers) as client:
        assert bits(fitted(ours, *blocks(X, y, weight))) == expected
        assert len(client.nthreads()) == n_workers


def test_arrays_frames_and_lists_are_blocks(client: Client) -> None:
    """Dense here, with means to be subtracted: the chunks of the rows are the blocks."""
    import dask.dataframe as dd
    import pandas as pd

    X, y, weight = data("logistic")
    dense = X.toarray() + 10.0
    ours, theirs = pair("logistic", **OPTIONS)
    expected = bits(fitted(theirs, dense, y, weight))
    arrays = [da.from_array(part, chunks=(ROWS, 3)[: part.ndim]) for part in (dense, y, weight)]
    assert bits(fitted(ours, *arrays)) == expected
    predicted = ours.predict_proba(arrays[0])  # products of other sizes round otherwise
    np.testing.assert_allclose(predicted.compute(), theirs.predict_proba(dense), rtol=1e-10)
    assert ours.score(*arrays) == pytest.approx(theirs.score(dense, y, weight), rel=1e-12)
    frame = pd.DataFrame(dense, columns=list("abcdefg")).assign(y=y, weight=weight)
    parts = blocks(frame)[0]
    parted = dd.from_map(lambda k: parts[k], range(len(ROWS)), meta=frame.iloc[:0])
    assert bits(fitted(ours, parted[list("abcdefg")], parted.y, parted.weight)) == expected
    assert ours.feature_names_in_.tolist() == list("abcdefg")
    np.testing.assert_array_equal(
        ours.predict(parted[list("abcdefg")]).compute(), theirs.predict(dense)
    )


@pytest.mark.parametrize("loss", [*linear_model.SDCARegressor._LOSSES])
@pytest.mark.parametrize("l1", [0.0, 2.0])
def test_an_offset_gives_the_bits_without_a_cluster(client: Client, loss: str, l1: float) -> None:
    X, y, weight = data("squared")
    y, offset = np.abs(y) + 0.5, np.sin(np.arange(len(y)))
    ours, theirs = pair(loss, l1=l1, **OPTIONS)
    X_blocks, *rows, offsets = blocks(X, y, weight, offset)
    fitted(ours, X_blocks, *rows, offset=offsets)
    fitted(theirs, X, y, weight, offset=offset)
    assert bits(ours) == bits(theirs)
    expected = theirs.predict(X, offset)
    predicted = dask.compute(*ours.predict(X_blocks, offsets))
    np.testing.assert_array_equal(np.concatenate(predicted), expected)
    arrays = [da.from_array(part, chunks=(ROWS, 7)[: part.ndim]) for part in (X.toarray(), offset)]
    np.testing.assert_allclose(ours.predict(*arrays).compute(), expected, rtol=1e-10)
    np.testing.assert_allclose(ours.predict(arrays[0], 0.5), theirs.predict(X, 0.5), rtol=1e-10)
    score = theirs.score(X, y, weight, offset=offset)
    assert ours.score(X_blocks, *rows, offset=offsets) == pytest.approx(score, rel=1e-9)
    assert ours.score(X, y, weight, offset=offset) == pytest.approx(score, rel=1e-12)


@pytest.mark.filterwarnings("ignore:the quantiles of")
def test_several_quantiles_are_each_as_if_alone(client: Client, tmp_path: Path) -> None:
    X, y, weight = data("squared")
    quantiles = [0.2, 0.5, 0.7]
    options: dict[str, Any] = {"quantile": quantiles, **OPTIONS}
    ours, theirs = (
        kind("quantile", **options, **more)
        for kind, more in (
            (SDCARegressor, {"checkpoint": str(tmp_path), "checkpoint_every": 2}),
            (linear_model.SDCARegressor, {"num_loss_partitions": ROWS}),
        )
    )
    columns = blocks(X, y, weight)
    fitted(ours, *columns)
    assert bits(ours) == bits(fitted(theirs, X, y, weight))
    assert ours.dual_coef_.numblocks == (3, len(ROWS))
    held = linear_model.LinearRegressor("quantile", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        linear_model.fit_blocks(held, [*zip(*columns, strict=True)])
    assert bits(held) == bits(theirs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.2", "0.5", "0.7"]
    assert bits(fitted(ours, *columns, resume=str(tmp_path))) == bits(theirs)
    predicted = np.concatenate(dask.compute(*ours.predict(columns[0])))
    np.testing.assert_array_equal(predicted, theirs.predict(X))
    assert predicted.shape == (len(y), 3)
    dense = da.from_array(X.toarray(), chunks=(ROWS, 7))
    np.testing.assert_allclose(ours.predict(dense), predicted, rtol=1e-9, atol=1e-12)
    assert ours.score(*columns) == pytest.approx(theirs.score(X, y, weight), rel=1e-9)


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_scores_of_targets_far_from_zero(client: Client, offset: float) -> None:
    X, y, weight = data("squared")
    ours, theirs = pair("squared", **OPTIONS)
    weight[:30] = 0  # all of the first block
    for truth in (y + offset, np.full_like(y, offset)):
        columns = blocks(X, truth, weight)
        fitted(ours, *columns)
        fitted(theirs, X, truth, weight)
        for true in (truth, truth + 1):
            expected = theirs.score(X, true, weight)
            assert ours.score(columns[0], blocks(true)[0], columns[2]) == pytest.approx(
                expected, rel=1e-9
            )


@pytest.mark.parametrize("loss", [*linear_model.SDCARegressor._LOSSES])
def test_scores_of_blocks_are_those_of_all_rows(client: Client, loss: str) -> None:
    X, y, weight = data("squared")
    y = np.abs(y.round(1)) + 0.5
    option = linear_model.SDCARegressor._LOSSES[loss].option
    more = {} if option is None else {option.name: option.default + 0.25}
    ours, theirs = (
        kind(loss, **OPTIONS, **more) for kind in (SDCARegressor, linear_model.SDCARegressor)
    )
    columns = blocks(X, y, weight)
    fitted(ours, *columns)
    theirs.coef_, theirs.intercept_ = ours.coef_, ours.intercept_
    assert ours.score(*columns) == pytest.approx(theirs.score(X, y, weight), rel=1e-9)


def test_files_are_blocks(client: Client, tmp_path: Path) -> None:
    from sklearn.datasets import dump_svmlight_file

    X, y, _ = data("squared")
    X, y = sparse.csr_matrix(X.toarray().round(3)), y.round(3)  # files have 16 digits
    for number, part in enumerate(zip(*blocks(X, y), strict=True)):
        dump_svmlight_file(*part, str(tmp_path / f"{number:02d}"), zero_based=False)
    ours, theirs = pair("squared", **OPTIONS)
    files = read_libsvm(str(tmp_path), n_features=7)
    assert bits(fitted(ours, *files)) == bits(fitted(theirs, X, y))
    assert ours.score(*files) == pytest.approx(theirs.score(X, y), rel=1e-12)
    with pytest.raises(FileNotFoundError):
        read_libsvm([], n_features=7)


@pytest.mark.parametrize("kind", ["csr", "dense"])
def test_warm_starts_go_on_where_the_last_fit_ended(client: Client, kind: str) -> None:
    X, y, _ = data("squared")
    X = X if kind == "csr" else X.toarray()
    ours, theirs = pair("squared", warm_start=True, **OPTIONS)
    for model, arguments in ((ours, blocks(X, y)), (theirs, (X, y))):
        fitted(fitted(model, *arguments), *arguments)
    assert bits(ours) == bits(theirs)


# ---- losses


def count_tasks(dask_scheduler: Any) -> int:
    return len(dask_scheduler.tasks)


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


class Killer:
    """Kills a worker when an epoch is told that has not been told before."""

    def __init__(self, client: Client, epochs: set[int]) -> None:
        self.client, self.epochs = client, set(epochs)

    def __call__(self, record: dict[str, Any]) -> None:
        if record["iteration"] in self.epochs:
            self.epochs.remove(record["iteration"])
            kill_one(self.client)


def test_workers_that_are_killed_change_no_bits() -> None:
    X, y, weight = data("logistic")
    ours, theirs = pair("logistic", tol=1e-9, max_iter=5)
    told: list[int] = []
    with processes(2) as client:
        killer = Killer(client, {1, 4})
        ours.set_params(callback=lambda record: (told.append(record["iteration"]), killer(record)))
        fitted(ours, *blocks(X, y, weight))
        assert bits(ours) == bits(fitted(theirs, X, y, weight))
        kill_one(client)  # with its share of the dual variables, which no other can make
        with pytest.raises(WorkerLostError):
            ours.dual_coef_.compute()
    assert not killer.epochs and told.count(2) == 2  # all is done again


def test_dual_variables_are_missed_once_all_workers_were_lost() -> None:
    """Instead of being waited for; and beside them the cluster keeps nothing of the fit."""
    X, y, _ = data("logistic")
    with processes(1) as client:
        ours = fitted(pair("logistic", **OPTIONS)[0], *blocks(X, y))
        wait_until(lambda: client.run_on_scheduler(count_tasks) == len(ROWS))
        kill_one(client)
        with pytest.raises(WorkerLostError, match="is lost, and the block with it"):
            ours.dual_coef_.compute()


def test_blocks_of_a_worker_that_is_retired_are_moved(tmp_path: Path) -> None:
    """By Dask, and no file of theirs is read again; the fit goes on from the last checkpoint."""
    X, y, weight = data("logistic")
    ours, theirs = pair("logistic", tol=1e-9, max_iter=5)
    told: list[int] = []
    read = tmp_path / "read"
    with processes(3) as client:

        def retire(record: dict[str, Any]) -> None:
            told.append(record["iteration"])
            if told in ([1, 2], [1, 2, 2, 3, 4]):
                client.retire_workers(addresses(client)[:1], close_workers=True, remove=True)

        ours.set_params(callback=retire, checkpoint=str(tmp_path / "saved"), checkpoint_every=1)
        parts = [dask.delayed(noted)(part, str(read)) for part in blocks(X)[0]]
        fitted(ours, parts, *blocks(y, weight))
        assert bits(ours) == bits(fitted(theirs, X, y, weight))
        assert len(client.nthreads()) == 1
    assert told == [1, 2, 2, 3, 4, 4, 5]
    assert len(read.read_bytes()) == len(ROWS)


def noted(value: Any, path: str) -> Any:
    """Return a value, and note that it was asked for."""
    with open(path, "ab") as file:
        file.write(b".")
    return value


def test_a_worker_may_die_in_any_kind_of_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks, kinds = tmp_path / "marks", set()
    marks.mkdir()

    def deadly(method: Any) -> Any:
        def asked(executor: Any, function: Any, *arguments: Any) -> Any:
            name = function.__name__
            kinds.add(name)
            return method(executor, Dies(function, len(ROWS) - 1, marks / name), *arguments)

        return asked

    for name in ("map_reduce", "futures"):
        monkeypatch.setattr(DaskExecutor, name, deadly(getattr(DaskExecutor, name)))
    monkeypatch.setattr("tfopt.linear_model._blocks.execution.MAX_WORKER_LOSSES", 99)
    told: list[int] = []
    with processes(2):
        # of so many weights that steps of Newton's method do without a matrix
        for intercept, n_features in ((True, 7), (False, 70)):
            X, y, weight = data("logistic", n_features)
            ours, theirs = pair("logistic", **OPTIONS, fit_intercept=intercept)
            ours.set_params(
                callback=lambda record: told.append(record["iteration"]),
                checkpoint=str(tmp_path / f"saved{intercept}"),
                checkpoint_every=1,
            )
            fitted(ours, *blocks(X, y, weight))
            assert bits(ours) == bits(fitted(theirs, X, y, weight))
    assert told.count(2) == 2 < told.count(1)  # no more than the fits: there are checkpoints
    assert {mark.name for mark in marks.iterdir()} == kinds
    assert kinds >= {"summarize_block", "init_block", "visit"}
    assert kinds >= {"predict", "intercept_derivatives", "gaps"}
    assert kinds >= {"linearize", "linearize_with_hessians", "hessian_products"}
    assert kinds >= {"save", "restore", "collect_duals"}


def test_blocks_may_be_made_from_one_task(client: Client) -> None:
    """Which is done again when the worker that had it is killed."""
    X, y, _ = data("logistic")
    rows = dask.delayed(X[np.arange(len(y))])
    ends = np.cumsum([0, *ROWS]).tolist()
    parts = [rows[i:j] for i, j in itertools.pairwise(ends)]
    ours, theirs = pair("logistic", tol=1e-9, max_iter=4)
    ours.set_params(callback=Killer(client, {2}))
    fitted(ours, parts, blocks(y)[0])
    assert bits(ours) == bits(fitted(theirs, X, y))


def fit_and_die(address: str, folder: str) -> None:
    def end(record: dict[str, Any]) -> None:
        if record["iteration"] == 4:
            os._exit(9)

    with Client(address):
        model = SDCAClassifier(tol=1e-9, max_iter=5, callback=end)
        model.set_params(checkpoint=folder, checkpoint_every=2)
        model.fit(*blocks(*data("logistic")))


def test_another_client_goes_on_where_one_was_killed(client: Client, tmp_path: Path) -> None:
    X, y, weight = data("logistic")
    folder = str(tmp_path / "saved")
    other = start(fit_and_die, client.scheduler.address, folder)
    other.join(60)
    assert other.exitcode == 9
    seen: list[int] = []
    ours, theirs = pair("logistic", tol=1e-9, max_iter=5)
    ours.set_params(callback=lambda record: seen.append(record["iteration"]))
    fitted(ours, *blocks(X, y, weight), resume=folder)
    assert bits(ours) == bits(fitted(theirs, X, y, weight))
    assert seen == [3, 4, 5] and len(ours.history_[0]) == 5
    told = [[record["reason"] for record in model.history_[0]] for model in (ours, theirs)]
    assert told[0] == told[1] and all(told[0])
    names = sorted(path.name for path in Path(folder).iterdir())
    ends = [*(f".block-{k:06d}.npz" for k in range(10)), "manifest.npz"]
    assert all(name.endswith(end) for name, end in zip(names, ends, strict=True))
    assert len({name.partition(".")[0] for name in names[:-1]}) == 1


@pytest.mark.parametrize(
    ("loss", "kind", "intercept", "n_features"),
    [
        ("logistic", "csr", True, 7),
        ("logistic", "dense", True, 7),
        ("logistic", "csr", False, 70),
        ("logistic", "dense", False, 70),
        ("hinge", "dense", True, 7),
    ],
)
def test_a_fit_goes_on_from_any_iteration(
    client: Client, tmp_path: Path, loss: str, kind: str, intercept: bool, n_features: int
) -> None:
    """Among visits and among steps of Newton's method, by a matrix or by products.

    Those of the hinge are of the interior-point method.
    """
    X, y, weight = data(loss, n_features)
    y = y == "b" if loss == "hinge" else y
    columns = blocks(X if kind == "csr" else X.toarray(), y, weight)
    options = {"tol": 1e-14, "max_iter": 6, "l2": 0.1, "fit_intercept": intercept}
    saved = tmp_path / "saved"

    def keep(record: dict[str, Any]) -> None:
        if saved.exists():  # the checkpoint of the iteration before
            shutil.copytree(saved, tmp_path / str(record["iteration"]))

    whole = SDCAClassifier(
        loss, **options, callback=keep, checkpoint=str(saved), checkpoint_every=1
    )
    expected = bits(fitted(whole, *columns))
    for first in (2, 4, 5, 6):
        told: list[int] = []
        rest = SDCAClassifier(
            loss, **options, callback=lambda r, told=told: told.append(r["iteration"])
        )
        assert bits(fitted(rest, *columns, resume=str(tmp_path / str(first)))) == expected
        assert told == [*range(first, 7)]


def test_a_checkpoint_of_another_fit_is_refused(client: Client, tmp_path: Path) -> None:
    X, y, _ = data("logistic")
    folder = str(tmp_path)
    options = {**OPTIONS, "checkpoint": folder, "checkpoint_every": 1}
    fitted(SDCAClassifier(**options), *blocks(X, y))
    for other, what in (({"l2": 3.0}, "l2"), ({"random_state": 6}, "seed")):
        with pytest.raises(CheckpointError, match=f"its {what} is "):
            SDCAClassifier(**OPTIONS | other).fit(*blocks(X, y), resume=folder)
    with pytest.raises(CheckpointError, match=r"there is no manifest\.npz"):
        SDCAClassifier(**OPTIONS).fit(*blocks(X, y), resume=str(tmp_path / "nowhere"))
    assert tasks(client) == []


# ---- refusals


@pytest.mark.parametrize("what", ["X", "y", "weight", "shape", "features", "overflow"])
def test_bad_data_are_named_and_the_cluster_left_clean(client: Client, what: str) -> None:
    X, y, weight = blocks(*data("squared"))
    X = [part.copy() for part in X]
    message = "block 4, row 6"
    if what == "X":
        X[4] = X[4].toarray()
        X[4][6, 2] = np.nan
        X = [sparse.csr_matrix(part) for part in X]
    elif what == "y":
        y[4][6] = np.inf
    elif what == "weight":
        weight[4][6] = -1
    elif what == "overflow":
        X[4] = X[4].tolil()
        X[4][6, 0] = 1e200
        X[4] = X[4].tocsr()
    elif what == "shape":
        y[4], message = y[4][1:], r"block 4: y has the shape \(34,\), X has \(35, 7\)"
    else:
        X[4], message = X[4][:, :6], "block 4 has 6 features, but block 0 has 7"
    with pytest.raises(ValueError, match=message):
        SDCARegressor().fit(X, y, weight)
    assert tasks(client) == []


def test_negative_counts_are_named(client: Client) -> None:
    X, y, _ = blocks(*data("poisson"))
    y[4][6] = -1
    with pytest.raises(ValueError, match="block 4, row 6: loss='poisson' needs non-negative"):
        SDCARegressor("poisson").fit(X, y)
    assert tasks(client) == []


def test_what_is_no_collection_is_refused(client: Client) -> None:
    X, y, _ = data("logistic")
    with pytest.raises(TypeError, match="data in memory are for"):
        SDCAClassifier().fit(X, y)
    with pytest.raises(ValueError, match="X has 10 blocks, but y has 9"):
        SDCAClassifier().fit(blocks(X)[0], blocks(y)[0][1:])
    with pytest.raises(ValueError, match="at least 2 classes"):
        SDCAClassifier().fit(*blocks(X, np.ones(len(y))))


# ---- faces


def test_estimators_have_the_names_of_those_in_memory() -> None:
    import tfopt.dask

    for name in ("Classifier", "Regressor"):
        kind = getattr(tfopt.dask, f"Linear{name}")
        assert getattr(tfopt.dask, f"SDCA{name}") is kind
        assert issubclass(kind, getattr(linear_model, f"Linear{name}"))
        assert kind.__name__ == f"Linear{name}"


@pytest.mark.parametrize("kind", [SDCAClassifier, SDCARegressor])
def test_parameters_are_those_without_a_cluster(kind: type) -> None:
    ours = inspect.signature(kind).parameters
    theirs = inspect.signature(getattr(linear_model, kind.__name__)).parameters
    ours_alone = {"solver", "adaptive", "num_loss_partitions", "n_jobs", "keep_duals"}
    ours_alone |= {"penalty_factor", "positive"} & {*theirs}
    assert {*theirs} - {*ours} == ours_alone
    assert {*ours} - {*theirs} == {"checkpoint", "checkpoint_every"}
    assert all(ours[name].default == theirs[name].default for name in {*ours} & {*theirs})
    copy = clone(kind(l1=2.0, checkpoint="there"))
    assert copy.get_params()["l1"] == 2.0 and copy.get_params()["checkpoint"] == "there"


def test_partitions_that_are_given_must_be_all_rows() -> None:
    X, y, _ = data("logistic")
    for rows, message in (([251, 1], "add up to the number of samples, 251, not 252"),
                          ([250, 0, 1], "each of num_loss_partitions"), ([], "not 0")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            linear_model.SDCAClassifier(num_loss_partitions=rows).fit(X, y)
    with pytest.raises(ValueError, match="adaptive"):
        linear_model.SDCAClassifier(num_loss_partitions=[251], adaptive=True).fit(X, y)


@pytest.mark.parametrize("ends", [{"max_time": 1e-9}, {"callback": lambda record: True}])
def test_what_ends_a_fit(client: Client, ends: dict[str, Any]) -> None:
    """With a certificate, after an iteration; want of time warns, and a callback knows."""
    X, y, _ = data("hinge")
    model = SDCAClassifier("hinge", tol=1e-12, **ends)
    late = pytest.warns(ConvergenceWarning, match="after max_time=1e-09 seconds")
    with late if "max_time" in ends else contextlib.nullcontext():
        model.fit(*blocks(X, y))
    assert (model.n_iter_ <= 2).all() and all(h[-1]["certified"] for h in model.history_)
