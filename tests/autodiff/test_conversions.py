"""Gradients that are lost where a tensor becomes an array or a number, and calls that write."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.special
import scipy.stats

import tfopt
from tfopt.autodiff.ops import FUNCTIONS, UFUNCS


@pytest.fixture(params=["warn", "error", "ignore"])
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    before = tfopt.autodiff.set_conversion(request.param)
    yield request.param
    assert tfopt.autodiff.set_conversion(before) == request.param


LOSING: dict[str, Any] = {
    "asarray": np.asarray,
    "array": np.array,
    "array of a list": lambda x: np.array([x, x]),
    "mean of a list": lambda x: np.mean([x * x, x]),
    "sum of a list": lambda x: np.sum([[x], [x]]),
    "exp of a list": lambda x: np.exp(np.array([x])),
    "full": lambda x: np.full(3, x),
    "float": float,
    "complex": complex,
    "math": math.exp,
}
MEANT: dict[str, Any] = {
    "numpy": lambda x: x.numpy(),
    "item": lambda x: x.item(),
    "tolist": lambda x: x.tolist(),
    "int": int,
    "bool": bool,
    "repr": repr,
    "comparison": lambda x: x > 1,
    "dtype": lambda x: np.result_type(x, np.float32),
    "shape": np.shape,
    "a copy": lambda x: np.copy(x),
    "a list of tensors": lambda x: np.stack([x, x * 2.0]),
    "list in an expression": lambda x: np.ones(2) * np.stack([x, x]),
    "allclose": lambda x: np.allclose(x, 2.0),
    "format": lambda x: f"{x:.3f}",
}


@pytest.mark.parametrize("name", LOSING)
def test_a_gradient_is_not_lost_without_a_word(mode: str, name: str) -> None:
    x, lose = tfopt.constant(2.0), LOSING[name]
    lose(x)  # nobody records
    with tfopt.GradientTape() as tape:
        lose(x)  # nor is it watched
        tape.watch(x)
        y = x * 1.5
        for each in (x, y):
            if mode == "error":
                with pytest.raises(TypeError, match="say so"):
                    lose(each)
            elif mode == "warn":
                with pytest.warns(tfopt.autodiff.GradientLostWarning, match="say so") as caught:
                    lose(each)
                assert {record.filename for record in caught} == {__file__}
            else:
                lose(each)
        with tape.stop_recording():
            lose(x)
    lose(y)


#: What converts tensors though there is something else that does not, and what that is.
INSTEAD: dict[str, tuple[Any, Any]] = {
    "np.r_": (lambda x: np.r_[x, 1.0, x], lambda x: np.hstack([x, 1.0, x])),
    "np.c_": (lambda x: np.c_[x, x * 2.0], lambda x: np.column_stack([x, x * 2.0])),
    **{f"tfopt.scipy has.*{f.__name__}": (f, getattr(tfopt.scipy.special, f.__name__))
       for f in (scipy.special.logsumexp, scipy.special.softmax, scipy.special.log_softmax)},
    "tfopt.scipy has.*solve_triangular": (
        lambda x: scipy.linalg.solve_triangular(np.eye(2), x),
        lambda x: tfopt.scipy.linalg.solve_triangular(np.eye(2), x)),
    "tfopt.scipy has.*cho_solve": (
        lambda x: scipy.linalg.cho_solve((np.eye(2), True), x),
        lambda x: tfopt.scipy.linalg.cho_solve((np.eye(2), True), x)),
    "tfopt.scipy has.*expm": (
        lambda x: scipy.linalg.expm(np.outer(x, x)),
        lambda x: tfopt.scipy.linalg.expm(np.outer(x, x))),
    "tfopt.scipy has.*norm.logpdf": (scipy.stats.norm.logpdf, tfopt.scipy.stats.norm.logpdf),
}  # fmt: skip


@pytest.mark.parametrize("named", INSTEAD)
def test_a_warning_names_what_has_the_gradient(named: str) -> None:
    x, (lose, keep) = tfopt.constant([0.5, 2.0]), INSTEAD[named]
    with tfopt.GradientTape() as tape:
        tape.watch(x)
        with pytest.warns(tfopt.autodiff.GradientLostWarning, match=named):
            wanted = lose(x)
        y = keep(x)
    assert np.array_equal(y.numpy(), wanted) and tape.gradient(y, x) is not None


@pytest.mark.parametrize("name", MEANT)
def test_intended_conversions_are_not_reported(name: str) -> None:
    x = tfopt.constant(2.0)
    with tfopt.GradientTape() as tape:
        tape.watch(x)
        MEANT[name](x)


@pytest.mark.parametrize("name", ["asarray", "array of a list", "mean of a list", "float"])
def test_variables(name: str) -> None:
    v, lose = tfopt.Variable(2.0), LOSING[name]
    frozen = tfopt.Variable(2.0, trainable=False)
    lose(v)
    with tfopt.GradientTape(), pytest.warns(tfopt.autodiff.GradientLostWarning):
        lose(v)
    with tfopt.GradientTape(watch_accessed_variables=False):
        lose(v)
    with tfopt.GradientTape():
        if name != "mean of a list":  # which multiplies, and so makes a tensor
            lose(frozen)
        v.numpy()


def test_each_line_is_reported_once() -> None:
    x = tfopt.constant(2.0)
    with warnings.catch_warnings(record=True) as caught, tfopt.GradientTape() as tape:
        warnings.simplefilter("default")
        tape.watch(x)
        for _ in range(5):
            float(x)
        float(x)
    assert len(caught) == 2


def test_optimizers_accept_recorded_tensors() -> None:
    w = tfopt.Variable(np.ones(2))
    optimizer = tfopt.optimizers.Adam(0.1)
    with tfopt.GradientTape(persistent=True) as tape:
        grad = tape.gradient(np.sum(w * w), w)
        optimizer.apply_gradients([(grad, w)])
        w.assign(w * 2.0)
        w.assign([w[0], w[1]])
        w.assign_add(grad)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="warn, error, ignore, not 'loud'"):
        tfopt.autodiff.set_conversion("loud")


# ---- out


WITH_OUT = [
    function
    for function in FUNCTIONS
    if not isinstance(function, np.ufunc) and "out" in str(inspect.signature(function))
]


def arguments(function: Any, x: Any) -> list[Any]:
    """Return the positional arguments that come before `out`."""
    if function is np.einsum:
        return ["i->i", x]
    if function in (np.concatenate, np.stack, np.linalg.multi_dot):
        return [[x, x]]
    names = [*inspect.signature(function).parameters.values()]
    names = [p for p in names if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    given: list[Any] = []
    for parameter in names:
        if parameter.name == "out" or (given and parameter.default is not parameter.empty):
            break
        given.append(np.array([True]) if parameter.name == "condition" else x)
    return given


def test_there_are_functions_with_an_out() -> None:
    assert len(WITH_OUT) >= 15


@pytest.mark.parametrize("function", WITH_OUT, ids=lambda f: f.__name__)
def test_no_function_writes_into_an_array(function: Any) -> None:
    """By keyword or by position, at its end."""
    out, x = np.full(3, 7.0), tfopt.constant([3.0, 1.0, 2.0])
    given = arguments(function, x)
    with pytest.raises(TypeError, match="out"):
        function(*given, out=out)
    parameters = [*inspect.signature(function).parameters.values()]
    positional = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    place = next((k for k, p in enumerate(positional) if p.name == "out"), None)
    if place is not None and place >= len(given):
        defaults = [p.default for p in positional[len(given) : place]]
        with pytest.raises(TypeError, match="out"):
            function(*given, *defaults, out)
    assert (out == 7).all() and x.tolist() == [3, 1, 2]


@pytest.mark.filterwarnings("ignore:Passing more than 2 positional")
@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda f: f.__name__)
def test_no_ufunc_writes_into_an_array(ufunc: np.ufunc) -> None:
    out = np.full((2, 2), 7.0)
    given = [tfopt.constant(np.ones((2, 2))) for _ in range(ufunc.nin)]
    with pytest.raises(TypeError, match="out"):
        ufunc(*given, out=out)
    with pytest.raises(TypeError, match="out"):
        ufunc(*given, out)
    assert (out == 7).all()
