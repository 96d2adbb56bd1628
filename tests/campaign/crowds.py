"""Threads and processes at once: on one optimizer and on several, beside BLAS and torch."""

from __future__ import annotations

import multiprocessing
import warnings
from importlib.util import find_spec
from typing import Any

import joblib
import numpy as np
from common.cases import RULES, arrays_for, ordinary_hypers
from common.interrupted import MAKERS
from common.step_cases import everything, gradients, params
from common.updates import update

import tfopt
from campaign.calls import one
from campaign.check import drawn
from campaign.shared_state import CASES, CROWD, at_once
from tfopt import IndexedSlices, optimizers, selftest
from tfopt.linear_model import SDCAClassifier


def _own(random: np.random.Generator) -> int:
    """Each thread has an optimizer of its own."""
    names = [one(random, [n for n in MAKERS if "catching" not in n]) for _ in range(CROWD)]

    def run(name: str) -> Any:
        optimizer, variables = MAKERS[name](), params()
        for seed in range(4):
            optimizer.step(variables, gradients(variables, seed))
        return everything(optimizer, variables)

    found: dict[int, Any] = {}
    at_once([lambda k=k, name=name: found.update({k: run(name)}) for k, name in enumerate(names)])
    for k, name in enumerate(names):
        assert found[k] == run(name), f"{name}, beside {names}"
    return 4 * CROWD


def _shared(random: np.random.Generator) -> int:
    """All threads step the variables of one optimizer, under locks: as one after another."""
    make = one(
        random,
        (
            lambda: optimizers.Adam(0.5, use_locking=True),
            lambda: optimizers.SGD(0.5, 0.5, use_locking=True),
            lambda: optimizers.Adagrad(0.5, use_locking=True, sparse="lazy"),
            lambda: optimizers.WeightAverage(optimizers.Adam(0.5, use_locking=True)),
            lambda: optimizers.ParameterGroups(optimizers.Adam(0.5, use_locking=True), []),
        ),
    )
    steps = int(random.integers(1, 6))
    rows = IndexedSlices(np.ones((40, 3)), np.arange(40) % 17)

    def begun() -> Any:
        variables = {"w": np.zeros(30_000), "table": np.zeros((20, 3)), "v": np.zeros(500)}
        grads = {"w": np.ones(30_000), "table": rows, "v": np.ones(500)}
        return make(), variables, grads

    def steps_of(optimizer: Any, variables: Any, grads: Any) -> None:
        for _ in range(steps):
            optimizer.step(variables, grads)

    optimizer, variables, grads = begun()
    optimizer.step(variables, grads)
    at_once([lambda: steps_of(optimizer, variables, grads)] * CROWD)
    other, same, grads = begun()
    for _ in range(1 + steps * CROWD):
        other.step(same, grads)
    assert everything(optimizer, variables) == everything(other, same), type(optimizer).__name__
    return steps * CROWD


def _rules(random: np.random.Generator) -> int:
    """Kernels in all threads, each of its own arrays, while one changes the number of threads."""
    rules = [one(random, RULES) for _ in range(CROWD)]

    def result(rule: Any) -> bytes:
        operands = arrays_for(rule, (500, 90), "f4")
        update(tfopt, rule.name, *operands, **ordinary_hypers(rule))
        return b"".join(operand.tobytes() for operand in operands)

    def settings() -> None:
        for k in range(20):
            tfopt.threads.set_num_threads(1 + k % 4)

    found: dict[int, bytes] = {}
    works = [lambda k=k, rule=rule: found.update({k: result(rule)}) for k, rule in enumerate(rules)]
    at_once([*works, settings])
    for k, rule in enumerate(rules):
        assert found[k] == result(rule), rule.name
    return CROWD


def _beside(random: np.random.Generator) -> int:
    """Fits and clipping beside products of matrices by BLAS and, where it is, torch."""
    X = random.standard_normal((400, 8))
    y = X[:, 0] > 0

    def fit() -> bytes:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return SDCAClassifier(max_iter=5).fit(X, y).coef_.tobytes()

    def clip() -> bytes:
        tensors = [np.full((300, 300), 2.0), np.ones(9000)]
        return b"".join(each.tobytes() for each in tfopt.clip_by_global_norm(tensors, 1.0)[0])

    def product() -> bytes:
        return (np.ones((300, 300)) @ np.ones((300, 300))).tobytes()

    def torch_product() -> bytes:
        import torch

        return (torch.ones(300, 300) @ torch.ones(300, 300)).numpy().tobytes()

    works = [fit, clip, product, *([torch_product] if find_spec("torch") else [])]
    expected = [work() for work in works]
    found: dict[int, bytes] = {}
    at_once([lambda k=k: found.update({k: works[k % len(works)]()}) for k in range(CROWD)])
    for k in range(CROWD):
        assert found[k] == expected[k % len(works)], works[k % len(works)].__name__
    return CROWD


def _digest(name: str) -> str:
    tfopt.threads.set_num_threads(2)
    return selftest.digests([name])[name]


def _processes(random: np.random.Generator) -> int:
    """Processes of every start method of Python's, and of every back end of joblib's."""
    names = random.choice([*selftest.recorded()], 4, replace=False).tolist()
    expected = [selftest.recorded()[name] for name in names]
    assert [_digest(name) for name in names] == expected
    way = one(random, ("fork", "spawn", "forkserver", "loky", "threading", "multiprocessing"))
    if way in multiprocessing.get_all_start_methods():
        with multiprocessing.get_context(way).Pool(2) as pool:
            found = pool.map_async(_digest, names).get(timeout=60)
    else:
        with joblib.parallel_config(way, n_jobs=2):
            found = joblib.Parallel(timeout=60)(joblib.delayed(_digest)(name) for name in names)
    assert found == expected, f"{way}, {names}"
    return len(names)


def _case(random: np.random.Generator) -> int:
    """Threads or processes at once, on one optimizer or several, beside BLAS, torch and joblib."""
    tfopt.threads.set_num_threads(int(random.integers(1, 4)))
    ours = (_own, _own, _shared, _shared, _rules, _rules, _beside, _processes)
    tried = one(random, (*ours, *CASES))
    return tried(random)


CHECK = drawn("crowds", _case)
