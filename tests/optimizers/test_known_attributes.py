"""Unknown public attributes are refused, except for users' classes."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from common.optimizer_arguments import RULES, USUAL, arguments_of
from common.step_cases import every_optimizer

from tfopt import optimizers
from tfopt.optimizers import Adam, Optimizer, Wrapper, schedules
from tfopt.optimizers.schedules.schedule import SCHEDULES

EVERY = every_optimizer()


def made_schedule(name: str) -> Any:
    cls = SCHEDULES[name]
    given = {k: USUAL[k] for k, p in arguments_of(cls).items() if p.default is p.empty}
    return cls(**given)


@pytest.mark.parametrize("name", EVERY)
def test_an_optimizer_refuses_what_it_does_not_know(name: str) -> None:
    opt = EVERY[name]()
    for wrong, meant in (("clip_norm", "clipnorm"), ("learning_rat", "learning_rate")):
        with pytest.raises(AttributeError, match=f"{wrong}.*did you mean '{meant}'"):
            setattr(opt, wrong, 1.0)
        assert not hasattr(opt, wrong)
    opt._mine = 3


@pytest.mark.parametrize("name", RULES)
def test_each_setting_misspelt_is_refused(name: str) -> None:
    opt = getattr(optimizers, name)()
    for argument in arguments_of(type(opt)):
        with pytest.raises(AttributeError, match="did you mean"):
            setattr(opt, argument + "s", 1.0)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_refuses_what_it_does_not_know(name: str) -> None:
    schedule = made_schedule(name)
    for argument in arguments_of(type(schedule)):
        wrong = f"{argument}_"
        with pytest.raises(AttributeError, match=f"{wrong}.*did you mean"):
            setattr(schedule, wrong, 1.0)
    assert schedule(0) == made_schedule(name)(0)


class Mixin:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.mixed = 1


class Mine(Mixin, Adam):
    in_body = 1
    annotated: int
    __slots__ = ("slot",)

    def __init__(self, learning_rate: float = 0.1, extra: float = 2.0, **others: Any) -> None:
        self.before = 1
        super().__init__(learning_rate)
        self.after = 2
        self.extra = extra
        for name, value in others.items():
            setattr(self, name, value)
        self._helped()

    def _helped(self) -> None:
        self.helped = 3


class Around(Wrapper):
    annotated: int
    in_body = 1

    def __init__(self, optimizer: Any, period: int = 2, name: str = "Around") -> None:
        self.period = period
        super().__init__(optimizer, name)
        self.annotated = 3


@dataclass
class Line(schedules.LearningRateSchedule):
    slope: float = 1.0

    def __call__(self, step: Any) -> float:
        return self.slope * float(step)


def test_what_a_users_class_declares_or_its_constructor_sets_is_known() -> None:
    opt = Mine(dynamic=4)
    names = [
        "before",
        "after",
        "extra",
        "mixed",
        "helped",
        "dynamic",
        "in_body",
        "annotated",
        "slot",
        "_private",
    ]
    for again in (opt, copy.deepcopy(opt), pickle.loads(pickle.dumps(opt))):
        for name in names:
            setattr(again, name, 5)
            assert getattr(again, name) == 5
        with pytest.raises(AttributeError, match="did you mean 'extra'"):
            again.extras = 1
    around, line = Around(Adam()), Line(2.0)
    around.period, around.annotated, around.in_body = 3, 4, 5
    assert "annotated" not in vars(around.optimizer)
    line.slope = 3.0
    assert line(2) == 6.0
    for each, wrong in ((around, "periods"), (line, "slop")):
        with pytest.raises(AttributeError, match="did you mean"):
            setattr(each, wrong, 1)


@pytest.mark.parametrize("name", RULES)
def test_flags_are_true_or_false(name: str) -> None:
    cls = getattr(optimizers, name)
    opt = cls()
    flags = [n for n in (*arguments_of(cls), "observe") if type(getattr(opt, n, None)) is bool]
    assert "use_locking" in flags
    for attribute in flags:
        before = getattr(opt, attribute)
        for wrong in ("no", "", 2, 0.0, None, [1]):
            with pytest.raises(TypeError, match=f"{attribute} must be True or False"):
                setattr(opt, attribute, wrong)
            assert getattr(opt, attribute) is before


def test_another_objects_constructor_does_not_open_this_one() -> None:
    class Trainer:
        def __init__(self, opt: Any) -> None:
            self.opt = opt
            self.opt.clip_norm = 1.0

    opt = Adam()
    with pytest.raises(AttributeError, match="clipnorm"):
        Trainer(opt)


def test_a_class_is_not_one_of_its_objects() -> None:
    for make in (
        lambda: Adam(schedules.CosineDecay),
        lambda: schedules.LinearWarmup(schedules.CosineDecay, 3),
        lambda: schedules.Join([0.5, schedules.CosineDecay], [3]),
        lambda: optimizers.WeightAverage(Adam),
        lambda: optimizers.ParameterGroups(Adam(), [("a", Adam)]),
    ):
        with pytest.raises(TypeError, match=r"(CosineDecay|Adam): call it"):
            make()
    opt = Adam(0.5)
    with pytest.raises(TypeError, match="CosineDecay: call it"):
        opt.learning_rate = schedules.CosineDecay
    assert opt.learning_rate == 0.5


@pytest.mark.parametrize("name", EVERY)
def test_shallow_copies_are_refused(name: str) -> None:
    opt, w = EVERY[name](), np.ones(3)
    with pytest.raises(TypeError, match="deepcopy"):
        copy.copy(opt)
    again, v = copy.deepcopy((opt, w))
    again.apply_gradients([(np.ones(3), v)])
    assert int(opt.iterations) == 0 and isinstance(again, Optimizer)
