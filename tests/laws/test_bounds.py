"""No value that a hyperparameter accepts makes a rule divide by zero."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common.optimizer_arguments import RULES, arguments_of

from tfopt import IndexedSlices, InvalidArgumentError, optimizers
from tfopt.optimizers.state.hyperparameters import Hyper

DTYPES = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
KINDS = {
    "zeros": lambda k: np.zeros((6, 2)),
    "ones": lambda k: np.ones((6, 2)),
    "some zeros": lambda k: np.arange(12.0).reshape(6, 2) % 2 * (k % 2),
}


def bounds_of(name: str) -> list[tuple[str, float]]:
    """Return the bounds of each hyperparameter, and 0 and 1 where these are accepted."""
    cls, found = getattr(optimizers, name), []
    for argument in arguments_of(cls):
        hyper = getattr(cls, argument, None)
        if isinstance(hyper, Hyper):
            values = {hyper.low, hyper.high, 0.0, 1.0}
            found += [(argument, value) for value in sorted(values) if math.isfinite(value)]
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RULES)
def test_no_accepted_constant_gives_nan(name: str, kind: str) -> None:
    cls, tried = getattr(optimizers, name), 0
    for argument, value in bounds_of(name):
        for sparse in ("dense", "tensorflow", "lazy", "catch_up"):
            options: dict[str, Any] = {argument: value}
            if name != "Adafactor":
                options["sparse"] = "tensorflow" if sparse == "dense" else sparse
            for dtype in DTYPES[2:] if sparse == "catch_up" else DTYPES:
                try:
                    opt = cls(**options)
                except InvalidArgumentError:
                    continue
                w = np.ones((6, 2), dtype)
                with np.errstate(all="ignore"):
                    for k in range(8):
                        grad: Any = KINDS[kind](k).astype(dtype)
                        if sparse != "dense":
                            grad = IndexedSlices(grad[[1, 3]], np.array([1, 3]))
                        opt.apply_gradients([(grad, w)])
                    opt.flush()
                assert not np.isnan(w.astype(float)).any(), (options, dtype, sparse)
                tried += 1
    assert tried > 16
