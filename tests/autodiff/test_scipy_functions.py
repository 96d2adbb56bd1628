"""SciPy's functions of tensors: values of SciPy's, gradients of the specification's definitions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.linalg
import scipy.special
import scipy.stats

import tfopt
import tfopt_ref
from tfopt.autodiff import check_grads
from tfopt.errors import GradientLostWarning
from tfopt.scipy import linalg, special, stats
from tfopt_ref.autodiff import scipys

RANDOM = np.random.default_rng(0)
A, B = RANDOM.standard_normal((2, 3, 4))
STACK = RANDOM.standard_normal((2, 3, 3)) + 3 * np.eye(3)
SIDES, V, SQUARE = RANDOM.standard_normal((2, 3, 2)), B[:, 0], STACK[0]


class Case(NamedTuple):
    """A call of tfopt's, of SciPy's, and of the specification's."""

    ours: Callable[..., Any]
    scipys: Callable[..., Any]
    specified: Callable[..., Any] | None
    args: tuple[np.ndarray, ...]


def of(name: str, *args: np.ndarray, **keywords: Any) -> Case:
    module, _, function = name.partition(".")
    ours = getattr({"special": special, "linalg": linalg}[module], function)
    scipys_own = getattr({"special": scipy.special, "linalg": scipy.linalg}[module], function)
    return Case(
        lambda *x: ours(*x, **keywords),
        lambda *x: scipys_own(*x, **keywords),
        lambda *x: getattr(scipys, function)(*x, **keywords),
        args,
    )


def weighted(**keywords: Any) -> Case:
    return Case(
        lambda a, b: special.logsumexp(a, b=b, **keywords),
        lambda a, b: scipy.special.logsumexp(a, b=b, **keywords),
        lambda a, b: scipys.logsumexp(a, b=b, **keywords), (A, B * B),
    )  # fmt: skip


def by_root(lower: bool, c: np.ndarray, b: np.ndarray) -> Case:
    return Case(
        lambda c, b: linalg.cho_solve((c, lower), b),
        lambda c, b: scipy.linalg.cho_solve((c, lower), b),
        lambda c, b: scipys.cho_solve(c, lower, b), (c, b),
    )  # fmt: skip


def density(*args: np.ndarray) -> Case:
    return Case(stats.norm.logpdf, scipy.stats.norm.logpdf, scipys.norm_logpdf, args)


def signed(a: Any, b: Any) -> Any:
    return special.logsumexp(a, axis=1, b=b, return_sign=True)[0]


CASES: dict[str, Case] = {
    **{f"{name}, axis={axis}": of(f"special.{name}", A, axis=axis)
       for name in ("logsumexp", "softmax", "log_softmax")
       for axis in (None, 0, -1, (0, 1), np.int64(1))},
    **{f"{name} of a number": of(f"special.{name}", A[0, 0])
       for name in ("logsumexp", "softmax", "log_softmax")},
    "logsumexp, keepdims": of("special.logsumexp", A, axis=1, keepdims=True),
    "logsumexp of a number, keepdims": of("special.logsumexp", A[0, 0], keepdims=True),
    "logsumexp, b": weighted(), "logsumexp, b and axis": weighted(axis=0),
    "logsumexp, b and keepdims": weighted(axis=1, keepdims=True),
    "logsumexp, return_sign": Case(
        signed, lambda a, b: scipy.special.logsumexp(a, axis=1, b=b, return_sign=True)[0], None,
        (A, B)),
    **{f"solve_triangular, {trans}, {lower}, {unit}": of(
        "linalg.solve_triangular", SQUARE, SIDES[0], trans=trans, lower=lower, unit_diagonal=unit)
       for trans in "NTC" for lower in (True, False) for unit in (True, False)},
    "solve_triangular for a vector": of("linalg.solve_triangular", SQUARE, V, lower=True),
    "cho_solve": by_root(True, SQUARE, SIDES[0]), "cho_solve, upper": by_root(False, SQUARE, V),
    "expm of a number": of("linalg.expm", A[0, 0])._replace(
        specified=lambda x: np.reshape(np.exp(x), (1, 1))),
    "expm": of("linalg.expm", SQUARE), "expm of small ones": of("linalg.expm", STACK / 100),
    "expm of large ones": of("linalg.expm", 4 * SQUARE),
    "norm.logpdf": density(A), "norm.logpdf, loc": density(A, B[0]),
    "norm.logpdf, loc and scale": density(A, B[0], np.exp(B)),
}  # fmt: skip
each = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.fixture(autouse=True)
def loses_nothing() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", GradientLostWarning)
        yield


def gradients(package: Any, function: Any, args: tuple[np.ndarray, ...]) -> tuple[Any, list[Any]]:
    inputs = [package.constant(x) for x in args]
    with package.GradientTape() as tape:
        tape.watch(inputs)
        y = function(*inputs)
    seed = np.cos(np.arange(y.size)).reshape(y.shape).astype(y.dtype)
    return y, [np.asarray(g) for g in tape.gradient(y, inputs, seed)]


