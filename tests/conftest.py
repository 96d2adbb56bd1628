"""Fixtures every test may use: the two implementations, and settings put back afterwards."""

from __future__ import annotations

import gc
import os
import re
from collections import Counter
from collections.abc import Generator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cases import TRIED
from hypothesis import HealthCheck, is_hypothesis_test, settings

import tfopt
import tfopt_ref

#: A machine that has other work, too, may take any time for an example.
PATIENT = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
# The same few examples for everybody; new ones, which find what those do not; and a night's worth.
# An example that fails is printed with the decorator that repeats it: it stays, as an @example.
settings.register_profile("gate", max_examples=6, derandomize=True, **PATIENT)
settings.register_profile("fresh", max_examples=8, database=None, print_blob=True, **PATIENT)
settings.register_profile("long", settings.get_profile("fresh"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


# ---- pytest -m quick: at most a minute on one core, as docs/contributing.md says

HERE = Path(__file__).parent
#: Files and folders that take long although nothing they import says so.
SLOW = {
    "cli": "each test reads data and trains",
    "live": "TensorFlow takes seconds to import",
    "test_docs.py": "all examples of the documentation",
    "test_golden.py": "fifty steps of every optimizer",
    "test_twin.py": "every rule on several threads, with arrays that these are worth",
}
#: Imports of tests that start processes or clusters, compile, or ask another library for answers.
_SLOW_IMPORT = re.compile(
    r"^\s*(import|from) (dask|distributed|multiprocessing|sklearn|subprocess)\b"
    r"|^\s*from (dask_cluster|devices|golden\.with_tensorflow) ",
    re.MULTILINE,
)
#: Of a test with more cases, so many are quick.
_CASES = 30


@cache
def _is_slow(file: Path) -> bool:
    first = Path(os.path.relpath(file, HERE)).parts[0]
    return first in SLOW or bool(_SLOW_IMPORT.search(file.read_text(encoding="utf-8")))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Have ``pytest -m quick`` not even import what it leaves out."""
    quick = config.option.markexpr == "quick" and collection_path.suffix == ".py"
    return True if quick and _is_slow(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as quick some cases of each test, but for property tests and those of slow files."""
    functions: dict[object, list[pytest.Item]] = {}
    for item in items:
        if not is_hypothesis_test(getattr(item, "obj", None)) and not _is_slow(item.path):
            functions.setdefault((item.path, getattr(item, "originalname", "")), []).append(item)
    for cases in functions.values():
        step = len(cases) // _CASES | 1  # odd, for arguments often come in pairs
        for item in cases[::step]:
            item.add_marker(pytest.mark.quick)


@pytest.fixture(params=[tfopt, tfopt_ref], ids=["tfopt", "tfopt_ref"])
def impl(request: pytest.FixtureRequest) -> ModuleType:
    """Each implementation in turn; both have the same public names."""
    return request.param


@pytest.fixture(autouse=True)
def _settings_restored():
    threads = tfopt.threads.get_num_threads()
    yield
    tfopt.threads.set_num_threads(threads)
    for package in (tfopt, tfopt_ref):
        package.set_flush_denormals(True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Have the garbage collector leave alone what lasts: over a million objects, of the tests."""
    gc.disable()
    collected = yield
    gc.enable()
    gc.freeze()
    return collected


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Have a test that counts its cases fail if it passes without any."""
    before = TRIED.total()
    result = yield
    if pyfuncitem.get_closest_marker("counted"):
        assert TRIED.total() > before, "no case was tried"
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Under pytest-xdist, have each worker send what it has tried."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["tried"] = [[*key, n] for key, n in TRIED.items()]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    for *key, n in getattr(node, "workeroutput", {}).get("tried", ()):
        TRIED[tuple(key)] += n


def pytest_terminal_summary(terminalreporter) -> None:
    if not TRIED:
        return
    kernels = tfopt.kernels
    what = kernels.cpu if kernels.backend == "kernels" else kernels.backend
    terminalreporter.section(f"property cases, tfopt on {what} against tfopt_ref")
    for part, title in enumerate(("rule", "dtype", "kind", "layout")):
        counts: Counter[str] = Counter()
        for key, n in TRIED.items():
            counts[key[part]] += n
        listed = ", ".join(f"{name} {n}" for name, n in sorted(counts.items()))
        terminalreporter.write_line(f"{title}: {listed}")
