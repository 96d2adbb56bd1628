"""A repeated step is the step that a fresh one would have been: bits, errors, state and locks."""

from __future__ import annotations

import copy
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from bound_anew import sides
from common.wrapper_cases import Lookahead
from hypothesis import assume, example, given
from hypothesis import strategies as st

import tfopt
from tfopt import IndexedSlices, Variable
from tfopt.kernels import kernels
from tfopt.kernels.update.multi_tensor import many_call
from tfopt.kernels.update.repetition import Repetition
from tfopt.optimizers import (
    SGD,
    Adam,
    GradientAccumulation,
    LossScaleOptimizer,
    Mirror,
    ParameterGroups,
    WeightAverage,
    Wrapper,
    schedules,
)
from tfopt.optimizers.base import optimizer_base as contract
from tfopt.optimizers.base.rule_optimizer import RuleOptimizer
from tfopt.optimizers.state.config import OPTIMIZERS

RULES = sorted(name for name, kind in OPTIMIZERS.items() if issubclass(kind, RuleOptimizer))

#: Optimizers around others, and around one another.
AROUND: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda inner: inner,
    "scaled": lambda inner: LossScaleOptimizer(inner, 4.0, 5),
    "accumulated": lambda inner: GradientAccumulation(inner, 3),
    "accumulated one by one": lambda inner: GradientAccumulation(inner, 1, "sum"),
    "averaged": lambda inner: WeightAverage(inner, 0.5, 4),
    "mirrored": lambda inner: Mirror(inner),
    "mirrored, scaled": lambda inner: LossScaleOptimizer(Mirror(inner), 4.0, 3),
    "grouped": lambda inner: ParameterGroups(inner, [("c", {"learning_rate": 0.25})]),
    "scaled, averaged": lambda inner: WeightAverage(LossScaleOptimizer(inner), 0.5),
    "averaged, scaled": lambda inner: LossScaleOptimizer(WeightAverage(inner, 0.5), 4.0, 3),
    "accumulated, averaged": lambda inner: WeightAverage(GradientAccumulation(inner, 2), 0.5),
    "averaged, accumulated": lambda inner: GradientAccumulation(WeightAverage(inner, 0.5), 2),
    "accumulated, scaled": lambda inner: LossScaleOptimizer(GradientAccumulation(inner, 2), 4.0, 7),
    "scaled, accumulated": lambda inner: GradientAccumulation(LossScaleOptimizer(inner), 2),
    "grouped, averaged": lambda inner: WeightAverage(ParameterGroups(inner, [("b", {})])),
    "averaged, grouped": lambda inner: ParameterGroups(inner, [("a", WeightAverage(Adam()))]),
    "looking ahead": lambda inner: Lookahead(inner, 2),
    "looking ahead, averaged": lambda inner: WeightAverage(Lookahead(inner, 2), 0.5),
}


def list_of(pairs: Any) -> list[Any]:
    """Return pairs unchanged, as an aggregator or a transformer."""
    return list(pairs)


def variables(kind: str, dtype: str) -> list[Any]:
    arrays = [np.linspace(-1, 1, n).astype(dtype) for n in (5, 1, 0, 12)]
    arrays[3] = arrays[3].reshape(3, 4)
    if kind == "of two dtypes":
        arrays[1] = arrays[1].astype(np.float64)
    if kind == "strided":
        arrays[0] = np.repeat(arrays[0], 2)[::2]
    if kind == "variables":
        return [Variable(a, name) for a, name in zip(arrays, "abcd", strict=True)]
    return arrays


def host(of: Any) -> np.ndarray:
    return of.numpy() if isinstance(of, Variable) else of


def gradients(random: np.random.Generator, of: list[Any]) -> list[Any]:
    return [random.standard_normal(each.shape).astype(each.dtype) for each in of]


def outcome(step: Any) -> str:
    """Take a step and return its error."""
    try:
        step()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def rate(kind: str) -> Any:
    """Return a learning rate; a function counts its calls."""
    if kind == "function":
        rates = iter(np.linspace(0.5, 0.1, 1000))
        return lambda: float(next(rates))
    if kind == "schedule":
        return schedules.ExponentialDecay(0.5, 3, 0.5)
    return Variable(np.array(0.25)) if kind == "variable" else 0.25


