"""State dictionaries of wrappers, and of settings of variables."""

from __future__ import annotations

import contextlib
import copy
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits

import tfopt


def variables() -> dict[str, np.ndarray]:
    return {"w": np.ones(3), "table": np.ones((5, 2)), "half": np.ones(4, np.float16)}


def nested(listed: dict[str, np.ndarray]) -> Any:
    """Return four wrappers, one in the other."""
    own = tfopt.optimizers
    groups = [("^w", own.AdamW(0.1)), ([listed["half"]], {"learning_rate": 0.5})]
    inner = own.ParameterGroups(own.Adam(0.1, sparse="lazy"), groups)
    summed = own.GradientAccumulation(own.WeightAverage(inner, 0.5), 3)
    return own.LossScaleOptimizer(summed, 4.0, 2)


def step(optimizer: Any, listed: dict[str, np.ndarray], k: int) -> None:
    random = np.random.default_rng(k)
    grads: dict[str, Any] = {
        name: random.standard_normal(array.shape).astype(array.dtype)
        for name, array in listed.items()
    }
    grads["table"] = tfopt.IndexedSlices(grads["table"][:3], random.integers(5, size=3))
    optimizer.step(listed, grads)


def stepped(steps: int = 5) -> tuple[Any, dict[str, np.ndarray]]:
    listed = variables()
    optimizer = nested(listed)
    for k in range(steps):
        step(optimizer, listed, k)
    return optimizer, listed


def test_a_state_has_that_of_the_inner_optimizer_as_a_part() -> None:
    optimizer, listed = stepped()
    scaled = optimizer.state_dict(listed)
    summed = scaled["parts"]["optimizer"]
    averaged = summed["parts"]["optimizer"]
    groups = averaged["parts"]["optimizer"]
    inside = groups["parts"]
    assert list(scaled) == [
        "version", "variables", "class_name", "config", "weights", "slots", "order", "parts",
    ]  # fmt: skip
    assert list(scaled["weights"]) == ["step_counter", "dynamic_scale"]
    assert int(summed["weights"]["pending"]) == 2
    assert summed["parts"]["batch"] == ["w", "table", "half"]
    assert summed["parts"]["rows"]["table"]["indices"].shape == (6,)
    assert {name: list(slots) for name, slots in averaged["slots"].items()} == {
        name: ["average"] for name in listed
    }
    assert averaged["slots"]["half"]["average"].dtype == np.float32
    assert groups["weights"] == groups["slots"] == {}
    kinds = {key: (part["class_name"], list(part["slots"])) for key, part in inside.items()
             if key != "members"}  # fmt: skip
    assert kinds == {
        "group 0": ("AdamW", ["w"]),
        "group 1": ("Adam", ["half"]),
        "optimizer": ("Adam", ["table"]),
    }
    assert inside["members"] == [
        {"patterns": ["^w"], "variables": []},
        {"patterns": [], "variables": ["half"]},
    ]


def test_by_default_variables_are_numbered() -> None:
    optimizer, listed = stepped(2)  # in the first accumulation: only it knows some
    state = optimizer.state_dict()
    assert sorted(state["variables"]) == ["0", "1", "2"]
    kinds = {str(array.dtype): name for name, array in listed.items()}
    again = variables()
    order = [again[kinds[kind["dtype"]]] if kind["shape"] != [5, 2] else again["table"]
             for kind in state["variables"].values()]  # fmt: skip
    order = [again["w"] if kind["shape"] == [3] else array
             for kind, array in zip(state["variables"].values(), order, strict=True)]  # fmt: skip
    other = nested(again)
    other.load_state_dict(state, order)
    for k in range(2, 7):
        step(optimizer, listed, k)
        step(other, again, k)
    for name in listed:
        assert_same_bits(listed[name], again[name], name)


def test_one_wrapper_can_be_left_out() -> None:
    own, listed = tfopt.optimizers, variables()
    averaged = own.WeightAverage(own.Adamax(0.1))
    for k in range(3):
        step(averaged, listed, k)
    state = averaged.state_dict(listed)
    plain, again = own.Adamax(), copy.deepcopy(listed)
    plain.load_state_dict({**state, **state["parts"]["optimizer"]}, again)
    for optimizer, some in ((averaged, listed), (plain, again)):
        step(optimizer, some, 3)
    for name in listed:
        assert_same_bits(listed[name], again[name], name)


