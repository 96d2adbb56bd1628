"""Fits to blocks have the same bits, whichever executor holds these."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import executor_cases
import numpy as np
import pytest
from distributed import Client
from executor_cases import CASES, ROWS, alone, bits, blocks, model_of, on, quietly
from sklearn.exceptions import ConvergenceWarning

import tfopt.dask
from tfopt import linear_model
from tfopt.dask.linear.executor import DaskExecutor
from tfopt.errors import CheckpointError
from tfopt.linear_model import Executor, ProcessExecutor, ThreadExecutor, fit_blocks
from tfopt.linear_model._blocks.input import FirstBlocks

TESTS = Path(__file__).parents[1]
#: Where other processes find what tests import.
PATH = os.pathsep.join([str(TESTS.parent), str(TESTS), str(TESTS / "cluster")])


@contextlib.contextmanager
def dask_executor() -> Iterator[Any]:
    local = {"processes": False, "n_workers": 2, "threads_per_worker": 1}
    with (
        Client(**local, dashboard_address="127.0.0.1:0") as client,
        DaskExecutor(client) as executor,
    ):
        yield executor


@contextlib.contextmanager
def ray_executor() -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    from tfopt.ray import RayExecutor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own
        is_ours = not ray.is_initialized()
        ray.init(
            ignore_reinit_error=True,
            num_cpus=3,
            include_dashboard=False,
            log_to_driver=False,
            runtime_env={"env_vars": {"PYTHONPATH": PATH}},
        )
        try:
            with RayExecutor(3, num_cpus=0) as executor:
                yield executor
        finally:
            if is_ours:
                ray.shutdown()


ENGINES = {
    "thread": lambda: ThreadExecutor(1),
    "threads": lambda: ThreadExecutor(3),
    "processes": lambda: ProcessExecutor(2),
    "dask": dask_executor,
    "ray": ray_executor,
}


@pytest.fixture(scope="module", params=ENGINES)
def executor(request: Any) -> Iterator[Executor]:
    with ENGINES[request.param]() as executor:
        yield executor


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bits_do_not_depend_on_the_executor(executor: Executor, case: Any) -> None:
    assert on(case, executor) == alone(case)


@pytest.mark.parametrize("case", CASES[::3], ids=str)
def test_a_fit_goes_on_from_a_checkpoint_of_any_executor(
    executor: Executor, case: Any, tmp_path: Path
) -> None:
    """Saved by one executor after each epoch, taken up by another."""
    folder, parts = str(tmp_path / "saved"), blocks(case)
    for first, second in ((executor, ThreadExecutor(2)), (ThreadExecutor(1), executor)):
        saved = {"checkpoint": folder, "checkpoint_every": 1}
        quietly(fit_blocks, model_of(case, max_iter=2), parts, first, **saved)
        told: list[dict[str, Any]] = []
        options = {"random_state": None, "callback": told.append}
        model = quietly(fit_blocks, model_of(case, **options), parts, second, resume=folder)
        assert bits(model) == alone(case)
        assert all(record["iteration"] > 1 for record in told)
        assert len({path.name.partition(".")[0] for path in (tmp_path / "saved").iterdir()}) == 2


def test_dask_takes_up_a_checkpoint_of_threads(tmp_path: Path) -> None:
    case, parts = CASES[0], blocks(CASES[0])
    saved = {"checkpoint": str(tmp_path), "checkpoint_every": 1}
    quietly(fit_blocks, model_of(case, max_iter=2), parts, **saved)
    model = tfopt.dask.LinearClassifier(case.loss, tol=1e-12, max_iter=4)
    with dask_executor():
        quietly(model.fit, *map(list, zip(*parts, strict=True)), resume=str(tmp_path))
        model.dual_coef_ = model.dual_coef_.compute()
    assert bits(model) == alone(case)


def test_checkpoints_that_are_refused_change_nothing(tmp_path: Path) -> None:
    case, parts, folder = CASES[0], blocks(CASES[0]), str(tmp_path / "saved")
    model = quietly(fit_blocks, model_of(case), parts, checkpoint=folder)
    before, there = bits(model), sorted(tmp_path.iterdir())
    assert there == []  # fewer epochs than checkpoint_every
    quietly(fit_blocks, model, parts, checkpoint=folder, checkpoint_every=1)
    X, y = executor_cases.data(case)[:2]
    for other, blocks_of_it, message in (
        (model, parts[1:], "its blocks is 10, not 9"),
        (model, [(X[:50], y[:50]), (X[50:], y[50:])], "its blocks is 10, not 2"),
        (model_of(case, l2=3.0), parts, "its l2 is None, not 3.0"),
        (model_of(case, random_state=7), parts, "its seed is"),
        (model, [(X, *rest) for X, *rest in parts[::-1]], "block 0 had 13 rows, now 8"),
    ):
        quietly(other.fit, X, y) if other is not model else None
        own = repr(vars(other))
        with pytest.raises(CheckpointError, match=message):
            fit_blocks(other, blocks_of_it, resume=folder)
        assert repr(vars(other)) == own
    for wrong, kind, message in (
        ({"resume": str(tmp_path / "none")}, CheckpointError, "there is no manifest"),
        ({"checkpoint": folder, "checkpoint_every": 0}, ValueError, "checkpoint_every must be"),
    ):
        with pytest.raises(kind, match=message):
            fit_blocks(model, parts, **wrong)
    assert bits(model) == before


def test_what_an_executor_refuses(executor: Executor) -> None:
    executor_cases.check_refusals(executor)


def test_processes_of_mpi(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    start = shutil.which(
        "mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    if start is None:
        pytest.skip("there is no mpiexec")
    program = [sys.executable, "-m", "mpi4py", executor_cases.__file__]
    paths = os.pathsep.join([PATH, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [start, "-n", "3", *program, str(tmp_path / "bits")],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    n_processes, found = pickle.loads((tmp_path / "bits").read_bytes())
    assert n_processes == 3
    for case, ours in zip(CASES, found, strict=True):
        assert ours == alone(case), case


def test_references_of_ray() -> None:
    """They are replaced by what they refer to, where the blocks are."""
    with ray_executor() as executor:
        import ray

        made = ray.remote(executor_cases.made)
        given = [made.remote(CASES[0], number) for number in range(len(ROWS))]
        model = quietly(fit_blocks, model_of(CASES[0]), given, executor)
    assert bits(model) == alone(CASES[0])


def test_a_process_that_dies_ends_the_executor() -> None:
    case = CASES[0]
    with ProcessExecutor(2) as executor:
        model = quietly(fit_blocks, model_of(case), blocks(case), executor)
        before = bits(model)
        executor.persist(executor_cases.as_number, [(None,)] * 3)
        with pytest.raises(RuntimeError, match="a process of this executor died"):
            executor.map_reduce(executor_cases.deadly, None)
        with pytest.raises(RuntimeError, match="have ended: make another one"):
            fit_blocks(model, blocks(case), executor)
        assert bits(model) == before
    with ProcessExecutor(1) as executor:
        assert on(case, executor) == before
    for wrong in (0, 1.5):
        with pytest.raises(ValueError, match="n_workers must be an integer of at least 1"):
            ProcessExecutor(wrong)


@pytest.mark.parametrize("case", [CASES[0], CASES[3]], ids=str)
def test_warm_starts_go_on_from_the_same_blocks(case: Any) -> None:
    parts = [block for block in blocks(case) if len(block[1])]
    X, y, *weights = executor_cases.data(case)
    theirs = model_of(case, warm_start=True, num_loss_partitions=ROWS)
    ours = model_of(case, warm_start=True)
    for _ in range(2):
        quietly(theirs.fit, X, y, *weights)
        quietly(fit_blocks, ours, parts)
        assert bits(ours) == bits(theirs)
    before = bits(ours)
    for other in (parts[1:], [parts[0], parts[2], parts[1], *parts[3:]]):
        with pytest.raises(ValueError, match="warm_start goes on from"):
            fit_blocks(ours, other)
        assert bits(ours) == before
    quietly(ours.fit, X, y)  # has no blocks any more
    assert not ours._in_blocks


def test_dual_variables_are_not_collected_unless_they_are_kept() -> None:
    case, asked = CASES[0], []

    class Counting(ThreadExecutor):
        def map(self, function: Any, request: Any) -> list[Any]:
            asked.append(function)
            return super().map(function, request)

    quietly(fit_blocks, model_of(case), blocks(case), Counting())
    assert len(asked) == 1
    model = quietly(fit_blocks, model_of(case, keep_duals=False), blocks(case), Counting())
    assert len(asked) == 1 and not hasattr(model, "dual_coef_")
    with pytest.raises(ValueError, match="keep_duals=True"):
        fit_blocks(model.set_params(warm_start=True), blocks(case))


def test_names_of_features() -> None:
    pd = pytest.importorskip("pandas")
    X, y, _ = executor_cases.data(CASES[2])
    X = np.asarray(X if isinstance(X, np.ndarray) else X.toarray(), float)
    frame = pd.DataFrame(X, columns=list("abcde"))
    model = quietly(fit_blocks, model_of(CASES[2]), [(frame[:50], y[:50]), (frame[50:], y[50:])])
    assert model.feature_names_in_.tolist() == list("abcde") and model.n_features_in_ == 5
    other = frame[50:].rename(columns={"c": "x"})
    with pytest.raises(ValueError, match="number 2 is 'x' in block 1, but 'c' in block 0"):
        fit_blocks(model, [(frame[:50], y[:50]), (other, y[50:])])
    with pytest.raises(ValueError, match="block 0 has feature names, but block 1 has none"):
        fit_blocks(model, [(frame[:50], y[:50]), (X[50:], y[50:])])
    assert model.feature_names_in_.tolist() == list("abcde")
    quietly(fit_blocks, model, [(X[:50], y[:50]), (X[50:], y[50:])])
    assert not hasattr(model, "feature_names_in_")
    first = FirstBlocks({("a",): 4, None: 1}) + FirstBlocks({("a",): 2, ("b",): 3})
    assert first.by_names == {("a",): 2, None: 1, ("b",): 3}


@pytest.mark.parametrize(
    ("options", "given", "message"),
    [
        ({"num_loss_partitions": [3]}, None, "set num_loss_partitions=None"),
        ({"num_loss_partitions": 2}, None, "set num_loss_partitions=None"),
        ({"adaptive": True}, None, "adaptive"),
        ({"solver": "sdca"}, None, "does not apply to fixed blocks"),
        ({"l2": 0.0, "l1": 1.0}, None, "no fixed blocks"),
        ({}, [], "there are no blocks"),
        ({}, [(np.eye(2),)], r"block 0: must be a tuple \(X, y\)"),
        ({}, [np.eye(2)], "not ndarray"),
        ({}, [(np.eye(2), [0, 1]), (np.eye(3), [0, 1, 1])], "block 1 has 3 features"),
        ({}, [(np.eye(2), [0, 1], [-1, 1])], "block 0, row 0: sample_weight is negative"),
        ({}, [(np.eye(2), [0, 1], [0, 0])], "sample_weight must not be zero"),
        ({}, [(np.empty((0, 2)), [])], "all blocks are empty"),
    ],
)
def test_what_is_refused(options: Any, given: Any, message: str) -> None:
    case = CASES[0]
    model = model_of(case, **options)
    with pytest.raises(ValueError, match=message):
        fit_blocks(model, blocks(case) if given is None else given)
    assert not {name for name in vars(model) if name.endswith("_") or name.startswith("_")}


def test_warnings_name_the_callers_line() -> None:
    case = CASES[0]
    with pytest.warns(ConvergenceWarning) as caught:
        fit_blocks(model_of(case), blocks(case))
    assert caught[0].filename == __file__


def test_models_of_others_are_refused() -> None:
    from tfopt.dask import SDCAClassifier

    for other in (SDCAClassifier(), linear_model.FTRLClassifier(), None):
        with pytest.raises(TypeError, match="model must be a LinearClassifier or LinearRegressor"):
            fit_blocks(other, blocks(CASES[0]))
