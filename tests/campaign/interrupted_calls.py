"""Calls for signals to interrupt, and what they may change."""

from __future__ import annotations

import _thread
import copy
import functools
import logging
import os
from collections.abc import Callable
from contextlib import redirect_stderr
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from common.cases import RULES, arrays_for, ordinary_hypers
from common.dask_fits import FITTED, OPTIONS, fit
from common.interrupted import MAKERS, wait_for_threads
from common.step_cases import everything, frozen, gradients, params
from common.updates import update
from distributed import Client

import tfopt
import tfopt.dask
from campaign.calls import one
from tfopt import checkpoints, optimizers
from tfopt.cli import main
from tfopt.io import read_libsvm
from tfopt.linear_model import (
    FTRLClassifier,
    SDCAClassifier,
    SDCARegressor,
    load_model,
    save_model,
)
from tfopt.optimizers.state import slot_storage

__all__ = ["TARGETS", "Target"]


class Target(NamedTuple):
    """A call, and what it may change, as something to compare."""

    call: Callable[[], Any]
    state: Callable[[], Any]


def _step(random: np.random.Generator, folder: Path) -> Callable[[], Target]:
    """A step of any optimizer in any wrapper, of several kinds of variables."""
    which, constrained, taken = one(random, [*MAKERS]), bool(random.integers(2)), random.integers(3)
    late = which.startswith("catching up")

    def make() -> Target:
        optimizer, variables = MAKERS[which](), params(constrained)
        if late:  # of 16 bits no row catches up
            del variables["half"]
        for seed in range(int(taken)):
            optimizer.step(variables, gradients(variables, seed))
        grads = gradients(variables, 100)
        return Target(
            lambda: optimizer.step(variables, grads),
            lambda: everything(optimizer, variables, late),
        )

    return make


def _load(random: np.random.Generator, folder: Path) -> Callable[[], Target]:
    """A state that is loaded, from memory or a file, into a new optimizer or one with another."""
    which, taken, from_file = one(random, [*MAKERS]), random.integers(3), random.integers(2)
    late = which.startswith("catching up")

    def begun(steps: int) -> tuple[Any, dict[str, Any]]:
        optimizer, variables = MAKERS[which](), params()
        if late:  # of 16 bits no row catches up
            del variables["half"]
        for seed in range(steps):
            optimizer.step(variables, gradients(variables, seed))
        return optimizer, variables

    source, theirs = begun(4)
    state = copy.deepcopy(source.state_dict(theirs))
    path = folder / one(random, ("x.npz", "x.safetensors"))
    checkpoints.save(path, state)

    def make() -> Target:
        optimizer, variables = begun(int(taken))
        if from_file:
            call = partial(optimizer.load, path, variables)
        else:
            call = partial(optimizer.load_state_dict, state, variables)
        return Target(call, lambda: everything(optimizer, variables, late))

    return make


def _weights(random: np.random.Generator, folder: Path) -> Callable[[], Target]:
    """Weights that are set as a list."""
    which = one(random, [*MAKERS])
    late = which.startswith("catching up")

    def make() -> Target:
        optimizer, variables = MAKERS[which](), params()
        if late:
            del variables["half"]
        optimizer.step(variables, gradients(variables, 0))
        optimizer.flush()
        others = [array + array for array in optimizer.get_weights()]
        return Target(
            lambda: optimizer.set_weights(others), lambda: everything(optimizer, variables, late)
        )

    return make


def _convert(random: np.random.Generator, folder: Path) -> Callable[[], Target]:
    """Slots that get stored in other ways."""
    cls, kinds = one(random, (optimizers.Adam, optimizers.Lion)), (None, *slot_storage.KINDS)
    first, second = (kinds[k] for k in random.choice(len(kinds), 2, replace=False))
    values = random.standard_normal((7, 90, 60)).astype(np.float32)

    def make() -> Target:
        optimizer, variables = cls(0.1, storage=first), [value.copy() for value in values]
        optimizer.step(variables, [*values])
        return Target(
            lambda: optimizer.convert_storage(second), lambda: everything(optimizer, variables)
        )

    return make


def _loss(w: Any, x: Any) -> Any:
    return np.mean(np.tanh(x @ w) ** 2) + np.sum(w * w)


