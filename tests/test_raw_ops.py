"""TensorFlow's ops by their own names: the rules' functions, with TensorFlow's arguments."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest
from cases import arrays_for, assert_same_bits, ordinary_hypers

import tfopt
import tfopt_ref
from tfopt.rules import OPS as TF_OPS
from tfopt.rules import Rule

#: TensorFlow 2.21's inputs, those in brackets in the sparse forms only, and its attributes.
TENSORFLOW = {
    "GradientDescent": ("var alpha delta", ""),
    "ProximalGradientDescent": ("var alpha l1 l2 delta [indices]", ""),
    "Adadelta": ("var accum accum_update lr rho epsilon grad [indices]", ""),
    "Adagrad": ("var accum lr grad [indices]", "update_slots=True"),
    "AdagradV2": ("var accum lr epsilon grad [indices]", "update_slots=True"),
    "AdagradDA": (
        "var gradient_accumulator gradient_squared_accumulator grad [indices] lr l1 l2 global_step",
        "",
    ),
    "ProximalAdagrad": ("var accum lr l1 l2 grad [indices]", ""),
    "Ftrl": ("var accum linear grad [indices] lr l1 l2 lr_power", "multiply_linear_by_lr=False"),
    "FtrlV2": (
        "var accum linear grad [indices] lr l1 l2 l2_shrinkage lr_power",
        "multiply_linear_by_lr=False",
    ),
    "Momentum": ("var accum lr grad [indices] momentum", "use_nesterov=False"),
    "KerasMomentum": ("var accum lr grad [indices] momentum", "use_nesterov=False"),
    "Adam": ("var m v beta1_power beta2_power lr beta1 beta2 epsilon grad", "use_nesterov=False"),
    "AdamWithAmsgrad": ("var m v vhat beta1_power beta2_power lr beta1 beta2 epsilon grad", ""),
    "AdaMax": ("var m v beta1_power lr beta1 beta2 epsilon grad", ""),
    "RMSProp": ("var ms mom lr rho momentum epsilon grad [indices]", ""),
    "CenteredRMSProp": ("var mg ms mom lr rho momentum epsilon grad [indices]", ""),
    "AddSign": ("var m lr alpha sign_decay beta grad", ""),
    "PowerSign": ("var m lr logbase sign_decay beta grad", ""),
}
RESOURCE_ONLY = ("KerasMomentum", "AdamWithAmsgrad")


class Op(NamedTuple):
    name: str
    rule: Rule
    inputs: list[str]

    @property
    def sparse(self) -> bool:
        return "indices" in self.inputs

    def function(self, package: Any) -> Any:
        return getattr(package.raw_ops, self.name)


def ops() -> list[Op]:
    found = []
    for rule, op, *_ in TF_OPS.values():
        inputs, _ = TENSORFLOW[op]
        dense = inputs.replace("[indices]", "")
        sparse = inputs.replace("[indices]", "indices").replace("delta", "grad")
        for prefix in ("Resource",) if op in RESOURCE_ONLY else ("", "Resource"):
            found.append(Op(f"{prefix}Apply{op}", rule, dense.split()))
            if "indices" in inputs:
                found.append(Op(f"{prefix}SparseApply{op}", rule, sparse.split()))
    return found


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


def test_the_names_are_tensorflows(impl: Any) -> None:
    assert len(OPS) == 57
    others = ["ClipByValue", "L2Loss", "SdcaFprint", "SdcaOptimizer", "SdcaOptimizerV2"]
    others.append("SdcaShrinkL1")
    names = [name for name in impl.raw_ops.__all__ if name != "infer_shapes"]
    assert sorted([*(op.name for op in OPS), *others]) == names
    for flavour, count in {"Apply": 16, "SparseApply": 11, "ResourceApply": 18}.items():
        assert sum(name.startswith(flavour) for name in impl.raw_ops.__all__) == count
    assert tfopt.raw_ops.__all__ == [*tfopt_ref.raw_ops.__all__, "infer_shapes"]


@pytest.mark.parametrize("rule", [*TF_OPS])
def test_a_rows_inputs_are_its_operands_and_hyperparameters(rule: str) -> None:
    op = TF_OPS[rule]
    assert sorted(op.inputs) == sorted(op.rule.operands + op.rule.hypers)
    inputs, flag = TENSORFLOW[op.name]
    assert " ".join(op.inputs) == inputs.replace("[indices] ", "").replace(" [indices]", "")
    assert (op.sparse, op.ref) == ("indices" in inputs, op.name not in RESOURCE_ONLY)
    assert ",".join(f"{name}={default}" for name, default in op.rule.flags.items()) == flag


@each_op
def test_signatures_are_tensorflows(impl: Any, op: Op) -> None:
    parameters = inspect.signature(op.function(impl)).parameters.values()
    assert {p.kind for p in parameters} == {inspect.Parameter.KEYWORD_ONLY}
    *others, name = (
        p.name if p.default is p.empty else f"{p.name}={p.default}" for p in parameters
    )
    flags = TENSORFLOW[TF_OPS[op.rule.name].name][1].split()
    assert [*others, name] == [*op.inputs, "use_locking=False", *flags, "name=None"]


@each_op
def test_docstrings_name_every_argument(impl: Any, op: Op) -> None:
    function = op.function(impl)
    assert function.__name__ == op.name and function.__module__ == f"{impl.__name__}.raw_ops"
    assert all(name in function.__doc__ for name in inspect.signature(function).parameters)


@each_op
@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("wrapped", [False, True])
def test_an_op_is_its_rule(impl: Any, op: Op, flag: bool, wrapped: bool) -> None:
    given = arguments(op, impl.Variable if wrapped else lambda array: array)
    flags = dict.fromkeys(op.rule.flags, flag)
    returned = op.function(impl)(**given, **flags, use_locking=flag, name="step")
    assert returned is (None if op.name.startswith("Resource") else given["var"])
    expected = arguments(op)
    gradient = "delta" if "delta" in expected else "grad"
    operands = [expected[name] for name in (*op.rule.operands[:-1], gradient)]
    options = {name: expected[name] for name in (*op.rule.hypers, "indices") if name in expected}
    getattr(impl.training_ops, f"apply_{op.rule.name}")(*operands, **options, **flags)
    for name in op.rule.operands[:-1]:
        assert_same_bits(np.asarray(given[name]), expected[name], name)


@each_op
def test_an_op_without_its_flag_has_tensorflows_default(impl: Any, op: Op) -> None:
    given, expected = arguments(op), arguments(op)
    op.function(impl)(**given)
    op.function(impl)(**expected, **op.rule.flags)
    for name in op.rule.operands[:-1]:
        assert_same_bits(given[name], expected[name], name)


@each_op
@pytest.mark.parametrize("use_locking", [False, True])
def test_a_tape_keeps_what_was_read_before_a_call(impl: Any, op: Op, use_locking: bool) -> None:
    given = arguments(op, impl.Variable)
    before = given["var"].numpy().copy()
    with impl.GradientTape() as tape:
        squares = given["var"] * given["var"]
    op.function(impl)(**given, use_locking=use_locking)
    assert (given["var"].numpy() != before).any()
    np.testing.assert_array_equal(tape.gradient(squares, given["var"]).numpy(), 2 * before)


@each_op
@pytest.mark.parametrize("use_locking", [False, True])
def test_refused_calls_change_nothing(impl: Any, op: Op, use_locking: bool) -> None:
    function = op.function(impl)
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
        (impl.InvalidArgumentError, (), {**given, gradient: given[gradient][:, :2]}),
        (impl.InvalidTypeError, (), {**given, gradient: given[gradient].astype(int)}),
        (impl.InvalidTypeError, (), {**given, "var": [[1.0]]}),
        *((impl.InvalidArgumentError, (), {**given, h: np.ones(1)}) for h in op.rule.hypers),
        *((impl.InvalidArgumentError, (), {**given, s: np.ones(3)}) for s in op.rule.slots),
    ]
    if op.sparse:
        calls.append((impl.IndexOutOfRangeError, (), {**given, "indices": np.array([0, 1, 2, 5])}))
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
        for call, inputs in ((tfopt.raw_ops.infer_shapes, shapes), (op.function(tfopt), given)):
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


def test_what_shapes_say_together() -> None:
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
