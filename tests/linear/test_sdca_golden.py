"""SDCA's ops against TensorFlow's answers, from the golden file."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.sdca import LOSSES, Call, Optimum, check_close, optima, strings, train

import tfopt

GOLDEN = Path(__file__).parents[1] / "golden" / "data" / "sdca.npz"


@cache
def stored() -> dict[str, np.ndarray]:
    with np.load(GOLDEN) as file:
        return {key: file[key] for key in file.files}


@cache
def calls(loss: str) -> list[tuple[Call, list[np.ndarray]]]:
    """Return each call with its answer."""
    found: dict[str, tuple[dict[str, np.ndarray], list[np.ndarray]]] = {}
    for key, array in stored().items():
        if key.startswith(f"call/{loss}/"):
            _, _, number, kind, name = key.split("/")
            given, answers = found.setdefault(number, ({}, []))
            if kind == "given":
                given[name] = array
            else:
                answers.append(array)
    return [(Call.of(given, loss), answers) for given, answers in found.values()]


@pytest.mark.parametrize("loss", LOSSES)
def test_answers(either: Any, loss: str) -> None:
    assert len(calls(loss)) == 8
    for call, answers in calls(loss):
        check_close(either.raw_ops.SdcaOptimizerV2(**call.arguments), answers)


@pytest.mark.parametrize(
    "number", range(len(optima())), ids=lambda n: "-".join(map(str, optima()[n]))
)
def test_many_calls_end_where_tensorflows_do(either: Any, number: int) -> None:
    problem: Optimum = optima()[number]
    theirs = stored()[f"optimum/{number}"]
    ours = np.concatenate(train(either.raw_ops.SdcaOptimizerV2, problem))
    tolerance = 1e-3 if problem.loss == "hinge_loss" else 1e-4
    np.testing.assert_allclose(ours, theirs, atol=tolerance * np.abs(theirs).max())


def test_fingerprints() -> None:
    ours = tfopt.raw_ops.SdcaFprint(input=strings())
    np.testing.assert_array_equal(ours, stored()["fingerprints"])
