"""A setting that variables do not allow is refused by the next step, however late it is set."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tfopt import IndexedSlices, InvalidArgumentError, InvalidTypeError
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


def test_exact_numbers_are_restored_exactly_where_python_numbers_are_rounded() -> None:
    opt = AdamW(np.float64(0.1), beta_1=np.float64(0.9), beta_2=0.999, compat="tensorflow")
    other = AdamW()
    other.load_state_dict(opt.state_dict([]), [])
    for name in ("learning_rate", "beta_1", "beta_2", "compat", "weight_decay"):
        assert getattr(other, name) == getattr(opt, name)
    assert other.beta_1 == 0.9 and other.beta_2 == float(np.float32(0.999))


def test_a_state_that_clips_is_refused_where_transformers_are_set() -> None:
    clips, transforms = AdamW(clipnorm=1.0), AdamW(gradient_transformers=[lambda pairs: pairs])
    with pytest.raises(InvalidArgumentError, match="gradient_transformers"):
        transforms.load_state_dict(clips.state_dict([]), [])
    assert transforms.clipnorm is None


def test_zero_selects_the_default_whenever_it_is_set() -> None:
    opt, other = AdamW(epsilon=0.5), AdamW()
    opt.epsilon = 0
    assert opt.epsilon == AdamW(epsilon=0).epsilon == 1e-7
    opt.weight_decay = None
    other.load_state_dict(opt.state_dict([]), [])
    assert (other.epsilon, other.weight_decay) == (1e-7, 0.0)


def test_compat_and_storage_of_slots_cannot_be_set_late() -> None:
    """Of numbers that are not rounded, a configuration would make rounded ones."""
    opt, w = AdamW(), np.ones((70, 70), np.float32)
    with pytest.raises(InvalidArgumentError, match="compat of AdamW cannot be replaced"):
        opt.compat = "tensorflow"
    opt.storage = "float16"
    opt.apply_gradients([(np.ones_like(w), w)])
    with pytest.raises(InvalidArgumentError, match="convert_storage"):
        opt.storage = "8bit"
    opt.convert_storage("8bit")
    opt.storage = "8bit"
    assert (opt.compat, opt.storage) == (None, "8bit")
