"""What all tests share: which of them run, the two implementations, settings that are restored."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import Any

if "PYTEST_XDIST_WORKER" in os.environ:  # processes share the cores: waiting threads must not spin
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import pytest
from common.cases import TRIED
from common.specified import SPECIFIED
from hypothesis import HealthCheck, settings

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


# ---- which tests run: a sample without a path, `pytest` or `pytest --sample PATH`, else all

HERE = Path(__file__).parent
#: The most cases of a test that are in a sample.
CASES = 8
#: Folders that are not in a sample, unless they are named.
LEFT_OUT = {
    "campaign": "minutes of random faults",
    "cluster": "processes of Dask, Ray and MPI",
    "cuda": "a compiler, or a GPU",
    "live": "other libraries, which take seconds to import",
}
_GOLDEN_RATIO = (5**0.5 - 1) / 2


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sample", action="store_true", help=f"run at most {CASES} cases of a test")
    parser.addoption("--rest", action="store_true", help="run what a sample leaves out")


def pytest_configure(config: pytest.Config) -> None:
    """Without a path, run a sample; pytest-xdist hands the option on to its workers."""
    config.option.sample |= config.args_source is pytest.Config.ArgsSource.TESTPATHS


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say what is not run."""
    if not config.option.sample:
        return None
    return (
        f"a sample: at most {CASES} cases of each test, laws without their coverings, and nothing "
        f"of {', '.join(LEFT_OUT)}; pytest tests runs everything"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave folders out of a sample; pytest does not ask about paths that are named."""
    left_out = collection_path.parent == HERE and collection_path.name in LEFT_OUT
    return True if left_out and config.option.sample else None


def in_sample(case: int, cases: int) -> bool:
    """Whether a case is in an even sample, whose steps are no multiples of any pattern's."""
    return case * _GOLDEN_RATIO % 1 < CASES / cases


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave cases out of a sample, or the sample out of what is run after it."""
    sample, rest = config.option.sample, config.option.rest
    if not sample and not rest:
        return
    tests: dict[object, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault((item.path, getattr(item, "originalname", item.name)), []).append(item)
    chosen = {
        item
        for cases in tests.values()
        for number, item in enumerate(cases)
        if in_sample(number, len(cases)) or item.get_closest_marker("sampled_whole")
    }
    if rest:
        chosen = {item for item in items if item not in chosen or _is_run_again(item)}
    out = len(items) - len(chosen)
    items[:] = [item for item in items if item in chosen]
    # which counts them, and would keep them until the end
    config.hook.pytest_deselected(items=items[:1] * out)


def _is_run_again(item: pytest.Item) -> bool:
    """Whether a sample has only a part of a test, or nothing of its folder."""
    folder = item.path.relative_to(HERE).parts[0]
    return folder in LEFT_OUT or item.get_closest_marker("sampled_in_part") is not None


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
    """Exempt the tests, up to a million permanent objects, from garbage collection.

    Those that are deselected are garbage.
    """
    gc.disable()
    collected = yield
    gc.enable()
    gc.collect()
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
