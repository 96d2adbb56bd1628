"""The programs of the gallery run, and each draws a picture."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")
pytest.importorskip("ml_dtypes")
SCRIPTS = sorted((Path(__file__).parents[2] / "docs/plots").glob("plot_*.py"))


def test_the_gallery_has_scripts() -> None:
    assert len(SCRIPTS) >= 12


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_draws(script: Path, monkeypatch: Any) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(plt.gcf()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runpy.run_path(str(script))
    (figure,) = shown
    assert all(axis.has_data() for axis in figure.axes)
    plt.close("all")
