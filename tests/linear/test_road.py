"""The files that a fit enters, which the folder of the solvers lists."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import tfopt
from tfopt.linear_model import LinearClassifier, _fit

FOLDER = Path(tfopt.__file__).parent


def entered(model: Any, X: Any, y: Any) -> set[str]:
    """Return the names of the files of which a second fit calls functions."""
    files = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and FOLDER in path.parents:
            files.add(path.stem)

    model.fit(X, y)
    sys.setprofile(note)
    try:
        model.fit(X, y)
    finally:
        sys.setprofile(None)
    return files


def test_a_dense_fit_enters_what_is_listed() -> None:
    random = np.random.default_rng(0)
    X = random.standard_normal((4000, 30))
    y = X @ random.standard_normal(30) + random.standard_normal(4000) > 0
    listed = set(re.findall(r"`(\w+)`", _fit.__doc__ or ""))
    assert entered(LinearClassifier(), X, y) == listed and len(listed) <= 16
