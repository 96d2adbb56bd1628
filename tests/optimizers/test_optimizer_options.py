"""Options of constructors and steps besides hyperparameters."""

from __future__ import annotations

import inspect
import re
import warnings
from typing import Any

import numpy as np
import pytest
from common.optimizer_arguments import RULES, arguments_of

import tfopt

each_class = pytest.mark.parametrize("name", RULES)


# ---- names


@each_class
def test_names_are_made_unique(name: str) -> None:
    cls = getattr(tfopt.optimizers, name)
    first, second, third = (cls(name=given).name for given in (None, "", None))
    stem = re.sub("(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    numbers = [
        int(made.removeprefix(stem).removeprefix("_") or 0) for made in (first, second, third)
    ]
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]
    assert cls().name == name and cls(name="mine").name == "mine"


# ---- the old name of the learning rate


@each_class
def test_lr_warns_and_counts(name: str) -> None:
    """In Ftrl, too, which ignores it in TensorFlow."""
    with pytest.warns(UserWarning, match="use `learning_rate` instead"):
        optimizer = getattr(tfopt.optimizers, name)(learning_rate=0.1, lr=0.5)
    assert optimizer.learning_rate == 0.5 and "lr" not in optimizer.get_config()


@each_class
def test_unknown_arguments(name: str) -> None:
    with pytest.raises(TypeError, match="foo"):
        getattr(tfopt.optimizers, name)(foo=1.0)


# ---- gradients changed on their way


def test_transformers_in_turn() -> None:
    def twice(pairs: Any) -> Any:
        return [(2 * grad, var) for grad, var in pairs]

    def and_one(pairs: Any) -> Any:
        return ((grad + 1, var) for grad, var in pairs)

    optimizer = tfopt.optimizers.SGD(1.0, gradient_transformers=[twice, and_one])
    var = np.zeros(3)
    optimizer.apply_gradients([(np.array([1.0, 2.0, 3.0]), var)])
    assert var.tolist() == [-3, -5, -7]


def test_the_aggregator_comes_first_unless_it_is_left_out() -> None:
    def aggregate(pairs: Any) -> Any:
        return [(10 * grad, var) for grad, var in pairs]

    def and_one(pairs: Any) -> Any:
        return [(grad + 1, var) for grad, var in pairs]

    optimizer = tfopt.optimizers.SGD(
        1.0, gradient_aggregator=aggregate, gradient_transformers=[and_one]
    )
    var = np.zeros(1)
    optimizer.apply_gradients([(np.ones(1), var)])
    assert var[0] == -11
    optimizer.apply_gradients([(np.ones(1), var)], experimental_aggregate_gradients=False)
    assert var[0] == -13


def test_gradients_that_are_none_do_not_reach_a_transformer() -> None:
    seen: list[int] = []

    def look(pairs: Any) -> Any:
        seen.append(len(pairs))
        return pairs

    optimizer, var = tfopt.optimizers.SGD(1.0, gradient_transformers=[look]), np.zeros(1)
    with pytest.warns(UserWarning, match="do not exist"):
        optimizer.apply_gradients([(None, np.zeros(2)), (np.ones(1), var)])
    assert seen == [1]


@pytest.mark.parametrize("option", ["clipnorm", "clipvalue", "global_clipnorm"])
def test_transformers_and_clipping_do_not_go_together(option: str) -> None:
    with pytest.raises(tfopt.InvalidArgumentError, match=f"`{option}` cannot be set"):
        tfopt.optimizers.SGD(**{option: 1.0}, gradient_transformers=[lambda pairs: pairs])
    tfopt.optimizers.SGD(**{option: 1.0}, gradient_transformers=[])


@pytest.mark.parametrize("returned", [[1.0], [(np.ones(2), np.zeros(1))], 3])
def test_what_a_transformer_returns_is_checked(returned: Any) -> None:
    optimizer = tfopt.optimizers.SGD(1.0, gradient_transformers=[lambda pairs: returned])
    var = np.zeros(1)
    with pytest.raises(tfopt.InvalidArgumentError):
        optimizer.apply_gradients([(np.ones(1), var)])
    assert var[0] == 0 and int(optimizer.iterations) == 0


