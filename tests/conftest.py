"""Fixtures every test may use: the two implementations, and settings put back afterwards."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Generator
from types import ModuleType
from typing import Any

import pytest
from cases import TRIED
from hypothesis import HealthCheck, settings

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
