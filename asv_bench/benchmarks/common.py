"""Common parts of the benchmarks.

The parameters come from the table of the checkout that the benchmarks lie in, so they are the same
for every commit of a run; `tfopt` itself is the one under test. It is imported when a benchmark is
set up, and what it does not have yet, or no longer, skips the benchmark.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np

HERE = Path(__file__).parent


def _import_table() -> ModuleType:
    """Import the checkout's tfopt.rules by itself."""
    table = HERE.parents[1] / "tfopt/rules/__init__.py"
    spec = importlib.util.spec_from_file_location("tfopt_rules", table)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # for relative imports among its parts
    spec.loader.exec_module(module)
    return module


TABLE = _import_table()

#: The rows of the table by name.
RULES = {rule.name: rule for rule in TABLE.RULES}

#: Elements of a row where a rule that sums over rows steps as many elements as a benchmark says.
WIDTH = 64

#: TensorFlow's ops by the name of the rule.
OPS = TABLE.OPS

#: Sample values of hyperparameters other than learning rates. They do not affect the time of a
#: step, except that powers other than the square root are slow.
HYPERS = {
    "beta1": 0.9,
    "beta1_power": 0.9,
    "beta2": 0.999,
    "beta2_power": 0.999,
    "epsilon": 1e-7,
    "l1": 0.001,
    "l2": 0.001,
    "l2_shrinkage": 0.001,
    "lr_power": -0.5,
    "momentum": 0.9,
    "mu": 0.88,
    "mu_next": 0.885,
    "mu_product": 0.7,
    "mu_product_next": 0.62,
    "rectifier": 0.4,
    "limit": 1.5,
    "beta3": 0.9999,
    "rho": 0.9,
}

Step = Callable[[], Any]


def hyper(name: str) -> float:
    """Return a sample value of a hyperparameter."""
    return HYPERS.get(name, 0.01)


def public(path: str) -> Any:
    """Return an object of the tfopt under test; skip the benchmark if there is none."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(f"tfopt.{module}"), name)
    except (AttributeError, ModuleNotFoundError) as error:
        raise NotImplementedError(f"this tfopt has no {path}") from error


def installed(name: str) -> Any:
    """Return a rival's module; skip the benchmark if it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise NotImplementedError(f"{name} is not installed") from error


