"""The page on training in fewer bytes: what its script does, and what its figures show."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("fewer_bytes", DOCS / "examples/fewer_bytes.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def recorded() -> Any:
    return json.loads((DOCS / "fewer_bytes.json").read_text())


def test_the_page_shows_the_recorded_losses(script: Any, recorded: Any) -> None:
    page = (DOCS / "fewer_bytes.md").read_text()
    assert script.in_page(page, recorded) == page and script.table(recorded) in page


def test_the_page_has_the_recorded_losses(recorded: Any) -> None:
    for name, losses in recorded.items():
        last = {storage: values[-1] / losses["float32"][-1] for storage, values in losses.items()}
        assert abs(last["8-bit slots"] - 1) < 0.01, name
        assert last["4-bit slots"] < 1, name
        assert abs(last["bfloat16, stochastic"] - 1) < 0.01, name
        assert last["bfloat16, to nearest"] > 1.3, name


def test_the_script_trains_as_recorded(script: Any, recorded: Any) -> None:
    """An epoch of each model; matrix products are not the same bits everywhere."""
    for name, losses in script.measured(epochs=1).items():
        for storage, values in losses.items():
            np.testing.assert_allclose(values, recorded[name][storage][:2], rtol=1e-2)
        assert losses["bfloat16, stochastic"][1] < losses["bfloat16, to nearest"][1]
