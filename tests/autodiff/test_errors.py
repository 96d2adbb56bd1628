"""Refusals of tapes and functions: their exceptions and messages; they change nothing."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tfopt


def differentiated(impl: ModuleType, f: Any, *values: Any) -> Any:
    inputs = [impl.constant(value) for value in values]
    with impl.GradientTape() as tape:
        tape.watch(inputs)
        y = f(*inputs)
    return tape.gradient(y, inputs)


# ---- custom gradients


def test_none_is_no_tensor() -> None:
    """E12."""
    text = r"Attempt to convert a value \(None\) with an unsupported type \(<class 'NoneType'>\)"
    same = tfopt.custom_gradient(lambda x: (x, lambda d: d))
    with pytest.raises(ValueError, match=text):
        same(None)
    nothing = tfopt.custom_gradient(lambda x: (None, lambda d: d))
    with pytest.raises(ValueError, match=text):
        nothing(1.0)


def test_an_object_is_no_tensor() -> None:
    """E13."""
    same = tfopt.custom_gradient(lambda x: (1.0, lambda d: d))
    with pytest.raises(ValueError, match="Attempt to convert a value"):
        same(object())


def test_other_results_than_pairs_are_refused() -> None:
    """E8, E9, E10, E11."""
    x = tfopt.constant(1.0)
    with pytest.raises(TypeError, match=r"must return a pair, .* grad_fn, .* it returned Tensor"):
        tfopt.custom_gradient(lambda x: x * 2)(x)
    with pytest.raises(TypeError, match="it returned Tensor"):
        tfopt.custom_gradient(lambda x: np.stack([x, x]))(x)  # which could be unpacked
    with pytest.raises(TypeError, match="it returned a tuple of 3"):
        tfopt.custom_gradient(lambda x: (x, x, x))(x)
    for no_function in (None, 5):
        with pytest.raises(TypeError, match="unsupported callable"):
            tfopt.custom_gradient(lambda x, g=no_function: (x, g))(x)
    with pytest.raises(TypeError, match="'int' object is not callable"):
        tfopt.custom_gradient(5)(x)


def test_gradients_of_variables_that_are_no_list_of_them() -> None:
    """E3 to E6."""
    w = tfopt.Variable(2.0)

    def returning(made: Any) -> Any:
        f = tfopt.custom_gradient(lambda x: (x * w, lambda d, variables: made(d)))
        return lambda: differentiated(tfopt, f, 3.0)

    wrong_number = "Must return gradient for each variable from @custom_gradient grad_fn"
    for made in (lambda d: (d, []), lambda d: (d, None), lambda d: (d, [d, d])):
        with pytest.raises(ValueError, match=wrong_number):
            returning(made)()
    assert float(returning(lambda d: (d, (d,)))()[0]) == 1  # a tuple will do
    with pytest.raises(TypeError, match="pair"):
        returning(lambda d: d)()
    with pytest.raises(ValueError, match="too many values to unpack"):
        returning(lambda d: (d, [d], 0))()


def test_a_gradient_of_another_shape() -> None:
    f = tfopt.custom_gradient(lambda x, y: (x * y, lambda d: (d, np.ones(3))))
    with pytest.raises(ValueError, match=r"gradient 1 .*shape \(3,\), its input \(\)"):
        differentiated(tfopt, f, 1.0, 2.0)


def test_gradients_that_are_numbers_become_tensors(impl: ModuleType) -> None:
    f = impl.custom_gradient(lambda x: (x * 1, lambda d: 5))
    x = impl.constant(np.float32(2))
    with impl.GradientTape() as tape:
        tape.watch(x)
        y = f(x) + x
    grad = tape.gradient(y, x)
    assert isinstance(grad, impl.Tensor) and grad.dtype == np.float32 and float(grad) == 6


def test_a_watched_tensor_among_the_other_keywords() -> None:
    f = tfopt.custom_gradient(lambda x, **kw: (x * kw["y"], lambda d: d))
    assert float(f(2.0, y=tfopt.constant(3.0))) == 6  # nobody watches
    with pytest.raises(ValueError, match="name it in the signature"):
        differentiated(tfopt, lambda x, y: f(x, y=y), 2.0, 3.0)


def test_partial_functions_and_callable_objects() -> None:
    def scaled(factor: float, x: Any) -> Any:
        return x * factor, lambda d: d * 10 * factor

    class Scaled:
        def __call__(self, x: Any) -> Any:
            return scaled(3.0, x)

    for f in (functools.partial(scaled, 3.0), Scaled()):
        assert float(differentiated(tfopt, tfopt.custom_gradient(f), 2.0)[0]) == 30


def test_the_wrong_number_of_parameters() -> None:
    """E17."""
    f = tfopt.custom_gradient(lambda x: ((x, x), lambda d: d))
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        differentiated(tfopt, lambda x: f(x)[0], 1.0)


def test_an_error_in_the_function_leaves_no_trace() -> None:
    """Neither tapes nor those who look for variables are left behind."""
    w = tfopt.Variable(1.0)

    def fails(x: Any) -> Any:
        w.assign(5.0)
        raise KeyError("lost")

    for wrapper in (tfopt.custom_gradient, tfopt.recompute_grad, tfopt.function):
        with pytest.raises(KeyError, match="lost"):
            wrapper(fails)(tfopt.constant(1.0))
    x = tfopt.constant(3.0)
    with tfopt.GradientTape() as tape:
        tape.watch(x)
        y = x * w
    assert float(tape.gradient(y, x)) == float(w)


# ---- the registry


def test_registering() -> None:
    """E18 to E21."""
    name = f"Registered-{id(object())}"
    tfopt.RegisterGradient(name)(lambda op, d: d)
    for again in (lambda: tfopt.RegisterGradient(name)(print), lambda: tfopt.no_gradient(name)):
        with pytest.raises(KeyError, match=rf"Registering two gradient with name '{name}'!"):
            again()
    for bad in ([("a", "b")], {"a": 1}, {1: "a"}):
        text = "op_type_map must be a dictionary mapping strings to strings"
        with pytest.raises(TypeError, match=text), tfopt.gradient_override_map(bad):
            pass
    assert tfopt.NoGradient is tfopt.NotDifferentiable is tfopt.no_gradient


def test_an_unknown_gradient_fails_when_it_is_asked_for() -> None:
    """E20."""
    x = tfopt.constant(3.0)
    with tfopt.GradientTape() as tape, tfopt.gradient_override_map({"square": "nobody"}):
        tape.watch(x)
        y = np.square(x)
    with pytest.raises(LookupError, match="gradient registry has no entry for: nobody"):
        tape.gradient(y, x)


def test_variables_by_name() -> None:
    """E22."""
    with pytest.raises(ValueError, match=r"Unsuccessful at finding variable nobody\."):
        tfopt.get_variable_by_name("nobody")
    w = tfopt.Variable(1.0, name="by name")
    frozen = tfopt.Variable(1.0, name="by name", trainable=False)
    assert tfopt.get_variable_by_name("by name") is w
    other = tfopt.Variable(2.0, name="by name")
    text = r"finding trainable variable by name. Number of candidates: 2. Candidates: \[<Variable"
    with pytest.raises(ValueError, match=text):
        tfopt.get_variable_by_name("by name")
    del w, other
    assert tfopt.get_variable_by_name("by name") is None and frozen is not None


# ---- tapes


def test_sources_that_are_none() -> None:
    """T9: which it is, is said; and the tape still works."""
    x = tfopt.constant(3.0)
    with tfopt.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    for bad in (None, "x", 3.0, np.ones(2)):
        with pytest.raises(TypeError, match="source 1"):
            tape.gradient(y, [x, bad])
    with pytest.raises(TypeError, match="target"):
        tape.jacobian([y], x)  # T13
    assert float(tape.gradient(y, x)) == 6


def test_none_as_an_output_gradient_is_ones(impl: ModuleType) -> None:
    """T14."""
    x = impl.constant([1.0, 2.0])
    with impl.GradientTape() as tape:
        tape.watch(x)
        y = [x * 2, x * 3]
    assert np.asarray(tape.gradient(y, x, [None, np.array([10.0, 20.0])])).tolist() == [32, 62]


def test_seconds_of_jacobians() -> None:
    """T1."""
    x = tfopt.constant([1.0, 2.0])
    with tfopt.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    tape.jacobian(y, x)
    with pytest.raises(RuntimeError, match="non-persistent GradientTape can only be used"):
        tape.jacobian(y, x)


# ---- functions


def test_tensors_in_a_trace_have_no_value() -> None:
    x = tfopt.constant(3.0)
    with pytest.raises(TypeError, match="is not allowed"):
        tfopt.function(lambda x: x if x > 0 else -x)(x)
    with pytest.raises(AttributeError, match="numpy"):
        tfopt.function(lambda x: x.numpy())(x)
    with pytest.raises(TypeError, match="is not allowed"):
        tfopt.function(lambda x: float(x))(x)


def test_values_that_a_gradient_asks_for_are_refused() -> None:
    """Those of the first call would be taken for all others."""

    @tfopt.custom_gradient
    def op(x: Any) -> Any:
        half = x * 0.5
        return half * 1.0, lambda d: d * float(half)

    f, x = tfopt.function(op), tfopt.constant(3.0)
    f(tfopt.constant(1.0))
    with pytest.raises(TypeError, match="not allowed"), tfopt.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
        tape.gradient(y, x)


def test_tensors_that_leave_their_trace() -> None:
    kept = []

    @tfopt.function
    def f(x: Any) -> Any:
        kept.append(x * 2)
        return x

    f(tfopt.constant(3.0))
    with pytest.raises(TypeError, match="is out of scope and cannot be used here"):
        kept[0] + 1


def test_arguments_that_cannot_be_compared() -> None:
    with pytest.raises(TypeError, match="Could not generate a generic TraceType"):
        tfopt.function(lambda x: 1.0)({1, 2})


def test_signatures_that_do_not_fit() -> None:
    spec = tfopt.TensorSpec((None,), np.float64)
    f = tfopt.function(lambda x: x * 2, input_signature=[spec])
    assert np.asarray(f(tfopt.constant([1.0, 2.0]))).tolist() == [2, 4]
    for bad in (tfopt.constant(1.0), tfopt.constant([1.0], np.float32)):
        with pytest.raises(TypeError, match=r"Binding inputs to tf\.function failed"):
            f(bad)


def test_results_that_are_no_tensors() -> None:
    with pytest.raises(TypeError, match="found return value of type object"):
        tfopt.function(lambda: object())()


def test_variables_made_at_each_call() -> None:
    with pytest.raises(ValueError, match=r"only supports singleton tf\.Variables created on the"):
        tfopt.function(lambda x: tfopt.Variable(1.0) * x)(tfopt.constant(2.0))


def test_failed_functions_change_no_variable() -> None:
    w = tfopt.Variable(1.0)

    @tfopt.function
    def f(x: Any) -> Any:
        w.assign(x)
        raise KeyError("lost")

    for _ in range(2):
        with pytest.raises(KeyError, match="lost"):
            f(tfopt.constant(7.0))
        assert float(w) == 1


def test_tensors_do_not_change() -> None:
    x, array = tfopt.constant([1.0, 2.0]), np.zeros(2)
    with pytest.raises(TypeError):
        x[0] = 5.0
    for change in (
        lambda: np.add(x, 1, out=array), lambda: np.add(array, 1, out=x), lambda: np.add.at(x, 0, 1)
    ):  # fmt: skip
        with pytest.raises(TypeError):
            change()
    with pytest.raises(ValueError, match="read-only"):
        x.numpy()[0] = 5
    before = x
    x += 1
    assert before.tolist() == [1, 2] and x.tolist() == [2, 3] and not array.any()
