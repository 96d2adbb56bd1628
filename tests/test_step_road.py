"""The way of a step is short: how many of the package's Python files it passes through."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import tfopt
from tfopt.optimizers import Adam

FOLDER = str(Path(tfopt.__file__).parent)
MOST = 10


def test_an_ordinary_step_passes_through_few_files() -> None:
    opt, pairs = Adam(), [(np.ones(16), np.zeros(16))]
    for _ in range(3):  # the first one makes slots and the plan
        opt.apply_gradients(pairs)
    files: set[str] = set()

    def profile(frame: Any, kind: str, argument: Any) -> None:
        if kind == "call":
            files.add(frame.f_code.co_filename)

    sys.setprofile(profile)
    try:
        opt.apply_gradients(pairs)
    finally:
        sys.setprofile(None)
    passed = sorted(file for file in files if file.startswith(FOLDER))
    assert any(file.endswith("optimizer_base.py") for file in passed)
    assert len(passed) <= MOST, passed
