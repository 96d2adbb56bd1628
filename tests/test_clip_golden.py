"""Clipping against TensorFlow's answers, from the golden file."""

from __future__ import annotations

import math
import warnings
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from golden.clipping import CALLS, DIFFERENCES, Call, Difference, check_close, flat

each_call = pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)


@cache
def stored() -> dict[str, dict[str, list[np.ndarray]]]:
    """Return what was given and answered, in order, by case."""
    cases: dict[str, dict[str, list[np.ndarray]]] = {}
    with np.load(Path(__file__).parent / "golden" / "data" / "clipping.npz") as file:
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
def test_answers(impl: ModuleType, call: Call) -> None:
    cases = {key: case for key, case in stored().items() if key.startswith(f"{call.name}/")}
    assert {key.split("/")[1] for key in cases} == {*call.dtypes}
    for case in cases.values():
        check_close(flat(call.function(impl, *case["given"])), case["answer"], call.name)


@pytest.mark.parametrize("case", DIFFERENCES, ids=lambda case: case.name)
def test_difference(impl: ModuleType, case: Difference) -> None:
    if isinstance(case.ours, str):
        with pytest.raises(getattr(impl, case.ours)):
            case.function(impl)
        return
    first = float(flat(case.function(impl))[0].flat[0])
    assert first == case.ours or (math.isnan(first) and math.isnan(case.ours))
