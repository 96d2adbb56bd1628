"""The ops by TensorFlow's names against TensorFlow's own: signatures, and shapes in a graph.

Skipped where TensorFlow is not installed, unless TFOPT_REQUIRE_TENSORFLOW is set.
"""

from __future__ import annotations

import inspect
import json
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.refusals import OPS, order
from golden.with_tensorflow import refusal, required_tensorflow

import tfopt

tf = required_tensorflow()

CASES = 20  # of each op that has a result

#: Hyperparameters whose rank TensorFlow's shape function forgets, and its kernel refuses.
FORGOTTEN = {"ApplyFtrlV2": "lr_power", "SparseApplyFtrlV2": "lr_power"}
NAMES = tfopt.raw_ops.__all__[:-1]
TRAINING = [name for name in NAMES if "Apply" in name]
REF_NAMES = [name for name in TRAINING if not name.startswith("Resource")]

#: The variable's slots, by op.
SLOTS = {form.name: form.rule.slots for form in tfopt.rules.FORMS if form.ref}

RECORDED = json.loads((Path(__file__).parents[1] / "golden/data/refusals.json").read_text())

Shapes = dict[str, tuple[int | None, ...] | None]


def test_the_names_are_all_of_tensorflows():
    theirs = {name for name in dir(tf.raw_ops) if "Apply" in name and "Accumulator" not in name}
    assert theirs == {*TRAINING}


@pytest.mark.parametrize("name", NAMES)
def test_signature(name: str):
    ours, theirs = (
        inspect.signature(getattr(module, name)).parameters.values()
        for module in (tfopt.raw_ops, tf.raw_ops)
    )
    assert [(p.name, p.default) for p in ours] == [(p.name, p.default) for p in theirs]


@pytest.mark.parametrize("op", OPS)
def test_order_of_checks(op: str):
    """As recorded, and as tests/golden/test_check_order.py compares with ours."""
    assert ", ".join(order(op, refusal)) == RECORDED[op]


def draw(name: str, number: int) -> Shapes:
    """Return shapes that fit, but for unknown parts and at most two faults."""
    random = np.random.default_rng(zlib.crc32(f"{name} {number}".encode()))
    sparse = name.startswith("Sparse")
    var = tuple(int(n) for n in random.integers(1, 4, random.integers(sparse, 4)))
    rows = int(random.integers(1, 4))
    shapes: Shapes = {}
    for parameter in inspect.signature(getattr(tfopt.raw_ops, name)).parameters.values():
        if parameter.default is not parameter.empty:
            break
        shapes[parameter.name] = ()
    by_rule = {"var", "indices", "grad", "delta", *SLOTS[name]}
    for key in by_rule & shapes.keys():
        shapes[key] = {"indices": (rows,), "grad": (rows, *var[1:]) if sparse else var}.get(
            key, var
        )
    for key in random.choice(list(shapes), random.integers(3)):
        faulty = [list(shapes[key] or ()), [], [2], [1, 2], [3, 2, 2]][random.integers(5)]
        shapes[key] = tuple(n + int(random.uniform() < 0.2) for n in faulty)
    if name in FORGOTTEN:
        shapes[FORGOTTEN[name]] = ()
    for key, shape in shapes.items():
        kind = random.uniform()
        if shape is not None and kind < 0.4:
            hidden = tuple(None if random.uniform() < 0.5 else n for n in shape)
            shapes[key] = None if kind < 0.15 else hidden
    return shapes


def infer(name: str, shapes: Shapes) -> tuple[int | None, ...] | str | None:
    """Return the shape of TensorFlow's op's result in a graph, or "refused"."""
    with tf.Graph().as_default():
        inputs: dict[str, Any] = {}
        for key, shape in shapes.items():
            if key == "var" or key in SLOTS[name]:
                inputs[key] = tf.raw_ops.VariableV2(shape=tf.TensorShape(shape), dtype=tf.float32)
            else:
                dtype = {"indices": tf.int32, "global_step": tf.int64}.get(key, tf.float32)
                inputs[key] = tf.compat.v1.placeholder(dtype, shape)
        try:
            result = getattr(tf.raw_ops, name)(**inputs).shape
        except ValueError:
            return "refused"
        return None if result.rank is None else tuple(result.as_list())


@cache
def drawn(name: str) -> list[tuple[Shapes, tuple[int | None, ...] | str | None]]:
    """Return shapes with TensorFlow's answers."""
    cases = [draw(name, number) for number in range(CASES)]
    return [(shapes, infer(name, shapes)) for shapes in cases]


@pytest.mark.parametrize("name", REF_NAMES)
def test_shapes(name: str):
    outcomes = set()
    for shapes, expected in drawn(name):
        outcomes.add(expected == "refused")
        if expected != "refused":
            assert tfopt.raw_ops.infer_shapes(name, **shapes) == expected, shapes
            assert tfopt.raw_ops.infer_shapes(f"Resource{name}", **shapes) is None
            continue
        for op in (name, f"Resource{name}"):
            with pytest.raises(tfopt.InvalidArgumentError):
                tfopt.raw_ops.infer_shapes(op, **shapes)
    assert outcomes == {False, True}


@pytest.mark.parametrize("name", FORGOTTEN)
def test_the_hyperparameters_tensorflow_forgets(name: str):
    wrong: Shapes = dict.fromkeys(draw(name, 0)) | {FORGOTTEN[name]: (2,)}
    assert infer(name, wrong) is None
    with pytest.raises(tfopt.InvalidArgumentError, match="must be rank 0"):
        tfopt.raw_ops.infer_shapes(name, **wrong)
