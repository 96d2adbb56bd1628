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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_context_has_the_derivatives_of_a_function(case: Case) -> None:
    args = [np.array(a) for a in case.args]
    along, tensors = directions(args), [tfopt.constant(a) for a in args]
    value, wanted = tfopt.jvp(case.function, args, along)
    with tfopt.ForwardAccumulator(tensors, along) as forward:
        y = case.function(*tensors)
        inside = forward.jvp(y, "zero")
    for made in (inside, forward.jvp(y, "zero")):
        for found, expected in zip(parts(made), parts(wanted), strict=True):
            np.testing.assert_array_equal(found.numpy(), expected.numpy())
    for found, expected in zip(parts(y), parts(value), strict=True):
        np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_contexts_nest_with_one_another_and_with_tapes() -> None:
    w, along = tfopt.Variable(np.array([0.3, 0.4])), np.array([1.0, -2.0])
    x = w.numpy().copy()
    with tfopt.ForwardAccumulator(w, along) as outer:
        with tfopt.ForwardAccumulator(w, along) as inner:
            y = w**3
        first = inner.jvp(y)
        with tfopt.GradientTape() as tape:
            loss = np.sum(w**4)
        gradient = tape.gradient(loss, w)
    np.testing.assert_allclose(first.numpy(), 3 * x**2 * along)
    np.testing.assert_allclose(outer.jvp(first).numpy(), 6 * x * along**2)
    np.testing.assert_allclose(outer.jvp(gradient).numpy(), 12 * x**2 * along)
    with tfopt.GradientTape() as tape, tfopt.ForwardAccumulator(w, along) as forward:
        slope = forward.jvp(w**3)
    np.testing.assert_allclose(tape.gradient(slope, w).numpy(), 6 * x * along)

    @tfopt.function
    def traced(v: Any) -> Any:
        with tfopt.ForwardAccumulator(v, along) as forward:
            y = v**3
        return forward.jvp(y)

    np.testing.assert_allclose(traced(tfopt.constant(x)).numpy(), 3 * x**2 * along)


def test_a_context_of_rows_and_of_what_does_not_move() -> None:
    table, other = tfopt.Variable(np.ones((4, 2))), tfopt.Variable(np.ones(2))
    moves, stays = np.arange(8.0).reshape(4, 2), None
    with tfopt.ForwardAccumulator({"t": table, "o": other}, {"t": moves, "o": stays}) as forward:
        rows, still = table[[3, 0, 3]] * 2.0, other * 2.0
        with tfopt.GradientTape() as tape:
            loss = np.sum(np.take(table, [1, 1], axis=0) ** 2)
        gradient = tape.gradient(loss, table)
    assert forward.jvp(rows).tolist() == [[12, 14], [0, 2], [12, 14]]
    assert forward.jvp([still, table])[0] is None
    assert forward.jvp({"s": still}, "zero")["s"].tolist() == [0, 0]
    assert forward.jvp(table).tolist() == moves.tolist()
    curvature = forward.jvp(gradient)  # of rows
    assert np.asarray(curvature).tolist() == [[0, 0], [8, 12], [0, 0], [0, 0]]
    assert curvature.indices.tolist() == gradient.indices.tolist() == [1, 1]


def test_what_a_context_refuses() -> None:
    w = tfopt.Variable(np.ones(2))
    with pytest.raises(ValueError, match=r"tangent 0 has shape \(3,\), its primal \(2,\)"):
        tfopt.ForwardAccumulator(w, np.ones(3))
    with pytest.raises(ValueError, match="0 tangents for 1 primals"):
        tfopt.ForwardAccumulator([w], [])
    with pytest.raises(ValueError, match="make one of it"):
        tfopt.ForwardAccumulator(np.ones(2), np.ones(2)).__enter__()
    forward = tfopt.ForwardAccumulator(w, np.ones(2))
    with pytest.raises(RuntimeError, match="has not been entered: compute"):
        forward.jvp(w)
    with forward, pytest.raises(ValueError, match="still recording"):
        forward.__enter__()
    with pytest.raises(TypeError, match="primal 1 must be a Tensor or a Variable, not float"):
        forward.jvp([w, 1.0])
    with pytest.raises(ValueError, match="unconnected_gradients"):
        forward.jvp(w, "none of these")
    with forward:
        y = np.vander(w)
    with pytest.raises(LookupError, match="vander"):
        forward.jvp(y)


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