def odd(what: str, of: list[Any], grads: list[Any], opt: Any) -> list[Any]:
    """Return gradients, or change variables or settings, in a way that needs other checks."""
    array = host(of[0])
    if what == "gradient of another shape":
        grads[3] = grads[3].ravel()
    elif what == "gradient of another dtype":
        grads[0] = grads[0].astype(np.int32)
    elif what == "gradient of a wider dtype":
        grads[0] = grads[0].astype(np.float64)
    elif what == "gradient that is the variable":
        grads[0] = array
    elif what == "gradient that is a part of another variable":
        grads[1] = array[2:3]
    elif what == "strided gradient":
        grads[3] = np.asfortranarray(grads[3])
    elif what == "gradient as a list":
        grads[0] = grads[0].tolist()
    elif what == "gradient as a tensor":
        grads[:] = map(tfopt.constant, grads)
    elif what == "no gradient":
        grads[1] = None
    elif what == "infinite gradient":
        grads[3][1, 2] = np.inf
    elif what == "rows":
        grads[3] = IndexedSlices(grads[3][:2], np.array([2, 0]))
    elif what == "rows out of range":
        grads[3] = IndexedSlices(grads[3][:2], np.array([2, 3]))
    elif what == "read-only variable":
        array.flags.writeable = False
    elif what == "replaced array":
        of[3] = Variable(host(of[3]).copy(), "d") if isinstance(of[3], Variable) else of[3].copy()
    elif what == "another dtype":
        of[0] = array.astype(np.float64 if array.dtype == np.float32 else np.float32)
    elif what == "another rate":
        opt.learning_rate = 0.125
    elif what == "another rule":
        for name, value in {"momentum": 0.5, "amsgrad": True, "centered": True}.items():
            if hasattr(opt, name) and not hasattr(opt, "overwrite_frequency"):
                setattr(opt, name, value)
    elif what in ("clipnorm", "clipvalue", "global_clipnorm"):
        setattr(opt, what, 0.5)
    elif what == "no clipping":
        opt.clipnorm = opt.clipvalue = opt.global_clipnorm = None
    elif what == "locks":
        opt.use_locking = not opt.use_locking
    elif what == "a report":
        opt.observe = not opt.observe
    elif what == "set weights":
        opt.set_weights(opt.get_weights())
    elif what == "a checkpoint":
        opt.load_state_dict(copy.deepcopy(opt.state_dict(of)), of)
    elif what == "an exclusion":
        opt.exclude_from_weight_decay(var_names=["^a$"])
    elif what == "a transformer":
        opt.gradient_transformers.append(lambda pairs: [(g / 2, v) for g, v in pairs])
    elif what == "a renamed variable" and isinstance(of[0], Variable):
        of[0].name = "cab"
    elif what == "another number of batches" and hasattr(opt, "pending"):
        opt.steps = 3 - opt.steps % 2
    elif what == "the first step again":
        opt.iterations.assign(0)
    elif what == "another count":
        opt.iterations = Variable(np.array(7))
    elif what == "the largest count":
        opt.iterations.assign(np.iinfo(np.int64).max)
    elif what == "merging before":
        opt.merge = "before"
    return grads


ODD = [
    "gradient of another shape", "gradient of another dtype", "gradient of a wider dtype",
    "gradient that is the variable", "gradient that is a part of another variable",
    "strided gradient", "gradient as a list", "gradient as a tensor", "no gradient",
    "infinite gradient", "rows", "rows out of range", "read-only variable", "replaced array",
    "another dtype", "another rate", "another rule", "clipnorm", "clipvalue", "global_clipnorm",
    "no clipping", "locks", "a report", "set weights", "a checkpoint", "an exclusion",
    "a transformer", "a renamed variable", "another number of batches", "the first step again",
    "another count", "the largest count", "merging before",
]  # fmt: skip


class Two(NamedTuple):
    one: Any
    other: Any


def take(opt: Any, of: list[Any], grads: list[Any], by: str) -> None:
    if by == "pairs":
        opt.apply_gradients(list(zip(grads, of, strict=True)))
    elif by == "iterator":
        opt.apply_gradients(zip(grads, of, strict=True))
    elif by == "list":
        opt.step(of, grads)
    elif by == "classes":
        opt.step(OrderedDict(b=Two(*of[2:]), a=of[:2]), {"a": grads[:2], "b": Two(*grads[2:])})
    else:
        params = {"a": of[0], "b": {"c": (of[1],), "d": [of[2], of[3]]}}
        opt.step(params, {"b": {"d": [grads[2], grads[3]], "c": (grads[1],)}, "a": grads[0]})


