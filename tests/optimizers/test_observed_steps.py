"""A report of a step measures how far its variables moved, for dense and sparse gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common.optimizer_arguments import RULES
from common.step_cases import ARGUMENTS, Overridden

from tfopt import IndexedSlices, InvalidArgumentError, Variable, optimizers

SHAPES: dict[str, tuple[int, ...]] = {"scalar": (), "vector": (6,), "table": (6, 2)}
OBSERVED = [name for name in RULES if hasattr(getattr(optimizers, name)(), "observe")]


def gradient(shape: tuple[int, ...], kind: str, k: int) -> Any:
    """Return the gradient of step k: of all, or of rows that differ from step to step."""
    values = np.random.default_rng(k).standard_normal(shape)
    if kind == "dense":
        return values
    rows = np.array([k % 6, (k + 2) % 6, k % 6])
    return IndexedSlices(values[rows], rows)


@pytest.mark.parametrize("name", OBSERVED)
@pytest.mark.parametrize("sparse", ["tensorflow", "lazy"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["dense", "rows"])
def test_the_norm_of_the_update_is_that_of_the_change(
    name: str, shape: str, kind: str, sparse: str
) -> None:
    kind = "dense" if shape == "scalar" else kind  # which has no rows
    options = {"weight_decay": 0.25} if getattr(optimizers, name)._can_decay else {}
    try:
        opt = getattr(optimizers, name)(**{**ARGUMENTS[name], **options, "sparse": sparse})
    except InvalidArgumentError:
        assert sparse == "lazy" and name in ("LAMB", "LARS")
        return
    opt.observe = True
    w = np.random.default_rng(9).standard_normal(SHAPES[shape])
    for k in range(4):
        before = w.copy()
        opt.apply_gradients([(gradient(w.shape, kind, k), w)])
        if kind == "rows" and (opt._densifies and opt._needs_whole(Variable(w))):
            assert opt.last_step is None
            continue
        assert opt.last_step.update_norm == pytest.approx(np.linalg.norm(w - before), rel=1e-12)
        assert not np.array_equal(w, before)


def test_a_report_is_of_the_last_observed_step_alone() -> None:
    for opt, grads in (
        (optimizers.LAMB(0.5), [np.ones((4, 2)), IndexedSlices(np.ones((1, 2)), [3])]),
        (Overridden(0.5), [np.ones((4, 2))] * 2),
    ):
        opt.observe, w = True, np.ones((4, 2))
        for grad in grads:
            opt.apply_gradients([(grad, w)])
        assert opt.last_step is None
        with pytest.raises(AttributeError):
            opt.last_step = None  # type: ignore[misc]
