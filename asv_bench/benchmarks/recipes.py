"""The programs of docs/recipes.md against the libraries that are usually taken for them.

Both run in turns in one process, on one thread, and the CPU times are compared.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from .common import HERE, public

#: How often each of two programs runs.
ROUNDS = 7


class Pair(NamedTuple):
    """A recipe, and what it is compared with: both do the same with the same data."""

    ours: Callable[[], Any]
    theirs: Callable[[], Any]


def example(name: str) -> Any:
    """Return a program of docs/examples; skip the benchmark if this tfopt lacks what it needs."""
    folder = str(HERE.parents[1] / "docs/examples")
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        return import_module(name)
    except ImportError as error:
        raise NotImplementedError(f"{name} needs what is not there: {error}") from error


def needed(module: str) -> None:
    if find_spec(module) is None:
        raise NotImplementedError(f"{module} is not installed")


# ---- federated server

MEMBERS, SIZE = 10, 1 << 22


def _federation() -> tuple[Any, Any, list[np.ndarray]]:
    """Return a server of ours, Flower's strategy, and the clients' models."""
    needed("flwr")
    from flwr.common import ndarrays_to_parameters
    from flwr.server.strategy import FedAdam

    random = np.random.default_rng(0)
    base = random.standard_normal(SIZE, np.float32)
    clients = [base + 0.01 * random.standard_normal(SIZE, np.float32) for _ in range(MEMBERS)]
    strategy = FedAdam(
        initial_parameters=ndarrays_to_parameters([base]), eta=0.01, beta_1=0.9, beta_2=0.99,
        tau=1e-3,
    )  # fmt: skip
    adam = public("optimizers.Adam")(0.01, 0.9, 0.99, epsilon=1e-3)
    return example("federated_server").Server({"w": base}, adam), strategy, clients


def federated_round() -> Pair:
    """From the clients' messages to the next one."""
    server, strategy, clients = _federation()
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays

    messages = [
        FitRes(Status(Code.OK, ""), ndarrays_to_parameters([client]), 100 + k, {})
        for k, client in enumerate(clients)
    ]

    def ours() -> None:
        replies = {
            str(k): (message.num_examples, {"w": parameters_to_ndarrays(message.parameters)[0]})
            for k, message in enumerate(messages)
        }
        server.finish_round(replies)
        ndarrays_to_parameters([server.model["w"]])

    return Pair(ours, lambda: strategy.aggregate_fit(2, [(None, each) for each in messages], []))


def federated_arrays() -> Pair:
    """The mean and the step: what Flower's strategy does between its messages."""
    server, strategy, clients = _federation()
    from flwr.server.strategy.aggregate import aggregate

    replies = {str(k): (100 + k, {"w": client}) for k, client in enumerate(clients)}
    weights = server.model["w"].copy()
    moments = np.zeros((2, SIZE), np.float32)

    def theirs() -> None:
        (mean,) = aggregate([([client], 100 + k) for k, client in enumerate(clients)])
        delta = mean - weights
        moments[0] = strategy.beta_1 * moments[0] + (1 - strategy.beta_1) * delta
        moments[1] = strategy.beta_2 * moments[1] + (1 - strategy.beta_2) * np.multiply(
            delta, delta
        )
        _ = weights + strategy.eta * moments[0] / (np.sqrt(moments[1]) + strategy.tau)

    return Pair(lambda: server.finish_round(replies), theirs)


# ---- offloading trainer

#: The widths and the number of the layers of a transformer, whose weights these are: 25 M.
WIDTH, LAYERS = 512, 8


