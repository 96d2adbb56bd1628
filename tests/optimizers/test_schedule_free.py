"""Schedule-Free optimizers: the two views of the weights, and what decays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfopt
from tfopt.optimizers import ScheduleFreeAdamW, ScheduleFreeSGD, schedules
from tfopt_ref.algorithms import schedule_free_average

CLASSES = {"momentum": ScheduleFreeSGD, "beta_1": ScheduleFreeAdamW}
each = pytest.mark.parametrize("where", CLASSES)


def steps(opt: Any, variables: list[np.ndarray], count: int, seed: int = 0) -> None:
    random = np.random.default_rng(seed)
    for _ in range(count):
        grads = [random.standard_normal(w.shape).astype(w.dtype) for w in variables]
        opt.apply_gradients(list(zip(grads, variables, strict=True)))


@each
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_the_average_is_that_of_the_iterates(where: str, dtype: str) -> None:
    rate = schedules.LinearWarmup(0.25, 4)
    opt, w = CLASSES[where](rate, **{where: 0.75}), np.linspace(-1, 1, 7).astype(dtype)
    sums, total = np.zeros(7), 0.0
    for k in range(12):
        steps(opt, [w], 1, seed=k)
        iterate = w.astype(float) + opt.get_slot(w, "offset").numpy()
        weight = float(rate(k)) ** 2
        sums, total = sums + weight * iterate, total + weight
    before = w.copy()
    with opt.averaged():
        average = w.copy()
    np.testing.assert_allclose(average, sums / total, atol=60 * np.finfo(dtype).eps)
    assert w.tobytes() == before.tobytes()
    assert float(opt.weight_sum) == pytest.approx(total)
    wide = "float32" if dtype == "float16" else dtype
    offset = opt.get_slot(w, "offset").numpy().astype(wide)
    specified = schedule_free_average(w.astype(wide), offset, 0.75)
    np.testing.assert_allclose(average, specified, rtol=4 * np.finfo(dtype).eps)
    opt.assign_averages()
    assert w.tobytes() == average.tobytes()


@each
def test_weights_are_restored_after_an_error(where: str) -> None:
    opt, w = CLASSES[where](0.5), np.ones(3)
    steps(opt, [w], 5)
    before = w.copy()
    with pytest.raises(ZeroDivisionError), opt.averaged():
        assert (w != before).any()
        raise ZeroDivisionError
    assert w.tobytes() == before.tobytes()


@each
def test_excluded_variables_do_not_decay(where: str) -> None:
    names = "kernel", "bias"
    runs = {}
    for decay, exclude in ((0.5, True), (0.5, False), (0.0, False)):
        opt = CLASSES[where](0.25, weight_decay=decay)
        if exclude:
            opt.exclude_from_weight_decay(var_names=["bias"])
        arrays = [np.ones(4), np.ones(4)]
        variables: Any = [tfopt.Variable(w, n) for w, n in zip(arrays, names, strict=True)]
        random = np.random.default_rng(1)
        for _ in range(4):
            opt.apply_gradients([(random.standard_normal(4), v) for v in variables])
        runs[decay, exclude] = [w.tolist() for w in arrays]
    assert runs[0.5, True] == [runs[0.5, False][0], runs[0.0, False][1]]
    assert runs[0.5, False][1] != runs[0.0, False][1]


@each
def test_a_rate_of_0_moves_nothing(where: str) -> None:
    opt, w = CLASSES[where](0.0, weight_decay=0.5), np.ones(3)
    steps(opt, [w], 2)
    assert (w == 1).all() and not opt.get_slot(w, "offset").numpy().any()


@each
@pytest.mark.parametrize("bad", [0.0, -0.5, 1.5, float("nan")])
def test_where_no_average_could_be_found(where: str, bad: float) -> None:
    with pytest.raises(tfopt.InvalidArgumentError, match=f"{where} must be"):
        CLASSES[where](0.1, **{where: bad})


def test_a_mean_that_never_begins_is_refused() -> None:
    with pytest.raises(tfopt.InvalidArgumentError, match="beta_2 must be"):
        ScheduleFreeAdamW(beta_2=1.0)
