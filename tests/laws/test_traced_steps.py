"""Steps in a traced function: each call does what the function's statements do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from common.step_cases import every_optimizer, everything, frozen, params

import tfopt
from tfopt import GradientTape, IndexedSlices, Variable
from tfopt.optimizers import Adam, Optimizer

MAKERS = {
    **every_optimizer(),
    "locked": lambda: Adam(0.5, use_locking=True),
    "clipped": lambda: Adam(0.5, global_clipnorm=0.5),
    "transformed": lambda: Adam(
        0.5,
        gradient_aggregator=lambda pairs: [(3 * g, v) for g, v in pairs],
        gradient_transformers=[lambda pairs: [(2 * g, v) for g, v in pairs]],
    ),
}
Body = Callable[[Optimizer, dict[str, Any], Any], Any]


def by_loss(**options: Any) -> Body:
    def body(opt: Optimizer, variables: dict[str, Any], x: Any) -> Any:
        wide = [variables["dense"], variables["column"]]
        return opt.minimize(lambda: sum(np.sum(w * w * x) for w in wide), wide, **options)

    return body


def by_tape(opt: Optimizer, variables: dict[str, Any], x: Any) -> Any:
    wide = [variables["dense"], variables["column"]]
    with GradientTape() as tape:
        loss = sum(np.sum(w * w * x) for w in wide)
    return opt.minimize(loss, wide, tape=tape)


def by_pair(opt: Optimizer, variables: dict[str, Any], x: Any) -> Any:
    grads = [x * np.ones(5), x * np.ones(6)]
    return opt.minimize(lambda: (x, grads), [variables["dense"], variables["column"]])


def applied(**options: Any) -> Body:
    def body(opt: Optimizer, variables: dict[str, Any], x: Any) -> Any:
        rows = IndexedSlices(np.ones((2, 2), np.float32), np.array([1, 1]))
        pairs = [(x * np.ones(5), variables["dense"]), (rows, variables["table"])]
        return opt.apply_gradients(pairs, **options)

    return body


def stepped(opt: Optimizer, variables: dict[str, Any], x: Any) -> Any:
    grads = {"dense": x * np.ones(5), "column": None}
    return opt.step({name: variables[name] for name in grads}, grads)


def flushed(opt: Optimizer, variables: dict[str, Any], x: Any) -> Any:
    applied()(opt, variables, x)
    opt.catch_up(variables["table"], [1, 2])
    opt.flush()
    return opt.iterations


BODIES: dict[str, Body] = {
    "apply_gradients": applied(),
    "apply_gradients, an iterator": lambda opt, variables, x: opt.apply_gradients(
        iter([(x * np.ones(5), variables["dense"])])
    ),
    "apply_gradients, its options": applied(name="n", experimental_aggregate_gradients=False),
    "step": stepped,
    "minimize": by_loss(),
    "minimize, a function of variables": lambda opt, variables, x: opt.minimize(
        lambda: np.sum(variables["dense"] * x), lambda: [variables["dense"]]
    ),
    "minimize, grad_loss": by_loss(grad_loss=2.0, name="n"),
    "minimize, tape": by_tape,
    "minimize, a pair": by_pair,
    "catch_up and flush": flushed,
}


def variables_of(which: str) -> dict[str, Any]:
    arrays = params()
    return {name: Variable(array, name) for name, array in arrays.items()}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("which", MAKERS)
def test_a_traced_step_is_a_step(which: str, body: str) -> None:
    results = []
    for traced in (False, True):
        opt, variables = MAKERS[which](), variables_of(which)

        step = partial(BODIES[body], opt, variables)
        call = tfopt.function(lambda x, step=step: step(x)) if traced else step
        found = []
        for x in (1.0, 0.5, 2.0):
            count = call(tfopt.constant(x))
            found.append((int(count), everything(opt, variables)))
        results.append(found)
    assert results[0] == results[1]


def one_step(opt: Optimizer, w: dict[str, np.ndarray], x: Any) -> Any:
    return opt.step(w, {"w": x})


@pytest.mark.parametrize("which", ["Adam", "GradientAccumulation", "Written"])
def test_a_traced_step_reads_arrays_that_are_no_variables(which: str) -> None:
    results = []
    for traced in (False, True):
        opt, w = MAKERS[which](), {"w": np.ones(3)}

        step = partial(one_step, opt, w)
        call = tfopt.function(lambda x, step=step: step(x)) if traced else step
        for x in (1.0, 0.5, 2.0):
            call(tfopt.constant([x, x, 0.0]))
        results.append([frozen(w), int(opt.iterations), frozen(opt.get_weights())])
    assert results[0] == results[1]


def test_weights_are_set_at_each_call() -> None:
    opt, w = Adam(0.5), Variable(np.ones(2))
    opt.apply_gradients([(np.ones(2), w)])
    kept = opt.get_weights()

    @tfopt.function
    def back_and_on(x: Any) -> Any:
        opt.set_weights(kept)
        return opt.apply_gradients([(x * np.ones(2), w)])

    counts = [int(back_and_on(tfopt.constant(x))) for x in (1.0, 2.0, 3.0)]
    assert counts == [2, 2, 2]


def test_a_state_is_loaded_at_each_call() -> None:
    opt, w = Adam(0.5), Variable(np.ones(2))
    opt.apply_gradients([(np.ones(2), w)])
    state = copy.deepcopy(opt.state_dict([w]))

    @tfopt.function
    def back_and_on(x: Any) -> Any:
        opt.load_state_dict(state, [w])
        return opt.apply_gradients([(x * np.ones(2), w)])

    assert [int(back_and_on(tfopt.constant(x))) for x in (1.0, 2.0, 3.0)] == [2, 2, 2]


def test_nothing_is_no_step() -> None:
    opt = Adam(0.5)
    assert opt.apply_gradients([]) is None
    assert tfopt.function(lambda: opt.apply_gradients([]))() is None
    assert int(opt.iterations) == 0