def _minimized(random: np.random.Generator, folder: Path) -> Callable[[], Target]:
    """A step by a tape's gradients, traced or not."""
    which, traced = one(random, ("Adam", "GradientAccumulation", "clipped")), random.integers(2)
    x = random.standard_normal((40, 30))

    def make() -> Target:
        w, optimizer = tfopt.Variable(np.ones((30, 8))), MAKERS[which]()

        def minimize() -> None:
            with tfopt.GradientTape() as tape:
                loss = _loss(w, x)
            optimizer.apply_gradients([(tape.gradient(loss, w), w)])

        call = tfopt.function(minimize) if traced else minimize
        call()
        return Target(call, lambda: everything(optimizer, [w]))

    return make


def _tape(random: np.random.Generator, folder: Path) -> Callable[[], Target]:
    """Gradients of gradients; no tape that is left records on."""
    x, w = random.standard_normal((20, 9)), np.ones((9, 3))

    def gradient() -> Any:
        v = tfopt.Variable(w)
        with tfopt.GradientTape() as outer:
            with tfopt.GradientTape() as inner:
                loss = _loss(v, x)
            first = inner.gradient(loss, v)
        return outer.gradient(first, v)

    def state() -> Any:
        assert type(np.sum(tfopt.Variable(w).numpy() * 2)) is np.float64
        return frozen(np.asarray(gradient()))

    return lambda: Target(gradient, state)


