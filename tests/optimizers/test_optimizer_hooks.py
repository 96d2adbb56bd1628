"""The methods that a user's optimizer may override, and their calls in a step."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from common.optimizer_makers import MAKERS, make, state

import tfopt


def signum() -> Any:
    """A user's optimizer as one would be written for OptimizerV2: Bernstein et al., signSGD."""

    class Signum(tfopt.optimizers.Optimizer):  # type: ignore[misc, name-defined]
        def __init__(self, learning_rate: Any = 0.5, momentum: Any = 0.5, **kwargs: Any) -> None:
            super().__init__(kwargs.pop("name", "Signum"), **kwargs)
            self._set_hyper("learning_rate", kwargs.get("lr", learning_rate))
            self._set_hyper("momentum", momentum)

        def _create_slots(self, var_list: Any) -> None:
            for var in var_list:
                self.add_slot(var, "m")

        def _prepare_local(self, var_device: str, var_dtype: Any, apply_state: Any) -> None:
            super()._prepare_local(var_device, var_dtype, apply_state)
            apply_state[var_device, var_dtype]["mu"] = self._get_hyper("momentum", var_dtype)

        def _step(self, grad: Any, rows: Any, var: Any, apply_state: Any) -> None:
            local = apply_state[var.device, var.dtype]
            m, w = self.get_slot(var, "m").numpy(), var.numpy()
            m[rows] = local["mu"] * m[rows] + (1 - local["mu"]) * grad
            w[rows] -= local["lr_t"] * np.sign(m[rows])

        def _resource_apply_dense(self, grad: Any, handle: Any, apply_state: Any) -> None:
            self._step(grad, ..., handle, apply_state)

        def _resource_apply_sparse(
            self, grad: Any, handle: Any, indices: Any, apply_state: Any
        ) -> None:
            self._step(grad, indices, handle, apply_state)

        def get_config(self) -> dict[str, Any]:
            own = {"momentum": self._serialize_hyperparameter("momentum")}
            return {**super().get_config(), **own}

    return Signum


# ---- a subclass in NumPy


def test_it_takes_dense_and_sparse_steps() -> None:
    opt = signum()(decay=1.0)
    dense, rows = np.array([3.0, -4.0], np.float32), np.zeros((3, 2))
    slices = tfopt.IndexedSlices(np.array([[1.0, 1], [2, 2], [-5, -4]]), np.array([2, 0, 2]))
    assert int(opt.apply_gradients([(2 * dense, dense), (slices, rows)])) == 1
    assert dense.tolist() == [2.5, -3.5]
    assert rows.tolist() == [[-0.5, -0.5], [0, 0], [0.5, 0.5]]  # of row 2: the sum of two
    assert opt.get_slot(rows, "m").numpy().tolist() == [[1, 1], [0, 0], [-2, -1.5]]
    assert opt.get_slot_names() == ["m"] and len(opt.weights) == 3
    opt.apply_gradients([(np.array([9, -9], np.float32), dense)])
    assert dense.tolist() == [2.25, -3.25]  # the learning rate has decayed
    assert opt.momentum == 0.5 and opt.lr == 0.5


def test_its_configuration_and_state_survive() -> None:
    cls = signum()
    opt = cls(tfopt.optimizers.schedules.ExponentialDecay(0.5, 1, 0.5), momentum=0.25, clipnorm=9.0)
    copy = cls.from_config(opt.get_config())
    w, u = np.ones(3), np.ones(3)
    opt.apply_gradients([(np.array([1.0, -2, 0]), w)])
    copy.apply_gradients([(np.array([1.0, -2, 0]), u)])
    assert_same_bits(w, u, "w")
    copy.set_weights([np.array(7), np.array([9.0, 9, 9])])
    assert int(copy.iterations) == 7 and copy.get_slot(u, "m")[0] == 9


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"clipvalue": 1.0}, [[2, 2], [0, 0], [-1, 0]]),
        ({"clipnorm": 1.0}, [[1.4, 0], [0, 0], [0, 0]]),
        ({"clipnorm": 1.0, "merge": "before"}, [[1, 0], [0, 0], [0, 0]]),
        ({"global_clipnorm": 1.0}, [[1.4, 0], [0, 0], [0, 0]]),
    ],
)
def test_its_gradients_are_clipped(limits: Any, expected: Any) -> None:
    class Plain(signum()):  # type: ignore[misc]
        def _resource_apply_sparse(self, grad: Any, handle: Any, indices: Any, _: Any) -> None:
            seen[indices] = grad

    values = [[3.0, 4], [5, 6], [-7, 0]] if "clipvalue" in limits else [[3.0, 0], [4, 0], [0, 0]]
    seen = np.zeros((3, 2))
    slices = tfopt.IndexedSlices(np.array(values), np.array([0, 0, 2]))
    Plain(**limits).apply_gradients([(slices, np.zeros((3, 2)))])
    np.testing.assert_allclose(seen, expected, rtol=1e-15)


