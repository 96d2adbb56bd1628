"""Refusals of steps, whose errors name the place."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from common.step_cases import ARGUMENTS, every_optimizer, everything

import tfopt
from tfopt import IndexedSlices, InvalidArgumentError, Variable
from tfopt.errors import InvalidTypeError
from tfopt.optimizers import SGD, Adam, Optimizer
from tfopt.optimizers.state.tree import leaves

MAKERS = every_optimizer()
NO_GRADIENTS: list[Any] = [
    "x", b"2", [1.0, "x"], [1.0, [2.0]], {}, object(), 3.0, True, np.ones(3), np.array(["a", "b"]),
    np.array([1, 2]), np.array([1, 2], object), np.ones(2, np.float32), np.ones((2, 1)),
    IndexedSlices(np.ones(1), np.array([2])), IndexedSlices(np.ones(1), np.array([0.0])),
    IndexedSlices(np.ones((1, 1)), np.array([0])), [10**400, 1.0],
]  # fmt: skip


@pytest.mark.parametrize("which", MAKERS)
def test_what_is_no_gradient_is_refused(which: str) -> None:
    """By an error of the package, which changes nothing: neither before nor after a first step."""
    opt, first, w = MAKERS[which](), Variable(np.ones(2), "first"), Variable(np.ones(2), "w")
    for _ in range(2):
        before = everything(opt, [first, w])
        for bad in NO_GRADIENTS:
            with pytest.raises(InvalidArgumentError):
                opt.apply_gradients([(np.ones(2), first), (bad, w)])
            assert everything(opt, [first, w]) == before
        opt.apply_gradients([(np.ones(2), first), (np.ones(2), w)])


@pytest.mark.parametrize("which", MAKERS)
def test_what_are_no_pairs_is_refused(which: str) -> None:
    opt, w = MAKERS[which](), np.ones(2)
    before = everything(opt, [w])
    for bad in (3, None, "ab", [1], [(w,)], [(w, w, w)], {"a": 1}, [(w, "w")], [(w, [1.0, 2.0])]):
        with pytest.raises(InvalidArgumentError):
            opt.apply_gradients(bad)  # type: ignore[arg-type]
        assert everything(opt, [w]) == before


@pytest.mark.parametrize("options", [{}, {"clipnorm": 1.0}, {"global_clipnorm": 1.0}])
@pytest.mark.parametrize("base", [Adam, Optimizer])
def test_an_error_of_a_step_names_the_place(base: Any, options: dict[str, Any]) -> None:
    opt = base("own", 0.1, **options) if base is Optimizer else base(0.1, **options)
    params = {"layers": [{"w": np.ones((2, 2)), "b": np.ones(2)}], "table": np.ones((3, 2))}
    fitting = {"layers": [{"w": np.ones((2, 2)), "b": np.ones(2)}], "table": np.ones((3, 2))}
    w, rows = np.ones((2, 3)), IndexedSlices(np.ones((1, 2)), np.array([3]))
    for wrong, where in [
        ({**fitting, "layers": [{"w": w, "b": np.ones(2)}]}, "^layers/0/w: "),
        ({**fitting, "layers": [{"w": w.astype("f4"), "b": np.ones(2)}]}, "^layers/0/w: "),
        ({**fitting, "table": rows}, "^table: Index 3"),
        ({**fitting, "layers": [{"w": w, "c": np.ones(2)}]}, "grads lacks 'b', at layers/0$"),
        (
            {**fitting, "layers": [{"w": w, "b": {"c": np.ones(2)}}]},
            "has a dict, params the value of type ndarray, at layers/0/b$",
        ),
        ({**fitting, "layers": []}, "grads has 0 entries, params 1, at layers$"),
        ({}, "structure: grads lacks 'layers'$"),
    ]:
        with pytest.raises(InvalidArgumentError, match=where):
            opt.step(params, wrong)


def nodes(structure: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the keys that lead to each dict and list."""
    if isinstance(structure, (dict, list)):
        yield at
        for key in structure if isinstance(structure, dict) else range(len(structure)):
            yield from nodes(structure[key], (*at, key))


def ways_to_differ(node: Any) -> Iterator[tuple[Any, str]]:
    """Yield nodes that differ from a dict or list, and what is said of them."""
    if isinstance(node, dict):
        for key in node:
            yield {k: v for k, v in node.items() if k != key}, f"grads lacks {key!r}"
        yield {**node, "new": None}, "params lacks 'new'"
        yield [*node.values()], "grads has a list, params a dict"
    else:
        n = len(node) - 1
        yield node[1:], f"grads has {n} entr{'y' if n == 1 else 'ies'}, params {n + 1}"
        yield [*node, None], f"grads has {n + 2} entries, params {n + 1}"
        yield {"new": node}, "grads has a dict, params a list"
    yield None, f"grads has None, params a {type(node).__name__}"
    yield np.ones(2), f"grads has the value of type ndarray, params a {type(node).__name__}"


