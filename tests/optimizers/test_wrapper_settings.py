"""A wrapper has no settings of the optimizer inside: they are set there, and read there."""

from __future__ import annotations

import re

import numpy as np
import pytest
from common.optimizer_arguments import RULES, arguments_of, other_value
from common.wrapper_cases import USERS, WRAPPERS

import tfopt

CASES = {**WRAPPERS, **USERS}
each_wrapper = pytest.mark.parametrize("which", CASES)


def settings_of(cls: type) -> list[str]:
    """Return the public attributes that an optimizer's steps depend on."""
    declared = [name for name in arguments_of(cls) if name not in ("name", "lr")]
    return [*declared, *(["observe"] if hasattr(cls(), "observe") else [])]


@each_wrapper
@pytest.mark.parametrize("name", RULES)
def test_what_is_set_on_a_wrapper_is_set_inside(name: str, which: str) -> None:
    own = tfopt.optimizers
    for attribute in settings_of(getattr(own, name)):
        inner, plain = getattr(own, name)(), getattr(own, name)()
        middle = CASES[which].idle(inner)
        outer = CASES["LossScaleOptimizer"].idle(middle)
        if attribute in CASES[which].changed:
            continue  # the wrapper's own
        value = other_value(attribute, getattr(inner, attribute))
        for wrapper in (middle, outer):
            assert getattr(wrapper, attribute) == getattr(inner, attribute)
        try:
            setattr(plain, attribute, value)
        except tfopt.InvalidArgumentError as error:
            with pytest.raises(type(error), match=re.escape(str(error))):
                setattr(outer, attribute, value)
        else:
            setattr(outer, attribute, value)
        assert getattr(inner, attribute) == getattr(plain, attribute)
        assert getattr(outer, attribute) == getattr(plain, attribute)


@each_wrapper
def test_an_attribute_that_neither_has_is_refused(which: str) -> None:
    opt = CASES[which].idle(tfopt.optimizers.SGD())
    inner = dict(vars(opt.optimizer))
    for attribute, value in (("clipnrom", 1.0), ("beta_1", 0.5), ("rho", 0.5)):
        with pytest.raises(AttributeError, match=attribute):
            setattr(opt, attribute, value)
        with pytest.raises(AttributeError, match=attribute):
            getattr(opt, attribute)
    assert vars(opt.optimizer) == inner


@each_wrapper
def test_a_value_that_is_refused_inside_is_refused(which: str) -> None:
    opt = CASES[which].idle(tfopt.optimizers.SGD(0.5))
    for attribute, value in (("learning_rate", -1.0), ("decay", "x"), ("clipnorm", np.nan)):
        with pytest.raises(tfopt.InvalidArgumentError, match=attribute):
            setattr(opt, attribute, value)
    assert (opt.learning_rate, opt.decay, opt.clipnorm) == (0.5, 0.0, None)


@each_wrapper
def test_settings_of_a_wrapper_count(which: str) -> None:
    own, seen = tfopt.optimizers, []
    opt = CASES[which].idle(own.SGD(1.0))
    opt.gradient_aggregator = lambda pairs: seen.append(1) or [(grad * 10, v) for grad, v in pairs]
    opt.clipvalue, opt.decay, opt.observe = 5.0, 1.0, True
    w = np.zeros(1)
    for _ in range(2):
        opt.apply_gradients([(np.ones(1), w)])
    assert seen == [1, 1] and w.tolist() == [-7.5]
    assert opt._decayed_lr(np.float32) == np.float32(1 / 3) and opt.lr == 1.0
    report = opt.last_step[-1] if which == "ParameterGroups" else opt.last_step
    assert report.update_norm == 2.5
    opt.use_locking = True
    assert opt.optimizer.use_locking is True


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize(("bound", "second"), [(3.5, 3.5), (5.0, 4.0)])
def test_a_bound_is_one_of_the_true_gradient(rows: bool, bound: float, second: float) -> None:
    opt = tfopt.optimizers.LossScaleOptimizer(tfopt.optimizers.SGD(1.0, clipvalue=bound), 8.0)
    grad, w = np.array([[24.0, 32.0]]), np.zeros((1, 2))
    opt.observe = True
    opt.apply_gradients([(tfopt.IndexedSlices(grad, np.array([0])) if rows else grad, w)])
    assert w.tolist() == [[-3.0, -second]]
    norm = pytest.approx(np.hypot(3.0, second))
    assert opt.last_step == tfopt.optimizers.StepReport(norm, norm, second == bound, 0)


@each_wrapper
def test_methods_of_the_one_inside(which: str) -> None:
    own = tfopt.optimizers
    opt = CASES[which].idle(own.AdamW(0.5, weight_decay=0.5))
    opt.exclude_from_weight_decay(var_names=["^b"])
    params = {"a": np.ones(1), "b": np.ones(1)}
    opt.step(params, {"a": np.zeros(1), "b": np.zeros(1)})
    assert (params["a"][0], params["b"][0]) == (0.75, 1.0)


