"""The programs of docs/recipes.md do what the page says, on small data."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfopt.errors import NotFiniteError
from tfopt.optimizers import SGD, Adagrad, Adam, AdamW, Mirror, RowwiseAdagrad, Yogi

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


# ---- offloading trainer


def network(torch: Any) -> Any:
    torch.manual_seed(1)
    layers = torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
    return torch.nn.Sequential(*layers).to(torch.bfloat16)


def loss_of(torch: Any, model: Any, k: int) -> Any:
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(k)).to(torch.bfloat16)
    return ((model(x) - x[:, :1] * x[:, 1:2]) ** 2).mean()


def test_the_trainer_steps_as_one_call_with_all_gradients() -> None:
    """And the model's parameters are the copies in 16 bits."""
    torch = pytest.importorskip("torch")
    offloading = example("offloading_trainer")
    model, whole = network(torch), network(torch)
    trainer = offloading.Trainer(model)
    weights = {name: p.detach().float().numpy().copy() for name, p in whole.named_parameters()}
    optimizer = Mirror(AdamW(1e-3, weight_decay=0.01, global_clipnorm=1.0))
    for k in range(4):
        norm = trainer.step(loss_of(torch, model, k))
        loss_of(torch, whole, k).backward()
        grads = {name: p.grad.float().numpy() for name, p in whole.named_parameters()}
        optimizer.step(weights, grads)
        wanted = np.sqrt(sum(np.sum(np.square(g, dtype=float)) for g in grads.values()))
        np.testing.assert_allclose(norm, wanted, 1e-12)
        for name, p in whole.named_parameters():
            p.grad = None
            p.data = torch.from_numpy(weights[name]).to(torch.bfloat16)
            assert torch.equal(dict(model.named_parameters())[name], p)
            np.testing.assert_array_equal(trainer.weights[name], weights[name])
    assert trainer.steps == 4


@pytest.mark.parametrize("storage", [None, "8bit"])
def test_training_goes_on_from_a_file(storage: Any, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    offloading = example("offloading_trainer")
    made = lambda: AdamW(1e-3, global_clipnorm=1.0, storage=storage)  # noqa: E731
    model, path = network(torch), str(tmp_path / "run.safetensors")
    whole = offloading.Trainer(model, made())
    for k in range(4):
        again = network(torch)
        trainer = offloading.Trainer(again, made(), path)
        assert trainer.steps == k
        losses = [
            float(t.step(loss_of(torch, m, k))) for t, m in ((whole, model), (trainer, again))
        ]
        assert losses[0] == losses[1]
        trainer.save()
    for one, two in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, two)


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    torch = pytest.importorskip("torch")
    model = network(torch)
    trainer = example("offloading_trainer").Trainer(model)
    before = {name: w.copy() for name, w in trainer.weights.items()}
    assert not np.isfinite(trainer.step(loss_of(torch, model, 0) * float("nan")))
    assert trainer.steps == 0 and int(trainer.optimizer.iterations) == 0
    for name, weight in trainer.weights.items():
        np.testing.assert_array_equal(weight, before[name])
    assert np.isfinite(trainer.step(loss_of(torch, model, 0))) and trainer.steps == 1


# ---- click stream


def log_of_clicks(path: Path, n: int) -> list[dict[str, Any]]:
    """Write a log; return its rows as dicts, with the labels under "0"."""
    random = np.random.default_rng(0)
    rows = []
    for _ in range(n):
        site, user = random.integers(0, 5), random.integers(0, 9)
        clicked = random.random() < 1 / (1 + np.exp(3 - 1.5 * site))
        rows.append({"0": int(clicked), "1": f"site{site}", "2": f"user{user}", "3": 0.5})
    path.write_text("".join("\t".join(map(str, row.values())) + "\n" for row in rows))
    return rows


