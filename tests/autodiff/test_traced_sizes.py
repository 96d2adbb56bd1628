"""Functions whose sizes depend on values, replayed for other values: as without a trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfopt

#: The numbers of positive elements differ; one of them twice, for a program that is found again.
CALLS = [[1.0, -1.0, 2.0], [3.0, 4.0, -5.0], [1.0, 2.0, 3.0], [7.0, -2.0, -2.0], [2.0, 9.0, -1.0]]

BODIES: dict[str, Any] = {
    "mean": lambda x: np.mean(x[x > 0]),
    "var": lambda x: np.var(x[x > 0]),
    "std": lambda x: np.std(x[x > 0]),
    "average": lambda x: np.average(x[x > 0]),
    "norm": lambda x: np.linalg.norm(x[x > 0]),
    "prod": lambda x: np.prod(x[x > 0]),
    "median": lambda x: np.median(x[x > 0]),
    "size": lambda x: np.sum(x) / x[x > 0].size,
    "shape": lambda x: np.sum(x) / x[x > 0].shape[0],
    "len": lambda x: np.sum(x) / len(x[x > 0]),
    "iteration": lambda x: sum(part * part for part in x[x > 0]),
    "a branch on a size": lambda x: x * 2.0 if len(x[x > 0]) > 1 else -x,
    "sum": lambda x: np.sum(x[x > 0]),
    "compress": lambda x: np.compress(x > 0, x),
    "extract": lambda x: np.extract(x > 0, x),
    "nonzero": lambda x: x[np.nonzero(x > 0)[0]].mean(),
    "flatnonzero": lambda x: np.mean(x[np.flatnonzero(x > 0)]),
    "argwhere": lambda x: x[np.argwhere(x > 0)[:, 0]] * 3.0,
    "where": lambda x: x[np.where(x > 0)[0]].mean(),
    "tile": lambda x: np.tile(x[x > 0], 2),
    "stack": lambda x: np.stack([x[x > 0], x[x > 0]]),
    "concatenate": lambda x: np.concatenate([x[x > 0], x]),
    "diag": lambda x: np.diag(x[x > 0]),
    "outer": lambda x: np.outer(x[x > 0], x),
    "pad": lambda x: np.pad(x[x > 0], 1),
    "reshape": lambda x: np.reshape(x[x > 0], (-1, 1)) * x,
    "cumsum": lambda x: np.cumsum(x[x > 0]),
    "sort": lambda x: np.sort(x[x > 0])[::-1],
    "dot": lambda x: np.dot(x[x > 0], x[x > 0]),
    "repeat": lambda x: np.repeat(x, np.where(x > 0, 2, 0)),
    "delete": lambda x: np.delete(x, np.flatnonzero(x > 0)) * x[0],
    "unique": lambda x: x * np.unique(np.floor(x)).size,
    "two masks": lambda x: np.mean(x[x > 0]) + np.mean(x[x < 2.5]),
    "a mask of a mask": lambda x: np.mean(x[x > 0][x[x > 0] > 1.5]),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_sizes_are_those_of_the_call(name: str) -> None:
    """Values and gradients, in a tape outside and in one inside of the function."""
    body = BODIES[name]

    def gradients(x: Any) -> Any:
        with tfopt.GradientTape() as tape:
            tape.watch(x)
            y = body(x)
        return y, tape.gradient(y, x, None, "zero")

    traced, whole = tfopt.function(body), tfopt.function(gradients)
    with np.errstate(all="ignore"):
        for values in CALLS:
            x = tfopt.constant(values)
            expected = [np.asarray(part) for part in gradients(x)]
            with tfopt.GradientTape() as tape:
                tape.watch(x)
                y = traced(x)
            found = [np.asarray(part) for part in (y, tape.gradient(y, x, None, "zero"))]
            for ours in (found, whole(x), [traced(x), expected[1]]):
                for one, other in zip(ours, expected, strict=True):
                    assert np.asarray(one).shape == other.shape
                    np.testing.assert_allclose(np.asarray(one), other, 1e-14, 1e-14)


def test_second_order() -> None:
    f = tfopt.function(lambda x: np.sum(x[x > 0] ** 3) / x[x > 0].size)
    for values, expected in zip(CALLS[:3], ([3, 0, 6], [9, 12, 0], [2, 4, 6]), strict=True):
        x = tfopt.constant(values)
        with tfopt.GradientTape() as outer:
            outer.watch(x)
            with tfopt.GradientTape() as inner:
                inner.watch(x)
                y = f(x)
            grad = inner.gradient(y, x)
        assert np.asarray(outer.gradient(grad, x)).tolist() == expected


def test_variables_decide_sizes() -> None:
    w = tfopt.Variable(np.array(CALLS[0]))
    f = tfopt.function(lambda: np.mean(w[w > 0]))
    for values in CALLS:
        w.assign(values)
        array = np.array(values)
        assert float(f()) == array[array > 0].mean()


def test_a_size_that_an_assignment_decides_is_refused() -> None:
    w = tfopt.Variable(np.ones(3))

    @tfopt.function
    def f(x: Any) -> Any:
        w.assign(x)
        return w[w > 0]

    @tfopt.function
    def right(x: Any) -> Any:
        found = x[x > 0]
        w.assign_add(np.delete(np.repeat(x, 2, axis=0), [0, 1, 2]))
        return np.repeat(found, 1) * 2.0

    with pytest.raises(TypeError, match=r"after an assignment.*Do it before"):
        f(tfopt.constant(CALLS[0]))
    assert w.numpy().tolist() == [1, 1, 1]
    assert np.asarray(right(tfopt.constant(CALLS[0]))).tolist() == [2, 4]
    assert np.asarray(right(tfopt.constant(CALLS[3]))).tolist() == [14]
    assert w.numpy().tolist() == [-2, 1, 1]  # each assignment once


def test_the_body_runs_once_for_each_size() -> None:
    f = tfopt.function(lambda x: np.mean(x[x > 0]))
    counts = []
    for values in CALLS:
        f(np.array(values))
        counts.append(f.trace_count)
    assert counts == [1, 1, 2, 3, 3]
    assert f.source().count("def program") == 3


def test_a_size_that_the_upstream_gradient_decides_is_refused() -> None:
    f = tfopt.function(
        tfopt.custom_gradient(lambda x: (x * 1.0, lambda d: d * np.sum(d[d > 0]) / d[d > 0].size))
    )
    x = tfopt.constant([1.0, 2.0])

    def gradient(upstream: list[float]) -> Any:
        with tfopt.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return tape.gradient(y, x, np.array(upstream)).tolist()

    assert gradient([3.0, 5.0]) == [12, 20]
    with pytest.raises(ValueError, match="another size than when the gradient was traced"):
        gradient([3.0, -1.0])


def test_results_other_than_arrays_are_refused() -> None:
    with pytest.raises(TypeError, match=r"symbolic|depends on values"):
        tfopt.function(lambda x: np.array_equal(x, x) * x)(tfopt.constant([1.0, 2.0]))