def test_what_a_wrapper_is_made_with_is_checked_when_it_is_set() -> None:
    own = tfopt.optimizers
    summed = own.GradientAccumulation(own.SGD(1.0), 3)
    scaled = own.LossScaleOptimizer(own.SGD(1.0))
    averaged = own.WeightAverage(own.SGD(1.0))
    for opt, attribute, value in (
        (summed, "steps", 0),
        (summed, "reduction", "max"),
        (summed, "pending", 0),
        (summed, "optimizer", own.SGD()),
        (scaled, "dynamic_growth_steps", 0),
        (scaled, "initial_scale", 8.0),
        (scaled, "dynamic_scale", 8.0),
        (scaled, "step_counter", 8),
        (averaged, "momentum", 2.0),
        (averaged, "overwrite_frequency", 0),
        (own.ParameterGroups(own.SGD(), []), "optimizers", []),
        (own.ParameterGroups(own.SGD(), [("a", {})]), "iterations", tfopt.Variable(np.array(3))),
    ):
        before = getattr(opt, attribute)
        with pytest.raises(tfopt.InvalidArgumentError, match=attribute.rstrip("s")):
            setattr(opt, attribute, value)
        assert getattr(opt, attribute) is before
    w = np.zeros(1)
    for k in range(2):
        summed.apply_gradients([(np.full(1, k + 1.0), w)])
    summed.steps = 2  # the batches there are, and the next one
    summed.apply_gradients([(np.full(1, 3.0), w)])
    assert w.tolist() == [-2] and int(summed.pending) == 0


# ---- groups


def test_groups_are_set_together_and_read_where_they_agree() -> None:
    own = tfopt.optimizers
    opt = own.ParameterGroups(own.Adam(0.5), [("a", {"learning_rate": 0.25}), ("b", own.SGD(0.5))])
    assert opt.decay == 0 and not hasattr(opt, "learning_rate")
    with pytest.raises(AttributeError, match="groups differ in learning_rate"):
        opt.learning_rate  # noqa: B018
    opt.learning_rate = 0.125
    assert [each.learning_rate for each in opt.optimizers] == [0.125] * 3 == [opt.lr] * 3
    with pytest.raises(AttributeError, match="SGD, the optimizer of a group"):
        opt.beta_1 = 0.5
    with pytest.raises(tfopt.InvalidArgumentError, match="clipnorm"):
        opt.clipnorm = -1.0
    opt.optimizers[1].global_clipnorm = 1.0
    with pytest.raises(tfopt.InvalidArgumentError, match="both"):
        opt.clipnorm = 1.0  # which the second group refuses
    assert [each.clipnorm for each in opt.optimizers] == [None] * 3
    assert [each.beta_1 for each in opt.optimizers[::2]] == [0.9] * 2


def test_arguments_of_a_group_reach_the_optimizer_inside_a_wrapper() -> None:
    own, seen = tfopt.optimizers, []
    base = own.LossScaleOptimizer(
        own.SGD(0.5, gradient_aggregator=lambda pairs: seen.append(len(pairs)) or pairs), 4.0
    )
    different = {"learning_rate": 0.25, "dynamic_growth_steps": 7}
    opt = own.ParameterGroups(base, [("a", different)])
    made = opt.optimizers[0]
    assert (made.learning_rate, made.dynamic_growth_steps, made.initial_scale) == (0.25, 7, 4.0)
    opt.step({"a": np.ones(1), "b": np.ones(1)}, {"a": np.ones(1), "b": np.ones(1)})
    assert seen == [1, 1]


def test_a_slot_of_a_groups_variable_is_its_groups() -> None:
    own, w = tfopt.optimizers, np.ones(2)
    opt = own.ParameterGroups(own.SGD(), [([w], own.SGD())])
    slot = opt.add_slot(w, "more", "ones")
    assert opt.get_slot(w, "more") is slot is opt.optimizers[0].get_slot(w, "more")
    assert slot is opt.weights[1]


# ---- slots


@pytest.mark.parametrize("name", RULES)
def test_a_slot_has_the_shape_that_its_optimizer_gives_it(name: str) -> None:
    """Whether it is there already or not; and so have the wrappers' own."""
    own = tfopt.optimizers
    made = getattr(own, name)()
    made.apply_gradients([(np.ones((3, 2)), np.ones((3, 2)))])
    slots = made.get_slot_names()
    for make, names in (
        (lambda: getattr(own, name)(), slots),
        (lambda: own.GradientAccumulation(own.SGD(), 2), ["gradient"]),
        (lambda: own.WeightAverage(own.SGD()), ["average"]),
    ):
        for slot in names:
            opt, w = make(), np.ones((3, 2))
            with pytest.raises(tfopt.InvalidArgumentError, match=f"slot {slot}"):
                opt.add_slot(w, slot, shape=(50, 50))
            assert not opt.weights[1:] or all(each.shape == () for each in opt.weights[1:])
            opt.apply_gradients([(np.ones((3, 2)), w)])
            before = len(opt.weights)
            with pytest.raises(tfopt.InvalidArgumentError, match=f"slot {slot}"):
                opt.add_slot(w, slot, shape=(50, 50))
            assert len(opt.weights) == before