@each
def test_values_are_scipys(case: Case) -> None:
    """In every bit; of arrays and of numbers, SciPy's own are returned."""
    wanted = case.scipys(*case.args)
    made = case.ours(*case.args)
    assert type(made) is type(wanted) and np.array_equal(made, wanted)
    for dtype in (float, np.float32, complex):
        args = [x.astype(dtype) for x in case.args]
        try:
            wanted = case.scipys(*args)
        except TypeError:
            continue  # normal distributions are of real numbers
        y = case.ours(*map(tfopt.constant, args))
        assert isinstance(y, tfopt.Tensor) and y.dtype == wanted.dtype
        assert np.array_equal(y.numpy(), wanted) and y.shape == np.shape(wanted)


@each
def test_gradients_are_those_of_the_definition(case: Case) -> None:
    if case.specified is None:
        case = case._replace(specified=lambda a, b: np.log(np.abs(np.sum(b * np.exp(a), axis=1))))
    y, found = gradients(tfopt, case.ours, case.args)
    z, wanted = gradients(tfopt_ref, case.specified, case.args)
    np.testing.assert_allclose(y.numpy(), np.asarray(z), 1e-11, 1e-12)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-9, 1e-11)


@each
def test_gradients_are_differences(case: Case) -> None:
    check_grads(lambda *x: case.ours(*x) ** 2, case.args, rtol=1e-5)


@each
def test_traced(case: Case) -> None:
    def slopes(*inputs: Any) -> Any:
        return gradients_of(case.ours, inputs)

    def gradients_of(function: Any, inputs: Any) -> Any:
        with tfopt.GradientTape() as tape:
            tape.watch(list(inputs))
            y = np.sum(function(*inputs) ** 2)
        return tape.gradient(y, list(inputs))

    traced, value = tfopt.function(slopes), tfopt.function(case.ours)
    for factor in (1.0, 1.25):
        inputs = [tfopt.constant(x * factor) for x in case.args]
        np.testing.assert_array_equal(value(*inputs).numpy(), case.ours(*inputs).numpy())
        for a, b in zip(traced(*inputs), slopes(*inputs), strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), 1e-12, 1e-14)
    assert traced.trace_count == value.trace_count == 1


@each
def test_gradients_have_the_dtype_and_the_shape_of_arguments(case: Case) -> None:
    for dtype in (np.float32, complex):
        args = tuple(x.astype(dtype) for x in case.args)
        if dtype is complex and case.ours == stats.norm.logpdf:
            continue
        _, found = gradients(tfopt, case.ours, args)
        for g, x in zip(found, args, strict=True):
            assert (g.dtype, g.shape) == (x.dtype, x.shape)


@pytest.mark.parametrize("name", ["softmax, axis=0", "logsumexp, axis=None", "expm", "cho_solve",
                                  "solve_triangular, T, True, False",
                                  "solve_triangular, C, False, True"])  # fmt: skip
def test_complex_gradients_are_conjugate(name: str) -> None:
    """Those of holomorphic functions: each is the conjugate of the real one, turned."""
    case = CASES[name]
    args = [x + 0.3j * np.cos(x) for x in case.args]
    directions = [np.sin(x) + 0.5j * x for x in case.args]
    _, found = gradients(tfopt, case.ours, tuple(args))
    seed = np.cos(np.arange(case.scipys(*args).size)).reshape(np.shape(case.scipys(*args)))
    ends = [case.scipys(*(x + h * d for x, d in zip(args, directions, strict=True)))
            for h in (1e-6, -1e-6)]  # fmt: skip
    wanted = np.sum(seed * (ends[0] - ends[1]) / 2e-6).real
    pairs = zip(found, directions, strict=True)
    np.testing.assert_allclose(sum(np.sum(np.conj(g) * d).real for g, d in pairs), wanted, 1e-6)


# ---- what is not finite, or not there