def filled(shape: int | tuple[int, ...], dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Return an array of positive numbers in memory that has been touched.

    Positive, because some slots are sums of squares.
    """
    some = np.random.default_rng(seed).uniform(0.1, 1, 1 << 16).astype(dtype)
    return np.resize(some, shape)


def operands(rule: str, shape: int | tuple[int, ...], dtype: str = "float32") -> list[np.ndarray]:
    """Return the arrays of a dense call: the variable, its slots and the gradient."""
    row = RULES[rule]
    if isinstance(shape, int):
        shape = (max(shape // WIDTH, 1), min(shape, WIDTH)) if row.row_slots else (shape,)
    return [
        filled(row.shape_of(name, shape), dtype, seed) for seed, name in enumerate(row.operands)
    ]


def step(rule: str, arrays: list[np.ndarray], **options: Any) -> Step:
    """Return one public update of the arrays as a call without arguments.

    It has been made once, so that no measurement includes the start of the threads.
    """
    apply = public(f"training_ops.apply_{rule}")
    hypers = {name: hyper(name) for name in RULES[rule].hypers}

    def call() -> None:
        apply(*arrays, **hypers, **options)

    call()
    return call


def times(number: int, call: Step) -> Step:
    """Return a call that repeats a call `number` times."""

    def calls() -> None:
        for _ in range(number):
            call()

    return calls


def best_times(*calls: Step, seconds: float = 0.3, rounds: int = 5) -> list[float]:
    """Return the shortest time of each call.

    The calls take turns, for so many seconds and at least so many rounds, so that all of them see
    the machine at its quietest.
    """
    best = [float("inf")] * len(calls)
    end = perf_counter() + seconds
    while rounds > 0 or perf_counter() < end:
        for i, call in enumerate(calls):
            start = perf_counter()
            call()
            best[i] = min(best[i], perf_counter() - start)
        rounds -= 1
    return best


def least_printed(*programs: tuple[str, dict[str, str]], runs: int) -> list[float]:
    """Return the smallest number that each program prints in fresh interpreters, alternating.

    A program is its code and what it adds to the environment.
    """
    least = [float("inf")] * len(programs)
    for _ in range(runs):
        for i, (code, env) in enumerate(programs):
            child = subprocess.run(
                [sys.executable, "-P", "-c", code],
                env={**os.environ, **env},
                check=True,
                capture_output=True,
                text=True,
            )
            least[i] = min(least[i], float(child.stdout))
    return least


@cache
def _same_traffic() -> Any:
    """Return the library of same_traffic.c, compiled once per environment."""
    source = HERE / "same_traffic.c"
    command = [
        *shlex.split(os.environ.get("CC", "cc")),
        "-O3",
        "-march=native",
        "-fopenmp",
        "-shared",
        "-fPIC",
        str(source),
    ]
    if platform.machine() == "x86_64":
        command.append("-mprefer-vector-width=256")  # faster than 512 with NumPy's alignment
    key = hashlib.sha256(source.read_bytes() + repr(command).encode()).hexdigest()[:16]
    library = Path(sys.prefix, "cache", f"same_traffic_{key}.so")
    if not library.exists():
        library.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            built = Path(folder, library.name)
            subprocess.run([*command, "-o", str(built)], check=True)
            built.replace(library)  # atomically: other benchmarks may look for it
    loops = ctypes.CDLL(str(library))
    loops.same_traffic.restype = None
    loops.same_traffic.argtypes = [
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_size_t,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_float,
        ctypes.c_float,
        ctypes.c_int,
        ctypes.c_size_t,
    ]
    loops.random_rows.restype = None
    loops.random_rows.argtypes = [
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_size_t,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_size_t,
        ctypes.c_float,
        ctypes.c_float,
        ctypes.c_int,
    ]
    loops.clip_traffic.restype = ctypes.c_float
    loops.clip_traffic.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_float,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_size_t,
    ]
    return loops


def same_traffic_loop(arrays: list[np.ndarray], threads: int, repeats: int = 1) -> Step:
    """Return a call of the plain C loop with the memory traffic of a dense step.

    It reads and writes all the arrays but the last, which it reads, and changes no value. Those
    with a number for each row are left out. The repeats are made in C, so that a small loop's time
    has no part of Python in it.
    """
    *written, read = (a for a in arrays if a.shape == arrays[0].shape)
    if any(a.dtype != np.float32 or not a.flags.c_contiguous for a in arrays):
        raise TypeError("the loop is written for contiguous float32")
    loop = _same_traffic().same_traffic
    pointers = (ctypes.c_void_p * len(written))(*(a.ctypes.data for a in written))
    arguments = (pointers, len(written), read.ctypes.data, read.size, 1, 0, threads, repeats)

    def call(_alive: list[np.ndarray] = arrays) -> None:
        loop(*arguments)

    return call


def random_rows_loop(tables: list[np.ndarray], rows: np.ndarray, threads: int) -> Step:
    """Return a call of the plain C loop that reads and writes rows of tables in the given order.

    It also reads a gradient row for each, and changes no value. Tables of one number for each row
    are left out.
    """
    tables = [table for table in tables if table.shape == tables[0].shape]
    if any(a.dtype != np.float32 or not a.flags.c_contiguous for a in tables):
        raise TypeError("the loop is written for contiguous float32")
    ids, width = np.ascontiguousarray(rows, np.int64), tables[0].shape[1]
    read = filled((ids.size, width))
    loop = _same_traffic().random_rows
    pointers = (ctypes.c_void_p * len(tables))(*(a.ctypes.data for a in tables))
    arguments = (
        *(pointers, len(tables), read.ctypes.data, ids.ctypes.data, ids.size, width),
        *(1, 0, threads),
    )

    def call(_alive: tuple[object, ...] = (tables, ids, read)) -> None:
        loop(*arguments)

    return call


def clip_traffic_loop(array: np.ndarray, writes: bool, threads: int, repeats: int = 1) -> Step:
    """Return a call of the plain C loop with the memory traffic of clipping in place.

    It reads the array and then, if `writes`, reads and writes it; no value changes.
    """
    if array.dtype != np.float32 or not array.flags.c_contiguous:
        raise TypeError("the loop is written for contiguous float32")
    loop = _same_traffic().clip_traffic
    arguments = (array.ctypes.data, array.size, 1, writes, threads, repeats)

    def call(_alive: np.ndarray = array) -> None:
        loop(*arguments)

    return call
