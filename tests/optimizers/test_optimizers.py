"""The optimizers: OptimizerV2's contract, on both implementations."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from common.optimizer_makers import MAKERS, make, state
from common.step_cases import every_optimizer

import tfopt

each_optimizer = pytest.mark.parametrize("which", MAKERS)


@each_optimizer
def test_many_variables_with_threads(which: str) -> None:
    random = np.random.default_rng(0)
    sizes = [0, 1, 5, 70_000, 3, 20_000, 64, 16_384]
    start = [random.standard_normal(n).astype(np.float32) for n in sizes]
    grads = [random.standard_normal(n).astype(np.float32) for n in sizes]
    expected: dict[str, np.ndarray] | None = None
    for threads in (1, 2, 3):
        tfopt.threads.set_num_threads(threads)
        variables = [v.copy() for v in start]
        optimizer = make(which)
        for _ in range(3):
            optimizer.apply_gradients(zip(grads, variables, strict=True))
        got = state(optimizer, variables)
        expected = expected or got
        for name, want in expected.items():
            assert_same_bits(got[name], want, f"{which}, {threads} threads: {name}")


# ---- what TensorFlow's classes do


def test_plain_descent_takes_repeated_rows_in_order() -> None:
    """Merged first, the rows would sum to 0 and leave 0.5."""
    var = np.array([[0.5]], np.float32)
    rows = np.array([[1e8], [1], [-1e8]], np.float32)
    tfopt.optimizers.SGD(1.0).apply_gradients([(tfopt.IndexedSlices(rows, [0, 0, 0]), var)])
    assert var[0, 0] == 0


def test_iterations_and_the_first_step() -> None:
    optimizer, w = tfopt.optimizers.Adamax(0.1), np.zeros(2)
    assert int(optimizer.iterations) == 0
    assert optimizer.apply_gradients([]) is None
    assert int(optimizer.iterations) == 0
    assert optimizer.apply_gradients([(np.array([1.0, 0.0]), w)]) is optimizer.iterations
    assert int(optimizer.iterations) == 1
    np.testing.assert_allclose(w, [-0.1, 0], rtol=1e-6)


def test_decay() -> None:
    optimizer, w = tfopt.optimizers.SGD(1.0, decay=0.5), np.zeros(1)
    steps = []
    for _ in range(3):
        before = w[0]
        optimizer.apply_gradients([(np.ones(1), w)])
        steps.append(before - w[0])
    np.testing.assert_allclose(steps, [1, 2 / 3, 1 / 2], rtol=1e-15)


def test_a_variable_that_comes_twice_is_updated_twice() -> None:
    optimizer, w = tfopt.optimizers.Adamax(0.1), np.zeros(1)
    optimizer.apply_gradients([(np.ones(1), w), (np.ones(1), w)])
    np.testing.assert_allclose(w, -0.29, rtol=1e-6)
    np.testing.assert_allclose(optimizer.get_slot(w, "m").numpy(), 0.19)
    assert int(optimizer.iterations) == 1


def test_missing_gradients() -> None:
    optimizer = tfopt.optimizers.SGD(1.0)
    w, u = tfopt.Variable(np.zeros(1), "w"), tfopt.Variable(np.zeros(1), "u")
    with pytest.warns(UserWarning, match=r"Gradients do not exist for variables \['u'\]"):
        optimizer.apply_gradients([(np.ones(1), w), (None, u)])
    assert (w.numpy()[0], u.numpy()[0]) == (-1, 0)
    with pytest.raises(ValueError, match=r"any variable: \['w', 'u'\]. Is the loss computed from"):
        optimizer.apply_gradients([(None, w), (None, u)])
    whole = tfopt.Variable(np.zeros(1, np.int64), "n")
    with pytest.raises(ValueError, match=r"\['w', 'n'\]. Variables of int64 have none: convert"):
        optimizer.apply_gradients([(None, w), (None, whole)])


def test_slots() -> None:
    optimizer = tfopt.optimizers.Ftrl(initial_accumulator_value=0.5)
    assert optimizer.get_slot_names() == ["accumulator", "linear"]
    w = tfopt.Variable(np.zeros((2, 3), np.float32), "w")
    with pytest.raises(KeyError):
        optimizer.get_slot(w, "linear")
    optimizer.apply_gradients([(np.zeros((2, 3), np.float32), w)])
    slot = optimizer.get_slot(w, "accumulator")
    assert (slot.name, slot.shape, slot.dtype) == ("Ftrl/w/accumulator", (2, 3), np.float32)
    assert (slot.numpy() == 0.5).all()
    assert optimizer.add_slot(w, "accumulator", 9) is slot
    with pytest.raises(KeyError):
        optimizer.get_slot(w, "momentum")


def test_slots_follow_the_memory_not_the_object() -> None:
    """New views and new Variables of the same memory at each step are the same variable."""
    once, anew = np.ones(4), np.ones(4)
    a, b = tfopt.optimizers.Adamax(0.1), tfopt.optimizers.Adamax(0.1)
    for k in range(5):
        a.apply_gradients([(np.full(4, 0.5 - k), once)])
        b.apply_gradients([(np.full(4, 0.5 - k), tfopt.Variable(anew[:]) if k % 2 else anew[:])])
    assert (once == anew).all()


def test_a_loop_may_change_its_variables() -> None:
    optimizer = tfopt.optimizers.SGD(1.0, momentum=0.5)
    a, b = np.zeros(2), np.zeros(3)
    optimizer.apply_gradients([(np.ones(2), a)])
    optimizer.apply_gradients([(np.ones(2), a), (np.ones(3), b)])
    optimizer.apply_gradients([(np.ones(3), b)])
    assert a.tolist() == [-2.5] * 2
    assert b.tolist() == [-2.5] * 3


def test_sparse_rows_that_are_not_named_keep_everything() -> None:
    optimizer, w = tfopt.optimizers.Adamax(0.1), np.ones((3, 2))
    optimizer.apply_gradients([(np.ones((3, 2)), w)])
    before = {name: a.copy() for name, a in state(optimizer, [w]).items()}
    optimizer.apply_gradients([(tfopt.IndexedSlices(np.ones((1, 2)), [1]), w)])
    for name, a in state(optimizer, [w]).items():
        assert (a[[0, 2]] == before[name][[0, 2]]).all()
        assert (a[1] != before[name][1]).any() or name.startswith("v ")


BAD_STEPS = {
    "dense shape": lambda tfopt: np.ones(4),
    "dense dtype": lambda tfopt: np.ones(3, np.float32),
    "object": lambda tfopt: object(),
    "index": lambda tfopt: tfopt.IndexedSlices(np.ones(1), [3]),
    "rank of indices": lambda tfopt: tfopt.IndexedSlices(np.ones((1, 1)), [[0]]),
    "rows": lambda tfopt: tfopt.IndexedSlices(np.ones(2), [0]),
    "dtype of rows": lambda tfopt: tfopt.IndexedSlices(np.ones(1, np.float32), [0]),
}


@each_optimizer
@pytest.mark.parametrize("bad", BAD_STEPS)
def test_a_refused_step_changes_nothing(which: str, bad: str) -> None:
    """Also when the bad pair is the last of several."""
    optimizer = make(which)
    variables = [np.ones(3), np.ones((2, 2), np.float32), np.ones(3)]
    good = [np.ones(3), tfopt.IndexedSlices(np.ones((1, 2), np.float32), [1])]
    optimizer.apply_gradients(zip([*good, np.ones(3)], variables, strict=True))
    before = {name: a.copy() for name, a in state(optimizer, variables).items()}
    with pytest.raises((tfopt.InvalidArgumentError, TypeError)):
        optimizer.apply_gradients(zip([*good, BAD_STEPS[bad]()], variables, strict=True))
    for name, a in state(optimizer, variables).items():
        assert_same_bits(a, before[name], name)
    assert int(optimizer.iterations) == 1


def test_other_refusals_of_steps() -> None:
    optimizer = tfopt.optimizers.SGD()
    with pytest.raises(tfopt.InvalidTypeError, match="share memory with one, not list, which"):
        optimizer.apply_gradients([(np.ones(1), [1.0])])
    with pytest.raises(tfopt.InvalidArgumentError, match="pairs of a gradient and a variable"):
        optimizer.apply_gradients([np.ones(1)])


def test_variables_that_share_memory_are_updated_one_after_another() -> None:
    memory, optimizer = np.ones(4), tfopt.optimizers.SGD(1.0, momentum=0.5)
    for _ in range(2):
        optimizer.apply_gradients([(np.ones(3), memory[1:]), (np.full(3, 2.0), memory[:-1])])
    assert memory.tolist() == [-4, -6.5, -6.5, -1.5]


@pytest.mark.parametrize("kinds", ["dense rows dense", "rows dense rows", "rows rows dense"])
def test_a_variable_that_comes_again_is_updated_in_the_order_of_the_pairs(kinds: str) -> None:
    """Whether its gradients are dense or rows."""
    random = np.random.default_rng(0)
    grads: list[Any] = [
        tfopt.IndexedSlices(random.standard_normal((2, 3)), [2, 0])
        if kind == "rows"
        else random.standard_normal((4, 3))
        for kind in kinds.split()
    ]
    one, other = np.ones((4, 3)), np.ones((4, 3))
    together, apart = tfopt.optimizers.Adagrad(0.5), tfopt.optimizers.Adagrad(0.5)
    for _ in range(2):
        together.apply_gradients([(grad, one) for grad in grads])
        for grad in grads:
            apart.apply_gradients([(grad, other)])
    assert_same_bits(one, other, kinds)


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("SGD", {"learning_rate": -1}, "InvalidArgumentError", "learning_rate must be finite and"),
        ("SGD", {"learning_rate": float("nan")}, "InvalidArgumentError", "learning_rate must be"),
        ("SGD", {"learning_rate": "0.1"}, "InvalidTypeError", "learning_rate must be a number"),
        ("SGD", {"learning_rate": None}, "InvalidTypeError", "learning_rate must be a number"),
        ("SGD", {"learning_rate": [0.1]}, "InvalidTypeError", "learning_rate must be a number"),
        ("SGD", {"momentum": 1.5}, "InvalidArgumentError", "momentum must be between 0 and 1"),
        (
            "Adamax",
            {"beta_1": -0.1},
            "InvalidArgumentError",
            "beta_1 must be at least 0 and",
        ),
        ("Adamax", {"epsilon": -1.0}, "InvalidArgumentError", "epsilon must be finite and greater"),
        ("Ftrl", {"learning_rate": 0}, "InvalidArgumentError", "greater than 0"),
        ("Ftrl", {"learning_rate_power": 0.1}, "InvalidArgumentError", "at most 0"),
        ("Ftrl", {"l1_regularization_strength": -1}, "InvalidArgumentError", "at least 0"),
    ],
)
def test_bad_hyperparameters(name: str, options: dict[str, Any], error: str, message: str) -> None:
    with pytest.raises(getattr(tfopt, error), match=message):
        getattr(tfopt.optimizers, name)(**options)
    optimizer = getattr(tfopt.optimizers, name)()
    (attribute, value), *_ = options.items()
    before = getattr(optimizer, attribute)
    with pytest.raises(getattr(tfopt, error), match=message):
        setattr(optimizer, attribute, value)
    assert getattr(optimizer, attribute) == before
    with pytest.raises(TypeError, match="foo"):
        getattr(tfopt.optimizers, name)(foo=1.0)


def test_hyperparameters_can_be_set_between_steps() -> None:
    optimizer, w = tfopt.optimizers.SGD(1.0), np.zeros(1)
    optimizer.apply_gradients([(np.ones(1), w)])
    optimizer.lr = 0.5
    assert optimizer.learning_rate == 0.5
    optimizer.apply_gradients([(np.ones(1), w)])
    optimizer.momentum = 0.5
    optimizer.apply_gradients([(np.ones(1), w)])
    assert w[0] == -2.0
    assert optimizer.get_slot(w, "momentum").numpy()[0] == -0.5


@each_optimizer
def test_configuration_round_trips(which: str) -> None:
    optimizer = make(which)
    again = type(optimizer).from_config(optimizer.get_config())
    assert again.get_config() == optimizer.get_config()
    assert repr(again) == repr(optimizer)
    assert eval(repr(optimizer), vars(tfopt.optimizers)).get_config() == optimizer.get_config()


@pytest.mark.parametrize("which", sorted(every_optimizer()))
def test_a_step_shows_its_number(which: str) -> None:
    """Alone, in a wrapper, after pickling; what it returns is the variable all the same."""
    optimizer, w = every_optimizer()[which](), np.ones(4)
    shown = {f"<step {t} of {each.name}>" for each in optimizer._tree() for t in range(3)}
    for _ in range(2):
        taken = optimizer.step([w], [np.ones(4)])
        assert repr(taken) in shown
        assert f" {int(optimizer.iterations)} " in repr(taken)
    assert taken is optimizer.iterations
    assert isinstance(taken, tfopt.Variable)
    again, _ = pickle.loads(pickle.dumps((optimizer, w)))
    assert repr(again.iterations) == repr(taken)


def test_a_step_returns_the_users_count() -> None:
    optimizer, own = tfopt.optimizers.SGD(0.1), tfopt.Variable(np.array(7))
    optimizer.iterations = own
    assert optimizer.step([np.ones(4)], [np.ones(4)]) is own
    assert repr(own).startswith("<Variable")


def test_configurations_are_tensorflows() -> None:
    assert tfopt.optimizers.Adamax().get_config() == {
        "name": "Adamax", "learning_rate": 0.001, "decay": 0.0,
        "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7,
    }  # fmt: skip
    assert list(tfopt.optimizers.SGD().get_config()) == [
        "name", "learning_rate", "decay", "momentum", "nesterov",
    ]  # fmt: skip
    assert list(tfopt.optimizers.Ftrl().get_config()) == [
        "name", "learning_rate", "decay", "initial_accumulator_value", "learning_rate_power",
        "l1_regularization_strength", "l2_regularization_strength", "beta",
        "l2_shrinkage_regularization_strength",
    ]  # fmt: skip
    assert tfopt.optimizers.Adamax(epsilon=0).epsilon == 1e-7


def test_lists_and_numbers_are_gradients_too() -> None:
    for number in (3, 3.0, np.float64(3)):
        b = np.array(1.0)
        tfopt.optimizers.SGD(1.0).apply_gradients([(number, b)])
        assert b == -2
    with pytest.raises(tfopt.InvalidTypeError, match="float64 as var is, not float32"):
        tfopt.optimizers.SGD(1.0).apply_gradients([(np.float32(3), b)])
    w = np.zeros(2, np.float32)
    tfopt.optimizers.SGD(1.0).apply_gradients([([1, 2], w)])
    assert w.tolist() == [-1, -2]


def test_a_subclass_needs_slots_and_an_update() -> None:
    class Mine(tfopt.optimizers.Optimizer):
        pass

    with pytest.raises(NotImplementedError, match="Mine"):
        Mine("mine", 0.1).apply_gradients([(np.ones(1), np.ones(1))])
