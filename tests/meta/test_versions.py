"""`tfopt info` lists, besides versions, BLAS, the OpenMP libraries in the process, and extras."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import tfopt
from tfopt.core.versions import versions

ROOT = Path(__file__).parents[2]


def names_of(requirements: list[str]) -> set[str]:
    names = {re.match(r"[\w.-]+", requirement)[0] for requirement in requirements}
    return names - {"tfopt"}


def test_every_package_of_an_extra_for_users_is_listed() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = set()
    for extra, requirements in extras["optional-dependencies"].items():
        if extra not in ("test", "docs", "bench"):
            wanted |= names_of(requirements)
    assert versions()["optional"].keys() == wanted


def test_openmp_libraries_are_those_that_threadpoolctl_finds() -> None:
    found = {
        "/".join(Path(each["filepath"]).parts[-2:])
        for each in threadpool_info()
        if each["user_api"] == "openmp"
    }
    assert {*versions()["openmp_runtimes"]} == found
    assert tfopt.threads.openmp() <= len(found)


PROGRAM = """
import os, sys
exists = os.path.exists
os.path.exists = lambda path: path != "/proc/self/maps" and exists(path)
if sys.argv[1] == "hidden":
    sys.modules["threadpoolctl"] = None
import tfopt
from tfopt.core.versions import versions
print(versions()["openmp_runtimes"])
tfopt.show_versions()
"""


@pytest.mark.parametrize("threadpoolctl", ["hidden", "installed"])
def test_systems_that_do_not_list_loaded_libraries(threadpoolctl: str) -> None:
    run = [sys.executable, "-c", PROGRAM, threadpoolctl]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    first, *rest = done.stdout.splitlines()
    (shown,) = (line for line in rest if line.startswith("openmp runtimes"))
    if threadpoolctl == "hidden":
        assert (first, shown.split()) == ("None", ["openmp", "runtimes", "unknown"])
    elif tfopt.threads.openmp():
        assert "omp" in first and "omp" in shown.removeprefix("openmp runtimes"), done.stderr


def test_the_blas_is_numpys(monkeypatch: Any) -> None:
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    assert versions()["blas"] == f"{blas['name']} {blas['version']}"
    for config in ({}, None, {"Build Dependencies": {"blas": {"name": "unknown"}}}):
        monkeypatch.setattr(np, "show_config", lambda mode, config=config: config)
        assert versions()["blas"] is None