def test_another_structure_is_refused_by_its_place() -> None:
    def one(value: float) -> Any:
        leaf = lambda: np.full(2, value)  # noqa: E731
        return {
            "a": [leaf(), {"b": leaf(), "c": [leaf(), leaf()]}],
            "d": {"e": leaf()},
            3: [leaf()],
        }

    params = one(1.0)
    opt, cases = Adam(0.1), 0
    opt.step(params, one(1.0))
    variables = [leaf for _, leaf in leaves(params)]
    before = everything(opt, variables)
    for at in nodes(params):
        node = functools.reduce(lambda tree, key: tree[key], at, one(1.0))
        for other, how in ways_to_differ(node):
            grads = one(1.0)
            if at:
                functools.reduce(lambda tree, key: tree[key], at[:-1], grads)[at[-1]] = other
            with pytest.raises(InvalidArgumentError) as refused:
                opt.step(params, grads if at else other)
            where = f", at {'/'.join(map(str, at))}" if at else ""
            assert str(refused.value) == f"params and grads differ in structure: {how}{where}"
            cases += 1
    assert cases > 25
    assert everything(opt, variables) == before


@pytest.mark.parametrize("which", sorted(ARGUMENTS))
def test_a_gradient_of_another_dtype_is_refused_with_a_remedy(which: str) -> None:
    """The first thing that NumPy's float64 by default leads to; the remedy is followed."""
    params, grads = {"w": np.ones((4, 3), np.float32)}, {"w": np.ones((4, 3))}
    optimizer = getattr(tfopt.optimizers, which)(**ARGUMENTS[which])
    with pytest.raises(
        InvalidTypeError, match=r"^w: \w+ must be float32 as var is, not"
    ) as refused:
        optimizer.step(params, grads)
    assert (params["w"] == 1).all() and int(optimizer.iterations) == 0
    (remedy,) = re.findall(r"float64; (astype\('\w+'\)) converts it$", str(refused.value))
    optimizer.step(params, {"w": eval(f"grad.{remedy}", {"grad": grads["w"]})})
    assert int(optimizer.iterations) == 1


def test_an_error_of_arrays_names_their_place_among_the_pairs() -> None:
    halves = [np.ones(2, np.float32), np.ones(2), np.ones(2)]
    grads = [np.ones(2, np.float32), np.ones(2), np.ones(3)]
    with pytest.raises(InvalidArgumentError, match=r"^variable 2: .*shape"):
        Adam().apply_gradients(list(zip(grads, halves, strict=True)))


@pytest.mark.parametrize("value", [2**2000, -(2**2000)])
def test_numbers_that_no_float_holds_are_refused(value: int) -> None:
    for make in (
        lambda: SGD(value),
        lambda: SGD(0.1, momentum=value),
        lambda: SGD(0.1, clipvalue=value),
        lambda: SGD(0.1, clipnorm=value),
        lambda: SGD(lambda: value).apply_gradients([(np.ones(1), np.ones(1))]),
    ):
        with pytest.raises(InvalidArgumentError):
            make()


# ---- methods of OptimizerV2


def test_an_overridden_aggregation_is_called() -> None:
    class Half(tfopt.optimizers.SGD):  # type: ignore[misc, name-defined]
        def _aggregate_gradients(self, grads_and_vars: Any) -> Any:
            return [(grad / 2, var) for grad, var in super()._aggregate_gradients(grads_and_vars)]

    def double(pairs: Any) -> Any:
        return [(2 * grad, var) for grad, var in pairs]

    for options, expected in [({}, 1.0), ({"gradient_aggregator": double}, 0.0)]:
        w = np.array([2.0])
        opt = Half(1.0, **options)
        opt.apply_gradients([(np.array([2.0]), w)])
        assert w.tolist() == [expected]
        opt.apply_gradients([(np.array([1.0]), w)], experimental_aggregate_gradients=False)
        assert w.tolist() == [expected - 1]


def test_a_refused_first_step_makes_no_slots() -> None:
    for which in ("Adam", "SGD", "Adafactor", "Ftrl"):
        opt, w = getattr(tfopt.optimizers, which)(0.1), np.ones(2)
        with pytest.raises(tfopt.InvalidArgumentError):
            opt.apply_gradients([(np.ones(2), w), (np.ones(3), np.ones(2))])
        assert len(opt.weights) == 1
        opt.apply_gradients([(np.ones(2), w)])


@pytest.mark.parametrize(
    "name", ["_compute_gradients", "_get_gradients", "_transform_gradients", "_transform_loss"]
)
@pytest.mark.parametrize("base", [Optimizer, SGD])
def test_overridden_methods_that_nothing_calls_are_refused(base: Any, name: str) -> None:
    with pytest.raises(InvalidTypeError, match=f"Mine overrides {name}"):
        type("Mine", (base,), {name: lambda self, *_: None})