def slope(function: Any, x: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        return gradients(tfopt, lambda x: np.sum(function(x)), (np.asarray(x),))[1][0]


def test_gradients_of_what_is_not_finite() -> None:
    inf, nan = np.inf, np.nan
    assert slope(special.logsumexp, [1.0, -inf]).tolist() == [1.0, 0.0]
    assert slope(lambda x: special.softmax(x)[0], [1.0, -inf]).tolist() == [0.0, 0.0]
    for lost in ([-inf, -inf], [nan, 1.0]):
        assert np.isnan(slope(special.logsumexp, lost)).all()
    of_zero = slope(lambda a: special.logsumexp(a, b=np.array([0.0, 2.0])), [nan, 3.0])
    assert of_zero.tolist() == [0.0, 1.0]
    negative = special.logsumexp(tfopt.constant([1.0, 2.0]), b=np.array([1.0, -1.0]))
    assert np.isnan(negative.numpy())
    assert np.isnan(slope(lambda x: stats.norm.logpdf(x, 0.0, -1.0), [1.0])).all()
    far = tfopt.constant([1e4, 0.0])
    assert special.log_softmax(far).tolist() == [0.0, -1e4]
    assert slope(lambda x: special.log_softmax(x)[1], far.numpy()).tolist() == [-1.0, 1.0]


def test_an_upstream_gradient_does_not_spoil_the_exponential() -> None:
    """Its block would be so large that the matrix would be rounded away."""
    small = tfopt.constant(SQUARE / 10)
    for factor in (1e-200, 1.0, 1e12, 1e200):
        with tfopt.GradientTape() as tape:
            tape.watch(small)
            y = linalg.expm(small)
        g = tape.gradient(y, small, np.full((3, 3), factor)).numpy()
        wanted = scipy.linalg.expm_frechet(small.numpy().T, np.ones((3, 3)), compute_expm=False)
        np.testing.assert_allclose(g / factor, wanted, 1e-12)
    assert not slope(lambda A: 0 * linalg.expm(A), SQUARE).any()


@pytest.mark.parametrize("function", [
    special.softmax, special.log_softmax, special.logsumexp, linalg.expm, stats.norm.logpdf,
    lambda x: linalg.solve_triangular(x, x), lambda x: linalg.cho_solve((x, True), x),
])  # fmt: skip
@pytest.mark.parametrize("shape", [(0, 0), (0,), (3, 0), (0, 2)], ids=str)
def test_nothing(function: Any, shape: tuple[int, ...]) -> None:
    """What SciPy makes of nothing has a gradient, which is nothing; what it refuses is refused."""
    x = np.zeros(shape)
    try:
        wanted = function(x)
    except Exception as error:
        with pytest.raises(type(error)):
            function(tfopt.constant(x))
        return
    y, (g,) = gradients(tfopt, function, (x,))
    assert np.array_equal(y.numpy(), wanted) and g.shape == x.shape


#: Calls that SciPy refuses.
REFUSED: dict[str, Callable[[Any], Any]] = {
    "an axis out of range": lambda x: special.logsumexp(x, axis=7),
    "an axis of words": lambda x: special.softmax(x, axis="bogus"),
    "shapes": lambda x: linalg.solve_triangular(x, np.ones(7)),
    "shapes of roots": lambda x: linalg.cho_solve((x, True), np.ones(7)),
    "a rectangle": lambda x: linalg.expm(x[:2]),
    "a 0 on the diagonal": lambda x: linalg.solve_triangular(x * 0, np.ones(3)),
    "NaN": lambda x: linalg.solve_triangular(x * np.nan, np.ones(3)),
    "NaN in a root": lambda x: linalg.cho_solve((x * np.nan, False), np.ones(3)),
    "b of another shape": lambda x: special.logsumexp(x, b=np.ones(5)),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_what_scipy_refuses_is_refused(call: Any) -> None:
    with pytest.raises(Exception) as wanted:
        call(SQUARE)
    with pytest.raises(wanted.type, match=None) as found:
        call(tfopt.constant(SQUARE))
    assert str(found.value) == str(wanted.value)


def test_what_is_not_finite_is_taken_if_it_is_not_checked() -> None:
    nan = tfopt.constant([np.nan, 1.0, 1.0])
    for x in (
        linalg.solve_triangular(SQUARE, nan, lower=True, check_finite=False),
        linalg.cho_solve((SQUARE, True), nan, check_finite=False),
    ):
        assert np.isnan(x.numpy()[0])


def test_gradients_of_what_is_not_finite_are_not_refused() -> None:
    """NaN that comes from above is NaN, and no exception."""
    b = tfopt.constant(V)
    with tfopt.GradientTape() as tape:
        tape.watch(b)
        x = linalg.solve_triangular(SQUARE, b)
    assert np.isnan(tape.gradient(x, b, np.full(3, np.nan)).numpy()).all()


def test_arguments_may_be_variables_lists_and_rows() -> None:
    v = tfopt.Variable(A.copy())
    with tfopt.GradientTape() as tape:
        y = special.logsumexp([v[0], v[1]], axis=0)
        y = np.sum(y) + np.sum(stats.norm.logpdf(1.0, v, 2.0))
    assert tape.gradient(y, v).shape == A.shape
    rows = tfopt.IndexedSlices(A, np.array([2, 0, 2]), (4, 4))
    assert special.softmax(rows, axis=1).shape == (4, 4)


def test_operands_are_not_overwritten() -> None:
    b = np.asfortranarray(SIDES[0])
    tensor, before = tfopt.constant(b), b.copy()
    for call in (
        lambda b: linalg.solve_triangular(SQUARE, b, overwrite_b=True),
        lambda b: linalg.cho_solve((SQUARE, True), b, overwrite_b=True),
    ):
        call(tensor)
        assert np.array_equal(tensor.numpy(), before)
