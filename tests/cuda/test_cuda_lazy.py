"""Lazy sparse steps on a GPU: rows without a gradient stay, and the others get the host's bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from common.cases import RULES, arrays_for, assert_same_bits, ordinary_hypers
from common.clip_cases import array_of
from common.optimizer_makers import MAKERS, make
from devices import DEVICE
from test_cuda_optimizers import there

import tfopt
from tfopt import IndexedSlices
from tfopt.core.workspace import Workspace
from tfopt.cuda.calls import rows_update
from tfopt.cuda.clipped_updates import run_clipped
from tfopt.kernels import kernels
from tfopt.kernels.update.dense import run
from tfopt.rules import Rule
from tfopt.updates.rule_steps import RuleUpdate
from tfopt.updates.sparse_update import rows_call

pytestmark = pytest.mark.usefixtures("gradual_underflow")

ROWS, N = 7, 12
LAZY = [which for which in MAKERS if "lazy" in make(which)._modes()]


def drawn(random: np.random.Generator, inner: tuple[int, ...], dtype: str) -> IndexedSlices:
    """Return gradients of a few rows, most of them more than once, some of them minus zero."""
    values = random.standard_normal((N, *inner))
    values[random.random(values.shape) < 0.2] = -0.0
    ids = random.choice([0, 2, 3, 6], size=N).astype(random.choice(["i4", "i8"]))
    return IndexedSlices(array_of(values, dtype), ids)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("which", LAZY)
def test_lazy_steps_are_the_hosts(which: str, dtype: str) -> None:
    random = np.random.default_rng(3)
    host, device = make(which), make(which)
    host.sparse = device.sparse = "lazy"
    here = [array_of(random.standard_normal((ROWS, *inner)), dtype) for inner in ((), (3,), (70,))]
    before = [array.copy() for array in here]
    variables = [DEVICE.to(array) for array in here]
    for _ in range(3):
        grads = [drawn(random, array.shape[1:], dtype) for array in here]
        host.apply_gradients(zip(grads, here, strict=True))
        device.apply_gradients(zip(map(there, grads), variables, strict=True))
    for var, own, old in zip(variables, here, before, strict=True):
        assert_same_bits(DEVICE.back(var), own, which)
        assert_same_bits(own[[1, 4, 5]], old[[1, 4, 5]], "rows without a gradient")
    for ours, theirs in zip(device.get_weights(), host.get_weights(), strict=True):
        assert_same_bits(ours, theirs, which)


@pytest.mark.parametrize("limits", [{"clipvalue": 0.5}, {"clipnorm": 1}, {"global_clipnorm": 1}])
def test_clipped_lazy_steps_are_the_hosts(limits: dict[str, float]) -> None:
    random = np.random.default_rng(5)
    host, device = (tfopt.optimizers.Adam(0.1, sparse="lazy", **limits) for _ in range(2))
    here = random.standard_normal((ROWS, 3))
    variable = DEVICE.to(here)
    for _ in range(3):
        slices = drawn(random, (3,), "float64")
        host.apply_gradients([(slices, here)])
        device.apply_gradients([(there(slices), variable)])
    assert_same_bits(DEVICE.back(variable), here, "clipped")


def _cases() -> Iterator[Any]:
    for rule in RULES:
        for duplicates in ("sequential", "sum", "error") if rule.absent else ():
            for lazy in (False, True) if duplicates != "sequential" else (True,):
                label = f"{rule.name}-{duplicates}-{'lazy' if lazy else 'all'}"
                yield pytest.param(rule, duplicates, lazy, id=label)


@pytest.mark.parametrize("indices", [[3, 0, 5], [], [6, 1, 6, 1, 1, 2, 6]], ids=str)
@pytest.mark.parametrize("inner", [(), (3,), (40,)])
@pytest.mark.parametrize(("rule", "duplicates", "lazy"), [*_cases()])
def test_rules_that_step_all_rows(
    rule: Rule, duplicates: str, lazy: bool, inner: tuple[int, ...], indices: list[int]
) -> None:
    """With each treatment of duplicates; those that it refuses leave everything as it was."""
    if duplicates == "error":
        indices = list(dict.fromkeys(indices))
    ids = np.array(indices, np.int64)
    *here, grad = arrays_for(rule, (ROWS, *inner), "float32")
    grad = np.resize(grad, (len(ids), *inner))
    grad[::2] = -0.0
    values = [*here, grad]
    far = [DEVICE.to(value) for value in values]
    options = ordinary_hypers(rule)
    update = RuleUpdate(
        rule.name, {h: options[h] for h in rule.hypers}, {f: options[f] for f in rule.flags}
    )
    kernel, (_, hypers, flags, *_) = kernels[rule.name], update.step()
    run(rows_call(kernel, tuple(values), ids, hypers, flags, duplicates, 1.0, Workspace(), lazy))
    run_clipped([rows_update(kernel, tuple(far), hypers, flags, DEVICE.to(ids), duplicates, 1.0,
                             True, lazy=lazy)])  # fmt: skip
    for name, one, other in zip(rule.operands, far, values, strict=True):
        assert_same_bits(DEVICE.back(one), other, f"{rule.name}: {name}")


def test_a_bad_index_is_refused_as_on_the_host() -> None:
    here, slices = np.ones((ROWS, 2)), IndexedSlices(np.ones((2, 2)), np.array([1, ROWS]))
    variable = DEVICE.to(here)
    for sparse in ("lazy", "tensorflow"):
        opt, host = (tfopt.optimizers.Nadam(0.1, sparse=sparse) for _ in range(2))
        with pytest.raises(tfopt.IndexOutOfRangeError):
            host.apply_gradients([(slices, here)])
        with pytest.raises(tfopt.IndexOutOfRangeError, match="offset 1"):
            opt.apply_gradients([(there(slices), variable)])
        assert_same_bits(DEVICE.back(variable), here, sparse)
        assert int(opt.iterations) == 0
