"""Forward derivatives: of every rule, what differences say, and the adjoint of the gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_rule_laws import OF_COMPLEX, drawn, made_complex, parts, results
from vjp_cases import CASES, Case

import tfopt
from tfopt.indexed_slices import densify


def directions(args: list[np.ndarray]) -> list[np.ndarray]:
    random = np.random.default_rng(7)
    return [drawn(a, random) for a in args]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_derivatives_equal_finite_differences(case: Case) -> None:
    args = [np.array(a) for a in case.args]
    along, step = directions(args), 1e-6
    ends = [results(case, [a + s * step * d for a, d in zip(args, along, strict=True)])
            for s in (1, -1)]  # fmt: skip
    assert ends[0] is not None is not ends[1]
    _, found = tfopt.jvp(case.function, args, along)
    for made, above, below in zip(parts(found), *ends, strict=True):
        wanted = (above - below) / (2 * step)
        np.testing.assert_allclose(made.numpy(), wanted, 2e-5, 2e-6 * (1 + np.abs(wanted).max()))


def pairing(a: Any, b: Any) -> float:
    return float(sum(np.sum(np.conj(x) * y).real for x, y in zip(a, b, strict=True)))


@pytest.mark.parametrize("case", OF_COMPLEX, ids=lambda case: case.name)
def test_complex_derivatives_are_adjoint_to_gradients(case: Case) -> None:
    args = made_complex(case)
    along, tensors = directions(args), [tfopt.constant(a) for a in args]
    with tfopt.GradientTape() as tape:
        tape.watch(tensors)
        made = parts(case.function(*tensors))
    upstreams = directions([y.numpy() for y in made])
    grads = tape.gradient(made, tensors, upstreams, "zero")
    _, found = tfopt.jvp(case.function, args, along)
    dense = [np.asarray(densify(g)) for g in grads]
    wanted = pairing(dense, along)
    np.testing.assert_allclose(pairing([y.numpy() for y in parts(found)], upstreams), wanted, 1e-10)


def test_traced_and_of_second_order() -> None:
    x, along = np.array([0.3, 0.4]), np.array([1.0, -2.0])
    slope = tfopt.function(lambda x: tfopt.jvp(lambda v: v**3, [x], [along])[1])
    np.testing.assert_allclose(slope(x).numpy(), 3 * x**2 * along)
    v = tfopt.constant(x)
    with tfopt.GradientTape() as tape:
        tape.watch(v)
        y = slope(v)
    np.testing.assert_allclose(tape.gradient(y, v).numpy(), 6 * x * along)

    def gradient(v: Any) -> Any:
        with tfopt.GradientTape() as tape:
            tape.watch(v)
            y = np.sum(v**4)
        return tape.gradient(y, v)

    value, product = tfopt.jvp(gradient, [v], [along])  # of the Hessian and a vector
    np.testing.assert_allclose(value.numpy(), 4 * x**3)
    np.testing.assert_allclose(product.numpy(), 12 * x**2 * along)


def test_structures_and_constant_arguments() -> None:
    w = tfopt.Variable(np.array([1.0, 2.0]))
    value, slope = tfopt.jvp(
        lambda p, i, c: {"product": p["w"] * c, "sum": np.sum(c), "places": np.argsort(p["w"]),
                         "rows": p["w"][i], "number": 3.0},
        [{"w": w}, np.array([1, 1]), np.array([3.0, 4.0])],
        [{"w": np.array([1.0, 10.0])}, None, None],
    )  # fmt: skip
    assert value["product"].tolist() == [3, 8] and value["number"] == 3.0
    assert {name: each.tolist() for name, each in slope.items()} == {
        "product": [3, 40], "sum": 0, "places": [0, 0], "rows": [10, 10], "number": 0
    }  # fmt: skip


def test_mismatched_arguments_are_refused() -> None:
    x = np.ones(2)
    with pytest.raises(ValueError, match=r"tangent 0 has shape \(3,\), its primal \(2,\)"):
        tfopt.jvp(np.sin, [x], [np.ones(3)])
    with pytest.raises(ValueError, match="0 tangents for 1 primals"):
        tfopt.jvp(np.sin, [x], [])
    with pytest.raises(LookupError, match="vander"):
        tfopt.jvp(np.vander, [x], [x])
