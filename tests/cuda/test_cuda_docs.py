"""The table of docs/gpu.md, of what an optimizer does on a GPU: derived again by trying it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common.cases import assert_same_bits
from common.clip_cases import array_of
from devices import DEVICE

import tfopt
from tfopt import optimizers
from tfopt.optimizers import SGD, Adam, AdamW
from tfopt.optimizers.state.slot_storage import IN_BLOCKS

DOCS = Path(__file__).parents[2] / "docs/gpu.md"
SHAPE = (70, 70)  # enough elements for blocks of codes

Maker = Callable[[], Any]
WRAPPERS: dict[str, Maker] = {
    "GradientAccumulation": lambda: optimizers.GradientAccumulation(SGD(0.1), 2),
    "LossScaleOptimizer": lambda: optimizers.LossScaleOptimizer(SGD(0.1)),
    "Mirror": lambda: optimizers.Mirror(SGD(0.1)),
    "ParameterGroups": lambda: optimizers.ParameterGroups(SGD(0.1), [("v", {"momentum": 0.9})]),
    "WeightAverage": lambda: optimizers.WeightAverage(SGD(0.1)),
}
SETTINGS: dict[str, Maker] = {
    "clipvalue": lambda: Adam(0.1, clipvalue=0.5),
    "clipnorm": lambda: Adam(0.1, clipnorm=0.5),
    "global_clipnorm": lambda: Adam(0.1, global_clipnorm=0.5),
    "weight_decay": lambda: AdamW(0.1, weight_decay=0.1),
    "cautious_weight_decay": lambda: AdamW(0.1, weight_decay=0.1, cautious_weight_decay=True),
    "stochastic_rounding": lambda: Adam(0.1, stochastic_rounding=0),
    "merge": lambda: Adam(0.1, clipnorm=0.5, merge="before"),
}


def _classes() -> Iterator[tuple[str, Any]]:
    """Yield the optimizers and wrappers that are not abstract."""
    for name in optimizers.__all__:
        found = getattr(optimizers, name)
        abstract = name in ("Optimizer", "OptimizerBase", "Wrapper")
        if inspect.isclass(found) and issubclass(found, optimizers.OptimizerBase) and not abstract:
            yield name, found


CLASSES = dict(_classes())
KINDS: dict[str, dict[str, Maker]] = {
    "optimizers": {
        name: found for name, found in CLASSES.items() if not issubclass(found, optimizers.Wrapper)
    },
    "wrappers": WRAPPERS,
    "sparse": {
        mode: lambda mode=mode: Adam(0.1, sparse=mode)  # type: ignore[misc]
        for mode in Adam()._modes()
    },
    "storage": {
        storage: lambda storage=storage: Adam(0.1, storage=storage)  # type: ignore[misc]
        for storage in ("float32", "float16", "bfloat16", *IN_BLOCKS)
    },
    "settings": SETTINGS,
}

NAMES = [(kind, name) for kind, makers in KINDS.items() for name in makers]


def steps(opt: Any, put: Callable[[np.ndarray], Any], rows: bool, dtype: str = "float32") -> Any:
    """Take three steps, of a whole variable or of rows; return the array."""
    array = put(array_of(np.linspace(-1, 1, 4900).reshape(SHAPE), dtype))
    variable = tfopt.Variable(array, name="v")
    for k in range(3):
        grad: Any = array_of(np.linspace(-k, 1, 4900).reshape(SHAPE), dtype)
        grad = tfopt.IndexedSlices(put(grad[:3]), put(np.array([5, 0, 5]))) if rows else put(grad)
        opt.apply_gradients([(grad, variable)])
    return array


def table() -> dict[str, list[set[str]]]:
    """Return the names in both columns of the table, by the name of its row."""
    text = DOCS.read_text(encoding="utf-8")
    found = re.findall(r"^\| `?(\w+)`? \| (.*) \| (.*) \|$", text, re.MULTILINE)
    return {kind: [set(re.findall(r"`(\w+)`", cell)) for cell in cells] for kind, *cells in found}


@pytest.mark.parametrize("kind", KINDS)
def test_each_name_is_in_one_column(kind: str) -> None:
    works, refused = table()[kind]
    assert works | refused == KINDS[kind].keys()
    assert not works & refused


def test_all_wrappers_are_tried() -> None:
    classes = {name for name, found in CLASSES.items() if issubclass(found, optimizers.Wrapper)}
    assert classes == WRAPPERS.keys()


@pytest.mark.parametrize("rows", [False, True], ids=["whole", "rows"])
@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_it_does_what_the_table_says(kind: str, name: str, rows: bool) -> None:
    tfopt.set_flush_denormals(False)
    make = KINDS[kind][name]
    if name == "catch_up" and not rows:
        pytest.skip("it is about rows")
    if name in IN_BLOCKS and rows:
        pytest.skip("blocks of codes are for dense gradients")
    dtype = "bfloat16" if name == "stochastic_rounding" else "float32"
    here = steps(make(), np.array, rows, dtype)
    works, _ = table()[kind]
    if name in works:
        there = steps(make(), DEVICE.to, rows, dtype)
        if name not in ("Adadelta", "Ftrl") or DEVICE.on_host:
            assert_same_bits(DEVICE.back(there), here, name)
        return
    opt, arrays = make(), []

    def put(array: np.ndarray) -> Any:
        arrays.append((DEVICE.to(array), array))
        return arrays[-1][0]

    with pytest.raises(tfopt.InvalidArgumentError, match=r"on (a|the) GPU") as caught:
        steps(opt, put, rows, dtype)
    assert name.lower() in str(caught.value).lower()
    assert int(opt.iterations) == 0
    for there, before in arrays:
        assert_same_bits(DEVICE.back(there), before, name)
