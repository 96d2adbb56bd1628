"""The road of a step is short: how many of the package's Python files it passes through."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfopt
from tfopt import IndexedSlices
from tfopt.optimizers import Adam, GradientAccumulation

FOLDER = str(Path(tfopt.__file__).parent)


def ordinary(optimizer: Any) -> Callable[[], Any]:
    pairs = [(np.ones(16), np.zeros(16))]
    return lambda: optimizer.apply_gradients(pairs)


def of_rows(optimizer: Any) -> Callable[[], Any]:
    rows = IndexedSlices(np.ones((3, 4)), np.array([1, 2, 1]))
    pairs = [(rows, np.zeros((9, 4)))]
    return lambda: optimizer.apply_gradients(pairs)


#: Steps, the most files of the first one, and of a later one.
STEPS: dict[str, tuple[Callable[[], Callable[[], Any]], int, int]] = {
    "dense": (lambda: ordinary(Adam()), 20, 6),
    "of rows": (lambda: of_rows(Adam()), 24, 17),
    "clipped": (lambda: ordinary(Adam(clipnorm=1.0)), 22, 8),
    "of batches": (lambda: ordinary(GradientAccumulation(Adam(), 1)), 24, 10),
}


def passed(step: Callable[[], Any]) -> set[str]:
    """Take a step, and return the files that it passes through."""
    files: set[str] = set()

    def profile(frame: Any, kind: str, argument: Any) -> None:
        if kind == "call":
            files.add(frame.f_code.co_filename)

    sys.setprofile(profile)
    try:
        step()
    finally:
        sys.setprofile(None)
    return {file for file in files if file.startswith(FOLDER)}


@pytest.mark.parametrize("which", STEPS)
def test_a_step_passes_through_few_files(which: str) -> None:
    make, most_first, most_later = STEPS[which]
    step = make()
    first = passed(step)
    step()
    later = passed(step)
    assert any(file.endswith("optimizer_base.py") for file in later)
    assert later <= first, "a later step takes another road"
    assert len(first) <= most_first, sorted(first)
    assert len(later) <= most_later, sorted(later)
