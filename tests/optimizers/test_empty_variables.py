"""Variables without elements change nothing for those beside them."""

from __future__ import annotations

import numpy as np
import pytest
from common.optimizer_arguments import RULES, arguments_of

import tfopt
from tfopt import optimizers

KINDS = (None, "8bit", "4bit", "dynamic8bit")


@pytest.mark.parametrize("empty", [(0,), (3, 0), (0, 3)], ids=str)
@pytest.mark.parametrize("which", RULES)
def test_an_empty_variable_between_others(which: str, empty: tuple[int, ...]) -> None:
    cls, tried = getattr(optimizers, which), 0
    for kind in KINDS if "storage" in arguments_of(cls) else KINDS[:1]:
        results = []
        for shapes in ([(2, 3), empty, (64, 65)], [(2, 3), (64, 65)]):
            w = [np.ones(shape, np.float32) for shape in shapes]
            try:
                optimizer = cls(0.1, **({} if kind is None else {"storage": kind}))
                optimizer.apply_gradients([(np.full_like(each, 0.5), each) for each in w])
            except tfopt.InvalidArgumentError:
                break  # slots that are not stored so
            results.append([each for each in w if each.size])
        if results:
            np.testing.assert_equal(*results)
            tried += 1
    assert tried
