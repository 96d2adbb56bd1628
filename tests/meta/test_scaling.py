"""The model of a round's cost, and the page whose tables it makes."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parents[2] / "asv_bench"


@pytest.fixture(scope="module")
def model() -> Iterator[ModuleType]:
    sys.path.insert(0, str(HERE))
    spec = importlib.util.spec_from_file_location("scaling_model", HERE / "scaling_model.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made  # where dataclasses look
    spec.loader.exec_module(made)
    yield made
    sys.path.remove(str(HERE))


def test_the_pages_tables_are_the_models(model: ModuleType) -> None:
    page = model.PAGE.read_text(encoding="utf-8")
    assert model.written(page, json.loads(model.RESULTS.read_text(encoding="utf-8"))) == page
    assert page.count("<!-- end of ") == 4 and "## What the model leaves out" in page


def test_a_round_by_hand(model: ModuleType) -> None:
    constants = model.Constants(latency=1, task=0.5, hop=2, send=1e-3, add=1e-2, nonzero=1e-1)
    round = model.Round(workers=2, blocks=8, weights=1000, change=100, nonzeros=10)
    costs = model.seconds(round, constants)
    assert costs["broadcast"] == pytest.approx(3 * (2 + 1))  # by scheduler, one worker, the other
    assert costs["kernels"] == pytest.approx(4 * 10 * 0.1)
    assert costs["tasks"] == pytest.approx(1 + (8 + 2 + 1) * 0.5)
    assert costs["sums"] == pytest.approx((3 + 3 + 2) * 100 * 1e-2)
    assert costs["round"] == pytest.approx(9 + 6.5 + 8)


def test_transfers_grow_with_the_logarithm_unless_cores_are_shared(model: ModuleType) -> None:
    assert [model.transfers(n, float("inf")) for n in (1, 2, 3, 9, 27)] == [2, 3, 4, 6, 8]
    assert model.transfers(17, 1) == 2 + 2 + 6 + 8


def test_more_workers_help_until_the_scheduler_is_busier_than_they(model: ModuleType) -> None:
    constants = model.constants_of(json.loads(model.RESULTS.read_text(encoding="utf-8")))
    rounds = [model.seconds(model.cluster(10**k), constants) for k in range(7)]
    times = [costs["round"] for costs in rounds]
    best = times.index(min(times))
    assert times[:best] == sorted(times[:best], reverse=True)
    assert times[best:] == sorted(times[best:])
    assert rounds[-1]["tasks"] > rounds[-1]["kernels"]
    assert rounds[0]["tasks"] < rounds[0]["kernels"]
    free = replace(constants, task=0.0)
    assert model.seconds(model.cluster(10**6), free)["round"] < times[-1]