def test_settings_of_wrappers_come_back() -> None:
    own = tfopt.optimizers
    made = own.GradientAccumulation(own.WeightAverage(own.SGD(0.5), 0.25, 7), 3, "sum", name="a")
    other = own.GradientAccumulation(own.WeightAverage(own.SGD(0.1)), 5, name="b")
    other.load_state_dict(made.state_dict([]), [])
    names = {"name": "b", "optimizer": other.get_config()["optimizer"]}
    assert other.get_config() == made.get_config() | names
    assert other.optimizer.get_config()["momentum"] == 0.25
    assert other.optimizer.overwrite_frequency == 7
    assert other.learning_rate == 0.5


# ---- what is refused

SUMMED = "parts/optimizer"
AVERAGED = f"{SUMMED}/parts/optimizer"
GROUPS = f"{AVERAGED}/parts/optimizer"
REFUSED: dict[str, tuple[str, Any, str]] = {
    "another wrapper": ("class_name", "WeightAverage", "WeightAverage, not by LossScaleOptimizer"),
    "another nesting": (f"{SUMMED}/class_name", "Adam", "by Adam, not by GradientAccumulation"),
    "another rule": (f"{GROUPS}/parts/group 0/class_name", "SGD", "saved by SGD, not by AdamW"),
    "nothing inside": (SUMMED, None, "has the keys"),
    "something else inside": (SUMMED, 3, "has the keys"),
    "less inside": (f"{AVERAGED}/slots", None, "has the keys"),
    "fewer groups": (f"{GROUPS}/parts/group 1", None, "has the keys"),
    "more groups": (f"{GROUPS}/parts/group 2", {}, "no part named group 2"),
    "other members": (f"{GROUPS}/parts/members", [], "hold other variables"),
    "no members": (f"{GROUPS}/parts/members", None, "hold other variables"),
    "a foreign part": (f"{AVERAGED}/parts/more", 1, "no part named more"),
    "a foreign setting": ("config/more", 1, "more"),
    "a bad setting": (f"{SUMMED}/config/steps", 0, "at least 1"),
    "no setting": (f"{SUMMED}/config/steps", None, "steps"),
    "no count": (f"{SUMMED}/weights/pending", None, r"lacks \['pending'\]"),
    "a count's dtype": (f"{SUMMED}/weights/pending", np.zeros(()), "must have dtype int64"),
    "the scale's shape": ("weights/dynamic_scale", np.ones(2), r"must have shape \(\)"),
    "a sum's shape": (f"{SUMMED}/slots/w/gradient", np.zeros(4), r"must have shape \(3,\)"),
    "a sum's dtype": (f"{SUMMED}/slots/half/gradient", np.zeros(4, "f2"), "dtype float32"),
    "an average's dtype": (f"{AVERAGED}/slots/half/average", np.zeros(4, "f2"), "dtype float32"),
    "a slot's dtype": (f"{GROUPS}/parts/group 1/slots/half/m", np.zeros(4, "f4"), "dtype float16"),
    "no sum": (f"{SUMMED}/slots/w", None, "do not match its order: w/gradient"),
    "another slot": (f"{AVERAGED}/slots/w/more", np.zeros(3), "do not match its order: w/more"),
    "an unknown variable": (f"{SUMMED}/slots/x", {}, r"not in variables: \['x'\]"),
    "an unknown one in a batch": (
        f"{SUMMED}/parts/batch",
        ["w", "x"],
        r"not in variables: \['x'\]",
    ),
    "rows in no batch": (f"{SUMMED}/parts/batch", ["w", "half"], "that no batch contains"),
    "a batch without rows": (f"{SUMMED}/parts/rows", None, "missing from the state"),
    "rows without indices": (f"{SUMMED}/parts/rows/table/indices", None, "has the keys"),
    "rows of another width": (
        f"{SUMMED}/parts/rows/table/values",
        np.ones((6, 3)),
        "rows of table are invalid",
    ),
    "rows of another dtype": (f"{SUMMED}/parts/rows/table/values", np.ones((6, 2), int), "float64"),
    "rows out of range": (f"{SUMMED}/parts/rows/table/indices", np.full(6, 5), r"\[0, 5\)"),
    "an unknown one excluded": (
        f"{GROUPS}/parts/group 0/parts/excluded",
        ["x"],
        "not in variables",
    ),
}