def test_a_global_norm_is_one_of_all_dtypes() -> None:
    opt = signum()(1.0, momentum=0.0, global_clipnorm=1.0)
    wide, narrow, rows = np.zeros(1), np.zeros(1, np.float32), np.zeros((3, 1), np.float16)
    slices = tfopt.IndexedSlices(np.full((2, 1), 2, np.float16), np.array([0, 2]))
    opt.apply_gradients([(np.ones(1), wide), (np.full(1, 4, np.float32), narrow), (slices, rows)])
    assert opt.get_slot(wide, "m").numpy().tolist() == [1 / 5]
    assert opt.get_slot(narrow, "m").numpy().tolist() == [np.float32(4 / 5)]
    assert opt.get_slot(rows, "m").numpy()[:, 0].tolist() == [np.float16(0.4), 0, np.float16(0.4)]
    with pytest.raises(tfopt.errors.InvalidTypeError, match="complex128"):
        opt.apply_gradients([(np.ones(1), wide), (np.ones(1, complex), np.ones(1, complex))])
    assert int(opt.iterations) == 1


def test_nothing_is_touched_if_one_pair_does_not_fit() -> None:
    opt = signum()()
    w, rows = np.ones(2), np.ones((2, 2))
    bad: list[Any] = [
        np.ones(3),
        np.ones(2, np.float32),
        tfopt.IndexedSlices(np.ones((1, 2)), np.array([2])),
        tfopt.IndexedSlices(np.ones((1, 3)), np.array([0])),
    ]
    for grad in bad:
        with pytest.raises((tfopt.InvalidArgumentError, tfopt.InvalidTypeError)):
            opt.apply_gradients([(np.ones(2), w), (grad, rows)])
    assert w.tolist() == [1, 1] and (rows == 1).all()
    assert int(opt.iterations) == 0 and len(opt.weights) == 1


def test_what_is_not_overridden_is_named() -> None:
    class Mine(tfopt.optimizers.Optimizer):  # type: ignore[misc, name-defined]
        pass

    slices = tfopt.IndexedSlices(np.ones((1, 2)), np.array([0]))
    with pytest.raises(NotImplementedError, match="Mine must override _resource_apply_dense"):
        Mine("mine", 0.1).apply_gradients([(np.ones(1), np.ones(1))])
    with pytest.raises(NotImplementedError, match="Mine must override _resource_apply_sparse"):
        Mine("mine", 0.1).apply_gradients([(slices, np.ones((2, 2)))])


# ---- a subclass of one of ours


@pytest.mark.parametrize("which", MAKERS)
def test_one_variable_after_another_is_the_same(which: str) -> None:
    class Watched(type(make(which))):  # type: ignore[misc]
        seen: list[Any] = []

        def _resource_apply_dense(self, grad: Any, handle: Any, apply_state: Any) -> None:
            self.seen.append(handle.shape)
            super()._resource_apply_dense(grad, handle, apply_state)

    random = np.random.default_rng(5)
    start = [random.standard_normal(n) for n in (3, (4, 2), (2, 2))]
    both = []
    for cls in (Watched, type(make(which))):
        variables = [var.copy() for var in start]
        opt = cls(**MAKERS[which])
        random = np.random.default_rng(6)
        for _ in range(3):
            grads: list[Any] = [random.standard_normal(var.shape) for var in variables]
            grads[1] = tfopt.IndexedSlices(grads[1][:3], np.array([3, 0, 3]))
            opt.apply_gradients(zip(grads, variables, strict=True))
        both.append({**state(opt, variables), "weights": np.array(opt.get_weights()[0])})
    made_dense = getattr(opt, "_needs_whole", lambda variable: False)(tfopt.Variable(start[1]))
    assert Watched.seen == ([(3,), (4, 2), (2, 2)] if made_dense else [(3,), (2, 2)]) * 3
    for part in both[0]:
        assert_same_bits(both[0][part], both[1][part], part)


def test_coefficients_can_be_changed() -> None:
    class Halved(tfopt.optimizers.Adamax):  # type: ignore[misc, name-defined]
        def _prepare_local(self, var_device: str, var_dtype: Any, apply_state: Any) -> None:
            super()._prepare_local(var_device, var_dtype, apply_state)
            apply_state[var_device, var_dtype]["lr"] /= 2

    whole, half = np.zeros(2), np.zeros(2)
    tfopt.optimizers.Adamax(0.5).apply_gradients([(np.array([1.0, -2]), whole)])
    Halved(0.5).apply_gradients([(np.array([1.0, -2]), half)])
    np.testing.assert_array_equal(half, whole / 2)


# ---- constraints


@pytest.mark.parametrize("kind", ["ours", "a user's"])
def test_constraints_follow_dense_steps(kind: str) -> None:
    opt = tfopt.optimizers.SGD(1.0) if kind == "ours" else signum()(1.0)
    array = np.array([0.5, 2.5])
    var = tfopt.Variable(array, constraint=lambda w: np.maximum(w, 0))
    for expected in ([0, 1.5], [0, 0.5], [0, 0]):
        opt.apply_gradients([(np.ones(2), var), (np.ones(1), np.ones(1))])
        assert array.tolist() == expected
    slices = tfopt.IndexedSlices(np.ones(1), np.array([0]))
    other = np.ones(2)
    with pytest.raises(RuntimeError, match="constraint function on a sparse variable"):
        opt.apply_gradients([(np.ones(2), other), (slices, var)])
    assert other.tolist() == [1, 1] and int(opt.iterations) == 3
    with pytest.raises(AttributeError):
        var.constraint = None
    with pytest.raises(tfopt.InvalidArgumentError, match="cannot assign"):
        tfopt.Variable(np.ones(2), constraint=lambda w: w[:1]).constrain()


