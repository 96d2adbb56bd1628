"""Fixtures for all tests: the two implementations, and restoring settings afterwards."""

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

import numpy as np
import pytest
from common.cases import TRIED
from common.specified import SPECIFIED
from hypothesis import HealthCheck, is_hypothesis_test, settings

import tfopt
import tfopt_ref

#: On a busy machine an example may take any time.
PATIENT = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
# The same few examples for everybody; fresh ones, to find more; and enough for a night.
# An example that fails is printed with the decorator that repeats it: it stays, as an @example.
settings.register_profile("gate", max_examples=6, derandomize=True, **PATIENT)
settings.register_profile("fresh", max_examples=8, database=None, print_blob=True, **PATIENT)
settings.register_profile("long", settings.get_profile("fresh"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


# ---- pytest -m quick: at most a minute on one core, as docs/contributing.md says

HERE = Path(__file__).parent
#: Files and folders that are slow although their imports do not show it.
SLOW = {
    "cli": "each test reads data and trains",
    "live": "TensorFlow takes seconds to import",
    "meta": "all examples of the documentation",
    "golden/test_golden.py": "fifty steps of every optimizer",
    "rules/test_twin.py": "every rule on several threads, with arrays that these are worth",
}
#: Imports of tests that start processes or clusters, compile, or compare with other libraries.
_SLOW_IMPORT = re.compile(
    r"^\s*(import|from) (dask|distributed|multiprocessing|sklearn|subprocess)\b"
    r"|^\s*from (common\.dask_cluster|devices|golden\.with_tensorflow) ",
    re.MULTILINE,
)
#: The maximum number of quick cases of a test.
_CASES = 30


@cache
def _is_slow(file: Path) -> bool:
    name = Path(os.path.relpath(file, HERE))
    named = name.parts[0] in SLOW or name.as_posix() in SLOW
    return named or bool(_SLOW_IMPORT.search(file.read_text(encoding="utf-8")))


#: What takes a minute each: it is run if it is named on the command line, as .ci/run does.
ON_REQUEST = (HERE / "cuda", HERE / "live/test_sklearn_suite.py")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what is not run."""
    named = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    return [
        f"not run unless it is named: pytest {path.relative_to(HERE.parent)}"
        for path in ON_REQUEST
        if not any(path == name or path in name.parents for name in named)
    ]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what is not named, and keep ``pytest -m quick`` from importing what it skips.

    pytest does not ask about paths that are named.
    """
    if collection_path in ON_REQUEST:
        return True
    quick = config.option.markexpr == "quick" and collection_path.suffix == ".py"
    return True if quick and _is_slow(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark some cases of each test as quick, except property tests and slow files."""
    functions: dict[object, list[pytest.Item]] = {}
    for item in items:
        if not is_hypothesis_test(getattr(item, "obj", None)) and not _is_slow(item.path):
            functions.setdefault((item.path, getattr(item, "originalname", "")), []).append(item)
    for cases in functions.values():
        step = len(cases) // _CASES | 1  # odd, because arguments often come in pairs
        for item in cases[::step]:
            item.add_marker(pytest.mark.quick)


@pytest.fixture(params=[tfopt, tfopt_ref], ids=["tfopt", "tfopt_ref"])
def impl(request: pytest.FixtureRequest) -> ModuleType:
    """Each implementation in turn, for names that both have."""
    return request.param


@pytest.fixture(params=[tfopt, SPECIFIED], ids=["tfopt", "tfopt_ref"])
def either(request: pytest.FixtureRequest) -> Any:
    """Clipping and SDCA of tfopt and of the specification, by tfopt's names."""
    return request.param


@pytest.fixture(autouse=True)
def _numpy_seeded() -> None:
    """Let every run draw the same of NumPy's global generator, with which liblinear orders rows.

    Of forty orders, one never lets liblinear converge to 1e-8.
    """
    np.random.seed(0)  # noqa: NPY002  (it is the old generator that they draw from)


@pytest.fixture(autouse=True)
def _settings_restored():
    threads, errors = tfopt.threads.get_num_threads(), np.geterr()
    yield
    # an exception that a test raises between two lines can come just before an errstate ends
    np.seterr(**errors)
    tfopt.threads.set_num_threads(threads)
    for package in (tfopt, tfopt_ref):
        package.set_flush_denormals(True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt the tests, over a million permanent objects, from garbage collection."""
    gc.disable()
    collected = yield
    gc.enable()
    gc.freeze()
    return collected


@pytest.fixture(scope="module", autouse=True)
def _survivors_exempt() -> Generator[None]:
    """Exempt from garbage collection what outlives the tests of a file, too.

    A test that collects garbage would search all that the tests before it have left, for a second.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Fail a test that counts its cases if it passes without any."""
    before = TRIED.total()
    result = yield
    if pyfuncitem.get_closest_marker("counted"):
        assert TRIED.total() > before, "no case was tried"
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Under pytest-xdist, make each worker send its counts."""
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
