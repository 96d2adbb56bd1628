"""Clipping against TensorFlow's answers, from the golden file."""

from __future__ import annotations

import math
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.clipping import CALLS, DIFFERENCES, Call, Difference, check_close, flat

import tfopt

each_call = pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)


@cache
def stored() -> dict[str, dict[str, list[np.ndarray]]]:
    """Return what was given and answered, in order, by case."""
    cases: dict[str, dict[str, list[np.ndarray]]] = {}
    with np.load(Path(__file__).parents[1] / "golden" / "data" / "clipping.npz") as file:
        for key in file.files:
            case, kind, _ = key.rsplit("/", 2)
            cases.setdefault(case, {"given": [], "answer": []})[kind].append(file[key])
    return cases


@pytest.fixture(autouse=True)
def _not_deprecated():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@each_call
def test_answers(either: Any, call: Call) -> None:
    cases = {key: case for key, case in stored().items() if key.startswith(f"{call.name}/")}
    assert {key.split("/")[1] for key in cases} == {*call.dtypes}
    for case in cases.values():
        check_close(flat(call.function(either, *case["given"])), case["answer"], call.name)


REFUSED = [case for case in DIFFERENCES if isinstance(case.ours, str)]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_refused_difference(case: Difference) -> None:
    with pytest.raises(getattr(tfopt, case.ours)):
        case.function(tfopt)


@pytest.mark.parametrize(
    "case", [case for case in DIFFERENCES if case not in REFUSED], ids=lambda case: case.name
)
def test_difference(either: Any, case: Difference) -> None:
    first = float(flat(case.function(either))[0].flat[0])
    assert first == case.ours or (math.isnan(first) and math.isnan(case.ours))