def offloading(clips: bool) -> Pair:
    """From gradients in bfloat16 to weights in bfloat16."""
    needed("torch")
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    shapes = [(3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (WIDTH,)]
    model = torch.nn.ParameterList(
        [torch.randn(shape, dtype=torch.bfloat16) for shape in shapes * LAYERS]
    )
    grads = [torch.randn(p.shape, dtype=torch.bfloat16) / 100 for p in model]
    masters = [p.detach().float().requires_grad_() for p in model]
    halves = [p.detach().clone() for p in model]
    adamw = torch.optim.AdamW(masters, 1e-3, weight_decay=0.01, fused=True)
    limit = {"global_clipnorm": 1.0} if clips else {}
    trainer = example("offloading_trainer").Trainer(
        model, public("optimizers.AdamW")(1e-3, weight_decay=0.01, **limit)
    )

    def ours() -> None:
        for k, (parameter, grad) in enumerate(zip(model, grads, strict=True)):
            parameter.grad = grad
            trainer._add(str(k), parameter)
        trainer._arriving.take()

    def theirs() -> None:
        for master, grad in zip(masters, grads, strict=True):
            master.grad = grad.float()
        if clips:
            torch.nn.utils.clip_grad_norm_(masters, 1.0)
        adamw.step()
        with torch.no_grad():
            torch._foreach_copy_(halves, masters)

    return Pair(ours, theirs)


# ---- two towers

ROWS, COLUMNS, BAGS, IDS = 200_000, 64, 1024, 20


def two_towers() -> Pair:
    """A step of 1024 users and items: 20 ids in each bag, by the same rules."""
    needed("torch")
    import torch

    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    towers = example("two_towers").TwoTowers(dict.fromkeys(("users", "items"), ROWS), COLUMNS)
    batch = {
        name: (random.zipf(1.2, BAGS * IDS) % ROWS, np.arange(BAGS) * IDS) for name in towers.tables
    }
    bags = {name: torch.nn.EmbeddingBag(ROWS, COLUMNS, mode="mean", sparse=True) for name in batch}
    layers = {name: torch.nn.Linear(COLUMNS, COLUMNS, bias=False) for name in batch}
    for name, table in towers.tables.items():
        bags[name].weight.data.copy_(torch.from_numpy(table))
        layers[name].weight.data.copy_(torch.from_numpy(towers.layers[name].numpy().T.copy()))
    tables = torch.optim.Adagrad([each.weight for each in bags.values()], 0.05)
    dense = torch.optim.Adam([each.weight for each in layers.values()], 1e-3)
    given = {name: [torch.from_numpy(part) for part in bag] for name, bag in batch.items()}
    places = torch.arange(BAGS)

    def theirs() -> float:
        users, items = (torch.tanh(layers[name](bags[name](*given[name]))) for name in batch)
        loss = torch.nn.functional.cross_entropy(users @ items.T, places)
        loss.backward()
        for optimizer in (tables, dense):
            optimizer.step()
            optimizer.zero_grad()
        return float(loss.detach())

    return Pair(lambda: towers.step(batch), theirs)


# ---- click stream

LINES, FIELDS = 50_000, 20


def _clicks(folder: Path) -> tuple[Callable[[], Any], list[list[str]]]:
    """Return what learns a log that it writes, and the rows."""
    random = np.random.default_rng(0)
    fields = random.zipf(1.3, (LINES, FIELDS)) % 100_000
    clicked = random.random(LINES) < 1 / (1 + np.exp(1 + (fields[:, 0] % 7 - 3) / 2))
    rows = [
        [str(int(y)), *(f"{value:x}" for value in row)]
        for y, row in zip(clicked, fields.tolist(), strict=True)
    ]
    (folder / "log.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    stream = example("click_stream").Clicks

    def ours() -> None:
        (folder / "model").unlink(missing_ok=True)
        for _ in stream(str(folder / "model")).learn(str(folder / "log.tsv")):
            pass

    return ours, rows


def clicks_beside_vw() -> Pair:
    """A log to a model, each from a file in its own format."""
    needed("vowpalwabbit")
    import vowpalwabbit

    folder = Path(tempfile.mkdtemp())
    ours, rows = _clicks(folder)
    with (folder / "log.vw").open("w") as file:
        for label, *texts in rows:
            features = " ".join(f"{k}={text}" for k, text in enumerate(texts, 1))
            file.write(f"{2 * int(label) - 1} | {features}\n")
    options = (
        "--ftrl --ftrl_alpha 0.1 --ftrl_beta 1 --l1 0.5 --loss_function logistic -b 18 --quiet "
        f"--no_stdin -d {folder / 'log.vw'}"
    )

    def theirs() -> None:
        workspace = vowpalwabbit.Workspace(options)
        workspace.run_parser()
        workspace.finish()

    return Pair(ours, theirs)


def clicks_beside_scikit_learn() -> Pair:
    """The same from Python's strings, by stochastic gradients."""
    needed("sklearn")
    from sklearn.feature_extraction import FeatureHasher
    from sklearn.linear_model import SGDClassifier

    folder = Path(tempfile.mkdtemp())
    ours, _ = _clicks(folder)
    hasher = FeatureHasher(2**18, input_type="string")

    def theirs() -> None:
        model = SGDClassifier(loss="log_loss", random_state=0)
        with (folder / "log.tsv").open() as file:
            while lines := [line.rstrip("\n").split("\t") for line in islice(file, 5000)]:
                X = hasher.transform([f"{k}={v}" for k, v in enumerate(row[1:])] for row in lines)
                model.partial_fit(X, [int(row[0]) for row in lines], classes=[0, 1])

    return Pair(ours, theirs)


# ---- estimator


def estimator() -> Pair:
    """Ten epochs of least squares: 16 000 rows of 20 features, 100 hidden units."""
    needed("sklearn")
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    random = np.random.default_rng(0)
    X = random.standard_normal((16_000, 20), np.float32)
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    ours = example("network_estimator").NetworkRegressor(epochs=10, random_state=0)
    theirs = MLPRegressor(max_iter=10, alpha=0.0, tol=0.0, n_iter_no_change=99, random_state=0)

    def fit() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            theirs.fit(X, y)

    return Pair(lambda: ours.fit(X, y), fit)


# ---- what asv measures

PAIRS: dict[str, Callable[[], Pair]] = {
    "federated server, messages": federated_round,
    "federated server, arrays": federated_arrays,
    "offloading trainer, clipped": lambda: offloading(True),
    "offloading trainer, not clipped": lambda: offloading(False),
    "two towers": two_towers,
    "click stream, Vowpal Wabbit": clicks_beside_vw,
    "click stream, scikit-learn": clicks_beside_scikit_learn,
    "estimator": estimator,
}


class Recipes:
    """CPU milliseconds of each program, and how often ours runs while the other one runs once."""

    params = list(PAIRS)
    param_names = ("recipe",)

    def setup(self, recipe: str) -> None:
        public("threads.set_num_threads")(1)
        self.pair = PAIRS[recipe]()
        self.times: list[float] = []

    def _turn(self) -> list[float]:
        """Return the median milliseconds of both, which take turns."""
        found: list[list[float]] = [[], []]
        for _ in range(ROUNDS):
            for times, call in zip(found, self.pair, strict=True):
                start = process_time()
                call()
                times.append(1e3 * (process_time() - start))
        return [median(times) for times in found]

    def track_speed_relative_to_rival(self, recipe: str) -> float:
        self.times = self._turn()
        ours, theirs = self.times
        return theirs / ours

    def track_milliseconds(self, recipe: str) -> float:
        return (self.times or self._turn())[0]

    def track_rivals_milliseconds(self, recipe: str) -> float:
        return (self.times or self._turn())[1]
