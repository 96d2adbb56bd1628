"""Fits to blocks: losses, matrices, weights, empty blocks, Newton's method.

Run as a program by all processes of MPI, it writes the bits of all fits to a file.
"""

from __future__ import annotations

import itertools
import os
import pickle
import sys
import warnings
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from common.linear_losses import DEFINITIONS, targets
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from tfopt import linear_model
from tfopt.linear_model import fit_blocks

__all__ = ["CASES", "Case", "bits", "blocks", "broken", "deadly", "failing", "model_of"]

#: Rows of the blocks: more blocks than are visited side by side, of several sizes.
ROWS = (13, 1, 9, 20, 5, 17, 2, 6, 30, 8)
FITTED = ("coef_", "intercept_", "objective_", "dual_gap_", "n_iter_", "dual_coef_")
KINDS = ("csr", "dense", "float32", "fortran")


class Case(NamedTuple):
    loss: str
    kind: str = "csr"
    is_weighted: bool = True
    has_empty: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    n_features: int = 5

    def __str__(self) -> str:
        marks = ["weights"] * self.is_weighted + ["empty"] * self.has_empty
        return "-".join([self.loss, self.kind, *marks, *(name for name, _ in self.options)])


def _cases() -> list[Case]:
    found = [
        Case(loss, kind, is_weighted, has_empty)
        for (number, loss), (is_weighted, has_empty) in itertools.product(
            enumerate(DEFINITIONS), [(False, False), (True, True)]
        )
        for kind in (KINDS[(number + has_empty) % 4],)
    ]
    for options in ({"l1": 0.5}, {"fit_intercept": False}, {"class_weight": "balanced"}):
        found.append(Case("logistic", options=tuple(options.items())))
    for kind in ("csr", "dense"):  # steps of Newton's method by products, and the interior point
        found.append(Case("logistic", kind, n_features=70))
        found.append(Case("hinge", kind, n_features=3))
    return found


CASES = _cases()


def data(case: Case) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """Return features, labels, of three classes for the hinge, and weights, some of them 0."""
    random, n = np.random.default_rng(0), sum(ROWS)
    d = case.n_features
    X: Any = random.standard_normal((n, d)) * (random.uniform(size=(n, d)) < 0.5)
    z = X @ random.standard_normal(d) + 0.5 + random.standard_normal(n)
    y = targets(case.loss, z, random)
    if case.loss == "hinge" and d == 5:
        y = np.array(["a", "b", "c"])[np.digitize(z, [-1, 1])]
    weights = random.choice([0.0, 0.5, 1.0, 2.0], n) if case.is_weighted else None
    if case.kind == "csr":
        X = sparse.csr_matrix(X)
    elif case.kind == "float32":
        X = X.astype(np.float32)
    elif case.kind == "fortran":
        X = np.asfortranarray(X)
    return X, y, weights


def blocks(case: Case) -> list[tuple[Any, ...]]:
    rows = [*ROWS[:4], 0, *ROWS[4:]] if case.has_empty else ROWS
    ends = np.cumsum([0, *rows]).tolist()
    arrays = [array for array in data(case) if array is not None]
    return [tuple(array[i:j] for array in arrays) for i, j in itertools.pairwise(ends)]


def model_of(case: Case, **options: Any) -> Any:
    """Return an estimator that is far from the end after its iterations."""
    is_class = DEFINITIONS[case.loss].labels == "classes"
    kind = linear_model.SDCAClassifier if is_class else linear_model.SDCARegressor
    return kind(case.loss, **{"tol": 1e-12, "max_iter": 4, **dict(case.options), **options})


def quietly(fit: Any, *arguments: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit(*arguments, **options)


def bits(model: Any) -> dict[str, bytes]:
    """Return the bits of a fitted model."""
    found = {name: np.asarray(getattr(model, name)).tobytes() for name in FITTED}
    gaps = [[record["gap"] for record in history] for history in model.history_]
    return found | {"history_": np.array(gaps).tobytes()}


def alone(case: Case) -> dict[str, bytes]:
    """Return the bits of the fit in this process, in fixed partitions unless one is empty."""
    if case.has_empty:
        return bits(quietly(fit_blocks, model_of(case), blocks(case)))
    model = model_of(case, num_loss_partitions=ROWS)
    return bits(quietly(model.fit, *data(case)))


def on(case: Case, executor: Any) -> dict[str, bytes]:
    """Return the bits of the fit by an executor."""
    return bits(quietly(fit_blocks, model_of(case), blocks(case), executor))


# ---- functions that blocks are made by


def made(case: Case, number: int) -> tuple[Any, ...]:
    return blocks(case)[number]


def broken(number: int) -> tuple[Any, ...]:
    """Return a block that is refused if its number is odd."""
    X = np.eye(3)
    X[1, 2] = np.nan if number % 2 else 0.0
    return X, np.array([0, 1, 0])


def failing(block: Any, request: Any) -> Any:
    """A round that one block refuses."""
    if block == request:
        raise KeyError(f"block {block}")
    return block, 1


class OddError(Exception):
    """An error that pickle cannot load again."""

    def __init__(self, what: str, *, where: int) -> None:
        super().__init__(f"{what} in block {where}")


def odd(block: Any, request: Any) -> Any:
    """A round that fails with an odd error."""
    raise OddError("trouble", where=block)


def deadly(block: Any, request: Any) -> Any:
    """A round that ends the process."""
    os._exit(3)


def as_number(number: int, value: Any) -> int:
    """A block that is its number."""
    return number


def check_refusals(executor: Any) -> None:
    """The error is that of the first bad block, the model is as before, and the executor is fit."""
    model = quietly(fit_blocks, model_of(CASES[0]), blocks(CASES[0]), executor)
    before = bits(model), sorted(vars(model))
    for bad in ([partial(broken, k) for k in range(6)], [broken(k) for k in range(6)]):
        try:
            fit_blocks(model, bad, executor)
        except ValueError as error:
            assert str(error) == "block 1, row 1: X is not finite", error
        else:
            raise AssertionError("it was not refused")
    assert (bits(model), sorted(vars(model))) == before
    executor.persist(as_number, [(None,)] * 7)
    assert executor.map_reduce(failing, 99) == 7 and executor.map_reduce(failing, 99, [2, 5]) == 2
    assert executor.map(pair, 10) == [(k, 10) for k in range(7)]
    try:
        executor.map_reduce(failing, 3)
    except KeyError as error:
        assert error.args == ("block 3",)
    else:
        raise AssertionError("it was not refused")
    try:
        executor.map_reduce(odd, None)
    except Exception as error:
        assert str(error).endswith("trouble in block 0"), error
    else:
        raise AssertionError("it was not refused")
    loaded = [partial(made, CASES[0], k) for k in range(len(ROWS))]
    again = quietly(fit_blocks, model_of(CASES[0]), loaded, executor)
    assert bits(again) == before[0]


def pair(block: Any, request: Any) -> tuple[Any, Any]:
    return block, request


def main(path: str) -> None:
    """Fit all cases by the processes of MPI."""
    from mpi4py import MPI

    from tfopt.mpi import MPIExecutor

    with MPIExecutor() as executor:
        if executor is not None:
            check_refusals(executor)
            found = [on(case, executor) for case in CASES]
            with open(path, "wb") as file:
                pickle.dump((MPI.COMM_WORLD.Get_size(), found), file)
    assert (executor is None) == (MPI.COMM_WORLD.Get_rank() > 0)


if __name__ == "__main__":
    main(sys.argv[1])