def change(state: dict[str, Any], path: str, value: Any) -> None:
    """Replace one value, or with None remove it."""
    *way, last = path.split("/")
    for key in way:
        state = state[key]
    if value is None:
        del state[last]
    else:
        state[last] = value


@pytest.mark.parametrize("steps", [0, 4])
@pytest.mark.parametrize("which", REFUSED)
def test_what_does_not_fit_changes_nothing(which: str, steps: int) -> None:
    path, value, message = REFUSED[which]
    optimizer, listed = stepped()
    state = copy.deepcopy(optimizer.state_dict(listed))
    change(state, path, value)
    other, theirs = stepped(steps)
    before = copy.deepcopy((other.state_dict(theirs), theirs))
    with pytest.raises(ValueError, match=message):
        other.load_state_dict(state, theirs)
    np.testing.assert_equal((other.state_dict(theirs), theirs), before)


def other_groups(listed: Any) -> dict[str, Any]:
    own = tfopt.optimizers
    inside = own.SGD(0.1)
    return {
        "another pattern": own.ParameterGroups(inside, [("b", own.SGD(0.5))]),
        "variables": own.ParameterGroups(inside, [([listed["w"]], own.SGD(0.5))]),
        "no group": own.ParameterGroups(inside, []),
    }


def nodes(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    keys = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield from nodes(tree[key], (*path, key))


def test_no_damage_comes_as_another_error() -> None:
    optimizer, listed = stepped()
    state = copy.deepcopy(optimizer.state_dict(listed))
    refused = 0
    for path in list(nodes(state))[1:]:
        for value in (None, -3, math.nan, "x", [1], {"a": 1}, np.zeros(3), 10**30):
            damaged = copy.deepcopy(state)
            place = damaged
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
            other, theirs = stepped(0)
            try:
                other.load_state_dict(damaged, theirs)
            except tfopt.InvalidArgumentError:
                refused += 1
                assert int(other.iterations) == 0 and len(other.weights) == 6
    assert refused > 300


def others_stepped(which: str, steps: int = 3) -> tuple[Any, dict[str, np.ndarray]]:
    own, listed = tfopt.optimizers, {"table": np.ones((5, 2))}
    opt = own.Adam(0.1, sparse="catch_up") if which == "rows that owe" else own.Nadam()
    for k in range(steps):
        opt.step(listed, {"table": tfopt.IndexedSlices(np.ones((1, 2)), np.array([k]))})
    return opt, listed


@pytest.mark.parametrize("which", ["rows that owe", "momenta"])
def test_no_damage_of_a_rules_own_comes_as_another_error(which: str) -> None:
    optimizer, listed = others_stepped(which)
    state = copy.deepcopy(optimizer.state_dict(listed))
    for path in list(nodes(state))[1:]:
        for value in (None, "x", [1], {"a": 1}, np.zeros(3), 10**30):
            damaged = copy.deepcopy(state)
            change_at(damaged, path, value)
            other, theirs = others_stepped(which, 0)
            with contextlib.suppress(tfopt.InvalidArgumentError):
                other.load_state_dict(damaged, theirs)


def change_at(tree: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        tree = tree[key]
    tree[path[-1]] = value


@pytest.mark.parametrize("hook", ["_restoring", "_like"])
def test_an_error_in_a_subclass_is_no_damage(hook: str) -> None:
    """Also of one that is inside others."""

    class Mine(tfopt.optimizers.SGD):
        broken = False

    def broken(self: Any, *args: Any) -> Any:
        if self.broken:
            raise KeyError("a bug")
        return getattr(tfopt.optimizers.SGD, hook)(self, *args)

    setattr(Mine, hook, broken)
    w = np.ones(2)
    for around in (
        lambda inner: inner,
        lambda inner: tfopt.optimizers.GradientAccumulation(inner, 1),
    ):
        inner = Mine(0.5)
        opt = around(inner)
        opt.apply_gradients([(w, w)])
        state = copy.deepcopy(opt.state_dict([w]))
        inner.broken = True
        with pytest.raises(KeyError, match="a bug") as raised:
            opt.load_state_dict(state, [w])
        assert not isinstance(raised.value, tfopt.InvalidArgumentError)
        assert int(opt.iterations) == 1


@pytest.mark.parametrize("which", ["another pattern", "variables", "no group"])
def test_other_groups_are_refused(which: str) -> None:
    own, listed = tfopt.optimizers, variables()
    optimizer = own.ParameterGroups(own.SGD(0.1), [("a", own.SGD(0.5))])
    other = other_groups(listed)[which]
    before = copy.deepcopy(other.state_dict(listed))
    with pytest.raises(ValueError, match=r"hold other variables|no part named group 0"):
        other.load_state_dict(optimizer.state_dict(listed), listed)
    np.testing.assert_equal(other.state_dict(listed), before)


# ---- weights that do not decay


def test_patterns_are_part_of_the_configuration() -> None:
    own = tfopt.optimizers
    optimizer = own.AdamW(0.5, weight_decay=0.2)
    assert "exclude_from_weight_decay" not in optimizer.get_config()
    optimizer.exclude_from_weight_decay(var_names=["^b", "scale"])
    config = json.loads(json.dumps(own.serialize(optimizer)))
    assert config["config"]["exclude_from_weight_decay"] == ["^b", "scale"]
    for other in (own.deserialize(config), own.AdamW()):
        other.load_state_dict(optimizer.state_dict([]), [])
        assert other.get_config() == optimizer.get_config() | {"name": other.name}
        params = {"b": np.ones(1), "w": np.ones(1)}
        other.step(params, {name: np.zeros(1) for name in params})
        assert (params["b"][0], params["w"][0]) == (1.0, 0.9)


def test_variables_that_do_not_decay_come_back_by_name() -> None:
    own, listed = tfopt.optimizers, {"b": np.ones(1), "w": np.ones(1)}
    optimizer = own.AdamW(0.5, weight_decay=0.2)
    optimizer.exclude_from_weight_decay([listed["b"]])
    state = optimizer.state_dict(listed)
    assert state["parts"] == {"excluded": ["b"]}
    with pytest.raises(ValueError, match="not among the variables"):
        optimizer.state_dict([listed["w"]])
    assert list(optimizer.state_dict()["variables"]) == ["0"]
    other, again = own.AdamW(), copy.deepcopy(listed)
    other.exclude_from_weight_decay([again["w"]])
    other.load_state_dict(state, again)
    other.step(again, {name: np.zeros(1) for name in again})
    assert (again["b"][0], again["w"][0]) == (1.0, 0.9)


def replaced() -> dict[str, Callable[[Any, np.ndarray], Any]]:
    own = tfopt.optimizers

    def excluding(inner: Any, w: np.ndarray) -> Any:
        inner.exclude_from_weight_decay([w])
        return inner

    return {
        "excluded": excluding,
        "group": lambda inner, w: own.ParameterGroups(own.SGD(0.1), [([w], inner)]),
        "batch": lambda inner, w: own.GradientAccumulation(inner, 2),
    }


@pytest.mark.parametrize("which", ["excluded", "group", "batch"])
def test_what_is_said_of_an_array_is_said_of_the_one_in_its_place(which: str) -> None:
    ends = []
    for replaces in (False, True):
        params = {"w": np.ones(2)}
        inner = tfopt.optimizers.AdamW(0.5, weight_decay=0.2)
        optimizer = replaced()[which](inner, params["w"])
        for k in range(4):
            if replaces and k > 0:  # a place is known from the first step on
                params["w"] = params["w"].copy()
            optimizer.step(params, {"w": np.full(2, k + 1.0)})
        ends.append(params["w"])
    assert_same_bits(*ends, which)
