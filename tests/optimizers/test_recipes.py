"""The programs of docs/recipes.md do what the page says, on small data."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfopt.errors import NotFiniteError
from tfopt.optimizers import SGD, Adagrad, Adam, AdamW, Yogi

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "recipes.md").read_text(encoding="utf-8")
RANDOM = np.random.default_rng(0)


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"examples/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # so that what it defines is pickled
    spec.loader.exec_module(module)
    return module


SHOWN = re.findall(r"literalinclude\} examples/(\w+)\.py", PAGE)


@pytest.mark.parametrize("name", SHOWN)
def test_a_recipe_has_at_most_100_lines(name: str) -> None:
    assert len((DOCS / f"examples/{name}.py").read_text(encoding="utf-8").splitlines()) <= 100


# ---- federated server

COUNTER = "bn.num_batches_tracked"


def model() -> dict[str, np.ndarray]:
    return {"w": RANDOM.standard_normal((3, 2)), "b": np.zeros(2), COUNTER: np.array(7)}


def replies_to(state: dict[str, np.ndarray], seed: int) -> dict[str, Any]:
    """Return what three clients make of a model."""
    random = np.random.default_rng(seed)
    return {
        name: (samples, {
            key: a + 1 + k if key == COUNTER else a - 0.1 * random.standard_normal(a.shape)
            for key, a in state.items()
        })
        for k, (name, samples) in enumerate({"ann": 30, "bob": 10, "cy": 60}.items())
    }  # fmt: skip


def test_a_round_is_a_step_towards_the_mean() -> None:
    state = model()
    server = example("federated_server").Server(state, SGD(1.0))
    replies = replies_to(state, 0)
    assert server.finish_round(replies) == []
    for name in ("w", "b"):
        wanted = np.average([each[name] for _, each in replies.values()], 0, [30, 10, 60])
        np.testing.assert_allclose(server.state[name], wanted, 1e-12)
    assert server.state[COUNTER] == 10 and server.state[COUNTER].dtype == state[COUNTER].dtype
    assert state[COUNTER] == 7  # which the server has copied


def test_a_client_that_is_not_finite_is_left_out() -> None:
    federated = example("federated_server")
    state = model()
    replies = replies_to(state, 0)
    replies["bob"][1]["w"][0, 0] = np.nan
    replies["bob"][1][COUNTER] += 99
    servers = [federated.Server(state, Adam(0.1)) for _ in range(2)]
    assert servers[0].finish_round(replies) == ["bob"]
    assert servers[1].finish_round({k: each for k, each in replies.items() if k != "bob"}) == []
    for name in state:
        np.testing.assert_array_equal(servers[0].state[name], servers[1].state[name])
    before = copy.deepcopy(servers[0].state)
    for _, each in replies.values():
        each["b"][0] = np.inf
    with pytest.raises(NotFiniteError):
        servers[0].finish_round(replies)
    assert servers[0].round == 1
    for name in state:
        np.testing.assert_array_equal(servers[0].state[name], before[name])


@pytest.mark.parametrize("made", [lambda: SGD(1.0, momentum=0.9), lambda: Adam(0.1),
                                  lambda: Yogi(0.1), lambda: Adagrad(0.1)])  # fmt: skip
def test_a_server_goes_on_from_its_last_round(made: Any, tmp_path: Path) -> None:
    """With the same bits, whichever order the clients answer in."""
    federated = example("federated_server")
    start, path = model(), str(tmp_path / "run.npz")
    whole = federated.Server(start, made())
    for k in range(5):
        server = federated.Server(start, made(), path)  # killed after each round
        assert server.round == k
        replies = replies_to(server.state, k)
        server.finish_round(dict(reversed(replies.items())))
        whole.finish_round(replies)
    for name, array in whole.state.items():
        np.testing.assert_array_equal(server.state[name], array)


# ---- estimator


def test_the_estimator_is_one_for_scikit_learn() -> None:
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    network = example("network_estimator")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checks.check_estimator(network.NetworkRegressor(random_state=0))


def test_the_estimator_learns_with_any_loss_and_optimizer() -> None:
    pytest.importorskip("sklearn")
    network = example("network_estimator")
    X = RANDOM.standard_normal((2000, 3)).astype(np.float32)
    y = np.abs(X[:, 0]) - X[:, 1] + 0.1 * RANDOM.standard_normal(2000)
    optimizer = AdamW(0.01, weight_decay=1e-4)
    for quantile in (None, 0.1, 0.9):
        loss = network.squared if quantile is None else network.Pinball(quantile)
        fitted = network.NetworkRegressor(loss=loss, optimizer=optimizer, epochs=80, random_state=0)
        predicted = fitted.fit(X, y).predict(X)
        if quantile is None:
            assert fitted.score(X, y) > 0.95
        else:
            assert abs(np.mean(y < predicted) - quantile) < 0.05
        again = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_array_equal(again.predict(X), predicted)
        np.testing.assert_array_equal(again.fit(X, y).predict(X), predicted)
    assert int(optimizer.iterations) == 0  # a copy has taken the steps