def state(opt: Any, of: list[Any]) -> list[Any]:
    """Return all that steps leave, in a form that can be compared."""
    arrays = [np.asarray(host(each)) for each in of] + opt.get_weights()
    found: list[Any] = [(a.dtype, a.shape, a.tobytes()) for a in arrays]
    found.append(repr(getattr(opt, "last_step", None)))
    while isinstance(opt, Wrapper):
        if isinstance(opt, GradientAccumulation):
            waiting = opt._waiting
            rows = [slices.indices.tolist() for slices in waiting.rows.values()]
            found.append((len(waiting.batch), rows))
        opt = opt.optimizer
    return found


def course_of(opt: Any, of: list[Any], by: str, course: list[str]) -> list[Any]:
    """Take steps and return what each of them left."""
    random, seen = np.random.default_rng(0), []
    for what in ["ordinary", "ordinary", *course]:
        grads = gradients(random, of)
        refused = outcome(lambda: odd(what, of, grads, opt))  # noqa: B023
        error = outcome(lambda: take(opt, of, grads, by))  # noqa: B023
        seen.append((what, refused, error, state(opt, of)))
        for each in of:
            host(each).flags.writeable = True
    return seen


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.filterwarnings("ignore:Gradients do not exist", "ignore::RuntimeWarning")
@given(
    st.sampled_from(["float32", "float64", "float16"]),
    st.sampled_from(["variables", "arrays", "of two dtypes", "strided"]),
    st.sampled_from(["pairs", "iterator", "list", "nested"]),
    st.sampled_from(["number", "schedule", "variable", "function"]),
    st.fixed_dictionaries(
        {},
        optional={
            "use_locking": st.just(True),
            "weight_decay": st.just(0.125),
            "sparse": st.sampled_from(["lazy", "catch_up"]),
            "merge": st.just("before"),
        },
    ),
    st.lists(st.sampled_from([*["ordinary"] * len(ODD), *ODD]), min_size=4, max_size=12),
)
@example("float32", "arrays", "pairs", "number", {}, ["ordinary"] * 3 + ["read-only variable"])
def test_repeated_steps_are_fresh_ones(
    around: str,
    name: str,
    dtype: str,
    kind: str,
    by: str,
    rated: str,
    options: dict[str, Any],
    course: list[str],
) -> None:
    # a repeated step of groups asks one for its rate before the count of another is refused
    assume(not ("grouped" in around and rated == "function" and "the largest count" in course))

    def make() -> Any:
        return AROUND[around](OPTIMIZERS[name](learning_rate=rate(rated), **options))

    try:
        optimizers = sides(make)
    except tfopt.InvalidArgumentError:  # such options do not go together
        return
    repeated, fresh = (course_of(opt, variables(kind, dtype), by, course) for opt in optimizers)
    for one, other in zip(repeated, fresh, strict=True):
        assert one == other


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@given(
    st.lists(st.sampled_from([0, 1, 2, np.inf]), min_size=4, max_size=12),
    st.sampled_from(["pairs", "iterator", "list", "nested", "classes"]),
    st.booleans(),
)
def test_traced_steps_are_fresh_ones(
    around: str, course: list[float], by: str, passed: bool
) -> None:
    ends = []
    for opt, is_fresh in zip(sides(lambda: AROUND[around](Adam(0.25))), (False, True), strict=True):
        of = variables("variables", "float32")

        def train(x: Any, *given: Any) -> None:
            each = list(given) if passed else of  # noqa: B023
            take(opt, each, [v * x for v in each], by)  # noqa: B023

        step = train if is_fresh else tfopt.function(train)
        for x in course:
            step(np.float32(x), *(of if passed else ()))
        ends.append(state(opt, of))
    assert ends[0] == ends[1]


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("by", ["pairs", "nested"])
def test_repeated_steps_hold_the_same_locks(
    around: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Any] = []

    def noted(*of: Any) -> Any:
        held.append({id(lock) for each in of for lock in lock_ids(each)})
        return locked(*of)

    def lock_ids(value: Any) -> list[Any]:
        return [value.lock, host(value).ctypes.data] if isinstance(value, Variable) else [value]

    locked = contract.locked
    monkeypatch.setattr(contract, "locked", noted)
    opt, of = AROUND[around](SGD(0.5, use_locking=True)), variables("variables", "float32")
    for _ in range(8):
        held.clear()
        take(opt, of, gradients(np.random.default_rng(0), of), by)
        assert set().union(*held) >= {id(each.lock) for each in (*of, *opt._counts())}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("by", ["pairs", "iterator", "list", "nested"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_locking": True},
        {"clipvalue": 0.5},
        {"clipnorm": 0.5, "weight_decay": 0.5},
        {"gradient_aggregator": list_of},
        {"gradient_transformers": [list_of]},
    ],
)
def test_later_steps_are_not_planned(
    around: str, by: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of the library's own wrappers nor of a user's."""
    plans: list[Any] = []

    def noted(optimizer: Any, *arguments: Any) -> Any:
        plans.append(optimizer)
        return planned(optimizer, *arguments)

    planned = RuleOptimizer._planned
    monkeypatch.setattr(RuleOptimizer, "_planned", noted)
    opt, of = AROUND[around](Adam(**options)), variables("arrays", "float32")
    random = np.random.default_rng(0)
    for k in range(40):
        if k == 8:
            plans.clear()
        take(opt, of, gradients(random, of), by)
    assert not plans


@pytest.mark.parametrize("around", AROUND)
def test_gradients_are_not_kept(around: str) -> None:
    opt, w = AROUND[around](SGD()), np.ones(3)
    for _ in range(8):
        grad = np.ones(3)
        alive = weakref.ref(grad)
        opt.apply_gradients([(grad, w)])
        del grad
        assert alive() is None


def test_a_repetition_without_gradients_is_refused() -> None:
    kernel = kernels["gradient_descent"]
    repetition = Repetition(kernel, many_call(kernel, ([np.ones(3)], [np.ones(3)]), (0.5,), 0, 1.0))
    repetition.release()
    with pytest.raises(tfopt.InvalidArgumentError, match="needs gradients"):
        repetition.call_with({"alpha": 0.5}, {}, 1.0, 1.0)
    assert repetition.takes([np.ones(3)])
    repetition.call_with({"alpha": 0.5}, {}, 1.0, 1.0)


def test_tensors_of_a_repeated_variable_keep_their_values() -> None:
    opt, w = SGD(0.5), Variable(np.ones(3))
    seen = []
    for _ in range(4):
        seen.append(w + 0 if len(seen) % 2 else w[:])
        opt.apply_gradients([(np.ones(3), w)])
    assert [float(np.asarray(each)[0]) for each in seen] == [1, 0.5, 0, -0.5]


def test_tensors_of_repeated_state_keep_their_values() -> None:
    opt, w = LossScaleOptimizer(SGD(0.5)), np.ones(3)
    seen = []
    for _ in range(4):
        seen.append(opt.step_counter[...])
        opt.apply_gradients([(np.ones(3), w)])
    assert [int(each) for each in seen] == [0, 1, 2, 3]


def test_another_structure_with_the_same_variables_is_noticed() -> None:
    opt, a, b = SGD(0.5), np.zeros(2), np.zeros(2)
    for _ in range(3):
        opt.step({"a": a, "b": b}, {"a": np.ones(2), "b": np.zeros(2)})
    opt.step({"a": b, "b": a}, {"a": np.ones(2), "b": np.zeros(2)})
    assert a.tolist() == [-1.5, -1.5] and b.tolist() == [-0.5, -0.5]
    with pytest.raises(tfopt.InvalidArgumentError, match="differ in structure"):
        opt.step({"a": b, "b": a}, {"a": np.ones(2), "c": np.zeros(2)})


def test_copies_repeat_steps_of_their_own() -> None:
    opt, w = Adam(0.5), np.ones(3)
    for _ in range(3):
        opt.apply_gradients([(np.ones(3), w)])
    again, v = copy.deepcopy((opt, w))
    before = w.copy()
    again.apply_gradients([(np.ones(3), v)])
    assert (v < before).all() and (w == before).all()


def test_a_rate_is_asked_for_once() -> None:
    asked = []
    opt, w = SGD(lambda: asked.append(None) or 0.5), np.ones((2, 3))
    for k in range(6):
        grad = np.ones((2, 3))
        opt.apply_gradients([(np.asfortranarray(grad) if k % 2 else grad, w)])
    assert len(asked) == 6
