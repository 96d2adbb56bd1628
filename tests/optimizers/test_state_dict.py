"""An optimizer's whole state as a dictionary: out, in again, and what is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from hypothesis import given
from hypothesis import strategies as st

import tfopt

MAKERS: dict[str, dict[str, Any]] = {
    "SGD": {},
    "SGD momentum": {"momentum": 0.9},
    "Adam amsgrad": {"amsgrad": True, "clipnorm": 0.5},
    "Adamax": {"decay": 0.5},
    "Adagrad": {},
    "Adadelta": {},
    "RMSprop both": {"momentum": 0.9, "centered": True, "merge": "before"},
    "Nadam": {"schedule_decay": 0.5},
    "Ftrl": {"beta": 0.5},
}
MODES = ("tensorflow", "lazy", "catch_up")


def make(which: str, **more: Any) -> Any:
    return getattr(tfopt.optimizers, which.split(" ")[0])(**MAKERS[which], **more)


def variables() -> dict[str, np.ndarray]:
    return {"w": np.array([1.0, -2.0, 3.0]), "table": np.ones((5, 2), np.float32)}


def step(optimizer: Any, listed: dict[str, np.ndarray], k: int) -> None:
    random = np.random.default_rng(k)
    rows = random.integers(5, size=3)
    slices = tfopt.IndexedSlices(random.standard_normal((3, 2)).astype("f4"), rows)
    optimizer.apply_gradients([(random.standard_normal(3), listed["w"]), (slices, listed["table"])])


def stepped(steps: int = 3, **options: Any) -> tuple[Any, dict[str, np.ndarray]]:
    optimizer, listed = tfopt.optimizers.Adam(0.1, **options), variables()
    for k in range(steps):
        step(optimizer, listed, k)
    return optimizer, listed


def copies(listed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in listed.items()}


def assert_same(optimizer: Any, listed: Any, other: Any, twins: Any) -> None:
    for name in listed:
        assert_same_bits(listed[name], twins[name], name)
    for a, b in zip(optimizer.get_weights(), other.get_weights(), strict=True):
        assert_same_bits(a, b, "state")
    for name in listed:
        assert_same_bits(listed[name], twins[name], f"{name} after rows caught up")


@given(
    which=st.sampled_from(sorted(MAKERS)),
    mode=st.sampled_from(MODES),
    cut=st.integers(0, 8),
    fresh=st.booleans(),
)
def test_steps_go_on(which: str, mode: str, cut: int, fresh: bool) -> None:
    if which == "Ftrl" and mode == "catch_up":
        return
    optimizer, listed = make(which, sparse=mode), variables()
    for k in range(cut):
        step(optimizer, listed, k)
    other, twins = make(which, sparse=mode), copies(listed)
    if not fresh:  # it has a state, which goes
        step(other, twins, 99)
        for name, array in listed.items():
            twins[name][...] = array
    other.load_state_dict(copy.deepcopy(optimizer.state_dict(listed)), twins)
    assert int(other.iterations) == cut
    for k in range(cut, 9):
        step(optimizer, listed, k)
        step(other, twins, k)
    assert_same(optimizer, listed, other, twins)


def test_the_dictionary() -> None:
    optimizer, listed = stepped()
    state = optimizer.state_dict(listed)
    assert int(state["weights"]["iterations"]) == 3
    assert {name: list(slots) for name, slots in state["slots"].items()} == {
        "w": ["m", "v"],
        "table": ["m", "v"],
    }
    assert state["slots"]["w"]["m"] is optimizer.get_slot(listed["w"], "m").numpy()
    rest = {key: value for key, value in state.items() if key not in ("weights", "slots")}
    assert json.loads(json.dumps(rest)) == rest
    assert list(optimizer.state_dict()["slots"]) == ["0", "1"]
    nested = {"a": [listed["w"]], "b": {"c": listed["table"]}}
    assert list(optimizer.state_dict(nested)["slots"]) == ["a/0", "b/c"]


def test_it_is_copied() -> None:
    optimizer, listed = stepped()
    other = tfopt.optimizers.Adam()
    other.load_state_dict(optimizer.state_dict(listed), twins := copies(listed))
    before = optimizer.get_weights()
    step(other, twins, 7)
    for a, b in zip(optimizer.get_weights(), before, strict=True):
        assert_same_bits(a, b, "the first one")


def test_slots_stay_the_same_objects() -> None:
    optimizer, listed = stepped()
    slot, state = optimizer.get_slot(listed["w"], "m"), copy.deepcopy(optimizer.state_dict(listed))
    step(optimizer, listed, 5)
    optimizer.load_state_dict(state, listed)
    assert optimizer.get_slot(listed["w"], "m") is slot
    assert_same_bits(slot.numpy(), state["slots"]["w"]["m"], "slot")


def test_a_state_without_slots_takes_them_away() -> None:
    optimizer, listed = stepped()
    optimizer.load_state_dict(tfopt.optimizers.Adam().state_dict(listed), listed)
    assert len(optimizer.weights) == 1
    with pytest.raises(KeyError):
        optimizer.get_slot(listed["w"], "m")
    fresh, others = tfopt.optimizers.Adam(), copies(listed)
    for own, params in ((optimizer, listed), (fresh, others)):
        step(own, params, 5)
    for ours, theirs in zip(optimizer.get_weights(), fresh.get_weights(), strict=True):
        assert_same_bits(ours, theirs, "weights")


def test_the_order_of_weights_is_kept() -> None:
    optimizer, listed = tfopt.optimizers.Adam(), variables()
    for some in (["w"], ["table", "w"]):
        optimizer.apply_gradients([(np.ones_like(listed[name]), listed[name]) for name in some])
    other = tfopt.optimizers.Adam()
    other.load_state_dict(optimizer.state_dict(listed), twins := copies(listed))
    expected = [("w", "m"), ("w", "v"), ("table", "m"), ("table", "v")]
    slots = [other.get_slot(twins[name], slot) for name, slot in expected]
    assert all(a is b for a, b in zip(other.weights[1:], slots, strict=True))


def test_hyperparameters_and_schedules_come_back() -> None:
    schedules = tfopt.optimizers.schedules
    rate = schedules.LinearWarmup(schedules.CosineDecay(0.1, 9), 3)
    optimizer = tfopt.optimizers.Adam(rate, beta_1=0.5, clipnorm=2.0, sparse="lazy", name="mine")
    other = tfopt.optimizers.Adam(7.0, amsgrad=True, clipvalue=1.0, name="other")
    other.load_state_dict(json.loads(json.dumps(plain(optimizer.state_dict([])))) | weights(0), [])
    assert other.get_config() == optimizer.get_config() | {"name": "other"}
    assert [other.learning_rate(s) for s in range(9)] == [rate(s) for s in range(9)]


def plain(state: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key != "weights"}


def weights(count: int) -> dict[str, Any]:
    return {"weights": {"iterations": np.array(count)}}


def test_a_function_stays() -> None:
    def rate(step: int) -> float:
        return 1 / (1 + step)

    optimizer, listed = tfopt.optimizers.Adam(rate), variables()
    step(optimizer, listed, 0)
    state = optimizer.state_dict(listed)
    assert state["config"]["learning_rate"] is None
    other = tfopt.optimizers.Adam(lambda: 0.5)
    other.load_state_dict(state, copies(listed))
    assert other.learning_rate() == 0.5
    with pytest.raises(ValueError, match="whose learning rate is a function"):
        tfopt.optimizers.Adam().load_state_dict(state, copies(listed))


def test_a_schedule_of_your_own_stays() -> None:
    class Own(tfopt.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step: Any) -> float:
            return 0.5

        def get_config(self) -> dict[str, Any]:
            return {}

    state = tfopt.optimizers.Adam(own := Own()).state_dict([])
    other = tfopt.optimizers.Adam(Own())
    kept = other.learning_rate
    other.load_state_dict(state, [])
    assert other.learning_rate is kept is not own
    with pytest.raises(ValueError, match="Unknown decay: Own"):
        tfopt.optimizers.Adam().load_state_dict(state, [])


def test_a_class_of_your_own() -> None:
    class Signum(tfopt.optimizers.Optimizer):
        def __init__(self, learning_rate: Any = 0.1, name: str = "Signum", **kwargs: Any) -> None:
            super().__init__(name, learning_rate, **kwargs)
            self.total = 0.0

        def _create_slots(self, var_list: list[Any]) -> None:
            for var in var_list:
                self.add_slot(var, "norm", shape=(1,))

        def _resource_apply_dense(self, grad: Any, handle: Any, apply_state: Any) -> None:
            self.get_slot(handle, "norm").assign_add([np.abs(grad).sum()])
            handle.assign_sub(np.sign(grad) * self.get_slot(handle, "norm").numpy())
            self.total += 1

        def _state_parts(self, names: Any) -> dict[str, Any]:
            return {**super()._state_parts(names), "total": self.total}

        def _restoring(self, parts: Any, names: Any, slots: Any) -> list[Callable[[], None]]:
            total = parts.pop("total")
            rest = super()._restoring(parts, names, slots)
            return [*rest, lambda: setattr(self, "total", total)]

    optimizer, w = Signum(), np.ones(3)
    for _ in range(2):
        optimizer.apply_gradients([(w, w)])
    other, twin = Signum(), w.copy()
    other.load_state_dict(optimizer.state_dict([w]), [twin])
    assert other.total == 2
    for opt, var in ((optimizer, w), (other, twin)):
        opt.apply_gradients([(np.ones(3), var)])
    assert_same_bits(w, twin, "w")


def changed(path: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    """Return what replaces one value, or with None removes it."""
    *way, last = path.split("/")

    def change(state: dict[str, Any]) -> Any:
        branch = state
        for key in way:
            branch = branch[key]
        if value is None:
            del branch[last]
        else:
            branch[last] = value
        return state

    return change


REFUSED = {
    "no dict": (lambda state: 3, "has the keys"),
    "nothing": (lambda state: {}, "has the keys"),
    "no slots": (changed("slots", None), "has the keys"),
    "newer": (changed("version", 2), "version 2, not 1"),
    "other class": (changed("class_name", "SGD"), "saved by SGD, not by Adam"),
    "no such hyperparameter": (changed("config/beta_3", 1.0), "beta_3"),
    "bad hyperparameter": (changed("config/beta_1", 2.0), "beta_1 must be at least"),
    "fewer variables": (changed("variables/w", None), r"other variables: .* lacks \['w'\]"),
    "more variables": (changed("variables/b", {}), r"has \['b'\] that the optimizer lacks"),
    "other shape": (changed("variables/w/shape", [4]), r"'w' has shape \[3\], in the state \[4\]"),
    "other dtype": (changed("variables/w/dtype", "float32"), "dtype float64, in the state float32"),
    "no slots of one": (changed("slots/w", None), "do not match its order: w/m, w/v"),
    "slots of another": (changed("slots/x", {}), r"not in variables: \['x'\]"),
    "no slot": (changed("slots/w/m", None), "do not match its order: w/m"),
    "another slot": (changed("slots/w/x", np.zeros(3)), "do not match its order: w/x"),
    "slot's shape": (changed("slots/w/m", np.zeros(4)), r"w/m must have shape \(3,\), not \(4,\)"),
    "slot's dtype": (changed("slots/w/m", np.zeros(3, "f4")), "w/m must have dtype float64"),
    "no array": (changed("slots/w/m", [0, 0, 0]), "w/m must be an array, not list"),
    "no iterations": (changed("weights/iterations", None), r"lacks \['iterations'\]"),
    "iterations": (changed("weights/iterations", np.zeros(2)), r"iterations must have shape \(\)"),
    "order": (changed("order", ["iterations"]), "match its order"),
    "another order": (lambda state: {**state, "order": state["order"][::-1]}, "match its order"),
    "another part": (changed("parts/ema", {}), "no part named ema"),
    "debts": (
        changed("parts/owed/table/since", np.zeros(4, np.int64)),
        "deferred updates of .* do not fit",
    ),
    "debts of steps": (
        changed("parts/owed/table/since", np.full(5, 9)),
        "deferred updates of .* do not fit",
    ),
    "debts of another": (changed("parts/owed/x", {"slots": []}), "rows of x have deferred updates"),
    "debts of no rule": (changed("parts/owed/table/rule", "x"), "deferred updates"),
}


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("which", REFUSED)
def test_what_does_not_fit_changes_nothing(which: str, fresh: bool) -> None:
    spoil, message = REFUSED[which]
    optimizer, listed = stepped(sparse="catch_up")
    state = spoil(copy.deepcopy(optimizer.state_dict(listed)))
    twins = copies(listed)
    if fresh:
        other = tfopt.optimizers.Adam(0.5)
    else:
        other, twins = stepped(2, sparse="catch_up")
    before = copy.deepcopy((other.state_dict(twins), twins))
    with pytest.raises(ValueError, match=message):
        other.load_state_dict(state, twins)
    np.testing.assert_equal((other.state_dict(twins), twins), before)


@pytest.mark.parametrize("given", ["ab", 3, [None], {"a": "b"}])
def test_what_is_no_variable(given: Any) -> None:
    with pytest.raises(tfopt.errors.InvalidTypeError, match="share memory with one, not"):
        tfopt.optimizers.SGD().state_dict(given)


def test_variables_that_are_not_given() -> None:
    optimizer, listed = stepped()
    for call in (optimizer.state_dict, lambda some: optimizer.load_state_dict({}, some)):
        with pytest.raises(ValueError, match=r"slots of|has the keys"):
            call([listed["w"]])
    with pytest.raises(ValueError, match=r"slots of .*not among the variables"):
        optimizer.load_state_dict(optimizer.state_dict(listed), [listed["w"]])
    owing = tfopt.optimizers.SGD(sparse="catch_up", momentum=0.5)
    step(owing, listed, 0)
    owing.momentum = 0.0
    assert list(owing.state_dict(listed)["parts"]["owed"]) == ["table"]


def test_a_variable_that_comes_twice_is_one() -> None:
    optimizer, listed = stepped()
    tied = {"a": listed, "b": listed["w"]}
    assert list(optimizer.state_dict(tied)["slots"]) == ["a/w", "a/table"]
    with pytest.raises(ValueError, match="two variables have the name"):
        optimizer.state_dict({"a/w": np.ones(2), "a": listed})