def _rule(random: np.random.Generator, folder: Path) -> Callable[[], Target]:
    """A call of a rule's function, of a variable, of rows or of a list."""
    rule, kind = one(random, RULES), one(random, ("dense", "rows", "list"))
    kind = "dense" if rule.reduction == "tensor" else kind

    def make() -> Target:
        operands, hypers = arrays_for(rule, (400, 100), "f4"), ordinary_hypers(rule)
        if kind == "list":
            many = [[array, array.copy()] for array in operands]
            apply = partial(getattr(tfopt.training_ops, f"apply_{rule.name}"), *many, **hypers)
            return Target(apply, lambda: frozen(many))
        rows = {"indices": np.arange(400)[::-1] // 2, "duplicates": "sum"} if kind == "rows" else {}
        return Target(
            lambda: update(tfopt, rule.name, *operands, **hypers, **rows), lambda: frozen(operands)
        )

    return make


def _clip(random: np.random.Generator, folder: Path) -> Callable[[], Target]:
    """Clipping in place."""

    def make() -> Target:
        arrays = [np.full((50, 900), 3.0), np.ones(3000), np.ones((2, 2))]
        return Target(
            lambda: tfopt.clip_by_global_norm(arrays, 1.0, out=arrays), lambda: frozen(arrays)
        )

    return make


def _checkpoint(random: np.random.Generator, folder: Path) -> Callable[[], Target]:
    """A checkpoint that is replaced: the old one or the new one, and no other file or thread."""
    path = folder / one(random, ("x.npz", "x.safetensors"))
    size = int(one(random, (10, 5_000, 3_000_000)))
    count = _thread._count()

    def state() -> Any:
        assert os.listdir(folder) == [path.name], os.listdir(folder)
        wait_for_threads(count, 0)
        return frozen(checkpoints.load(path))

    def make() -> Target:
        checkpoints.save(path, {"w": np.zeros(size)})
        return Target(lambda: checkpoints.save(path, {"w": np.ones(size)}), state)

    return make


def _model(random: np.random.Generator, folder: Path) -> Callable[[], Target]:
    """A model file that is replaced."""
    path = folder / one(random, ("model.npz", "model.json"))
    model = SDCAClassifier().fit([[0.0], [1.0]], [0, 1])

    def state() -> Any:
        assert os.listdir(folder) == [path.name], os.listdir(folder)
        return frozen(load_model(path).coef_)

    def make() -> Target:
        model.coef_[0] = 1
        save_model(path, model)
        model.coef_[0] = 2
        return Target(lambda: save_model(path, model), state)

    return make


def _fitted(model: Any) -> Any:
    """Return all attributes but the records, which say when something was."""
    return frozen({name: value for name, value in vars(model).items() if name != "history_"})


def _fit(random: np.random.Generator, folder: Path) -> Callable[[], Target]:
    """A fit of a linear model, first or again, from where the last one ended, or a part of one."""
    X = random.standard_normal((300, 6))
    y, kind = X[:, 0] + X[:, 1] > random.standard_normal(300), random.integers(5)
    solver, count = one(random, ("sdca", "newton-cholesky", "newton-cg")), _thread._count()
    in_blocks = {"num_loss_partitions": [50] * 4, "n_jobs": 2} if kind == 4 else {}
    solver = "auto" if in_blocks else solver

    def state(model: Any) -> Any:
        wait_for_threads(count, 0)
        return _fitted(model)

    def make() -> Target:
        if kind == 3:
            online = FTRLClassifier()
            online.partial_fit(X[:100], y[:100], classes=[False, True])
            return Target(lambda: online.partial_fit(X, y), lambda: _fitted(online))
        cls = SDCAClassifier if kind else SDCARegressor
        model = cls(solver=solver, warm_start=kind == 2, max_iter=20, tol=1e-6, **in_blocks)
        model.fit(X[:200], y[:200])
        return Target(lambda: model.fit(X[:200], ~y[:200]), lambda: state(model))

    return make


def _text(random: np.random.Generator, folder: Path) -> Callable[[], Target]:
    """Reading a file: whatever was interrupted, the next reader reads it whole."""
    path = folder / "x.svm"
    lines = [f"{k % 2} 1:{k} 7:{k / 7!r}\n" for k in range(int(one(random, (50, 20_000))))]
    path.write_text("".join(lines))

    def state() -> Any:
        data = read_libsvm(path)
        return frozen([data.y, data.X.data, data.X.indices])

    return lambda: Target(lambda: read_libsvm(path), state)


@functools.cache
def _cluster() -> Client:
    """Return the client of a cluster in this process, as long as it lives."""
    return Client(
        processes=False,
        n_workers=1,
        threads_per_worker=2,
        dashboard_address=":0",
        silence_logs=logging.CRITICAL,
    )


def _resumed(random: np.random.Generator, folder: Path) -> Callable[[], Target]:
    """A run of the command line that goes on from a checkpoint, until its model is replaced."""
    data, model, saved = (folder / name for name in ("data.svm", "model.npz", "saved.npz"))
    values = random.standard_normal((60, 5))
    rows = (" ".join(f"{j + 1}:{x:.6g}" for j, x in enumerate(row)) for row in values)
    labels = random.integers(2, size=60)
    data.write_text("".join(f"{y} {row}\n" for y, row in zip(labels, rows, strict=True)))
    options = ["--solver", "ftrl", "--loss", one(random, ("logistic", "squared", "hinge"))]
    options += ["--epochs", "3", "--quiet", "--model", str(model), "--checkpoint", str(saved)]
    options = ["train", str(data), *options, "--checkpoint-every", "1"]
    save = checkpoints.save

    def save_once(*arguments: Any) -> None:
        save(*arguments)
        raise KeyboardInterrupt

    with mock.patch.object(checkpoints, "save", save_once):
        _main(options, code=130)
    begun = saved.read_bytes()

    def make() -> Target:
        saved.write_bytes(begun)
        model.write_bytes(b"that of another run")
        return Target(lambda: _main([*options, "--resume"]), model.read_bytes)

    return make


def _main(arguments: list[str], code: int = 0) -> None:
    """Run the command line, which catches interrupts itself."""
    with redirect_stderr(StringIO()):
        found = main(arguments)
    if found == 130 != code:
        raise KeyboardInterrupt
    assert found == code, found


def _resumed_on_cluster(random: np.random.Generator, folder: Path) -> Callable[[], Target]:
    """A fit to blocks that goes on from a checkpoint."""
    saved = str(folder / "saved")
    _cluster()  # which fits then find
    begun = {**OPTIONS, "max_iter": int(random.integers(2, 5))}
    fit(tfopt.dask.SDCAClassifier(**begun, checkpoint=saved, checkpoint_every=1))

    def make() -> Target:
        model = tfopt.dask.SDCAClassifier(**OPTIONS)
        return Target(partial(fit, model, resume=saved), partial(_attributes, model))

    return make


def _attributes(model: Any) -> list[bytes | None]:
    """Return the results of a fit on a cluster, where dual variables are, too."""
    return [
        np.asarray(getattr(model, name)).tobytes() if hasattr(model, name) else None
        for name in FITTED
    ]


TARGETS = (
    _step,
    _step,
    _step,
    _load,
    _load,
    _weights,
    _convert,
    _resumed,
    _resumed_on_cluster,
    _minimized,
    _tape,
    _rule,
    _clip,
    _checkpoint,
    _model,
    _fit,
    _text,
)
