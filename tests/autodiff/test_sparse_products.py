"""Products of tensors and variables with SciPy's sparse matrices are those of dense ones."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import tfopt
from tfopt.autodiff import check_grads
from tfopt.errors import GradientLostWarning

FORMATS = ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")
CLASSES = [getattr(sparse, f"{name}_{kind}") for name in FORMATS for kind in ("array", "matrix")]
RANDOM = np.random.default_rng(0)
DENSE = RANDOM.standard_normal((4, 3)) * (RANDOM.random((4, 3)) < 0.7)
SHAPES = [(3,), (3, 1), (3, 2), (3, 4)]
#: Products of a matrix A with x, and whether x has to be on the left.
SPELLED: dict[str, tuple[Any, bool]] = {
    "A @ x": (lambda A, x: A @ x, False), "A.dot(x)": (lambda A, x: A.dot(x), False),
    "x @ A": (lambda A, x: x @ A, True), "A.T @ x": (lambda A, x: A.T @ x, True),
}  # fmt: skip
OF_MATRICES: dict[str, tuple[Any, bool]] = {
    "A * x": (lambda A, x: A * x, False), "x * A": (lambda A, x: x * A, True),
}  # fmt: skip


#: Of arrays `*` is by elements, and COO matrices' `dot` converts whatever it is given.
FITTING = [
    (cls, spelled) for cls in CLASSES for spelled in (*SPELLED, *OF_MATRICES)
    if (spelled in SPELLED or issubclass(cls, sparse.spmatrix))
    and (spelled != "A.dot(x)" or not cls.__name__.startswith("coo"))
]  # fmt: skip


def product_of(
    cls: Any, spelled: str, shape: tuple[int, ...], dtype: Any = np.float64
) -> tuple[Any, Any, Any]:
    """Return a function of x that multiplies it by a matrix, the matrix, and an x that fits."""
    multiply, turned = {**SPELLED, **OF_MATRICES}[spelled]
    A = cls(DENSE.astype(dtype))
    shape = (4, *shape[1:]) if turned else shape
    x = RANDOM.standard_normal(shape).astype(np.float64 if dtype is int else dtype)
    if spelled.startswith("x"):
        x = x.T
    return (lambda x: multiply(A, x)), A, x


@pytest.fixture(autouse=True)
def loses_nothing() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", GradientLostWarning)
        yield


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("cls", "spelled"), FITTING,
                         ids=lambda each: getattr(each, "__name__", each))  # fmt: skip
def test_values_and_gradients(cls: Any, spelled: str, shape: tuple[int, ...]) -> None:
    call, _, x = product_of(cls, spelled, shape)
    wanted = np.asarray(call(x))
    for operand in (tfopt.constant(x), tfopt.Variable(x)):
        with tfopt.GradientTape() as tape:
            tape.watch(operand)
            y = call(operand)
        assert isinstance(y, tfopt.Tensor) and np.array_equal(y.numpy(), wanted)
        assert tape.gradient(y, operand).shape == x.shape
    check_grads(lambda x: call(x) ** 2, [x])
    traced = tfopt.function(call)
    assert np.array_equal(traced(x).numpy(), wanted) and traced.trace_count == 1
    slopes = tfopt.function(lambda x: tfopt.jvp(lambda x: np.sum(call(x) ** 2), [x], [x])[1])
    np.testing.assert_allclose(slopes(x).numpy(), 2 * np.sum(wanted**2), 1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.complex128, int])
def test_dtypes_are_scipys(dtype: Any) -> None:
    for spelled in SPELLED:
        call, _, x = product_of(sparse.csr_array, spelled, (3, 2), dtype)
        for given in (x, x.astype(np.float32) if x.dtype.kind == "f" else x):
            tensor = tfopt.constant(given)
            with tfopt.GradientTape() as tape:
                tape.watch(tensor)
                y = call(tensor)
            assert y.dtype == call(given).dtype and np.array_equal(y.numpy(), call(given))
            assert tape.gradient(y, tensor).dtype == given.dtype


def test_the_gradient_of_a_complex_product_is_conjugate() -> None:
    A, x = sparse.csr_array(DENSE * (1 + 2j)), tfopt.constant([1.0 + 1j, 2.0, -1j])
    with tfopt.GradientTape() as tape:
        tape.watch(x)
        y = A @ x
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), A.toarray().conj().T @ np.ones(4))


def test_vectors() -> None:
    """A sparse array of one axis."""
    a, x = sparse.coo_array(DENSE[:, 0]), RANDOM.standard_normal((4, 2))
    if a.ndim != 1:
        pytest.skip("sparse arrays of one axis are of SciPy 1.13")
    for given in (x, x[:, 0]):
        assert np.array_equal((a @ tfopt.constant(given)).numpy(), a @ given)
        check_grads(lambda x: (a @ x) ** 2, [given])


@pytest.mark.parametrize("x", [np.ones(5), np.ones((5, 2)), np.ones((2, 3, 4)), np.array(2.0)],
                         ids=lambda x: str(x.shape))  # fmt: skip
@pytest.mark.parametrize("spelled", SPELLED)
def test_what_scipy_refuses_is_refused(spelled: str, x: Any) -> None:
    A, (call, _) = sparse.csr_array(DENSE), SPELLED[spelled]
    with pytest.raises((ValueError, TypeError)):
        call(A, x)
    with pytest.raises((ValueError, TypeError)):
        call(A, tfopt.constant(x))


def test_no_rows_and_nan() -> None:
    for shape in ((0, 3), (3, 0), (0, 0)):
        A, x = sparse.csr_array(np.zeros(shape)), tfopt.constant(np.ones(shape[1]))
        with tfopt.GradientTape() as tape:
            tape.watch(x)
            y = np.sum(A @ x)
        assert float(y) == 0 and tape.gradient(y, x).tolist() == [0.0] * shape[1]
    A = sparse.csr_array(np.eye(2))
    y = A @ tfopt.constant([np.nan, np.inf])
    assert np.array_equal(y.numpy(), [np.nan, np.inf], equal_nan=True)


def test_a_tape_keeps_the_matrix_that_was_multiplied() -> None:
    A, x = sparse.csr_array(np.eye(2)), tfopt.constant([1.0, 2.0])
    with tfopt.GradientTape() as tape:
        tape.watch(x)
        y = A @ x
    A.data[:] = 7.0
    assert tape.gradient(y, x).tolist() == [1.0, 1.0]


def test_products_by_elements_still_warn() -> None:
    A, x = sparse.csr_array(np.eye(2)), tfopt.constant([1.0, 2.0])
    with tfopt.GradientTape() as tape, pytest.warns(GradientLostWarning):
        tape.watch(x)
        A * x
    B = sparse.coo_array(np.eye(2))
    with tfopt.GradientTape() as tape, pytest.warns(GradientLostWarning):
        tape.watch(x)
        y = B.dot(x)  # converted, in vain: the product is recorded
    assert tape.gradient(y, x).tolist() == [1.0, 1.0]


def test_other_operands_are_refused_as_before() -> None:
    class Other:
        pass

    for call in (lambda x, y: x @ y, lambda x, y: y @ x, lambda x, y: x * y, lambda x, y: y * x):
        with pytest.raises(TypeError, match="unsupported operand"):
            call(tfopt.constant([1.0]), Other())
