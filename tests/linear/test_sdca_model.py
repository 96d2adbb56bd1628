"""SDCAModel: batches of examples that come again and again, known by their ids."""

from __future__ import annotations

import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common.cases import TRIED, assert_same_bits
from hypothesis import given
from hypothesis import strategies as st

import tfopt
import tfopt_ref
from tfopt.core.locks import ProcessLock
from tfopt.kernels.tf_sdca.fingerprint_table import FingerprintTable
from tfopt.sdca_model import SDCAModel
from tfopt.sdca_ops import sdca_fprint

LOSSES = ("logistic_loss", "squared_loss", "hinge_loss", "smooth_hinge_loss", "poisson_loss")
each_loss = pytest.mark.parametrize("loss", LOSSES)
N, FEATURES, WIDTH = 12, 20, 3


def example(i: int) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Return the label, feature ids, their values and dense features of example i."""
    random = np.random.default_rng(i)
    ids = random.choice(FEATURES, 4, replace=False)
    values = random.standard_normal(4)
    return float(random.integers(2)), ids, values, random.standard_normal(WIDTH)


def batch(numbers: Any, loss: str = "logistic_loss") -> dict[str, Any]:
    drawn = [example(i) for i in numbers]
    # at weights 0 a count of 1 is what is predicted: rounding would decide its order among others
    least = 0.5 if loss == "poisson_loss" else 0.0
    return {
        "example_ids": [f"example {i}" for i in numbers],
        "example_labels": np.array([least + label for label, *_ in drawn]),
        "example_weights": np.array([1.0 + i % 3 for i in numbers]),
        "sparse_features": [
            (
                np.repeat(np.arange(len(drawn)), 4),
                np.concatenate([ids for _, ids, *_ in drawn] or [np.zeros(0, int)]),
                np.concatenate([values for *_, values, _ in drawn] or [np.zeros(0)]),
            )
        ],
        "dense_features": [np.array([block for *_, block in drawn]).reshape(-1, WIDTH)],
    }


def model(loss: str = "logistic_loss", l1: float = 0.0, **more: Any) -> Any:
    weights = [np.zeros(FEATURES)], [np.zeros(WIDTH)]
    made = tfopt.sdca_model.SDCAModel(*weights, loss, l1, 1.0, **{"dtype": np.float64, **more})
    made.arrays = [*weights[0], *weights[1]]
    return made


def state_of(made: Any) -> list[np.ndarray]:
    """Return everything a model consists of."""
    known = made._table.fingerprints
    rows = made._state[: len(known)]
    slots = [*made._unshrunk_sparse, *made._unshrunk_dense]
    return [np.array(a) for a in (known, rows, *slots, *made.arrays)]


def specified(
    loss: str,
    batches: list[list[int]],
    *,
    l1: float,
    adaptive: bool,
    num_loss_partitions: int,
    dtype: str,
) -> list[np.ndarray]:
    """Return what a model consists of, by one call of the op for the k-th examples of all ids."""
    states: dict[int, np.ndarray] = {}
    sparse, dense = np.zeros(FEATURES), np.zeros(WIDTH)
    for seed, numbers in enumerate(batches):
        times = [numbers[:place].count(number) for place, number in enumerate(numbers)]
        for time in range(max(times, default=-1) + 1):
            chosen = [number for number, its in zip(numbers, times, strict=True) if its == time]
            given = batch(chosen, loss)
            (indices, ids, values), (block,) = given["sparse_features"][0], given["dense_features"]
            state = [states.get(number, np.zeros(4)) for number in chosen]
            result = tfopt_ref.sdca_ops.sdca_optimizer(
                [indices], [ids], [values], [block], given["example_weights"],
                given["example_labels"], [np.arange(FEATURES)], [sparse], [dense],
                np.array(state, dtype).reshape(-1, 4), loss, l1, 1.0, num_loss_partitions, 1,
                adaptive=adaptive, seed=seed, dtype=np.dtype(dtype),
            )  # fmt: skip
            states |= zip(chosen, result.out_example_state_data, strict=True)
            sparse = sparse + result.out_delta_sparse_weights[0]
            dense = dense + result.out_delta_dense_weights[0]
    weights = tfopt_ref.sdca_ops.sdca_shrink_l1([sparse, dense], l1, 1.0)
    known = np.reshape(sdca_fprint([f"example {number}" for number in states]), (-1, 2))
    rows = np.array([*states.values()]).reshape(-1, 4)
    return [known, rows, sparse, dense, *weights]


def test_two_examples_in_closed_form() -> None:
    weights = np.full(2, 9.0)  # what is there before does not matter
    made = tfopt.sdca_model.SDCAModel([], [weights], "squared_loss", 0.0, 1.0, adaptive=False)
    given = {
        "example_ids": [b"a", "b"],
        "example_labels": [10, -5],
        "dense_features": [np.eye(2)],
    }
    made.partial_fit(given)
    assert weights.tolist() == [9, 9]
    made.update_weights()
    np.testing.assert_allclose(weights, [5, -2.5], rtol=1e-6)
    np.testing.assert_allclose(made.predictions({"dense_features": [np.eye(2)]}), weights)
    assert made.unregularized_loss(given) == pytest.approx((12.5 + 3.125) / 2)
    assert made.regularized_loss(given) == pytest.approx((12.5 + 3.125 + 31.25 / 2) / 2)
    made.partial_fit(given)  # the losses of the state are now those of the optimum
    made.update_weights()
    assert abs(made.approximate_duality_gap()) < 1e-6


@each_loss
def test_it_converges_in_batches_that_repeat_ids(loss: str) -> None:
    """With repeated ids a state that one visit overwrote would no longer explain the weights."""
    made = model(loss, l1=0.05, adaptive=False)
    random = np.random.default_rng(0)
    for _ in range(250):
        numbers = random.integers(N, size=5)
        made.partial_fit(batch([*numbers, numbers[0]]))
    for _ in range(3):
        made.partial_fit(batch(range(N)))
    made.update_weights()
    duals, labels = {}, {}
    prints = tfopt.sdca_ops.sdca_fprint([f"example {i}" for i in range(N)])
    rows = state_of(made)[:2]
    for fingerprint, row in zip(*rows, strict=True):
        duals[tuple(fingerprint)] = row[0]
    explained = np.zeros(FEATURES + WIDTH)
    for i in range(N):
        label, ids, values, block = example(i)
        labels[i] = label
        a = duals[tuple(prints[i])] * (1.0 + i % 3)
        np.add.at(explained, ids, a * values)
        explained[FEATURES:] += a * block
    np.testing.assert_allclose(
        np.concatenate([*made._unshrunk_sparse, *made._unshrunk_dense]), explained, atol=1e-9
    )
    gap = made.approximate_duality_gap()
    assert abs(gap) < 1e-3, gap
    shrunk = np.sign(explained) * np.maximum(np.abs(explained) - 0.05, 0)
    np.testing.assert_allclose(np.concatenate(made.arrays), shrunk, atol=1e-9)


@pytest.mark.counted
@given(data=st.data())
@each_loss
def test_batches_are_calls_of_the_specified_op(loss: str, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    options = {
        "l1": data.draw(st.sampled_from([0.0, 0.2])),
        "adaptive": data.draw(st.booleans()),
        "num_loss_partitions": data.draw(st.sampled_from([1, 3])),
        "dtype": dtype,
    }
    batches = data.draw(st.lists(st.lists(st.integers(0, N - 1), max_size=6), max_size=4))
    made = model(loss, **options)
    for k, numbers in enumerate(batches):
        made.partial_fit(batch(numbers, loss), seed=k)
    made.update_weights()
    tolerance = {"float32": 1e-5, "float64": 1e-11}[dtype]  # which the steps are found to
    ours, theirs = state_of(made), specified(loss, batches, **options)
    assert sorted(map(tuple, ours[0])) == sorted(map(tuple, theirs[0]))
    order = [np.lexsort(np.reshape(part[0], (-1, 2)).T) for part in (ours, theirs)]
    pairs = [(ours[1][order[0]], theirs[1][order[1]]), *zip(ours[2:], theirs[2:], strict=True)]
    for own, other in pairs:
        np.testing.assert_allclose(own, other, rtol=tolerance, atol=tolerance)
    TRIED[f"SDCAModel {loss}", dtype, "ordinary", "contiguous"] += 1


def test_a_batch_is_a_call_of_the_op() -> None:
    made, given = model(adaptive=True), batch(range(4))
    made.partial_fit(given, seed=3)
    (indices, ids, values), (block,) = given["sparse_features"][0], given["dense_features"]
    own = np.unique(ids)
    result = tfopt.sdca_ops.sdca_optimizer(
        [indices], [ids], [values], [block], given["example_weights"], given["example_labels"],
        [own], [np.zeros(len(own))], [np.zeros(WIDTH)], np.zeros((4, 4)), "logistic_loss",
        0.0, 1.0, 1, 1, adaptive=True, seed=3, dtype=np.float64,
    )  # fmt: skip
    assert_same_bits(made._unshrunk_sparse[0][own], result.out_delta_sparse_weights[0], "sparse")
    assert_same_bits(made._unshrunk_dense[0], result.out_delta_dense_weights[0], "dense")


@each_loss
def test_predictions_and_losses(loss: str) -> None:
    made, given = model(loss), batch(range(5))
    made.arrays[0][:] = np.linspace(-1, 1, FEATURES)
    made.arrays[1][:] = [0.5, -0.25, 2]
    products = []
    for i in range(5):
        _, ids, values, block = example(i)
        products.append(values @ made.arrays[0][ids] + block @ made.arrays[1])
    z, y = np.array(products), given["example_labels"]
    links = {"logistic_loss": 1 / (1 + np.exp(-z)), "poisson_loss": np.exp(z)}
    np.testing.assert_allclose(made.predictions(given), links.get(loss, z), rtol=1e-13)
    sign = 2 * y - 1
    missing = np.maximum(0, 1 - sign * z)
    losses = {
        "logistic_loss": np.log1p(np.exp(-sign * z)),
        "squared_loss": (z - y) ** 2 / 2,
        "hinge_loss": missing,
        "smooth_hinge_loss": np.where(missing > 1, missing - 0.5, missing**2 / 2),
        "poisson_loss": np.exp(z) - y * z,
    }
    c = given["example_weights"]
    mean = (c * losses[loss]).sum() / c.sum()
    assert made.unregularized_loss(given) == pytest.approx(mean, rel=1e-13)
    squares = sum(w @ w for w in made.arrays)
    expected = mean + squares / 2 / c.sum()
    assert made.regularized_loss(given) == pytest.approx(expected, rel=1e-13)


def test_nothing_visited_yet() -> None:
    made = model()
    assert np.isnan(made.approximate_duality_gap())
    made.partial_fit(batch([]))
    assert np.isnan(made.approximate_duality_gap())
    assert made.predictions(batch([])).shape == (0,)


# ---- refusals


def changed(**parts: Any) -> dict[str, Any]:
    given = batch([1, 2, 1])
    for key, value in parts.items():
        if value is None:
            del given[key]
        else:
            given[key] = value
    return given


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no ids": (changed(example_ids=None), "InvalidArgumentError", "example_ids must be"),
    "no labels": (changed(example_labels=None), "InvalidArgumentError", "example_labels must be"),
    "an unknown key": (changed(labels=[1]), "InvalidArgumentError", "unknown keys"),
    "ids that are numbers": (changed(example_ids=[1, 2, 3]), "InvalidTypeError", "strings"),
    "too few labels": (changed(example_labels=[1, 0]), "InvalidArgumentError", "for each"),
    "too few weights": (changed(example_weights=[1.0]), "InvalidArgumentError", "for each"),
    "a negative weight": (
        changed(example_weights=[1.0, 1.0, -1.0]), "InvalidArgumentError", "weight",
    ),
    "a label in the second round": (
        changed(example_labels=[1.0, 0.0, 0.5]), "InvalidArgumentError", "label",
    ),
    "a missing group": (changed(dense_features=[]), "InvalidArgumentError", "must have 1 groups"),
    "no list": (changed(dense_features=np.ones((3, 3))), "InvalidTypeError", "must be a list"),
    "another width": (
        changed(dense_features=[np.ones((3, 2))]), "InvalidArgumentError", "3 columns",
    ),
    "a feature without a weight": (
        changed(sparse_features=[([0], [FEATURES])]), "InvalidArgumentError", "out of range",
    ),
    "a negative feature": (
        changed(sparse_features=[([0], [-1])]), "InvalidArgumentError", "out of range",
    ),
    "an example that is not there": (
        changed(sparse_features=[([3], [0])]), "InvalidArgumentError", "out of range",
    ),
    "fractional ids": (
        changed(sparse_features=[([0], [0.5])]), "InvalidTypeError", "vectors of integers",
    ),
    "other lengths": (
        changed(sparse_features=[([0, 1], [0])]), "InvalidArgumentError", "2 example_indices",
    ),
    "too few values": (
        changed(sparse_features=[([0, 1], [0, 1], [1.0])]), "InvalidArgumentError", "values",
    ),
    "a NaN": (changed(dense_features=[np.full((3, 3), np.nan)]), "InvalidArgumentError", "finite"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_batch_changes_nothing(case: str) -> None:
    given, error, match = REFUSED[case]
    made = model()
    made.partial_fit(batch(range(3)))
    before = state_of(made)
    with pytest.raises(getattr(tfopt, error), match=match):
        made.partial_fit(given)
    for old, new in zip(before, state_of(made), strict=True):
        assert_same_bits(old, new, case)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"loss_type": "log"}, "loss_type"),
        ({"symmetric_l2_regularization": 0.0}, "l2"),
        ({"symmetric_l1_regularization": -1.0}, "l1"),
        ({"num_loss_partitions": 0}, "num_loss_partitions"),
    ],
)
def test_settings_are_checked_at_once(options: dict[str, Any], match: str) -> None:
    with pytest.raises(tfopt.InvalidArgumentError, match=match):
        tfopt.sdca_model.SDCAModel([], [np.zeros(2)], **options)


@pytest.mark.parametrize(
    ("weights", "error", "match"),
    [
        (np.zeros(2), "InvalidTypeError", "must be a list"),
        ([np.zeros(2, int)], "InvalidTypeError", "float32 or float64"),
        ([[0.0]], "InvalidTypeError", "float32 or float64"),
        ([np.zeros((2, 2))], "InvalidArgumentError", "must be a vector"),
        ([np.broadcast_to(0.0, 2)], "InvalidArgumentError", "read-only"),
        ([], "InvalidArgumentError", "at least one feature"),
    ],
)
def test_weights_are_checked_at_once(weights: Any, error: str, match: str) -> None:
    with pytest.raises(getattr(tfopt, error), match=match):
        tfopt.sdca_model.SDCAModel([], weights)


# ---- files (the fast package's alone)


def test_a_saved_model_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    made = model("hinge_loss", l1=0.1)
    made.partial_fit(batch(range(8)), seed=1)
    made.update_weights()
    path = tmp_path / "model.npz"
    made.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["model.npz"]
    arrays = [np.zeros(FEATURES)], [np.zeros(WIDTH)]
    loaded = SDCAModel.load(path, *arrays)
    assert loaded.get_config() == made.get_config()
    for own, other in zip([*arrays[0], *arrays[1]], made.arrays, strict=True):
        assert_same_bits(own, other, "weights")
    for one in (made, loaded):
        one.partial_fit(batch(range(4, 12)), seed=2)
        one.update_weights()
    for own, other in zip([*arrays[0], *arrays[1]], made.arrays, strict=True):
        assert_same_bits(own, other, "after")
    assert loaded.approximate_duality_gap() == made.approximate_duality_gap()


def test_a_file_of_other_weights(tmp_path: Path) -> None:
    made, path = model(), tmp_path / "model.npz"
    made.save(path)
    for sparse, dense in (
        ([np.zeros(FEATURES + 1)], [np.zeros(WIDTH)]),
        ([np.zeros(FEATURES, np.float32)], [np.zeros(WIDTH)]),
        ([], [np.zeros(WIDTH)]),
        ([np.zeros(FEATURES)], [np.zeros(WIDTH), np.zeros(2)]),
    ):
        before = [w.copy() for w in (*sparse, *dense)]
        with pytest.raises(tfopt.InvalidArgumentError, match="weights"):
            SDCAModel.load(path, sparse, dense)
        for old, new in zip(before, (*sparse, *dense), strict=True):
            assert_same_bits(old, new, "refused")


def test_a_model_without_examples_is_saved_too(tmp_path: Path) -> None:
    made, path = model(), tmp_path / "model.safetensors"
    made.save(path)
    loaded = SDCAModel.load(path, [np.zeros(FEATURES)], [np.zeros(WIDTH)])
    for one in (made, loaded):
        one.partial_fit(batch(range(20)), seed=1)
        one.update_weights()
    assert loaded.approximate_duality_gap() == made.approximate_duality_gap()


def test_what_is_no_model_is_refused_by_name(tmp_path: Path) -> None:
    made, path = model(), tmp_path / "model.npz"
    made.partial_fit(batch(range(8)), seed=1)
    made.save(path)
    whole = path.read_bytes()
    parts = tfopt.checkpoints.load(path)
    weights = [np.full(FEATURES, 7.0)], [np.full(WIDTH, 7.0)]

    def refused(match: str) -> None:
        with pytest.raises(tfopt.errors.CheckpointError, match=match):
            SDCAModel.load(path, *weights)
        assert all((w == 7).all() for part in weights for w in part)

    for damaged in (b"", b"hello", whole[: len(whole) // 2], whole[:-1] + b"!"):
        path.write_bytes(damaged)
        refused("model")
    config, n = parts["config"], len(parts["state"])
    for changed, match in (
        ({"kind": "another"}, "not hold an SDCAModel"),
        ({"state": parts["state"][: n - 1]}, "an incomplete SDCAModel"),
        ({"state": parts["state"].astype(np.float16)}, "an incomplete SDCAModel"),
        ({"state": None}, "an incomplete SDCAModel"),
        ({"fingerprints": parts["fingerprints"][:, :1]}, "an incomplete SDCAModel"),
        ({"fingerprints": np.zeros_like(parts["fingerprints"])}, "an incomplete SDCAModel"),
        ({"sparse": [3]}, "an incomplete SDCAModel"),
        ({"config": {**config, "loss_type": "other"}}, "invalid setting"),
        ({"config": {**config, "more": 1}}, "invalid setting"),
        ({"config": {}}, "an incomplete SDCAModel"),
        ({"more": 1}, "an incomplete SDCAModel"),
    ):
        tfopt.checkpoints.save(path, {**parts, **changed})
        refused(match)
    with pytest.raises(IsADirectoryError):
        (tmp_path / "folder.npz").mkdir()
        made.save(tmp_path / "folder.npz")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.npz", "model.npz"]


def test_threads_may_share_a_model() -> None:
    """Workers of different examples: the weights are those of all dual variables, none is lost."""
    features, labels = np.eye(60, dtype=np.float32), np.tile([0.0, 1.0], 30)
    weights = np.zeros(60, np.float32)
    shared = SDCAModel([], [weights], "logistic_loss", symmetric_l2_regularization=2.0)
    copy = pickle.loads(pickle.dumps(ProcessLock()))
    assert copy.here is not ProcessLock().here

    def work(name: str) -> None:
        ids = [f"{name}:{k}" for k in range(60)]
        for _ in range(40):
            shared.partial_fit(
                {"example_ids": ids, "example_labels": labels, "dense_features": [features]}
            )
            shared.update_weights()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    shared.update_weights()
    prints = sdca_fprint([f"{name}:{k}" for name in "abc" for k in range(60)])
    duals = shared._state[shared._table.find(prints), 0].astype(np.float64)
    np.testing.assert_allclose(weights, duals.reshape(3, 60).sum(axis=0) / 2.0, atol=1e-6)


# ---- the table


def test_the_table_numbers_fingerprints_as_they_come() -> None:
    random = np.random.default_rng(0)
    prints = random.integers(-(2**63), 2**63, (5000, 2))
    prints[:2000, 0] &= ~np.int64(0xFFFF)  # which all look in one place first
    prints[10] = 0
    table = FingerprintTable()
    assert (table.find(prints) == -1).all()
    assert table.add(prints[:3000]).tolist() == [*range(3000)]
    assert table.add(prints[:4000][::-1].copy()).tolist()[-3000:] == [*range(2999, -1, -1)]
    assert len(table) == 4000
    assert table.find(prints[:3000]).tolist() == [*range(3000)]
    assert (table.find(prints[4000:]) == -1).all()
    assert_same_bits(table.fingerprints[:3000], prints[:3000], "fingerprints")
