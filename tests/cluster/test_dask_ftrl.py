"""FTRL on a cluster: the bits of one model that takes block after block."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from common.dask_cluster import ROWS, addresses, blocks, data, kill_one, processes, tasks
from distributed import Client
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import tfopt.dask
from tfopt import linear_model
from tfopt.dask import FTRLClassifier, FTRLRegressor
from tfopt.errors import CheckpointError

FITTED = ("coef_", "intercept_", "n_iter_", "t_", "n_features_in_")
OPTIONS: dict[str, Any] = {"max_iter": 2, "batch_size": 4, "l1": 0.1, "random_state": 5}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with processes(2) as client:
        yield client


def alone(model: Any, *columns: list[Any]) -> Any:
    """Fit a model of one machine to block after block."""
    random = np.random.RandomState(model.random_state)
    of_classes = isinstance(model, linear_model.FTRLClassifier)
    known = {"classes": np.unique(np.concatenate(columns[1]))} if of_classes else {}
    for _ in range(model.max_iter):
        for X, y, weight in zip(*columns, strict=True):
            order = random.permutation(len(y)) if model.shuffle else np.arange(len(y))
            model.partial_fit(X[order], y[order], sample_weight=weight[order], **known)
    model.n_iter_ = model.max_iter
    return model


def bits(model: Any) -> dict[str, bytes]:
    return {name: np.asarray(getattr(model, name)).tobytes() for name in FITTED}


def pair(loss: str, **options: Any) -> tuple[Any, Any]:
    """Return an estimator for a cluster, and the one it is to equal."""
    if loss in ("squared", "poisson"):
        return FTRLRegressor(loss, **options), linear_model.FTRLRegressor(loss, **options)
    return FTRLClassifier(**options), linear_model.FTRLClassifier(**options)


@pytest.mark.parametrize(
    ("loss", "shuffle"),
    [("logistic", False), ("hinge", True), ("squared", True), ("poisson", False)],
)
def test_bits_are_those_of_block_after_block(client: Client, loss: str, shuffle: bool) -> None:
    """The labels that go by the name of the hinge are of three classes."""
    X, y, weight = data(loss)
    columns = blocks(X, y, weight)
    ours, theirs = pair(loss, shuffle=shuffle, learning_rate=0.1, **OPTIONS)
    ours.fit(*columns)
    alone(theirs, *columns)
    assert bits(ours) == bits(theirs)
    assert ours.score(*columns) == pytest.approx(theirs.score(X, y, weight), rel=1e-12)
    predicted = np.concatenate(dask.compute(*ours.predict(columns[0])))
    np.testing.assert_array_equal(predicted, theirs.predict(X))  # of sparse rows, each its own sum
    assert tasks(client) == []


@pytest.mark.parametrize("which", ["logistic", "squared"])
@pytest.mark.parametrize("number", [None, 0.5])
def test_an_offset_gives_the_bits_without_a_cluster(
    client: Client, which: str, number: float | None
) -> None:
    X, y, weight = data(which)
    columns = blocks(X, y, weight)
    offset = np.cos(np.arange(len(y))) if number is None else np.full(len(y), number)
    parts = blocks(offset)[0]
    ours, theirs = pair(which, learning_rate=0.1, shuffle=False, **OPTIONS)
    ours.fit(*columns, offset=parts if number is None else number)
    known = {"classes": np.unique(y)} if which == "logistic" else {}
    for _ in range(ours.max_iter):
        for block, o in zip(zip(*columns, strict=True), parts, strict=True):
            theirs.partial_fit(*block[:2], sample_weight=block[2], offset=o, **known)
    theirs.n_iter_ = ours.n_iter_
    assert bits(ours) == bits(theirs)
    score = theirs.score(X, y, weight, offset=offset)
    given = parts if number is None else number
    assert ours.score(*columns, offset=given) == pytest.approx(score, rel=1e-9)
    shuffled = pair(which, learning_rate=0.1, **OPTIONS)[0].fit(*columns, offset=given)
    assert shuffled.score(*columns, offset=given) > 0.5


@pytest.mark.parametrize(
    ("which", "options"),
    [
        ("logistic", {"loss": "hinge", "average": True}),
        ("logistic", {"loss": "smooth_hinge", "gamma": 0.5, "average": 300}),
        ("hinge", {"average": 10**6}),
        ("hinge", {"loss": "squared_hinge", "average": True, "fit_intercept": False}),
        ("squared", {"loss": "quantile", "quantile": 0.8, "average": True}),
        ("squared", {"loss": "huber", "epsilon": 0.5}),
    ],
)
def test_options_give_the_bits_that_they_give_without_a_cluster(
    client: Client, which: str, options: dict[str, Any]
) -> None:
    columns = blocks(*data(which))
    kind = "FTRLRegressor" if which == "squared" else "FTRLClassifier"
    given = {**OPTIONS, "learning_rate": 0.1, **options}
    ours = getattr(tfopt.dask, kind)(**given).fit(*columns)
    theirs = alone(getattr(linear_model, kind)(**given), *columns)
    assert bits(ours) == bits(theirs)
    # one that goes on in memory keeps its averages
    X, y = columns[0][0].toarray(), columns[1][0]
    assert bits(ours.partial_fit(X, y)) == bits(theirs.partial_fit(X, y))


@pytest.mark.parametrize("which", ["logistic", "hinge"])
def test_balanced_classes_are_so_over_all_blocks(client: Client, which: str) -> None:
    X, y, weight = data(which)
    columns = blocks(X, y, weight)
    ours = FTRLClassifier(class_weight="balanced", **OPTIONS).fit(*columns)
    classes = np.unique(y)
    totals = [
        sum(w[of == label].sum() for of, w in zip(*columns[1:], strict=True)) for label in classes
    ]
    factors = {k: sum(totals) / (len(classes) * t) for k, t in zip(classes, totals, strict=True)}
    given = linear_model.FTRLClassifier(class_weight=factors, **OPTIONS)
    np.testing.assert_allclose(ours.coef_, alone(given, *columns).coef_, rtol=1e-9)
    assert ours.class_weight == "balanced"
    whole = FTRLClassifier(class_weight="balanced", **OPTIONS).fit([X], [y], [weight])
    assert bits(whole) == bits(
        linear_model.FTRLClassifier(class_weight="balanced", **OPTIONS).fit(X, y, weight)
    )


def test_the_loss_ends_epochs_and_a_checkpoint_goes_on_with_that(
    client: Client, tmp_path: Path
) -> None:
    columns, losses = blocks(*data("logistic")), []
    options = OPTIONS | {"max_iter": 30, "tol": 0.02, "n_iter_no_change": 3}
    whole = FTRLClassifier(callback=lambda r: losses.append(r["loss"]), **options).fit(*columns)
    late = [k for k, loss in enumerate(losses) if k and loss > min(losses[:k]) - 0.02]
    assert late == [*range(whole.n_iter_ - 3, whole.n_iter_)] and whole.n_iter_ < 30
    with pytest.warns(ConvergenceWarning, match="the loss still improved after max_iter="):
        FTRLClassifier(checkpoint=str(tmp_path), **options | {"max_iter": whole.n_iter_ - 1}).fit(
            *columns
        )
    assert bits(FTRLClassifier(**options).fit(*columns, resume=str(tmp_path))) == bits(whole)
    with pytest.raises(CheckpointError, match=r"its tol is 0\.02, not 0\.01"):
        FTRLClassifier(**options | {"tol": 0.01}).fit(*columns, resume=str(tmp_path))


@pytest.mark.parametrize("average", [False, True])
def test_a_warm_start_goes_on(client: Client, average: bool) -> None:
    columns = blocks(*data("hinge"))
    options = OPTIONS | {"shuffle": False, "average": average}
    whole = FTRLClassifier(**options).fit(*columns)
    model = FTRLClassifier(warm_start=True, **options | {"max_iter": 1}).fit(*columns)
    before = model._state.copy()
    assert bits(model) != bits(whole)
    model.fit(*columns)
    assert model.n_iter_ == 1 and model.t_ == whole.t_
    assert model.coef_.tobytes() == whole.coef_.tobytes()
    with pytest.raises(ValueError, match="block 0: X has 3 features, but FTRLClassifier is exp"):
        model.fit([part[:, :3] for part in columns[0]], columns[1])
    assert model.coef_.tobytes() == whole.coef_.tobytes() and (model._state != before).any()


def test_early_stopping_is_refused(client: Client) -> None:
    model = FTRLClassifier(**OPTIONS).fit(*blocks(*data("logistic")))
    before = bits(model)
    with pytest.raises(ValueError, match=r"early_stopping=True holds out samples.*set tol"):
        model.set_params(early_stopping=True).fit(*blocks(*data("logistic")))
    assert bits(model) == before and tasks(client) == []


def test_one_worker_gives_the_same_bits() -> None:
    X, y, weight = data("logistic")
    ours, theirs = pair("logistic", **OPTIONS)
    with processes(1) as client:
        ours.fit(*blocks(X, y, weight))
        assert len(addresses(client)) == 1
    assert bits(ours) == bits(alone(theirs, *blocks(X, y, weight)))


def test_one_block_is_the_fit_without_a_cluster(client: Client) -> None:
    X, y, _ = data("logistic")
    ours, theirs = pair("logistic", **OPTIONS)
    assert bits(ours.fit([X], [y])) == bits(theirs.fit(X, y))
    assert ours.loss_ == pytest.approx(theirs.loss_)
    assert ours.progressive_loss_ == theirs.progressive_loss_
    np.testing.assert_array_equal(ours.predict_proba(X), theirs.predict_proba(X))


def test_a_callback_on_the_client_ends_the_fit(client: Client) -> None:
    X, y, weight = data("logistic")
    told: list[dict[str, Any]] = []

    def tell(record: dict[str, Any]) -> bool:
        told.append(record)
        return len(told) == 2

    ours, theirs = pair("logistic", **OPTIONS)
    ours.set_params(max_iter=9, callback=tell).fit(*blocks(X, y, weight))
    assert bits(ours) == bits(alone(theirs, *blocks(X, y, weight)))
    assert [record["iteration"] for record in told] == [1, 2]
    assert [record["samples"] for record in told] == [len(y), 2 * len(y)]
    assert told[1]["loss"] == ours.loss_ < told[0]["loss"]
    mean = (told[0]["loss"] + told[1]["loss"]) / 2
    assert ours.progressive_loss_ == pytest.approx(mean)


def test_arrays_and_frames_are_blocks(client: Client) -> None:
    import dask.dataframe as dd
    import pandas as pd

    X, y, weight = data("logistic")
    dense = X.toarray()
    ours, theirs = pair("logistic", **OPTIONS)
    expected = bits(alone(theirs, *blocks(dense, y, weight)))
    arrays = [da.from_array(part, chunks=(ROWS, 3)[: part.ndim]) for part in (dense, y, weight)]
    assert bits(ours.fit(*arrays)) == expected
    frame = pd.DataFrame(dense, columns=list("abcdefg")).assign(y=y, weight=weight)
    parts = blocks(frame)[0]
    parted = dd.from_map(lambda k: parts[k], range(len(ROWS)), meta=frame.iloc[:0])
    ours.fit(parted[list("abcdefg")], parted.y, parted.weight)
    assert bits(ours) == expected
    assert ours.feature_names_in_.tolist() == list("abcdefg")
    np.testing.assert_array_equal(
        ours.predict(parted[list("abcdefg")]).compute(), theirs.predict(dense)
    )
    ours.predict(arrays[0])  # which lack names: workers warn of it, but not the client


def test_dicts_are_hashed(client: Client) -> None:
    days = [{"sky": "grey", "wind": 3.0}, {"sky": "blue", "wind": 1.0}] * 3
    y = np.array(["rain", "dry"] * 3)
    ours, theirs = pair("logistic", n_hashes=16, **OPTIONS)
    ours.fit([dask.delayed(days)], [y])
    assert bits(ours) == bits(theirs.fit(days, y))
    (predicted,) = dask.compute(*ours.predict([dask.delayed(days)]))
    assert predicted.tolist() == y.tolist()


def test_a_worker_that_is_killed_changes_no_bits() -> None:
    X, y, weight = data("logistic")
    options = OPTIONS | {"max_iter": 10}
    ours, theirs = pair("logistic", **options)
    columns = blocks(X, y, weight)
    with processes(2) as client:
        killer = threading.Timer(0.2, kill_one, [client])
        killer.start()
        ours.fit(*columns)
        assert not killer.is_alive()
    assert bits(ours) == bits(alone(theirs, *columns))


def test_a_large_model_is_sent_without_a_warning(client: Client) -> None:
    X = sparse.random_array((40, 20_000), density=1e-3, rng=np.random.default_rng(1)).tocsr()
    columns = [X[:25], X[25:]], [np.arange(25) % 2, np.arange(15) % 2], [np.ones(25), np.ones(15)]
    ours, theirs = pair("logistic", **OPTIONS)
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "100 kB"}):
        ours.fit(*columns)  # a model takes 480 kB
    assert bits(ours) == bits(alone(theirs, *columns))


@pytest.mark.parametrize("loss", ["hinge", "poisson"])
def test_a_fit_goes_on_from_a_checkpoint(client: Client, loss: str, tmp_path: Path) -> None:
    import pandas as pd

    X, y, weight = data(loss)
    columns = blocks(pd.DataFrame(X.toarray(), columns=list("abcdefg")), y, weight)
    folder, options = str(tmp_path / "saved"), OPTIONS | {"learning_rate": 0.1, "max_iter": 5}
    whole, _ = pair(loss, **options)
    short, rest = clone(whole), clone(whole)
    whole.fit(*columns)
    short.set_params(max_iter=3, checkpoint=folder, checkpoint_every=2).fit(*columns)
    assert bits(short) != bits(whole)
    assert bits(rest.fit(*columns, resume=folder)) == bits(whole)
    assert rest.feature_names_in_.tolist() == list("abcdefg")
    np.testing.assert_array_equal(rest.predict(columns[0][0]), whole.predict(columns[0][0]))
    assert bits(rest.set_params(max_iter=2).fit(*columns, resume=folder)) != bits(whole)
    assert rest.n_iter_ == 2
    assert [path.name for path in Path(folder).iterdir()] == ["manifest.npz"]


def test_a_checkpoint_of_another_fit_is_refused(client: Client, tmp_path: Path) -> None:
    X, y, _ = data("logistic")
    folder = str(tmp_path)
    FTRLClassifier(**OPTIONS, checkpoint=folder).fit(*blocks(X, y))
    for other, what in (({"l1": 3.0}, "l1"), ({"random_state": 6}, "random_state")):
        with pytest.raises(CheckpointError, match=f"its {what} is "):
            FTRLClassifier(**OPTIONS | other).fit(*blocks(X, y), resume=folder)
    with pytest.raises(CheckpointError, match="its rows is "):
        FTRLClassifier(**OPTIONS).fit([X], [y], resume=folder)
    with pytest.raises(CheckpointError, match="its classes is "):
        FTRLClassifier(**OPTIONS).fit(*blocks(X, y + 1), resume=folder)
    with pytest.raises(CheckpointError, match=r"there is no manifest\.npz"):
        FTRLClassifier().fit(*blocks(X, y), resume=str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="checkpoint_every"):
        FTRLClassifier(checkpoint=folder, checkpoint_every=0).fit(*blocks(X, y))
    assert tasks(client) == []


def test_bad_data_are_named_and_the_cluster_left_clean(client: Client) -> None:
    X, y, _ = blocks(*data("logistic"))
    X = [part.toarray() for part in X]
    X[4][6, 2] = np.nan
    with pytest.raises(ValueError, match=r"block 4: .*NaN"):
        FTRLClassifier().fit(X, y)
    with pytest.raises(ValueError, match="at least 2 classes"):
        FTRLClassifier().fit(X[:1], [np.ones(ROWS[0])])
    with pytest.raises(ValueError, match="max_iter"):
        FTRLClassifier(max_iter=0).fit(X, y)
    assert tasks(client) == []


@pytest.mark.parametrize("name", ["FTRLClassifier", "FTRLRegressor"])
def test_parameters_are_those_without_a_cluster(name: str) -> None:
    kind = {"FTRLClassifier": FTRLClassifier, "FTRLRegressor": FTRLRegressor}[name]
    ours = inspect.signature(kind).parameters
    theirs = inspect.signature(getattr(linear_model, name)).parameters
    assert {*ours} - {*theirs} == {"checkpoint", "checkpoint_every"}
    assert all(ours[name].default == theirs[name].default for name in theirs)
    copy = clone(kind(l1=2.0, checkpoint="there"))
    assert copy.get_params()["l1"] == 2.0 and copy.get_params()["checkpoint"] == "there"