# ---- minimize


def test_minimize() -> None:
    w, calls = np.array([3.0, -4.0]), []

    def loss() -> Any:
        calls.append(w.copy())
        return w @ w, [2 * w]

    optimizer = tfopt.optimizers.SGD(0.25)
    assert int(optimizer.minimize(loss, [w])) == 1
    assert w.tolist() == [1.5, -2] and len(calls) == 1
    optimizer.minimize(loss, w)  # one variable
    optimizer.minimize(loss, lambda: [w])  # a function of nothing
    assert w.tolist() == [0.375, -0.5] and int(optimizer.iterations) == 3


def test_variables_are_asked_for_after_the_loss() -> None:
    order: list[str] = []
    w = tfopt.Variable(np.ones(1))

    def loss() -> Any:
        order.append("loss")
        return 1.0, [np.ones(1)]

    def variables() -> Any:
        order.append("variables")
        return [w]

    tfopt.optimizers.SGD(1.0).minimize(loss, variables)
    assert order == ["loss", "variables"] and w.numpy()[0] == 0


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (1.0, "`tape` is required"),
        (lambda: 1.0, "must return a pair"),
        (lambda: (1.0, []), "1 variables, but 0 gradients"),
        (lambda: (1.0, [None]), "No gradients provided"),
    ],
)
def test_refused_losses(loss: Any, message: str) -> None:
    optimizer, w = tfopt.optimizers.SGD(1.0), np.ones(1)
    with pytest.raises(tfopt.InvalidArgumentError, match=message):
        optimizer.minimize(loss, [w])
    assert w[0] == 1 and int(optimizer.iterations) == 0


def test_nothing_to_minimize() -> None:
    assert tfopt.optimizers.SGD(1.0).minimize(lambda: (1.0, []), []) is None


# ---- a rule of one's own


def test_a_subclass_of_a_subclass_keeps_its_bounds() -> None:
    class Mine(tfopt.optimizers.Ftrl):
        pass

    rates = iter([0.5, 0.0])
    optimizer, w = Mine(lambda: next(rates)), np.ones(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.apply_gradients([(np.ones(1), w)])
    with pytest.raises(tfopt.InvalidArgumentError, match="greater than 0"):
        optimizer.apply_gradients([(np.ones(1), w)])
    assert int(optimizer.iterations) == 1


@each_class
def test_each_keyword_is_documented(name: str) -> None:
    """And stands in the class's own documentation, whichever class it comes from."""
    cls = getattr(tfopt.optimizers, name)
    text = inspect.getdoc(cls) or ""
    missing = [
        keyword
        for keyword in arguments_of(cls)
        if not re.search(rf"(?m)^[\w, ]*\b{keyword}\b[\w, ]* :|`{keyword}`", text)
    ]
    assert not missing


@each_class
def test_an_unknown_keyword_is_refused_by_the_class_that_was_called(name: str) -> None:
    for keyword, hint in (("wd", "it takes learning_rate"), ("clip_norm", "mean 'clipnorm'")):
        with pytest.raises(tfopt.errors.InvalidTypeError, match=f"^{name} got .*{keyword}.*{hint}"):
            getattr(tfopt.optimizers, name)(0.1, **{keyword: 1.0})


@each_class
def test_warnings_point_at_the_callers_line(name: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        opt = getattr(tfopt.optimizers, name)(lr=0.5)
        v, unused = tfopt.Variable(np.ones(2)), tfopt.Variable(np.ones(2))
        opt.apply_gradients([(None, unused), (np.ones(2), v)])
        tfopt.optimizers.WeightAverage(opt).minimize(lambda: np.sum(v * v), [v, unused])
    assert [warning.filename for warning in caught] == [__file__] * 3