# ---- the step count and slots


def test_iterations_can_be_shared() -> None:
    opt, count = tfopt.optimizers.Adamax(), tfopt.Variable(np.array(4), name="count")
    opt.iterations = count
    w = np.zeros(1)
    assert opt.apply_gradients([(np.ones(1), w)]) is count
    assert int(count) == 5 and opt.weights[0] is count
    with pytest.raises(RuntimeError, match="Cannot set `iterations` to a new Variable"):
        opt.iterations = tfopt.Variable(np.array(0))
    for bad in (np.zeros(1, np.int64), np.zeros((), np.int32)):
        with pytest.raises(tfopt.InvalidArgumentError, match="int64 scalar"):
            tfopt.optimizers.Adamax().iterations = bad
    with pytest.raises(tfopt.InvalidTypeError):
        tfopt.optimizers.Adamax().iterations = 3


def test_slots_of_a_users_making() -> None:
    opt = tfopt.optimizers.SGD(name="o")
    var = tfopt.Variable(np.zeros((2, 3), np.float32), name="w")
    made = [
        opt.add_slot(var, "a"),
        opt.add_slot(var, "b", "ones"),
        opt.add_slot(var, "c", 2.5),
        opt.add_slot(var, "d", np.arange(6).reshape(2, 3)),
        opt.add_slot(var, "e", lambda shape, dtype: np.full(shape, 7, dtype), shape=(4,)),
    ]
    assert opt.weights[1:] == made and made[0].name == "o/w/a"
    assert {slot.dtype for slot in made} == {np.dtype("float32")}
    assert [float(slot.numpy().ravel()[-1]) for slot in made] == [0, 1, 2.5, 5, 7]
    assert made[4].shape == (4,)
    assert opt.add_slot(var, "b", "zeros") is made[1] and made[1].numpy().all()
    for bad in ("uniform", np.zeros(2), lambda shape, dtype: np.zeros(3)):
        with pytest.raises(tfopt.InvalidArgumentError, match=r"initializer|first value"):
            opt.add_slot(var, "f", bad)
    assert len(opt.weights) == 6


# ---- hyperparameters as TensorFlow rounds them


def test_compat_rounds_python_numbers() -> None:
    opt = tfopt.optimizers.Adamax(0.1, 0.9, 0.99, decay=0.3, compat="tensorflow")
    rounded = [float(np.float32(x)) for x in (0.1, 0.9, 0.99, 0.3)]
    assert [opt.learning_rate, opt.beta_1, opt.beta_2, opt.decay] == rounded
    assert opt.epsilon == 1e-7  # a plain attribute there, too
    opt.beta_1 = np.float64(0.8)
    assert opt.beta_1 == 0.8
    assert opt.get_config()["compat"] == "tensorflow"
    assert type(opt).from_config(opt.get_config()).beta_2 == rounded[2]
    assert tfopt.optimizers.Adamax(0.1).learning_rate == 0.1
    assert "compat" not in tfopt.optimizers.Adamax().get_config()
    with pytest.raises(tfopt.InvalidArgumentError, match="compat"):
        tfopt.optimizers.Adamax(compat="tf")


def test_compat_rounds_what_functions_return() -> None:
    for rate in (lambda: 0.1, tfopt.optimizers.schedules.ExponentialDecay(0.1, 10, 1.0)):
        w = np.zeros(1)
        tfopt.optimizers.SGD(rate, compat="tensorflow").apply_gradients([(np.ones(1), w)])
        assert w[0] == -float(np.float32(0.1))


# ---- locks (the fast package's alone)


def test_use_locking_waits_for_who_holds_the_lock() -> None:
    import tfopt

    opt = tfopt.optimizers.Adamax(0.5, use_locking=True)
    var = tfopt.Variable(np.zeros(2))
    step = threading.Thread(target=opt.apply_gradients, args=([(np.ones(2), var)],))
    with var.lock:
        step.start()
        step.join(0.2)
        assert step.is_alive() and not var.numpy().any()
    step.join()
    assert var.numpy().all()
    assert opt.get_config()["use_locking"] is True


@pytest.mark.parametrize("shape", [(), (0,), (1,), (4,), (2, 3)])
@pytest.mark.parametrize("initializer", ["zeros", 2.5])
def test_a_slot_has_the_shape_it_is_given(shape: tuple[int, ...], initializer: Any) -> None:
    for opt in (
        tfopt.optimizers.SGD(),
        tfopt.optimizers.LossScaleOptimizer(tfopt.optimizers.SGD()),
    ):
        w = np.ones((2, 3))
        slot = opt.add_slot(w, "own", initializer, shape=shape)
        assert slot.shape == shape and opt.add_slot(w, "own", shape=shape) is slot
