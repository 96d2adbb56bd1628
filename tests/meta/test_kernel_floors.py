"""No folder of kernels needs one above it, for C declarations or at run time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tfopt

KERNELS = Path(tfopt.__file__).parent / "kernels"
#: From the lowest: machines, arrays, sums of them, updates; what is beside updates comes last.
FLOORS = ("platform", "arrays", "reduce", "update", "linear", "tf_sdca", "text")
SOURCES = sorted(
    path
    for path in KERNELS.glob("*/*")
    if path.suffix in (".pyx", ".pxd", ".pxi", ".tp", ".py") and not path.name.startswith("steps_")
)
NEED = re.compile(r"^c?(?:import|from) +tfopt\.kernels\.(\w+)|^from tfopt\.kernels\.(\w+)", re.M)

needs_sources = pytest.mark.skipif(
    not any(path.suffix == ".pyx" for path in SOURCES), reason="kernels have no sources here"
)


@needs_sources
def test_folders_need_only_lower_ones() -> None:
    needed = {
        (path.parent.name, first or second)
        for path in SOURCES
        for first, second in NEED.findall(path.read_text("utf-8"))
    }
    assert ("update", "arrays") in needed
    assert {folder for pair in needed for folder in pair} <= set(FLOORS)
    upward = {(one, other) for one, other in needed if FLOORS.index(other) > FLOORS.index(one)}
    assert not upward