def test_a_log_is_learned_as_dicts_are_and_from_where_it_stopped(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    from tfopt.linear_model import load_model, save_model

    clicks = example("click_stream")
    log, path = tmp_path / "clicks.tsv", str(tmp_path / "model.pickle")
    rows = log_of_clicks(log, 400)
    options = {"numeric": [3], "block_size": 500}
    whole = clicks.Clicks(str(tmp_path / "whole.pickle"), **options)
    losses = list(whole.learn(str(log)))
    assert whole.rows == 400 and whole.end == log.stat().st_size and losses[-1] < 0.6
    found = []
    while clicks.Clicks(path, **options).end < log.stat().st_size:
        found.append(next(clicks.Clicks(path, **options).learn(str(log))))  # killed after a block
    assert len(found) > 5 and found == losses
    stream = clicks.Clicks(path, **options)
    np.testing.assert_array_equal(stream.model.coef_, whole.model.coef_)
    assert list(stream.learn(str(log))) == []  # nothing is new
    with log.open("a") as file:
        file.write("1\tsite9\tuser1\t0.5\n")
    assert len(list(stream.learn(str(log)))) == 1 and stream.rows == 401
    by_dicts = clicks.Clicks(str(tmp_path / "no.pickle")).model
    features = [{k: v for k, v in row.items() if k != "0"} for row in rows]
    by_dicts.partial_fit(features, [row["0"] for row in rows], classes=[0, 1])
    np.testing.assert_array_equal(by_dicts.coef_, whole.model.coef_)
    np.testing.assert_array_equal(
        whole.answer(features[:9]), by_dicts.predict_proba(features[:9])[:, 1]
    )
    save_model(tmp_path / "served.npz", whole.model)
    served = load_model(tmp_path / "served.npz")
    np.testing.assert_array_equal(
        served.predict_proba(features[:9]), whole.model.predict_proba(features[:9])
    )
    assert 20 * (tmp_path / "served.npz").stat().st_size < Path(path).stat().st_size
    low, high = whole.answer([{"1": "site0"}, {"1": "site4"}])
    assert low < 0.5 < high


def test_the_click_stream_is_a_command(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    log_of_clicks(tmp_path / "clicks.tsv", 50)
    command = [sys.executable, str(DOCS / "examples/click_stream.py"), "clicks.tsv", "m.pickle"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0 and shown.stdout.startswith("loss 0."), shown.stderr
    assert (tmp_path / "m.pickle").exists()


# ---- two towers


def pairs(seed: int) -> dict[str, Any]:
    """Return a batch of six of ten users, each of three ids, and the items that belong to them."""
    who = np.random.default_rng(seed).permutation(10)[:6]
    bag = (3 * who[:, None] + np.arange(3)).reshape(-1), 3 * np.arange(6)
    return {"users": bag, "items": bag}


@pytest.mark.parametrize("optimizer", [None, lambda: RowwiseAdagrad(0.1),
                                       lambda: Adam(0.01, sparse="lazy")])  # fmt: skip
def test_towers_learn_what_belongs_together(optimizer: Any) -> None:
    given = {} if optimizer is None else {"optimizer": optimizer()}
    towers = example("two_towers").TwoTowers({"users": 50, "items": 30}, 8, seed=1, **given)
    before = {name: table.copy() for name, table in towers.tables.items()}
    losses = [towers.step(pairs(seed)) for seed in range(400)]
    assert losses[0] > 1.5 and np.mean(losses[-20:]) < 0.5
    everyone = np.arange(30), 3 * np.arange(10)
    assert towers.score(everyone, everyone).argmax(axis=1).tolist() == list(range(10))
    for name, table in towers.tables.items():  # no other row has moved
        np.testing.assert_array_equal(table[30:], before[name][30:])
        assert (table[:30] != before[name][:30]).any(axis=1).all()


def test_towers_step_as_torch_does() -> None:
    torch = pytest.importorskip("torch")
    towers = example("two_towers").TwoTowers({"users": 50, "items": 30}, 8)
    bags, layers = {}, {}
    for name, table in towers.tables.items():
        bags[name] = torch.nn.EmbeddingBag(*table.shape, mode="mean")
        bags[name].weight.data = torch.from_numpy(table.copy())
        layers[name] = torch.nn.Linear(8, 8, bias=False)
        layers[name].weight.data = torch.from_numpy(towers.layers[name].numpy().T.copy())
    tables = torch.optim.Adagrad([each.weight for each in bags.values()], 0.05)
    dense = torch.optim.Adam([each.weight for each in layers.values()], 1e-3)
    for seed in range(10):
        batch = pairs(seed)
        found = towers.step(batch)
        users, items = (
            torch.tanh(layers[name](bags[name](*map(torch.from_numpy, bag))))
            for name, bag in batch.items()
        )
        loss = torch.nn.functional.cross_entropy(users @ items.T, torch.arange(6))
        np.testing.assert_allclose(found, float(loss.detach()), 1e-4)
        tables.zero_grad()
        dense.zero_grad()
        loss.backward()
        tables.step()
        dense.step()
