"""Functions of SciPy, sums of segments and sparse products on a tape, relative to rivals."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import tfopt

from .common import best_times, filled, installed, public


class _Function(NamedTuple):
    """A function of one array, what computes its value alone, and torch's function of it."""

    x: np.ndarray
    ours: Callable[[Any], Any]
    value: Callable[[np.ndarray], Any]
    torch: Callable[[Any, Any], Any]


def _triangle(n: int) -> np.ndarray:
    return np.tril(filled((n, n), "float64")) + n * np.eye(n)


def _along_rows(name: str) -> _Function:
    from scipy import special

    ours, scipys = public(f"scipy.special.{name}"), getattr(special, name)
    return _Function(
        filled((256, 1000), "float64"),
        lambda x: ours(x, axis=1),
        lambda x: scipys(x, axis=1),
        lambda torch, x: getattr(torch, name)(x, 1),
    )


def _logpdf() -> _Function:
    from scipy.stats import norm

    ours = public("scipy.stats.norm").logpdf
    return _Function(
        filled(100_000, "float64"),
        lambda x: ours(x, 0.5, 2.0),
        lambda x: norm.logpdf(x, 0.5, 2.0),
        lambda torch, x: torch.distributions.Normal(0.5, 2.0).log_prob(x),
    )


def _solve_triangular() -> _Function:
    from scipy.linalg import solve_triangular

    ours, b = public("scipy.linalg.solve_triangular"), filled((200, 50), "float64", seed=1)
    return _Function(
        _triangle(200),
        lambda x: ours(x, b, lower=True),
        lambda x: solve_triangular(x, b, lower=True),
        lambda torch, x: torch.linalg.solve_triangular(x, torch.from_numpy(b), upper=False),
    )


def _cho_solve() -> _Function:
    from scipy.linalg import cho_solve

    ours, b = public("scipy.linalg.cho_solve"), filled((200, 50), "float64", seed=1)
    return _Function(
        _triangle(200),
        lambda x: ours((x, True), b),
        lambda x: cho_solve((x, True), b),
        lambda torch, x: torch.cholesky_solve(torch.from_numpy(b), x),
    )


def _expm() -> _Function:
    from scipy.linalg import expm

    ours = public("scipy.linalg.expm")
    return _Function(
        filled((100, 100), "float64") / 100,
        ours,
        expm,
        lambda torch, x: torch.matrix_exp(x),
    )


def _reduceat() -> _Function:
    starts = np.arange(0, 100_000, 10)
    lengths = np.full(starts.size, 10)
    return _Function(
        filled((100_000, 8), "float64"),
        lambda x: np.add.reduceat(x, starts),
        lambda x: np.add.reduceat(x, starts),
        lambda torch, x: torch.segment_reduce(x, "sum", lengths=torch.from_numpy(lengths)),
    )


def _sparse_product() -> _Function:
    from scipy.sparse import random_array

    a = random_array((20_000, 5_000), density=0.002, format="csr", rng=np.random.default_rng(0))

    def with_torch(torch: Any, x: Any) -> Any:
        parts = map(torch.from_numpy, (a.indptr, a.indices, a.data))
        return torch.sparse_csr_tensor(*parts, a.shape) @ x

    return _Function(filled((5_000, 8), "float64"), lambda x: a @ x, lambda x: a @ x, with_torch)


_FUNCTIONS = {
    **{name: partial(_along_rows, name) for name in ("logsumexp", "softmax", "log_softmax")},
    "norm.logpdf": _logpdf,
    "solve_triangular": _solve_triangular,
    "cho_solve": _cho_solve,
    "expm": _expm,
    "add.reduceat": _reduceat,
    "csr @ x": _sparse_product,
}


class FunctionsOnTapes:
    """The gradient of a sum of squares of a function; how many times as long it takes.

    Relative to the value without a tape, and to value and gradient with torch on one thread.
    """

    params = [list(_FUNCTIONS), ["the value alone", "torch"]]
    param_names = ("function", "relative to")
    unit = "times the time of the other"
    timeout = 120

    def track_ratio(self, function: str, other: str) -> float:
        case = _FUNCTIONS[function]()
        variable = tfopt.Variable(case.x)

        def ours() -> Any:
            with tfopt.GradientTape() as tape:
                loss = np.sum(np.square(case.ours(variable)))
            return tape.gradient(loss, variable)

        def alone() -> Any:
            return np.sum(np.square(case.value(case.x)))

        theirs = alone if other == "the value alone" else _of_torch(case)
        mine, other_time = best_times(ours, theirs)
        return mine / other_time


class ForwardDerivatives(FunctionsOnTapes):
    """A function and its derivative along a direction; how many times as long it takes.

    Relative to the value without a tape, and to torch's forward mode on one thread.
    """

    def track_ratio(self, function: str, other: str) -> float:
        case = _FUNCTIONS[function]()
        direction = np.full_like(case.x, 0.5)

        def ours() -> Any:
            return tfopt.jvp(case.ours, [case.x], [direction])

        alone = other == "the value alone"
        theirs = partial(case.value, case.x) if alone else _along_with_torch(case, direction)
        mine, other_time = best_times(ours, theirs)
        return mine / other_time


def _along_with_torch(case: _Function, direction: np.ndarray) -> Callable[[], Any]:
    torch = installed("torch")
    torch.set_num_threads(1)
    function, x, v = partial(case.torch, torch), *map(torch.from_numpy, (case.x, direction))
    try:
        torch.func.jvp(function, (x,), (v,))
    except (NotImplementedError, RuntimeError) as error:
        raise NotImplementedError(f"torch has no forward mode of it: {error}") from error
    return lambda: torch.func.jvp(function, (x,), (v,))


def _of_torch(case: _Function) -> Callable[[], Any]:
    torch = installed("torch")
    torch.set_num_threads(1)
    x = torch.from_numpy(case.x).requires_grad_()

    def gradient() -> Any:
        x.grad = None
        case.torch(torch, x).square().sum().backward()
        return x.grad

    return gradient
