"""A setting that variables do not allow is refused by the next step, however late it is set."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tfopt import IndexedSlices, InvalidTypeError
from tfopt.optimizers import AdamW


def one(dtype: Any) -> Any:
    return np.ones((4, 2), dtype)


@pytest.mark.parametrize(
    ("setting", "value", "dtype", "rows", "message"),
    [
        ("stochastic_rounding", 0, np.float32, False, "would change nothing"),
        ("stochastic_rounding", 0, np.float32, True, "would change nothing"),
        ("stochastic_rounding", 0, np.float16, False, "stochastic_rounding is for bfloat16"),
        ("stochastic_rounding", 0, np.float16, True, "stochastic_rounding is for bfloat16"),
        ("cautious_weight_decay", True, np.complex64, False, "cautious_weight_decay is for real"),
        ("sparse", "catch_up", ml_dtypes.bfloat16, True, "float32 or float64"),
    ],
)
def test_it_is_refused_and_the_old_value_still_works(
    setting: str, value: Any, dtype: Any, rows: bool, message: str
) -> None:
    grad: Any = one(dtype)
    if rows:
        grad = IndexedSlices(grad[:1], np.array([2]))
    opt, plain = AdamW(0.5, weight_decay=0.5), AdamW(0.5, weight_decay=0.5)
    w, expected = one(dtype), one(dtype)
    before = getattr(opt, setting)
    for _ in range(2):
        opt.apply_gradients([(grad, w)])
        setattr(opt, setting, value)
        with pytest.raises(InvalidTypeError, match=message):
            opt.apply_gradients([(grad, w)])
        setattr(opt, setting, before)
        plain.apply_gradients([(grad, expected)])
    assert w.tobytes() == expected.tobytes() and int(opt.iterations) == 2
