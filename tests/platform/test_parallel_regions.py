"""Threads of kernels: each parallel region reports what they save, and none changes a bit."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import tfopt
from tfopt.linear_model import SDCAClassifier, SDCARegressor

PACKAGE = Path(tfopt.__file__).parent
SOURCES = sorted(
    path
    for path in PACKAGE.rglob("*")
    if path.suffix in (".pyx", ".pxd", ".pxi", ".tp", ".h") and not path.name.startswith("steps_")
)
REGION = re.compile(r"( *)with (?:nogil, )?parallel\((.*)\):(?: *#.*)?")
REPORTS = ("begin_share", "end_share", "dismiss_team")

needs_sources = pytest.mark.skipif(not SOURCES, reason="kernels have no sources beside them here")


def faults(text: str) -> list[str]:
    """Return what is wrong with the parallel regions of a source."""
    found = re.findall(r"\bprange\(|#\s*pragma omp (?!simd)", text)  # nothing to report from
    lines = [*filter(str.strip, text.splitlines()), ""]
    for number, line in enumerate(lines):
        region = REGION.fullmatch(line)
        if region is None:
            found += [line] if re.search(r"\bparallel\(", line) else []
            continue
        after = number + 1
        while lines[after].startswith(region[1] + " "):
            after += 1
        size = re.fullmatch(r"num_threads=(\w+)\.size", region[2])
        body = lines[number + 1].strip(), lines[after - 1].strip(), lines[after].strip()
        if size is None or body != tuple(f"{report}(&{size[1]})" for report in REPORTS):
            found.append(line)
    return found


def regions() -> list[str]:
    return [
        p.parent.name if p.name != "runtime.pyx" else p.name
        for p in SOURCES
        for line in p.read_text().splitlines()
        if REGION.fullmatch(line)
    ]


@needs_sources
@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_each_parallel_region_reports(path: Path) -> None:
    """A region that does not waits for whole time slices of other programs, at each call."""
    text = path.read_text()
    assert faults(text) == []
    for report in REPORTS:
        for call in re.finditer(rf"^ +{report}\(&\w+\)\n", text, re.MULTILINE):
            assert faults(text[: call.start()] + text[call.end() :]), "this must be seen"


@needs_sources
def test_regions_that_do_not_report_are_found() -> None:
    assert len(regions()) > 10
    for wrong in (
        "for i in prange(n, num_threads=t.size):",
        "    #pragma omp parallel for",
        "with parallel():\n    f()\ng()",
        "with nogil, parallel(num_threads=4):\n    f()\ng()",
    ):
        assert faults(wrong), wrong


@needs_sources
def test_one_function_runs_teams() -> None:
    """Only linear models have other regions, for functions of typed views of several types."""
    assert regions().count("runtime.pyx") == 1
    assert set(regions()) == {"runtime.pyx", "linear", "tf_sdca"}


@needs_sources
def test_only_teams_decide_how_many_threads_there_are() -> None:
    """Others ask for the most there may be, to have memory for each."""
    asking = {p.name for p in SOURCES if "team_size(" in p.read_text()}
    assert asking == {"runtime.pyx", "runtime.pxd", "sparse_checks.pyx", "whole_rows.pyx"}


# ---- bits


@contextmanager
def changing_threads() -> Iterator[None]:
    """Change the number of threads all the time, as if cores became busy and idle again."""
    done = threading.Event()

    def change() -> None:
        for number in cycle((1, 4, 2, 3)):
            tfopt.threads.set_num_threads(number)
            if done.wait(2e-4):
                return

    changing = threading.Thread(target=change)
    changing.start()
    try:
        yield
    finally:
        done.set()
        changing.join()


def problem(kind: str) -> tuple[Any, np.ndarray]:
    random = np.random.default_rng(5)
    X = random.standard_normal((30_000, 12))
    z = X @ random.standard_normal(12) + random.standard_normal(30_000)
    return (sparse.csr_matrix(np.where(abs(X) > 0.4, X, 0)) if kind == "sparse" else X), z


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize(
    ("make", "options"),
    [
        (SDCAClassifier, {"solver": "sdca", "num_loss_partitions": 3}),
        (SDCAClassifier, {"solver": "newton-cholesky"}),
        (SDCAClassifier, {"solver": "newton-cg"}),
        (SDCAClassifier, {"solver": "cd", "l1": 0.1}),
        (SDCAClassifier, {"solver": "interior-point", "loss": "hinge"}),
        (SDCARegressor, {"solver": "newton-cholesky"}),
    ],
)
def test_a_fit_may_change_its_threads_between_regions(
    make: Any, options: dict[str, Any], kind: str
) -> None:
    X, z = problem(kind)
    y = z > 0 if make is SDCAClassifier else z
    results = set()
    for threads in (1, 4):
        model = make(**{"l2": 3.0, "tol": 1e-5, "max_iter": 30, **options}, n_jobs=threads)
        tfopt.threads.set_num_threads(threads)
        if threads == 1:
            model.fit(X, y)
        else:
            with changing_threads():
                model.fit(X, y)
        results.add(model.coef_.tobytes() + np.ravel(model.dual_gap_).tobytes())
    assert len(results) == 1
