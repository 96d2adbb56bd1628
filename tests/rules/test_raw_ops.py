"""TensorFlow's ops by their own names: the rules' functions, with TensorFlow's arguments."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from common.cases import arrays_for, assert_same_bits, ordinary_hypers

import tfopt
from tfopt.rules import OPS as TF_OPS
from tfopt.rules import Rule

GOLDEN = Path(__file__).parents[1] / "golden/data/op_signatures.json"
#: TensorFlow 2.21's parameters with their defaults, by op, as it says them itself.
TENSORFLOW: dict[str, list[str]] = {
    op: text.strip("()").split(", ") for op, text in json.loads(GOLDEN.read_text()).items()
}


def inputs_of(op: str) -> list[str]:
    """Return the parameters that TensorFlow has no default for."""
    return [parameter for parameter in TENSORFLOW[op] if "=" not in parameter]


class Op(NamedTuple):
    name: str
    rule: Rule
    inputs: list[str]

    @property
    def sparse(self) -> bool:
        return "indices" in self.inputs

    @property
    def function(self) -> Any:
        return getattr(tfopt.raw_ops, self.name)


def ops() -> list[Op]:
    rules = {op: rule for rule, op, *_ in TF_OPS.values()}
    training = [name for name in TENSORFLOW if "Apply" in name]
    return [Op(name, rules[name.partition("Apply")[2]], inputs_of(name)) for name in training]


OPS = ops()
each_op = pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)


def arguments(op: Op, wrap: Any = lambda array: array) -> dict[str, Any]:
    """Return ordinary arguments; the variable and its slots come out of `wrap`."""
    *variables, grad = arrays_for(op.rule, (5, 3), np.float32)
    given = dict(zip(op.rule.operands, map(wrap, variables), strict=False))
    given |= {"delta" if "delta" in op.inputs else "grad": grad, **ordinary_hypers(op.rule)}
    if op.sparse:
        given |= {"grad": grad[:4].copy(), "indices": np.array([2, 0, 2, 4])}
    return {name: given[name] for name in op.inputs}


def test_the_names_are_tensorflows() -> None:
    assert len(OPS) == 57
    assert sorted([*TENSORFLOW, "infer_shapes"]) == sorted(tfopt.raw_ops.__all__)
    for flavour, count in {"Apply": 16, "SparseApply": 11, "ResourceApply": 18}.items():
        assert sum(name.startswith(flavour) for name in TENSORFLOW) == count


@pytest.mark.parametrize("rule", [*TF_OPS])
def test_a_rows_inputs_are_its_operands_and_hyperparameters(rule: str) -> None:
    op = TF_OPS[rule]
    assert sorted(op.inputs) == sorted(op.rule.operands + op.rule.hypers)
    assert list(op.inputs) == inputs_of(f"ResourceApply{op.name}")
    assert op.sparse == (f"ResourceSparseApply{op.name}" in TENSORFLOW)
    assert op.ref == (f"Apply{op.name}" in TENSORFLOW)
    flags = [f"{name}={default}" for name, default in op.rule.flags.items()]
    others = ["use_locking=False", *flags, "name=None"]
    assert TENSORFLOW[f"ResourceApply{op.name}"] == [*op.inputs, *others]


@pytest.mark.parametrize("name", TENSORFLOW)
def test_signatures_are_tensorflows(name: str) -> None:
    parameters = inspect.signature(getattr(tfopt.raw_ops, name)).parameters.values()
    assert {p.kind for p in parameters} == {inspect.Parameter.KEYWORD_ONLY}
    assert TENSORFLOW[name] == [
        p.name if p.default is p.empty else f"{p.name}={p.default}" for p in parameters
    ]


@each_op
def test_docstrings_name_every_argument(op: Op) -> None:
    function = op.function
    assert function.__name__ == op.name and function.__module__ == "tfopt.raw_ops"
    assert all(name in function.__doc__ for name in inspect.signature(function).parameters)


@each_op
@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("wrapped", [False, True])
def test_an_op_is_its_rule(op: Op, flag: bool, wrapped: bool) -> None:
    given = arguments(op, tfopt.Variable if wrapped else lambda array: array)
    flags = dict.fromkeys(op.rule.flags, flag)
    returned = op.function(**given, **flags, use_locking=flag, name="step")
    assert returned is (None if op.name.startswith("Resource") else given["var"])
    expected = arguments(op)
    gradient = "delta" if "delta" in expected else "grad"
    operands = [expected[name] for name in (*op.rule.operands[:-1], gradient)]
    options = {name: expected[name] for name in (*op.rule.hypers, "indices") if name in expected}
    getattr(tfopt.training_ops, f"apply_{op.rule.name}")(*operands, **options, **flags)
    for name in op.rule.operands[:-1]:
        assert_same_bits(np.asarray(given[name]), expected[name], name)


@each_op
def test_an_op_without_its_flag_has_tensorflows_default(op: Op) -> None:
    given, expected = arguments(op), arguments(op)
    op.function(**given)
    op.function(**expected, **op.rule.flags)
    for name in op.rule.operands[:-1]:
        assert_same_bits(given[name], expected[name], name)


@each_op
@pytest.mark.parametrize("use_locking", [False, True])
def test_a_tape_keeps_values_read_before_a_call(op: Op, use_locking: bool) -> None:
    given = arguments(op, tfopt.Variable)
    before = given["var"].numpy().copy()
    with tfopt.GradientTape() as tape:
        squares = given["var"] * given["var"]
    op.function(**given, use_locking=use_locking)
    assert (given["var"].numpy() != before).any()
    np.testing.assert_array_equal(tape.gradient(squares, given["var"]).numpy(), 2 * before)


@each_op
@pytest.mark.parametrize("use_locking", [False, True])
def test_refused_calls_change_nothing(op: Op, use_locking: bool) -> None:
    function = op.function
    given = arguments(op)
    variables = [given[name] for name in op.rule.operands[:-1]]
    before = [array.copy() for array in variables]
    gradient = "delta" if "delta" in given else "grad"
    calls: list[tuple[type[Exception], tuple[Any, ...], dict[str, Any]]] = [
        (TypeError, (), {**given, "grad_scale": 1.0}),
        (TypeError, (), {**given, "learning_rate": 1.0}),
        (TypeError, tuple(given.values()), {}),
        (TypeError, (given["var"],), {k: v for k, v in given.items() if k != "var"}),
        *((TypeError, (), {k: v for k, v in given.items() if k != name}) for name in op.inputs),
        (tfopt.InvalidArgumentError, (), {**given, gradient: given[gradient][:, :2]}),
        (tfopt.InvalidTypeError, (), {**given, gradient: given[gradient].astype(int)}),
        (tfopt.InvalidTypeError, (), {**given, "var": [[1.0]]}),
        *((tfopt.InvalidArgumentError, (), {**given, h: np.ones(1)}) for h in op.rule.hypers),
        *((tfopt.InvalidArgumentError, (), {**given, s: np.ones(3)}) for s in op.rule.slots),
    ]
    if op.sparse:
        calls.append((tfopt.IndexOutOfRangeError, (), {**given, "indices": np.array([0, 1, 2, 5])}))
    for error, positional, named in calls:
        with pytest.raises(error):
            function(*positional, **named, use_locking=use_locking)
        for array, old in zip(variables, before, strict=True):
            assert (array == old).all()


# ---- shapes

UNREFUSED = [
    ("ApplyGradientDescent", {"var": (2, 3), "alpha": (), "delta": (2, 3)}, (2, 3)),
    ("ApplyGradientDescent", {"var": (None, 3), "alpha": None, "delta": (2, None)}, (2, 3)),
    ("ApplyGradientDescent", {"var": None, "alpha": (), "delta": [None, 2]}, (None, 2)),
    ("ApplyGradientDescent", {"var": None, "alpha": (), "delta": None}, None),
    ("ResourceApplyGradientDescent", {"var": (2,), "alpha": (), "delta": (2,)}, None),
    (
        "SparseApplyAdagrad",  # the gradient's rows say nothing of the variable's number
        {"var": None, "accum": (None, None), "lr": (), "grad": (4, 3), "indices": (4,)},
        (None, 3),
    ),
    (
        "SparseApplyAdagrad",
        {"var": (9, None), "accum": None, "lr": (), "grad": None, "indices": None},
        (9, None),
    ),
]
REFUSED = [
    ({"accum": (4, 4)}, "dimension 1 of var .4,3. and accum .4,4. must be equal, but are 3 and 4"),
    ({"accum": (4,)}, "must be of equal rank, but are 2 and 1"),
    ({"lr": (1,)}, "lr must be rank 0 but is rank 1"),
    ({"lr": (None,)}, "lr must be rank 0"),
    ({"indices": (2, 1)}, "indices must be rank 1 but is rank 2"),
    ({"indices": ()}, "indices must be rank 1"),
    ({"indices": (3,)}, "first dimensions of indices .3. and grad .2,3. must be equal"),
    ({"grad": ()}, "grad must not be a scalar"),
    ({"grad": (2, 4)}, r"dimension 1 of var .4,3. and grad ...4. must be equal"),
    ({"grad": (2,)}, "must be of equal rank"),
    ({"var": (-1, 3)}, "var has a negative dimension"),
]


@pytest.mark.parametrize(("op", "shapes", "expected"), UNREFUSED)
def test_inferred_shapes(op: str, shapes: dict[str, Any], expected: Any) -> None:
    assert tfopt.raw_ops.infer_shapes(op, **shapes) == expected


@pytest.mark.parametrize(("wrong", "message"), REFUSED)
@pytest.mark.parametrize("prefix", ["", "Resource"])
def test_refused_shapes(prefix: str, wrong: dict[str, Any], message: str) -> None:
    shapes = {"var": (4, 3), "accum": (4, 3), "lr": (), "grad": (2, 3), "indices": (2,)}
    with pytest.raises(tfopt.InvalidArgumentError, match=message):
        tfopt.raw_ops.infer_shapes(f"{prefix}SparseApplyAdagrad", **(shapes | wrong))


def test_refused_names_and_values_that_are_no_shapes() -> None:
    infer, shapes = tfopt.raw_ops.infer_shapes, {"var": (2,), "alpha": (), "delta": (2,)}
    for op in ("SparseApplyAdam", "ApplyKerasMomentum", "apply_adam", "infer_shapes", ""):
        with pytest.raises(
            tfopt.InvalidArgumentError, match="not one of TensorFlow's training ops"
        ):
            infer(op, **shapes)
    for wrong in ({"grad": (2,)}, {"lr": ()}, {"delta": 2}, {"delta": (2.0,)}, {"delta": ("2",)}):
        with pytest.raises(tfopt.InvalidTypeError):
            infer("ApplyGradientDescent", **(shapes | wrong))
    with pytest.raises(tfopt.InvalidTypeError, match="takes var, alpha, delta, not nothing"):
        infer("ApplyGradientDescent")


@each_op
def test_shapes_are_refused_where_calls_are(op: Op) -> None:
    """Random shapes without unknown dimensions, most of them almost right."""
    random = np.random.default_rng(len(op.name))
    right: dict[str, tuple[int, ...]] = {name: np.shape(v) for name, v in arguments(op).items()}
    outcomes = set()
    for _ in range(25):
        shapes = dict(right)
        for name in random.choice(op.inputs, random.integers(3), replace=False):
            shapes[name] = ((), (1,), (4,), (5, 3), (4, 3), (4, 2))[random.integers(6)]
        given = {name: np.full(shape, 0.5, np.float32) for name, shape in shapes.items()}
        if "lr_power" in given:
            given["lr_power"] = -given["lr_power"]
        if op.sparse:
            given["indices"] = np.zeros(shapes["indices"], np.int64)
        failed = []
        for call, inputs in ((tfopt.raw_ops.infer_shapes, shapes), (op.function, given)):
            names = (op.name,) if inputs is shapes else ()
            try:
                call(*names, **inputs)
            except tfopt.InvalidArgumentError:
                failed.append(call)
        assert len(failed) != 1, shapes
        outcomes.add(bool(failed))
    assert outcomes == {False, True}


def fits(shape: tuple[int | None, ...] | None, other: tuple[int | None, ...] | None) -> bool:
    """Whether there is a shape that both may be."""
    if shape is None or other is None:
        return True
    pairs = zip(shape, other, strict=False)
    return len(shape) == len(other) and all(m == n or None in (m, n) for m, n in pairs)


def expected_shape(op: Op, shapes: dict[str, Any]) -> Any:
    """Return what the shapes say of the variable's, or "refused" if they contradict each other."""
    gradient = shapes["delta" if "delta" in op.inputs else "grad"]
    if op.sparse:
        rows = None if gradient is None else gradient[:1]
        if not fits(shapes["indices"], (None,)) or not fits(rows, shapes["indices"] or (None,)):
            return "refused"
        gradient = None if gradient is None else (None, *gradient[1:])
    alike = [*(shapes[name] for name in ("var", *op.rule.slots)), gradient]
    if not all(fits(a, b) for a in alike for b in alike):
        return "refused"
    if not all(fits(shapes[hyper], ()) for hyper in op.rule.hypers):
        return "refused"
    known = [shape for shape in alike if shape is not None]
    if op.name.startswith("Resource") or not known:
        return None
    axes = zip(*known, strict=True)
    return tuple(next((n for n in axis if n is not None), None) for axis in axes)


def test_shapes_are_merged() -> None:
    random, outcomes = np.random.default_rng(1), Counter[bool]()
    shapes = [None, (), (None,), (2,), (3,), (2, None), (None, 3), (2, 3), (2, 2)]
    for op in OPS * 10:
        given = {
            name: shapes[random.choice(9)] if random.random() < 0.4 else None for name in op.inputs
        }
        expected = expected_shape(op, given)
        outcomes[expected == "refused"] += 1
        if expected == "refused":
            with pytest.raises(tfopt.InvalidArgumentError):
                tfopt.raw_ops.infer_shapes(op.name, **given)
        else:
            assert tfopt.raw_ops.infer_shapes(op.name, **given) == expected
    assert min(outcomes.values()) > 50
